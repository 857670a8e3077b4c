//! Who leads: a lease in Redis, and the fence that goes with it.
//!
//! The holder renews it several times within its length. It counts as held from when the successful request was *sent*, less
//! a margin, by the holder's own monotonic clock: the holder stops before Redis gives the lease to another, however
//! long an answer took or the process was stopped. Each time the lease changes hands the fence grows; nodes refuse commands
//! with a lower one than they have seen. The fence is at least the server's time in milliseconds, so that it grows even
//! when the server has lost everything. Pure: the asking is done in `registry`.

use std::time::Duration;

use catchment_model::Monotonic;

/// How long a lease lasts, and how it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSettings {
    /// Without a renewal it ends after this.
    pub length: Duration,
    /// The holder renews it this often.
    pub renew_every: Duration,
    /// The others ask this often.
    pub ask_every: Duration,
    /// The holder gives it up this much before it ends.
    pub margin: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            length: Duration::from_millis(2_500),
            renew_every: Duration::from_millis(500),
            ask_every: Duration::from_millis(300),
            margin: Duration::from_millis(300),
        }
    }
}

/// What Redis said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It is ours.
    Granted {
        /// With this fence.
        fence: u64,
    },
    /// It is another's.
    Taken {
        /// Whose.
        holder: String,
    },
}

/// One coordinator's view of the lease.
#[derive(Debug, Clone)]
pub struct Lease {
    settings: LeaseSettings,
    held: Option<Held>,
    next_ask: Monotonic,
    holder: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    fence: u64,
    until: Monotonic,
}

impl Lease {
    /// Not held.
    pub fn new(settings: LeaseSettings, now: Monotonic) -> Self {
        Self { settings, held: None, next_ask: now, holder: None }
    }

    /// The fence, if the lease is held at this moment.
    pub fn fence(&self, now: Monotonic) -> Option<u64> {
        self.held.filter(|held| now < held.until).map(|held| held.fence)
    }

    /// Until when it is held without a renewal.
    pub fn until(&self) -> Option<Monotonic> {
        self.held.map(|held| held.until)
    }

    /// Who holds it, if it is another and that is known.
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    /// When Redis is to be asked next.
    pub fn next_ask(&self) -> Monotonic {
        self.next_ask
    }

    /// Redis answered a request that was sent at `sent`.
    pub fn answered(&mut self, sent: Monotonic, answer: LeaseAnswer) {
        match answer {
            LeaseAnswer::Granted { fence } => {
                let until = Monotonic(sent.0 + self.settings.length.saturating_sub(self.settings.margin));
                self.held = Some(Held { fence, until });
                self.holder = None;
                self.next_ask = Monotonic(sent.0 + self.settings.renew_every);
            }
            LeaseAnswer::Taken { holder } => {
                self.held = None;
                self.holder = Some(holder);
                self.next_ask = Monotonic(sent.0 + self.settings.ask_every);
            }
        }
    }

    /// Redis did not answer. What is held stays held until its time.
    pub fn not_answered(&mut self, now: Monotonic) {
        self.next_ask = Monotonic(now.0 + self.settings.ask_every);
    }

    /// A node has seen a higher fence: whatever we believed, it is over. Asked again at once.
    pub fn is_outdated(&mut self, now: Monotonic) {
        self.held = None;
        self.next_ask = now;
    }

    /// How long it lasts without a renewal.
    pub fn length(&self) -> Duration {
        self.settings.length
    }
}

/// What a node knows of fences.
#[derive(Debug, Default)]
pub struct Fences(std::sync::atomic::AtomicU64);

impl Fences {
    /// The highest seen.
    pub fn highest(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Takes note of a fence; whether it is as high as any seen before.
    pub fn admits(&self, fence: u64) -> bool {
        self.0.fetch_max(fence, std::sync::atomic::Ordering::AcqRel) <= fence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    fn granted(fence: u64) -> LeaseAnswer {
        LeaseAnswer::Granted { fence }
    }

    #[test]
    fn it_is_held_from_when_it_was_asked_for_less_a_margin() {
        let mut lease = Lease::new(LeaseSettings::default(), at(0));
        assert_eq!(lease.fence(at(0)), None);
        lease.answered(at(1_000), granted(7));
        assert_eq!((lease.fence(at(1_000)), lease.fence(at(3_199))), (Some(7), Some(7)));
        assert_eq!(lease.fence(at(3_200)), None);
        assert_eq!(lease.next_ask(), at(1_500));
        lease.answered(at(1_500), granted(7));
        assert_eq!(lease.fence(at(3_699)), Some(7));
    }

    #[test]
    fn an_answer_that_took_too_long_grants_nothing() {
        let mut lease = Lease::new(LeaseSettings::default(), at(0));
        lease.answered(at(0), granted(7));
        assert_eq!(lease.fence(at(60_000)), None, "stopped for a minute between question and answer");
    }

    #[test]
    fn a_server_that_is_away_ends_it_by_itself() {
        let mut lease = Lease::new(LeaseSettings::default(), at(0));
        lease.answered(at(0), granted(7));
        lease.not_answered(at(500));
        assert_eq!((lease.fence(at(2_000)), lease.next_ask()), (Some(7), at(800)));
        assert_eq!(lease.fence(at(2_200)), None);
    }

    #[test]
    fn another_holder_or_a_higher_fence_ends_it_at_once() {
        let mut lease = Lease::new(LeaseSettings::default(), at(0));
        lease.answered(at(0), granted(7));
        lease.answered(at(500), LeaseAnswer::Taken { holder: "b".into() });
        assert_eq!((lease.fence(at(500)), lease.holder(), lease.next_ask()), (None, Some("b"), at(800)));
        lease.answered(at(800), granted(9));
        lease.is_outdated(at(900));
        assert_eq!((lease.fence(at(900)), lease.next_ask()), (None, at(900)));
    }

    #[test]
    fn the_second_takes_over_within_five_seconds() {
        // The holder renews at 0 and is killed; the server's lease ends at its length; the other asks in between.
        let settings = LeaseSettings::default();
        let latest = settings.length + settings.ask_every;
        assert!(latest < Duration::from_secs(3), "{latest:?}");
        assert!(settings.renew_every * 3 < settings.length, "two renewals may fail");
    }

    #[test]
    fn a_node_refuses_a_fence_lower_than_any_it_has_seen() {
        let fences = Fences::default();
        assert!(fences.admits(5) && fences.admits(5) && fences.admits(8));
        assert!(!fences.admits(5));
        assert_eq!(fences.highest(), 8);
    }
}
