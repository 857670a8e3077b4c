//! The store's tokens as a governor's budget: pollers, streams and jobs of all processes spend from one account.
//!
//! Tokens are fetched for all who stand in line at once, and a few ahead for whoever uses up what was fetched before it is
//! too old: twice as many each time, up to a sixteenth of the narrowest window. Those that are not asked for yet wait in a
//! purse, and what nobody wants is given back. A token must leave soon after it was *asked for* ([`Charge::leaves_by`]), because the store counts
//! it from the moment it was granted, which is later. Nine tenths of its validity are used: the rest is for the way from
//! the permit to the wire.
//!
//! A store that is far away, or busy, takes longer to answer than a token is usually valid. Then tokens are asked for that are
//! valid longer: less of the limit can be used, but nothing stands still.
//!
//! When the store says "not before", nobody asks until then. Within a process a better lane goes first; between processes
//! whoever asks first. What a venue's own headers say about strangers is not charged to the store.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use catchment_governor::limiter::Used;
use catchment_governor::{Answer, Bill, Budget, Charge, FamilyId, Fill, Lane, Limits, Reply, WindowSpec};
use catchment_model::{Clock, Monotonic, Venue};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connector::{NamedWindow, NewConnector, RateLimit};
use crate::error::StoreError;
use crate::events;
use crate::store::Store;
use crate::time::from_ms;
use crate::token::{Grant, Slot, TokenAsk, Tokens};
use crate::window_log::WindowLog;

/// What is given back and waits for the store. Full: it is not given back, and counts until its time is over.
const BACK_IN_LINE: usize = 1_024;
/// When the store cannot be reached, or the exchange is paused.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long whoever was told to wait keeps its turn after the time it was told.
const GRACE: Duration = Duration::from_millis(100);
/// Of a window, so little is fetched before anybody asks for it: it is not there for the others.
const AHEAD_SHARE: u32 = 16;
/// How soon whoever made way looks again.
const MAKE_WAY: Duration = Duration::from_millis(5);

/// How tokens are fetched.
#[derive(Debug, Clone, Copy)]
pub struct BudgetSettings {
    /// For so many requests at once, at most.
    pub requests_max: u32,
    /// How long a token may be kept; none means what the exchange's shortest period suggests.
    pub valid_for: Option<Duration>,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { requests_max: 128, valid_for: None }
    }
}

/// One exchange's account in a store.
pub struct StoreBudget {
    store: Arc<dyn Store>,
    exchange: Venue,
    limits: Limits,
    clock: Arc<dyn Clock>,
    settings: BudgetSettings,
    /// For each family, the places of its windows.
    paths: Vec<Vec<u16>>,
    /// For each family, how long its tokens are valid unless something else is said.
    usual: Vec<Duration>,
    state: Mutex<State>,
    back: mpsc::Sender<Back>,
}

type Back = (Arc<Grant>, u32);

/// Gives back what is not used. Ends when the budget is gone; awaiting it says that everything was given back.
#[derive(Debug)]
pub struct GivingBack(JoinHandle<()>);

impl GivingBack {
    /// Waits until the budget is gone and everything is given back.
    pub async fn ended(self) {
        // It cannot panic, and is never cancelled.
        let _ = self.0.await;
    }
}

#[derive(Default)]
struct State {
    /// By family and cost: tokens nobody has asked for yet.
    purses: HashMap<(FamilyId, u32), Purse>,
    /// By mark: tokens that were handed on and have not left.
    held: HashMap<u64, Coin>,
    marks: u64,
    /// By family: the store said "not before".
    told: HashMap<FamilyId, Monotonic>,
    /// Who was told to wait, the best lane first.
    waiting: BTreeMap<(Lane, u64, FamilyId), Monotonic>,
    /// How often a lane made way since it was last served.
    made_way: [u32; 4],
    /// What this process has taken, by window.
    own: Vec<WindowLog>,
    /// How long the store takes to answer, of late.
    trip: Duration,
}

/// Tokens of one family and cost.
#[derive(Default)]
struct Purse {
    coins: VecDeque<Coin>,
    /// For so many is asked beyond those in line.
    ahead: u32,
    /// What was fetched last could be used until then.
    good_until: Monotonic,
}

impl Purse {
    /// It is empty, and somebody asks: that was too little if the last would still be good, and enough if not.
    fn learn(&mut self, now: Monotonic, most: u32) {
        let used_up = now < self.good_until;
        self.ahead = if used_up { (self.ahead * 2 + 1).min(most) } else { 0 };
    }
}

/// The right to one request.
#[derive(Clone)]
struct Coin {
    grant: Arc<Grant>,
    leaves_by: Monotonic,
}

/// How long a token must be valid when the store takes so long to answer; none if what is usual will do.
fn validity(trip: Duration, usual: Duration) -> Option<Duration> {
    let needed = (trip * 2 + Duration::from_millis(5)).min(TokenAsk::VALID_FOR_MAX);
    (needed > usual).then_some(needed)
}

/// The connector of an exchange with these limits. Its own window is that of the one family there is; where there are
/// several, each with its own, it is what they allow together: it then bounds nothing by itself, and the families' windows,
/// which are kept beside it, do. Attempts to connect (`connects.…`) are not counted in.
pub fn connector_of(exchange: Venue, limits: &Limits) -> NewConnector {
    let rate_of = |window: &WindowSpec| f64::from(window.allowed) / window.length.as_secs_f64();
    // Of each family the window that lets the least through; families that share one count once.
    let mut slowest: Vec<usize> = limits
        .families()
        .filter(|family| !limits.name(*family).starts_with("connects."))
        .filter_map(|family| {
            let path = limits.path(family).iter().copied();
            path.min_by(|a, b| rate_of(&limits.windows()[*a]).total_cmp(&rate_of(&limits.windows()[*b])))
        })
        .collect();
    slowest.sort_unstable();
    slowest.dedup();
    let windows: Vec<WindowSpec> = slowest.into_iter().map(|at| limits.windows()[at]).collect();
    let Some(length) = windows.iter().map(|window| window.length).max() else {
        return NewConnector::new(exchange);
    };
    let times = |window: &WindowSpec| length.as_secs_f64() / window.length.as_secs_f64();
    let together: f64 = windows.iter().map(|window| f64::from(window.allowed) * times(window)).sum();
    let limit = (together.floor() as u32).clamp(1, RateLimit::LIMIT_MAX);
    NewConnector { rate: RateLimit::new(limit, length), ..NewConnector::new(exchange) }
}

impl fmt::Debug for StoreBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreBudget").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

impl StoreBudget {
    /// Opens the account: makes the connector if there is none, and says which windows the limits have. Everybody who opens
    /// it brings the same limits; the clock is the governor's.
    pub async fn open(
        store: Arc<dyn Store>,
        exchange: Venue,
        limits: Limits,
        clock: Arc<dyn Clock>,
        settings: BudgetSettings,
    ) -> Result<(Self, GivingBack), StoreError> {
        let rate = |at: usize| {
            let window = limits.windows()[at];
            RateLimit::new(window.allowed, window.length)
        };
        store.ensure_connector(&connector_of(exchange, &limits)).await?;
        let name = |at: usize| {
            let of = limits.families().find(|family| limits.path(*family).contains(&at));
            of.map_or_else(|| at.to_string(), |family| limits.name(family).to_owned())
        };
        let windows: Vec<NamedWindow> =
            (0..limits.windows().len()).map(|at| NamedWindow { name: name(at), rate: rate(at) }).collect();
        store.declare_windows(exchange, &windows).await?;
        let path = |family| limits.path(family).iter().map(|at| *at as u16).collect();
        let paths = limits.families().map(path).collect();
        let main = connector_of(exchange, &limits).rate.token_validity();
        let usual = |family| {
            let windows = limits.path(family).iter().map(|at| rate(*at).token_validity());
            windows.min().unwrap_or(main).min(main)
        };
        let usual = limits.families().map(usual).collect();
        let (back, mut line) = mpsc::channel::<Back>(BACK_IN_LINE);
        let state = State { own: vec![WindowLog::default(); windows.len()], ..State::default() };
        let budget = Self {
            store: store.clone(),
            exchange,
            limits,
            clock,
            settings,
            paths,
            usual,
            state: Mutex::new(state),
            back,
        };
        let giving_back = tokio::spawn(async move {
            while let Some((grant, requests)) = line.recv().await {
                if let Err(error) = store.give_back(&grant, requests).await {
                    // It counts until its time is over: too few are sent, never too many.
                    events::tokens_not_given_back(exchange, &error);
                }
            }
        });
        Ok((budget, GivingBack(giving_back)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    /// From the purse, or by asking the store.
    async fn fetch(&self, bill: Bill, asked_at: Monotonic) -> Answer {
        let (trip, ahead) = {
            let mut state = self.lock();
            let trip = state.trip;
            let purse = state.purses.entry((bill.family, bill.cost)).or_default();
            purse.learn(asked_at, self.ahead_max(&bill));
            (trip, purse.ahead)
        };
        let valid_for = self.settings.valid_for.or_else(|| validity(trip, self.usual[bill.family.at()]));
        let ask = TokenAsk {
            exchange: self.exchange,
            windows: &self.paths[bill.family.at()],
            cost: bill.cost.max(1),
            requests: bill.behind.max(ahead).saturating_add(1).clamp(1, self.settings.requests_max),
            valid_for,
        };
        let answer = self.store.take_tokens(&ask).await;
        let now = self.clock.monotonic();
        let mut state = self.lock();
        // The slowest counts, and is forgotten little by little.
        state.trip = now.since(asked_at).max(state.trip.mul_f64(0.8));
        match answer {
            Ok(Tokens::Granted(grant)) => {
                let leaves_by = Monotonic(asked_at.0 + grant.valid_for.mul_f64(0.9));
                self.note_own(&mut state, &grant, now);
                let (requests, grant) = (grant.requests, Arc::new(grant));
                let coin = Coin { grant, leaves_by };
                let purse = state.purses.entry((bill.family, bill.cost)).or_default();
                purse.good_until = leaves_by;
                purse.coins.extend(std::iter::repeat_n(coin, requests as usize));
                state.told.remove(&bill.family);
                match state.spend(&bill, now) {
                    Some(charge) => Answer::Now(charge),
                    // It took so long that none of them may leave any more.
                    None => {
                        self.give_back_late(&mut state, now);
                        Answer::NotBefore(Monotonic(now.0 + MAKE_WAY))
                    }
                }
            }
            Ok(Tokens::Wait { retry_after }) => {
                let at = Monotonic(now.0 + retry_after);
                state.told.insert(bill.family, at);
                state.waiting.insert((bill.lane, bill.client, bill.family), Monotonic(at.0 + GRACE));
                Answer::NotBefore(at)
            }
            Ok(Tokens::Paused) => Answer::NotBefore(Monotonic(now.0 + ASK_AGAIN)),
            Err(error) => {
                events::tokens_unreachable(self.exchange, &error);
                Answer::NotBefore(Monotonic(now.0 + ASK_AGAIN))
            }
        }
    }

    /// How many requests may be fetched that nobody has asked for.
    fn ahead_max(&self, bill: &Bill) -> u32 {
        let windows = self.limits.path(bill.family).iter().map(|at| self.limits.windows()[*at].allowed);
        windows.min().unwrap_or(0) / AHEAD_SHARE / bill.cost.max(1)
    }

    /// What this process has taken, for whoever looks.
    fn note_own(&self, state: &mut State, grant: &Grant, now: Monotonic) {
        for mark in &grant.marks {
            let Slot::Named(at) = mark.slot else { continue };
            let window = self.limits.windows()[usize::from(at)];
            let rate = RateLimit::new(window.allowed, window.length);
            let now = from_ms(now.0.as_millis() as i64);
            let log = &mut state.own[usize::from(at)];
            log.tidy(rate, now);
            log.add(WindowLog::until(rate, Duration::ZERO, now), mark.cost * grant.requests);
        }
    }

    /// Tokens that nobody has used in time surely never leave.
    fn give_back_late(&self, state: &mut State, now: Monotonic) {
        for purse in state.purses.values_mut() {
            while let Some(coin) = purse.coins.pop_front_if(|coin| coin.leaves_by < now) {
                purse.ahead = 0;
                self.give_back(coin);
            }
        }
    }

    fn give_back(&self, coin: Coin) {
        // Full, or at the very end: see `BACK_IN_LINE`.
        let _ = self.back.try_send((coin.grant, 1));
    }
}

impl Budget for StoreBudget {
    fn charge(&self, bill: &Bill, now: Monotonic) -> Reply<'_> {
        let bill = *bill;
        let mut state = self.lock();
        self.give_back_late(&mut state, now);
        if let Some(charge) = state.spend(&bill, now) {
            return Reply::Ready(Answer::Now(charge));
        }
        if let Some(at) = state.told.get(&bill.family).copied().filter(|at| *at > now) {
            state.waiting.insert((bill.lane, bill.client, bill.family), Monotonic(at.0 + GRACE));
            return Reply::Ready(Answer::NotBefore(at));
        }
        if state.makes_way(&bill, now) {
            return Reply::Ready(Answer::NotBefore(Monotonic(now.0 + MAKE_WAY)));
        }
        drop(state);
        Reply::Later(Box::pin(self.fetch(bill, now)))
    }

    fn left(&self, charge: Charge, _now: Monotonic) {
        self.lock().held.remove(&charge.mark);
    }

    fn unsent(&self, charge: Charge) {
        let mut state = self.lock();
        let Some(coin) = state.held.remove(&charge.mark) else { return };
        // There is room again, for whoever was told there is none.
        state.told.clear();
        self.give_back(coin);
    }

    fn withdraw(&self, bill: &Bill) {
        let mut state = self.lock();
        state.waiting.remove(&(bill.lane, bill.client, bill.family));
        // What was fetched for it goes back now, not when it is too late.
        if let Some(purse) = state.purses.remove(&(bill.family, bill.cost)) {
            for coin in purse.coins {
                self.give_back(coin);
            }
        }
    }

    /// Not told to the store; see the module's head.
    fn venue_counts(&self, _family: FamilyId, _used: &Used, _now: Monotonic) -> u64 {
        0
    }

    /// What this process has taken of each window; the others' share is in the store.
    fn fill(&self, family: FamilyId, now: Monotonic) -> Vec<Fill> {
        let mut state = self.lock();
        let now = from_ms(now.0.as_millis() as i64);
        let fill = |at: &usize| {
            let window = self.limits.windows()[*at];
            let log = &mut state.own[*at];
            log.tidy(RateLimit::new(window.allowed, window.length), now);
            Fill { used: u64::from(log.used()), allowed: window.allowed, length: window.length }
        };
        self.limits.path(family).iter().map(fill).collect()
    }
}

impl Drop for StoreBudget {
    fn drop(&mut self) {
        let Ok(state) = self.state.get_mut() else { return };
        for coin in state.purses.drain().flat_map(|(_, purse)| purse.coins) {
            let _ = self.back.try_send((coin.grant, 1));
        }
    }
}

impl State {
    /// One from the purse.
    fn spend(&mut self, bill: &Bill, now: Monotonic) -> Option<Charge> {
        let purse = self.purses.get_mut(&(bill.family, bill.cost))?;
        let coin = purse.coins.pop_front_if(|coin| coin.leaves_by >= now)?;
        self.marks += 1;
        let charge = Charge {
            family: bill.family,
            cost: bill.cost,
            mark: self.marks,
            leaves_by: Some(coin.leaves_by),
        };
        self.held.insert(self.marks, coin);
        self.made_way[bill.lane as usize] = 0;
        if bill.behind == 0 {
            self.waiting.remove(&(bill.lane, bill.client, bill.family));
        }
        Some(charge)
    }

    /// Whether somebody in a better lane was told to wait and may go now.
    fn makes_way(&mut self, bill: &Bill, now: Monotonic) -> bool {
        self.waiting.retain(|_, lapses| *lapses >= now);
        let is_better = self.waiting.first_key_value().is_some_and(|((lane, ..), _)| *lane < bill.lane);
        let patience = [0, 4, 9, 19][bill.lane as usize];
        let made_way = &mut self.made_way[bill.lane as usize];
        if !is_better || *made_way >= patience {
            *made_way = 0;
            return false;
        }
        *made_way += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_store_gives_tokens_that_are_valid_longer() {
        let ms = Duration::from_millis;
        assert_eq!(validity(ms(1), ms(30)), None, "nothing is given away where the store is near");
        assert_eq!(validity(ms(100), ms(30)), Some(ms(205)));
        assert_eq!(validity(ms(60_000), ms(30)), Some(TokenAsk::VALID_FOR_MAX));
    }
}
