//! Progress bars.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar on rank 0 if standard error is a terminal, else one that shows nothing.
pub(crate) fn bar(rank: usize, steps: u32, what: &str) -> ProgressBar {
    let target = if rank == 0 { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(u64::from(steps)), target).with_prefix(what.to_owned());
    match ProgressStyle::with_template(
        "{prefix:>9} {bar:40.cyan/blue} {pos}/{len} steps, {per_sec}, {eta} left",
    ) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
