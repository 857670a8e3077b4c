//! How a poller gets an answer: a permit from the governor, then the courier. Behind a trait, so that the loop is tested
//! under paused time with answers made up on the spot.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use catchment_governor::{Ask, Governor, Lane, Snapshot};
use catchment_model::{Clock, Monotonic, UnixNs};
use catchment_venues::{Reading, Request};

use crate::{Courier, SendError};

/// Asks one venue.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// Waits for its turn, at most until `deadline`, and sends. Within the venue the longest overdue goes first. May be
    /// dropped midway.
    async fn fetch(&self, request: &Request, due: Monotonic, deadline: Monotonic) -> Fetched;

    /// A round is through: so many of its requests failed.
    fn round_ended(&self, failed: usize, total: usize);

    /// Where the governor stands.
    fn snapshot(&self) -> Snapshot;
}

/// What became of a request.
#[derive(Debug)]
pub enum Fetched {
    /// It could not leave in time. Nothing was sent.
    Late,
    /// An answer came.
    Answer(Answer),
    /// It left, and no answer came.
    Lost(Lost),
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// What it means.
    pub reading: Reading,
    /// Its body.
    pub body: Bytes,
    /// When its last byte was read.
    pub received_at: UnixNs,
    /// When the request left.
    pub sent_at: Monotonic,
    /// From there to the last byte.
    pub latency: Duration,
}

/// A request without an answer.
#[derive(Debug)]
pub struct Lost {
    /// As error records and metrics name it.
    pub kind: &'static str,
    /// What is known.
    pub message: String,
    /// It was given up because it took too long.
    pub has_timed_out: bool,
    /// How long it was waited for.
    pub latency: Duration,
}

/// The real thing.
pub struct Line {
    /// Says when.
    pub governor: Governor,
    /// Goes.
    pub courier: Arc<Courier>,
    /// Measures.
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl Fetch for Line {
    async fn fetch(&self, request: &Request, due: Monotonic, deadline: Monotonic) -> Fetched {
        let Some(family) = self.governor.family(request.family) else {
            return Fetched::Lost(Lost {
                kind: "undeclared",
                message: format!("the venue's limits have no family {:?}", request.family),
                has_timed_out: false,
                latency: Duration::ZERO,
            });
        };
        let ask = Ask::new(family, Lane::Live).cost(request.cost).due(due);
        let Some(permit) = self.governor.acquire_before(ask, deadline).await else { return Fetched::Late };
        let sent_at = self.clock.monotonic();
        match self.courier.send(permit, request).await {
            Ok(reply) => Fetched::Answer(Answer {
                status: reply.status,
                reading: reply.reading,
                body: reply.body,
                received_at: reply.received_at,
                sent_at: reply.sent_at,
                latency: reply.latency,
            }),
            Err(SendError::Expired) => Fetched::Late,
            Err(error) => Fetched::Lost(Lost {
                kind: error.kind(),
                message: error.with_sources(),
                has_timed_out: matches!(error, SendError::TimedOut { .. }),
                latency: self.clock.monotonic().since(sent_at),
            }),
        }
    }

    fn round_ended(&self, failed: usize, total: usize) {
        self.governor.loop_ended(failed, total);
    }

    fn snapshot(&self) -> Snapshot {
        self.governor.snapshot()
    }
}
