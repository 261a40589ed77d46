//! The Python package `halocline`: foreign arrays, streams and communicators, and nothing else. What its parts promise is
//! said in `python/halocline/__init__.pyi`.

// The macro `doc!`: what the stub says of a name.
include!(concat!(env!("OUT_DIR"), "/docs.rs"));

mod argument;
mod argument_name;
mod array;
mod bind;
mod call;
mod call_lock;
mod callbacks;
mod comm;
mod command;
mod domain;
mod error;
mod exchange;
mod gather;
mod ghex;
mod grid;
mod host;
mod icon;
mod index_lists;
mod memory_resource;
mod mesh;
mod neighbors;
mod options;
mod packet;
mod packet_error;
mod patches;
mod pending;
mod process_local;
mod program;
mod redistribute;
mod rolling;
mod sparse;
mod stream;
mod task;
mod tensor;
mod thread_group;
mod trace;
mod unbound;
mod unstructured;
mod xla;

use pyo3::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};

/// Refuses all interpreters of the process but the first that imports: what is static here has objects of that one.
fn check_interpreter() -> PyResult<()> {
    static FIRST: AtomicI64 = AtomicI64::new(-1);
    // SAFETY: the module is being initialised in this thread, which is attached to an interpreter.
    let this = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    match FIRST.compare_exchange(-1, this, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != this => Err(pyo3::exceptions::PyImportError::new_err(
            "halocline was imported by another interpreter of this process, and serves one alone; start a process for this one",
        )),
        _ => Ok(()),
    }
}

#[doc = doc!("")]
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter()?;
    error::begin(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(comm::init, module)?)?;
    module.add("_run_command", wrap_pyfunction!(command::run_command, module)?)?;
    module.add("_time_exchanges", wrap_pyfunction!(exchange::time_exchanges, module)?)?;
    module.add("_check_stream", wrap_pyfunction!(stream::check_stream, module)?)?;
    module.add("_gpus", wrap_pyfunction!(stream::gpus, module)?)?;
    module.add_class::<trace::PyTrace>()?;
    module.add_class::<trace::PyDeviceTrace>()?;
    module.add_class::<comm::PyCommunicator>()?;
    module.add_class::<thread_group::ThreadGroup>()?;
    module.add_class::<grid::PyRegularGrid>()?;
    module.add_class::<grid::PyDecomposition>()?;
    module.add_class::<patches::PyPatchGrid>()?;
    module.add_class::<patches::PyPatchDecomposition>()?;
    module.add_class::<patches::PyPatchTransfer>()?;
    module.add_class::<domain::PyDomain>()?;
    module.add_class::<grid::PyPattern>()?;
    module.add_class::<unstructured::PyUnstructuredDomain>()?;
    module.add_function(wrap_pyfunction!(unstructured::domain, module)?)?;
    module.add_function(wrap_pyfunction!(patches::patch_grid, module)?)?;
    module.add_function(wrap_pyfunction!(patches::sphere::cubed_sphere_point, module)?)?;
    module.add_class::<unstructured::PyGraph>()?;
    module.add_class::<unstructured::PyPartition>()?;
    module.add_class::<mesh::PyMesh>()?;
    module.add_class::<mesh::PyMeshPart>()?;
    module.add_class::<mesh::PyMeshDomains>()?;
    module.add_class::<mesh::PyMeshHalos>()?;
    module.add_class::<icon::PyIconGrid>()?;
    module.add_class::<icon::PyIconGridPart>()?;
    module.add_class::<icon::PyIcosahedralGrid>()?;
    module.add_class::<array::PyField>()?;
    module.add_class::<array::PyMemory>()?;
    module.add("_FieldDescriptor", module.py().get_type::<ghex::FieldDescriptor>())?;
    module.add("_BufferInfo", module.py().get_type::<ghex::BufferInfo>())?;
    module.add("_LinkSlot", module.py().get_type::<ghex::LinkSlot>())?;
    module.add("_ScheduledState", module.py().get_type::<ghex::PyScheduledState>())?;
    module.add("_PatternBase", module.py().get_type::<ghex::PatternBase>())?;
    module.add("_CommunicationBase", module.py().get_type::<ghex::CommunicationBase>())?;
    module.add("_CallLock", module.py().get_type::<call_lock::PyCallLock>())?;
    module.add_class::<stream::PyStream>()?;
    module.add_class::<exchange::PyHaloExchange>()?;
    module.add_class::<pending::PyPending>()?;
    module.add_class::<unbound::PyPatternLinks>()?;
    module.add_class::<redistribute::PyRedistribute>()?;
    module.add_class::<index_lists::PyIndexLists>()?;
    module.add("_XlaExchange", module.py().get_type::<xla::PyXlaExchange>())?;
    module.add("_xla_handler", wrap_pyfunction!(xla::xla_handler, module)?)?;
    module.add_class::<packet::PyPacket>()?;
    module.add_class::<packet::PyPayload>()?;
    module.add_class::<memory_resource::PyHostMemory>()?;
    module.add_class::<memory_resource::PyDeviceMemory>()?;
    module.add_class::<memory_resource::PyForeignMemory>()?;
    module.add_class::<neighbors::PyNeighborExchange>()?;
    module.add_class::<neighbors::PyNeighborRound>()?;
    module.add_class::<neighbors::PyNeighborSession>()?;
    module.add_class::<neighbors::PySessionRound>()?;
    module.add_class::<sparse::PySparseAlltoall>()?;
    module.add_function(wrap_pyfunction!(rolling::rolling, module)?)?;
    module.add("_load_program", wrap_pyfunction!(program::load_program, module)?)?;
    module.add("_build_program", wrap_pyfunction!(program::build_program, module)?)?;
    module.add_class::<program::PyEntry>()?;
    module.add_class::<program::PyProgram>()?;
    module.add_class::<program::PyPreparedCall>()?;
    module.add_class::<program::PyFieldProgram>()?;
    module.add_function(wrap_pyfunction!(program::field_program, module)?)?;
    module.add("_Calls", module.py().get_type::<program::PyCalls>())?;
    module.add("_ProgramCall", module.py().get_type::<program::PyProgramCall>())?;
    module.add_class::<rolling::PyStatistic>()?;
    module.add_class::<rolling::PyRollingContext>()?;
    Ok(())
}
