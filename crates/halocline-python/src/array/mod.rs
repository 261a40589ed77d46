//! Arrays of other libraries as fields, without a copy: address, element type, strides, keep-alive.

mod buffer;
mod dlpack;
mod element;
mod interface;
mod memory;
mod payload;
mod watch;

pub(crate) use memory::PyMemory;
pub(crate) use payload::{PayloadMemory, payload_of};
pub(crate) use watch::{Arrays, Watches};

use crate::argument::{Argument, Get, List, accept, class_of, shown_in_message};
use crate::error;
use crate::process_local::KeepAlive;
use crate::tensor::is_tensor;
use halocline::device::cuda;
use halocline::{ElementType, Field, Layout};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use std::borrow::Cow;
use std::ptr::NonNull;
use std::sync::Arc;
use watch::Watch;

/// An array as its owner describes it.
pub(crate) struct Described {
    /// Address of element (0, 0, …).
    pub(crate) base: usize,
    pub(crate) element: ElementType,
    /// The meaning of elements that are plain bytes, if known: `datetime64[s]`.
    pub(crate) name: Option<String>,
    pub(crate) extents: Vec<usize>,
    /// In bytes; none: C order.
    pub(crate) strides: Option<Vec<isize>>,
    pub(crate) is_writable: bool,
    /// The ordinal of the GPU; none: memory of the host.
    pub(crate) device: Option<u32>,
    /// Keeps the memory alive, besides the array object.
    pub(crate) owner: Option<Py<PyAny>>,
    /// Whether it is a PyTorch tensor, which has a version counter.
    pub(crate) is_tensor: bool,
}

impl Described {
    pub(crate) fn layout(&self) -> PyResult<Layout> {
        let layout = match &self.strides {
            None => Layout::c_order(self.element, &self.extents),
            Some(strides) => Layout::strided(self.element, &self.extents, strides),
        };
        let layout = layout.map_err(error::of)?;
        Ok(match (&self.name, self.element) {
            (Some(name), ElementType::Opaque(_)) => layout.named(name),
            _ => layout,
        })
    }
}

const ACCEPTED: &str = "an array (an object with __cuda_array_interface__, __array_interface__ (NumPy), __dlpack__ (PyTorch, \
                        CuPy) or the buffer protocol)";

/// The library, of those listed, whose module defines the object's class.
pub(crate) fn library_of(
    object: &Bound<'_, PyAny>,
    libraries: &[&'static str],
) -> PyResult<Option<&'static str>> {
    // Some classes have no module: NumPy removes it from ctypes' types, for all their users.
    let module = object.get_type().getattr_opt(intern!(object.py(), "__module__"))?;
    let Some(module) = module.as_ref().and_then(|module| module.cast::<PyString>().ok()) else {
        return Ok(None);
    };
    let module = module.to_cow()?;
    let is_in = |library: &&&str| {
        module.strip_prefix(**library).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    Ok(libraries.iter().find(is_in).copied())
}

/// The modules that are imported. Kept, since an import of `sys` takes longer than all else that is asked of an array.
fn modules(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let find = || Ok(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind());
    MODULES.get_or_try_init(py, find).map(|modules| modules.bind(py))
}

/// Whether an object is an instance of a class of a module. False if the module is not imported.
pub(crate) fn is_instance(object: &Bound<'_, PyAny>, module: &str, class: &str) -> PyResult<bool> {
    match modules(object.py())?.get_item(module)? {
        // Another thread may still be importing the module: then the class and its instances do not exist yet.
        Some(module) => module.getattr_opt(class)?.map_or(Ok(false), |class| object.is_instance(&class)),
        None => Ok(false),
    }
}

/// The dtype of an array; none if it is not one of NumPy's.
fn dtype_of<'py>(array: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let dtype = array.getattr_opt(intern!(array.py(), "dtype"))?;
    match dtype {
        Some(dtype) if is_instance(&dtype, "numpy", "dtype")? => Ok(Some(dtype)),
        _ => Ok(None),
    }
}

/// Describes an array object by its protocols.
pub(crate) fn describe(array: &Bound<'_, PyAny>) -> PyResult<Described> {
    let mut described = by_protocol(array)?;
    if matches!(described.element, ElementType::Opaque(_))
        && let Some(dtype) = dtype_of(array)?
    {
        // The dtype carries more than the protocols.
        match element::name_of(&dtype)? {
            Some(name) if name == "bfloat16" => described.element = ElementType::Bf16,
            name => described.name = name,
        }
    }
    Ok(described)
}

fn by_protocol<'py>(array: &Bound<'py, PyAny>) -> PyResult<Described> {
    let py = array.py();
    let library = library_of(array, &["jax", "jaxlib", "numpy.ma", "numpy", "cupy"])?;
    match library {
        Some("numpy.ma") => return Err(masked()),
        None if is_instance(array, "numpy.ma", "MaskedArray")? => return Err(masked()),
        Some("numpy") if is_instance(array, "numpy", "generic")? => {
            return Err(error::type_error("a scalar of NumPy has no memory of its own; give an array"));
        }
        None | Some("numpy" | "cupy") => {}
        Some(_) => {
            return Err(error::type_error(
                "arrays of JAX cannot be changed in place; give a NumPy, CuPy or PyTorch array and hand it to JAX \
                 (jax.dlpack), or copy it with numpy.array(...)",
            ));
        }
    }
    let interface_of = |name: &Bound<'py, PyString>| {
        let refused = |error| error::refused(py, error, &format!("the array refuses {name}"));
        array.getattr_opt(name).map_err(refused)
    };
    // CuPy's arrays have no interface of the host, and are no tensors of PyTorch: to ask first takes as long as all else.
    let is_of_cupy = library == Some("cupy");
    let host = || interface_of(intern!(py, "__array_interface__"));
    if !is_of_cupy && let Some(interface) = host()? {
        return interface::host(array, &interface);
    }
    let described = if let Some(interface) = interface_of(intern!(py, "__cuda_array_interface__"))? {
        interface::cuda(array, &interface)?
    } else if is_of_cupy && let Some(interface) = host()? {
        return interface::host(array, &interface);
    } else if array.hasattr("__dlpack__")? {
        dlpack::describe(array)?
    } else if let Some(described) = buffer::describe(array)? {
        described
    } else {
        return Err(no_array(array)?);
    };
    Ok(Described { is_tensor: !is_of_cupy && is_tensor(array)?, ..described })
}

fn masked() -> PyErr {
    error::type_error("a masked array is two arrays; give its .data, and its .mask as another one")
}

/// The error for an object without any array protocol.
fn no_array(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let class = class_of(object);
    Ok(error::type_error(match library_of(object, &["xarray", "dask"])? {
        Some("xarray") if !object.hasattr(intern!(object.py(), "data"))? => {
            format!("{class} has several arrays: give the .data of one of its variables")
        }
        Some("xarray") => format!("{class} is no array, but has one: give its .data"),
        Some(_) => {
            format!("{class} is computed piece by piece, and has no memory: give what its compute() returns")
        }
        None if object.hasattr(intern!(object.py(), "__array__"))? => format!(
            "{class} gives a copy as an array, which an exchange would not change: give the array behind it (as .data)"
        ),
        None => format!("{ACCEPTED} is wanted, not {}", shown_in_message(object)),
    }))
}

#[doc = doc!("Field")]
#[pyclass(frozen, module = "halocline", name = "Field")]
pub(crate) struct PyField {
    field: crate::process_local::ProcessLocal<Field>,
    #[doc = doc!("Field.array")]
    #[pyo3(get)]
    array: Py<PyAny>,
    device: Option<u32>,
    domain: Option<u64>,
    watched: Vec<Arc<Watch>>,
    is_tensor: bool,
}

#[pymethods]
impl PyField {
    #[new]
    #[pyo3(signature = (array, *, domain = None, axes = None, origin = None, padded = Argument::of(false)), text_signature = "(array, *, domain=None, axes=None, origin=None, padded=False)")]
    fn new(
        array: &Bound<'_, PyAny>,
        domain: Option<Argument<u64>>,
        axes: Option<Argument<List<usize>>>,
        origin: Option<Argument<List<usize>>>,
        padded: Argument<bool>,
    ) -> PyResult<Self> {
        accept!(domain, axes, origin, padded);
        let py = array.py();
        let of_array = |error| error::prefixed(py, error, "array");
        let described = describe(array).map_err(of_array)?;
        let mut layout = described.layout().map_err(of_array)?;
        if let Some(List(axes)) = axes {
            let of_axes = |error| error::prefixed(py, error::of(error), "axes");
            layout = layout.with_axes(&axes).map_err(of_axes)?;
        }
        if let Some(List(origin)) = origin {
            layout = layout.with_origin(&origin);
        }
        if padded {
            layout = layout.padded();
        }
        let (device, is_tensor) = (described.device, described.is_tensor);
        let watched = watched(array, Some(&described))?;
        let field = field(array, described, layout).map_err(of_array)?;
        let field = domain.map_or_else(|| field.clone(), |id| field.on_domain(id));
        let (field, array) = (crate::process_local::ProcessLocal::new(field), array.clone().unbind());
        Ok(Self { field, array, device, domain, watched, is_tensor })
    }

    #[doc = doc!("Field.shape")]
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, self.field.get()?.layout().extents())
    }

    #[doc = doc!("Field.strides")]
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, self.field.get()?.layout().strides())
    }

    #[doc = doc!("Field.element")]
    #[getter]
    fn element(&self) -> PyResult<String> {
        Ok(self.field.get()?.layout().named_element().to_string())
    }

    /// Equal for fields that are exchanged alike: for `halocline/compat/ghex/_bound.py`.
    #[getter]
    fn _key(&self) -> PyResult<(Option<u32>, Option<u64>, usize, String)> {
        let field = self.field.get()?;
        let layout = format!("{:?}", field.layout());
        Ok((self.device, self.domain, field.base().addr().get(), layout))
    }

    #[doc = doc!("Field.domain")]
    #[getter]
    fn domain(&self) -> Option<u64> {
        self.domain
    }

    #[doc = doc!("Field.device")]
    #[getter]
    fn device(&self) -> Option<u32> {
        self.device
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Ok(element) = self.element() else { return Ok("Field(of the parent process)".to_owned()) };
        let mut shown = format!("Field({element}, {}", self.shape(py)?);
        for (name, number) in [("domain", self.domain), ("device", self.device.map(u64::from))] {
            number.iter().for_each(|number| shown.push_str(&format!(", {name}={number}")));
        }
        Ok(shown + ")")
    }
}

impl PyField {
    /// The field; an error in a forked child.
    #[inline]
    pub(crate) fn field(&self) -> PyResult<&Field> {
        self.field.get()
    }

    /// The array object, if it is a PyTorch tensor.
    #[inline]
    pub(crate) fn tensor(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.is_tensor.then(|| self.array.clone_ref(py))
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.device.is_some()
    }
}

/// The field of an array or a `Field` object. Adds a PyTorch tensor to `tensors`.
pub(crate) fn field_of<'a>(
    given: &'a Bound<'_, PyAny>,
    tensors: &mut Vec<Py<PyAny>>,
) -> PyResult<Cow<'a, Field>> {
    if let Ok(field) = given.cast::<PyField>() {
        tensors.extend(field.get().tensor(given.py()));
        return field.get().field.get().map(Cow::Borrowed);
    }
    let described = describe(given)?;
    tensors.extend(described.is_tensor.then(|| given.clone().unbind()));
    let layout = described.layout()?;
    field(given, described, layout).map(Cow::Owned)
}

/// The field of an array that is only read: one that nobody can write is accepted.
pub(crate) fn field_to_read(given: &Bound<'_, PyAny>) -> PyResult<Field> {
    if given.is_instance_of::<PyField>() {
        return field_of(given, &mut Vec::new()).map(Cow::into_owned);
    }
    let described = Described { is_writable: true, ..describe(given)? };
    let layout = described.layout()?;
    field(given, described, layout)
}

/// Watches that detect when an array, or the array that it is a view of, moves to other memory. `described`: the description of `given`, if
/// it was just made.
fn watched(given: &Bound<'_, PyAny>, described: Option<&Described>) -> PyResult<Vec<Arc<Watch>>> {
    if let Ok(field) = given.cast::<PyField>() {
        return Ok(field.get().watched.clone());
    }
    let root = memory::root(given)?;
    let own = match described {
        Some(described) => Watch::described(given, described),
        None => Watch::of(given)?,
    };
    let whole = if root.is(given) { None } else { Watch::of(&root)? };
    Ok(own.into_iter().chain(whole).collect())
}

pub(crate) fn null_address() -> PyErr {
    error::value_error("the array has address 0; give one whose memory is allocated")
}

/// Makes the field of a described array. The field keeps the array object alive.
fn field(array: &Bound<'_, PyAny>, described: Described, layout: Layout) -> PyResult<Field> {
    if !described.is_writable {
        return Err(error::value_error("the array is read-only; an exchange writes its halo"));
    }
    let base = NonNull::new(std::ptr::without_provenance_mut::<u8>(described.base));
    let base = match base {
        Some(base) => base,
        None if layout.is_empty() => NonNull::dangling(),
        None => return Err(null_address()),
    };
    let (owner, span, watch) = match (&described.device, described.owner) {
        (None, None) => {
            let (owner, span) = memory::whole(array, base, &layout)?;
            let all = owner.bind(array.py());
            // No weak reference to a NumPy array may outlive the field: NumPy could not resize the array.
            let watch = match library_of(all, &["numpy"])?.is_some() || is_instance(all, "numpy", "ndarray")?
            {
                true => None,
                false => Watch::of(all)?,
            };
            (owner, span, watch)
        }
        (_, owner) => (owner.unwrap_or_else(|| array.clone().unbind()), memory::span(base, &layout)?, None),
    };
    memory::known_or(array.py(), (described.device, span, watch), base, layout, |base, layout| {
        // The owner has the memory; the array object is what the program holds.
        let keep: Arc<dyn std::any::Any + Send + Sync> =
            Arc::new((KeepAlive::new(owner.bind(array.py())), KeepAlive::new(array)));
        match described.device {
            // SAFETY: by the array protocols the memory is valid as long as the owner, which `keep` holds. The documentation of the
            // package obliges the program not to touch the memory while an exchange does.
            None => Ok(unsafe { Field::from_raw(base, layout, keep) }),
            Some(ordinal) => {
                let device = cuda::device(ordinal).map_err(error::of)?;
                let address = base.addr().get() as halocline::device::Address;
                // SAFETY: by the array protocols the memory is valid as long as the owner, which `keep` holds. The documentation of
                // the package obliges the program to order its accesses by streams.
                unsafe { Field::from_device(&device, address, layout, keep) }.map_err(error::of)
            }
        }
    })
}

/// The address and length of a contiguous host array for a message. Valid while the returned description lives.
pub(crate) fn bytes_of(
    array: &Bound<'_, PyAny>,
    to_write: bool,
) -> PyResult<(NonNull<u8>, usize, Described)> {
    let (base, bytes, described) = bytes_anywhere(array, to_write)?;
    if described.device.is_some() {
        return Err(error::value_error(
            "message: the array is in GPU memory, but the fields are in host memory; give a host array",
        ));
    }
    Ok((base, bytes, described))
}

/// As [`bytes_of`], also for GPU memory.
pub(crate) fn bytes_anywhere(
    array: &Bound<'_, PyAny>,
    to_write: bool,
) -> PyResult<(NonNull<u8>, usize, Described)> {
    let of_message = |error| error::prefixed(array.py(), error, "message");
    let described = describe(array).map_err(of_message)?;
    let bytes = payload::contiguous_bytes(&described).map_err(of_message)?;
    if to_write && !described.is_writable {
        return Err(error::value_error("message: the array is read-only; `pack` writes it"));
    }
    let base =
        NonNull::new(std::ptr::without_provenance_mut::<u8>(described.base)).unwrap_or(NonNull::dangling());
    Ok((base, bytes, described))
}
