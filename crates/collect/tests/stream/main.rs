//! Streams over real sockets, against a venue that does as the test says.

mod connections;
mod rig;
mod stage;
