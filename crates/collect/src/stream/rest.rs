//! Requests beside the stream: snapshots of books, and questions to the witness. Each with a permit, each a task.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catchment_governor::{Ask, Governor, Lane};
use catchment_model::{Clock, Monotonic};
use catchment_venues::stream::{Descriptor, Wanted, Witness};
use catchment_venues::{Endpoints, Reading, Request};

use crate::{Courier, Reply};

/// How long a request may wait for its permit.
const PATIENCE: Duration = Duration::from_secs(20);

/// Of what the venue says when it does not know something.
const SAID_BYTES_MAX: usize = 200;

/// Whoever asks the venue over REST.
#[derive(Clone)]
pub(crate) struct Rest {
    pub(crate) descriptor: Descriptor,
    pub(crate) endpoints: Endpoints,
    pub(crate) governor: Governor,
    pub(crate) courier: Arc<Courier>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What came of an errand for the stream at a place.
#[derive(Debug)]
pub(crate) enum Returned {
    Snapshot(usize, Result<Bytes, RestError>),
    Witness(usize, Result<Witness, RestError>),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum RestError {
    /// The venue does not know the instrument.
    Unknown(String),
    /// Something else.
    Failed(String),
}

impl std::fmt::Display for RestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(reason) => write!(f, "the venue does not know it: {reason}"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl Rest {
    /// The book of an instrument, as the venue has it now.
    pub(crate) async fn snapshot(self, place: usize, wanted: Wanted) -> Returned {
        let answer = match self.descriptor.snapshot_request(&wanted, &self.endpoints) {
            Some(request) => self.send(&request, Lane::Resync).await.map(|reply| reply.body),
            None => Err(RestError::Failed("the venue has no snapshots".to_owned())),
        };
        Returned::Snapshot(place, answer)
    }

    /// The newest that the venue knows of a stream.
    pub(crate) async fn witness(self, place: usize, wanted: Wanted) -> Returned {
        let answer = match self.descriptor.witness_request(&wanted, &self.endpoints) {
            Some(request) => self.send(&request, Lane::Backfill).await.and_then(|reply| {
                let read = self.descriptor.read_witness(wanted.channel, &reply.body);
                read.ok_or_else(|| RestError::Failed("the answer is of another form".to_owned()))
            }),
            None => Err(RestError::Failed("the venue has no witness".to_owned())),
        };
        Returned::Witness(place, answer)
    }

    /// Sends a request when it may leave.
    pub(crate) async fn send(&self, request: &Request, lane: Lane) -> Result<Reply, RestError> {
        let failed = |reason: &str| RestError::Failed(reason.to_owned());
        let family = self.governor.family(request.family).ok_or_else(|| failed("a family without limits"))?;
        let ask = Ask::new(family, lane).cost(request.cost);
        let latest = Monotonic(self.clock.monotonic().0 + PATIENCE);
        let permit = self.governor.acquire_before(ask, latest).await;
        let permit = permit.ok_or_else(|| failed("no request may leave yet"))?;
        let reply = self.courier.send(permit, request).await;
        let reply = reply.map_err(|error| RestError::Failed(error.with_sources()))?;
        match &reply.reading {
            Reading::Ok => Ok(reply),
            Reading::UnknownMarket => {
                let said = String::from_utf8_lossy(&reply.body[..reply.body.len().min(SAID_BYTES_MAX)]);
                Err(RestError::Unknown(format!("status {}, {}", reply.status, said.escape_default())))
            }
            Reading::BadRequest(reason) => Err(RestError::Unknown(reason.clone())),
            other => Err(RestError::Failed(format!("status {}, {}", reply.status, other.name()))),
        }
    }
}
