//! Ranks that exchange packets, with their neighbours or in sparse all-to-alls, when one of them dies.

use super::pool::Pool;
use super::{End, Play, now};
use crate::Trouble;
use crate::numbers::Numbers;
use halocline::neighbors::{NeighborExchange, Sides, Turn};
use halocline::sparse::{SparseAlltoall, SparseError};
use halocline::{HostMemory, MemoryResource, Packet};
use std::fmt::Display;
use std::sync::Arc;

/// Where the victim dies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    /// The others wait for its packets.
    Before,
    /// It has sent its packets. Others may read its memory, it may read theirs.
    Within,
}

/// Lengths of payloads: none, with the header, and mapped by the receiver.
const BYTES: [usize; 4] = [0, 100, 50_000, 1_000_000];

impl Play {
    /// Rounds between neighbours until one dies.
    pub(super) fn neighbors(&self, place: Place) -> Result<End, Trouble> {
        let memory = self.memory();
        let line = match self.seed.is_multiple_of(2) {
            true => NeighborExchange::ring(&self.comm, memory.resource())?,
            false => NeighborExchange::line(&self.comm, memory.resource())?,
        };
        let mut numbers = Numbers::new(self.seed ^ 3);
        for _ in 0..3 {
            // The victim may be in its place, and dead, while others are in these.
            if let Err(error) = line.exchange(0, self.packets(&line, &mut numbers)) {
                return self.named_in(&error);
            }
        }
        self.die_or_go_on(place, || {
            let packets = self.packets(&line, &mut numbers);
            drop(line.start(0, packets)?);
            Ok(())
        })?;
        let error = loop {
            let packets = self.packets(&line, &mut numbers);
            if let Err(error) = line.exchange(0, packets) {
                break error;
            }
        };
        drop(line);
        memory.check()?;
        self.named_in(&error)
    }

    /// The same in a session.
    pub(super) fn session(&self) -> Result<End, Trouble> {
        let memory = self.memory();
        let line = NeighborExchange::ring(&self.comm, memory.resource())?;
        let mut numbers = Numbers::new(self.seed ^ 3);
        // The victim may be dead already.
        let mut session = match line.session(1) {
            Ok(session) => session,
            Err(error) => return self.named_in(&error),
        };
        self.die_or_go_on(Place::Anywhere, || Ok(()))?;
        let error = loop {
            if let Err(error) = session.round(self.packets(&line, &mut numbers).map(turn)) {
                break error;
            }
        };
        drop((session, line));
        memory.check()?;
        self.named_in(&error)
    }

    /// Where payloads go.
    fn memory(&self) -> Memory {
        match self.seed / 2 % 2 {
            0 => Memory::Library(Arc::new(HostMemory::of(&self.comm))),
            _ => Memory::Program(Arc::new(Pool::new())),
        }
    }

    /// Packets of random lengths for the neighbours that there are.
    fn packets(&self, line: &NeighborExchange, numbers: &mut Numbers) -> Sides<Option<Packet>> {
        line.neighbors().map(|neighbor| neighbor.map(|_| packet(numbers)))
    }

    /// Sparse all-to-alls of all ranks until one dies.
    pub(super) fn sparse(&self, place: Place) -> Result<End, Trouble> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
        let memory = self.memory();
        let mut numbers = Numbers::new(self.seed ^ 3);
        let mut begin = || -> Result<SparseAlltoall, SparseError> {
            let exchange = SparseAlltoall::new(&self.comm, &others, &others, memory.resource())?;
            for to in &others {
                exchange.insert(*to, packet(&mut numbers))?;
            }
            Ok(exchange)
        };
        let whole = |exchange: SparseAlltoall| -> Result<(), SparseError> {
            exchange.finish();
            exchange.wait()?;
            others.iter().try_for_each(|from| exchange.extract(*from).map(drop))
        };
        if let Err(error) = begin().and_then(whole) {
            return self.named_in(&error);
        }
        self.die_or_go_on(place, || {
            // Its drop would tell the others.
            std::mem::forget(begin()?);
            Ok(())
        })?;
        let error = loop {
            if let Err(error) = begin().and_then(whole) {
                break error;
            }
        };
        memory.check()?;
        self.named_in(&error)
    }

    /// Kills the victim's progress at a place, or lets it go on and be killed anywhere.
    fn die_or_go_on(
        &self,
        place: Place,
        within: impl FnOnce() -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        if self.is_victim() {
            match place {
                Place::Anywhere => self.say_here(),
                Place::Before => self.await_death(),
                Place::Within => {
                    within()?;
                    self.await_death();
                }
            }
        }
        Ok(())
    }

    /// The end by an error: it names the victim, also where another rank has found its death.
    fn named_in(&self, error: &impl Display) -> Result<End, Trouble> {
        let (at, error) = (now(), error.to_string());
        let died = format!("rank {} has died", self.victim);
        match error.contains(&died) {
            true => Ok(End { rank: self.victim, how: "died", at, error }),
            false => Err(Trouble::new(format!("the error does not name rank {}: {error}", self.victim))),
        }
    }
}

/// Where payloads go: memory of the library, or of a pool of the program.
enum Memory {
    Library(Arc<HostMemory>),
    Program(Arc<Pool>),
}

impl Memory {
    fn resource(&self) -> Arc<dyn MemoryResource> {
        match self {
            Self::Library(memory) => Arc::clone(memory) as _,
            Self::Program(pool) => Arc::clone(pool) as _,
        }
    }

    /// An error if an exchange that is over uses memory of the program.
    fn check(&self) -> Result<(), Trouble> {
        match self {
            Self::Library(_) => Ok(()),
            Self::Program(pool) => pool.check(),
        }
    }
}

/// A packet on the way, or the end of a direction without a neighbour.
fn turn(packet: Option<Packet>) -> Turn {
    packet.map_or(Turn::Last, Turn::Packet)
}

fn packet(numbers: &mut Numbers) -> Packet {
    let bytes = BYTES[numbers.below(BYTES.len())];
    Packet::new(vec![1; 64], Some(vec![2; bytes].into()))
}
