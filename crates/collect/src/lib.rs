//! Discover and poll. The only room that opens a connection to a venue, and only with a permit.
//!
//! * [`Courier`]: the only HTTP client of the program; [`Courier::send`] consumes a
//!   [`Permit`](catchment_governor::Permit) and gives back a [`Reply`] or a [`SendError`]
//!
//! Deliberately absent: any knowledge of a venue. What to ask and how to read the answer is in `catchment-venues`.

mod courier;
mod events;
mod send_error;
mod tally;
mod tls;

pub use courier::{Courier, CourierSettings, Reply};
pub use send_error::{Phase, SendError};
pub use tally::CourierCounts;
