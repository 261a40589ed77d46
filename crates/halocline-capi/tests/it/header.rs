//! The header, the library and the committed list of the interface agree.

use crate::toolchain::{C, CLANG, CLANGPP, CPP, here, library, own_file, succeeds};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The files that a header includes from a folder, in the order of their inclusion: all that are there.
fn parts(header: &str, folder: &str) -> Vec<PathBuf> {
    let include = here().join("include");
    let all = fs::read_to_string(include.join(header)).unwrap();
    let included = all.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
    let parts: Vec<_> = included.map(|part| include.join(part)).collect();
    let files = fs::read_dir(include.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(parts.len(), files.filter(|path| path.is_file()).count(), "{header} includes all parts");
    parts
}

/// The parts of the header of C.
fn headers() -> Vec<PathBuf> {
    parts("halocline.h", "halocline")
}

fn header() -> String {
    headers().into_iter().map(|part| fs::read_to_string(part).unwrap()).collect()
}

/// The header without its comments.
pub(crate) fn code() -> String {
    let mut parts = Vec::new();
    for part in header().split("/*") {
        parts.push(part.split_once("*/").map_or(part, |(_, after)| after).to_owned());
    }
    parts.concat()
}

/// The functions that the header declares: their names and prototypes, each on one line.
pub(crate) fn declared() -> BTreeMap<String, String> {
    let code = code();
    let lines = code.lines().filter(|line| !line.starts_with('#') && !line.starts_with("extern"));
    let statements = lines.collect::<Vec<_>>().join(" ");
    let mut functions = BTreeMap::new();
    for statement in statements.split(';') {
        // The end of a struct may stand before it.
        let prototype =
            statement.rsplit('}').next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((before, _)) = prototype.split_once('(') else { continue };
        let name = before.rsplit([' ', '*']).next().unwrap();
        if name.starts_with("halocline_") && before != name && !prototype.starts_with("typedef") {
            functions.insert(name.to_owned(), prototype);
        }
    }
    functions
}

/// The symbols of the shared library, with their versions.
fn exported() -> BTreeSet<String> {
    let symbols =
        succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libhalocline.so")));
    symbols
        .lines()
        .filter(|line| line.contains(" T "))
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let declared: BTreeSet<_> = declared().keys().map(|name| format!("{name}@@HALOCLINE_0")).collect();
    let exported = exported();
    let missing: Vec<_> = declared.difference(&exported).collect();
    let unknown: Vec<_> = exported.difference(&declared).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not exported: {missing:?}; not declared: {unknown:?}");
    assert!(declared.len() > 50, "{declared:?}");
}

#[test]
fn every_declaration_and_field_has_a_comment() {
    let text = header();
    let lines: Vec<&str> = text.lines().collect();
    let (mut without, mut in_struct) = (Vec::new(), false);
    for (at, line) in lines.iter().enumerate() {
        let begins = line.starts_with("halocline_status halocline_") || line.starts_with("typedef ");
        let mut field = line.starts_with("  ") && line.ends_with(';') && in_struct;
        // The one field of a handle is of no use to programs.
        field &= *line != "  uint64_t id;";
        if (begins || field) && !lines[at - 1].trim_end().ends_with("*/") {
            without.push(*line);
        }
        in_struct = if in_struct { !line.starts_with('}') } else { line.starts_with("typedef struct ") };
    }
    assert!(without.is_empty(), "{without:?}");
}

/// The structs of the header and their fields, but for function pointers.
fn structs() -> Vec<(String, Vec<String>)> {
    let code = code();
    let bodies = code.split("typedef struct ").skip(1).filter_map(|text| text.split_once('{'));
    let fields = |body: &str| -> Vec<String> {
        let body = body.split_once('}').unwrap().0;
        let declarations = body.split(';').map(str::trim).filter(|field| !field.is_empty());
        let name = |field: &str| match field.split_once("(*") {
            Some((_, pointer)) => pointer.split_once(')').unwrap().0.to_owned(),
            None => field.split('[').next().unwrap().rsplit([' ', '*']).next().unwrap().to_owned(),
        };
        declarations.map(name).collect()
    };
    bodies.map(|(name, body)| (name.trim().to_owned(), fields(body))).collect()
}

/// The constants of enumerations.
fn enumerators() -> Vec<String> {
    let code = code();
    let bodies = code.split("enum {").skip(1).map(|text| text.split_once('}').unwrap().0.to_owned());
    let names = bodies.flat_map(|body| body.split(',').map(name_of_constant).collect::<Vec<_>>());
    // A comma may follow the last one.
    names.filter(|name| !name.is_empty()).collect()
}

fn name_of_constant(constant: &str) -> String {
    constant.split('=').next().unwrap().trim().to_owned()
}

/// The macros of the header but for those of another form: guards, the version, and initialisers of structs, whose sizes are listed.
fn macros() -> Vec<String> {
    let code = code();
    let definitions = code.lines().filter_map(|line| line.strip_prefix("#define "));
    let definitions = definitions.filter(|definition| {
        let name = definition.split([' ', '(']).next().unwrap();
        !(name == *definition || name.ends_with("_INIT") || name == "HALOCLINE_ABI_VERSION")
    });
    definitions.map(|definition| format!("#define {definition}")).collect()
}

/// The types of the functions that a program passes to calls.
fn callbacks() -> Vec<String> {
    let code = code();
    let lines = code.lines().filter(|line| line.starts_with("typedef ") && line.contains("(*"));
    lines.map(str::to_owned).collect()
}

/// A C program that prints the version, the constants, and sizes and offsets.
fn layout_program() -> String {
    let mut program = "#include <halocline.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    program += "printf(\"version %d\\n\", HALOCLINE_ABI_VERSION);\n";
    for name in enumerators() {
        writeln!(program, "printf(\"{name} = %d\\n\", {name});").unwrap();
    }
    for (name, fields) in structs() {
        writeln!(program, "printf(\"struct {name} %zu\\n\", sizeof({name}));").unwrap();
        for field in fields {
            writeln!(
                program,
                "printf(\"  {field} %zu %zu\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));"
            )
            .unwrap();
        }
    }
    program + "return 0;\n}\n"
}

/// The interface as it is: version, constants, structs, macros, types of callbacks, then each symbol with its prototype.
fn interface() -> String {
    let source = own_file("layout.c");
    fs::write(&source, layout_program()).unwrap();
    let program = source.with_extension("");
    succeeds(C.compile().arg(&source).arg("-o").arg(&program));
    let mut interface = succeeds(&mut Command::new(&program));
    for line in macros().into_iter().chain(callbacks()) {
        writeln!(interface, "{line}").unwrap();
    }
    let prototypes = declared();
    for symbol in exported() {
        let prototype = symbol.split('@').next().and_then(|name| prototypes.get(name));
        writeln!(interface, "{symbol}: {}", prototype.map_or("not declared", String::as_str)).unwrap();
    }
    interface
}

/// Programs that were compiled with an interface of `known` lines run with one that has all of them; what is added needs a version
/// of its own, by which programs ask for it.
fn refused_change(known: &str, found: &str) -> Option<String> {
    let (known, found): (Vec<&str>, Vec<&str>) = (known.lines().collect(), found.lines().collect());
    let lacks = |lines: &[&str], line: &&str| !line.starts_with("version ") && !lines.contains(line);
    let gone: Vec<_> = known.iter().filter(|line| lacks(&found, line)).collect();
    let added = found.iter().any(|line| lacks(&known, line));
    if !gone.is_empty() {
        return Some(format!(
            "these lines are gone or changed, which programs cannot bear: {gone:#?}; keep them, or give the function a new version of its symbol"
        ));
    }
    let same_version = known.first() == found.first();
    (added && same_version).then(|| "the interface has grown: raise HALOCLINE_ABI_VERSION".to_owned())
}

#[test]
fn changes_of_the_interface_are_told_from_additions() {
    let known = "version 1\nA = 0\n";
    assert_eq!(refused_change(known, "version 2\nA = 0\nB = 1\n"), None);
    let grown = refused_change(known, "version 1\nA = 0\nB = 1\n").unwrap();
    assert!(grown.contains("raise HALOCLINE_ABI_VERSION"), "{grown}");
    let changed = refused_change(known, "version 2\nA = 1\n").unwrap();
    assert!(changed.contains("gone or changed") && changed.contains("A = 0"), "{changed}");
}

#[test]
fn the_interface_is_the_committed_one() {
    let found = interface();
    let list = here().join("abi.txt");
    let known = fs::read_to_string(&list).unwrap_or_default();
    if found != known {
        let now = library().join("abi.txt");
        fs::write(&now, &found).unwrap();
        let refused = refused_change(&known, &found).unwrap_or_default();
        panic!(
            "the interface differs from {}: {refused}; once it is meant, copy {} there",
            list.display(),
            now.display()
        );
    }
}

#[test]
fn the_header_and_its_parts_compile_alone_in_c_and_cpp() {
    for compiler in [C, CPP, CLANG, CLANGPP].into_iter().filter(|compiler| compiler.is_here()) {
        for header in headers().into_iter().chain([here().join("include/halocline.h")]) {
            succeeds(compiler.compile().arg("-fsyntax-only").arg("-include").arg(header).arg("/dev/null"));
        }
    }
}

#[test]
fn the_headers_have_no_warnings_that_programs_may_turn_into_errors() {
    for compiler in [C, CPP, CLANG, CLANGPP].into_iter().filter(|compiler| compiler.is_here()) {
        let name = if compiler.language == "c" { "include/halocline.h" } else { "include/halocline.hpp" };
        let mut compile = compiler.compile();
        compile.args(["-Wshadow", "-Wconversion", "-Wsign-conversion", "-fsyntax-only", "-include"]);
        succeeds(compile.arg(here().join(name)).arg("/dev/null"));
    }
}

#[test]
fn the_header_of_cpp_asks_for_its_standard() {
    for compiler in [CPP, CLANGPP].into_iter().filter(|compiler| compiler.is_here()) {
        let mut compile = Command::new(compiler.command);
        compile.args(["-std=c++14", "-x", "c++", "-fsyntax-only", "-I"]).arg(here().join("include"));
        let output = compile.args(["-include", "halocline.hpp", "/dev/null"]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(printed.contains("halocline.hpp needs C++17: compile with -std=c++17"), "{printed}");
    }
}

/// That it compiles alone is tested by the programs that include it first.
#[test]
fn the_header_of_cpp_includes_all_its_parts() {
    assert!(!parts("halocline.hpp", "halocline/cpp").is_empty());
}

/// Functions of C that the header of C++ does not call, and why.
const NOT_OF_CPP: &[(&str, &str)] = &[
    ("halocline_bind", "it is halocline_bind_alternatives with one set"),
    ("halocline_refuse", "it throws errors of its own"),
];

#[test]
fn every_function_is_used_by_the_header_of_cpp() {
    let kokkos = here().join("include/halocline_kokkos.hpp");
    let mut words = BTreeSet::new();
    for file in parts("halocline.hpp", "halocline/cpp").into_iter().chain([kokkos]) {
        let text = fs::read_to_string(file).unwrap();
        // A comment calls nothing.
        for code in text.lines().filter_map(|line| line.split("//").next()) {
            let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            words.extend(code.split(|letter| !is_of_word(letter)).map(str::to_owned));
        }
    }
    let excepted: BTreeSet<_> = NOT_OF_CPP.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unused: BTreeSet<_> = declared().into_keys().filter(|name| !words.contains(name)).collect();
    assert_eq!(unused, excepted, "call the function in halocline/cpp, or say why not");
}
