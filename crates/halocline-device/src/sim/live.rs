//! A world for ordinary programs: any thread may call it, other processes may write words, and a thread of
//! the world runs the streams. The seed only influences the order.
//!
//! Data and ordering are checked as usual. But all host threads count as one, so missing order between them
//! is not found, nor are deadlocks, and runs cannot be replayed.

use super::state::{State, Waits};
use super::{Guard, Options, Report, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The one thread that represents all host threads.
pub(super) const HOST: usize = 0;

/// Pause of a stream that waits for another process, and of idle devices.
const SLEEP: Duration = Duration::from_micros(20);
const IDLE: Duration = Duration::from_millis(1);

/// A world with its thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Live {
    world: World,
    stop: Arc<AtomicBool>,
    engine: Option<JoinHandle<()>>,
}

impl World {
    /// A world beside the program.
    pub fn live(seed: u64, options: &Options) -> std::io::Result<Live> {
        let mut state = State::new(seed, options.clone(), None, false);
        state.live = true;
        if options.exports {
            state.memories.share();
        }
        state.add_thread("host".to_owned());
        let world = World(Arc::new(Mutex::new(state)));
        let stop = Arc::new(AtomicBool::new(false));
        let engine = {
            let (world, stop) = (world.clone(), Arc::clone(&stop));
            std::thread::Builder::new().name("simulated device".to_owned()).spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let mut state = world.lock();
                    let stepped = state.step_any();
                    let idle = state.streams.iter().all(|stream| stream.is_idle());
                    drop(state);
                    match (stepped, idle) {
                        (true, _) => std::thread::yield_now(),
                        (false, false) => std::thread::sleep(SLEEP),
                        (false, true) => std::thread::sleep(IDLE),
                    }
                }
            })?
        };
        Ok(Live { world, stop, engine: Some(engine) })
    }

    /// A call in a live world: streams advance a little.
    pub(super) fn pass<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        for _ in 0..state.choices.number(4) {
            state.step_any();
        }
        state
    }

    /// Blocks the calling thread until a condition holds.
    pub(super) fn wait_live<'a>(&'a self, mut state: Guard<'a>, what: Waits) -> Guard<'a> {
        while !state.is_met(what) {
            if !state.step_any() {
                drop(state);
                std::thread::sleep(SLEEP);
                state = self.lock();
            }
        }
        state
    }
}

impl State {
    /// Executes one step of a runnable stream, if there is one.
    fn step_any(&mut self) -> bool {
        let able: Vec<usize> = (0..self.streams.len()).filter(|&stream| self.can_step(stream)).collect();
        if able.is_empty() {
            return false;
        }
        let chosen = self.choices.number(able.len());
        self.now += 500;
        self.step(able[chosen]);
        true
    }
}

impl Live {
    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Errors found so far.
    pub fn reports(&self) -> Vec<Report> {
        self.world.reports()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(engine) = self.engine.take() {
            // Its panic was printed when it happened.
            let _ = engine.join();
        }
    }
}
