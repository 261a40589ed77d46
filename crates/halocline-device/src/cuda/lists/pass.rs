//! The launches that make an index list: `split.cuh` has the same structure and explains the passes.

use crate::driver::Address;
use crate::lists::{Finds, Found, ListSpec};
use halocline_plan::ElementType;

/// Constants of the kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) threads: u32,
    /// Items of a thread in a tile.
    pub(super) items: u32,
    /// Bits of a digit.
    pub(super) digit: u32,
}

/// [`Split::chosen`]: all ranks but one. 0 stands for those listed, 1 for a range.
const OTHERS: u32 = 2;

/// The most bins of a pass.
const BINS: usize = 256;

impl Shape {
    pub(super) const GPU: Self = Self { threads: 512, items: 8, digit: 8 };

    fn bins(&self) -> usize {
        1 << self.digit
    }
}

/// Blocks for each multiprocessor, if there are as many tiles.
const BLOCKS: u64 = 8;

/// Alignment of the arrays of a scratch.
const ALIGN: usize = 256;

/// The argument of all kernels.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    pub(super) keys: u64,
    pub(super) count: u64,
    pub(super) buffers: [u64; 2],
    pub(super) target: u64,
    pub(super) capacity: u64,
    pub(super) counts: u64,
    pub(super) totals: u64,
    pub(super) masks: u64,
    pub(super) start: u64,
    pub(super) words: u64,
    pub(super) size: u64,
    pub(super) flip: u64,
    pub(super) parts: u32,
    pub(super) bins: u32,
    pub(super) bits: u32,
    pub(super) pass: u32,
    pub(super) key_bytes: u32,
    pub(super) index_bytes: u32,
    pub(super) chosen: u32,
    pub(super) unused: u32,
    pub(super) ranks: [u32; BINS],
}

const _: () = assert!(size_of::<Split>() == 13 * 8 + 8 * 4 + BINS * 4);

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// What it does, of keys of 4 or 8 bytes.
    Of(&'static str, usize),
    Scan,
}

impl Kernel {
    const NAMES: [&'static str; 9] = [
        "count_owned",
        "place_owned",
        "flag_owned",
        "keep_owned",
        "bits",
        "count_sorted",
        "place_sorted",
        "flag_first",
        "keep_first",
    ];

    pub(super) const ALL: [Self; 19] = {
        let mut all = [Self::Scan; 19];
        let mut at = 0;
        while at < 18 {
            all[at] = Self::Of(Self::NAMES[at / 2], 4 + at % 2 * 4);
            at += 1;
        }
        all
    };

    pub(super) fn name(self) -> String {
        match self {
            Self::Of(what, bytes) => format!("halocline_{what}_{bytes}"),
            Self::Scan => "halocline_scan".to_owned(),
        }
    }

    /// Its place in [`Kernel::ALL`].
    pub(super) fn number(self) -> usize {
        Self::ALL.iter().position(|kernel| *kernel == self).unwrap_or(Self::ALL.len() - 1)
    }
}

/// A launch of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    pub(super) kernel: Kernel,
    pub(super) blocks: u32,
    pub(super) split: Split,
}

/// The sizes of an index list's passes, and where their arrays lie in the scratch.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    shape: Shape,
    parts: u32,
    pub(super) key_bytes: usize,
    pub(super) target_bytes: usize,
    /// Passes of a sort, or of 256 ranks each.
    passes: usize,
    /// Offsets in the scratch; the words of the results lie at 0.
    starts: usize,
    totals: usize,
    counts: usize,
    masks: usize,
    buffers: [usize; 2],
    end: usize,
}

impl Plan {
    /// `bytes`: those of the keys and of the target.
    pub(super) fn new(spec: &ListSpec<'_>, bytes: [usize; 2], shape: &Shape, multiprocessors: u32) -> Self {
        let tiles = spec.count.div_ceil(u64::from(shape.threads * shape.items));
        let parts = tiles.min(BLOCKS * u64::from(multiprocessors)).max(1) as u32;
        let (passes, buffer) = match spec.finds {
            Finds::Owned { ranks, .. } => (ranks.len().div_ceil(shape.bins()).max(1), 0),
            Finds::Halo { .. } => (1, 0),
            Finds::Unique => (spec.key.size() * 8 / shape.digit as usize, bytes[0]),
        };
        let mut end = 0;
        let mut take = |bytes: usize| {
            let at = end;
            end = (at + bytes).next_multiple_of(ALIGN);
            at
        };
        // Two more for the bits of a sort.
        take(8 * (spec.finds.words() + 2));
        let starts = take(8 * (passes + 1));
        let totals = take(8 * shape.bins());
        let counts = take(8 * shape.bins() * parts as usize);
        let masks = take(tiles as usize * (shape.threads * shape.items / 8) as usize);
        let buffers = [take(buffer), take(buffer)];
        let shape = *shape;
        Self {
            shape,
            parts,
            key_bytes: bytes[0],
            target_bytes: bytes[1],
            passes,
            starts,
            totals,
            counts,
            masks,
            buffers,
            end,
        }
    }

    /// Bytes of the scratch.
    pub(super) fn scratch(&self) -> usize {
        self.end
    }

    /// Bytes at its begin that are zero before the first launch.
    pub(super) fn cleared(&self) -> usize {
        self.totals
    }

    /// The launches, in order.
    pub(super) fn launches(&self, spec: &ListSpec<'_>) -> Vec<Launch> {
        if spec.count == 0 {
            return Vec::new();
        }
        match spec.finds {
            Finds::Owned { ranks, size, index } => self.owned(spec, ranks, (size, index.size() as u32)),
            Finds::Halo { rank, size, index } => self.halo(spec, rank, (size, index.size() as u32)),
            Finds::Unique => self.unique(spec),
        }
    }

    fn split(&self, spec: &ListSpec<'_>) -> Split {
        let at = |offset: usize| spec.scratch + offset as Address;
        let sign = match spec.key {
            ElementType::I32 => 1 << 31,
            ElementType::I64 => 1 << 63,
            _ => 0,
        };
        Split {
            keys: spec.keys,
            count: spec.count,
            buffers: self.buffers.map(at),
            target: spec.target,
            capacity: spec.capacity,
            counts: at(self.counts),
            totals: at(self.totals),
            masks: at(self.masks),
            start: at(self.starts),
            words: at(0),
            size: 0,
            flip: sign,
            parts: self.parts,
            bins: self.shape.bins() as u32,
            bits: self.shape.digit,
            pass: 0,
            key_bytes: 0,
            index_bytes: 0,
            chosen: 0,
            unused: 0,
            ranks: [0; BINS],
        }
    }

    /// The kernels of a pass of owners; with one bin they read the keys once.
    fn kernels_of(key: usize, bins: u32) -> [Kernel; 2] {
        let names = if bins == 1 { ["flag_owned", "keep_owned"] } else { ["count_owned", "place_owned"] };
        names.map(|name| Kernel::Of(name, key))
    }

    fn pass(&self, [count, place]: [Kernel; 2], split: Split) -> [Launch; 3] {
        let of = |kernel, blocks| Launch { kernel, blocks, split };
        [of(count, self.parts), of(Kernel::Scan, split.bins), of(place, self.parts)]
    }

    fn halo(&self, spec: &ListSpec<'_>, rank: u32, (size, index_bytes): (u64, u32)) -> Vec<Launch> {
        let (key, mut split) = (spec.key.size(), self.split(spec));
        split.ranks[0] = rank;
        (split.bins, split.bits, split.chosen) = (1, 0, OTHERS);
        split.totals = split.words + 8 * Found::COUNTS as u64;
        (split.size, split.index_bytes, split.key_bytes) = (size, index_bytes, key as u32);
        self.pass(Self::kernels_of(key, 1), split).to_vec()
    }

    /// Without ranks the owners are checked all the same.
    fn owned(&self, spec: &ListSpec<'_>, ranks: &[u32], (size, index_bytes): (u64, u32)) -> Vec<Launch> {
        let key = spec.key.size();
        let of_pass = |pass: usize| {
            let rest = &ranks[ranks.len().min(pass * self.shape.bins())..];
            let ranks = &rest[..rest.len().min(self.shape.bins())];
            let mut split = self.split(spec);
            split.ranks[..ranks.len()].copy_from_slice(ranks);
            // A bin without ranks is empty: its counts are not asked for.
            let is_empty = ranks.is_empty();
            if is_empty {
                split.ranks[0] = u32::MAX;
            }
            split.bins = ranks.len().max(1) as u32;
            split.bits = split.bins.next_power_of_two().trailing_zeros();
            split.chosen = u32::from(ranks.windows(2).all(|pair| pair[1] == pair[0] + 1));
            split.totals = match is_empty {
                true => split.totals,
                false => split.words + 8 * (Found::COUNTS + pass * self.shape.bins()) as u64,
            };
            split.start += 8 * pass as u64;
            (split.size, split.index_bytes, split.key_bytes) = (size, index_bytes, key as u32);
            self.pass(Self::kernels_of(key, split.bins), split)
        };
        (0..self.passes).flat_map(of_pass).collect()
    }

    fn unique(&self, spec: &ListSpec<'_>) -> Vec<Launch> {
        let (key, split) = (spec.key.size(), self.split(spec));
        let bits = Launch { kernel: Kernel::Of("bits", key), blocks: self.parts, split };
        let sorts = (0..self.passes).flat_map(|pass| {
            let kernels = [Kernel::Of("count_sorted", key), Kernel::Of("place_sorted", key)];
            let mut split = split;
            split.pass = pass as u32;
            self.pass(kernels, split)
        });
        let mut last = split;
        (last.pass, last.bins, last.bits) = (self.passes as u32, 1, 0);
        last.totals = split.words + 8 * Found::COUNTS as u64;
        let first = self.pass([Kernel::Of("flag_first", key), Kernel::Of("keep_first", key)], last);
        std::iter::once(bits).chain(sorts).chain(first).collect()
    }
}
