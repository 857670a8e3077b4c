//! Where a venue's streams stand, for health, metrics and the summary at the end.

use std::time::Duration;

use catchment_model::{UnixMs, UnixNs};
use serde::Serialize;

/// Defines the counters once: the fields, and how two are added.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened on streams since the start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        pub struct StreamCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl StreamCounts {
            /// Both together.
            #[must_use]
            pub fn and(&self, other: &Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Frames of all kinds that came.
    frames,
    /// Bytes of the text frames.
    bytes,
    /// Messages recorded, one record each.
    messages,
    /// Messages that had come before and were not recorded again.
    duplicates,
    /// Messages that came after a later one.
    late,
    /// Frames that are no data: acknowledgements, heartbeats, pongs, status.
    control,
    /// Data that was not asked for, or not any more.
    unasked,
    /// Frames that no rule of the venue's description fits.
    unknown,
    /// Text frames that are not JSON or not UTF-8: cut off or damaged.
    garbled,
    /// Binary frames, which no venue sends.
    binary,
    /// Frames longer than the venue's description allows.
    oversized,
    /// Messages that could not be recorded: too long.
    unrecorded,
    /// Attempts to connect.
    connects,
    /// Attempts to connect that failed.
    connects_failed,
    /// Connections lost.
    disconnects,
    /// Logins that the venue took.
    logins,
    /// Logins that were refused or not answered.
    logins_failed,
    /// Connections replaced by a new one without a break.
    switches,
    /// Messages of a new connection that repeat the old one's.
    repeats,
    /// Subscriptions that failed: refused, not acknowledged, or without the snapshot they begin with.
    subscriptions_failed,
    /// Streams found frozen.
    frozen,
    /// Questions to the REST witness.
    witnesses,
    /// Numbers that were skipped.
    sequence_gaps,
    /// Gap records written.
    gaps_told,
    /// Books checked against the venue's checksum or hash, and found equal.
    checks_agreed,
    /// Books that were found wrong or could not be read on.
    checks_failed,
    /// Books that were begun anew because of that.
    resyncs,
    /// Books written whole.
    snapshots,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// Waits before the next attempt.
    #[default]
    Waiting,
    /// A connection is being opened.
    Connecting,
    /// Subscriptions are being made.
    Subscribing,
    /// All subscriptions are answered.
    Live,
    /// A new connection is taking over.
    Switching,
    /// It has ended.
    Over,
}

impl ConnectionState {
    /// The state in one lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Subscribing => "subscribing",
            Self::Live => "live",
            Self::Switching => "switching",
            Self::Over => "over",
        }
    }
}

/// A subscription that does not flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Its channel.
    pub channel: String,
    /// Its symbol.
    pub symbol: String,
    /// What is wrong.
    pub reason: String,
}

/// One connection at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ConnectionStatus {
    /// Its name: `<socket>-<shard>.<how many it has been>`.
    pub name: String,
    /// What it is doing.
    pub state: ConnectionState,
    /// How long the present socket has been open.
    pub up_s: u64,
    /// Since the last frame of any kind; `None` before the first.
    pub silent_ms: Option<u64>,
    /// Streams it carries.
    pub streams: usize,
    /// Of these, acknowledged or flowing.
    pub subscribed: usize,
    /// Those that do not flow and why, at most sixteen.
    pub troubles: Vec<Trouble>,
    /// Streams that are frozen.
    pub frozen: usize,
    /// Streams of which something may be missing at this moment.
    pub gaps_open: usize,
    /// Books that are live, of so many.
    pub books_live: usize,
    /// Books altogether.
    pub books: usize,
    /// Frames wait to be taken by the pipeline: the socket is not read meanwhile.
    pub is_held_up: bool,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// What happened since the start.
    pub counts: StreamCounts,
    /// From the venue's time of a message to its receipt, in milliseconds: lately, on average. Holds the difference of
    /// the two clocks.
    pub lag_ms: Option<f64>,
    /// How much that varies from message to message.
    pub lag_jitter_ms: Option<f64>,
}

/// How a venue's clock compares with ours, measured by asking it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ClockQuality {
    /// The venue's clock is ahead by so much.
    pub offset_ms: Option<f64>,
    /// The measurement is good to within this, either way: half of the way there and back, and half of the step in which the
    /// venue tells its time, which is a whole second at some.
    pub uncertainty_ms: Option<f64>,
    /// How much offsets differ from one measurement to the next.
    pub jitter_ms: Option<f64>,
    /// Measurements made.
    pub samples: u64,
    /// Attempts that failed.
    pub failures: u64,
}

/// Looks at a venue's clock, and what came of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockGauge {
    offsets: Running,
    quality: ClockQuality,
}

impl ClockGauge {
    /// The venue said that it was `theirs`, in steps of `step`, in an answer that took `latency` there and back.
    pub(crate) fn note(&mut self, theirs: UnixMs, step: Duration, received_at: UnixNs, latency: Duration) {
        // The venue looked at its clock somewhere on the way; half-way is the best guess. So it is for what it left out: a
        // clock that tells whole seconds is half a second further on average.
        let half = latency.as_secs_f64() * 1e3 / 2.0;
        let half_step = step.as_secs_f64() * 1e3 / 2.0;
        let ours = received_at.get() as f64 / 1e6 - half;
        self.offsets.add(theirs.get() as f64 + half_step - ours);
        self.quality.samples += 1;
        self.quality.offset_ms = self.offsets.last();
        self.quality.uncertainty_ms = Some(half + half_step);
        self.quality.jitter_ms = self.offsets.jitter();
    }

    /// It did not say.
    pub(crate) fn failed(&mut self) {
        self.quality.failures += 1;
    }

    pub(crate) fn quality(&self) -> ClockQuality {
        self.quality
    }
}

/// One venue at one moment, renewed every second.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct StreamStatus {
    /// Instruments of which anything is recorded.
    pub instruments: usize,
    /// Its connections.
    pub connections: Vec<ConnectionStatus>,
    /// Of all of them.
    pub counts: StreamCounts,
    /// Messages a second, over the last ten.
    pub messages_per_s: f64,
    /// The venue's clock.
    pub clock: ClockQuality,
    /// It has stopped; these are the last figures.
    pub is_over: bool,
}

impl StreamStatus {
    /// Connections whose subscriptions are all answered.
    pub fn live(&self) -> usize {
        let live =
            |one: &&ConnectionStatus| matches!(one.state, ConnectionState::Live | ConnectionState::Switching);
        self.connections.iter().filter(live).count()
    }
}

/// Mean and variation of a figure, the newest counting a sixteenth.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Running {
    mean: f64,
    jitter: f64,
    last: f64,
    samples: u32,
}

impl Running {
    #[inline]
    pub(crate) fn add(&mut self, value: f64) {
        self.samples = self.samples.saturating_add(1);
        let share = f64::from(self.samples.min(16)).recip();
        if self.samples > 1 {
            self.jitter += ((value - self.last).abs() - self.jitter) * share;
        }
        self.mean += (value - self.mean) * share;
        self.last = value;
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.mean)
    }

    pub(crate) fn jitter(&self) -> Option<f64> {
        (self.samples > 1).then_some(self.jitter)
    }

    pub(crate) fn last(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.last)
    }
}

pub(crate) fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_figure_follows() {
        let mut running = Running::default();
        assert_eq!((running.mean(), running.jitter()), (None, None));
        (0..100).for_each(|n| running.add(f64::from(n % 2) * 2.0));
        assert!((running.mean().unwrap() - 1.0).abs() < 0.1);
        assert!((running.jitter().unwrap() - 2.0).abs() < 0.01);
    }

    #[test]
    fn counts_add_up() {
        let one = StreamCounts { frames: 2, gaps_told: 1, ..StreamCounts::default() };
        assert_eq!(one.and(&one), StreamCounts { frames: 4, gaps_told: 2, ..StreamCounts::default() });
    }
}
