//! The service over ranks that are threads but behave like processes, each with a fake device.

mod ends;
mod refusals;

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
    let mappings = Mappings::in_process(comm, own);
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

/// Driver calls of a hit: none for the library's own memory; at the owner of foreign memory, a query
/// whether it still exists. None at the importer.
#[test]
fn a_hit_sends_nothing_and_only_asks_whether_foreign_memory_exists() {
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
        // The importer has ended and could not answer.
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

/// A provider that changes the allocation that it has found.
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

/// The error for mapping a page of such a provider, whose driver exports nothing.
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

/// Addresses are reused, with another length and the same, after a free with and without a release: a request gets the new memory.
#[test]
fn freed_memory_is_never_a_hit() {
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
fn sent_bytes_are_read_through_the_mapping() {
    let world = World::default();
    let [(_owner, mappings, _), (_importer, theirs, _)] = two(&world);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    for limit in [1024, 0] {
        mappings.set_limit(limit);
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
fn release_waits_until_no_rank_has_the_memory_open() {
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

/// The library's own memory is freed after its drop once no rank has it mapped, by the thread that drives then.
#[test]
fn memory_of_the_library_is_freed_once_unmapped_without_a_wait() {
    let world = World::default();
    // A free is reported to all exporters of this process.
    let own = DeviceId([99; 16]);
    let [(owner, mappings, _), (_importer, theirs, _)] = two(&world);
    mappings.attach(Fake::new(&world, 0, own) as _);
    let drop_memory = |memory: Allocation| {
        let world = world.clone();
        remote::free_once_unmapped_by_all(own, memory.base, memory.id, move || world.free(memory.id));
    };
    let patient = |comm: &Communicator| comm.with_deadline(Some(Duration::from_secs(20)));
    // Memory that no rank has mapped is freed at once.
    let memory = world.allocate(0, own, PAGE, PAGE);
    drop_memory(memory);
    assert!(!world.is_there(memory.id));
    // Used by the other side, then by this one.
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
fn foreign_memory_that_was_freed_is_unmapped_without_a_request() {
    let world = World::default();
    let [(owner, mappings, _), (_importer, _theirs, _)] = two(&world);
    let memory = world.allocate(0, device(0), PAGE, PAGE);
    drop(mappings.map(at(1), PAGE, 8).unwrap());
    world.free(memory.id);
    assert_eq!(world.held(), 1);
    let given_back = || Ok((world.held() == 0).then_some(()));
    owner.with_deadline(Some(Duration::from_secs(20))).wait_for(None, "the memory", given_back).unwrap();
}
