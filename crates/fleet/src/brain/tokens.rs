//! The tokens: when each was asked for, when it was last fresh, and which of them rest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::Monotonic;

use super::tally::Freshness;
use crate::assign::token_hash;
use crate::halving;
use crate::status::StaleToken;

#[derive(Debug, Clone)]
struct Token {
    name: Arc<str>,
    known_since: Monotonic,
    /// When its newest snapshot was fetched.
    fresh: Option<Monotonic>,
    /// When the venue last answered for it, be it that there is no book.
    checked: Option<Monotonic>,
    /// The number of its last turn; 0 before the first, or when it has no time to lose.
    asked: u64,
    /// How often in a row it spoiled a batch.
    found: u32,
    rests_until: Option<Monotonic>,
    /// The venue has no book of it.
    is_absent: bool,
}

#[derive(Debug, Default)]
pub(super) struct TokenTable {
    all: Vec<Token>,
    hashes: Vec<u64>,
}

impl TokenTable {
    /// Takes other tokens; gives for each old number the new one.
    pub(super) fn replace(&mut self, names: Vec<Arc<str>>, now: Monotonic) -> Vec<Option<u32>> {
        let mut old: HashMap<Arc<str>, (usize, Token)> = self
            .all
            .drain(..)
            .enumerate()
            .map(|(at, token)| (Arc::clone(&token.name), (at, token)))
            .collect();
        let mut moved = vec![None; old.len()];
        for name in names {
            let token = match old.remove(&name) {
                Some((at, token)) => {
                    moved[at] = Some(self.all.len() as u32);
                    token
                }
                None => Token {
                    name,
                    known_since: now,
                    fresh: None,
                    checked: None,
                    asked: 0,
                    found: 0,
                    rests_until: None,
                    is_absent: false,
                },
            };
            self.all.push(token);
        }
        self.hashes = self.all.iter().map(|token| token_hash(&token.name)).collect();
        moved
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub(super) fn name(&self, at: u32) -> Option<Arc<str>> {
        self.all.get(at as usize).map(|token| Arc::clone(&token.name))
    }

    pub(super) fn asked(&self, at: u32) -> u64 {
        self.all.get(at as usize).map_or(0, |token| token.asked)
    }

    /// How long it has waited for an answer.
    pub(super) fn waited(&self, at: u32, now: Monotonic) -> Duration {
        let since = |token: &Token| now.since(token.checked.unwrap_or(token.known_since));
        self.all.get(at as usize).map_or(Duration::ZERO, since)
    }

    /// Its turn: whether it is to be asked for. One that rests is not.
    pub(super) fn ask(&mut self, at: u32, asked: &mut u64, now: Monotonic) -> bool {
        let Some(token) = self.all.get_mut(at as usize) else { return false };
        if token.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        *asked += 1;
        token.asked = *asked;
        true
    }

    /// These have no time to lose: they come first when queues are made anew.
    pub(super) fn hurry(&mut self, tokens: &[u32]) {
        for at in tokens {
            if let Some(token) = self.all.get_mut(*at as usize) {
                token.asked = 0;
            }
        }
    }

    pub(super) fn answered(&mut self, at: u32, is_there: bool, fetched: Monotonic) {
        let Some(token) = self.all.get_mut(at as usize) else { return };
        token.is_absent = !is_there;
        token.checked = Some(fetched);
        if is_there {
            token.fresh = Some(token.fresh.map_or(fetched, |fresh| fresh.max(fetched)));
            (token.found, token.rests_until) = (0, None);
        }
    }

    /// It spoils batches, so it rests; its name.
    pub(super) fn rest(&mut self, at: u32, now: Monotonic) -> Option<Arc<str>> {
        let token = self.all.get_mut(at as usize)?;
        token.found += 1;
        token.rests_until = Some(Monotonic(now.0 + halving::rest(token.found)));
        Some(Arc::clone(&token.name))
    }

    pub(super) fn resting(&self, now: Monotonic) -> usize {
        self.all.iter().filter(|token| token.rests_until.is_some_and(|until| now < until)).count()
    }

    /// Those that count, with their ages.
    fn ages(&self, now: Monotonic) -> impl Iterator<Item = (Duration, &Token)> {
        let is_resting = move |token: &&Token| token.rests_until.is_some_and(|until| now < until);
        let counted = self.all.iter().filter(move |token| !token.is_absent && !is_resting(token));
        counted.map(move |token| (now.since(token.fresh.unwrap_or(token.known_since)), token))
    }

    /// So many with the oldest snapshots, the oldest first.
    pub(super) fn stalest(&self, count: usize, now: Monotonic) -> Vec<StaleToken> {
        let mut oldest: Vec<(Duration, &Token)> = Vec::with_capacity(count + 1);
        for (age, token) in self.ages(now) {
            if oldest.len() == count && oldest.last().is_some_and(|(youngest, _)| age <= *youngest) {
                continue;
            }
            let at = oldest.partition_point(|(other, _)| *other >= age);
            oldest.insert(at, (age, token));
            oldest.truncate(count);
        }
        let told = |(age, token): (Duration, &Token)| StaleToken {
            token: token.name.to_string(),
            age_ms: age.as_secs_f64() * 1e3,
        };
        oldest.into_iter().map(told).collect()
    }

    pub(super) fn freshness(&self, now: Monotonic) -> Freshness {
        let ages = self.ages(now).map(|(age, _)| age);
        let never = self.all.iter().filter(|token| token.fresh.is_none() && !token.is_absent).count();
        let absent = self.all.iter().filter(|token| token.is_absent).count();
        Freshness::of(ages.collect(), never, absent)
    }
}
