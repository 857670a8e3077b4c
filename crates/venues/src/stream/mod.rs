//! Venues that stream, each described in a file: what is sent to subscribe, and what the frames that come are.
//!
//! * [`Descriptor`]: a venue, read from TOML and compiled; [`Descriptor::shipped`] are the ones of this build. A
//!   descriptor that is wrong is refused with its line and the reason ([`DescriptorError`])
//! * [`Descriptor::want`], [`Wanted`], [`Spelled`]: one channel of one instrument, in the venue's spelling
//! * [`Descriptor::shard`], [`Descriptor::subscribe`], [`Descriptor::unsubscribe`], [`Command`]: what to send, within the
//!   venue's limits
//! * [`Reader`], [`Event`], [`Data`], [`Answer`]: what a frame is, found in one walk over its bytes
//! * [`SequenceChecker`], [`Step`]: whether messages are missing
//! * [`Descriptor::time_request`], [`Descriptor::snapshot_request`], [`Descriptor::witness_request`]: what to ask over REST
//! * [`Descriptor::login`], [`Secrets`]: how a private stream is opened
//!
//! How a session goes, for whoever runs one: want what is to be recorded; shard it; for every shard open the socket,
//! send the login if there is one, send the commands of `subscribe` at the pace of [`SocketRules::commands`], make a
//! [`Reader`] over the same list of wanted things, and hand it every text frame. `wanted` in events is an index into
//! that list.
//!
//! Deliberately absent: sockets, clocks, tasks, order books. Nothing here sends or waits.

mod command;
mod compile;
mod error;
mod event;
mod found;
#[cfg(test)]
mod fuzz;
mod keys;
mod login;
mod lookup;
mod naming;
mod paths;
mod pointer;
mod reader;
mod rest;
pub mod scan;
mod sequence;
mod shape;
mod shipped;
mod template;
mod times;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Channel, Venue};
use serde::Deserialize;

pub use command::{Command, Wanted};
pub use error::DescriptorError;
pub use event::{Answer, Data, Done, Event, Unknown};
pub use login::{LoginError, Secrets};
pub use naming::{NamingError, Spelled};
pub use reader::Reader;
pub use rest::Witness;
pub use sequence::{Order, Scope, Sequence, SequenceChecker, SequenceRule, Step};
pub use times::TimeUnit;

use crate::ladder::BookPlan;
use crate::spec::{Endpoints, EndpointsError, Limit};
use naming::Naming;

/// A venue that streams: read once, never changed, cheap to clone.
#[derive(Debug, Clone)]
pub struct Descriptor(Arc<Compiled>);

/// Everything a descriptor says, compiled.
#[derive(Debug)]
struct Compiled {
    venue: Venue,
    id: &'static str,
    name: String,
    about: String,
    docs: String,
    endpoints: BTreeMap<&'static str, String>,
    naming: Naming,
    limits: Vec<Limit>,
    sockets: Vec<SocketSpec>,
    channels: Vec<ChannelSpec>,
    rest: rest::Rest,
}

impl Descriptor {
    /// Reads and compiles a descriptor. `file` is only for the text of an error: `binance.toml:41: …`.
    pub fn read(file: &str, text: &str) -> Result<Self, DescriptorError> {
        let written = toml::from_str(text).map_err(|error| error::unreadable(file, text, &error))?;
        let compiled = compile::compile(written).map_err(|wrong| wrong.located(file, text))?;
        Ok(Self(Arc::new(compiled)))
    }

    /// The descriptors of this build, by name.
    pub fn shipped() -> &'static [Descriptor] {
        shipped::all()
    }

    /// The shipped ones and these: each a file's name and its text. A file with the id of a shipped one takes its place;
    /// two files with the same id are an error.
    pub fn with_files<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<Descriptor>, DescriptorError> {
        let mut own: Vec<(Descriptor, &str)> = Vec::new();
        for (file, text) in files {
            let descriptor = Self::read(file, text)?;
            if let Some((_, other)) = own.iter().find(|(known, _)| known.id() == descriptor.id()) {
                let reason = format!("{} is already described in {other}", descriptor.id());
                return Err(error::KeyPath::default().key("id").wrong(reason).located(file, text));
            }
            own.push((descriptor, file));
        }
        let replaced = |id: &str| own.iter().any(|(descriptor, _)| descriptor.id() == id);
        let mut all: Vec<_> =
            Self::shipped().iter().filter(|shipped| !replaced(shipped.id())).cloned().collect();
        all.extend(own.into_iter().map(|(descriptor, _)| descriptor));
        all.sort_by_key(Descriptor::id);
        Ok(all)
    }

    /// The files that they were read from: name and text.
    pub fn shipped_files() -> &'static [(&'static str, &'static str)] {
        shipped::files()
    }

    /// The shipped descriptor of that name.
    pub fn find(id: &str) -> Option<Descriptor> {
        Self::shipped().iter().find(|descriptor| descriptor.0.id == id).cloned()
    }

    /// Its name in configuration, records and folders.
    pub fn id(&self) -> &'static str {
        self.0.id
    }

    /// Likewise, as a type.
    pub fn venue(&self) -> Venue {
        self.0.venue
    }

    /// Its name for people.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it is, in a line.
    pub fn about(&self) -> &str {
        &self.0.about
    }

    /// Where the venue's own documentation is.
    pub fn docs(&self) -> &str {
        &self.0.docs
    }

    /// What can be recorded, by name.
    pub fn channels(&self) -> &[ChannelSpec] {
        &self.0.channels
    }

    /// The channel of that name, as an index into [`Self::channels`].
    pub fn channel(&self, name: &str) -> Option<usize> {
        self.0.channels.iter().position(|channel| channel.name.as_str() == name)
    }

    /// The sockets over which it comes; most venues have one.
    pub fn sockets(&self) -> &[SocketSpec] {
        &self.0.sockets
    }

    /// What the venue allows its REST requests to cost.
    pub fn limits(&self) -> &[Limit] {
        &self.0.limits
    }

    /// The endpoints with what the configuration overrides. A name the venue does not have is an error.
    pub fn endpoints<'a>(
        &self,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Endpoints, EndpointsError> {
        let known = self.0.endpoints.iter().map(|(name, url)| (*name, url.clone())).collect();
        Endpoints::overridden(self.0.id, known, overrides)
    }

    /// Whether it has an endpoint of that name.
    pub fn has_endpoint(&self, name: &str) -> bool {
        self.0.endpoints.contains_key(name)
    }

    /// Its endpoints, as the descriptor has them.
    pub fn default_endpoints(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.endpoints.iter().map(|(name, url)| (*name, url.as_str()))
    }

    /// Where a socket is opened.
    pub fn socket_url(&self, socket: usize, endpoints: &Endpoints) -> String {
        let socket = &self.0.sockets[socket];
        format!("{}{}", endpoints.url(socket.endpoint), socket.path)
    }

    /// An instrument in the venue's spellings, from ours: `BTC/USDT`.
    pub fn instrument(&self, symbol: &str) -> Result<Spelled, NamingError> {
        self.0.naming.spell(symbol).map_err(|reason| NamingError::Form {
            venue: self.0.id.to_owned(),
            symbol: symbol.to_owned(),
            reason,
        })
    }

    /// Ours from the spelling of the venue's frames. `None`: the spelling does not say where one name ends and the
    /// other begins (Binance's `BTCUSDT`); what was subscribed to is known by the table of the [`Reader`] all the same.
    pub fn unified(&self, native: &str) -> Option<String> {
        self.0.naming.unified(native)
    }

    /// One channel of one instrument. For a channel about the whole venue the symbol does not matter.
    pub fn want(&self, channel: &str, symbol: &str) -> Result<Wanted, NamingError> {
        let Some(index) = self.channel(channel) else {
            let known: Vec<&str> = self.0.channels.iter().map(|channel| channel.name.as_str()).collect();
            return Err(NamingError::Channel {
                venue: self.0.id.to_owned(),
                channel: channel.to_owned(),
                known: known.join(", "),
            });
        };
        let instrument = if self.0.channels[index].venue_wide {
            let whole = Spelled::WHOLE_VENUE.to_owned();
            Spelled { symbol: whole.clone(), subscribe: whole.clone(), frame: whole.clone(), rest: whole }
        } else {
            self.instrument(symbol)?
        };
        Ok(Wanted { channel: index, instrument: Arc::new(instrument) })
    }

    /// Reads what comes through a socket; `table` is what was subscribed to there, and what `wanted` in events counts.
    pub fn reader(&self, socket: usize, table: &[Wanted]) -> Reader {
        Reader::new(self.clone(), socket, table)
    }
}

/// What a channel carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// Trades.
    Trades,
    /// Changes of an order book, and snapshots of it.
    BookDelta,
    /// The best prices, or a summary of the day.
    Ticker,
    /// Candles.
    Candles,
    /// Something else; it is stored and not looked into.
    Other,
}

/// What there is to know of a channel.
#[derive(Debug)]
pub struct ChannelSpec {
    /// Its name in records and folders.
    pub name: Channel,
    /// What it carries.
    pub kind: ChannelKind,
    /// The socket it comes through: an index into [`Descriptor::sockets`].
    pub socket: usize,
    /// It is about the venue as a whole and has no instruments.
    pub venue_wide: bool,
    /// How its messages make a book.
    pub book: Option<Arc<BookPlan>>,
    /// Its messages also go to the book of this channel: an index into [`Descriptor::channels`]. Polymarket's trades carry
    /// a part of what a book's hash is made of.
    pub feeds_book: Option<usize>,
    /// How its messages are numbered, where the venue promises that they are.
    pub sequence: Option<SequenceRule>,
    /// An instrument may be silent here for long without anything being wrong.
    pub quiet: bool,
    /// The first message of each instrument is a snapshot.
    pub snapshot_first: bool,
    /// It comes without being asked for.
    pub comes_unasked: bool,
    /// Its name in the venue's commands.
    native: String,
    /// Further names in the venue's answers.
    answers_to: Vec<String>,
    /// What else its commands say.
    params: String,
    topic: Option<template::Template>,
    reads: reader::Reads,
    snapshot: Option<rest::RestRequest>,
    witness: Option<rest::WitnessRequest>,
}

impl ChannelSpec {
    /// Whether the venue calls it that in an answer.
    fn is_called(&self, name: &str) -> bool {
        self.native == name || self.answers_to.iter().any(|other| other == name)
    }

    /// Whether [`Descriptor::snapshot_request`] has something to ask for.
    pub fn has_snapshot_request(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Whether [`Descriptor::witness_request`] has somebody to ask.
    pub fn has_witness(&self) -> bool {
        self.witness.is_some()
    }
}

/// A socket, and what the venue allows there.
#[derive(Debug)]
pub struct SocketSpec {
    /// Its name in the descriptor.
    pub name: String,
    /// Which of [`Descriptor::endpoints`] it is reached at.
    pub endpoint: &'static str,
    /// What follows the endpoint's address.
    pub path: String,
    /// What comes through it: indices into [`Descriptor::channels`].
    pub channels: Vec<usize>,
    /// What may be done with it.
    pub rules: SocketRules,
    commands: command::Commands,
    reading: reader::Reading,
    login: Option<login::Login>,
}

impl SocketSpec {
    /// Whether it must be logged in to before anything is subscribed to.
    pub fn needs_login(&self) -> bool {
        self.login.is_some()
    }

    /// Whether the venue answers a subscription at all; Polymarket does not.
    pub fn acknowledges(&self) -> bool {
        let is_answer = |control: &reader::Control| {
            matches!(control.is, written::ControlIs::Ack | written::ControlIs::Subscribed)
        };
        self.reading.controls.iter().any(is_answer)
    }

    /// The text to send as a ping, where the venue wants one. `number` is this connection's next command.
    pub fn ping(&self, number: &mut u64) -> Option<String> {
        self.commands.ping(number)
    }
}

/// What may be done with a socket, and how it shows that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketRules {
    /// Subscriptions on one connection; see [`Descriptor::shard`].
    pub subscriptions_max: usize,
    /// Subscriptions that one command may name.
    pub args_per_request: usize,
    /// How long one command may be.
    pub request_bytes_max: usize,
    /// How long the arguments of all subscriptions of one connection may be together.
    pub args_bytes_max: Option<usize>,
    /// Frames that may be sent to the venue on one connection.
    pub commands: Rate,
    /// Connections that may be attempted from one address.
    pub connects: Rate,
    /// The venue ends a connection after this long.
    pub lifetime: Option<Duration>,
    /// The venue ends a connection that has not subscribed within this time.
    pub subscribe_within: Option<Duration>,
    /// What keeps a connection alive.
    pub heartbeat: Heartbeat,
    /// Nothing at all for so long, pings included: the connection is dead.
    pub dead_after: Duration,
    /// The longest frame taken.
    pub frame_bytes_max: usize,
    /// A frame that is an array holds messages of their own; the [`Reader`] takes it apart.
    pub split: bool,
}

/// What keeps a connection alive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// The venue shows that it lives so often, by a ping or a heartbeat, even when there is nothing to say.
    pub server_every: Option<Duration>,
    /// We send [`SocketSpec::ping`] so often.
    pub ping_every: Option<Duration>,
}

/// So many in every interval of that length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// How long the interval is.
    pub window: Duration,
}
