//! What Catchment records, and the few values every room shares.
//!
//! * [`Envelope`]: one message of one venue, its payload raw JSON that nobody has re-serialised
//! * [`Gap`]: what may be missing, said in the data itself
//! * [`Venue`], [`Channel`], [`Symbol`], [`Source`], [`RecordId`]: names that cannot be swapped by accident
//! * [`UnixMs`], [`UnixNs`], [`UtcDate`]: times with their unit in the type
//! * [`Decimal`]: prices and sizes, exact, their text kept
//! * [`Book`], [`Level`], [`BookFlags`]: an order book, best first, and what is odd about it
//! * [`Candle`], [`Timeframe`]: what happened in a stretch of time
//! * [`Instrument`], [`Snapshot`]: what can be polled, and the file that says so
//! * [`Clock`]: wall and monotonic time, replaceable
//!
//! Deliberately absent: tokio, files, sockets. This room does no I/O and depends on no other.

mod book;
mod candle;
mod clock;
mod decimal;
mod envelope;
mod gap;
mod id;
mod instrument;
mod name;
mod stem;
mod time;

pub use book::{Book, BookFlags, Level};
pub use candle::{Candle, Timeframe, TimeframeError};
pub use clock::{Clock, Monotonic, SimClock, SystemClock};
pub use decimal::{Decimal, DecimalError};
pub use envelope::{Envelope, EnvelopeError, EnvelopeLine, LineParts, Payload, PayloadError};
pub use gap::{Cause, Gap};
pub use id::{IdError, RecordId, SpoolId};
pub use instrument::{Instrument, Snapshot, SnapshotError};
pub use name::{Channel, NameError, Source, Symbol, Venue};
pub use stem::{Leaf, Stem};
pub use time::{TimeError, UnixMs, UnixNs, UtcDate};
