//! A distributed field as one NumPy array: the arguments and the result of `Pattern.gather_to` and `Pattern.save`.

use crate::argument::{Argument, Get, List};
use crate::array::{PyMemory, field_of};
use crate::error;
use halocline::{ElementType, Field, NamedElement};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

/// The fields of one array, or of a list or tuple of arrays.
pub(crate) fn parts(fields: &Bound<'_, PyAny>) -> PyResult<Vec<Field>> {
    let py = fields.py();
    let made = |array: &Bound<'_, PyAny>, name: &str| {
        let field = field_of(array, &mut Vec::new()).map(|field| field.into_owned());
        field.map_err(|error| error::prefixed(py, error, name))
    };
    if !fields.is_instance_of::<PyList>() && !fields.is_instance_of::<PyTuple>() {
        return Ok(vec![made(fields, "fields")?]);
    }
    let List(arrays) = Argument::<List<Bound<'_, PyAny>>>::from(fields).get("fields")?;
    arrays.iter().enumerate().map(|(at, array)| made(array, &format!("fields[{at}]"))).collect()
}

/// The NumPy type of elements; plain bytes where NumPy does not know the name.
fn dtype_of<'py>(py: Python<'py>, element: &NamedElement) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    if let (ElementType::Opaque(size), Some(name)) = (element.element, element.name.as_deref()) {
        let listed = py
            .import("ast")?
            .call_method1("literal_eval", (name,))
            .unwrap_or_else(|_| PyString::new(py, name).into_any());
        if let Ok(dtype) = numpy.call_method1("dtype", (listed,))
            && dtype.getattr("itemsize")?.extract::<usize>()? == usize::from(size)
        {
            return Ok(dtype);
        }
    }
    let name = match element.element {
        ElementType::Opaque(_) | ElementType::Bf16 => format!("V{}", element.element.size()),
        known => known.to_string(),
    };
    numpy.call_method1("dtype", (name,))
}

/// A NumPy array over the memory of a host field in C order.
pub(crate) fn to_numpy<'py>(py: Python<'py>, field: Field) -> PyResult<Bound<'py, PyAny>> {
    let dtype = dtype_of(py, &field.layout().named_element())?;
    let shape = PyTuple::new(py, field.layout().extents())?;
    let bytes = py.import("numpy")?.call_method1("asarray", (PyMemory::of_field(field),))?;
    bytes.call_method1("view", (dtype,))?.call_method1("reshape", (shape,))
}
