//! The fleet over real sockets: the simulator, a real Redis, nodes and coordinators in one process.
#![allow(clippy::unwrap_used)] // a test may
#![allow(unreachable_pub)] // what the files share

mod door;
mod leading;
mod site;
mod together;
