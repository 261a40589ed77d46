//! Parts of copy tables that combine: each target with its sources, one after the other.

use super::call::SimDriver;
use super::clock::Actor;
use super::memory::Spot;
use super::shadow::Touch;
use super::state::State;
use crate::driver::{Address, Combining, TablePart, TableSpec};
use crate::error::DeviceError;
use crate::host::{Combine, Source};
use halocline_plan::copy::{CopyOp, Gather, Listed};

/// An element that a part combines.
#[derive(Debug)]
pub(super) struct Combined {
    pub(super) target: Spot,
    /// In the order in which they are combined.
    pub(super) sources: Vec<Operand>,
    /// How, with an operation that moves one element.
    by: Combine,
    element: CopyOp,
}

/// An element that is combined with another one.
#[derive(Debug)]
pub(super) struct Operand {
    pub(super) spot: Spot,
    is_negated: bool,
    is_cleared: bool,
}

impl SimDriver {
    /// The elements that a part combines, resolved.
    pub(super) fn combined(
        &self,
        state: &State,
        spec: &TableSpec<'_>,
        part: &TablePart<'_>,
    ) -> Result<Vec<Combined>, DeviceError> {
        let Some(Combining { op, gathers }) = part.combines else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for Gather { element, steps, target, sources, .. } in gathers {
            let bytes = element.size();
            let by = Combine::of(op, *element, Source::Keep)
                .ok_or(DeviceError::NoOperation { op, element: *element })?;
            let spot =
                |(side, buffers): (&'static str, &[Address]), listed: &Listed, at: usize, step: usize| {
                    let none = DeviceError::NoBuffer { side, index: listed.buffer, count: buffers.len() };
                    let base = buffers.get(listed.buffer).ok_or(none)?;
                    self.reach(state, base.wrapping_add_signed(listed.at(at, step) as i64), bytes)
                };
            for step in 0..*steps {
                for at in 0..target.numbers.len() {
                    let of_source = |source: &Listed| {
                        let &Listed { is_negated, is_cleared, .. } = source;
                        spot(("source", spec.sources), source, at, step).map(|spot| Operand {
                            spot,
                            is_negated,
                            is_cleared,
                        })
                    };
                    let sources = sources.iter().map(of_source).collect::<Result<_, _>>()?;
                    let target = spot(("target", spec.targets), target, at, step)?;
                    let mut moved = CopyOp::of_bytes(0, 0, bytes);
                    moved.element = *element;
                    all.push(Combined { target, sources, by, element: moved });
                }
            }
        }
        Ok(all)
    }
}

impl State {
    /// Begins to read or clear the sources of an element, and to change it; false if memory of one is gone.
    pub(super) fn touch_combined(&mut self, actor: Actor, op: usize, one: &Combined) -> bool {
        let bytes = one.element.bytes();
        let mut there = self.touch(actor, op, one.target, bytes, Touch::Write);
        for source in &one.sources {
            let how = if source.is_cleared { Touch::Write } else { Touch::Read };
            there &= self.touch(actor, op, source.spot, bytes, how);
        }
        there
    }

    /// Combines an element, unless its memory is gone.
    pub(super) fn combine(&mut self, one: &Combined) {
        let Combined { target, sources, by, element } = one;
        let bytes = element.bytes();
        if !self.memories.is_there(*target)
            || !sources.iter().all(|source| self.memories.is_there(source.spot))
        {
            return;
        }
        let mut value = self.memories.slice(*target, bytes).to_vec();
        for source in sources {
            let mut from = self.memories.slice(source.spot, bytes).to_vec();
            let mut moved = element.clone();
            moved.is_negated = source.is_negated;
            // SAFETY: the operation moves one element of the type of `by` between two vectors of so many bytes, which this thread
            // alone knows.
            unsafe { by.run(&moved, from.as_mut_ptr(), value.as_mut_ptr()) };
            if source.is_cleared {
                self.memories.slice_mut(source.spot, bytes).fill(0);
            }
        }
        self.memories.slice_mut(*target, bytes).copy_from_slice(&value);
    }
}
