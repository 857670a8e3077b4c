//! What a person or a probe sees of a running recorder.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page of live figures |
//! | `/api/v1/status` | the same figures as JSON: a [`Status`] |
//! | `/livez` | 200 while the process answers at all |
//! | `/readyz` | 200 while it records, else 503; the reasons as JSON |
//! | `/healthz` | the same code; instances, connections, spool, dedup and clocks as JSON |
//! | `/metrics` | the figures for Prometheus |
//! | `/api/v1/…` | connectors, jobs and candles, if there is a [`api::Desk`]; `/api/v1/openapi.json` describes it |
//!
//! Deliberately absent: TLS, users and rights. Beyond loopback there is one token, and whoever has it may do everything.

pub mod api;
mod gate;
mod health;
mod jobs;
mod metrics;
mod mount;
mod server;
mod status;

pub use gate::{Token, TokenError};
pub use jobs::{Connector, JobState, Jobs};
pub use server::{Control, ControlError, ControlSettings, Reserved};
pub use status::{
    Balance, ChannelCounts, Clock, Connection, Dedup, Hold, Sink, Spool, Status, Stream, Venue,
};
