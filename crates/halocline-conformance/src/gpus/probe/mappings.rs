//! Whether a process can open and close memory of another one while a stream waits, and whether other streams continue.

use crate::gpus::kinds::{Foreign, PIECE, Sort};
use crate::gpus::mapped::{device_among, start};
use crate::gpus::{Gpu, Gpus};
use crate::yard::Rig;
use crate::{Outcome, Trouble};
use halocline::device::{Address, Priority, ValueOp, cuda};
use halocline::{Communicator, DeviceError};
use halocline_comm::mappings::{MappingError, Mappings, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What takes longer waits for the stream.
const LIMIT: Duration = Duration::from_secs(1);
/// The stream waits no longer than that, whatever waits for it.
const LONGEST: Duration = Duration::from_secs(5);

/// `gpus probe mappings GPUS`.
pub(crate) fn main(gpus: &str) -> Outcome {
    start(&["gpus", "probe-rank", gpus], Duration::from_secs(60))
}

/// One of the two ranks: 0 owns, a stream of 1 waits.
pub(crate) fn rank(gpus: &str) -> Outcome {
    let comm = Communicator::init()?;
    let rig = Gpus::get()?;
    let device = device_among(rig, gpus, comm.rank())?;
    let other = device_among(rig, gpus, 1 - comm.rank())?;
    let mappings = Mappings::of(&comm.with_deadline(Some(LIMIT)));
    mappings.attach(cuda::provider(device.ordinal())?);
    let target = Target { rank: 1, device: cuda::provider(other.ordinal())?.device() };
    if comm.rank() == 0 {
        println!("{:<16} {:>16} {:>16}", "beside a stream", "is opened", "is closed");
    }
    for (name, sort) in
        [("cudaMalloc", Sort::Plain), ("virtual", Sort::Virtual { passed_on: true }), ("pool", Sort::Pool)]
    {
        comm.barrier()?;
        if comm.rank() == 1 {
            comm.barrier()?;
            let longest = beside_a_stream_that_waits(&comm, rig.of_rank(device.ordinal() as usize))?;
            println!("{name:<16} the longest launch took {:.0} us", longest.as_secs_f64() * 1e6);
            continue;
        }
        let memories = [(); 2].map(|()| Foreign::new(device.ordinal(), sort, PIECE));
        let [first, second] = memories.each_ref().map(|memory| memory.address as Address);
        let map = |address| mappings.map(target, address, PIECE as u64);
        drop(map(first)?);
        comm.barrier()?;
        // From here to the next one the stream waits.
        comm.barrier()?;
        let said = [map(second).map(drop), mappings.release(first)].map(|outcome| match outcome {
            Ok(()) => Ok("yes".to_owned()),
            Err(MappingError::Comm(_) | MappingError::StillMapped { .. }) => Ok("once it goes on".to_owned()),
            Err(other) => Err(other),
        });
        comm.barrier()?;
        let [opened, closed] = said;
        println!("{name:<16} {:>16} {:>16}", opened?, closed?);
        [first, second].into_iter().try_for_each(|address| mappings.release(address))?;
    }
    Ok(())
}

/// A stream waits from the next meeting of the ranks to the one after, as one of an exchange does. How long the longest launch took on
/// another one meanwhile.
fn beside_a_stream_that_waits(comm: &Communicator, gpu: &Gpu) -> Result<Duration, Trouble> {
    let device = gpu.device();
    let (word, stream) = (device.allocate_pinned(8)?, device.stream(Priority::Normal)?);
    let other = device.stream(Priority::Normal)?;
    let _in_flight = device.begin_waiting();
    // SAFETY: a word, which lives until the stream is through.
    unsafe { stream.values(&[ValueOp::Wait { address: word.at(0), at_least: 1 }]) }?;
    let is_over = AtomicBool::new(false);
    let begin = Instant::now();
    // Both threads open and close: this one, as it comes by.
    let (met, longest) = std::thread::scope(|scope| {
        let launching = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Acquire) {
                let launched = Instant::now();
                gpu.empty(&other)?;
                longest = longest.max(launched.elapsed());
                other.synchronise()?;
            }
            Ok::<_, DeviceError>(longest)
        });
        let word = &word;
        let is_over = &is_over;
        scope.spawn(move || {
            // Over, or too long: either way it goes on.
            while !is_over.load(Ordering::Acquire) && begin.elapsed() < LONGEST {
                std::thread::yield_now();
            }
            // SAFETY: the word lies in pinned memory that lives until the stream is through; streams and atomic
            // operations alone access it.
            unsafe { word.store(0, 1) };
        });
        let met = comm.barrier().and_then(|()| comm.barrier());
        is_over.store(true, Ordering::Release);
        (met, launching.join().expect("no panic"))
    });
    stream.synchronise()?;
    met?;
    Ok(longest?)
}
