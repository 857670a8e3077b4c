//! What is told of.

use tracing::info;

/// The server did not know the script: it was restarted, or told to forget.
pub(crate) fn script_lost(calls: usize) {
    info!(calls, "redis had lost the script; it was sent again");
}
