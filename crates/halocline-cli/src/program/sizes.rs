//! Arrays as large as the manifest of a program demands, for values of its symbols.

use crate::error::CommandError;
use halocline_program::signature::{Argument, ArrayArgument, DeviceKind, Dimension, Quantity};
use halocline_program::{ArrayView, Device, Given, RawArray, Scalar, Signature};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// A value of a symbol, a scalar or a free dimension: `n=20`.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    name: String,
    value: Scalar,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no setting; give a name and a number, such as n=20");
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let value = match (value.parse::<bool>(), value.parse::<i64>(), value.parse::<f64>()) {
            (Ok(value), ..) => value.into(),
            (_, Ok(value), _) => value.into(),
            (.., Ok(value)) => value.into(),
            _ => return Err(wrong()),
        };
        Ok(Self { name: name.to_owned(), value })
    }
}

/// The settings, and which of them something asked for.
pub(super) struct Settings<'a> {
    values: BTreeMap<&'a str, Scalar>,
    used: BTreeSet<String>,
    program: &'a str,
}

impl<'a> Settings<'a> {
    pub(super) fn new(settings: &'a [Setting], program: &'a str) -> Self {
        let values = settings.iter().map(|setting| (setting.name.as_str(), setting.value)).collect();
        Self { values, used: BTreeSet::new(), program }
    }

    fn usage(&self, refusal: String) -> CommandError {
        CommandError::usage(format!("program {}: {refusal}", self.program))
    }

    fn take(&mut self, name: &str, what: &str) -> Result<Scalar, CommandError> {
        self.used.insert(name.to_owned());
        let value = self.values.get(name).copied();
        value.ok_or_else(|| self.usage(format!("give `--set {name}=NUMBER`, {what}")))
    }

    fn integer(&mut self, name: &str, what: &str) -> Result<i64, CommandError> {
        match self.take(name, what)? {
            Scalar::Int(value) => Ok(value),
            other => {
                Err(self.usage(format!("`--set {name}={other}` is no integer; give an integer for {what}")))
            }
        }
    }

    fn quantity(&mut self, quantity: &Quantity, what: &str) -> Result<i64, CommandError> {
        let program = self.program;
        let refused = |why| {
            CommandError::usage(format!(
                "program {program}: cannot compute {what}: {why}; change the values of `--set`"
            ))
        };
        let mut values = BTreeMap::new();
        for name in quantity.symbols().map_err(refused)? {
            let value = self.integer(&name, what)?;
            values.insert(name, value);
        }
        quantity.value(&|name| values.get(name).copied()).map_err(refused)
    }

    /// Refuses settings that nothing asked for.
    pub(super) fn finish(self) -> Result<(), CommandError> {
        match self.values.keys().find(|name| !self.used.contains(**name)) {
            Some(name) => Err(self.usage(format!("`--set {name}=...` sets nothing; leave it out"))),
            None => Ok(()),
        }
    }
}

/// What one argument is called with.
pub(super) enum Example {
    Array(OwnedArray),
    Scalar(Scalar),
    Absent,
}

/// An array of zeros.
pub(super) struct OwnedArray {
    memory: Vec<u128>,
    /// The first element from the begin of the memory, in bytes.
    offset: usize,
    array: ArrayArgument,
    extents: Vec<isize>,
    strides: Vec<isize>,
    origin: Vec<isize>,
}

impl Example {
    /// One for each argument.
    pub(super) fn all(signature: &Signature, settings: &mut Settings<'_>) -> Result<Vec<Self>, CommandError> {
        let one = |argument: &Argument| match argument {
            Argument::Array(array) => OwnedArray::new(array, settings).map(Self::Array),
            Argument::Scalar(scalar) if scalar.optional => Ok(Self::Absent),
            Argument::Scalar(scalar) => {
                let what = format!("the scalar of type {}", scalar.scalar);
                settings.take(&scalar.name, &what).map(Self::Scalar)
            }
        };
        signature.arguments.iter().map(one).collect()
    }

    pub(super) fn given(&mut self) -> Given<'_> {
        match self {
            Self::Array(array) => array.view().into(),
            Self::Scalar(value) => Given::Scalar(*value),
            Self::Absent => Given::Absent,
        }
    }
}

/// First index and number of indices of a dimension.
struct Span {
    start: i64,
    extent: i64,
}

fn span(
    dimension: &Dimension,
    free: &str,
    what: &str,
    settings: &mut Settings<'_>,
) -> Result<Span, CommandError> {
    let mut value = |quantity: &Option<Quantity>| {
        quantity.as_ref().map(|quantity| settings.quantity(quantity, what)).transpose()
    };
    let (start, stop, extent) =
        (value(&dimension.start)?, value(&dimension.stop)?, value(&dimension.extent)?);
    let first = start.unwrap_or(0);
    let last = match (extent, stop, &dimension.covers) {
        (Some(extent), ..) => first.checked_add(extent),
        (_, Some(stop), _) => Some(stop),
        (.., Some([_, end])) => Some(settings.quantity(end, what)?),
        _ => first.checked_add(settings.integer(free, what)?),
    };
    let extent = last.and_then(|last| last.checked_sub(first)).filter(|extent| *extent >= 0);
    let extent = extent
        .ok_or_else(|| settings.usage(format!("the settings make {what} negative; give larger values")))?;
    Ok(Span { start: first, extent })
}

impl OwnedArray {
    fn new(array: &ArrayArgument, settings: &mut Settings<'_>) -> Result<Self, CommandError> {
        let name = &array.name;
        if array.device == DeviceKind::Gpu {
            return Err(settings.usage(format!(
                "the array `{name}` is on a GPU, and the benchmark has host arrays only; time the program in a script of Python"
            )));
        }
        let size = array.element.size() as i64;
        let (mut extents, mut strides, mut origin) = (Vec::new(), Vec::new(), Vec::new());
        let (mut row, mut below, mut above) = (1i64, 0i64, 0i64);
        let too_large = |settings: &Settings<'_>| {
            settings.usage(format!("the array `{name}` is too large; give smaller values"))
        };
        for (at, dimension) in array.dimensions.iter().enumerate().rev() {
            let shown = dimension.name.clone().unwrap_or_else(|| at.to_string());
            let what = format!("the number of indices of dimension {shown} of `{name}`");
            let Span { start, extent } = span(dimension, &format!("{name}.{shown}"), &what, settings)?;
            let what = format!("the stride of dimension {shown} of `{name}`");
            let given =
                dimension.stride.as_ref().map(|stride| settings.quantity(stride, &what)).transpose()?;
            let stride = given.unwrap_or(row);
            let reach = (extent - 1).max(0).checked_mul(stride).ok_or_else(|| too_large(settings))?;
            let bounds = (below.checked_add(reach.min(0)), above.checked_add(reach.max(0)));
            let (Some(low), Some(high)) = bounds else { return Err(too_large(settings)) };
            (below, above) = (low, high);
            row = stride.checked_abs().and_then(|stride| stride.checked_mul(extent.max(1))).unwrap_or(row);
            let bytes = stride.checked_mul(size).ok_or_else(|| too_large(settings))?;
            extents.insert(0, extent as isize);
            strides.insert(0, bytes as isize);
            origin.insert(0, start as isize);
        }
        let elements = above.checked_sub(below).and_then(|reach| reach.checked_add(1));
        let bytes = elements.and_then(|elements| elements.checked_mul(size));
        let words = bytes.and_then(|bytes| usize::try_from(bytes).ok()).map(|bytes| bytes.div_ceil(16));
        let words = words.ok_or_else(|| too_large(settings))?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(words).map_err(|_| too_large(settings))?;
        memory.resize(words, 0u128);
        let offset = (-below * size) as usize;
        Ok(Self { memory, offset, array: array.clone(), extents, strides, origin })
    }

    fn view(&mut self) -> ArrayView<'_> {
        let raw = RawArray {
            address: self.memory.as_mut_ptr().wrapping_byte_add(self.offset).cast(),
            element: self.array.element,
            extents: &self.extents,
            strides: &self.strides,
            device: Device::Host,
            is_writable: true,
        };
        // SAFETY: the memory has all elements that extents and strides reach from the offset, and the view borrows it.
        unsafe { ArrayView::from_raw(raw) }.with_origin(&self.origin)
    }
}
