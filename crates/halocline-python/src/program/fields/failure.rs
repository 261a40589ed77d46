//! Errors of calls with fields, in the words of the errors of all programs.

use super::parameters::Parameters;
use crate::argument::shown_in_message;
use crate::error;
use crate::program::program_error::of_program;
use halocline_program::ProgramError;
use pyo3::prelude::*;
use pyo3::types::PyString;

#[cold]
pub(super) fn missing(program: &str, argument: &str, parameters: &Parameters) -> PyErr {
    let arguments = parameters.list();
    of_program(ProgramError::Missing { program: program.into(), argument: argument.into(), arguments })
}

#[cold]
pub(super) fn extra(program: &str, given: usize, parameters: &Parameters) -> PyErr {
    let expected = parameters.names().count();
    let arguments = parameters.list();
    of_program(ProgramError::Extra { program: program.into(), given, expected, arguments })
}

#[cold]
pub(super) fn unknown(program: &str, argument: &str, parameters: &Parameters) -> PyErr {
    let arguments = parameters.list();
    of_program(ProgramError::Unknown { program: program.into(), argument: argument.into(), arguments })
}

#[cold]
pub(super) fn twice(program: &str, argument: &str) -> PyErr {
    error::type_error(format!("argument {argument} of program {program} is given twice"))
}

#[cold]
pub(super) fn not_a_tuple(program: &str, argument: &str, given: &Bound<'_, PyAny>, parts: usize) -> PyErr {
    let given = shown_in_message(given);
    error::type_error(format!(
        "argument {argument} of program {program} is {given}, or has a part that is; give a tuple of {parts}"
    ))
}

#[cold]
pub(super) fn no_part(program: &str, argument: &str, given: &Bound<'_, PyAny>, name: &Py<PyString>) -> PyErr {
    let (given, name) = (shown_in_message(given), name.bind(given.py()));
    error::type_error(format!(
        "argument {argument} of program {program} is {given}, which has no part {name}"
    ))
}

#[cold]
pub(super) fn not_a_field(program: &str, argument: &str, given: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let given = shown_in_message(given);
    error::type_error(format!(
        "argument {argument} of program {program} is {given}; give a field of GT4Py with dimensions {wanted}"
    ))
}

#[cold]
pub(super) fn dimensions(program: &str, argument: &str, given: &str, wanted: &str) -> PyErr {
    error::value_error(format!(
        "argument {argument} of program {program} has dimensions {given}, the program takes {wanted}; transpose the field"
    ))
}

#[cold]
pub(super) fn infinite(program: &str, argument: &str, dimension: &str) -> PyErr {
    error::value_error(format!(
        "argument {argument} of program {program} has an infinite domain in dimension {dimension}; give a field with memory"
    ))
}

#[cold]
pub(super) fn extent(
    program: &str,
    argument: &str,
    dimension: &str,
    range: std::ops::Range<i64>,
    extent: isize,
) -> PyErr {
    error::value_error(format!(
        "argument {argument} of program {program} has memory for {extent} indices in dimension {dimension}, but its domain has {} to {} \
         (without the end); give memory for the whole domain",
        range.start, range.end
    ))
}

#[cold]
pub(super) fn static_value(
    program: &str,
    argument: &str,
    given: &Bound<'_, PyAny>,
    wanted: &Bound<'_, PyAny>,
) -> PyErr {
    let (given, wanted) = (shown_in_message(given), shown_in_message(wanted));
    error::value_error(format!(
        "argument {argument} of program {program} is {given}, but the program was compiled for {wanted}; compile it for this value"
    ))
}

#[cold]
pub(super) fn no_offset(program: &str, tag: &Bound<'_, PyAny>) -> PyErr {
    error::value_error(format!(
        "the offset provider of program {program} lacks {tag}; give what the program was compiled with"
    ))
}

#[cold]
pub(super) fn other_offset(program: &str, tag: &Bound<'_, PyAny>) -> PyErr {
    error::value_error(format!(
        "offset {tag} of program {program} is another object than the one the program was compiled with; give that one, or make \
         the program again with this offset provider"
    ))
}
