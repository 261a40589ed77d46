//! Registry of the memory of arrays. Arrays that are views of the same memory become fields of the same memory, so that the library detects
//! overlapping exchanges and memory that one exchange would write twice.

use super::watch::Watch;
use crate::argument::{Argument, Get, accept};
use crate::comm::PyCommunicator;
use crate::error;
use crate::process_local::ProcessLocal;
use halocline::device::cuda;
use halocline::{DeviceArray, ElementType, Field, Layout, WeakField};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Zeroed memory of the library, as bytes: the base of NumPy and CuPy arrays.
#[pyclass(frozen, module = "halocline", name = "Memory")]
pub(crate) struct PyMemory {
    field: ProcessLocal<Field>,
    bytes: usize,
    device: Option<u32>,
}

#[pymethods]
impl PyMemory {
    #[new]
    fn new(
        py: Python<'_>,
        comm: Argument<Py<PyCommunicator>>,
        bytes: Argument<usize>,
        device: Option<Argument<u32>>,
    ) -> PyResult<Self> {
        accept!(comm, bytes, device);
        let comm = comm.get().get()?;
        let layout = Layout::c_order(ElementType::U8, &[bytes.max(1)]).map_err(error::of)?;
        let field = py.detach(|| match device {
            None => Field::allocate(&comm, layout),
            Some(ordinal) => {
                DeviceArray::<u8>::with_layout(&cuda::device(ordinal)?, layout).map(|array| (*array).clone())
            }
        });
        let field = field.map_err(error::of)?;
        note(device, &field, None);
        Ok(Self { field: ProcessLocal::new(field), bytes, device })
    }

    /// Lets `numpy.asarray` make a view.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.device {
            None => self.interface(py),
            Some(_) => {
                Err(pyo3::exceptions::PyAttributeError::new_err("the memory is on a GPU; use cupy.asarray"))
            }
        }
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.device {
            Some(_) => self.interface(py),
            None => Err(pyo3::exceptions::PyAttributeError::new_err(
                "the memory is host memory; use numpy.asarray",
            )),
        }
    }
}

impl PyMemory {
    /// The memory of a host field without gaps.
    pub(crate) fn of_field(field: Field) -> Self {
        let bytes = field.layout().span().len();
        note(None, &field, None);
        Self { field: ProcessLocal::new(field), bytes, device: None }
    }

    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.field.get()?.base().addr().get(), false))?;
        Ok(interface)
    }
}

/// The range of addresses of an array.
pub(super) fn span(base: NonNull<u8>, layout: &Layout) -> PyResult<Range<usize>> {
    let (span, base) = (layout.span(), base.addr().get());
    match (base.checked_add_signed(span.start), base.checked_add_signed(span.end)) {
        (Some(start), Some(end)) => Ok(start..end),
        _ => Err(error::value_error(format!(
            "an array at {base:#x} from byte {} to byte {} exceeds the address space",
            span.start, span.end
        ))),
    }
}

/// The array that a NumPy array is a view of, or the array itself.
pub(super) fn root<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    /// The most views of views that are followed.
    const DEEPEST: usize = 64;
    let mut owner = array.clone();
    for _ in 0..DEEPEST {
        match owner.getattr_opt("base")? {
            Some(next) if next.getattr_opt("__array_interface__")?.is_some() => owner = next,
            _ => break,
        }
    }
    Ok(owner)
}

/// The array that owns the memory of a NumPy array, and the range of its addresses.
pub(super) fn whole(
    array: &Bound<'_, PyAny>,
    base: NonNull<u8>,
    layout: &Layout,
) -> PyResult<(Py<PyAny>, Range<usize>)> {
    let own = span(base, layout)?;
    let owner = root(array)?;
    if owner.is(array) {
        return Ok((owner.unbind(), own));
    }
    let described = super::describe(&owner);
    let all = described.and_then(|described| Ok((described.base, described.layout()?)));
    if let Ok((base, layout)) = all
        && let Some(base) = NonNull::new(std::ptr::without_provenance_mut(base))
    {
        let all = span(base, &layout)?;
        if all.start <= own.start && own.end <= all.end {
            return Ok((owner.unbind(), all));
        }
    }
    // The array is outside its base, or the base has no plain elements.
    Ok((array.clone().unbind(), own))
}

/// A field of a whole piece of memory, and the watch of its array.
type Known = (WeakField, Option<Arc<Watch>>);

/// The memory of all fields: for each device disjoint clusters of overlapping ranges, by first address.
struct Memories {
    clusters: BTreeMap<(Option<u32>, usize), Cluster>,
    count: usize,
    /// The number of entries at which dropped ones are removed.
    most: usize,
    /// The process that filled the registry; a forked child starts an empty one.
    process: u32,
}

/// Overlapping ranges, and the end of the last.
struct Cluster {
    end: usize,
    known: Vec<(Range<usize>, Known)>,
}

const FEW: usize = 64;

static KNOWN: Mutex<Memories> =
    Mutex::new(Memories { clusters: BTreeMap::new(), count: 0, most: FEW, process: 0 });

fn memories() -> MutexGuard<'static, Memories> {
    let mut memories = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if memories.process != std::process::id() {
        let known = Memories { clusters: BTreeMap::new(), count: 0, most: FEW, process: std::process::id() };
        // The entries of the parent must not be dropped in a child.
        std::mem::forget(std::mem::replace(&mut *memories, known));
    }
    memories
}

impl Memories {
    /// The first addresses of the clusters that overlap a range, descending.
    fn met<'a>(&'a self, device: Option<u32>, range: &'a Range<usize>) -> impl Iterator<Item = usize> + 'a {
        let begun = self.clusters.range((device, 0)..(device, range.end)).rev();
        begun.take_while(|(_, cluster)| cluster.end > range.start).map(|((_, start), _)| *start)
    }

    fn add(&mut self, device: Option<u32>, range: Range<usize>, known: Known) {
        let (mut start, mut cluster) = (range.start, Cluster { end: range.end, known: Vec::new() });
        for met in self.met(device, &range).collect::<Vec<_>>() {
            let Some(other) = self.clusters.remove(&(device, met)) else { continue };
            (start, cluster.end) = (start.min(met), cluster.end.max(other.end));
            cluster.known.extend(other.known);
        }
        let before = cluster.known.len();
        cluster.known.retain(|(other, _)| *other != range);
        self.count = self.count + 1 + cluster.known.len() - before;
        cluster.known.push((range, known));
        self.clusters.insert((device, start), cluster);
    }

    fn remove_dropped(&mut self) {
        let all = std::mem::take(&mut self.clusters);
        self.count = 0;
        for ((device, _), cluster) in all {
            for (range, known) in cluster.known.into_iter().filter(|(_, known)| known.0.upgrade().is_some()) {
                self.add(device, range, known);
            }
        }
        self.most = FEW.max(2 * self.count);
    }
}

/// Registers the memory of a field.
fn note(device: Option<u32>, whole: &Field, watch: Option<Arc<Watch>>) {
    let mut memories = memories();
    if memories.count >= memories.most {
        memories.remove_dropped();
    }
    memories.add(device, whole.memory(), (whole.downgrade(), watch));
}

/// The entries that overlap a range, by descending address.
fn meeting(device: Option<u32>, span: &Range<usize>) -> Vec<Known> {
    let memories = memories();
    let clusters = memories.met(device, span).filter_map(|start| memories.clusters.get(&(device, start)));
    let known = clusters.flat_map(|cluster| &cluster.known);
    let mut met: Vec<_> =
        known.filter(|(range, _)| range.start < span.end && range.end > span.start).collect();
    met.sort_by_key(|(range, _)| std::cmp::Reverse((range.start, range.end)));
    met.into_iter().map(|(_, known)| known.clone()).collect()
}

/// A field in registered memory that contains the span, or else in memory that `make` describes and this call registers. The new memory is
/// linked to registered memory that it overlaps.
pub(super) fn known_or(
    py: Python<'_>,
    (device, span, watch): (Option<u32>, Range<usize>, Option<Arc<Watch>>),
    base: NonNull<u8>,
    layout: Layout,
    make: impl FnOnce(NonNull<u8>, Layout) -> PyResult<Field>,
) -> PyResult<Field> {
    if span.is_empty() {
        return make(base, layout);
    }
    // An array may have released its memory, and the addresses may belong to another array now.
    let is_there = |watch: &Option<Arc<Watch>>| match watch {
        Some(watch) => Ok::<_, PyErr>(watch.change(py)?.is_none()),
        None => Ok(true),
    };
    let mut met = Vec::new();
    for (known, watch) in meeting(device, &span) {
        if !is_there(&watch)? {
            continue;
        }
        let Some(field) = known.upgrade() else { continue };
        let whole = field.memory();
        if whole.start <= span.start
            && span.end <= whole.end
            && let Ok(view) = field.view(base, layout.clone())
        {
            return Ok(view);
        }
        met.push(field);
    }
    let bytes = Layout::c_order(ElementType::U8, &[span.len()]).map_err(error::of)?;
    let whole = make(base.map_addr(|_| std::num::NonZero::new(span.start).unwrap_or(base.addr())), bytes)?;
    let whole = whole.overlapping(&met);
    note(device, &whole, watch);
    whole.view(base, layout).map_err(error::of)
}
