//! Calls compiled programs: stencils of DaCe and GT4Py, or any C function, from a signature.
//!
//! A [`Signature`] says what a program takes. It is compiled once to a plan that says for each argument what is checked, and for each C
//! parameter where it comes from. A call checks everything and jumps:
//!
//! ```no_run
//! use halocline_program::{ArrayView, Program};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: the library was built with this manifest.
//! let program = unsafe { Program::load("libheat.so") }?;
//! let mut t = vec![0.0f64; 20 * 30];
//! let t = ArrayView::contiguous(&mut t, &[20, 30], &[240, 8]).ok_or("not the size of the array")?;
//! program.call(&[t.into(), 0.1.into()])?;
//!
//! let mut step = program.prepare(&[t.into(), 0.1.into()])?;
//! step.call()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The manifest
//!
//! A manifest is a JSON file beside the library, `libheat.so.json` for `libheat.so`:
//!
//! ```json
//! {
//!   "format": 1,
//!   "program": "heat",
//!   "interface": "dace",
//!   "arguments": [
//!     {"kind": "array", "name": "t", "type": "float64", "device": "cpu", "access": "write", "dimensions": [
//!       {"name": "I", "extent": "n + 2", "stride": "m", "covers": [0, "n + 2"]},
//!       {"name": "J", "extent": "m", "stride": 1}]},
//!     {"kind": "scalar", "name": "dt", "type": "float64"},
//!     {"kind": "scalar", "name": "n", "type": "int32"}
//!   ],
//!   "symbols": [{"name": "m", "type": "int32"}],
//!   "parameters": ["t", "dt", "m", "n"],
//!   "init": ["m", "n"]
//! }
//! ```
//!
//! | field | meaning | without it |
//! | --- | --- | --- |
//! | `format` | 1 | required |
//! | `program` | the name in the symbols of the library | required |
//! | `interface` | `dace`: `__dace_init_N`, `__program_N`, `__dace_exit_N`; `c`: one function without a state | `dace` |
//! | `symbol` | the C function of interface `c` | the program's name |
//! | `returns` | `nothing`, or `status`: an `int` that is 0 if all is well, for interface `c` | `nothing` |
//! | `arguments` | what the caller gives, in this order | required |
//! | `symbols` | integers that follow from the arrays' dimensions | none |
//! | `parameters` | the names of the C parameters in their order, without the state | required |
//! | `init` | the names of the parameters of `__dace_init_N` | none |
//! | `streams` | the GPU streams of the program: `caller`, `internal` or `default` ([`Streams`]) | `caller` if there is a `stream`, `default` if the library exports `__dace_gpu_set_all_streams`, else none |
//! | `stream` | the name of the C parameter that takes the stream (`cudaStream_t`), for interface `c` | none |
//! | `synchronises` | `true`: the program waits for the GPU before it returns | `false` |
//! | `build_id` | the build id of the library: any other build is refused | any build is loaded |
//!
//! An array has a `type` (`bool`, `int8` to `int64`, `uint8` to `uint64`, `float16`, `float32`, `float64`, `complex64`, `complex128`), a
//! `device` (`cpu` or `gpu`, default `cpu`), an `access` (`write` or `read`, default `write`; a read-only array fits `read` alone) and
//! `dimensions`. A scalar has a `type`, not complex, and may be `"optional": true` if it is an integer that follows from dimensions.
//! Integer scalars are symbols too.
//!
//! Each dimension may name its `extent`, its `start` (the first index), its `stop` (the index after the last), its `stride` (in elements)
//! and the indices that the program accesses, `covers`: `[first, end]`. Each is an integer or an expression of symbols with `+ - * //`
//! and parentheses. The first `extent`, `start`, `stop` or `stride` that is the name of a symbol without a value gives it its value. All
//! others are checked in each call, before the program is entered. The stride of a dimension with one index or none is not compared.
//! An array may also have `accesses`, each with `indices`, a `[first, end]` or `null` for each dimension, and `over`, ranges of
//! loops: if one is empty, nothing is accessed.
//!
//! # The code path
//!
//! A call fills the words of a frame and jumps through one assembler stub, the same for all signatures: it copies the words of the
//! stack, loads six (AArch64: eight) integer registers and eight floating-point registers, and calls. It needs no executable memory and no
//! compiler.
//!
//! Nanoseconds a call, with `--example call_cost` on a shared 2-core x86-64 machine; each array comes with two integers:
//!
//! | arrays (C parameters) | direct from C | stub, prepared | stub, prepared, with a state | one function a count | libffi | checked call |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | 5 (19) | 3.3 | 6.0 | 9.8 | 9.0 | 158 | 86 |
//! | 10 (34) | 4.3 | 7.4 | 11.8 | 15.0 | 272 | 124 |
//! | 20 (64) | 8.4 | 10.9 | 16.7 | 32.4 | 507 | 195 |
//!
//! The stub is the fastest of the three, and needs no list of counts as monomorphic functions do.
//!
//! # Streams
//!
//! [`Program::call_on`] runs a program of a GPU in the order of a stream, without a wait of the host. [`Streams`] says how programs get
//! their streams. Without a stream they work on the default stream.
//!
//! # Threads and states
//!
//! Threads may call one [`Program`] at the same time. Each call has its own frame. A state of DaCe's interface is used by one call at a
//! time: a call that finds all states of its symbols in use makes another one. Values of the symbols of `init` that are new make another
//! state too, as does a stream whose GPU has no state that other streams have passed. A library is opened once per file and process and
//! stays open.

mod arguments;
pub mod cache;
mod call_stream;
mod checked;
mod elf;
mod error;
mod expression;
#[cfg(fuzzing)]
pub mod fuzz;
mod in_flight;
mod library;
mod on_stream;
mod plan;
mod prepared;
mod program;
mod scalar;
pub mod signature;
mod state;
mod stub;

pub use arguments::{ArrayView, Device, Element, Given, RawArray};
#[doc(hidden)]
pub use checked::{CheckedCall, Words};
pub use error::ProgramError;
pub use on_stream::{Keepalive, OnStream};
pub use prepared::Prepared;
pub use program::Program;
pub use scalar::{Scalar, ScalarType};
pub use signature::{Signature, Streams};

/// The blocks of the guide's page compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/programs.md")]
struct Guide;
