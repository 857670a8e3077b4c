//! Simulated venues with hidden limits, and clients that meet them through the real limiters.
//!
//! Discrete events, one simulated hour a run, no clock and no randomness but the seed's: the same seed gives the same
//! hour. [`models`] lists the venues, [`rules`] says how they count.

pub mod models;
pub mod rules;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use catchment_governor::limiter::{
    Aimd, AimdSettings, End, Feedback, Fixed, Limiter, Outcome, Pace, PaceSettings, Verdict,
};
use catchment_model::Monotonic;

use models::{Demand, Model};
use rules::Reply;

const NS: f64 = 1e9;
const HOUR_S: usize = 3_600;
/// How long a rate must be kept to count as reached.
const KEPT_S: usize = 60;

/// Which limiter the clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `pace` with nothing known.
    Pace,
    /// `pace` with the ceiling of an hour before.
    PaceWarm,
    /// `aimd`.
    Aimd,
    /// 95 % of the limit at the start, known beforehand and shared out between the clients.
    Fixed,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pace => "pace",
            Kind::PaceWarm => "pace warm",
            Kind::Aimd => "aimd",
            Kind::Fixed => "fixed",
        }
    }

    fn limiter(self, model: &Model, seed: u64) -> Box<dyn Limiter> {
        let share = (model.capacity)(0.0) / f64::from(model.clients);
        match self {
            Kind::Pace => Box::new(Pace::cold(PaceSettings::default(), seed)),
            Kind::PaceWarm => Box::new(Pace::warm(PaceSettings::default(), share, seed)),
            Kind::Aimd => Box::new(Aimd::new(AimdSettings::default())),
            Kind::Fixed => Box::new(Fixed::new(0.95 * share, seed)),
        }
    }
}

/// What came of one hour.
#[derive(Debug, Clone)]
pub struct Hour {
    /// The share of what could be had that was had, in the second half hour, or in the whole one where limits step.
    pub used: f64,
    /// Refusals in the second half hour, times two.
    pub refusals_late: u64,
    /// Refusals in the whole hour.
    pub refusals: u64,
    /// From when on 85 % of the limit was had, over the sixty seconds from then, if ever.
    pub reached_s: Option<usize>,
    pub bans: u64,
    /// Of answers, as a client sees it, in the second half hour.
    pub latency_ms_p99: f64,
    /// Jain's index over the clients in the second half hour; 1 is even.
    pub jain: f64,
    /// Cost let through in each second, all clients.
    pub through: Vec<u64>,
    /// Refusals in each second, all clients.
    pub refused: Vec<u64>,
}

/// Runs one hour.
pub fn run(model: &Model, kind: Kind, seed: u64) -> Hour {
    Street::new(model, kind, seed).hour(HOUR_S)
}

/// Runs the first minutes only, enough to see how soon a rate is reached.
pub fn run_start(model: &Model, kind: Kind, seed: u64) -> Hour {
    Street::new(model, kind, seed).hour(3 * KEPT_S)
}

/// Randomness from a seed, the simulation's own.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5bd1_e995_9d1b_54a5)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Around `median`, never negative, with a long tail.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        median * (sigma * normal).exp()
    }

    /// The time to the next of events that come at `rate`.
    pub fn gap(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }
}

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Errand {
    client: usize,
    cost: u32,
    sent_ns: u64,
    way_back_s: f64,
}

#[derive(Debug, Clone, Copy)]
enum Happening {
    Wake { client: usize, number: u64 },
    Want { client: usize },
    Arrive(Errand),
    Return(Errand, Reply),
}

struct Event {
    at_ns: u64,
    number: u64,
    what: Happening,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

struct Client {
    limiter: Box<dyn Limiter>,
    wake: u64,
    waits_for_end: bool,
    wanted: u64,
    cost: u32,
    through_late: u64,
}

/// The venue, its clients, and everything on its way between them.
struct Street<'a> {
    model: &'a Model,
    venue: Box<dyn rules::Venue>,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<Event>>,
    now_ns: u64,
    number: u64,
    dice: Dice,
    through: Vec<u64>,
    refused: Vec<u64>,
    wanted: Vec<u64>,
    latencies_ms: Vec<f32>,
}

impl<'a> Street<'a> {
    fn new(model: &'a Model, kind: Kind, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let clients = (0..model.clients)
            .map(|_| Client {
                limiter: kind.limiter(model, dice.next()),
                wake: 0,
                waits_for_end: false,
                wanted: 0,
                cost: 1,
                through_late: 0,
            })
            .collect();
        Self {
            model,
            venue: (model.venue)(),
            clients,
            events: BinaryHeap::new(),
            now_ns: 0,
            number: 0,
            dice,
            through: vec![0; HOUR_S],
            refused: vec![0; HOUR_S],
            wanted: vec![0; HOUR_S],
            latencies_ms: Vec::new(),
        }
    }

    fn hour(mut self, length_s: usize) -> Hour {
        for client in 0..self.clients.len() {
            self.clients[client].cost = self.draw_cost();
            match self.model.demand {
                Demand::Endless => self.plan(0, Happening::Wake { client, number: 0 }),
                _ => self.plan(0, Happening::Want { client }),
            }
        }
        let end_ns = (length_s as f64 * NS) as u64;
        while let Some(Reverse(event)) = self.events.pop() {
            if event.at_ns >= end_ns {
                break;
            }
            self.now_ns = event.at_ns;
            self.happen(event.what);
        }
        self.sum_up()
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Wake { client, number } => {
                if self.clients[client].wake == number {
                    self.try_send(client);
                }
            }
            Happening::Want { client } => self.want(client),
            Happening::Arrive(errand) => self.arrive(errand),
            Happening::Return(errand, reply) => self.come_back(errand, reply),
        }
    }

    /// One more thing to fetch, and when the next one comes up.
    fn want(&mut self, client: usize) {
        let now = self.now_s();
        let (rate, is_on) = match self.model.demand {
            Demand::Endless => return,
            Demand::Rate(rate) => (rate, true),
            Demand::Bursts { rate, on_s, off_s } => (rate, now % (on_s + off_s) < on_s),
        };
        if is_on {
            let first = self.clients[client].wanted == 0;
            // What could not be fetched within a second is not worth fetching any more.
            self.clients[client].wanted = (self.clients[client].wanted + 1).min(rate as u64 + 1);
            self.wanted[now as usize] += 1;
            if first {
                self.try_send(client);
            }
        }
        let gap = self.dice.gap(rate);
        self.plan_in(gap, Happening::Want { client });
    }

    fn try_send(&mut self, client: usize) {
        let now = Monotonic(Duration::from_nanos(self.now_ns));
        self.clients[client].waits_for_end = false;
        loop {
            let is_wanted = self.model.demand == Demand::Endless || self.clients[client].wanted > 0;
            if !is_wanted {
                return;
            }
            let cost = self.clients[client].cost;
            match self.clients[client].limiter.ask(cost, now) {
                Verdict::Now => self.send(client, cost, now),
                Verdict::NotBefore(then) => {
                    self.clients[client].wake += 1;
                    let number = self.clients[client].wake;
                    let at_ns = then.0.as_nanos() as u64;
                    assert!(at_ns > self.now_ns, "to be asked again at once");
                    self.plan(at_ns, Happening::Wake { client, number });
                    return;
                }
                Verdict::WhenOneEnds => {
                    self.clients[client].waits_for_end = true;
                    return;
                }
            }
        }
    }

    fn send(&mut self, client: usize, cost: u32, now: Monotonic) {
        self.clients[client].limiter.sent(cost, now);
        self.clients[client].wanted = self.clients[client].wanted.saturating_sub(1);
        self.clients[client].cost = self.draw_cost();
        let rtt_s = self.model.rtt.draw(self.now_s(), &mut self.dice);
        let errand = Errand { client, cost, sent_ns: self.now_ns, way_back_s: rtt_s / 2.0 };
        self.plan_in(rtt_s / 2.0, Happening::Arrive(errand));
    }

    fn arrive(&mut self, errand: Errand) {
        let now = self.now_s();
        let reply = self.venue.arrive(errand.cost, now, &mut self.dice);
        let passed = matches!(reply.outcome, Outcome::Answered | Outcome::Failed);
        let second = now as usize;
        if passed {
            self.through[second] += u64::from(errand.cost);
            if second >= HOUR_S / 2 {
                self.clients[errand.client].through_late += u64::from(errand.cost);
            }
        } else {
            self.refused[second] += 1;
        }
        self.plan_in(reply.delay_s + errand.way_back_s, Happening::Return(errand, reply));
    }

    fn come_back(&mut self, errand: Errand, reply: Reply) {
        let took_ns = self.now_ns - errand.sent_ns;
        if reply.outcome == Outcome::Answered && self.now_s() >= HOUR_S as f64 / 2.0 {
            self.latencies_ms.push(took_ns as f32 / 1e6);
        }
        let end = End {
            sent_at: Monotonic(Duration::from_nanos(errand.sent_ns)),
            cost: errand.cost,
            outcome: reply.outcome,
            feedback: reply.feedback,
        };
        let now = Monotonic(Duration::from_nanos(self.now_ns));
        self.clients[errand.client].limiter.ended(&end, now);
        if self.clients[errand.client].waits_for_end {
            self.try_send(errand.client);
        }
    }

    fn sum_up(mut self) -> Hour {
        let could: Vec<f64> = (0..HOUR_S).map(|second| self.could_have(second)).collect();
        let judged = if self.model.whole_hour { 0 } else { HOUR_S / 2 };
        let had: u64 = self.through[judged..].iter().sum();
        let reached_s = (0..HOUR_S - KEPT_S).find(|&from| {
            let had: u64 = self.through[from..from + KEPT_S].iter().sum();
            had as f64 >= 0.85 * could[from..from + KEPT_S].iter().sum::<f64>()
        });
        let shares: Vec<f64> = self.clients.iter().map(|client| client.through_late as f64).collect();
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        self.latencies_ms.sort_by(f32::total_cmp);
        let rank = self.latencies_ms.len() * 99 / 100;
        Hour {
            used: had as f64 / could[judged..].iter().sum::<f64>(),
            refusals_late: 2 * self.refused[HOUR_S / 2..].iter().sum::<u64>(),
            refusals: self.refused.iter().sum(),
            reached_s,
            bans: self.venue.bans(),
            latency_ms_p99: self.latencies_ms.get(rank).map_or(0.0, |ms| f64::from(*ms)),
            jain: if squares == 0.0 { 1.0 } else { sum * sum / (squares * shares.len() as f64) },
            through: self.through,
            refused: self.refused,
        }
    }

    /// The cost that could be had in a second: the limit, or what was wanted if that was less.
    fn could_have(&self, second: usize) -> f64 {
        let capacity = (self.model.capacity)(second as f64 + 0.5);
        match self.model.demand {
            Demand::Endless => capacity,
            _ => capacity.min(self.wanted[second] as f64),
        }
    }

    fn draw_cost(&mut self) -> u32 {
        let (low, high) = self.model.cost;
        low + (self.dice.unit() * f64::from(high - low + 1)) as u32
    }

    fn now_s(&self) -> f64 {
        self.now_ns as f64 / NS
    }

    fn plan_in(&mut self, in_s: f64, what: Happening) {
        let at_ns = self.now_ns + (in_s * NS) as u64;
        self.plan(at_ns, what);
    }

    fn plan(&mut self, at_ns: u64, what: Happening) {
        self.number += 1;
        self.events.push(Reverse(Event { at_ns, number: self.number, what }));
    }
}

/// A reply that only says how it went.
pub fn plain(outcome: Outcome) -> Reply {
    Reply { outcome, feedback: Feedback::default(), delay_s: 0.0 }
}
