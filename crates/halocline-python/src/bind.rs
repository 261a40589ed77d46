//! The fields and options of a bind, from the arguments of Python.

use crate::argument::{ArgumentType, Refusal, entries, entry};
use crate::array::{Arrays, Watches, field_of};
use crate::comm::PyCommunicator;
use crate::error;
use crate::exchange::PyHaloExchange;
use crate::grid::{PyPattern, collective};
use crate::options::Keywords;
use crate::process_local::drop_deferred;
use crate::stream::Streams;
use crate::tensor::Versions;
use halocline::device::{MemorySpace, cuda};
use halocline::{BindOptions, Device, Field, HaloExchange, Pattern};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

/// A pair (pattern, array).
pub(crate) struct Binding<'py> {
    pattern: Py<PyPattern>,
    array: Bound<'py, PyAny>,
}

impl<'py> ArgumentType<'py> for Binding<'py> {
    const PLURAL: &'static str = "pairs (pattern, array)";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let pair = entries::<2>(object, "a pair (pattern, array)")?;
        Ok(Self { pattern: entry(&pair, 0)?, array: entry(&pair, 1)? })
    }
}

/// The pairs of one set of fields, and how messages call them: `fields`, or `sets[1]`.
pub(crate) struct BindingSet<'py> {
    pub(crate) name: String,
    pub(crate) bindings: Vec<Binding<'py>>,
}

/// Fields made from pairs.
pub(crate) struct BoundFields<'a> {
    pub(crate) fields: Vec<(&'a Pattern, Cow<'a, Field>)>,
    /// The PyTorch tensors among the arrays.
    pub(crate) tensors: Vec<Py<PyAny>>,
}

/// Makes fields of pairs. `name` is what messages call the list: an error begins with the entry, as in `fields[2]: ...`.
pub(crate) fn fields_of<'a>(
    comm: &PyCommunicator,
    name: &str,
    bindings: &'a [Binding<'_>],
) -> PyResult<BoundFields<'a>> {
    let mut tensors = Vec::new();
    let field = |(at, Binding { pattern, array }): (usize, &'a Binding<'_>)| {
        let pattern = pattern.get();
        let made = pattern.check(comm).and_then(|()| field_of(array, &mut tensors));
        Ok((
            &pattern.pattern,
            made.map_err(|error| error::prefixed(array.py(), error, &format!("{name}[{at}]")))?,
        ))
    };
    let fields = bindings.iter().enumerate().map(field).collect::<PyResult<_>>()?;
    Ok(BoundFields { fields, tensors })
}

/// Streams of the devices that hold the fields.
pub(crate) fn streams_of<'a>(
    py: Python<'_>,
    fields: impl Iterator<Item = &'a Field>,
) -> PyResult<Arc<Streams>> {
    let mut ordinals: Vec<u32> = Vec::new();
    for field in fields {
        if let MemorySpace::Device(ordinal) = field.space()
            && !ordinals.contains(&ordinal)
        {
            ordinals.push(ordinal);
        }
    }
    let opened = py.detach(|| ordinals.into_iter().map(cuda::device).collect::<Result<Vec<Device>, _>>());
    opened.map(|devices| Arc::new(Streams::of(devices))).map_err(error::of)
}

/// The arguments of this rank in a bind.
struct Prepared {
    sets: Vec<Vec<(Pattern, Field)>>,
    options: BindOptions,
    streams: Arc<Streams>,
    arrays: Arrays,
}

fn prepare(
    py: Python<'_>,
    comm: &PyCommunicator,
    sets: PyResult<Vec<BindingSet<'_>>>,
    options: &Keywords<'_, '_>,
) -> PyResult<Prepared> {
    let binding_sets = sets?;
    let mut tensors = Vec::new();
    let mut sets = Vec::with_capacity(binding_sets.len());
    for set in &binding_sets {
        let made = fields_of(comm, &set.name, &set.bindings)?;
        tensors.push(made.tensors);
        let fields = made.fields.into_iter().map(|(pattern, field)| (pattern.clone(), field.into_owned()));
        sets.push(fields.collect::<Vec<_>>());
    }
    let streams = streams_of(py, sets.iter().flatten().map(|(_, field)| field))?;
    let options = options.options_with(&streams)?;
    let mut watches = Watches::new(options.is_checked().map_err(error::of)?);
    binding_sets
        .iter()
        .try_for_each(|set| watches.push(set.bindings.iter().map(|binding| &binding.array)))?;
    Ok(Prepared { sets, options, streams, arrays: Arrays { watches, versions: Versions::new(tensors) } })
}

/// Binds sets of fields. Collective: an argument that this rank refuses is an error on all ranks.
pub(crate) fn bind(
    py: Python<'_>,
    comm: &Py<PyCommunicator>,
    sets: PyResult<Vec<BindingSet<'_>>>,
    options: &Keywords<'_, '_>,
) -> PyResult<PyHaloExchange> {
    let prepared = prepare(py, comm.get(), sets, options);
    let bound = collective(py, comm, "bind", prepared, |comm, prepared| {
        let Prepared { sets, options, streams, arrays } = prepared;
        let sets: Vec<Vec<(&Pattern, &Field)>> =
            sets.iter().map(|set| set.iter().map(|(pattern, field)| (pattern, field)).collect()).collect();
        let sets: Vec<&[(&Pattern, &Field)]> = sets.iter().map(Vec::as_slice).collect();
        Ok((HaloExchange::bind_alternatives(comm, &sets, &options)?, streams, arrays))
    });
    drop_deferred(py);
    let (halo, streams, arrays) = bound?;
    Ok(PyHaloExchange::of(halo, streams, arrays, comm.get().member()))
}
