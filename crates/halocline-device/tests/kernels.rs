//! Compiles every kernel of every crate, all `*.cu`, [`COPY_KERNELS`] and [`LIST_KERNELS`], for every supported architecture and to PTX, a test
//! each: `tools/test` makes PTX alone. Needs NVRTC but no GPU. `HALOCLINE_TEST_NVRTC` names the library, as `tools/test` sets it;
//! otherwise the test uses an installed one, or prints that it is skipped.

use halocline_device::cuda::{COPY_KERNELS, Compiled, Compiler, LIST_KERNELS};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A source with further parts that are compiled on their own, with other options.
const FURTHER: &str = "#if !defined(HALOCLINE_BASED) && !defined(HALOCLINE_COMBINES)";
/// Kernels that combine elements of all types. They take longer than all others together.
const ALL_TYPES: &str = "-DHALOCLINE_COMBINES=0x3fff";
/// One type of each way to combine: bytes with sign, doubles, complex numbers, and any bytes.
const FOUR_TYPES: &str = "-DHALOCLINE_COMBINES=0x2c01";

/// All `*.cu` below a directory.
fn kernels_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("read").path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|name| name == "cu"));
    own.chain(directories.iter().flat_map(|directory| kernels_in(directory))).collect()
}

/// The compiler; `None`, with a message, if none is installed and none is chosen.
fn compiler() -> Option<&'static Compiler> {
    static COMPILER: LazyLock<Option<Compiler>> = LazyLock::new(|| {
        let chosen = std::env::var_os("HALOCLINE_TEST_NVRTC");
        // SAFETY: all tests of this program begin here. No other thread reads or writes the environment while this runs, and none
        // writes it later.
        unsafe {
            if let Some(path) = &chosen {
                std::env::set_var("HALOCLINE_NVRTC", path);
            }
            // Without a cache everything is compiled.
            std::env::set_var("HALOCLINE_CACHE", "off");
        }
        match Compiler::load() {
            Ok(compiler) => Some(compiler),
            Err(why) if chosen.is_none() => {
                println!("SKIPPED: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    });
    COMPILER.as_ref()
}

/// Compiles every kernel for an architecture, as the library does, and those that combine for such types; returns what was made of
/// each source.
fn compiled_for(capability: u32, types: &str) -> Vec<(String, Compiled)> {
    let Some(compiler) = compiler() else { return Vec::new() };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is among the others");
    let files = kernels_in(crates);
    assert!(files.len() >= 6, "not all are found: {files:?}");
    let mut all = Vec::new();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(crates).expect("found there").display().to_string();
        (name, std::fs::read_to_string(path).expect("a file"))
    };
    let copy = ("cuda/copy".to_owned(), COPY_KERNELS.to_owned());
    let lists = ("cuda/lists".to_owned(), LIST_KERNELS.to_owned());
    for (name, source) in files.iter().map(read).chain([copy, lists]) {
        let parts: &[&[&str]] =
            if source.contains(FURTHER) { &[&[], &["-DHALOCLINE_BASED"], &[types]] } else { &[&[]] };
        for options in parts {
            let compiled = compiler.compile(&name, &source, options, capability);
            let compiled = compiled.unwrap_or_else(|why| panic!("{why}"));
            println!("{name} {options:?} for {}: {} bytes", compiled.target, compiled.code().len());
            all.push((name.clone(), compiled));
        }
    }
    all
}

fn every_kernel_compiles_for(capability: u32, types: &str) {
    for (name, compiled) in compiled_for(capability, types) {
        assert_eq!(compiled.target, format!("sm_{capability}"));
        assert!(compiled.code().starts_with(b"\x7fELF"), "{name} for {capability} is no cubin");
    }
}

#[test]
fn every_kernel_compiles_for_sm_80() {
    every_kernel_compiles_for(80, FOUR_TYPES);
}

#[test]
fn every_kernel_compiles_for_sm_90() {
    every_kernel_compiles_for(90, ALL_TYPES);
}

#[test]
fn every_kernel_compiles_for_sm_100() {
    every_kernel_compiles_for(100, FOUR_TYPES);
}

/// A GPU newer than NVRTC gets PTX, which the driver translates.
#[test]
fn every_kernel_compiles_to_ptx() {
    let mut entries = String::new();
    for (name, compiled) in compiled_for(9990, FOUR_TYPES) {
        assert!(compiled.target.starts_with("compute_"), "{name}: {}", compiled.target);
        assert!(compiled.code().starts_with(b"//"), "{name} is no PTX");
        entries += &String::from_utf8_lossy(compiled.code());
    }
    for kernel in [
        "halocline_copy",
        "halocline_copy_ll",
        "halocline_copy_counted",
        "halocline_copy_ll_counted",
        "halocline_scan",
        "halocline_place_owned_4",
        "halocline_keep_first_8",
    ] {
        let is_there = entries.contains(&format!(".entry {kernel}("));
        assert!(is_there || compiler().is_none(), "there is no {kernel}");
    }
}

#[test]
fn an_error_of_a_kernel_names_its_line() {
    let Some(compiler) = compiler() else { return };
    let wrong = compiler.compile("wrong.cu", "__global__ void f() { g(); }", &[], 90);
    assert!(wrong.is_err_and(|why| why.to_string().contains("wrong.cu(1)")), "the compiler's words are lost");
}

/// If no NVRTC matches an old driver, any is used, and the driver reports the error.
#[test]
fn an_old_driver_gets_any_nvrtc() {
    let Some(compiler) = compiler() else { return };
    if std::env::var_os("HALOCLINE_TEST_NVRTC").is_some() {
        let only = Compiler::load_for((11, 0)).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((only.version(), only.path()), (compiler.version(), compiler.path()));
    }
}
