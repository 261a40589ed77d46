//! The number and kinds of device calls of an exchange. Each call costs the host up to microseconds.

use halocline::device::Priority;
use halocline::{
    BindOptions, Communicator, Decomposed, Device, Direction, Error, Field, Halo, HaloExchange, Layout,
    LinkChoice, TestOptions,
};
use halocline::{Pattern, RegularGrid};
use halocline_comm::Endpoint;
use halocline_conformance::instant::{Call, Instant};
use halocline_conformance::{Trouble, ensure, fail};
use std::sync::Arc;

/// Calls of each kind of [`Call::ALL`].
type Calls = [u64; Call::ALL.len()];

/// Fields of four cells in some allocations that are not the library's, so many in each.
fn fields(device: &Device, allocations: usize, each: usize) -> Result<Vec<Field>, Trouble> {
    let layout = Layout::c_order(halocline::ElementType::U64, &[4])?;
    let mut fields = Vec::new();
    for _ in 0..allocations {
        let memory = Arc::new(device.allocate(32 * each)?);
        for at in 0..each {
            let base = memory.at(32 * at);
            // SAFETY: the memory has space for it, and is kept.
            let field = unsafe { Field::from_device(device, base, layout.clone(), Arc::clone(&memory) as _) };
            fields.push(field?);
        }
    }
    Ok(fields)
}

/// The calls of one exchange between two ranks that share a device, which does everything at once, by the rank that comes first, so
/// that nothing has arrived yet: those of `schedule_exchange`, and those of `schedule_wait`.
fn count(options: &BindOptions, (allocations, each): (usize, usize)) -> Result<[Calls; 2], Trouble> {
    const EXCHANGES: usize = 5;
    let (driver, device) = Instant::device();
    let rank = |comm: Communicator| -> Result<[Calls; 2], Trouble> {
        let pattern = RegularGrid::new([4]).periodic([true]).decompose(2)?;
        let pattern = pattern.pattern(&comm, Halo::uniform(1))?;
        let fields = fields(&device, allocations, each)?;
        let bound: Vec<(&Pattern, &Field)> = fields.iter().map(|field| (&pattern, field)).collect();
        let halo = HaloExchange::bind_with(&comm, &bound, options)?;
        let stream = device.stream(Priority::Normal)?;
        let mut last = [[0; Call::ALL.len()]; 2];
        for number in 0..EXCHANGES {
            // One rank after the other, so that all calls are of one of them.
            for turn in 0..2 {
                comm.barrier()?;
                if turn == comm.rank() {
                    let before = driver.count();
                    let pending = halo.schedule_exchange(&[&stream])?;
                    let between = driver.count();
                    pending.schedule_wait(&stream)?;
                    let after = driver.count();
                    let of = |from: Calls, to: Calls| std::array::from_fn(|kind| to[kind] - from[kind]);
                    let now = [of(before, between), of(between, after)];
                    // Once the first ones have been, all are alike. No thread waits for an exchange that is known to be over.
                    ensure!(
                        number < 3 || now[0] == last[0] || turn == 1,
                        "exchange {number}: {now:?}, {last:?}"
                    );
                    ensure!(now[1].iter().sum::<u64>() <= 1, "a wait: {now:?}");
                    last = now;
                }
            }
            halo.wait()?;
            // What was sent has been given back.
            while !halo.reclaim() {
                comm.link().host().yield_now();
            }
        }
        comm.barrier()?;
        Ok(last)
    };
    let ended: Vec<Result<[Calls; 2], Trouble>> = std::thread::scope(|scope| {
        let ranks: Vec<_> =
            Communicator::threads(2).into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    let [one, other] = <[_; 2]>::try_from(ended).expect("two ranks");
    let (one, other) = (one?, other?);
    let is_more = other[0].iter().zip(&one[0]).any(|(other, one)| other > one);
    ensure!(!is_more, "more calls than before something had arrived: {other:?}, {one:?}");
    Ok(one)
}

/// Calls that give work to streams: events recorded, waits for events, batches of operations on words, launches.
fn work(calls: &Calls) -> [u64; 4] {
    [Call::Record, Call::WaitEvent, Call::Batch, Call::Launch].map(|kind| calls[kind as usize])
}

#[test]
fn an_exchange_makes_few_device_calls() {
    println!("| way | streams | events recorded, waits for events, batches, launches | of the wait |");
    println!("| --- | --- | --- | --- |");
    for (link, inline, chunks, expected) in [
        (LinkChoice::Push, false, None, [2, 1, 2, 1]),
        (LinkChoice::Push, true, None, [1, 0, 2, 1]),
        (LinkChoice::DeviceMailbox, false, None, [2, 1, 3, 2]),
        (LinkChoice::DeviceMailbox, true, None, [1, 0, 3, 2]),
        (LinkChoice::Mailbox, false, None, [2, 1, 3, 2]),
        (LinkChoice::Mailbox, true, None, [1, 0, 3, 2]),
        (LinkChoice::Message, false, None, [2, 1, 1, 2]),
        (LinkChoice::Message, true, None, [1, 0, 1, 2]),
        // Of each field, the one cell for either side of the other rank.
        (LinkChoice::Message, false, Some(2), [2, 1, 1, 2]),
        (LinkChoice::Message, false, Some(4), [2, 1, 2, 3]),
    ] {
        // Where chunks are counted, a cell is one.
        let (chunk, fields) = (chunks.map(|_| 8), chunks.unwrap_or(2) / 2);
        let options = BindOptions::default()
            .link(link)
            .inline(inline)
            .stream_waits(true)
            .for_tests(TestOptions { chunk, ..TestOptions::default() });
        let [begin, wait] = count(&options, (1, fields)).expect("exchanges");
        let streams = if inline { "the user's" } else { "internal" };
        let link = chunks.map_or_else(|| format!("{link:?}"), |count| format!("{link:?}, {count} chunks"));
        println!("| {link} | {streams} | {:?} | {:?} |", work(&begin), work(&wait).iter().sum::<u64>());
        assert_eq!(work(&begin), expected, "{link}, inline {inline}");
        // Its own stream comes later anyway.
        assert!(!inline || work(&wait) == [0; 4], "{link}: {wait:?}");
    }
}

#[test]
fn a_reused_handle_of_a_borrowed_stream_is_detected() {
    let (driver, device) = Instant::device();
    let own = device.stream(Priority::Normal).expect("a stream");
    // SAFETY: the stream outlives it.
    let borrowed = unsafe { device.borrow_stream(own.raw()) }.expect("it is one of the device");
    let before = borrowed.id();
    assert!(before.is_some() && before == borrowed.id());
    driver.renew();
    assert_ne!(before, borrowed.id());
}

#[test]
fn field_memory_is_queried_once_per_allocation() {
    for (allocations, each) in [(1, 1), (1, 8), (3, 2)] {
        let [begin, wait] = count(&BindOptions::default(), (allocations, each)).expect("exchanges");
        let of = |calls: &Calls, kind: Call| calls[kind as usize];
        assert_eq!(
            of(&begin, Call::Identity),
            allocations as u64,
            "{allocations} allocations, {each} fields each"
        );
        assert_eq!([of(&begin, Call::Place), of(&wait, Call::Identity), of(&wait, Call::Place)], [0; 3]);
    }
}

#[test]
fn virtual_memory_is_queried_once_per_physical_allocation() {
    const PIECE: u64 = 2 << 20;
    // Of so many, so many are looked at by each exchange: all are after a few.
    let exchange = |pieces: usize, looks: u64, exchanges: usize| -> Result<(), Trouble> {
        let (driver, device) = Instant::device();
        let comm = Communicator::threads(1).remove(0);
        let cells = pieces * PIECE as usize / 8;
        let pattern = RegularGrid::new([cells - 2]).periodic([true]).decompose(1)?;
        let pattern = pattern.pattern(&comm, Halo::uniform(1))?;
        let memory = Arc::new(device.allocate(8 * cells)?);
        // More begin within it.
        let second = (memory.at(0) / PIECE + 1) * PIECE;
        (0..pieces as u64 - 1).for_each(|piece| driver.lay(second + piece * PIECE, 1001 + piece));
        let layout = Layout::c_order(halocline::ElementType::U64, &[cells])?;
        // SAFETY: the memory has space for it, and is kept.
        let field = unsafe { Field::from_device(&device, memory.at(0), layout, Arc::clone(&memory) as _) }?;
        let halo = HaloExchange::bind(&comm, [(&pattern, &field)])?;
        let stream = device.stream(Priority::Normal)?;
        for _ in 0..exchanges + 2 {
            let before = driver.count();
            halo.schedule_exchange(&[&stream])?.wait()?;
            let asked = driver.count()[Call::Identity as usize] - before[Call::Identity as usize];
            ensure!(asked == looks, "asked {asked} times");
        }
        driver.lay(second, 99);
        let moved = (0..exchanges).find_map(|_| {
            let begun = halo.schedule_exchange(&[&stream]);
            begun.and_then(|pending| pending.wait()).err()
        });
        match moved {
            Some(Error::MemoryMoved { field: 0 }) => Ok(()),
            other => fail!("instead of moved memory: {other:?}"),
        }
    };
    exchange(3, 3, 1).expect("it is noticed");
    exchange(101, 33, 4).expect("it is noticed after a while");
}

#[test]
fn a_packed_message_is_one_launch_and_one_event() {
    let (driver, device) = Instant::device();
    let rank = |comm: Communicator| -> Result<(), Trouble> {
        let pattern = RegularGrid::new([4]).periodic([true]).decompose(2)?;
        let pattern = pattern.pattern(&comm, Halo::uniform(1))?;
        let fields = fields(&device, 1, 1)?;
        let halo = HaloExchange::bind(&comm, [(&pattern, &fields[0])])?;
        let (stream, peer) = (device.stream(Priority::Normal)?, 1 - comm.rank());
        let bytes = halo.message_bytes(peer, Direction::Send)?;
        let buffer = device.allocate(bytes)?;
        // SAFETY: the buffer outlives the work on it, which this stream orders.
        let pack = || unsafe { halo.pack_on(peer, buffer.at(0), bytes, &stream) };
        for turn in 0..2 {
            comm.barrier()?;
            if turn == comm.rank() {
                pack()?;
                let before = driver.count();
                pack()?;
                let after = driver.count();
                let calls: Calls = std::array::from_fn(|kind| after[kind] - before[kind]);
                ensure!(work(&calls) == [1, 0, 0, 1], "{calls:?}");
                // The allocations of the field and of the buffer, and whether the last launch is over.
                let asked = [Call::Identity, Call::Place, Call::QueryEvent].map(|kind| calls[kind as usize]);
                ensure!(asked == [2, 0, 1], "{calls:?}");
            }
        }
        Ok(comm.barrier()?)
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            Communicator::threads(2).into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        for ended in ranks.into_iter().map(|rank| rank.join().expect("no rank panics")) {
            ended.expect("messages");
        }
    });
}
