//! GPU times of packing and copying. `gpu/one` and `gpu/two` run it on machines
//! with GPUs.

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/arrays/mod.rs"]
mod arrays;
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
#[path = "../tests/cuda/gpu/mod.rs"]
mod gpu;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/suite/mod.rs"]
mod suite;

use gpu::{Raw, Rig};
use halocline_device::{CopyTable, Device, DeviceError, Memory, Priority, Stream, TablePart, TableSpec};
use halocline_plan::copy::{AxisLayout, CellLayout, CopyOp, End, copy_op, copy_op_of_two};
use halocline_plan::{AxisMap, BoxCells, Cells, ElementType, Transfer};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use suite::Rig as _;

type Result<T> = std::result::Result<T, DeviceError>;

/// Number of arrays, large enough that they do not stay in the GPU's cache between rounds.
const SETS: usize = 8;
const FIELDS: usize = 8;

fn main() -> ExitCode {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => return gpu::skipped("all measurements on GPUs", &why),
    };
    println!("{}", rig.describe());
    match measure(&rig) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rig: &Rig) -> Result<()> {
    let mut report = Vec::new();
    // Streams wait for work that is issued to others later, so nothing may be freed meanwhile.
    let _waiting = rig.devices()[0].begin_waiting();
    // The driver's graph functions need a current context.
    let raw = Raw::new();
    let primary = raw.made("cuDevicePrimaryCtxRetain", 0, 0);
    raw.call("cuCtxPushCurrent_v2", primary, 0, 0);
    for (cells, halo) in [(128, 1), (128, 3), (256, 3)] {
        structured(rig, cells, halo, &mut report)?;
    }
    unstructured(rig, &mut report)?;
    turned(rig, &mut report)?;
    if rig.gpus.len() == 2 {
        peer(rig, &mut report)?;
    }
    println!("\n{:<74} {:>9} {:>9} {:>9}", "what", "us", "GB/s", "of copy");
    for row in &report {
        println!("{row}");
    }
    Ok(())
}

fn row(what: &str, time: f64, bytes: Option<usize>, copy: Option<f64>) -> String {
    // A copy reads and writes each byte; both count.
    let rate = bytes.map_or(String::new(), |bytes| format!("{:.0}", 2.0 * bytes as f64 / time / 1e3));
    let share = copy.map_or(String::new(), |copy| format!("{:.2}", copy / time));
    format!("{what:<74} {time:>9.2} {rate:>9} {share:>9}")
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Time of one of many consecutive calls on a stream, device and launch together.
fn steady(stream: &Stream, count: usize, call: impl Fn(usize) -> Result<()>) -> Result<f64> {
    let round = || -> Result<f64> {
        let begin = Instant::now();
        (0..count).try_for_each(&call)?;
        stream.synchronise()?;
        Ok(micros(begin.elapsed()) / count as f64)
    };
    round()?;
    Ok(median((0..7).map(|_| round()).collect::<Result<_>>()?))
}

fn one_table(device: &Device, ops: &[CopyOp], raises: &[u64], source: u64, target: u64) -> Result<CopyTable> {
    let parts = [TablePart { waits: &[], ops, raises, ..TablePart::default() }];
    device.upload(&TableSpec {
        parts: &parts,
        sources: &[source],
        targets: &[target],
        ..TableSpec::default()
    })
}

/// A graph of launches.
struct Graph {
    raw: Raw,
    exec: usize,
}

impl Graph {
    /// Captures the work issued to the streams: `others` start after the first stream, which waits for them
    /// at the end.
    fn capture(stream: &Stream, others: &[Stream], give: impl Fn(usize) -> Result<()>) -> Result<Self> {
        let raw = Raw::new();
        let events = stream.device().events();
        raw.call("cuStreamBeginCapture_v2", stream.raw().0, 2, 0);
        let begun = events.take()?;
        stream.record(&begun)?;
        others.iter().try_for_each(|other| other.wait(&begun))?;
        give(1 + others.len())?;
        for other in others {
            let done = events.take()?;
            other.record(&done)?;
            stream.wait(&done)?;
        }
        let mut graph = 0usize;
        raw.call("cuStreamEndCapture", stream.raw().0, (&raw mut graph).expose_provenance(), 0);
        let exec = raw.made("cuGraphInstantiateWithFlags", graph, 0);
        raw.call("cuGraphDestroy", graph, 0, 0);
        Ok(Self { raw, exec })
    }

    fn launch(&self, stream: &Stream) -> Result<()> {
        self.raw.call("cuGraphLaunch", self.exec, stream.raw().0, 0);
        Ok(())
    }
}

/// The 26 regions that a domain of `cells`^3 sends, and their targets if the domain is periodic and alone.
fn regions(cells: usize, halo: usize) -> Vec<Transfer> {
    let side = |along: i64, source: bool| match (along, source) {
        (-1, true) => (0, halo),
        (1, true) => (cells as i64 - halo as i64, halo),
        (-1, false) => (cells as i64, halo),
        (1, false) => (-(halo as i64), halo),
        _ => (0, cells),
    };
    let around = (0..27i64).map(|n| [n / 9 - 1, n / 3 % 3 - 1, n % 3 - 1]).filter(|way| *way != [0; 3]);
    let cells_of = |way: [i64; 3], source: bool| {
        let sides = way.map(|along| side(along, source));
        Cells::Box(BoxCells { low: sides.map(|s| s.0).to_vec(), extent: sides.map(|s| s.1).to_vec() })
    };
    let transfer = |way| {
        let (source, target) = (cells_of(way, true), cells_of(way, false));
        Transfer { from: 0, to: 0, source, target, map: AxisMap::IDENTITY, is_negated: false }
    };
    around.map(transfer).collect()
}

/// The layout of a field with its halo, and the bytes from one field to the next.
fn layout(cells: usize, halo: usize) -> (CellLayout, usize) {
    let extent = cells + 2 * halo;
    let strides = [extent * extent * 8, extent * 8, 8];
    let axes = strides.map(|s| AxisLayout { stride: s as isize, origin: halo as i64, extent }).to_vec();
    let array = (extent * extent * extent * 8).next_multiple_of(256);
    (CellLayout { element: ElementType::F64, units: 1, name: None, axes, extra: Vec::new() }, array)
}

/// Position of a region along each axis.
type Way = [i64; 3];

/// Copies from owned cells directly to halo cells. Opposite faces of short rows are joined, as between any
/// two domains that share both.
fn in_place(transfers: &[Transfer], layout: &CellLayout, fields: usize, array: usize) -> Vec<(Way, CopyOp)> {
    let end = (End::Field(0), layout);
    // The middle one is the domain itself.
    let at = |number: usize| &transfers[if number < 13 { number } else { number - 1 }];
    let mut ops = Vec::new();
    for number in (0..27).filter(|number| *number != 13) {
        let way = [number / 9, number / 3 % 3, number % 3].map(|step| step as i64 - 1);
        match way[2] {
            -1 => match copy_op_of_two((at(number), at(number + 2)), end, end) {
                Some(both) => ops.push((way, both)),
                None => ops.extend([number, number + 2].map(|n| (way, copy_op(at(n), end, end)))),
            },
            0 => ops.push((way, copy_op(at(number), end, end))),
            _ => {}
        }
    }
    let of_field = |field: usize| {
        ops.iter().map(move |(way, op)| {
            let mut op = op.clone();
            op.source_offset += (field * array) as isize;
            op.target_offset += (field * array) as isize;
            (*way, op)
        })
    };
    (0..fields).flat_map(of_field).collect()
}

fn structured(rig: &Rig, cells: usize, halo: usize, report: &mut Vec<String>) -> Result<()> {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let others: Vec<Stream> = (0..7).map(|_| device.stream(Priority::Highest)).collect::<Result<_>>()?;
    let (layout, array) = layout(cells, halo);
    let fields: Vec<Memory> = (0..SETS).map(|_| device.allocate(FIELDS * array)).collect::<Result<_>>()?;
    let transfers = regions(cells, halo);
    // Region by region, with all fields of one region together, as in messages to 26 peers.
    let mut packs: Vec<Vec<CopyOp>> = Vec::new();
    let mut bytes = 0;
    for transfer in &transfers {
        let mut ops = Vec::new();
        for field in 0..FIELDS {
            let mut op = copy_op(transfer, (End::Field(0), &layout), (End::Message(0, bytes), &layout));
            op.source_offset += (field * array) as isize;
            bytes += op.bytes();
            ops.push(op);
        }
        packs.push(ops);
    }
    let direct: Vec<CopyOp> =
        in_place(&transfers, &layout, FIELDS, array).into_iter().map(|(_, op)| op).collect();
    assert_eq!(direct.iter().map(CopyOp::bytes).sum::<usize>(), bytes);
    let messages: Vec<Memory> = (0..SETS).map(|_| device.allocate(bytes)).collect::<Result<_>>()?;
    let each = |make: &dyn Fn(usize) -> Result<CopyTable>| (0..SETS).map(make).collect::<Result<Vec<_>>>();
    let all: Vec<CopyOp> = packs.concat();
    let pack = each(&|set| one_table(device, &all, &[], fields[set].at(0), messages[set].at(0)))?;
    let unpacks: Vec<CopyOp> = all
        .iter()
        .map(|op| {
            // The same nest in the other direction.
            let mut op = op.clone();
            std::mem::swap(&mut op.source_offset, &mut op.target_offset);
            op.loops.iter_mut().for_each(|l| std::mem::swap(&mut l.source, &mut l.target));
            op
        })
        .collect();
    let unpack = each(&|set| one_table(device, &unpacks, &[], messages[set].at(0), fields[set].at(0)))?;
    let whole = [suite::operations::line(0, 0, bytes)];
    let plain = each(&|set| one_table(device, &whole, &[], fields[set].at(0), messages[set].at(0)))?;
    let direct = each(&|set| one_table(device, &direct, &[], fields[set].at(0), fields[set].at(0)))?;
    let name = format!("{cells}^3, halo {halo}, {FIELDS} f64 fields: ");
    for (sets, kind) in [(SETS, "from memory"), (1, "from cache")] {
        // SAFETY: the memory and the tables live until the streams are synchronised.
        unsafe {
            let copy = steady(&stream, 64, |at| {
                stream.copy(messages[at % sets].at(0), fields[at % sets].at(0), bytes)
            })?;
            let mut add = |what: &str, time: f64| {
                report.push(row(&format!("{name}{what}, {kind}"), time, Some(bytes), Some(copy)));
            };
            add(&format!("device copy of the same {:.1} MB", bytes as f64 / 1e6), copy);
            add("the same by a table", steady(&stream, 64, |at| stream.launch(&plain[at % sets], 1))?);
            add("pack, one launch", steady(&stream, 64, |at| stream.launch(&pack[at % sets], 1))?);
            let graph = Graph::capture(&stream, &[], |_| {
                (0..16).try_for_each(|at| stream.launch(&pack[at % sets], 1))
            })?;
            add("pack, one launch, in a graph", steady(&stream, 8, |_| graph.launch(&stream))? / 16.0);
            add("unpack, one launch", steady(&stream, 64, |at| stream.launch(&unpack[at % sets], 1))?);
            add(
                "periodic halo in place, one launch",
                steady(&stream, 64, |at| stream.launch(&direct[at % sets], 1))?,
            );
            // Launches of one region, or of one region and field, each: in sequence, and eight at a time.
            let by_region: Vec<Vec<CopyTable>> = (0..sets)
                .map(|set| {
                    let table = |ops: &Vec<CopyOp>| {
                        one_table(device, ops, &[], fields[set].at(0), messages[set].at(0))
                    };
                    packs.iter().map(table).collect()
                })
                .collect::<Result<_>>()?;
            let by_field: Vec<Vec<CopyTable>> = (0..sets)
                .map(|set| {
                    let table = |op: &CopyOp| {
                        one_table(
                            device,
                            std::slice::from_ref(op),
                            &[],
                            fields[set].at(0),
                            messages[set].at(0),
                        )
                    };
                    all.iter().map(table).collect()
                })
                .collect::<Result<_>>()?;
            for (tables, what) in [(&by_region, "26 launches"), (&by_field, "208 launches")] {
                for (others, how) in [(&others[..0], "in a row"), (&others[..], "8 at a time")] {
                    let graphs: Vec<Graph> = tables
                        .iter()
                        .map(|tables| {
                            Graph::capture(&stream, others, |streams| {
                                tables.iter().enumerate().try_for_each(|(at, table)| match at % streams {
                                    0 => stream.launch(table, 1),
                                    other => others[other - 1].launch(table, 1),
                                })
                            })
                        })
                        .collect::<Result<_>>()?;
                    let time = steady(&stream, 16, |at| graphs[at % sets].launch(&stream))?;
                    add(&format!("pack, graph of {what} {how}"), time);
                }
            }
        }
    }
    Ok(())
}

fn unstructured(rig: &Rig, report: &mut Vec<String>) -> Result<()> {
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    for (count, levels) in [(200_000usize, 80usize), (2_000_000, 1)] {
        let total = 4 * count;
        let layout = CellLayout {
            element: ElementType::F64,
            units: 1,
            name: None,
            axes: vec![AxisLayout { stride: 8 * levels as isize, origin: 0, extent: total }],
            extra: if levels == 1 { Vec::new() } else { vec![(levels, 8)] },
        };
        // Scattered, in ascending order, like the cells at the edge of a partition.
        let from: Vec<u32> = (0..count as u32).map(|at| 4 * at + at % 3).collect();
        let source = Cells::from_indices(from);
        let target = Cells::from_indices(0..count as u32);
        let transfer = Transfer { from: 0, to: 0, source, target, map: AxisMap::IDENTITY, is_negated: false };
        let op = copy_op(&transfer, (End::Field(0), &layout), (End::Message(0, 0), &layout));
        let bytes = op.bytes();
        let (field, message) = (device.allocate(total * levels * 8)?, device.allocate(bytes)?);
        let table = one_table(device, &[op], &[], field.at(0), message.at(0))?;
        let name = format!("{count} of {total} listed cells x {levels} f64: ");
        // SAFETY: the memory and the tables live until the streams are synchronised.
        unsafe {
            let copy = steady(&stream, 64, |_| stream.copy(message.at(0), field.at(0), bytes))?;
            let pack = steady(&stream, 64, |_| stream.launch(&table, 1))?;
            report.push(row(&format!("{name}device copy of the same bytes"), copy, Some(bytes), Some(copy)));
            report.push(row(&format!("{name}pack, one launch"), pack, Some(bytes), Some(copy)));
        }
    }
    Ok(())
}

/// Edges of tiles of 96 x 96 cells, 3 cells wide, of 32 fields, beside the first of each kind, which is not turned: halo columns whose
/// sources are columns or rows, then halo rows. The levels of a cell lie side by side.
fn turned(rig: &Rig, report: &mut Vec<String>) -> Result<()> {
    const TILE: usize = 96;
    const FIELDS: usize = 32;
    let [device, _] = rig.devices();
    let stream = device.stream(Priority::Highest)?;
    let turn = |swapped, flipped| AxisMap { swapped, flipped };
    let edges = [
        ("columns from columns", AxisMap::IDENTITY, false, [TILE, 3]),
        ("columns from rows, a quarter turn right", turn(true, [true, false]), false, [TILE, 3]),
        ("columns from columns, flipped", turn(false, [true, true]), false, [TILE, 3]),
        ("columns from rows, negated", turn(true, [true, false]), true, [TILE, 3]),
        ("rows from rows", AxisMap::IDENTITY, false, [3, TILE]),
        ("rows from columns, a quarter turn left", turn(true, [false, true]), false, [3, TILE]),
        ("rows from rows, flipped", turn(false, [true, true]), false, [3, TILE]),
        ("rows from rows, flipped and negated", turn(false, [true, true]), true, [3, TILE]),
    ];
    for levels in [80, 1] {
        let array = TILE * TILE * levels * 8;
        let axis = |stride: usize| AxisLayout { stride: stride as isize, origin: 0, extent: TILE };
        let layout = CellLayout {
            element: ElementType::F64,
            units: 1,
            name: None,
            axes: vec![axis(TILE * levels * 8), axis(levels * 8)],
            extra: if levels == 1 { Vec::new() } else { vec![(levels, 8)] },
        };
        let (from, to) = (device.allocate(FIELDS * array)?, device.allocate(FIELDS * array)?);
        let mut straight = 0.0;
        for (at, (name, map, is_negated, extent)) in edges.into_iter().enumerate() {
            let cells =
                |extent: [usize; 2]| Cells::Box(BoxCells { low: vec![0, 0], extent: extent.to_vec() });
            let source = cells(if map.swapped { [extent[1], extent[0]] } else { extent });
            let transfer = Transfer { from: 0, to: 1, source, target: cells(extent), map, is_negated };
            let op = copy_op(&transfer, (End::Field(0), &layout), (End::Field(0), &layout));
            let ops = (0..FIELDS).map(|field| {
                let mut op = op.clone();
                op.source_offset += (field * array) as isize;
                op.target_offset += (field * array) as isize;
                op
            });
            let ops: Vec<CopyOp> = ops.collect();
            let table = one_table(device, &ops, &[], from.at(0), to.at(0))?;
            // SAFETY: the memory and the table live until the stream is synchronised.
            let time = steady(&stream, 64, |_| unsafe { stream.launch(&table, 1) })?;
            straight = if at % 4 == 0 { time } else { straight };
            let bytes = ops.iter().map(CopyOp::bytes).sum();
            let name = format!("{FIELDS} edges of {TILE} x 3 cells, {levels} levels: {name}");
            report.push(row(&name, time, Some(bytes), Some(straight)));
        }
    }
    Ok(())
}

/// One direction over the link, and a round trip of flags.
fn peer(rig: &Rig, report: &mut Vec<String>) -> Result<()> {
    let [here, there] = rig.devices();
    let stream = here.stream(Priority::Highest)?;
    for bytes in [64 << 10, 1 << 20, 64 << 20] {
        let (local, remote) = (here.allocate(bytes)?, there.allocate(bytes)?);
        let push = one_table(here, &[suite::operations::line(0, 0, bytes)], &[], local.at(0), remote.at(0))?;
        let pull = one_table(here, &[suite::operations::line(0, 0, bytes)], &[], remote.at(0), local.at(0))?;
        // SAFETY: the memory and the tables live until the stream is synchronised.
        let times = unsafe {
            [
                ("cuMemcpyAsync", steady(&stream, 64, |_| stream.copy(remote.at(0), local.at(0), bytes))?),
                ("pushed by a table", steady(&stream, 64, |_| stream.launch(&push, 1))?),
                ("pulled by a table", steady(&stream, 64, |_| stream.launch(&pull, 1))?),
            ]
        };
        for (what, time) in times {
            let rate = format!("{:.0}", bytes as f64 / time / 1e3);
            let share = format!("{:.2}", times[0].1 / time);
            let name = format!("to the other GPU, {} KiB: {what}", bytes >> 10);
            report.push(format!("{name:<74} {time:>9.2} {rate:>9} {share:>9}"));
        }
    }
    Ok(())
}
