//! Checked mode with more than one rank. The whole suite also runs in checked mode (`HALOCLINE_CHECK=1`).

use super::fixture::{Line, still_works};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure};
use halocline::{BindError, BindOptions, Error};

pub(crate) const CASES: &[Case] = &[Case { name: "checked::all_ranks_check_or_none", run: agreed }];

fn agreed(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let line = Line::new(comm)?;
    let last = comm.size() - 1;
    let options = BindOptions::default().checked(comm.rank() == last);
    let expected = format!("rank {last} binds in checked mode, rank 0 binds without it");
    match line.bind_with(comm, &options) {
        Err(error @ (Error::Bind(BindError::CheckedMode { .. }) | Error::Elsewhere { .. })) => {
            ensure!(error.to_string().contains(&expected), "it does not say so: {error}");
        }
        other => crate::fail!("ranks that differ are bound: {other:?}"),
    }
    still_works(comm)
}
