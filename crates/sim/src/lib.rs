//! Simulated venues on loopback: one HTTP server, a path prefix for each API, the real wire format, and faults on demand.
//!
//! | prefix | what |
//! |---|---|
//! | `/polymarket/clob`, `/polymarket/gamma` | books in batches; listings |
//! | `/limitless` | listings and a book at a time |
//! | `/kalshi` | listings, books singly and by the hundred (`/kalshi/trade-api/v2/…` is the same) |
//! | `/binance`, `/coinbase`, `/kraken`, `/okx`, `/bybit`, `/polymarket/ws` | streams, and the answers that go with them |
//! | `/mock` | a small exchange of its own: see [`mock`] |
//! | `/_sim/stats`, `/_sim/faults`, `/_sim/requests` | what was asked and answered; what goes wrong, read and set; each request |
//! | `/_sim/inject`, `/_sim/log`, `/_sim/journal`, `/_sim/connections` | what is to go wrong with streams; what did; what was sent; to whom |
//!
//! Time comes from a [`Clock`](catchment_model::Clock) and chance from a seed: the same requests at the same times get
//! the same bytes. Books move when they are asked for; a market nobody asks about costs nothing. Waiting (latency, slow
//! bodies, delays of a limit) is by tokio's clock.
//!
//! A venue is one file and one line in [`VENUES`]. Start reading at `venue.rs` for what it provides, then `server.rs` for
//! what is done with it. Streams are in `ws/`; its `mod.rs` is their table of contents.
//!
//! Deliberately absent: TLS, compression of streams, orders, accounts. Nothing here connects to anywhere.

mod args;
mod binance;
mod body;
mod book;
mod bybit;
mod coinbase;
mod config;
mod control;
mod dice;
mod faults;
mod kalshi;
mod kraken;
mod limit;
mod limitless;
pub mod mock;
mod okx;
mod polymarket;
mod requests;
mod server;
mod sign;
mod stats;
mod streams;
mod text;
mod universe;
mod venue;
mod ws;

pub use args::SimArgs;
pub use binance::BinanceRules;
pub use bybit::BybitRules;
pub use coinbase::CoinbaseRules;
pub use config::{SimConfig, SimError, UniverseConfig, VenueConfig};
pub use faults::Faults;
pub use kalshi::KalshiRules;
pub use kraken::KrakenRules;
pub use limit::{LimitModel, LimitRule, RetryAfter};
pub use limitless::{LimitlessRules, OverCap};
pub use okx::OkxRules;
pub use polymarket::{EventRoll, PolymarketRules};
pub use server::Sim;
pub use stats::{EndpointStats, Stats};
pub use venue::VenueSpec;
pub use ws::CHANNELS;
pub use ws::config::{ExchangeConfig, Pace, PairsConfig, Rates, SessionConfig, StreamsConfig};
pub use ws::fault::{Affected, LogEntry, StreamFault, StreamFaultKind};
pub use ws::floor::ConnectionView;
pub use ws::history::CandlesConfig;
pub use ws::journal::{JournalEntry, StreamCount, StreamCounts};

/// Every venue that can be simulated, in the order `catchment sim` prints them.
pub static VENUES: &[&VenueSpec] = &[
    &polymarket::SPEC,
    &limitless::SPEC,
    &kalshi::SPEC,
    &binance::SPEC,
    &coinbase::SPEC,
    &kraken::SPEC,
    &okx::SPEC,
    &bybit::SPEC,
    &mock::SPEC,
];
