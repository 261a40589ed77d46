//! The memory accesses of a model around an exchange, and the copying pass.

use crate::error::CommandError;
use halocline::plan::copy::{CellLayout, CopyOp, End, copy_op};
use halocline::{Field, Pattern, ReduceOp};
use halocline_device::host::{self, Combine, Source};
use std::hint::black_box;

/// The cells that an exchange reads and fills, as contiguous blocks of memory in ascending order, and the same copies within this rank's
/// own memory.
///
/// The caller holds the fields that the blocks point into, and calls no method while an exchange of them is in flight.
pub(super) struct Regions {
    /// Elements have 8 bytes, otherwise 4.
    wide: bool,
    owned: Vec<(*mut u8, usize)>,
    halo: Vec<(*mut u8, usize)>,
    /// All copies into this rank's halo, from its own memory.
    pub(super) ops: Vec<CopyOp>,
    /// The same with both ends swapped.
    reversed: Vec<CopyOp>,
    bases: Vec<*mut u8>,
    sources: Vec<*const u8>,
    /// Bytes that this rank's halo takes up.
    pub(super) bytes: usize,
}

impl Regions {
    pub(super) fn new(pattern: &Pattern, fields: &[Field]) -> Result<Self, CommandError> {
        let bases: Vec<*mut u8> = fields.iter().map(|field| field.base().as_ptr()).collect();
        let mut this = Self {
            wide: fields.iter().all(|field| field.layout().element().size() == 8),
            owned: Vec::new(),
            halo: Vec::new(),
            ops: Vec::new(),
            reversed: Vec::new(),
            sources: bases.iter().map(|base| base.cast_const()).collect(),
            bases,
            bytes: 0,
        };
        let plan = pattern.plan();
        for (number, field) in fields.iter().enumerate() {
            let layout = CellLayout::new(field.layout(), &plan.domains[0].1)?;
            let end = End::Field(number);
            let within = |op: &CopyOp| {
                let span = field.layout().span();
                let (reads, writes) = op.reach();
                [reads, writes].iter().all(|r| r.is_empty() || (r.start >= span.start && r.end <= span.end))
            };
            for peer in &plan.peers {
                for transfer in &peer.sends {
                    // `note` uses the source only: the target is on the peer.
                    let op = copy_op(transfer, (end, &layout), (End::Message(0, 0), &layout));
                    this.note(&op, number, true, false);
                }
            }
            for (transfer, own) in (plan.peers.iter().flat_map(|peer| &peer.receives).map(|t| (t, false)))
                .chain(plan.local.iter().map(|t| (t, true)))
            {
                let op = copy_op(transfer, (end, &layout), (end, &layout));
                if !within(&op) {
                    return Err(CommandError::failed(format!(
                        "the copying pass would leave the memory of field {number}; use a grid with equal parts"
                    )));
                }
                this.note(&op, number, own, true);
                this.bytes += op.bytes();
                this.ops.push(op);
            }
        }
        this.reversed = this.ops.iter().map(CopyOp::reversed).collect();
        merge(&mut this.owned);
        merge(&mut this.halo);
        Ok(this)
    }

    fn note(&mut self, op: &CopyOp, field: usize, owned: bool, halo: bool) {
        let base = self.bases[field];
        op.for_each_block(|source, target, len| {
            if owned {
                self.owned.push((base.wrapping_offset(source), len));
            }
            if halo {
                self.halo.push((base.wrapping_offset(target), len));
            }
        });
    }

    /// Copies the regions of an exchange once, with the library's copy loops.
    pub(super) fn copy(&self) {
        // SAFETY: `new` has checked that all operations stay within the fields, and owned and halo cells are disjoint. No exchange is
        // in flight, so that no other thread or rank accesses them.
        unsafe { host::copy(&self.ops, &self.sources, &self.bases) };
    }

    /// The reverse of that: adds the halo to the owned cells, and clears it, with the library's loops.
    pub(super) fn combine(&self) {
        for op in &self.reversed {
            let Some(combine) = Combine::of(ReduceOp::Sum, op.element, Source::Clear) else { continue };
            // SAFETY: `new` has checked that all operations stay within the fields, which may be written, and owned and halo cells are
            // disjoint. Their elements are those of the operations. No exchange is in flight, so that no other thread or rank
            // accesses them.
            unsafe { combine.run(op, self.bases[op.source], self.bases[op.target]) };
        }
    }

    /// Rewrites the owned cells that peers read; the halo, too, if both will be read.
    pub(super) fn rewrite(&self, has_halo: bool) {
        if self.wide {
            rewrite::<u64>(&self.owned)
        } else {
            rewrite::<u32>(&self.owned)
        }
        for &(start, len) in self.halo.iter().filter(|_| has_halo) {
            // SAFETY: blocks lie within fields whose elements are plain numbers, and no exchange is in flight. The bytes are those of
            // a normal number of every floating-point type.
            unsafe { start.write_bytes(black_box(0x3f), len) };
        }
    }

    /// Reads the halo; the owned cells that peers read, too, if both were rewritten.
    pub(super) fn read(&self, has_owned: bool) {
        let owned = if has_owned { &self.owned[..] } else { &[] };
        for blocks in [&self.halo[..], owned] {
            black_box(if self.wide { read::<u64>(blocks) } else { read::<u32>(blocks) });
        }
    }
}

/// Sorts blocks and joins those that touch or overlap.
fn merge(blocks: &mut Vec<(*mut u8, usize)>) {
    blocks.sort_unstable();
    let mut merged: Vec<(*mut u8, usize)> = Vec::with_capacity(blocks.len());
    for &(start, len) in blocks.iter() {
        match merged.last_mut() {
            Some((first, before)) if start.addr() <= first.addr() + *before => {
                *before = (*before).max(start.addr() + len - first.addr());
            }
            _ => merged.push((start, len)),
        }
    }
    *blocks = merged;
}

/// The integer type in which cells are rewritten and read.
trait Word: Copy {
    fn next(self, by: u64) -> Self;
    fn widen(self) -> u64;
}

impl Word for u64 {
    fn next(self, by: u64) -> Self {
        self.wrapping_add(by)
    }

    fn widen(self) -> u64 {
        self
    }
}

impl Word for u32 {
    fn next(self, by: u64) -> Self {
        self.wrapping_add(by as u32)
    }

    fn widen(self) -> u64 {
        self.into()
    }
}

fn rewrite<W: Word>(blocks: &[(*mut u8, usize)]) {
    let by = black_box(1);
    for &(start, len) in blocks {
        // SAFETY: blocks lie within fields whose elements are plain numbers of this size, and no exchange is in flight.
        let words = unsafe { std::slice::from_raw_parts_mut(start.cast::<W>(), len / size_of::<W>()) };
        words.iter_mut().for_each(|word| *word = word.next(by));
    }
}

fn read<W: Word>(blocks: &[(*mut u8, usize)]) -> u64 {
    let mut sum = 0u64;
    for &(start, len) in blocks {
        // SAFETY: blocks lie within fields whose elements are plain numbers of this size, and no exchange is in flight.
        let words =
            unsafe { std::slice::from_raw_parts(start.cast_const().cast::<W>(), len / size_of::<W>()) };
        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(word.widen()));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline::{Communicator, ElementType, Layout, UnstructuredDomain};

    #[test]
    fn parts_of_different_sizes_have_no_copying_pass() {
        let errors = std::thread::scope(|scope| {
            let rank = |comm: Communicator| {
                // Rank 0 has two cells, and rank 1 sends it the last one of nine.
                let (own, halo) = if comm.rank() == 0 { (0..1, 9) } else { (1..10, 0) };
                let own: Vec<u64> = own.collect();
                let layout = Layout::c_order(ElementType::F64, &[own.len() + 1]).unwrap();
                let domain = UnstructuredDomain::new(comm.rank() as u64, own, vec![halo]);
                let pattern = Pattern::unstructured(&comm, &[domain]).unwrap();
                let field = Field::allocate(&comm, layout).unwrap();
                Regions::new(&pattern, &[field]).err().map(|error| error.to_string())
            };
            let ranks = Communicator::threads(2).into_iter().map(|comm| scope.spawn(move || rank(comm)));
            ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
        });
        let refused = "the copying pass would leave the memory of field 0; use a grid with equal parts";
        assert_eq!(errors, [Some(refused.to_owned()), None]);
    }
}
