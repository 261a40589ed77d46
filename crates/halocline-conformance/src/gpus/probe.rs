//! Finds out which driver calls block while a stream waits, and block calls of other threads meanwhile.

mod across;
pub(super) mod mappings;
mod queues;

pub(super) use across::main as across;

use super::raw::Raw;
use super::{Gpu, KERNELS};
use crate::{Outcome, Trouble};
use halocline::device::cuda::{Compiler, CudaDriver, Module};
use halocline::device::{Priority, ValueOp};
use halocline::{Device, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A word of pinned memory for which a stream waits.
struct Gate<'a> {
    device: &'a Device,
    word: halocline::device::Memory,
}

impl Gate<'_> {
    fn is_open(&self) -> bool {
        // SAFETY: the word lies in pinned memory, where streams and atomic operations alone write it.
        unsafe { self.word.load(0) == 1 }
    }

    fn set(&self, value: u64) {
        // SAFETY: the word lies in pinned memory, where streams and atomic operations alone access it.
        unsafe { self.word.store(0, value) };
    }

    fn hold(&self, stream: &Stream) -> Outcome {
        self.set(0);
        // SAFETY: the word lies in pinned memory that lives until the stream is through; streams and atomic operations
        // alone access it.
        Ok(unsafe { stream.values(&[ValueOp::Wait { address: self.word.at(0), at_least: 1 }]) }?)
    }

    fn open(&self, stream: &Stream) -> Outcome {
        // SAFETY: the word lies in pinned memory that lives until the stream is through; streams and atomic operations
        // alone access it.
        Ok(unsafe { stream.values(&[ValueOp::Write { address: self.word.at(0), value: 1 }]) }?)
    }

    fn opens_within(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        while !self.is_open() && begin.elapsed() < limit {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.is_open()
    }
}

/// Says what the driver of this machine does.
pub(super) fn main() -> Outcome {
    let gpu = Gpu::new(0)?;
    let device = gpu.device();
    let gate = Gate { device, word: device.allocate_pinned(8)? };
    println!("queues, as far as is known: {}", device.queues());
    let (waiting, other) = (device.stream(Priority::Highest)?, device.stream(Priority::Highest)?);
    gpu.empty(&waiting)?;
    waiting.synchronise()?;
    let raw = Raw::new();
    let context = raw.made("cuDevicePrimaryCtxRetain", 0, 0);
    raw.call("cuCtxPushCurrent_v2", context, 0, 0);
    queues::take(&gate, context)?;
    let memory = |bytes: usize| raw.made("cuMemAlloc_v2", bytes, 0);
    let pinned = |bytes: usize| raw.made("cuMemAllocHost_v2", bytes, 0);
    let page = vec![0u8; 3 << 20];
    let page = page.as_ptr().expose_provenance().next_multiple_of(4096);
    let driver = CudaDriver::open(0)?;
    let compiled =
        Compiler::load_for(driver.version()?)?.compile("gpus.cu", KERNELS, &[], driver.capability()?)?;
    let module = Module::load(&driver, &compiled)?;
    let (fresh, deep, cell) = (module.function("empty")?, module.function("deep")?, device.allocate(8)?);
    let (small, large, host, host_large) = (memory(4096), memory(64 << 20), pinned(4096), pinned(64 << 20));
    let (stream, event) = (raw.made("cuStreamCreate", 1, 0), raw.made("cuEventCreate", 2, 0));
    let pooled = raw.made("cuMemAllocAsync", 4096, other.raw().0);
    other.synchronise()?;
    let (third, warm) = (device.stream(Priority::Normal)?, device.stream(Priority::Normal)?);
    gpu.empty(&warm)?;
    warm.synchronise()?;
    let calls: [(&str, &(dyn Fn() + Sync)); 21] = [
        ("cuMemAlloc of 4 KB", &|| {
            let _ = memory(4096);
        }),
        ("cuMemAlloc of 64 MB", &|| {
            let _ = memory(64 << 20);
        }),
        ("cuMemFree of 4 KB", &|| raw.call("cuMemFree_v2", small, 0, 0)),
        ("cuMemFree of 64 MB", &|| raw.call("cuMemFree_v2", large, 0, 0)),
        ("cuMemAllocAsync of 4 KB", &|| {
            let _ = raw.made("cuMemAllocAsync", 4096, other.raw().0);
        }),
        ("cuMemFreeAsync", &|| raw.call("cuMemFreeAsync", pooled, other.raw().0, 0)),
        ("cuMemAllocHost of 4 KB", &|| {
            let _ = pinned(4096);
        }),
        ("cuMemAllocHost of 64 MB", &|| {
            let _ = pinned(64 << 20);
        }),
        ("cuMemFreeHost of 4 KB", &|| raw.call("cuMemFreeHost", host, 0, 0)),
        ("cuMemFreeHost of 64 MB", &|| raw.call("cuMemFreeHost", host_large, 0, 0)),
        ("cuMemHostRegister of 1 MB", &|| raw.call("cuMemHostRegister_v2", page, 1 << 20, 3)),
        ("cuMemHostUnregister of 1 MB", &|| raw.call("cuMemHostUnregister", page, 0, 0)),
        ("cuStreamCreate", &|| {
            let _ = raw.made("cuStreamCreate", 1, 0);
        }),
        ("cuStreamDestroy", &|| raw.call("cuStreamDestroy_v2", stream, 0, 0)),
        ("cuEventCreate", &|| {
            let _ = raw.made("cuEventCreate", 2, 0);
        }),
        ("cuEventDestroy", &|| raw.call("cuEventDestroy_v2", event, 0, 0)),
        ("cuModuleLoadData", &|| {
            let _ = raw.made("cuModuleLoadData", compiled.code().as_ptr().expose_provenance(), 0);
        }),
        ("the first launch of a kernel", &|| {
            // SAFETY: the kernel takes nothing.
            let launched = unsafe { fresh.launch(&driver, third.raw(), [1; 3], [1; 3], &[]) };
            launched.expect("it is launched");
        }),
        ("the first launch of one with 2 KiB of local memory a thread", &|| {
            let mut cell = cell.at(0);
            // SAFETY: the kernel takes one address, of memory that lives on.
            let launched =
                unsafe { deep.launch(&driver, third.raw(), [1; 3], [1; 3], &[super::argument(&mut cell)]) };
            launched.expect("it is launched");
        }),
        ("a launch of a kernel", &|| gpu.empty(&warm).expect("it is launched")),
        ("cuStreamSynchronize of another stream", &|| raw.call("cuStreamSynchronize", warm.raw().0, 0, 0)),
    ];
    println!("{:<60} {:>9} {:>24}", "while a stream waits", "returns", "another thread gets on");
    for (what, call) in calls {
        let (returned, got_on) = try_call(&gate, (&waiting, &other), context, &raw, call)?;
        println!("{what:<60} {returned:>9} {got_on:>24}");
    }
    println!("{:<40} {:>9}", "while cuMemFree waits in another thread", "returns");
    let (kept, events) = (device.allocate(1 << 20)?, device.events());
    let event = events.take()?;
    let beside: [(&str, &(dyn Fn() + Sync)); 14] = [
        ("a launch of a kernel", &|| gpu.empty(&warm).expect("it is launched")),
        ("cuEventRecord", &|| warm.record(&event).expect("it is recorded")),
        ("cuStreamWaitEvent", &|| third.wait(&event).expect("it waits")),
        ("cuEventCreate", &|| {
            let _ = raw.made("cuEventCreate", 2, 0);
        }),
        ("cuStreamCreate", &|| {
            let _ = raw.made("cuStreamCreate", 1, 0);
        }),
        ("cuMemAlloc of 4 KB", &|| {
            let _ = memory(4096);
        }),
        ("cuMemAlloc of 64 MB", &|| {
            let _ = memory(64 << 20);
        }),
        ("cuMemAllocAsync of 4 KB", &|| {
            let _ = raw.made("cuMemAllocAsync", 4096, warm.raw().0);
        }),
        ("cuMemAllocHost of 4 KB", &|| {
            let _ = pinned(4096);
        }),
        ("cuMemAllocHost of 1 MB", &|| {
            let _ = pinned(1 << 20);
        }),
        ("cuMemFree of 4 KB", &|| raw.call("cuMemFree_v2", memory(4096), 0, 0)),
        ("place of an address", &|| {
            let _ = device.place_of(kept.at(8)).expect("it is there");
        }),
        ("peek", &|| {
            // SAFETY: the word lies in memory that lives on, and nothing writes it.
            let _ = unsafe { warm.peek(kept.at(8)) }.expect("it is there");
        }),
        ("cuStreamSynchronize", &|| warm.synchronise().expect("it is through")),
    ];
    for (what, call) in beside {
        let waits = memory(4096);
        gate.hold(&waiting)?;
        let done = AtomicBool::new(false);
        let returned = std::thread::scope(|scope| {
            scope.spawn(|| {
                raw.call("cuCtxPushCurrent_v2", context, 0, 0);
                raw.call("cuMemFree_v2", waits, 0, 0);
            });
            std::thread::sleep(Duration::from_millis(30));
            scope.spawn(|| {
                raw.call("cuCtxPushCurrent_v2", context, 0, 0);
                call();
                done.store(true, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(60));
            let returned = done.load(Ordering::Acquire);
            gate.set(1);
            returned
        });
        waiting.synchronise()?;
        println!("{what:<40} {returned:>9}");
    }
    raw.made("cuCtxPopCurrent_v2", 0, 0);
    Ok(())
}

fn try_call(
    gate: &Gate<'_>,
    (waiting, other): (&Stream, &Stream),
    context: usize,
    raw: &Raw,
    call: &(dyn Fn() + Sync),
) -> Result<(bool, bool), Trouble> {
    gate.hold(waiting)?;
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            raw.call("cuCtxPushCurrent_v2", context, 0, 0);
            call();
            done.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(60));
        let returned = done.load(Ordering::Acquire);
        let writer = scope.spawn(|| gate.open(other));
        let got_on = gate.opens_within(Duration::from_millis(200));
        // Whatever waits goes on.
        gate.set(1);
        writer.join().expect("no panic").map(|()| (returned, got_on))
    });
    waiting.synchronise()?;
    other.synchronise()?;
    outcome
}
