//! Visits the cells of a region one by one, in the plainest way: the checks must not depend on the copy loops that they check.

use halocline_plan::copy::CellLayout;
use halocline_plan::{AxisMap, BoxCells, Cells, ElementType, Transfer};

/// Where a checksum begins (FNV-1a).
pub(super) const SUM_OF_NOTHING: u64 = 0xcbf2_9ce4_8422_2325;

/// The checksum with one more byte.
pub(super) fn add_byte(sum: u64, byte: u8) -> u64 {
    (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
}

/// The cells of one transfer in one field, in the order in which both ends count them.
#[derive(Clone, Copy)]
pub(crate) struct Region<'a> {
    pub(super) cells: &'a Cells,
    pub(super) layout: &'a CellLayout,
    /// Address of element (0, 0, …) or, of packed cells, of the first.
    pub(super) base: *mut u8,
    /// The cells lie one after the other, without gaps.
    is_packed: bool,
    /// How their order follows from that of the cells that they fill.
    map: AxisMap,
    /// Bytes from one sign bit to the next, where they fill cells with the opposite sign.
    signs: Option<usize>,
}

impl<'a> Region<'a> {
    /// Of a field whose element (0, 0, …) lies at `base`.
    pub(super) fn new(cells: &'a Cells, layout: &'a CellLayout, base: *mut u8) -> Self {
        Self { cells, layout, base, is_packed: false, map: AxisMap::IDENTITY, signs: None }
    }

    /// The source of a transfer: its cells are counted, and its values taken, as those that they fill.
    pub(super) fn source(transfer: &'a Transfer, layout: &'a CellLayout, base: *mut u8) -> Self {
        let signs = layout.element.sign_distance().filter(|_| transfer.is_negated);
        Self { map: transfer.map, signs, ..Self::new(&transfer.source, layout, base) }
    }

    /// The same cells, packed at another place.
    pub(super) fn packed(&self, base: *mut u8) -> Self {
        Self { base, is_packed: true, ..*self }
    }

    /// Bytes of the cells.
    pub(super) fn bytes(&self) -> usize {
        self.cells.count() * self.layout.bytes_per_cell()
    }

    /// Calls `visit` with the byte offset of every cell and its position: coordinates from the domain's first
    /// owned cell, or its local number.
    fn for_each_cell(&self, mut visit: impl FnMut(isize, &[i64])) {
        let bytes = self.layout.bytes_per_cell() as isize;
        self.for_each_in_field(|offset, number, place| {
            visit(if self.is_packed { number as isize * bytes } else { offset }, place);
        });
    }

    /// The same, with the number of each cell in the order of the region itself, in which it is packed.
    fn for_each_in_field(&self, mut visit: impl FnMut(isize, usize, &[i64])) {
        let axes = &self.layout.axes;
        match self.cells {
            Cells::Box(cells) => {
                let mut at = cells.low.clone();
                for filled in 0..cells.extent.iter().product() {
                    self.find(cells, filled, &mut at);
                    let number = at.iter().zip(&cells.low).zip(&cells.extent);
                    let number =
                        number.fold(0, |sum, ((at, low), extent)| sum * extent + (at - low) as usize);
                    let offsets =
                        at.iter().zip(axes).map(|(at, axis)| (axis.origin + at) as isize * axis.stride);
                    visit(offsets.sum(), number, &at);
                }
            }
            Cells::Runs(runs) => {
                for (number, cell) in runs.iter().flat_map(|run| run.start..run.start + run.len).enumerate() {
                    let cell = i64::from(cell);
                    visit((axes[0].origin + cell) as isize * axes[0].stride, number, &[cell]);
                }
            }
        }
    }

    /// The cell that corresponds to number `filled` of those that the region fills, in row-major order.
    fn find(&self, cells: &BoxCells, filled: usize, at: &mut [i64]) {
        let mut rest = filled;
        for axis in (0..at.len()).rev() {
            let along = if at.len() == 2 { self.map.source_axis(axis) } else { axis };
            let extent = cells.extent[along];
            let step = rest % extent;
            rest /= extent;
            at[along] =
                cells.low[along] + (if self.map.is_flipped(axis) { extent - 1 - step } else { step }) as i64;
        }
    }

    /// Byte offset of every element of a cell from the cell's.
    fn elements(&self) -> Vec<isize> {
        if self.is_packed {
            return (0..self.layout.bytes_per_cell() as isize).step_by(self.layout.element.size()).collect();
        }
        let extend = |offsets: Vec<isize>, &(extent, stride): &(usize, isize)| {
            let steps = |offset: isize| (0..extent as isize).map(move |step| offset + step * stride);
            offsets.into_iter().flat_map(steps).collect()
        };
        self.layout.extra.iter().fold(vec![0], extend)
    }

    fn address(&self, cell: isize, element: isize) -> *mut u8 {
        self.base.wrapping_offset(cell).wrapping_offset(element)
    }

    /// A number that changes when any byte of the region does.
    ///
    /// # Safety
    /// The region lies in memory that can be read, and no thread writes it meanwhile.
    pub(super) unsafe fn checksum(&self) -> u64 {
        let (elements, size) = (self.elements(), self.layout.element.size());
        let signs = self.signs.unwrap_or(size + 1);
        let mut sum = SUM_OF_NOTHING;
        self.for_each_cell(|cell, _| {
            for &element in &elements {
                // SAFETY: the caller promises that the region can be read and that no thread writes it meanwhile. An
                // element has at most 16 bytes.
                for (at, byte) in (1..).zip(unsafe { bytes_of(self.address(cell, element), size) }) {
                    let sign: u8 = if usize::is_multiple_of(at, signs) { 0x80 } else { 0 };
                    sum = add_byte(sum, byte ^ sign);
                }
            }
        });
        sum
    }

    /// Fills every element with the fill pattern of `epoch`.
    ///
    /// # Safety
    /// The region lies in memory that can be written, and no other thread accesses it meanwhile.
    pub(super) unsafe fn fill(&self, epoch: u64) {
        let (elements, pattern) = (self.elements(), fill_pattern(self.layout.element, epoch));
        let size = self.layout.element.size();
        self.for_each_cell(|cell, _| {
            for &element in &elements {
                // SAFETY: the caller promises that the region can be written and that no other thread accesses it
                // meanwhile. An element has at most the 16 bytes of `pattern`.
                unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), self.address(cell, element), size) };
            }
        });
    }

    /// Changes one byte of its first cell.
    ///
    /// # Safety
    /// The region has a cell, lies in memory that can be written, and no other thread accesses it meanwhile.
    #[cfg(test)]
    pub(super) unsafe fn spoil(&self) {
        let mut first = None;
        self.for_each_cell(|cell, _| first = first.or(Some(cell)));
        let first = self.address(first.expect("a cell"), 0);
        // SAFETY: the caller promises that the region has a cell, can be written, and that no other thread accesses it
        // meanwhile.
        unsafe { *first ^= 1 };
    }

    /// How many cells hold nothing but the fill pattern of `epoch`, and where the first of them is.
    ///
    /// # Safety
    /// The region lies in memory that can be read, and no thread writes it meanwhile.
    pub(super) unsafe fn unwritten(&self, epoch: u64) -> (usize, Option<Vec<i64>>) {
        let (elements, pattern) = (self.elements(), fill_pattern(self.layout.element, epoch));
        let size = self.layout.element.size();
        let (mut count, mut first) = (0, None);
        self.for_each_cell(|cell, place| {
            let is_pattern = |&element: &isize| {
                // SAFETY: the caller promises that the region can be read and that no thread writes it meanwhile. An
                // element has at most 16 bytes.
                unsafe { bytes_of(self.address(cell, element), size) }.eq(pattern[..size].iter().copied())
            };
            if !elements.is_empty() && elements.iter().all(is_pattern) {
                count += 1;
                first.get_or_insert_with(|| place.to_vec());
            }
        });
        (count, first)
    }

    /// The cells, as text.
    pub(super) fn describe(&self) -> String {
        match self.cells {
            Cells::Box(cells) => {
                let spans = cells.low.iter().zip(&cells.extent);
                let spans = spans.map(|(&low, &extent)| format!("{low}..{}", low + extent as i64));
                format!("cells [{}]", spans.collect::<Vec<_>>().join(", "))
            }
            Cells::Runs(runs) => {
                let first = runs.first().map_or(0, |run| run.start);
                format!("{} cells, the first of them {first}", self.cells.count())
            }
        }
    }
}

/// # Safety
/// `at` points to `size` bytes that can be read, 16 at most, which no thread writes meanwhile.
unsafe fn bytes_of(at: *const u8, size: usize) -> impl Iterator<Item = u8> {
    let mut bytes = [0; 16];
    // SAFETY: the caller promises that `size` bytes can be read and are at most the 16 of `bytes`, which is a local
    // array.
    unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), size) };
    bytes.into_iter().take(size)
}

/// The fill pattern of an epoch: a valid value of the element type that differs from that of the epoch before. For floating-point
/// types it is a NaN, so that all results computed from it are NaN.
pub(super) fn fill_pattern(element: ElementType, epoch: u64) -> [u8; 16] {
    let f64 = (0x7ff8_dead_0000_0000 | (epoch & 0xffff_ffff)).to_le_bytes();
    let f32 = (0x7fc0_0000 | (epoch & 0x3f_ffff) as u32).to_le_bytes();
    let any = (0xa5a5_a5a5_a5a5_a5a5 ^ epoch.wrapping_mul(0x0101_0101_0101_0101)).to_le_bytes();
    let mut bytes = [0; 16];
    let mut fill = |pattern: &[u8]| bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(b, &p)| *b = p);
    match element {
        ElementType::F64 | ElementType::C128 => fill(&f64),
        ElementType::F32 | ElementType::C64 => fill(&f32),
        ElementType::F16 => fill(&(0x7e00 | (epoch & 0xff) as u16).to_le_bytes()),
        ElementType::Bf16 => fill(&(0x7fc0 | (epoch & 0x3f) as u16).to_le_bytes()),
        ElementType::Bool => fill(&[(epoch & 1) as u8]),
        _ => fill(&any),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::copy::AxisLayout;
    use halocline_plan::{BoxCells, Run};

    const TYPES: [ElementType; 10] = [
        ElementType::Bool,
        ElementType::U8,
        ElementType::I16,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::U64,
        ElementType::F64,
        ElementType::C128,
        ElementType::Opaque(5),
    ];

    /// Two axes of 4 and 5 cells with one halo cell before them, three elements in each cell.
    fn layout(element: ElementType) -> (CellLayout, usize) {
        let size = element.size() as isize;
        let axis = |stride, extent| AxisLayout { stride, origin: 1, extent };
        let axes = vec![axis(15 * size, 4), axis(3 * size, 5)];
        (CellLayout { element, units: 1, name: None, axes, extra: vec![(3, size)] }, 60 * element.size())
    }

    #[test]
    fn every_byte_of_a_region_counts_and_no_other() {
        let cells = Cells::Box(BoxCells { low: vec![-1, 1], extent: vec![2, 2] });
        for element in TYPES {
            let (layout, bytes) = layout(element);
            let mut memory: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let base = memory.as_mut_ptr();
            let region = Region::new(&cells, &layout, base);
            // SAFETY: `memory` has as many bytes as the layout, and this thread alone knows it.
            let before = unsafe { region.checksum() };
            let mut counted = 0;
            for byte in 0..bytes {
                // SAFETY: `memory` has as many bytes as the layout, and this thread alone knows it.
                let changed = unsafe {
                    *base.add(byte) ^= 1;
                    let changed = region.checksum() != before;
                    *base.add(byte) ^= 1;
                    changed
                };
                let (row, column) = (byte / element.size() / 15, byte / element.size() / 3 % 5);
                assert_eq!(changed, row < 2 && (2..4).contains(&column), "{element}, byte {byte}");
                counted += usize::from(changed);
            }
            assert_eq!(counted, 4 * 3 * element.size());
        }
    }

    #[test]
    fn the_fill_pattern_is_found_again_in_its_own_epoch_alone() {
        let cells = Cells::Runs([Run { start: 7, len: 2 }, Run { start: 2, len: 1 }].into());
        for element in TYPES {
            let size = element.size() as isize;
            let axes = vec![AxisLayout { stride: 2 * size, origin: 0, extent: 10 }];
            let layout = CellLayout { element, units: 1, name: None, axes, extra: vec![(2, size)] };
            let mut memory = vec![7u8; 20 * element.size()];
            let region = Region::new(&cells, &layout, memory.as_mut_ptr());
            for epoch in 1..5 {
                // SAFETY: `memory` has as many bytes as the layout, and this thread alone knows it.
                unsafe {
                    assert_eq!(region.unwritten(epoch), (0, None), "{element}");
                    region.fill(epoch);
                    assert_eq!(region.unwritten(epoch), (3, Some(vec![7])), "{element}");
                    // One byte of one element.
                    *region.base.add(7 * 2 * element.size()) ^= 1;
                    assert_eq!(region.unwritten(epoch), (2, Some(vec![8])), "{element}");
                }
            }
            assert!(memory[..2 * 2 * element.size()].iter().all(|&byte| byte == 7), "{element}");
        }
    }

    #[test]
    fn the_fill_pattern_shows_in_what_is_computed() {
        for epoch in [1, 2, u64::MAX] {
            let double = fill_pattern(ElementType::F64, epoch);
            assert!(f64::from_le_bytes(double[..8].try_into().unwrap()).is_nan());
            let single = fill_pattern(ElementType::F32, epoch);
            assert!(f32::from_le_bytes(single[..4].try_into().unwrap()).is_nan());
            assert!(fill_pattern(ElementType::Bool, epoch)[0] <= 1);
        }
    }
}
