//! The streams over real sockets, read with a client that shares no code with the server: each venue's session as its
//! documents have it, each fault as it says and as it is logged, and the same bytes for the same seed.
#![allow(clippy::unwrap_used)] // a test may

mod binance;
mod bybit;
mod client;
mod coinbase;
mod faults;
mod kraken;
mod mock;
mod okx;
mod polymarket;
