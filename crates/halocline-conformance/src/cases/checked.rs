//! Checked mode, where it needs more than one rank: the whole suite runs in it, too (`HALOCLINE_CHECK=1`).

use super::fixture::{Line, failure, is_sticky, reclaimed, still_works};
use crate::scene::{by, ring_neighbours};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::{BindOptions, Cause, Error, Fault, HaloExchange, LinkChoice};

pub(crate) const CASES: &[Case] = &[
    Case { name: "checked::ranks_in_different_orders_are_named_and_do_not_hang", run: orders },
    Case { name: "checked::all_ranks_check_or_none", run: agreed },
];

fn checked(link: LinkChoice, name: &str) -> BindOptions {
    BindOptions { name: Some(name.to_owned()), checked: Some(true), ..by(link) }
}

fn orders(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    for link in comm.choices().into_iter().skip(1) {
        let lines = [Line::new(comm)?, Line::new(comm)?];
        let mut halos: Vec<(&Line, HaloExchange)> = Vec::new();
        for (line, name) in lines.iter().zip(["first", "second"]) {
            halos.push((line, line.bind_with(comm, &checked(link, name))?));
        }
        for step in 1..4 {
            halos.iter().try_for_each(|(line, halo)| line.step(halo, step))?;
        }
        // Nobody is still at it when rank 0 turns the order around.
        comm.barrier()?;
        if comm.rank() == 0 {
            halos.reverse();
        }
        let stuck = comm.rank() == 0 || ring_neighbours(0, comm.size()).contains(&comm.rank());
        // The first one ends for all: for those far from rank 0 as it should, or because others gave up.
        let ended = halos[0].1.exchange()?.wait();
        if stuck {
            let failed = failure(ended)?;
            ensure!(failed.cause == Cause::Check(Fault::OtherOrder), "{link:?}: {failed}");
            let text = failed.to_string();
            let (zero, other) =
                ("rank 0 waits in exchange 4 of \"second\"", "waits in exchange 4 of \"first\" for rank 0");
            // Where rank 0 is stuck with both of its neighbours, one may be told by the other.
            let told = comm.rank() != 0 && comm.size() > 2 && failed.report.is_none();
            let says = match told {
                true => text.contains("has found that ranks exchange in different orders"),
                false => text.contains(zero) && text.contains(other),
            };
            ensure!(says, "{link:?}: it does not say so: {text}");
            is_sticky(&halos[0].1, &failed)?;
            reclaimed(comm, &halos[0].1, &halos[0].0.array)?;
        }
        // Nobody drops its objects before all have seen them fail.
        comm.barrier()?;
    }
    still_works(comm)
}

fn agreed(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let line = Line::new(comm)?;
    let last = comm.size() - 1;
    let options = BindOptions { checked: Some(comm.rank() == last), ..BindOptions::default() };
    let expected = format!("rank {last} binds in checked mode, rank 0 binds without it");
    match line.bind_with(comm, &options) {
        Err(error @ (Error::Bind(_) | Error::Elsewhere { .. })) => {
            ensure!(error.to_string().contains(&expected), "it does not say so: {error}");
        }
        other => crate::fail!("ranks that differ are bound: {other:?}"),
    }
    still_works(comm)
}
