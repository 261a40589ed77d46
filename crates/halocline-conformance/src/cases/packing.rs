//! Messages packed and unpacked for users who send them themselves. Other topics, which try all paths, also check that they hold
//! what an exchange moves.

use super::fixture::{Line, Words, in_flight};
use crate::by_hand::{self, Buffer};
use crate::fixtures::{Fixture, Grid, by, ring_neighbours};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{Direction, Error, Field, Halo, HaloExchange, Pattern};
use halocline_comm::{Endpoint, Tag};

pub(crate) const CASES: &[Case] = &[
    Case { name: "packing::packed_and_exchanged_in_turn", run: in_turn },
    Case { name: "packing::a_wrong_peer_or_length", run: wrong },
    Case { name: "packing::alternatives", run: other_sets },
    Case { name: "packing::narrowed_objects", run: narrowed },
];

/// What memory of the host alone shows.
pub(crate) const OF_HOST: &[Case] =
    &[Case { name: "packing::not_while_an_exchange_is_in_flight_or_a_guard_held", run: busy }];

fn in_turn(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[4 * comm.size(), 6], &[false, false], 2)?;
    for link in comm.paths() {
        let mut fixture = Fixture::simple(comm, &grid)?;
        let halo = fixture.bind(comm, &by(link))?;
        for _ in 0..5 {
            fixture.packed_step(comm, &halo)?;
            fixture.steps(&halo, 1)?;
        }
        // What was packed has taken no epoch.
        ensure!(halo.exchange()?.epoch() == 6, "messages have taken epochs");
        halo.wait()?;
    }
    Ok(())
}

/// Packs into, and unpacks from, so many bytes.
fn both(
    line: &Line,
    halo: &HaloExchange,
    peer: usize,
    bytes: usize,
) -> Result<[Result<(), Error>; 2], Trouble> {
    let Some(stream) = line.array.stream() else {
        let mut message = vec![0; bytes];
        return Ok([halo.pack(peer, &mut message), halo.unpack(peer, &message)]);
    };
    let buffer = Buffer::new(stream.device(), bytes, bytes.is_multiple_of(2))?;
    // SAFETY: the buffer outlives the work on it, and nothing else uses it.
    let results = unsafe {
        [
            halo.pack_on(peer, buffer.address(), bytes, stream),
            halo.unpack_on(peer, buffer.address(), bytes, stream),
        ]
    };
    stream.synchronise()?;
    Ok(results)
}

fn wrong(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        let beside: Vec<usize> =
            halo.links().filter(|link| link.direction == Direction::Send).map(|link| link.peer).collect();
        for peer in 0..comm.size() + 1 {
            if beside.contains(&peer) {
                let bytes = halo.message_bytes(peer, Direction::Send)?;
                ensure!(bytes == if comm.size() == 2 { 16 } else { 8 }, "{bytes} bytes for rank {peer}");
                for length in [0, bytes - 1, bytes + 1] {
                    for result in both(&line, &halo, peer, length)? {
                        match result {
                            Err(Error::MessageLength { expected, found, .. })
                                if (expected, found) == (bytes, length) => {}
                            other => fail!("{length} bytes in place of {bytes}: {other:?}"),
                        }
                    }
                }
                continue;
            }
            for result in both(&line, &halo, peer, 8)? {
                match result {
                    Err(Error::NoSuchPeer { peer: found, peers, .. }) if found == peer && peers == beside => {
                    }
                    other => fail!("a message for rank {peer}: {other:?}"),
                }
            }
        }
        line.step(&halo, 1)?;
    }
    Ok(())
}

fn busy(comm: &Stage<'_>) -> Outcome {
    for (round, link) in (0..).zip(comm.paths()) {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        let words = Words::new(comm);
        let beside_0 = ring_neighbours(0, comm.size());
        line.fill(1)?;
        if comm.rank() == 0 {
            beside_0.iter().try_for_each(|&rank| words.hear(rank, round))?;
        }
        let pending = halo.exchange()?;
        if beside_0.contains(&comm.rank()) {
            let mut message = vec![0; halo.message_bytes(0, Direction::Send)?];
            in_flight(halo.pack(0, &mut message), 1)?;
            in_flight(halo.unpack(0, &message), 1)?;
            words.say(0, round)?;
        }
        pending.wait()?;
        line.check(1)?;
        for peer in ring_neighbours(comm.rank(), comm.size()) {
            let mut message = vec![0; halo.message_bytes(peer, Direction::Send)?];
            let guard = line.array.on_host()?.read()?;
            match (halo.pack(peer, &mut message), halo.unpack(peer, &message)) {
                (Err(Error::Borrowed { field: 0 }), Err(Error::Borrowed { field: 0 })) => {}
                other => fail!("messages of a borrowed array: {other:?}"),
            }
            drop(guard);
            halo.pack(peer, &mut message)?;
            ensure!(line.array.on_host()?.write().is_ok(), "the array is still taken");
        }
        line.step(&halo, 2)?;
    }
    Ok(())
}

fn other_sets(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let (one, other) = (Line::new(comm)?, Line::new(comm)?);
        let sets: [&[(&Pattern, &Field)]; 2] =
            [&[(&one.pattern, &one.array)], &[(&other.pattern, &other.array)]];
        let halo = HaloExchange::bind_alternatives(comm, &sets, &by(link))?;
        let second = halo.alternative(1)?;
        let tag = Tag { operation: comm.begin(), round: 0 };
        other.fill(5)?;
        let peers = ring_neighbours(comm.rank(), comm.size());
        for &peer in &peers {
            comm.send(peer, tag, by_hand::pack(&second, peer, other.array.stream())?)?;
        }
        for &peer in &peers {
            let message = comm.receive(Some(peer), tag, "a packed message")?.payload;
            by_hand::unpack(&second, peer, &message, other.array.stream())?;
        }
        if !peers.is_empty() {
            other.check(5)?;
        }
        one.step(&halo, 1)?;
    }
    Ok(())
}

fn narrowed(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let halo = line.bind(comm, link)?;
        let nothing = halo.narrowed(&Halo::uniform(0))?;
        for peer in ring_neighbours(comm.rank(), comm.size()) {
            ensure!(nothing.message_bytes(peer, Direction::Send)? == 0, "a halo of width 0 has bytes");
            by_hand::pack(&nothing, peer, line.array.stream())?;
            by_hand::unpack(&nothing, peer, &[], line.array.stream())?;
        }
        line.step(&halo, 1)?;
    }
    Ok(())
}
