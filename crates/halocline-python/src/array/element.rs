//! Element types as other libraries write them.

use crate::argument::shown_in_message;
use crate::error;
use halocline::ElementType;
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// From a kind (NumPy's: b, i, u, f, c, V) and a size in bytes.
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
        ('f' | 'c' | 'V' | 'S' | 'U' | 'M' | 'm', 1..=256) => Opaque(size as u16),
        ('O', _) => return Err(objects()),
        (_, 257..) => return Err(too_large(kind, size, as_given)),
        _ => {
            return Err(error::type_error(format!(
                "elements of type {as_given} cannot be exchanged; booleans, numbers and plain bytes of 1 to 256 bytes can"
            )));
        }
    })
}

fn too_large(kind: char, size: usize, as_given: &str) -> PyErr {
    let members = match kind {
        'V' => "each member as a field of its own (array['name']), or ",
        _ => "",
    };
    error::type_error(format!(
        "elements of type {as_given} have {size} bytes, 256 at most can be exchanged as one; give {members}a view of their \
         bytes: array.view('uint8').reshape(*array.shape, {size})"
    ))
}

/// The meaning of elements that are plain bytes, from their type string; peers compare it. None for bytes without a meaning (`V8`).
pub(super) fn name(typestr: &str) -> Option<String> {
    let kind = without_order(typestr);
    match (kind.strip_prefix("M8"), kind.strip_prefix("m8"), kind.strip_prefix('V')) {
        (Some(unit), ..) => Some(format!("datetime64{unit}")),
        (_, Some(unit), _) => Some(format!("timedelta64{unit}")),
        (.., Some(size)) if size.parse::<usize>().is_ok() => None,
        _ => Some(kind.to_owned()),
    }
}

/// As [`name`], from a NumPy dtype. Refuses Python objects and the other byte order, also in members of records.
pub(super) fn name_of(dtype: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match dtype.getattr(intern!(dtype.py(), "hasobject"))?.is_truthy()? {
        true => Err(objects()),
        false => Ok(name(&kind_of(dtype)?)),
    }
}

pub(super) fn objects() -> PyErr {
    error::type_error(
        "elements that are Python objects cannot be passed on; convert the array: array.astype(...)",
    )
}

fn without_order(typestr: &str) -> &str {
    typestr.trim_start_matches(['<', '>', '=', '|'])
}

/// The text of a dtype. The members of a record are listed in memory order, whatever the order of their names.
fn kind_of(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = dtype.py();
    let names: Option<Vec<String>> = dtype.getattr(intern!(py, "names"))?.extract()?;
    let Some(names) = names.filter(|names| !names.is_empty()) else {
        let typestr: String = dtype.getattr(intern!(py, "str"))?.extract()?;
        let (order, kind, size) = parts(&typestr)?;
        check_order(order, size, &typestr)?;
        // Another package may define the type (bfloat16); its type string says plain bytes.
        let is_foreign =
            kind == 'V' && !dtype.getattr(intern!(py, "type"))?.is(&py.import("numpy")?.getattr("void")?);
        return match is_foreign {
            true => Ok(dtype.str()?.to_string()),
            false => Ok(without_order(&typestr).to_owned()),
        };
    };
    let fields = dtype.getattr(intern!(py, "fields"))?;
    let mut members = Vec::new();
    for name in names {
        let field = fields.get_item(&name)?;
        let (dtype, offset) = (field.get_item(0)?, field.get_item(1)?.extract::<usize>()?);
        members.push((offset, name, dtype));
    }
    members.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let (mut described, mut end) = (Vec::new(), 0);
    for (offset, name, dtype) in members {
        let size: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
        let (kind, shape) = match dtype.getattr(intern!(py, "subdtype"))? {
            whole if whole.is_none() => (kind_of(&dtype)?, Vec::new()),
            parts => (kind_of(&parts.get_item(0)?)?, parts.get_item(1)?.extract::<Vec<usize>>()?),
        };
        if offset != end {
            described.push(format!("at {offset}"));
        }
        let quote = if kind.starts_with('[') { "" } else { "'" };
        let shape = if shape.is_empty() { String::new() } else { format!(", {shape:?}") };
        described.push(format!("('{name}', {quote}{kind}{quote}{shape})"));
        end = offset + size;
    }
    Ok(format!("[{}]", described.join(", ")))
}

/// The dtype of a record whose members are listed as in `descr` of an array interface.
pub(super) fn dtype_of_members<'py>(members: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = members.py();
    let wrong = |why: &str| {
        error::type_error(format!(
            "the \"descr\" of an array interface is a list of tuples (a name, a type, perhaps a shape), not nested too deep: {why}"
        ))
    };
    let listed = match (members.cast::<PyList>(), members.cast::<PyTuple>()) {
        (Ok(list), _) => list.clone(),
        (_, Ok(tuple)) => tuple.to_list(),
        _ => return Err(wrong(&format!("{} is none", shown_in_message(members)))),
    };
    if listed.is_empty() {
        return Err(wrong("it is empty"));
    }
    let dtype = py.import("numpy.lib.format")?.call_method1("descr_to_dtype", (listed,));
    dtype.map_err(|error| match error.is_instance_of::<PyException>(py) {
        true => wrong(&error.value(py).to_string()),
        false => error,
    })
}

/// Refuses elements in the other byte order.
fn check_order(order: char, size: usize, as_given: &str) -> PyResult<()> {
    let other = if cfg!(target_endian = "little") { '>' } else { '<' };
    match size > 1 && order == other {
        true => Err(error::type_error(format!(
            "elements of type {as_given} are not in the byte order of this machine; convert the array: \
             array.astype(array.dtype.newbyteorder(\"=\"))"
        ))),
        false => Ok(()),
    }
}

/// Byte order, kind and bytes of a type string of the array interface.
fn parts(typestr: &str) -> PyResult<(char, char, usize)> {
    let wrong = || {
        error::type_error(format!(
            "{typestr:?} is no type string of the array interface; give one such as \"<f8\""
        ))
    };
    let mut chars = typestr.chars();
    let (order, kind) = (chars.next().ok_or_else(wrong)?, chars.next().ok_or_else(wrong)?);
    if !matches!(order, '<' | '>' | '=' | '|') {
        return Err(wrong());
    }
    if kind == 'O' {
        return Ok((order, kind, 0));
    }
    // Dates end with their unit: `<M8[ns]`.
    let digits = match chars.as_str().split_once('[') {
        Some((digits, unit)) if matches!(kind, 'M' | 'm') && unit.ends_with(']') => digits,
        Some(_) => return Err(wrong()),
        None => chars.as_str(),
    };
    let size: usize = digits.parse().map_err(|_| wrong())?;
    // The size counts characters of four bytes.
    Ok((order, kind, if kind == 'U' { size.saturating_mul(4) } else { size }))
}

/// A type string of the array interface, as `<f8`.
pub(super) fn of_typestr(typestr: &str) -> PyResult<ElementType> {
    let (order, kind, size) = parts(typestr)?;
    check_order(order, size, typestr)?;
    of(kind, size, typestr)
}
