//! Reduces that are refused, or fail.

use super::fixture::{Line, Words, failure, in_flight, is_deadline, reclaimed, still_works};
use super::reduce::ring;
use crate::fixtures::{Grid, by, ring_neighbours};
use crate::stage::Stage;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{
    Array, ArrayError, Cause, DomainShape, ElementType, Error, Fault, HaloExchange, Layout, LinkChoice,
    Pattern, ReduceError, ReduceOp, RegularGrid,
};
use std::time::Duration;

/// Longer than a step takes on a machine that does much else.
const DEADLINE: Duration = Duration::from_millis(400);

pub(crate) const OF_HOST: &[Case] = &[
    Case { name: "refused_reduces::fields_that_share_owned_cells_are_refused", run: overlapping },
    Case { name: "refused_reduces::what_one_rank_refuses_all_refuse", run: overlapping_on_one },
    Case { name: "refused_reduces::owned_cells_cannot_be_read_meanwhile", run: owned },
];

pub(crate) const CASES: &[Case] = &[
    Case { name: "refused_reduces::another_operation_on_one_rank_fails_on_all", run: other_operation },
    Case { name: "refused_reduces::operations_that_elements_lack_are_refused", run: lacking },
    Case { name: "refused_reduces::of_device_fields_that_are_pulled_is_refused", run: pulled },
    Case { name: "refused_reduces::a_deadline_names_the_rank_that_does_not_reduce", run: late },
];

fn other_operation(comm: &Stage<'_>) -> Outcome {
    let odd = comm.rank() + 1 == comm.size();
    for link in comm.paths() {
        for (one, other) in [
            (None, Some(ReduceOp::Sum)),
            (Some(ReduceOp::Sum), None),
            (Some(ReduceOp::Min), Some(ReduceOp::Max)),
        ] {
            let line = Line::new(comm)?;
            let halo = line.bind(comm, link)?;
            line.step(&halo, 1)?;
            if comm.size() == 1 {
                continue;
            }
            // A failure also ends the exchange that a peer still waits for.
            comm.barrier()?;
            let op = if odd { other } else { one };
            let begin = || op.map_or(halo.begin(), |op| halo.begin().reduce(op)).start();
            // A rank whose peers have begun the same may find out in the next epoch.
            let ended = (0..4).map(|_| begin().and_then(|pending| pending.wait())).find(Result::is_err);
            let failure = failure(ended.unwrap_or(Ok(())))?;
            let is_found = failure.cause == Cause::Check(Fault::OtherOperation);
            ensure!(is_found, "{link:?}, {one:?} and {other:?}: {failure}");
            let says = failure
                .report
                .as_ref()
                .is_none_or(|report| report.contains("the same operations in one order"));
            ensure!(says, "{failure}");
        }
    }
    still_works(comm)
}

fn lacking(comm: &Stage<'_>) -> Outcome {
    let fields = ring::<f64>(comm)?;
    let [link, ..] = comm.choices();
    let halo = HaloExchange::bind_with(comm, fields.list(), &by(link))?;
    for op in [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
        match halo.reduce(op) {
            Err(
                error @ Error::Reduce(ReduceError::Operation { field: 0, element: ElementType::F64, .. }),
            ) => {
                let text = error.to_string();
                ensure!(text.ends_with("they have: sum, product, min, max, replace"), "{text}");
            }
            other => fail!("{op} of doubles: {other:?}"),
        }
    }
    let complex = ring::<[f32; 2]>(comm)?;
    let other = HaloExchange::bind_with(comm, complex.list(), &by(link))?;
    ensure!(
        matches!(other.reduce(ReduceOp::Min), Err(Error::Reduce(ReduceError::Operation { .. }))),
        "a complex minimum"
    );
    // None of them has taken an epoch.
    // Rank 0 is alone in flight until the others pass the barrier.
    if comm.rank() != 0 {
        comm.barrier()?;
    }
    let pending = halo.reduce(ReduceOp::Sum)?;
    ensure!(pending.epoch() == 1, "a refused reduce has taken an epoch");
    if comm.rank() == 0 {
        if comm.size() > 1 && !comm.is_on_device() {
            in_flight(halo.exchange(), 1)?;
        }
        comm.barrier()?;
    }
    pending.wait()?;
    still_works(comm)
}

/// Two patterns over the same owned cells, whose halos lie on different sides, and an array for either of them.
struct Crossing {
    rows: Pattern,
    columns: Pattern,
    layout: Layout,
}

impl Crossing {
    fn new(comm: &Stage<'_>) -> Result<Self, Trouble> {
        let grid = |widths: [(usize, usize); 2]| -> Result<Pattern, Trouble> {
            let grid = RegularGrid::new([2 * comm.size(), 3]).periodic([true, true]);
            Ok(Grid::cut(grid.decompose(comm.size())?, &[true, true], &widths).pattern(comm)?)
        };
        let (rows, columns) = (grid([(1, 1), (0, 0)])?, grid([(0, 0), (1, 1)])?);
        let DomainShape::Regular { owned, .. } = rows.domain()?.shape().clone() else {
            fail!("no regular domain")
        };
        let layout = Layout::c_order(ElementType::F64, &[owned[0] + 2, owned[1] + 2])?.with_origin(&[1, 1]);
        Ok(Self { rows, columns, layout })
    }

    fn array(&self, comm: &Stage<'_>) -> Result<Array<f64>, Error> {
        Array::<f64>::with_layout(comm, self.layout.clone())
    }
}

fn overlapping(comm: &Stage<'_>) -> Outcome {
    let crossing = Crossing::new(comm)?;
    let array = crossing.array(comm)?;
    let halo = HaloExchange::bind(comm, [(&crossing.rows, &array), (&crossing.columns, &array)])?;
    match halo.reduce(ReduceOp::Sum) {
        Err(Error::Reduce(ReduceError::Overlap { fields: [0, 1] })) => {}
        other => fail!("fields that share owned cells: {other:?}"),
    }
    let pending = halo.exchange()?;
    ensure!(pending.epoch() == 1, "a refused reduce has taken an epoch");
    pending.wait()?;
    still_works(comm)
}

fn overlapping_on_one(comm: &Stage<'_>) -> Outcome {
    let crossing = Crossing::new(comm)?;
    let arrays = [crossing.array(comm)?, crossing.array(comm)?];
    let other = if comm.rank() == 0 { &arrays[0] } else { &arrays[1] };
    let halo = HaloExchange::bind(comm, [(&crossing.rows, &arrays[0]), (&crossing.columns, other)])?;
    match (halo.reduce(ReduceOp::Sum), comm.rank()) {
        (Err(Error::Reduce(ReduceError::Overlap { fields: [0, 1] })), 0) => {}
        (Err(error @ Error::Reduce(ReduceError::Elsewhere { op: ReduceOp::Sum })), 1..) => {
            let text = error.to_string();
            ensure!(
                text.starts_with("fields of this or another rank have no sum, or share owned cells"),
                "{text}"
            );
        }
        (other, rank) => fail!("rank {rank}, where fields of rank 0 share owned cells: {other:?}"),
    }
    let pending = halo.exchange()?;
    ensure!(pending.epoch() == 1, "a refused reduce has taken an epoch");
    pending.wait()?;
    still_works(comm)
}

fn owned(comm: &Stage<'_>) -> Outcome {
    let fields = ring::<u64>(comm)?;
    let halo = HaloExchange::bind(comm, fields.list())?;
    let array = fields.arrays[0].1.on_host()?;
    let pending = halo.reduce(ReduceOp::Sum)?;
    match pending.owned(array) {
        Err(Error::Reducing { epoch: 1 }) => {}
        other => fail!("owned cells of a reduce: {other:?}"),
    }
    ensure!(matches!(array.read(), Err(Error::Array(ArrayError::InFlight))), "an array in a reduce is lent");
    pending.wait()?;
    ensure!(array.read().is_ok(), "an array is not lent after the wait");
    Ok(())
}

fn pulled(comm: &Stage<'_>) -> Outcome {
    // Processes cannot always access each other's devices.
    if !comm.is_on_device() || comm.transport() != "thread" {
        return Ok(());
    }
    let line = Line::new(comm)?;
    let halo = line.bind(comm, LinkChoice::Pull)?;
    let is_refused = comm.size() > 1;
    match (halo.reduce(ReduceOp::Sum), is_refused) {
        (Err(error @ Error::Reduce(ReduceError::Links)), true) => {
            let text = error.to_string();
            ensure!(
                text.starts_with("device fields of this or another rank are pulled or sent by NCCL"),
                "{text}"
            );
        }
        (Ok(pending), false) => pending.wait()?,
        (other, _) => fail!("a reduce of fields that are pulled: {other:?}"),
    }
    line.step(&halo, 1)?;
    let epochs = if is_refused { 1 } else { 2 };
    let epoch = halo.pending().map(|pending| pending.epoch());
    ensure!(epoch == Some(epochs), "{epoch:?} epochs instead of {epochs}");
    Ok(())
}

/// Rank 0 begins no reduce. Its neighbours have a deadline.
fn late(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths() {
        let line = Line::new(comm)?;
        let words = Words::new(comm);
        let waits_for_0 = ring_neighbours(0, comm.size()).contains(&comm.rank());
        let deadline = waits_for_0.then_some(DEADLINE);
        let halo = line.bind_with(comm, &by(link).deadline(deadline))?;
        let reduce = || halo.reduce(ReduceOp::Sum).and_then(|pending| pending.wait());
        reduce()?;
        comm.barrier()?;
        if comm.rank() == 0 {
            words.all_tell(0, 0)?;
            continue;
        }
        // A rank between two that have no deadline hears of it in a later epoch at the latest.
        let failed = failure((0..4).map(|_| reduce()).find(Result::is_err).unwrap_or(Ok(())))?;
        ensure!(is_deadline(failed.cause, DEADLINE) && failed.culprit == 0, "{link:?}: {failed}");
        ensure!(failed.to_string().contains("rank 0 missed the deadline"), "it does not say so: {failed}");
        reclaimed(comm, &halo, &line.array)?;
        words.all_tell(0, 0)?;
    }
    still_works(comm)
}
