//! Element types as other libraries write them.

use crate::error;
use halocline::ElementType;
use pyo3::PyResult;

/// Of a kind (as NumPy's: b, i, u, f, c, V) and a size in bytes.
pub(super) fn of(kind: char, size: usize, as_given: &str) -> PyResult<ElementType> {
    use ElementType::{Bool, C64, C128, F16, F32, F64, I8, I16, I32, I64, Opaque, U8, U16, U32, U64};
    Ok(match (kind, size) {
        ('b', 1) => Bool,
        ('i', 1) => I8,
        ('i', 2) => I16,
        ('i', 4) => I32,
        ('i', 8) => I64,
        ('u', 1) => U8,
        ('u', 2) => U16,
        ('u', 4) => U32,
        ('u', 8) => U64,
        ('f', 2) => F16,
        ('f', 4) => F32,
        ('f', 8) => F64,
        ('c', 8) => C64,
        ('c', 16) => C128,
        ('f' | 'c' | 'V' | 'S' | 'U' | 'M' | 'm', 1..=16) => Opaque(size as u8),
        ('O', _) => {
            return Err(error::kind(
                "an array of Python objects cannot be exchanged; its elements must be plain bytes",
            ));
        }
        _ => {
            return Err(error::kind(format!(
                "elements of type {as_given} cannot be exchanged; booleans, numbers and plain bytes of 1 to 16 bytes can"
            )));
        }
    })
}

/// Refuses elements in the other byte order.
pub(super) fn check_order(order: char, size: usize, as_given: &str) -> PyResult<()> {
    let other = if cfg!(target_endian = "little") { '>' } else { '<' };
    if size > 1 && (order == other || order == '!' && other == '>') {
        return Err(error::kind(format!(
            "elements of type {as_given} are not in the byte order of this machine; convert the array: \
             array.astype(array.dtype.newbyteorder(\"=\"))"
        )));
    }
    Ok(())
}

/// Refuses records one of whose members, by a type string or a format of the struct module, is a Python object or in the other byte order.
/// Names stand between colons in a format.
pub(super) fn check_record(format: &str) -> PyResult<()> {
    let codes = || format.split(':').step_by(2).flat_map(str::chars);
    if codes().any(|code| code == 'O') {
        return of('O', 0, format).map(drop);
    }
    let other = if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] };
    match codes().find(|code| other.contains(code)) {
        Some(order) => check_order(order, 2, format),
        None => Ok(()),
    }
}

/// A type string of the array interface, as `<f8`.
pub(super) fn of_typestr(typestr: &str) -> PyResult<ElementType> {
    let wrong = || error::kind(format!("{typestr:?} is no type string of the array interface"));
    let mut chars = typestr.chars();
    let (order, kind) = (chars.next().ok_or_else(wrong)?, chars.next().ok_or_else(wrong)?);
    if kind == 'O' {
        return of(kind, 0, typestr);
    }
    // Dates have their unit behind it, as `<M8[ns]`.
    let digits = chars.as_str().split('[').next().unwrap_or_default();
    let size: usize = digits.parse().map_err(|_| wrong())?;
    // Of characters, four bytes each.
    let size = if kind == 'U' { size.saturating_mul(4) } else { size };
    check_order(order, size, typestr)?;
    of(kind, size, typestr)
}

/// A format of the struct module, as `d`, of an element with that many bytes.
pub(super) fn of_format(format: &str, size: usize) -> PyResult<ElementType> {
    let (order, code) = match format.chars().next() {
        Some(order @ ('@' | '=' | '<' | '>' | '!')) => (order, &format[1..]),
        _ => ('@', format),
    };
    check_order(order, size, format)?;
    check_record(code)?;
    let kind = match code {
        "?" => 'b',
        "b" | "h" | "i" | "l" | "q" | "n" => 'i',
        "B" | "H" | "I" | "L" | "Q" | "N" => 'u',
        "e" | "f" | "d" | "g" => 'f',
        "Zf" | "Zd" | "Zg" => 'c',
        "O" => 'O',
        _ => 'V',
    };
    of(kind, size, format)
}
