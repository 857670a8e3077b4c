//! What a destination promises.

use std::time::Duration;

use async_trait::async_trait;

use crate::Batch;

/// An error of whatever lies below a sink, kept as the source.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A place where records are kept. Every sink passes the conformance suite of `catchment-sinks`.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Its name: what its cursor is kept under, so it stays the same from start to start.
    fn name(&self) -> &str;

    /// Returns once the whole batch is durable. A batch, or a part of it, may come again after a crash or an error;
    /// the records' ids let one copy be kept. Numbers only grow from call to call, but for such repetitions.
    async fn write(&self, batch: &Batch) -> Result<(), SinkError>;

    /// Called when there has been nothing to write for a while: time to roll files over and tidy up.
    async fn idle(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Called once, after the last write.
    async fn close(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Why a batch was not written, by what happens next.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Nobody answers, or the disk does not take it.
    #[error("{sink} is unreachable")]
    Unreachable {
        /// Which sink.
        sink: String,
        /// What it said.
        source: BoxError,
    },
    /// It answers, and asks for time.
    #[error("{sink} asks us to wait {wait:?}")]
    Throttled {
        /// Which sink.
        sink: String,
        /// How long.
        wait: Duration,
    },
    /// Some records can never be written here; the others can.
    #[error("{sink} refused {} of the records, the first because {}", refused.len(), refused.first().map_or("", |r| &r.reason))]
    Refused {
        /// Which sink.
        sink: String,
        /// Which records of the batch, each once.
        refused: Vec<Refusal>,
    },
}

/// A record that a sink will never take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its place in the batch, counted from 0.
    pub index: usize,
    /// Why.
    pub reason: String,
}

/// What the pipeline does after an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<'a> {
    /// Back off and offer the same batch again; the cursor stays.
    BackOff,
    /// Offer it again after exactly this long.
    Wait(Duration),
    /// Dead-letter these records and offer the others.
    SetAside(&'a [Refusal]),
}

impl SinkError {
    /// The one match on the variants.
    pub fn next(&self) -> Next<'_> {
        match self {
            Self::Unreachable { .. } => Next::BackOff,
            Self::Throttled { wait, .. } => Next::Wait(*wait),
            Self::Refused { refused, .. } => Next::SetAside(refused),
        }
    }

    /// An unreachable sink.
    pub fn unreachable(sink: &str, source: impl Into<BoxError>) -> Self {
        Self::Unreachable { sink: sink.to_owned(), source: source.into() }
    }
}

/// How a sink is doing: S1's three states, under names that fit any backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SinkState {
    /// The last batch was written.
    Ok,
    /// A batch has used up its retries.
    Unreachable,
    /// So many in a row that somebody should look.
    Degraded,
}

impl SinkState {
    /// The state in one lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
            Self::Degraded => "degraded",
        }
    }
}
