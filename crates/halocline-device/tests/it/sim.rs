//! Guarantees of simulated devices: replay, refusals, reports, failure.

use halocline_device::sim::{Kernel, Options, Report, Run, World, explore, find, run};
use halocline_device::{
    Device, DeviceError, MemorySpace, Priority, RawEvent, RawStream, Stream, TableSpec, ValueOp,
};
use std::time::{Duration, Instant};

type Outcome = Result<(), DeviceError>;

fn once(program: impl FnOnce(&World) -> Outcome) -> Run {
    run(0, &Options::default(), |world| program(world).expect("no call is refused"))
}

fn pair(world: &World) -> Result<(Device, Stream, Stream), DeviceError> {
    let device = world.device(0)?;
    let streams = (device.stream(Priority::Normal)?, device.stream(Priority::Highest)?);
    Ok((device, streams.0, streams.1))
}

/// A few operations on two streams, ordered by an event and a word.
fn small(world: &World) -> Outcome {
    let (device, one, two) = pair(world)?;
    let (from, to, word) = (device.allocate(64)?, device.allocate(64)?, device.allocate_pinned(8)?);
    let event = device.events().take()?;
    world.launch(&one, Kernel::new("fill").writes(from.at(0), 64))?;
    one.record(&event)?;
    two.wait(&event)?;
    // SAFETY: both streams are synchronised before the memory goes.
    unsafe {
        two.copy(to.at(0), from.at(0), 64)?;
        two.values(&[ValueOp::Write { address: word.at(0), value: 1 }])?;
        one.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }])?;
    }
    world.launch(&one, Kernel::new("use").reads(to.at(0), 64))?;
    one.synchronise()?;
    two.synchronise()
}

/// A stream waits for a word written by another stream, which is created after `between` dropped ones.
fn beside_a_wait(world: &World, between: usize) -> Outcome {
    let (device, waiting, _) = pair(world)?;
    (0..between).try_for_each(|_| device.stream(Priority::Normal).map(drop))?;
    let (last, word) = (device.stream(Priority::Normal)?, device.allocate_pinned(8)?);
    // SAFETY: both streams are synchronised before the word goes.
    unsafe {
        waiting.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }])?;
        last.values(&[ValueOp::Write { address: word.at(0), value: 1 }])?;
    }
    last.synchronise()?;
    waiting.synchronise()
}

#[test]
fn a_waiting_stream_blocks_later_work_of_its_queue() {
    for (queues, keeps_streams) in [(Some(4), false), (Some(4), true), (None, false)] {
        let options = Options { queues, keeps_streams, ..Options::default() };
        // The default stream has the first queue, the waiting one the second, the next one the third.
        let is_held = |between: usize| {
            let run = run(between as u64, &options, |world| drop(beside_a_wait(world, between)));
            let report = run.reports.first().map(Report::to_string).unwrap_or_default();
            assert!(report.is_empty() || report.contains("is held in its queue behind"), "{report}");
            !report.is_empty()
        };
        let held: Vec<usize> = (0..12).filter(|&between| is_held(between)).collect();
        let expected: &[usize] = if queues.is_some() && !keeps_streams { &[2, 6, 10] } else { &[] };
        assert_eq!(held, expected, "{queues:?} {keeps_streams}");
    }
}

#[test]
fn a_seed_replays_exactly_and_seeds_differ() {
    let trace = |seed| run(seed, &Options::default(), |world| small(world).expect("fine")).trace;
    let traces: Vec<u64> = (0..64).map(trace).collect();
    assert_eq!(traces, (0..64).map(trace).collect::<Vec<_>>());
    let distinct: std::collections::HashSet<_> = traces.iter().collect();
    assert!(distinct.len() > 32, "only {} of 64 seeds differ", distinct.len());
}

#[test]
fn threads_replay_exactly() {
    let program = |world: &World| {
        let word = std::sync::atomic::AtomicU32::new(0);
        world.ranks(3, |rank| {
            let stream =
                world.device(rank as u32 % 2).expect("there").stream(Priority::Normal).expect("a stream");
            for _ in 0..4 {
                world.launch(&stream, Kernel::new("nothing")).expect("given");
                if word.fetch_add(1, std::sync::atomic::Ordering::AcqRel) < 6 {
                    world.park(&word, rank as u32, Some(Duration::from_millis(1)));
                }
                world.wake(&word);
            }
            stream.synchronise().expect("done");
        });
    };
    for seed in 0..64 {
        let (one, two) = (run(seed, &Options::default(), program), run(seed, &Options::default(), program));
        assert!(one.reports.is_empty(), "{:?}", one.reports);
        assert_eq!((one.trace, one.steps), (two.trace, two.steps), "seed {seed}");
    }
}

#[test]
fn ten_thousand_seeds_of_a_small_program_take_seconds() {
    let begin = Instant::now();
    explore(0..10_000, &Options::default(), |world| small(world).expect("fine"));
    println!("10,000 seeds of 7 operations on two streams: {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn a_failure_names_its_seed_and_its_steps() {
    let racing = |world: &World| {
        let (device, one, two) = pair(world).expect("streams");
        let memory = device.allocate(8).expect("memory");
        world.launch(&one, Kernel::new("first").writes(memory.at(0), 8)).expect("given");
        world.launch(&two, Kernel::new("second").writes(memory.at(0), 8)).expect("given");
        one.synchronise().expect("done");
        two.synchronise().expect("done");
    };
    let found = find(5..100, &Options::default(), racing).expect("a race");
    let text = found.to_string();
    assert!(text.contains(&format!("HALOCLINE_SEED={}", found.seed)), "{text}");
    let named = |name: &str| found.plainest.log.iter().any(|line| line.contains(name));
    assert!(named("first") && named("second") && named("REPORT"), "{text}");
    assert_eq!(run(found.seed, &Options::default(), racing).reports, found.run.reports);
}

#[test]
fn a_deadlock_names_each_waiting_task() {
    let waits = |world: &World| {
        let (device, one, _) = pair(world).expect("streams");
        let word = device.allocate_pinned(8).expect("memory");
        // SAFETY: the run is stopped before the memory goes.
        unsafe { one.values(&[ValueOp::Wait { address: word.at(0), at_least: 3 }]) }.expect("given");
        let ended = one.synchronise();
        assert!(matches!(ended, Err(DeviceError::Lost { .. })), "{ended:?}");
    };
    let reports = run(1, &Options::default(), waits).reports;
    let [Report::Deadlock { waiting }] = &reports[..] else { panic!("{reports:?}") };
    let text = waiting.join("; ");
    assert!(text.contains("waits for 3 in the word at 0") && text.contains("thread main"), "{text}");
}

#[test]
fn two_threads_parked_forever_are_a_deadlock() {
    let reports = run(1, &Options::default(), |world| {
        let word = std::sync::atomic::AtomicU32::new(0);
        world.ranks(2, |_| world.park(&word, 0, None));
    })
    .reports;
    assert!(matches!(&reports[..], [Report::Deadlock { waiting }] if waiting.len() == 3), "{reports:?}");
}

#[test]
fn a_parked_thread_wakes_by_virtual_time() {
    let begin = Instant::now();
    let run = run(1, &Options::default(), |world| {
        let word = std::sync::atomic::AtomicU32::new(0);
        world.park(&word, 0, Some(Duration::from_secs(3600)));
        assert!(world.now() >= Duration::from_secs(3600));
    });
    assert!(run.reports.is_empty(), "{:?}", run.reports);
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_full_stream_blocks_the_host_until_a_slot_is_free() {
    let options = Options { depth: 4, ..Options::default() };
    explore(0..200, &options, |world| {
        let (_, one, _) = pair(world).expect("streams");
        (0..40).for_each(|_| world.launch(&one, Kernel::new("work")).expect("given"));
        one.synchronise().expect("done");
    });
    // A stream that waits for the host never drains: a host thread that fills it waits forever.
    let found = find(0..1, &options, |world| {
        let (device, one, _) = pair(world).expect("streams");
        let word = device.allocate_pinned(8).expect("memory");
        // SAFETY: the run is stopped before the memory goes.
        unsafe { one.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }]) }.expect("given");
        while world.launch(&one, Kernel::new("work")).is_ok() {}
    });
    let reports = found.expect("stuck").run.reports;
    assert!(reports.iter().any(|r| r.to_string().contains("waits for a free slot in stream")), "{reports:?}");
}

#[test]
fn a_wait_uses_the_record_at_the_time_of_the_call() {
    // The second record of the same event does not affect the stream that waits for the first.
    explore(0..500, &Options::default(), |world| {
        let (device, one, two) = pair(world).expect("streams");
        let word = device.allocate_pinned(8).expect("memory");
        let event = device.events().take().expect("an event");
        one.record(&event).expect("recorded");
        two.wait(&event).expect("given");
        // SAFETY: both streams are synchronised before the memory goes.
        unsafe {
            one.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }]).expect("given");
            one.record(&event).expect("recorded");
            two.values(&[ValueOp::Write { address: word.at(0), value: 1 }]).expect("given");
        }
        two.synchronise().expect("done");
        one.synchronise().expect("done");
        assert_eq!(event.query(), Ok(true));
    });
}

#[test]
fn words_compare_cyclically() {
    let run = once(|world| {
        let (device, one, _) = pair(world)?;
        let word = device.allocate_pinned(8)?;
        // SAFETY: the stream is synchronised before the memory goes.
        unsafe {
            word.store(0, 2);
            one.values(&[ValueOp::Wait { address: word.at(0), at_least: u64::MAX }])?;
        }
        one.synchronise()
    });
    assert!(run.reports.is_empty(), "{:?}", run.reports);
}

#[test]
fn a_guard_keeps_a_table_from_copying() {
    use halocline_device::TablePart;
    let run = once(|world| {
        let (device, one, _) = pair(world)?;
        let words = device.allocate_pinned(16)?;
        let table = device.upload(&TableSpec {
            parts: &[TablePart { waits: &[], ops: &[], raises: &[words.at(0)], ..TablePart::default() }],
            sources: &[],
            targets: &[],
            guard: Some(words.at(8)),
            ..TableSpec::default()
        })?;
        // SAFETY: the stream is synchronised before the memory goes.
        unsafe {
            one.launch(&table, 1)?;
            one.synchronise()?;
            assert_eq!(words.load(0), 1);
            words.store(8, 1);
            one.launch(&table, 2)?;
            one.synchronise()?;
            assert_eq!(words.load(0), 1);
        }
        Ok(())
    });
    assert!(run.reports.is_empty(), "{:?}", run.reports);
}

#[test]
fn bad_calls_are_refused_by_name() {
    let run = once(|world| {
        let (device, one, two) = pair(world)?;
        let other = world.device(1)?;
        let theirs = other.stream(Priority::Normal)?;
        assert_eq!(world.device(2).err(), Some(DeviceError::NoDevice { device: 2, count: 2 }));
        // SAFETY: the simulated device looks a handle up in a table, so that it takes any number.
        let borrow = |raw| unsafe { device.borrow_stream(raw) }.err();
        assert!(matches!(borrow(theirs.raw()), Some(DeviceError::OtherDevice { actual: 1, device: 0, .. })));
        assert_eq!(borrow(RawStream(12)), Some(DeviceError::NoStream { stream: 12 }));
        assert_eq!(borrow(two.raw()), None);
        assert_eq!(borrow(RawStream(0)), None);
        let event = other.events().take()?;
        assert!(matches!(one.record(&event), Err(DeviceError::OtherDevice { what: "event", .. })));

        // SAFETY: the simulated device looks a handle up in a table, so that it takes any number.
        let queried = unsafe { device.driver().query_event(RawEvent(12)) };
        assert_eq!(queried.err(), Some(DeviceError::NoEvent { event: 12 }));

        let (local, remote) = (device.allocate(64)?, other.allocate(64)?);
        let on_stack = [0u8; 16];
        let host = on_stack.as_ptr().expose_provenance() as u64;
        // SAFETY: the device refuses all of these, so that nothing is accessed.
        unsafe {
            let word = |address| device_error(one.values(&[ValueOp::Write { address, value: 1 }]));
            assert_eq!(word(remote.at(0)), DeviceError::NoPeerAccess { device: 0, peer: 1 });
            assert_eq!(word(local.at(4)), DeviceError::Misaligned { address: local.at(4) });
            assert_eq!(word(host), DeviceError::NotReachable { address: host, bytes: 8 });
            let beyond =
                DeviceError::OutOfBounds { address: local.at(8), bytes: 64, base: local.at(0), len: 64 };
            assert_eq!(device_error(one.copy(local.at(0), local.at(8), 64)), beyond);
        }
        device.enable_peer(&other)?;
        // SAFETY: the stream is synchronised before the memory goes.
        unsafe { one.values(&[ValueOp::Write { address: remote.at(0), value: 1 }]) }?;
        one.synchronise()?;
        let place = device.place_of(remote.at(63))?;
        assert_eq!((place, place.space), (remote.place(), MemorySpace::Device(1)));
        world.keep_from_peers(remote.at(0))?;
        // SAFETY: the device refuses it, so that nothing is accessed.
        let kept = unsafe { one.values(&[ValueOp::Write { address: remote.at(8), value: 1 }]) };
        assert_eq!(device_error(kept), DeviceError::NotShared { device: 0, peer: 1, address: remote.at(8) });
        Ok(())
    });
    assert!(run.reports.is_empty(), "{:?}", run.reports);
}

fn device_error(outcome: Outcome) -> DeviceError {
    outcome.expect_err("refused")
}

#[test]
fn memory_is_never_taken_for_other_memory() {
    let run = once(|world| {
        let device = world.device(0)?;
        let ids: Vec<u64> =
            (0..4).map(|_| device.allocate_pinned(4096).map(|m| m.place().id)).collect::<Result<_, _>>()?;
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        let gone = device.allocate(8)?.at(0);
        assert!(matches!(device.place_of(gone), Err(DeviceError::NotReachable { .. })));
        Ok(())
    });
    assert!(run.reports.is_empty(), "{:?}", run.reports);
}

#[test]
fn the_host_touching_device_memory_is_reported() {
    let run = once(|world| {
        let device = world.device(1)?;
        let memory = device.allocate(8)?;
        device.driver().host_access(memory.at(0), 8, false);
        Ok(())
    });
    assert!(matches!(run.reports[..], [Report::HostTouchedDevice { device: 1, .. }]), "{:?}", run.reports);
}

#[test]
fn an_undeclared_access_of_a_kernel_is_reported() {
    let run = once(|world| {
        let (device, one, _) = pair(world)?;
        let memory = device.allocate(16)?;
        let at = memory.at(8);
        let sly = Kernel::new("sly").writes(memory.at(0), 8).reads(at, 8);
        world.launch(&one, sly.body(move |m| m.write(at, 1)))?;
        one.synchronise()
    });
    assert!(matches!(run.reports[..], [Report::Undeclared { bytes: 8, .. }]), "{:?}", run.reports);
}

#[test]
fn a_failed_device_fails_every_later_call_and_nothing_hangs() {
    explore(0..200, &Options::default(), |world| {
        let (device, one, _) = pair(world).expect("streams");
        let memory = device.allocate(64).expect("memory");
        let pool = device.events();
        for _ in 0..3 {
            world.launch(&one, Kernel::new("work").writes(memory.at(0), 64)).expect("given");
        }
        assert_eq!(device.failure(), None);
        world.fail(&device, "a fault");
        let lost = DeviceError::Lost { device: 0, what: "a fault".to_owned() };
        assert_eq!(one.synchronise(), Err(lost.clone()));
        assert_eq!(pool.take().err(), Some(lost.clone()));
        assert_eq!(device.failure(), Some(lost));
        assert_eq!(world.device(1).expect("there").failure(), None);
    });
}

#[test]
fn a_panic_of_the_program_is_a_failure_of_the_seed() {
    let found = find(0..10, &Options::default(), |world| {
        world.ranks(2, |rank| assert_eq!(rank, 0, "the wrong rank"));
    });
    let reports = found.expect("fails").run.reports;
    assert!(reports.iter().any(|report| report.to_string().contains("the wrong rank")), "{reports:?}");
}

/// Runs one test of this file in its own process, with a variable set.
fn in_a_process(test: &str, variable: (&str, &str)) -> std::process::Output {
    let program = std::env::current_exe().expect("this test");
    let mut command = std::process::Command::new(program);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env_remove("HALOCLINE_SEED")
        .env_remove("HALOCLINE_SEEDS");
    command.env(variable.0, variable.1).output().expect("it starts")
}

#[test]
fn a_host_that_dereferences_an_address_of_a_device_is_killed() {
    const HERE: &str = "HALOCLINE_TEST_DEREFERENCE";
    if std::env::var_os(HERE).is_none() {
        use std::os::unix::process::ExitStatusExt;
        const SIGSEGV: i32 = 11;
        const SIGBUS: i32 = 7;
        let test = "sim::a_host_that_dereferences_an_address_of_a_device_is_killed";
        let signal = in_a_process(test, (HERE, "1")).status.signal();
        assert!(signal.is_some_and(|signal| signal == SIGSEGV || signal == SIGBUS), "{signal:?}");
        return;
    }
    once(|world| {
        let memory = world.device(0)?.allocate(8)?;
        let word = std::ptr::with_exposed_provenance::<u64>(memory.at(0) as usize);
        // SAFETY: nothing keeps it: this is the mistake that is to be seen. The address lies where no memory of a
        // process is, so that the machine ends the process.
        println!("read {}", unsafe { word.read_volatile() });
        Ok(())
    });
}

#[test]
fn a_variable_names_the_one_seed_that_is_run() {
    const HERE: &str = "HALOCLINE_SEED";
    if std::env::var_os(HERE).is_none() {
        let output = in_a_process("sim::a_variable_names_the_one_seed_that_is_run", (HERE, "41"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.matches("a run").count() == 1, "{text}");
        let output = in_a_process("sim::a_variable_names_the_one_seed_that_is_run", (HERE, "x"));
        assert!(!output.status.success(), "a seed that is none is taken");
        return;
    }
    explore(0..10, &Options::default(), |_| println!("a run"));
}

#[test]
fn a_foreign_thread_is_reported() {
    let run = once(|world| {
        let device = world.device(0)?;
        std::thread::scope(|scope| {
            let outcome = scope.spawn(|| device.allocate(8).map(drop)).join().expect("no panic");
            assert!(matches!(outcome, Err(DeviceError::Lost { .. })), "{outcome:?}");
        });
        Ok(())
    });
    assert!(matches!(run.reports[..], [Report::Stranger { .. }]), "{:?}", run.reports);
}
