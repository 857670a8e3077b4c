//! How often a stream usually speaks: a running mean of the pauses between its messages, and the longest lately.

use std::time::Duration;

use catchment_model::Monotonic;

/// So many pauses make a rhythm.
const LEARNED: u32 = 8;
/// Messages closer than this came together.
const TOGETHER: Duration = Duration::from_millis(1);

/// The rhythm of one stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    last: Monotonic,
    mean_s: f32,
    longest_s: f32,
    pauses: u32,
    has_spoken: bool,
}

impl Rhythm {
    /// It is listened to since `now`.
    pub(crate) fn new(now: Monotonic) -> Self {
        Self { last: now, mean_s: 0.0, longest_s: 0.0, pauses: 0, has_spoken: false }
    }

    /// A message.
    #[inline]
    pub(crate) fn beat(&mut self, now: Monotonic) {
        let pause = now.since(self.last);
        if pause < TOGETHER && self.has_spoken {
            return;
        }
        self.last = now;
        if !std::mem::replace(&mut self.has_spoken, true) {
            return;
        }
        let pause = pause.as_secs_f32();
        self.pauses = self.pauses.saturating_add(1);
        // The first few count alike, later ones a sixteenth each.
        self.mean_s += (pause - self.mean_s) / self.pauses.min(16) as f32;
        self.longest_s = pause.max(self.longest_s * (1.0 - 1.0 / 256.0));
    }

    /// It was our own fault that nothing came since then.
    pub(crate) fn forgive(&mut self, stall: Duration) {
        self.last = Monotonic(self.last.0 + stall);
    }

    /// It is listened to anew; what was learned stays.
    pub(crate) fn restart(&mut self, now: Monotonic) {
        self.last = now;
        self.has_spoken = false;
    }

    /// How long it has been silent.
    pub(crate) fn silence(&self, now: Monotonic) -> Duration {
        now.since(self.last)
    }

    /// The mean and the longest pause, once there were enough.
    pub(crate) fn learned(&self) -> Option<(Duration, Duration)> {
        (self.pauses >= LEARNED)
            .then(|| (Duration::from_secs_f32(self.mean_s), Duration::from_secs_f32(self.longest_s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn a_rhythm_is_learned_and_follows() {
        let mut rhythm = Rhythm::new(at(0));
        (1..=8).for_each(|n| rhythm.beat(at(n * 100)));
        assert_eq!(rhythm.learned(), None, "seven pauses are not enough");
        rhythm.beat(at(900));
        let (mean, longest) = rhythm.learned().unwrap();
        assert!((mean.as_secs_f32() - 0.1).abs() < 0.001 && (longest.as_secs_f32() - 0.1).abs() < 0.001);
        (1..=200).for_each(|n| rhythm.beat(at(900 + n * 2_000)));
        let (mean, _) = rhythm.learned().unwrap();
        assert!((mean.as_secs_f32() - 2.0).abs() < 0.01, "{mean:?}");
        assert_eq!(rhythm.silence(at(900 + 400_000 + 50)), Duration::from_millis(50));
    }

    #[test]
    fn bursts_do_not_make_it_look_busy() {
        let mut rhythm = Rhythm::new(at(0));
        for second in 1..20 {
            (0..50).for_each(|_| rhythm.beat(at(second * 1_000)));
        }
        let (mean, _) = rhythm.learned().unwrap();
        assert!((mean.as_secs_f32() - 1.0).abs() < 0.01, "{mean:?}");
    }

    #[test]
    fn a_stall_of_ours_is_no_pause_of_theirs() {
        let mut rhythm = Rhythm::new(at(0));
        rhythm.beat(at(10));
        rhythm.forgive(Duration::from_secs(30));
        assert_eq!(rhythm.silence(at(31_010)), Duration::from_secs(1));
        rhythm.restart(at(40_000));
        rhythm.beat(at(90_000));
        assert_eq!(rhythm.learned(), None);
    }
}
