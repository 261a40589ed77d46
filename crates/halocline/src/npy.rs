//! The header of NumPy's file format (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use halocline_plan::{ElementType, NamedElement};

/// The elements begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// The bytes before the elements of an array in C order, in version 1.0 of the format.
pub(crate) fn head(element: &NamedElement, extents: &[usize]) -> Vec<u8> {
    let comma = if extents.len() == 1 { "," } else { "" };
    let shape = extents.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let text =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}{comma}), }}", descr(element));
    let before = b"\x93NUMPY\x01\x00".len() + size_of::<u16>();
    let length = (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
    let mut head = b"\x93NUMPY\x01\x00".to_vec();
    // An array has so few dimensions that the text is far shorter than 64 KiB.
    head.extend((length as u16).to_le_bytes());
    head.extend(text.bytes());
    head.resize(before + length - 1, b' ');
    head.push(b'\n');
    head
}

/// The type string of NumPy. A type that NumPy lacks is written as plain bytes.
fn descr(element: &NamedElement) -> String {
    let known = match element.element {
        ElementType::Bool => "|b1",
        ElementType::I8 => "|i1",
        ElementType::U8 => "|u1",
        ElementType::I16 => "<i2",
        ElementType::U16 => "<u2",
        ElementType::F16 => "<f2",
        ElementType::I32 => "<i4",
        ElementType::U32 => "<u4",
        ElementType::F32 => "<f4",
        ElementType::I64 => "<i8",
        ElementType::U64 => "<u8",
        ElementType::F64 => "<f8",
        ElementType::C64 => "<c8",
        ElementType::C128 => "<c16",
        other => return format!("|V{}", other.size()),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_those_that_numpy_writes() {
        let head = |element, extents: &[usize]| {
            let head = super::head(&NamedElement { element, name: None }, extents);
            assert!(
                head.len().is_multiple_of(ALIGNMENT)
                    && head.starts_with(b"\x93NUMPY\x01\x00")
                    && head.ends_with(b"\n")
            );
            assert_eq!(usize::from(u16::from_le_bytes([head[8], head[9]])), head.len() - 10);
            String::from_utf8(head[10..].to_vec()).expect("ASCII").trim_end().to_owned()
        };
        assert_eq!(head(ElementType::F64, &[3]), "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }");
        assert_eq!(
            head(ElementType::Bool, &[2, 4]),
            "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 4), }"
        );
        assert_eq!(
            head(ElementType::Opaque(40), &[]),
            "{'descr': '|V40', 'fortran_order': False, 'shape': (), }"
        );
        // So many dimensions that the head has more than one unit of alignment.
        assert!(head(ElementType::C128, &[1; 32]).contains("'<c16'"));
    }
}
