//! The API over real sockets, before a real store.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod candles;
mod client;
mod connectors;
mod description;
mod jobs;
mod limits;
