//! What a venue's sockets are like: what differs between venues, and only that.

use super::fault::StreamFaultKind;
use super::hall::Hall;
use crate::text::Query;
use crate::venue::{Answer, Ask};

/// The rhythm and the limits of a venue's connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    /// The server sends a ping frame this often …
    pub(crate) ping_us: Option<i64>,
    /// … and ends a connection that has not answered for so long.
    pub(crate) pong_within_us: Option<i64>,
    /// A connection lives so long at most.
    pub(crate) life_us: Option<i64>,
    /// A connection ends if the client says nothing and nothing is sent to it for so long.
    pub(crate) idle_us: Option<i64>,
    /// A connection ends if nothing is subscribed by then.
    pub(crate) subscribe_within_us: Option<i64>,
    /// The venue's own signs of life come this often.
    pub(crate) heartbeat_us: Option<i64>,
    /// So many messages of a client in so long; one more and it is closed.
    pub(crate) messages: Option<(u32, i64)>,
    /// Streams of a connection; one more is refused by the dialect.
    pub(crate) streams_max: usize,
    /// It has a checksum or hash that can be wrong.
    pub(crate) has_checksum: bool,
    /// Its numbers can begin anew.
    pub(crate) has_restart: bool,
    /// It tells clients before it closes their connections.
    pub(crate) has_notice: bool,
    /// Its tick sizes change.
    pub(crate) has_tick_size: bool,
}

pub(crate) const SECOND: i64 = 1_000_000;

/// How a venue speaks. It owns the venue's markets; the [`Hall`] owns connections, streams and faults.
pub(crate) trait Dialect: Send {
    fn manners(&self) -> Manners;

    /// Whether there is a socket at this path, below the venue's own part.
    fn has_socket(&self, path: &str) -> bool;

    /// A client has connected.
    fn greet(&mut self, hall: &mut Hall, conn: u64, path: &str, query: Query<'_>);

    /// A client has said something.
    fn hear(&mut self, hall: &mut Hall, conn: u64, text: &str);

    /// Something of a market is due. Gives the time at which it is due next, if anybody still listens.
    fn beat(&mut self, hall: &mut Hall, slot: u32, kind: u8, due_us: i64) -> Option<i64>;

    /// The venue's sign of life on this connection.
    fn heartbeat(&mut self, _hall: &mut Hall, _conn: u64) {}

    /// Tells a client that its connection will be closed.
    fn notice(&mut self, _hall: &mut Hall, _conn: u64) {}

    /// Lets something happen at a market: its numbers begin anew, its tick size changes.
    fn happen(&mut self, _hall: &mut Hall, _what: StreamFaultKind, _slot: u32) {}

    /// A connection is gone.
    fn forget(&mut self, _conn: u64) {}

    /// The market of this name, as the venue spells it or as `BTC/USDT`.
    fn find(&self, symbol: &str) -> Option<u32>;

    /// The answer to a request, for venues whose REST side is their dialect's.
    fn answer(&mut self, _now_us: i64, _ask: &Ask<'_>) -> Answer {
        Answer::text(404, "404 page not found\n")
    }
}
