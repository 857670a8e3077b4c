//! From acceptance to delivery: nothing accepted is lost, nothing is delivered twice under two ids.
//!
//! ```text
//! Intake::accept ─▶ dedup ─▶ spool (durable here) ─▶ Ok
//!                              │ newest groups also in memory
//!                              ├─▶ delivery ─▶ Sink::write     one task and one cursor a sink
//!                              └─▶ delivery ─▶ Sink::write
//! ```
//!
//! * [`Draft`]: envelopes on their way in, already the bytes the spool and the archive will hold
//! * [`Spool`]: segments on disk, the cursors of the sinks, repair at start
//! * [`Pipeline`]: the running whole; [`Intake`] is its door
//! * [`Sink`]: what a destination promises; [`Batch`] and [`Record`]: what it is given
//! * [`Books`]: the counters, which balance
//! * [`Disk`]: the file system, as a seam: tests cut its power
//!
//! Deliberately absent: any database. This room names no destination; see `catchment-sinks`.

mod batch;
mod books;
mod dead_letter;
mod dedup;
mod deliver;
pub mod disk;
mod draft;
mod events;
mod frame;
mod frames;
mod intake;
mod pipeline;
mod quarantine;
mod reader;
mod s1;
mod sink;
mod spool;
mod tail;
mod write_times;
mod writer;

pub use batch::{Batch, Record};
pub use books::{Balance, Books, DropReason};
pub use dedup::{DedupConfig, DedupWindow};
pub use deliver::Delivery;
pub use disk::{Disk, DiskFile, RealDisk, SyncPoint};
pub use draft::{Draft, DraftError, Keyer, Keys};
pub use frames::Run;
pub use intake::{AcceptError, Fate, Intake, OnStorageError, Pending, Receipt};
pub use pipeline::{Health, Monitor, Pipeline, PipelineConfig, Resumed, SinkHealth};
pub use reader::SegmentScan;
pub use sink::{BoxError, Next, Refusal, Sink, SinkError, SinkState};
pub use spool::{OnFull, Spool, SpoolConfig, SpoolError};
pub use write_times::WriteTimes;
