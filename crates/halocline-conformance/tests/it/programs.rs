//! Compiled programs and exchanges on one stream of simulated devices: a program, an exchange, a program, without a wait of the host. The
//! programs are a C library that launches a simulated kernel.

use halocline::device::sim::{Kernel, Options, Run, World, explore, run};
use halocline::device::{Address, Priority, RawStream};
use halocline::{Communicator, Decomposed, Device, DeviceArray, HaloExchange, RegularGrid, Stream};
use halocline_conformance::device_fixtures::devices;
use halocline_conformance::simulated::{options, run_ranks};
use halocline_conformance::{Outcome, ensure};
use halocline_program::{ArrayView, Device as Place, Given, Program, RawArray, ScalarType, Signature};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const SEEDS: u64 = 100;
const ENOUGH: u64 = 500;
const CELLS: usize = 10;
const STEPS: usize = 4;

/// A piece of order that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The program is not called on the stream of the exchange.
    Stream,
    /// The second program does not wait for the exchange.
    Wait,
}

const CODE: &str = "
    static void (*launch)(void *, long, void *);
    void hook(void *function) { launch = function; }
    void program(void *t, long n, void *stream) { launch(t, n, stream); }";

const MANIFEST: &str = r#"{"format": 1, "program": "program", "interface": "c",
    "arguments": [{"kind": "array", "name": "t", "type": "uint64", "device": "gpu", "dimensions": [{"extent": "n", "stride": 1}]}],
    "symbols": [{"name": "n", "type": "int64"}], "parameters": ["t", "n", "stream"], "stream": "stream"}"#;

/// The library, in a folder of its own.
fn library() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("code.c"), folder.path().join("libcode.so"));
    std::fs::write(&source, CODE).unwrap();
    let compiled =
        Command::new("cc").args(["-O1", "-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(&source).output();
    let compiled = compiled.expect("these tests need a C compiler, `cc`");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // SAFETY: the library has no constructors.
    let open = unsafe { libloading::Library::new(&library) }.unwrap();
    type Hook = unsafe extern "C" fn(extern "C" fn(Address, i64, usize));
    // SAFETY: `hook` has this type; it stores the function, which lives as long as the process.
    unsafe { open.get::<Hook>(b"hook").unwrap()(launch) };
    // It stays open, and with it what it has stored.
    std::mem::forget(open);
    (folder, library)
}

thread_local! {
    /// The world of this thread's rank, and its device.
    static HERE: RefCell<Option<(World, Device)>> = const { RefCell::new(None) };
}

/// The kernel of the program: each owned cell from its neighbours.
extern "C" fn launch(t: Address, n: i64, stream: usize) {
    let (world, device) = HERE.with_borrow(|here| here.clone()).expect("a rank");
    // SAFETY: the simulated device accepts any number.
    let stream = unsafe { device.borrow_stream(RawStream(stream)) }.unwrap();
    let (bytes, n) = (8 * n as usize, n as u64);
    let kernel = Kernel::new("program").reads(t, bytes).writes(t + 8, bytes - 16);
    let body = kernel.body(move |m| {
        let old: Vec<u64> = (0..n).map(|at| m.read(t + 8 * at)).collect();
        for (at, around) in (1..).zip(old.windows(3)) {
            m.write(t + 8 * at, stepped([around[0], around[1], around[2]]));
        }
    });
    world.launch(&stream, body).unwrap();
}

fn stepped([left, own, right]: [u64; 3]) -> u64 {
    left.wrapping_mul(3).wrapping_add(own).wrapping_add(right.wrapping_mul(7))
}

fn start(cell: usize) -> u64 {
    (cell as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The array as an argument.
fn view(t: &DeviceArray<u64>, device: &Device, extents: &'static [isize]) -> Given<'static> {
    // SAFETY: the host does not access the array, which outlives the stream's work.
    let view = unsafe {
        ArrayView::from_raw(RawArray {
            address: std::ptr::without_provenance_mut(t.address() as usize),
            element: ScalarType::UInt64,
            extents,
            strides: &[8],
            device: Place::Gpu(device.ordinal()),
            is_writable: true,
        })
    };
    view.into()
}

/// A rank's part of the steps.
fn rank(world: &World, comm: &Communicator, library: &Path, apart: bool, without: Without) -> Outcome {
    let device = devices(world, 2)?[if apart { comm.rank() } else { 0 }].clone();
    HERE.set(Some((world.clone(), device.clone())));
    let pattern = RegularGrid::new([CELLS]).periodic([true]).decompose(comm.size())?.pattern(comm, 1)?;
    let t = DeviceArray::<u64>::zeros(&device, &[CELLS / 2 + 2])?;
    let stream: Stream = device.stream(Priority::Normal)?;
    let domain = pattern.domain()?;
    let global = |at: usize| domain.global(&[at]).map_or(0, |cell| cell[0].rem_euclid(CELLS as i64) as usize);
    t.write(&stream, &(0..t.len()).map(|at| start(global(at))).collect::<Vec<_>>())?;
    let halo = HaloExchange::bind(comm, [(&pattern, &t)])?;
    let signature = Signature::from_json(MANIFEST.as_bytes(), Path::new("manifest"))?;
    // SAFETY: the manifest is the library's.
    let program = unsafe { Program::with_signature(library, signature) }?;
    let given = [view(&t, &device, &[CELLS as isize / 2 + 2])];
    for _ in 0..STEPS {
        match without {
            Without::Stream => program.call(&given)?,
            // SAFETY: the array outlives the stream's work, which is waited for.
            _ => unsafe { program.call_on(&stream, &given) }?,
        }
        let pending = halo.schedule_exchange(&[&stream])?;
        if without != Without::Wait {
            pending.schedule_wait(&stream)?;
        }
    }
    stream.synchronise()?;
    let found = t.read(&stream)?;
    let mut expected: Vec<u64> = (0..CELLS).map(start).collect();
    for _ in 0..STEPS {
        let next = (0..CELLS).map(|at| {
            stepped([expected[(at + CELLS - 1) % CELLS], expected[at], expected[(at + 1) % CELLS]])
        });
        expected = next.collect();
    }
    for at in 0..t.len() {
        ensure!(found[at] == expected[global(at)], "cell {at} of rank {} is wrong", comm.rank());
    }
    Ok(())
}

#[test]
fn a_program_an_exchange_and_a_program_follow_each_other_on_one_stream() {
    let (_folder, library) = library();
    let limited = Options { steps: 60_000, ..options() };
    let play = |world: &World, apart: bool, without: Without| {
        run_ranks(world, 2, |comm| rank(world, comm, &library, apart, without));
    };
    for apart in [false, true] {
        explore(0..SEEDS, &limited, |world| play(world, apart, Without::Nothing));
        for without in [Without::Stream, Without::Wait] {
            let is_found = |run: Run| !run.reports.is_empty();
            let found =
                (0..ENOUGH).find(|seed| is_found(run(*seed, &limited, |world| play(world, apart, without))));
            let found = found.unwrap_or_else(|| panic!("without {without:?}, {ENOUGH} seeds find nothing"));
            println!("without {without:?}: seed {found}");
        }
    }
}
