//! Index lists: which cells each rank owns, and the sorted unique ids of an array.

use crate::driver::Address;
use crate::error::DeviceError;
use halocline_plan::ElementType;

/// The most elements of an array of keys.
const MOST_KEYS: u64 = 1 << 40;

/// An index list that a stream is to make ([`crate::Stream::find_list`]).
#[derive(Debug, Clone, Copy)]
pub struct ListSpec<'a> {
    /// The address of the first key. Keys follow one another without gaps, each at a multiple of its size.
    pub keys: Address,
    /// The type of the keys: a 32-bit or 64-bit integer.
    pub key: ElementType,
    /// Number of keys.
    pub count: u64,
    /// What to find.
    pub finds: Finds<'a>,
    /// The address of the result: positions, or keys.
    pub target: Address,
    /// Number of elements that fit there. What does not fit is not stored, but counted.
    pub capacity: u64,
    /// [`crate::Device::list_scratch`] bytes of memory of the device, at a multiple of 256. The first [`Finds::words`] words are the
    /// results for the host.
    pub scratch: Address,
}

/// What an index list holds.
#[derive(Debug, Clone, Copy)]
pub enum Finds<'a> {
    /// Keys are the ranks that own cells: the positions of the cells of each of these ranks, rank after rank, in ascending order.
    Owned {
        /// Ascending.
        ranks: &'a [u32],
        /// Number of ranks: owners are below it.
        size: u64,
        /// The type of the positions: a 32-bit or 64-bit integer.
        index: ElementType,
    },
    /// Keys are the ranks that own cells: the positions of the cells that other ranks than this one own.
    Halo {
        /// This rank.
        rank: u32,
        /// Number of ranks: owners are below it.
        size: u64,
        /// The type of the positions: a 32-bit or 64-bit integer.
        index: ElementType,
    },
    /// Each key once, in ascending order.
    Unique,
}

/// The results of an index list for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The first cell whose owner is no rank, and that owner. The lists lack such cells.
    pub bad: Option<(u64, u64)>,
    /// The elements of each list, those that did not fit included.
    pub counts: Vec<u64>,
}

/// Bytes of a 32-bit or 64-bit integer.
pub(crate) fn width(element: ElementType) -> Option<usize> {
    use ElementType::{I32, I64, U32, U64};
    matches!(element, I32 | U32 | I64 | U64).then(|| element.size())
}

impl Finds<'_> {
    /// Number of lists.
    pub fn lists(&self) -> usize {
        match self {
            Self::Owned { ranks, .. } => ranks.len(),
            Self::Halo { .. } | Self::Unique => 1,
        }
    }

    /// Number of 64-bit words of the results.
    pub fn words(&self) -> usize {
        Found::COUNTS + self.lists()
    }
}

impl Found {
    /// The word of the first count. Before it: the complement of the first bad position, or 0; its owner.
    pub(crate) const COUNTS: usize = 2;

    /// The results that the words of a scratch state.
    pub fn of_words(words: &[u64]) -> Self {
        let (head, counts) = words.split_at(words.len().min(Self::COUNTS));
        let bad = match head {
            &[position, owner] if position != 0 => Some((!position, owner)),
            _ => None,
        };
        Self { bad, counts: counts.to_vec() }
    }

    pub(crate) fn to_words(&self) -> Vec<u64> {
        let (position, owner) = self.bad.map_or((0, 0), |(position, owner)| (!position, owner));
        [position, owner].into_iter().chain(self.counts.iter().copied()).collect()
    }
}

impl ListSpec<'_> {
    /// Bytes of the keys, and those of the result, if types and lengths are valid for a list of a device.
    pub(crate) fn bytes(&self, device: u32) -> Result<[usize; 2], DeviceError> {
        let refused = |what: String| DeviceError::NoList { device, what };
        let of = |element, count: u64, name: &str| {
            let bytes = width(element)
                .ok_or_else(|| refused(format!("{name} are {element}; give 32-bit or 64-bit integers")))?;
            let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(bytes));
            bytes.ok_or_else(|| refused(format!("{count} {name} exceed the address space; give fewer")))
        };
        if self.count > MOST_KEYS {
            return Err(refused(format!(
                "{} keys are more than {MOST_KEYS}; give parts of them",
                self.count
            )));
        }
        let target = match self.finds {
            Finds::Owned { index, .. } | Finds::Halo { index, .. } => index,
            Finds::Unique => self.key,
        };
        let bytes = [of(self.key, self.count, "keys")?, of(target, self.capacity, "results")?];
        let arrays = [(self.keys, self.key, self.count), (self.target, target, self.capacity)];
        for (address, element, count) in arrays {
            if count > 0 && !address.is_multiple_of(element.size() as u64) {
                return Err(refused(format!(
                    "{address:#x} is no multiple of the {} bytes of an element; give an aligned address",
                    element.size()
                )));
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_other_elements_and_of_too_many_keys_are_refused() {
        let right = ListSpec {
            keys: 8,
            key: ElementType::I64,
            count: 3,
            finds: Finds::Unique,
            target: 16,
            capacity: 2,
            scratch: 0,
        };
        assert_eq!(right.bytes(0), Ok([24, 16]));
        // The address of no elements may be any number.
        assert_eq!(ListSpec { keys: 1, count: 0, ..right }.bytes(0), Ok([0, 16]));
        let wrong = [
            (ListSpec { key: ElementType::F64, ..right }, "64-bit integers"),
            (ListSpec { count: MOST_KEYS + 1, ..right }, "give parts"),
            (ListSpec { capacity: 1 << 62, ..right }, "address space"),
            (ListSpec { target: 20, ..right }, "aligned"),
        ];
        for (spec, text) in wrong {
            let Err(DeviceError::NoList { device: 1, what }) = spec.bytes(1) else { panic!("{spec:?}") };
            assert!(what.contains(text), "{what}");
        }
    }
}
