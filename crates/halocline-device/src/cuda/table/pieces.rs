//! How the work of a table is split into pieces, and pieces are distributed over blocks.

use super::{Copies, Cut, THREADS, Tied};
use crate::tuning::Tuning;
use std::cmp::Reverse;
use std::iter::once;
use std::ops::Range;

/// Minimum units of a piece; [`Tuning::item`] is the maximum. The minimum gives every thread several
/// accesses in flight; the maximum keeps the last pieces from occupying few multiprocessors (half and twice
/// the value cost up to a tenth on an H200).
const PIECE: u64 = THREADS as u64;
/// Pieces longer than this are a multiple of it, so each thread has an even number of accesses.
const LONG: u64 = 2 * THREADS as u64;
/// Blocks of a multiprocessor that run at a time, as in the kernel's launch bounds.
const RESIDENT: u64 = 2;

/// Units of a region that one block moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) region: usize,
    pub(super) first: u32,
    pub(super) units: u32,
    /// The next piece of the block; an index into `later`.
    pub(super) next: Option<usize>,
    /// The first piece of the part that the block executes next; an index into `following`.
    pub(super) then: Option<usize>,
}

/// The first piece of a block, in a part.
#[derive(Debug, Clone, Copy)]
enum Head {
    /// An index into [`Cut::pieces`].
    OfBlock(usize),
    /// An index into [`Cut::following`].
    Following(usize),
}

impl Cut {
    pub(super) fn cut_parts(&mut self, parts: &[Copies], multiprocessors: u64, tuning: &Tuning) {
        let most = u64::from(tuning.item);
        let all = (parts.iter().map(|copies| copies.units).sum(), u64::from(tuning.items) * multiprocessors);
        let blocks_of = |percent: u32| (multiprocessors * u64::from(percent) / 100).max(1);
        let is_beside = parts.iter().any(|copies| copies.beside && copies.waits);
        let carriers = blocks_of(if is_beside { tuning.waiting.min(tuning.beside) } else { tuning.waiting });
        let is_tied = |copies: &&Copies| copies.waits || copies.part.raises > 0;
        let tied: Vec<&Copies> = parts.iter().filter(is_tied).collect();
        // Beside work within the rank, parts that only raise flags leave it as much space as parts that wait do: their stores to a peer
        // take their time anyway. Otherwise they have all blocks that run at a time, but for the one of parts without copies.
        let packers = if tied.len() < parts.len() { carriers } else { RESIDENT * multiprocessors - 1 };
        let units_of = |waits: bool| -> u64 {
            tied.iter().filter(|copies| copies.waits == waits).map(|copies| copies.units).sum()
        };
        let (waiting, packing) = ((carriers, units_of(true)), (packers, units_of(false)));
        // The first pieces of the blocks that execute the parts in hand: in `pieces`, or in `following`.
        let mut heads: Vec<Head> = Vec::new();
        for (at, copies) in tied.iter().enumerate() {
            let Copies { part, early, waits, announced, regions, units, .. } = copies;
            let follows = copies.follows && !heads.is_empty();
            // Parts that wait share a number of blocks, each with about one item; parts that do not share another. So do all that follow one.
            let followers = tied[at + 1..].iter().take_while(|next| next.follows);
            let together: u64 = once(copies).chain(followers).map(|copies| copies.units).sum();
            let (blocks, of_units) = if *waits { waiting } else { packing };
            // A single block has no other blocks to count.
            let share = match regions.len() {
                _ if follows => heads.len() as u64,
                1 if *units <= u64::from(tuning.alone) && together == *units => 1,
                _ => (u128::from(blocks) * u128::from(together)).div_ceil(u128::from(of_units.max(1))) as u64,
            };
            // Each region may have one piece more than its share.
            let spare = if *waits { 0 } else { regions.len() as u64 };
            let pieces =
                self.cut_regions(regions.clone(), (*units, share.saturating_sub(spare).max(1)), most);
            let early = *early && part.waits > 0;
            let blocks = match follows {
                true => self.add_following(pieces, &mut heads),
                false => {
                    let first = self.pieces.len();
                    let blocks = self.add_pieces(pieces, share);
                    heads = (first..first + blocks).map(Head::OfBlock).collect();
                    blocks
                }
            };
            let (waits, announced, blocks) = (*waits, *announced, blocks as u32);
            self.tied.push(Tied { part: *part, early, waits, announced, follows, blocks });
        }
        for copies in parts.iter().filter(|copies| !is_tied(copies)) {
            let pieces = self.cut_regions(copies.regions.clone(), all, most);
            self.add_pieces(pieces, if copies.beside { blocks_of(tuning.beside) } else { u64::MAX });
        }
    }

    /// Distributes pieces round robin over at most `most` blocks. Returns the number of blocks.
    fn add_pieces(&mut self, mut pieces: Vec<Piece>, most: u64) -> usize {
        let blocks = pieces.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        for at in blocks..pieces.len() {
            pieces[at - blocks].next = Some(self.later.len() + at - blocks);
        }
        self.later.extend(pieces.drain(blocks..));
        self.pieces.append(&mut pieces);
        blocks
    }

    /// Distributes pieces over blocks that execute an earlier part first. Returns the number of blocks.
    fn add_following(&mut self, mut pieces: Vec<Piece>, heads: &mut [Head]) -> usize {
        let blocks = pieces.len().min(heads.len());
        for at in blocks..pieces.len() {
            pieces[at - blocks].next = Some(self.later.len() + at - blocks);
        }
        self.later.extend(pieces.drain(blocks..));
        for (head, piece) in heads.iter_mut().zip(pieces) {
            let then = Some(self.following.len());
            match *head {
                Head::OfBlock(at) => self.pieces[at].then = then,
                Head::Following(at) => self.following[at].0.then = then,
            }
            *head = Head::Following(self.following.len());
            self.following.push((piece, self.tied.len()));
        }
        blocks
    }

    /// Splits regions into pieces of at most `most` units, for `blocks` blocks with `units` units in all;
    /// long pieces come first.
    fn cut_regions(&self, regions: Range<usize>, (units, blocks): (u64, u64), most: u64) -> Vec<Piece> {
        let per_piece = units.div_ceil(blocks).clamp(PIECE, most.max(PIECE));
        let per_piece = per_piece.next_multiple_of(if per_piece > LONG { LONG } else { PIECE }) as u32;
        let mut pieces = Vec::new();
        for region in regions {
            let units = self.units[region];
            pieces.extend((0..units).step_by(per_piece as usize).map(|first| {
                let units = per_piece.min(units - first);
                Piece { region, first, units, next: None, then: None }
            }));
        }
        pieces.sort_by_key(|piece| Reverse(piece.units));
        pieces
    }
}
