//! How a venue's book messages read, as plain data. A descriptor fills it; nothing here runs.
//!
//! ```toml
//! sequence = "range"
//! [[messages]]                    # the first one whose `when` holds is taken
//! act = "delta"
//! when = [{ at = "e", is = "depthUpdate" }]
//! item = "/data"
//! instrument = "s"
//! first = "U"
//! last = "u"
//! bids = "b"
//! asks = "a"
//! [rest]                          # the first book comes over REST
//! last = "lastUpdateId"
//! bids = "bids"
//! asks = "asks"
//! ```
//!
//! **Pointers.** `/a/b` starts at the message, `a/b` at the item; a number is a place in an array. `item` (always from
//! the message) names an object or an array of objects, each a piece of book of its own; without it the message is the
//! item. If the message itself is an array, each of its elements is read as a message.

use serde::Deserialize;

/// How the messages of one venue's book channel read, and what holds them together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BookForm {
    /// The kinds of messages; for each item the first one that fits is taken.
    pub messages: Vec<MessageForm>,
    /// The answer to the request for a snapshot. If it is here, the stream itself sends none: what the stream sends is
    /// kept until the answer is there. Its `act` and `when` do not matter.
    #[serde(default)]
    pub rest: Option<MessageForm>,
    /// Whether `rest` only repairs or enriches, and the stream sends snapshots itself (Polymarket).
    #[serde(default)]
    pub stream_snapshots: bool,
    /// How one message follows another.
    #[serde(default)]
    pub sequence: SequenceRule,
    /// With `plus_one`: the number that says the venue began anew. Such a message is a snapshot whatever it calls
    /// itself.
    #[serde(default)]
    pub restart: Option<i64>,
    /// Levels a side that are kept; the venue sends no removal for what falls out (Kraken). Nothing: all.
    #[serde(default)]
    pub depth: Option<usize>,
    /// How the venue proves its book.
    #[serde(default)]
    pub checksum: Option<Checksum>,
    /// Most levels a side; a venue that sends more is not believed.
    #[serde(default = "levels_max")]
    pub levels_max: usize,
    /// Most messages kept while a snapshot is awaited.
    #[serde(default = "buffer_messages_max")]
    pub buffer_messages_max: usize,
    /// Most bytes kept while a snapshot is awaited.
    #[serde(default = "buffer_bytes_max")]
    pub buffer_bytes_max: usize,
}

fn levels_max() -> usize {
    250_000
}

fn buffer_messages_max() -> usize {
    10_000
}

fn buffer_bytes_max() -> usize {
    16 << 20
}

/// One kind of message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageForm {
    /// What it does to the book.
    #[serde(default)]
    pub act: Act,
    /// What must hold for a message to be of this kind; all of it.
    #[serde(default)]
    pub when: Vec<When>,
    /// Where the pieces are: an object, or an array of objects. Empty: the message itself.
    #[serde(default)]
    pub item: String,
    /// Where the instrument is named. Nothing: whoever calls has sorted already.
    #[serde(default)]
    pub instrument: Option<String>,
    /// Where the bids are, if the sides are apart.
    #[serde(default)]
    pub bids: Option<String>,
    /// Where the asks are.
    #[serde(default)]
    pub asks: Option<String>,
    /// Where the levels of both sides are, if they share a list; `level.side` tells them apart.
    #[serde(default)]
    pub levels: Option<String>,
    /// Whether the item itself is a level (`level` then names its members).
    #[serde(default)]
    pub single: bool,
    /// How a level is spelled.
    #[serde(default)]
    pub level: LevelForm,
    /// Where the number of the first change is (`range`).
    #[serde(default)]
    pub first: Option<String>,
    /// Where the number of the last change is; every rule but `none` needs it.
    #[serde(default)]
    pub last: Option<String>,
    /// Where the number of the message before is (`linked`).
    #[serde(default)]
    pub previous: Option<String>,
    /// Where the checksum or hash is.
    #[serde(default)]
    pub checksum: Option<String>,
    /// Where the other parts of a book's hash are (Polymarket).
    #[serde(default)]
    pub terms: Terms,
}

/// What a message does to the book.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// It is the whole book.
    #[default]
    Snapshot,
    /// It has the new sizes of some levels; size 0 removes.
    Delta,
    /// The terms of the book change (tick size): what follows is another epoch. The levels stay.
    Epoch,
    /// It only carries `terms` (the price of a trade).
    Terms,
    /// It is known and of no concern.
    Ignore,
}

/// A condition: a member has one of some values.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Where the member is.
    pub at: String,
    /// What it may be: a text, or several. Numbers and `true` are given as text.
    pub is: OneOrMore,
}

/// One text or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl OneOrMore {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// How a level is spelled: `["1.5","20"]` or `{"price":1.5,"qty":20}`. Amounts may have quotes or not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelForm {
    /// The price.
    #[serde(default = "place_0")]
    pub price: Place,
    /// The size.
    #[serde(default = "place_1")]
    pub size: Place,
    /// The side, where both share a list.
    #[serde(default)]
    pub side: Option<Place>,
    /// What the side is called for a bid.
    #[serde(default = "bid_names")]
    pub bid: Vec<String>,
    /// What the side is called for an ask.
    #[serde(default = "ask_names")]
    pub ask: Vec<String>,
    /// Whether a price of 0 is no level but only moves the sequence on (KuCoin).
    #[serde(default)]
    pub skip_price_0: bool,
}

impl Default for LevelForm {
    fn default() -> Self {
        Self {
            price: place_0(),
            size: place_1(),
            side: None,
            bid: bid_names(),
            ask: ask_names(),
            skip_price_0: false,
        }
    }
}

fn place_0() -> Place {
    Place::Index(0)
}

fn place_1() -> Place {
    Place::Index(1)
}

fn bid_names() -> Vec<String> {
    ["buy", "bid", "BUY", "Buy"].map(str::to_owned).to_vec()
}

fn ask_names() -> Vec<String> {
    ["sell", "ask", "offer", "SELL", "Sell"].map(str::to_owned).to_vec()
}

/// Where in a level something is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// The level is an array.
    Index(usize),
    /// The level is an object.
    Key(String),
}

/// The parts of a Polymarket book's hash besides its levels and its instrument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The condition id.
    #[serde(default)]
    pub market: Option<String>,
    /// Milliseconds of the last change.
    #[serde(default)]
    pub timestamp: Option<String>,
    /// The least size of an order.
    #[serde(default)]
    pub min_order_size: Option<String>,
    /// The step of prices.
    #[serde(default)]
    pub tick_size: Option<String>,
    /// Whether the market is one of several of which exactly one resolves to Yes.
    #[serde(default)]
    pub neg_risk: Option<String>,
    /// The last price.
    #[serde(default)]
    pub last_trade_price: Option<String>,
}

/// How one message follows another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SequenceRule {
    /// Nothing says so.
    #[default]
    None,
    /// `last` never falls (a time); a loss cannot be seen.
    Later,
    /// `last` is one more than the message before.
    PlusOne,
    /// A message covers `first..=last`, and the next begins right after.
    Range,
    /// `previous` is the `last` of the message before. `last` may jump, and fall once after maintenance.
    Linked,
}

/// How a venue proves its book.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Checksum {
    /// CRC-32 (IEEE) over the text of the best levels; compared as 32 bits, signed or not.
    Crc32 {
        /// How many levels a side.
        levels: usize,
        /// In which order the sides come.
        order: CrcOrder,
        /// How an amount is spelled.
        amounts: CrcAmounts,
        /// What stands between two amounts.
        #[serde(default)]
        join: String,
        /// The value that means there is none (OKX: 0).
        #[serde(default)]
        absent: Option<i64>,
    },
    /// SHA-1 over the book in Polymarket's own JSON.
    PolymarketHash,
}

/// In which order the sides come in a checksum; the best level first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrcOrder {
    /// All asks, then all bids (Kraken).
    AsksBids,
    /// All bids, then all asks.
    BidsAsks,
    /// Best bid, best ask, second bid, second ask; a side that is out of levels is left out (OKX).
    Alternating,
}

/// How an amount is spelled in a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrcAmounts {
    /// As sent (OKX).
    Text,
    /// As sent, without the point and without leading zeros (Kraken).
    Digits,
}
