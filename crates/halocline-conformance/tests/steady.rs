//! The steady state: after a warm-up an exchange allocates nothing. If the peers arrive within the spin, it does not sleep, wakes no
//! thread and makes no system call.

use halocline::device::Priority;
use halocline::{
    BindOptions, Communicator, Decomposed, Device, DeviceArray, Direction, Halo, HaloExchange, RegularGrid,
};
use halocline_comm::{Host, System};
use halocline_conformance::instant::Instant;
use halocline_conformance::processes::Ranks;
use halocline_conformance::steady::{End, KINDS, Kind, WARM_UP, pair, step_of_pair};
use halocline_conformance::{Outcome, Trouble, ensure, fail};
use std::alloc::{GlobalAlloc, Layout, System as Allocator};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Counts what threads allocate that want to be counted.
struct Counting;

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.get() {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        }
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the allocator within, too.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, base: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is that of the allocator within, too: it gave the
        // memory.
        unsafe { Allocator.dealloc(base, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this thread allocates meanwhile.
fn allocations(work: impl FnOnce() -> Outcome) -> Result<u64, Trouble> {
    let before = ALLOCATIONS.get();
    COUNTED.set(true);
    let ended = work();
    COUNTED.set(false);
    ended.map(|()| ALLOCATIONS.get() - before)
}

fn two_ranks(kind: Kind) {
    let rank = move |comm: Communicator| -> Outcome {
        let end = End::new(&comm, kind)?;
        (0..WARM_UP).try_for_each(|step| end.step(step))?;
        let allocated = allocations(|| (WARM_UP..WARM_UP + 1000).try_for_each(|step| end.step(step)))?;
        ensure!(allocated == 0, "{kind:?}: 1000 exchanges allocate {allocated} times");
        Ok(())
    };
    let ranks: Vec<_> =
        Communicator::threads(2).into_iter().map(|comm| std::thread::spawn(move || rank(comm))).collect();
    for ended in ranks.into_iter().map(|rank| rank.join().expect("a rank does not panic")) {
        ended.unwrap_or_else(|trouble| panic!("{trouble}"));
    }
}

/// The machine, with the sleeps and wakes of counted threads counted.
#[derive(Default)]
struct Counted {
    parks: AtomicU32,
    wakes: AtomicU32,
    sleepers: Mutex<Vec<Sleeper>>,
}

/// A thread that sleeps while a word has a value.
#[derive(Clone, Copy, PartialEq)]
struct Sleeper {
    /// Alive as long as the sleeper is in the list.
    word: *const AtomicU32,
    expected: u32,
}

// SAFETY: the word may be read by every thread.
unsafe impl Send for Sleeper {}

impl Counted {
    fn sleepers(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        self.sleepers.lock().expect("no thread panics with the list locked")
    }

    /// Waits until the progress threads sleep. One that still starts serves an exchange in turn with the thread that is counted, and
    /// is woken for it.
    fn await_sleep(&self, threads: usize) {
        // SAFETY: the word of a sleeper in the list is alive, and the list is locked meanwhile.
        let sleeps =
            |sleeper: &&Sleeper| unsafe { &*sleeper.word }.load(Ordering::Relaxed) == sleeper.expected;
        while self.sleepers().iter().filter(sleeps).count() < threads {
            std::thread::yield_now();
        }
    }
}

impl Host for Counted {
    fn now(&self) -> Duration {
        System.now()
    }

    fn park(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        self.parks.fetch_add(COUNTED.get().into(), Ordering::Relaxed);
        let sleeper = Sleeper { word, expected };
        self.sleepers().push(sleeper);
        System.park(word, expected, timeout);
        let mut sleepers = self.sleepers();
        let own = sleepers.iter().position(|known| *known == sleeper).expect("this thread is in the list");
        sleepers.swap_remove(own);
    }

    fn wake(&self, word: &AtomicU32) {
        self.wakes.fetch_add(COUNTED.get().into(), Ordering::Relaxed);
        System.wake(word);
    }
}

/// How often a thousand exchanges are tried.
const ROUNDS: u64 = 20;

fn driven_by_one_thread(kind: Kind) -> Outcome {
    let host = Arc::new(Counted::default());
    let ends = pair(Arc::clone(&host) as Arc<dyn Host>, kind)?;
    (0..WARM_UP).try_for_each(|step| step_of_pair(&ends, step))?;
    let counts = || (host.parks.load(Ordering::Relaxed), host.wakes.load(Ordering::Relaxed));
    // A progress thread whose timeout ends meanwhile serves an exchange in turn, and is woken for it: not every time.
    for round in 0..ROUNDS {
        host.await_sleep(2);
        let (first, (parks, wakes)) = (WARM_UP + 1000 * round, counts());
        let allocated = allocations(|| (first..first + 1000).try_for_each(|step| step_of_pair(&ends, step)))?;
        ensure!(allocated == 0, "{kind:?}: 1000 exchanges allocate {allocated} times");
        if counts() == (parks, wakes) {
            return Ok(());
        }
    }
    let (parks, wakes) = counts();
    fail!(
        "{kind:?}: in none of {ROUNDS} times 1000 exchanges there is no sleep and no wake: {parks} and {wakes} in all"
    )
}

#[test]
fn exchanges_allocate_nothing_and_neither_sleep_nor_wake() {
    for kind in KINDS {
        two_ranks(kind);
        driven_by_one_thread(kind).unwrap_or_else(|trouble| panic!("{trouble}"));
    }
}

/// Two ranks of one cell a side, on a device that does everything at once.
fn scheduled(comm: &Communicator, device: &Device, inline: bool) -> Outcome {
    let pattern = RegularGrid::new([4]).periodic([true]).decompose(2)?.pattern(comm, Halo::uniform(1))?;
    let array = DeviceArray::<u64>::zeros(device, &[4])?;
    let options = BindOptions::default().inline(inline);
    let halo = HaloExchange::bind_with(comm, [(&pattern, &array)], &options)?;
    let stream = device.stream(Priority::Normal)?;
    let exchange = || Ok(halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?);
    // More than can be in flight: each that is holds an event, of which there are enough then.
    (0..200).try_for_each(|_| exchange())?;
    let allocated = allocations(|| (0..1000).try_for_each(|_| exchange()))?;
    ensure!(allocated == 0, "inline {inline}: 1000 scheduled exchanges allocate {allocated} times");
    let narrow = halo.narrowed(&Halo::uniform(1))?;
    let in_turn =
        || exchange().and_then(|()| Ok(narrow.schedule_exchange(&[&stream])?.schedule_wait(&stream)?));
    let allocated = allocations(|| (0..1000).try_for_each(|_| in_turn()))?;
    ensure!(allocated == 0, "inline {inline}: 1000 wide and narrow exchanges allocate {allocated} times");
    halo.wait()?;
    comm.barrier()?;
    let peer = 1 - comm.rank();
    let bytes = halo.message_bytes(peer, Direction::Send)?;
    let buffers = [device.allocate(bytes)?, device.allocate(bytes)?];
    let message = |turn: usize| -> Outcome {
        let buffer = buffers[turn % 2].at(0);
        // SAFETY: the buffer outlives the work on it, which this stream orders.
        unsafe {
            halo.pack_on(peer, buffer, bytes, &stream)?;
            halo.unpack_on(peer, buffer, bytes, &stream)?;
        }
        Ok(())
    };
    (0..4).try_for_each(message)?;
    let allocated = allocations(|| (0..1000).try_for_each(message))?;
    ensure!(allocated == 0, "inline {inline}: 1000 messages by hand allocate {allocated} times");
    Ok(comm.barrier()?)
}

#[test]
fn scheduled_exchanges_allocate_nothing() {
    for inline in [false, true] {
        let device = Instant::device().1;
        std::thread::scope(|scope| {
            let rank = |comm: Communicator| scheduled(&comm, &device, inline);
            let ranks: Vec<_> =
                Communicator::threads(2).into_iter().map(|comm| scope.spawn(move || rank(comm))).collect();
            for ended in ranks.into_iter().map(|rank| rank.join().expect("a rank does not panic")) {
                ended.unwrap_or_else(|trouble| panic!("{trouble}"));
            }
        });
    }
}

fn said_by(ranks: usize, transport: &str) -> String {
    let mut ranks_of_job =
        Ranks::start(env!("CARGO_BIN_EXE_halocline-conformance"), ranks, &["steady", transport]);
    let in_time = ranks_of_job.await_end(0..ranks, Duration::from_secs(120));
    let ends = ranks_of_job.end();
    let output: String = ends.iter().map(|end| end.output.as_str()).collect();
    let all_well = in_time && ends.iter().all(|end| end.status.success());
    assert!(all_well, "{:?}\n{output}", ends.iter().map(|end| end.status).collect::<Vec<_>>());
    output
}

#[test]
fn a_thread_that_drives_two_ranks_makes_no_system_call() {
    assert_eq!(said_by(1, "thread"), "[0] futex calls in 7 x 1000 exchanges: 0\n");
}

/// Whether a peer comes within the spin is up to the machine, so that the quietest of many moments counts.
/// With fewer cores than ranks there is no spin, and only the absence of other calls is shown.
#[test]
fn two_processes_make_no_system_call_while_they_spin() {
    let output = said_by(2, "shm");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for line in output.lines().filter(|_| cores >= 2) {
        assert!(line.ends_with(": 0"), "{output}");
    }
    assert_eq!(output.lines().count(), 2 * KINDS.len(), "{output}");
}
