//! A node as the coordinator sees it: its tokens in turn, what is under way, how it is doing.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use catchment_model::Monotonic;

use super::tally::Counts;
use super::tokens::TokenTable;
use super::{TRIES_MAX, URGENT_MAX};
use crate::sizing::Sizer;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Where it is.
    pub addr: String,
    /// Requests in any second, at most.
    pub capacity_rps: u32,
    /// Requests it can be given, in a thousand seconds.
    pub pace_mrps: u64,
    /// Tokens a request may have.
    pub books_max: usize,
}

/// Sorting ten thousand tokens takes a millisecond; not after every failure.
const SORT_AFTER: Duration = Duration::from_millis(200);

/// A batch on its way.
#[derive(Debug, Clone)]
pub(super) struct Errand {
    pub(super) tokens: Vec<u32>,
    pub(super) tries: u8,
    /// Part of the search for a token that spoils batches.
    pub(super) is_hunt: bool,
    pub(super) sent: Monotonic,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) facts: NodeFacts,
    pub(super) sizer: Sizer,
    /// Its tokens; who stands in front has waited longest.
    pub(super) queue: VecDeque<u32>,
    pub(super) urgent: VecDeque<Errand>,
    pub(super) under_way: HashMap<u64, Errand>,
    pub(super) credit: i64,
    pub(super) held_until: Option<Monotonic>,
    pub(super) counts: Counts,
    pub(super) last_error: Option<(Monotonic, String)>,
    /// Some of its tokens have no time to lose; looked at again at this time.
    sort_at: Option<Monotonic>,
    /// Urgent ones take every other turn, so that the rest goes on.
    was_urgent: bool,
    latency_ms: f64,
}

impl Node {
    pub(super) fn new(facts: NodeFacts, slow: Duration) -> Self {
        Self {
            sizer: Sizer::new(facts.books_max, slow),
            facts,
            queue: VecDeque::new(),
            urgent: VecDeque::new(),
            under_way: HashMap::new(),
            credit: 0,
            held_until: None,
            counts: Counts::default(),
            last_error: None,
            sort_at: None,
            was_urgent: false,
            latency_ms: 0.0,
        }
    }

    pub(super) fn next_errand(
        &mut self,
        size: usize,
        tokens: &mut TokenTable,
        asked: &mut u64,
        now: Monotonic,
    ) -> Option<Errand> {
        if (!self.was_urgent || self.queue.is_empty())
            && let Some(errand) = self.urgent.pop_front()
        {
            self.was_urgent = true;
            return Some(Errand { sent: now, ..errand });
        }
        self.was_urgent = false;
        if self.sort_at.is_some_and(|at| at <= now) {
            self.sort_at = None;
            self.queue.make_contiguous().sort_by_key(|token| tokens.asked(*token));
        }
        let mut batch = Vec::with_capacity(size);
        for _ in 0..self.queue.len() {
            if batch.len() == size {
                break;
            }
            let Some(token) = self.queue.pop_front() else { break };
            self.queue.push_back(token);
            if tokens.ask(token, asked, now) {
                batch.push(token);
            }
        }
        (!batch.is_empty()).then_some(Errand { tokens: batch, tries: 0, is_hunt: false, sent: now })
    }

    /// The batch is asked for again in the next slot, unless that has not helped before; then with the next round.
    pub(super) fn again(&mut self, errand: Errand) {
        if (errand.tries < TRIES_MAX || errand.is_hunt) && self.urgent.len() < URGENT_MAX {
            self.urgent.push_back(Errand { tries: errand.tries.saturating_add(1), ..errand });
        }
    }

    /// The batch was as good as not asked for: its tokens keep their place in front.
    pub(super) fn not_asked(&mut self, errand: &Errand, tokens: &mut TokenTable, now: Monotonic) {
        tokens.hurry(&errand.tokens);
        self.sort_at.get_or_insert(Monotonic(now.0 + SORT_AFTER));
    }

    pub(super) fn errands(&self) -> impl Iterator<Item = &Errand> {
        self.under_way.values().chain(&self.urgent)
    }

    /// Whatever is under way or waits; its tokens find their place when the next batch is made.
    pub(super) fn drop_errands(&mut self) -> Vec<Errand> {
        self.sort_at = Some(Monotonic(Duration::ZERO));
        self.under_way.drain().map(|(_, errand)| errand).chain(self.urgent.drain(..)).collect()
    }

    /// The tokens have other numbers now; those that are gone have none.
    pub(super) fn renumber(&mut self, moved: &[Option<u32>]) {
        let renumber = |errand: &mut Errand| {
            for token in &mut errand.tokens {
                *token = moved.get(*token as usize).copied().flatten().unwrap_or(u32::MAX);
            }
        };
        self.under_way.values_mut().for_each(renumber);
        self.urgent.clear();
    }

    pub(super) fn latency(&mut self, took: Duration) {
        let ms = took.as_secs_f64() * 1e3;
        self.latency_ms = if self.latency_ms == 0.0 { ms } else { self.latency_ms * 0.9 + ms * 0.1 };
    }

    pub(super) fn latency_ms(&self) -> f64 {
        self.latency_ms
    }
}
