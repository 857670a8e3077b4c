//! Ctrl-C and SIGTERM.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::say;

/// Signals that come so soon after the first are the same wish: `timeout` tells the process, and then its group.
const SAME_WISH: Duration = Duration::from_millis(200);

/// The first signal says that it is enough, and `what` is done about it; the second ends the process at once.
pub(crate) fn listen(what: &'static str) -> anyhow::Result<watch::Receiver<bool>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            if tell.send_replace(true) {
                std::process::exit(130);
            }
            let same_wish = tokio::time::sleep(SAME_WISH);
            tokio::pin!(same_wish);
            loop {
                tokio::select! {
                    () = &mut same_wish => break,
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            say(&format!("catchment: stopping; {what} (again to end at once)"));
        }
    });
    Ok(told)
}

/// Waits until it is enough. (What `wait_for` gives is a lock on the value: held for a while, it would keep the next
/// signal from being told.)
pub(crate) async fn told(enough: &mut watch::Receiver<bool>) {
    let _ = enough.wait_for(|enough| *enough).await;
}
