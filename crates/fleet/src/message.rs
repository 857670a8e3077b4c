//! What coordinator and node say to each other, as JSON in frames.
//!
//! Ours, version 1:
//!
//! ```text
//! {"v":1,"type":"hello","nonce":"9f…","coordinator":"host-1"}
//! {"v":1,"type":"challenge","nonce":"03…","node":"fetch-001","capacity_rps":20,"pace_mrps":19512,"books_max":500,"fence":1790,"mac":"…"}
//! {"v":1,"type":"proof","mac":"…"}
//! {"v":1,"type":"fetch","id":7,"fence":1791,"tokens":["…","…"],"trigger":true}
//! {"v":1,"type":"result","id":7,"outcome":"ok","asked":2,"books":2,"written":1,"unchanged":1,"older":0,"missing":[],…}
//! {"v":1,"type":"ping","id":8}     {"v":1,"type":"pong","id":8}
//! ```
//!
//! S4's, which has no `v`; answered with the two bytes `OK`, or with `ERR` and the reason, neither of them in a frame:
//!
//! ```text
//! {"tokens": ["id1", "id2", "id3"], "trigger": true}
//! ```
//!
//! In both, `tokens` absent or empty means those of the message before; `trigger` false only leaves them for the next one.

use serde::{Deserialize, Serialize};

use crate::frame::framed;

/// The version spoken here.
pub const VERSION: u32 = 1;
/// The longest token taken.
pub const TOKEN_MAX: usize = 128;
/// The longest name of a node or coordinator.
pub const NAME_MAX: usize = 64;

/// Our messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The coordinator begins.
    Hello {
        /// Drawn for this connection.
        nonce: String,
        /// Its name.
        coordinator: String,
    },
    /// The node answers.
    Challenge {
        /// Drawn for this connection.
        nonce: String,
        /// Its name.
        node: String,
        /// Requests in any second, at most.
        capacity_rps: u32,
        /// Requests it can be given, in thousandths a second: a little less, since a network delivers unevenly.
        pace_mrps: u64,
        /// Tokens a request may have.
        books_max: usize,
        /// The highest fence it has seen.
        fence: u64,
        /// Shows that it has the key; none if it has none.
        mac: Option<String>,
    },
    /// The coordinator shows that it has the key.
    Proof {
        /// None if it has none.
        mac: Option<String>,
    },
    /// Fetch these.
    Fetch {
        /// Given back with the result.
        id: u64,
        /// Of the coordinator's lease.
        fence: u64,
        /// Which; empty: those of the last time.
        #[serde(default)]
        tokens: Vec<String>,
        /// Whether to fetch now.
        #[serde(default = "yes")]
        trigger: bool,
    },
    /// What came of it.
    Result(Summary),
    /// Is anybody there.
    Ping {
        /// Given back.
        id: u64,
    },
    /// Yes.
    Pong {
        /// As asked.
        id: u64,
    },
}

fn yes() -> bool {
    true
}

/// What came of a fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// As asked.
    pub id: u64,
    /// How it ended, by what the coordinator does next.
    pub outcome: Outcome,
    /// Tokens that were asked for.
    pub asked: usize,
    /// Books that came and are in Redis, or were already.
    pub books: usize,
    /// Books that are new in Redis.
    pub written: usize,
    /// Books that were there already.
    pub unchanged: usize,
    /// Of those, books that were not even sent.
    pub unsent: usize,
    /// Books of which Redis has a later one.
    pub older: usize,
    /// Places of tokens for which the venue sent nothing, or nothing that could be read.
    pub missing: Vec<u32>,
    /// The venue's status, if it answered.
    pub status: Option<u16>,
    /// What was wrong.
    pub message: Option<String>,
    /// How long the request waited for its permit.
    pub waited_ms: u64,
    /// How long the venue took.
    pub latency_ms: u64,
    /// From the answer's last byte to this summary: how old the books are already.
    pub age_ms: u64,
    /// How long the venue is not to be asked by this node.
    pub hold_ms: u64,
    /// The highest fence the node has seen, if the order's was lower.
    pub fence: u64,
}

/// How a fetch ended, by what the coordinator does next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The books are in Redis.
    #[default]
    Ok,
    /// The venue says the request is wrong (4xx): a token in it is, or there are too many.
    BadRequest,
    /// The venue, or the way to it, is in trouble: again in the next slot.
    Trouble,
    /// The venue refuses this node for a while.
    Held,
    /// Redis did not take the books.
    Sink,
    /// The node's own limit had no room in time.
    Late,
    /// The node has too much under way.
    Busy,
    /// There is a coordinator with a higher fence.
    Stale,
    /// The node cannot make sense of the command.
    Odd,
}

impl Outcome {
    /// The word that metrics use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::BadRequest => "bad_request",
            Self::Trouble => "trouble",
            Self::Held => "held",
            Self::Sink => "sink",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::Stale => "stale",
            Self::Odd => "odd",
        }
    }
}

/// What a frame holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A message of ours.
    Ours(Message),
    /// S4's.
    Plain(PlainFetch),
}

/// S4's message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainFetch {
    /// Which; empty: those of the last time.
    #[serde(default)]
    pub tokens: Vec<String>,
    /// Whether to fetch now.
    #[serde(default = "yes")]
    pub trigger: bool,
}

/// Why a frame is no message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Not the JSON of one.
    #[error("not a message: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON perhaps, but no object.
    #[error("not a message: no JSON object")]
    NoObject,
    /// Of another time.
    #[error("version {0} of the protocol is not spoken here, {VERSION} is")]
    Version(u32),
}

#[derive(Deserialize)]
struct Peek {
    #[serde(default)]
    v: Option<u32>,
}

impl Message {
    /// As JSON.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Versioned<'a> {
            v: u32,
            #[serde(flatten)]
            message: &'a Message,
        }
        serde_json::to_vec(&Versioned { v: VERSION, message: self }).expect("plain data")
    }

    /// As a frame without a seal.
    pub fn to_frame(&self) -> Vec<u8> {
        framed(&self.to_json())
    }
}

/// Reads the content of a frame.
pub fn read(body: &[u8]) -> Result<Heard, MessageError> {
    // A list would pass for an object without names.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(MessageError::NoObject);
    }
    match serde_json::from_slice::<Peek>(body)?.v {
        None => Ok(Heard::Plain(serde_json::from_slice(body)?)),
        Some(VERSION) => Ok(Heard::Ours(serde_json::from_slice(body)?)),
        Some(other) => Err(MessageError::Version(other)),
    }
}

/// Whether this can be a token: plain text that needs no escape anywhere.
pub fn is_token(text: &str) -> bool {
    (1..=TOKEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
}

/// Whether this can be the name of a node or coordinator.
pub fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let messages = [
            Message::Hello { nonce: "9f".into(), coordinator: "c".into() },
            Message::Fetch { id: 7, fence: 3, tokens: vec!["1".into()], trigger: true },
            Message::Result(Summary {
                id: 7,
                outcome: Outcome::Held,
                missing: vec![3],
                ..Summary::default()
            }),
            Message::Ping { id: 1 },
        ];
        for message in messages {
            let json = message.to_json();
            assert!(json.starts_with(br#"{"v":1,"type":""#), "{}", String::from_utf8_lossy(&json));
            assert_eq!(read(&json).unwrap(), Heard::Ours(message));
        }
    }

    #[test]
    fn s4_is_understood_as_it_is_written() {
        let check = |text: &str, tokens: &[&str], trigger| {
            let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
            assert_eq!(
                read(text.as_bytes()).unwrap(),
                Heard::Plain(PlainFetch { tokens, trigger }),
                "{text}"
            );
        };
        check(r#"{"tokens": ["id1", "id2", "id3"], "trigger": true}"#, &["id1", "id2", "id3"], true);
        check(r#"{"trigger": true}"#, &[], true);
        check(r#"{"tokens": [], "trigger": false}"#, &[], false);
        check("{}", &[], true);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in
            ["", "OK", "[]", r#"{"tokens":"id"}"#, r#"{"tokens":[1]}"#, r#"{"v":1}"#, r#"{"v":1,"type":"x"}"#]
        {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(
            read(br#"{"v":2,"type":"hello"}"#).unwrap_err().to_string(),
            "version 2 of the protocol is not spoken here, 1 is"
        );
    }

    #[test]
    fn tokens_and_names_are_plain() {
        assert!(is_token("30392948954970070917163171791403085239525537531204487105908435228957543147284"));
        for text in ["", "a b", "a\"", "a\\", "é", "a\n", &"x".repeat(129)] {
            assert!(!is_token(text), "{text:?}");
        }
        assert!(is_name("fetch-001") && !is_name("") && !is_name("a b") && !is_name("{x}"));
    }
}
