//! Patterns of patches, run by an interpreter of transfers and compared with independent rules: a walk from cell to
//! cell, the geometry of the sphere, the loops of NEMO.

mod agreement;
mod analytic;
mod geometry;
mod nemo;
mod orbits;
mod owners;
mod refused;
mod walk;

use halocline_plan::{Along, Cells, DomainShape, Halo, PatchDecomposition, PatternPlan, Quantity, Transfer};
use std::collections::HashMap;

/// All arrays of a distributed field, by the number of their domain in the plan; row-major, with halo.
pub type Arrays = HashMap<u64, Vec<f64>>;

/// All plans of a quantity, checked: each is valid, and what one rank sends the other expects.
pub fn plans(cut: &PatchDecomposition, quantity: &Quantity, halo: &Halo) -> Vec<PatternPlan> {
    let plan =
        |rank| cut.pattern_of(rank, quantity, halo).unwrap_or_else(|error| panic!("rank {rank}: {error}"));
    let plans: Vec<PatternPlan> = (0..cut.ranks()).map(plan).collect();
    agreement::check(&plans);
    plans
}

/// The shape of each domain of the plans.
pub fn shapes(plans: &[PatternPlan]) -> HashMap<u64, DomainShape> {
    plans.iter().flat_map(|plan| plan.domains.iter().cloned()).collect()
}

/// First cell, owned cells and halo of a regular domain.
pub fn parts(shape: &DomainShape) -> ([i64; 2], [i64; 2], [i64; 2], [i64; 2]) {
    let DomainShape::Regular { first, owned, halo } = shape else { panic!("patches are regular") };
    let owned = [owned[0] as i64, owned[1] as i64];
    let low = [halo[0].0 as i64, halo[1].0 as i64];
    let extents = [0, 1].map(|axis| low[axis] + owned[axis] + halo[axis].1 as i64);
    ([first[0], first[1]], owned, low, extents)
}

/// Fills all arrays: held values by `value(number, row and column of the patch)`, halo cells with NaN.
pub fn filled(plans: &[PatternPlan], value: impl Fn(u64, [i64; 2]) -> f64) -> Arrays {
    let of_domain = |(number, shape): (u64, DomainShape)| {
        let (first, owned, low, extents) = parts(&shape);
        let mut array = Vec::new();
        for row in 0..extents[0] {
            for column in 0..extents[1] {
                let at = [row - low[0], column - low[1]];
                let is_held = (0..2).all(|axis| (0..owned[axis]).contains(&at[axis]));
                array.push(match is_held {
                    true => value(number, [first[0] + at[0], first[1] + at[1]]),
                    false => f64::NAN,
                });
            }
        }
        (number, array)
    };
    shapes(plans).into_iter().map(of_domain).collect()
}

/// Runs all transfers of all ranks at once: each reads the arrays as they were.
pub fn exchange(plans: &[PatternPlan], arrays: &mut Arrays) {
    let shapes = shapes(plans);
    let before = arrays.clone();
    let received =
        plans.iter().flat_map(|plan| plan.peers.iter().flat_map(|peer| &peer.receives).chain(&plan.local));
    for Transfer { from, to, source, target, map, is_negated } in received {
        let (Cells::Box(source), Cells::Box(target)) = (source, target) else { panic!("patches have boxes") };
        let (_, _, from_low, from_extents) = parts(&shapes[from]);
        let (_, _, low, extents) = parts(&shapes[to]);
        let columns = target.extent[1] as i64;
        for number in 0..target.extent[0] as i64 * columns {
            let step = [number / columns, number % columns];
            let mut at = [0; 2];
            for (axis, step) in step.into_iter().enumerate() {
                let along = map.source_axis(axis);
                let last = target.extent[axis] as i64 - 1;
                at[along] = source.low[along] + if map.flipped[axis] { last - step } else { step };
            }
            let index = |at: [i64; 2], low: [i64; 2], extents: [i64; 2]| {
                ((at[0] + low[0]) * extents[1] + at[1] + low[1]) as usize
            };
            let value = before[from][index(at, from_low, from_extents)];
            let there = index([target.low[0] + step[0], target.low[1] + step[1]], low, extents);
            arrays.get_mut(to).expect("a domain")[there] = if *is_negated { -value } else { value };
        }
    }
}

/// Checks that each domain, with its halo, has the values of the decomposition into whole patches.
pub fn same_as_whole_patches(cut: &PatchDecomposition, quantity: &Quantity, halo: &Halo) {
    let whole =
        cut.grid().decompose_into(&vec![[1, 1]; cut.grid().extents().len()], 1).expect("whole patches");
    let value = |number: u64, component: u64, at: [i64; 2]| {
        (number * 2 + component) as f64 * 1e6 + at[0] as f64 * 1e3 + at[1] as f64 + 1.0
    };
    let components = quantity.components() as u64;
    let run = |cut: &PatchDecomposition| {
        let plans = plans(cut, quantity, halo);
        let patch = |number: u64| cut.block(number / components).expect("a domain").patch as u64;
        let mut arrays = filled(&plans, |number, at| value(patch(number), number % components, at));
        exchange(&plans, &mut arrays);
        (plans, arrays)
    };
    let (whole_plans, expected) = run(&whole);
    let whole_shapes = shapes(&whole_plans);
    let (cut_plans, found) = run(cut);
    for (number, shape) in shapes(&cut_plans) {
        let patch = cut.block(number / components).expect("a domain").patch as u64;
        let of_patch = patch * components + number % components;
        let (_, _, whole_low, whole_extents) = parts(&whole_shapes[&of_patch]);
        let (first, _, low, extents) = parts(&shape);
        for row in 0..extents[0] {
            for column in 0..extents[1] {
                let at = [first[0] + row - low[0] + whole_low[0], first[1] + column - low[1] + whole_low[1]];
                let expected = expected[&of_patch][(at[0] * whole_extents[1] + at[1]) as usize];
                let found = found[&number][(row * extents[1] + column) as usize];
                assert!(
                    found == expected || found.is_nan() && expected.is_nan(),
                    "domain {number}, row {row}, column {column}: {found}, as a whole patch {expected}"
                );
            }
        }
    }
}

/// All places of scalars and vectors that any grid may have.
pub fn quantities() -> Vec<Quantity> {
    let mut all = vec![
        Quantity::cells(),
        Quantity::corners(),
        Quantity::cell_vectors(),
        Quantity::c_grid(),
        Quantity::d_grid(),
    ];
    all.push(Quantity::vector([Along::Faces; 2], [Along::Faces; 2]));
    all
}
