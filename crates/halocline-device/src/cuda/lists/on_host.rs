//! Runs the kernels themselves on the CPU, with one fiber per thread of each block, in orders that seeds select, and checks each access
//! (see `machine.cc`). The results are compared with those of the host's lists.
//!
//! `HALOCLINE_SEED` runs one seed only.

use super::pass::{Kernel, Launch, Plan, Shape, Split};
use crate::cuda::table::on_host::compile;
use crate::cuda::table::on_host::numbers::Numbers;
use crate::driver::Address;
use crate::host;
use crate::lists::{Finds, Found, ListSpec};
use crate::sim::chosen;
use halocline_plan::ElementType;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Few threads and bins: many blocks and passes are fast.
const SMALL: Shape = Shape { threads: 64, items: 8, digit: 4 };

#[repr(C)]
struct Range {
    begin: u64,
    end: u64,
    is_written: u64,
}

#[repr(C)]
struct Setting {
    seed: u64,
    kernel: unsafe extern "C" fn(Split),
    split: *const Split,
    ranges: *const Range,
    range_count: u32,
    threads: u32,
    blocks: u32,
    unused: u32,
}

/// The kernels, compiled for a shape.
struct Machine {
    shape: Shape,
    library: Mutex<Library>,
}

impl Machine {
    fn new(shape: Shape, change: impl Fn(String) -> String) -> Option<Self> {
        let replaced = |text: String, from: &str, to: String| {
            assert!(text.contains(from), "the kernels have no {from:?}");
            text.replace(from, &to)
        };
        let text = change(crate::cuda::LIST_KERNELS.to_owned());
        let text = replaced(text, "THREADS = 512;", format!("THREADS = {};", shape.threads));
        let text = replaced(text, "DIGIT = 8;", format!("DIGIT = {};", shape.digit));
        // The argument has space for 256 ranks all the same.
        let text = replaced(text, "u32 ranks[BINS]; // ascending", "u32 ranks[256];".to_owned());
        let text = format!("{}{text}", include_str!("shim.h"));
        let checked: &[&str] = &["-O1", "-fsanitize=thread", "-Wno-unknown-pragmas"];
        let library = compile::library(&[(&text, checked), (include_str!("machine.cc"), &["-O2"])])?;
        Some(Self { shape, library: Mutex::new(library) })
    }

    /// With few threads; `None` if there is no compiler.
    fn small() -> Option<&'static Self> {
        static THIS: OnceLock<Option<Machine>> = OnceLock::new();
        THIS.get_or_init(|| Self::new(SMALL, |text| text)).as_ref()
    }

    fn launch(&self, launch: &Launch, ranges: &[Range], seed: u64) -> Result<(), String> {
        let library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `machine.cc` and the kernels have functions of these types; the kernels take a `Split` of the same layout.
        let (kernel, run) = unsafe {
            let kernel = library.get::<unsafe extern "C" fn(Split)>(launch.kernel.name().as_bytes());
            let run = library.get::<unsafe extern "C" fn(*const Setting) -> *const c_char>(b"run_launch");
            (*kernel.expect("a kernel"), *run.expect("the machine"))
        };
        let setting = Setting {
            seed,
            kernel,
            split: &raw const launch.split,
            ranges: ranges.as_ptr(),
            range_count: ranges.len() as u32,
            threads: self.shape.threads,
            blocks: launch.blocks,
            unused: 0,
        };
        // SAFETY: the machine refuses accesses outside the ranges, which the caller keeps. The lock makes this the only run.
        let wrong = unsafe { run(&raw const setting) };
        // SAFETY: it is null, or a text that stays until the next run.
        let wrong =
            (!wrong.is_null()).then(|| unsafe { CStr::from_ptr(wrong) }.to_string_lossy().into_owned());
        wrong.map_or(Ok(()), |wrong| Err(format!("{}: {wrong}", launch.kernel.name())))
    }

    /// Makes a list with the kernels, and returns it with its results. Memory is that of vectors, aligned to 16 bytes.
    fn find(&self, case: &Case, seed: u64) -> Result<(Found, Vec<u8>), String> {
        let finds = case.finds();
        let (keys, target) = (aligned(&case.keys), aligned(&vec![0xEE; case.capacity * case.target.size()]));
        let mut spec = ListSpec {
            keys: address(&keys),
            key: case.key,
            count: case.count() as u64,
            finds,
            target: address(&target),
            capacity: case.capacity as u64,
            scratch: 0,
        };
        let plan =
            Plan::new(&spec, spec.bytes(0).map_err(|error| error.to_string())?, &self.shape, case.processors);
        let mut scratch = aligned(&vec![0xEE; plan.scratch()]);
        scratch[..plan.cleared().div_ceil(16)].fill(0);
        spec.scratch = address(&scratch);
        let range = |memory: &[u128], bytes: usize, is_written| {
            let begin = address(memory);
            Range { begin, end: begin + bytes as u64, is_written }
        };
        let ranges = [
            range(&keys, case.keys.len(), 0),
            range(&target, case.capacity * case.target.size(), 1),
            range(&scratch, plan.scratch(), 1),
        ];
        for (number, launch) in (0..).zip(plan.launches(&spec)) {
            self.launch(&launch, &ranges, seed.wrapping_add(number))?;
        }
        let words: Vec<u64> =
            bytes_of(&scratch).as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let found = Found::of_words(&words[..finds.words()]);
        Ok((found, bytes_of(&target)[..case.capacity * case.target.size()].to_vec()))
    }
}

fn aligned(bytes: &[u8]) -> Vec<u128> {
    let chunks = bytes.chunks(16).map(|chunk| {
        let mut all = [0; 16];
        all[..chunk.len()].copy_from_slice(chunk);
        u128::from_ne_bytes(all)
    });
    // Its address is exposed below.
    chunks.chain([0]).collect()
}

fn address(memory: &[u128]) -> Address {
    memory.as_ptr().expose_provenance() as Address
}

fn bytes_of(memory: &[u128]) -> Vec<u8> {
    memory.iter().flat_map(|chunk| chunk.to_ne_bytes()).collect()
}

/// A list to make.
#[derive(Debug)]
struct Case {
    keys: Vec<u8>,
    key: ElementType,
    target: ElementType,
    capacity: usize,
    /// None: unique ids.
    owned: Option<(Vec<u32>, u64)>,
    /// The cells of all ranks but the first one.
    is_halo: bool,
    processors: u32,
}

impl Case {
    fn finds(&self) -> Finds<'_> {
        match &self.owned {
            Some((ranks, size)) if self.is_halo => {
                Finds::Halo { rank: ranks[0], size: *size, index: self.target }
            }
            Some((ranks, size)) => Finds::Owned { ranks, size: *size, index: self.target },
            None => Finds::Unique,
        }
    }

    fn count(&self) -> usize {
        self.keys.len() / self.key.size()
    }

    /// Random keys below a limit, in runs; some are not valid owners.
    fn any(count: usize, shape: &Shape, numbers: &mut Numbers) -> Self {
        let key = [ElementType::I32, ElementType::U32, ElementType::I64, ElementType::U64][numbers.below(4)];
        let is_unique = numbers.below(2) == 0;
        let size = [1, 2, 5, 3 * (1 << shape.digit)][numbers.below(4)];
        let step = [1, 1 << 20, 0x1_0000_0001_u64][numbers.below(3)];
        let (mut keys, mut now) = (Vec::new(), 0);
        let run = 1 + numbers.below(9);
        let bad = if numbers.below(3) == 0 { 1 + numbers.below(2 * count + 1) } else { 0 };
        for cell in 0..count {
            if numbers.below(run) == 0 {
                now = numbers.below(size) as u64;
            }
            let id = if is_unique { now.wrapping_mul(step).wrapping_sub(step) } else { now };
            let id = if !is_unique && cell + 1 == bad { u64::MAX } else { id };
            keys.extend_from_slice(&id.to_ne_bytes()[..key.size()]);
        }
        let is_chosen: Vec<bool> = (0..size).map(|_| numbers.below(4) > 0).collect();
        let all = numbers.below(2) == 0;
        let ranks: Vec<u32> = (0..size as u32).filter(|&rank| all || is_chosen[rank as usize]).collect();
        let is_halo = !ranks.is_empty() && numbers.below(4) == 0;
        let index = [ElementType::I32, ElementType::U64][numbers.below(2)];
        let capacity = if numbers.below(4) == 0 { numbers.below(count + 1) } else { count };
        let owned = (!is_unique).then_some((ranks, size as u64));
        let target = if is_unique { key } else { index };
        Self { keys, key, target, capacity, owned, is_halo, processors: 1 + numbers.below(2) as u32 }
    }
}

/// The kernels and the host find the same.
fn compare(machine: &Machine, case: &Case, seed: u64) {
    let (found, list) = machine.find(case, seed).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut wanted = vec![0xEE; list.len()];
    let expected = host::find_list(&case.keys, case.key, &case.finds(), &mut wanted);
    assert_eq!(found, expected, "{:?} {:?}", case.key, case.owned);
    assert!(list == wanted, "{} keys of {:?}: another list", case.count(), case.key);
}

#[test]
fn kernels_and_host_make_the_same_lists() {
    let Some(machine) = Machine::small() else { return };
    let tile = (SMALL.threads * SMALL.items) as usize;
    let sizes = [0, 1, 31, 32, 33, tile - 1, tile, tile + 1, 3 * tile, 16 * tile + 7, 19 * tile + 1];
    for seed in chosen(0..44) {
        println!("HALOCLINE_SEED={seed}");
        let mut numbers = Numbers::new(seed);
        let case = Case::any(sizes[seed as usize % sizes.len()], &SMALL, &mut numbers);
        compare(machine, &case, seed);
    }
}

#[test]
fn the_kernels_with_the_block_size_of_gpus_make_the_same_lists() {
    let Some(machine) = Machine::new(Shape::GPU, |text| text) else { return };
    let mut numbers = Numbers::new(5);
    for seed in chosen(0..2) {
        compare(&machine, &Case::any(5000, &Shape::GPU, &mut numbers), seed);
    }
}

/// A missing barrier or a lost order is found.
#[test]
fn wrong_kernels_are_found() {
    let mutations = [
        ("    __syncwarp();\n    if (bin != NONE && lower == 0)", "    if (bin != NONE && lower == 0)"),
        (
            "  if (thread == THREADS - 1) shared.kept = begin + own;\n  __syncthreads();",
            "  if (thread == THREADS - 1) shared.kept = begin + own;",
        ),
        ("  return before;\n}", "  return before + (lane == 7 && warp == 0);\n}"),
        ("if (place >= split.capacity) return;", ""),
    ];
    for (from, to) in mutations {
        let mutated = |text: String| {
            assert!(text.contains(from), "the kernels have no {from:?}");
            text.replacen(from, to, 1)
        };
        let Some(machine) = Machine::new(SMALL, mutated) else { return };
        let is_right = (0..6).all(|seed| {
            let mut numbers = Numbers::new(seed);
            let mut case = Case::any(1200, &SMALL, &mut numbers);
            while case.owned.is_none() {
                case = Case::any(1200, &SMALL, &mut numbers);
            }
            case.capacity = case.capacity.min(40);
            let mut wanted = vec![0xEE; case.capacity * case.target.size()];
            let expected = host::find_list(&case.keys, case.key, &case.finds(), &mut wanted);
            machine.find(&case, seed).is_ok_and(|made| made == (expected, wanted))
        });
        assert!(!is_right, "nothing is found without {from:?}");
    }
}

#[test]
fn every_kernel_has_a_name_and_a_number() {
    for (number, kernel) in Kernel::ALL.iter().enumerate() {
        assert_eq!(kernel.number(), number);
        assert!(crate::cuda::LIST_KERNELS.contains(kernel.name().split('_').nth(1).expect("a word")));
    }
}
