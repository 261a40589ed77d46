//! Tables to and from other libraries: the Arrow C stream interface, in PyCapsules. Nothing is copied.

use crate::argument::class_of;
use crate::error;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use halocline_table::{Table, TableError};
use pyo3::ffi::c_str;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;

/// The name of capsules with a stream.
const STREAM: &CStr = c_str!("arrow_array_stream");

/// The rows of an object with `__arrow_c_stream__`.
pub(super) fn table_of(object: &Bound<'_, PyAny>) -> PyResult<Table> {
    let py = object.py();
    let capsule = object.call_method0("__arrow_c_stream__");
    let capsule = capsule.map_err(|why| error::refused(py, why, "the table refuses __arrow_c_stream__"))?;
    let none = || {
        let class = class_of(&capsule);
        error::type_error(format!("__arrow_c_stream__ must return a capsule with a stream, not {class}"))
    };
    let held = capsule.cast::<PyCapsule>().map_err(|_| none())?;
    let pointer = held.pointer_checked(Some(STREAM)).map_err(|_| none())?;
    // SAFETY: by the interface a capsule of this name points to a stream while it lives, and `capsule` holds it. The stream is moved
    // out, and the capsule keeps a released one, whose destructor does nothing. Only attached threads read such capsules.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    // A producer may be Python code, which attaches itself.
    let read = py.detach(|| {
        let reader = RecordBatchStreamReader::try_new(stream)?;
        let schema = reader.schema();
        Ok((schema, reader.collect::<Result<Vec<RecordBatch>, ArrowError>>()?))
    });
    let (schema, batches) =
        read.map_err(|why: ArrowError| error::type_error(format!("the table cannot be read: {why}")))?;
    Table::new(schema, batches).map_err(|why: TableError| error::value_error(why.to_string()))
}

/// Rows for other libraries.
#[pyclass(frozen, module = "halocline", name = "_ArrowStream")]
pub(super) struct ArrowStream {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl ArrowStream {
    pub(super) fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }

    /// A stream of all rows. The types that the consumer prefers are not looked at, which the interface allows.
    pub(super) fn capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, SchemaRef::clone(&self.schema));
        // Its drop, at the end of the capsule, releases what no consumer has moved out.
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }
}

#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        #[expect(unused_variables, reason = "a preference")] requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        self.capsule(py)
    }
}
