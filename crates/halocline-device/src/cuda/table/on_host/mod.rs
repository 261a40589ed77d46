//! Runs the kernel itself on the CPU, with one fiber per thread of each block, in orders that seeds select,
//! and checks each access (see `machine.cc`). Tables come from [`Cut`], with host addresses.
//!
//! `HALOCLINE_SEED` runs one seed only.

use super::kernel::LAUNCHES;
use super::{Argument, Bases, Cut, Kind};
use crate::driver::{Address, Base, Slot, TableSpec};
use crate::error::DeviceError;
use crate::sim::chosen;
use crate::tuning::Tuning;
use libloading::os::unix::Library;
use numbers::Numbers;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

mod combines;
pub(in crate::cuda) mod compile;
mod exchanges;
#[path = "../../../../../halocline-conformance/src/numbers.rs"]
pub(in crate::cuda) mod numbers;
mod tables;

/// The kernel, compiled for a number of threads per block.
struct Machine {
    threads: u32,
    library: Mutex<Library>,
}

impl Machine {
    /// Compiles the kernel after a change of its text.
    fn new(threads: u32, change: impl Fn(&str) -> String) -> Option<Self> {
        let source = replaced(crate::cuda::COPY_KERNELS, "THREADS = 512;", &format!("THREADS = {threads};"));
        let kernel = format!("{}{}", include_str!("shim.h"), change(&source));
        let checked: &[&str] = &["-O1", "-fsanitize=thread"];
        let library = compile::library(&[(&kernel, checked), (MACHINE, &["-O2"])])?;
        Some(Self { threads, library: Mutex::new(library) })
    }

    /// With few threads, which is fast; `None` if there is no compiler.
    fn small() -> Option<&'static Self> {
        static THIS: OnceLock<Option<Machine>> = OnceLock::new();
        THIS.get_or_init(|| Self::new(64, str::to_owned)).as_ref()
    }

    /// With the block size of GPUs.
    fn whole() -> Option<&'static Self> {
        static THIS: OnceLock<Option<Machine>> = OnceLock::new();
        THIS.get_or_init(|| Self::new(super::THREADS, str::to_owned)).as_ref()
    }
}

/// Replaces one part of a text, which must occur.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the kernel has no {from:?}");
    text.replace(from, to)
}

/// Runs a test under its seeds, or under those that the environment selects.
fn under_seeds(count: u64, test: impl Fn(u64)) {
    for seed in chosen(0..count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            println!("HALOCLINE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Memory at fixed addresses, aligned to 16 bytes.
struct Arena {
    base: *mut u8,
    bytes: usize,
    _memory: Box<[u128]>,
}

impl Arena {
    fn new(bytes: usize) -> Self {
        let mut memory = vec![0u128; bytes.div_ceil(16)].into_boxed_slice();
        Self { base: memory.as_mut_ptr().cast(), bytes, _memory: memory }
    }

    fn of(bytes: &[u8]) -> Self {
        let this = Self::new(bytes.len());
        this.set(0, bytes);
        this
    }

    fn at(&self, offset: usize) -> Address {
        (self.base.expose_provenance() + offset) as Address
    }

    fn range(&self) -> Range<Address> {
        self.at(0)..self.at(self.bytes)
    }

    fn set(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes);
        // SAFETY: the bytes lie within `_memory`, as was checked, and nobody borrows that: tests and the kernel's
        // machine reach it by `base` alone, one after the other.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(offset), bytes.len()) };
    }

    fn get(&self) -> Vec<u8> {
        // SAFETY: `_memory` has so many bytes at `base`. The slice is copied at once, while nobody writes: tests and
        // the kernel's machine reach the memory one after the other.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }.to_vec()
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.get()[8 * at..8 * at + 8].try_into().expect("a word"))
    }
}

/// The source of the machine.
const MACHINE: &str = concat!(include_str!("state.h"), include_str!("checks.h"), include_str!("machine.cc"));

/// `state.h` has the same structures.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Interval {
    begin: u64,
    end: u64,
    part: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Wait {
    flag: u64,
    lag: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct PartOf {
    source: [u64; 2],
    wait: u32,
    waits: u32,
    raise: u32,
    raises: u32,
    early: u32,
    copies: u32,
    announced: [u64; 2],
    differs: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct TableOf {
    image: [u64; 2],
    counters: [u64; 2],
    parts: *const PartOf,
    targets: *const Interval,
    waits: *const Wait,
    raises: *const u64,
    guard: u64,
    part_count: u32,
    target_count: u32,
    blocks: u32,
    kind: u32,
    bases: Bases,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct OpOf {
    kind: u32,
    stream: u32,
    table: u32,
    blocks: u32,
    word: u64,
    value: u64,
    counter: u64,
    later: u64,
    argument: Aligned,
}

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Default)]
struct Aligned([u64; 16]);

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct StreamOf {
    device: u32,
    unused: u32,
}

#[repr(C)]
struct Setting {
    seed: u64,
    threads: u32,
    devices: u32,
    streams: u32,
    tables: u32,
    max_blocks: *const u32,
    on: *const StreamOf,
    of: *const TableOf,
    ops: *const OpOf,
    op_count: u32,
    unused: u32,
    call: unsafe extern "C" fn(*mut c_void, u32) -> *const c_char,
    context: *mut c_void,
}

/// Random constants; only speed depends on them.
fn any_tuning(numbers: &mut Numbers) -> Tuning {
    Tuning {
        waiting: [1, 25, 50, 70][numbers.below(4)],
        item: [512, 4096, 65_536][numbers.below(3)],
        items: [1, 2, 16][numbers.below(3)],
        alone: [0, 1024, 65_536][numbers.below(3)],
        ..Tuning::HOPPER
    }
}

/// A table in memory, and the accesses that its launches may make.
struct Table {
    image: Arena,
    argument: Argument,
    blocks: u32,
    waiting: u32,
    kind: Kind,
    bases: Bases,
    /// One for all epochs, or those for even and odd ones.
    works: Vec<Work>,
}

/// Arguments of a launch.
#[derive(Default)]
struct Given {
    bases: Vec<Address>,
    /// The base that receivers announce.
    message: Address,
}

/// The accesses of one work.
struct Work {
    parts: Vec<PartOf>,
    targets: Vec<Interval>,
    waits: Vec<Wait>,
    raises: Vec<u64>,
    guard: u64,
}

impl Table {
    /// Each part of a work has its own source, the memory at `sources[part]`; `reach` is all memory that the device
    /// can access. `given` are the bases of launches, and what receivers announce.
    fn new(
        works: &[(TableSpec<'_>, Vec<Range<Address>>)],
        machine: (u32, &Tuning),
        given: &Given,
        mut reach: impl FnMut(Address, usize) -> Result<(), DeviceError>,
    ) -> Self {
        let specs: Vec<TableSpec<'_>> = works.iter().map(|(spec, _)| *spec).collect();
        let cut = |at| Cut::of_work((&specs, at), machine, &mut reach).expect("within bounds");
        let cuts: Vec<Cut> = (0..specs.len()).map(cut).collect();
        let (blocks, waiting, kind) = (cuts[0].blocks(), cuts[0].waiting_blocks(), cuts[0].kind());
        let bases = Bases::new(works[0].0.bases, &given.bases);
        let image = Arena::new(cuts.iter().map(Cut::size).sum());
        let (bytes, arguments) = Cut::lay_out(cuts, image.at(0));
        let argument = arguments[0];
        assert!(
            arguments.len() == 1 || argument.has_odd() || bytes.is_empty(),
            "works for even and odd epochs differ in their shape"
        );
        image.set(0, &bytes);
        let works = works.iter().map(|(spec, sources)| Work::new(spec, sources, given)).collect();
        Self { image, argument, blocks, waiting, kind, bases, works }
    }

    fn of(&self, work: usize) -> TableOf {
        let Range { start, end } = self.image.range();
        let counters = self.argument.done;
        let Work { parts, targets, waits, raises, guard } = &self.works[work.min(self.works.len() - 1)];
        TableOf {
            image: [start, end],
            counters: [counters, counters + (LAUNCHES as u64 * u64::from(self.argument.tied) * 8)],
            parts: parts.as_ptr(),
            targets: targets.as_ptr(),
            waits: waits.as_ptr(),
            raises: raises.as_ptr(),
            guard: *guard,
            part_count: parts.len() as u32,
            target_count: targets.len() as u32,
            blocks: self.blocks,
            // As in `machine.cc`.
            kind: match self.kind {
                Kind::Plain => 0,
                Kind::Ll => 1,
                Kind::Based => 2,
                Kind::Combining(_) => 3,
            },
            bases: self.bases,
        }
    }
}

impl Work {
    fn new(spec: &TableSpec<'_>, sources: &[Range<Address>], given: &Given) -> Self {
        let (mut parts, mut targets, mut waits, mut raises) = (vec![], vec![], vec![], vec![]);
        let place = |address: Address| match Base::of(address) {
            None => address,
            Some((number, _)) => match spec.bases.get(number) {
                Some(base) => address.wrapping_add(base.added(number, given.bases[number])),
                None => given.message + (address - Base::ANNOUNCED),
            },
        };
        for (part, number) in spec.parts.iter().zip(0..) {
            let source = sources.get(number as usize).cloned().unwrap_or(0..0);
            parts.push(PartOf {
                source: [source.start, source.end],
                wait: waits.len() as u32,
                waits: part.waits.len() as u32,
                raise: raises.len() as u32,
                raises: part.raises.len() as u32,
                early: part.early.into(),
                copies: (!part.is_bare()).into(),
                announced: part.announced.map_or([0, 0], |announced| [announced.address, announced.sent]),
                differs: part.announced.map_or(0, |announced| announced.differs),
            });
            waits.extend(part.waits.iter().map(|wait| Wait { flag: wait.address, lag: wait.lag }));
            raises.extend_from_slice(part.raises);
            for op in part.ops {
                let times = if part.slot == Slot::Written { 2 } else { 1 };
                op.for_each_block(|_, to, bytes| {
                    let begin = place(spec.targets[op.target].wrapping_add_signed(times * to as i64));
                    let end = begin + times as u64 * bytes as u64;
                    targets.push(Interval { begin, end, part: number, unused: 0 });
                });
            }
        }
        for (part, number) in spec.parts.iter().zip(0..) {
            for gather in part.combines.iter().flat_map(|combining| combining.gathers) {
                for (step, at) in (0..gather.steps)
                    .flat_map(|step| (0..gather.target.numbers.len()).map(move |at| (step, at)))
                {
                    let cleared = gather.sources.iter().filter(|source| source.is_cleared);
                    let cleared = cleared.map(|source| (source, spec.sources));
                    for (listed, buffers) in cleared.chain([(&gather.target, spec.targets)]) {
                        let base = buffers[listed.buffer];
                        let begin = base.wrapping_add_signed(listed.at(at, step) as i64);
                        let end = begin + gather.element.size() as u64;
                        targets.push(Interval { begin, end, part: number, unused: 0 });
                    }
                }
            }
        }
        targets.sort_by_key(|interval| interval.begin);
        // Accesses may cross the border of adjacent blocks.
        targets.dedup_by(|next, before| {
            assert!(before.end <= next.begin, "a test's targets overlap");
            let is_one = before.end == next.begin && before.part == next.part;
            before.end = if is_one { next.end } else { before.end };
            is_one
        });
        let guard = spec.guard.unwrap_or(0);
        Self { parts, targets, waits, raises, guard }
    }
}

/// Operations of streams, in order.
enum Op {
    /// Table, epoch, number of earlier launches of the table; the address of the counter, if that gives the epoch, and whether a later launch
    /// counts it.
    Launch(usize, u64, usize, Option<(Address, bool)>),
    /// A call of the host.
    Call,
    /// A word becomes a value.
    Write(u64, u64),
    /// A foreign kernel with a number of blocks.
    Busy(u32),
}

/// Devices, streams and their operations.
struct Program<'a> {
    tables: &'a [Table],
    /// Maximum number of resident blocks of each device.
    max_blocks: Vec<u32>,
    /// The device of each stream.
    streams: Vec<u32>,
    ops: Vec<(u32, Op)>,
}

type Calls<'a> = &'a mut dyn FnMut(usize) -> Result<(), String>;

struct Context<'a> {
    call: Calls<'a>,
    said: CString,
}

/// # Safety
/// `context` points to the `Context` of [`Program::run`], which nobody else uses meanwhile.
unsafe extern "C" fn call(context: *mut c_void, op: u32) -> *const c_char {
    // SAFETY: the caller promises that `context` points to a `Context` that nobody else uses meanwhile.
    let context = unsafe { &mut *context.cast::<Context<'_>>() };
    let ended = catch_unwind(AssertUnwindSafe(|| (context.call)(op as usize)));
    match ended.unwrap_or_else(|_| Err("the test has panicked".to_owned())) {
        Ok(()) => std::ptr::null(),
        Err(wrong) => {
            context.said = CString::new(wrong).expect("a text");
            context.said.as_ptr()
        }
    }
}

impl Program<'_> {
    /// Runs the program under a seed. Calls `call` for each [`Op::Call`], with its index among the
    /// operations. An error describes what is wrong.
    fn run(&self, machine: &Machine, seed: u64, calls: Calls<'_>) -> Result<(), String> {
        let of = |&(stream, ref op): &(u32, Op)| {
            let none = OpOf {
                kind: 1,
                stream,
                table: 0,
                blocks: 0,
                word: 0,
                value: 0,
                counter: 0,
                later: 0,
                argument: Aligned::default(),
            };
            match *op {
                Op::Launch(table, value, launch, counter) => {
                    let argument = self.tables[table].argument.of_launch(launch);
                    // SAFETY: both have 128 bytes (asserted beside `Argument`) and consist of integers without padding.
                    let argument = unsafe { std::mem::transmute::<Argument, Aligned>(argument) };
                    let blocks = self.tables[table].blocks;
                    let table = 2 * table as u32 + (value % 2) as u32;
                    let (counter, later) = counter.map_or((0, 0), |(at, later)| (at, u64::from(later)));
                    OpOf { kind: 0, table, blocks, value, counter, later, argument, ..none }
                }
                Op::Call => none,
                Op::Write(word, value) => OpOf { kind: 2, word, value, ..none },
                Op::Busy(blocks) => OpOf { kind: 3, blocks, ..none },
            }
        };
        let ops: Vec<OpOf> = self.ops.iter().map(of).collect();
        let tables: Vec<TableOf> =
            self.tables.iter().flat_map(|table| [0, 1].map(|work| table.of(work))).collect();
        let on: Vec<StreamOf> = self.streams.iter().map(|&device| StreamOf { device, unused: 0 }).collect();
        let mut context = Context { call: calls, said: CString::default() };
        let setting = Setting {
            seed,
            threads: machine.threads,
            devices: self.max_blocks.len() as u32,
            streams: on.len() as u32,
            tables: tables.len() as u32,
            max_blocks: self.max_blocks.as_ptr(),
            on: on.as_ptr(),
            of: tables.as_ptr(),
            ops: ops.as_ptr(),
            op_count: ops.len() as u32,
            unused: 0,
            call,
            context: (&raw mut context).cast(),
        };
        let library = machine.library.lock().unwrap_or_else(PoisonError::into_inner);
        type Run = unsafe extern "C" fn(*const Setting) -> *const c_char;
        // SAFETY: `machine.cc` declares `run_machine` with this type. All that `setting` points to lives until the call
        // returns. The tables and words have memory that the caller of `run` holds, and the machine checks every access
        // of the kernel against it. The string that is returned is a static one, which nobody else changes while
        // `library` is locked.
        unsafe {
            let wrong = library.get::<Run>(b"run_machine\0").expect("it is there")(&setting);
            match wrong.is_null() {
                true => Ok(()),
                false => Err(CStr::from_ptr(wrong).to_string_lossy().into_owned()),
            }
        }
    }
}
