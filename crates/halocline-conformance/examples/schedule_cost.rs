//! What `schedule_exchange` and `schedule_wait` cost the host, apart from what the device does: on a device that does
//! nothing but write words, between two ranks of this process, with one cell a side.
//!
//! `cargo run --release -p halocline-conformance --example schedule_cost`

use halocline::device::Priority;
use halocline::{BindOptions, Communicator, DeviceArray};
use halocline::{Decomposed, Halo, HaloExchange, PatternLinks, RegularGrid};
use halocline_conformance::instant::Instant;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is asked of the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is that of the system's allocator, too: it gave the
        // memory.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: u64 = 1000;
const TIMES: u64 = 20_000;
const SAMPLES: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("host time of schedule_exchange + schedule_wait, a device that does everything at once");
    println!(
        "| streams | ns an exchange, median of {SAMPLES} | driver calls | allocations of {} |",
        TIMES * SAMPLES as u64
    );
    println!("| --- | --- | --- | --- |");
    for (unbound, inline) in [(false, false), (false, true), (true, false), (true, true)] {
        let (driver, device) = Instant::device();
        let ends = Communicator::threads(2);
        std::thread::scope(|scope| {
            let ranks: Vec<_> = ends
                .into_iter()
                .map(|comm| {
                    let (device, driver) = (device.clone(), Arc::clone(&driver));
                    scope.spawn(move || -> Result<(), halocline::Error> {
                        let grid = RegularGrid::new([4]).periodic([true]);
                        let pattern = grid.decompose(2)?.pattern(&comm, Halo::uniform(1))?;
                        let array = DeviceArray::<u64>::zeros(&device, &[4])?;
                        let options = BindOptions::default().inline(inline);
                        let halo = HaloExchange::bind_with(&comm, [(&pattern, &array)], &options)?;
                        let links = PatternLinks::on_device(&comm, &[&pattern], &device, &options)?;
                        let stream = device.stream(Priority::Normal)?;
                        let exchange = |times| -> Result<(), halocline::Error> {
                            for _ in 0..times {
                                match unbound {
                                    false => halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?,
                                    true => links
                                        .schedule_exchange(&[(&pattern, &array)], &[&stream])?
                                        .schedule_wait(&stream)?,
                                }
                            }
                            Ok(())
                        };
                        // Both must have been there; then one alone is measured.
                        exchange(WARM_UP)?;
                        comm.barrier()?;
                        if comm.rank() == 0 {
                            let mut samples = Vec::with_capacity(SAMPLES);
                            let (calls, allocations) = (driver.calls(), ALLOCATIONS.load(Ordering::Relaxed));
                            for _ in 0..SAMPLES {
                                let start = std::time::Instant::now();
                                exchange(TIMES)?;
                                samples.push(start.elapsed().as_nanos() as u64 / TIMES);
                            }
                            let exchanges = TIMES * SAMPLES as u64;
                            let calls = (driver.calls() - calls) / exchanges;
                            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
                            samples.sort_unstable();
                            let name = if inline { "the user's (inline)" } else { "internal" };
                            let name =
                                if unbound { format!("{name}, given fields") } else { name.to_owned() };
                            println!("| {name} | {} | {calls} | {allocations} |", samples[SAMPLES / 2]);
                        }
                        comm.barrier()?;
                        // The other's exchanges, which this device has not waited for.
                        if comm.rank() == 1 { exchange(TIMES * SAMPLES as u64) } else { Ok(()) }
                    })
                })
                .collect();
            ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
        })?;
    }
    Ok(())
}
