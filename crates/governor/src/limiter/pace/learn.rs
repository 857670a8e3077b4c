//! What `pace` makes of a refusal: how long to wait, what the ceiling is, and when to ask again.

use std::time::Duration;

use catchment_model::Monotonic;

use super::super::{End, Outcome};
use super::{Aim, LATELY, Pace, Stretch, WORTH};

/// A silence longer than this, in seconds, is worth a larger step to avoid the next.
const DEAR_S: f64 = 5.0;
/// A refusal this soon after the one before says that the ceiling is wrong; where silences are long, within four of them.
const SOON: Duration = Duration::from_secs(10);
/// A ceiling younger than this is not yet tried.
const FRESH: Duration = Duration::from_secs(30);
/// The longest time over which to count what was let through.
const HORIZON_MAX: Duration = Duration::from_secs(80);
/// Two refusals that we did nothing for, this close together, are not chance.
const OFTEN: Duration = Duration::from_secs(120);
/// Within this after a refusal, the next may still come of the same crowd.
const CROWD: Duration = Duration::from_secs(15);
/// A limit that fell is taken for one that moves, for so long.
const MOVES: Duration = Duration::from_secs(3_600);
/// So many seconds of work for each refusal that a probe cost, and at most so many, before the next probe.
const WORTH_REFUSAL: f64 = 300.0;
const WORTH_MAX: f64 = 1_800.0;

/// A door that stays shut for so long, whatever knocks, is that of a long window.
const SHUT_LONG: Duration = Duration::from_secs(10);
/// The longest window that is learned.
const WINDOW_MAX: Duration = Duration::from_secs(900);
/// Sums within this share of each other are the same.
const SAME: f64 = 0.1;

/// An episode younger than this may be over soon: a scout goes ahead at least this often, and the venue is back within
/// half a minute of its end. One that lasts longer is left alone for longer, and so is one that follows such a one.
const BRIEF: Duration = Duration::from_secs(120);
const WAIT_BRIEF_MAX: Duration = Duration::from_secs(20);
/// A venue that says nothing counts nothing either, so it is asked this often however long it lasts.
const WAIT_SILENT_MAX: Duration = Duration::from_secs(10);

/// Trouble that comes again within this is no trouble but the venue's way.
const HABIT: Duration = Duration::from_secs(3_600);

/// A rate that was let through for so long is not refused for being too fast.
const HELD: Duration = Duration::from_secs(60);

/// From the first refusal to the first answer after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Episode {
    pub(super) began: Monotonic,
    pub(super) closed_until: Monotonic,
    wait: Duration,
    pub(super) scout: Option<Monotonic>,
    /// It was refused at a rate we had not tried before.
    explored: bool,
    /// It was refused in a probe.
    probed: bool,
    refused_scouts: u32,
    refusals: u32,
    /// It began with requests that were not answered.
    is_silence: bool,
    /// What was known before, if it had held for a good while.
    before: Option<Known>,
}

/// All that a refusal changes of what is known.
#[derive(Debug, Clone, Copy)]
struct Known {
    rate: f64,
    ceiling: Option<f64>,
    refused: f64,
    aim: Aim,
    probe_after: f64,
    past: Past,
}

/// What is remembered of the episodes before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Past {
    pub(super) began: Option<Monotonic>,
    explored: bool,
    pub(super) resumed: Option<Monotonic>,
    /// From when on the next estimate counts.
    anchor: Monotonic,
    /// What the last one cost, in seconds.
    pub(super) silence: f64,
    patience: Duration,
    /// When the limit was last seen to be lower than before.
    fell: Option<Monotonic>,
    /// The ceiling that was last held for a good while; zero if none was since it fell.
    pub(super) proven: f64,
    /// The ceiling that was proven before it fell; zero if it did not fall.
    pub(super) former: f64,
    /// How far back to look for what was let through. A ceiling that soon proves wrong was counted over too short a
    /// time: the venue's window is longer.
    horizon: Duration,
    /// When we were last refused at a rate that had worked.
    unexplained: Option<Monotonic>,
    /// How many of those followed each other with some calm between.
    sinking: u32,
    /// When we last took refusals for trouble that teaches nothing.
    troubled: Option<Monotonic>,
    /// What had been let through in all when the door was last opened, and how much more it was until it was shut.
    total: u64,
    sum: u64,
    /// How long it was shut, if it was tried meanwhile.
    shut: Duration,
    /// From when it was opened before to when it was opened last.
    cycle: Duration,
    /// How long the venue's window is, if it is long and was found.
    pub(super) window: Duration,
}

impl Past {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            began: None,
            explored: false,
            resumed: None,
            anchor: Monotonic::default(),
            silence: 0.0,
            patience,
            fell: None,
            proven: 0.0,
            former: 0.0,
            horizon: LATELY,
            unexplained: None,
            sinking: 0,
            troubled: None,
            total: 0,
            sum: 0,
            shut: Duration::ZERO,
            cycle: Duration::ZERO,
            window: Duration::ZERO,
        }
    }
}

impl Pace {
    /// Too fast.
    pub(super) fn refused(&mut self, end: &End, now: Monotonic) {
        let is_one_too_many = end.outcome == Outcome::Refused && self.slots.refused(end.sent_at, now);
        if let Some(episode) = &mut self.episode {
            episode.refusals += 1;
            let was_scout = episode.scout.is_some_and(|scout| end.sent_at >= scout);
            if was_scout {
                episode.scout = None;
                episode.refused_scouts += 1;
                let is_brief = now.since(episode.began) < BRIEF && self.past.silence < BRIEF.as_secs_f64();
                let most = match end.outcome {
                    Outcome::TimedOut => WAIT_SILENT_MAX,
                    _ if is_brief => WAIT_BRIEF_MAX,
                    _ => self.settings.wait_max,
                };
                episode.wait = (episode.wait * 2).min(most.min(self.settings.wait_max));
            }
            if was_scout || end.feedback.retry_after.is_some() {
                self.close_door(end.feedback.retry_after, now);
            }
            return;
        }
        let is_old_news = self.past.began.is_some_and(|began| end.sent_at <= began);
        if is_old_news || is_one_too_many {
            return;
        }
        self.begin_episode(end.feedback.retry_after, end.outcome == Outcome::TimedOut, now);
    }

    fn begin_episode(&mut self, retry_after: Option<Duration>, is_silence: bool, now: Monotonic) {
        let before = self.has_held(now).then_some(Known {
            rate: self.rate,
            ceiling: self.ceiling,
            refused: self.refused,
            aim: self.aim,
            probe_after: self.probe_after,
            past: self.past,
        });
        let explored = self.is_exploring();
        let probed = matches!(self.aim, Aim::Probe { .. });
        let is_dear = !self.past.explored && self.past.silence > DEAR_S;
        let soon = if is_dear { SOON.max(Duration::from_secs_f64(4.0 * self.past.silence)) } else { SOON };
        let again = !explored && self.past.resumed.is_some_and(|resumed| now.since(resumed) < soon);
        let window = self.learn_window();
        let before = before.filter(|_| window.is_none());
        match window {
            Some(ceiling) => self.settle_in_window(ceiling),
            None => self.learn_ceiling(explored, again, is_silence, now),
        }
        let wait = if again { self.past.patience * 2 } else { self.past.patience };
        self.episode = Some(Episode {
            began: now,
            closed_until: now,
            wait: wait.clamp(self.settings.wait_min, self.settings.wait_max),
            scout: None,
            explored,
            probed,
            refused_scouts: 0,
            refusals: 1,
            is_silence,
            before,
        });
        self.past.began = Some(now);
        self.past.explored = explored;
        self.close_door(retry_after, now);
    }

    pub(super) fn is_exploring(&self) -> bool {
        match self.aim {
            Aim::Start | Aim::Close { .. } | Aim::Return | Aim::Probe { .. } => true,
            Aim::Regain | Aim::Hold { .. } => self.ceiling.is_none(),
        }
    }

    /// Whether it has been as fast as it is now for a good while, and nothing spoke against it.
    fn has_held(&mut self, now: Monotonic) -> bool {
        let climbs = matches!(self.aim, Aim::Close { .. } | Aim::Return | Aim::Probe { .. });
        let since = self.past.resumed.or(self.sent.since());
        let is_long = since.is_some_and(|since| now.since(since) >= HELD);
        is_long && !climbs && self.sent.rate(HELD, now) >= 0.9 * self.sent.rate(LATELY, now)
    }

    /// The same sum was let through as before the last refusal, and the door had been shut for long: a window of that sum,
    /// as long as from one opening to the next. How fast we were says nothing; only a long window gives such sums, while
    /// a penalty, a stranger or a limit that moves come after any.
    fn learn_window(&mut self) -> Option<f64> {
        let before = self.past.sum as f64;
        self.past.sum = self.meter.total() - self.past.total;
        let sum = self.past.sum as f64;
        let is_same = sum > 0.0 && (sum - before).abs() <= SAME * sum;
        if !is_same || self.past.shut < SHUT_LONG {
            return None;
        }
        self.past.window = self.past.cycle.min(WINDOW_MAX);
        self.past.horizon = self.past.horizon.max(self.past.window);
        let ceiling = sum / self.past.cycle.as_secs_f64();
        (ceiling < self.rate).then_some(ceiling)
    }

    /// Goes on below the rate of a long window. It was measured while we were much too fast, so it is soon looked for more.
    fn settle_in_window(&mut self, ceiling: f64) {
        self.probe_after = self.settings.probe_after_min.as_secs_f64();
        (self.past.proven, self.past.former, self.past.unexplained) = (0.0, 0.0, None);
        self.refused = f64::INFINITY;
        self.settle(ceiling);
    }

    /// Settles the ceiling, and the rate below it, after a refusal.
    fn learn_ceiling(&mut self, explored: bool, again: bool, is_silence: bool, now: Monotonic) {
        let before = self.ceiling.unwrap_or(self.rate);
        self.learn_horizon(explored, before, now);
        let through = self.meter.rate(self.past.horizon, now);
        let ceiling = if self.ceiling.is_none() && is_silence {
            // Nothing came through, which says nothing about how much would.
            through.clamp(0.5 * self.rate, self.rate)
        } else if self.ceiling.is_none() {
            through.min(self.rate)
        } else if explored {
            self.count_probe(before, now);
            through.clamp((0.97 * before).min(self.rate), self.rate)
        } else if again {
            self.since_anchor(now).min(0.9 * before).max(0.5 * before)
        } else {
            before * self.caution(now)
        };
        if !again || now.since(self.past.anchor) >= LATELY / 2 {
            self.past.anchor = now;
        }
        if ceiling > 0.9 * self.past.former {
            self.past.former = 0.0;
        }
        let has_fallen = !explored && ceiling < 0.8 * self.past.proven;
        if has_fallen {
            // It may well rise again, so for an hour it is asked about more often, and first where it was.
            self.probe_after = self.settings.probe_after_min.as_secs_f64();
            self.past.fell = Some(now);
            self.past.former = self.past.proven;
            self.past.proven = 0.0;
        }
        // In a long window any rate may be had for a while: what counts is what it was on the whole.
        self.refused = if self.past.window.is_zero() { self.rate } else { self.rate.min(ceiling) };
        self.settle(ceiling);
    }

    /// What to keep of the ceiling after a refusal at a rate that had worked. One may be somebody else's doing, and so
    /// may one right after it: the gap that our silence left moves out of the venue's window. One that comes after some
    /// calm, again and again, is a limit that sinks.
    fn caution(&mut self, now: Monotonic) -> f64 {
        let calm = self.past.resumed.map_or(Duration::MAX, |resumed| now.since(resumed));
        let is_chain = self.past.unexplained.is_some_and(|at| now.since(at) < OFTEN);
        self.past.unexplained = Some(now);
        if !is_chain {
            self.past.sinking = 0;
        } else if calm > CROWD {
            self.past.sinking += 1;
        }
        let keep: f64 = match self.past.sinking {
            0 if is_chain => 0.97,
            0 => 0.99,
            1 => 0.93,
            _ => 0.90,
        };
        if self.past.silence > DEAR_S { keep.min(0.95) } else { keep }
    }

    fn learn_horizon(&mut self, explored: bool, before: f64, now: Monotonic) {
        let is_fresh = self.past.resumed.is_some_and(|resumed| now.since(resumed) < FRESH);
        if !explored && is_fresh && self.past.explored {
            self.past.horizon = self.past.horizon.max((self.past.horizon * 2).min(HORIZON_MAX));
        } else if explored && self.ceiling.is_some() && self.rate > 1.06 * before {
            let shut = Duration::from_secs_f64(self.past.silence).min(HORIZON_MAX);
            self.past.horizon = (self.past.horizon / 2).max(LATELY).max(shut).max(self.past.window);
        }
    }

    /// Goes on below a ceiling.
    pub(super) fn settle(&mut self, ceiling: f64) {
        let ceiling = ceiling.clamp(self.settings.rate_min, self.settings.rate_max);
        self.ceiling = Some(ceiling);
        self.rate = (self.settings.cut_share * ceiling).max(self.settings.rate_min);
        self.aim = Aim::Regain;
    }

    /// A probe that failed makes the next one wait longer; one that found more does not.
    pub(super) fn count_probe(&mut self, before: f64, now: Monotonic) {
        let moves = self.past.fell.is_some_and(|fell| now.since(fell) < MOVES);
        let longest = self.settings.probe_after_max.as_secs_f64() / if moves { 2.0 } else { 1.0 };
        let found_more = self.rate > 1.06 * before;
        if matches!(self.aim, Aim::Return) || (matches!(self.aim, Aim::Probe { .. }) && !found_more) {
            self.probe_after = (2.0 * self.probe_after).min(longest);
        }
    }

    /// What was let through since the last time nothing was left, a second; no opinion if that was just now.
    fn since_anchor(&mut self, now: Monotonic) -> f64 {
        let span = now.since(self.past.anchor);
        if span < LATELY / 2 { f64::INFINITY } else { self.meter.rate(span.max(self.past.horizon), now) }
    }

    fn close_door(&mut self, retry_after: Option<Duration>, now: Monotonic) {
        let Some(episode) = &mut self.episode else { return };
        let asked =
            retry_after.map(|wait| wait.clamp(self.settings.retry_after_min, self.settings.retry_after_max));
        let wait = asked.unwrap_or(episode.wait);
        // On top, never less: the venue said when.
        let wait = wait.mul_f64(1.0 + self.dice.between(0.0, self.settings.jitter));
        episode.closed_until = episode.closed_until.max(Monotonic(now.0 + wait));
    }

    /// The scout came through.
    pub(super) fn resume(&mut self, now: Monotonic) {
        let Some(episode) = self.episode.take() else { return };
        // What was not answered meanwhile belongs to it, and does not begin another.
        self.timing_out = 0.0;
        let silence = now.since(episode.began);
        self.past.total = self.meter.total();
        self.past.cycle =
            self.past.resumed.or(self.meter.since()).map_or(Duration::ZERO, |opened| now.since(opened));
        self.past.shut = if episode.refused_scouts > 0 { silence } else { Duration::ZERO };
        self.past.silence = silence.as_secs_f64();
        self.past.resumed = Some(now);
        self.past.patience = if episode.refused_scouts == 0 { episode.wait / 2 } else { episode.wait };
        self.past.patience = self.past.patience.max(self.settings.wait_min);
        if episode.explored {
            self.probe_after = self.probe_after.max(WORTH * self.past.silence);
        }
        if episode.refused_scouts > 0 {
            // The door stays shut until the venue's window is over: it is at least that long.
            self.past.horizon = self.past.horizon.max(silence.min(HORIZON_MAX));
        }
        let is_trouble = episode.refused_scouts > 0 || episode.is_silence;
        let is_habit = self.past.troubled.is_some_and(|at| now.since(at) < HABIT);
        if let Some(before) = episode.before.filter(|_| is_trouble && !is_habit) {
            self.restore(before, now);
        }
        if episode.probed {
            let dear = (WORTH_REFUSAL * f64::from(episode.refusals)).min(WORTH_MAX);
            self.probe_after = self.probe_after.max(dear);
        }
        if self.slots.judge(now) {
            // It was not the rate that was refused, so the rate is what the slots allow.
            (self.ceiling, self.refused, self.aim) = (None, f64::INFINITY, Aim::Start);
        }
        self.next_at = now;
        self.stretch = Stretch { began: now, ..Stretch::default() };
    }

    /// A rate that had worked for a minute was refused, and so was a single request after a silence: that was trouble at
    /// the venue, and no rate could have avoided it. It has taught nothing. If it was a limit that fell after all, the
    /// next refusal comes soon, and counts.
    fn restore(&mut self, before: Known, now: Monotonic) {
        let Known { rate, ceiling, refused, aim, probe_after, past } = before;
        (self.rate, self.ceiling, self.refused, self.probe_after) = (rate, ceiling, refused, probe_after);
        self.aim = if matches!(aim, Aim::Hold { .. }) { Aim::Hold { calm: 0.0 } } else { aim };
        self.past = Past {
            began: self.past.began,
            resumed: self.past.resumed,
            silence: self.past.silence,
            patience: self.past.patience,
            total: self.past.total,
            sum: self.past.sum,
            shut: self.past.shut,
            cycle: self.past.cycle,
            anchor: now,
            troubled: Some(now),
            ..past
        };
    }

    pub(super) fn banned(&mut self, end: &End, now: Monotonic) {
        if self.episode.is_none() {
            self.begin_episode(None, false, now);
        }
        let wait = end.feedback.retry_after.unwrap_or(self.settings.ban) + Duration::from_secs(5);
        self.close_door(Some(wait), now);
        if let Some(episode) = &mut self.episode {
            episode.scout = None;
        }
    }
}
