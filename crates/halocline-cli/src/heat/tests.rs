//! Runs over thread ranks beside a computation that knows no ranks, halo or boxes.

use super::domain::{Case, start};
use super::error::HeatError;
use super::simulation::Heat;
use super::stencil::{Block, Real, step};
use super::verify::{Verdict, gather, verify};
use crate::ranks;
use halocline::{LinkChoice, RegularGrid};

fn case(extents: [usize; 3], periodic: [bool; 3], width: usize, ranks: usize) -> Case {
    let grid = RegularGrid::new(extents).periodic(periodic);
    Case { decomposition: grid.decompose(ranks).unwrap(), periodic, width }
}

/// All cells of each field after `steps`, as rank 0 gathers them.
fn run<T: Real>(case: &Case, fields: u32, steps: usize, overlap: bool) -> Vec<Vec<T>> {
    let results = ranks::as_threads(case.decomposition.ranks(), |comm| -> Result<_, HeatError> {
        let mut heat = Heat::<T>::new(comm, case, 0..fields)?;
        let halo = heat.bind(comm, LinkChoice::Auto)?;
        heat.run(&halo, steps, overlap, |_| {})?;
        gather(comm, case, &heat)
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
