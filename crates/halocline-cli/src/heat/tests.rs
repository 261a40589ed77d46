//! Runs on thread ranks, on the host and on simulated devices, beside a plain computation without ranks, halos and boxes.

use super::device::{OnDevice, Sweeper, addresses};
use super::domain::{Case, start};
use super::kernels::{Launch, SOURCE};
use super::levels::Host;
use super::simulation::{Heat, Way};
use super::stencil::{All, Block, Real, step, sweep};
use super::verify::{gather, verify};
use crate::error::CommandError;
use crate::verdict::Verdict;
use crate::{on_host, ranks};
use halocline::device::sim::{Kernel, KernelMemory, Options, World};
use halocline::device::{Address, Priority, Stream};
use halocline::{DeviceError, LinkChoice, RegularGrid};
use halocline_trace::device::{Stamp, Stamps};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn case(extents: [usize; 3], periodic: [bool; 3], width: usize, ranks: usize) -> Case {
    let grid = RegularGrid::new(extents).periodic(periodic);
    Case { decomposition: grid.decompose(ranks).unwrap(), periodic, width }
}

/// All cells of each field after `steps`, as rank 0 gathers them.
fn run<T: Real>(case: &Case, fields: u32, steps: usize, overlap: bool) -> Vec<Vec<T>> {
    let results = ranks::as_threads(case.decomposition.ranks(), |comm| -> Result<_, CommandError> {
        let mut heat = Heat::<Host<T>>::new(comm, case, 0..fields)?;
        let halo = heat.bind(comm, LinkChoice::Auto, overlap)?;
        heat.run(&halo, steps, Way { overlap, graph: false }, |_| {})?;
        gather(comm, &heat)
    });
    results.unwrap().swap_remove(0)
}

/// The same, cell by cell on the whole grid.
fn plainly<T: Real>(case: &Case, field: u32, steps: usize) -> Vec<T> {
    let extents = case.extents().map(|n| n as i64);
    let cells = || {
        let [nx, ny, nz] = extents;
        (0..nx).flat_map(move |x| (0..ny).flat_map(move |y| (0..nz).map(move |z| [x, y, z])))
    };
    let mut now: Vec<T> = cells().map(|cell| T::nearest(start(cell, field))).collect();
    for _ in 0..steps {
        let value = |mut cell: [i64; 3]| {
            for axis in 0..3 {
                if case.periodic[axis] {
                    cell[axis] = cell[axis].rem_euclid(extents[axis]);
                }
            }
            if (0..3).any(|axis| !(0..extents[axis]).contains(&cell[axis])) {
                return T::nearest(start(cell, field));
            }
            now[((cell[0] * extents[1] + cell[1]) * extents[2] + cell[2]) as usize]
        };
        let beside = |cell: [i64; 3], axis: usize, by: i64| {
            let mut other = cell;
            other[axis] += by;
            value(other)
        };
        let next =
            |cell| step(value(cell), std::array::from_fn(|axis| [-1, 1].map(|by| beside(cell, axis, by))));
        now = cells().map(next).collect();
    }
    now
}

fn bits<T: Real>(fields: &[Vec<T>]) -> Vec<u64> {
    fields.iter().flatten().map(|&value| Into::<f64>::into(value).to_bits()).collect()
}

#[test]
fn every_decomposition_halo_and_border_gives_the_plain_result_to_the_last_bit() {
    let all = [[false; 3], [true; 3], [true, false, true], [false, true, false]];
    for ranks in 1..=8 {
        for (number, periodic) in all.into_iter().enumerate() {
            let width = 1 + (ranks + number) % 3;
            let case = case([9, 7, 11], periodic, width, ranks);
            // A last round of fewer steps than the halo is wide.
            let steps = 2 * width + 1;
            let due: Vec<Vec<f64>> = (0..2).map(|field| plainly(&case, field, steps)).collect();
            for overlap in [true, false] {
                let found = run::<f64>(&case, 2, steps, overlap);
                assert!(bits(&found) == bits(&due), "{ranks} ranks, {periodic:?}, halo {width}, {overlap}");
            }
        }
    }
}

/// The kernels of a simulated device, each of which declares the cells that it reads and writes.
struct Simulated {
    world: World,
    levels: [Vec<Address>; 2],
    extents: [usize; 3],
}

impl Sweeper for Simulated {
    fn sweep(&self, stream: &Stream, now: usize, blocks: &[Block]) -> Result<(), DeviceError> {
        let [_, ny, nz] = self.extents;
        let cells: Vec<usize> = blocks
            .iter()
            .flat_map(|block| {
                let Block { low, high } = *block;
                let rows = (low[0]..high[0]).flat_map(move |x| (low[1]..high[1]).map(move |y| x * ny + y));
                rows.flat_map(move |row| (low[2]..high[2]).map(move |z| row * nz + z))
            })
            .collect();
        for (&from, &to) in self.levels[now].iter().zip(&self.levels[1 - now]) {
            let at = |base: Address, cell: usize| base + 8 * cell as Address;
            let reach = [1, nz, ny * nz];
            let declare = |kernel: Kernel, &cell: &usize| {
                let kernel = kernel.reads(at(from, cell), 8).writes(at(to, cell), 8);
                let around = reach.iter().flat_map(|by| [cell - by, cell + by]);
                around.fold(kernel, |kernel, cell| kernel.reads(at(from, cell), 8))
            };
            let (kernel, cells) = (cells.iter().fold(Kernel::new("sweep"), declare), cells.clone());
            let body = kernel.body(move |memory| {
                for &cell in &cells {
                    let mut value = |cell: usize| f64::from_bits(memory.read(at(from, cell)));
                    let mut pair = |by: usize| [value(cell - by), value(cell + by)];
                    let pairs = [pair(reach[2]), pair(reach[1]), pair(reach[0])];
                    let next = step(value(cell), pairs);
                    memory.write(at(to, cell), next.to_bits());
                }
            });
            self.world.launch(stream, body)?;
        }
        Ok(())
    }
}

/// Stamps of a simulated device: how many there were before, of any stream.
fn stamp(world: &World) -> Stamp {
    let (world, before) = (world.clone(), Arc::new(AtomicU64::new(1)));
    Box::new(move |stream, at| {
        let before = Arc::clone(&before);
        let body = move |memory: &mut KernelMemory<'_>| {
            memory.write(at, before.fetch_add(1, Ordering::Relaxed));
        };
        world.launch(stream, Kernel::new("stamp").writes(at, 8).body(body))
    })
}

/// Sweeps of a level of fields by the host and by the kernels, as the CPU runs them.
fn compare<T: Real>(kernels: &on_host::Kernels, extents: [usize; 3], blocks: &[Block], fields: usize) {
    let count: usize = extents.iter().product();
    let level = |seed: u32| -> Vec<Vec<T>> {
        let value = |at, field| T::nearest(start([at as i64, 0, 0], field + seed));
        (0..fields as u32).map(|field| (0..count).map(|at| value(at, field)).collect()).collect()
    };
    let (mut from, mut to) = (level(0), level(100));
    let mut due = to.clone();
    for (from, to) in from.iter().zip(&mut due) {
        let from = All { cells: from, extents };
        blocks.iter().for_each(|block| sweep(&from, to, extents, block));
    }
    let addresses = |arrays: &mut Vec<Vec<T>>| -> Vec<Address> {
        arrays.iter_mut().map(|array| array.as_mut_ptr().expose_provenance() as Address).collect()
    };
    let tables = [addresses(&mut from), addresses(&mut to)];
    let places = [0, 1].map(|level: usize| tables[level].as_ptr().expose_provenance() as Address);
    let Launch { marches, grid, threads, sweep } = Launch::new(blocks, extents, fields, places);
    let name = format!("{}_{}", if marches { "march" } else { "boxes" }, T::NAME);
    // SAFETY: tables and arrays live, and the blocks and the cells around them are within the arrays.
    unsafe { kernels.launch(&name, grid, threads, &sweep) };
    assert!(bits(&to) == bits(&due), "{name}, {blocks:?} of {extents:?}, {fields} fields");
}

#[test]
fn the_kernels_do_what_the_host_does_to_the_last_bit() {
    let names = ["march_f64", "march_f32", "boxes_f64", "boxes_f32"];
    let Some(kernels) = on_host::Kernels::compile(SOURCE, "Sweep", &names) else { return };
    for (extents, high, inner) in [
        ([9, 8, 12], [8, 7, 11], Block { low: [2, 2, 2], high: [7, 6, 10] }),
        ([9, 8, 12], [8, 7, 11], Block { low: [1, 2, 4], high: [8, 6, 10] }),
        ([40, 7, 140], [39, 5, 139], Block { low: [3, 1, 3], high: [36, 4, 136] }),
        ([20, 70, 9], [19, 69, 8], Block { low: [2, 2, 4], high: [18, 68, 4] }),
    ] {
        let whole = Block { low: [1; 3], high };
        for fields in [1, 3] {
            for blocks in [vec![whole], whole.without(&inner), vec![inner; usize::from(inner.cells() > 0)]] {
                if !blocks.is_empty() {
                    compare::<f64>(&kernels, extents, &blocks, fields);
                    compare::<f32>(&kernels, extents, &blocks, fields);
                }
            }
        }
    }
}

#[test]
fn results_on_simulated_devices_are_equal_and_ordered() {
    // Traced: the rounds that are stamped at most, and those that are of 5, or of 3 with a halo of two cells.
    // Seeds from 10: a graph replays some rounds, or none where the steps are too few.
    for (seed, ranks, devices, link, traced) in [
        (1, 2, 2, LinkChoice::Auto, None),
        (2, 3, 1, LinkChoice::Auto, None),
        (3, 2, 2, LinkChoice::Message, None),
        (4, 2, 1, LinkChoice::Mailbox, None),
        (5, 2, 2, LinkChoice::Auto, Some((9, 5))),
        (6, 3, 1, LinkChoice::Auto, Some((9, 3))),
        (7, 2, 2, LinkChoice::Message, Some((9, 5))),
        (8, 2, 2, LinkChoice::Auto, Some((2, 2))),
        (9, 2, 1, LinkChoice::Message, Some((4, 4))),
        (10, 2, 2, LinkChoice::Auto, None),
        (11, 3, 3, LinkChoice::Auto, None),
        (12, 4, 4, LinkChoice::Push, None),
    ] {
        let live = World::live(seed, &Options { devices, ..Options::default() }).unwrap();
        let case = case([7, 6, 5], [true, seed % 2 == 0, false], 1 + ranks % 2, ranks);
        let graph = seed >= 10;
        let (steps, fields) = (if graph { [3, 12, 7][seed as usize % 3] } else { 5 }, 2);
        let results = ranks::as_threads(ranks, |comm| -> Result<_, CommandError> {
            let device = live.world().device(comm.rank() as u32 % devices).map_err(halocline::Error::from)?;
            let stream = device.stream(Priority::Normal).map_err(halocline::Error::from)?;
            let stamps = |(most, _)| Stamps::with(&stream, most, stamp(live.world()));
            let stamps = traced.map(stamps).transpose()?;
            let mut heat = Heat::on(comm, &case, |domain| {
                let (world, extents) = (live.world().clone(), domain.extents);
                let make =
                    |_: &Stream, levels: &_| Ok(Simulated { world, levels: addresses(levels), extents });
                Ok(OnDevice::<f64, _>::with(stream, domain, 0..fields, (case.width, stamps), make)?)
            })?;
            let halo = heat.bind(comm, link, seed != 12)?;
            heat.run(&halo, steps, Way { overlap: seed != 12, graph }, |_| {})?;
            let rounds = heat.levels.stamped()?;
            assert_eq!(rounds.len(), traced.map_or(0, |(_, kept)| kept), "seed {seed}");
            let has_interior = heat.domain.interior().cells() > 0;
            for (number, &[begun, interior, filled, waited, done]) in rounds.iter().enumerate() {
                let before = number.checked_sub(1).map_or([0; 5], |before| rounds[before]);
                assert_eq!(interior > 0, has_interior, "seed {seed}: {rounds:?}");
                let interior = if has_interior { interior } else { begun + 1 };
                let in_order = before[4] < begun && begun < interior && interior <= waited && waited < done;
                assert!(in_order && begun < filled && before[2] < filled, "seed {seed}: {rounds:?}");
            }
            gather(comm, &heat)
        });
        let found = results.unwrap().swap_remove(0);
        let due: Vec<Vec<f64>> = (0..fields).map(|field| plainly(&case, field, steps)).collect();
        assert!(bits(&found) == bits(&due), "seed {seed}");
        assert!(live.reports().is_empty(), "seed {seed}: {:?}", live.reports());
    }
}

#[test]
fn blocks_thinner_than_their_halo_have_no_interior_and_are_right_all_the_same() {
    for (periodic, width) in [([true; 3], 3), ([false; 3], 3), ([true, false, false], 2)] {
        let case = case([5, 2, 3], periodic, width, 5);
        let due = [plainly::<f32>(&case, 0, 7)];
        assert!(bits(&run::<f32>(&case, 1, 7, true)) == bits(&due), "{periodic:?}, halo {width}");
    }
}

#[test]
fn the_comparison_finds_a_single_wrong_bit() {
    let case = case([4, 5, 6], [true, false, true], 2, 3);
    let mut found = run::<f64>(&case, 2, 3, true);
    let good = Verdict::Compared { max_abs_diff: 0.0, different: 0 };
    assert_eq!(verify(&case, 3, &found, |_| {}).unwrap(), good);
    found[1][17] = f64::from_bits(found[1][17].to_bits() ^ 1);
    let verdict = verify(&case, 3, &found, |_| {}).unwrap();
    assert!(matches!(verdict, Verdict::Compared { different: 1, max_abs_diff } if max_abs_diff > 0.0));
    found[0][3] = f64::NAN;
    let verdict = verify(&case, 3, &found, |_| {}).unwrap();
    assert!(matches!(verdict, Verdict::Compared { different: 2, max_abs_diff: f64::INFINITY }));
}

#[test]
fn a_box_without_an_inner_one_is_every_other_cell_once() {
    let outer = Block { low: [1, 2, 0], high: [6, 5, 7] };
    for (low, high) in
        [([2, 3, 1], [5, 4, 6]), ([1, 2, 0], [6, 5, 7]), ([1, 3, 6], [2, 5, 7]), ([3, 3, 3], [3, 4, 4])]
    {
        let inner = Block { low, high };
        let rest = outer.without(&inner);
        assert!(rest.len() <= 6);
        let within = |block: &Block, cell: [usize; 3]| {
            (0..3).all(|axis| (block.low[axis]..block.high[axis]).contains(&cell[axis]))
        };
        for x in 0..8 {
            for cell in (0..8).flat_map(|y| (0..8).map(move |z| [x, y, z])) {
                let times = rest.iter().filter(|block| within(block, cell)).count();
                let due = within(&outer, cell) && !within(&inner, cell);
                assert_eq!(times, usize::from(due), "{cell:?} of {inner:?}");
            }
        }
    }
}
