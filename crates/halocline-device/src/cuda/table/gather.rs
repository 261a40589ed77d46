//! Elements that a table combines, as the kernel reads them: `copy/combine.cuh`.

use super::loops::{Loops, SharedLoop};
use super::nest::{LOOPS, Region, UNITS, WIDEST, divisor};
use super::{Cut, sign_bits_each};
use crate::driver::{Address, Combining, TableSpec};
use crate::error::DeviceError;
use halocline_plan::copy::Gather;
use halocline_plan::{ElementType, ReduceOp};
use std::ops::Range;
use std::sync::Arc;

/// The code of a region's `log_unit` that makes it a [`Combination`]. The kernel needs no code: all regions of a table are combinations, or none.
const COMBINED: u8 = 9;
/// The least units of 16 bytes in the innermost loop that are worth its two ends apart.
const WORTH_ENDS: u64 = 4;

/// Where units lie in one buffer: from `first` on, by the steps of all loops. In a loop over a list, a step counts from a number of the list.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Listed {
    pub(super) first: u64,
    pub(super) step: [i64; LOOPS],
    /// An index into the table's numbers until the table is laid out, then their address.
    pub(super) numbers: u64,
    pub(super) is_cleared: u64,
    /// The sign bits that change, in 8 bytes.
    pub(super) signs: u64,
}

/// The loop that goes over lists of numbers, as the kernel numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    None = 0,
    Innermost = 1,
    Outermost = 2,
}

/// How the kernel accesses the elements of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// One element, byte by byte.
    Bytes = 0,
    /// One element, number by number.
    Numbers = 1,
    /// The elements of 16 bytes.
    Wide = 2,
}

/// Elements of one buffer and those that are combined with them. It takes the place of a [`Region`].
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Combination {
    pub(super) target: Listed,
    /// An index into the table's sources until the table is laid out, then their address.
    pub(super) source: u64,
    pub(super) sources: u32,
    pub(super) bytes: u32,
    pub(super) count: [u32; LOOPS - 1],
    pub(super) op: u32,
    pub(super) multiplier: [u32; LOOPS - 1],
    pub(super) kind: u32,
    pub(super) shift: [u8; LOOPS - 1],
    pub(super) list: u8,
    /// Where a region has its `log_unit`: [`COMBINED`].
    pub(super) code: u8,
    pub(super) access: u8,
    pub(super) unused: [u8; 10],
}

const _: () = assert!(size_of::<Combination>() == size_of::<Region>() && size_of::<Listed>() == 64);
const _: () = assert!(std::mem::offset_of!(Combination, code) == std::mem::offset_of!(Region, log_unit));

/// The kernel's number of a type: a position among these. Others are only replaced.
const TYPES: [ElementType; 13] = [
    ElementType::I8,
    ElementType::U8,
    ElementType::I16,
    ElementType::U16,
    ElementType::I32,
    ElementType::U32,
    ElementType::I64,
    ElementType::U64,
    ElementType::Bool,
    ElementType::F32,
    ElementType::F64,
    ElementType::C64,
    ElementType::C128,
];

/// The kernel's number of a type, and the alignment of its numbers.
fn kind_of(element: ElementType) -> (u32, u64) {
    // What is only replaced moves as a number of its size.
    let like = match element {
        ElementType::F16 | ElementType::Bf16 => ElementType::U16,
        ElementType::Opaque(size) => match size {
            1 => ElementType::U8,
            2 => ElementType::U16,
            4 => ElementType::U32,
            8 => ElementType::U64,
            16 => ElementType::C128,
            _ => return (TYPES.len() as u32, 1),
        },
        other => other,
    };
    let numbers = if matches!(like, ElementType::C64 | ElementType::C128) { 2 } else { 1 };
    let kind = TYPES.iter().position(|&one| one == like).unwrap_or(TYPES.len());
    (kind as u32, (like.size() / numbers) as u64)
}

/// The bit of a type among those that kernels know.
pub(in crate::cuda) fn type_bit(element: ElementType) -> u32 {
    1 << kind_of(element).0
}

/// A combination in the making.
#[derive(Clone)]
struct Nest {
    /// The target, then the sources.
    all: Vec<Listed>,
    counts: [u64; LOOPS],
    list: List,
    access: Access,
    /// What does not depend on where the elements lie.
    form: Combination,
}

impl Cut {
    /// Adds what a part combines.
    pub(super) fn add_gathers(
        &mut self,
        Combining { op, gathers }: Combining<'_>,
        spec: &TableSpec<'_>,
        reach: &mut impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let types = self.combines.get_or_insert(0);
        *types |= gathers.iter().fold(0, |types, gather| types | type_bit(gather.element));
        for gather in gathers.iter().filter(|gather| gather.elements() > 0) {
            if !op.supports(gather.element) {
                return Err(DeviceError::NoOperation { op, element: gather.element });
            }
            let firsts = firsts(gather, spec, reach)?;
            let nest = self.nest(op, gather, &firsts);
            for nest in nest.by_access() {
                self.add_combination(&nest);
            }
        }
        Ok(())
    }

    /// The loops of a gather whose buffers have their first elements at these addresses.
    fn nest(&mut self, op: ReduceOp, gather: &Gather, firsts: &[Address]) -> Nest {
        let Loops { loops, stride, listed } = Loops::of(gather, LOOPS);
        let is_inside = |l: &SharedLoop| {
            stride == 1 && l.steps[0].unsigned_abs() > gather.target.stride.unsigned_abs() as u64
        };
        let list = match loops.first() {
            _ if listed == 1 => List::None,
            Some(innermost) if is_inside(innermost) => List::Innermost,
            _ => List::Outermost,
        };
        let from = usize::from(list == List::Innermost);
        let mut counts = [1; LOOPS];
        loops.iter().zip(&mut counts[from..]).for_each(|(l, count)| *count = l.count);
        let of_list = match list {
            List::None => None,
            List::Innermost => Some(0),
            List::Outermost => Some(LOOPS - 1),
        };
        of_list.into_iter().for_each(|at| counts[at] = listed as u64);
        let all = std::iter::once(&gather.target).chain(&gather.sources).enumerate();
        let signs = gather.element.sign_distance().map_or(0, sign_bits_each);
        let all = all.map(|(number, of)| {
            let signs = if of.is_negated { signs } else { 0 };
            let mut placed = Listed {
                first: firsts[number],
                is_cleared: of.is_cleared.into(),
                signs,
                ..Listed::default()
            };
            loops.iter().zip(&mut placed.step[from..]).for_each(|(l, step)| *step = l.steps[number]);
            match of_list {
                Some(at) => {
                    placed.step[at] = of.stride as i64;
                    placed.numbers = self.list_numbers(&of.numbers, stride);
                }
                // The loops begin at the first number.
                None => {
                    placed.first =
                        placed.first.wrapping_add_signed(i64::from(of.numbers[0]) * of.stride as i64)
                }
            }
            placed
        });
        let (kind, alignment) = kind_of(gather.element);
        let all: Vec<Listed> = all.collect();
        let bits = all
            .iter()
            .fold(0, |bits, of| of.step.iter().fold(bits | of.first, |bits, &step| bits | step as u64));
        let access = if bits.is_multiple_of(alignment) { Access::Numbers } else { Access::Bytes };
        let form = Combination {
            sources: gather.sources.len() as u32,
            bytes: gather.element.size() as u32,
            op: op.code() as u32,
            kind,
            code: COMBINED,
            ..Combination::default()
        };
        Nest { all, counts, list, access, form }
    }

    /// Adds a combination, in as few regions as can number its units.
    fn add_combination(&mut self, nest: &Nest) {
        if nest.units() >= UNITS
            && let Some(halves) = nest.halves()
        {
            return halves.iter().for_each(|half| self.add_combination(half));
        }
        let mut of = Combination { target: nest.all[0], source: self.sources.len() as u64, ..nest.form };
        self.sources.extend(&nest.all[1..]);
        (of.list, of.access) = (nest.list as u8, nest.access as u8);
        for (at, &count) in nest.counts[..LOOPS - 1].iter().enumerate() {
            of.count[at] = count as u32;
            (of.multiplier[at], of.shift[at]) = divisor(count as u32);
        }
        self.units.push(nest.units() as u32);
        self.regions.push(of.region());
    }

    /// Lists every so many numbers, once for all that share them, and returns the index of the first.
    fn list_numbers(&mut self, numbers: &Arc<[u32]>, stride: usize) -> u64 {
        let key = (Arc::as_ptr(numbers).cast::<u32>() as usize, stride);
        let begin = self.numbers.len() as u64;
        match self.listed.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.numbers.extend(numbers.iter().step_by(stride));
                *new.insert(begin)
            }
        }
    }
}

impl Nest {
    fn units(&self) -> u128 {
        self.counts.iter().map(|&count| u128::from(count)).product()
    }

    /// The same in units of 16 bytes as far as possible: those, and the elements at both ends of the innermost loop.
    fn by_access(mut self) -> Vec<Self> {
        let size = u64::from(self.form.bytes);
        let is_number = self.form.kind < TYPES.len() as u32;
        if self.access == Access::Bytes || !is_number || size < 4 {
            return vec![self];
        }
        if size == WIDEST {
            if self.is_aligned(0) {
                self.access = Access::Wide;
            }
            return vec![self];
        }
        let head = (self.all[0].first.wrapping_neg() % WIDEST) / size;
        let body = self.counts[0].saturating_sub(head) * size / WIDEST;
        let is_contiguous = self.all.iter().all(|of| of.step[0] == size as i64);
        let first = self.all[0].first;
        let is_alike = first.is_multiple_of(size) && self.is_aligned(first);
        if self.list == List::Innermost || !is_contiguous || body < WORTH_ENDS || !is_alike {
            return vec![self];
        }
        let end = head + body * WIDEST / size;
        let mut wide = self.part(0, head..end);
        (wide.counts[0], wide.access) = (body, Access::Wide);
        wide.all.iter_mut().for_each(|of| of.step[0] = WIDEST as i64);
        let ends = [0..head, end..self.counts[0]].into_iter().filter(|end| !end.is_empty());
        let ends: Vec<Self> = ends.map(|end| self.part(0, end)).collect();
        std::iter::once(wide).chain(ends).collect()
    }

    /// Whether all units lie at multiples of 16 bytes from an address. Units of 16 bytes are contiguous in the innermost loop.
    fn is_aligned(&self, from: u64) -> bool {
        let from_loop = usize::from(u64::from(self.form.bytes) < WIDEST);
        self.all.iter().all(|of| {
            let steps = of.step[from_loop..].iter().fold(0, |bits, &step| bits | step as u64);
            (of.first.wrapping_sub(from) | steps).is_multiple_of(WIDEST)
        })
    }

    /// Some steps of a loop.
    fn part(&self, at: usize, steps: Range<u64>) -> Self {
        let mut part = self.clone();
        part.counts[at] = steps.end - steps.start;
        let moved =
            |of: &mut Listed| of.first = of.first.wrapping_add_signed(steps.start as i64 * of.step[at]);
        part.all.iter_mut().for_each(moved);
        part
    }

    /// Both halves of the longest loop that goes over no list.
    fn halves(&self) -> Option<[Self; 2]> {
        let listed = match self.list {
            List::None => LOOPS,
            List::Innermost => 0,
            List::Outermost => LOOPS - 1,
        };
        let at = (0..LOOPS).filter(|&at| at != listed).max_by_key(|&at| self.counts[at])?;
        let count = self.counts[at];
        (count > 1).then(|| [0..count / 2, count / 2..count].map(|steps| self.part(at, steps)))
    }
}

/// The addresses of number 0 of the target and of all sources, with all bytes checked.
fn firsts(
    gather: &Gather,
    spec: &TableSpec<'_>,
    reach: &mut impl FnMut(Address, usize) -> Result<(), DeviceError>,
) -> Result<Vec<Address>, DeviceError> {
    let target = std::iter::once((&gather.target, spec.targets, "target"));
    let sources = gather.sources.iter().map(|source| (source, spec.sources, "source"));
    target
        .chain(sources)
        .map(|(of, buffers, side)| {
            let none = DeviceError::NoBuffer { side, index: of.buffer, count: buffers.len() };
            let base = buffers.get(of.buffer).ok_or(none)?;
            let first = base.wrapping_add_signed(of.offset as i64);
            let range = reached(of, gather.steps, gather.element.size());
            reach(first.wrapping_add_signed(range.start as i64), (range.end - range.start) as usize)?;
            Ok(first)
        })
        .collect()
}

/// The bytes of elements in all steps, relative to number 0.
fn reached(of: &halocline_plan::copy::Listed, steps: usize, bytes: usize) -> Range<isize> {
    let bounds = of.numbers.iter().min().zip(of.numbers.iter().max());
    let (low, high) = bounds.map_or((0, 0), |(low, high)| (*low as isize, *high as isize));
    let (first, last) = (low * of.stride, high * of.stride);
    let beyond = (steps as isize - 1) * of.step;
    first.min(last) + beyond.min(0)..first.max(last) + beyond.max(0) + bytes as isize
}

impl Combination {
    fn region(self) -> Region {
        // SAFETY: both have the same size, as asserted above, and consist of integers without padding.
        unsafe { std::mem::transmute(self) }
    }

    /// The combination that a region stands for; `None` for loops.
    pub(super) fn of(region: &mut Region) -> Option<&mut Self> {
        let is_it = region.log_unit == COMBINED;
        // SAFETY: both have the same size, as asserted above, the same alignment, and consist of integers without padding. The result
        // borrows the region.
        is_it.then(|| unsafe { &mut *std::ptr::from_mut(region).cast::<Self>() })
    }
}
