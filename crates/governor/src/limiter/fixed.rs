//! `fixed`: a rate that somebody knew, for venues that publish one. It learns nothing and obeys Retry-After.

use std::time::Duration;

use catchment_model::Monotonic;

use super::dice::Dice;
use super::{End, Gauge, Limiter, Outcome, Verdict};

/// Lets requests out evenly at one rate.
#[derive(Debug)]
pub struct Fixed {
    rate: f64,
    next_at: Monotonic,
    inflight: u32,
    dice: Dice,
}

/// A rate below this would not let a request out within a day.
const RATE_MIN: f64 = 1e-5;
/// How far a gap may differ from the even one.
const JITTER: f64 = 0.10;

impl Fixed {
    /// Paces `rate`, in cost a second.
    pub fn new(rate: f64, seed: u64) -> Self {
        Self { rate: rate.max(RATE_MIN), next_at: Monotonic::default(), inflight: 0, dice: Dice::new(seed) }
    }
}

impl Limiter for Fixed {
    fn ask(&mut self, _cost: u32, now: Monotonic) -> Verdict {
        if now < self.next_at { Verdict::NotBefore(self.next_at) } else { Verdict::Now }
    }

    fn sent(&mut self, cost: u32, now: Monotonic) {
        let gap = f64::from(cost) / self.rate * self.dice.between(1.0 - JITTER, 1.0 + JITTER);
        self.next_at = Monotonic(self.next_at.max(now).0.saturating_add(Duration::from_secs_f64(gap)));
        self.inflight += 1;
    }

    fn ended(&mut self, end: &End, now: Monotonic) {
        self.inflight = self.inflight.saturating_sub(1);
        if let (Outcome::Refused | Outcome::Banned, Some(wait)) = (end.outcome, end.feedback.retry_after) {
            self.next_at = self.next_at.max(Monotonic(now.0.saturating_add(wait)));
        }
    }

    fn ceiling(&self) -> Option<f64> {
        None
    }

    fn gauge(&self, _now: Monotonic) -> Gauge {
        Gauge {
            rate: Some(self.rate),
            ceiling: None,
            inflight: self.inflight,
            inflight_max: u32::MAX,
            phase: "hold",
        }
    }
}
