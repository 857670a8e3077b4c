//! The events backfill on a lake: a Delta table of jobs, and the events as files in object storage.
//!
//! * [`Lake`]: where table and files are (a [`Place`] each: a folder, Azure, S3), and [how we get in](Access)
//! * [`JobTable`]: S3's table `backfill_jobs_events`; changed by optimistic commits, each lease with a fence
//! * [`Ledger`]: what may become of its rows, without any storage
//! * [`Worker`]: leases, fetches, writes, marks; [`Fetcher`] asks the venue, [`bronze`] keeps the files
//! * [`Status`], [`Findings`]: how far it is; whether all of it is true
//! * [`conformance`]: what every storage must hold, as tests; [`azurite`]: an emulator for them
//!
//! Deliberately absent: DataFusion and SQL. The rows are read and written whole, and the log entry's creation is the one
//! act that must be atomic.

pub mod azurite;
pub mod bronze;
pub mod conformance;

mod columns;
mod delta;
mod error;
mod events;
mod fetch;
mod job;
mod lake;
mod ledger;
mod note;
mod place;
mod sign_in;
mod status;
mod table;
mod upkeep;
mod verify;
mod worker;

pub use columns::COLUMNS;
pub use error::LakeError;
pub use fetch::{Fetcher, FetcherError, VENUE, set_rate};
pub use job::{Job, Lease, Mode, Pass, State, Task, plan, plan_spans, read_holder};
pub use lake::{BRONZE, Lake, TABLE};
pub use ledger::{ATTEMPTS_MAX, Failure, Ledger, Verdict, Write};
pub use place::Place;
pub use sign_in::{Access, SignIn};
pub use status::{ActiveLease, ErrorGroup, Status};
pub use table::{Acted, CommitCounts, JobTable, SetUp};
pub use upkeep::Tidied;
pub use verify::{Findings, verify};
pub use worker::{WorkReport, Worker, WorkerSettings};
