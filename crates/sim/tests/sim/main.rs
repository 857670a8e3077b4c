//! The simulator over real sockets: what it answers, what goes wrong on demand, and that both are repeatable.
#![allow(clippy::unwrap_used)] // a test may

mod client;
mod faults;
mod kalshi;
mod limitless;
mod polymarket;
mod shapes;
