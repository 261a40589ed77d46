//! Files that are no library of a program.

use crate::source::{Built, SCALE, SCALE_MANIFEST, build};
use halocline_program::{Program, ProgramError};

/// Loads a library with these bytes.
fn load_bytes(built: &Built, bytes: &[u8]) -> Result<Program, ProgramError> {
    let other = Built { folder: tempfile::tempdir().unwrap(), library: built.folder.path().join("other.so") };
    // A file of its own each time: the bytes may differ from a library that is open.
    let _ = std::fs::remove_file(&other.library);
    std::fs::write(&other.library, bytes).unwrap();
    other.load(SCALE_MANIFEST)
}

#[test]
fn a_library_that_is_cut_anywhere_is_refused() {
    let built = build(SCALE);
    let whole = std::fs::read(&built.library).unwrap();
    for length in [1, 3, 4, 20, 63, 64, 100, whole.len() / 4, whole.len() / 2, whole.len() - 1] {
        let refused = load_bytes(&built, &whole[..length]);
        let is_right = match &refused {
            Err(ProgramError::NotALibrary { .. }) => length < 4,
            Err(ProgramError::Truncated { found, needed, .. }) => *found == length as u64 && needed > found,
            _ => false,
        };
        assert!(is_right, "{length}: {refused:?}");
    }
    load_bytes(&built, &whole).unwrap();
}

#[test]
fn a_manifest_of_another_build_is_refused() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let id = program.build_id().expect("this test needs a linker that makes build ids").to_owned();
    let of_build = |id: &str| SCALE_MANIFEST.replacen('{', &format!(r#"{{"build_id": "{id}", "#), 1);
    assert_eq!(built.load(&of_build(&id)).unwrap().signature().build_id.as_ref(), Some(&id));
    built.load(&of_build(&id.to_uppercase())).unwrap();
    let refused = built.load(&of_build("0123")).unwrap_err();
    assert!(
        matches!(&refused, ProgramError::BuildId { expected, .. } if &**expected == "0123"),
        "{refused:?}"
    );
    let text = refused.to_string();
    let said =
        format!("has the build id {id}, and its manifest is of the build 0123; write the manifest again");
    assert!(text.contains(&said), "{text}");
    // A library without one is none that the manifest is of.
    let mut bytes = std::fs::read(&built.library).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"\x03\0\0\0GNU\0").unwrap();
    bytes[at] = 9;
    let other = Built { folder: tempfile::tempdir().unwrap(), library: built.folder.path().join("other.so") };
    std::fs::write(&other.library, bytes).unwrap();
    let refused = other.load(&of_build(&id)).unwrap_err().to_string();
    assert!(refused.contains("has the build id none"), "{refused}");
}

#[test]
fn a_pipe_is_no_library_and_no_manifest() {
    let built = build(SCALE);
    let pipe = built.folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let manifest = built.folder.path().join("pipe.json");
    std::fs::write(&manifest, SCALE_MANIFEST).unwrap();
    // SAFETY: a pipe is refused before anything is loaded, so that no constructor runs.
    let refused = unsafe { Program::load(&pipe) }.unwrap_err().to_string();
    assert!(refused.contains("is no shared library: it is no regular file; give"), "{refused}");
    std::fs::rename(&pipe, &manifest).unwrap();
    std::fs::copy(&built.library, &pipe).unwrap();
    // SAFETY: the library is that of the test, which has no constructors.
    let refused = unsafe { Program::load(&pipe) }.unwrap_err();
    assert!(
        matches!(&refused, ProgramError::ManifestRead { why, .. } if &**why == "it is no regular file"),
        "{refused}"
    );
}

#[test]
fn a_library_of_another_machine_is_named() {
    let built = build(SCALE);
    let whole = std::fs::read(&built.library).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        load_bytes(&built, &bytes).unwrap_err()
    };
    for (machine, name) in [(3, "x86"), (40, "Arm"), (243, "RISC-V"), (99, "machine 99 of the ELF standard")]
    {
        let error = changed(18, machine);
        assert!(matches!(&error, ProgramError::Architecture { found, .. } if &**found == name), "{error:?}");
    }
    assert!(matches!(changed(4, 1), ProgramError::Architecture { .. }));
    assert!(matches!(changed(5, 2), ProgramError::Architecture { .. }));
    // A relocatable file, and program headers of another size.
    assert!(matches!(changed(16, 1), ProgramError::NotALibrary { .. }));
    assert!(matches!(changed(54, 7), ProgramError::NotALibrary { .. }));
}

#[test]
fn every_changed_byte_of_the_headers_loads_or_is_refused() {
    let built = build(SCALE);
    let whole = std::fs::read(&built.library).unwrap();
    for at in 0..64 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        // Fields that no loader looks at may change.
        let _loaded_or_refused = load_bytes(&built, &bytes);
    }
}

#[test]
fn a_library_without_the_symbols_names_them() {
    let built = build("int state; int *__dace_init_p(void) { return &state; } void __program_p(int *s) {}");
    let manifest = r#"{"format": 1, "program": "PROGRAM", "arguments": [], "parameters": []}"#;
    let symbol = |program: &str| match built.load(&manifest.replace("PROGRAM", program)) {
        Err(ProgramError::NoSymbol { symbol, .. }) => symbol.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(symbol("p"), "__dace_exit_p");
    assert_eq!(symbol("q"), "__program_q");
    let nul = built.load(&manifest.replace("PROGRAM", "p\\u0000q"));
    assert!(matches!(nul, Err(ProgramError::NoSymbol { .. })), "{nul:?}");
}

#[test]
fn a_library_that_the_loader_refuses_says_why() {
    let built = build("void missing_function(void); void scale(void) { missing_function(); }");
    let refused = built.load(SCALE_MANIFEST);
    assert!(
        matches!(&refused, Err(ProgramError::Open { why, .. }) if why.contains("missing_function")),
        "{refused:?}"
    );
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let built = build(SCALE);
    // SAFETY: the call fails before it opens a library, so that no code of one runs.
    let without_manifest = unsafe { Program::load(&built.library) };
    assert!(matches!(without_manifest, Err(ProgramError::ManifestRead { .. })), "{without_manifest:?}");
    let signature = built.load(SCALE_MANIFEST).unwrap().signature().clone();
    // SAFETY: the call fails before it opens a library, so that no code of one runs.
    let missing = unsafe { Program::with_signature("no/such/library.so", signature.clone()) };
    assert!(matches!(missing, Err(ProgramError::Read { .. })), "{missing:?}");
    // SAFETY: the call fails before it opens a library, so that no code of one runs.
    let folder = unsafe { Program::with_signature(built.folder.path(), signature) };
    assert!(matches!(folder, Err(ProgramError::NotALibrary { .. })), "{folder:?}");
}

#[test]
fn a_library_that_is_overwritten_while_it_is_open_is_refused() {
    let built = build(SCALE);
    let program = built.load(SCALE_MANIFEST).unwrap();
    let file = std::fs::OpenOptions::new().append(true).open(&built.library).unwrap();
    file.set_len(file.metadata().unwrap().len() + 1).unwrap();
    let refused = built.load(SCALE_MANIFEST);
    assert!(matches!(refused, Err(ProgramError::Overwritten { .. })), "{refused:?}");
    drop(program);
}

#[test]
fn a_new_file_at_the_path_of_an_open_library_is_another_library() {
    let manifest = r#"{"format": 1, "program": "code", "interface": "c", "returns": "status", "arguments": [], "parameters": []}"#;
    let code = |program: &Program| match program.call(&[]) {
        Err(ProgramError::Status { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    let built = build("int code(void) { return 1; }");
    let mut programs = vec![built.load(manifest).unwrap()];
    for next in 2..5 {
        let other = build(&format!("int code(void) {{ return {next}; }}"));
        std::fs::rename(&other.library, &built.library).unwrap();
        programs.push(built.load(manifest).unwrap());
        let codes: Vec<_> = programs.iter().map(code).collect();
        assert_eq!(codes, (1..=next).collect::<Vec<_>>());
    }
}
