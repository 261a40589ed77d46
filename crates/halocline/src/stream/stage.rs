//! One side of a staged link: its memory, the layout of chunks and flags in it, and the host's progress.

use super::{BySet, FlagSet, LINE, POISON};
use crate::link::SLOTS;
use halocline_comm::{Borrowed, Communicator, Endpoint};
use halocline_device::{Address, Memory};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Chunks of one exchange over one link. One launch packs them, each is sent as soon as it is packed, two launches unpack them. A reduce has
/// one chunk.
pub(crate) const CHUNKS: usize = 8;

/// Chunks begin at multiples of this many bytes, except short ones.
const ALIGN: usize = 4096;

/// Bytes sent after a chunk: the number of its [`FlagSet`].
const NOTE: usize = size_of::<u64>();

/// Bytes between two chunks: for that number and the transport's trailer.
const GAP: usize = LINE;
const _: () = assert!(GAP >= NOTE + Communicator::SPARE);

/// One side of a staged link, in pinned memory: [`CHUNKS`] flags that are set chunk by chunk, a flag `sent`, two slots.
pub(crate) struct Stage {
    pub(crate) link: usize,
    pub(crate) peer: usize,
    /// Whether this rank sends in exchanges; in reduces the other side does.
    sends: bool,
    pub(crate) memory: Arc<Memory>,
    /// The slots, if MPI accesses them in device memory.
    pub(crate) remote: Option<Arc<Memory>>,
    /// Bytes of a slot.
    pub(crate) capacity: usize,
    /// For each set, its messages.
    pub(crate) sets: BySet<Staged>,
    /// The epoch and the chunk that the host does next. Under the claim.
    pub(super) at: (AtomicU64, AtomicUsize),
    /// The last epoch that the host and the transport are through with, so that its slot may be packed again.
    pub(super) sent: AtomicU64,
    /// The last epoch whose slot may be written by the transport, if this rank receives then.
    pub(super) given: AtomicU64,
    /// With slots in device memory: the epoch and the chunk that are announced next.
    pub(super) asked: (AtomicU64, AtomicUsize),
    /// Whether the transport holds a chunk, for each slot.
    lent: [[Arc<AtomicUsize>; CHUNKS]; SLOTS as usize],
}

/// The message of a set.
pub(crate) struct Staged {
    pub(crate) chunks: Vec<Range<usize>>,
    /// All its bytes, if it has any: the chunk of a reduce.
    pub(crate) whole: Option<Range<usize>>,
    /// The receiver acknowledges its messages, since it sends none that would keep the sender from running ahead.
    pub(crate) acknowledged: bool,
}

/// The offset of `sent`.
const SENT: usize = CHUNKS * LINE;
const SLOT: usize = SENT + LINE;

/// The offset, from the first slot, of the message that contains a chunk.
pub(crate) fn offset(capacity: usize, epoch: u64, chunk: usize) -> usize {
    (epoch % SLOTS) as usize * slot(capacity) + chunk * GAP
}

/// Bytes of a slot, with the gaps.
fn slot(capacity: usize) -> usize {
    (capacity + CHUNKS * GAP).next_multiple_of(LINE)
}

impl Stage {
    /// Bytes of the flags.
    pub(crate) const WORDS: usize = SLOT;

    /// Bytes of the slots.
    pub(crate) fn slots(capacity: usize) -> usize {
        SLOTS as usize * slot(capacity)
    }

    pub(crate) fn new(
        (link, peer, sends): (usize, usize, bool),
        (memory, remote): (Memory, Option<Arc<Memory>>),
        capacity: usize,
        sets: BySet<Staged>,
    ) -> Self {
        let first = || (AtomicU64::new(1), AtomicUsize::new(0));
        let (at, asked) = (first(), first());
        let (sent, given) = (AtomicU64::new(0), AtomicU64::new(0));
        let (memory, lent) = (Arc::new(memory), Default::default());
        Self { link, peer, sends, memory, remote, capacity, sets, at, sent, given, asked, lent }
    }

    /// Whether this rank sends in an operation, or receives.
    pub(crate) fn sends_in(&self, of: FlagSet) -> bool {
        self.sends != of.op.is_some()
    }

    /// The chunks of the message of an operation.
    pub(super) fn chunks(&self, of: FlagSet) -> &[Range<usize>] {
        let staged = &self.sets[of.set];
        if of.op.is_some() { staged.whole.as_slice() } else { &staged.chunks }
    }

    /// Whether the receiver acknowledges the message of an operation.
    pub(super) fn is_acknowledged(&self, of: FlagSet) -> bool {
        self.sets[of.set].acknowledged
    }

    /// `packed`, or `staged`, of a chunk.
    pub(crate) fn raised(&self, chunk: usize) -> Address {
        self.memory.at(chunk * LINE)
    }

    /// Whether a chunk is packed. A failure may poison the word meanwhile, since in operations of the other direction streams wait for it.
    pub(super) fn is_packed(&self, epoch: u64, chunk: usize) -> bool {
        // SAFETY: the word lies in pinned memory, where streams, tables and atomic operations alone write it.
        let packed = unsafe { self.memory.load(chunk * LINE) };
        (epoch..POISON).contains(&packed)
    }

    pub(crate) fn sent(&self) -> Address {
        self.memory.at(SENT)
    }

    /// The address of the message that contains a chunk.
    pub(crate) fn slot(&self, parity: usize, chunk: usize) -> Address {
        self.remote.as_ref().unwrap_or(&self.memory).at(self.offset(parity as u64, chunk))
    }

    fn offset(&self, epoch: u64, chunk: usize) -> usize {
        let first = if self.remote.is_some() { 0 } else { SLOT };
        first + offset(self.capacity, epoch, chunk)
    }

    /// The range of a chunk in the memory.
    pub(super) fn place(&self, (epoch, chunk): (u64, usize), bytes: &Range<usize>) -> Range<usize> {
        let begin = self.offset(epoch, chunk) + bytes.start;
        begin..begin + bytes.len()
    }

    /// The address of the note behind a chunk: the number of its [`FlagSet`].
    pub(super) fn note(&self, place: &Range<usize>) -> *mut [u8; NOTE] {
        std::ptr::with_exposed_provenance_mut(self.memory.at(place.end) as usize)
    }

    pub(super) fn is_lent(&self, epoch: u64, chunk: usize) -> bool {
        self.lent[(epoch % SLOTS) as usize][chunk].load(Ordering::Acquire) > 0
    }

    /// A chunk for the transport, with its note.
    ///
    /// # Safety
    /// The host may read and write the chunk, its note included, and nobody else uses it before it is given back:
    /// until [`Stage::is_lent`] says no.
    pub(super) unsafe fn lend(&self, (epoch, chunk): (u64, usize), place: Range<usize>) -> Borrowed {
        let first: *mut u8 = std::ptr::with_exposed_provenance_mut(self.memory.at(place.start) as usize);
        let (out, owner) = (&self.lent[(epoch % SLOTS) as usize][chunk], Arc::clone(&self.memory));
        // SAFETY: `memory` has the chunk and, behind it, a gap of `GAP` bytes, of which the note and what a transport
        // adds are part; it is pinned memory, zeroed at first, and `Borrowed` holds it. The caller promises that nobody
        // else uses the chunk before it is given back.
        unsafe { Borrowed::new(NonNull::new_unchecked(first), place.len() + NOTE, out, owner as _) }
    }

    /// A chunk in memory of the device for the transport, which sends it or writes it; not where no library finds it.
    pub(super) fn lend_remote(
        &self,
        remote: &Arc<Memory>,
        (epoch, chunk): (u64, usize),
        (place, sends): (Range<usize>, bool),
    ) -> Option<Borrowed> {
        let (out, owner) = (&self.lent[(epoch % SLOTS) as usize][chunk], Arc::clone(remote));
        let first = remote.handed_over(place.clone(), !sends)?;
        // SAFETY: `remote` has the bytes, and `Borrowed` holds it. They may be memory of a device: the callers give them to
        // `post_bulk` or `Bulk::post_receive` alone. Until they are given back streams leave them alone, which wait for `sent`
        // or for the word of the chunk.
        Some(unsafe { Borrowed::new(first, place.len(), out, owner as _) })
    }

    /// Sets `sent` for the next epoch that the transport is through with. Whether there was one.
    pub(super) fn say_sent(&self) -> bool {
        let next = self.sent.load(Ordering::Relaxed) + 1;
        let handed_over = next < self.at.0.load(Ordering::Relaxed);
        if !handed_over || (0..CHUNKS).any(|chunk| self.is_lent(next, chunk)) {
            return false;
        }
        // SAFETY: the word lies in pinned memory, where streams, tables and atomic operations alone access it.
        unsafe { self.memory.store(SENT, next) };
        self.sent.store(next, Ordering::Release);
        true
    }

    /// The flags that streams wait for on this side in an operation whose message has this many chunks.
    pub(crate) fn awaited(&self, of: FlagSet, chunks: usize) -> Vec<Address> {
        match self.sends_in(of) {
            true => vec![self.sent()],
            false => (0..chunks).map(|chunk| self.raised(chunk)).collect(),
        }
    }
}

/// The chunks of a message, in order: about as long as each other, none shorter than `least` but the last.
pub(crate) fn chunks(bytes: usize, least: usize) -> Vec<Range<usize>> {
    let size = least.max(bytes.div_ceil(CHUNKS)).max(1);
    let size = if size < ALIGN { size } else { size.next_multiple_of(ALIGN) };
    (0..bytes).step_by(size).map(|begin| begin..bytes.min(begin + size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_device::sim::{Options, explore};

    const CHUNK: usize = 4 << 20;

    #[test]
    fn a_poisoned_chunk_is_not_packed() {
        explore(0..1, &Options::default(), |world| {
            let device = world.device(0).expect("a device");
            let memory = device.allocate_pinned(Stage::WORDS + Stage::slots(64)).expect("memory");
            let stage = Stage::new((0, 1, true), (memory, None), 64, BySet::new(1, std::iter::empty()));
            let is_packed = |word: u64| {
                // SAFETY: a word of the stage, which nothing else uses.
                unsafe { stage.memory.store(LINE, word) };
                stage.is_packed(7, 1)
            };
            assert_eq!([6, 7, 8].map(is_packed), [false, true, true]);
            // For an operation that waits for the same word, a failure has ended the wait.
            assert!(!is_packed(POISON));
        });
    }

    #[test]
    fn chunks_cover_a_message_in_order_and_are_not_too_many() {
        assert!(chunks(0, CHUNK).is_empty());
        assert_eq!(chunks(16, CHUNK), std::iter::once(0..16).collect::<Vec<_>>());
        for (bytes, least) in
            [(CHUNK, CHUNK), (3 * CHUNK + 1, CHUNK), (500 * CHUNK + 7, CHUNK), (100, 8), (7, 0)]
        {
            let (made, mut byte) = (chunks(bytes, least), 0);
            assert!(made.len() <= CHUNKS, "{} chunks", made.len());
            for chunk in &made {
                assert!(chunk.start == byte && chunk.end > byte);
                byte = chunk.end;
            }
            assert_eq!(byte, bytes);
        }
    }
}
