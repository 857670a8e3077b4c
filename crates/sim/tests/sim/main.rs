//! The simulator over real sockets: what it answers, what goes wrong on demand, and that both are repeatable.

mod client;
mod faults;
mod kalshi;
mod limitless;
mod polymarket;
mod shapes;
