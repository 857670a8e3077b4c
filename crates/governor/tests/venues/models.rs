//! The venues: those the limiter was tuned on, those it was mended on, and those it met only when it was done.

use super::Dice;
use super::rules::{
    Aligned, Banning, Bucket, Flaky, Penalty, Queue, Refusing, Shared, Sliding, Slots, Venue,
};

/// A venue and who comes to it.
pub struct Model {
    pub name: &'static str,
    pub about: &'static str,
    pub venue: fn() -> Box<dyn Venue>,
    /// The cost a second that its clients can have together, at a time.
    pub capacity: fn(f64) -> f64,
    pub rtt: Rtt,
    pub clients: u32,
    pub demand: Demand,
    /// A request costs this, from and to.
    pub cost: (u32, u32),
    /// Judged over the whole hour, not the second half of it.
    pub whole_hour: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    Endless,
    /// So many requests a second, at random.
    Rate(f64),
    /// So many a second for a while, then none.
    Bursts {
        rate: f64,
        on_s: f64,
        off_s: f64,
    },
}

/// The way there and back.
#[derive(Debug, Clone, Copy)]
pub struct Rtt {
    pub median_s: f64,
    /// Times four for so long, every so often.
    pub spikes: Option<(f64, f64)>,
}

impl Rtt {
    pub fn draw(&self, now: f64, dice: &mut Dice) -> f64 {
        let rtt = dice.log_normal(self.median_s, 0.35);
        match self.spikes {
            Some((length, every)) if now % every > every - length => 4.0 * rtt,
            _ => rtt,
        }
    }
}

const STEPS: fn(f64) -> f64 = |now| match now {
    ..1_200.0 => 1.0,
    ..2_400.0 => 0.5,
    _ => 1.5,
};
/// Thirty per cent, two minutes out of five.
const VISITS: fn(f64) -> f64 = |now| if now % 300.0 < 120.0 { 15.0 } else { 0.0 };
const RARE_VISITS: fn(f64) -> f64 = |now| if now % 900.0 > 780.0 { 15.0 } else { 0.0 };
const DRIFT: fn(f64) -> f64 = |now| 1.0 + 0.2 * (std::f64::consts::TAU * now / 1_200.0).sin();

/// From three quarters down to half, at sunset.
const EVENING: fn(f64) -> f64 = |now| 0.75 - 0.25 * (std::f64::consts::TAU * now / 14_400.0).sin();
/// Any of seven levels, one after the other without an order that could be learned.
const UNSTEADY: fn(f64) -> f64 = |now| {
    let quarter = (now / 15.0) as u64;
    0.95 + 0.1 * ((quarter.wrapping_mul(2_654_435_761) >> 7) % 7) as f64 / 6.0
};

const PLAIN: Model = Model {
    name: "sliding",
    about: "500 in any 10 s",
    venue: || Box::new(Sliding::new(&[(500.0, 10.0)])),
    capacity: |_| 50.0,
    rtt: Rtt { median_s: 0.08, spikes: None },
    clients: 1,
    demand: Demand::Endless,
    cost: (1, 1),
    whole_hour: false,
};

fn weights() -> Banning<Aligned> {
    Banning::new(Aligned { tells_used: true, ..Aligned::new(3_000.0, 60.0) }, 20, 300.0)
}

/// The nine it was tuned on.
pub static TUNED: &[Model] = &[
    PLAIN,
    Model {
        name: "spikes",
        about: "500 in any 10 s; latency x4 for 2 s every 90 s",
        rtt: Rtt { median_s: 0.08, spikes: Some((2.0, 90.0)) },
        ..PLAIN
    },
    Model {
        name: "slow",
        about: "500 in any 10 s; 400 ms there and back",
        rtt: Rtt { median_s: 0.4, spikes: None },
        ..PLAIN
    },
    Model {
        name: "fixed window",
        about: "500 in each 10 s, with Retry-After",
        venue: || Box::new(Aligned { retry_after: true, ..Aligned::new(500.0, 10.0) }),
        ..PLAIN
    },
    Model {
        name: "bucket",
        about: "50 a second, bursts of 100",
        venue: || Box::new(Bucket::new(50.0, 100.0)),
        ..PLAIN
    },
    Model {
        name: "queueing",
        about: "50 a second worked off, refused past a wait of 2 s",
        venue: || Box::new(Queue { rate: 50.0, wait_max_s: 2.0, free_at: 0.0 }),
        ..PLAIN
    },
    Model {
        name: "weights",
        about: "3,000 in each minute, told in a header; more than 20 refusals in a minute are a ban",
        venue: || Box::new(weights()),
        ..PLAIN
    },
    Model {
        name: "steps",
        about: "500 in any 10 s, halved after 20 min, tripled after 40; the whole hour counts",
        venue: || Box::new(Sliding { factor: STEPS, ..Sliding::new(&[(500.0, 10.0)]) }),
        capacity: |now| 50.0 * STEPS(now),
        whole_hour: true,
        ..PLAIN
    },
    Model {
        name: "three clients",
        about: "500 in any 10 s, three clients that do not know of each other",
        clients: 3,
        ..PLAIN
    },
];

/// Those written before it was run on them. Seven then broke it (minute, sliding minute, stranger, remaining, many
/// spikes, eight slots, drift beside three clients), and it was mended, so for them this is no longer a proof.
pub static UNSEEN: &[Model] = &[
    Model {
        name: "weights, stranger",
        about: "as weights, and a stranger uses 30 % two minutes out of five",
        venue: || Box::new(Shared { inner: weights(), stranger: VISITS, next: 0.0 }),
        capacity: |now| 50.0 - VISITS(now),
        ..PLAIN
    },
    Model {
        name: "leaky",
        about: "50 a second, bursts of 5",
        venue: || Box::new(Bucket::new(50.0, 5.0)),
        ..PLAIN
    },
    Model {
        name: "one second",
        about: "50 in each second",
        venue: || Box::new(Aligned::new(50.0, 1.0)),
        ..PLAIN
    },
    Model {
        name: "nested",
        about: "10 in any second and 300 in any minute",
        venue: || Box::new(Sliding::new(&[(10.0, 1.0), (300.0, 60.0)])),
        capacity: |_| 5.0,
        ..PLAIN
    },
    Model {
        name: "costs",
        about: "5,000 in any 10 s, requests cost 1 to 20",
        venue: || Box::new(Sliding::new(&[(5_000.0, 10.0)])),
        capacity: |_| 500.0,
        cost: (1, 20),
        ..PLAIN
    },
    Model {
        name: "minute",
        about: "6,000 in each minute, nothing told",
        venue: || Box::new(Aligned::new(6_000.0, 60.0)),
        capacity: |_| 100.0,
        ..PLAIN
    },
    Model {
        name: "sliding minute",
        about: "6,000 in any minute, nothing told",
        venue: || Box::new(Sliding::new(&[(6_000.0, 60.0)])),
        capacity: |_| 100.0,
        ..PLAIN
    },
    Model {
        name: "5/s",
        about: "50 in any 10 s",
        venue: || Box::new(Sliding::new(&[(50.0, 10.0)])),
        capacity: |_| 5.0,
        ..PLAIN
    },
    Model {
        name: "2000/s",
        about: "20,000 in any 10 s",
        venue: || Box::new(Sliding::new(&[(20_000.0, 10.0)])),
        capacity: |_| 2_000.0,
        ..PLAIN
    },
    Model {
        name: "1/s",
        about: "1 a second, bursts of 2",
        venue: || Box::new(Bucket::new(1.0, 2.0)),
        capacity: |_| 1.0,
        ..PLAIN
    },
    Model {
        name: "drift",
        about: "500 in any 10 s, 20 % more and less over 20 min",
        venue: || Box::new(Sliding { factor: DRIFT, ..Sliding::new(&[(500.0, 10.0)]) }),
        capacity: |now| 50.0 * DRIFT(now),
        ..PLAIN
    },
    Model {
        name: "5xx",
        about: "500 in any 10 s, 1 % fail",
        venue: || Box::new(Flaky { inner: Sliding::new(&[(500.0, 10.0)]), share: 0.01 }),
        ..PLAIN
    },
    Model {
        name: "stranger",
        about: "500 in any 10 s, a stranger uses 30 % two minutes out of five",
        venue: || Box::new(Shared { inner: Sliding::new(&[(500.0, 10.0)]), stranger: VISITS, next: 0.0 }),
        capacity: |now| 50.0 - VISITS(now),
        ..PLAIN
    },
    Model {
        name: "rare stranger",
        about: "500 in any 10 s, a stranger uses 30 % two minutes out of fifteen",
        venue: || {
            Box::new(Shared { inner: Sliding::new(&[(500.0, 10.0)]), stranger: RARE_VISITS, next: 0.0 })
        },
        capacity: |now| 50.0 - RARE_VISITS(now),
        ..PLAIN
    },
    Model {
        name: "refusals count",
        about: "500 in any 10 s, refusals count too",
        venue: || Box::new(Sliding { counts_refused: true, ..Sliding::new(&[(500.0, 10.0)]) }),
        ..PLAIN
    },
    Model {
        name: "slow refusals",
        about: "500 in any 10 s, a refusal takes 2 s",
        venue: || {
            Box::new(Refusing { inner: Sliding::new(&[(500.0, 10.0)]), delay_s: 2.0, retry_after_s: None })
        },
        ..PLAIN
    },
    Model {
        name: "penalty",
        about: "50 a second, bursts of 50; after a refusal all is refused for 10 s",
        venue: || Box::new(Penalty { inner: Bucket::new(50.0, 50.0), length_s: 10.0, until: 0.0 }),
        ..PLAIN
    },
    Model {
        name: "long Retry-After",
        about: "500 in any 10 s, refusals ask for 300 s",
        venue: || {
            Box::new(Refusing {
                inner: Sliding::new(&[(500.0, 10.0)]),
                delay_s: 0.0,
                retry_after_s: Some(300.0),
            })
        },
        ..PLAIN
    },
    Model {
        name: "remaining",
        about: "500 in each 10 s, what remains is told",
        venue: || Box::new(Aligned { tells_remaining: true, ..Aligned::new(500.0, 10.0) }),
        ..PLAIN
    },
    Model {
        name: "70 % wanted",
        about: "500 in any 10 s, 35 a second wanted",
        demand: Demand::Rate(35.0),
        ..PLAIN
    },
    Model {
        name: "bursts wanted",
        about: "50 a second, bursts of 20; 60 a second wanted for 20 s, then none for 20 s",
        venue: || Box::new(Bucket::new(50.0, 20.0)),
        demand: Demand::Bursts { rate: 60.0, on_s: 20.0, off_s: 20.0 },
        ..PLAIN
    },
    Model {
        name: "20 ms",
        about: "500 in any 10 s, 20 ms there and back",
        rtt: Rtt { median_s: 0.02, spikes: None },
        ..PLAIN
    },
    Model {
        name: "1.5 s",
        about: "500 in any 10 s, 1.5 s there and back",
        rtt: Rtt { median_s: 1.5, spikes: None },
        ..PLAIN
    },
    Model {
        name: "many spikes",
        about: "500 in any 10 s; latency x4 for 3 s every 20 s",
        rtt: Rtt { median_s: 0.08, spikes: Some((3.0, 20.0)) },
        ..PLAIN
    },
    Model {
        name: "eight slots",
        about: "8 at a time, each worked on for 0.1 s; 80 a second at best",
        venue: || Box::new(Slots { slots: 8, work_s: 0.1, busy_until: Vec::new() }),
        capacity: |_| 8.0 / (0.1 * (0.25_f64 * 0.25 / 2.0).exp()),
        rtt: Rtt { median_s: 0.01, spikes: None },
        ..PLAIN
    },
];

/// Those written after the limiter was done. It was not changed for them: whatever they show, it is what to expect.
pub static HELD_OUT: &[Model] = &[
    Model {
        name: "far bucket",
        about: "20 a second, bursts of 10; 200 ms there and back",
        venue: || Box::new(Bucket::new(20.0, 10.0)),
        capacity: |_| 20.0,
        rtt: Rtt { median_s: 0.2, spikes: None },
        ..PLAIN
    },
    Model {
        name: "half minute",
        about: "900 in any 30 s, refusals ask for 5 s",
        venue: || {
            Box::new(Refusing {
                inner: Sliding::new(&[(900.0, 30.0)]),
                delay_s: 0.0,
                retry_after_s: Some(5.0),
            })
        },
        capacity: |_| 30.0,
        ..PLAIN
    },
    Model {
        name: "short queue",
        about: "30 a second worked off, refused past a wait of 0.2 s",
        venue: || Box::new(Queue { rate: 30.0, wait_max_s: 0.2, free_at: 0.0 }),
        capacity: |_| 30.0,
        ..PLAIN
    },
    Model {
        name: "rough road",
        about: "500 in any 10 s, 5 % fail, latency x4 for 5 s every 60 s",
        venue: || Box::new(Flaky { inner: Sliding::new(&[(500.0, 10.0)]), share: 0.05 }),
        rtt: Rtt { median_s: 0.12, spikes: Some((5.0, 60.0)) },
        ..PLAIN
    },
    Model {
        name: "two and a ban",
        about: "500 in any 10 s, two clients; more than 20 refusals in a minute are a ban",
        venue: || Box::new(Banning::new(Sliding::new(&[(500.0, 10.0)]), 20, 300.0)),
        clients: 2,
        ..PLAIN
    },
    Model {
        name: "long penalty",
        about: "500 in any 10 s; after a refusal all is refused for 60 s",
        venue: || Box::new(Penalty { inner: Sliding::new(&[(500.0, 10.0)]), length_s: 60.0, until: 0.0 }),
        ..PLAIN
    },
    Model {
        name: "20/s costs",
        about: "20 a second, bursts of 60, requests cost 1 to 10",
        venue: || Box::new(Bucket::new(20.0, 60.0)),
        capacity: |_| 20.0,
        cost: (1, 10),
        ..PLAIN
    },
];

/// A second list of those not tuned on, of other kinds than the first: long windows, slots, limits that move by themselves.
/// It was mended for the first of them, which it had met as a stranger, and then met the others.
pub static SECOND: &[Model] = &[
    Model {
        name: "five minutes",
        about: "3,000 in each five minutes, nothing told",
        venue: || Box::new(Aligned::new(3_000.0, 300.0)),
        capacity: |_| 10.0,
        ..PLAIN
    },
    Model {
        name: "sliding five min",
        about: "3,000 in any five minutes, nothing told",
        venue: || Box::new(Sliding::new(&[(3_000.0, 300.0)])),
        capacity: |_| 10.0,
        ..PLAIN
    },
    Model {
        name: "ten minutes",
        about: "12,000 in each ten minutes, nothing told",
        venue: || Box::new(Aligned::new(12_000.0, 600.0)),
        capacity: |_| 20.0,
        ..PLAIN
    },
    Model {
        name: "near slots",
        about: "8 at a time, each worked on for 0.1 s, 2 ms there and back",
        venue: || Box::new(Slots { slots: 8, work_s: 0.1, busy_until: Vec::new() }),
        capacity: |_| 8.0 / (0.1 * (0.25_f64 * 0.25 / 2.0).exp()),
        rtt: Rtt { median_s: 0.002, spikes: None },
        ..PLAIN
    },
    Model {
        name: "twenty slots",
        about: "20 at a time, each worked on for 0.4 s, 5 ms there and back",
        venue: || Box::new(Slots { slots: 20, work_s: 0.4, busy_until: Vec::new() }),
        capacity: |_| 20.0 / (0.4 * (0.25_f64 * 0.25 / 2.0).exp()),
        rtt: Rtt { median_s: 0.005, spikes: None },
        ..PLAIN
    },
    Model {
        name: "time of day",
        about: "500 in any 10 s by day and half of it by night; an hour of the evening",
        venue: || Box::new(Sliding { factor: EVENING, ..Sliding::new(&[(500.0, 10.0)]) }),
        capacity: |now| 50.0 * EVENING(now),
        ..PLAIN
    },
    Model {
        name: "seconds and a day",
        about: "10 in any second, 500,000 in any day",
        venue: || Box::new(Sliding::new(&[(10.0, 1.0), (500_000.0, 86_400.0)])),
        capacity: |_| 10.0,
        ..PLAIN
    },
    Model {
        name: "jittered",
        about: "500 in any 10 s, 5 % more or less in every quarter of a minute",
        venue: || Box::new(Sliding { factor: UNSTEADY, ..Sliding::new(&[(500.0, 10.0)]) }),
        capacity: |now| 50.0 * UNSTEADY(now),
        ..PLAIN
    },
    Model {
        name: "silent leak",
        about: "10 a second, bursts of 3, nothing told",
        venue: || Box::new(Bucket::new(10.0, 3.0)),
        capacity: |_| 10.0,
        ..PLAIN
    },
];

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Model> {
    TUNED.iter().chain(UNSEEN).chain(HELD_OUT).chain(SECOND)
}
