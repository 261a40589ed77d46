//! The form of a table that the kernel reads, in memory and as its argument: `copy/table.cuh` has the same structures.

use super::gather::{Combination, Listed};
use super::nest::Region;
use super::{Cut, Piece, Tied};
use crate::driver::{Address, Base};

/// Threads per block, as in the kernel.
pub(in crate::cuda) const THREADS: u32 = 512;
/// Number of flags that a launch raises first, passed to the kernel by value.
pub(super) const RAISES: usize = 8;
/// Number of launches of one table that may run concurrently: each has its own counters.
pub(super) const LAUNCHES: usize = 16;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wait {
    pub(super) flag: u64,
    pub(super) lag: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Announced {
    pub(super) words: u64,
    pub(super) sent: u64,
    pub(super) differs: u64,
    pub(super) unused: u64,
}

/// The work unit of a block and, for a block's first item, the flags to wait for and to raise.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) region: Region,
    pub(super) first: u32,
    pub(super) units: u32,
    pub(super) next: u32,
    pub(super) part: u32,
    pub(super) awaited: Wait,
    pub(super) wait: u32,
    pub(super) waits: u32,
    pub(super) raise: u32,
    pub(super) raises: u32,
    pub(super) blocks: u32,
    pub(super) early: u32,
    pub(super) raised: u64,
    pub(super) announced: u64,
    pub(super) then: u64,
}

/// The flags that a part waits for and raises, as ranges of all flags; the kernel reads it for parts
/// without copies.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    pub(super) wait: u32,
    pub(super) waits: u32,
    pub(super) raise: u32,
    pub(super) raises: u32,
}

/// The argument of a launch, passed to the kernel by value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda) struct Argument {
    pub(super) first: [u64; RAISES],
    pub(super) items: u64,
    pub(super) parts: u64,
    pub(super) waits: u64,
    pub(super) raises: u64,
    pub(super) guard: u64,
    pub(super) done: u64,
    pub(super) bare: u32,
    pub(super) first_count: u32,
    pub(super) tied: u32,
    /// How far behind those for even epochs the arrays for odd epochs lie, in units of [`ALIGN`] bytes; 0 if they are the same.
    pub(super) odd: u32,
}

// The kernel asserts the same sizes.
const _: () = assert!(
    size_of::<Region>() == 128
        && size_of::<Item>() == 208
        && size_of::<Announced>() == 32
        && size_of::<Part>() == 16
        && size_of::<Wait>() == 16
        && size_of::<Argument>() == 128
);

/// Offsets that a launch adds to addresses, by the number of their base.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda) struct Bases(pub(super) [u64; Base::MOST]);

impl Bases {
    /// For bases at these addresses.
    pub(in crate::cuda) fn new(bases: &[Base], given: &[Address]) -> Self {
        let mut added = [0; Base::MOST];
        for (number, (base, given)) in bases.iter().zip(given).enumerate() {
            added[number] = base.added(number, *given);
        }
        Self(added)
    }
}

impl Cut {
    /// The bytes at address `base` of a table with one work, or with those for even and odd epochs, and the argument of a launch of each.
    /// If both have the same shape, the first argument serves launches of all epochs.
    pub(in crate::cuda) fn lay_out(works: Vec<Self>, base: Address) -> (Vec<u8>, Vec<Argument>) {
        let (mut bytes, mut arguments) = (Vec::new(), Vec::<Argument>::new());
        for work in works {
            let at = bytes.len();
            let (more, argument) = work.lay_out_one(base + at as Address);
            if let Some(even) = arguments.first_mut().filter(|even| even.is_like(&argument, at as u64)) {
                even.odd = u32::try_from(at / ALIGN).unwrap_or(0);
            }
            bytes.extend(more);
            arguments.push(argument);
        }
        (bytes, arguments)
    }

    /// The bytes of one work, followed by the counters of all launches, and its argument.
    fn lay_out_one(mut self, base: Address) -> (Vec<u8>, Argument) {
        let mut bytes = Vec::new();
        let cells = base + put(&mut bytes, &self.cells);
        let numbers = base + put(&mut bytes, &self.numbers);
        let placed = |of: Listed| Listed { numbers: numbers + 4 * of.numbers, ..of };
        let sources: Vec<Listed> = self.sources.iter().copied().map(placed).collect();
        let sources = base + put(&mut bytes, &sources);
        for region in &mut self.regions {
            if let Some(combination) = Combination::of(region) {
                combination.target = placed(combination.target);
                combination.source = sources + size_of::<Listed>() as u64 * combination.source;
            } else if region.cell_loop != 0 {
                region.cells = cells + 8 * region.cells;
            }
        }
        let mut first = [0; RAISES];
        first[..self.first.len()].copy_from_slice(&self.first);
        let announced = base + put(&mut bytes, &self.announced);
        let items = self.items(announced);
        let argument = Argument {
            first,
            items: base + put(&mut bytes, &items),
            parts: base + put(&mut bytes, &self.bare),
            waits: base + put(&mut bytes, &self.waits),
            raises: base + put(&mut bytes, &self.raises),
            guard: self.guard,
            done: base + put(&mut bytes, &vec![0u64; LAUNCHES * self.tied.len()]),
            bare: self.bare.len() as u32,
            first_count: self.first.len() as u32,
            tied: self.tied.len() as u32,
            odd: 0,
        };
        (bytes, argument)
    }

    /// `announced` is the address of the announcements.
    pub(super) fn items(&self, announced: Address) -> Vec<Item> {
        let tied = self.tied.iter().zip(0..).filter(|(tied, _)| !tied.follows);
        let tied = tied.flat_map(|(tied, part)| (0..tied.blocks).map(move |_| Some((tied, part))));
        let ties = tied.chain(std::iter::repeat(None));
        let item = |(piece, tied): (&Piece, Option<(&Tied, u32)>)| {
            let (Part { wait, waits, raise, raises }, part, blocks, early) = match tied {
                Some((tied, part)) => (tied.part, part, tied.blocks, tied.early.into()),
                None => Default::default(),
            };
            let at = |index: usize| announced + (index * size_of::<Announced>()) as Address;
            Item {
                region: self.regions[piece.region],
                first: piece.first,
                units: piece.units,
                next: piece.next.map_or(0, |next| (self.pieces.len() + next) as u32),
                part,
                awaited: if waits > 0 { self.waits[wait as usize] } else { Wait::default() },
                raised: if raises > 0 { self.raises[raise as usize] } else { 0 },
                wait,
                waits,
                raise,
                raises,
                blocks,
                early,
                announced: tied.and_then(|(tied, _)| tied.announced).map_or(0, at),
                then: piece.then.map_or(0, |then| (self.pieces.len() + self.later.len() + then) as u64),
            }
        };
        let later = self.later.iter().map(|piece| (piece, None));
        let following =
            self.following.iter().map(|(piece, part)| (piece, Some((&self.tied[*part], *part as u32))));
        self.pieces.iter().zip(ties).chain(later).chain(following).map(item).collect()
    }

    /// Upper bound of the length of its bytes in [`Cut::lay_out`].
    pub(in crate::cuda) fn size(&self) -> usize {
        let of = |count: usize, bytes: usize| (count * bytes).next_multiple_of(ALIGN);
        of(self.cells.len(), 8)
            + of(self.numbers.len(), 4)
            + of(self.sources.len(), size_of::<Listed>())
            + of(self.announced.len(), size_of::<Announced>())
            + of(self.pieces.len() + self.later.len() + self.following.len(), size_of::<Item>())
            + of(self.bare.len(), size_of::<Part>())
            + of(self.waits.len(), size_of::<Wait>())
            + of(self.raises.len(), 8)
            + of(LAUNCHES * self.tied.len(), 8)
    }
}

impl Argument {
    /// Whether another work has arrays of the same lengths, so many bytes further, and sets the same flags first.
    pub(super) fn is_like(&self, other: &Self, further: u64) -> bool {
        let arrays = |of: &Self| [of.items, of.parts, of.waits, of.raises, of.done];
        let counts = |of: &Self| [of.bare, of.first_count, of.tied];
        arrays(self).map(|array| array + further) == arrays(other)
            && counts(self) == counts(other)
            && (self.first, self.guard) == (other.first, other.guard)
    }

    /// Whether it serves odd epochs, too.
    pub(in crate::cuda) fn has_odd(&self) -> bool {
        self.odd != 0
    }

    /// Selects the counters of a launch by its number.
    pub(in crate::cuda) fn of_launch(mut self, launch: usize) -> Self {
        self.done += (launch % LAUNCHES) as u64 * u64::from(self.tied) * 8;
        self
    }
}

/// The kernel has the same.
pub(super) const ALIGN: usize = 16;

/// # Safety
/// A value has no padding: all its bytes are initialised.
unsafe trait Dense: Copy {}

macro_rules! dense {
    ($($type:ty),*) => {$(
        // SAFETY: it consists of integers, whose sizes add up to its own (for the structures, asserted beside `Argument`).
        unsafe impl Dense for $type {}
    )*};
}

dense!(Item, Part, Wait, Announced, Listed, u64, u32, [u32; 2]);

/// Appends values, aligned; returns their offset.
fn put<T: Dense>(bytes: &mut Vec<u8>, values: &[T]) -> u64 {
    let at = bytes.len();
    let len = size_of_val(values);
    bytes.resize((at + len).next_multiple_of(ALIGN), 0);
    // SAFETY: `bytes` was made `len` bytes longer behind `at`. `values` has `len` bytes, all of which are initialised,
    // since `T` is `Dense`. A vector and a slice that is borrowed beside it do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), bytes.as_mut_ptr().add(at), len) };
    at as u64
}
