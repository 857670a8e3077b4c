//! `pace`: lets requests out evenly, at a rate that it learns and remembers.
//!
//! A rate limit is a rate, so a rate is what is steered; slots under way would be worth 1/latency each and saw between
//! half and full. What matters is to find the limit with few refusals, and then to stay just under it:
//!
//! 1. **Start.** From `start_rate` up by a tenth a second until the first refusal.
//! 2. **Refusal.** Everything stops. After a wait (Retry-After, or a second, doubled while it does not help) one
//!    request goes ahead, and only its answer lets the others follow, at a quarter of the rate and doubling. What was
//!    already under way belongs to the same episode.
//! 3. **Ceiling.** What the venue let through in the ten seconds before is the ceiling: true of every window and bucket
//!    when the rate was steady. If the next refusal comes soon and we had not gone faster, the limit has fallen, and
//!    the ceiling is what was let through between the two: between two moments with nothing left, what was let
//!    through is what the limit gave back.
//! 4. **Hold** at 96 % of the ceiling. The refused rate is remembered too: while the two are far apart (a steep start
//!    says little), the rate climbs again soon. Once they are close, the only question is whether the limit was
//!    raised, and it is asked rarely: +1 % every 12 s after a minute, and twice that after each time it was refused,
//!    up to ten minutes. Past 106 % of the ceiling the limit was raised indeed, and the steps double.
//! 5. **Latency.** Some venues queue before they refuse. A median above twice the best makes us ease off for four
//!    seconds; only if it rises again soon after, and less comes back than we send, is it our queue.
//! 6. **Headers** come before guesses: see `told`.
//! 7. **Slots.** Some venues count requests under way instead: see `slots`.
//!    Others have **windows of minutes**: the same sum is let through each time, and then the door is shut for long,
//!    however fast we were. Then the rate is that sum over the time from one opening to the next.
//! 8. **Trouble.** A rate that had worked for a minute is refused, and so is the one that goes ahead: the venue refuses
//!    everybody, or is gone. Nothing is learned from that, and the rate is what it was.
//!
//! The rate only grows while requests really leave at it: a quiet hour raises nothing and costs nothing. What a refusal
//! costs (the silence after it) sets how seldom the next may be risked, so venues that shut the door for long are
//! asked less often.
//!
//! What follows here steers; `learn` holds what is made of a refusal.
//!
//! Limits: a window longer than two minutes is learned by running into it twice, one longer than a quarter of an hour each time; several clients that do not know of each
//! other share evenly only on average; a stranger who comes and goes is learned anew each time, for some refusals.

mod latency;
mod learn;
mod meter;
mod settings;
mod slots;
mod told;

#[cfg(test)]
mod tests;

use std::time::Duration;

use catchment_model::Monotonic;

use self::latency::{Epoch, Latency};
use self::learn::{Episode, Past};
use self::meter::Meter;
pub use self::settings::PaceSettings;
use self::slots::Slots;
use self::told::{Quota, Told};
use super::dice::Dice;
use super::{End, Feedback, Gauge, Limiter, Outcome, Verdict};

/// What was let through is counted over this at least.
const LATELY: Duration = Duration::from_secs(10);
/// A ceiling held for so long is proven.
const PROVEN_S: f64 = 60.0;
/// After a refusal the rate comes back within this.
const RETURN: Duration = Duration::from_secs(2);
/// How long a warning by latency slows us, and how soon a second one must follow to be believed.
const EASE: Duration = Duration::from_secs(4);
const SECOND_STRIKE: Duration = Duration::from_secs(45);
/// For how long a venue that was slow without us is not believed to be slow through us.
const MOODY: Duration = Duration::from_secs(600);
/// Seconds of work for each second of silence that a refusal costs, before the next is risked.
const WORTH: f64 = 20.0;
/// A stretch has so many requests and seconds at least, or it says nothing about how much the rate is used.
const STRETCH_SENDS_MIN: u32 = 4;
const STRETCH_S_MIN: f64 = 0.25;
/// No gap is longer than a day, in seconds: what costs more than can be had in a day goes anyway.
const GAP_S_MAX: f64 = 86_400.0;
/// Headers are believed over what was learned when there was no refusal for so long.
const TRUST: Duration = Duration::from_secs(60);
/// The catching up that a late timer may cause: so much, or most of a gap, which is no more than one request.
const SLACK: Duration = Duration::from_millis(5);
const SLACK_MAX: Duration = Duration::from_millis(50);
const SLACK_SHARE: f64 = 0.75;

/// The limiter. See the module's header.
#[derive(Debug)]
pub struct Pace {
    settings: PaceSettings,
    dice: Dice,
    rate: f64,
    ceiling: Option<f64>,
    /// The lowest rate that was refused since the ceiling was last in doubt.
    refused: f64,
    aim: Aim,
    next_at: Monotonic,
    inflight: u32,
    inflight_cost: u64,
    /// All that was ever answered, in cost.
    own: u64,
    stretch: Stretch,
    meter: Meter,
    sent: Meter,
    latency: Latency,
    episode: Option<Episode>,
    past: Past,
    probe_after: f64,
    strike: Strike,
    /// The share of requests that failed and timed out lately.
    failing: f64,
    timing_out: f64,
    told: Option<Told>,
    quota: Quota,
    slots: Slots,
}

/// What the growth of the rate is after.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Aim {
    Start,
    Regain,
    Hold { calm: f64 },
    Close { to: f64 },
    Return,
    Probe { step: f64, tried: f64 },
}

/// Some requests in a row, to see whether the rate is really used.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    began: Monotonic,
    sends: u32,
    /// How long they should take at the rate they left at, in seconds.
    planned: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Strike {
    eased_until: Monotonic,
    last: Option<Monotonic>,
    /// Until when latency alone is not believed: it rose while all that was sent came back.
    moody_until: Option<Monotonic>,
}

impl Pace {
    /// Starts with nothing known.
    pub fn cold(settings: PaceSettings, seed: u64) -> Self {
        let settings = settings.sane();
        Self {
            rate: settings.start_rate.clamp(settings.rate_min, settings.rate_max),
            dice: Dice::new(seed),
            ceiling: None,
            refused: f64::INFINITY,
            aim: Aim::Start,
            next_at: Monotonic::default(),
            inflight: 0,
            inflight_cost: 0,
            own: 0,
            stretch: Stretch::default(),
            meter: Meter::new(),
            sent: Meter::new(),
            latency: Latency::new(),
            episode: None,
            past: Past::new(settings.wait_min),
            probe_after: settings.probe_after_min.as_secs_f64(),
            strike: Strike::default(),
            failing: 0.0,
            timing_out: 0.0,
            told: None,
            quota: Quota::default(),
            slots: Slots::new(),
            settings,
        }
    }

    /// Starts at four fifths of a ceiling that was remembered. Whether it is too old is the caller's question; a day
    /// is a good answer.
    pub fn warm(settings: PaceSettings, ceiling: f64, seed: u64) -> Self {
        let mut pace = Self::cold(settings, seed);
        if ceiling.is_finite() && ceiling > 0.0 {
            let ceiling = ceiling.clamp(pace.settings.rate_min, pace.settings.rate_max);
            pace.rate = (0.8 * ceiling).max(pace.settings.rate_min);
            pace.ceiling = Some(ceiling);
            pace.aim = Aim::Regain;
        }
        pace
    }

    /// The rate at which requests leave just now, in cost a second.
    fn pace_now(&self, now: Monotonic) -> f64 {
        let mut rate = self.rate;
        if let Some(told) = self.told_rate(now) {
            rate = rate.min(told);
        }
        if now < self.strike.eased_until {
            rate *= 0.8;
        }
        if let Some(resumed) = self.past.resumed
            && now.since(resumed) < RETURN
        {
            let back_for = now.since(resumed);
            rate *= (2.0 * back_for.as_secs_f64() / RETURN.as_secs_f64() - 2.0).exp2();
        }
        rate.max(self.settings.rate_min)
    }

    /// Seconds until the next may follow one of this cost. Headers slow us down only until their window ends.
    fn gap(&self, cost: u32, now: Monotonic) -> f64 {
        let gap = f64::from(cost) / self.pace_now(now);
        let told_until = self.told.as_ref().map_or(now, Told::ends).max(self.quota.renewed_at());
        if told_until <= now {
            return gap;
        }
        gap.min((f64::from(cost) / self.rate).max(told_until.since(now).as_secs_f64()))
    }

    fn told_rate(&self, now: Monotonic) -> Option<f64> {
        let used = self.told.as_ref().and_then(|told| told.rate(self.inflight_cost, now));
        let left = self.quota.rate(self.inflight_cost, now);
        match (used, left) {
            (Some(used), Some(left)) => Some(used.min(left)),
            (used, left) => used.or(left),
        }
    }

    fn inflight_max(&self) -> u32 {
        let p99 = self.latency.p99_s().unwrap_or(1.0);
        let slots = self.slots.cap().unwrap_or(u32::MAX).min(self.settings.inflight_max).max(1);
        ((2.0 * self.rate * p99 + 2.0) as u32).clamp(1, slots)
    }

    /// Follows whether the rate is used; grows it if so.
    fn follow_use(&mut self, planned: f64, now: Monotonic) {
        let length = now.since(self.stretch.began).as_secs_f64();
        if self.stretch.sends >= STRETCH_SENDS_MIN && length >= STRETCH_S_MIN {
            // An idle time makes its stretch longer than planned, so it never counts as used.
            let is_used = self.stretch.planned >= 0.9 * length;
            self.stretch = Stretch { began: now, ..Stretch::default() };
            if is_used && self.may_grow(now) {
                self.grow(length, now);
            }
        }
        self.stretch.sends += 1;
        self.stretch.planned += planned;
    }

    fn may_grow(&self, now: Monotonic) -> bool {
        let is_back = self.past.resumed.is_none_or(|resumed| now.since(resumed) >= RETURN);
        self.episode.is_none() && is_back && now >= self.strike.eased_until && self.failing < 0.1
    }

    /// The rate was used for `length` seconds and nothing spoke against it.
    fn grow(&mut self, length: f64, now: Monotonic) {
        let told = self.told_rate(now);
        let ceiling = self.ceiling.unwrap_or(f64::INFINITY);
        let is_trusted = self.past.began.is_none_or(|began| now.since(began) > TRUST);
        if let Some(told) = told
            && told > self.rate
            && is_trusted
        {
            // A venue that says how much is left need not be felt out, whatever was remembered of it.
            self.rate =
                (self.rate * (1.0 + 3.0 * self.settings.start_growth).powf(length).min(1.5)).min(told);
            self.rate = self.rate.min(self.settings.rate_max);
            self.ceiling = self.ceiling.map(|ceiling| ceiling.max(self.rate));
            return;
        }
        match &mut self.aim {
            Aim::Start => {
                // What is under way when the first refusal comes is refused too: the more that is, the slower.
                let haste = (5.0 / f64::from(self.inflight.max(1))).clamp(0.6, 1.5);
                self.rate *= (1.0 + haste * self.settings.start_growth).powf(length).min(1.5);
            }
            Aim::Regain => {
                let target = self.settings.hold_share * ceiling;
                self.rate =
                    (self.rate * (1.0 + self.settings.regain_growth).powf(length).min(1.5)).min(target);
                if self.rate >= target {
                    self.aim = Aim::Hold { calm: 0.0 };
                }
            }
            Aim::Hold { calm } => {
                *calm += length;
                if *calm >= PROVEN_S {
                    self.past.proven = ceiling;
                }
                let is_vague = self.refused.is_finite() && self.refused > 1.15 * ceiling;
                if is_vague && *calm >= (self.past.silence * WORTH / 2.0).max(LATELY.as_secs_f64()) {
                    self.aim = Aim::Close { to: self.settings.hold_share * self.refused };
                } else if *calm >= self.probe_after && self.past.former > 1.1 * ceiling {
                    self.aim = Aim::Return;
                } else if *calm >= self.probe_after {
                    self.rate = self.rate.max(0.99 * ceiling);
                    self.aim = Aim::Probe { step: self.settings.probe_step, tried: f64::INFINITY };
                }
            }
            Aim::Close { to } => {
                self.rate *= 1.02_f64.powf(length).min(1.1);
                if self.rate >= *to {
                    self.aim = Aim::Probe { step: self.settings.probe_step, tried: 0.0 };
                }
            }
            Aim::Return => {
                self.rate *= 1.02_f64.powf(length).min(1.1);
                if self.rate >= self.settings.hold_share * self.past.former {
                    self.ceiling = Some(self.past.former);
                    self.past.former = 0.0;
                    self.aim = Aim::Hold { calm: 0.0 };
                }
            }
            Aim::Probe { step, tried } => {
                *tried += length;
                // What a step does shows in a good part of the window.
                if *tried >= self.settings.probe_pause.max(self.past.window / 5).as_secs_f64() {
                    if self.rate > 1.06 * ceiling {
                        *step = (*step * 2.0).min(self.settings.probe_step_max);
                        self.probe_after = self.settings.probe_after_min.as_secs_f64();
                    }
                    *tried = 0.0;
                    self.rate *= 1.0 + *step;
                }
            }
        }
        self.rate = self
            .rate
            .min(told.unwrap_or(f64::INFINITY))
            .clamp(self.settings.rate_min, self.settings.rate_max);
    }

    /// Two seconds of answers have come.
    fn watch_latency(&mut self, epoch: Epoch, now: Monotonic) {
        let Some(base) = epoch.base else { return };
        let is_slow = epoch.median > 2 * base + Duration::from_millis(50);
        if !is_slow || self.episode.is_some() || now < self.strike.eased_until {
            return;
        }
        let lately = self.meter.rate(LATELY, now);
        let is_short = lately < 0.93 * self.sent.rate(LATELY, now);
        let is_moody = self.strike.moody_until.is_some_and(|until| now < until);
        if is_moody && !is_short {
            return;
        }
        let is_second = self.strike.last.is_some_and(|last| now.since(last) < SECOND_STRIKE);
        self.strike.eased_until = Monotonic(now.0 + EASE);
        self.strike.last = Some(now);
        if !is_second {
            return;
        }
        if !self.is_exploring() && !is_short {
            // All that we send comes back: the venue is slow at times, and not through us.
            self.strike.moody_until = Some(Monotonic(now.0 + MOODY));
            return;
        }
        let before = self.ceiling.unwrap_or(self.rate);
        self.count_probe(before, now);
        let through = lately.max(epoch.delivered).min(self.rate);
        self.refused = self.rate;
        self.settle(through.max(0.5 * before.min(self.rate)));
        self.strike.last = None;
    }

    /// Hears the headers that warn before a refusal does.
    fn hear(&mut self, feedback: &Feedback, sent_at: Monotonic, now: Monotonic) {
        if let Some(used) = feedback.used {
            match &mut self.told {
                Some(told) => told.hear(used, self.own, sent_at, now),
                None => self.told = Some(Told::new(used, self.own, now)),
            }
            if let Some(told) = self.told.as_ref()
                && told.rate(self.inflight_cost, now) == Some(0.0)
            {
                self.next_at = self.next_at.max(told.ends());
            }
        }
        if let Some((left, renewed_in)) = feedback.remaining {
            self.quota.hear(left, renewed_in, now);
            if let Some(gap) = self.quota.gap(self.inflight_cost) {
                self.next_at = self.next_at.max(Monotonic(now.0 + gap.min(self.settings.retry_after_max)));
            }
        }
    }

    fn note_failure(&mut self, outcome: Outcome, end: &End, now: Monotonic) {
        let mark = |share: &mut f64, is_so: bool| *share += (f64::from(u8::from(is_so)) - *share) * 0.02;
        mark(&mut self.failing, matches!(outcome, Outcome::Failed | Outcome::TimedOut));
        mark(&mut self.timing_out, outcome == Outcome::TimedOut);
        // A venue that drops what is too much, without a word, is refusing.
        if outcome == Outcome::TimedOut && self.timing_out > 0.2 && self.episode.is_none() {
            self.timing_out = 0.0;
            self.refused(end, now);
        }
    }

    fn is_scout(&self, end: &End) -> bool {
        self.episode.is_some_and(|episode| episode.scout.is_some_and(|scout| end.sent_at >= scout))
    }
}

impl Limiter for Pace {
    fn ask(&mut self, _cost: u32, now: Monotonic) -> Verdict {
        if let Some(episode) = &self.episode {
            if now < episode.closed_until {
                return Verdict::NotBefore(episode.closed_until);
            }
            let patience = Duration::from_secs_f64(5.0 + 2.0 * self.latency.p99_s().unwrap_or_default());
            let is_out = episode.scout.is_some_and(|scout| now.since(scout) < patience);
            return if is_out && self.inflight > 0 { Verdict::WhenOneEnds } else { Verdict::Now };
        }
        if now < self.next_at {
            return Verdict::NotBefore(self.next_at);
        }
        if self.inflight >= self.inflight_max() {
            return Verdict::WhenOneEnds;
        }
        Verdict::Now
    }

    fn sent(&mut self, cost: u32, now: Monotonic) {
        self.meter.start(now);
        self.sent.start(now);
        self.sent.add(cost, now);
        self.inflight += 1;
        self.slots.sent(self.inflight, now);
        self.inflight_cost += u64::from(cost);
        if let Some(episode) = &mut self.episode {
            if now >= episode.closed_until {
                episode.scout = Some(now);
            }
            return;
        }
        let planned = self.gap(cost, now);
        let jitter = self.dice.between(1.0 - self.settings.jitter, 1.0 + self.settings.jitter);
        let gap = Duration::from_nanos(((planned * jitter).min(GAP_S_MAX) * 1e9) as u64);
        let late = gap.mul_f64(SLACK_SHARE).clamp(SLACK, SLACK_MAX);
        let from = self.next_at.max(Monotonic(now.0.saturating_sub(late)));
        self.next_at = Monotonic(from.0.saturating_add(gap));
        self.follow_use(planned, now);
    }

    fn ended(&mut self, end: &End, now: Monotonic) {
        self.inflight = self.inflight.saturating_sub(1);
        self.inflight_cost = self.inflight_cost.saturating_sub(u64::from(end.cost));
        if end.outcome == Outcome::Abandoned {
            if self.is_scout(end)
                && let Some(episode) = &mut self.episode
            {
                episode.scout = None;
            }
            return;
        }
        self.own += u64::from(end.cost);
        self.hear(&end.feedback, end.sent_at, now);
        self.note_failure(end.outcome, end, now);
        match end.outcome {
            Outcome::Answered | Outcome::Failed => {
                self.meter.add(end.cost, now);
                if self.is_scout(end) {
                    self.resume(now);
                }
                if end.outcome == Outcome::Answered
                    && let Some(epoch) = self.latency.add(now.since(end.sent_at), end.cost, now)
                {
                    self.watch_latency(epoch, now);
                }
            }
            Outcome::Refused => self.refused(end, now),
            Outcome::TimedOut if self.is_scout(end) => self.refused(end, now),
            Outcome::Banned => self.banned(end, now),
            Outcome::TimedOut | Outcome::Abandoned => {}
        }
    }

    fn ceiling(&self) -> Option<f64> {
        self.ceiling
    }

    fn gauge(&self, now: Monotonic) -> Gauge {
        let phase = match (&self.episode, self.aim) {
            (Some(episode), _) if now < episode.closed_until => "hold-back",
            (Some(_), _) => "scout",
            (None, _) if now < self.strike.eased_until => "ease",
            (None, Aim::Start) => "start",
            (None, Aim::Regain) => "regain",
            (None, Aim::Hold { .. }) => "hold",
            (None, Aim::Close { .. } | Aim::Return) => "climb",
            (None, Aim::Probe { .. }) => "probe",
        };
        Gauge {
            rate: Some(self.pace_now(now)),
            ceiling: self.ceiling,
            inflight: self.inflight,
            inflight_max: self.inflight_max(),
            phase,
        }
    }
}
