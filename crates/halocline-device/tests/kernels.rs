//! Compiles every kernel of every crate for every supported architecture. Needs NVRTC but no GPU.
//! `HALOCLINE_TEST_NVRTC` names the library, as `tools/test` sets it; otherwise the test uses an installed
//! one, or prints that it is skipped.

use halocline_device::cuda::{COPY_KERNELS, Compiler};
use std::path::{Path, PathBuf};

/// All `*.cu` below a directory.
fn kernels_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("read").path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|name| name == "cu"));
    own.chain(directories.iter().flat_map(|directory| kernels_in(directory))).collect()
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    let chosen = std::env::var_os("HALOCLINE_TEST_NVRTC");
    if let Some(path) = &chosen {
        // SAFETY: no other thread reads or writes the environment: this is the only test of its program.
        unsafe { std::env::set_var("HALOCLINE_NVRTC", path) };
    }
    // SAFETY: no other thread reads or writes the environment: this is the only test of its program. Without a cache
    // everything is compiled.
    unsafe { std::env::set_var("HALOCLINE_CACHE", "off") };
    let compiler = match Compiler::load() {
        Ok(compiler) => compiler,
        Err(why) if chosen.is_none() => return println!("SKIPPED: {why}"),
        Err(why) => panic!("{why}"),
    };
    println!("NVRTC {:?} at {}", compiler.version(), compiler.path().display());
    if chosen.is_some() {
        // If no NVRTC matches an old driver, any is used, and the driver reports the error.
        let only = Compiler::load_for((11, 0)).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((only.version(), only.path()), (compiler.version(), compiler.path()));
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is among the others");
    let sources = kernels_in(crates);
    assert!(sources.len() >= 7, "not all are found: {sources:?}");
    for path in sources {
        let source = std::fs::read_to_string(&path).expect("a file");
        let name = path.strip_prefix(crates).expect("found there").display().to_string();
        for capability in [80, 90, 100] {
            let compiled =
                compiler.compile(&name, &source, &[], capability).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(compiled.target, format!("sm_{capability}"));
            assert!(compiled.code().starts_with(b"\x7fELF"), "{name} for {capability} is no cubin");
            println!("{name} for sm_{capability}: {} bytes", compiled.code().len());
        }
    }
    // A GPU newer than NVRTC gets PTX.
    let future = compiler.compile("copy.cu", COPY_KERNELS, &[], 9990).unwrap_or_else(|why| panic!("{why}"));
    assert!(future.target.starts_with("compute_") && future.code().starts_with(b"//"), "{}", future.target);
    let code = String::from_utf8_lossy(future.code());
    for kernel in ["halocline_copy", "halocline_copy_flags"] {
        assert!(code.contains(&format!(".entry {kernel}(")), "there is no {kernel}");
    }
    let wrong = compiler.compile("wrong.cu", "__global__ void f() { g(); }", &[], 90);
    assert!(wrong.is_err_and(|why| why.to_string().contains("wrong.cu(1)")), "the compiler's words are lost");
}
