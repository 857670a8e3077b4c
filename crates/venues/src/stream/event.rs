//! What a frame can be: something to record, an answer, a sign of life, or something else.

use std::borrow::Cow;

use catchment_model::UnixMs;
use smallvec::SmallVec;

use super::sequence::Sequence;

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'m> {
    /// Something to record.
    Data(Data<'m>),
    /// A command was taken.
    Ack(Answer),
    /// A command was not taken, or the venue complains.
    Refused {
        /// Of what.
        answer: Answer,
        /// In the venue's words.
        reason: String,
    },
    /// The venue shows that it lives.
    Heartbeat,
    /// It answers our ping.
    Pong,
    /// The venue will end this connection soon: open another one first.
    ReconnectSoon {
        /// In the venue's words.
        reason: String,
    },
    /// Something about the connection that asks for nothing.
    Status,
    /// Data that nobody asked for: of an instrument or a channel that is not in the table.
    Unasked,
    /// A frame that the descriptor does not describe.
    Unknown(Unknown),
}

/// Why a frame was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Not UTF-8, so no text frame.
    NotText,
    /// Not JSON, or ambiguous: where reading stopped, and why.
    NotJson(usize, &'static str),
    /// JSON that no rule of the descriptor fits.
    NoRule,
}

/// Which command an answer is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// What was done.
    pub done: Done,
    /// The command's number, where the answer gives it.
    pub request: Option<u64>,
    /// The entries of the table that the answer names. Where it names an instrument and no channel, all of that
    /// instrument: keep those that the command covers. Empty: all that the command covers.
    pub wanted: SmallVec<[u32; 2]>,
    /// How deep a book was subscribed to, where the answer says so.
    pub depth: Option<u64>,
    /// `wanted` is all that the connection is now subscribed to, not only what the last command brought.
    pub all: bool,
}

/// What was done, as far as the answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Done {
    /// What the command asked for.
    #[default]
    AsAsked,
    /// Subscribed.
    Subscribed,
    /// Unsubscribed.
    Unsubscribed,
    /// Logged in.
    LoggedIn,
    /// Nothing: the venue has it on its list, and does not put it there twice.
    Already,
}

/// One message to record. All of it is valid JSON: [`Payload::already_validated`](catchment_model::Payload) may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data<'m> {
    /// The first entry of the table that it touches.
    pub wanted: u32,
    /// Further entries that it touches, each once.
    pub also: SmallVec<[u32; 3]>,
    /// The message: the whole frame, or an element of it, without white space around it.
    pub text: &'m str,
    /// The venue's own id of it, unique within the channel and the instrument: a message with the same id is the same
    /// message. A sequence is not enough for that where numbers are repeated or begin anew.
    pub id: Option<Cow<'m, str>>,
    /// Its numbers, where the channel has a rule for them.
    pub sequence: Option<Sequence>,
    /// When it was made.
    pub server_time: Option<UnixMs>,
    /// It replaces what was known, rather than adding to it.
    pub is_snapshot: bool,
    /// How many things it holds: trades, for one.
    pub items: u32,
    /// Something that the descriptor promises is not there or not readable: the key in the descriptor.
    pub flaw: Option<&'static str>,
}
