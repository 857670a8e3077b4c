//! A descriptor as it is written: its tables and keys, nothing checked but their kinds. `compile` says what they mean.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::ChannelKind;
use super::login::{Algorithm, Encoding};
use super::sequence::{Order, Scope};
use super::times::TimeUnit;
use crate::ladder::{BookForm, OneOrMore};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorToml {
    pub(super) format: u32,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) about: String,
    pub(super) docs: String,
    pub(super) endpoints: BTreeMap<String, String>,
    pub(super) symbols: SymbolsToml,
    #[serde(default)]
    pub(super) limits: Vec<LimitToml>,
    pub(super) sockets: BTreeMap<String, SocketToml>,
    pub(super) channels: BTreeMap<String, ChannelToml>,
    #[serde(default)]
    pub(super) rest: RestToml,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SymbolsToml {
    pub(super) subscribe: String,
    pub(super) frame: Option<String>,
    pub(super) rest: Option<String>,
    /// One of ours, to try the rules with.
    pub(super) example: String,
    #[serde(default)]
    pub(super) rename: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitToml {
    pub(super) family: String,
    pub(super) parent: Option<String>,
    pub(super) budget: u32,
    pub(super) window_ms: u64,
    #[serde(default = "one")]
    pub(super) cost: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SocketToml {
    pub(super) endpoint: String,
    #[serde(default)]
    pub(super) path: String,
    pub(super) subscriptions_max: u32,
    pub(super) args_per_request: u32,
    pub(super) request_bytes_max: u32,
    pub(super) args_bytes_max: Option<u32>,
    pub(super) commands: RateToml,
    pub(super) connects: RateToml,
    pub(super) lifetime_s: Option<u64>,
    pub(super) subscribe_within_ms: Option<u64>,
    pub(super) dead_after_ms: u64,
    pub(super) frame_bytes_max: u32,
    #[serde(default)]
    pub(super) split: bool,
    #[serde(default)]
    pub(super) heartbeat: HeartbeatToml,
    pub(super) subscribe: SubscribeToml,
    pub(super) unsubscribe: Option<SubscribeToml>,
    pub(super) route: RouteToml,
    #[serde(default)]
    pub(super) control: Vec<ControlToml>,
    pub(super) login: Option<LoginToml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateToml {
    pub(super) count: u32,
    pub(super) window_ms: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatToml {
    pub(super) server_every_ms: Option<u64>,
    pub(super) ping: Option<String>,
    pub(super) ping_every_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscribeToml {
    pub(super) send: String,
    /// What the first one on a fresh connection looks like, where it differs.
    pub(super) first: Option<String>,
    pub(super) arg: String,
    #[serde(default)]
    pub(super) per: PerToml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PerToml {
    /// One command may name several channels.
    #[default]
    Connection,
    /// One command names one channel.
    Channel,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteToml {
    pub(super) topic: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) symbol: Option<String>,
    #[serde(default)]
    pub(super) unless: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlToml {
    pub(super) is: ControlIs,
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) when: BTreeMap<String, Literal>,
    #[serde(default)]
    pub(super) present: Vec<String>,
    #[serde(default)]
    pub(super) absent: Vec<String>,
    pub(super) request: Option<String>,
    pub(super) topic: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) symbol: Option<String>,
    pub(super) depth: Option<String>,
    pub(super) listed: Option<ListedToml>,
    #[serde(default)]
    pub(super) reason: Vec<String>,
}

/// What a control frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ControlIs {
    /// A command was taken; which kind of command, the request's id tells.
    Ack,
    Subscribed,
    Unsubscribed,
    Refused,
    /// Refused, because the venue has it on its list.
    Already,
    LoggedIn,
    Heartbeat,
    Pong,
    Reconnect,
    Status,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListedToml {
    pub(super) list: String,
    pub(super) channel: String,
    pub(super) symbols: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginToml {
    pub(super) sign: String,
    pub(super) algorithm: Algorithm,
    pub(super) signature: Encoding,
    #[serde(default)]
    pub(super) secret: Encoding,
    pub(super) send: String,
    #[serde(default)]
    pub(super) ahead_ms: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelToml {
    pub(super) socket: String,
    pub(super) kind: ChannelKind,
    #[serde(default)]
    pub(super) scope: ChannelScopeToml,
    pub(super) name: Option<String>,
    pub(super) params: Option<String>,
    pub(super) topic: Option<String>,
    pub(super) frames: Option<Vec<String>>,
    pub(super) symbol: Option<OneOrMore>,
    pub(super) id: Option<OneOrMore>,
    pub(super) time: Option<TimeToml>,
    pub(super) sequence: Option<SequenceToml>,
    pub(super) items: Option<String>,
    #[serde(default)]
    pub(super) snapshot_when: Vec<BTreeMap<String, Literal>>,
    #[serde(default)]
    pub(super) snapshot_first: bool,
    pub(super) quiet: bool,
    pub(super) feeds_book: Option<String>,
    #[serde(default)]
    pub(super) comes_unasked: bool,
    #[serde(default)]
    pub(super) answers_to: Vec<String>,
    pub(super) book: Option<BookForm>,
    pub(super) snapshot: Option<RequestToml>,
    pub(super) witness: Option<WitnessToml>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ChannelScopeToml {
    #[default]
    Instrument,
    Venue,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeToml {
    pub(super) at: String,
    pub(super) unit: TimeUnit,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SequenceToml {
    pub(super) rule: Order,
    #[serde(default)]
    pub(super) scope: Scope,
    pub(super) first: Option<String>,
    pub(super) last: String,
    pub(super) previous: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RestToml {
    pub(super) time: Option<TimeRequestToml>,
    #[serde(default)]
    pub(super) failed: Vec<FailedToml>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestToml {
    pub(super) get: String,
    pub(super) family: String,
    pub(super) cost: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeRequestToml {
    pub(super) get: String,
    pub(super) family: String,
    pub(super) cost: Option<u32>,
    /// Left out where the whole body is the time.
    pub(super) at: Option<String>,
    pub(super) unit: TimeUnit,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WitnessToml {
    pub(super) get: String,
    pub(super) family: String,
    pub(super) cost: Option<u32>,
    pub(super) id: Option<String>,
    pub(super) time: Option<TimeToml>,
    #[serde(default)]
    pub(super) mark: Vec<String>,
}

/// An answer that says 200 and means something else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailedToml {
    pub(super) at: String,
    /// The text that stands there when all is well.
    pub(super) unless: Option<Literal>,
    /// Texts that mean "too fast".
    #[serde(default)]
    pub(super) refused: Vec<String>,
    /// Texts that mean "no such instrument".
    #[serde(default)]
    pub(super) unknown: Vec<String>,
}

fn one() -> u32 {
    1
}

/// A plain value that a frame is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    /// A text, without its quotes.
    Text(String),
    /// Anything else, as JSON writes it: `true`, `1`, `null`.
    Word(String),
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Plain;
        impl Visitor<'_> for Plain {
            type Value = Literal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a whole number, true or false")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Literal, E> {
                Ok(Literal::Text(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Literal, E> {
                Ok(Literal::Word(flag.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Literal, E> {
                Ok(Literal::Word(number.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Literal, E> {
                Ok(Literal::Word(number.to_string()))
            }
        }
        deserializer.deserialize_any(Plain)
    }
}
