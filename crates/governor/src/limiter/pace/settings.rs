//! What the configuration says to `pace`.

use std::time::Duration;

/// What `pace` is told by the configuration. The defaults suit a venue of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceSettings {
    /// Cost a second at a cold start. 2.
    pub start_rate: f64,
    /// Never slower than this, in cost a second. 0.02.
    pub rate_min: f64,
    /// Never faster than this, in cost a second. No bound.
    pub rate_max: f64,
    /// How much faster each second, until the first refusal. 0.10.
    pub start_growth: f64,
    /// How much faster each second, back up to what is known to work. 0.05.
    pub regain_growth: f64,
    /// How much of the ceiling is used while holding. 0.96.
    pub hold_share: f64,
    /// How much of the ceiling is used just after a refusal. 0.95.
    pub cut_share: f64,
    /// The first step of a probe. 0.01.
    pub probe_step: f64,
    /// The largest step of a probe that keeps succeeding. 0.16.
    pub probe_step_max: f64,
    /// How long a step is tried before the next. 12 s.
    pub probe_pause: Duration,
    /// How long the rate is held before the first probe. 60 s.
    pub probe_after_min: Duration,
    /// How long at most, after probes that failed. 600 s.
    pub probe_after_max: Duration,
    /// How far a gap between two requests may differ from the even one, either way. 0.10.
    pub jitter: f64,
    /// The first wait after a refusal without Retry-After. 1 s.
    pub wait_min: Duration,
    /// The longest wait after refusals without Retry-After. 60 s.
    pub wait_max: Duration,
    /// A shorter Retry-After is taken for this. 0.5 s.
    pub retry_after_min: Duration,
    /// A longer Retry-After is taken for this. 1 h.
    pub retry_after_max: Duration,
    /// How long to stay away after a ban that names no end. 5 min.
    pub ban: Duration,
    /// Never more than this under way. 4096.
    pub inflight_max: u32,
}

impl Default for PaceSettings {
    fn default() -> Self {
        Self {
            start_rate: 2.0,
            rate_min: 0.02,
            rate_max: f64::INFINITY,
            start_growth: 0.10,
            regain_growth: 0.05,
            hold_share: 0.96,
            cut_share: 0.95,
            probe_step: 0.01,
            probe_step_max: 0.16,
            probe_pause: Duration::from_secs(12),
            probe_after_min: Duration::from_secs(60),
            probe_after_max: Duration::from_secs(600),
            jitter: 0.10,
            wait_min: Duration::from_secs(1),
            wait_max: Duration::from_secs(60),
            retry_after_min: Duration::from_millis(500),
            retry_after_max: Duration::from_secs(3_600),
            ban: Duration::from_secs(300),
            inflight_max: 4_096,
        }
    }
}

impl PaceSettings {
    /// The same, with rates that can be divided by.
    pub(super) fn sane(mut self) -> Self {
        self.rate_min = self.rate_min.max(1e-6);
        self.rate_max = self.rate_max.max(self.rate_min);
        self.jitter = self.jitter.clamp(0.0, 0.5);
        self
    }
}
