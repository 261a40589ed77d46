//! Where the tiles of the cubed sphere lie.

use crate::argument::{Argument, ArgumentType, Get, Refusal, accept};
use crate::error;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// Points of a tile: their coordinates along both axes, and the shape of the array that has them.
pub(crate) struct Points {
    along: Vec<[f64; 2]>,
    shape: Vec<usize>,
}

impl<'py> ArgumentType<'py> for Points {
    const PLURAL: &'static str = "arrays of shape (..., 2)";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "an array of numbers of shape (..., 2)";
        let py = object.py();
        let array = py.import("numpy")?.call_method1("asarray", (object, "float64"));
        let array = array.map_err(|error| Refusal::raised(py, error, || Refusal::wanted(WANTED, object)))?;
        let shape = array.getattr("shape")?;
        let extents: Vec<usize> = shape.extract()?;
        if extents.last() != Some(&2) {
            return Err(Refusal::wrong_type(format!("{WANTED} is wanted, not one of shape {shape}")));
        }
        // In C order, whatever the order of the array.
        let bytes = array.call_method0("tobytes")?;
        let bytes = bytes.cast::<PyBytes>().map_err(PyErr::from)?;
        let number = |bytes: &[u8; 8]| f64::from_ne_bytes(*bytes);
        let numbers: Vec<f64> = bytes.as_bytes().as_chunks().0.iter().map(number).collect();
        Ok(Self { along: numbers.as_chunks().0.to_vec(), shape: extents })
    }
}

#[doc = doc!("cubed_sphere_point")]
#[pyfunction]
pub(crate) fn cubed_sphere_point<'py>(
    py: Python<'py>,
    tile: Argument<usize>,
    along: Argument<Points>,
) -> PyResult<Bound<'py, PyAny>> {
    accept!(tile, along);
    // The tile is checked, even of no points.
    let points = [[0.5; 2]].iter().chain(&along.along);
    let points = points.map(|&point| halocline::cubed_sphere_point(tile, point).map_err(error::of));
    let points: Vec<[f64; 3]> = points.collect::<PyResult<_>>()?;
    let bytes: Vec<u8> = points[1..].iter().flatten().flat_map(|at| at.to_ne_bytes()).collect();
    let mut shape = along.shape;
    shape.pop();
    shape.push(3);
    let array = py.import("numpy")?.call_method1("frombuffer", (PyByteArray::new(py, &bytes), "float64"))?;
    array.call_method1("reshape", (shape,))
}
