//! The comparison with a run on one rank.

use super::domain::Case;
use super::levels::{Host, Levels};
use super::simulation::{Heat, Way};
use super::stencil::Real;
use crate::error::CommandError;
use crate::verdict::Verdict;
use halocline::{Communicator, LinkChoice, RegularGrid};

/// All cells of each field in the order of the grid, on rank 0; nothing elsewhere. Collective.
pub(super) fn gather<L: Levels>(
    comm: &Communicator,
    heat: &Heat<L>,
) -> Result<Vec<Vec<L::Real>>, CommandError> {
    (0..heat.fields()).filter_map(|field| heat.gather(comm, field).transpose()).collect()
}

/// Repeats all steps on one rank of the host, field by field, with one exchange for each step and without overlap, and compares the
/// result with `found`: the fields of the run on several ranks.
pub(super) fn verify<T: Real>(
    case: &Case,
    steps: usize,
    found: &[Vec<T>],
    mut tick: impl FnMut(usize),
) -> Result<Verdict, CommandError> {
    let grid = RegularGrid::new(case.extents()).periodic(case.periodic);
    let alone = Case { decomposition: grid.decompose(1)?, periodic: case.periodic, width: 1 };
    let (mut max_abs_diff, mut different) = (0f64, 0);
    for (field, found) in (0..).zip(found) {
        let comm = Communicator::single();
        let mut heat = Heat::<Host<T>>::new(&comm, &alone, field..field + 1)?;
        let halo = heat.bind(&comm, LinkChoice::Auto, false)?;
        heat.run(&halo, steps, Way { overlap: false, graph: false }, &mut tick)?;
        let mut rows = found.chunks_exact(heat.domain.owned.extent(2));
        heat.owned_rows(0, |due| {
            for (&due, &found) in due.iter().zip(rows.next().unwrap_or_default()) {
                let (due, found): (f64, f64) = (due.into(), found.into());
                let nan = due.is_nan() || found.is_nan();
                max_abs_diff = max_abs_diff.max(if nan { f64::INFINITY } else { (due - found).abs() });
                different += u64::from(due.to_bits() != found.to_bits());
            }
        })?;
    }
    Ok(Verdict::Compared { max_abs_diff, different })
}
