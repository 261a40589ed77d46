//! Ranks whose messages and calls of the fake driver are scheduled by a test or by random numbers.

mod cases;
mod ends;
mod random;

use super::*;
use crate::communicator::mix;
use crate::mappings::fake::{Fake, World};
use halocline_device::Address;
use halocline_device::remote::{Export, Kind, Opened, Provider};
use std::collections::HashMap;

/// Some processes on one node, each with two devices, a rank each.
struct Sim {
    world: World,
    ranks: Vec<Rank>,
    /// Messages in flight, in order from each sender to each receiver.
    wires: BTreeMap<(usize, usize), VecDeque<Message>>,
    now: Duration,
    /// The bytes of each transfer: physical memory, offset, length.
    sent: HashMap<u64, (u64, u64, u64)>,
}

struct Rank {
    protocol: Protocol,
    process: ProcessId,
    drivers: [Arc<Fake>; 2],
    opened: HashMap<u64, (usize, Opened)>,
    answers: HashMap<u64, Answer>,
    arrivals: Vec<Arrival>,
    is_dead: bool,
}

/// A device of a process, 0 or 1.
fn device(process: usize, number: usize) -> DeviceId {
    DeviceId([process as u8 + 1, number as u8 + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// The first device of a rank.
fn at(rank: usize) -> Target {
    Target { rank, device: device(rank, 0) }
}

impl Sim {
    fn new(ranks: usize, limit: usize) -> Self {
        let world = World::default();
        let rank = |number: usize| {
            let process = ProcessId { pid: 100, random: mix(number as u64) };
            let mut protocol = Protocol::new(process);
            protocol.set_limit(limit);
            Rank {
                protocol,
                process,
                drivers: [0, 1].map(|device_number| Fake::new(&world, number, device(number, device_number))),
                opened: HashMap::new(),
                answers: HashMap::new(),
                arrivals: Vec::new(),
                is_dead: false,
            }
        };
        let ranks = (0..ranks).map(rank).collect();
        Self { world, ranks, wires: BTreeMap::new(), now: Duration::ZERO, sent: HashMap::new() }
    }

    /// Memory of the first device of a rank.
    fn allocate(&self, rank: usize, base: Address, bytes: u64) -> Allocation {
        self.world.allocate(rank, device(rank, 0), base, bytes)
    }

    /// Makes a request as the service does.
    fn request(
        &mut self,
        owner: usize,
        target: Target,
        allocation: &Allocation,
        want: Want,
    ) -> Result<u64, usize> {
        self.now += Duration::from_micros(1);
        let rank = &mut self.ranks[owner];
        let known = rank.protocol.lookup(allocation).map_err(|(_, pins)| pins)?;
        let id = match known {
            Some(id) => id,
            None => rank.protocol.insert(*allocation, false),
        };
        let request = rank.protocol.request(id, target, want, self.now);
        if let Want::Data { offset, length } = want {
            self.sent.insert(request, (allocation.id, offset, length));
        }
        Ok(request)
    }

    fn map(&mut self, owner: usize, target: Target, allocation: &Allocation) -> u64 {
        self.request(owner, target, allocation, Want::Map).expect("nothing stale is pinned")
    }

    fn send(&mut self, owner: usize, target: Target, allocation: &Allocation, offset: u64) -> u64 {
        let want = Want::Data { offset, length: 8 };
        self.request(owner, target, allocation, want).expect("nothing stale is pinned")
    }

    /// Maps, and returns entry and token.
    fn mapped(&mut self, owner: usize, target: Target, allocation: &Allocation) -> (u64, u64) {
        let request = self.map(owner, target, allocation);
        self.settle();
        match self.ranks[owner].answers.remove(&request) {
            Some(Answer::Mapped { entry, token, .. }) => (entry, token),
            other => panic!("{other:?}"),
        }
    }

    fn unpin(&mut self, owner: usize, entry: u64) {
        self.now += Duration::from_micros(1);
        self.ranks[owner].protocol.unpin(entry, self.now);
    }

    /// Carries out the next effect of a rank. False if there is none.
    fn carry_out(&mut self, number: usize) -> bool {
        let Self { ranks, wires, world, sent, .. } = self;
        let dead: Vec<usize> = (0..ranks.len()).filter(|rank| ranks[*rank].is_dead).collect();
        let rank = &mut ranks[number];
        let Some(effect) = rank.protocol.out.pop_front() else { return false };
        match effect {
            Effect::Post { to, message } => {
                // Encoded and decoded as on the wire.
                let read = Message::decode(&message.encode()).expect("it is a message");
                if !dead.contains(&to) {
                    wires.entry((number, to)).or_default().push_back(read);
                }
            }
            Effect::Offer { entry, target, allocation } => match rank.drivers[0].export(&allocation) {
                Ok(Export { handle, .. }) => {
                    let descriptor = Descriptor { process: rank.process, allocation, handle };
                    let message = Message::Offer { entry, device: target.device, descriptor };
                    rank.protocol.out.push_front(Effect::Post { to: target.rank, message });
                }
                Err(why) => rank.protocol.failed(entry, target, why),
            },
            Effect::Open { token, device, descriptor, .. } => {
                let at = rank.drivers.iter().position(|driver| driver.device == device);
                let outcome = at.ok_or(Refusal::NoDevice).and_then(|at| {
                    if descriptor.process == rank.process {
                        return rank.drivers[at]
                            .adopt(&descriptor.allocation)
                            .map(|()| descriptor.allocation.base);
                    }
                    let export = Export { handle: descriptor.handle.clone(), descriptors: Vec::new() };
                    let opened = rank.drivers[at].open(&descriptor.allocation, export)?;
                    let address = opened.address;
                    rank.opened.insert(token, (at, opened));
                    Ok(address)
                });
                rank.protocol.opened(token, outcome);
            }
            Effect::Close { token } => {
                if let Some((at, opened)) = rank.opened.remove(&token) {
                    // SAFETY: the fake only counts what is open: there is no memory behind it.
                    unsafe { rank.drivers[at].close(opened) }.expect("the fake always closes");
                }
                rank.protocol.closed(token);
            }
            Effect::Answer { request, answer } => {
                let before = rank.answers.insert(request, answer);
                assert_eq!(before, None, "request {request} is answered twice");
            }
            Effect::Arrived(arrival) => {
                let (id, offset, length) = sent[&arrival.epoch];
                assert_eq!(
                    world.look(number, arrival.address),
                    Some((id, offset)),
                    "other memory than was sent"
                );
                assert_eq!(arrival.length, length);
                rank.arrivals.push(arrival);
            }
        }
        true
    }

    /// Delivers the next message from one rank to another. False if there is none.
    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(message) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        self.hear(from, to, message).expect("no rank of ours says such a thing");
        true
    }

    fn hear(&mut self, from: usize, to: usize, message: Message) -> Result<(), MessageError> {
        self.ranks[to].protocol.receive(from, message, Ok(Vec::new()), self.now)
    }

    /// Reads the first arrival of a rank, if there is one.
    fn take(&mut self, number: usize) -> bool {
        let rank = &mut self.ranks[number];
        if rank.arrivals.is_empty() {
            return false;
        }
        let arrival = rank.arrivals.remove(0);
        let (id, offset, _) = self.sent[&arrival.epoch];
        assert_eq!(self.world.look(number, arrival.address), Some((id, offset)), "unmapped under a transfer");
        rank.protocol.taken(&arrival);
        true
    }

    /// Runs all possible steps, but reads no arrivals.
    fn settle(&mut self) {
        loop {
            let all = 0..self.ranks.len();
            let mut is_busy = false;
            for number in all.clone() {
                while self.carry_out(number) {
                    is_busy = true;
                }
            }
            for (from, to) in all.clone().flat_map(|from| all.clone().map(move |to| (from, to))) {
                while self.deliver(from, to) {
                    is_busy = true;
                }
            }
            if !is_busy {
                return self.check();
            }
        }
    }

    /// As [`Sim::settle`], and reads all arrivals.
    fn finish(&mut self) {
        self.settle();
        while (0..self.ranks.len()).any(|rank| self.take(rank)) {
            self.settle();
        }
    }

    /// The process of a rank dies. Its messages arrive; the others notice later.
    fn kill(&mut self, number: usize) {
        self.world.kill(number);
        let rank = &mut self.ranks[number];
        rank.is_dead = true;
        rank.protocol = Protocol::new(rank.process);
        rank.opened.clear();
        rank.arrivals.clear();
        self.wires.retain(|(_, to), _| *to != number);
    }

    /// A rank notices another's death, after all its messages.
    fn mourn(&mut self, number: usize, dead: usize) {
        while self.deliver(dead, number) {}
        self.ranks[number].protocol.is_gone(dead);
    }

    fn answer(&mut self, rank: usize, request: u64) -> Option<Answer> {
        self.ranks[rank].answers.remove(&request)
    }

    /// Checks the invariants.
    fn check(&self) {
        assert_eq!(self.world.wrongs(), [""; 0]);
        for rank in &self.ranks {
            let protocol = &rank.protocol;
            let is_offered = |entry: &Entry| entry.targets.values().any(|state| *state == State::Offered);
            let is_kept = |entry: &&Entry| !entry.retiring && entry.pins == 0 && !is_offered(entry);
            let (count, limit) = (protocol.entries.values().filter(is_kept).count(), protocol.limit);
            assert!(count <= limit, "{count} unused, with a limit of {limit}");
        }
    }

    /// Ends all live ranks, in this order; nothing is left.
    fn shut_down(&mut self, order: &[usize]) {
        for &number in order {
            if self.ranks[number].is_dead {
                continue;
            }
            let rank = &mut self.ranks[number];
            let arrivals = std::mem::take(&mut rank.arrivals);
            arrivals.iter().for_each(|arrival| rank.protocol.end_use(arrival.token));
            rank.protocol.close();
            self.settle();
            let rank = &self.ranks[number];
            assert!(rank.protocol.is_over(), "{:?}", rank.protocol.stats());
            for other in (0..self.ranks.len()).filter(|other| *other != number) {
                self.mourn(other, number);
            }
        }
        self.settle();
        let (_, opens, closes) = self.world.calls();
        assert_eq!((opens, self.world.held()), (closes, 0));
    }
}
