//! Simulated hours: the runtime and the simulated venues on one clock that jumps from event to event, over real sockets.
//!
//! Short forms run with the other tests; `CATCHMENT_LONG=1` (`scripts/torture streams`) makes them an hour and a thousand
//! faults.
#![allow(clippy::unwrap_used)] // a test may

mod faults;
mod ledger;
mod patience;
mod verdict;
mod world;

/// The long form is wanted.
fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}
