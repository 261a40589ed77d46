//! The errors of a call. They are made out of the way of the calls that succeed.

use super::{ArgumentKind, ArgumentPlan, ArrayPlan, Part, Plan, Rule};
use crate::ScalarType;
use crate::arguments::{ArrayView, Given};
use crate::error::ProgramError;
use crate::scalar::{Scalar, Unfit};
use crate::signature::DeviceKind;

/// Names the program and the argument of an error.
macro_rules! of {
    ($plan:ident, $argument:ident, $variant:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        ProgramError::$variant {
            program: $plan.program.clone(),
            argument: $argument.name.clone(),
            $($field $(: $value)?),*
        }
    };
}

#[cold]
fn label(plan: &ArrayPlan, dimension: usize) -> Box<str> {
    match plan.names.get(dimension) {
        Some(name) if !name.is_empty() => format!("{dimension} ({name})").into(),
        _ => dimension.to_string().into(),
    }
}

impl Plan {
    /// The names of all arguments.
    pub(crate) fn list(&self) -> Box<str> {
        let names: Vec<&str> = self.arguments.iter().map(|argument| &*argument.name).collect();
        if names.is_empty() { "no argument".into() } else { names.join(", ").into() }
    }

    #[cold]
    pub(super) fn wrong_number(&self, given: usize) -> ProgramError {
        let program = self.program.clone();
        let arguments = self.list();
        match self.arguments.get(given) {
            Some(missing) => ProgramError::Missing { program, argument: missing.name.clone(), arguments },
            None => ProgramError::Extra { program, given, expected: self.arguments.len(), arguments },
        }
    }

    #[cold]
    pub(super) fn wrong_kind(
        &self,
        argument: &ArgumentPlan,
        kind: &ArgumentKind,
        given: &Given<'_>,
    ) -> ProgramError {
        match (kind, given) {
            (ArgumentKind::Array(plan), Given::Scalar(value)) => {
                of!(self, argument, NotAnArray { given: value.to_string().into(), expected: plan.element })
            }
            _ => of!(self, argument, Missing { arguments: self.list() }),
        }
    }

    #[cold]
    pub(super) fn not_a_number(
        &self,
        argument: &ArgumentPlan,
        expected: ScalarType,
        view: &ArrayView<'_>,
    ) -> ProgramError {
        of!(self, argument, NotANumber { dimensions: view.extents.len(), device: view.device, expected })
    }

    #[cold]
    pub(super) fn element_type(
        &self,
        argument: &ArgumentPlan,
        given: ScalarType,
        expected: ScalarType,
    ) -> ProgramError {
        of!(self, argument, ElementType { given, expected })
    }

    #[cold]
    pub(super) fn wrong_array(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        view: &ArrayView<'_>,
    ) -> ProgramError {
        let (extents, strides, origin) = (view.extents.len(), view.strides.len(), view.origin.len());
        if view.element != plan.element {
            return self.element_type(argument, view.element, plan.element);
        }
        if strides != extents || origin != 0 && origin != extents {
            return of!(self, argument, View { extents, strides, origin });
        }
        if extents != plan.dimensions {
            let names: Vec<&str> =
                plan.names.iter().map(|name| &**name).filter(|name| !name.is_empty()).collect();
            let expected = match names.is_empty() {
                true => plan.dimensions.to_string().into(),
                false => format!("{} ({})", plan.dimensions, names.join(", ")).into(),
            };
            return of!(self, argument, Dimensions { given: extents, expected });
        }
        of!(self, argument, ReadOnly {})
    }

    #[cold]
    pub(super) fn wrong_device(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        view: &ArrayView<'_>,
        gpu: Option<u32>,
    ) -> ProgramError {
        let expected = match (plan.device, gpu) {
            (DeviceKind::Cpu, _) => "memory of the host".to_owned(),
            (DeviceKind::Gpu, None) => "memory of a GPU".to_owned(),
            (DeviceKind::Gpu, Some(ordinal)) => {
                format!("memory of GPU {ordinal}, as the arguments before it or the stream")
            }
        };
        of!(self, argument, WrongDevice { given: view.device, expected: expected.into() })
    }

    /// Refuses an address that is not aligned, or that is null although the array has elements.
    #[cold]
    pub(super) fn check_address(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        view: &ArrayView<'_>,
        alignment: usize,
    ) -> Result<(), ProgramError> {
        if view.extents.contains(&0) {
            return Ok(());
        }
        let address = view.address.addr();
        let expected = match address {
            0 => "give memory for its elements".into(),
            _ => format!("{} needs a multiple of {alignment}; copy the array", plan.element).into(),
        };
        Err(of!(self, argument, Address { address, expected }))
    }

    #[cold]
    pub(super) fn stride_not_whole(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        view: &ArrayView<'_>,
        dimension: usize,
    ) -> ProgramError {
        let (stride, size) = (view.strides[dimension], plan.element.size());
        of!(self, argument, StrideNotWhole { dimension: label(plan, dimension), stride, size })
    }

    #[cold]
    pub(super) fn symbol_range(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        rule: &Rule,
        given: i64,
        symbol: &str,
        [low, high]: [i64; 2],
    ) -> ProgramError {
        let (what, dimension) = (rule.part.name(), label(plan, rule.dimension));
        of!(
            self,
            argument,
            SymbolRange {
                what,
                given,
                dimension,
                symbol: symbol.into(),
                range: format!("{low} to {high}").into()
            }
        )
    }

    #[cold]
    pub(super) fn quantity(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        dimension: usize,
        part: Part,
        given: i64,
        expected: Box<str>,
    ) -> ProgramError {
        of!(
            self,
            argument,
            Quantity { what: part.name(), given, dimension: label(plan, dimension), expected }
        )
    }

    #[cold]
    pub(super) fn bounds(
        &self,
        argument: &ArgumentPlan,
        plan: &ArrayPlan,
        dimension: usize,
        [first, end]: [i64; 2],
        needs: [String; 2],
    ) -> ProgramError {
        of!(
            self,
            argument,
            Bounds { dimension: label(plan, dimension), first, end, needs: needs.join(" to ").into() }
        )
    }

    #[cold]
    pub(super) fn unfit(
        &self,
        argument: &ArgumentPlan,
        value: Scalar,
        expected: ScalarType,
        unfit: Unfit,
    ) -> ProgramError {
        let given = value.to_string().into();
        match unfit {
            Unfit::NotIntegral => of!(self, argument, NotIntegral { given, expected }),
            Unfit::NotBool => of!(self, argument, NotBool { given }),
            Unfit::OutOfRange => {
                let range = expected.integer_range();
                let range = range.map_or_else(
                    || "; give a smaller number".into(),
                    |(low, high)| format!("; give {low} to {high}").into(),
                );
                of!(self, argument, OutOfRange { given, expected, range })
            }
        }
    }

    #[cold]
    pub(super) fn contradiction(
        &self,
        argument: &ArgumentPlan,
        value: Scalar,
        expected: i64,
    ) -> ProgramError {
        of!(
            self,
            argument,
            Contradiction { given: value.to_string().into(), expected: expected.to_string().into() }
        )
    }
}
