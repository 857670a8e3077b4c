//! `aimd`: adds and halves requests under way, as the collector that came before did.
//!
//! * **Any** refusal: `inflight = max(1, inflight // 2)`, a cooldown, and the stability window starts anew. Each
//!   refusal counts, those of requests sent before the first one too.
//! * **One more**, up to the ceiling, when *all* of this holds: no refusal for `stable`, failures below half the
//!   threshold, the 95th percentile of latency below the low threshold, the minimum adjustment interval over, and all
//!   slots were really in use since the last adjustment.
//! * **One less** when failures or that latency are above the high threshold, at most once in an adjustment interval.
//!
//! Nothing is remembered across a restart. Failures and latency are those of the last 128 answers.

use std::time::Duration;

use catchment_model::Monotonic;

use super::{End, Gauge, Limiter, Outcome, Verdict};

/// What `aimd` is told by the configuration, for each venue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AimdSettings {
    /// Requests under way at the start. 2.
    pub start: u32,
    /// The hard ceiling. 32.
    pub inflight_max: u32,
    /// No refusal for so long before one is added. 30 s.
    pub stable: Duration,
    /// Between two adjustments at least. 5 s.
    pub adjust: Duration,
    /// Silence after a refusal; Retry-After may lengthen it. 5 s.
    pub cooldown: Duration,
    /// The share of failures above which one is taken away, and below half of which one may be added. 0.2.
    pub failure_share_max: f64,
    /// One may be added below this latency. 800 ms.
    pub latency_p95_low: Duration,
    /// One is taken away above this latency. 2 s.
    pub latency_p95_high: Duration,
}

impl Default for AimdSettings {
    fn default() -> Self {
        Self {
            start: 2,
            inflight_max: 32,
            stable: Duration::from_secs(30),
            adjust: Duration::from_secs(5),
            cooldown: Duration::from_secs(5),
            failure_share_max: 0.2,
            latency_p95_low: Duration::from_millis(800),
            latency_p95_high: Duration::from_secs(2),
        }
    }
}

const RECENT: usize = 128;

/// The limiter. See the module's header.
#[derive(Debug)]
pub struct Aimd {
    settings: AimdSettings,
    limit: u32,
    inflight: u32,
    cool_until: Monotonic,
    /// The last refusal, or the first request.
    stable_since: Option<Monotonic>,
    adjusted_at: Monotonic,
    /// The percentile takes a while, so it is not looked at for every answer.
    looked_at: Monotonic,
    reached: bool,
    recent: Box<[Ended; RECENT]>,
    ended: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    took: Duration,
    failed: bool,
}

impl Aimd {
    /// Starts conservatively.
    pub fn new(settings: AimdSettings) -> Self {
        Self {
            limit: settings.start.clamp(1, settings.inflight_max.max(1)),
            settings,
            inflight: 0,
            cool_until: Monotonic::default(),
            stable_since: None,
            adjusted_at: Monotonic::default(),
            looked_at: Monotonic::default(),
            reached: false,
            recent: Box::new([Ended::default(); RECENT]),
            ended: 0,
        }
    }

    fn refused(&mut self, retry_after: Option<Duration>, now: Monotonic) {
        self.limit = (self.limit / 2).max(1);
        let cooldown = self.settings.cooldown.max(retry_after.unwrap_or_default());
        self.cool_until = self.cool_until.max(Monotonic(now.0 + cooldown));
        self.stable_since = Some(now);
        self.adjusted(now);
    }

    fn is_due(&self, now: Monotonic) -> bool {
        let pause = self.settings.adjust / 10;
        now.since(self.adjusted_at) >= self.settings.adjust && now.since(self.looked_at) >= pause
    }

    fn adjust(&mut self, now: Monotonic) {
        let failures = self.failure_share();
        let latency = self.latency_p95();
        let is_strained =
            failures > self.settings.failure_share_max || latency > self.settings.latency_p95_high;
        let is_stable = self.stable_since.is_some_and(|since| now.since(since) >= self.settings.stable);
        let is_healthy =
            failures < self.settings.failure_share_max / 2.0 && latency < self.settings.latency_p95_low;

        if is_strained {
            self.limit = (self.limit - 1).max(1);
            self.adjusted(now);
        } else if is_stable && is_healthy && self.reached {
            self.limit = (self.limit + 1).min(self.settings.inflight_max.max(1));
            self.adjusted(now);
        }
    }

    fn adjusted(&mut self, now: Monotonic) {
        self.adjusted_at = now;
        self.reached = false;
    }

    fn note(&mut self, ended: Ended) {
        self.recent[self.ended % RECENT] = ended;
        self.ended += 1;
    }

    fn last(&self) -> &[Ended] {
        &self.recent[..self.ended.min(RECENT)]
    }

    fn failure_share(&self) -> f64 {
        let failed = self.last().iter().filter(|ended| ended.failed).count();
        failed as f64 / self.last().len().max(1) as f64
    }

    fn latency_p95(&self) -> Duration {
        let mut took = [Duration::ZERO; RECENT];
        let last = self.last();
        if last.is_empty() {
            return Duration::ZERO;
        }
        for (took, ended) in took.iter_mut().zip(last) {
            *took = ended.took;
        }
        let rank = (last.len() * 95).div_ceil(100) - 1;
        *took[..last.len()].select_nth_unstable(rank).1
    }
}

impl Limiter for Aimd {
    fn ask(&mut self, _cost: u32, now: Monotonic) -> Verdict {
        if now < self.cool_until {
            return Verdict::NotBefore(self.cool_until);
        }
        if self.inflight >= self.limit {
            return Verdict::WhenOneEnds;
        }
        Verdict::Now
    }

    fn sent(&mut self, _cost: u32, now: Monotonic) {
        self.stable_since.get_or_insert(now);
        self.inflight += 1;
        self.reached |= self.inflight >= self.limit;
    }

    fn ended(&mut self, end: &End, now: Monotonic) {
        self.inflight = self.inflight.saturating_sub(1);
        if end.outcome == Outcome::Abandoned {
            return;
        }
        let failed = matches!(end.outcome, Outcome::Failed | Outcome::TimedOut);
        self.note(Ended { took: now.since(end.sent_at), failed });
        if matches!(end.outcome, Outcome::Refused | Outcome::Banned) {
            self.refused(end.feedback.retry_after, now);
        } else if self.is_due(now) {
            self.looked_at = now;
            self.adjust(now);
        }
    }

    fn ceiling(&self) -> Option<f64> {
        None
    }

    fn gauge(&self, now: Monotonic) -> Gauge {
        Gauge {
            rate: None,
            ceiling: None,
            inflight: self.inflight,
            inflight_max: self.limit,
            phase: if now < self.cool_until { "hold-back" } else { "hold" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: AimdSettings = AimdSettings {
        start: 8,
        inflight_max: 10,
        stable: Duration::from_secs(30),
        adjust: Duration::from_secs(5),
        cooldown: Duration::from_secs(5),
        failure_share_max: 0.2,
        latency_p95_low: Duration::from_millis(800),
        latency_p95_high: Duration::from_secs(2),
    };

    /// From so many slots, after these words, it stands so. `200`, `429`, `500` are answers after 80 ms, with all slots
    /// in use; `200@3s` takes 3 s; `lone` is an answer with one slot in use; `wait=40s` lets time pass; `x30` repeats the
    /// word before it.
    #[track_caller]
    fn check(start: u32, words: &str, wanted: &str) {
        let mut aimd = Aimd::new(AimdSettings { start, ..SETTINGS });
        let mut now = Monotonic(Duration::from_secs(100));
        let mut before = "";
        for word in words.split_whitespace() {
            let (word, times) = match word.strip_prefix('x') {
                Some(times) => (before, times.parse::<u32>().unwrap() - 1),
                None => (word, 1),
            };
            for _ in 0..times {
                now = tell(&mut aimd, word, now);
            }
            before = word;
        }
        let cooldown = matches!(aimd.ask(1, now), Verdict::NotBefore(_));
        let got = format!(
            "inflight={} cooldown={}",
            aimd.gauge(now).inflight_max,
            if cooldown { "on" } else { "off" }
        );
        assert_eq!(got, wanted, "{words}");
    }

    fn tell(aimd: &mut Aimd, word: &str, now: Monotonic) -> Monotonic {
        if let Some(wait) = word.strip_prefix("wait=") {
            return Monotonic(now.0 + seconds(wait));
        }
        let (word, took) = match word.split_once('@') {
            Some((word, took)) => (word, seconds(took)),
            None => (word, Duration::from_millis(80)),
        };
        let slots = if word == "lone" { 1 } else { aimd.gauge(now).inflight_max };
        (0..slots).for_each(|_| aimd.sent(1, now));
        let outcome = match word {
            "200" | "lone" => Outcome::Answered,
            "429" => Outcome::Refused,
            "418" => Outcome::Banned,
            "500" => Outcome::Failed,
            "timeout" => Outcome::TimedOut,
            "dropped" => Outcome::Abandoned,
            _ => panic!("{word} is no word of this test"),
        };
        let then = Monotonic(now.0 + took);
        let end =
            |outcome| End { sent_at: now, cost: 1, outcome, feedback: super::super::Feedback::default() };
        aimd.ended(&end(outcome), then);
        (1..slots).for_each(|_| aimd.ended(&end(Outcome::Abandoned), then));
        then
    }

    fn seconds(text: &str) -> Duration {
        Duration::from_secs(text.trim_end_matches('s').parse().unwrap())
    }

    #[test]
    fn any_refusal_halves_and_cools_down() {
        check(8, "200 200 429", "inflight=4 cooldown=on");
        check(5, "429", "inflight=2 cooldown=on");
        check(1, "429", "inflight=1 cooldown=on");
        check(8, "429 429", "inflight=2 cooldown=on");
        check(8, "418", "inflight=4 cooldown=on");
        check(8, "429 wait=6s", "inflight=4 cooldown=off");
    }

    #[test]
    fn one_is_added_only_when_all_conditions_hold() {
        check(4, "200 wait=31s 200", "inflight=5 cooldown=off");
        // Not stable for long enough.
        check(4, "200 wait=29s 200", "inflight=4 cooldown=off");
        check(8, "200 wait=31s 429 wait=29s 200", "inflight=4 cooldown=off");
        check(8, "200 wait=31s 429 wait=31s 200", "inflight=5 cooldown=off");
        // Not often: the adjustment interval.
        check(4, "200 wait=31s 200 200 200", "inflight=5 cooldown=off");
        check(4, "200 wait=31s 200 wait=5s 200", "inflight=6 cooldown=off");
        // Failures above half the threshold.
        check(4, "200 x8 500 wait=31s 200", "inflight=4 cooldown=off");
        check(4, "200 x30 500 wait=31s 200", "inflight=5 cooldown=off");
        // Slow, though not too slow.
        check(4, "200@1s wait=31s 200@1s", "inflight=4 cooldown=off");
        // The slots were not all in use.
        check(4, "lone wait=31s lone", "inflight=4 cooldown=off");
        // The ceiling.
        check(10, "200 wait=31s 200", "inflight=10 cooldown=off");
    }

    #[test]
    fn one_is_taken_away_when_it_strains() {
        check(8, "200 500 500 wait=5s 500", "inflight=7 cooldown=off");
        check(8, "200 timeout timeout wait=5s timeout", "inflight=7 cooldown=off");
        check(8, "200@3s wait=5s 200@3s", "inflight=6 cooldown=off");
        check(1, "500 wait=5s 500 wait=5s 500", "inflight=1 cooldown=off");
    }

    #[test]
    fn what_was_dropped_says_nothing() {
        check(4, "200 wait=31s dropped x20", "inflight=4 cooldown=off");
    }
}
