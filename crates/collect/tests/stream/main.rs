//! Streams over real sockets, against a venue that does as the test says, and against simulated ones.
#![allow(clippy::unwrap_used)] // a test may

mod books;
mod connections;
mod frames;
mod login;
mod recorded;
mod rig;
mod silence;
mod simulated;
mod stage;
