//! What is asked over REST beside the stream: the venue's time, a book to begin with, and a witness when it is silent.

use std::time::Duration;

use catchment_model::UnixMs;
use serde_json::Value;

use super::Descriptor;
use super::command::Wanted;
use super::pointer::{Pointer, Step};
use super::template::Template;
use super::times::TimeUnit;
use super::written::Literal;
use crate::Request;
use crate::request::encoded;
use crate::spec::Endpoints;
use crate::status::{self, Reading};

/// The places of an address: the instrument. What stands before it names an endpoint.
pub(super) const URL_NAMES: [&str; 1] = ["symbol"];

/// A request that a descriptor knows.
#[derive(Debug)]
pub(super) struct RestRequest {
    pub(super) endpoint: &'static str,
    /// What follows the endpoint's address.
    pub(super) path: Template,
    pub(super) family: &'static str,
    pub(super) cost: u32,
}

/// How to ask for the venue's time.
#[derive(Debug)]
pub(super) struct TimeRequest {
    pub(super) request: RestRequest,
    pub(super) at: Option<Pointer>,
    pub(super) unit: TimeUnit,
}

/// How to ask what the venue last knew of an instrument.
#[derive(Debug)]
pub(super) struct WitnessRequest {
    pub(super) request: RestRequest,
    pub(super) id: Option<Pointer>,
    pub(super) time: Option<(Pointer, TimeUnit)>,
    pub(super) mark: Vec<Pointer>,
}

/// All of a venue's that belongs to no channel.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) time: Option<TimeRequest>,
    pub(super) failed: Vec<Failed>,
}

/// An answer that says 200 and means something else.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) at: Pointer,
    pub(super) unless: Option<Literal>,
    pub(super) refused: Vec<String>,
    pub(super) unknown: Vec<String>,
}

/// What the venue says over REST is the newest it knows of an instrument. Compare it with what the stream last brought,
/// and with what the same question brought before: when it moves on and the stream does not, the stream is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Witness {
    /// The id or number of the newest message; of the same kind as [`Data::id`](super::Data::id).
    pub id: Option<String>,
    /// Its time.
    pub time: Option<UnixMs>,
    /// A text that changes whenever there is something new, and says nothing else.
    pub mark: Option<String>,
}

impl Descriptor {
    /// Asks for the venue's time, where it tells.
    pub fn time_request(&self, endpoints: &Endpoints) -> Option<Request> {
        Some(self.0.rest.time.as_ref()?.request.make(endpoints, ""))
    }

    /// The venue's time from the answer.
    pub fn read_time(&self, body: &[u8]) -> Option<UnixMs> {
        self.read_clock(body).map(|(time, _)| time)
    }

    /// The venue's time from the answer, and how coarse it is: the moment is less than the step later. Kraken tells whole
    /// seconds.
    pub fn read_clock(&self, body: &[u8]) -> Option<(UnixMs, Duration)> {
        let time = self.0.rest.time.as_ref()?;
        let text = match &time.at {
            None => std::str::from_utf8(body).ok()?.trim().to_owned(),
            Some(at) => plain(at.first_of(&serde_json::from_slice(body).ok()?)?)?,
        };
        Some((time.unit.read(&text)?, time.unit.step(&text)))
    }

    /// Asks for the book that a channel's changes begin with, or that they can be held against. The answer is read by
    /// the channel's book rules.
    pub fn snapshot_request(&self, wanted: &Wanted, endpoints: &Endpoints) -> Option<Request> {
        let request = self.0.channels[wanted.channel].snapshot.as_ref()?;
        Some(request.make(endpoints, &wanted.instrument.rest))
    }

    /// Asks for the newest that the venue knows of this instrument in this channel.
    pub fn witness_request(&self, wanted: &Wanted, endpoints: &Endpoints) -> Option<Request> {
        let witness = self.0.channels[wanted.channel].witness.as_ref()?;
        Some(witness.request.make(endpoints, &wanted.instrument.rest))
    }

    /// What the witness says. `None`: the answer is not of the form described.
    pub fn read_witness(&self, channel: usize, body: &[u8]) -> Option<Witness> {
        let witness = self.0.channels[channel].witness.as_ref()?;
        let value: Value = serde_json::from_slice(body).ok()?;
        let text = |pointer: &Pointer| plain(pointer.first_of(&value)?);
        let marks: Vec<String> = witness.mark.iter().filter_map(text).collect();
        let said = Witness {
            id: witness.id.as_ref().and_then(text),
            time: witness.time.as_ref().and_then(|(at, unit)| unit.read(&text(at)?)),
            mark: (!marks.is_empty()).then(|| marks.join(" ")),
        };
        (said != Witness::default()).then_some(said)
    }

    /// What a status and a body mean, in answer to one of these requests.
    pub fn read_status(&self, status: u16, body: &[u8]) -> Reading {
        let general = status::read(status, body, |_| None);
        if self.0.rest.failed.is_empty() {
            return general;
        }
        // Venues that use their own words use them with any status.
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return general };
        for failed in &self.0.rest.failed {
            let Some(said) = failed.at.first_of(&value).and_then(plain) else { continue };
            if let Some(Literal::Text(well) | Literal::Word(well)) = &failed.unless
                && *well == said
            {
                continue;
            }
            let among = |texts: &[String]| texts.iter().any(|text| said.contains(text.as_str()));
            if among(&failed.refused) {
                return Reading::Refused;
            }
            if among(&failed.unknown) {
                return Reading::UnknownMarket;
            }
            if general == Reading::Ok {
                return Reading::Trouble(said.chars().take(256).collect());
            }
        }
        general
    }
}

impl RestRequest {
    fn make(&self, endpoints: &Endpoints, symbol: &str) -> Request {
        let path = self.path.with(&[&encoded(symbol)]);
        Request::get(format!("{}{path}", endpoints.url(self.endpoint)), self.family).costing(self.cost)
    }
}

impl Pointer {
    /// The first value that it leads to. Here `*` goes through objects too: Kraken names its results by instrument.
    pub(super) fn first_of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        first_of(&self.0, value)
    }
}

fn first_of<'v>(steps: &[Step], value: &'v Value) -> Option<&'v Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match (step, value) {
        (Step::Key(key), Value::Object(members)) => first_of(rest, members.get(key)?),
        (Step::Key(key), Value::Array(list)) => first_of(rest, list.get(key.parse::<usize>().ok()?)?),
        (Step::Last, Value::Array(list)) => first_of(rest, list.last()?),
        (Step::Every, Value::Array(list)) => list.iter().find_map(|value| first_of(rest, value)),
        (Step::Every, Value::Object(members)) => members.values().find_map(|value| first_of(rest, value)),
        _ => None,
    }
}

/// A text, a number or a word as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
