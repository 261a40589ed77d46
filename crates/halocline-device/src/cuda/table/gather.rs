//! Elements that a table combines, as the kernel reads them: `copy/combine.cuh`.

use super::Cut;
use super::nest::{Region, UNITS, divisor};
use crate::driver::{Address, Combining, TableSpec};
use crate::error::DeviceError;
use halocline_plan::copy::Gather;
use halocline_plan::{ElementType, ReduceOp};
use std::ops::Range;

/// The code of a region's `log_unit` that makes it a [`Lists`].
pub(super) const COMBINED: u8 = 9;

/// Elements of one buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Listed {
    pub(super) first: u64,
    pub(super) stride: i64,
    pub(super) step: i64,
    /// An index into the table's numbers until the table is laid out, then their address.
    pub(super) numbers: u64,
}

/// Elements of one buffer and those that are combined with them. It takes the place of a [`Region`], and its units are elements.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lists {
    pub(super) target: Listed,
    /// An index into the table's sources until the table is laid out, then their address.
    pub(super) source: u64,
    pub(super) sources: u32,
    pub(super) op: u32,
    pub(super) kind: u32,
    pub(super) bytes: u32,
    /// The elements of the list in a step, or the steps of an element: those that neighbouring threads take.
    pub(super) inner: u32,
    pub(super) multiplier: u32,
    pub(super) shift: u32,
    pub(super) steps_inside: u32,
    pub(super) aligned: u32,
    pub(super) unused: [u32; 9],
    /// Where a region has its codes: the shifts of its loops, then [`COMBINED`].
    pub(super) codes: [u8; 8],
    pub(super) unused_end: u64,
}

const _: () = assert!(size_of::<Lists>() == size_of::<Region>() && size_of::<Listed>() == 32);
const _: () = assert!(std::mem::offset_of!(Lists, codes) == std::mem::offset_of!(Region, shift));

/// The kernel's number of a type: a position among these. Others are only replaced or cleared.
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

impl Cut {
    /// Adds what a part combines.
    pub(super) fn add_gathers(
        &mut self,
        Combining { op, gathers }: Combining<'_>,
        spec: &TableSpec<'_>,
        reach: &mut impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.combines = true;
        for gather in gathers.iter().filter(|gather| gather.elements() > 0) {
            if !op.supports(gather.element) {
                return Err(DeviceError::NoOperation { op, element: gather.element });
            }
            let lists = self.lists(op, gather, spec, reach)?;
            self.add_lists(&lists, gather.target.numbers.len(), 0..gather.steps);
        }
        Ok(())
    }

    /// The lists of elements, with all their bytes checked.
    fn lists(
        &mut self,
        op: ReduceOp,
        gather: &Gather,
        spec: &TableSpec<'_>,
        reach: &mut impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Result<Lists, DeviceError> {
        let mut listed = |of: &halocline_plan::copy::Listed, buffers: &[Address], side: &'static str| {
            let none = DeviceError::NoBuffer { side, index: of.buffer, count: buffers.len() };
            let base = buffers.get(of.buffer).ok_or(none)?;
            let first = base.wrapping_add_signed(of.offset as i64);
            let range = reached(of, gather.steps, gather.element.size());
            reach(first.wrapping_add_signed(range.start as i64), (range.end - range.start) as usize)?;
            let (stride, step, numbers) = (of.stride as i64, of.step as i64, self.list_numbers(&of.numbers));
            Ok(Listed { first, stride, step, numbers })
        };
        let target = listed(&gather.target, spec.targets, "target")?;
        let sources: Vec<Listed> = gather
            .sources
            .iter()
            .map(|source| listed(source, spec.sources, "source"))
            .collect::<Result<_, DeviceError>>()?;
        let (kind, alignment) = kind_of(gather.element);
        let bits = |of: &Listed| of.first | of.stride as u64 | of.step as u64;
        let all = sources.iter().chain([&target]).fold(0, |all, of| all | bits(of));
        let source = self.sources.len() as u64;
        self.sources.extend(&sources);
        Ok(Lists {
            target,
            source,
            sources: sources.len() as u32,
            op: op.code() as u32,
            kind,
            bytes: gather.element.size() as u32,
            steps_inside: (target.step.unsigned_abs() < target.stride.unsigned_abs()).into(),
            aligned: all.is_multiple_of(alignment).into(),
            codes: [0, 0, 0, 0, COMBINED, 0, 0, 0],
            ..Lists::default()
        })
    }

    /// Adds lists in some steps, as few regions as can number their units.
    fn add_lists(&mut self, lists: &Lists, len: usize, steps: Range<usize>) {
        let count = steps.len();
        if (len as u128 * count as u128) >= UNITS && count > 1 {
            let middle = steps.start + count / 2;
            self.add_lists(lists, len, steps.start..middle);
            return self.add_lists(lists, len, middle..steps.end);
        }
        let moved =
            |of: Listed| Listed { first: of.first.wrapping_add_signed(steps.start as i64 * of.step), ..of };
        let mut lists = Lists { target: moved(lists.target), ..*lists };
        if steps.start > 0 {
            let first = lists.source as usize;
            let sources: Vec<Listed> =
                self.sources[first..first + lists.sources as usize].iter().copied().map(moved).collect();
            lists.source = self.sources.len() as u64;
            self.sources.extend(sources);
        }
        lists.inner = if lists.steps_inside == 1 { count } else { len } as u32;
        let (multiplier, shift) = divisor(lists.inner);
        (lists.multiplier, lists.shift) = (multiplier, shift.into());
        self.units.push((len * count) as u32);
        self.regions.push(lists.region());
    }

    /// Lists numbers, once for all that share them, and returns the index of the first.
    fn list_numbers(&mut self, numbers: &std::sync::Arc<[u32]>) -> u64 {
        let key = std::sync::Arc::as_ptr(numbers).cast::<u32>() as usize;
        let begin = self.numbers.len() as u64;
        match self.listed.entry(key) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                self.numbers.extend_from_slice(numbers);
                *new.insert(begin)
            }
        }
    }
}

/// The bytes of elements in all steps, relative to number 0.
fn reached(of: &halocline_plan::copy::Listed, steps: usize, bytes: usize) -> Range<isize> {
    let bounds = of.numbers.iter().min().zip(of.numbers.iter().max());
    let (low, high) = bounds.map_or((0, 0), |(low, high)| (*low as isize, *high as isize));
    let (first, last) = (low * of.stride, high * of.stride);
    let beyond = (steps as isize - 1) * of.step;
    first.min(last) + beyond.min(0)..first.max(last) + beyond.max(0) + bytes as isize
}

impl Lists {
    fn region(self) -> Region {
        // SAFETY: both have the same size, as asserted above, and consist of integers without padding.
        unsafe { std::mem::transmute(self) }
    }

    /// The lists that a region stands for; `None` for loops.
    pub(super) fn of(region: &mut Region) -> Option<&mut Self> {
        let is_it = region.log_unit == COMBINED;
        // SAFETY: both have the same size, as asserted above, the same alignment, and consist of integers without padding. The result
        // borrows the region.
        is_it.then(|| unsafe { &mut *std::ptr::from_mut(region).cast::<Self>() })
    }
}
