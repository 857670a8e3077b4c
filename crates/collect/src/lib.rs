//! Discover, poll, stream and backfill. The only room that opens a connection to a venue, and only with a permit.
//!
//! * [`Courier`]: the only HTTP client of the program; [`Courier::send`] consumes a
//!   [`Permit`](catchment_governor::Permit) and gives back a [`Reply`] or a [`SendError`]
//! * [`discover()`]: the slow path; which instruments a venue has, every few minutes, into a file and the channel `markets`
//! * [`poll()`]: the hot path; every instrument's book, once an interval, into the channel `orderbook`
//! * [`stream`]: what a venue sends by itself, over WebSockets, verified
//! * [`Backfill`]: what jobs do: candles of the past, new ones, missing ones
//! * [`SnapshotFile`]: reads that file without ever dying of it
//! * [`limits_of`]: what a venue declares, as the governor wants it
//!
//! Deliberately absent: any knowledge of a venue. What to ask and how to read the answer is in `catchment-venues`.

mod backfill;
mod courier;
mod discover;
mod events;
mod families;
mod membership;
mod poll;
mod send_error;
mod snapshot_file;
mod spares;
mod stats;
pub mod stream;
mod tally;
mod tls;

pub use backfill::{
    Backfill, BackfillCounts, BackfillSettings, BackfillVenue, GapNotice, backfill_gaps, gaps_of_absence,
};
pub use courier::{Courier, CourierSettings, ReadStatus, Reply};
pub use discover::{DiscoverStatus, DiscoverTask, LOSS_BELIEVED_AFTER, PageRetries, discover};
pub use families::{families_of, limits_of};
pub use poll::{Answer, Fetch, Fetched, Line, Lost, PollSettings, PollStatus, PollTask, poll};
pub use send_error::{Phase, SendError};
pub use snapshot_file::{KeptReason, Loaded, SnapshotFile, snapshot_path};
pub use stats::PollCounts;
pub use tally::CourierCounts;
pub use tls::prefer_ring;
