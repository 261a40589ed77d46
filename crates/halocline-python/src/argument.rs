//! Arguments of Python's calls. A refused argument is an error that names the argument and says what is wanted.
//!
//! pyo3 converts arguments before the function runs. A collective function must still reach its peers when an argument is wrong, so
//! conversion never fails: [`Argument`] keeps the refusal until the function asks for the value.

use crate::error;
use pyo3::PyClass;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::convert::Infallible;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

/// An argument, or why it is refused.
pub(crate) struct Argument<T>(Result<T, Refusal>);

/// `accept!(rank, depth)` replaces the arguments of these names by their values, or returns the error that names the refused one.
macro_rules! accept {
    ($($name:ident),*) => {$(
        let $name = $name.get(stringify!($name))?;
    )*};
}
pub(crate) use accept;

impl<'a, 'py, T: ArgumentType<'py>> FromPyObject<'a, 'py> for Argument<T> {
    type Error = Infallible;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(T::of(&object)))
    }
}

impl<T> Argument<T> {
    /// A default.
    pub(crate) fn of(value: impl Into<T>) -> Self {
        Self(Ok(value.into()))
    }
}

/// Gives the value of an [`Argument`], or of an optional one; `name` is for the error.
pub(crate) trait Get<T> {
    fn get(self, name: &str) -> PyResult<T>;
}

impl<T> Get<T> for Argument<T> {
    #[inline]
    fn get(self, name: &str) -> PyResult<T> {
        self.0.map_err(|refusal| refusal.of(name))
    }
}

impl<T> Get<Option<T>> for Option<Argument<T>> {
    #[inline]
    fn get(self, name: &str) -> PyResult<Option<T>> {
        self.map(|given| given.get(name)).transpose()
    }
}

impl<'py, T: ArgumentType<'py>> Argument<T> {
    /// Converts an object that pyo3 passed as it is.
    pub(crate) fn from(object: &Bound<'py, PyAny>) -> Self {
        Self(T::of(object))
    }
}

/// Why an argument cannot be taken.
pub(crate) enum Refusal {
    /// `HaloValueError` if `is_value`, else `HaloTypeError`. `place` is an index within the argument, as `[2]`.
    Ours { is_value: bool, place: String, why: String },
    /// An exception that the argument's own code raised.
    Theirs(PyErr),
}

impl Refusal {
    /// The type is wrong.
    pub(crate) fn wrong_type(why: impl Into<String>) -> Self {
        Self::Ours { is_value: false, place: String::new(), why: why.into() }
    }

    /// The type is right, the value impossible.
    pub(crate) fn wrong_value(why: impl Into<String>) -> Self {
        Self::Ours { is_value: true, place: String::new(), why: why.into() }
    }

    /// The object is not of the wanted type; the message shows it.
    pub(crate) fn wanted(wanted: impl Display, object: &Bound<'_, PyAny>) -> Self {
        Self::wrong_type(format!("{wanted} is wanted, not {}", shown_in_message(object)))
    }

    /// `refused()` for a `TypeError`, `OverflowError` or `ValueError`; any other exception as it is.
    pub(crate) fn raised(py: Python<'_>, error: PyErr, refused: impl FnOnce() -> Self) -> Self {
        let is_refusal = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyOverflowError>(py)
            || error.is_instance_of::<PyValueError>(py);
        if is_refusal { refused() } else { Self::Theirs(error) }
    }

    /// Places the refusal at an entry of the argument.
    pub(crate) fn at(self, entry: usize) -> Self {
        match self {
            Self::Ours { is_value, place, why } => {
                Self::Ours { is_value, place: format!("[{entry}]{place}"), why }
            }
            theirs => theirs,
        }
    }

    /// Turns a `HaloTypeError` or `HaloValueError` into a refusal.
    pub(crate) fn ours(py: Python<'_>, error: PyErr) -> Self {
        let text = error.value(py).to_string();
        match () {
            () if error::is(py, &error, "HaloTypeError") => Self::wrong_type(text),
            () if error::is(py, &error, "HaloValueError") => Self::wrong_value(text),
            () => Self::Theirs(error),
        }
    }

    /// The exception; its text begins with the name of the argument.
    pub(crate) fn of(self, name: &str) -> PyErr {
        match self {
            Self::Ours { is_value: true, place, why } => error::value_error(format!("{name}{place}: {why}")),
            Self::Ours { is_value: false, place, why } => error::type_error(format!("{name}{place}: {why}")),
            Self::Theirs(error) => error,
        }
    }
}

/// How a message shows an object: a short plain value by its `repr`, anything else by its class.
pub(crate) fn shown_in_message(object: &Bound<'_, PyAny>) -> String {
    /// The most characters, and the most entries of a list, that count as short.
    const SHORT: usize = 40;
    const FEW: usize = 8;
    let is_list = object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>();
    let is_plain = object.is_none()
        || is_list && object.len().is_ok_and(|entries| entries <= FEW)
        || object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>();
    let shown = is_plain.then(|| object.repr().ok().map(|shown| shown.to_string())).flatten();
    shown.filter(|shown| shown.chars().count() <= SHORT).unwrap_or_else(|| class_of(object))
}

/// The name of an object's class, with its module if the class has one.
pub(crate) fn class_of(object: &Bound<'_, PyAny>) -> String {
    let class = object.get_type();
    let name = class.fully_qualified_name().or_else(|_| class.qualname());
    name.map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Theirs(error)
    }
}

/// A type that Python's arguments are converted to.
pub(crate) trait ArgumentType<'py>: Sized {
    /// The plural, for messages about sequences of it.
    const PLURAL: &'static str = "objects";

    /// The same, for types whose plural depends on another type.
    fn plural() -> String {
        Self::PLURAL.to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal>;
}

macro_rules! whole_numbers {
    ($($type:ty: $bits:literal),*) => {$(
        impl<'py> ArgumentType<'py> for $type {
            const PLURAL: &'static str = "whole numbers";

            #[inline]
            fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
                match object.extract::<$type>() {
                    // Python's bool is an int; a bool as a number is a mistake.
                    Ok(number) if !object.is_instance_of::<PyBool>() => Ok(number),
                    _ => Err(no_whole_number(object, $bits)),
                }
            }
        }
    )*};
}

whole_numbers!(u8: 8, u32: 32, u64: 64, usize: 64);

impl<'py> ArgumentType<'py> for isize {
    const PLURAL: &'static str = "whole numbers";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        object.extract().map_err(|error| {
            Refusal::raised(object.py(), error, || Refusal::wanted("a whole number of 64 bits", object))
        })
    }
}

#[cold]
fn no_whole_number(object: &Bound<'_, PyAny>, bits: u32) -> Refusal {
    let py = object.py();
    let none = || Refusal::wanted("a whole number", object);
    if object.is_instance_of::<PyBool>() {
        return none();
    }
    let index = py.import("operator").and_then(|operator| operator.call_method1("index", (object,)));
    match index.and_then(|index| index.lt(0)) {
        Err(error) => Refusal::raised(py, error, none),
        Ok(true) => {
            Refusal::wrong_value(format!("a whole number from 0 is wanted, not {}", shown_in_message(object)))
        }
        Ok(false) => Refusal::wrong_value(format!(
            "a whole number below 2**{bits} is wanted, not {}",
            shown_in_message(object)
        )),
    }
}

impl<'py> ArgumentType<'py> for bool {
    const PLURAL: &'static str = "flags (True or False)";

    #[inline]
    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        if let Ok(flag) = object.extract() {
            return Ok(flag);
        }
        match object.extract::<u8>() {
            Ok(flag @ 0..=1) => Ok(flag == 1),
            _ => Err(Refusal::wanted("True or False", object)),
        }
    }
}

impl<'py> ArgumentType<'py> for Duration {
    const PLURAL: &'static str = "numbers of seconds";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "a number of seconds, from 0,";
        let py = object.py();
        let seconds = object
            .extract::<f64>()
            .map_err(|error| Refusal::raised(py, error, || Refusal::wanted(WANTED, object)))?;
        Self::try_from_secs_f64(seconds).map_err(|_| {
            Refusal::wrong_value(format!("{WANTED} is wanted, not {}", shown_in_message(object)))
        })
    }
}

impl<'py> ArgumentType<'py> for String {
    const PLURAL: &'static str = "strings";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        match object.cast::<PyString>() {
            // A lone surrogate matches no known word.
            Ok(text) => Ok(text.to_string_lossy().into_owned()),
            Err(_) => Err(Refusal::wanted("a str", object)),
        }
    }
}

impl<'py> ArgumentType<'py> for Bound<'py, PyAny> {
    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        Ok(object.clone())
    }
}

impl<'py, T: PyClass> ArgumentType<'py> for Py<T> {
    fn plural() -> String {
        format!("halocline.{} objects", T::NAME)
    }

    #[inline]
    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let wrong = || Refusal::wanted(format!("a halocline.{}", T::NAME), object);
        object.cast::<T>().map(|object| object.clone().unbind()).map_err(|_| wrong())
    }
}

/// A sequence or an array. Its claimed length is not trusted: memory may not suffice for it.
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'py, T: ArgumentType<'py>> ArgumentType<'py> for List<T> {
    fn plural() -> String {
        format!("sequences of {}", T::plural())
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let py = object.py();
        let none = || no_sequence(object, &T::plural(), false);
        if !is_sequence(object)? {
            let is_one = T::of(object).is_ok();
            return Err(no_sequence(object, &T::plural(), is_one));
        }
        let count = object.len().map_err(|error| Refusal::raised(py, error, none))?;
        let mut list = try_with_capacity(count)?;
        for (at, item) in object.try_iter().map_err(|error| Refusal::raised(py, error, none))?.enumerate() {
            list.push(T::of(&item?).map_err(|refusal| refusal.at(at))?);
        }
        Ok(Self(list))
    }
}

/// Whether an object is a sequence or sequence-like, as a NumPy array is. `str`, `bytes` and `bytearray` do not count.
fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_exact_instance_of::<PyTuple>() || object.is_exact_instance_of::<PyList>() {
        return Ok(true);
    }
    let has_entries = object.hasattr("__getitem__")? && object.hasattr("__len__")?;
    let is_text = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>();
    Ok(has_entries && !is_text && !object.is_instance_of::<PyMapping>())
}

/// `is_one`: the object would be a valid entry of the wanted sequence.
#[cold]
fn no_sequence(object: &Bound<'_, PyAny>, several: &str, is_one: bool) -> Refusal {
    let instead = if is_one {
        format!("; a single one is given as ({},)", shown_in_message(object))
    } else {
        String::new()
    };
    Refusal::wrong_type(format!(
        "a sequence of {several} is wanted, not {}{instead}",
        shown_in_message(object)
    ))
}

/// An empty vector with the given capacity; refuses what memory cannot hold.
pub(crate) fn try_with_capacity<T>(count: usize) -> Result<Vec<T>, Refusal> {
    /// More entries than any real list has. Needed where the system overcommits memory.
    const MOST: usize = 1 << 34;
    let mut list = Vec::new();
    match count <= MOST && list.try_reserve_exact(count).is_ok() {
        true => Ok(list),
        false => Err(beyond_memory(count)),
    }
}

/// Refuses an argument with so many entries that memory does not suffice.
pub(crate) fn beyond_memory(count: usize) -> Refusal {
    Refusal::wrong_value(format!("{count} entries are more than there is memory for"))
}

/// The entries of a tuple of N; `wanted` describes it in the message.
pub(crate) fn entries<'py, const N: usize>(
    object: &Bound<'py, PyAny>,
    wanted: &str,
) -> Result<[Bound<'py, PyAny>; N], Refusal> {
    let entries =
        object.cast::<PyTuple>().ok().and_then(|tuple| tuple.iter().collect::<Vec<_>>().try_into().ok());
    entries.ok_or_else(|| Refusal::wanted(wanted, object))
}

/// An entry of a tuple.
pub(crate) fn entry<'py, T: ArgumentType<'py>>(
    entries: &[Bound<'py, PyAny>],
    at: usize,
) -> Result<T, Refusal> {
    T::of(&entries[at]).map_err(|refusal| refusal.at(at))
}

impl<'py> ArgumentType<'py> for f64 {
    const PLURAL: &'static str = "numbers";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        match object.extract() {
            Ok(number) if !object.is_instance_of::<PyBool>() => Ok(number),
            _ => Err(Refusal::wanted("a number", object)),
        }
    }
}

/// A sequence of whole numbers, or of floats if any entry is a float.
pub(crate) enum Numbers {
    Whole(Vec<u64>),
    Floats(Vec<f64>),
}

impl<'py> ArgumentType<'py> for Numbers {
    const PLURAL: &'static str = "sequences of numbers";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let refusal = match List::of(object) {
            Ok(List(numbers)) => return Ok(Self::Whole(numbers)),
            Err(refusal) => refusal,
        };
        let is_float = |entry: Bound<'py, PyAny>| {
            entry.is_instance_of::<PyFloat>()
                || entry.hasattr("__float__").unwrap_or(false) && !entry.hasattr("__index__").unwrap_or(true)
        };
        // A range may be longer than any memory: only what has become a list is looked through.
        let has_float =
            || object.try_iter().is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_float)));
        match (List::of(object), refusal) {
            (Ok(List(numbers)), _) if has_float() => Ok(Self::Floats(numbers)),
            (Err(no_number), Refusal::Ours { is_value: false, .. }) => Err(no_number),
            (_, refusal) => Err(refusal),
        }
    }
}

/// The path of a file.
pub(crate) struct FilePath(pub(crate) PathBuf);

impl<'py> ArgumentType<'py> for FilePath {
    const PLURAL: &'static str = "paths";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let refused = || Refusal::wanted("a str or an os.PathLike of a str", object);
        object.extract().map(Self).map_err(|error: PyErr| {
            match error.is_instance_of::<PyTypeError>(object.py()) {
                true => refused(),
                false => Refusal::Theirs(error),
            }
        })
    }
}

/// The bytes of an object.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl<'py> ArgumentType<'py> for Bytes {
    const PLURAL: &'static str = "bytes";

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Self(bytes.to_vec()));
        }
        match is_sequence(object)? {
            true => List::<u8>::of(object).map(|list| Self(list.0)),
            false => Err(Refusal::wanted("a bytes object", object)),
        }
    }
}

/// The choice that a word stands for.
pub(crate) fn choose<T: Copy>(name: &str, word: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let known = choices.iter().find(|(choice, _)| *choice == word);
    known.map(|(_, meant)| *meant).ok_or_else(|| {
        let quoted: Vec<String> = choices.iter().map(|(choice, _)| format!("'{choice}'")).collect();
        let (last, others) =
            quoted.split_last().map_or((String::new(), &[][..]), |(last, others)| (last.clone(), others));
        error::value_error(format!("{name}: there is no '{word}'; choose {} or {last}", others.join(", ")))
    })
}
