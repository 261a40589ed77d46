//! The two sides of a link: the flags that each sets and waits for, and its slots.

use super::aware::Slots;
use super::connect::{Connected, End};
use super::error::BindError;
use super::flag_layout::{self, Places, Word, slot};
use super::flag_layout::{LANES, head, ready, span};
use super::lanes::{Opened, address};
use super::remote_lanes::{RemoteLane, RemoteLanes};
use crate::error::Error;
use crate::link::{Direction, Link, LinkPath, SLOTS};
use crate::options::BindOptions;
use crate::set::{Part, Set};
use crate::stream::{BySet, Cut, FlagSet, LINE, Seat, Stage, Staged, Waits, chunks};
use halocline_comm::Segment;
use halocline_device::Address;
use halocline_plan::copy::CopyOp;
use std::ops::Range;
use std::sync::Arc;

/// One side's host memory: the flags that the peer's lanes set when slots are free, and the mailbox.
#[derive(Clone, Copy)]
struct Area {
    base: Address,
    mailbox: Mailbox,
}

impl Area {
    fn ready(self, lane: usize) -> Address {
        self.base + (lane * LINE) as Address
    }
}

/// The flags that are set when a slot is full, and the slots; in host or device memory.
#[derive(Clone, Copy)]
struct Mailbox {
    base: Address,
    capacity: usize,
    /// The number of sets and, in memory of the host, of their reduces.
    sets: usize,
}

impl Mailbox {
    /// The first of the flags of a lane, one for each set and slot.
    fn arrived(self, lane: usize) -> Word {
        Word::Slots(self.base + (lane * span(SLOTS as usize * self.sets)) as Address)
    }

    /// The flag of a lane, if there is one set, whose slot is announced.
    fn only_arrived(self, lane: usize) -> Word {
        Word::One(self.arrived(lane).of(0, 0))
    }

    fn slots(self) -> Places {
        Places::of_all_sets(self.base + flag_layout::arrived(self.sets) as Address, self.capacity)
    }

    fn slots_of_reduces(self) -> Places {
        let first = flag_layout::arrived(self.sets) + SLOTS as usize * slot(self.capacity);
        Places::of_all_sets(self.base + first as Address, self.capacity)
    }
}

/// The work of the two sides of a link: the tables and operations of a lane are made from it.
pub(super) struct Outgoing {
    pub(super) lane: usize,
    pub(super) link: usize,
    pub(super) path: LinkPath,
    /// The flag to wait for, at most `lag` epochs behind.
    pub(super) ready: Word,
    pub(super) lag: u64,
    /// The flag to set: the peer's, or `packed` of each chunk of a staged message.
    pub(super) arrived: Word,
    /// The peer's slots.
    pub(super) slots: Option<Places>,
    /// This rank's slots.
    pub(super) stage: Option<usize>,
    /// In a reduce: the flags to wait for and to set, and the slots that hold the peer's halo. `None` if the link carries no reduce, or
    /// messages, whose slots serve reduces, too.
    pub(super) reverse: Option<Outwards>,
}

/// The side of a link that combines the peer's halo cells, in a reduce.
#[derive(Clone, Copy)]
pub(super) struct Outwards {
    /// The flag to wait for: the peer has packed its halo.
    pub(super) ready: Word,
    /// The flag to set: the halo is combined.
    pub(super) arrived: Word,
    /// The peer's, if they lie in memory of the host, else this rank's.
    pub(super) slots: Places,
}

/// The side of a link whose halo cells are combined, in a reduce.
pub(super) struct Inwards {
    /// For each of the peer's lanes that combine: the flag to set, and the flag to wait for.
    pub(super) words: Vec<(Word, Word)>,
    /// The slots into which this rank packs its halo: its own, if they lie in memory of the host, else the peer's.
    pub(super) slots: Places,
}

pub(super) struct Incoming {
    pub(super) link: usize,
    pub(super) path: LinkPath,
    /// For each of the peer's lanes that send here, or pull from here: the flag to set, and the flag to wait for.
    pub(super) words: Vec<(Word, Word)>,
    /// This rank's slots.
    pub(super) slots: Option<Places>,
    /// The slots of a staged message.
    pub(super) stage: Option<usize>,
    /// In a reduce; `None` if the link carries none, or messages.
    pub(super) reverse: Option<Inwards>,
}

impl Outgoing {
    /// Shows how far the peer is.
    pub(super) fn seat(&self) -> Seat {
        let waits = match self.stage {
            Some(stage) => Waits::Stage(stage),
            None => Waits::Word {
                lane: self.lane,
                word: self.ready,
                lag: self.lag,
                in_reduce: self.reverse.map(|reverse| reverse.ready),
            },
        };
        Seat { link: self.link, waits }
    }
}

impl Incoming {
    pub(super) fn seats(&self) -> Vec<Seat> {
        let seat = |waits| Seat { link: self.link, waits };
        match self.stage {
            Some(stage) => vec![seat(Waits::Stage(stage))],
            None => {
                let in_reduce = |at: usize| self.reverse.as_ref().map(|reverse| reverse.words[at].1);
                let word = |(at, &(_, word)): (usize, &(Word, Word))| {
                    seat(Waits::Word { lane: 0, word, lag: 0, in_reduce: in_reduce(at) })
                };
                self.words.iter().enumerate().map(word).collect()
            }
        }
    }
}

/// The mailboxes of this rank and of a peer, for each other.
fn areas(made: &Connected, end: &End, link: usize) -> Result<Option<(Area, Area)>, Error> {
    let LinkPath::Mailbox { .. } = made.links[link].path else { return Ok(None) };
    let broken = || Error::from(BindError::OutsideMemory { peer: end.peer, what: "a mailbox" });
    let (own, theirs) = end.segments.as_ref().ok_or_else(broken)?;
    let area = |segment: &Arc<Segment>, endpoint: super::offer::LinkEndpoint| {
        let (max_sets, sets) = (made.max_sets(), FlagSet::count(made.max_sets()));
        // A peer may send any number.
        let slot = endpoint.capacity.checked_next_multiple_of(slot(1))?;
        let bytes = slot.checked_mul(2 * SLOTS as usize)?.checked_add(head(max_sets))?;
        let end = endpoint.mailbox.checked_add(bytes).filter(|&end| end <= segment.len())?;
        let base = address(segment.base().as_ptr()) + endpoint.mailbox as Address;
        let mailbox = Mailbox { base: base + (LANES * LINE) as Address, capacity: endpoint.capacity, sets };
        (end > 0 && endpoint.mailbox.is_multiple_of(LINE)).then_some(Area { base, mailbox })
    };
    let both = area(own, end.endpoints.0).zip(area(theirs, end.endpoints.1)).ok_or_else(broken)?;
    let bytes = |set: &Arc<Set>| set.parts[link].bytes;
    let receiver = if made.links[link].direction == Direction::Send { both.1 } else { both.0 };
    if made.sets.iter().map(bytes).any(|bytes| bytes > receiver.mailbox.capacity) {
        return Err(broken());
    }
    Ok(Some(both))
}

/// The most bytes of a link's message.
pub(super) fn capacity(made: &Connected, link: usize) -> usize {
    made.sets.iter().map(|set| set.parts[link].bytes).max().unwrap_or(0)
}

/// The staging memory of a link by messages.
pub(super) fn stage(
    opened: &Opened,
    made: &Connected,
    slots: &Slots,
    (peer, link): (usize, usize),
) -> Result<Option<Stage>, Error> {
    if made.links[link].path != LinkPath::Message {
        return Ok(None);
    }
    let capacity = capacity(made, link);
    let remote = slots.get(&link).cloned();
    let bytes = Stage::WORDS + if remote.is_some() { 0 } else { Stage::slots(capacity) };
    let memory = opened.devices[0].allocate_pinned(bytes)?;
    let sets = made.sets.iter().map(|set| staged(set, &made.links[link], &made.links));
    let sends = made.links[link].direction == Direction::Send;
    Ok(Some(Stage::new((link, peer, sends), (memory, remote), capacity, BySet::new(made.max_sets(), sets))))
}

/// The message of a set over a link.
pub(super) fn staged(set: &Set, link: &Link, links: &[Link]) -> Staged {
    let part = &set.parts[link.part];
    let chunks = split(part, link.chunk).into_iter().map(|(bytes, _)| bytes).collect();
    let whole = (part.bytes > 0).then_some(0..part.bytes);
    let answers = |other: &&Link| other.peer == link.peer && other.direction != link.direction;
    let comes_back = links.iter().filter(answers).any(|other| set.parts[other.part].bytes > 0);
    Staged { chunks, whole, acknowledged: !comes_back }
}

/// The chunks of a message: their bytes and their operations. No chunk ends within a number that may change its sign.
pub(super) fn split(part: &Part, chunk: usize) -> Vec<(Range<usize>, Vec<CopyOp>)> {
    let mut ranges = chunks(part.bytes, chunk);
    let mut begin = 0;
    for op in &part.ops {
        let end = begin + op.bytes();
        if op.element.sign_distance().is_some() {
            for at in 1..ranges.len() {
                let cut = ranges[at].start;
                if begin < cut && cut < end {
                    ranges[at].start = cut - (cut - begin) % op.element.size();
                    ranges[at - 1].end = ranges[at].start;
                }
            }
        }
        begin = end;
    }
    let mut chunks: Vec<_> = ranges.into_iter().map(|bytes| (bytes, Vec::new())).collect();
    let mut begin = 0;
    for op in &part.ops {
        let end = begin + op.bytes();
        for (bytes, ops) in chunks.iter_mut().filter(|(bytes, _)| bytes.start < end && bytes.end > begin) {
            ops.extend(op.section(bytes.start.max(begin) - begin..bytes.end.min(end) - begin));
        }
        begin = end;
    }
    chunks
}

pub(super) fn send(
    opened: &Opened,
    made: &Connected,
    (end, remote): (&End, &RemoteLanes),
    (link, lane): (usize, usize),
    (stage, stages): (Option<&Stage>, usize),
    options: &BindOptions,
) -> Result<Outgoing, Error> {
    let path = made.links[link].path;
    if let (LinkPath::Message, Some(stage)) = (path, stage) {
        let lag = if options.cut() == Some(Cut::Staging) { SLOTS + 1 } else { SLOTS };
        let (ready, arrived) = (Word::One(stage.sent()), Word::One(stage.raised(0)));
        let stage = Some(stages - 1);
        return Ok(Outgoing { lane, link, path, ready, lag, arrived, slots: None, stage, reverse: None });
    }
    let overtaking = u64::from(options.cut() == Some(Cut::Overtaking));
    let of_slot = if options.cut() == Some(Cut::Slot) { SLOTS + 1 } else { SLOTS };
    if let Some((own, theirs)) = areas(made, end, link)? {
        let (ready, theirs) = (Word::One(own.ready(lane)), theirs.mailbox);
        let (arrived, slots) = (theirs.arrived(lane), Some(theirs.slots()));
        let reverse = Some(Outwards { ready, arrived, slots: theirs.slots_of_reduces() });
        return Ok(Outgoing { lane, link, path, ready, lag: of_slot, arrived, slots, stage: None, reverse });
    }
    let outside = |what| Error::from(BindError::OutsideMemory { peer: end.peer, what });
    let first = if path == LinkPath::Pull { LANES } else { 0 };
    if !remote.holds(remote.arrived, 2 * LANES * LINE) {
        return Err(outside("flags"));
    }
    let ready = opened.lanes[lane].words.at(opened.layout.ready(end.number, path == LinkPath::Pull));
    let arrived = Word::One(remote.arrived + ((first + lane) * LINE) as Address);
    let (capacity, max_sets) = (capacity(made, link), made.max_sets());
    let carries_reduces = path != LinkPath::Pull && opened.layout.of_peers[end.number].reduce.is_some();
    let reverse = carries_reduces.then(|| Outwards {
        ready: Word::Each(ready),
        arrived: Word::One(remote.arrived + ((LANES + lane) * LINE) as Address),
        slots: Places::of_one(opened.lanes[0].words.at(opened.layout.reduce(end.number))),
    });
    let (ready, lag, arrived, slots) = match path {
        LinkPath::Ll => {
            let slots = Places::of_ll(remote.ll, capacity);
            if !remote.holds(remote.ll, flag_layout::ll(capacity, max_sets))
                || !remote.ll.is_multiple_of(LINE as Address)
            {
                return Err(outside("slots"));
            }
            (Word::One(ready), of_slot, arrived, Some(slots))
        }
        LinkPath::DeviceMailbox => {
            let mailbox = Mailbox { base: remote.mailbox, capacity, sets: max_sets };
            if !remote.holds(remote.mailbox, flag_layout::mailbox(capacity, max_sets))
                || !remote.mailbox.is_multiple_of(LINE as Address)
            {
                return Err(outside("a mailbox"));
            }
            let slots = Some(mailbox.slots());
            match options.is_unbound {
                // The grant of each epoch says where the slot is.
                true => (Word::One(ready), overtaking, mailbox.only_arrived(lane), slots),
                false => (Word::One(ready), of_slot, mailbox.arrived(lane), slots),
            }
        }
        _ => (Word::Each(ready), overtaking, arrived, None),
    };
    Ok(Outgoing { lane, link, path, ready, lag, arrived, slots, stage: None, reverse })
}

pub(super) fn receive(
    opened: &Opened,
    made: &Connected,
    (end, remote): (&End, &RemoteLanes),
    (link, stages): (usize, usize),
    options: &BindOptions,
) -> Result<Incoming, Error> {
    let path = made.links[link].path;
    if path == LinkPath::Message {
        let stage = Some(stages - 1);
        return Ok(Incoming { link, path, words: Vec::new(), slots: None, stage, reverse: None });
    }
    let is_pulled = path == LinkPath::Pull;
    let senders = remote.lanes.iter().enumerate();
    let senders = senders.filter(|(_, lane)| if is_pulled { lane.pulls } else { lane.sends });
    if let Some((own, theirs)) = areas(made, end, link)? {
        let own = own.mailbox;
        let word = |(lane, _)| (Word::One(theirs.ready(lane)), own.arrived(lane));
        let (words, slots): (Vec<_>, _) = (senders.map(word).collect(), Some(own.slots()));
        let reverse = Some(Inwards { words: words.clone(), slots: own.slots_of_reduces() });
        return Ok(Incoming { link, path, words, slots, stage: None, reverse });
    }
    let (layout, own) = (&opened.layout, &opened.lanes[0].words);
    let (capacity, max_sets) = (capacity(made, link), made.max_sets());
    let mailbox = Mailbox { base: own.at(layout.mailbox(end.number)), capacity, sets: max_sets };
    let ll = Places::of_ll(own.at(layout.ll(end.number)), capacity);
    let slots = match path {
        LinkPath::Ll => Some(ll),
        LinkPath::DeviceMailbox => Some(mailbox.slots()),
        _ => None,
    };
    let first = own.at(layout.arrived(end.number, is_pulled));
    let word = |(lane, remote_lane): (usize, &RemoteLane)| {
        if !remote.holds(remote_lane.ready, 2 * ready(max_sets)) {
            return Err(BindError::OutsideMemory { peer: end.peer, what: "flags" });
        }
        let ready = remote_lane.ready + if is_pulled { ready(max_sets) as Address } else { 0 };
        let ready = if slots.is_some() { Word::One(ready) } else { Word::Each(ready) };
        let arrived = match path {
            LinkPath::DeviceMailbox if options.is_unbound => mailbox.only_arrived(lane),
            LinkPath::DeviceMailbox => mailbox.arrived(lane),
            _ => Word::One(first + (lane * LINE) as Address),
        };
        Ok((ready, arrived))
    };
    // Links that push have none that are pulled. An exchange sets the others, also where its peer reduces.
    let reduced = own.at(layout.arrived(end.number, true));
    let in_reduce: Vec<(Word, Word)> = senders
        .clone()
        .map(|(lane, remote_lane)| {
            (Word::Each(remote_lane.ready), Word::One(reduced + (lane * LINE) as Address))
        })
        .collect();
    let words = senders.map(word).collect::<Result<_, BindError>>()?;
    let carries_reduces = !is_pulled && remote.reduce != 0;
    let is_there =
        || remote.holds(remote.reduce, slot(capacity)) && remote.reduce.is_multiple_of(LINE as Address);
    if carries_reduces && !is_there() {
        return Err(BindError::OutsideMemory { peer: end.peer, what: "a slot of reduces" }.into());
    }
    let reverse =
        carries_reduces.then_some(Inwards { words: in_reduce, slots: Places::of_one(remote.reduce) });
    Ok(Incoming { link, path, words, slots, stage: None, reverse })
}

#[cfg(test)]
mod tests {
    use super::*;
    use halocline_plan::ElementType;

    #[test]
    fn no_chunk_ends_within_a_number_that_may_change_its_sign() {
        let mut numbers = CopyOp::of_bytes(0, 0, 80_000);
        (numbers.element, numbers.is_negated, numbers.target_offset) = (ElementType::F64, true, 3);
        let ops = vec![CopyOp::of_bytes(0, 0, 3), numbers];
        let part = Part { bytes: 3 + 80_000, ops, ..Part::default() };
        let chunks = split(&part, 5000);
        assert!(chunks.len() > 2, "{} chunks", chunks.len());
        let mut end = 0;
        for (bytes, ops) in &chunks {
            assert_eq!(bytes.start, end);
            end = bytes.end;
            assert_eq!(ops.iter().map(CopyOp::bytes).sum::<usize>(), bytes.len());
            assert!(
                ops.iter().filter(|op| op.is_negated).all(|op| op.bytes().is_multiple_of(8)),
                "{bytes:?}"
            );
        }
        assert_eq!(end, part.bytes);
    }
}
