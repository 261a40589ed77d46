//! The jump into a C function whose signature is known only at run time.
//!
//! A frame is a list of 64-bit words: the integer registers, the eight floating-point registers, then the stack in blocks of
//! eight words. [`Placer`] says which word a parameter is. [`jump`] copies the stack words below its own frame, loads the
//! registers and calls.

use std::ffi::c_void;

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!("halocline-program knows the calling conventions of Linux on x86_64 and aarch64");

/// Integer registers for arguments.
const INTEGERS: usize = if cfg!(target_arch = "x86_64") { 6 } else { 8 };
/// Floating-point registers for arguments.
const FLOATS: usize = 8;
/// Words of registers at the beginning of a frame.
pub(crate) const REGISTERS: usize = INTEGERS + FLOATS;
/// The stack is copied in blocks of so many words.
const BLOCK: usize = 8;

/// Assigns words of the frame to the parameters of a C function, in their order.
#[derive(Default)]
pub(crate) struct Placer {
    integers: usize,
    floats: usize,
    stack: usize,
}

impl Placer {
    /// The word of the next parameter.
    pub(crate) fn place(&mut self, is_floating: bool) -> usize {
        let (used, limit, first) = match is_floating {
            true => (&mut self.floats, FLOATS, INTEGERS),
            false => (&mut self.integers, INTEGERS, 0),
        };
        if *used < limit {
            *used += 1;
            return first + *used - 1;
        }
        self.stack += 1;
        REGISTERS + self.stack - 1
    }

    /// Words of the whole frame.
    pub(crate) fn words(&self) -> usize {
        REGISTERS + self.stack.next_multiple_of(BLOCK)
    }
}

/// Calls `function` with the arguments in a frame. Returns the integer register of the result.
///
/// # Safety
/// `frame` has [`REGISTERS`] + `stack_words` words, placed by a [`Placer`] for the parameters of `function`, and
/// `stack_words` is a multiple of eight. The arguments are what the function requires.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn jump(frame: *const u64, stack_words: usize, function: *const c_void) -> u64 {
    // The copy goes from high to low addresses, so that a growing stack meets its guard page.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov r10, rdi",
        "mov r11, rdx",
        "test rsi, rsi",
        "jz 3f",
        "lea rdx, [r10 + rsi*8 + 112]",
        "2:",
        "movups xmm0, [rdx - 16]",
        "movups xmm1, [rdx - 32]",
        "movups xmm2, [rdx - 48]",
        "movups xmm3, [rdx - 64]",
        "sub rdx, 64",
        "sub rsp, 64",
        "movaps [rsp + 48], xmm0",
        "movaps [rsp + 32], xmm1",
        "movaps [rsp + 16], xmm2",
        "movaps [rsp], xmm3",
        "sub rsi, 8",
        "jnz 2b",
        "3:",
        "movq xmm0, [r10 + 48]",
        "movq xmm1, [r10 + 56]",
        "movq xmm2, [r10 + 64]",
        "movq xmm3, [r10 + 72]",
        "movq xmm4, [r10 + 80]",
        "movq xmm5, [r10 + 88]",
        "movq xmm6, [r10 + 96]",
        "movq xmm7, [r10 + 104]",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov rcx, [r10 + 24]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        "call r11",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `function` with the arguments in a frame. Returns the integer register of the result.
///
/// # Safety
/// `frame` has [`REGISTERS`] + `stack_words` words, placed by a [`Placer`] for the parameters of `function`, and
/// `stack_words` is a multiple of eight. The arguments are what the function requires.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn jump(frame: *const u64, stack_words: usize, function: *const c_void) -> u64 {
    // The copy goes from high to low addresses, so that a growing stack meets its guard page.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov x9, x0",
        "mov x16, x2",
        "cbz x1, 3f",
        "add x10, x9, x1, lsl #3",
        "add x10, x10, #128",
        "2:",
        "ldp q0, q1, [x10, #-64]!",
        "ldp q2, q3, [x10, #32]",
        "sub sp, sp, #64",
        "stp q0, q1, [sp]",
        "stp q2, q3, [sp, #32]",
        "subs x1, x1, #8",
        "b.ne 2b",
        "3:",
        "ldp d0, d1, [x9, #64]",
        "ldp d2, d3, [x9, #80]",
        "ldp d4, d5, [x9, #96]",
        "ldp d6, d7, [x9, #112]",
        "ldp x0, x1, [x9]",
        "ldp x2, x3, [x9, #16]",
        "ldp x4, x5, [x9, #32]",
        "ldp x6, x7, [x9, #48]",
        "blr x16",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}
