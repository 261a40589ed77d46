//! Libraries from C code.

use halocline_program::{Program, ProgramError, Signature};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A library in a folder of its own.
pub struct Built {
    pub folder: TempDir,
    pub library: PathBuf,
}

/// Compiles `code`.
pub fn build(code: &str) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("code.c"), folder.path().join("libcode.so"));
    std::fs::write(&source, code).unwrap();
    let compiled =
        Command::new("cc").args(["-O1", "-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
    let compiled = compiled.expect("these tests need a C compiler, `cc`");
    assert!(compiled.status.success(), "{}\n{code}", String::from_utf8_lossy(&compiled.stderr));
    Built { folder, library }
}

impl Built {
    /// Loads it with a manifest beside it.
    pub fn load(&self, manifest: &str) -> Result<Program, ProgramError> {
        std::fs::write(halocline_program::signature::manifest_path(&self.library), manifest).unwrap();
        // SAFETY: the code and the manifest of a test fit each other, or the error comes before a call.
        unsafe { Program::load(&self.library) }
    }

    /// The bytes of a global variable.
    pub fn global(&self, name: &str, bytes: usize) -> &[u8] {
        // SAFETY: the library is open already.
        let library = unsafe { libloading::Library::new(&self.library) }.unwrap();
        // SAFETY: an address has no type.
        let address = *unsafe { library.get::<*const u8>(name.as_bytes()) }.unwrap();
        // SAFETY: the program keeps the library open, and the variable has so many bytes.
        unsafe { std::slice::from_raw_parts(address, bytes) }
    }
}

/// A signature from its text.
pub fn signature(text: &str) -> Result<Signature, ProgramError> {
    Signature::from_json(text.as_bytes(), Path::new("manifest"))
}

/// `scale(a, n, s, factor)`: multiplies `n` elements of distance `s`.
pub const SCALE: &str = "
    void scale(double *a, int n, int s, double factor) {
        for (int i = 0; i < n; i++) a[i * s] *= factor;
    }";

/// The manifest of [`SCALE`].
pub const SCALE_MANIFEST: &str = r#"{
    "format": 1, "program": "scale", "interface": "c",
    "arguments": [
        {"kind": "array", "name": "a", "type": "float64", "dimensions": [{"name": "I", "extent": "n", "stride": "s"}]},
        {"kind": "scalar", "name": "factor", "type": "float64"}],
    "symbols": [{"name": "n", "type": "int32"}, {"name": "s", "type": "int32"}],
    "parameters": ["a", "n", "s", "factor"]}"#;
