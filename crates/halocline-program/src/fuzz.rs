//! Entry points of `fuzz/` into the readers of files. Part of no ordinary build.

use crate::plan::Plan;
use crate::signature::Argument;
use crate::{ArrayView, Given, Signature, elf};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A manifest: its plan binds arguments of the right kinds.
pub fn manifest(bytes: &[u8]) {
    let Ok(signature) = Signature::from_json(bytes, Path::new("libheat.so.json")) else { return };
    let Ok(plan) = Plan::compile(&signature) else { return };
    let mut memory = [0.0f64; 12];
    let array = ArrayView::contiguous(&mut memory, &[3, 4], &[32, 8]).expect("12 elements");
    let of = |argument: &Argument| match argument {
        Argument::Array(_) => Given::Array(array),
        Argument::Scalar(_) => 3i64.into(),
    };
    let given: Vec<Given<'_>> = signature.arguments.iter().map(of).collect();
    let mut words = vec![0; plan.words];
    // The words are the frame of a call, which is not made.
    let _ = plan.bind(&given, &mut None, &mut words);
    let _ = plan.bind(&[], &mut None, &mut words);
}

/// A file that may be a library.
pub fn library(bytes: &[u8]) {
    let file = memfd_create("library", MemfdFlags::CLOEXEC).expect("memory for a file");
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).expect("space for it");
    let _ = elf::check(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
}

/// Seeds for [`manifest`].
pub fn manifests() -> Vec<Vec<u8>> {
    let dimensions = r#"[{"name": "I", "extent": "n + 1", "start": 0, "stop": "n", "stride": "m", "covers": [0, "2*n // m"]}, {}]"#;
    let text = format!(
        r#"{{"format": 1, "program": "heat", "interface": "dace", "arguments": [
            {{"kind": "array", "name": "t", "type": "float64", "device": "cpu", "access": "read", "dimensions": {dimensions}}},
            {{"kind": "scalar", "name": "k", "type": "int8", "optional": true}}],
        "symbols": [{{"name": "n", "type": "int32"}}, {{"name": "m", "type": "int64"}}], "parameters": ["t", "k", "n", "n", "m"], "init": ["n"]}}"#
    );
    vec![text.into_bytes()]
}

/// Seeds for [`library`]: the begin of this program's own file.
pub fn libraries() -> Vec<Vec<u8>> {
    let own = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    vec![own[..own.len().min(2000)].to_vec()]
}
