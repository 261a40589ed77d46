//! What the ranks of `tests/kill.rs` run: one of them is killed or stopped from outside, the others must
//! end by themselves and say who it was.

use crate::numbers::Numbers;
use crate::scene::{Cloud, Grid, Scene, Told, choices, pattern_of};
use crate::trouble::Trouble;
use crate::{ensure, fail};
use halocline::{Array, BindOptions, Cause, CommError, Communicator, Error, HaloExchange, Pattern, Reduce};
use std::process::ExitCode;
use std::time::Duration;

/// The exit code of a rank that ended with a typed error which names the rank at fault.
pub const NAMED: u8 = 3;

/// What the victim says on its standard output once it may be killed.
pub const HERE: &str = "here";

/// The rank that dies, the same for those who run and those who kill.
pub fn victim_of(seed: u64, size: usize) -> usize {
    Numbers::new(seed).below(size)
}

/// Runs a scenario until an error ends it, then says `named RANK CAUSE: error` and gives [`NAMED`].
pub fn main(scenario: &str, seed: &str) -> ExitCode {
    let ended = seed.parse().map_err(Trouble::from).and_then(|seed| end_of(scenario, seed));
    match ended {
        Ok((rank, how, error)) => {
            println!("named {rank} {how}: {error}");
            ExitCode::from(NAMED)
        }
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Whom the error that ended the scenario names, and how that rank is said to have ended.
fn end_of(scenario: &str, seed: u64) -> Result<(usize, &'static str, Error), Trouble> {
    let comm = Communicator::init()?;
    let play = Play { seed, victim: victim_of(seed, comm.size()), comm };
    let ended = match scenario {
        "between" => play.between(None)?,
        "stopped" => play.between(Some(Duration::from_secs(1)))?,
        "mid" => play.mid()?,
        "free" => play.free()?,
        "bind" => play.bind()?,
        "pattern" => play.pattern(),
        "starved" => play.starved()?,
        other => fail!("there is no scenario {other:?}"),
    };
    let Err(error) = ended else { fail!("the scenario ended without an error") };
    if scenario == "starved" {
        // What runs out, and where it shows, is up to chance: any error will do, none must be missing.
        return Ok((play.victim, "starved", error));
    }
    match &error {
        Error::Failed(failure) if failure.cause == Cause::Died => Ok((failure.culprit, "died", error)),
        Error::Failed(failure) if matches!(failure.cause, Cause::Deadline(_)) => {
            Ok((failure.culprit, "late", error))
        }
        Error::Comm(CommError::Died { rank, .. }) => Ok((*rank, "died", error)),
        _ => Err(Trouble::new(format!("the error names nobody: {error}"))),
    }
}

struct Play {
    comm: Communicator,
    seed: u64,
    victim: usize,
}

impl Play {
    fn is_victim(&self) -> bool {
        self.comm.rank() == self.victim
    }

    /// The victim says that it may be killed now, and does nothing any more.
    fn await_death(&self) -> ! {
        println!("{HERE}");
        loop {
            std::thread::park();
        }
    }

    /// All ranks are through with their preparations. The victim may be through with this, too, and dead,
    /// while others still hear from each other.
    fn together(&self) -> Result<(), Error> {
        Ok(self.comm.barrier()?)
    }

    /// A bound object on a ring, its way drawn, after a few steps of all ranks.
    fn begun(&self, deadline: Option<Duration>) -> Result<(Scene, HaloExchange), Trouble> {
        let mut numbers = Numbers::new(self.seed ^ 1);
        let grid = Grid::new(self.comm.size(), &[2 * self.comm.size(), 40], &[true, true], 1)?;
        let mut scene = Scene::simple(&self.comm, &grid)?;
        let link = choices(&self.comm)[numbers.below(5)];
        let halo = scene.bind(&self.comm, &BindOptions { link, deadline, ..BindOptions::default() })?;
        scene.steps(&halo, numbers.below(6))?;
        Ok((scene, halo))
    }

    /// The victim dies between two exchanges.
    fn between(&self, deadline: Option<Duration>) -> Result<Result<(), Error>, Trouble> {
        let (_scene, halo) = self.begun(deadline)?;
        if let Err(error) = self.together() {
            return Ok(Err(error));
        }
        if self.is_victim() {
            self.await_death();
        }
        Ok(forever(&halo))
    }

    /// The victim dies in an exchange that it has begun.
    fn mid(&self) -> Result<Result<(), Error>, Trouble> {
        let (mut scene, halo) = self.begun(None)?;
        scene.next();
        if let Err(error) = self.together() {
            return Ok(Err(error));
        }
        if self.is_victim() {
            let begun = halo.exchange();
            ensure!(begun.is_ok(), "the exchange in which to die cannot be begun: {begun:?}");
            self.await_death();
        }
        Ok(forever(&halo))
    }

    /// Exchanges without end; the victim dies anywhere.
    fn free(&self) -> Result<Result<(), Error>, Trouble> {
        let (_scene, halo) = self.begun(None)?;
        Ok(self.together().and_then(|()| {
            self.say_here();
            forever(&halo)
        }))
    }

    /// Binds without end.
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
        let options = BindOptions { link: choices(&self.comm)[turn % 5], ..BindOptions::default() };
        HaloExchange::bind_with(&self.comm, &[(pattern, &array)], &options)?.exchange()?.wait()
    }

    /// The victim runs out of descriptors while all bind, and keep what they have bound.
    fn starved(&self) -> Result<Result<(), Error>, Trouble> {
        let grid = Grid::new(self.comm.size(), &[2 * self.comm.size(), 10], &[true, true], 1)?;
        let pattern = grid.pattern(&self.comm)?;
        if self.is_victim() {
            let open = std::fs::read_dir("/proc/self/fd")?.count() as libc::rlim_t;
            let few = libc::rlimit { rlim_cur: open + self.seed % 12, rlim_max: open + 12 };
            // SAFETY: the limit is read, nothing else.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) };
            ensure!(set == 0, "no limit: {}", std::io::Error::last_os_error());
        }
        let mut kept = Vec::new();
        for _ in 0..20 {
            let (_, shape) = &pattern.plan().domains[0];
            let bound = Array::<f64>::zeros(&self.comm, &shape.extents()).and_then(|array| {
                let options = BindOptions { link: choices(&self.comm)[1], ..BindOptions::default() };
                let halo = HaloExchange::bind_with(&self.comm, &[(&pattern, &array)], &options)?;
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

    /// Patterns and collective calls without end.
    fn pattern(&self) -> Result<(), Error> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        self.say_here();
        for turn in 0.. {
            let cells = 20 * size;
            let cloud = Cloud {
                seed: turn,
                cells,
                domains_per_rank: 2,
                halo: 9,
                told: Told::ByIndices,
                coherence: 50,
            };
            pattern_of(&self.comm, &cloud.pieces(rank, size))?;
            self.comm.all_gather(&vec![7; 1000 * rank])?;
            self.comm.all_reduce(&[turn], Reduce::Max)?;
            self.comm.broadcast(turn as usize % size, vec![1; 100_000])?;
            self.comm.barrier()?;
        }
        Ok(())
    }

    fn say_here(&self) {
        if self.is_victim() {
            println!("{HERE}");
        }
    }
}

fn forever(halo: &HaloExchange) -> Result<(), Error> {
    loop {
        halo.exchange()?.wait()?;
    }
}
