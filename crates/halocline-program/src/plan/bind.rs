//! Checks what is given to a call and fills its words.

use super::{Action, ArgumentKind, ArgumentPlan, ArrayPlan, Part, Plan, Relation, Side, Slots, Span};
use crate::ScalarType;
use crate::arguments::{ArrayView, Device, Given};
use crate::error::ProgramError;
use crate::scalar::Scalar;
use crate::signature::{Access, DeviceKind};

/// The words of a bound call. A frame on the stack serves calls up to [`INLINE`] words.
pub(crate) struct Bound<'w> {
    pub(crate) words: &'w mut [u64],
}

/// Words of a call that need no memory of the heap: a program of about 240 parameters.
const INLINE: usize = 256;

impl Plan {
    /// Binds what is given, for a GPU if there is one, in memory of the stack if it is small, and passes the words on.
    #[inline]
    pub(crate) fn with_words<R>(
        &self,
        given: &[Given<'_>],
        mut gpu: Option<u32>,
        then: impl FnOnce(Bound<'_>) -> Result<R, ProgramError>,
    ) -> Result<R, ProgramError> {
        if self.words <= INLINE {
            let mut inline = [0u64; INLINE];
            let words = &mut inline[..self.words];
            self.bind(given, &mut gpu, words)?;
            then(Bound { words })
        } else {
            let mut words = vec![0u64; self.words];
            self.bind(given, &mut gpu, &mut words)?;
            then(Bound { words: &mut words })
        }
    }

    /// Checks all arguments and writes the words of a call. All arrays of GPUs are of the one in `gpu`, which the first of them sets.
    pub(crate) fn bind(
        &self,
        given: &[Given<'_>],
        gpu: &mut Option<u32>,
        words: &mut [u64],
    ) -> Result<(), ProgramError> {
        if given.len() != self.arguments.len()
            && (given.len() > self.arguments.len() || !self.may_end_at(given))
        {
            return Err(self.wrong_number(given.len()));
        }
        let mut slots = Slots::new(words);
        for (argument, given) in self.arguments.iter().zip(given) {
            match (&argument.kind, given) {
                (ArgumentKind::Array(plan), Given::Array(view)) => {
                    self.bind_array(argument, plan, view, gpu, &mut slots)?;
                }
                (ArgumentKind::Scalar { is_optional: true, .. }, _) => {}
                (ArgumentKind::Scalar { scalar, has_dependents, .. }, Given::Scalar(value)) => {
                    self.check_symbol(argument, *value, *scalar, *has_dependents)?;
                    slots.set(argument.slot, self.encoded(argument, *value, *scalar)?);
                }
                (ArgumentKind::Scalar { scalar, has_dependents, .. }, Given::Array(view)) => {
                    let value = self.read_scalar(argument, *scalar, view)?;
                    self.check_symbol(argument, value, *scalar, *has_dependents)?;
                    slots.set(argument.slot, self.encoded(argument, value, *scalar)?);
                }
                (kind, given) => return Err(self.wrong_kind(argument, kind, given)),
            }
        }
        self.check_optional(given, &slots)?;
        self.check_symbols(given, &slots)?;
        for copied in &self.copies {
            words[copied.word] = words[copied.slot];
        }
        Ok(())
    }

    #[inline]
    fn bind_array(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        view: &ArrayView<'_>,
        gpu: &mut Option<u32>,
        slots: &mut Slots<'_>,
    ) -> Result<(), ProgramError> {
        if view.element != plan.element
            || view.extents.len() != plan.dimensions
            || view.strides.len() != plan.dimensions
            || !(view.origin.is_empty() || view.origin.len() == plan.dimensions)
            || !view.is_writable && plan.access == Access::Write
        {
            return Err(self.wrong_array(argument, plan, view));
        }
        match (plan.device, view.device) {
            (DeviceKind::Cpu, Device::Host) => {}
            (DeviceKind::Gpu, Device::Gpu(ordinal)) if *gpu.get_or_insert(ordinal) == ordinal => {}
            _ => return Err(self.wrong_device(argument, plan, view, *gpu)),
        }
        let alignment = alignment(plan.element);
        if view.address.addr() & (alignment - 1) != 0 || view.address.is_null() {
            self.check_address(argument, plan, view, alignment)?;
        }
        slots.set(argument.slot, view.address.expose_provenance() as u64);
        for rule in &plan.rules {
            let value = part(view, rule.dimension, rule.part)
                .ok_or_else(|| self.stride_not_whole(argument, plan, view, rule.dimension))?;
            match &rule.action {
                Action::Define { slot, low, high, symbol } => {
                    if value < *low || value > *high {
                        return Err(self.symbol_range(argument, plan, rule, value, symbol, [*low, *high]));
                    }
                    slots.set(*slot, value as u64);
                }
                Action::Constant(expected) => {
                    if value != *expected && !is_irrelevant(view, rule.dimension, rule.part) {
                        let expected = expected.to_string().into();
                        return Err(self.quantity(
                            argument,
                            plan,
                            rule.dimension,
                            rule.part,
                            value,
                            expected,
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Bounds and sizes are computed with 63 bits and a sign: an unsigned number of theirs has no more.
    #[inline]
    fn check_symbol(
        &self,
        argument: &ArgumentPlan,
        value: Scalar,
        scalar: ScalarType,
        has_dependents: bool,
    ) -> Result<(), ProgramError> {
        match has_dependents && scalar == ScalarType::UInt64 {
            true => self.encoded(argument, value, ScalarType::Int64).map(drop),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn encoded(
        &self,
        argument: &ArgumentPlan,
        value: Scalar,
        scalar: ScalarType,
    ) -> Result<u64, ProgramError> {
        value.encode(scalar).map_err(|unfit| self.unfit(argument, value, scalar, unfit))
    }

    /// The value of an array without dimensions.
    fn read_scalar(
        &self,
        argument: &ArgumentPlan,
        scalar: ScalarType,
        view: &ArrayView<'_>,
    ) -> Result<Scalar, ProgramError> {
        if !view.extents.is_empty() || view.device != Device::Host || view.address.is_null() {
            return Err(self.not_a_number(argument, scalar, view));
        }
        if view.element != scalar {
            return Err(self.element_type(argument, view.element, scalar));
        }
        // SAFETY: the constructor of the view promises readable memory for all elements, and this one has exactly one.
        let value = unsafe { Scalar::read(view.address.cast_const().cast(), view.element) };
        value.ok_or_else(|| self.not_a_number(argument, scalar, view))
    }

    /// Optional scalars that are given equal what follows from the arrays.
    fn check_optional(&self, given: &[Given<'_>], slots: &Slots<'_>) -> Result<(), ProgramError> {
        for &position in &self.optional {
            let argument = &self.arguments[position];
            let ArgumentKind::Scalar { scalar, .. } = argument.kind else { continue };
            let value = match given.get(position) {
                None | Some(Given::Absent) => continue,
                Some(Given::Scalar(value)) => *value,
                Some(Given::Array(view)) => self.read_scalar(argument, scalar, view)?,
            };
            let word = self.encoded(argument, value, scalar)?;
            if word as i64 != slots.integer(argument.slot) {
                return Err(self.contradiction(argument, value, slots.integer(argument.slot)));
            }
        }
        Ok(())
    }

    fn check_symbols(&self, given: &[Given<'_>], slots: &Slots<'_>) -> Result<(), ProgramError> {
        for check in &self.checks {
            let argument = &self.arguments[check.argument];
            let (ArgumentKind::Array(plan), Some(Given::Array(view))) =
                (&argument.kind, given.get(check.argument))
            else {
                continue;
            };
            match &check.relation {
                Relation::Equal(dimension, of, expression) => {
                    let value = part(view, *dimension, *of)
                        .ok_or_else(|| self.stride_not_whole(argument, plan, view, *dimension))?;
                    let expected = expression.value(slots);
                    if expected != Some(value) && !is_irrelevant(view, *dimension, *of) {
                        let expected = shown(&expression.text, expected).into();
                        return Err(self.quantity(argument, plan, *dimension, *of, value, expected));
                    }
                }
                Relation::Covers { sides, over } => {
                    if let Some(Side { dimension, span }) =
                        sides.iter().find(|side| !side.is_within(view, slots))
                        && !over.iter().any(|span| span.is_empty(slots))
                    {
                        let needs = [&span.first, &span.end].map(|end| shown(&end.text, end.value(slots)));
                        let has = indices(view, *dimension);
                        return Err(self.bounds(argument, plan, *dimension, has, needs));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Side {
    /// Whether the array has these indices; also if there are none. Indices without a value in 64 bits are in no array.
    #[inline]
    fn is_within(&self, view: &ArrayView<'_>, slots: &Slots<'_>) -> bool {
        let span = &self.span;
        let (Some(first), Some(end)) = (span.first.value(slots), span.end.value(slots)) else { return false };
        let [begin, stop] = indices(view, self.dimension);
        first >= end || begin <= first && end <= stop
    }
}

impl Span {
    fn is_empty(&self, slots: &Slots<'_>) -> bool {
        matches!((self.first.value(slots), self.end.value(slots)), (Some(first), Some(end)) if first >= end)
    }
}

/// The first index of a dimension and the one after the last.
#[inline]
fn indices(view: &ArrayView<'_>, dimension: usize) -> [i64; 2] {
    let start = view.start(dimension);
    [start, start.saturating_add(view.extents[dimension] as i64)]
}

/// The text of an expression with its value.
fn shown(text: &str, value: Option<i64>) -> String {
    match value {
        Some(value) if value.to_string() == text => text.to_owned(),
        Some(value) => format!("{value} ({text})"),
        None => format!("{text}, which has no value in 64 bits"),
    }
}

/// A part of a dimension; `None` if the stride is no multiple of the element.
#[inline]
fn part(view: &ArrayView<'_>, dimension: usize, part: Part) -> Option<i64> {
    let extent = view.extents[dimension] as i64;
    match part {
        Part::Extent => Some(extent),
        Part::Start => Some(view.start(dimension)),
        Part::Stop => view.start(dimension).checked_add(extent),
        Part::Stride => {
            let (stride, size) = (view.strides[dimension], view.element.size() as isize);
            if stride & (size - 1) == 0 {
                Some((stride >> size.trailing_zeros()) as i64)
            } else {
                (extent <= 1).then_some(0)
            }
        }
    }
}

/// The stride of a dimension with one index is never used, and libraries put any number there.
fn is_irrelevant(view: &ArrayView<'_>, dimension: usize, part: Part) -> bool {
    part == Part::Stride && view.extents[dimension] <= 1
}

/// Bytes that an address of such elements is a multiple of.
fn alignment(element: ScalarType) -> usize {
    if element.is_complex() { element.size() / 2 } else { element.size() }
}
