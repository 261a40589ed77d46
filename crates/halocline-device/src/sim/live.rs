//! A world beside a program that goes its own way: threads come as they are, words may be written by other processes,
//! and a thread of the world lets streams go on, in an order that a seed only influences.
//!
//! Data and order are checked as everywhere. But all threads of the host count as one, so that order that is missing
//! between them is not found, nor are deadlocks, and nothing is replayed.

use super::state::{State, Waits};
use super::{Guard, Options, Report, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The one thread that all of the host count as.
pub(super) const HOST: usize = 0;

/// How long a stream that waits for another process is left alone, and devices without work.
const NAP: Duration = Duration::from_micros(20);
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
                        (false, false) => std::thread::sleep(NAP),
                        (false, true) => std::thread::sleep(IDLE),
                    }
                }
            })?
        };
        Ok(Live { world, stop, engine: Some(engine) })
    }

    /// A call in such a world: streams go on a little.
    pub(super) fn pass<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        for _ in 0..state.choices.number(4) {
            state.step_any();
        }
        state
    }

    /// The calling thread waits for something.
    pub(super) fn wait_live<'a>(&'a self, mut state: Guard<'a>, what: Waits) -> Guard<'a> {
        while !state.is_met(what) {
            if !state.step_any() {
                drop(state);
                std::thread::sleep(NAP);
                state = self.lock();
            }
        }
        state
    }
}

impl State {
    /// One step of a stream that can go on, if any can.
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

    /// What was found so far.
    pub fn reports(&self) -> Vec<Report> {
        self.world.reports()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(engine) = self.engine.take() {
            // A panic of it was printed when it happened.
            let _ = engine.join();
        }
    }
}
