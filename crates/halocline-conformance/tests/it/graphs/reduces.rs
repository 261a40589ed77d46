//! Reduces in graphs.

use super::end::{End, OWNED, Setting, value};
use super::{settings, under};
use halocline::device::sim::World;
use halocline::{Communicator, HaloExchange, ReduceOp};
use halocline_conformance::numbers::Numbers;
use halocline_conformance::{Outcome, ensure};

/// The cells of all ranks, computed serially.
struct Line(Vec<[u64; OWNED + 2]>);

impl Line {
    /// For each halo cell: its rank and place, and those of the owned cell.
    fn halo(&self) -> Vec<((usize, usize), (usize, usize))> {
        let ranks = self.0.len();
        let of = |rank: usize| {
            [((rank, 0), ((rank + ranks - 1) % ranks, OWNED)), ((rank, OWNED + 1), ((rank + 1) % ranks, 1))]
        };
        (0..ranks).flat_map(of).collect()
    }

    fn step(&mut self, reduces: bool) {
        for (halo, owned) in self.halo() {
            if reduces {
                let added = std::mem::take(&mut self.0[halo.0][halo.1]);
                let cell = &mut self.0[owned.0][owned.1];
                *cell = cell.wrapping_add(added);
            } else {
                self.0[halo.0][halo.1] = self.0[owned.0][owned.1];
            }
        }
    }
}

fn give(end: &End, halo: &HaloExchange, reduces: bool) -> Outcome {
    let streams = [&end.stream];
    let pending = match reduces {
        true => halo.schedule_reduce(ReduceOp::Sum, &streams)?,
        false => halo.schedule_exchange(&streams)?,
    };
    Ok(pending.schedule_wait(&end.stream)?)
}

/// Twelve operations, a reduce and an exchange in turn. Each rank makes some by calls and some by graphs of one or two, as it likes.
fn mixed(world: &World, comm: &Communicator, setting: Setting) -> Outcome {
    let end = End::new(world, comm, 1)?;
    let halo = end.bind(comm, setting)?;
    let cells = |rank: usize| std::array::from_fn(|at| value(7, (rank * 10 + at) as u64));
    let mut line = Line((0..comm.size()).map(cells).collect());
    end.fields[0].write(&end.stream, &line.0[comm.rank()])?;
    let mut own = Numbers::new(world.seed() ^ (comm.rank() as u64 + 1) << 32);
    let graph = |kinds: &[bool]| end.capture(|| kinds.iter().try_for_each(|&kind| give(&end, &halo, kind)));
    let mut graphs = None;
    let mut left = 12;
    while left > 0 {
        let reduces = left % 2 == 0;
        let choice = own.below(if left > 1 { 3 } else { 2 });
        if choice > 0 && graphs.is_none() {
            graphs =
                Some([graph(&[false])?, graph(&[true])?, graph(&[false, true])?, graph(&[true, false])?]);
        }
        match (choice, &graphs) {
            (1, Some(graphs)) => graphs[usize::from(reduces)].launch(&end.stream)?,
            (2, Some(graphs)) => graphs[2 + usize::from(reduces)].launch(&end.stream)?,
            _ => give(&end, &halo, reduces)?,
        }
        left -= choice.max(1);
    }
    (0..12).for_each(|step| line.step(step % 2 == 0));
    let found = end.fields[0].read(&end.stream)?;
    let expected = line.0[comm.rank()];
    ensure!(found == expected, "{found:x?} instead of {expected:x?}");
    Ok(comm.barrier()?)
}

#[test]
fn graphs_hold_reduces_and_exchanges_in_any_mixture() {
    settings().for_each(|setting| under(20, setting, mixed));
}
