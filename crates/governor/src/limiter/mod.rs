//! Limits nobody declared, learned from how a venue answers.
//!
//! A [`Limiter`] is a plain state machine: it is asked, told what left and how it ended, and reads no clock, so the
//! same code runs under a simulated hour and under load. One of them serves one endpoint family of one venue.
//!
//! * [`pace`]: paces a rate and remembers the ceiling; the default
//! * [`aimd`]: adds and halves requests under way
//! * [`fixed`]: a rate that somebody knew

pub mod aimd;
mod dice;
pub mod fixed;
pub mod pace;

use std::fmt;
use std::time::Duration;

use catchment_model::Monotonic;

pub use self::aimd::{Aimd, AimdSettings};
pub use self::fixed::Fixed;
pub use self::pace::{Pace, PaceSettings};

/// Learns how fast a venue lets requests through.
pub trait Limiter: Send + fmt::Debug {
    /// May a request of this cost leave now? Changes nothing that a later question would notice.
    fn ask(&mut self, cost: u32, now: Monotonic) -> Verdict;

    /// One has left. Every request that leaves is told of, retries too.
    fn sent(&mut self, cost: u32, now: Monotonic);

    /// One that left has ended. Ends may come in any order.
    fn ended(&mut self, end: &End, now: Monotonic);

    /// What is worth remembering across a restart: the rate, in cost a second, the venue is known to let through.
    fn ceiling(&self) -> Option<f64>;

    /// Where it stands, for telemetry.
    fn gauge(&self, now: Monotonic) -> Gauge;
}

/// What a limiter says to a request that wants to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may leave.
    Now,
    /// Not before this; ask again then.
    NotBefore(Monotonic),
    /// As many as may are under way; ask again when one has ended.
    WhenOneEnds,
}

/// How a request that left has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// When it left.
    pub sent_at: Monotonic,
    /// What it cost.
    pub cost: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// What the answer said about the limit.
    pub feedback: Feedback,
}

/// What came of a request, as far as the speed is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The venue did the work, or refused it for what was asked (400, 404): the speed was right.
    Answered,
    /// Too fast: 429, or what this venue says instead.
    Refused,
    /// The venue is in trouble (5xx), or the connection was.
    Failed,
    /// No answer in time.
    TimedOut,
    /// The venue shut the door: 418, or a firewall's 403.
    Banned,
    /// It was dropped before an answer came; nothing was learned.
    Abandoned,
}

/// What an answer's headers said about the limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Feedback {
    /// Ask again only after this, floor and cap applied.
    pub retry_after: Option<Duration>,
    /// How much is left, and how soon there is all of it again.
    pub remaining: Option<(u64, Duration)>,
    /// How much of a declared window the venue says is used (Binance's weight), and the window's limit and length.
    pub used: Option<Used>,
}

/// A venue's own count of what was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Used so far, in cost.
    pub used: u64,
    /// Of so much.
    pub limit: u64,
    /// Of which so much is for us to use: the limit times the safety factor.
    pub allowed: u64,
    /// In this window.
    pub window: Duration,
}

/// Where a limiter stands.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gauge {
    /// Cost a second it lets through, if it paces a rate.
    pub rate: Option<f64>,
    /// The rate known to be let through.
    pub ceiling: Option<f64>,
    /// Under way now, and at most.
    pub inflight: u32,
    /// At most under way.
    pub inflight_max: u32,
    /// What it is doing: `start`, `regain`, `hold`, `probe`, `hold-back`, …
    pub phase: &'static str,
}
