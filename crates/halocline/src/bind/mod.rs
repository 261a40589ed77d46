//! Binding: everything that can be done once. Checks the fields, tells the peers about them, chooses
//! a way for each link and lays out counters and mailboxes.

mod local;
mod measure;
mod meet;
mod offer;

use crate::agree::agree;
use crate::bound::Bound;
use crate::error::Error;
use crate::field::Field;
use crate::link::{Direction, Link, SLOTS, Signals, Way, Work};
use crate::options::{BindOptions, LinkChoice};
use crate::pattern::Pattern;
use halocline_comm::{Communicator, Counter, Patience, Segment};
use halocline_device::host::MESSAGE_ALIGN;
use halocline_plan::Transfer;
use halocline_plan::copy::{CopyOp, End, copy_op, copy_op_of_two};
use local::{Bindable, Local, Place};
use offer::{Berth, Offer, Offered};
use std::ptr::NonNull;
use std::sync::Arc;

/// The ways that all links shall take where they can.
#[derive(Debug, Clone, Copy)]
struct Preference {
    way: Way,
    /// Another way is an error, not a fallback.
    forced: bool,
}

/// Binds fields. Collective.
pub(crate) fn bind(
    comm: &Communicator,
    given: &[(&Pattern, &Field)],
    options: &BindOptions,
) -> Result<Arc<Bound>, Error> {
    let local = agree(comm, Local::new(comm, given))?;
    agree(comm, same_choice(comm, options.link)?)?;
    agree(comm, meet::meet(comm, &local)?)?;
    let forced = |way| Preference { way, forced: true };
    let preference = match options.link {
        LinkChoice::Auto => Preference { way: measure::choose(comm, &local, &measure::ALL)?, forced: false },
        LinkChoice::Push => forced(Way::Push),
        LinkChoice::Pull => forced(Way::Pull),
        LinkChoice::Mailbox => forced(measure::choose(comm, &local, &measure::MAILBOXES)?),
        LinkChoice::Message => forced(Way::Message),
    };
    let bound = build(comm, &local, preference, options)?;
    if !bound.links.is_empty() {
        let weak = Arc::downgrade(&bound);
        comm.register(weak);
    }
    Ok(bound)
}

/// The links of all ranks are chosen by one rule.
fn same_choice(comm: &Communicator, choice: LinkChoice) -> Result<Result<(), Error>, Error> {
    let first = comm.broadcast(0, vec![choice.code() as u8])?;
    Ok(if first == [choice.code() as u8] {
        Ok(())
    } else {
        Err(Error::Bind(format!("rank {} binds with links {choice:?}, rank 0 differently", comm.rank())))
    })
}

/// What this rank exchanges with one peer, and where.
struct Peering {
    peer: usize,
    berth: Berth,
}

fn build(
    comm: &Communicator,
    local: &Local,
    preference: Preference,
    options: &BindOptions,
) -> Result<Arc<Bound>, Error> {
    let (offers, operation) = (comm.begin(), comm.begin());
    let (peerings, own_bytes) = lay_out(local);
    let shared = peerings.iter().any(|p| comm.link().bell(p.peer).is_some());
    let own = agree(comm, shared.then(|| comm.allocate(own_bytes)).transpose().map_err(Error::from))?;
    for Peering { peer, berth } in &peerings {
        let own = own.as_ref().filter(|_| comm.link().bell(*peer).is_some());
        offer::send(comm, (*peer, offers), local, *berth, own)?;
    }
    let mut links = Vec::new();
    let mut problem = None;
    for Peering { peer, berth } in &peerings {
        // All offers are taken, whatever is wrong with one: none is left behind in the inbox.
        let made = offer::receive(comm, (*peer, offers)).and_then(|theirs| {
            Pair { comm, local, peer: *peer, berth: *berth, own: own.as_ref(), theirs, operation }
                .links(preference)
        });
        match made {
            Ok(made) => links.extend(made),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    let links = agree(comm, problem.map_or(Ok(links), Err))?;
    let patience = Patience { deadline: options.deadline, ..Patience::of(comm.link()) };
    let memories = local.memories.clone();
    Ok(Arc::new(Bound::new(comm.behind_the_scenes(), links, local_copies(local), memories, own, patience)))
}

/// Counters and mailboxes for every peer, and the bytes of the segment that holds them.
fn lay_out(local: &Local) -> (Vec<Peering>, usize) {
    let mut peers: Vec<usize> =
        local.patterns.iter().flat_map(|pattern| &pattern.plan().peers).map(|peer| peer.rank).collect();
    peers.sort_unstable();
    peers.dedup();
    let line = size_of::<Counter>();
    let mut mailbox = (2 * line * peers.len()).next_multiple_of(MESSAGE_ALIGN);
    let mut peerings = Vec::new();
    for (at, &peer) in peers.iter().enumerate() {
        let bytes = |direction| local.exchanged(peer, direction).map(|(field, t)| bytes_of(field, t)).sum();
        let (sends, receives): (usize, usize) = (bytes(Direction::Send), bytes(Direction::Receive));
        let (send_counter, receive_counter) = (2 * at * line, (2 * at + 1) * line);
        peerings
            .push(Peering { peer, berth: Berth { send_counter, receive_counter, mailbox, receives, sends } });
        mailbox += SLOTS as usize * receives.next_multiple_of(MESSAGE_ALIGN);
    }
    (peerings, mailbox)
}

fn bytes_of(field: &Bindable, transfer: &Transfer) -> usize {
    transfer.source.count() * field.cells.bytes_per_cell()
}

impl Local {
    /// What is exchanged with a peer, in the order in which it travels: this rank's field and the
    /// transfer, by pattern, field number and transfer.
    fn exchanged(&self, peer: usize, direction: Direction) -> impl Iterator<Item = (&Bindable, &Transfer)> {
        let mut patterns: Vec<_> = self.patterns.iter().zip(&self.counts).collect();
        // The order of the bind may differ between ranks that do not share all patterns.
        patterns.sort_by_key(|(pattern, _)| pattern.id());
        patterns.into_iter().flat_map(move |(pattern, &count)| {
            let peers = pattern.plan().peers.iter().filter(move |p| p.rank == peer);
            let transfers = move || {
                peers.clone().flat_map(move |p| match direction {
                    Direction::Send => &p.sends,
                    Direction::Receive => &p.receives,
                })
            };
            (0..count).flat_map(move |number| {
                transfers().filter_map(move |transfer| {
                    let domain = if direction == Direction::Send { transfer.from } else { transfer.to };
                    Some((self.at(Place { pattern: pattern.id(), number, domain })?, transfer))
                })
            })
        })
    }
}

/// Two ranks whose links are being made, seen from one of them.
struct Pair<'a> {
    comm: &'a Communicator,
    local: &'a Local,
    peer: usize,
    berth: Berth,
    own: Option<&'a Arc<Segment>>,
    theirs: Offer,
    operation: u64,
}

/// One transfer of one field, with both ends.
struct Joint<'a> {
    ours: &'a Bindable,
    theirs: &'a Offered,
    transfer: &'a Transfer,
}

impl Pair<'_> {
    fn links(&self, preference: Preference) -> Result<Vec<Link>, Error> {
        self.check_bytes()?;
        let mut links = Vec::new();
        for direction in [Direction::Receive, Direction::Send] {
            let joints = self.joints(direction)?;
            if !joints.is_empty() {
                links.push(self.link(direction, &joints, preference)?);
            }
        }
        Ok(links)
    }

    /// Both sides see as many bytes between them.
    fn check_bytes(&self) -> Result<(), Error> {
        let peer = self.peer;
        let (sends, receives) = (self.theirs.berth.sends, self.theirs.berth.receives);
        if (sends, receives) == (self.berth.receives, self.berth.sends) {
            return Ok(());
        }
        // The fields disagree somewhere; say where.
        self.joints(Direction::Send)?;
        self.joints(Direction::Receive)?;
        Err(Error::Bind(format!("rank {peer} and this one disagree about the bytes between them")))
    }

    fn joints(&self, direction: Direction) -> Result<Vec<Joint<'_>>, Error> {
        let mut joints = Vec::new();
        for (ours, transfer) in self.local.exchanged(self.peer, direction) {
            let domain = if direction == Direction::Send { transfer.to } else { transfer.from };
            let Place { pattern, number, domain: our_domain } = ours.place;
            let place = Place { pattern, number, domain };
            let pattern = self.local.index_of(pattern);
            let theirs = self.theirs.fields.get(&place).ok_or_else(|| {
                Error::Bind(format!(
                    "rank {} binds no field {number} of domain {domain} (pattern {pattern} here)",
                    self.peer
                ))
            })?;
            ours.cells.check_peer(&theirs.cells).map_err(|error| Error::Peer {
                pattern,
                field: number,
                domain: our_domain,
                peer: self.peer,
                peer_domain: domain,
                error,
            })?;
            joints.push(Joint { ours, theirs, transfer });
        }
        Ok(joints)
    }

    fn link(&self, direction: Direction, joints: &[Joint<'_>], wish: Preference) -> Result<Link, Error> {
        let peer = self.peer;
        let (way, why) = self.way(direction, joints, wish).map_err(|why| {
            Error::Bind(format!("the link with rank {peer} cannot be {}: {why}; choose auto", wish.way))
        })?;
        let copies = matches!(
            (direction, way),
            (Direction::Send, Way::Push | Way::Mailbox { .. } | Way::Message)
                | (Direction::Receive, Way::Pull | Way::Mailbox { .. } | Way::Message)
        );
        let work = if copies { self.work(direction, way, joints)? } else { Work::default() };
        let bytes = if direction == Direction::Send { self.berth.sends } else { self.berth.receives };
        let (mailbox, signals) = match way {
            Way::Message => (None, Signals::Messages { operation: self.operation }),
            _ => self.signals(direction, matches!(way, Way::Mailbox { .. }))?,
        };
        let mut keep: Vec<Arc<Segment>> = self.theirs.own.iter().cloned().collect();
        keep.extend(
            joints.iter().filter_map(|joint| Some(Arc::clone(&joint.theirs.memory.as_ref().ok()?.0))),
        );
        keep.sort_unstable_by_key(|segment| segment.id());
        keep.dedup_by_key(|segment| segment.id());
        Ok(Link::new((peer, direction, way), bytes, why, work, mailbox, signals, keep))
    }

    /// The way that both sides choose, each from what both know; with the reason if not the one wished.
    fn way(
        &self,
        direction: Direction,
        joints: &[Joint<'_>],
        wish: Preference,
    ) -> Result<(Way, Option<String>), String> {
        let ours = || {
            joints.iter().find_map(|j| self.comm.link().reach(self.peer, &j.ours.field.memory.segment).err())
        };
        let theirs = || joints.iter().find_map(|j| j.theirs.memory.as_ref().err().cloned());
        // Memory that the other side reaches: the receiver's for a push, the sender's for a pull.
        let (push, pull) = match direction {
            Direction::Send => (theirs(), ours()),
            Direction::Receive => (ours(), theirs()),
        };
        let apart = self.own.is_none() || self.theirs.own.is_none();
        let apart = apart.then(|| match ours() {
            Some(why) => format!("the two ranks share no memory: {why}"),
            None => "the two ranks share no memory".to_owned(),
        });
        let obstacle = |way: Way| match way {
            Way::Push => {
                apart.clone().or_else(|| push.as_ref().map(|why| format!("the receiver's field: {why}")))
            }
            Way::Pull => {
                apart.clone().or_else(|| pull.as_ref().map(|why| format!("the sender's field: {why}")))
            }
            Way::Mailbox { .. } => apart.clone(),
            Way::Message => None,
        };
        let Some(why) = obstacle(wish.way) else { return Ok((wish.way, None)) };
        if wish.forced {
            return Err(why);
        }
        let streaming = matches!(wish.way, Way::Mailbox { streaming: true });
        let others = [Way::Push, Way::Pull, Way::Mailbox { streaming }, Way::Message];
        let next = others.into_iter().find(|&way| obstacle(way).is_none());
        Ok((next.unwrap_or(Way::Message), Some(why)))
    }

    /// The copying of this side.
    fn work(&self, direction: Direction, way: Way, joints: &[Joint<'_>]) -> Result<Work, Error> {
        let direct = matches!(way, Way::Push | Way::Pull);
        let mut work = Work::default();
        let mut begin = 0;
        let layouts = |at: usize| match direction {
            Direction::Send => (&joints[at].ours.cells, &joints[at].theirs.cells),
            Direction::Receive => (&joints[at].theirs.cells, &joints[at].ours.cells),
        };
        let of_two = |first: usize, second: usize, ends: (End, End)| {
            let (sender, receiver) = layouts(first);
            let transfers = (joints[first].transfer, joints[second].transfer);
            let fields =
                |at: usize| (joints[at].ours.place, joints[at].transfer.from, joints[at].transfer.to);
            let op = || copy_op_of_two(transfers, (ends.0, sender), (ends.1, receiver));
            (fields(first) == fields(second)).then(op).flatten()
        };
        // Both sides pair alike, from both layouts, so that they agree about the message.
        let anywhere = (End::Field(0), End::Field(0));
        for (first, second) in pair_up(joints.len(), |a, b| of_two(a, b, anywhere).is_some()) {
            let Joint { ours, theirs, transfer } = &joints[first];
            let message = End::Message(0, begin);
            begin += bytes_of(ours, transfer) * if second.is_some() { 2 } else { 1 };
            let field = |buffers: usize| if direct { End::Field(buffers) } else { message };
            let ends = match direction {
                Direction::Send => (End::Field(work.sources.len()), field(work.targets.len())),
                Direction::Receive => (field(work.sources.len()), End::Field(work.targets.len())),
            };
            let (sender, receiver) = layouts(first);
            let op = second
                .and_then(|second| of_two(first, second, ends))
                .unwrap_or_else(|| copy_op(transfer, (ends.0, sender), (ends.1, receiver)));
            if op.bytes() == 0 {
                continue;
            }
            let here = (ours.field.memory.segment.as_ref(), ours.field.offset);
            let there = theirs.memory.as_ref().ok().map(|(segment, offset)| (segment.as_ref(), *offset));
            let there = there.filter(|_| direct);
            let (source, target) = match direction {
                Direction::Send => (Some(here), there),
                Direction::Receive => (there, Some(here)),
            };
            let (reads, writes) = op.reach();
            for (end, reach) in [(source, reads), (target, writes)] {
                if let Some((segment, offset)) = end
                    && !holds(segment, offset, &reach)
                {
                    let peer = self.peer;
                    return Err(Error::Bind(format!("a field shared with rank {peer} exceeds its memory")));
                }
            }
            work.sources.extend(source.map(|(segment, offset)| at(segment, offset).cast_const()));
            work.targets.extend(target.map(|(segment, offset)| at(segment, offset)));
            work.ops.push(op);
        }
        share_runs(&mut work.ops);
        Ok(work)
    }

    /// Counters at both ends, and the mailbox at the receiver's.
    fn signals(&self, direction: Direction, mailbox: bool) -> Result<(Option<NonNull<u8>>, Signals), Error> {
        let peer = self.peer;
        let (own, theirs, bell) = match (self.own, &self.theirs.own, self.comm.link().bell(peer)) {
            (Some(own), Some(theirs), Some(bell)) => (own, theirs, bell),
            _ => return Err(Error::Bind(format!("rank {peer} shares no memory with this one"))),
        };
        let (ours, other) = (self.berth, self.theirs.berth);
        let ((mine, opposite), receiver) = match direction {
            Direction::Send => ((ours.send_counter, other.receive_counter), (theirs, other)),
            Direction::Receive => ((ours.receive_counter, other.send_counter), (own, ours)),
        };
        let broken = || Error::Bind(format!("rank {peer} offers counters or a mailbox outside its memory"));
        let slots = SLOTS as usize * receiver.1.receives.next_multiple_of(MESSAGE_ALIGN);
        let in_own = |segment: &Segment, offset: usize, bytes: usize, align: usize| {
            let end = offset.checked_add(bytes).filter(|&end| end <= segment.len());
            // SAFETY: the offset lies within the segment.
            end.filter(|_| offset.is_multiple_of(align)).map(|_| unsafe { segment.base().add(offset) })
        };
        let counter = |segment, offset| {
            in_own(segment, offset, size_of::<Counter>(), align_of::<Counter>()).map(NonNull::cast)
        };
        let mailbox = match mailbox {
            true => Some(in_own(receiver.0, receiver.1.mailbox, slots, MESSAGE_ALIGN).ok_or_else(broken)?),
            false => None,
        };
        let mine = counter(own, mine).ok_or_else(broken)?;
        let theirs = counter(theirs, opposite).ok_or_else(broken)?;
        Ok((mailbox, Signals::Counters { mine, theirs, bell: NonNull::from(bell) }))
    }
}

/// Copies between domains of this rank.
fn local_copies(local: &Local) -> Work {
    let mut work = Work::default();
    for (pattern, &count) in local.patterns.iter().zip(&local.counts) {
        for number in 0..count {
            let transfers = &pattern.plan().local;
            let field = |domain| local.at(Place { pattern: pattern.id(), number, domain });
            let of_two = |first: &Transfer, second: &Transfer, ends: (End, End)| {
                let same = (first.from, first.to) == (second.from, second.to);
                let (from, to) = (field(first.from)?, field(first.to)?);
                let op = || copy_op_of_two((first, second), (ends.0, &from.cells), (ends.1, &to.cells));
                same.then(op).flatten()
            };
            let pairs = pair_up(transfers.len(), |a, b| {
                of_two(&transfers[a], &transfers[b], (End::Field(0), End::Field(0))).is_some()
            });
            for (first, second) in pairs {
                let transfer = &transfers[first];
                let (Some(from), Some(to)) = (field(transfer.from), field(transfer.to)) else { continue };
                let ends = (End::Field(work.sources.len()), End::Field(work.targets.len()));
                let op = second
                    .and_then(|second| of_two(transfer, &transfers[second], ends))
                    .unwrap_or_else(|| copy_op(transfer, (ends.0, &from.cells), (ends.1, &to.cells)));
                if op.bytes() == 0 {
                    continue;
                }
                work.ops.push(op);
                work.sources.push(at(&from.field.memory.segment, from.field.offset));
                work.targets.push(at(&to.field.memory.segment, to.field.offset));
            }
        }
    }
    share_runs(&mut work.ops);
    work
}

/// Goes through 0..count and pairs each with the first later one that suits it and has no other partner.
fn pair_up(count: usize, suits: impl Fn(usize, usize) -> bool) -> Vec<(usize, Option<usize>)> {
    let mut taken = vec![false; count];
    let mut pairs = Vec::with_capacity(count);
    for first in 0..count {
        if taken[first] {
            continue;
        }
        let second = (first + 1..count).find(|&second| !taken[second] && suits(first, second));
        if let Some(second) = second {
            taken[second] = true;
        }
        pairs.push((first, second));
    }
    pairs
}

fn at(segment: &Segment, offset: usize) -> *mut u8 {
    segment.base().as_ptr().wrapping_add(offset)
}

fn holds(segment: &Segment, offset: usize, reach: &std::ops::Range<isize>) -> bool {
    let at = |byte: isize| offset as i128 + byte as i128;
    reach.is_empty() || (at(reach.start) >= 0 && at(reach.end) <= segment.len() as i128)
}

/// Lets operations over the same cells share one table of them.
fn share_runs(ops: &mut [CopyOp]) {
    use std::collections::HashMap;
    let mut tables = HashMap::new();
    for cells in ops.iter_mut().filter_map(|op| op.cells.as_mut()) {
        let shared = tables.entry(Arc::clone(&cells.runs)).or_insert_with(|| Arc::clone(&cells.runs));
        cells.runs = Arc::clone(shared);
    }
}
