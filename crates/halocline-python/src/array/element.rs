//! Element types as other libraries write them.

use crate::error;
use halocline::ElementType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::ops::Range;

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
        ('O', _) => {
            return Err(error::type_error(
                "elements that are Python objects cannot be passed on; convert the array: array.astype(...)",
            ));
        }
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

/// The meaning of elements that are plain bytes, from their type string and the members of records; peers compare it. None for bytes
/// without a meaning (`V8`).
pub(super) fn name(typestr: &str, members: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    let kind = without_order(typestr);
    let unit = kind.find('[').map_or("", |at| &kind[at..]);
    Ok(match kind.chars().next() {
        Some('M') => Some(format!("datetime64{unit}")),
        Some('m') => Some(format!("timedelta64{unit}")),
        Some('V') => {
            members.map(|members| record_text(members, 0)).transpose()?.and_then(|(members, _)| members)
        }
        _ => Some(kind.to_owned()),
    })
}

/// As [`name`], from a NumPy dtype.
pub(super) fn name_of(dtype: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = dtype.py();
    let typestr: String = dtype.getattr(intern!(py, "str"))?.extract()?;
    if !dtype.getattr(intern!(py, "names"))?.is_none() {
        return Ok(Some(kind_of(dtype)?));
    }
    match is_foreign(dtype, &typestr)? {
        true => Ok(Some(dtype.str()?.to_string())),
        false => name(&typestr, None),
    }
}

/// Whether another package defines the type (bfloat16); its type string says plain bytes.
fn is_foreign(dtype: &Bound<'_, PyAny>, typestr: &str) -> PyResult<bool> {
    let py = dtype.py();
    Ok(typestr.contains('V')
        && !dtype.getattr(intern!(py, "type"))?.is(&py.import("numpy")?.getattr("void")?))
}

/// The element type of a dtype that the protocols cannot express.
pub(super) fn known(dtype: &Bound<'_, PyAny>) -> PyResult<Option<ElementType>> {
    Ok((dtype.str()? == "bfloat16").then_some(ElementType::Bf16))
}

/// Refuses dtypes, also of records, that contain Python objects or are in the other byte order.
pub(super) fn check_type(dtype: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = dtype.py();
    let as_given = || -> PyResult<String> { Ok(dtype.str()?.to_string()) };
    if dtype.getattr(intern!(py, "hasobject"))?.is_truthy()? {
        return of('O', 0, &as_given()?).map(drop);
    }
    match dtype.getattr(intern!(py, "isnative"))?.is_truthy()? {
        true => Ok(()),
        false => Err(other_order(&as_given()?)),
    }
}

fn without_order(typestr: &str) -> &str {
    typestr.trim_start_matches(['<', '>', '=', '|'])
}

/// The members of a record as text, in memory order, whatever the order of their list.
#[derive(Default)]
struct Members {
    told: Vec<String>,
    end: usize,
}

impl Members {
    fn add(&mut self, name: &str, kind: &str, shape: &[usize], place: Range<usize>) {
        if place.start != self.end {
            self.told.push(format!("at {}", place.start));
        }
        let quote = if kind.starts_with('[') { "" } else { "'" };
        let shape = if shape.is_empty() { String::new() } else { format!(", {shape:?}") };
        self.told.push(format!("('{name}', {quote}{kind}{quote}{shape})"));
        self.end = place.end;
    }

    fn text(&self) -> String {
        format!("[{}]", self.told.join(", "))
    }
}

/// The text of a dtype among the members of a record.
fn kind_of(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = dtype.py();
    let names = dtype.getattr(intern!(py, "names"))?;
    if names.is_none() {
        let typestr: String = dtype.getattr(intern!(py, "str"))?.extract()?;
        return match is_foreign(dtype, &typestr)? {
            true => Ok(dtype.str()?.to_string()),
            false => Ok(without_order(&typestr).to_owned()),
        };
    }
    let fields = dtype.getattr(intern!(py, "fields"))?;
    let mut members = Vec::new();
    for name in names.extract::<Vec<String>>()? {
        let field = fields.get_item(&name)?;
        let (dtype, offset) = (field.get_item(0)?, field.get_item(1)?.extract::<usize>()?);
        members.push((offset, name, dtype));
    }
    members.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    let mut told = Members::default();
    for (offset, name, dtype) in members {
        let size: usize = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
        let (kind, shape) = match dtype.getattr(intern!(py, "subdtype"))? {
            whole if whole.is_none() => (kind_of(&dtype)?, Vec::new()),
            parts => (kind_of(&parts.get_item(0)?)?, parts.get_item(1)?.extract()?),
        };
        told.add(&name, &kind, &shape, offset..offset + size);
    }
    Ok(told.text())
}

/// The text and the size of members listed as in `descr` of an array interface: tuples of a name, a type string or a list of members, and an
/// optional shape. No text for a single member without a name, which is no record. Refuses Python objects and the other byte order.
fn record_text(members: &Bound<'_, PyAny>, depth: usize) -> PyResult<(Option<String>, usize)> {
    /// The deepest nesting of records.
    const DEEPEST: usize = 64;
    let wrong = || {
        error::type_error(
            "the \"descr\" of an array interface is a list of tuples: a name, a type, perhaps a shape",
        )
    };
    if depth > DEEPEST {
        return Err(error::type_error(format!("records are nested deeper than {DEEPEST}")));
    }
    let listed: Vec<Bound<'_, PyAny>> = match (members.cast::<PyList>(), members.cast::<PyTuple>()) {
        (Ok(list), _) => list.iter().collect(),
        (_, Ok(tuple)) => tuple.iter().collect(),
        _ => return Err(wrong()),
    };
    let (mut all, mut begin, count) = (Members::default(), 0_usize, listed.len());
    let mut is_named = count > 1;
    for member in listed {
        let member = member.cast_into::<PyTuple>().map_err(|_| wrong())?;
        let (name, kind) = match member.len() {
            2 | 3 => (member.get_item(0)?, member.get_item(1)?),
            _ => return Err(wrong()),
        };
        // A name may be a pair (title, name).
        let name = name.cast::<PyTuple>().map_or_else(|_| Ok(name.clone()), |pair| pair.get_item(1))?;
        let name: String = name.extract().map_err(|_| wrong())?;
        let shape = member.get_item(2).ok();
        let shape: Vec<usize> = match shape {
            None => Vec::new(),
            Some(shape) => shape
                .extract::<usize>()
                .map(|one| vec![one])
                .or_else(|_| shape.extract())
                .map_err(|_| wrong())?,
        };
        let (kind, size) = match kind.extract::<String>() {
            Ok(typestr) => {
                let (order, kind, size) = parts(&typestr)?;
                if kind == 'O' {
                    return of('O', 0, &typestr).map(|_| (None, 0));
                }
                check_order(order, size, &typestr)?;
                (without_order(&typestr).to_owned(), size)
            }
            Err(_) => {
                let (kind, size) = record_text(&kind, depth + 1)?;
                (kind.unwrap_or_else(|| format!("V{size}")), size)
            }
        };
        let size = shape.iter().try_fold(size, |size, &count| size.checked_mul(count));
        let end = size.and_then(|size| begin.checked_add(size)).ok_or_else(wrong)?;
        is_named |= !name.is_empty();
        // A member without a name is padding.
        if !name.is_empty() {
            all.add(&name, &kind, &shape, begin..end);
        }
        begin = end;
    }
    if count == 0 { Err(wrong()) } else { Ok((is_named.then(|| all.text()), begin)) }
}

/// Refuses elements in the other byte order.
pub(super) fn check_order(order: char, size: usize, as_given: &str) -> PyResult<()> {
    let other = if cfg!(target_endian = "little") { '>' } else { '<' };
    match size > 1 && (order == other || order == '!' && other == '>') {
        true => Err(other_order(as_given)),
        false => Ok(()),
    }
}

fn other_order(as_given: &str) -> PyErr {
    error::type_error(format!(
        "elements of type {as_given} are not in the byte order of this machine; convert the array: \
         array.astype(array.dtype.newbyteorder(\"=\"))"
    ))
}

/// Refuses a format of the struct module that contains Python objects, addresses or the other byte order, also in members of records. In a
/// format, names of members stand between colons.
fn check_record(format: &str) -> PyResult<()> {
    let codes = || format.split(':').step_by(2).flat_map(str::chars);
    if codes().any(|code| code == 'O') {
        return of('O', 0, format).map(drop);
    }
    // `Z` is an address, unless it makes the next code complex.
    let is_complex = |next: Option<char>| matches!(next, Some('f' | 'd' | 'g'));
    let follow = codes().skip(1).map(Some).chain([None]);
    if codes()
        .zip(follow)
        .any(|(code, next)| matches!(code, 'P' | 'z' | '&' | 'X') || code == 'Z' && !is_complex(next))
    {
        return Err(error::type_error(format!(
            "elements of format {format} contain addresses, which cannot be passed on; give elements without addresses"
        )));
    }
    let other = if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] };
    match codes().find(|code| other.contains(code)) {
        Some(order) => check_order(order, 2, format),
        None => Ok(()),
    }
}

/// Byte order, kind and bytes of a type string of the array interface.
fn parts(typestr: &str) -> PyResult<(char, char, usize)> {
    let wrong = || error::type_error(format!("{typestr:?} is no type string of the array interface"));
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

/// A format of the struct module, as `d`, of an element with that many bytes.
pub(super) fn of_format(format: &str, size: usize) -> PyResult<ElementType> {
    let (order, code) = match format.chars().next() {
        Some(order @ ('@' | '=' | '<' | '>' | '!')) => (order, &format[1..]),
        _ => ('@', format),
    };
    check_order(order, size, format)?;
    check_record(code)?;
    if code == "B" && size != 1 {
        return Err(error::type_error(format!(
            "elements of {size} bytes that are a union, or a packed record, of ctypes may have addresses: the buffer does not say what \
             they are; give numpy.frombuffer(array, dtype), which does"
        )));
    }
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
