//! The ranks of [`crate::random_kills`] and `tests/it/faults.rs`: one is killed or stopped from outside; the others must end by
//! themselves and name it.

mod packets;
mod pool;

use crate::fixtures::{Cloud, DomainForm, Fixture, Grid, by, choices, pattern_of};
use crate::numbers::Numbers;
use crate::trouble::Trouble;
use crate::{ensure, fail};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use halocline::device::Priority;
use halocline::device::sim::{Options, World};
use halocline::{
    Array, BindOptions, Cause, CommError, Communicator, DeviceArray, Error, HaloExchange, LinkChoice,
    LinkPath, Ll, Pattern, Pending, Reduce, ReduceOp,
};
use halocline_comm::Segment;
use halocline_comm::mappings::{DeviceId, MappingError, Mappings, Target, Transfer};
use halocline_table::{Rolling, Route, Table, TableError, Window, rolling};
use packets::Place;
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::ClockId;
use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The exit code of a rank that ended with a typed error which names the rank at fault.
pub const NAMED: u8 = 3;

/// Prefix of any other failure that a rank prints.
pub const TROUBLE: &str = "trouble: ";

/// The line that the victim prints once it may be killed.
pub const HERE: &str = "here";

/// The line of the survivors when the victim is late: memory that it may access is still held.
pub const LATE: &str = "late";

/// The line of all ranks once their memory is released.
pub const RECLAIMED: &str = "reclaimed";

/// The rank that dies; job and killer compute the same one.
pub fn victim_of(seed: u64, size: usize) -> usize {
    Numbers::new(seed).below(size)
}

/// The time on the clock that all processes of the machine share.
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs a scenario until an error ends it, prints `named RANK CAUSE at NANOSECONDS: error` and returns [`NAMED`].
pub fn main(scenario: &str, seed: &str) -> ExitCode {
    crate::host::say_at_exit_whether_mpi_is_finalized();
    let ended = seed.parse().map_err(Trouble::from).and_then(|seed| end_of(scenario, seed));
    match ended {
        Ok(End { rank, how, at, error }) => {
            println!("named {rank} {how} at {}: {error}", at.as_nanos());
            ExitCode::from(NAMED)
        }
        Err(trouble) => {
            eprintln!("{TROUBLE}{trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Prefix of the name of each socket that a rank prints.
pub const SOCKET: &str = "socket ";

/// Names of Halocline's sockets that a process has open.
fn sockets_of(process: u32) -> Vec<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let open: Vec<_> = descriptors.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = |line: &str| {
        let mut words = line.split_whitespace().skip(6);
        let (inode, name) = (words.next()?, words.next()?);
        let is_ours = name.starts_with("@halocline") && open.contains(&format!("socket:[{inode}]").into());
        is_ours.then(|| name.to_owned())
    };
    sockets.lines().filter_map(name).collect()
}

/// How a scenario ended.
struct End {
    /// The rank that the error names.
    rank: usize,
    /// The cause that the error gives.
    how: &'static str,
    /// When the error came, by [`now`].
    at: Duration,
    error: String,
}

fn end_of(scenario: &str, seed: u64) -> Result<End, Trouble> {
    let comm = match Communicator::init() {
        Ok(comm) => comm,
        Err(error) => return named(now(), error.into()),
    };
    sockets_of(std::process::id()).iter().for_each(|socket| println!("{SOCKET}{socket}"));
    let play = Play { seed, victim: victim_of(seed, comm.size()), comm, ended: Cell::new(None) };
    let ended = match scenario {
        "life" => play.life()?,
        "between" => play.between()?,
        "stopped" => play.stopped(false)?,
        "stopped-anywhere" => play.stopped(true)?,
        "aborts" => play.aborts()?,
        "mid" => play.mid()?,
        "free" => play.free()?,
        "scheduled" => play.scheduled()?,
        "mappings" => play.mappings()?,
        "bind" => play.bind()?,
        "pattern" => play.pattern(),
        "rolling" => play.rolling()?,
        "starved" => play.starved()?,
        "starved-of-memory" => play.starved_of_memory()?,
        "rounds" => return play.neighbors(Place::Anywhere),
        "rounds-before" => return play.neighbors(Place::Before),
        "rounds-within" => return play.neighbors(Place::Within),
        "session" => return play.session(),
        "sparse" => return play.sparse(Place::Anywhere),
        "sparse-before" => return play.sparse(Place::Before),
        "sparse-within" => return play.sparse(Place::Within),
        other => fail!("there is no scenario {other:?}"),
    };
    let Err(error) = ended else { fail!("the scenario ended without an error") };
    let at = play.ended.get().unwrap_or_else(now);
    if scenario.starts_with("starved") {
        // Chance decides which resource runs out first: accept any error, but require one.
        return Ok(End { rank: play.victim, how: "starved", at, error: error.to_string() });
    }
    named(at, error)
}

fn named(at: Duration, error: Error) -> Result<End, Trouble> {
    let (rank, how) = match &error {
        Error::Failed(failure) if failure.cause == Cause::Died => (failure.culprit, "died"),
        Error::Failed(failure) if matches!(failure.cause, Cause::Deadline(_)) => (failure.culprit, "late"),
        Error::Comm(CommError::Died { rank, .. } | CommError::NeverJoined { rank }) => (*rank, "died"),
        _ => return Err(Trouble::new(format!("the error names no rank: {error}"))),
    };
    Ok(End { rank, how, at, error: error.to_string() })
}

struct Play {
    comm: Communicator,
    seed: u64,
    victim: usize,
    /// When the first error came.
    ended: Cell<Option<Duration>>,
}

impl Play {
    fn is_victim(&self) -> bool {
        self.comm.rank() == self.victim
    }

    /// The victim prints that it may be killed and then does nothing.
    fn await_death(&self) -> ! {
        println!("{HERE}");
        loop {
            std::thread::park();
        }
    }

    /// Notes the time of an error, before the drops that follow it.
    fn noted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() && self.ended.get().is_none() {
            self.ended.set(Some(now()));
        }
        result
    }

    /// Exchanges and reduces in turn.
    fn forever(&self, halo: &HaloExchange) -> Result<(), Error> {
        (0..).try_for_each(|number| self.noted(self.begin(halo, number).and_then(|pending| pending.wait())))
    }

    /// Begins an exchange or a reduce. Which of them comes first depends on the seed.
    fn begin(&self, halo: &HaloExchange, number: u64) -> Result<Pending, Error> {
        match (self.seed ^ number).is_multiple_of(2) {
            true => halo.exchange(),
            false => halo.reduce(ReduceOp::Sum),
        }
    }

    /// Waits until all ranks are prepared. The victim may already be dead while others still wait here.
    fn together(&self) -> Result<(), Error> {
        self.noted(self.comm.barrier().map_err(Error::from))
    }

    /// A bound object on a ring with a random path, after a few steps of all ranks.
    fn begun(&self) -> Result<(Fixture, HaloExchange), Trouble> {
        let mut numbers = Numbers::new(self.seed ^ 1);
        let grid = Grid::new(self.comm.size(), &[2 * self.comm.size(), 40], &[true, true], 1)?;
        let mut fixture = Fixture::simple(&crate::stage::Stage::on_host(&self.comm), &grid)?;
        let halo = fixture.bind(&self.comm, &by(choices(&self.comm)[numbers.below(5)]))?;
        fixture.steps(&halo, numbers.below(6))?;
        Ok((fixture, halo))
    }

    /// The victim dies between two exchanges.
    fn between(&self) -> Result<Result<(), Error>, Trouble> {
        let (_fixture, halo) = self.begun()?;
        if let Err(error) = self.together() {
            return Ok(Err(error));
        }
        if self.is_victim() {
            self.await_death();
        }
        Ok(self.forever(&halo))
    }

    /// The victim dies in an exchange that it has begun.
    fn mid(&self) -> Result<Result<(), Error>, Trouble> {
        self.begin_and(|| self.await_death())
    }

    /// The victim aborts in an exchange that it has begun.
    fn aborts(&self) -> Result<Result<(), Error>, Trouble> {
        self.begin_and(|| std::process::abort())
    }

    fn begin_and(&self, dies: impl FnOnce()) -> Result<Result<(), Error>, Trouble> {
        let (mut fixture, halo) = self.begun()?;
        fixture.next();
        if let Err(error) = self.together() {
            return Ok(Err(error));
        }
        if self.is_victim() {
            let begun = self.begin(&halo, 0);
            ensure!(begun.is_ok(), "the exchange in which to die cannot be begun: {begun:?}");
            dies();
        }
        Ok(self.forever(&halo))
    }

    /// The victim stops itself between two exchanges, or anywhere (`anywhere`), for longer than the deadline, and continues later.
    /// Until then the others keep the memory that it may still access.
    fn stopped(&self, anywhere: bool) -> Result<Result<(), Error>, Trouble> {
        let comm = &self.comm;
        // A ring: all others wait for the victim.
        const WIDTH: usize = 1 << 17;
        let pattern = Grid::new(comm.size(), &[WIDTH * comm.size()], &[true], WIDTH)?.pattern(comm)?;
        let (_, shape) = &pattern.plan().domains[0];
        let array = Array::<f64>::zeros(comm, &shape.extents())?;
        let link = [LinkChoice::Push, LinkChoice::Pull][self.seed as usize % 2];
        let options = BindOptions::default().link(link).deadline(Duration::from_secs(1));
        let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
        let failed = self.together().and_then(|()| {
            self.say_here();
            if self.is_victim() && !anywhere {
                let stopped = kill_process(getpid(), Signal::STOP);
                assert!(stopped.is_ok(), "{stopped:?}");
            }
            self.forever(&halo)
        });
        if !self.is_victim() {
            ensure!(anywhere || !halo.reclaim(), "memory came back that the stopped rank may still touch");
            println!("{LATE}");
        }
        while !halo.reclaim() {
            std::thread::yield_now();
        }
        array.write()?.fill(1.0);
        println!("{RECLAIMED}");
        Ok(failed)
    }

    /// Endless exchanges; the victim dies anywhere.
    fn free(&self) -> Result<Result<(), Error>, Trouble> {
        let (_fixture, halo) = self.begun()?;
        Ok(self.together().and_then(|()| {
            self.say_here();
            self.forever(&halo)
        }))
    }

    /// Endless scheduled exchanges of a device field, several in flight; the victim dies anywhere. The survivors' streams drain and
    /// their memory is released.
    fn scheduled(&self) -> Result<Result<(), Error>, Trouble> {
        // Direct between processes that map each other's memory.
        let paths = [LinkChoice::Auto, LinkChoice::Mailbox, LinkChoice::Message];
        let (comm, link) = (&self.comm, paths[self.seed as usize % 3]);
        let is_mailbox = link == LinkChoice::Auto && (self.seed / 12) % 2 == 1 && comm.transport() == "shm";
        let link = if is_mailbox { LinkChoice::DeviceMailbox } else { link };
        let options = Options { ordered_threads: true, depth: 4096, exports: true, ..Options::default() };
        let live = World::live(self.seed ^ comm.rank() as u64, &options)?;
        let device = live.world().device(0)?;
        let pattern = Grid::new(comm.size(), &[2 * comm.size(), 40], &[true, true], 1)?.pattern(comm)?;
        let (_, shape) = &pattern.plan().domains[0];
        let array = DeviceArray::<f64>::zeros(&device, &shape.extents())?;
        let ll = if (self.seed / 6).is_multiple_of(2) { Ll::Never } else { Ll::UpTo(1 << 20) };
        let inline = (self.seed / 3).is_multiple_of(2);
        let bound = BindOptions::default().inline(inline).link(link).ll(ll);
        let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &bound)?;
        let direct = if ll == Ll::Never { LinkPath::Push } else { LinkPath::Ll };
        let is_direct = halo.links().all(|link| link.path == direct);
        ensure!(link != LinkChoice::Auto || is_direct || comm.transport() != "shm", "{}", halo.explain());
        let stream = device.stream(Priority::Normal)?;
        let turn = |number: usize| {
            let pending = halo.schedule_exchange(&[&stream])?;
            pending.schedule_wait(&stream)?;
            if number.is_multiple_of(5) { pending.wait() } else { Ok(()) }
        };
        let ready = self.together();
        if ready.is_ok() {
            self.say_here();
        }
        // A rank that knows of the death still takes part: otherwise its neighbours would learn that it has dropped its object.
        let exchanged = self.noted((0..).try_for_each(turn));
        let failed = ready.and(exchanged);
        stream.synchronise()?;
        while !halo.reclaim() {
            std::thread::yield_now();
        }
        println!("{RECLAIMED}");
        drop((halo, array));
        let (mappings, until) = (Mappings::of(comm), now() + Duration::from_secs(10));
        while mappings.stats().mapped > 0 || mappings.stats().bytes_held > 0 {
            ensure!(now() < until, "memory is still mapped: {:?}", mappings.stats());
            std::thread::yield_now();
        }
        ensure!(live.reports().is_empty(), "{:?}", live.reports());
        Ok(failed)
    }

    /// Ranks read each other's mapped memory endlessly; the victim dies anywhere. The survivors unmap all memory of each other and
    /// of the victim.
    fn mappings(&self) -> Result<Result<(), Error>, Trouble> {
        let (comm, size) = (&self.comm, self.comm.size());
        let mappings = Mappings::of(comm);
        let mut numbers = Numbers::new(self.seed ^ 2);
        mappings.set_limit(numbers.below(3));
        let others: Vec<usize> = (0..size).filter(|rank| *rank != comm.rank()).collect();
        let mut memory = comm.allocate(5000)?;
        let turn = |memory: &Segment| -> Result<(), MappingError> {
            let address = memory.base().as_ptr().expose_provenance() as u64;
            let target = |rank| Target { rank, device: DeviceId::HOST };
            let sent: Vec<_> = others
                .iter()
                .map(|rank| mappings.send(target(*rank), address, 64))
                .collect::<Result<_, _>>()?;
            others.iter().try_for_each(|rank| mappings.receive(Some(*rank)).map(drop))?;
            sent.into_iter().try_for_each(Transfer::wait)
        };
        if let Err(error) = self.together() {
            return Ok(Err(error));
        }
        self.say_here();
        let error = loop {
            match turn(&memory) {
                Ok(()) if numbers.one_in(3) => memory = comm.allocate(5000)?,
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        // A rank that left because another died is not the culprit.
        let error = match error {
            MappingError::Comm(error) => Err(error),
            _ => comm.barrier(),
        };
        let error = self.noted(error.map_err(Error::from));
        // Transfers to ranks that have not received them end with those ranks.
        if let Err(MappingError::StillMapped { ranks, .. }) =
            mappings.release(memory.base().as_ptr().addr() as u64)
        {
            ensure!(!ranks.contains(&self.victim), "a dead rank holds memory");
        }
        Ok(error)
    }

    /// Everything that a rank does from its start, endlessly; the victim dies anywhere.
    fn life(&self) -> Result<Result<(), Error>, Trouble> {
        let grid = Grid::new(self.comm.size(), &[2 * self.comm.size(), 100], &[true, true], 2)?;
        Ok((0..).try_for_each(|turn| {
            let pattern = self.noted(grid.pattern(&self.comm))?;
            self.bind_once(&pattern, turn)?;
            self.noted(self.pattern_once(turn as u64))
        }))
    }

    /// Endless binds.
    fn bind(&self) -> Result<Result<(), Error>, Trouble> {
        let grid = Grid::new(self.comm.size(), &[2 * self.comm.size(), 100], &[true, true], 2)?;
        let pattern = grid.pattern(&self.comm)?;
        Ok(self.together().and_then(|()| {
            self.say_here();
            (0..).try_for_each(|turn| self.bind_once(&pattern, turn))
        }))
    }

    fn bind_once(&self, pattern: &Pattern, turn: usize) -> Result<(), Error> {
        let (_, shape) = &pattern.plan().domains[0];
        let array = Array::<f64>::zeros(&self.comm, &shape.extents())?;
        let options = BindOptions::default().link(choices(&self.comm)[turn % 5]);
        let halo = self.noted(HaloExchange::bind_with(&self.comm, [(pattern, &array)], &options))?;
        self.noted(halo.exchange().and_then(|pending| pending.wait()))
    }

    /// The victim runs out of descriptors while all ranks bind and keep their objects.
    fn starved(&self) -> Result<Result<(), Error>, Trouble> {
        let grid = Grid::new(self.comm.size(), &[2 * self.comm.size(), 10], &[true, true], 1)?;
        let pattern = grid.pattern(&self.comm)?;
        if self.is_victim() {
            let open = std::fs::read_dir("/proc/self/fd")?.count() as libc::rlim_t;
            let few = libc::rlimit { rlim_cur: open + self.seed % 12, rlim_max: open + 12 };
            // SAFETY: the call only reads the limit.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) };
            ensure!(set == 0, "no limit: {}", std::io::Error::last_os_error());
        }
        let mut kept = Vec::new();
        for _ in 0..20 {
            let (_, shape) = &pattern.plan().domains[0];
            let bound = Array::<f64>::zeros(&self.comm, &shape.extents()).and_then(|array| {
                let options = BindOptions::default().link(choices(&self.comm)[1]);
                let halo = HaloExchange::bind_with(&self.comm, [(&pattern, &array)], &options)?;
                halo.exchange()?.wait()?;
                Ok((array, halo))
            });
            match bound {
                Ok(bound) => kept.push(bound),
                Err(error) => return Ok(Err(error)),
            }
        }
        fail!("the descriptors are enough for everything")
    }

    /// The victim has address space for its own array and not for those of its peers.
    fn starved_of_memory(&self) -> Result<Result<(), Error>, Trouble> {
        const CELLS: usize = 1 << 25;
        let comm = &self.comm;
        let pattern = Grid::new(comm.size(), &[CELLS * comm.size()], &[true], 1)?.pattern(comm)?;
        let (_, shape) = &pattern.plan().domains[0];
        let array = Array::<f64>::zeros(comm, &shape.extents())?;
        if self.is_victim() {
            let pages = std::fs::read_to_string("/proc/self/statm")?;
            let pages: usize = pages.split_whitespace().next().unwrap_or_default().parse()?;
            let most = (pages * rustix::param::page_size() + CELLS * size_of::<f64>() / 2) as libc::rlim_t;
            let few = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the call only reads the limit.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &few) };
            ensure!(set == 0, "no limit: {}", std::io::Error::last_os_error());
        }
        let options = BindOptions::default().link(choices(comm)[1]);
        Ok(HaloExchange::bind_with(comm, [(&pattern, &array)], &options).map(drop))
    }

    /// Endless patterns and collective calls.
    fn pattern(&self) -> Result<(), Error> {
        self.say_here();
        (0..).try_for_each(|turn| self.noted(self.pattern_once(turn)))
    }

    fn pattern_once(&self, turn: u64) -> Result<(), Error> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let (cells, form) = (20 * size, DomainForm::ByIndices);
        let cloud = Cloud { seed: turn, cells, domains_per_rank: 2, halo: 9, form, coherence: 50 };
        pattern_of(&self.comm, &cloud.pieces(rank, size))?;
        self.comm.all_gather(&vec![7; 1000 * rank])?;
        self.comm.all_reduce(&[turn], Reduce::Max)?;
        self.comm.broadcast(turn as usize % size, vec![1; 100_000])?;
        Ok(self.comm.barrier()?)
    }

    /// Endless rolling windows, whose rows are relayed or sent straight; the victim dies anywhere.
    fn rolling(&self) -> Result<Result<(), Error>, Trouble> {
        let (rank, size) = (self.comm.rank() as i64, self.comm.size());
        let key = Arc::new(Int64Array::from_iter_values(100 * rank..100 * (rank + 1))) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("key", key)])?;
        let table = Table::new(batch.schema(), vec![batch])?;
        // Of neighbours alone, or of all ranks.
        let windows = [Window::rows_around(50, 50), Window::rows(100 * size as u32)?];
        let ready = self.together();
        if ready.is_err() {
            return Ok(ready);
        }
        self.say_here();
        for turn in 0.. {
            let route = [Route::Relay, Route::Direct][turn % 2];
            let spec = Rolling::new("key", windows[turn / 2 % 2].clone()).route(route);
            if let Err(error) = rolling(&table, &spec, &self.comm) {
                let TableError::Comm(error) = error else { return Err(error.into()) };
                return Ok(self.noted(Err(error.into())));
            }
        }
        Ok(Ok(()))
    }

    fn say_here(&self) {
        if self.is_victim() {
            println!("{HERE}");
        }
    }
}
