//! How fast. No request leaves without a [`Permit`], and only this room makes one.
//!
//! * [`Governor`]: one a venue; [`Governor::acquire`] waits until a request may leave
//! * [`Permit`], [`Flight`], [`Report`]: the right to send, the request under way, how it ended
//! * [`Limits`]: what a venue declares, as data; [`Budget`]: keeps it, in every interval, aligned or not
//! * [`limiter`]: learns what a venue allows and does not say
//! * [`Backoff`]: instruments that fail rest
//! * [`Notebook`]: bans and learned rates, across a restart
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use catchment_governor::{Ask, Family, Governor, Lane, Limits, MemoryBudget, Open, Parts, Report, Settings};
//! use catchment_model::SystemClock;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let limits = Limits::new([Family::top("books").limit(500, Duration::from_secs(10))], 0.95)?;
//! let parts = Parts {
//!     clock: Arc::new(SystemClock::new()),
//!     budget: Arc::new(MemoryBudget::new(limits.clone())),
//!     limiter: Box::new(|_family, _ceiling| Box::new(Open)),
//!     notebook: None,
//!     seed: 1,
//! };
//! let governor = Governor::open("lantern", limits, Settings::default(), parts);
//! let books = governor.family("books").unwrap();
//!
//! let permit = governor.acquire(Ask::new(books, Lane::Live)).await;
//! let flight = permit.depart()?; // the request leaves here
//! flight.end(Report::status(200), []);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Deliberately absent: sockets and HTTP. Whoever sends brings the permit and tells how it ended.

pub mod limiter;

mod backoff;
mod budget;
mod departures;
mod desks;
mod events;
mod feedback;
mod governor;
mod hold;
mod house;
mod lanes;
mod notebook;
mod open;
mod permit;
mod retries;
mod retry_after;
mod seats;
mod snapshot;
mod spec;
mod turn;
mod window;

pub use backoff::{Backoff, BackoffSettings};
pub use budget::{Answer, Bill, Budget, Charge, Fill, MemoryBudget, Reply};
pub use governor::{Ask, Governor, MakeLimiter, Parts, Scope, Settings};
pub use hold::HoldCause;
pub use lanes::Lane;
pub use notebook::Notebook;
pub use open::Open;
pub use permit::{Expired, Flight, Permit, Report};
pub use retry_after::RetryAfter;
pub use snapshot::{Counts, FamilySnapshot, Snapshot};
pub use spec::{Family, FamilyId, Limit, Limits, LimitsError, WindowSpec};
