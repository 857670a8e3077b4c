//! What each venue offers and how to read it. Pure: requests out, values in.
//!
//! * [`VENUES`]: every venue this build knows; a [`VenueSpec`] each, all of it data
//! * [`Discovers`] and [`Walk`]: which instruments can be polled, page by page
//! * [`Polls`] and [`BookPage`]: books for one instrument or many, made alike
//! * [`candles`]: candles of a range, a page at a time; [`trades`] likewise; [`markets`]: what is traded
//! * [`ladder`]: live books from streams, verified message by message
//! * [`Request`]: what is to be sent, by somebody else
//! * [`Reading`]: what a status and a body mean
//! * [`stream`]: venues that stream, each described in a file
//!
//! Adding a venue is a file and a line in [`VENUES`]. Deliberately absent: nothing here sends, sleeps, logs or reads a
//! clock, so recorded bytes test it, and the simulator and the real venue drive the same code.

mod book_page;
pub mod candles;
mod discover;
mod error;
mod kalshi;
pub mod ladder;
mod limitless;
pub mod markets;
mod mould;
mod poll;
pub mod polymarket;
mod record;
mod request;
mod spec;
mod status;
pub mod stream;
pub mod trades;
mod wire;
mod words;

pub use book_page::{BookForm, BookPage, BookRead, Unreadable};
pub use discover::{Discovers, InstrumentPage, Skipped, Walk};
pub use error::ReadError;
pub use poll::Polls;
pub use request::{Method, Request};
pub use spec::{Ability, Endpoint, Endpoints, EndpointsError, Limit, Opened, Start, VenueSpec};
pub use status::Reading;

/// Every venue this build knows, in the order `catchment venues` prints them.
pub static VENUES: &[&VenueSpec] = &[&polymarket::SPEC, &limitless::SPEC, &kalshi::SPEC];

/// The venue of that name.
pub fn find(id: &str) -> Option<&'static VenueSpec> {
    VENUES.iter().find(|spec| spec.id == id).copied()
}
