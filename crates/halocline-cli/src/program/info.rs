//! What a compiled program takes.

use crate::error::CommandError;
use crate::table::print_lines;
use clap::Args;
use halocline_program::Program;
use halocline_program::signature::{
    Access, AccessedIndices, Argument, DeviceKind, Dimension, Interface, Quantity, Returns, Streams,
};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Load a library, check its manifest and symbols, and show what the program takes
///
/// The manifest lies beside the library: `libheat.so.json` for `libheat.so`. Constructors of the library run, and so does the program's init
/// if it has no symbols.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The shared library
    library: PathBuf,
}

pub(super) fn run(args: &InfoArgs, json: bool) -> Result<(), CommandError> {
    // SAFETY: the user asked for the library to be loaded; no call is made.
    let program = unsafe { Program::load(&args.library) }?;
    let object = json!({
        "library": program.library(),
        "signature": program.signature(),
        "states": program.states(),
        "build_id": program.build_id(),
    });
    let lines = json.then(|| vec![object]);
    print_lines(lines.as_ref(), || describe(&program)).map_err(CommandError::Report)
}

/// The program in words.
fn describe(program: &Program) -> String {
    let signature = program.signature();
    let interface = match (signature.interface, signature.returns) {
        (Interface::DaCe, _) => "DaCe's interface",
        (Interface::C, Returns::Nothing) => "a C function",
        (Interface::C, Returns::Status) => "a C function that returns a status",
    };
    let mut text =
        format!("program {} ({interface})\nlibrary {}\n", program.name(), program.library().display());
    text += &format!("build id {}\n", program.build_id().unwrap_or("none"));
    text += "arguments\n";
    for argument in &signature.arguments {
        text += &line(argument);
    }
    let symbols = signature.symbols.iter().map(|symbol| format!("{} {}", symbol.name, symbol.scalar));
    for (what, names) in [
        ("symbols", symbols.collect()),
        ("C parameters", signature.parameters.clone()),
        ("parameters of init", signature.init.clone()),
    ] {
        let names: Vec<String> = names;
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what}: {names}");
    }
    if let Some(streams) = program.streams() {
        text += match streams {
            Streams::Caller => "stream: the caller's",
            Streams::Internal => "streams: internal ones, after and before the caller's",
            Streams::Default => "stream: the default stream, after and before the caller's",
        };
        text += if program.synchronises() { "; waits for the GPU\n" } else { "\n" };
    }
    text + match (signature.interface, signature.init.is_empty()) {
        (Interface::C, _) => "states: none\n",
        (Interface::DaCe, _) if program.streams().is_some() => {
            "states: made for each GPU, set of values of the parameters of init, and stream in use\n"
        }
        (Interface::DaCe, true) => "states: made at load, and for each further call at the same time\n",
        (Interface::DaCe, false) => {
            "states: made for each set of values of the parameters of init, and for each further call at the same time\n"
        }
    }
}

/// An argument in words.
fn line(argument: &Argument) -> String {
    match argument {
        Argument::Scalar(scalar) => {
            let optional = if scalar.optional { ", optional" } else { "" };
            format!("  {}: {}{optional}\n", scalar.name, scalar.scalar)
        }
        Argument::Array(array) => {
            let device = if array.device == DeviceKind::Gpu { " on a GPU" } else { "" };
            let access = if array.access == Access::Read { ", only read" } else { "" };
            let count = array.dimensions.len();
            let mut text =
                format!("  {}: {} array of {count} dimensions{device}{access}\n", array.name, array.element);
            for (at, dimension) in array.dimensions.iter().enumerate() {
                text += &format!("    {}\n", dimension_line(at, dimension));
            }
            for accessed in &array.accesses {
                text += &format!("    {}\n", accesses_line(accessed));
            }
            text
        }
    }
}

fn dimension_line(at: usize, dimension: &Dimension) -> String {
    let name = dimension.name.clone().unwrap_or_else(|| at.to_string());
    let parts = [
        ("extent", &dimension.extent),
        ("start", &dimension.start),
        ("stop", &dimension.stop),
        ("stride", &dimension.stride),
    ];
    let given =
        parts.into_iter().filter_map(|(part, value)| value.as_ref().map(|value| format!("{part} {value}")));
    let covers = dimension.covers.iter().map(|[first, end]| format!("covers {first} to {end}"));
    let all: Vec<String> = given.chain(covers).collect();
    if all.is_empty() { format!("{name}: any") } else { format!("{name}: {}", all.join(", ")) }
}

fn accesses_line(accessed: &AccessedIndices) -> String {
    let range = |[first, end]: &[Quantity; 2]| format!("{first} to {end}");
    let indices = accessed.indices.iter().map(|indices| indices.as_ref().map_or("any".to_owned(), range));
    let mut text = format!("accesses {}", indices.collect::<Vec<_>>().join(", "));
    if !accessed.over.is_empty() {
        let loops: Vec<String> = accessed.over.iter().map(range).collect();
        text += &format!(" in loops over {}", loops.join(", "));
    }
    text
}
