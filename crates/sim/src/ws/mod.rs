//! Streams: the venues' own WebSocket protocols, their rhythm, and what goes wrong with them on demand.
//!
//! | file | what |
//! |---|---|
//! | `codec` | frames on the wire, from the server's side |
//! | `line` | what waits for one connection |
//! | `session` | one connection's task: reads, writes |
//! | `hall` | connections, who listens to what, what is due |
//! | `trouble`, `fault` | faults: how they strike; what they are, and the log |
//! | `journal` | what went out |
//! | `floor` | all of that behind one lock, driven by a clock |
//! | `dialect` | what a venue provides |
//! | `pair`, `exchange` | the markets of the five exchanges, and what their dialects share |
//!
//! A frame is made once for a stream, however many connections get it. Each event has its own time, from the seed and the
//! symbol: what is in a frame does not depend on when the server got round to making it. A symbol nobody listens to costs
//! nothing; its numbers go on all the same.
//!
//! Deliberately absent: compression, TLS, and batching of updates by the venues' cadences: a rate says how many messages
//! a symbol sends.

pub(crate) mod codec;
pub(crate) mod config;
pub(crate) mod dialect;
pub(crate) mod exchange;
pub(crate) mod fault;
pub(crate) mod floor;
pub(crate) mod hall;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod line;
pub(crate) mod pair;
pub(crate) mod session;
mod trouble;
pub(crate) mod upgrade;

/// What streams are called in faults, in the log and in the journal, whatever the venue calls them.
pub const CHANNELS: &[&str] = &[BOOK, TRADES, TICKER, CANDLES];

pub(crate) const BOOK: &str = "book_delta";
pub(crate) const TRADES: &str = "trades";
pub(crate) const TICKER: &str = "ticker";
pub(crate) const CANDLES: &str = "candles";
