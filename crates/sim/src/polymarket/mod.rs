//! Polymarket: the CLOB (books by the batch, a listing with a cursor) and Gamma (events and markets in pages).
//!
//! As of October 2026. The two tokens of a market are one book and its mirror; tokens without a book are left out of
//! `/books`; the hash is the venue's own rule; limits delay first and refuse then.

mod clob;
mod events;
mod gamma;
mod hash;
mod stream;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use catchment_model::Clock;
use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::config::SimConfig;
use crate::dice::Dice;
use crate::limit::{LimitModel, LimitRule};
use crate::text::pair;
use crate::universe::{Names, Universe, Usual};
use crate::venue::{Answer, Ask, Opened, Venue, VenueSpec, is_default_user_agent};
use crate::ws::floor::Floor;

pub use events::EventRoll;

pub(crate) static SPEC: VenueSpec = VenueSpec {
    id: "polymarket",
    apis: &["polymarket/clob", "polymarket/gamma"],
    sockets: &["polymarket/ws"],
    size_key: "universe.markets",
    open,
};

/// What only Polymarket has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolymarketRules {
    /// Rows of a Gamma page at most; larger limits are cut to it without a word. 500 until May 2026.
    pub gamma_page_max: usize,
    /// The largest offset Gamma takes; absent: any. 10,000 in May 2026.
    pub gamma_offset_max: Option<usize>,
    /// Rows of a page of the CLOB's listing.
    pub clob_page: usize,
    /// Tokens one `/books` may ask for.
    pub books_max: usize,
    /// A token that spoils every batch it is in.
    pub poison: Option<String>,
    /// Turn away clients without a name of their own.
    pub user_agent_check: bool,
    /// Tokens a connection may have subscribed to; beyond it the first books silently stay away.
    pub first_books_max: usize,
    /// Events as a plain roll instead of those that the markets make.
    pub roll: EventRoll,
}

impl Default for PolymarketRules {
    fn default() -> Self {
        Self {
            gamma_page_max: 100,
            gamma_offset_max: Some(2_000),
            clob_page: 1_000,
            books_max: 500,
            poison: None,
            user_agent_check: true,
            first_books_max: 750,
            roll: EventRoll::default(),
        }
    }
}

fn open(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let start_ms = clock.wall().ms().get();
    let config_here = &config.polymarket;
    let usual = Usual { levels: 39, ticks: &[100, 10, 10], texts: 2 };
    let seed = Dice::at(&[config.seed, 0x9017]).next();
    let universe = Arc::new(Universe::new(&config_here.universe, seed, start_ms, &usual));
    let stream = stream::Stream::new(Arc::clone(&universe), config_here.rules.first_books_max, seed);
    let floor = Floor::new(SPEC.id, &config.streams, Arc::clone(clock), Box::new(stream));
    let polymarket = Polymarket {
        universe,
        rules: config_here.rules.clone(),
        roll: events::Roll::new(&config_here.rules.roll),
        spare: Mutex::default(),
        floor: Arc::clone(&floor),
    };
    Opened {
        venue: Box::new(polymarket),
        limits: config_here.limits.clone().unwrap_or_else(published),
        faults: config_here.faults.clone(),
        floor: Some(floor),
    }
}

/// docs.polymarket.com, October 2026: so many requests in ten seconds, delayed first, refused then.
fn published() -> Vec<LimitRule> {
    let queue = |endpoints: &[&str], requests| LimitRule::new(endpoints, requests, 10_000, LimitModel::Queue);
    vec![
        queue(&[], 15_000),
        queue(&["clob"], 9_000),
        queue(&["clob/book"], 1_500),
        queue(&["clob/books"], 500),
        queue(&["gamma"], 4_000),
        queue(&["gamma/events"], 500),
        queue(&["gamma/markets"], 300),
        queue(&["gamma/events", "gamma/markets"], 900),
    ]
}

/// The names of a market: its condition and its two tokens.
#[derive(Debug)]
struct PolymarketNames {
    /// `0x` and 64 hexadecimal digits.
    condition: String,
    question_id: String,
    /// Yes and No, 77 decimal digits each.
    tokens: [String; 2],
    slug: String,
}

impl Names for PolymarketNames {
    fn make(seed: u64, number: u64) -> Self {
        let mut dice = Dice::at(&[seed, number, 0x1d5]);
        Self {
            condition: dice.hex(64),
            question_id: dice.hex(64),
            tokens: [dice.digits(77), dice.digits(77)],
            slug: format!("will-the-simulated-event-{number}-happen"),
        }
    }

    fn keys(&self) -> Vec<&str> {
        self.tokens.iter().map(String::as_str).collect()
    }
}

type Market = crate::universe::Market<PolymarketNames>;
type Roll = crate::universe::Roll<PolymarketNames>;

struct Polymarket {
    universe: Arc<Universe<PolymarketNames>>,
    rules: PolymarketRules,
    roll: Option<events::Roll>,
    /// Where answers for many were written before; fresh memory for a megabyte costs as much as filling it.
    spare: Mutex<VecDeque<BytesMut>>,
    floor: Arc<Floor>,
}

impl Venue for Polymarket {
    fn endpoint(&self, method: &Method, path: &str) -> &'static str {
        match (method.as_str(), path) {
            ("GET", "clob/book") => "clob/book",
            ("POST", "clob/books") => "clob/books",
            ("GET", "clob/time") => "clob/time",
            ("GET", "clob/markets") => "clob/markets",
            ("GET", "clob/last-trade-price") => "clob/last-trade-price",
            ("GET", "gamma/markets") => "gamma/markets",
            ("GET", "gamma/markets/keyset") => "gamma/markets/keyset",
            ("GET", "gamma/events") => "gamma/events",
            ("GET", "gamma/events/keyset") => "gamma/events/keyset",
            ("GET", "gamma/status") => "gamma/status",
            (_, path) if path.starts_with("clob/") => "clob/other",
            _ => "gamma/other",
        }
    }

    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        // Books move when they are asked for; those that somebody listens to have to be told of it first.
        self.floor.catch_up_at_once();
        match self.endpoint(ask.method, ask.path) {
            "clob/last-trade-price" => self.last_trade_price(ask),
            "clob/book" => self.book(ask),
            "clob/books" => self.books(ask),
            "clob/time" => Answer::text(200, (ask.now_ms / 1_000).to_string()),
            "clob/markets" => self.clob_markets(ask),
            "clob/other" if ask.path == "clob/books" => Answer::json(400, pair("error", "Invalid payload")),
            "gamma/markets" | "gamma/markets/keyset" => self.gamma_markets(ask),
            "gamma/events" | "gamma/events/keyset" => self.gamma_events(ask),
            "gamma/status" => Answer::text(200, "OK"),
            "gamma/other" => Answer::json(404, gamma::error("not found error", "not found")),
            _ => Answer::text(404, "404 page not found\n"),
        }
    }

    fn refusal(&self) -> Answer {
        Answer::json(429, pair("error", "Too Many Requests"))
    }

    fn turn_away(&self, user_agent: &str) -> Option<Answer> {
        let away = self.rules.user_agent_check && is_default_user_agent(user_agent);
        away.then(|| Answer::text(403, "error code: 1010"))
    }

    fn set_rates(&self, now_ms: i64, births_per_min: Option<f64>, deaths_per_min: Option<f64>) {
        self.universe.set_rates(now_ms, births_per_min, deaths_per_min);
    }
}
