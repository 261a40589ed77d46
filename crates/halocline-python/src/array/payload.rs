//! The bytes of an array as the payload of a packet.

use super::{Described, describe};
use crate::error;
use halocline::Layout;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyWeakrefReference};

/// Where a payload lies.
pub(crate) struct PayloadMemory {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// The ordinal of the GPU; none: memory of the host.
    pub(crate) device: Option<u32>,
    /// Keep the memory alive, besides the array object: its owner, and a weak reference, with which NumPy does not resize it.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) held: [Option<Py<PyAny>>; 2],
    /// Whether the array can move to other memory although this value holds it.
    pub(crate) is_resizable: bool,
}

/// The memory of a contiguous array; of any dimensions, in C or Fortran order. Valid while the array and this value live.
pub(crate) fn payload_of(array: &Bound<'_, PyAny>) -> PyResult<PayloadMemory> {
    if let Ok(bytes) = array.cast::<PyBytes>() {
        let (address, bytes) = (bytes.as_bytes().as_ptr().expose_provenance(), bytes.as_bytes().len());
        return Ok(PayloadMemory { address, bytes, device: None, held: [None, None], is_resizable: false });
    }
    let described = describe(array)?;
    let bytes = contiguous_bytes(&described)?;
    if described.base == 0 && bytes > 0 {
        return Err(super::null_address());
    }
    let Described { base: address, device, owner, is_tensor: is_resizable, .. } = described;
    let weak = PyWeakrefReference::new(array).ok().map(|weak| weak.into_any().unbind());
    Ok(PayloadMemory { address, bytes, device, held: [owner, weak], is_resizable })
}

/// The bytes of a contiguous array.
pub(super) fn contiguous_bytes(described: &Described) -> PyResult<usize> {
    let layout = described.layout()?;
    let contiguous = Layout::c_order(described.element, &described.extents).map_err(error::of)?;
    let has_negative = described.strides.as_ref().is_some_and(|s| s.iter().any(|s| *s < 0));
    match layout.span() == contiguous.span() && !has_negative {
        true => Ok(layout.span().len()),
        false => Err(error::value_error("the array is not contiguous; give a contiguous one")),
    }
}
