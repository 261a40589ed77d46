//! Which streams share a hardware queue.

use super::Gate;
use crate::gpus::raw::Raw;
use crate::{Outcome, Trouble};
use halocline::Stream;
use halocline::device::{Priority, RawStream};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

/// How often two threads make streams.
const ROUNDS: usize = 1000;
/// How many each of them makes.
const EACH: usize = 3;

/// How many streams wait until one more, made later, does not get on; whether it does after others were made and dropped; and whether
/// streams hold each other that two threads make.
pub(super) fn take(gate: &Gate<'_>, context: usize) -> Outcome {
    let raw = Raw::new();
    count_beside(gate)?;
    try_after_drops(gate, &raw)?;
    count_shared(gate, &raw, context)
}

/// Whether one stream gets on while others wait.
fn tried(gate: &Gate<'_>, waiting: &[Stream], last: &Stream) -> Result<bool, Trouble> {
    gate.set(0);
    waiting.iter().try_for_each(|stream| gate.hold(stream))?;
    gate.open(last)?;
    let open = gate.opens_within(Duration::from_millis(100));
    gate.set(1);
    waiting.iter().chain([last]).try_for_each(Stream::synchronise)?;
    Ok(open)
}

fn streams(gate: &Gate<'_>, count: usize, priority: Priority) -> Result<Vec<Stream>, Trouble> {
    Ok((0..count).map(|_| gate.device.stream(priority)).collect::<Result<_, _>>()?)
}

fn count_beside(gate: &Gate<'_>) -> Outcome {
    for (first, then) in [
        (Priority::Highest, Priority::Highest),
        (Priority::Highest, Priority::Normal),
        (Priority::Normal, Priority::Highest),
    ] {
        let mut most = 0;
        for count in 1..=70 {
            let (waiting, last) = (streams(gate, count, first)?, gate.device.stream(then)?);
            if !tried(gate, &waiting, &last)? {
                break;
            }
            most = count;
        }
        println!("beside {most} streams that wait ({first:?}) one more ({then:?}) gets on");
    }
    Ok(())
}

/// Ours are used again; those of the driver's callers are made anew, and so take the queues in turn.
fn try_after_drops(gate: &Gate<'_>, raw: &Raw) -> Outcome {
    let waiting = streams(gate, 1, Priority::Highest)?;
    for of_ours in [true, false] {
        let mut stuck = Vec::new();
        for between in 0..70 {
            for _ in 0..between {
                match of_ours {
                    true => drop(gate.device.stream(Priority::Normal)?),
                    false => raw.call("cuStreamDestroy_v2", raw.made("cuStreamCreate", 1, 0), 0, 0),
                }
            }
            let last = match of_ours {
                true => gate.device.stream(Priority::Normal)?,
                // SAFETY: a stream that lives on.
                false => unsafe { gate.device.borrow_stream(RawStream(raw.made("cuStreamCreate", 1, 0))) }?,
            };
            if !tried(gate, &waiting, &last)? {
                stuck.push(between);
            }
        }
        let whose = if of_ours { "ours" } else { "the driver's" };
        println!(
            "beside one that waits, one more does not get on after so many ({whose}) were made and dropped: {stuck:?}"
        );
    }
    Ok(())
}

/// How many pairs of streams of two threads share a queue.
fn count_shared(gate: &Gate<'_>, raw: &Raw, context: usize) -> Outcome {
    let word = gate.device.allocate_pinned(8)?;
    for (how, at_once, locked) in [
        ("by one thread", false, false),
        ("by two at once", true, false),
        ("by two, under a lock", true, true),
    ] {
        let mut shared = 0;
        for _ in 0..ROUNDS {
            let made = made_by_two(raw, (context, word.at(0) as usize), at_once, locked);
            let mut streams = Vec::new();
            for &stream in made.iter().flatten() {
                // SAFETY: a stream that lives until the end of the round.
                streams.push(unsafe { gate.device.borrow_stream(RawStream(stream)) }?);
            }
            let (ours, theirs) = streams.split_at(EACH);
            for waiting in ours {
                for last in theirs {
                    shared += usize::from(!tried(gate, std::slice::from_ref(waiting), last)?);
                }
            }
            drop(streams);
            made.iter().flatten().for_each(|&stream| raw.call("cuStreamDestroy_v2", stream, 0, 0));
        }
        println!(
            "of {} pairs of streams made {how}, one of each thread, {shared} share a queue",
            ROUNDS * EACH * EACH
        );
    }
    Ok(())
}

/// Streams of two threads, made at once or one after the other, each with its first work: a word is written.
fn made_by_two(raw: &Raw, (context, word): (usize, usize), at_once: bool, locked: bool) -> [Vec<usize>; 2] {
    let (start, lock) = (Barrier::new(if at_once { 2 } else { 1 }), Mutex::new(()));
    let make = || {
        raw.call("cuCtxPushCurrent_v2", context, 0, 0);
        start.wait();
        let one = |_| {
            let _alone = locked.then(|| lock.lock().unwrap_or_else(PoisonError::into_inner));
            let stream = raw.made("cuStreamCreate", 1, 0);
            raw.call_with("cuStreamWriteValue64_v2", [stream, word, 0, 0, 0]);
            stream
        };
        (0..EACH).map(one).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(make);
        if !at_once {
            return [first.join().expect("no panic"), scope.spawn(make).join().expect("no panic")];
        }
        let second = scope.spawn(make);
        [first, second].map(|thread| thread.join().expect("no panic"))
    })
}
