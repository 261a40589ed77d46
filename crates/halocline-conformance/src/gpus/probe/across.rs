//! `gpus probe across`: every call that the library makes, while a stream or a kernel waits on the same or another device.

use super::super::raw::Raw;
use super::super::{Gpu, Gpus, KERNELS};
use crate::yard::Rig;
use crate::{Outcome, Trouble};
use halocline::device::cuda::{Compiled, Compiler, CudaDriver, Function, Module};
use halocline::device::{CopyTable, Driver, Priority, Signal, TablePart, TableSpec, ValueOp};
use halocline::{Device, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What must have come back by then does not wait.
const SOON: Duration = Duration::from_millis(60);
/// Six kinds of waits, of which each takes fresh memory and kernels.
const TRIALS: usize = 6;

/// A kernel with memory of its threads' own, more than the driver keeps for each.
const LOCAL: &str = "extern \"C\" __global__ void local(unsigned long long *to, int turns) {
  unsigned long long own[512];
  for (int at = 0; at < 512; at++) own[at] = at * clock64();
  for (int turn = 0; turn < turns; turn++) own[(turn * 7919) % 512] += own[(turn * 104729) % 512];
  if (turns < 0) *to = own[(unsigned)turns % 512];
}";

/// Bytes of a copy that stands behind a wait.
const QUEUED: usize = 64 << 20;

/// What waits.
#[derive(Clone, Copy)]
enum Waiter {
    Stream,
    Kernel,
    /// A stream, with copies behind its wait: within the device, to another one, to the host and back.
    Copies,
}

/// What holds a stream until a word of pinned memory is 1.
struct Gate {
    stream: Stream,
    word: halocline::device::Memory,
    /// A launch waits, else the stream.
    table: Option<CopyTable>,
    /// Where copies behind the wait go from, and to.
    behind: Vec<(halocline::device::Memory, halocline::device::Memory)>,
}

impl Gate {
    fn new(devices: &[Device], waiting: &Device, waiter: Waiter) -> Result<Self, Trouble> {
        let word = waiting.allocate_pinned(8)?;
        let waits = [Signal { address: word.at(0), lag: 0 }];
        let parts = [TablePart { waits: &waits, ..TablePart::default() }];
        let spec = TableSpec { parts: &parts, sources: &[], targets: &[], guard: None };
        let table = matches!(waiter, Waiter::Kernel).then(|| waiting.upload(&spec)).transpose()?;
        let mut behind = Vec::new();
        if let Waiter::Copies = waiter {
            for device in devices {
                behind.push((waiting.allocate(QUEUED)?, device.allocate(QUEUED)?));
                behind.push((device.allocate(QUEUED)?, waiting.allocate(QUEUED)?));
            }
            behind.push((waiting.allocate(QUEUED)?, waiting.allocate_pinned(QUEUED)?));
            behind.push((waiting.allocate_pinned(QUEUED)?, waiting.allocate(QUEUED)?));
        }
        Ok(Self { stream: waiting.stream(Priority::Highest)?, word, table, behind })
    }

    fn close(&self) -> Outcome {
        // SAFETY: the word, the table and the memory of the copies live until the streams are through. Streams and
        // atomic operations alone access the word.
        unsafe {
            self.word.store(0, 0);
            match &self.table {
                Some(table) => self.stream.launch(table, 1)?,
                None => self.stream.values(&[ValueOp::Wait { address: self.word.at(0), at_least: 1 }])?,
            }
            for (from, to) in &self.behind {
                self.stream.copy(to.at(0), from.at(0), QUEUED)?;
            }
        }
        // It runs by now.
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    fn open(&self) {
        // SAFETY: the word lies in pinned memory, where streams and atomic operations alone access it.
        unsafe { self.word.store(0, 1) };
    }
}

/// What every exchange does: on a device, beside what waits.
struct Steady<'a> {
    gpu: &'a Gpu,
    streams: [Stream; 2],
    events: halocline::device::EventPool,
    word: halocline::device::Memory,
    table: CopyTable,
}

impl<'a> Steady<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self, Trouble> {
        let device = gpu.device();
        let word = device.allocate_pinned(256)?;
        let raises = [word.at(128)];
        let parts = [TablePart { raises: &raises, ..TablePart::default() }];
        let spec = TableSpec { parts: &parts, sources: &[], targets: &[], guard: None };
        let table = device.upload(&spec)?;
        let streams = [device.stream(Priority::Normal)?, device.stream(Priority::Highest)?];
        Ok(Self { gpu, streams, events: device.events(), word, table })
    }

    /// Issues it and polls until it is over or `ends` returns true.
    fn run(&self, value: u64, ends: &AtomicBool) -> Outcome {
        let [one, two] = &self.streams;
        let (given, done) = (self.events.take()?, self.events.take()?);
        self.gpu.empty(one)?;
        one.record(&given)?;
        two.wait(&given)?;
        // SAFETY: words and table live as long as the streams work.
        unsafe {
            two.values(&[ValueOp::Write { address: self.word.at(0), value }])?;
            two.launch(&self.table, value)?;
        }
        two.record(&done)?;
        while !done.query()? && !ends.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        two.synchronise()?;
        Ok(())
    }
}

/// A call, given what was made for it before anything waited.
struct Call<'a> {
    name: &'static str,
    prepare: Box<dyn Fn() -> usize + 'a>,
    call: Box<dyn Fn(usize) + Sync + 'a>,
}

fn call<'a, T>(
    name: &'static str,
    prepare: impl Fn() -> usize + 'a,
    call: impl Fn(usize) -> T + Sync + 'a,
) -> Call<'a> {
    let call = move |made| {
        call(made);
    };
    Call { name, prepare: Box::new(prepare), call: Box::new(call) }
}

fn within(limit: Duration, is_there: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !is_there() && begin.elapsed() < limit {
        std::thread::sleep(Duration::from_micros(200));
    }
    is_there()
}

/// Whether the call returns, and whether what exchanges do gets on meanwhile on each device.
fn trial(
    gate: &Gate,
    steady: &[Steady<'_>],
    value: u64,
    call: &(dyn Fn() + Sync),
) -> Result<Vec<bool>, Trouble> {
    gate.close()?;
    let ends = AtomicBool::new(false);
    let returned = AtomicBool::new(false);
    let passed: Vec<AtomicBool> = steady.iter().map(|_| AtomicBool::new(false)).collect();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            call();
            returned.store(true, Ordering::Release);
        });
        let is_back = within(SOON, || returned.load(Ordering::Acquire));
        let others: Vec<ScopedJoinHandle<'_, Outcome>> = steady
            .iter()
            .zip(&passed)
            .map(|(steady, passed)| {
                let ends = &ends;
                scope.spawn(move || {
                    steady.run(value, ends)?;
                    passed.store(true, Ordering::Release);
                    Ok(())
                })
            })
            .collect();
        let all = passed.iter().map(|passed| within(SOON, || passed.load(Ordering::Acquire)));
        let found: Vec<bool> = std::iter::once(is_back).chain(all).collect();
        ends.store(true, Ordering::Release);
        gate.open();
        let ended = others.into_iter().try_for_each(|other| other.join().expect("no panic"));
        ended.map(|()| found)
    });
    gate.stream.synchronise()?;
    found
}

/// Prints, for each call on the first device: whether it returns, and whether exchanges get on on each device meanwhile.
pub(in super::super) fn main() -> Outcome {
    let rig = Gpus::get()?;
    let devices = rig.devices();
    let (raw, device) = (Raw::new(), &devices[0]);
    let driver = CudaDriver::open(0)?;
    let compile = |name, text| Compiler::load()?.compile(name, text, &[], driver.capability()?);
    let (plain, local) = (compile("gpus.cu", KERNELS)?, compile("local.cu", LOCAL)?);
    let load = |compiled: &Compiled, name: &str| -> Result<Vec<(Module, Function)>, Trouble> {
        let each = |_| {
            let module = Module::load(&driver, compiled)?;
            let function = module.function(name)?;
            Ok((module, function))
        };
        (0..TRIALS).map(each).collect()
    };
    let (plains, locals) = (load(&plain, "empty")?, load(&local, "local")?);
    let fresh = std::sync::atomic::AtomicUsize::new(0);
    let next = || fresh.fetch_add(1, Ordering::Relaxed) % TRIALS;
    let own = device.stream(Priority::Normal)?;
    let kept = device.allocate(1 << 20)?;
    let page = vec![0u8; 3 << 20];
    let page = page.as_ptr().expose_provenance().next_multiple_of(4096);
    let pageable = vec![1u8; 8 << 20];
    let far = device.allocate(8 << 20)?;
    let (pinned, last) = (device.allocate_pinned(1 << 20)?, devices.last().expect("there is one"));
    let away = last.allocate(1 << 20)?;
    for (one, other) in [(0, last.ordinal()), (last.ordinal(), 0)] {
        if one != other {
            CudaDriver::open(one)?.enable_peer(other)?;
        }
    }
    let copied = |from: &halocline::device::Memory, to: &halocline::device::Memory| {
        // SAFETY: both are of that length, and nothing else uses the target.
        let given = unsafe { own.copy(to.at(0), from.at(0), 1 << 20) };
        given.and_then(|()| own.synchronise()).expect("it is copied");
    };
    let none = || 0usize;
    let memory = |bytes: usize| raw.made("cuMemAlloc_v2", bytes, 0);
    let parts = [TablePart { raises: &[kept.at(0)], ..TablePart::default() }];
    let spec = TableSpec { parts: &parts, sources: &[], targets: &[], guard: None };
    let event = || raw.made("cuEventCreate", 2, 0);
    let stream = || raw.made("cuStreamCreate", 1, 0);
    let launch = |function: &Function, arguments: &[*mut std::ffi::c_void]| {
        // SAFETY: the arguments of the kernel; it writes nothing.
        let launched = unsafe { function.launch(&driver, own.raw(), [64, 1, 1], [128, 1, 1], arguments) };
        launched.expect("it is launched");
    };
    let calls = [
        call("nothing", none, |_| {}),
        call("cuMemAlloc of 4 KB", none, |_| memory(4096)),
        call("cuMemAlloc of 64 MB", none, |_| memory(64 << 20)),
        call("cuMemFree of 4 KB", || memory(4096), |at| raw.call("cuMemFree_v2", at, 0, 0)),
        call("cuMemFree of 64 MB", || memory(64 << 20), |at| raw.call("cuMemFree_v2", at, 0, 0)),
        call("cuMemHostAlloc of 4 KB", none, |_| {
            device.driver().allocate_pinned(4096).expect("there is room")
        }),
        call("cuMemHostAlloc of 16 MB", none, |_| {
            device.driver().allocate_pinned(16 << 20).expect("there is room")
        }),
        call(
            "cuMemFreeHost of 4 KB",
            || raw.made("cuMemAllocHost_v2", 4096, 0),
            |at| raw.call("cuMemFreeHost", at, 0, 0),
        ),
        call("cuMemHostRegister, and back at once", none, |_| {
            raw.call("cuMemHostRegister_v2", page, 1 << 20, 3);
            raw.call("cuMemHostUnregister", page, 0, 0);
        }),
        call("cuStreamCreate", none, |_| stream()),
        call("cuStreamDestroy", stream, |at| raw.call("cuStreamDestroy_v2", at, 0, 0)),
        call("cuEventCreate", none, |_| event()),
        call("cuEventDestroy", event, |at| raw.call("cuEventDestroy_v2", at, 0, 0)),
        call("cuModuleLoadData", none, |_| {
            raw.made("cuModuleLoadData", plain.code().as_ptr().expose_provenance(), 0)
        }),
        call("the first launch of a kernel", next, |at| launch(&plains[at].1, &[])),
        call("the first launch with local memory", next, |at| {
            let (mut to, mut turns) = (0u64, 1i32);
            launch(&locals[at].1, &[(&raw mut to).cast(), (&raw mut turns).cast()]);
        }),
        call("upload of a table", none, |_| {
            device.driver().upload(std::slice::from_ref(&spec)).expect("there is room")
        }),
        call("peek", none, |_| {
            // SAFETY: the word lies in memory that lives on, and nothing writes it.
            let _ = unsafe { own.peek(kept.at(8)) }.expect("it is there");
        }),
        call("cuMemcpyAsync of 8 MB of pageable memory", none, |_| {
            let from = pageable.as_ptr().expose_provenance();
            raw.call_with("cuMemcpyAsync", [far.at(0) as usize, from, 8 << 20, own.raw().0, 0]);
            own.synchronise().expect("it is through");
        }),
        call("cuMemcpyAsync from pinned memory", none, |_| copied(&pinned, &kept)),
        call("cuMemcpyAsync to pinned memory", none, |_| copied(&kept, &pinned)),
        call("cuMemcpyAsync within the device", none, |_| copied(&kept, &far)),
        call("cuMemcpyAsync to the last device", none, |_| copied(&kept, &away)),
        call("cuMemcpyAsync from the last device", none, |_| copied(&away, &kept)),
        call("place of an address", none, |_| device.place_of(kept.at(8)).expect("it is there")),
        call("cuMemGetInfo", none, |_| device.driver().free_bytes().expect("it says so")),
        call("opening the device, and its peers, again", none, |_| {
            let again = CudaDriver::open(0).expect("it is there");
            (1..devices.len() as u32).for_each(|peer| again.enable_peer(peer).expect("again"));
        }),
        call("cuStreamQuery", none, |_| own.query().expect("it says so")),
        call("cuStreamSynchronize", none, |_| own.synchronise().expect("it is through")),
    ];
    let steady: Vec<Steady<'_>> =
        (0..devices.len()).map(|at| Steady::new(rig.of_rank(at))).collect::<Result<_, _>>()?;
    let steadies: String =
        (0..devices.len()).map(|at| format!(" {:>20}", format!("exchanges on {at}"))).collect();
    let mut value = 1;
    // Once without any wait, so that nothing is done for the first time.
    for steady in &steady {
        steady.run(value, &AtomicBool::new(false))?;
    }
    for waiting in devices.iter().take(2) {
        for (waiter, what) in [
            (Waiter::Stream, "a stream waits"),
            (Waiter::Kernel, "a kernel waits"),
            (Waiter::Copies, "a stream with copies waits"),
        ] {
            let gate = Gate::new(devices, waiting, waiter)?;
            let title = format!("while {what} on device {}", waiting.ordinal());
            println!("{title:<44} {:>9}{steadies}", "returns");
            for one in &calls {
                value += 1;
                // All with the first device's context.
                let mut made = 0;
                device.driver().within(&mut || made = (one.prepare)());
                let call = &*one.call;
                let found = trial(&gate, &steady, value, &|| {
                    device.driver().within(&mut || call(made));
                });
                let found = found?;
                let passed: String = found[1..].iter().map(|passed| format!(" {passed:>20}")).collect();
                println!("{:<44} {:>9}{passed}", one.name, found[0]);
            }
        }
    }
    Ok(())
}
