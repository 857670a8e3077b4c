//! What a frame is: one walk over its bytes finds everything that a descriptor points at, and a few comparisons decide.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use super::event::{Answer, Data, Done, Event, Unknown};
use super::found::{Found, Slot, Value};
use super::lookup::Lookup;
use super::paths::Paths;
use super::pointer::Pointer;
use super::scan::{self, skip_space};
use super::sequence::Sequence;
use super::shape::Shapes;
use super::written::{ControlIs, Literal};
use super::{Descriptor, Spelled, TimeUnit, Wanted};

/// Where the parts of a channel's messages are.
#[derive(Debug)]
pub(super) struct Reads {
    /// The first of these that a message has counts.
    pub(super) symbol: SmallVec<[SymbolAt; 2]>,
    /// All of these together, or none.
    pub(super) id: SmallVec<[Slot; 2]>,
    pub(super) time: Option<(Slot, TimeUnit)>,
    pub(super) sequence: Option<SequenceAt>,
    pub(super) items: Option<Slot>,
    /// Any one of these makes it a snapshot.
    pub(super) snapshot_when: Vec<Vec<(Slot, Literal)>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SequenceAt {
    pub(super) first: Option<Slot>,
    pub(super) last: Slot,
    pub(super) previous: Option<Slot>,
}

/// How a message says which instrument it is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum SymbolAt {
    /// The topic has said so.
    Topic,
    One(Slot),
    Many(Slot),
    /// It is about the venue.
    Venue,
}

/// How frames of a socket are read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) paths: Paths,
    pub(super) route: Route,
    /// A frame with any of these is no data.
    pub(super) unless: u64,
    pub(super) controls: Vec<Control>,
}

#[derive(Debug)]
pub(super) enum Route {
    Topic(Slot),
    /// The values of the slot, and the channel that each means.
    Tagged(Slot, Vec<(Box<[u8]>, usize)>),
}

/// A rule for frames that are no data.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) is: ControlIs,
    /// The frame is this text, and no JSON.
    pub(super) text: Option<String>,
    pub(super) needs: u64,
    pub(super) lacks: u64,
    pub(super) equals: Vec<(Slot, Literal)>,
    pub(super) request: Option<Slot>,
    pub(super) topic: Option<Slot>,
    pub(super) channel: Option<Slot>,
    pub(super) symbol: Option<Slot>,
    pub(super) depth: Option<Slot>,
    pub(super) listed: Option<Listed>,
    pub(super) reason: Vec<Slot>,
}

/// An answer that lists all subscriptions: `{"channels":[{"name":"matches","product_ids":["BTC-USD"]}]}`.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) list: Pointer,
    pub(super) channel: Pointer,
    pub(super) symbols: Pointer,
}

/// Reads the frames of one connection.
#[derive(Debug)]
pub struct Reader {
    found: Found,
    shapes: Shapes,
    known: Known,
    through_values: bool,
}

/// What a reader knows beforehand.
#[derive(Debug)]
struct Known {
    descriptor: Descriptor,
    socket: usize,
    /// By topic (under channel 0), or by channel and instrument.
    lookup: Lookup,
    /// The table's channels and the venue's spelling of its instruments, for answers.
    table: Vec<(usize, String)>,
}

impl Reader {
    pub(super) fn new(descriptor: Descriptor, socket: usize, table: &[Wanted]) -> Self {
        let channels = descriptor.channels();
        let by_topic = matches!(descriptor.sockets()[socket].reading.route, Route::Topic(_));
        let keys = table.iter().enumerate().filter(|(_, wanted)| channels[wanted.channel].socket == socket);
        let lookup = Lookup::new(keys.map(|(index, wanted)| {
            let channel = &channels[wanted.channel];
            match channel.topic.as_ref().filter(|_| by_topic) {
                Some(topic) => (0, topic.with(&[&wanted.instrument.subscribe]), index as u32),
                None => (wanted.channel, wanted.instrument.frame.clone(), index as u32),
            }
        }));
        let table = table.iter().map(|wanted| (wanted.channel, wanted.instrument.frame.clone())).collect();
        Self {
            found: Found::new(),
            shapes: Shapes::default(),
            known: Known { descriptor, socket, lookup, table },
            through_values: false,
        }
    }

    /// From here on every frame is also made into generic values, and a record out of them: what a bench holds the walk
    /// against. What is found is the same.
    pub fn go_through_values(&mut self) {
        self.through_values = true;
    }

    /// Reads one frame and appends what it is: one event for most, several where the venue puts several messages into
    /// one frame. On the usual way nothing is allocated.
    pub fn read<'m>(&mut self, frame: &'m [u8], events: &mut Vec<Event<'m>>) {
        match std::str::from_utf8(frame) {
            Ok(text) => self.read_text(text, events),
            Err(_) => events.push(Event::Unknown(Unknown::NotText)),
        }
    }

    /// The same for a frame that is known to be text.
    pub fn read_text<'m>(&mut self, text: &'m str, events: &mut Vec<Event<'m>>) {
        if self.through_values {
            through_values(text);
        }
        let (frame, before) = (text.as_bytes(), events.len());
        let Self { found, shapes, known, .. } = self;
        let at = skip_space(frame, 0);
        let read = match frame.get(at) {
            Some(b'[') if known.descriptor.0.sockets[known.socket].rules.split => {
                known.elements(found, text, at, events)
            }
            Some(b'{' | b'[') => known.whole(found, shapes, text, at, events),
            _ => return events.push(known.plain_text(found, text)),
        };
        if let Err(scan::Fault { at, why }) = read {
            events.truncate(before);
            events.push(Event::Unknown(Unknown::NotJson(at, why)));
        }
    }
}

/// The way of those who do not mind the cost: the frame as a tree of values, what is looked for fetched from it by name,
/// and a record made of it as a tree, too.
#[cold]
fn through_values(text: &str) {
    let Ok(payload) = serde_json::from_str::<serde_json::Value>(text) else { return };
    let of = |pointer: &str| payload.pointer(pointer).cloned();
    let (topic, id, time) = (of("/stream"), of("/data/u").or_else(|| of("/data/a")), of("/data/E"));
    let record = serde_json::json!({
        "channel": topic,
        "message_id": id,
        "server_time_ms": time,
        "payload": payload,
    });
    let line = serde_json::to_string(&record).unwrap_or_default();
    std::hint::black_box(&line);
}

impl Known {
    fn reading(&self) -> &Reading {
        &self.descriptor.0.sockets[self.socket].reading
    }

    #[inline]
    fn whole<'m>(
        &self,
        found: &mut Found,
        shapes: &mut Shapes,
        frame: &'m str,
        at: usize,
        events: &mut Vec<Event<'m>>,
    ) -> scan::Scanned<()> {
        let reading = self.reading();
        let end = shapes.walk(&reading.paths, frame.as_bytes(), at, found)?;
        if skip_space(frame.as_bytes(), end) != frame.len() {
            return scan::fault(frame.as_bytes(), end, "something stands after the value");
        }
        self.event(found, reading, frame, at..end, events);
        Ok(())
    }

    fn elements<'m>(
        &self,
        found: &mut Found,
        frame: &'m str,
        at: usize,
        events: &mut Vec<Event<'m>>,
    ) -> scan::Scanned<()> {
        let bytes = frame.as_bytes();
        let reading = self.reading();
        let mut at = skip_space(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            events.push(Event::Status);
            at += 1;
        } else {
            loop {
                let end = reading.paths.walk(bytes, at, found)?;
                self.event(found, reading, frame, at..end, events);
                at = skip_space(bytes, end);
                match bytes.get(at) {
                    Some(b',') => at = skip_space(bytes, at + 1),
                    Some(b']') => break at += 1,
                    _ => return scan::fault(bytes, at, "neither a comma nor a closing bracket"),
                }
            }
        }
        match skip_space(bytes, at) == bytes.len() {
            true => Ok(()),
            false => scan::fault(bytes, at, "something stands after the value"),
        }
    }

    /// A frame that is no JSON and need not be: `pong`.
    fn plain_text<'m>(&self, found: &Found, frame: &'m str) -> Event<'m> {
        match self.reading().controls.iter().find(|control| control.text.as_deref() == Some(frame.trim())) {
            Some(control) => self.answer(found, control, frame, 0..0),
            None => match scan::value_end(frame.as_bytes(), skip_space(frame.as_bytes(), 0), 0) {
                Err(fault) => Event::Unknown(Unknown::NotJson(fault.at, fault.why)),
                Ok(_) => Event::Unknown(Unknown::NoRule),
            },
        }
    }

    /// What the value is that was just walked.
    #[inline]
    fn event<'m>(
        &self,
        found: &Found,
        reading: &Reading,
        frame: &'m str,
        range: Range<usize>,
        events: &mut Vec<Event<'m>>,
    ) {
        let mut unasked = false;
        if found.mask & reading.unless == 0 {
            match self.data(found, reading, frame, range.clone(), events) {
                Ok(()) => return,
                Err(was_data) => unasked = was_data,
            }
        }
        events.push(self.no_data(found, reading, frame, range, unasked));
    }

    #[cold]
    fn no_data<'m>(
        &self,
        found: &Found,
        reading: &Reading,
        frame: &'m str,
        range: Range<usize>,
        unasked: bool,
    ) -> Event<'m> {
        match reading.controls.iter().find(|control| control.fits(found, frame)) {
            Some(control) => self.answer(found, control, frame, range),
            None if unasked => Event::Unasked,
            None => Event::Unknown(Unknown::NoRule),
        }
    }

    /// Appends the message. Otherwise: whether it would have been one, had anybody asked for it.
    #[inline]
    fn data<'m>(
        &self,
        found: &Found,
        reading: &Reading,
        frame: &'m str,
        range: Range<usize>,
        events: &mut Vec<Event<'m>>,
    ) -> Result<(), bool> {
        let mut also = SmallVec::new();
        let (wanted, channel) = match &reading.route {
            Route::Topic(slot) => {
                let topic = found.value(*slot, frame).ok_or(false)?;
                let wanted = self.find(0, topic).ok_or(true)?;
                (wanted, self.table[wanted as usize].0)
            }
            Route::Tagged(slot, tags) => {
                let tag = found.value(*slot, frame).and_then(Value::plain).ok_or(false)?;
                let tag = tags.iter().find(|(known, _)| **known == *tag.as_bytes());
                let channel = tag.ok_or(false)?.1;
                (self.first_touched(found, channel, frame, &mut also).ok_or(true)?, channel)
            }
        };
        let reads = &self.descriptor.0.channels[channel].reads;
        let is_snapshot = reads.snapshot_when.iter().any(|all| all_equal(all, found, frame));
        let mut flaw = None;
        let server_time = reads.time.and_then(|(slot, unit)| {
            let time = found.value(slot, frame).and_then(Value::plain).and_then(|text| unit.read(text));
            if time.is_none() && !is_snapshot {
                flaw = Some("time");
            }
            time
        });
        // Numbers of several instruments in one message follow nothing.
        let sequence = reads.sequence.filter(|_| also.is_empty()).and_then(|at| {
            let sequence = sequence(found, at, frame);
            if sequence.is_none() && !is_snapshot {
                flaw = Some("sequence");
            }
            sequence
        });
        events.push(Event::Data(Data {
            wanted,
            also,
            id: id(&reads.id, found, frame),
            sequence,
            server_time,
            is_snapshot,
            items: reads.items.and_then(|slot| found.count(slot)).unwrap_or(1),
            flaw,
            text: &frame[range],
        }));
        Ok(())
    }

    fn first_touched(
        &self,
        found: &Found,
        channel: usize,
        frame: &str,
        also: &mut SmallVec<[u32; 3]>,
    ) -> Option<u32> {
        for at in &self.descriptor.0.channels[channel].reads.symbol {
            match *at {
                SymbolAt::Topic => return None,
                SymbolAt::Venue => return self.lookup.find(channel, Spelled::WHOLE_VENUE.as_bytes()),
                SymbolAt::One(slot) => match found.value(slot, frame) {
                    Some(value) => return self.find(channel, value),
                    None => continue,
                },
                SymbolAt::Many(slot) if !found.has(slot) => continue,
                SymbolAt::Many(slot) => {
                    let places = found.many.iter().filter(|(of, _)| *of == slot);
                    let mut all = places.filter_map(|(_, place)| self.find(channel, place.value(frame)));
                    let first = all.next()?;
                    for wanted in all {
                        if wanted != first && !also.contains(&wanted) {
                            also.push(wanted);
                        }
                    }
                    return Some(first);
                }
            }
        }
        None
    }

    #[inline]
    fn find(&self, channel: usize, value: Value<'_>) -> Option<u32> {
        if value.is_escaped() {
            return self.lookup.find(channel, value.text()?.as_bytes());
        }
        self.lookup.find(channel, value.plain()?.as_bytes())
    }

    /// What a control frame says.
    #[cold]
    fn answer<'m>(&self, found: &Found, control: &Control, frame: &'m str, range: Range<usize>) -> Event<'m> {
        let mut answer = Answer::default();
        let text = |slot: Slot| found.value(slot, frame).and_then(Value::text);
        if let Some(slot) = control.request {
            answer.request = text(slot).and_then(|text| text.parse().ok());
        }
        answer.depth = control.depth.and_then(text).and_then(|text| text.parse().ok());
        if let Some(topic) = control.topic.and_then(text) {
            answer.wanted.extend(self.lookup.find(0, topic.as_bytes()));
        }
        if let Some(symbol) = control.symbol.and_then(text) {
            let channel = control.channel.and_then(text);
            answer.wanted.extend(self.named(channel.as_deref(), &symbol));
        }
        if let Some(listed) = &control.listed {
            answer.all = true;
            self.listed(listed, &frame[range], &mut answer.wanted);
        }
        let reason = || {
            let parts: Vec<_> = control.reason.iter().filter_map(|slot| text(*slot)).collect();
            let reason: String = parts.join(": ").chars().take(512).collect();
            if reason.is_empty() { "the venue gives no reason".to_owned() } else { reason }
        };
        let done = |done: Done, answer: Answer| Event::Ack(Answer { done, ..answer });
        match control.is {
            ControlIs::Ack => done(Done::AsAsked, answer),
            ControlIs::Subscribed => done(Done::Subscribed, answer),
            ControlIs::Unsubscribed => done(Done::Unsubscribed, answer),
            ControlIs::LoggedIn => done(Done::LoggedIn, answer),
            ControlIs::Refused => Event::Refused { answer, reason: reason() },
            ControlIs::Already => {
                Event::Refused { answer: Answer { done: Done::Already, ..answer }, reason: reason() }
            }
            ControlIs::Heartbeat => Event::Heartbeat,
            ControlIs::Pong => Event::Pong,
            ControlIs::Reconnect => Event::ReconnectSoon { reason: reason() },
            ControlIs::Status => Event::Status,
        }
    }

    /// The entries of an instrument, all of them or those of the channel of that name.
    fn named(&self, channel: Option<&str>, symbol: &str) -> Vec<u32> {
        let channels = &self.descriptor.0.channels;
        let of_channel = |index: usize| channel.is_none_or(|name| channels[index].is_called(name));
        let entries = self.table.iter().enumerate();
        entries.filter(|(_, (c, s))| of_channel(*c) && s == symbol).map(|(index, _)| index as u32).collect()
    }

    fn listed(&self, listed: &Listed, frame: &str, wanted: &mut SmallVec<[u32; 2]>) {
        let Ok(value) = serde_json::from_str::<serde_json::Value>(frame) else { return };
        let Some(list) = listed.list.first_of(&value).and_then(|list| list.as_array()) else { return };
        for entry in list {
            let channel = listed.channel.first_of(entry).and_then(|name| name.as_str());
            let symbols = listed.symbols.first_of(entry).and_then(|symbols| symbols.as_array());
            let (Some(channel), Some(symbols)) = (channel, symbols) else { continue };
            // Lists are long and so is the table: by the reader's own index.
            let index = self
                .descriptor
                .0
                .channels
                .iter()
                .position(|c| c.is_called(channel) && c.socket == self.socket);
            let Some(index) = index else { continue };
            let found = symbols.iter().filter_map(|s| self.lookup.find(index, s.as_str()?.as_bytes()));
            wanted.extend(found);
        }
    }
}

impl Control {
    #[inline]
    fn fits(&self, found: &Found, frame: &str) -> bool {
        self.text.is_none()
            && found.mask & self.needs == self.needs
            && found.mask & self.lacks == 0
            && all_equal(&self.equals, found, frame)
    }
}

#[inline]
fn all_equal(conditions: &[(Slot, Literal)], found: &Found, frame: &str) -> bool {
    conditions.iter().all(|(slot, literal)| {
        let Some(value) = found.value(*slot, frame) else { return false };
        match literal {
            Literal::Word(word) => value.raw == word,
            Literal::Text(text) if value.is_escaped() => {
                value.text().is_some_and(|value| value == text.as_str())
            }
            Literal::Text(text) => value.raw.starts_with('"') && value.plain() == Some(text),
        }
    })
}

#[inline]
fn sequence(found: &Found, at: SequenceAt, frame: &str) -> Option<Sequence> {
    let last = found.value(at.last, frame)?.number()?;
    let first = match at.first {
        Some(slot) => found.value(slot, frame)?.number()?,
        None => last,
    };
    let prev = match at.previous {
        Some(slot) => Some(found.value(slot, frame)?.signed()?),
        None => None,
    };
    Some(Sequence { first, last, prev })
}

/// The id as it stands; or, where a descriptor makes it of several values, those joined. That one allocates.
#[inline]
fn id<'m>(slots: &[Slot], found: &Found, frame: &'m str) -> Option<Cow<'m, str>> {
    match slots {
        [] => None,
        [slot] => found.value(*slot, frame)?.text(),
        slots => {
            let mut joined = String::with_capacity(48);
            for slot in slots {
                if !joined.is_empty() {
                    joined.push('-');
                }
                joined.push_str(&found.value(*slot, frame)?.text()?);
            }
            Some(Cow::Owned(joined))
        }
    }
}
