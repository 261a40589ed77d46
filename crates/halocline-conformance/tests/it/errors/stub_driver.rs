//! A GPU driver and an NVRTC that refuse what they are asked for: libraries of functions that do nothing and return the number in the
//! environment variable of their name, or 0. Each test uses them in a process of its own.

use super::limits::{passes, process_of};
use super::source::root;
use halocline::DeviceError;
use halocline_device::RawStream;
use halocline_device::cuda::{self, Program};
use halocline_device::remote::{Allocation, Export, Kind, Refusal};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The functions that also write something: one GPU of compute capability 9.0, CUDA 11.8, NVRTC 13.0, memory in pieces of one page.
const WRITES: &str = r#"
    #include <stdlib.h>
    static long code(const char *name) { const char *text = getenv(name); return text ? atol(text) : 0; }
    long cuDriverGetVersion(int *version) { *version = 11080; return 0; }
    long cuStreamGetCtx(long stream, long *context) { *context = stream; return 0; }
    long cuDeviceGetCount(int *count) { *count = 1; return 0; }
    long cuDeviceGetAttribute(int *value, int attribute) { *value = attribute == 75 ? 9 : 0; return 0; }
    long cuPointerGetAttributes(unsigned count, int *attributes, unsigned long **results, unsigned long address) {
        for (unsigned at = 0; at < count; at++) {
            if (attributes[at] == 18) *results[at] = 4096;
            if (attributes[at] == 19) *results[at] = address & ~4095ul;
        }
        return 0;
    }
    long nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
    long nvrtcGetNumSupportedArchs(int *count) { *count = 1; return 0; }
    long nvrtcGetSupportedArchs(int *architectures) { *architectures = 90; return 0; }
"#;

/// Runs an ignored test of this file with the stubs, in which these functions fail.
fn with_stubs(test: &str, codes: &[(&str, &str)]) {
    with_stubs_of_each(test, &[codes]);
}

/// The same, once for each of several lists of functions.
fn with_stubs_of_each(test: &str, codes: &[&[(&str, &str)]]) {
    let folder = tempfile::tempdir().unwrap();
    let library = driver(folder.path());
    for codes in codes {
        let mut command = process_of(&format!("errors::stub_driver::{test}"));
        command
            .env("LD_LIBRARY_PATH", folder.path())
            .env("HALOCLINE_NVRTC", &library)
            .env("HALOCLINE_CACHE", "off");
        passes(command.envs(codes.iter().copied()));
    }
}

/// Compiles the stubs in a folder, where the loader finds the driver.
pub(super) fn driver(folder: &Path) -> PathBuf {
    compile(&folder.join("libcuda.so.1"), &(WRITES.to_owned() + &others()))
}

/// Compiles a library.
pub(super) fn compile(library: &Path, code: &str) -> PathBuf {
    let source = library.with_extension("c");
    std::fs::write(&source, code).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).arg(library).arg(&source).status();
    assert!(compiled.expect("these tests need a C compiler, `cc`").success());
    library.to_owned()
}

/// The other functions that the library looks up.
fn others() -> String {
    let text =
        |file| std::fs::read_to_string(root().join("crates/halocline-device/src/cuda").join(file)).unwrap();
    let code = text("api.rs") + &text("nvrtc.rs");
    let names = code.split("b\"").skip(1).filter_map(|rest| rest.split_once("\\0\"")).map(|(name, _)| name);
    let missing = names.filter(|name| !WRITES.contains(&format!("{name}("))).collect::<BTreeSet<_>>();
    missing.into_iter().map(|name| format!("long {name}() {{ return code(\"{name}\"); }}\n")).collect()
}

#[test]
fn a_driver_that_finds_no_gpu_is_named() {
    with_stubs("without_a_gpu", &[("cuInit", "100")]);
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn without_a_gpu() {
    let error = cuda::device(0).err();
    let is_init = |why: &str| why.starts_with("libcuda.so.1: cuInit: ");
    assert!(matches!(&error, Some(DeviceError::NoCuda { why }) if is_init(why)), "{error:?}");
}

#[test]
fn a_gpu_without_memory_for_a_context_is_named() {
    with_stubs("without_memory", &[("cuDevicePrimaryCtxRetain", "2")]);
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn without_memory() {
    let call = "cuDevicePrimaryCtxRetain";
    assert_eq!(cuda::device(0).err(), Some(DeviceError::Exhausted { device: 0, call }));
}

#[test]
fn a_call_that_the_driver_refuses_is_named() {
    with_stubs("refused", &[("cuCtxGetStreamPriorityRange", "801")]);
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn refused() {
    let (call, what) = ("cuCtxGetStreamPriorityRange", "error 801 of CUDA".to_owned());
    assert_eq!(cuda::device(0).err(), Some(DeviceError::Refused { device: 0, call, code: 801, what }));
}

#[test]
fn kernels_of_an_nvrtc_that_is_newer_than_the_driver_are_refused() {
    with_stubs("newer_kernels", &[("cuModuleLoadData", "222")]);
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn newer_kernels() {
    let error = Program::compile(&cuda::device(0).unwrap(), "any.cu", "", &[]).err();
    let what = "error 222 of CUDA".to_owned();
    assert_eq!(error, Some(DeviceError::NewerKernels { device: 0, nvrtc: (13, 0), driver: (11, 8), what }));
}

#[test]
fn kernels_that_do_not_compile_are_named() {
    with_stubs("wrong_kernels", &[("nvrtcCompileProgram", "6")]);
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn wrong_kernels() {
    let error = Program::compile(&cuda::device(0).unwrap(), "wrong.cu", "", &[]).err();
    let is_named = |why: &str| why.starts_with("wrong.cu: error 6 of NVRTC");
    assert!(matches!(&error, Some(DeviceError::NoKernels { why }) if is_named(why)), "{error:?}");
}

#[test]
fn a_stream_of_another_context_is_refused() {
    with_stubs("of_another_context", &[]);
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn of_another_context() {
    // SAFETY: the stub takes any handle.
    let stream = unsafe { cuda::device(0).unwrap().borrow_stream(RawStream(7)) };
    assert_eq!(stream.err(), Some(DeviceError::OtherContext { stream: 7, device: 0 }));
}

#[test]
fn memory_that_cannot_be_exported_or_opened_is_refused() {
    let pool = ("cuMemPoolExportToShareableHandle", "801");
    let codes = ["2", "101", "208", "217", "801"].map(|code| [pool, ("cuIpcOpenMemHandle_v2", code)]);
    with_stubs_of_each("not_shared", &codes.each_ref().map(|codes| &codes[..]));
}

#[test]
#[ignore = "the test above runs it, with a stub of the driver"]
fn not_shared() {
    let provider = cuda::provider(0).unwrap();
    let of = |kind, bytes| Allocation { base: 4096, bytes, id: 1, device: provider.device(), kind };
    let export = |kind, bytes| provider.export(&of(kind, bytes)).err();
    assert_eq!(export(Kind::Vmm, 128 << 12), Some(Refusal::NoHandleType));
    assert_eq!(export(Kind::Vmm, 129 << 12), Some(Refusal::TooManyPieces));
    assert_eq!(export(Kind::Pool, 4 << 30), Some(Refusal::DefaultPool));
    assert_eq!(export(Kind::Pool, (4 << 30) + 1), Some(Refusal::TooLarge));
    let refused = match &*std::env::var("cuIpcOpenMemHandle_v2").unwrap() {
        "2" => Refusal::OutOfMemory,
        "101" => Refusal::NoDevice,
        "208" => Refusal::AlreadyOpen,
        "217" => Refusal::NoPeerAccess,
        other => Refusal::Other(other.parse().unwrap()),
    };
    let opened = provider.open(&of(Kind::Legacy, 1), Export { handle: vec![0; 64], ..Export::default() });
    assert_eq!(opened.err(), Some(refused));
}
