//! Memory that cannot be mapped.

use super::*;

#[test]
fn refusals_name_the_memory_and_count_as_staged() {
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
    let error = mappings.resolve(1, 7, 0, 8).err().unwrap();
    assert!(matches!(error, MappingError::NoMapping { token: 7, rank: 1 }), "{error}");
    let error = mappings.map(at(2), PAGE, 8).err().unwrap();
    assert!(matches!(error, MappingError::Comm(CommError::NoSuchRank { rank: 2, size: 2 })), "{error}");
}

#[test]
fn memory_that_cannot_be_exported_is_tried_once() {
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
        // The owner's progress thread may be the one that sends the offer.
        let inbox = importer.link().inbox();
        let offered = || Ok(inbox.take(service::TAG, Some(0)));
        let mut offer = importer.wait_for(None, "the offer", offered).unwrap();
        offer.missing = Some(CommError::System { what: "receive descriptors", errno });
        let (theirs, _fake) = process(&importer, &world);
        inbox.push(offer);
        theirs.drive();
        let error = requested.wait().err();
        assert!(matches!(error, Some(MappingError::Refused { why, .. }) if why == due), "{error:?}");
    }
}

#[test]
fn reused_memory_that_is_pinned_is_reported() {
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
