//! Ranks that end, do not answer, or call from several threads.

use super::*;

#[test]
fn a_rank_that_does_not_answer_fails_the_request_at_the_deadline() {
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
fn a_driver_call_that_does_not_return_delays_no_other_thread_beyond_the_deadline() {
    let world = World::default();
    let [(_one, mappings, fake), (_other, theirs, _)] = two(&world);
    world.allocate(0, device(0), PAGE, PAGE);
    world.allocate(1, device(1), PAGE, PAGE);
    let impatient =
        Mappings { comm: mappings.comm.with_deadline(Some(Duration::from_millis(20))), ..mappings.clone() };
    // `open` polls this.
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

/// Device work that waits concerns the whole process.
static WAITING: Mutex<()> = Mutex::new(());

#[test]
fn a_mapping_that_cannot_be_closed_beside_exchanges_is_closed_later_without_a_wait() {
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
    // The driving thread returns and continues with other work.
    assert!(theirs.drive());
    drop(mappings.map(at(1), 3 * PAGE + 8, 8).unwrap());
    assert_eq!(world.calls(), (2, 2, 0));
    drop(in_flight);
    mappings.release(PAGE).unwrap();
    assert_eq!(world.calls(), (2, 2, 1));
    world.free(first.id);
    assert_eq!(world.held(), 0);
    // The end of a rank does not wait forever either.
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

/// The exchange may wait for work that the owner does once it has the mapping.
#[test]
fn memory_at_the_address_of_a_mapping_that_cannot_be_closed_is_refused() {
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

/// Also if another thread drives at that moment and finds nothing new.
#[test]
fn all_waits_for_a_rank_that_leaves_end() {
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
fn a_malformed_message_ends_the_mappings_with_its_sender_on_both_sides() {
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
fn nothing_stays_open_whichever_rank_ends_first() {
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
fn several_threads_map_at_once() {
    let world = World::default();
    const RANKS: usize = 3;
    let rank = |comm: Communicator, world: World| {
        let (mappings, _fake) = process(&comm, &world);
        let me = comm.rank();
        comm.barrier().unwrap();
        mappings.set_limit(3);
        scope(|threads| {
            for thread in 0..3u64 {
                let (mappings, world) = (mappings.clone(), world.clone());
                threads.spawn(move || {
                    let base = (1 + 10 * thread) * PAGE;
                    for round in 0..60 {
                        // Freed alternately with and without a release.
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
