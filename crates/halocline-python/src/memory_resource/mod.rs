//! Where received payloads lie: host memory of the library, or memory of an allocator of the program.

mod foreign;

pub(crate) use foreign::{CallScope, OnCalls, is_allocating, raised, refuse_in_allocator};

use crate::argument::{Argument, ArgumentType, Get, Refusal, accept};
use crate::comm::PyCommunicator;
use crate::error;
use crate::process_local::ProcessLocal;
use crate::stream::Handles;
use foreign::{Allocator, OfGpu};
use halocline::device::cuda;
use halocline::{
    Communicator, Device, DeviceMemory, HostMemory, Limited, MemoryKind, MemoryResource, MemoryStatistics,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use std::time::Duration;

/// A limit on a resource, as arguments give it.
struct Limit {
    limit: Option<usize>,
    spill: bool,
    patience: Duration,
}

impl Limit {
    /// Puts the limit on a resource. It spills to host memory of the rank.
    fn on(self, resource: Arc<dyn MemoryResource>, comm: &Communicator) -> Arc<dyn MemoryResource> {
        if self.limit.is_none() && !self.spill {
            return resource;
        }
        let limited = Limited::new(resource, self.limit.unwrap_or(usize::MAX)).with_patience(self.patience);
        match self.spill {
            true => Arc::new(limited.spilling(Arc::new(HostMemory::of(comm)))),
            false => Arc::new(limited),
        }
    }
}

fn statistics(py: Python<'_>, of: MemoryStatistics) -> PyResult<Bound<'_, PyDict>> {
    let statistics = PyDict::new(py);
    let kind = match of.kind {
        MemoryKind::Host => "host",
        MemoryKind::Pinned => "pinned",
        MemoryKind::Device => "device",
    };
    statistics.set_item("kind", kind)?;
    statistics.set_item("in_use", of.in_use)?;
    statistics.set_item("peak", of.peak)?;
    statistics.set_item("allocations", of.allocations)?;
    statistics.set_item("spilled", of.spilled)?;
    Ok(statistics)
}

impl crate::process_local::DropMayBlock for Arc<dyn MemoryResource> {}

#[doc = doc!("HostMemory")]
#[pyclass(frozen, module = "halocline", name = "HostMemory")]
pub(crate) struct PyHostMemory(ProcessLocal<Arc<dyn MemoryResource>>);

#[pymethods]
impl PyHostMemory {
    #[new]
    #[pyo3(signature = (comm, *, limit = None, spill = Argument::of(false), patience = Argument::of(Duration::from_secs(1))), text_signature = "(comm, *, limit=None, spill=False, patience=1.0)")]
    fn new(
        comm: Argument<Py<PyCommunicator>>,
        limit: Option<Argument<usize>>,
        spill: Argument<bool>,
        patience: Argument<Duration>,
    ) -> PyResult<Self> {
        accept!(comm, limit, spill, patience);
        let comm = comm.get().get()?;
        let resource = Limit { limit, spill, patience }.on(Arc::new(HostMemory::of(&comm)), &comm);
        Ok(Self(ProcessLocal::new(resource)))
    }

    #[doc = doc!("HostMemory.trim")]
    #[pyo3(text_signature = "($self)")]
    fn trim(&self) -> PyResult<()> {
        self.0.get()?.trim();
        Ok(())
    }

    #[doc = doc!("HostMemory.statistics")]
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        statistics(py, self.0.get()?.statistics())
    }

    fn __repr__(&self) -> String {
        "HostMemory()".to_owned()
    }
}

/// A GPU by its ordinal.
fn gpu(py: Python<'_>, ordinal: u32) -> PyResult<Device> {
    py.detach(|| cuda::device(ordinal)).map_err(error::of)
}

#[doc = doc!("DeviceMemory")]
#[pyclass(frozen, module = "halocline", name = "DeviceMemory")]
pub(crate) struct PyDeviceMemory {
    resource: ProcessLocal<Arc<dyn MemoryResource>>,
    #[doc = doc!("DeviceMemory.device")]
    #[pyo3(get)]
    device: u32,
}

#[pymethods]
impl PyDeviceMemory {
    #[new]
    #[pyo3(signature = (comm, device, *, limit = None, spill = Argument::of(false), patience = Argument::of(Duration::from_secs(1))), text_signature = "(comm, device, *, limit=None, spill=False, patience=1.0)")]
    fn new(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        device: Argument<u32>,
        limit: Option<Argument<usize>>,
        spill: Argument<bool>,
        patience: Argument<Duration>,
    ) -> PyResult<Self> {
        accept!(comm, device, limit, spill, patience);
        let comm = comm.get().get()?;
        let memory = Arc::new(DeviceMemory::new(&gpu(py, device)?));
        let resource = Limit { limit, spill, patience }.on(memory, &comm);
        Ok(Self { resource: ProcessLocal::new(resource), device })
    }

    #[doc = doc!("DeviceMemory.trim")]
    #[pyo3(text_signature = "($self)")]
    fn trim(&self) -> PyResult<()> {
        self.resource.get()?.trim();
        Ok(())
    }

    #[doc = doc!("DeviceMemory.statistics")]
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        statistics(py, self.resource.get()?.statistics())
    }

    fn __repr__(&self) -> String {
        format!("DeviceMemory(device={})", self.device)
    }
}

#[doc = doc!("ForeignMemory")]
#[pyclass(frozen, module = "halocline", name = "ForeignMemory")]
pub(crate) struct PyForeignMemory {
    resource: ProcessLocal<Arc<OnCalls>>,
    #[doc = doc!("ForeignMemory.allocator")]
    #[pyo3(get)]
    allocator: Py<PyAny>,
}

#[pymethods]
impl PyForeignMemory {
    #[new]
    #[pyo3(signature = (comm, allocator, *, device = None, stream = None, limit = None, spill = Argument::of(false), patience = Argument::of(Duration::from_secs(1))), text_signature = "(comm, allocator, *, device=None, stream=None, limit=None, spill=False, patience=1.0)")]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        allocator: &Bound<'_, PyAny>,
        device: Option<Argument<u32>>,
        stream: Option<Argument<Handles>>,
        limit: Option<Argument<usize>>,
        spill: Argument<bool>,
        patience: Argument<Duration>,
    ) -> PyResult<Self> {
        accept!(comm, device, limit, spill, patience);
        if device.is_none() && stream.is_some() {
            return Err(error::value_error(
                "stream: host memory is in the order of no stream; give the `device` of the memory, or leave `stream` out",
            ));
        }
        Allocator::check(allocator).map_err(|refusal| refusal.of("allocator"))?;
        let streams = Handles::of_call(stream)?;
        let of_gpu = |ordinal| Ok::<_, PyErr>(OfGpu { device: gpu(py, ordinal)?, streams });
        let of_gpu = device.map(of_gpu).transpose()?;
        let comm = comm.get().get()?;
        let resource = foreign(&comm, allocator, of_gpu, Limit { limit, spill, patience })
            .map_err(|refusal| refusal.of("allocator"))?;
        Ok(Self { resource: ProcessLocal::new(resource), allocator: allocator.clone().unbind() })
    }

    #[doc = doc!("ForeignMemory.statistics")]
    #[getter]
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        statistics(py, self.resource.get()?.statistics())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("ForeignMemory({})", self.allocator.bind(py).repr()?))
    }
}

fn foreign(
    comm: &Communicator,
    allocator: &Bound<'_, PyAny>,
    of_gpu: Option<OfGpu>,
    limit: Limit,
) -> Result<Arc<OnCalls>, Refusal> {
    let allocator = Arc::new(Allocator::new(allocator, of_gpu)?);
    Ok(Arc::new(OnCalls::new(limit.on(allocator, comm))))
}

/// The argument `memory`.
pub(crate) enum Memory {
    Library(Arc<dyn MemoryResource>),
    Foreign(Arc<OnCalls>),
    /// An allocator of the program as it is.
    Allocator(Py<PyAny>),
}

impl<'py> ArgumentType<'py> for Memory {
    fn plural() -> String {
        "memory resources".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        if let Ok(memory) = object.cast::<PyHostMemory>() {
            return Ok(Self::Library(Arc::clone(memory.get().0.get()?)));
        }
        if let Ok(memory) = object.cast::<PyDeviceMemory>() {
            return Ok(Self::Library(Arc::clone(memory.get().resource.get()?)));
        }
        if let Ok(memory) = object.cast::<PyForeignMemory>() {
            return Ok(Self::Foreign(Arc::clone(memory.get().resource.get()?)));
        }
        Allocator::check(object)?;
        Ok(Self::Allocator(object.clone().unbind()))
    }
}

/// The memory resource of an operation, and the same if it is the program's.
#[derive(Clone)]
pub(crate) struct Resource {
    pub(crate) resource: Arc<dyn MemoryResource>,
    pub(crate) on_calls: Option<Arc<OnCalls>>,
}

impl Resource {
    pub(crate) fn of(py: Python<'_>, comm: &Communicator, memory: Option<Memory>) -> PyResult<Self> {
        let no_limit = Limit { limit: None, spill: false, patience: Duration::ZERO };
        let on_calls = match memory {
            None => return Ok(Self { resource: Arc::new(HostMemory::of(comm)), on_calls: None }),
            Some(Memory::Library(resource)) => return Ok(Self { resource, on_calls: None }),
            Some(Memory::Foreign(on_calls)) => on_calls,
            Some(Memory::Allocator(allocator)) => {
                foreign(comm, allocator.bind(py), None, no_limit).map_err(|refusal| refusal.of("memory"))?
            }
        };
        let resource: Arc<dyn MemoryResource> = Arc::<OnCalls>::clone(&on_calls);
        Ok(Self { resource, on_calls: Some(on_calls) })
    }
}
