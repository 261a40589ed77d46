//! Random schedules: the calls of ranks, the order of messages and driver calls, deaths.

use super::*;
use halocline_device::Variable;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = mix(self.0);
        (self.0 % end.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }
}

/// The state of a schedule.
struct Play {
    sim: Sim,
    dice: Dice,
    /// Live memory: its rank, and the number of requests that use it.
    memory: Vec<(usize, Allocation, usize)>,
    /// Memory that is freed once no rank has it mapped: its rank and entries.
    given_up: Vec<(usize, Allocation, Vec<u64>)>,
    /// Requests without an answer, and mappings in use: owner, memory, whether it is a transfer.
    requests: BTreeMap<u64, (usize, u64)>,
    pinned: Vec<(usize, u64, u64)>,
    /// Uses by importers: rank, token, owner, address and expected content.
    held: Vec<(usize, u64, Address, u64)>,
    refused: usize,
}

const RANKS: usize = 3;
/// Few and close together, so that addresses are reused and overlap.
const BASES: usize = 6;
const UNIT: u64 = 1024;

impl Play {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(mix(seed));
        let sim = Sim::new(RANKS, [0, 1, 2, 1024][dice.below(4)]);
        let (memory, given_up, requests, pinned, held) = Default::default();
        Self { sim, dice, memory, given_up, requests, pinned, held, refused: 0 }
    }

    fn alive(&self) -> Vec<usize> {
        (0..RANKS).filter(|rank| !self.sim.ranks[*rank].is_dead).collect()
    }

    fn step(&mut self) {
        match self.dice.below(32) {
            0..=8 => drop(self.carry_out_one()),
            9..=15 => self.deliver_one(),
            16..=17 => self.allocate(),
            18..=19 => self.free(),
            20..=23 => self.request(),
            24..=26 => drop((0..RANKS).any(|_| self.take_one())),
            27 => self.unpin(),
            28 => self.resolve(),
            29 => self.end_use(),
            30 => match self.dice.below(3) {
                0 => self.withdraw(),
                _ => self.set_limit(),
            },
            _ => self.refuse_later(),
        }
        self.gather();
        self.free_given_up();
        self.sim.check();
    }

    fn carry_out_one(&mut self) -> bool {
        let rank = self.dice.below(RANKS);
        !self.sim.ranks[rank].is_dead && self.sim.carry_out(rank)
    }

    fn take_one(&mut self) -> bool {
        let rank = self.dice.below(RANKS);
        self.sim.take(rank)
    }

    fn deliver_one(&mut self) {
        let ready: Vec<_> =
            self.sim.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(at, _)| *at).collect();
        if let Some((from, to)) = self.dice.pick(&ready) {
            self.sim.deliver(from, to);
        }
    }

    fn allocate(&mut self) {
        let Some(rank) = self.dice.pick(&self.alive()) else { return };
        let base = (1 + self.dice.below(BASES)) as u64 * UNIT;
        let bytes = (1 + self.dice.below(3)) as u64 * UNIT;
        let is_free = |owner: usize, other: &Allocation| {
            owner != rank || base >= other.end() || other.base >= base + bytes
        };
        if self.memory.iter().all(|(owner, other, _)| is_free(*owner, other))
            && self.given_up.iter().all(|(owner, other, _)| is_free(*owner, other))
        {
            let allocation = self.sim.allocate(rank, base, bytes);
            self.memory.push((rank, allocation, 0));
        }
    }

    /// Frees memory that no request uses, with or without a release before; or, like the library's own memory,
    /// at any time, once no rank has it mapped.
    fn free(&mut self) {
        if self.dice.below(3) == 0 && !self.memory.is_empty() {
            let at = self.dice.below(self.memory.len());
            let (rank, allocation, _) = self.memory.swap_remove(at);
            let entries = self.sim.ranks[rank].protocol.give_up(|other| *other == allocation);
            return self.given_up.push((rank, allocation, entries));
        }
        let unused: Vec<_> = (0..self.memory.len()).filter(|at| self.memory[*at].2 == 0).collect();
        let Some(at) = self.dice.pick(&unused) else { return };
        let (rank, allocation, _) = self.memory[at];
        if self.dice.below(2) == 0 {
            let protocol = &mut self.sim.ranks[rank].protocol;
            // Withdrawn transfers may still be in flight.
            let Ok(ids) = protocol.release(allocation.base) else { return };
            if !protocol.holders(&ids).is_empty() {
                return;
            }
        }
        self.memory.swap_remove(at);
        self.sim.world.free(allocation.id);
    }

    fn free_given_up(&mut self) {
        let Self { given_up, sim, .. } = self;
        let is_over = |(rank, _, entries): &(usize, Allocation, Vec<u64>)| {
            sim.ranks[*rank].protocol.unmap_state(entries) == Unmap::Over
        };
        for (_, allocation, _) in given_up.extract_if(.., |memory| is_over(memory)) {
            sim.world.free(allocation.id);
            assert!(!sim.world.is_held(allocation.id), "freed while it was mapped");
        }
    }

    fn request(&mut self) {
        let Some(at) = (!self.memory.is_empty()).then(|| self.dice.below(self.memory.len())) else { return };
        let (owner, allocation, _) = self.memory[at];
        let rank = (owner + 1 + self.dice.below(RANKS - 1)) % RANKS;
        let target = Target { rank, device: device(rank, self.dice.below(2)) };
        let offset = self.dice.below(allocation.bytes as usize - 8) as u64;
        let want = if self.dice.below(3) == 0 { Want::Map } else { Want::Data { offset, length: 8 } };
        // A mapping that an importer's death left pinned: not a request of this schedule.
        let request =
            self.sim.request(owner, target, &allocation, want).expect("what is freed is not pinned");
        self.memory[at].2 += 1;
        self.requests.insert(request, (owner, allocation.id));
    }

    /// Records answers.
    fn gather(&mut self) {
        for owner in 0..RANKS {
            for (request, answer) in std::mem::take(&mut self.sim.ranks[owner].answers) {
                let (_, id) = self.requests.remove(&request).expect("it was asked for");
                match answer {
                    Answer::Mapped { entry, .. } => {
                        self.pinned.push((owner, entry, id));
                        continue;
                    }
                    Answer::Done(refused) => assert_eq!(refused, None),
                    Answer::Refused(_) => self.refused += 1,
                    Answer::Gone => assert!(self.alive().len() < RANKS),
                }
                self.unused(id);
            }
        }
    }

    fn unused(&mut self, id: u64) {
        if let Some(memory) = self.memory.iter_mut().find(|memory| memory.1.id == id) {
            memory.2 -= 1;
        }
    }

    fn unpin(&mut self) {
        if !self.pinned.is_empty() {
            let at = self.dice.below(self.pinned.len());
            let (owner, entry, id) = self.pinned.swap_remove(at);
            self.sim.unpin(owner, entry);
            self.unused(id);
        }
    }

    /// Withdraws a request. A transfer that has begun goes on.
    fn withdraw(&mut self) {
        let all: Vec<(u64, (usize, u64))> = self.requests.iter().map(|(id, of)| (*id, *of)).collect();
        if let Some((request, (owner, id))) = self.dice.pick(&all)
            && self.sim.ranks[owner].protocol.withdraw(request, self.sim.now)
        {
            self.requests.remove(&request);
            self.unused(id);
        }
    }

    /// An importer uses a mapping whose token it has got.
    fn resolve(&mut self) {
        let Some((owner, entry, id)) = self.dice.pick(&self.pinned) else { return };
        let Some(entry) = self.sim.ranks[owner].protocol.entries.get(&entry) else { return };
        let mapped = entry.targets.iter().find_map(|(target, state)| match state {
            State::Mapped { token, .. } => Some((target.rank, *token)),
            _ => None,
        });
        let Some((rank, token)) = mapped.filter(|(rank, _)| !self.sim.ranks[*rank].is_dead) else { return };
        let address = self.sim.ranks[rank].protocol.resolve(owner, token, 4, 4).expect("it is pinned");
        assert_eq!(self.sim.world.look(rank, address), Some((id, 4)));
        self.held.push((rank, token, address, id));
    }

    fn end_use(&mut self) {
        if !self.held.is_empty() {
            let at = self.dice.below(self.held.len());
            let (rank, token, address, id) = self.held.swap_remove(at);
            if !self.sim.ranks[rank].is_dead {
                assert_eq!(self.sim.world.look(rank, address), Some((id, 4)), "closed while it was used");
                self.sim.ranks[rank].protocol.end_use(token);
            }
        }
    }

    fn set_limit(&mut self) {
        let limit = [0, 1, 2, 8, 1024][self.dice.below(5)];
        let rank = self.dice.below(RANKS);
        self.sim.ranks[rank].protocol.set_limit(limit);
    }

    fn refuse_later(&mut self) {
        let rank = self.dice.below(RANKS);
        let device = self.dice.below(2);
        let why = [Refusal::OutOfMemory, Refusal::NoPeerAccess, Refusal::Other(5)][self.dice.below(3)];
        self.sim.ranks[rank].drivers[device].refusals.lock().unwrap().push(why);
    }

    fn kill(&mut self) {
        let dead = self.dice.below(RANKS);
        if self.sim.ranks[dead].is_dead {
            return;
        }
        self.sim.kill(dead);
        self.memory.retain(|memory| memory.0 != dead);
        self.given_up.retain(|memory| memory.0 != dead);
        self.requests.retain(|_, request| request.0 != dead);
        self.pinned.retain(|pinned| pinned.0 != dead);
        self.held.retain(|held| held.0 != dead);
        self.sim.ranks[dead].answers.clear();
    }

    /// Runs all pending steps and ends all uses.
    fn come_to_rest(&mut self) {
        for (dead, other) in (0..RANKS).flat_map(|dead| (0..RANKS).map(move |other| (dead, other))) {
            if self.sim.ranks[dead].is_dead && !self.sim.ranks[other].is_dead {
                self.sim.mourn(other, dead);
            }
        }
        while !self.held.is_empty() {
            self.end_use();
        }
        self.sim.finish();
        self.gather();
        assert!(self.requests.is_empty(), "without an answer: {:?}", self.requests);
        for owner in self.alive() {
            let protocol = &self.sim.ranks[owner].protocol;
            let pinned = protocol.entries.values().filter(|entry| entry.pins > 0).count();
            // Each entry may be mapped by two devices of each of the other ranks.
            let most = 2 * (RANKS - 1) * (protocol.limit + pinned);
            assert!(self.sim.world.open_of(owner) <= most);
            assert!(protocol.entries.values().all(|entry| !entry.retiring));
            let mapped = protocol.entries.values().flat_map(|entry| entry.targets.values());
            let mapped = mapped.filter(|state| matches!(state, State::Mapped { .. })).count();
            assert_eq!(self.sim.world.open_of(owner), mapped, "the owner knows what is open");
        }
    }
}

fn play(seed: u64, kills: bool) -> (usize, usize) {
    let mut play = Play::new(seed);
    for round in 0..6 {
        for _ in 0..150 {
            play.step();
        }
        if kills && round == 3 {
            play.kill();
        }
        if play.dice.below(2) == 0 {
            play.come_to_rest();
        }
    }
    play.come_to_rest();
    while !play.pinned.is_empty() {
        play.unpin();
    }
    play.sim.settle();
    play.free_given_up();
    assert!(play.given_up.is_empty(), "not freed: {:?}", play.given_up);
    let mut order: Vec<usize> = (0..RANKS).collect();
    order.rotate_left(play.dice.below(RANKS));
    if play.dice.below(2) == 0 {
        order.swap(0, 1);
    }
    let opens = play.sim.world.calls().1;
    play.sim.shut_down(&order);
    (opens, play.refused)
}

fn plays(kills: bool) {
    let (mut opens, mut refused) = (0, 0);
    let chosen = Variable::read("HALOCLINE_SEED").map(|seed| seed.number(0..=u64::MAX - 1).expect("a seed"));
    let seeds = chosen.map_or(0..400, |seed| seed..seed + 1);
    for seed in seeds {
        let done = std::panic::catch_unwind(|| play(seed, kills));
        let (opened, not) = done.unwrap_or_else(|_| panic!("HALOCLINE_SEED={seed}"));
        (opens, refused) = (opens + opened, refused + not);
    }
    assert!(opens > 0 && refused > 0, "{opens} opened, {refused} refused");
}

#[test]
fn random_schedules_keep_the_rules() {
    plays(false);
}

#[test]
fn random_schedules_with_a_death_keep_the_rules() {
    plays(true);
}
