//! A reader for NumPy's file format, for little-endian `float32` and `int32` arrays in C order with a known shape
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use super::InputError;
use std::ops::RangeInclusive;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The expected content of a file of columns.
pub struct Columns<'a> {
    /// The cells that have the columns: `node` or `triangle`.
    pub of: &'static str,
    /// Number of layers above the bottom of each column. Values below are not used.
    pub wet: &'a [usize],
    /// Layers of a column.
    pub layers: usize,
    /// The quantity, for errors.
    pub what: &'static str,
    /// Range of valid values.
    pub range: RangeInclusive<f32>,
    /// Unit of the values.
    pub unit: &'static str,
}

/// The elements of a `float32` array of columns by layers. All of them are finite, and those above the bottom are in the range.
pub fn columns(file: &'static str, bytes: &[u8], columns: &Columns<'_>) -> Result<Vec<f32>, InputError> {
    let Columns { of, wet, layers, what, range, unit } = columns;
    let (offset, data) = Npy { file, bytes }.data("<f4", &[wet.len(), *layers])?;
    let values: Vec<f32> = data.iter().map(|&raw| f32::from_le_bytes(raw)).collect();
    let is_good = |at: usize| match at % layers < wet[at / layers] {
        true => range.contains(&values[at]),
        false => values[at].is_finite(),
    };
    match (0..values.len()).find(|&at| !is_good(at)) {
        None => Ok(values),
        Some(at) => {
            let (column, layer) = (at / layers + 1, at % layers + 1);
            let found = format!("{:?} in layer {layer} of {of} {column}", values[at]);
            let expected = format!("{what} from {} to {} {unit}", range.start(), range.end());
            Err(Npy { file, bytes }.wrong(offset + 4 * at, found, expected))
        }
    }
}

/// The elements of an `int32` array with this shape, all of them from `low` to `high`.
pub fn integers(
    file: &'static str,
    bytes: &[u8],
    shape: &[usize],
    low: u32,
    high: u32,
) -> Result<Vec<u32>, InputError> {
    let npy = Npy { file, bytes };
    let (offset, data) = npy.data("<i4", shape)?;
    let value = |(at, &raw): (usize, &[u8; 4])| {
        let value = i32::from_le_bytes(raw);
        let valid = u32::try_from(value).ok().filter(|value| (low..=high).contains(value));
        valid.ok_or_else(|| {
            let found = format!("{value} as element {at}");
            npy.wrong(offset + 4 * at, found, format!("a whole number from {low} to {high}"))
        })
    };
    data.iter().enumerate().map(value).collect()
}

struct Npy<'a> {
    file: &'static str,
    bytes: &'a [u8],
}

impl<'a> Npy<'a> {
    /// The data, and the offset of their first byte.
    fn data(&self, dtype: &str, shape: &[usize]) -> Result<(usize, &'a [[u8; 4]]), InputError> {
        let (start, end) = self.header()?;
        let header = String::from_utf8_lossy(&self.bytes[start..end]);
        let fields =
            [("descr", format!("'{dtype}'")), ("fortran_order", "False".to_owned()), ("shape", tuple(shape))];
        for (key, expected) in fields {
            let found = entry(&header, key);
            if found != Some(expected.as_str()) {
                let found =
                    found.map_or_else(|| format!("no '{key}'"), |found| format!("{found} as '{key}'"));
                return Err(self.wrong(start, found, expected));
            }
        }
        let elements: usize = shape.iter().product();
        let (data, rest) = self.bytes[end..].as_chunks::<4>();
        if data.len() != elements || !rest.is_empty() {
            let found = format!("{} bytes of data", self.bytes.len() - end);
            let expected = format!("{} bytes for {elements} elements", 4 * elements);
            return Err(self.wrong(end, found, expected));
        }
        Ok((end, data))
    }

    /// Start and end of the header's dictionary, both within the file.
    fn header(&self) -> Result<(usize, usize), InputError> {
        let bytes = self.bytes;
        if !bytes.starts_with(MAGIC) {
            let found = format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(MAGIC.len())]));
            return Err(self.wrong(0, found, "the magic bytes \"\\x93NUMPY\""));
        }
        let short = || self.wrong(bytes.len(), "the end of the file", "the rest of the header");
        let (start, length) = match bytes.get(MAGIC.len()).ok_or_else(short)? {
            1 => {
                let length = bytes.get(8..10).and_then(|raw| raw.try_into().ok()).ok_or_else(short)?;
                (10, usize::from(u16::from_le_bytes(length)))
            }
            2 | 3 => {
                let length = bytes.get(8..12).and_then(|raw| raw.try_into().ok()).ok_or_else(short)?;
                (12, u32::from_le_bytes(length) as usize)
            }
            version => return Err(self.wrong(6, format!("version {version}"), "version 1, 2 or 3")),
        };
        let end = start + length;
        if end > bytes.len() { Err(short()) } else { Ok((start, end)) }
    }

    fn wrong(&self, offset: usize, found: impl Into<String>, expected: impl Into<String>) -> InputError {
        InputError::Npy { file: self.file, offset, found: found.into(), expected: expected.into() }
    }
}

/// The text of the value of `key` in the header's dictionary.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = header.split_once(&format!("'{key}':"))?;
    let after = after.trim_start();
    let end = if after.starts_with('(') { after.find(')')? + 1 } else { after.find([',', '}'])? };
    Some(after[..end].trim_end())
}

/// A shape as Python prints it.
fn tuple(shape: &[usize]) -> String {
    match shape {
        [only] => format!("({only},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}  \n");
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    fn pair() -> Vec<u8> {
        file("<f4", "(1, 2)", &[1.5f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat())
    }

    /// One column of some layers for each given number of wet ones, of values from -5 to 5.
    fn floats(bytes: &[u8], wet: &[usize], layers: usize) -> Result<Vec<f32>, InputError> {
        let range = -5.0..=5.0;
        columns("a.npy", bytes, &Columns { of: "node", wet, layers, what: "a speed", range, unit: "m/s" })
    }

    #[test]
    fn arrays_are_read() {
        assert_eq!(floats(&pair(), &[2], 2).unwrap(), [1.5, -2.0]);
        let bytes = file("<i4", "(2,)", &[7, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(integers("a.npy", &bytes, &[2], 7, 9).unwrap(), [7, 9]);
    }

    #[test]
    fn every_cut_is_an_error_that_names_the_file() {
        let bytes = pair();
        for length in 0..bytes.len() {
            let error = floats(&bytes[..length], &[2], 2).unwrap_err().to_string();
            assert!(error.starts_with("a.npy, byte "), "{error}");
        }
    }

    #[test]
    fn wrong_magic_version_type_shape_and_order_are_refused() {
        let message = |bytes: &[u8]| floats(bytes, &[2], 2).unwrap_err().to_string();
        assert_eq!(
            message(b"PK\x03\x04...."),
            r#"a.npy, byte 0: found "PK\u{3}\u{4}..", expected the magic bytes "\x93NUMPY"; write the file again"#
        );
        let mut version = pair();
        version[6] = 9;
        assert_eq!(
            message(&version),
            "a.npy, byte 6: found version 9, expected version 1, 2 or 3; write the file again"
        );
        let double = file("<f8", "(1, 2)", &[0; 8]);
        assert_eq!(
            message(&double),
            "a.npy, byte 10: found '<f8' as 'descr', expected '<f4'; write the file again"
        );
        let flat = file("<f4", "(2,)", &[0; 8]);
        assert_eq!(
            message(&flat),
            "a.npy, byte 10: found (2,) as 'shape', expected (1, 2); write the file again"
        );
        let fortran = String::from_utf8_lossy(&pair()[8..]).replace("False", "True ");
        let fortran = [&pair()[..8], fortran.as_bytes()].concat();
        assert_eq!(
            message(&fortran),
            "a.npy, byte 10: found True as 'fortran_order', expected False; write the file again"
        );
        assert_eq!(
            message(&file("<f4", "(1, 2", &[0; 8])),
            "a.npy, byte 10: found no 'shape', expected (1, 2); write the file again"
        );
    }

    #[test]
    fn elements_out_of_range_are_named() {
        let bytes = file("<i4", "(2,)", &[7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        let error = integers("a.npy", &bytes, &[2], 0, 9).unwrap_err().to_string();
        let at = bytes.len() - 4;
        assert_eq!(
            error,
            format!(
                "a.npy, byte {at}: found -1 as element 1, expected a whole number from 0 to 9; write the file again"
            )
        );
    }

    /// A value of 3e38 m/s made steps of 0 minutes, in which nothing moved and all checks passed.
    #[test]
    fn values_that_make_no_sense_are_named_with_their_place() {
        let read = |values: [f32; 4]| {
            let bytes = file("<f4", "(2, 2)", &values.map(f32::to_le_bytes).concat());
            // The second column has one layer of water.
            floats(&bytes, &[2, 1], 2).map_err(|error| error.to_string())
        };
        for (value, text) in [(f32::NAN, "NaN"), (3e38, "3e38"), (-6.0, "-6.0"), (f32::INFINITY, "inf")] {
            let error = read([1.0, value, 1.0, 1.0]).unwrap_err();
            let found = format!(
                "found {text} in layer 2 of node 1, expected a speed from -5 to 5 m/s; write the file again"
            );
            assert!(error.starts_with("a.npy, byte ") && error.ends_with(&found), "{error}");
            let error = read([1.0, 1.0, value, 1.0]).unwrap_err();
            assert!(error.contains(&format!("found {text} in layer 1 of node 2")), "{error}");
        }
        assert!(
            read([1.0, 5.0, -5.0, 1e30]).is_ok(),
            "what lies below the bottom may be anything that is finite"
        );
        assert!(read([1.0, 5.0, -5.0, f32::NAN]).is_err());
    }
}
