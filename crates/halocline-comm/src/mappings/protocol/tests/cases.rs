//! One behaviour, or one defect seen in the field, a test.

use super::*;

const PAGE: u64 = 4096;

#[test]
fn a_miss_then_a_hit() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (first, token) = sim.mapped(0, at(1), &memory);
    let request = sim.map(0, at(1), &memory);
    // At once, before any message could go anywhere.
    assert!(sim.carry_out(0) && sim.wires.values().all(VecDeque::is_empty));
    let answer = sim.answer(0, request);
    assert!(
        matches!(answer, Some(Answer::Mapped { entry, token: t, .. }) if (entry, t) == (first, token)),
        "{answer:?}"
    );
    assert_eq!(sim.world.calls(), (1, 1, 0));
    let stats = sim.ranks[0].protocol.stats();
    assert_eq!((stats.hits, stats.opens, stats.pinned, stats.bytes_held), (1, 1, 1, PAGE));
}

/// Of virtual memory any part can have an entry: who asks for bytes hits the smallest that holds them all, whatever lies around it.
#[test]
fn bytes_are_found_in_the_smallest_allocation_that_holds_them_all() {
    let mut sim = Sim::new(2, LIMIT);
    let part = |base, bytes, id| Allocation { base, bytes, id, device: device(0, 0), kind: Kind::Vmm };
    let protocol = &mut sim.ranks[0].protocol;
    let (all, one) = (part(PAGE, 3 * PAGE, 7), part(2 * PAGE, PAGE, 8));
    protocol.insert(all, false);
    let id = protocol.insert(one, true);
    let found = |protocol: &Protocol, address, bytes| {
        protocol.around(address, bytes).map(|known| (known.allocation, known.is_own))
    };
    assert_eq!(found(protocol, 2 * PAGE, PAGE), Some((one, true)));
    assert_eq!(found(protocol, 3 * PAGE - 8, 8), Some((one, true)));
    assert_eq!(found(protocol, 3 * PAGE - 8, 9), Some((all, false)));
    assert_eq!(found(protocol, PAGE, 3 * PAGE), Some((all, false)));
    for (address, bytes) in [(PAGE - 1, 8), (4 * PAGE, 0), (4 * PAGE - 8, 9), (PAGE, u64::MAX), (0, 1)] {
        assert_eq!(found(protocol, address, bytes), None, "{bytes} bytes at {address}");
    }
    // A retired memory has no owner any more.
    protocol.retire(id);
    assert_eq!(found(protocol, 2 * PAGE, PAGE), Some((all, false)));
}

#[test]
fn two_peers_have_mappings_of_their_own_of_one_entry() {
    let mut sim = Sim::new(3, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (first, second) = (sim.mapped(0, at(1), &memory), sim.mapped(0, at(2), &memory));
    assert_eq!(first.0, second.0);
    assert_ne!(first.1, second.1);
    assert_eq!((sim.world.calls(), sim.world.open_of(0)), ((2, 2, 0), 2));
}

#[test]
fn two_devices_of_one_importer_have_mappings_of_their_own() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (first, second) = (at(1), Target { rank: 1, device: device(1, 1) });
    let (one, other) = (sim.mapped(0, first, &memory), sim.mapped(0, second, &memory));
    assert_ne!(one.1, other.1);
    sim.unpin(0, one.0);
    sim.unpin(0, other.0);
    // Each is closed on the device that has opened it: the fake looks.
    sim.ranks[0].protocol.set_limit(0);
    sim.settle();
    assert_eq!(sim.world.open_of(0), 0);
}

#[test]
fn memory_allocated_again_over_freed_memory_is_mapped_anew() {
    let old = (16 * PAGE, 8 * PAGE);
    let again = [
        ("the same", 16 * PAGE, 8 * PAGE),
        ("larger", 16 * PAGE, 12 * PAGE),
        ("smaller", 16 * PAGE, 2 * PAGE),
        ("overlapping on the left", 12 * PAGE, 8 * PAGE),
        ("overlapping on the right", 20 * PAGE, 8 * PAGE),
        ("around it", 10 * PAGE, 30 * PAGE),
        ("within it", 18 * PAGE, PAGE),
    ];
    for (what, base, bytes) in again {
        let mut sim = Sim::new(3, LIMIT);
        let memory = sim.allocate(0, old.0, old.1);
        for peer in [1, 2] {
            sim.send(0, at(peer), &memory, 8);
        }
        sim.finish();
        assert_eq!(sim.world.open_of(0), 2, "{what}");
        sim.world.free(memory.id);
        assert_eq!(sim.world.held(), 1, "{what}: peers hold it");
        let memory = sim.allocate(0, base, bytes);
        for peer in [1, 2] {
            // That the bytes are those of the new memory is looked at on arrival.
            let epoch = sim.send(0, at(peer), &memory, 16);
            sim.finish();
            assert_eq!(sim.answer(0, epoch), Some(Answer::Done(None)), "{what}");
        }
        assert_eq!(sim.world.held(), 0, "{what}: nothing freed is held");
    }
}

#[test]
fn many_slices_in_flight_with_room_for_one() {
    let mut sim = Sim::new(2, 1);
    let memories: Vec<_> = (0..20).map(|slice| sim.allocate(0, (1 + 2 * slice) * PAGE, PAGE)).collect();
    let epochs: Vec<_> =
        memories.iter().cycle().take(60).map(|memory| sim.send(0, at(1), memory, 64)).collect();
    sim.settle();
    // All are in use.
    assert_eq!(sim.world.open_of(0), 20);
    sim.finish();
    assert!(epochs.iter().all(|epoch| sim.ranks[0].answers[epoch] == Answer::Done(None)));
    assert_eq!(sim.world.open_of(0), 1);
    assert_eq!(sim.ranks[0].protocol.stats().evictions, 19);
}

#[test]
fn with_a_limit_of_zero_a_transfer_is_done_only_once_it_is_unmapped() {
    let mut sim = Sim::new(2, 0);
    let memory = sim.allocate(0, PAGE, PAGE);
    for _ in 0..3 {
        let epochs = [sim.send(0, at(1), &memory, 0), sim.send(0, at(1), &memory, 8)];
        sim.settle();
        assert_eq!(sim.world.open_of(0), 1, "not closed under the transfers");
        assert!(sim.take(1) && sim.take(1));
        while sim.carry_out(1) {}
        let said: Vec<_> = sim.wires[&(1, 0)].iter().cloned().collect();
        let is_done = |message: &Message| matches!(message, Message::Done { .. });
        assert!(matches!(said[0], Message::Unmapped { .. }) && said[1..].iter().all(is_done), "{said:?}");
        assert_eq!((said.len(), sim.world.open_of(0)), (3, 0));
        sim.settle();
        assert_eq!(epochs.map(|epoch| sim.answer(0, epoch)), [Some(Answer::Done(None)); 2]);
    }
    assert!(sim.ranks[0].protocol.entries.is_empty());
}

#[test]
fn an_entry_with_an_open_offer_is_not_evicted_before_the_answer() {
    let mut sim = Sim::new(2, 0);
    let memory = sim.allocate(0, PAGE, PAGE);
    let request = sim.map(0, at(1), &memory);
    while sim.carry_out(0) {}
    assert!(sim.ranks[0].protocol.withdraw(request, sim.now));
    sim.ranks[0].protocol.set_limit(0);
    assert!(sim.ranks[0].protocol.entries.values().all(|entry| !entry.retiring));
    sim.settle();
    assert_eq!((sim.world.calls(), sim.ranks[0].protocol.entries.len()), ((1, 1, 1), 0));
}

/// A defect seen in the field: a pin that is never set, and an entry evicted under a transfer in flight.
#[test]
fn an_entry_is_not_evicted_under_a_transfer_in_flight() {
    let mut sim = Sim::new(2, 1);
    let (first, second) = (sim.allocate(0, PAGE, PAGE), sim.allocate(0, 4 * PAGE, PAGE));
    let slow = sim.send(0, at(1), &first, 8);
    sim.settle();
    for _ in 0..3 {
        sim.send(0, at(1), &second, 8);
        sim.settle();
        // The last that came.
        let newest = sim.ranks[1].arrivals.pop().expect("it has arrived");
        sim.ranks[1].protocol.taken(&newest);
        sim.settle();
    }
    sim.ranks[0].protocol.set_limit(0);
    sim.settle();
    assert_eq!(sim.world.open_of(0), 1);
    // `take` looks whether its memory is still there.
    sim.finish();
    assert_eq!(sim.answer(0, slow), Some(Answer::Done(None)));
}

/// A defect seen in the field: a mapped-address message that arrives after its entry is gone and hits a new entry at the
/// same base.
#[test]
fn a_late_mapped_of_a_retired_entry_touches_no_other() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let request = sim.map(0, at(1), &memory);
    while sim.carry_out(0) {}
    assert!(sim.deliver(0, 1));
    while sim.carry_out(1) {}
    let late = sim.wires.get_mut(&(1, 0)).and_then(VecDeque::pop_front).expect("its MAPPED");
    let Message::Mapped { entry, token, .. } = late else { panic!("{late:?}") };
    // Nobody waits for it any more, and the memory is gone.
    assert!(sim.ranks[0].protocol.withdraw(request, sim.now));
    assert_eq!(sim.ranks[0].protocol.release(memory.base), Ok(vec![entry]));
    sim.world.free(memory.id);
    let memory = sim.allocate(0, PAGE, PAGE);
    let again = sim.map(0, at(1), &memory);
    sim.settle();
    assert_eq!(sim.answer(0, again), None, "it waits for what is open there");
    sim.hear(1, 0, late.clone()).unwrap();
    sim.settle();
    let Some(Answer::Mapped { entry: new, token: fresh, address }) = sim.answer(0, again) else {
        panic!("not mapped")
    };
    assert!(new != entry && fresh != token);
    // Later still: the entry is no more.
    sim.hear(1, 0, late).unwrap();
    assert!(
        matches!(sim.ranks[0].protocol.out.back(), Some(Effect::Post { message: Message::Unmap { token: t }, .. }) if *t == token)
    );
    assert_eq!(sim.ranks[0].protocol.entries[&new].targets[&at(1)], State::Mapped { token: fresh, address });
}

/// A defect seen in the field: two sends before the first answer opening twice.
#[test]
fn two_sends_before_the_first_answer_open_once() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let epochs = [sim.send(0, at(1), &memory, 8), sim.send(0, at(1), &memory, 16)];
    while sim.carry_out(0) {}
    assert_eq!(sim.wires[&(0, 1)].len(), 1);
    sim.finish();
    assert_eq!(epochs.map(|epoch| sim.answer(0, epoch)), [Some(Answer::Done(None)); 2]);
    assert_eq!(sim.world.calls().1, 1);
}

/// A defect seen in the field: eviction of only one entry when the limit was lowered by many.
#[test]
fn lowering_the_limit_evicts_all_that_is_too_much_oldest_first() {
    let mut sim = Sim::new(2, LIMIT);
    let memories: Vec<_> = (0..1024).map(|slice| sim.allocate(0, (1 + 2 * slice) * PAGE, PAGE)).collect();
    memories.iter().for_each(|memory| _ = sim.send(0, at(1), memory, 0));
    sim.finish();
    assert_eq!(sim.world.open_of(0), 1024);
    let pinned = sim.mapped(0, at(1), &memories[5]);
    sim.ranks[0].protocol.set_limit(8);
    sim.settle();
    assert_eq!(sim.world.open_of(0), 8 + 1);
    let kept: Vec<u64> = sim.ranks[0].protocol.entries.values().map(|entry| entry.allocation.id).collect();
    assert!(
        kept.contains(&memories[5].id) && memories[1016..].iter().all(|memory| kept.contains(&memory.id))
    );
    sim.unpin(0, pinned.0);
    sim.settle();
    assert_eq!(sim.world.open_of(0), 8);
}

#[test]
fn shrinking_under_load_drains_at_once() {
    let mut sim = Sim::new(2, LIMIT);
    let memories: Vec<_> = (0..64).map(|slice| sim.allocate(0, (1 + 2 * slice) * PAGE, PAGE)).collect();
    // An entry that was sent while nothing could be kept is not kept, whatever the limit becomes.
    for (limit, kept) in [(1024, 64), (1, 1), (0, 0), (8, 0), (8, 8)] {
        memories.iter().for_each(|memory| _ = sim.send(0, at(1), memory, 0));
        sim.settle();
        sim.ranks[0].protocol.set_limit(limit);
        sim.finish();
        assert_eq!(sim.world.open_of(0), kept);
    }
    assert!(sim.ranks[0].answers.values().all(|answer| *answer == Answer::Done(None)));
}

/// Defects seen in the field: a mapping closed on the wrong device; a table not keyed by the importer's device.
#[test]
fn each_mapping_is_closed_on_the_device_that_opened_it() {
    let mut sim = Sim::new(2, LIMIT);
    let memories = [sim.allocate(0, PAGE, PAGE), sim.allocate(0, 4 * PAGE, PAGE)];
    for (number, memory) in [(0, &memories[0]), (1, &memories[0]), (1, &memories[1]), (0, &memories[1])] {
        sim.send(0, Target { rank: 1, device: device(1, number) }, memory, 0);
    }
    sim.finish();
    assert_eq!((sim.world.open_of(0), sim.world.calls().1), (4, 4));
    sim.shut_down(&[0, 1]);
}

/// A defect seen in the field: a whole block exposed although a suballocation was meant.
#[test]
fn offsets_beyond_a_mapping_are_refused_on_both_sides() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (entry, token) = sim.mapped(0, at(1), &memory);
    let importer = &mut sim.ranks[1].protocol;
    for (offset, length) in [(PAGE, 1), (0, PAGE + 1), (u64::MAX, 2), (8, u64::MAX)] {
        assert_eq!(importer.resolve(0, token, offset, length), Err(Unusable::Beyond(PAGE)));
    }
    assert!(importer.resolve(0, token, PAGE - 1, 1).is_ok());
    let request = sim.request(0, at(1), &memory, Want::Data { offset: PAGE - 4, length: 8 }).unwrap();
    sim.settle();
    assert_eq!(sim.answer(0, request), Some(Answer::Done(Some(Refusal::BadHandle))));
    assert_eq!(sim.ranks[0].protocol.entries[&entry].pins, 1);
}

/// A defect seen in the field: memory held until exit because the free was not noticed.
#[test]
fn freed_memory_that_nobody_asks_for_again_is_noticed() {
    let mut sim = Sim::new(2, LIMIT);
    let (freed, kept) = (sim.allocate(0, PAGE, PAGE), sim.allocate(0, 4 * PAGE, PAGE));
    for memory in [&freed, &kept] {
        sim.send(0, at(1), memory, 0);
    }
    sim.finish();
    sim.world.free(freed.id);
    assert_eq!(sim.world.held(), 1);
    let driver = Arc::clone(&sim.ranks[0].drivers[0]);
    sim.ranks[0].protocol.sweep(|allocation| driver.find(allocation.base, 1) == Some(*allocation));
    sim.settle();
    assert_eq!((sim.world.held(), sim.world.open_of(0)), (0, 1));
}

#[test]
fn memory_that_was_freed_while_it_is_pinned_is_an_error_that_says_so() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (entry, _) = sim.mapped(0, at(1), &memory);
    sim.world.free(memory.id);
    let new = sim.allocate(0, PAGE, PAGE);
    assert_eq!(sim.request(0, at(1), &new, Want::Map), Err(1));
    assert_eq!(sim.ranks[0].protocol.lookup(&new), Err((PAGE, 1)));
    assert_eq!(sim.ranks[0].protocol.release(PAGE), Err(1));
    sim.unpin(0, entry);
    sim.mapped(0, at(1), &new);
    assert_eq!(sim.world.held(), 0);
}

#[test]
fn released_memory_is_really_free_once_nobody_holds_it() {
    let mut sim = Sim::new(3, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    for peer in [1, 2] {
        sim.send(0, at(peer), &memory, 0);
    }
    sim.finish();
    let ids = sim.ranks[0].protocol.release(memory.base + 100).unwrap();
    assert_eq!(sim.ranks[0].protocol.holders(&ids), [1, 2]);
    sim.settle();
    assert!(sim.ranks[0].protocol.holders(&ids).is_empty());
    sim.world.free(memory.id);
    assert_eq!((sim.world.held(), sim.world.open_of(0)), (0, 0));
    assert_eq!(sim.ranks[0].protocol.release(memory.base), Ok(Vec::new()));
}

#[test]
fn memory_that_is_given_up_while_it_is_used_retires_when_it_is_not() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (entry, _) = sim.mapped(0, at(1), &memory);
    let given_up = sim.ranks[0].protocol.give_up(|other| *other == memory);
    sim.settle();
    assert_eq!((given_up.clone(), sim.world.open_of(0)), (vec![entry], 1));
    assert_eq!(sim.ranks[0].protocol.unmap_state(&given_up), Unmap::InUse);
    sim.unpin(0, entry);
    assert_eq!(sim.ranks[0].protocol.unmap_state(&given_up), Unmap::Unmapping);
    sim.settle();
    assert_eq!((sim.ranks[0].protocol.unmap_state(&given_up), sim.world.open_of(0)), (Unmap::Over, 0));
}

#[test]
fn a_mapping_is_not_closed_while_the_importer_uses_it() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (entry, token) = sim.mapped(0, at(1), &memory);
    let address = sim.ranks[1].protocol.resolve(0, token, 16, 8).unwrap();
    sim.unpin(0, entry);
    let ids = sim.ranks[0].protocol.release(memory.base).unwrap();
    sim.settle();
    assert_eq!(sim.world.look(1, address), Some((memory.id, 16)));
    assert_eq!(sim.ranks[0].protocol.holders(&ids), [1]);
    assert_eq!(sim.ranks[1].protocol.resolve(0, token, 16, 8), Err(Unusable::NoMapping));
    sim.ranks[1].protocol.end_use(token);
    sim.settle();
    assert!(sim.ranks[0].protocol.holders(&ids).is_empty());
}

/// Device work that the host does not follow may still write to it.
#[test]
fn memory_that_is_kept_is_closed_once_its_owner_is_dead_and_nothing_keeps_it() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (_, token) = sim.mapped(0, at(1), &memory);
    let address = sim.ranks[1].protocol.resolve(0, token, 16, 8).unwrap();
    sim.ranks[1].protocol.end_use(token);
    sim.ranks[1].protocol.keep(0);
    sim.ranks[1].protocol.keep(0);
    sim.kill(0);
    sim.mourn(1, 0);
    sim.ranks[1].protocol.end_keep(0);
    sim.settle();
    assert_eq!(sim.world.look(1, address), Some((memory.id, 16)));
    sim.ranks[1].protocol.end_keep(0);
    sim.settle();
    assert_eq!((sim.world.open_of(0), sim.world.held()), (0, 0));
}

#[test]
fn each_refusal_is_remembered_and_its_bytes_are_staged() {
    let all = [
        Refusal::AlreadyOpen,
        Refusal::OutOfMemory,
        Refusal::NoPeerAccess,
        Refusal::NoDevice,
        Refusal::BadHandle,
        Refusal::Other(-7),
    ];
    for why in all {
        let mut sim = Sim::new(3, LIMIT);
        let memory = sim.allocate(0, PAGE, PAGE);
        sim.ranks[1].drivers[0].refusals.lock().unwrap().push(why);
        let first = [sim.send(0, at(1), &memory, 0), sim.map(0, at(1), &memory)];
        sim.settle();
        assert_eq!(first.map(|request| sim.answer(0, request)), [Some(Answer::Refused(why)); 2]);
        // At once, without a message, from now on; another peer is another matter.
        let again = sim.send(0, at(1), &memory, 0);
        assert!(sim.carry_out(0) && sim.wires.values().all(VecDeque::is_empty));
        assert_eq!(sim.answer(0, again), Some(Answer::Refused(why)));
        sim.mapped(0, at(2), &memory);
        let stats = sim.ranks[0].protocol.stats();
        assert_eq!((stats.staged, stats.opens, sim.world.calls().1), (3, 1, 1));
    }
}

#[test]
fn a_device_that_is_hidden_from_a_rank_is_refused() {
    let mut sim = Sim::new(2, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let request = sim.map(0, Target { rank: 1, device: device(0, 0) }, &memory);
    sim.settle();
    assert_eq!(sim.answer(0, request), Some(Answer::Refused(Refusal::NoDevice)));
}

#[test]
fn memory_of_the_same_process_is_its_own_address_and_never_opened() {
    let mut sim = Sim::new(2, LIMIT);
    sim.ranks[1].process = sim.ranks[0].process;
    let memory = sim.allocate(0, PAGE, PAGE);
    let (_, token) = sim.mapped(0, at(1), &memory);
    assert_eq!(sim.ranks[1].protocol.resolve(0, token, 8, 8), Ok(PAGE + 8));
    sim.ranks[1].protocol.end_use(token);
    assert_eq!(sim.world.calls().1, 0);
    sim.shut_down(&[1, 0]);
}

#[test]
fn forged_messages_change_nothing() {
    let mut sim = Sim::new(3, LIMIT);
    let memory = sim.allocate(0, PAGE, PAGE);
    let (entry, token) = sim.mapped(0, at(1), &memory);
    let epoch = sim.send(0, at(1), &memory, 8);
    sim.settle();
    let before = (sim.ranks[0].protocol.stats(), sim.ranks[1].protocol.stats());
    // Rank 2 says what only others can say.
    let forged = MessageError::NoMapping { token };
    assert_eq!(sim.hear(2, 1, Message::Unmap { token }), Err(forged.clone()));
    let data = Message::Data { entry, token, offset: 0, length: 8, epoch: 1, last: false };
    assert_eq!(sim.hear(2, 1, data), Err(forged));
    let unknown = Message::Data { entry: 1, token: 77, offset: 0, length: 8, epoch: 1, last: false };
    assert_eq!(sim.hear(0, 1, unknown), Err(MessageError::NoMapping { token: 77 }));
    sim.hear(2, 0, Message::Unmapped { entry, device: device(1, 0) }).unwrap();
    sim.hear(2, 0, Message::Done { epoch, refused: None }).unwrap();
    sim.hear(2, 0, Message::MapFailed { entry, device: device(1, 0), why: Refusal::Private }).unwrap();
    assert_eq!((sim.ranks[0].protocol.stats(), sim.ranks[1].protocol.stats()), before);
    // An offer that was made before.
    let process = sim.ranks[0].process;
    let descriptor = Descriptor { process, allocation: memory, handle: vec![0; 8] };
    let repeated = Message::Offer { entry, device: device(1, 0), descriptor: descriptor.clone() };
    assert_eq!(sim.hear(0, 1, repeated), Err(MessageError::Repeated { entry, device: device(1, 0) }));
    // A handle of nothing.
    sim.hear(0, 1, Message::Offer { entry: 9, device: device(1, 0), descriptor }).unwrap();
    while sim.carry_out(1) {}
    let said = sim.wires.get_mut(&(1, 0)).and_then(VecDeque::pop_back);
    let refused = Message::MapFailed { entry: 9, device: device(1, 0), why: Refusal::BadHandle };
    assert_eq!(said, Some(refused));
    sim.finish();
    assert_eq!(sim.answer(0, epoch), Some(Answer::Done(None)));
}
