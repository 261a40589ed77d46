//! A compiled program and exchanges on one stream: `gpu_program LIBRARY [RANKS [values]]`, with the library of `gpu/heat.cu` or of
//! `gpu/dace_heat.py`. `gpu/program` compiles them and runs this on a machine with GPUs.
//!
//! Ranks are threads, each on the GPU of its number modulo the number of GPUs. Each way of giving the program its streams is compared bit
//! for bit with the host, then timed. Further checks: the host does not wait, arrays and states outlive the calls that use them, and calls
//! are captured into a CUDA graph. `values` leaves out all but the comparison.

#[path = "gpu_program/heat.rs"]
mod heat;

use halocline::device::{Priority, cuda};
use halocline::{Communicator, Error, HaloExchange, Stream};
use halocline_conformance::gpus::capture::{Graphs, Mode};
use halocline_conformance::gpus::{Gpu, skipped};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use halocline_program::{OnStream, Prepared, Program, ProgramError, Streams};
use heat::{Field, Heat};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    if let Err(why) = cuda::device(0) {
        return skipped("compiled programs on streams of GPUs", &why);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(library) = arguments.first() else {
        eprintln!("usage: gpu_program LIBRARY [RANKS [values]]");
        return ExitCode::FAILURE;
    };
    let ranks = arguments.get(1).map_or(Ok(1), |ranks| ranks.parse()).unwrap_or(1);
    let only_values = arguments.get(2).is_some_and(|word| word == "values");
    let ended = std::thread::scope(|scope| {
        let rank = |comm| scope.spawn(move || all(&comm, library, only_values));
        let ranks: Vec<_> = Communicator::threads(ranks).into_iter().map(rank).collect();
        let joined: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        let ended = |rank: std::thread::Result<Outcome>| {
            rank.unwrap_or_else(|_| Err(Trouble::new("a rank has panicked")))
        };
        joined.into_iter().try_for_each(ended)
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("FAILED: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// What a rank works with.
struct Rank<'a> {
    comm: &'a Communicator,
    library: &'a str,
    gpu: Gpu,
    stream: Stream,
}

impl Rank<'_> {
    fn say(&self, line: &str) {
        if self.comm.rank() == 0 {
            println!("{line}");
        }
    }
}

fn all(comm: &Communicator, library: &str, only_values: bool) -> Outcome {
    let gpus = cuda::inventory()?.gpus.len().max(1);
    let gpu = Gpu::new((comm.rank() % gpus) as u32)?;
    let stream = gpu.device().stream(Priority::Normal)?;
    let rank = Rank { comm, library, gpu, stream };
    rank.say(&format!("{} ranks on {} GPUs", comm.size(), gpus.min(comm.size())));
    // Ranks that share a GPU share its default stream, where the wait of one would block the others.
    let is_alone = comm.size() <= gpus;
    for streams in [Streams::Caller, Streams::Internal, Streams::Default] {
        if streams == Streams::Default && !is_alone {
            continue;
        }
        let heat = Heat::load(library, streams)?;
        equal_the_host(&rank, &heat, streams)?;
        if only_values {
            continue;
        }
        let field = Field::new(comm, rank.stream.device(), [1024, 1024])?;
        costs(&rank, &heat, streams, &field)?;
        comm.barrier()?;
        no_wait(&rank, &heat, streams, &field)?;
        comm.barrier()?;
        kept(&rank, streams)?;
        comm.barrier()?;
        if comm.size() == 1 && streams != Streams::Default {
            captured(&rank, &heat, streams)?;
        }
    }
    other_gpu(&rank)
}

/// Program, exchange, program, exchange on one stream; every cell equals that of the host.
fn equal_the_host(rank: &Rank<'_>, heat: &Heat, streams: Streams) -> Outcome {
    const STEPS: usize = 60;
    let field = Field::new(rank.comm, rank.stream.device(), [70, 53])?;
    let halo = HaloExchange::bind(rank.comm, [(&field.pattern, &field.array)])?;
    let mut step = prepared(rank, heat, &field)?;
    field.fill(&rank.stream)?;
    halo.schedule_exchange(&[&rank.stream])?.schedule_wait(&rank.stream)?;
    for _ in 0..STEPS {
        // SAFETY: the field outlives the synchronisation below.
        unsafe { step.call_on(&rank.stream) }?;
        halo.schedule_exchange(&[&rank.stream])?.schedule_wait(&rank.stream)?;
    }
    field.compare(&rank.stream, STEPS)?;
    ensure!(heat.program.states() == 1, "{} states for one stream", heat.program.states());
    rank.say(&format!("{streams:?}: {STEPS} steps equal those of the host, bit for bit"));
    rank.comm.barrier()?;
    Ok(())
}

/// A prepared call with its state. Making the state waits for the device, so no exchange is in flight.
fn prepared<'a>(rank: &Rank<'_>, heat: &'a Heat, field: &'a Field) -> Result<Prepared<'a>, Trouble> {
    rank.stream.synchronise()?;
    rank.comm.barrier()?;
    let mut step = heat.program.prepare(&[field.view(), heat::DT.into()])?;
    step.make_state_on(&rank.stream)?;
    rank.comm.barrier()?;
    Ok(step)
}

/// The time of the host for a call and for a step, and the time of a step.
fn costs(rank: &Rank<'_>, heat: &Heat, streams: Streams, field: &Field) -> Outcome {
    const CALLS: u32 = 100;
    let halo = HaloExchange::bind(rank.comm, [(&field.pattern, &field.array)])?;
    let mut step = prepared(rank, heat, field)?;
    let given = [field.view(), heat::DT.into()];
    let mut call = |kind: &str| -> Result<f64, Trouble> {
        rank.stream.synchronise()?;
        rank.comm.barrier()?;
        let begin = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: the field outlives the synchronisation above, of the next kind, or that of `wait`.
            unsafe {
                match kind {
                    "C" => heat.direct(&rank.stream, field)?,
                    "prepared" => step.call_on(&rank.stream)?,
                    "checked" => heat.program.call_on(&rank.stream, &given)?,
                    _ => heat.program.call_on(OnStream::of(&rank.stream).keeping(Arc::new(())), &given)?,
                }
            }
        }
        Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS))
    };
    // The first round loads what is loaded late.
    for kind in ["C", "prepared", "checked", "keeping"] {
        call(kind)?;
    }
    let (direct, prepared) = (call("C")?, call("prepared")?);
    let (checked, keeping) = (call("checked")?, call("keeping")?);
    rank.stream.synchronise()?;
    rank.say(&format!(
        "{streams:?}: us of the host a call: C alone {direct:.2}, prepared {prepared:.2}, checked {checked:.2}, checked and \
         keeping arrays {keeping:.2}"
    ));
    steps(rank, &mut step, &halo, streams)
}

/// Steps that the host gives far ahead, in groups of at most 32 exchanges in flight.
fn steps(rank: &Rank<'_>, step: &mut Prepared<'_>, halo: &HaloExchange, streams: Streams) -> Outcome {
    const GROUPS: u32 = 20;
    const GROUP: u32 = 32;
    let mut host = Duration::ZERO;
    let begin = Instant::now();
    for _ in 0..GROUPS {
        let given = Instant::now();
        for _ in 0..GROUP {
            // SAFETY: the field outlives the synchronisation below.
            unsafe { step.call_on(&rank.stream) }?;
            halo.schedule_exchange(&[&rank.stream])?.schedule_wait(&rank.stream)?;
        }
        host += given.elapsed();
        rank.stream.synchronise()?;
    }
    let per = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(GROUPS * GROUP);
    rank.say(&format!(
        "{streams:?}: a step of program and exchange, 1024 x 1024 cells: {:.1} us; the host takes {:.1} us of them",
        per(begin.elapsed()),
        per(host)
    ));
    Ok(())
}

/// The host returns from program, exchange and program while the first still runs.
fn no_wait(rank: &Rank<'_>, heat: &Heat, streams: Streams, field: &Field) -> Outcome {
    const SPIN: Duration = Duration::from_millis(60);
    let halo = HaloExchange::bind(rank.comm, [(&field.pattern, &field.array)])?;
    let mut step = prepared(rank, heat, field)?;
    let mut host = Duration::ZERO;
    // The first round loads what is loaded late.
    for _ in 0..2 {
        rank.stream.synchronise()?;
        rank.comm.barrier()?;
        let begin = Instant::now();
        rank.gpu.delay(&rank.stream, SPIN.as_nanos() as u64)?;
        // SAFETY: the field outlives the synchronisation below.
        unsafe { step.call_on(&rank.stream) }?;
        halo.schedule_exchange(&[&rank.stream])?.schedule_wait(&rank.stream)?;
        // SAFETY: the field outlives the synchronisation below.
        unsafe { step.call_on(&rank.stream) }?;
        host = begin.elapsed();
        ensure!(!rank.stream.query()?, "the stream is idle before the long kernel can be over");
        rank.stream.synchronise()?;
        ensure!(begin.elapsed() >= SPIN, "the stream was waited for, but not the long kernel");
    }
    ensure!(host < SPIN / 2, "the host took {host:?} beside a kernel of {SPIN:?}");
    rank.say(&format!(
        "{streams:?}: program, exchange, program behind a kernel of {SPIN:?}: the host returns after {:.1} us",
        host.as_secs_f64() * 1e6
    ));
    Ok(())
}

/// Arrays and a program that are dropped while the stream works on them.
fn kept(rank: &Rank<'_>, streams: Streams) -> Outcome {
    let heat = Heat::load(rank.library, streams)?;
    let field = Arc::new(Field::new(rank.comm, rank.stream.device(), [256, 256])?);
    drop(prepared(rank, &heat, &field)?);
    let dropped = Arc::downgrade(&field);
    let given = [field.view(), heat::DT.into()];
    rank.gpu.delay(&rank.stream, 30_000_000)?;
    let keeping = OnStream::of(&rank.stream).keeping(field.clone());
    // SAFETY: the call keeps the field.
    unsafe { heat.program.call_on(keeping, &given) }?;
    drop(field);
    drop(heat);
    ensure!(dropped.upgrade().is_some(), "the array was dropped in flight");
    rank.stream.synchronise()?;
    let (other, small) =
        (Heat::load(rank.library, streams)?, Field::new(rank.comm, rank.stream.device(), [64, 64])?);
    let mut step = prepared(rank, &other, &small)?;
    // SAFETY: the field outlives the synchronisation below.
    unsafe { step.call_on(&rank.stream) }?;
    ensure!(dropped.upgrade().is_none(), "the array is held after the stream has passed");
    rank.stream.synchronise()?;
    rank.say(&format!("{streams:?}: arrays and states outlive the calls in flight, and go after them"));
    Ok(())
}

/// Two calls in a graph, launched several times, equal the host. (The halo of one rank is periodic: the steps here keep it as it is.)
fn captured(rank: &Rank<'_>, heat: &Heat, streams: Streams) -> Outcome {
    const LAUNCHES: usize = 7;
    let field = Field::new(rank.comm, rank.stream.device(), [40, 90])?;
    let halo = HaloExchange::bind(rank.comm, [(&field.pattern, &field.array)])?;
    let mut step = prepared(rank, heat, &field)?;
    // Kernels are loaded by their first launch, which a capture may not allow.
    // SAFETY: the field outlives the synchronisation below.
    unsafe { step.call_on(&rank.stream) }?;
    rank.stream.synchronise()?;
    step.make_state_on(&rank.stream)?;
    field.fill(&rank.stream)?;
    let give = || {
        for _ in 0..2 {
            // SAFETY: the field outlives the launches of the graph.
            unsafe { step.call_on(&rank.stream) }?;
        }
        let refused = halo.schedule_exchange(&[&rank.stream]).map(drop);
        {
            ensure!(
                matches!(refused, Err(Error::NotCapturable { .. } | Error::Captured)),
                "an exchange under capture: {refused:?}"
            );
            Ok(())
        }
    };
    // SAFETY: the field outlives the launches, which the comparison below waits for.
    let graph = unsafe { Graphs::new()?.capture(&rank.stream, Mode::Global, give) }?;
    for _ in 0..LAUNCHES {
        graph.launch(&rank.stream)?;
    }
    field.compare_without_exchange(&rank.stream, 2 * LAUNCHES)?;
    rank.say(&format!(
        "{streams:?}: two calls captured into a graph, launched {LAUNCHES} times, equal the host"
    ));
    Ok(())
}

/// An array of another GPU than the stream's is refused.
fn other_gpu(rank: &Rank<'_>) -> Outcome {
    let gpus = cuda::inventory()?.gpus.len() as u32;
    if gpus < 2 {
        rank.say("SKIPPED: a stream of another GPU; there is one GPU");
        return Ok(());
    }
    let here = rank.stream.device().ordinal();
    let other = cuda::device((here + 1) % gpus)?;
    let (heat, field) =
        (Heat::load(rank.library, Streams::Caller)?, Field::new(rank.comm, &other, [64, 64])?);
    let given = [field.view(), heat::DT.into()];
    // SAFETY: the call is refused before any work begins: the field lies on another GPU than the stream.
    let refused = unsafe { heat.program.call_on(&rank.stream, &given) };
    ensure!(matches!(refused, Err(ProgramError::WrongDevice { .. })), "{refused:?}");
    // SAFETY: the rank holds the stream until the end of the run.
    let refused = unsafe { other.borrow_stream(rank.stream.raw()) }.map(drop);
    ensure!(refused.is_err(), "a stream of another GPU was accepted");
    rank.say("a stream of another GPU is refused");
    let theirs = other.stream(Priority::Normal)?;
    // SAFETY: the field outlives the synchronisation below, or the call is refused.
    let called = unsafe { heat.program.call_on(&theirs, &given) };
    match &called {
        Ok(()) => rank.say("the program runs on another GPU of the process"),
        Err(ProgramError::OtherGpu { .. }) if here == 0 => {
            rank.say("the program is refused on another GPU than the first")
        }
        Err(error) => fail!("on another GPU: {error}"),
    }
    Ok(theirs.synchronise()?)
}

/// The program of the manifest, as it is used here.
fn load(library: &str, streams: Streams) -> Result<Program, Trouble> {
    let mut signature = halocline_program::Signature::beside(library.as_ref())?;
    signature.streams = Some(streams);
    // SAFETY: the library is that of `gpu/heat.cu`, beside its manifest.
    Ok(unsafe { Program::with_signature(library, signature) }?)
}
