//! Exceptions for errors of programs.

use crate::error;
use halocline_program::ProgramError;
use pyo3::prelude::*;

/// The exception for an error of a program.
#[cold]
pub(super) fn of_program(error: ProgramError) -> PyErr {
    use ProgramError as E;
    let class = match &error {
        E::Missing { .. }
        | E::Extra { .. }
        | E::Unknown { .. }
        | E::NotAnArray { .. }
        | E::NotANumber { .. }
        | E::ElementType { .. }
        | E::NotIntegral { .. }
        | E::NotBool { .. }
        | E::NoStreams { .. }
        | E::NeedsStream { .. }
        | E::PreparedArray { .. } => "HaloTypeError",
        E::Dimensions { .. }
        | E::View { .. }
        | E::WrongDevice { .. }
        | E::ReadOnly { .. }
        | E::Address { .. }
        | E::Quantity { .. }
        | E::Bounds { .. }
        | E::StrideNotWhole { .. }
        | E::SymbolRange { .. }
        | E::OutOfRange { .. }
        | E::Contradiction { .. }
        | E::ManifestSyntax { .. }
        | E::ManifestFormat { .. }
        | E::Signature { .. } => "HaloValueError",
        _ => "ProgramError",
    };
    error::of_text(class, None, error.to_string(), false)
}
