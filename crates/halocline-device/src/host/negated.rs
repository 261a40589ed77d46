//! Copies that change the sign of floating-point numbers: components of vectors across seams that turn them.

use super::{FEW, steps};
use halocline_plan::ElementType;
use halocline_plan::copy::{CopyOp, Loop};

/// Numbers as integers whose highest bit is the sign.
trait Number: Copy + std::ops::BitXor<Output = Self> {
    const SIGN: Self;
}

impl Number for u16 {
    const SIGN: Self = 1 << 15;
}

impl Number for u32 {
    const SIGN: Self = 1 << 31;
}

impl Number for u64 {
    const SIGN: Self = 1 << 63;
}

/// Executes an operation whose elements change their sign.
///
/// # Safety
/// As of [`copy`](super::copy), from and to the first bytes of the operation.
#[cold]
#[inline(never)]
pub(super) unsafe fn copy(op: &CopyOp, from: *const u8, to: *mut u8) {
    // SAFETY: the caller vouches for the operation.
    unsafe {
        match op.element.sign_distance() {
            Some(2) => nest::<u16>(&op.loops, op.block, from, to),
            Some(4) => nest::<u32>(&op.loops, op.block, from, to),
            Some(8) => nest::<u64>(&op.loops, op.block, from, to),
            _ => unreachable!("a bind refuses elements without a sign"),
        }
    }
}

/// Changes the sign of all numbers of a buffer.
pub(super) fn change_signs(element: ElementType, bytes: &mut [u8]) {
    let Some(distance) = element.sign_distance() else {
        unreachable!("a bind refuses elements without a sign")
    };
    // The sign is in the highest byte, which comes last.
    bytes.iter_mut().skip(distance - 1).step_by(distance).for_each(|byte| *byte ^= 0x80);
}

unsafe fn nest<N: Number>(loops: &[Loop], block: usize, from: *const u8, to: *mut u8) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe {
        match loops {
            [] => numbers::<N>(block / size_of::<N>(), from, to),
            [last] if block == size_of::<N>() => strided::<N>(last, from, to),
            [outer, few] if block == size_of::<N>() && few.count <= FEW => {
                few_numbers::<N>(outer, few, from, to)
            }
            [outer, rest @ ..] => {
                for (from, to) in steps(outer, from, to) {
                    nest::<N>(rest, block, from, to);
                }
            }
        }
    }
}

/// Changes the signs of a loop of few numbers within a long one, as of the columns of a narrow halo.
unsafe fn few_numbers<N: Number>(outer: &Loop, few: &Loop, from: *const u8, to: *mut u8) {
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe {
        match few.count {
            2 => unrolled::<N, 2>(outer, few, from, to),
            3 => unrolled::<N, 3>(outer, few, from, to),
            4 => unrolled::<N, 4>(outer, few, from, to),
            _ => {
                for (from, to) in steps(outer, from, to) {
                    strided::<N>(few, from, to);
                }
            }
        }
    }
}

/// Changes the signs of `K` numbers at every step, without a loop over them.
#[inline(never)]
unsafe fn unrolled<N: Number, const K: usize>(l: &Loop, few: &Loop, mut from: *const u8, mut to: *mut u8) {
    for _ in 0..l.count {
        for at in 0..K as isize {
            let (from, to) = (from.wrapping_offset(at * few.source), to.wrapping_offset(at * few.target));
            // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
            unsafe { to.cast::<N>().write_unaligned(from.cast::<N>().read_unaligned() ^ N::SIGN) };
        }
        from = from.wrapping_offset(l.source);
        to = to.wrapping_offset(l.target);
    }
}

#[inline(always)]
unsafe fn numbers<N: Number>(count: usize, from: *const u8, to: *mut u8) {
    let (from, to) = (from.cast::<N>(), to.cast::<N>());
    for at in 0..count {
        // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
        unsafe { to.add(at).write_unaligned(from.add(at).read_unaligned() ^ N::SIGN) };
    }
}

#[inline(never)]
unsafe fn strided<N: Number>(l: &Loop, mut from: *const u8, mut to: *mut u8) {
    let size = size_of::<N>() as isize;
    // SAFETY: these bytes are part of an operation that the caller of `copy` vouches for.
    unsafe {
        match (l.source, l.target) {
            (source, target) if (source, target) == (size, size) => numbers::<N>(l.count, from, to),
            (source, target) if (source, target) == (size, -size) => {
                let (from, to) = (from.cast::<N>(), to.cast::<N>());
                for at in 0..l.count {
                    to.sub(at).write_unaligned(from.add(at).read_unaligned() ^ N::SIGN);
                }
            }
            _ => {
                for _ in 0..l.count {
                    to.cast::<N>().write_unaligned(from.cast::<N>().read_unaligned() ^ N::SIGN);
                    from = from.wrapping_offset(l.source);
                    to = to.wrapping_offset(l.target);
                }
            }
        }
    }
}
