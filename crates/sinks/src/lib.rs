//! Where records go: one file per destination, one conformance suite for all.
//!
//! * [`JsonlSink`]: an archive of JSON lines on disk, each record in it exactly once
//! * `mongo` (with the feature of that name): documents in MongoDB, each under its own id
//! * [`MemorySink`]: keeps records in memory and fails on demand, for tests
//! * `redis`: the latest of each symbol, on a Redis server or cluster (feature `redis`)
//! * [`verify()`]: re-reads an archive, every line, checksum and manifest
//! * [`conformance`]: every promise of `Sink`, as a test that every sink runs
//!
//! Deliberately absent: retries and back-off. A sink says what happened; the pipeline decides what follows.

pub mod conformance;
mod jsonl;
mod lines;
mod memory;
#[cfg(feature = "mongo")]
pub mod mongo;
#[cfg(feature = "redis")]
pub mod redis;
mod verify;

pub use jsonl::{JsonlConfig, JsonlError, JsonlSink, Manifest};
pub use memory::MemorySink;
pub use verify::{Options, Problem, Progress, Report, StreamRows, VerifyError, verify};
