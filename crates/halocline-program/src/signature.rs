//! The signature of a program, as in its manifest.

use crate::ScalarType;
use crate::error::ProgramError;
use crate::expression::Expression;
use crate::plan::Slots;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// The parameters of a compiled program. [The crate's page](crate#the-manifest) documents the fields by an example.
///
/// ```
/// use halocline_program::{ScalarType, Signature};
///
/// // Of the C function void scale(double *a, int n, double factor).
/// let manifest = r#"{"format": 1, "program": "scale", "interface": "c",
///     "arguments": [
///         {"kind": "array", "name": "a", "type": "float64", "dimensions": [{"extent": "n", "stride": 1}]},
///         {"kind": "scalar", "name": "factor", "type": "float64"}],
///     "symbols": [{"name": "n", "type": "int32"}],
///     "parameters": ["a", "n", "factor"]}"#;
/// let signature = Signature::from_json(manifest.as_bytes(), "libscale.so.json".as_ref())?;
/// assert_eq!(signature.symbols[0].scalar, ScalarType::Int32);
/// # Ok::<(), halocline_program::ProgramError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The version of this format: [`FORMAT`].
    pub format: u32,
    /// The program's name, which the symbols of DaCe's interface contain.
    pub program: String,
    /// The interface of the library.
    #[serde(default)]
    pub interface: Interface,
    /// The name of the C function, for [`Interface::C`]; without it the program's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The return type of the C function. DaCe's programs return nothing.
    #[serde(default)]
    pub returns: Returns,
    /// The arguments, in the order of the call.
    pub arguments: Vec<Argument>,
    /// Integer symbols that are passed to the C function or to `init` and follow from the arrays' dimensions. Names of scalar
    /// arguments are symbols too and are not listed here.
    #[serde(default)]
    pub symbols: Vec<Symbol>,
    /// The names of the C function's parameters in their order, without the state: arrays, scalars, symbols.
    pub parameters: Vec<String>,
    /// The names of the parameters of `init`: scalars and symbols.
    #[serde(default)]
    pub init: Vec<String>,
    /// The GPU streams of the program's work. Without it: [`Streams::Caller`] for a function with the parameter `stream`,
    /// [`Streams::Default`] for a library that exports `__dace_gpu_set_all_streams`, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    /// The name of the C parameter that takes the stream (a `cudaStream_t`), for [`Interface::C`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The program waits for the GPU before it returns, so that the host does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synchronises: bool,
    /// The build id of the library ([`crate::Program::build_id`]): the manifest is of this build alone. Without it, of any build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// The version of the format of manifests.
pub const FORMAT: u32 = 1;

/// The interface of a library.
///
/// ```
/// use halocline_program::signature::{Interface, Signature};
///
/// let manifest = br#"{"format": 1, "program": "heat", "arguments": [], "parameters": []}"#;
/// let signature = Signature::from_json(manifest, "libheat.so.json".as_ref())?;
/// assert_eq!(signature.interface, Interface::DaCe);
/// # Ok::<(), halocline_program::ProgramError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// One function without a state.
    C,
    /// `__dace_init_N`, `__program_N`, `__dace_exit_N`.
    #[default]
    DaCe,
}

/// The GPU streams of a program's work.
///
/// ```
/// use halocline_program::{Signature, Streams};
///
/// let manifest = br#"{"format": 1, "program": "heat", "arguments": [], "parameters": [], "streams": "internal"}"#;
/// let signature = Signature::from_json(manifest, "libheat.so.json".as_ref())?;
/// assert_eq!(signature.streams, Some(Streams::Internal));
/// # Ok::<(), halocline_program::ProgramError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    /// The stream that the caller gives: by `__dace_gpu_set_all_streams`, or as a parameter.
    Caller,
    /// Several streams, which run concurrently: by `__dace_gpu_set_stream`. They begin after the caller's stream, which goes on after
    /// them.
    Internal,
    /// The default stream (the null stream), whatever the caller gives. It begins after the caller's stream, which goes on after it. Right
    /// for all programs of DaCe: those compiled with `max_concurrent_streams` of -1 (as GT4Py does) use it alone, others are given it.
    Default,
}

/// The return type of the C function.
///
/// ```
/// use halocline_program::signature::{Returns, Signature};
///
/// let manifest = br#"{"format": 1, "program": "heat", "interface": "c", "returns": "status", "arguments": [], "parameters": []}"#;
/// let signature = Signature::from_json(manifest, "libheat.so.json".as_ref())?;
/// assert_eq!(signature.returns, Returns::Status);
/// # Ok::<(), halocline_program::ProgramError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Returns {
    /// Nothing that is looked at.
    #[default]
    Nothing,
    /// An `int`; all but 0 are errors.
    Status,
}

/// An integer symbol.
///
/// ```
/// use halocline_program::{ScalarType, signature::Symbol};
///
/// let symbol: Symbol = serde_json::from_str(r#"{"name": "n", "type": "int32"}"#)?;
/// assert_eq!(symbol, Symbol { name: "n".into(), scalar: ScalarType::Int32 });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its C type, an integer.
    #[serde(rename = "type")]
    pub scalar: ScalarType,
}

/// The argument at one position.
///
/// ```
/// use halocline_program::signature::Argument;
///
/// let argument: Argument = serde_json::from_str(r#"{"kind": "scalar", "name": "dt", "type": "float64"}"#)?;
/// assert_eq!(argument.name(), "dt");
/// assert!(matches!(argument, Argument::Scalar(_)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Argument {
    /// An array.
    Array(ArrayArgument),
    /// A number.
    Scalar(ScalarArgument),
}

impl Argument {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Array(array) => &array.name,
            Self::Scalar(scalar) => &scalar.name,
        }
    }
}

/// An array, passed by its address.
///
/// ```
/// use halocline_program::signature::{Access, ArrayArgument, DeviceKind};
///
/// let text = r#"{"name": "t", "type": "float64", "device": "gpu", "dimensions": [{"extent": "n"}]}"#;
/// let array: ArrayArgument = serde_json::from_str(text)?;
/// assert_eq!(array.dimensions.len(), 1);
/// assert_eq!((array.device, array.access), (DeviceKind::Gpu, Access::Write));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayArgument {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    #[serde(rename = "type")]
    pub element: ScalarType,
    /// Where its memory is.
    #[serde(default)]
    pub device: DeviceKind,
    /// Whether the program writes it.
    #[serde(default)]
    pub access: Access,
    /// Its dimensions.
    pub dimensions: Vec<Dimension>,
    /// The accesses of the program, where dimensions depend on each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accesses: Vec<AccessedIndices>,
}

/// Indices of an array that the program accesses: in each dimension from `first` to before `end`, or nothing where that is not known.
///
/// ```
/// use halocline_program::signature::{AccessedIndices, Quantity};
///
/// // A loop from 0 to n accesses the indices 1 to n + 1 of the first dimension.
/// let text = r#"{"indices": [[1, "n + 1"], null], "over": [[0, "n"]]}"#;
/// let accessed: AccessedIndices = serde_json::from_str(text)?;
/// let [first, end] = accessed.indices[0].as_ref().expect("known indices");
/// assert_eq!(*first, Quantity::Constant(1));
/// assert_eq!(end.value(&|_| Some(8)), Ok(9));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessedIndices {
    /// `[first, end]` of each dimension.
    pub indices: Vec<Option<[Quantity; 2]>>,
    /// The ranges of the loops: if one is empty, nothing is accessed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<[Quantity; 2]>,
}

/// A number, passed by value.
///
/// ```
/// use halocline_program::{ScalarType, signature::ScalarArgument};
///
/// let text = r#"{"name": "n", "type": "int32", "optional": true}"#;
/// let scalar: ScalarArgument = serde_json::from_str(text)?;
/// assert_eq!(scalar, ScalarArgument { name: "n".into(), scalar: ScalarType::Int32, optional: true });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalarArgument {
    /// Its name; as an integer it is also a symbol.
    pub name: String,
    /// Its C type.
    #[serde(rename = "type")]
    pub scalar: ScalarType,
    /// It may be left out; then it follows from the arrays' dimensions.
    #[serde(default)]
    pub optional: bool,
}

/// Where an array's memory is.
///
/// ```
/// use halocline_program::signature::{ArrayArgument, DeviceKind};
///
/// let text = r#"{"name": "t", "type": "float64", "device": "gpu", "dimensions": []}"#;
/// let array: ArrayArgument = serde_json::from_str(text)?;
/// assert_eq!(array.device, DeviceKind::Gpu);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// In memory of the host.
    #[default]
    Cpu,
    /// In memory of a GPU.
    Gpu,
}

/// Whether the program writes an array.
///
/// ```
/// use halocline_program::signature::{Access, ArrayArgument};
///
/// let text = r#"{"name": "t", "type": "float64", "access": "read", "dimensions": []}"#;
/// let array: ArrayArgument = serde_json::from_str(text)?;
/// assert_eq!(array.access, Access::Read);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// It does, or may.
    #[default]
    Write,
    /// It does not: a read-only array fits.
    Read,
}

/// One dimension of an array. Each part that is given is checked in each call; a part that is the name of a symbol without a
/// value gives the symbol its value.
///
/// ```
/// use halocline_program::signature::{Dimension, Quantity};
///
/// // The array has 2 indices more than the program's n, and a stride that the symbol m gets.
/// let dimension: Dimension = serde_json::from_str(r#"{"name": "I", "extent": "n + 2", "stride": "m"}"#)?;
/// assert_eq!(dimension.extent, Some(Quantity::Expression("n + 2".into())));
/// assert_eq!(dimension.covers, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dimension {
    /// Its name, for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of indices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<Quantity>,
    /// The first index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Quantity>,
    /// The index after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Quantity>,
    /// The distance of neighbours, in elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Quantity>,
    /// The indices that the program accesses, `[first, end]` without the end: the array has them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<[Quantity; 2]>,
}

/// An integer, or an expression of symbols: `"n"`, `"n + 1"`, `"2*n*m"`, `"n // 2"`.
///
/// ```
/// use halocline_program::signature::Quantity;
///
/// let quantity = Quantity::Expression("2*n + 1".into());
/// assert!(quantity.symbols()?.contains("n"));
/// assert_eq!(quantity.value(&|name| (name == "n").then_some(8))?, 17);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "said above")]
pub enum Quantity {
    Constant(i64),
    Expression(String),
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "{value}"),
            Self::Expression(text) => f.write_str(text),
        }
    }
}

impl Quantity {
    /// The symbols of the expression. The error says what is wrong with it.
    pub fn symbols(&self) -> Result<BTreeSet<String>, String> {
        let mut names = BTreeSet::new();
        if let Self::Expression(text) = self {
            Expression::compile(text, &mut |name| {
                names.insert(name.to_owned());
                Ok(0)
            })?;
        }
        Ok(names)
    }

    /// Its value, where `symbol` has those of the symbols. The error says what is wrong with the expression, or that its value is none of
    /// 64 bits.
    pub fn value(&self, symbol: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
        let text = match self {
            Self::Constant(value) => return Ok(*value),
            Self::Expression(text) => text,
        };
        let mut words = Vec::new();
        let expression = Expression::compile(text, &mut |name| {
            words.push(symbol(name).ok_or_else(|| format!("the symbol {name} has no value"))? as u64);
            Ok(words.len() - 1)
        })?;
        let value = expression.value(&Slots::new(&mut words));
        value.ok_or_else(|| format!("the expression {text:?} overflows 64 bits or divides by 0"))
    }
}

impl Signature {
    /// Reads a manifest from its text. `path` is named in errors.
    pub fn from_json(text: &[u8], path: &Path) -> Result<Self, ProgramError> {
        let wrong = |why: String| ProgramError::ManifestSyntax { path: path.to_owned(), why: why.into() };
        // Lists would count as structures without names.
        match text.trim_ascii_start().first() {
            Some(b'{') => {}
            Some(_) => return Err(wrong("it is no JSON object ({...})".into())),
            None => return Err(wrong("it is empty".into())),
        }
        let signature: Self = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        if signature.format != FORMAT {
            return Err(ProgramError::ManifestFormat { path: path.to_owned(), found: signature.format });
        }
        Ok(signature)
    }

    /// Reads the manifest beside a library: `libheat.so.json` for `libheat.so`.
    pub fn beside(library: &Path) -> Result<Self, ProgramError> {
        let path = manifest_path(library);
        // Before it is opened: that waits for the other end of a pipe.
        let read = || match std::fs::metadata(&path)?.is_file() {
            true => std::fs::read(&path),
            false => Err(std::io::Error::other("it is no regular file")),
        };
        let text = read().map_err(|error: std::io::Error| ProgramError::ManifestRead {
            library: library.to_owned(),
            path: path.clone(),
            why: error.to_string().into(),
        })?;
        Self::from_json(&text, &path)
    }
}

/// The path of the manifest of a library: `.json` after its name.
pub fn manifest_path(library: &Path) -> PathBuf {
    let mut path = library.as_os_str().to_owned();
    path.push(".json");
    path.into()
}
