//! Arguments. One that cannot be taken is an error that names it and says what is wanted. In a collective call it is noticed only once
//! the call has begun: so it is an error on all ranks.

use crate::error;
use pyo3::PyClass;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::convert::Infallible;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

/// An argument, or why it cannot be taken.
pub(crate) struct Given<T>(Result<T, Refusal>);

/// Takes arguments by their names: `named!(rank, depth)` has values of these names for the rest of the function, or returns the error.
macro_rules! named {
    ($($name:ident),*) => {$(
        let $name = $name.get(stringify!($name))?;
    )*};
}
pub(crate) use named;

impl<'a, 'py, T: Argument<'py>> FromPyObject<'a, 'py> for Given<T> {
    type Error = Infallible;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(T::of(&object)))
    }
}

impl<T> Given<T> {
    /// A default.
    pub(crate) fn of(value: impl Into<T>) -> Self {
        Self(Ok(value.into()))
    }
}

/// What has a value once it has a name: an argument, or one that may be left out.
pub(crate) trait Get<T> {
    fn get(self, name: &str) -> PyResult<T>;
}

impl<T> Get<T> for Given<T> {
    #[inline]
    fn get(self, name: &str) -> PyResult<T> {
        self.0.map_err(|refusal| refusal.of(name))
    }
}

impl<T> Get<Option<T>> for Option<Given<T>> {
    #[inline]
    fn get(self, name: &str) -> PyResult<Option<T>> {
        self.map(|given| given.get(name)).transpose()
    }
}

impl<'py, T: Argument<'py>> Given<T> {
    /// What is an argument of any kind until it is looked at.
    pub(crate) fn from(object: &Bound<'py, PyAny>) -> Self {
        Self(T::of(object))
    }
}

/// Why an argument cannot be taken.
pub(crate) enum Refusal {
    /// `place` is within the argument, as `[2]`.
    Ours { is_value: bool, place: String, why: String },
    /// Raised by the argument's own code.
    Theirs(PyErr),
}

impl Refusal {
    /// Something of another type.
    pub(crate) fn kind(why: impl Into<String>) -> Self {
        Self::Ours { is_value: false, place: String::new(), why: why.into() }
    }

    /// A value that cannot be.
    pub(crate) fn value(why: impl Into<String>) -> Self {
        Self::Ours { is_value: true, place: String::new(), why: why.into() }
    }

    /// Something of another type than what is wanted.
    pub(crate) fn wanted(wanted: impl Display, object: &Bound<'_, PyAny>) -> Self {
        Self::kind(format!("{wanted} is wanted, not {}", told(object)))
    }

    /// An error of Python, as one of these where it says that something is refused.
    fn raised(py: Python<'_>, error: PyErr, refused: impl FnOnce() -> Self) -> Self {
        let is_refusal = error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyOverflowError>(py)
            || error.is_instance_of::<PyValueError>(py);
        if is_refusal { refused() } else { Self::Theirs(error) }
    }

    /// The same of an entry of an argument.
    pub(crate) fn at(self, entry: usize) -> Self {
        match self {
            Self::Ours { is_value, place, why } => {
                Self::Ours { is_value, place: format!("[{entry}]{place}"), why }
            }
            theirs => theirs,
        }
    }

    /// An error of ours as one of these.
    pub(crate) fn ours(py: Python<'_>, error: PyErr) -> Self {
        let told = error.value(py).to_string();
        match () {
            () if error::is(py, &error, "HaloTypeError") => Self::kind(told),
            () if error::is(py, &error, "HaloValueError") => Self::value(told),
            () => Self::Theirs(error),
        }
    }

    /// The error for the argument of a name.
    pub(crate) fn of(self, name: &str) -> PyErr {
        match self {
            Self::Ours { is_value: true, place, why } => error::value(format!("{name}{place}: {why}")),
            Self::Ours { is_value: false, place, why } => error::kind(format!("{name}{place}: {why}")),
            Self::Theirs(error) => error,
        }
    }
}

/// An object as a message shows it: what is short by its `repr`, all else by its class.
pub(crate) fn told(object: &Bound<'_, PyAny>) -> String {
    /// Characters, and entries, of what is short.
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

/// The name of an object's class, with that of its module where it has one.
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

/// What can be an argument.
pub(crate) trait Argument<'py>: Sized {
    /// What it is called where several are wanted.
    fn several() -> String;

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal>;
}

macro_rules! whole_numbers {
    ($($type:ty: $bits:literal),*) => {$(
        impl<'py> Argument<'py> for $type {
            fn several() -> String {
        "whole numbers".to_owned()
    }

            #[inline]
            fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
                match object.extract::<$type>() {
                    // A flag is a number to Python.
                    Ok(number) if !object.is_instance_of::<PyBool>() => Ok(number),
                    _ => Err(no_whole_number(object, $bits)),
                }
            }
        }
    )*};
}

whole_numbers!(u8: 8, u32: 32, u64: 64, usize: 64);

impl<'py> Argument<'py> for isize {
    fn several() -> String {
        "whole numbers".to_owned()
    }

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
        Ok(true) => Refusal::value(format!("a whole number from 0 is wanted, not {}", told(object))),
        Ok(false) => {
            Refusal::value(format!("a whole number below 2**{bits} is wanted, not {}", told(object)))
        }
    }
}

impl<'py> Argument<'py> for bool {
    fn several() -> String {
        "flags (True or False)".to_owned()
    }

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

impl<'py> Argument<'py> for Duration {
    fn several() -> String {
        "numbers of seconds".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        const WANTED: &str = "a number of seconds, from 0,";
        let py = object.py();
        let seconds = object
            .extract::<f64>()
            .map_err(|error| Refusal::raised(py, error, || Refusal::wanted(WANTED, object)))?;
        Self::try_from_secs_f64(seconds)
            .map_err(|_| Refusal::value(format!("{WANTED} is wanted, not {}", told(object))))
    }
}

impl<'py> Argument<'py> for String {
    fn several() -> String {
        "strings".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        match object.cast::<PyString>() {
            // A lone surrogate is in no word that there is.
            Ok(text) => Ok(text.to_string_lossy().into_owned()),
            Err(_) => Err(Refusal::wanted("a str", object)),
        }
    }
}

impl<'py> Argument<'py> for Bound<'py, PyAny> {
    fn several() -> String {
        "objects".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        Ok(object.clone())
    }
}

impl<'py, T: PyClass> Argument<'py> for Py<T> {
    fn several() -> String {
        format!("halocline.{} objects", T::NAME)
    }

    #[inline]
    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let wrong = || Refusal::wanted(format!("a halocline.{}", T::NAME), object);
        object.cast::<T>().map(|object| object.clone().unbind()).map_err(|_| wrong())
    }
}

/// A sequence, or an array, whatever length it says it has: there may be no memory for so much.
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'py, T: Argument<'py>> Argument<'py> for List<T> {
    fn several() -> String {
        format!("sequences of {}", T::several())
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        let py = object.py();
        let none = || no_sequence(object, &T::several(), false);
        if !is_sequence(object)? {
            let is_one = T::of(object).is_ok();
            return Err(no_sequence(object, &T::several(), is_one));
        }
        let count = object.len().map_err(|error| Refusal::raised(py, error, none))?;
        let mut list = room(count)?;
        for (at, item) in object.try_iter().map_err(|error| Refusal::raised(py, error, none))?.enumerate() {
            list.push(T::of(&item?).map_err(|refusal| refusal.at(at))?);
        }
        Ok(Self(list))
    }
}

/// Whether an object is a sequence, or like one, as an array of NumPy is. Texts are none, those of bytes neither.
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

/// What is said of what is no sequence, but may be one of what a sequence is to have.
#[cold]
fn no_sequence(object: &Bound<'_, PyAny>, several: &str, is_one: bool) -> Refusal {
    let instead =
        if is_one { format!("; a single one is given as ({},)", told(object)) } else { String::new() };
    Refusal::kind(format!("a sequence of {several} is wanted, not {}{instead}", told(object)))
}

/// Room for so many entries.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>, Refusal> {
    /// More than any list has: some systems promise any memory.
    const MOST: usize = 1 << 34;
    let mut list = Vec::new();
    match count <= MOST && list.try_reserve_exact(count).is_ok() {
        true => Ok(list),
        false => Err(Refusal::value(format!("{count} entries are more than there is memory for"))),
    }
}

/// The entries of a tuple of so many, which is `wanted`.
pub(crate) fn entries<'py, const N: usize>(
    object: &Bound<'py, PyAny>,
    wanted: &str,
) -> Result<[Bound<'py, PyAny>; N], Refusal> {
    let entries =
        object.cast::<PyTuple>().ok().and_then(|tuple| tuple.iter().collect::<Vec<_>>().try_into().ok());
    entries.ok_or_else(|| Refusal::wanted(wanted, object))
}

/// An entry of a tuple.
pub(crate) fn entry<'py, T: Argument<'py>>(entries: &[Bound<'py, PyAny>], at: usize) -> Result<T, Refusal> {
    T::of(&entries[at]).map_err(|refusal| refusal.at(at))
}

/// Two numbers: of a tuple, or of any sequence of numbers.
pub(crate) struct Pair(pub(crate) usize, pub(crate) usize);

impl<'py> Argument<'py> for Pair {
    fn several() -> String {
        "pairs of whole numbers".to_owned()
    }

    fn of(object: &Bound<'py, PyAny>) -> Result<Self, Refusal> {
        match List::<usize>::of(object)?.0[..] {
            [one, other] => Ok(Self(one, other)),
            ref numbers => Err(Refusal::value(format!("two numbers are wanted, not {}", numbers.len()))),
        }
    }
}

/// The path of a file.
pub(crate) struct FilePath(pub(crate) PathBuf);

impl<'py> Argument<'py> for FilePath {
    fn several() -> String {
        "paths".to_owned()
    }

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

impl<'py> Argument<'py> for Bytes {
    fn several() -> String {
        "bytes".to_owned()
    }

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

/// The one of some choices that a word of Python stands for.
pub(crate) fn choose<T: Copy>(name: &str, word: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let known = choices.iter().find(|(choice, _)| *choice == word);
    known.map(|(_, meant)| *meant).ok_or_else(|| {
        let quoted: Vec<String> = choices.iter().map(|(choice, _)| format!("'{choice}'")).collect();
        let (last, others) =
            quoted.split_last().map_or((String::new(), &[][..]), |(last, others)| (last.clone(), others));
        error::value(format!("{name}: there is no '{word}'; choose {} or {last}", others.join(", ")))
    })
}
