//! What goes wrong with a stream on purpose, and the log of what truly did.
//!
//! A fault is asked for with a [`StreamFault`] and strikes when the next frame it concerns is due. What it did is written
//! to the log as it does it, with the venue's own numbers: a test can lay the recorder's gaps beside it.

use serde::{Deserialize, Serialize};

/// Log entries kept; the oldest go first.
pub(crate) const LOG_MAX: usize = 100_000;
/// Streams named in one entry.
pub(crate) const STREAMS_MAX: usize = 4_096;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamFaultKind {
    /// `count` frames are not sent, to nobody.
    Gap,
    /// `count` frames are sent twice.
    Duplicate,
    /// `count` frames are sent after the one that follows them.
    Reorder,
    /// `count` frames end in the middle of their JSON; the WebSocket frame is whole.
    Truncated,
    /// `count` text frames hold a byte that is not UTF-8.
    NotUtf8,
    /// `count` frames carry a wrong checksum or hash; for venues that have one.
    WrongChecksum,
    /// A binary frame of rubbish comes before each of `count` frames, which come as well.
    Binary,
    /// A text frame of `bytes` bytes comes before each of `count` frames, which come as well.
    Oversized,
    /// The symbol's or the channel's frames are withheld for `for_ms`; the others flow.
    Mute,
    /// Connections get no data and no answers for `for_ms`; pings, heartbeats and pongs go on.
    Freeze,
    /// The next frame is cut in the middle and the connection ends.
    Torn,
    /// Connections end, without a close frame.
    Cut,
    /// Connections are reset; what was on its way may be lost.
    Reset,
    /// Connections are closed with a close frame, code 1001.
    Close,
    /// The server reads nothing from connections for `for_ms`.
    Deaf,
    /// The server writes only `bytes` bytes a second to connections for `for_ms`.
    Trickle,
    /// The next `count` subscriptions are refused, in the venue's words.
    Refuse,
    /// The next `count` subscriptions are acknowledged and then stay silent, on that connection.
    SilentAck,
    /// The venue says that it will close the connection and does so after `for_ms`; where the venue has such a message.
    Notice,
    /// The venue's numbers begin anew, as after its maintenance; where the venue says how that looks.
    Restart,
    /// The symbol's tick size changes; Polymarket only.
    TickSize,
    /// Only in the log: a client did not read, more waited for it than may, and it was closed.
    Overflow,
}

impl StreamFaultKind {
    /// It concerns connections, not streams.
    pub(crate) fn is_of_connections(self) -> bool {
        matches!(
            self,
            Self::Freeze | Self::Cut | Self::Reset | Self::Close | Self::Deaf | Self::Trickle | Self::Notice
        )
    }

    pub(crate) fn lasts(self) -> bool {
        matches!(self, Self::Mute | Self::Freeze | Self::Deaf | Self::Trickle | Self::Notice)
    }
}

/// Something that is to go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamFault {
    /// What.
    pub fault: StreamFaultKind,
    /// Only for this symbol, as the venue spells it or as `BTC/USDT`; absent: whichever comes first, for `mute`: all.
    #[serde(default)]
    pub symbol: Option<String>,
    /// Only on this channel (`book_delta`, `trades`, `ticker`); absent: on any.
    #[serde(default)]
    pub channel: Option<String>,
    /// Only this connection, by the number the log and `/_sim/connections` give it; absent: all that are concerned.
    #[serde(default)]
    pub connection: Option<u64>,
    /// How many frames or subscriptions.
    #[serde(default = "one")]
    pub count: u32,
    /// Not before so long from now.
    #[serde(default)]
    pub after_ms: u64,
    /// For so long; faults that last do so until they are lifted without it.
    #[serde(default)]
    pub for_ms: Option<u64>,
    /// Of an oversized frame; a second, for `trickle`.
    #[serde(default)]
    pub bytes: Option<u32>,
}

fn one() -> u32 {
    1
}

impl StreamFault {
    /// A fault that concerns everything, once.
    pub fn new(fault: StreamFaultKind) -> Self {
        Self {
            fault,
            symbol: None,
            channel: None,
            connection: None,
            count: 1,
            after_ms: 0,
            for_ms: None,
            bytes: None,
        }
    }

    /// Only this symbol and channel.
    #[must_use]
    pub fn on(mut self, symbol: &str, channel: &str) -> Self {
        self.symbol = Some(symbol.to_owned());
        self.channel = Some(channel.to_owned());
        self
    }

    /// So many frames.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// For so long.
    #[must_use]
    pub fn for_ms(mut self, ms: u64) -> Self {
        self.for_ms = Some(ms);
        self
    }
}

/// What a fault did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// As given when it was asked for.
    pub id: u64,
    /// What.
    pub fault: StreamFaultKind,
    /// Where.
    pub venue: &'static str,
    /// When it was asked for.
    pub asked_ms: i64,
    /// When it first did something; absent: it has not yet.
    pub from_ms: Option<i64>,
    /// When it was over; absent: it is not.
    pub to_ms: Option<i64>,
    /// Connections concerned.
    pub connections: Vec<u64>,
    /// Streams concerned, and what of them.
    pub streams: Vec<Affected>,
}

/// What a fault did to one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Affected {
    /// `book_delta`, `trades`, `ticker`.
    pub channel: &'static str,
    /// `BTC/USDT`, or the token.
    pub symbol: String,
    /// The venue's number of the first update withheld, spoilt or sent otherwise than it should be; absent: none was.
    pub first: Option<u64>,
    /// And of the last.
    pub last: Option<u64>,
    /// How many frames that was.
    pub frames: u64,
    /// The number of the last update sent as it should be before that.
    pub before: Option<u64>,
    /// And its time.
    pub before_ms: Option<i64>,
    /// The number of the first update sent as it should be after that; absent: none yet.
    pub after: Option<u64>,
    /// And its time.
    pub after_ms: Option<i64>,
}

/// A fault in force.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) id: u64,
    pub(crate) kind: StreamFaultKind,
    pub(crate) slot: Option<u32>,
    pub(crate) channel: Option<String>,
    pub(crate) connection: Option<u64>,
    pub(crate) feed: Option<u32>,
    pub(crate) left: u32,
    pub(crate) for_us: Option<i64>,
    pub(crate) bytes: Option<u32>,
    /// Connections it was put on.
    pub(crate) on: Vec<u64>,
    pub(crate) begun: bool,
}
