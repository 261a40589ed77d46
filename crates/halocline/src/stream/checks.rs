//! Checked mode: the areas of exchanges in flight, the launches that fill them, and what the host does with them.
//!
//! | when | the lane's stream, or the user's | the host |
//! | --- | --- | --- |
//! | an exchange begins | copies the cells to `Before`, then the fill pattern to the halo, before it grants | writes the fill pattern to `Last` |
//! | its bytes have arrived | copies the cells to `After`, before it reports that it is done | |
//! | a look finds it done | | compares owned cells, sends its manifests, compares the halo with those of the peers |
//! | the first wait for the latest exchange | copies the cells to `Last` | compares them later: a difference is a write before the wait |
//!
//! An exchange is over once the manifests of its peers have arrived and agree. The streams do not wait for that. Each exchange in flight
//! has areas of its own. A begin waits only while a thread compares areas at that moment.

use super::check_slot::Slot;
use super::{Cue, Cut, Lane, Scheduled, Work};
use crate::check::{Area, Finding, LookTables, Looked, Manifest, Spots, found_late};
use crate::error::{Cause, Error};
use crate::lifecycle::Engine;
use crate::link::{Direction, Link};
#[cfg(test)]
use crate::lock::lock;
use crate::lock::lock_yielding;
use crate::set::Set;
use halocline_comm::{Communicator, Endpoint, Tag};
use halocline_device::{Address, Device, DeviceError, Epoch, Stream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// How often the progress thread looks at an exchange in flight: peers wait for this rank's manifests.
pub(super) const CHECKED: Duration = Duration::from_millis(1);
/// How long a wait of the host takes for the last look of a stream.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Exchanges for which a bind makes areas. More in flight make more.
const AT_FIRST: usize = 2;

/// For how long a begin waits for the manifests of exchanges that the streams have finished.
const SILENCE: Duration = Duration::from_secs(10);

/// What a lane does for the checks of a set.
pub(crate) struct Looks {
    pub(crate) tables: LookTables,
    /// Flags between lanes: the halo holds the fill pattern.
    pub(crate) filled: Vec<Cue>,
    /// The cells were copied for the checks.
    pub(crate) looked: Vec<Cue>,
}

/// The checks of an object's device fields.
pub(crate) struct Checks {
    /// The operation of the manifests.
    operation: u64,
    state: Mutex<State>,
    /// Damage that a test does to a halo that was filled.
    #[cfg(test)]
    pub(crate) sabotage: Mutex<Option<crate::check::Sabotage>>,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    /// The last exchange that was waited for. Work of the user may follow it, so its cells are not copied again.
    followed: u64,
}

/// The result of a comparison.
enum Verdict {
    /// A manifest has not arrived.
    Waits,
    Right,
    Wrong(Finding),
    /// A peer sent no manifest, but something else, or can be sent none.
    Lost(usize, Cause, usize),
}

/// What a check ends the object for: a finding, of an exchange that is over; or a link that failed.
enum Trouble {
    Finding(Finding, Option<u64>),
    Lost(usize, Cause, usize),
}

impl Checks {
    /// With areas for two exchanges, each of any of the sets.
    pub(crate) fn new(
        operation: u64,
        sets: &[Arc<Set>],
        links: &[Link],
        devices: &[Device],
    ) -> Result<Self, DeviceError> {
        let mut state = State::default();
        state.slots.resize_with(AT_FIRST, Slot::default);
        for set in sets {
            let spots = Spots::new(set, links, devices);
            state.slots.iter_mut().try_for_each(|slot| slot.reserve(&spots, devices))?;
        }
        Ok(Self {
            operation,
            state: Mutex::new(state),
            #[cfg(test)]
            sabotage: Mutex::default(),
        })
    }

    /// The object ends: discards the messages that are left in the inbox. A thread may have begun a last look while another one closed
    /// the object: its areas stay until then.
    pub(super) fn end(&self, comm: &Communicator) {
        while !lock_yielding(&self.state, comm.link().host()).slots.iter().all(Slot::is_looked) {
            comm.link().host().yield_now();
        }
        comm.link().inbox().forget(self.operation);
    }

    fn tag(&self, epoch: u64) -> Tag {
        Tag { operation: self.operation, round: epoch }
    }

    /// Never waits: `None` while another thread is here.
    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Scheduled {
    fn state<'a>(&self, checks: &'a Checks) -> MutexGuard<'a, State> {
        lock_yielding(&checks.state, self.comm.link().host())
    }

    fn spots<'a>(&'a self, set: &'a Set) -> Spots<'a> {
        Spots::new(set, &self.links, self.kit.devices())
    }

    /// Before exchange `epoch` begins: areas for it, with the fill pattern. After an error nothing has begun.
    pub(super) fn prepare_check(&self, epoch: u64, work: Work<'_>) -> Result<(), Error> {
        self.make_areas(epoch, work).inspect_err(|error| {
            if self.lanes.iter().any(|lane| lane.device.failure().is_some()) {
                self.end_by_device(error.to_string());
            }
        })
    }

    fn make_areas(&self, epoch: u64, work: Work<'_>) -> Result<(), Error> {
        let Some(checks) = &self.checks else { return Ok(()) };
        match work {
            Work::Set(_) => {}
            // Work of the user may follow the exchanges before.
            Work::Reduce(..) => {
                self.state(checks).followed = epoch - 1;
                return Ok(());
            }
            Work::Given(_) => return Ok(()),
        }
        let set = &self.sets[work.set()];
        let spots = self.spots(set);
        let mut state = self.state(checks);
        // Work of the user may follow the exchanges before.
        state.followed = epoch - 1;
        let of_refused = state.slots.iter().position(|slot| slot.epoch == epoch);
        let at =
            of_refused.or_else(|| state.slots.iter().position(Slot::is_free)).unwrap_or(state.slots.len());
        if at == state.slots.len() {
            state.slots.push(Slot::default());
        }
        let slot = &mut state.slots[at];
        slot.reserve(&spots, self.kit.devices())?;
        slot.begin(epoch, set.number, (self.links.len(), self.lanes.len()));
        // SAFETY: no exchange uses the slot: that of its last one is over, with all its looks. They have the bytes, as was checked.
        unsafe { Looked::new(&spots, &slot.memories, (self.comm.rank(), epoch)) }.fill();
        Ok(())
    }

    /// Waits until exchange `epoch` is checked, if the streams have finished it: the host may be behind them. Returns the last exchange
    /// that is over. Gives up if the peers say nothing for long.
    pub(super) fn await_checks(&self, epoch: u64) -> u64 {
        let host = self.comm.link().host();
        let since = host.now();
        while self.checks.is_some()
            && self.look() < epoch
            && self.check_failure().is_ok()
            && self.done(self.completed(), self.epoch()) >= epoch
            && host.now().saturating_sub(since) < SILENCE
        {
            host.yield_now();
        }
        self.completed()
    }

    /// The first byte of a lane's areas of an exchange.
    pub(super) fn areas(&self, epoch: u64, lane: usize) -> Option<Address> {
        let state = self.state(self.checks.as_ref()?);
        let slot = state.slots.iter().find(|slot| slot.epoch == epoch)?;
        slot.memories.get(lane).map(|memory| memory.at(0))
    }

    /// Orders later work of a stream, which writes the cells of a lane, after the last looks at them.
    pub(super) fn follow_looks(&self, lane: usize, stream: &Stream) -> Result<(), DeviceError> {
        let Some(checks) = self.checks.as_ref().filter(|_| !self.is_cut(Cut::LastLook)) else {
            return Ok(());
        };
        let state = self.state(checks);
        state
            .slots
            .iter()
            .filter_map(|slot| slot.last.get(lane)?.as_ref())
            .try_for_each(|event| stream.wait(event))
    }

    /// The last exchange up to `done` whose checks found it right; those up to `known` are over. The streams have finished all up to `done`.
    fn checked(&self, known: u64, done: u64) -> (u64, Option<Trouble>) {
        let Some(checks) = &self.checks else { return (done, None) };
        self.comm.link().poll();
        let Some(mut state) = checks.try_state() else { return (known, None) };
        let mut right = known;
        for epoch in known + 1..=done {
            // One that is missing was right: another exchange has its slot.
            if let Some(slot) = state.slots.iter_mut().find(|slot| slot.epoch == epoch && !slot.is_right) {
                match self.compare(checks, slot) {
                    Verdict::Waits => break,
                    Verdict::Right => slot.is_right = true,
                    Verdict::Wrong(finding) => return (right, Some(Trouble::Finding(finding, None))),
                    Verdict::Lost(link, cause, culprit) => {
                        return (right, Some(Trouble::Lost(link, cause, culprit)));
                    }
                }
            }
            right = epoch;
        }
        let compare_last = |slot: &mut Slot| {
            let is_due = slot.is_right && !slot.is_settled() && slot.is_looked();
            is_due.then(|| self.compare_last(slot)).flatten().map(|finding| (finding, slot.epoch))
        };
        let found = state.slots.iter_mut().find_map(compare_last);
        (right, found.map(|(finding, epoch)| Trouble::Finding(finding, Some(epoch))))
    }

    /// As [`Scheduled::checked`], and fails the object for what was found.
    pub(super) fn check(&self, known: u64, done: u64) -> u64 {
        let (right, trouble) = self.checked(known, done);
        let Some(trouble) = trouble else { return right };
        self.life().device.completed.reach(right);
        match trouble {
            Trouble::Finding(finding, completed) => finding.fail(self.life(), &self.links, completed),
            Trouble::Lost(link, cause, culprit) => self.links[link].fail(self.life(), cause, culprit),
        }
        self.completed()
    }

    /// The same, but leaves findings for another look.
    pub(super) fn check_silently(&self, known: u64, done: u64) -> u64 {
        self.checked(known, done).0
    }

    /// Compares an exchange that the streams have finished.
    fn compare(&self, checks: &Checks, slot: &mut Slot) -> Verdict {
        let (set, epoch) = (&self.sets[slot.set], slot.epoch);
        let spots = self.spots(set);
        // SAFETY: the streams have finished the exchange, and with it its copies to `Before` and `After`. Nobody else writes those.
        let looked = unsafe { Looked::new(&spots, &slot.memories, (self.comm.rank(), epoch)) };
        if !slot.is_told {
            #[cfg(test)]
            if let Some(sabotage) = lock(&checks.sabotage).take() {
                looked.sabotage(sabotage);
            }
            if let Some(finding) = looked.owned_written(Area::After, |_| true).or_else(|| looked.within()) {
                return Verdict::Wrong(finding);
            }
            for (at, link) in self.links_to(Direction::Send) {
                let manifest = looked.manifest(link.peer).write();
                if let Err(error) = self.comm.send(link.peer, checks.tag(epoch), manifest) {
                    tracing::warn!("rank {}: cannot report exchange {epoch}: {error}", self.comm.rank());
                    return Verdict::Lost(at, Cause::Died, link.peer);
                }
            }
            slot.is_told = true;
        }
        for (at, link) in self.links_to(Direction::Receive) {
            if slot.manifests[at].is_some() {
                continue;
            }
            match Manifest::take(&self.comm, checks.tag(epoch), link.peer) {
                Some(Ok(manifest)) => slot.manifests[at] = Some(manifest),
                Some(Err(_)) => return Verdict::Lost(at, Cause::Malformed, link.peer),
                None => {}
            }
        }
        let mut received = self.links_to(Direction::Receive).map(|(at, link)| (link, &slot.manifests[at]));
        if received.clone().any(|(_, manifest)| manifest.is_none()) {
            return Verdict::Waits;
        }
        let found = received.find_map(|(link, manifest)| looked.received(link.peer, manifest.as_ref()?));
        found.map_or(Verdict::Right, Verdict::Wrong)
    }

    /// Compares what was there when the user waited. A finding is found again until the object has failed for it.
    fn compare_last(&self, slot: &mut Slot) -> Option<Finding> {
        let set = &self.sets[slot.set];
        let spots = self.spots(set);
        // SAFETY: the streams have finished all copies to the areas, and no exchange begins with them before this one is compared.
        let looked = unsafe { Looked::new(&spots, &slot.memories, (self.comm.rank(), slot.epoch)) };
        let is_there = |lane: usize| slot.last[lane].is_some();
        let found = looked.owned_written(Area::Last, is_there).or_else(|| looked.halo_written(is_there));
        slot.is_compared = found.is_none();
        found
    }

    fn links_to(&self, direction: Direction) -> impl Iterator<Item = (usize, &Link)> + Clone {
        self.links.iter().enumerate().filter(move |(_, link)| link.direction == direction)
    }

    /// Orders later work of a stream after the last look at the cells of exchange `epoch`. The first such stream looks itself. Later
    /// work may write the cells.
    pub(super) fn look_on(&self, epoch: u64, (lane, stream): (usize, &Stream)) -> Result<(), DeviceError> {
        let Some(checks) = &self.checks else { return Ok(()) };
        let mut state = self.state(checks);
        if self.is_latest(&state, epoch) {
            self.look_last(&mut state, epoch, (lane, stream))?;
        } else if let Some(slot) = state.slots.iter().find(|slot| slot.epoch == epoch) {
            slot.last[lane].iter().try_for_each(|event| stream.wait(event))?;
        }
        state.followed = state.followed.max(epoch);
        Ok(())
    }

    /// Whether nobody but the exchange may have written the cells: no later exchange has begun, and none of another object, and no work
    /// of the user may follow yet. An object that is closed may end at any time, and looks at nothing.
    fn is_latest(&self, state: &State, epoch: u64) -> bool {
        let is_used_otherwise = self.shares.load(Ordering::Acquire) || self.part().is_closed();
        state.followed < epoch && epoch == self.epoch() && !is_used_otherwise
    }

    fn look_last(
        &self,
        state: &mut State,
        epoch: u64,
        (number, stream): (usize, &Stream),
    ) -> Result<(), DeviceError> {
        let Some(slot) = state.slots.iter_mut().find(|slot| slot.epoch == epoch) else { return Ok(()) };
        let lane = &self.lanes[number];
        let event = lane.shared.events.take()?;
        let first = slot.memories[number].at(0);
        if let Some(looks) = &lane.scripts[slot.set].looks {
            lane.look(stream, looks, (first, Area::Last), epoch)?;
        }
        stream.record(&event)?;
        slot.last[number] = Some(event);
        Ok(())
    }

    /// The outcome of exchange `epoch` for the user, who may write the cells once this has returned it.
    pub(crate) fn final_outcome(&self, epoch: u64) -> Option<Result<(), Error>> {
        let outcome = self.outcome(epoch)?;
        let (Some(checks), Ok(())) = (&self.checks, &outcome) else { return Some(outcome) };
        if self.check_failure().is_ok() {
            match self.look_by_host(checks, epoch) {
                Err(error) => return Some(Err(self.lose(error))),
                Ok(()) => _ = self.look(),
            }
            let (now, mut state) = (self.comm.link().host().now(), self.state(checks));
            let mut open = state.slots.iter_mut().filter(|slot| slot.epoch == epoch && !slot.is_settled());
            if let Some(slot) = open.next().filter(|_| self.check_failure().is_ok()) {
                if now.saturating_sub(*slot.waited_since.get_or_insert(now)) < LAST_LOOK {
                    return None;
                }
                // The stream may wait for what the program does next: then this exchange is not looked at again.
                slot.is_compared = true;
            }
        }
        Some(found_late(self.life(), epoch).map_or(outcome, Err))
    }

    /// Looks at the cells of exchange `epoch`, which is over, once more, unless a stream does.
    fn look_by_host(&self, checks: &Checks, epoch: u64) -> Result<(), DeviceError> {
        let begin = self.enter();
        let mut state = self.state(checks);
        if self.is_latest(&state, epoch) && !begin.is_broken {
            for (number, lane) in self.lanes.iter().enumerate() {
                self.look_last(&mut state, epoch, (number, &lane.shared.rescue))?;
            }
        }
        state.followed = state.followed.max(epoch);
        Ok(())
    }

    /// The user may write the cells of all exchanges that are over, without a wait.
    pub(super) fn follow_without_look(&self) {
        if let Some(checks) = &self.checks {
            let mut state = self.state(checks);
            state.followed = state.followed.max(self.epoch());
        }
    }

    /// Whether nothing touches the fields any more: the user may.
    pub(crate) fn reclaim(&self) -> bool {
        let is_quiet = self.is_quiet();
        if is_quiet {
            self.follow_without_look();
        }
        is_quiet
    }

    /// Whether a stream may still look at cells for the last time.
    pub(super) fn is_looking(&self) -> bool {
        self.checks.as_ref().is_some_and(|checks| !self.state(checks).slots.iter().all(Slot::is_looked))
    }

    /// As [`Scheduled::is_looking`], of a thread that must not wait: true while another one gives such work to a stream.
    pub(super) fn may_be_looking(&self) -> bool {
        let is_looked = |state: MutexGuard<'_, State>| state.slots.iter().all(Slot::is_looked);
        self.checks.as_ref().is_some_and(|checks| !checks.try_state().is_some_and(is_looked))
    }

    /// Whether all that streams have looked at is compared.
    pub(super) fn is_compared(&self) -> bool {
        let is_compared = |state: MutexGuard<'_, State>| state.slots.iter().all(Slot::is_settled);
        self.checks.as_ref().is_none_or(|checks| checks.try_state().is_some_and(is_compared))
    }

    /// Whether the peer of a link has not sent the manifest of an exchange that the streams may have finished.
    pub(super) fn lacks_manifest(&self, link: usize, epoch: u64) -> bool {
        let Some(checks) = &self.checks else { return false };
        let (peer, direction) = (self.links[link].peer, self.links[link].direction);
        let lacks = |slot: &Slot| slot.epoch == epoch && !slot.is_right && slot.manifests[link].is_none();
        direction == Direction::Receive
            && checks.try_state().is_some_and(|state| state.slots.iter().any(lacks))
            && self.comm.link().inbox().probe(checks.tag(epoch), Some(peer)).is_none()
    }
}

impl Lane {
    /// Before an exchange: copies the cells to the first area, then fills the halo.
    pub(super) fn look_before(
        &self,
        stream: &Stream,
        looks: &Looks,
        first: Address,
        epoch: u64,
    ) -> Result<(), DeviceError> {
        self.look(stream, looks, (first, Area::Before), epoch)?;
        let LookTables { fill: Some(fill), bytes, .. } = &looks.tables else { return Ok(()) };
        // SAFETY: the object holds the table and its memory until the stream has finished. No peer is granted this exchange yet, and
        // the exchanges before are over for the stream.
        unsafe { stream.launch_on(fill, Epoch::Given(epoch), &[first + Area::Last.at(*bytes) as Address]) }
    }

    /// Copies the cells to an area.
    pub(super) fn look(
        &self,
        stream: &Stream,
        looks: &Looks,
        (first, area): (Address, Area),
        epoch: u64,
    ) -> Result<(), DeviceError> {
        let LookTables { look: Some(look), bytes, .. } = &looks.tables else { return Ok(()) };
        // SAFETY: the object holds the table and its memory until the stream has finished. The area is that of this exchange alone. The
        // stream comes after all copies into the cells; what the user writes too early is the error that is looked for.
        unsafe { stream.launch_on(look, Epoch::Given(epoch), &[first + area.at(*bytes) as Address]) }
    }
}
