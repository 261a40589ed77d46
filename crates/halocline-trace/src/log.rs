//! Which messages of the library a process logs.

use halocline_device::{Variable, VariableError};
use tracing_subscriber::filter::Targets;

/// The messages that `HALOCLINE_LOG` selects, by level or by target and level; `None` if it is unset.
pub fn log_filter() -> Result<Option<Targets>, VariableError> {
    let filter = Variable::read("HALOCLINE_LOG").map(|variable| {
        variable.parse(
            "a level (off, error, warn, info, debug, trace), or target=level for targets that begin with halocline",
            parse,
        )
    });
    filter.transpose()
}

/// A word that is no level parses as a target: a misspelt level would silence everything.
fn parse(text: &str) -> Option<Targets> {
    let filter: Targets = text.parse().ok()?;
    let is_ours = filter.iter().all(|(target, _)| target.starts_with("halocline"));
    is_ours.then_some(filter)
}
