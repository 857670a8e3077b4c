//! Connectors, jobs and candles: one budget per exchange, work that resumes.
//!
//! * [`Connector`]: one for each exchange, with the limit that all processes share
//! * [`Job`], [`Lease`]: work, and the right to do it, which another can take over and a latecomer cannot use
//! * [`Store`]: where they live; [`SqliteStore`] in a file, `MongoStore` (feature `mongo`) in a server
//! * [`StoreBudget`]: the store's tokens as a governor's budget
//! * [`Workers`]: claims jobs, renews, hands them to a [`JobHandler`], backs off, gives up
//! * `conformance` (feature of that name): the suite every store passes
//!
//! Deliberately absent: venues and HTTP. What a job *does* is its handler's business.

mod budget;
mod candles;
mod connector;
mod error;
mod events;
mod gaps;
mod handler;
mod id;
mod iso;
mod job;
mod seed;
mod store;
mod time;
mod token;
mod transition;
mod window_log;
mod worker;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "mongo")]
pub mod mongo;
pub mod sqlite;

pub use budget::{BudgetSettings, GivingBack, StoreBudget, connector_of};
pub use candles::{Coverage, Hole, HoleKind, Missing, Series, Span};
pub use connector::{Connector, ConnectorPatch, NamedWindow, NewConnector, RateLimit};
pub use error::{BoxError, StoreError};
pub use gaps::{GapPlan, plan_gap};
pub use handler::{Done, JobHandler, RunError, Work};
pub use id::{Id, IdError, IdMaker};
pub use job::{
    Cursor, Job, JobFilter, JobPatch, JobType, Lock, NewJob, Page, Schedule, State, Stats, Status, jittered,
};
#[cfg(feature = "mongo")]
pub use mongo::{MongoSettings, MongoStore};
pub use seed::{Pair, Seeded, seed};
pub use sqlite::SqliteStore;
pub use store::{
    Candles, Claim, Claimed, Connectors, Jobs, Lease, Outcome, PageSave, Standing, StateCount, Store,
};
pub use token::{Grant, Mark, Slot, TokenAsk, Tokens};
pub use window_log::WindowLog;
pub use worker::{Turn, WorkerCounts, WorkerSettings, Workers};
