//! Where time comes from. Rooms ask a [`Clock`], so a test can stop it, step it and send it back.

use std::sync::Mutex;
use std::time::Duration;

use crate::UnixNs;

/// Wall time to label records, monotonic time to measure waits. The two are never mixed.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Now, as the machine's calendar has it. May step in either direction.
    fn wall(&self) -> UnixNs;

    /// Now, on a clock that never goes back.
    fn monotonic(&self) -> Monotonic;
}

/// A point on a clock that never goes back; only differences mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// How long it has been since `earlier`; zero if that is still to come.
    pub fn since(self, earlier: Monotonic) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// Starts the monotonic count now.
    #[allow(clippy::disallowed_methods)] // the one place that may
    pub fn new() -> Self {
        Self { started: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // the one place that may
    fn wall(&self) -> UnixNs {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        UnixNs::new(ns).expect("a duration is not negative")
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(self.started.elapsed())
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct SimClock {
    now: Mutex<(UnixNs, Monotonic)>,
}

impl SimClock {
    /// Stands at `wall` until moved.
    pub fn at(wall: UnixNs) -> Self {
        Self { now: Mutex::new((wall, Monotonic::default())) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut now = self.lock();
        now.0 = UnixNs::new(now.0.get() + by.as_nanos() as i64).expect("time moves forward");
        now.1 = Monotonic(now.1.0 + by);
    }

    /// Steps the calendar only, as an operator or NTP does.
    pub fn set_wall(&self, wall: UnixNs) {
        self.lock().0 = wall;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (UnixNs, Monotonic)> {
        self.now.lock().expect("no holder of this lock can panic")
    }
}

impl Clock for SimClock {
    fn wall(&self) -> UnixNs {
        self.lock().0
    }

    fn monotonic(&self) -> Monotonic {
        self.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_calendar_leaves_waits_alone() {
        let clock = SimClock::at(UnixNs::from_ms(1_000).unwrap());
        let before = clock.monotonic();
        clock.advance(Duration::from_millis(5));
        clock.set_wall(UnixNs::from_ms(10).unwrap());
        assert_eq!(clock.wall().ms().get(), 10);
        assert_eq!(clock.monotonic().since(before), Duration::from_millis(5));
        assert_eq!(before.since(clock.monotonic()), Duration::ZERO);
    }
}
