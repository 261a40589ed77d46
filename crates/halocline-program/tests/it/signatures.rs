//! Manifests that are wrong.

use crate::source::{SCALE, SCALE_MANIFEST, build, signature};
use halocline_program::{Program, ProgramError};

/// The error of the manifest with `from` replaced.
fn changed(from: &str, to: &str) -> ProgramError {
    assert!(SCALE_MANIFEST.contains(from), "{from}");
    let built = build(SCALE);
    built.load(&SCALE_MANIFEST.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn manifests_that_are_no_manifests_are_refused() {
    for text in ["", "{", "[]", "7", "{\"format\": 1}", "\u{0}"] {
        let refused = signature(text);
        assert!(matches!(refused, Err(ProgramError::ManifestSyntax { .. })), "{text:?}: {refused:?}");
    }
    for (from, to) in [
        ("\"parameters\"", "\"parametres\""),
        ("\"kind\": \"array\"", "\"kind\": \"list\""),
        ("\"float64\"", "\"float128\""),
        ("\"extent\"", "\"extend\""),
        ("\"n\", \"stride\"", "2.5, \"stride\""),
    ] {
        let error = changed(from, to);
        assert!(matches!(error, ProgramError::ManifestSyntax { .. }), "{from}: {error:?}");
    }
    assert!(matches!(
        changed("\"format\": 1", "\"format\": 2"),
        ProgramError::ManifestFormat { found: 2, .. }
    ));
}

#[test]
fn manifests_that_contradict_themselves_are_refused() {
    let cases = [
        ("\"scale\"", "\"\"", "it has no name"),
        ("[\"a\", \"n\"", "[\"a\", \"m\"", "\"m\" is neither an argument nor a symbol"),
        ("\"name\": \"factor\"", "\"name\": \"a\"", "the name occurs twice"),
        ("\"name\": \"factor\"", "\"name\": \"\"", "a name is empty"),
        ("\"extent\": \"n\"", "\"extent\": \"n + 1\"", "nothing gives it a value"),
        ("\"extent\": \"n\"", "\"extent\": \"n +\"", "ends too early"),
        ("\"extent\": \"n\"", "\"extent\": \"n\", \"covers\": [0, \"factor\"]", "\"factor\" is no integer"),
        (
            "\"stride\": \"s\"}]",
            "\"stride\": \"s\"}], \"accesses\": [{\"indices\": []}]",
            "an entry of accesses has another number of dimensions",
        ),
        ("\"type\": \"int32\"", "\"type\": \"float32\"", "a symbol or an optional scalar is an integer"),
        (
            "\"factor\", \"type\": \"float64\"",
            "\"factor\", \"type\": \"complex64\"",
            "cannot be passed by value",
        ),
        ("\"interface\": \"c\"", "\"interface\": \"c\", \"init\": [\"n\"]", "has no init"),
        ("\"interface\": \"c\"", "\"init\": [\"a\"]", "\"a\" is neither a scalar argument nor a symbol"),
        ("\"interface\": \"c\"", "\"stream\": \"n\"", "get their streams by functions of the library"),
        ("\"interface\": \"c\"", "\"interface\": \"c\", \"streams\": \"internal\"", "its internal streams"),
        (
            "\"interface\": \"c\"",
            "\"interface\": \"c\", \"streams\": \"caller\"",
            "no parameter for the stream",
        ),
        (
            "\"interface\": \"c\"",
            "\"interface\": \"c\", \"streams\": \"default\", \"stream\": \"q\"",
            "a program of the default stream takes no stream",
        ),
        (
            "\"interface\": \"c\"",
            "\"interface\": \"c\", \"stream\": \"q\"",
            "\"q\" is not the name of exactly one parameter",
        ),
        ("\"interface\": \"c\"", "\"interface\": \"c\", \"stream\": \"a\"", "the name occurs twice"),
    ];
    for (from, to, why) in cases {
        let error = changed(from, to);
        assert!(matches!(error, ProgramError::Signature { .. }), "{to}: {error:?}");
        assert!(error.to_string().contains(why), "{to}: {error}");
    }
}

#[test]
fn a_manifest_of_too_many_parameters_or_dimensions_is_refused() {
    let error = changed("\"factor\"]", &format!("{}\"factor\"]", "\"n\", ".repeat(5000)));
    assert!(error.to_string().contains("more than 4096"), "{error}");
    let init = format!("\"interface\": \"dace\", \"init\": [{}]", ["\"n\""; 5000].join(", "));
    let error = changed("\"interface\": \"c\"", &init);
    assert!(error.to_string().contains("init: there are more than 4096"), "{error}");
    let error = changed("[{\"name\": \"I\"", &format!("[{}{{\"name\": \"I\"", "{}, ".repeat(64)));
    assert!(error.to_string().contains("more than 64 dimensions"), "{error}");
}

#[test]
fn a_parameter_may_be_named_twice() {
    let code = "int seen[3]; void twice(int n, double *a, int m) { seen[0] = n; seen[1] = m; }";
    let built = build(code);
    let manifest = r#"{"format": 1, "program": "twice", "interface": "c", "parameters": ["n", "a", "n"],
        "arguments": [{"kind": "array", "name": "a", "type": "float64", "dimensions": [{}]},
                      {"kind": "scalar", "name": "n", "type": "int32"}]}"#;
    let program: Program = built.load(manifest).unwrap();
    let mut a = [0.0];
    let a = halocline_program::ArrayView::contiguous(&mut a, &[1], &[]).unwrap();
    let mut call = program.prepare(&[a.into(), 3.into()]).unwrap();
    call.set(1, 5).unwrap();
    call.call().unwrap();
    assert_eq!(built.global("seen", 8), [5, 0, 0, 0, 5, 0, 0, 0]);
}
