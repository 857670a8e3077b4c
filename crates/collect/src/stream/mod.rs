//! Streams: what a venue sends by itself, recorded as it comes, with whatever may be missing said beside it.
//!
//! ```text
//! stream() ─▶ a Shard for each connection ─▶ Link (socket, pace, subscriptions) ─▶ Core::record ─▶ Draft ─▶ Intake
//!               │ its successor, before it ends          │ numbers, gaps, silence, books
//!               └─▶ Overlap: nothing lost, nothing doubled
//! ```
//!
//! * [`stream()`]: all connections of a venue, its clock, its [`StreamStatus`]
//! * `shard`: one connection, a task; `core`: what is known of its streams
//! * `socket`: the WebSocket itself; `link`: one that is open; `rest`: requests beside the stream
//! * Decisions, each a machine without I/O: `pace`, `redial`, `acks`, `rhythm`, `silence`, `overlap`, `gaps`, `books`, `mend`
//!
//! What goes wrong costs as little as it can:
//! * A frame that cannot be read costs itself, and is told for its stream if its beginning says which that is.
//! * A subscription that is refused is told and tried again later; the others flow.
//! * A book that is wrong is begun anew, alone. A stream that is frozen is subscribed anew, alone.
//! * A connection that is lost is opened anew, with waits that grow until it stays; its streams have gaps with exact
//!   bounds.
//! * A pipeline that takes nothing: the socket is not read, and backs up. Memory does not grow.
//!
//! Deliberately absent: any knowledge of a venue, which is in its [`Descriptor`].

mod acks;
mod books;
mod core;
mod events;
mod families;
mod gaps;
mod link;
mod mend;
mod overlap;
mod pace;
mod records;
mod redial;
mod rest;
mod rhythm;
mod shard;
mod silence;
mod socket;
mod status;
mod venue;

use std::time::Duration;

use catchment_venues::stream::Descriptor;

pub use self::acks::AckSettings;
pub use self::families::families_of;
pub use self::gaps::GapSettings;
pub use self::overlap::OverlapSettings;
pub use self::redial::RedialSettings;
pub use self::silence::SilenceSettings;
pub(crate) use self::status::ClockGauge;
pub use self::status::{
    ClockQuality, ConnectionState, ConnectionStatus, StreamCounts, StreamStatus, Trouble,
};
pub use self::venue::{StreamError, StreamTask, stream, try_socket};

/// What may be set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamSettings {
    /// Books are kept, proved and written whole. Otherwise their changes are recorded like any other message.
    pub keeps_books: bool,
    /// Whole books are written this often, and after each new beginning.
    pub snapshot_interval: Duration,
    /// Levels a side in these.
    pub depth: usize,
    /// What was checked of each book is written this often.
    pub summary_interval: Duration,
    /// The venue's clock is asked for this often.
    pub clock_interval: Duration,
    /// For name, connection, TLS and handshake together.
    pub connect_deadline: Duration,
    /// Subscriptions.
    pub acks: AckSettings,
    /// Attempts to connect.
    pub redial: RedialSettings,
    /// Two sockets at once.
    pub overlap: OverlapSettings,
    /// Frozen or quiet.
    pub silence: SilenceSettings,
    /// When gaps are told.
    pub gaps: GapSettings,
    /// How often commands and timers are looked after …
    pub tick: Duration,
    /// … and deadlines and silence.
    pub look_every: Duration,
    /// A pipeline that takes nothing for longer than this has held up the socket.
    pub stall_min: Duration,
    /// Whether frames are read as nobody should: for benches.
    pub through_values: bool,
    /// Of the jitter.
    pub seed: u64,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            keeps_books: true,
            snapshot_interval: Duration::from_secs(60),
            depth: 5_000,
            summary_interval: Duration::from_secs(60),
            clock_interval: Duration::from_secs(180),
            connect_deadline: Duration::from_secs(10),
            acks: AckSettings::default(),
            redial: RedialSettings::default(),
            overlap: OverlapSettings::default(),
            silence: SilenceSettings::default(),
            gaps: GapSettings::default(),
            tick: Duration::from_millis(100),
            look_every: Duration::from_millis(250),
            stall_min: Duration::from_millis(500),
            through_values: false,
            seed: 0,
        }
    }
}

/// The family of the attempts to connect to a socket.
fn connects_family(descriptor: &Descriptor, socket: usize) -> String {
    format!("connects.{}", descriptor.sockets()[socket].name)
}
