//! What a courier has counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::send_error::SendError;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    answered: AtomicU64,
    body_bytes: AtomicU64,
    failed: [AtomicU64; SendError::KINDS.len()],
}

/// What became of a courier's requests since the start. Each is in exactly one place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CourierCounts {
    /// A whole answer came, whatever it said.
    pub answered: u64,
    /// The bytes of their bodies, unpacked.
    pub body_bytes: u64,
    /// There was none, by [`SendError::kind`]. All kinds, in the order of [`SendError::KINDS`].
    pub failed: Vec<(&'static str, u64)>,
}

impl Tally {
    pub(crate) fn answer(&self, bytes: usize) {
        self.answered.fetch_add(1, Relaxed);
        self.body_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn failure(&self, error: &SendError) {
        self.failed[error.kind_at()].fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> CourierCounts {
        let failed = SendError::KINDS.iter().zip(&self.failed);
        CourierCounts {
            answered: self.answered.load(Relaxed),
            body_bytes: self.body_bytes.load(Relaxed),
            failed: failed.map(|(kind, count)| (*kind, count.load(Relaxed))).collect(),
        }
    }
}
