//! Element types as other libraries write them.

use crate::error;
use halocline::ElementType;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;

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

/// What elements that are plain bytes stand for, by their type string and, of records, their members: peers compare it. None for bytes
/// that are nothing else (`V8`).
pub(super) fn name(typestr: &str, members: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    let after_order = typestr.trim_start_matches(['<', '>', '=', '|']);
    let unit = after_order.find('[').map_or("", |at| &after_order[at..]);
    Ok(match after_order.chars().next() {
        Some('M') => Some(format!("datetime64{unit}")),
        Some('m') => Some(format!("timedelta64{unit}")),
        Some('V') => match members {
            // One without a name is no record.
            Some(members) if members.len()? > 1 || !members.get_item(0)?.get_item(0)?.eq("")? => {
                Some(members.str()?.to_string())
            }
            _ => None,
        },
        _ => Some(after_order.to_owned()),
    })
}

/// The same of a type of NumPy's.
pub(super) fn name_of(dtype: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = dtype.py();
    let typestr: String = dtype.getattr(intern!(py, "str"))?.extract()?;
    if !dtype.getattr(intern!(py, "names"))?.is_none() {
        // Members that overlap, or come in another order than they lie, have no list.
        return match dtype.getattr(intern!(py, "descr")) {
            Ok(members) => Ok(Some(members.str()?.to_string())),
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(Some(dtype.str()?.to_string())),
            Err(error) => Err(error),
        };
    }
    // Types of other packages (bfloat16) are bytes by their type string.
    match dtype.getattr(intern!(py, "type"))?.is(&py.import("numpy")?.getattr("void")?) {
        false if typestr.contains('V') => Ok(Some(dtype.str()?.to_string())),
        _ => name(&typestr, None),
    }
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
