//! Progress bars.

use crate::rolling::Extent;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar of steps on rank 0 if standard error is a terminal, else one that shows nothing.
pub(crate) fn bar(rank: usize, steps: u32, what: &str) -> ProgressBar {
    styled(rank, steps.into(), what, "{pos}/{len} steps, {per_sec}")
}

/// A progress bar of what is read, as [`bar`].
pub(crate) fn extent(rank: usize, extent: Extent, what: &str) -> ProgressBar {
    match extent {
        Extent::Bytes(bytes) => styled(rank, bytes, what, "{bytes}/{total_bytes}, {bytes_per_sec}"),
        Extent::Rows(rows) => styled(rank, rows, what, "{human_pos}/{human_len} rows, {per_sec}"),
    }
}

fn styled(rank: usize, length: u64, what: &str, counts: &str) -> ProgressBar {
    let target = if rank == 0 { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), target).with_prefix(what.to_owned());
    match ProgressStyle::with_template(&format!("{{prefix:>9}} {{bar:40.cyan/blue}} {counts}, {{eta}} left"))
    {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
