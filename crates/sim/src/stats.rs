//! What was asked and what was answered.

use std::collections::BTreeMap;

use serde::Serialize;

/// Figures by venue, then by endpoint (`clob/books`).
pub type Stats = BTreeMap<&'static str, BTreeMap<&'static str, EndpointStats>>;

/// The figures of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EndpointStats {
    /// Requests that came.
    pub requests: u64,
    /// Answers sent, by status.
    pub answers: BTreeMap<u16, u64>,
    /// Books in them.
    pub books: u64,
    /// Bytes of their bodies, before compression and faults.
    pub bytes: u64,
    /// Requests a limit refused.
    pub refusals: u64,
    /// Requests a limit delayed.
    pub delays: u64,
    /// By how much altogether.
    pub delay_ms: u64,
    /// Requests that met a fault, by its name.
    pub faults: BTreeMap<&'static str, u64>,
}
