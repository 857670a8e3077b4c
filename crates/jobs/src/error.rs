//! What a store may answer instead. Variants by what the caller does next.

use catchment_model::Venue;

use crate::id::Id;

/// Anything underneath.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a store did not do it. Nothing is half done.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nobody answers, or others keep it busy for too long. Wait and ask again.
    #[error("the {store} store cannot be reached")]
    Unreachable {
        /// Which kind.
        store: &'static str,
        /// What was seen.
        source: BoxError,
    },
    /// The lease is somebody else's by now, or was taken back. Stop; whatever was not saved is not wanted.
    #[error("the lease on job {job} with fence {fence} is over")]
    Stale {
        /// Of the lease.
        job: Id,
        /// Of the lease.
        fence: u64,
    },
    /// There is no such thing.
    #[error("there is no {what} {id}")]
    NotFound {
        /// `job` or `connector`.
        what: &'static str,
        /// As it was asked for.
        id: String,
    },
    /// An active job for the same exchange, type, symbol and timeframe exists.
    #[error("job {0} does the same and is active; change that one, or delete it")]
    AlreadyActive(Id),
    /// Not in this state.
    #[error("job {id} {reason}")]
    Conflict {
        /// Of the job.
        id: Id,
        /// What stands against it.
        reason: &'static str,
    },
    /// Something given is wrong. Nothing was stored.
    #[error("{field} {reason}")]
    Invalid {
        /// Which field of the document.
        field: &'static str,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Written by a build that came later.
    #[error("the {store} store has schema {found}; this build knows up to {known}. Use a newer build")]
    Newer {
        /// Which kind.
        store: &'static str,
        /// In the store.
        found: u32,
        /// Of this build.
        known: u32,
    },
    /// The store holds something that cannot be.
    #[error("the {store} store holds something that cannot be read: {what}")]
    Damaged {
        /// Which kind.
        store: &'static str,
        /// What it is.
        what: String,
    },
}

impl StoreError {
    /// Whether asking again later may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether it says that a lease is over.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. })
    }

    /// A field is wrong.
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    pub(crate) fn no_job(id: Id) -> Self {
        Self::NotFound { what: "job", id: id.to_string() }
    }

    pub(crate) fn no_connector(exchange: Venue) -> Self {
        Self::NotFound { what: "connector", id: exchange.to_string() }
    }
}
