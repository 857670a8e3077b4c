//! Streams over real sockets, against a venue that does as the test says.

mod books;
mod connections;
mod frames;
mod rig;
mod silence;
mod simulated;
mod stage;
