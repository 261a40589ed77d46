//! What turned edges of patches cost on the host, beside edges that are not turned and a plain copy, and what the decomposition and the
//! pattern of one of a million ranks take. Each copy is checked before it is timed.
//!
//! ```text
//! cargo run --release -p halocline-conformance --example patch_costs
//! ```

use halocline::plan::copy::{CellLayout, CopyOp, End, copy_op};
use halocline::plan::{AxisMap, BoxCells, Cells, DomainShape, Transfer};
use halocline::{ElementType, Halo, Layout, PatchGrid, Quantity};
use halocline_device::host;
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The shortest of many rounds.
const ROUNDS: usize = 200;
/// The least time of a round. The clock counts in steps of tens of nanoseconds.
const LEAST_ROUND: Duration = Duration::from_micros(20);

/// Counts the bytes that are allocated, and the most that ever were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, base: *mut u8, layout: Memory) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is that of the system's allocator, too: it gave the memory.
        unsafe { System.dealloc(base, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The copy of a box to another of the same extents, or turned.
struct Edge {
    name: &'static str,
    map: AxisMap,
    is_negated: bool,
    extent: [usize; 2],
}

/// Seconds of one copy: of the shortest round, which has many copies if they are short.
fn shortest(mut copy: impl FnMut()) -> f64 {
    let mut round = |copies: u32| {
        let begin = Instant::now();
        (0..copies).for_each(|_| copy());
        begin.elapsed()
    };
    let mut copies = 1;
    while round(copies) < LEAST_ROUND {
        copies *= 2;
    }
    (0..ROUNDS).map(|_| round(copies)).min().unwrap_or_default().as_secs_f64() / f64::from(copies)
}

fn operation(edge: &Edge, n: usize, levels: usize) -> Result<CopyOp, Box<dyn Error>> {
    let shape = DomainShape::Regular { first: vec![0; 2], owned: vec![n; 2], halo: vec![(0, 0); 2] };
    let cells = CellLayout::new(&Layout::c_order(ElementType::F64, &[n, n, levels])?, &shape)?;
    let cells_of = |extent: Vec<usize>| Cells::Box(BoxCells { low: vec![0, 0], extent });
    let target = edge.extent.to_vec();
    let source = if edge.map.swapped { target.iter().rev().copied().collect() } else { target.clone() };
    let transfer = Transfer {
        from: 0,
        to: 1,
        source: cells_of(source),
        target: cells_of(target),
        map: edge.map,
        is_negated: edge.is_negated,
    };
    Ok(copy_op(&transfer, (End::Field(0), &cells), (End::Field(1), &cells)))
}

/// Times the copies of an edge of a tile of n x n cells, and returns GB/s.
fn rate(edge: &Edge, n: usize, levels: usize) -> Result<f64, Box<dyn Error>> {
    let op = operation(edge, n, levels)?;
    let count = n * n * levels;
    let source: Vec<f64> = (0..count).map(|at| at as f64 + 1.0).collect();
    let mut target = vec![0.0f64; count];
    let (from, to) = (source.as_ptr().cast::<u8>(), target.as_mut_ptr().cast::<u8>());
    let ops = [op];
    // SAFETY: both arrays have as many cells as the layout of the operation, and nothing else uses them.
    let mut copy = || unsafe { host::copy(black_box(&ops), &[from, from], &[to, to]) };
    copy();
    let sign = if edge.is_negated { -1.0 } else { 1.0 };
    let mut wrong = 0;
    ops[0].for_each_block(|source_at, target_at, bytes| {
        for at in 0..bytes / 8 {
            let value = sign * source[source_at as usize / 8 + at];
            // SAFETY: within the target; the copy is over.
            wrong +=
                usize::from(unsafe { to.cast::<f64>().add(target_at as usize / 8 + at).read() } != value);
        }
    });
    if wrong > 0 {
        return Err(format!("{}: {wrong} cells are wrong", edge.name).into());
    }
    let seconds = shortest(&mut copy);
    Ok(ops[0].bytes() as f64 / seconds / 1e9)
}

fn turn(swapped: bool, flipped: [bool; 2]) -> AxisMap {
    AxisMap { swapped, flipped }
}

fn edge(name: &'static str, map: AxisMap, is_negated: bool, extent: [usize; 2]) -> Edge {
    Edge { name, map, is_negated, extent }
}

/// Edges of a tile of 96 x 96 cells that are so many cells wide: five that become columns, and five that become rows.
fn edges(width: usize) -> [Edge; 10] {
    let (along, across) = ([96, width], [width, 96]);
    [
        edge("columns to columns", AxisMap::IDENTITY, false, along),
        edge("rows to columns, a quarter turn right", turn(true, [true, false]), false, along),
        edge("columns to columns, flipped", turn(false, [true, true]), false, along),
        edge("rows to columns, negated", turn(true, [true, false]), true, along),
        edge("columns to columns, flipped and negated", turn(false, [true, true]), true, along),
        edge("rows to rows", AxisMap::IDENTITY, false, across),
        edge("columns to rows, a quarter turn left", turn(true, [false, true]), false, across),
        edge("rows to rows, flipped", turn(false, [true, true]), false, across),
        edge("columns to rows, negated", turn(true, [false, true]), true, across),
        edge("rows to rows, flipped and negated", turn(false, [true, true]), true, across),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    for (levels, width) in [(80, 3), (1, 3), (1, 2), (1, 1)] {
        println!(
            "edges of {width} x 96 cells, {levels} levels of 8 bytes: GB/s, and time of the first of its kind"
        );
        let mut first = 0.0;
        for (at, edge) in edges(width).iter().enumerate() {
            let rate = rate(edge, 96, levels)?;
            first = if at % 5 == 0 { rate } else { first };
            println!("{:>40} {rate:>8.2} {:>6.2}", edge.name, first / rate);
        }
    }
    println!("rows of 1024 cells, 1 level, 512 of them: GB/s, share of a plain copy");
    let plain = rate(&edge("plain", AxisMap::IDENTITY, false, [512, 1024]), 1024, 1)?;
    let flipped = rate(&edge("flipped", turn(false, [false, true]), false, [512, 1024]), 1024, 1)?;
    let negated = rate(&edge("negated", turn(false, [false, true]), true, [512, 1024]), 1024, 1)?;
    println!("{:>40} {plain:>8.2}", "copied");
    println!("{:>40} {flipped:>8.2} {:>6.2}", "flipped", flipped / plain);
    println!("{:>40} {negated:>8.2} {:>6.2}", "flipped and negated", negated / plain);
    one_rank_of_a_million()
}

/// Prints what one rank needs to know its own part, from the name of the grid on.
fn one_rank_of_a_million() -> Result<(), Box<dyn Error>> {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let begin = Instant::now();
    let cut = PatchGrid::cubed_sphere(36_864)?.decompose(1_000_000)?;
    let decomposed = begin.elapsed();
    let plan = cut.pattern_of(123_456, &Quantity::cells(), &Halo::uniform(3))?;
    let all = begin.elapsed();
    let most = MOST.load(Ordering::Relaxed) - before;
    println!(
        "rank 123,456 of 1,000,000 on 6 x 36,864^2 cells: {} domains, {} peers, decomposed in {decomposed:?}, pattern in {:?}, \
         at most {most} bytes",
        plan.domains.len(),
        plan.peers.len(),
        all - decomposed
    );
    Ok(())
}
