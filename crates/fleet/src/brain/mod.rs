//! The coordinator's head: which node is asked for which tokens in which slot, and what follows from each answer.
//!
//! ```text
//! slots ─▶ whose turn (by capacity) ─▶ urgent batches every other turn, else the next of its tokens ─▶ Order
//!   Ok          the tokens are fresh               BadRequest  halved until the wrong token is found; it rests
//!   Trouble     again in the next slot, twice      Held        the node rests, others take its tokens
//!   Sink        the tokens keep their place        Stale       we do not lead any more
//! ```
//!
//! A node that goes or rests gives its tokens to the others at once, those that have waited longest first. Pure: time is
//! an argument, and nothing here sends anything.

mod node;
mod tally;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::Monotonic;

pub use node::NodeFacts;
use node::{Errand, Node};
pub use tally::{Counts, Freshness};
use tally::{Mishap, Mishaps};
use tokens::TokenTable;

use crate::assign::{Candidate, assign};
use crate::halving::{self, Next};
use crate::message::{Outcome, Summary};
use crate::slots::{SlotClock, SlotCounts};
use crate::status::{ErrorStatus, FreshnessStatus, NodeStatus, PlanStatus, SlotStatus};

/// What the user may set.
#[derive(Debug, Clone)]
pub struct BrainSettings {
    /// The goal: so many refreshes of every token in a thousand seconds.
    pub refresh_mhz: u64,
    /// Batches a node may have under way.
    pub inflight_max: usize,
    /// Answers that take longer make batches smaller.
    pub slow: Duration,
}

impl Default for BrainSettings {
    fn default() -> Self {
        Self { refresh_mhz: 200, inflight_max: 16, slow: Duration::from_secs(2) }
    }
}

/// What a node is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Which node.
    pub node: Arc<str>,
    /// Names the order in its answer.
    pub id: u64,
    /// What to fetch.
    pub tokens: Vec<Arc<str>>,
}

/// What came of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// Tell this.
    Order(Order),
    /// The node whose turn it was has too much under way.
    Busy,
    /// The node whose turn it was has no tokens.
    Idle,
}

/// What the shell must do after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Fine,
    /// Somebody else leads, with this fence.
    Stale(u64),
}

/// A rest shorter than this is not worth moving tokens for.
const HOLD_WORTH_MOVING: Duration = Duration::from_secs(1);
/// So many times the goal must have been waited before batches grow; …
const BEHIND_MIN: f64 = 1.15;
/// … for each goal waited beyond the first they have so many times more …
const BEHIND_GAIN: f64 = 6.0;
/// … and so many times the usual at most.
const GROWTH_MAX: f64 = 3.0;
/// Batches that wait to be asked again, of one node; more go with the next round.
const URGENT_MAX: usize = 256;
/// Tokens that the status names for their age.
const STALEST: usize = 5;
/// A failed batch is asked for again at once so many times.
const TRIES_MAX: u8 = 2;

/// The coordinator's head.
#[derive(Debug)]
pub struct Brain {
    settings: BrainSettings,
    tokens: TokenTable,
    nodes: BTreeMap<Arc<str>, Node>,
    clock: SlotClock,
    next_id: u64,
    /// Grows with every token that is asked for: whose number is lowest has waited longest.
    asked: u64,
    counts: Counts,
    busy: u64,
    idle: u64,
    mishaps: Mishaps,
}

impl Brain {
    /// Without tokens and nodes.
    pub fn new(settings: BrainSettings, now: Monotonic) -> Self {
        Self {
            settings,
            tokens: TokenTable::default(),
            nodes: BTreeMap::new(),
            clock: SlotClock::new(0, Duration::ZERO, now),
            next_id: 1,
            asked: 0,
            counts: Counts::default(),
            busy: 0,
            idle: 0,
            mishaps: Mishaps::default(),
        }
    }

    /// From now on these are the tokens. What is known of those that stay is kept.
    pub fn set_tokens(&mut self, names: Vec<Arc<str>>, now: Monotonic) {
        let moved = self.tokens.replace(names, now);
        for node in self.nodes.values_mut() {
            node.renumber(&moved);
        }
        self.reassign(now);
    }

    /// A node is there.
    pub fn node_up(&mut self, name: Arc<str>, facts: NodeFacts, now: Monotonic) {
        let node = Node::new(facts, self.settings.slow);
        self.nodes.insert(name, node);
        self.reassign(now);
    }

    /// A node is gone, for this reason. What it had under way is asked of others first.
    pub fn node_down(&mut self, name: &str, reason: &str, now: Monotonic) {
        let Some(node) = self.nodes.remove(name) else { return };
        for errand in node.errands() {
            self.tokens.hurry(&errand.tokens);
        }
        self.mishaps.note(Mishap { at: now, node: name.into(), kind: "down", message: reason.to_owned() });
        self.reassign(now);
    }

    /// Whether the node is there.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// When the next slot is due.
    pub fn due(&self) -> Monotonic {
        self.clock.due()
    }

    /// Slots begin anew: nobody should have used those that passed.
    pub fn begin(&mut self, now: Monotonic) {
        self.clock.restart(now);
    }

    /// What is under way is somebody else's now; nothing of it will be answered to us.
    pub fn forget_orders(&mut self) {
        for node in self.nodes.values_mut() {
            for errand in node.drop_errands() {
                self.tokens.hurry(&errand.tokens);
            }
        }
    }

    /// Takes the next slot, if one is due.
    pub fn slot(&mut self, now: Monotonic) -> Option<Slot> {
        self.end_holds(now);
        if !self.clock.take(now) {
            return None;
        }
        let Some(name) = self.whose_turn() else {
            self.idle += 1;
            return Some(Slot::Idle);
        };
        Some(self.order(&name, now))
    }

    /// The order could not be handed on.
    pub fn not_sent(&mut self, order: &Order) {
        self.busy += 1;
        let Some(node) = self.nodes.get_mut(&order.node) else { return };
        if let Some(errand) = node.under_way.remove(&order.id) {
            node.again(errand);
        }
    }

    /// A node has answered.
    pub fn answered(&mut self, name: &str, summary: &Summary, now: Monotonic) -> Told {
        let Some(node) = self.nodes.get_mut(name) else { return Told::Fine };
        let Some(errand) = node.under_way.remove(&summary.id) else { return Told::Fine };
        let took = now.since(errand.sent);
        self.counts.add(summary);
        node.counts.add(summary);
        node.latency(took);
        if summary.outcome != Outcome::Ok {
            let message = summary.message.clone().unwrap_or_default();
            let kind = summary.outcome.as_str();
            node.last_error = Some((now, format!("{kind}: {message}")));
            self.mishaps.note(Mishap { at: now, node: name.into(), kind, message });
        }
        match summary.outcome {
            Outcome::Ok => {
                node.sizer.went_well(Duration::from_millis(summary.latency_ms));
                self.confirm(name, errand, summary, now);
            }
            Outcome::BadRequest => self.bad_request(name, errand, summary, now),
            Outcome::Trouble => {
                node.sizer.failed();
                node.again(errand);
            }
            Outcome::Held => {
                node.not_asked(&errand, &mut self.tokens, now);
                node.held_until = Some(Monotonic(now.0 + Duration::from_millis(summary.hold_ms)));
                if summary.hold_ms >= HOLD_WORTH_MOVING.as_millis() as u64 {
                    self.reassign(now);
                }
            }
            Outcome::Late | Outcome::Busy => node.again(errand),
            Outcome::Sink => node.not_asked(&errand, &mut self.tokens, now),
            Outcome::Odd => {}
            Outcome::Stale => {
                self.tokens.hurry(&errand.tokens);
                return Told::Stale(summary.fence);
            }
        }
        Told::Fine
    }

    /// How old the newest snapshots are.
    pub fn freshness(&self, now: Monotonic) -> Freshness {
        self.tokens.freshness(now)
    }

    /// Counts since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Slots since the start.
    pub fn slot_counts(&self) -> SlotCounts {
        self.clock.counts()
    }

    /// Everything, for people.
    pub fn status(&self, now: Monotonic) -> PlanStatus {
        let freshness = self.freshness(now);
        let slots = self.clock.counts();
        let per_s = |node: &Node| self.batch_of(node) as f64 * f64::from(node.facts.capacity_rps);
        let ideal: f64 = self.available().map(|(_, node)| per_s(node)).sum();
        let capacity: u64 = self.available().map(|(_, node)| u64::from(node.facts.capacity_rps)).sum();
        PlanStatus {
            tokens: self.tokens.len(),
            resting: self.tokens.resting(now),
            absent: freshness.absent,
            batch: self.nodes.values().map(|node| self.batch_of(node)).max().unwrap_or(0),
            capacity_rps: capacity,
            ideal_ms: if ideal > 0.0 { self.tokens.len() as f64 / ideal * 1e3 } else { 0.0 },
            freshness: FreshnessStatus::of(&freshness),
            stalest: self.tokens.stalest(STALEST, now),
            slots: SlotStatus {
                length_us: self.clock.slot().map_or(0, |slot| slot.as_micros() as u64),
                used: slots.used,
                late: slots.late,
                missed: slots.missed,
                busy: self.busy,
                idle: self.idle,
            },
            counts: self.counts.clone(),
            nodes: self.nodes.iter().map(|(name, node)| self.node_status(name, node, now)).collect(),
            errors: self
                .mishaps
                .iter()
                .map(|mishap| ErrorStatus {
                    ago_ms: now.since(mishap.at).as_millis() as u64,
                    node: mishap.node.to_string(),
                    kind: mishap.kind.to_owned(),
                    message: mishap.message.clone(),
                })
                .collect(),
        }
    }

    fn node_status(&self, name: &str, node: &Node, now: Monotonic) -> NodeStatus {
        NodeStatus {
            id: name.to_owned(),
            addr: node.facts.addr.clone(),
            is_up: true,
            capacity_rps: node.facts.capacity_rps,
            tokens: node.queue.len(),
            batch: self.batch_of(node),
            batch_share: node.sizer.factor(),
            under_way: node.under_way.len(),
            latency_ms: node.latency_ms(),
            hold_ms: node.held_until.map_or(0, |until| until.since(now).as_millis() as u64),
            counts: node.counts.clone(),
            last_error: node.last_error.as_ref().map(|(_, text)| text.clone()),
            last_error_ago_ms: node.last_error.as_ref().map(|(at, _)| now.since(*at).as_millis() as u64),
            ..NodeStatus::default()
        }
    }

    fn batch_of(&self, node: &Node) -> usize {
        let size = node.sizer.size(node.queue.len(), self.settings.refresh_mhz, node.facts.pace_mrps);
        size.min(node.queue.len())
    }

    /// The batch size now: larger while whoever waits longest has waited longer than the goal allows, as after a node or
    /// a leader was lost, so that a round is soon through. Not where things go badly anyway.
    fn catching_up(&self, node: &Node, now: Monotonic) -> usize {
        let size = self.batch_of(node);
        let goal =
            Duration::from_secs(1_000) / u32::try_from(self.settings.refresh_mhz.max(1)).unwrap_or(u32::MAX);
        let waited = node.queue.front().map_or(Duration::ZERO, |token| self.tokens.waited(*token, now));
        let behind = waited.as_secs_f64() / goal.as_secs_f64();
        if behind < BEHIND_MIN || node.sizer.factor() < 0.9 {
            return size;
        }
        let growth = (1.0 + BEHIND_GAIN * (behind - 1.0)).min(GROWTH_MAX);
        let larger = (size as f64 * growth).ceil() as usize;
        larger.min(node.sizer.most()).min(node.queue.len())
    }

    /// Weighted turns, as even as they can be: with equal capacities simply one after the other.
    fn whose_turn(&mut self) -> Option<Arc<str>> {
        let mut total = 0;
        let mut best: Option<(&Arc<str>, i64)> = None;
        for (name, node) in self.nodes.iter_mut().filter(|(_, node)| node.held_until.is_none()) {
            let weight = i64::try_from(node.facts.pace_mrps).unwrap_or(i64::MAX / 1_024);
            total += weight;
            node.credit += weight;
            if best.is_none_or(|(_, credit)| node.credit > credit) {
                best = Some((name, node.credit));
            }
        }
        let name = Arc::clone(best?.0);
        self.nodes.get_mut(&name)?.credit -= total;
        Some(name)
    }

    fn order(&mut self, name: &Arc<str>, now: Monotonic) -> Slot {
        let size = self.nodes.get(name).map_or(0, |node| self.catching_up(node, now));
        let Some(node) = self.nodes.get_mut(name) else { return Slot::Idle };
        if node.under_way.len() >= self.settings.inflight_max {
            self.busy += 1;
            return Slot::Busy;
        }
        let errand = node.next_errand(size, &mut self.tokens, &mut self.asked, now);
        let Some(errand) = errand else {
            self.idle += 1;
            return Slot::Idle;
        };
        let id = self.next_id;
        self.next_id += 1;
        let tokens = errand.tokens.iter().filter_map(|at| self.tokens.name(*at)).collect();
        node.under_way.insert(id, errand);
        Slot::Order(Order { node: Arc::clone(name), id, tokens })
    }

    fn confirm(&mut self, name: &str, errand: Errand, summary: &Summary, now: Monotonic) {
        let fetched = Monotonic(now.0.saturating_sub(Duration::from_millis(summary.age_ms)));
        let mut missing = vec![false; errand.tokens.len()];
        for at in &summary.missing {
            if let Some(place) = missing.get_mut(*at as usize) {
                *place = true;
            }
        }
        for (at, is_missing) in errand.tokens.iter().zip(missing) {
            self.tokens.answered(*at, !is_missing, fetched);
        }
        // Alone it is merely unknown; in a batch it was poison.
        if let ([alone], true, [_]) = (&errand.tokens[..], errand.is_hunt, &summary.missing[..]) {
            self.found(name, *alone, "the venue has no book of it and refuses batches with it", now);
        }
    }

    fn bad_request(&mut self, name: &str, errand: Errand, summary: &Summary, now: Monotonic) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let message = summary.message.as_deref().unwrap_or("");
        if summary.status == Some(413) || message.contains("exceeds the limit") {
            node.sizer.too_many(errand.tokens.len());
            node.not_asked(&errand, &mut self.tokens, now);
            return;
        }
        match halving::refused(errand.tokens) {
            Next::Halves(first, second) => {
                for tokens in [first, second] {
                    if node.urgent.len() < URGENT_MAX {
                        node.urgent.push_back(Errand { tokens, tries: 0, is_hunt: true, sent: now });
                    }
                }
            }
            Next::Found(token) => self.found(name, token, message, now),
            Next::Nothing => {}
        }
    }

    fn found(&mut self, node: &str, token: u32, why: &str, now: Monotonic) {
        if let Some(name) = self.tokens.rest(token, now) {
            let message = format!("token {name} rests: {why}");
            self.mishaps.note(Mishap { at: now, node: node.into(), kind: "poison", message });
        }
    }

    fn end_holds(&mut self, now: Monotonic) {
        let mut ended = false;
        for node in self.nodes.values_mut() {
            if node.held_until.is_some_and(|until| until <= now) {
                node.held_until = None;
                ended = true;
            }
        }
        if ended {
            self.reassign(now);
        }
    }

    fn available(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.held_until.is_none())
    }

    /// Gives every token its node, and each node its tokens in the order in which they have waited.
    fn reassign(&mut self, now: Monotonic) {
        for node in self.nodes.values_mut() {
            node.queue.clear();
            for errand in std::mem::take(&mut node.urgent) {
                self.tokens.hurry(&errand.tokens);
            }
        }
        let names: Vec<Arc<str>> = self.available().map(|(name, _)| Arc::clone(name)).collect();
        let candidates: Vec<Candidate<'_>> =
            self.available().map(|(name, node)| Candidate { name, capacity: node.facts.pace_mrps }).collect();
        let assigned = assign(self.tokens.hashes(), &candidates);
        let mut queues: Vec<Vec<u32>> = vec![Vec::new(); names.len()];
        for (token, node) in (0..).zip(assigned) {
            queues[node as usize].push(token);
        }
        for (name, mut queue) in names.iter().zip(queues) {
            queue.sort_by_key(|token| self.tokens.asked(*token));
            if let Some(node) = self.nodes.get_mut(name) {
                node.queue = queue.into();
            }
        }
        let rate = self.available().map(|(_, node)| node.facts.pace_mrps).sum();
        let slowest = self.available().map(|(_, node)| node.facts.pace_mrps).min().unwrap_or(0);
        // A slot may be as late as the node's own next one.
        let tolerance = Duration::from_secs(1_000) / u32::try_from(slowest.max(1_000)).unwrap_or(u32::MAX);
        self.clock.set_rate(rate, tolerance, now);
    }
}

#[cfg(test)]
mod tests;
