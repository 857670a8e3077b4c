//! Tells quiet from frozen, per stream.
//!
//! ```text
//! silent for longer than its rhythm allows ─▶ ask the witness ─▶ nothing newer: quiet; asked again when twice as long
//!                                                └─▶ something newer, and it does not come ─▶ frozen
//! ```
//!
//! The witness is the venue's REST side: the newest that it knows of the instrument. Asking is cheap, so doubt begins
//! early; being told costs a record and a resubscription, so it needs proof. Where a channel has no witness, or the
//! witness does not answer, the rhythm alone decides, and it needs to be broken far more clearly.
//!
//! If not one of the streams of a connection that have a rhythm has spoken since the first was found frozen, it is the
//! connection that is frozen, however well its pings are answered.

use std::time::Duration;

use catchment_model::Monotonic;

use super::rhythm::Rhythm;

/// How long is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SilenceSettings {
    /// No doubt before this.
    pub doubt_min: Duration,
    /// Of a stream that speaks every eight seconds or more often, doubt begins at the latest then; also of one that has
    /// no rhythm yet.
    pub doubt_max: Duration,
    /// Between two questions about a quiet stream at most this.
    pub ask_every_max: Duration,
    /// What the witness has seen may be under way to us for so long.
    pub grace: Duration,
    /// Without a witness, nothing is frozen before this.
    pub alone_min: Duration,
    /// So many questions under way at once about streams that have a rhythm; one about others.
    pub asks_max: usize,
}

impl Default for SilenceSettings {
    fn default() -> Self {
        Self {
            doubt_min: Duration::from_secs(3),
            doubt_max: Duration::from_secs(15),
            ask_every_max: Duration::from_secs(600),
            grace: Duration::from_secs(2),
            alone_min: Duration::from_secs(10),
            asks_max: 4,
        }
    }
}

/// What is known of a stream before it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trait {
    /// Its instrument's newest can be asked for.
    pub(crate) has_witness: bool,
    /// It may say nothing for long, as trades do; a ticker that comes every second may not.
    pub(crate) may_be_quiet: bool,
}

/// What the witness said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Testimony {
    /// It knows of something that we have not received.
    Newer,
    /// It knows of nothing newer.
    Same,
    /// It did not answer, or not so that it could be read.
    None,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Ask the witness about this stream.
    Ask(usize),
    /// This stream is frozen, and was silent for so long.
    Frozen(usize, Duration),
    /// All of them are.
    AllFrozen,
}

/// Watches the streams of one connection.
#[derive(Debug)]
pub(crate) struct SilenceWatch {
    settings: SilenceSettings,
    streams: Vec<Watched>,
    asking: usize,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    what: Trait,
    rhythm: Rhythm,
    doubt: Doubt,
    is_subscribed: bool,
    /// Questions that were not answered, in a row.
    unanswered: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// The witness is being asked.
    Asking,
    /// The witness saw something newer, then.
    Accused(Monotonic),
    /// Quiet. Not asked again before it has been silent for this long.
    Quiet(Duration),
    /// Told; nothing more until it speaks.
    Frozen,
}

impl SilenceWatch {
    pub(crate) fn new(
        streams: impl IntoIterator<Item = Trait>,
        settings: SilenceSettings,
        now: Monotonic,
    ) -> Self {
        let watched = |what| Watched {
            what,
            rhythm: Rhythm::new(now),
            doubt: Doubt::None,
            is_subscribed: false,
            unanswered: 0,
        };
        Self { settings, streams: streams.into_iter().map(watched).collect(), asking: 0 }
    }

    /// A message of this stream.
    #[inline]
    pub(crate) fn heard(&mut self, place: usize, now: Monotonic) {
        let stream = &mut self.streams[place];
        stream.rhythm.beat(now);
        // An answer that is still under way is counted when it comes.
        if !matches!(stream.doubt, Doubt::None | Doubt::Asking) {
            stream.doubt = Doubt::None;
        }
    }

    /// The stream is (again) subscribed since now.
    pub(crate) fn subscribed(&mut self, place: usize, now: Monotonic) {
        let stream = &mut self.streams[place];
        stream.rhythm.restart(now);
        stream.is_subscribed = true;
        if stream.doubt != Doubt::Asking {
            stream.doubt = Doubt::None;
        }
    }

    /// It is not subscribed just now, so that silence means nothing.
    pub(crate) fn unsubscribed(&mut self, place: usize) {
        self.streams[place].is_subscribed = false;
    }

    /// We have not read for this long: silence was ours.
    pub(crate) fn forgive(&mut self, stall: Duration) {
        self.streams.iter_mut().for_each(|stream| stream.rhythm.forgive(stall));
    }

    /// What the witness said about a stream it was asked about.
    pub(crate) fn answered(&mut self, place: usize, testimony: Testimony, now: Monotonic) {
        self.asking = self.asking.saturating_sub(1);
        let stream = &mut self.streams[place];
        let silence = stream.rhythm.silence(now);
        if stream.doubt != Doubt::Asking {
            return;
        }
        stream.doubt = match testimony {
            Testimony::Newer => Doubt::Accused(now),
            Testimony::Same | Testimony::None => {
                Doubt::Quiet(silence + silence.clamp(self.settings.doubt_min, self.settings.ask_every_max))
            }
        };
        stream.unanswered =
            if testimony == Testimony::None { stream.unanswered.saturating_add(1) } else { 0 };
    }

    /// How many are frozen as far as we know.
    pub(crate) fn frozen(&self) -> usize {
        self.streams.iter().filter(|stream| stream.doubt == Doubt::Frozen).count()
    }

    /// To be called about four times a second.
    pub(crate) fn look(&mut self, now: Monotonic) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut doubted: Vec<((bool, f32), usize)> = Vec::new();
        for (place, stream) in self.streams.iter_mut().enumerate().filter(|(_, s)| s.is_subscribed) {
            let silence = stream.rhythm.silence(now);
            if silence < self.settings.doubt_min {
                if stream.doubt != Doubt::Asking {
                    stream.doubt = Doubt::None;
                }
                continue;
            }
            let is_frozen = match stream.doubt {
                Doubt::Accused(at) => now.since(at) >= self.settings.grace,
                Doubt::None | Doubt::Quiet(_) => stream.breaks_rhythm(silence, &self.settings),
                Doubt::Asking | Doubt::Frozen => false,
            };
            if is_frozen {
                stream.doubt = Doubt::Frozen;
                findings.push(Finding::Frozen(place, silence));
            } else if let Some(surprise) = stream.surprise(silence, &self.settings) {
                doubted.push((surprise, place));
            }
        }
        if !findings.is_empty() && self.are_all_frozen(now) {
            self.streams.iter_mut().for_each(|stream| stream.doubt = Doubt::Frozen);
            return vec![Finding::AllFrozen];
        }
        // The most surprising first, so that those that are always quiet do not keep one that is muted waiting.
        doubted.sort_by(|((a_known, a), x), ((b_known, b), y)| {
            b_known.cmp(a_known).then(b.total_cmp(a)).then(x.cmp(y))
        });
        for ((has_rhythm, _), place) in doubted {
            // One question at a time about those without a rhythm: at a venue that answers one a second, more would keep
            // waiting whoever comes after them.
            if self.asking >= if has_rhythm { self.settings.asks_max } else { 1 } {
                break;
            }
            self.streams[place].doubt = Doubt::Asking;
            self.asking += 1;
            findings.push(Finding::Ask(place));
        }
        findings
    }

    /// Whether everyone with a rhythm of a few seconds, and at least three of them, has fallen silent.
    fn are_all_frozen(&self, now: Monotonic) -> bool {
        let lively = self.streams.iter().filter(|stream| stream.is_subscribed).filter_map(|stream| {
            let (mean, longest) = stream.rhythm.learned()?;
            let usual = (3 * mean).max(longest).max(self.settings.doubt_min);
            (usual <= self.settings.doubt_max).then(|| stream.rhythm.silence(now) > usual)
        });
        let (mut all, mut silent) = (0, 0);
        for is_silent in lively {
            all += 1;
            silent += usize::from(is_silent);
        }
        all >= 3 && silent == all
    }
}

impl Watched {
    /// How surprising this silence is, if it is worth a question. Of one that has a rhythm it always is more so than of
    /// one that has none: where questions are few, hundreds of quiet streams are not to stand before one that is muted.
    fn surprise(&self, silence: Duration, settings: &SilenceSettings) -> Option<(bool, f32)> {
        if !self.what.has_witness {
            return None;
        }
        let expected = match self.doubt {
            Doubt::None => self.usual(settings),
            Doubt::Quiet(until) => self.usual(settings).max(until),
            Doubt::Asking | Doubt::Accused(_) | Doubt::Frozen => return None,
        };
        let by = silence.as_secs_f32() / expected.as_secs_f32().max(0.001);
        (silence >= expected).then(|| (self.rhythm.learned().is_some(), by))
    }

    /// How long it may be silent before anybody wonders.
    fn usual(&self, settings: &SilenceSettings) -> Duration {
        let Some((mean, longest)) = self.rhythm.learned() else { return settings.doubt_max };
        let usual = (6 * mean).max(longest.mul_f32(1.5)).max(settings.doubt_min);
        let is_lively = 2 * mean <= settings.doubt_max;
        if is_lively { usual.min(settings.doubt_max) } else { usual.min(settings.ask_every_max) }
    }

    /// Whether the rhythm alone says that something is wrong. Only where nobody else can.
    fn breaks_rhythm(&self, silence: Duration, settings: &SilenceSettings) -> bool {
        if self.what.has_witness && self.unanswered < 3 {
            return false;
        }
        let Some((mean, longest)) = self.rhythm.learned() else { return false };
        let limit = match self.what.may_be_quiet {
            true => (20 * mean).max(4 * longest),
            false => (5 * mean).max(3 * longest),
        };
        silence > limit.max(settings.alone_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITNESSED: Trait = Trait { has_witness: true, may_be_quiet: true };
    const ALONE: Trait = Trait { has_witness: false, may_be_quiet: true };

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    fn watch(streams: Vec<Trait>) -> SilenceWatch {
        let count = streams.len();
        let mut watch = SilenceWatch::new(streams, SilenceSettings::default(), at(0));
        (0..count).for_each(|place| watch.subscribed(place, at(0)));
        watch
    }

    /// Lets time pass in quarters of a second. `speaks(place, ms)` says who speaks; the witness answers at once.
    fn run(
        watch: &mut SilenceWatch,
        from: u64,
        to: u64,
        mut speaks: impl FnMut(usize, u64) -> bool,
        mut witness: impl FnMut(usize) -> Testimony,
    ) -> (Vec<(u64, Finding)>, usize) {
        let (mut found, mut asks) = (Vec::new(), 0);
        for ms in (from..to).step_by(250) {
            for place in 0..watch.streams.len() {
                if speaks(place, ms) {
                    watch.heard(place, at(ms));
                }
            }
            for finding in watch.look(at(ms)) {
                match finding {
                    Finding::Ask(place) => {
                        asks += 1;
                        watch.answered(place, witness(place), at(ms));
                    }
                    other => found.push((ms, other)),
                }
            }
        }
        (found, asks)
    }

    #[test]
    fn a_muted_stream_whose_siblings_flow_is_found_within_thirty_seconds() {
        for period in [250, 1_000, 4_000, 7_000] {
            let mut watch = watch(vec![WITNESSED; 10]);
            let rhythmic = |place: usize, ms: u64| (ms + place as u64 * 250).is_multiple_of(period);
            let (found, _) = run(&mut watch, 0, 200_000, rhythmic, |_| Testimony::Same);
            assert_eq!(found, [], "nothing was wrong, one message every {period} ms");
            let muted = |place: usize, ms: u64| place != 3 && rhythmic(place, ms);
            let testify = |place| if place == 3 { Testimony::Newer } else { Testimony::Same };
            let (found, _) = run(&mut watch, 200_000, 230_000, muted, testify);
            assert!(matches!(found[..], [(_, Finding::Frozen(3, _))]), "{period}: {found:?}");
        }
    }

    #[test]
    fn two_hundred_quiet_streams_raise_no_alarm_and_few_questions() {
        let mut watch = watch(vec![WITNESSED; 200]);
        let (found, asks) = run(&mut watch, 0, 3_600_000, |_, _| false, |_| Testimony::Same);
        assert_eq!(found, []);
        assert!(asks < 200 * 13, "{asks} questions in an hour");
    }

    #[test]
    fn a_muted_one_does_not_wait_behind_the_quiet() {
        let mut watch = watch(vec![WITNESSED; 201]);
        watch.settings.asks_max = 1;
        let lively = |place: usize, _ms: u64| place == 200;
        run(&mut watch, 0, 10_000, lively, |_| Testimony::Same);
        let (found, _) = run(
            &mut watch,
            10_000,
            40_000,
            |_, _| false,
            |place| {
                if place == 200 { Testimony::Newer } else { Testimony::Same }
            },
        );
        assert!(matches!(found[..], [(ms, Finding::Frozen(200, _))] if ms < 16_000), "{found:?}");
    }

    #[test]
    fn what_the_witness_saw_may_still_be_under_way() {
        let mut watch = watch(vec![WITNESSED]);
        run(&mut watch, 0, 20_000, |_, ms| ms.is_multiple_of(500), |_| Testimony::Same);
        // Silent for four seconds, accused, and then it speaks.
        let (found, asks) =
            run(&mut watch, 20_000, 40_000, |_, ms| ms == 24_000 || ms > 24_500, |_| Testimony::Newer);
        assert_eq!((found, asks), (vec![], 1));
    }

    #[test]
    fn without_a_witness_the_rhythm_must_be_broken_clearly() {
        let mut watch = watch(vec![ALONE, ALONE, Trait { may_be_quiet: false, ..ALONE }]);
        run(&mut watch, 0, 100_000, |_, ms| ms.is_multiple_of(1_000), |_| Testimony::None);
        let (found, asks) = run(
            &mut watch,
            100_000,
            125_000,
            |place, ms| place == 0 && ms.is_multiple_of(1_000),
            |_| Testimony::None,
        );
        let places: Vec<_> = found.iter().map(|(ms, finding)| (*ms, *finding)).collect();
        assert!(
            matches!(places[..], [(a, Finding::Frozen(2, _)), (b, Finding::Frozen(1, _))] if a <= 110_500 && b <= 121_000),
            "{places:?}"
        );
        assert_eq!(asks, 0);
    }

    #[test]
    fn a_witness_that_never_answers_is_none() {
        let mut watch = watch(vec![WITNESSED, WITNESSED]);
        let flows = |place: usize, ms: u64| place == 0 && ms.is_multiple_of(1_000);
        run(&mut watch, 0, 60_000, |_, ms| ms.is_multiple_of(1_000), |_| Testimony::None);
        let (found, _) = run(&mut watch, 60_000, 120_000, flows, |_| Testimony::None);
        assert!(matches!(found[..], [(_, Finding::Frozen(1, _))]), "{found:?}");
    }

    #[test]
    fn when_nobody_speaks_any_more_it_is_the_connection() {
        let mut watch = watch(vec![WITNESSED; 6]);
        // The sixth is quiet anyway and proves nothing.
        run(&mut watch, 0, 60_000, |place, ms| place < 5 && ms.is_multiple_of(500), |_| Testimony::Same);
        let (found, _) = run(
            &mut watch,
            60_000,
            70_000,
            |_, _| false,
            |place| {
                if place == 5 { Testimony::Same } else { Testimony::Newer }
            },
        );
        assert_eq!(
            found.iter().filter(|(_, finding)| *finding == Finding::AllFrozen).count(),
            1,
            "{found:?}"
        );
    }

    #[test]
    fn our_own_stall_is_nobodys_silence() {
        let mut watch = watch(vec![ALONE; 3]);
        run(&mut watch, 0, 60_000, |_, ms| ms.is_multiple_of(500), |_| Testimony::None);
        watch.forgive(Duration::from_secs(100));
        let (found, _) =
            run(&mut watch, 160_000, 180_000, |_, ms| ms.is_multiple_of(500), |_| Testimony::None);
        assert_eq!(found, []);
    }
}
