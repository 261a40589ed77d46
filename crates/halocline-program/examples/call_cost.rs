//! What a call costs, beside other ways into a C function whose signature is known at run time:
//!
//!     cargo run --release -p halocline-program --example call_cost
//!
//! Prints nanoseconds a call, the median of rounds that take turns. It needs a C compiler, `cc`; libffi is measured if it is
//! installed.

use halocline_program::{ArrayView, Device, Given, Program, RawArray, ScalarType, Signature};
use std::ffi::c_void;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// C parameters of a program of `arrays` arrays: each with its extent and stride, and four integers.
const fn parameters(arrays: usize) -> usize {
    3 * arrays + 4
}

/// The function and its manifest.
struct Source {
    code: String,
    manifest: String,
}

fn source(arrays: usize, has_state: bool) -> Source {
    let each = |of: &dyn Fn(usize) -> String| (0..arrays).map(of).collect::<Vec<_>>().join(", ");
    let (state, prefix) = if has_state { ("void *state, ", "__program_") } else { ("", "") };
    let code = format!(
        "int state; void *__dace_init_take(void) {{ return &state; }} int __dace_exit_take(void *s) {{ return 0; }}
         void {prefix}take({state}{}, {}, int k0, int k1, int k2, int k3) {{ a0[0] += k3; }}
         void direct(int n) {{
            static double a[8]; for (int i = 0; i < n; i++) {prefix}take({}{}, {}, i, i, i, 0);
         }}",
        each(&|i| format!("double *a{i}")),
        each(&|i| format!("int n{i}, int s{i}")),
        if has_state { "&state, " } else { "" },
        each(&|_| "a".to_owned()),
        each(&|i| format!("i + {i}, i")),
    );
    let arguments = each(&|i| {
        format!(
            r#"{{"kind": "array", "name": "a{i}", "type": "float64", "dimensions": [{{"extent": "n{i}", "stride": "s{i}"}}]}}"#
        )
    });
    let manifest = format!(
        r#"{{"format": 1, "program": "take", "interface": "{}", "arguments": [{arguments}, {}], "symbols": [{}], "parameters": [{}, {}, "k0", "k1", "k2", "k3"]}}"#,
        if has_state { "dace" } else { "c" },
        [0, 1, 2, 3].map(|k| format!(r#"{{"kind": "scalar", "name": "k{k}", "type": "int32"}}"#)).join(", "),
        each(&|i| format!(r#"{{"name": "n{i}", "type": "int32"}}, {{"name": "s{i}", "type": "int32"}}"#)),
        each(&|i| format!(r#""a{i}""#)),
        each(&|i| format!(r#""n{i}", "s{i}""#)),
    );
    Source { code, manifest }
}

/// `ffi_call` of the installed libffi, for a function of pointers and integers.
struct Ffi {
    call: unsafe extern "C" fn(*mut Cif, *const c_void, *mut c_void, *mut *mut c_void),
    cif: Box<Cif>,
    types: Vec<*const c_void>,
    values: Vec<u64>,
    pointers: Vec<*mut c_void>,
}

/// Space for libffi's `ffi_cif`.
#[repr(C, align(16))]
struct Cif([u64; 16]);

impl Ffi {
    /// For `words`, of which the first `pointers` are pointers; `None` without libffi.
    fn new(words: &[u64], pointers: usize) -> Option<Self> {
        // SAFETY: libffi has no constructors with conditions.
        let library = Box::leak(Box::new(unsafe { libloading::Library::new("libffi.so.8") }.ok()?));
        // SAFETY: an address has no type.
        let symbol =
            |name: &str| unsafe { library.get::<*const c_void>(name.as_bytes()) }.map(|found| *found).ok();
        let (int, pointer, void) =
            (symbol("ffi_type_sint32")?, symbol("ffi_type_pointer")?, symbol("ffi_type_void")?);
        let types: Vec<*const c_void> =
            (0..words.len()).map(|i| if i < pointers { pointer } else { int }).collect();
        type Prepare = unsafe extern "C" fn(*mut Cif, u32, u32, *const c_void, *const *const c_void) -> u32;
        // SAFETY: the types of the two functions in ffi.h.
        let (prepare, call) = unsafe {
            (
                std::mem::transmute::<*const c_void, Prepare>(symbol("ffi_prep_cif")?),
                std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(*mut Cif, *const c_void, *mut c_void, *mut *mut c_void),
                >(symbol("ffi_call")?),
            )
        };
        let mut cif = Box::new(Cif([0; 16]));
        // The default ABI is 2 on x86-64 (FFI_UNIX64) and 1 on AArch64 (FFI_SYSV).
        let abi = if cfg!(target_arch = "x86_64") { 2 } else { 1 };
        // SAFETY: `cif` has the size of an `ffi_cif`, and `types` lives as long as it.
        let status = unsafe { prepare(&mut *cif, abi, words.len() as u32, void, types.as_ptr()) };
        let mut values = words.to_vec();
        let pointers = values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        (status == 0).then_some(Self { call, cif, types, values, pointers })
    }

    fn call(&mut self, function: *const c_void) {
        black_box((&self.types, &self.values));
        // SAFETY: the description and the values fit the function.
        unsafe { (self.call)(&mut *self.cif, function, std::ptr::null_mut(), self.pointers.as_mut_ptr()) };
    }
}

macro_rules! thunk {
    ($name:ident: $($i:literal)*) => {
        /// Calls a function of integers and pointers: one monomorphic function for each count.
        ///
        /// # Safety
        /// The function takes these words.
        unsafe fn $name(function: *const c_void, words: &[u64]) {
            type Function = unsafe extern "C" fn($(thunk!(@type $i)),*);
            // SAFETY: the caller says so.
            unsafe { std::mem::transmute::<*const c_void, Function>(function)($(words[$i]),*) };
        }
    };
    (@type $i:literal) => { u64 };
}
thunk!(thunk_19: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
thunk!(thunk_34: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33);
thunk!(thunk_64: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
    38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);

/// A way into the function: makes so many calls.
struct CallForm<'a> {
    name: &'static str,
    calls: Box<dyn FnMut(u32) + 'a>,
}

impl<'a> CallForm<'a> {
    fn new(name: &'static str, calls: impl FnMut(u32) + 'a) -> Self {
        Self { name, calls: Box::new(calls) }
    }
}

/// Nanoseconds a call of each, the median of rounds in turn.
fn measure(ways: &mut [CallForm<'_>]) -> Vec<f64> {
    const CALLS: u32 = 2000;
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..200 {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let begin = Instant::now();
            (way.calls)(CALLS);
            times.push(begin.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    times.into_iter().map(median).collect()
}

fn build(folder: &Path, source: &Source, name: &str) -> Result<Program> {
    let (code, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&code, &source.code)?;
    let done = Command::new("cc")
        .args(["-O2", "-fno-inline", "-fno-ipa-cp", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&code)
        .status()?;
    if !done.success() {
        return Err("cc failed".into());
    }
    let signature = Signature::from_json(source.manifest.as_bytes(), &library)?;
    // SAFETY: the code and the manifest were written together.
    Ok(unsafe { Program::with_signature(&library, signature) }?)
}

fn row(folder: &Path, arrays: usize) -> Result<()> {
    let stateless = build(folder, &source(arrays, false), &format!("c{arrays}"))?;
    let stateful = build(folder, &source(arrays, true), &format!("dace{arrays}"))?;
    let mut memory = [0f64; 8];
    let raw = RawArray {
        address: memory.as_mut_ptr().cast(),
        element: ScalarType::Float64,
        extents: &[8],
        strides: &[8],
        device: Device::Host,
        is_writable: true,
    };
    // SAFETY: the memory lives as long as the calls, which access one element.
    let view = unsafe { ArrayView::from_raw(raw) };
    let mut given: Vec<Given<'_>> = vec![view.into(); arrays];
    given.extend([Given::from(0i32); 4]);
    // SAFETY: the libraries are open.
    let library = unsafe { libloading::Library::new(stateless.library()) }?;
    // SAFETY: the types in the code above.
    let direct = unsafe { library.get::<extern "C" fn(i32)>(b"direct") }?;
    // SAFETY: an address has no type.
    let function = *unsafe { library.get::<*const c_void>(b"take") }?;
    let words: Vec<u64> =
        (0..parameters(arrays)).map(|i| if i < arrays { memory.as_mut_ptr() as u64 } else { 0 }).collect();
    let thunk = match arrays {
        5 => thunk_19,
        10 => thunk_34,
        _ => thunk_64,
    };
    let mut ffi = Ffi::new(&words, arrays);
    let (mut prepared, mut prepared_dace) = (stateless.prepare(&given)?, stateful.prepare(&given)?);
    let repeat =
        |calls: u32, call: &mut dyn FnMut() -> std::result::Result<(), halocline_program::ProgramError>| {
            (0..calls).for_each(|_| call().expect("the call"));
        };
    let mut ways = vec![
        CallForm::new("direct C", |calls| direct(calls as i32)),
        CallForm::new("thunk", |calls| {
            // SAFETY: the words are the arguments that the function takes, and the arrays that they point to outlive the call.
            (0..calls).for_each(|_| unsafe { thunk(function, black_box(&words)) })
        }),
        CallForm::new("prepared, C", |calls| (0..calls).for_each(|_| prepared.call().expect("the call"))),
        CallForm::new("prepared, state", |calls| {
            (0..calls).for_each(|_| prepared_dace.call().expect("the call"))
        }),
        CallForm::new("checked, C", |calls| repeat(calls, &mut || stateless.call(black_box(&given)))),
        CallForm::new("checked, state", |calls| repeat(calls, &mut || stateful.call(black_box(&given)))),
    ];
    if let Some(ffi) = &mut ffi {
        ways.push(CallForm::new("libffi", |calls| (0..calls).for_each(|_| ffi.call(function))));
    }
    let times = measure(&mut ways);
    print!("{arrays:6} ({:3})", parameters(arrays));
    ways.iter().zip(times).for_each(|(way, time)| print!("  {} {time:.1}", way.name));
    println!();
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    println!("arrays (C arguments), nanoseconds a call:");
    [5, 10, 20].into_iter().try_for_each(|arrays| row(folder.path(), arrays))
}
