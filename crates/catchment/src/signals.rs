//! Ctrl-C and SIGTERM.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::say;

/// The first signal says that it is enough; the second ends the process at once.
pub(crate) fn listen() -> anyhow::Result<watch::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            if tell.send_replace(true) {
                std::process::exit(130);
            }
            say("catchment: stopping; what was accepted is being delivered (again to end at once)");
        }
    });
    Ok(told)
}

/// Waits until it is enough. (What `wait_for` gives is a lock on the value: held for a while, it would keep the next
/// signal from being told.)
pub(crate) async fn told(enough: &mut watch::Receiver<bool>) {
    let _ = enough.wait_for(|enough| *enough).await;
}
