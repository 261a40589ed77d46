//! The Python package `halocline`: foreign arrays, streams and communicators, and nothing else. What its parts promise is
//! said in `python/halocline/__init__.pyi`.

mod array;
mod comm;
mod command;
mod error;
mod exchange;
mod given;
mod grid;
mod host;
mod mesh;
mod options;
mod owned;
mod redistribute;
mod stream;
mod task;
mod unbound;
mod unstructured;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(comm::init, module)?)?;
    module.add("_run_command", wrap_pyfunction!(command::run_command, module)?)?;
    module.add("_time_exchanges", wrap_pyfunction!(exchange::time_exchanges, module)?)?;
    module.add_class::<command::PyTrace>()?;
    module.add_class::<comm::PyCommunicator>()?;
    module.add_class::<comm::ThreadGroup>()?;
    module.add_class::<grid::PyRegularGrid>()?;
    module.add_class::<grid::PyDecomposition>()?;
    module.add_class::<grid::PyDomain>()?;
    module.add_class::<grid::PyPattern>()?;
    module.add_class::<unstructured::PyUnstructuredDomain>()?;
    module.add_class::<unstructured::PyGraph>()?;
    module.add_class::<unstructured::PyPartition>()?;
    module.add_class::<mesh::PyMesh>()?;
    module.add_class::<mesh::PyMeshDomains>()?;
    module.add_class::<mesh::PyMeshHalos>()?;
    module.add_class::<array::PyField>()?;
    module.add_class::<array::PyMemory>()?;
    module.add_class::<stream::PyStream>()?;
    module.add_class::<exchange::PyHaloExchange>()?;
    module.add_class::<exchange::PyPending>()?;
    module.add_class::<unbound::PyPatternLinks>()?;
    module.add_class::<redistribute::PyRedistribute>()?;
    Ok(())
}
