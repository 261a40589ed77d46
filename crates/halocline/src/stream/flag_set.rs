//! Which flags of a link an operation uses.

use super::LINE;
use crate::link::Subject;
use halocline_plan::ReduceOp;

/// An operation of an object of device fields: an exchange of a set, or a reduce of it. Each has flags of its own, by the number of this:
/// so ranks that begin different operations wait for each other, and report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlagSet {
    pub(crate) set: usize,
    pub(crate) op: Option<ReduceOp>,
}

impl FlagSet {
    /// How many there are for so many sets.
    pub(crate) const fn count(max_sets: usize) -> usize {
        (1 + ReduceOp::ALL.len()) * max_sets
    }

    /// Its number: exchanges come first, with the numbers of their sets.
    pub(crate) fn number(self, max_sets: usize) -> usize {
        self.set + max_sets * self.op.map_or(0, ReduceOp::code) as usize
    }

    /// That of a number.
    pub(crate) fn of(number: usize, max_sets: usize) -> Self {
        let max_sets = max_sets.max(1);
        Self { set: number % max_sets, op: ReduceOp::from_code((number / max_sets) as u64) }
    }

    /// What peers must have begun, too.
    pub(crate) fn subject(self) -> Subject {
        Subject::new(self.set, self.op)
    }
}

/// The flag that becomes the epoch of each operation that begins, by the number of its [`FlagSet`]: an offset in [`super::Lane::status`].
pub(crate) fn begun(number: usize) -> usize {
    3 * LINE + 8 * number
}

/// Bytes of the flags of an object with so many sets at most.
pub(crate) fn status(max_sets: usize) -> usize {
    begun(FlagSet::count(max_sets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_of_a_set_has_a_number_of_its_own() {
        let ops = || std::iter::once(None).chain(ReduceOp::ALL.map(Some));
        let all = || ops().flat_map(|op| (0..16).map(move |set| FlagSet { set, op }));
        let numbers: Vec<usize> = all().map(|one| one.number(16)).collect();
        assert_eq!(numbers, (0..FlagSet::count(16)).collect::<Vec<_>>());
        assert!(all().all(|one| FlagSet::of(one.number(16), 16) == one));
    }
}
