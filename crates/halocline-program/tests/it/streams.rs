//! Programs in the order of the caller's stream, on simulated GPUs under many seeds. `tools/mutations` removes each piece of order.

use crate::gpu::{
    ENDED, FAILS, KINDS, Kind, SELECTED, array, call, consume, library, produce, stream, view, within,
};
use crate::source::Built;
use halocline_device::sim::{Options, World, explore};
use halocline_device::{Device, DeviceError, Graph, Memory, RawStream, Stream};
use halocline_program::{OnStream, Program, ProgramError, Streams};
use std::sync::{Arc, Weak};

const SEEDS: u64 = 300;

/// Runs a program of the test under many seeds.
fn check(body: impl Fn(&World, &Device)) {
    explore(0..SEEDS, &Options::default(), |world| {
        let device = world.device(0).unwrap();
        within(world, || body(world, &device));
    });
}

fn load(built: &Built, kind: Kind) -> Program {
    built.load(&kind.manifest()).unwrap()
}

#[test]
fn a_program_runs_after_the_streams_earlier_work_and_before_its_later_work() {
    for kind in KINDS {
        let built = library(kind);
        check(|world, device| {
            let (program, stream, t) = (load(&built, kind), stream(device), array(device));
            for step in 1..=3 {
                produce(world, &stream, &t, 100 * step);
                call(&program, &stream, &t, 5).unwrap();
                consume(world, &stream, &t, 100 * step + 5);
                call(&program, &stream, &t, 1).unwrap();
                consume(world, &stream, &t, 100 * step + 6);
            }
            stream.synchronise().unwrap();
            assert_eq!(program.states(), usize::from(kind.has_state()), "{kind:?}");
        });
    }
}

#[test]
fn a_prepared_call_is_ordered_as_well() {
    for kind in KINDS {
        let built = library(kind);
        check(|world, device| {
            let (program, stream, t) = (load(&built, kind), stream(device), array(device));
            let mut prepared = program.prepare(&[view(&t), 5.into()]).unwrap();
            prepared.make_state_on(&stream).unwrap();
            assert_eq!(program.states(), usize::from(kind.has_state()));
            for step in 1..=3i64 {
                produce(world, &stream, &t, 100);
                prepared.set(1, step).unwrap();
                // SAFETY: the array outlives the stream's work, which is waited for.
                unsafe { prepared.call_on(&stream) }.unwrap();
                consume(world, &stream, &t, 100 + step as u64);
            }
            stream.synchronise().unwrap();
            assert_eq!(program.states(), usize::from(kind.has_state()));
        });
    }
}

#[test]
fn states_that_are_made_ahead_are_of_their_streams() {
    let built = library(Kind::Caller);
    check(|_, device| {
        let (program, t) = (load(&built, Kind::Caller), array(device));
        let streams = [stream(device), stream(device)];
        let mut prepared = program.prepare(&[view(&t), 5.into()]).unwrap();
        for _ in 0..2 {
            streams.iter().for_each(|stream| prepared.make_state_on(stream).unwrap());
            assert_eq!(program.states(), 2);
        }
        for stream in &streams {
            // SAFETY: the array outlives the stream's work, which is waited for.
            unsafe { prepared.call_on(stream) }.unwrap();
            stream.synchronise().unwrap();
        }
        assert_eq!(program.states(), 2);
    });
}

#[test]
fn a_program_of_a_gpu_is_called_on_a_stream_which_may_be_the_default_stream() {
    for kind in KINDS {
        let built = library(kind);
        check(|world, device| {
            let (program, t) = (load(&built, kind), array(device));
            // SAFETY: 0 is the default stream.
            let default = unsafe { device.borrow_stream(RawStream(0)) }.unwrap();
            for step in 1..=2 {
                produce(world, &default, &t, 100 * step);
                let refused = program.call(&[view(&t), 5.into()]);
                assert!(matches!(refused, Err(ProgramError::NeedsStream { .. })), "{refused:?}");
                let refused = program.prepare(&[view(&t), 5.into()]).unwrap().call();
                assert!(matches!(refused, Err(ProgramError::NeedsStream { .. })), "{refused:?}");
                call(&program, &default, &t, 1).unwrap();
                consume(world, &default, &t, 100 * step + 1);
            }
            default.synchronise().unwrap();
        });
    }
}

#[test]
fn streams_at_the_same_time_have_states_of_their_own_until_they_have_passed() {
    for kind in [Kind::Caller, Kind::Internal, Kind::Default, Kind::Unsaid] {
        let built = library(kind);
        check(|world, device| {
            let program = load(&built, kind);
            let streams = [stream(device), stream(device)];
            let arrays = [array(device), array(device)];
            for round in 0..2 {
                for (stream, t) in streams.iter().zip(&arrays) {
                    produce(world, stream, t, 100 * round);
                    call(&program, stream, t, 5).unwrap();
                    consume(world, stream, t, 100 * round + 5);
                }
            }
            assert!(program.states() <= 2, "{}", program.states());
            streams.iter().for_each(|stream| stream.synchronise().unwrap());
            // Both have passed: a third stream takes one of their states.
            let (third, states) = (self::stream(device), program.states());
            call(&program, &third, &arrays[0], 1).unwrap();
            assert_eq!(program.states(), states);
            third.synchronise().unwrap();
        });
    }
}

#[test]
fn streams_made_anew_share_a_state_that_has_passed() {
    let built = library(Kind::Caller);
    let options = Options { keeps_streams: true, ..Options::default() };
    explore(0..SEEDS, &options, |world| {
        within(world, || {
            let device = world.device(0).unwrap();
            let (program, t) = (load(&built, Kind::Caller), array(&device));
            for step in 0..4 {
                let stream = stream(&device);
                produce(world, &stream, &t, step);
                call(&program, &stream, &t, 5).unwrap();
                consume(world, &stream, &t, step + 5);
                // The array is passed on; the states are the program's matter.
                stream.synchronise().unwrap();
            }
            assert_eq!(program.states(), 1);
        });
    });
}

#[test]
fn what_a_call_keeps_is_held_until_the_stream_has_passed() {
    for kind in KINDS {
        let built = library(kind);
        check(|world, device| {
            let (program, stream) = (load(&built, kind), stream(device));
            let mut kept: Vec<Weak<Memory>> = Vec::new();
            for step in 0..3 {
                let t = Arc::new(array(device));
                kept.push(Arc::downgrade(&t));
                produce(world, &stream, &t, step);
                let given = [view(&t), 5.into()];
                // SAFETY: the call keeps the array.
                unsafe { program.call_on(OnStream::of(&stream).keeping(t), &given) }.unwrap();
            }
            stream.synchronise().unwrap();
            let last = array(device);
            call(&program, &stream, &last, 1).unwrap();
            assert!(
                kept.iter().all(|kept| kept.upgrade().is_none()),
                "a later call releases what has passed"
            );
            stream.synchronise().unwrap();
        });
    }
}

#[test]
fn a_program_dropped_in_flight_ends_its_states_later() {
    for kind in [Kind::Caller, Kind::Internal, Kind::Default, Kind::Unsaid] {
        let built = library(kind);
        check(|world, device| {
            let (program, stream, t) = (load(&built, kind), stream(device), array(device));
            produce(world, &stream, &t, 100);
            call(&program, &stream, &t, 5).unwrap();
            drop(program);
            consume(world, &stream, &t, 105);
            stream.synchronise().unwrap();
            let other = load(&built, kind);
            call(&other, &stream, &t, 1).unwrap();
            assert_eq!(ENDED.get(), 1, "the next call of a program ends the state");
            stream.synchronise().unwrap();
            drop(other);
            assert_eq!(ENDED.get(), 2, "a state whose stream has passed ends with its program");
        });
    }
}

/// The graph of the calls that `give` makes.
fn captured(stream: &Stream, give: impl FnOnce() -> Result<(), ProgramError>) -> Result<Graph, ProgramError> {
    let mut given = Ok(());
    let give = || {
        given = give();
        Ok::<_, DeviceError>(())
    };
    // SAFETY: no graph is launched.
    let graph = unsafe { stream.capture_graph(give) };
    given.map(|()| graph.unwrap())
}

#[test]
fn a_captured_call_needs_a_state_and_keeps_it_for_graphs() {
    let built = library(Kind::Caller);
    check(|_, device| {
        let (program, stream, t) = (load(&built, Kind::Caller), stream(device), array(device));
        let refused = captured(&stream, || call(&program, &stream, &t, 5));
        assert!(
            matches!(&refused, Err(ProgramError::Capture { why, .. }) if why.contains("no state")),
            "{refused:?}"
        );
        let mut prepared = program.prepare(&[view(&t), 5.into()]).unwrap();
        prepared.make_state_on(&stream).unwrap();
        let kept = Arc::new(());
        let both = captured(&stream, || {
            (0..2).try_for_each(|_| {
                // SAFETY: the array outlives the stream's work.
                unsafe { prepared.call_on(OnStream::of(&stream).keeping(kept.clone())) }
            })
        });
        assert_eq!(program.states(), 1, "both calls are of one graph");
        drop(both.unwrap());
        call(&program, &stream, &t, 5).unwrap();
        assert_eq!(program.states(), 2, "a graph may run at any time");
        stream.synchronise().unwrap();
        call(&program, &stream, &t, 5).unwrap();
        assert_eq!((program.states(), Arc::strong_count(&kept)), (2, 3), "graphs keep the arrays");
        stream.synchronise().unwrap();
        drop(program);
        assert_eq!(Arc::strong_count(&kept), 1);
    });
}

#[test]
fn programs_that_wait_or_use_the_default_stream_are_not_captured() {
    let waits = Kind::Caller.manifest().replace(r#""streams""#, r#""synchronises": true, "streams""#);
    let cases = [(Kind::Caller, waits), (Kind::Default, Kind::Default.manifest())];
    for (kind, manifest) in cases {
        let built = library(kind);
        check(|_, device| {
            let (program, stream, t) = (built.load(&manifest).unwrap(), stream(device), array(device));
            assert_eq!(program.synchronises(), kind == Kind::Caller);
            call(&program, &stream, &t, 1).unwrap();
            stream.synchronise().unwrap();
            let refused = captured(&stream, || call(&program, &stream, &t, 1)).unwrap_err().to_string();
            let why = if kind == Kind::Caller {
                "it waits for the GPU, says its manifest; call it without a capture"
            } else {
                "default stream"
            };
            assert!(refused.starts_with("program p cannot be captured into a graph: "), "{refused}");
            assert!(refused.contains(why), "{refused}");
        });
    }
}

#[test]
fn a_stream_of_another_gpu_than_the_arrays_is_refused() {
    let built = library(Kind::Caller);
    check(|world, device| {
        let other = world.device(1).unwrap();
        let (program, stream, t) = (load(&built, Kind::Caller), stream(device), array(&other));
        let refused = call(&program, &stream, &t, 1).unwrap_err().to_string();
        let expected = "argument t of program p is in memory of GPU 1, the program takes memory of GPU 0, as the arguments \
                        before it or the stream; copy the array there";
        assert_eq!(refused, expected);
        let mut prepared = program.prepare(&[view(&t), 5.into()]).unwrap();
        // SAFETY: the call is refused before the program is entered: no memory is accessed.
        let refused = unsafe { prepared.call_on(&stream) }.unwrap_err().to_string();
        assert_eq!(refused, expected);
        assert_eq!(prepared.make_state_on(&stream).unwrap_err().to_string(), expected);
        assert_eq!(program.states(), 0);
    });
}

#[test]
fn each_gpu_has_its_state_whatever_the_threads_current_one() {
    let built = library(Kind::Caller);
    check(|world, device| {
        let devices = [device.clone(), world.device(1).unwrap()];
        let program = load(&built, Kind::Caller);
        for current in &devices {
            world.select(current);
            for device in &devices {
                let (stream, t) = (stream(device), array(device));
                produce(world, &stream, &t, 1);
                call(&program, &stream, &t, 1).unwrap();
                consume(world, &stream, &t, 2);
                assert!(current.is_current(), "a call leaves the thread its current GPU");
                stream.synchronise().unwrap();
            }
        }
        assert_eq!(program.states(), 2);
        world.select(device);
    });
}

#[test]
fn an_init_that_selects_another_gpu_is_refused_and_its_state_ended() {
    let built = library(Kind::Caller);
    check(|world, device| {
        let other = world.device(1).unwrap();
        let (program, stream, t) = (load(&built, Kind::Caller), stream(&other), array(&other));
        SELECTED.set(Some(0));
        let refused = call(&program, &stream, &t, 1).unwrap_err();
        SELECTED.set(None);
        assert_eq!(refused, ProgramError::OtherGpu { program: "p".into(), gpu: 1 });
        assert_eq!((program.states(), ENDED.get()), (0, 1));
        assert!(device.is_current(), "the thread has its own current GPU again");
        FAILS.set(true);
        let refused = call(&program, &stream, &t, 1).unwrap_err().to_string();
        FAILS.set(false);
        assert!(
            refused.starts_with("program p cannot be initialised: __dace_init_p() returned NULL; "),
            "{refused}"
        );
    });
}

#[test]
fn a_device_that_fails_ends_the_call_with_its_error() {
    let built = library(Kind::Internal);
    check(|world, device| {
        let (program, stream, t) = (load(&built, Kind::Internal), stream(device), array(device));
        call(&program, &stream, &t, 1).unwrap();
        world.fail(device, "a broken wire");
        let refused = call(&program, &stream, &t, 1).unwrap_err();
        let lost = DeviceError::Lost { device: 0, what: "a broken wire".into() };
        assert_eq!(refused, ProgramError::Stream { program: "p".into(), error: lost });
        std::mem::forget((program, t));
    });
}

#[test]
fn a_program_of_the_host_takes_no_stream() {
    let built = crate::source::build("void p(void) {}");
    let program = built
        .load(r#"{"format": 1, "program": "p", "interface": "c", "arguments": [], "parameters": []}"#)
        .unwrap();
    assert_eq!(program.streams(), None);
    check(|_, device| {
        // SAFETY: the call is refused before the program is entered: no memory is accessed.
        let refused = unsafe { program.call_on(&stream(device), &[]) };
        assert_eq!(refused, Err(ProgramError::NoStreams { program: "p".into() }));
    });
}

#[test]
fn more_streams_than_any_program_has_are_refused() {
    let code = "int state; int *__dace_init_p(void) { return &state; } void __program_p(int *s) {} int __dace_exit_p(int *s) { return 0; }
        _Bool __dace_gpu_set_stream(int *s, int i, void *stream) { return 1; }";
    let built = crate::source::build(code);
    let manifest =
        r#"{"format": 1, "program": "p", "arguments": [], "parameters": [], "streams": "internal"}"#;
    let program = built.load(manifest).unwrap();
    check(|_, device| {
        // SAFETY: the program does nothing.
        let refused = unsafe { program.call_on(&stream(device), &[]) };
        assert_eq!(refused, Err(ProgramError::TooManyStreams { program: "p".into(), most: 256 }));
        assert_eq!(program.states(), 0);
    });
}

#[test]
fn a_library_says_by_its_symbols_that_it_uses_streams() {
    let manifest = Kind::Caller.manifest().replace(r#", "streams": "caller""#, "");
    assert!(!manifest.contains("streams"), "{manifest}");
    let (with, without) = (library(Kind::Caller), library(Kind::Default));
    explore(0..1, &Options::default(), |world| {
        within(world, || {
            assert_eq!(with.load(&manifest).unwrap().streams(), Some(Streams::Default));
            assert_eq!(without.load(&manifest).unwrap().streams(), None);
        });
    });
    for (kind, symbol) in
        [(Kind::Caller, "__dace_gpu_set_all_streams"), (Kind::Internal, "__dace_gpu_set_stream")]
    {
        let refused = without.load(&kind.manifest());
        assert!(
            matches!(&refused, Err(ProgramError::NoSymbol { symbol: missing, .. }) if &**missing == symbol),
            "{refused:?}"
        );
    }
}

/// Any mix of streams, programs, arrays and drops.
#[test]
fn random_programs_on_streams_are_ordered() {
    let built = KINDS.map(|kind| (kind, library(kind)));
    explore(0..400, &Options { keeps_streams: true, ..Options::default() }, |world| {
        within(world, || random(world, &built));
    });
}

fn random(world: &World, built: &[(Kind, Built)]) {
    let mut seed = world.seed().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut pick = |below: usize| {
        seed = seed.wrapping_mul(0xd129_0d3b_3a4c_25a5).wrapping_add(0x1405_7b7e_f767_814f);
        ((seed >> 33) as usize) % below
    };
    let device = world.device(pick(2) as u32).unwrap();
    let load = |number: usize| load(&built[number].1, built[number].0);
    let mut programs = [load(pick(6)), load(pick(6))];
    let mut lanes: Vec<(Stream, Arc<Memory>, u64)> = (0..3)
        .map(|_| {
            let (stream, t) = (stream(&device), Arc::new(array(&device)));
            produce(world, &stream, &t, 7);
            (stream, t, 7)
        })
        .collect();
    for _ in 0..20 {
        let (lane, program) = (pick(3), pick(2));
        let (stream, t, value) = &mut lanes[lane];
        match pick(8) {
            0 => programs[program] = load(pick(6)),
            1 => {
                // Another array; the old one is kept by the last call.
                consume(world, stream, t, *value);
                stream.synchronise().unwrap();
                *t = Arc::new(array(&device));
                produce(world, stream, t, *value);
            }
            2 => stream.synchronise().unwrap(),
            3 => {
                // Another stream, perhaps with the handle of this one.
                stream.synchronise().unwrap();
                *stream = self::stream(&device);
            }
            _ => {
                let given = [view(t), 3.into()];
                // SAFETY: the call keeps the array.
                unsafe { programs[program].call_on(OnStream::of(stream).keeping(t.clone()), &given) }
                    .unwrap();
                *value += 3;
                consume(world, stream, t, *value);
            }
        }
    }
    lanes.iter().for_each(|(stream, ..)| stream.synchronise().unwrap());
    // What the last calls keep and the states of dropped programs go with later calls.
    for program in &programs {
        let (stream, t, _) = &lanes[0];
        call(program, stream, t, 1).unwrap();
        stream.synchronise().unwrap();
    }
}
