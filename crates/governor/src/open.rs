//! A limiter that learns nothing and refuses nothing.

use catchment_model::Monotonic;

use crate::limiter::{End, Gauge, Limiter, Verdict};

/// Always says now: for venues whose declared windows are all there is to know, and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Limiter for Open {
    fn ask(&mut self, _cost: u32, _now: Monotonic) -> Verdict {
        Verdict::Now
    }

    fn sent(&mut self, _cost: u32, _now: Monotonic) {}

    fn ended(&mut self, _end: &End, _now: Monotonic) {}

    fn ceiling(&self) -> Option<f64> {
        None
    }

    fn gauge(&self, _now: Monotonic) -> Gauge {
        Gauge { phase: "open", ..Gauge::default() }
    }
}
