//! The job's control segment: one slot a rank, mapped by all ranks of the node.

use super::{ENDED, LEFT, PRESENT};
use crate::bell::Doorbell;
use crate::error::CommError;
use crate::segment::Segment;
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use std::mem::{align_of, size_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A rank's part of the control segment, on cache lines of its own.
#[repr(C, align(128))]
pub(super) struct Slot {
    /// Wakes the rank.
    pub bell: Doorbell,
    /// The rank's process id once it can be reached, 0 before.
    pid: AtomicU32,
    /// How far the rank has departed: [`PRESENT`], [`LEFT`] or [`ENDED`].
    departure: AtomicU32,
    /// A bit for each core that the rank may run on, as far as they fit.
    cores: [AtomicU64; CORE_WORDS],
}

const CORE_WORDS: usize = 12;

/// The first page is for the job as a whole.
pub(super) const HEADER_BYTES: usize = 4096;

const _: () = assert!(size_of::<Slot>() == 128 && align_of::<Slot>() <= HEADER_BYTES);

impl Slot {
    /// Announces that this process is the rank and can be reached.
    pub(super) fn join(&self, pid: u32) {
        if let Ok(mask) = rustix::thread::sched_getaffinity(None) {
            for (at, word) in self.cores.iter().enumerate() {
                let bits =
                    (0..64).filter(|bit| mask.is_set(64 * at + bit)).fold(0, |bits, bit| bits | 1 << bit);
                word.store(bits, Ordering::Relaxed);
            }
        }
        self.pid.store(pid, Ordering::Release);
    }

    /// The process of the rank, once it has joined.
    pub(super) fn pid(&self) -> Option<Pid> {
        let pid = i32::try_from(self.pid.load(Ordering::Acquire)).ok()?;
        Pid::from_raw(pid)
    }

    /// Whether the rank has left, or ended.
    pub(super) fn has_left(&self) -> bool {
        self.departure() != PRESENT
    }

    /// How far the rank has departed by its own account: [`PRESENT`], [`LEFT`] or [`ENDED`].
    pub(super) fn departure(&self) -> u8 {
        u8::try_from(self.departure.load(Ordering::Acquire)).map_or(ENDED, |it| it.min(ENDED))
    }
}

/// The mapped control segment.
pub(super) struct Control {
    segment: Arc<Segment>,
    ranks: usize,
}

impl Control {
    /// Maps the segment of a job of `ranks` ranks.
    pub(super) fn map(fd: OwnedFd, ranks: usize) -> Result<Self, CommError> {
        let segment = Segment::import(0, super::Job::segment_bytes(ranks), fd)?;
        Ok(Self { segment, ranks })
    }

    /// The slot of a rank.
    pub(super) fn slot(&self, rank: usize) -> Option<&Slot> {
        if rank >= self.ranks {
            return None;
        }
        // SAFETY: `map` has checked that the segment has a slot for each of `ranks` ranks behind the header, and `rank`
        // is below that. A slot lies at a multiple of 128 bytes from a page. It consists of atomic numbers, for which
        // all bytes are valid, whatever another process writes. The segment lives as long as `self`.
        Some(unsafe {
            let slots = self.segment.base().add(HEADER_BYTES).cast::<Slot>();
            slots.add(rank).as_ref()
        })
    }

    /// The bell of a rank that exists.
    pub(super) fn bell(&self, rank: usize) -> &Doorbell {
        &self.slot(rank).unwrap_or_else(|| panic!("rank {rank} of {}", self.ranks)).bell
    }

    /// Publishes that a rank has left or ended.
    pub(super) fn depart(&self, rank: usize, how: u8) {
        if let Some(slot) = self.slot(rank)
            && slot.departure.fetch_max(how.into(), Ordering::AcqRel) < how.into()
        {
            self.header(0).fetch_add(1, Ordering::Release);
        }
    }

    /// Publishes that a rank has failed, so that collective work at the end of the processes (MPI_Finalize) must be
    /// skipped.
    pub(super) fn fail(&self) {
        self.header(1).store(1, Ordering::Release);
    }

    /// Whether a rank has published that.
    pub(super) fn has_failed(&self) -> bool {
        self.header(1).load(Ordering::Acquire) != 0
    }

    /// For the launcher: the process of a rank has ended. If it never joined, this wakes the ranks that wait
    /// for it.
    pub(super) fn ended(&self, rank: usize) {
        if let Some(slot) = self.slot(rank).filter(|slot| slot.pid().is_none()) {
            slot.departure.store(LEFT.into(), Ordering::Release);
            self.slots().for_each(|slot| slot.bell.changed(&crate::host::System));
        }
    }

    /// Cores that at least one of the joined ranks may run on.
    pub(super) fn cores(&self) -> usize {
        let word = |at: usize| {
            self.slots().fold(0, |bits, slot| bits | slot.cores[at].load(Ordering::Relaxed)).count_ones()
                as usize
        };
        (0..CORE_WORDS).map(word).sum()
    }

    /// A rank that has ended without joining.
    pub(super) fn absent(&self) -> Option<usize> {
        self.slots().position(|slot| slot.has_left() && slot.pid().is_none())
    }

    /// How many ranks have left.
    pub(super) fn departures(&self) -> u32 {
        self.header(0).load(Ordering::Acquire)
    }

    /// A word of the header: the first counts departures, the second is set after a failure.
    fn header(&self, word: usize) -> &AtomicU32 {
        assert!(word < 2);
        // SAFETY: `map` has checked that the segment, which lives as long as `self`, has a page for the header, and
        // both words lie in it, aligned. Every process accesses them as these atomic numbers.
        unsafe { self.segment.base().cast::<AtomicU32>().add(word).as_ref() }
    }

    /// All slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        (0..self.ranks).filter_map(|rank| self.slot(rank))
    }
}
