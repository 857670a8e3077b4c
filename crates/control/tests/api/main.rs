//! The API over real sockets, before a real store.

mod candles;
mod client;
mod connectors;
mod description;
mod jobs;
mod limits;
