//! Messages of the library on standard error.

use crate::status::Refusal;
use halocline::CommError;
use std::sync::Once;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Sends to standard error what `HALOCLINE_LOG` selects at the first call that finds it valid; nothing if it is unset. A process that
/// links Rust code may have a subscriber of its own, which stays.
pub(crate) fn listen() -> Result<(), Refusal> {
    static LISTEN: Once = Once::new();
    if LISTEN.is_completed() {
        return Ok(());
    }
    let filter = halocline_trace::log_filter().map_err(CommError::from)?;
    LISTEN.call_once(|| {
        let Some(filter) = filter else { return };
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
        // Traces record the library's spans through the same subscriber.
        let _ = tracing_subscriber::registry()
            .with(halocline_trace::layer())
            .with(lines.with_filter(filter))
            .try_init();
    });
    Ok(())
}
