//! What may be missing, said in the data itself.

use serde::{Deserialize, Serialize};

use crate::UnixMs;

/// One interval in which records of a channel may be missing. It travels as the payload of an ordinary envelope
/// on channel `gaps`, with the venue and symbol affected (`*`: all of them).
///
/// ```
/// use catchment_model::{Cause, Gap, UnixMs};
/// let gap = Gap::new("trades", UnixMs::new(1_000)?, UnixMs::new(2_000)?, Cause::Overflow).records(12);
/// assert_eq!(
///     gap.to_json(),
///     r#"{"channel":"trades","from_ms":1000,"to_ms":2000,"cause":"overflow","first_missing":null,"last_missing":null,"recoverable":false,"connection":null,"records":12}"#,
/// );
/// # Ok::<(), catchment_model::TimeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// The channel affected, or `*`.
    pub channel: String,
    /// The last instant known to be whole.
    pub from_ms: UnixMs,
    /// The first instant known to be whole again.
    pub to_ms: UnixMs,
    /// Why.
    pub cause: Cause,
    /// The first sequence, id or cursor that is missing, where one is known.
    pub first_missing: Option<String>,
    /// The last one.
    pub last_missing: Option<String>,
    /// Whether the venue keeps history from which this could be filled.
    pub recoverable: bool,
    /// The connection it happened on, where there was one.
    pub connection: Option<String>,
    /// How many records, where that was counted.
    pub records: Option<u64>,
}

/// Why something may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A connection ended.
    Disconnect,
    /// A connection said nothing.
    Silence,
    /// A sequence number was skipped.
    Sequence,
    /// The spool was full and its policy dropped records.
    Overflow,
    /// The disk took nothing (full, read-only, failing).
    Storage,
    /// The process ended without closing its spool.
    Crash,
    /// The recorder was stopped, and nobody listened until it was started again.
    Stopped,
    /// The venue banned us.
    Ban,
    /// The venue asked us to slow down, and we waited.
    Cooldown,
    /// The venue answered with an error, with something unreadable, or without what was asked for.
    Failure,
    /// A sink refused a record; it is in the dead-letter file.
    Refused,
    /// Bytes on disk were damaged; they are in quarantine.
    Corruption,
}

impl Gap {
    /// A gap with only what every gap has.
    pub fn new(channel: &str, from_ms: UnixMs, to_ms: UnixMs, cause: Cause) -> Self {
        Self {
            channel: channel.to_owned(),
            from_ms,
            to_ms,
            cause,
            first_missing: None,
            last_missing: None,
            recoverable: false,
            connection: None,
            records: None,
        }
    }

    /// Names the first and last missing sequence, id or cursor.
    pub fn missing(mut self, first: impl ToString, last: impl ToString) -> Self {
        self.first_missing = Some(first.to_string());
        self.last_missing = Some(last.to_string());
        self
    }

    /// Says how many records are missing.
    pub fn records(mut self, count: u64) -> Self {
        self.records = Some(count);
        self
    }

    /// The payload of the gap's envelope.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain fields always serialise")
    }
}
