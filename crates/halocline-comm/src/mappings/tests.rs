//! The service over ranks that are threads and pretend to be processes, each with a fake device.

use super::bounds::{DEFAULT, limits_of};
use super::fake::{Asked, Fake, World};
use super::*;
use crate::communicator::mix;
use crate::endpoint::Endpoint;
use crate::inbox::Tag;
use halocline_device::remote::{self, Own};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, spawn};

const PAGE: u64 = 4096;

fn device(rank: usize) -> DeviceId {
    DeviceId([rank as u8 + 1; 16])
}

fn at(rank: usize) -> Target {
    Target { rank, device: device(rank) }
}

/// A rank with a device, in a process of its own.
fn process(comm: &Communicator, world: &World) -> (Mappings, Arc<Fake>) {
    let own = ProcessId { pid: 7, random: mix(comm.rank() as u64) };
    let mappings = Mappings::in_process(comm, own, DEFAULT);
    let fake = Fake::new(world, comm.rank(), device(comm.rank()));
    mappings.attach(Arc::clone(&fake) as _);
    (mappings, fake)
}

fn two(world: &World) -> [(Communicator, Mappings, Arc<Fake>); 2] {
    let mut ranks = Communicator::threads(2).into_iter().map(|comm| {
        let (mappings, fake) = process(&comm, world);
        (comm, mappings, fake)
    });
    [ranks.next().unwrap(), ranks.next().unwrap()]
}

/// All calls of drivers: at the owner, of memory of the library's own, none; of other memory, which may have been freed without a word,
/// whether it is still there. At the importer none.
#[test]
fn a_hit_makes_no_call_of_the_driver_but_whether_memory_of_others_is_there_and_sends_nothing() {
    for is_own in [true, false] {
        let world = World::default();
        let [(_owner, mappings, _), (importer, theirs, _)] = two(&world);
        let unlike = DeviceId([77; 16]);
        mappings.attach(Fake::new(&world, 0, unlike) as _);
        let memory = world.allocate(0, unlike, PAGE, PAGE);
        // SAFETY: simulated memory, whose addresses nobody follows.
        let _own = is_own.then(|| unsafe { Own::new(unlike, memory.base, memory.id) });
        let first = mappings.map(at(1), PAGE + 100, 8).unwrap();
        assert_eq!((first.offset(), first.bytes(), world.calls()), (100, 8, (1, 1, 0)));
        let asked = world.asked();
        let resolve = |pinned: &Pinned| theirs.resolve(0, pinned.token(), pinned.offset(), 8).unwrap();
        let mapping = resolve(&first);
        assert_eq!(world.look(1, mapping.address()), Some((memory.id, 100)));
        assert_eq!(mapping.kind(), Some(Kind::Legacy));
        assert_eq!(world.asked(), asked, "by who uses a mapping");
        // The importer's progress is at its end: nobody could answer.
        theirs.service.with(|protocol| protocol.is_gone(0));
        let sent = mappings.stats().messages;
        let again = mappings.map(at(1), PAGE, PAGE).unwrap();
        assert_eq!((again.token(), world.calls(), mappings.stats().hits), (first.token(), (1, 1, 0), 1));
        let of_others = usize::from(!is_own);
        assert_eq!(world.asked(), Asked { stills: asked.stills + of_others, ..asked }, "own: {is_own}");
        assert_eq!((sent, mappings.stats().messages), (1, 1));
        assert_eq!(importer.probe(None, Tag { operation: 1, round: 0 }), None);
    }
}

/// A provider that makes something else of what it has found.
struct Liar {
    fake: Arc<Fake>,
    tells: fn(Allocation) -> Allocation,
}

// SAFETY: its addresses are numbers that nobody follows.
unsafe impl Provider for Liar {
    fn device(&self) -> DeviceId {
        self.fake.device()
    }

    fn find(&self, address: Address, bytes: u64) -> Option<Allocation> {
        self.fake.find(address, bytes).map(self.tells)
    }

    fn export(&self, allocation: &Allocation) -> Result<remote::Export, Refusal> {
        self.fake.export(allocation)
    }

    fn open(&self, allocation: &Allocation, export: remote::Export) -> Result<remote::Opened, Refusal> {
        self.fake.open(allocation, export)
    }

    unsafe fn close(&self, opened: remote::Opened) -> Result<(), Refusal> {
        // SAFETY: what holds here holds there.
        unsafe { self.fake.close(opened) }
    }

    fn adopt(&self, allocation: &Allocation) -> Result<(), Refusal> {
        self.fake.adopt(allocation)
    }
}

/// What a rank is told that maps a page of a provider of this kind, whose driver exports nothing.
fn of_a_liar(tells: fn(Allocation) -> Allocation) -> MappingError {
    let world = World::default();
    let [(_owner, mappings, _), (_importer, _theirs, _)] = two(&world);
    let device = DeviceId([79; 16]);
    mappings.attach(Arc::new(Liar { fake: Fake::new(&world, 0, device), tells }));
    world.allocate(0, device, PAGE, PAGE);
    let error = mappings.map(at(1), PAGE, PAGE).err().expect("not all of it is there");
    assert_eq!(world.calls(), (0, 0, 0), "{error}");
    error
}

#[test]
fn a_provider_that_finds_less_memory_than_it_is_asked_for_is_refused() {
    match of_a_liar(|found| Allocation { bytes: found.bytes - 1, ..found }) {
        MappingError::OutOfBounds { bytes: PAGE, within: Allocation { bytes: 4095, .. }, .. } => {}
        other => panic!("an allocation that is too short: {other}"),
    }
}

#[test]
fn a_provider_that_finds_memory_elsewhere_is_refused() {
    let elsewhere: [fn(Allocation) -> Allocation; 4] = [
        |found| Allocation { base: found.base + 1, ..found },
        |found| Allocation { base: 0, ..found },
        |found| Allocation { bytes: 0, ..found },
        // Its end is beyond all addresses.
        |found| Allocation { bytes: u64::MAX, ..found },
    ];
    for tells in elsewhere {
        match of_a_liar(tells) {
            MappingError::Refused { why: Refusal::Private, .. } => {}
            other => panic!("an allocation without the address: {other}"),
        }
    }
}

/// The same addresses again, of another length and of the same, freed with a word and without one: the first who asks gets what is there.
#[test]
fn a_hit_is_never_of_memory_that_was_freed() {
    let own = DeviceId([78; 16]);
    for (is_own, bytes) in [(true, PAGE), (true, 2 * PAGE), (false, PAGE), (false, 2 * PAGE)] {
        let world = World::default();
        let [(_owner, mappings, _), (_importer, theirs, _)] = two(&world);
        mappings.attach(Fake::new(&world, 0, own) as _);
        let allocate = |bytes| {
            let memory = world.allocate(0, own, PAGE, bytes);
            // SAFETY: simulated memory, whose addresses nobody follows.
            (memory, is_own.then(|| unsafe { Own::new(own, memory.base, memory.id) }))
        };
        let found = || {
            let pinned = mappings.map(at(1), PAGE + 8, 8).unwrap();
            let mapping = theirs.resolve(0, pinned.token(), pinned.offset(), 8).unwrap();
            world.look(1, mapping.address())
        };
        let (mut memory, mut holder) = allocate(PAGE);
        for _ in 0..20 {
            assert_eq!((found(), found()), (Some((memory.id, 8)), Some((memory.id, 8))));
            if holder.take().is_some() {
                let (freeing, id) = (world.clone(), memory.id);
                remote::free_once_unmapped_by_all(own, memory.base, id, move || freeing.free(id));
                let freed = || {
                    mappings.drive();
                    theirs.drive();
                    Ok((!world.is_there(id)).then_some(()))
                };
                mappings.comm.wait_for(None, "the memory", freed).unwrap();
            } else {
                world.free(memory.id);
            }
            (memory, holder) = allocate(bytes);
        }
        assert_eq!(found(), Some((memory.id, 8)));
        assert_eq!(world.wrongs(), [""; 0]);
    }
}

#[test]
fn what_is_sent_is_found_where_it_was_mapped() {
    let world = World::default();
    let [(_owner, mappings, _), (_importer, theirs, _)] = two(&world);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    for limit in [1024, 0] {
        mappings.set_limits(Limits { entries: limit, ..DEFAULT });
        for offset in 0..20 {
            let transfer = mappings.send(at(1), PAGE + offset, 16).unwrap();
            let arrived = theirs.receive(Some(0)).unwrap();
            assert_eq!(world.look(1, arrived.address()), Some((memory.id, offset)));
            assert_eq!((arrived.from(), arrived.length()), (0, 16));
            drop(arrived);
            transfer.wait().unwrap();
            assert_eq!(world.open_of(0), limit.min(1));
        }
    }
    assert_eq!(world.calls(), (21, 21, 21));
    assert_eq!(world.wrongs(), [""; 0]);
}

#[test]
fn release_waits_until_the_memory_is_really_free() {
    let world = World::default();
    let [(_owner, mappings, _), (_importer, theirs, _)] = two(&world);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    let pinned = mappings.map(at(1), PAGE, 8).unwrap();
    let error = mappings.release(PAGE).unwrap_err();
    assert!(matches!(error, MappingError::InUse { pins: 1, .. }), "{error}");
    let mapping = theirs.resolve(0, pinned.token(), 0, 8).unwrap();
    drop(pinned);
    let impatient =
        Mappings { comm: mappings.comm.with_deadline(Some(Duration::from_millis(20))), ..mappings.clone() };
    let error = impatient.release(PAGE).unwrap_err();
    assert!(matches!(&error, MappingError::StillMapped { ranks, .. } if ranks[..] == [1]), "{error}");
    scope(|threads| {
        threads.spawn(|| drop(mapping));
        mappings.release(PAGE).unwrap();
    });
    world.free(memory.id);
    assert_eq!((world.held(), world.open_of(0)), (0, 0));
}

/// The library's own memory: dropped, and freed when nobody has it mapped any more, by whoever drives then.
#[test]
fn memory_of_the_library_is_freed_once_it_is_unmapped_and_nobody_waits_for_that() {
    let world = World::default();
    // Everybody in this process who exports is told of what is freed.
    let own = DeviceId([99; 16]);
    let [(owner, mappings, _), (_importer, theirs, _)] = two(&world);
    mappings.attach(Fake::new(&world, 0, own) as _);
    let drop_memory = |memory: Allocation| {
        let world = world.clone();
        remote::free_once_unmapped_by_all(own, memory.base, memory.id, move || world.free(memory.id));
    };
    let patient = |comm: &Communicator| comm.with_deadline(Some(Duration::from_secs(20)));
    // Of what nobody has mapped, at once.
    let memory = world.allocate(0, own, PAGE, PAGE);
    drop_memory(memory);
    assert!(!world.is_there(memory.id));
    // Held at the other side, then used at this one.
    let memory = world.allocate(0, own, PAGE, PAGE);
    let pinned = mappings.map(at(1), PAGE, 8).unwrap();
    let mapping = theirs.resolve(0, pinned.token(), 0, 8).unwrap();
    drop_memory(memory);
    drop(mapping);
    theirs.drive();
    assert!(world.is_there(memory.id), "freed while it is pinned");
    drop(pinned);
    let freed = || Ok((!world.is_there(memory.id)).then_some(()));
    patient(&owner).wait_for(None, "the memory", freed).unwrap();
    assert_eq!((world.held(), world.open_of(0), world.wrongs()), (0, 0, Vec::new()));
    // At the end of a rank.
    let memory = world.allocate(0, own, PAGE, PAGE);
    let pinned = mappings.map(at(1), PAGE, 8).unwrap();
    drop_memory(memory);
    assert!(world.is_there(memory.id));
    drop(pinned);
    drop((mappings, owner));
    assert_eq!((world.is_there(memory.id), world.held()), (false, 0));
}

#[test]
fn memory_freed_without_a_word_is_given_back_although_nobody_asks_for_anything() {
    let world = World::default();
    let [(owner, mappings, _), (_importer, _theirs, _)] = two(&world);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    drop(mappings.map(at(1), PAGE, 8).unwrap());
    world.free(memory.id);
    assert_eq!(world.held(), 1);
    let given_back = || Ok((world.held() == 0).then_some(()));
    owner.with_deadline(Some(Duration::from_secs(20))).wait_for(None, "the memory", given_back).unwrap();
}

#[test]
fn refusals_say_what_was_refused_and_are_counted_as_staged() {
    let world = World::default();
    let [(_owner, mappings, _), (_importer, _theirs, fake)] = two(&world);
    world.allocate(0, device(0), PAGE, PAGE);
    fake.refusals.lock().unwrap().push(Refusal::NoPeerAccess);
    for _ in 0..2 {
        let error = mappings.map(at(1), PAGE + 1, 8).err().unwrap();
        assert!(matches!(error, MappingError::Refused { why: Refusal::NoPeerAccess, .. }), "{error}");
    }
    let error = mappings.send(at(1), 77, 8).err().unwrap();
    assert!(matches!(error, MappingError::Refused { why: Refusal::Private, .. }), "{error}");
    assert_eq!(mappings.stats().staged, 3);
    let error = mappings.map(at(1), 2 * PAGE - 4, 8).err().unwrap();
    assert!(matches!(error, MappingError::OutOfBounds { bytes: 8, .. }), "{error}");
    let error = mappings.map(at(2), PAGE, 8).err().unwrap();
    assert!(matches!(error, MappingError::Comm(CommError::NoSuchRank { rank: 2, size: 2 })), "{error}");
}

#[test]
fn memory_that_cannot_be_exported_is_asked_for_once_whatever_the_reason() {
    let all = [
        Refusal::Private,
        Refusal::DefaultPool,
        Refusal::NoHandleType,
        Refusal::TooManyPieces,
        Refusal::TooLarge,
        Refusal::OutOfMemory,
        Refusal::Other(801),
    ];
    for refusal in all {
        let world = World::default();
        let [(_owner, mappings, fake), (_importer, _theirs, _)] = two(&world);
        world.allocate(0, device(0), PAGE, PAGE);
        fake.private.lock().unwrap().push(refusal);
        let refused = |error: Option<MappingError>| {
            assert!(matches!(error, Some(MappingError::Refused { why, .. }) if why == refusal), "{error:?}");
        };
        refused(mappings.map(at(1), PAGE, 8).err());
        refused(mappings.send(at(1), PAGE, 8).unwrap().wait().err());
        refused(mappings.map(at(1), PAGE + 100, 8).err());
        let stats = mappings.stats();
        assert_eq!((world.calls(), stats.staged, stats.messages), ((1, 0, 0), 3, 0));
    }
}

#[test]
fn memory_whose_descriptors_cannot_be_received_is_refused_with_the_reason() {
    for (errno, due) in [(Errno::MFILE, Refusal::TooManyFiles), (Errno::NOMEM, Refusal::OutOfMemory)] {
        let world = World::default();
        let mut ranks = Communicator::threads(2).into_iter();
        let (owner, importer) = (ranks.next().unwrap(), ranks.next().unwrap());
        let (mappings, _fake) = process(&owner, &world);
        world.allocate(0, device(0), PAGE, PAGE);
        let requested = mappings.request(at(1), PAGE, 8).unwrap();
        let inbox = importer.link().inbox();
        let mut offer = inbox.take(service::TAG, Some(0)).unwrap();
        offer.missing = Some(CommError::System { what: "receive descriptors", errno });
        let (theirs, _fake) = process(&importer, &world);
        inbox.push(offer);
        theirs.drive();
        let error = requested.wait().err();
        assert!(matches!(error, Some(MappingError::Refused { why, .. }) if why == due), "{error:?}");
    }
}

#[test]
fn reused_memory_that_is_pinned_is_told() {
    let world = World::default();
    let [(_owner, mappings, _), (_importer, theirs, _)] = two(&world);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    let pinned = mappings.map(at(1), PAGE, 8).unwrap();
    world.free(memory.id);
    let new = world.allocate(0, device(0), PAGE, 2 * PAGE);
    let error = mappings.map(at(1), PAGE + 8, 8).err().unwrap();
    assert!(matches!(error, MappingError::Stale { base: PAGE, pins: 1, .. }), "{error}");
    drop(pinned);
    let pinned = mappings.map(at(1), PAGE + 8, 8).unwrap();
    let mapping = theirs.resolve(0, pinned.token(), 8, 8).unwrap();
    assert_eq!(world.look(1, mapping.address()), Some((new.id, 8)));
    assert_eq!(world.held(), 0);
}

#[test]
fn a_rank_that_answers_nothing_ends_in_the_deadline_and_holds_nothing_up() {
    let world = World::default();
    let mut ranks = Communicator::threads(2);
    let (silent, comm) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let comm = comm.with_deadline(Some(Duration::from_millis(20)));
    let (mappings, _) = process(&comm, &world);
    world.allocate(0, device(0), PAGE, PAGE);
    let error = mappings.map(at(1), PAGE, 8).err().unwrap();
    assert!(matches!(error, MappingError::Comm(CommError::Deadline { waiting: 0, .. })), "{error}");
    drop(silent);
    let error = mappings.map(at(1), PAGE, 8).err().unwrap();
    assert!(matches!(error, MappingError::Gone { rank: 1 }), "{error}");
    mappings.release(PAGE).unwrap();
}

#[test]
fn a_call_of_the_driver_that_does_not_return_in_another_thread_holds_nobody_beyond_the_deadline() {
    let world = World::default();
    let [(_one, mappings, fake), (_other, theirs, _)] = two(&world);
    world.allocate(0, device(0), PAGE, PAGE);
    world.allocate(1, device(1), PAGE, PAGE);
    let impatient =
        Mappings { comm: mappings.comm.with_deadline(Some(Duration::from_millis(20))), ..mappings.clone() };
    // What opening looks at.
    let held = fake.refusals.lock().unwrap();
    scope(|scope| {
        let opening = scope.spawn(|| theirs.map(at(0), PAGE, 8));
        let driving = scope.spawn(|| {
            while fake.opening.load(Ordering::Relaxed) == 0 {
                mappings.drive();
            }
        });
        while fake.opening.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let error = impatient.map(at(1), PAGE, 8).err().unwrap();
        assert!(matches!(error, MappingError::Comm(CommError::Deadline { waiting: 0, .. })), "{error}");
        let error = impatient.receive(Some(1)).err().unwrap();
        assert!(matches!(error, MappingError::Comm(CommError::Deadline { waiting: 0, .. })), "{error}");
        drop(held);
        driving.join().unwrap();
        assert_eq!(opening.join().unwrap().unwrap().bytes(), 8);
    });
    assert_eq!(mappings.map(at(1), PAGE, 8).unwrap().bytes(), 8);
}

/// What waits does for all of the process.
static WAITING: Mutex<()> = Mutex::new(());

#[test]
fn what_cannot_be_closed_beside_exchanges_is_closed_once_none_is_in_flight_and_holds_nobody() {
    let world = World::default();
    let _alone = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let [(_owner, mappings, _), (importer, theirs, fake)] = two(&world);
    fake.close_waits.store(true, Ordering::Relaxed);
    let mapped = |base| {
        let memory = world.allocate(0, device(0), base, PAGE);
        drop(mappings.map(at(1), base, 8).unwrap());
        memory
    };
    let (first, _second) = (mapped(PAGE), mapped(3 * PAGE));
    let in_flight = halocline_device::Waiting::begin();
    let impatient =
        Mappings { comm: mappings.comm.with_deadline(Some(Duration::from_millis(20))), ..mappings.clone() };
    let error = impatient.release(PAGE).unwrap_err();
    assert!(matches!(&error, MappingError::StillMapped { ranks, .. } if ranks[..] == [1]), "{error}");
    // Whoever drives there comes back, and gets on with everything else.
    assert!(theirs.drive());
    drop(mappings.map(at(1), 3 * PAGE + 8, 8).unwrap());
    assert_eq!(world.calls(), (2, 2, 0));
    drop(in_flight);
    mappings.release(PAGE).unwrap();
    assert_eq!(world.calls(), (2, 2, 1));
    world.free(first.id);
    assert_eq!(world.held(), 0);
    // Nor does the end of a rank wait for good.
    let in_flight = halocline_device::Waiting::begin();
    drop((theirs, importer));
    assert_eq!(world.calls(), (2, 2, 1));
    drop(in_flight);
    let begin = std::time::Instant::now();
    while world.open_of(0) > 0 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    assert_eq!((world.calls(), world.wrongs()), ((2, 2, 2), Vec::new()));
}

/// What the exchange waits for may be what the owner does once it has the mapping.
#[test]
fn memory_that_lies_where_other_memory_cannot_be_closed_beside_an_exchange_is_refused() {
    let world = World::default();
    let _alone = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let [(_owner, mappings, _), (_importer, _theirs, fake)] = two(&world);
    fake.close_waits.store(true, Ordering::Relaxed);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    drop(mappings.map(at(1), PAGE, 8).unwrap());
    world.free(memory.id);
    world.allocate(0, device(0), PAGE, 2 * PAGE);
    let in_flight = halocline_device::Waiting::begin();
    let begin = std::time::Instant::now();
    let requests = [0, 8].map(|offset| mappings.request(at(1), PAGE + offset, 8).unwrap());
    let sent = mappings.send(at(1), PAGE + 8, 8).unwrap();
    let errors = requests.map(|request| request.wait().err().unwrap());
    for error in errors.into_iter().chain(sent.wait().err()) {
        assert!(matches!(error, MappingError::Refused { why: Refusal::AlreadyOpen, .. }), "{error}");
    }
    assert!(begin.elapsed() < 2 * service::RELEASE_WITHIN, "each waits as long: {:?}", begin.elapsed());
    assert_eq!(mappings.stats().staged, 3);
    drop(in_flight);
    drop(mappings.map(at(1), PAGE + 8, 8).unwrap());
    assert_eq!((world.held(), world.wrongs()), (0, Vec::new()));
}

/// Where another thread drives just then, and finds nothing new.
#[test]
fn all_who_wait_for_a_rank_that_goes_hear_of_it() {
    const LATE: Duration = Duration::from_secs(10);
    for _ in 0..2000 {
        let world = World::default();
        let [(_one, mappings, _), (other, theirs, _)] = two(&world);
        let patient = || Mappings { comm: mappings.comm.with_deadline(Some(LATE)), ..mappings.clone() };
        scope(|scope| {
            let waits: Vec<_> = (0..8)
                .map(|_| {
                    let mappings = patient();
                    scope.spawn(move || mappings.receive(Some(1)).err().unwrap())
                })
                .collect();
            drop((theirs, other));
            let begin = std::time::Instant::now();
            let errors: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
            assert!(begin.elapsed() < LATE / 2, "one was late: {errors:?}");
        });
    }
}

#[test]
fn a_malformed_message_ends_dealings_with_its_sender_on_both_sides() {
    let world = World::default();
    let [(_owner, mappings, _), (importer, theirs, _)] = two(&world);
    world.allocate(0, device(0), PAGE, PAGE);
    let pinned = mappings.map(at(1), PAGE, 8).unwrap();
    importer.send(0, service::TAG, vec![2, 0, 0, 0, 1]).unwrap();
    // A progress thread may be driving, which this thread does not wait for.
    let drive_until = |mappings: &Mappings, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            mappings.drive();
            std::thread::yield_now();
        }
    };
    drive_until(&mappings, &|| mappings.stats().malformed == 1);
    let error = mappings.map(at(1), PAGE, 8).err().unwrap();
    assert!(matches!(error, MappingError::Gone { rank: 1 }), "{error}");
    drive_until(&theirs, &|| world.open_of(0) == 0);
    drop(pinned);
}

#[test]
fn whoever_ends_first_nothing_stays_open() {
    for first in [0, 1] {
        let world = World::default();
        let ranks = two(&world);
        for rank in [0, 1] {
            world.allocate(rank, device(rank), PAGE, PAGE);
            drop(ranks[rank].1.map(at(1 - rank), PAGE, 8).unwrap());
        }
        assert_eq!((world.open_of(0), world.open_of(1)), (1, 1));
        let [one, other] = ranks;
        let (early, late) = if first == 0 { (one, other) } else { (other, one) };
        let began = std::time::Instant::now();
        drop(early);
        drop(late);
        assert_eq!((world.open_of(0), world.open_of(1)), (0, 0));
        assert!(began.elapsed() < service::SHUT_WITHIN, "nobody waited for somebody who was gone");
        let (_, opens, closes) = world.calls();
        assert_eq!((opens, closes, world.wrongs()), (2, 2, Vec::new()));
    }
}

#[test]
fn ranks_that_map_from_several_threads_all_get_what_they_asked_for() {
    let world = World::default();
    const RANKS: usize = 3;
    let rank = |comm: Communicator, world: World| {
        let (mappings, _fake) = process(&comm, &world);
        let me = comm.rank();
        comm.barrier().unwrap();
        mappings.set_limits(Limits { entries: 3, ..DEFAULT });
        scope(|threads| {
            for thread in 0..3u64 {
                let (mappings, world) = (mappings.clone(), world.clone());
                threads.spawn(move || {
                    let base = (1 + 10 * thread) * PAGE;
                    for round in 0..60 {
                        // Freed in turn with a release, and without a word.
                        let memory = world.allocate(me, device(me), base + round % 3 * 512, PAGE);
                        let peers = (0..RANKS).filter(|peer| *peer != me);
                        let requests: Vec<_> = peers
                            .map(|peer| mappings.request(at(peer), memory.base + 8, 16).unwrap())
                            .collect();
                        let pinned: Vec<_> =
                            requests.into_iter().map(|request| request.wait().unwrap()).collect();
                        drop(pinned);
                        if round % 2 == 0 {
                            mappings.release(memory.base).unwrap();
                        }
                        world.free(memory.id);
                    }
                });
            }
        });
        comm.barrier().unwrap();
    };
    let threads: Vec<_> = Communicator::threads(RANKS)
        .into_iter()
        .map(|comm| {
            let world = world.clone();
            spawn(move || rank(comm, world))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (_, opens, closes) = world.calls();
    assert_eq!((opens, world.wrongs(), world.held()), (closes, Vec::new(), 0));
    assert!(opens >= 3 * 60 * 2 * 3);
}

#[test]
fn limits_come_from_the_environment() {
    let limits = |entries: Option<&str>, bytes: Option<&str>| {
        limits_of(|variable| {
            let value = if variable.ends_with("ENTRIES") { entries } else { bytes };
            value.map(Into::into)
        })
    };
    assert_eq!(limits(None, None).unwrap(), DEFAULT);
    assert_eq!(limits(Some("0"), Some("4096")).unwrap(), Limits { entries: 0, bytes: 4096 });
    assert_eq!(limits(Some(""), None).unwrap(), DEFAULT);
    for wrong in ["-1", "many", "1.5"] {
        assert_eq!(limits(Some(wrong), None).unwrap_err().name, "HALOCLINE_MAPPINGS_ENTRIES", "{wrong}");
    }
}
