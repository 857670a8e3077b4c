//! What is known of the streams of a connection, whichever socket they come through just now: numbers, gaps, silence,
//! books. Every message that is recorded goes through [`Core::record`].

use std::collections::HashMap;
use std::sync::Arc;

use catchment_model::{
    Cause, Channel, Envelope, Gap, Leaf, Monotonic, Payload, Source, Stem, Symbol, UnixMs, UnixNs, Venue,
};
use catchment_pipeline::{Draft, Resumed};
use catchment_venues::stream::{Data, Order, Scope, Sequence, SequenceChecker, Step, Witness};
use tokio::sync::mpsc;
use xxhash_rust::xxh3::xxh3_64;

use super::StreamSettings;
use super::books::{Desk, Reaction, Remedy, Wrong};
use super::events;
use super::gaps::{GapLedger, Missing, Told};
use super::link::Route;
use super::overlap::Mark;
use super::records::{self, CheckRecord, Of};
use super::silence::{SilenceWatch, Testimony, Trait};
use super::status::{Running, StreamCounts};
use crate::GapNotice;

/// Numbers or ids of a stream that are remembered, to know a repetition.
const REMEMBERED: usize = 64;

/// The streams of a connection.
pub(crate) struct Core {
    pub(crate) venue: Venue,
    pub(crate) streams: Vec<Stream>,
    pub(crate) gaps: GapLedger,
    pub(crate) silence: SilenceWatch,
    pub(crate) desks: Vec<Desk>,
    /// Whose books these are.
    places: Vec<usize>,
    /// The streams whose messages each of them takes.
    fed_by: Vec<Vec<usize>>,
    /// Books of one market, by its name, where the venue has several that share their last price.
    markets: HashMap<Box<str>, Vec<usize>>,
    pub(crate) counts: StreamCounts,
    pub(crate) lag: Running,
    /// What is to be done about books, by the place of their stream.
    pub(crate) resubscribe: Vec<(usize, Monotonic)>,
    pub(crate) settings: StreamSettings,
    /// Who fills gaps, if anybody does.
    pub(crate) listener: Option<mpsc::Sender<GapNotice>>,
    /// Memory to write books into.
    page: Vec<u8>,
}

/// One stream.
pub(crate) struct Stream {
    pub(crate) channel: Channel,
    pub(crate) symbol: Box<str>,
    /// Its lines.
    stem: Stem,
    pub(crate) is_book: bool,
    /// Follows the numbers, where the venue numbers it alike on every connection.
    checker: Option<SequenceChecker>,
    order: Option<Order>,
    recent: Ring,
    /// Of the last message.
    id: LastId,
    time: Option<UnixMs>,
    /// When it came.
    received: Option<UnixMs>,
    /// What it is known by, where it has no number.
    last_hash: Option<u64>,
    testimony: Option<Witness>,
    /// How often it was found frozen since it last spoke.
    pub(crate) strikes: u32,
    /// Books that its messages belong to.
    feeds: Vec<usize>,
}

impl Stream {
    /// What the witness said during the last silence proves nothing in the next.
    fn spoke(&mut self) {
        if self.testimony.is_some() || self.strikes > 0 {
            (self.testimony, self.strikes) = (None, 0);
        }
    }
}

/// The id of a message, kept as it came: it is asked for only when a stream is silent.
#[derive(Debug, Default)]
struct LastId(String);

impl LastId {
    #[inline]
    fn take(&mut self, id: &str) {
        self.0.clear();
        if id.len() <= Envelope::MESSAGE_ID_MAX {
            self.0.push_str(id);
        }
    }

    fn number(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    fn hash(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| xxh3_64(self.0.as_bytes()))
    }
}

/// The last few numbers or hashes.
#[derive(Debug)]
struct Ring {
    values: [u64; REMEMBERED],
    at: usize,
}

impl Ring {
    fn new() -> Self {
        Self { values: [u64::MAX; REMEMBERED], at: 0 }
    }

    #[inline]
    fn push(&mut self, value: u64) {
        self.values[self.at % REMEMBERED] = value;
        self.at = self.at.wrapping_add(1);
    }

    fn has(&self, value: u64) -> bool {
        self.values.contains(&value)
    }
}

/// Where a message came from and when.
#[derive(Clone, Copy)]
pub(crate) struct From<'a> {
    pub(crate) label: &'a Arc<str>,
    pub(crate) source: &'a str,
    pub(crate) received_at: UnixNs,
    pub(crate) now: Monotonic,
}

impl Core {
    pub(crate) fn new(route: &Route, settings: StreamSettings, wall: UnixNs, now: Monotonic) -> Self {
        let specs = route.descriptor.channels();
        let of = |place: usize| &specs[route.table[place].channel];
        let places = 0..route.table.len();
        let mut streams: Vec<Stream> = Vec::new();
        let (mut desks, mut desk_places, mut fed_by) = (Vec::new(), Vec::new(), Vec::new());
        for wanted in &*route.table {
            let spec = &specs[wanted.channel];
            let rule = spec.sequence.filter(|rule| rule.scope == Scope::Instrument);
            streams.push(Stream {
                channel: spec.name,
                symbol: wanted.instrument.symbol.as_str().into(),
                stem: Stem::new(
                    route.descriptor.venue(),
                    spec.name,
                    Symbol::new(wanted.instrument.symbol.as_str()).unwrap_or(Symbol::ALL),
                ),
                is_book: spec.book.is_some(),
                checker: rule.map(SequenceChecker::new),
                order: rule.map(|rule| rule.order),
                recent: Ring::new(),
                id: LastId::default(),
                time: None,
                received: None,
                last_hash: None,
                testimony: None,
                strikes: 0,
                feeds: Vec::new(),
            });
        }
        for place in places.clone() {
            let Some(plan) = of(place).book.as_ref().filter(|_| settings.keeps_books) else { continue };
            // Snapshots of many books are spread over the interval.
            let share = settings.snapshot_interval.mul_f64((place % 64) as f64 / 64.0);
            let instrument = &route.table[place].instrument;
            desks.push(Desk::new(plan, &instrument.frame, Monotonic(now.0 + share)));
            desk_places.push(place);
            let desk = desks.len() - 1;
            let feeds = places.clone().filter(|other| {
                let same = route.table[*other].instrument.symbol == instrument.symbol;
                let belongs = of(*other).feeds_book == Some(route.table[place].channel);
                *other == place || (belongs && same)
            });
            fed_by.push(feeds.collect::<Vec<usize>>());
            fed_by[desk].iter().for_each(|other| streams[*other].feeds.push(desk));
        }
        let channels = streams.iter().map(|stream| Arc::from(stream.channel.as_str()));
        let traits =
            places.map(|place| Trait { has_witness: of(place).has_witness(), may_be_quiet: of(place).quiet });
        Self {
            venue: route.descriptor.venue(),
            gaps: GapLedger::new(channels, wall.ms(), settings.gaps),
            silence: SilenceWatch::new(traits, settings.silence, now),
            streams,
            desks,
            places: desk_places,
            fed_by,
            markets: HashMap::new(),
            counts: StreamCounts::default(),
            lag: Running::default(),
            resubscribe: Vec::new(),
            settings,
            page: Vec::new(),
            listener: None,
        }
    }

    /// Streams of these channels were recorded before. From the start on, which a gap of the whole channel leads up to, they
    /// miss something until they flow.
    pub(crate) fn resume(&mut self, resumed: &[Resumed], label: &Arc<str>, now: Monotonic) {
        for (place, stream) in self.streams.iter().enumerate() {
            if let Some(before) = resumed.iter().find(|before| before.channel == stream.channel) {
                self.gaps.interrupt(place, before.cause, label, now);
            }
        }
    }

    /// The book of the stream at a place.
    pub(crate) fn desk_of(&self, place: usize) -> Option<usize> {
        self.places.iter().position(|of| *of == place)
    }

    /// The stream that a book is made from.
    pub(crate) fn place_of(&self, desk: usize) -> usize {
        self.places[desk]
    }

    /// How a message is told from another of its stream, on whichever connection.
    pub(crate) fn mark(&self, data: &Data<'_>) -> Mark {
        let stream = &self.streams[data.wanted as usize];
        match (&data.sequence, stream.order, &data.id) {
            (Some(sequence), Some(Order::PlusOne | Order::Range | Order::Linked), _) => {
                Mark::Number(sequence.last)
            }
            (_, _, Some(id)) => Mark::Hash(xxh3_64(id.as_bytes())),
            _ => Mark::Hash(xxh3_64(data.text.as_bytes())),
        }
    }

    /// The last message recorded of each stream: its highest number, or what it is known by.
    pub(crate) fn last_marks(&self) -> impl Iterator<Item = Option<Mark>> + '_ {
        self.streams.iter().map(|stream| match stream.order {
            Some(Order::PlusOne | Order::Range | Order::Linked) => {
                stream.checker.as_ref().and_then(SequenceChecker::last).map(Mark::Number)
            }
            _ => stream.last_hash.map(Mark::Hash),
        })
    }

    /// Records a message, unless it was recorded before. Says whether it was.
    pub(crate) fn record(&mut self, data: &Data<'_>, from: From<'_>, draft: &mut Draft) -> bool {
        let place = data.wanted as usize;
        let (missing, is_old, is_proved) = match self.follow(place, data) {
            Follow::Next => (None, false, true),
            Follow::Unproved => (None, false, false),
            Follow::Missing(missing) => (Some(missing), false, true),
            Follow::Old => (None, true, false),
            Follow::Repetition => {
                self.counts.duplicates += 1;
                self.silence.heard(place, from.now);
                return false;
            }
        };
        let now = from.now;
        if let Some(time) = data.server_time {
            self.lag.add((from.received_at.ms().get() - time.get()) as f64);
        }
        let is_written = self.push(data, from, draft);
        let touched = std::iter::once(data.wanted).chain(data.also.iter().copied());
        for place in touched.map(|place| place as usize) {
            self.silence.heard(place, now);
            let stream = &mut self.streams[place];
            stream.received = Some(from.received_at.ms());
            stream.time = data.server_time.or(stream.time);
            stream.spoke();
            let of_this = missing.as_ref().filter(|_| place == data.wanted as usize);
            self.feed(place, data, of_this.copied(), from, draft);
            if !is_old && is_written {
                let is_proved = is_proved && place == data.wanted as usize;
                self.good(place, of_this, is_proved, from, draft);
            }
        }
        is_written
    }

    /// Stores a message without following it: the snapshot with which a standby begins.
    pub(crate) fn push(&mut self, data: &Data<'_>, from: From<'_>, draft: &mut Draft) -> bool {
        let stream = &mut self.streams[data.wanted as usize];
        let mut one_line = Vec::new();
        let payload = match Payload::already_validated(data.text.as_bytes()) {
            Ok(payload) => payload,
            Err(_line_break) => {
                // Between members only, for a text cannot hold one: it means nothing there.
                one_line.extend(data.text.bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
                Payload::already_validated(&one_line).expect("there is no line break left")
            }
        };
        let leaf = Leaf {
            message_id: data.id.as_deref().filter(|id| id.len() <= Envelope::MESSAGE_ID_MAX),
            sequence: data.sequence.map(|sequence| sequence.last),
            server_time: data.server_time,
            received_at: from.received_at,
            payload,
            source: from.source,
        };
        let pushed = draft.push_leaf(&mut stream.stem, &leaf);
        if pushed.is_err() {
            self.counts.unrecorded += 1;
            self.gaps.interrupt(data.wanted as usize, Cause::Failure, from.label, from.now);
            return false;
        }
        self.counts.messages += 1;
        true
    }

    /// What the numbers say. Hot: one message after another, almost always the next.
    #[inline]
    fn follow(&mut self, place: usize, data: &Data<'_>) -> Follow {
        let stream = &mut self.streams[place];
        if let Some(id) = &data.id {
            stream.id.take(id);
        }
        let (Some(sequence), Some(checker)) = (&data.sequence, &mut stream.checker) else {
            let Some(id) = &data.id else {
                stream.last_hash = Some(xxh3_64(data.text.as_bytes()));
                return Follow::Unproved;
            };
            let hash = xxh3_64(id.as_bytes());
            stream.last_hash = Some(hash);
            return match stream.recent.has(hash) {
                true => Follow::Repetition,
                false => {
                    stream.recent.push(hash);
                    Follow::Unproved
                }
            };
        };
        let last = checker.last();
        let order = stream.order.expect("what is followed has an order");
        let step = checker.next(sequence, data.is_snapshot);
        let follow = match step {
            Step::Next if order != Order::Increasing => Follow::Next,
            Step::First | Step::Next => Follow::Unproved,
            // The last few trades, with which a subscription begins: their numbers go on. A book is another matter.
            Step::Reset if order == Order::PlusOne && !stream.is_book => match last {
                Some(last) if sequence.first > last.saturating_add(1) => {
                    Follow::Missing(Missing { first: last + 1, last: sequence.first - 1, is_count: true })
                }
                Some(last) if sequence.last >= last => Follow::Next,
                _ => Follow::Unproved,
            },
            Step::Reset => Follow::Unproved,
            // Linked: it shows that the venue lives. Increasing: several may share a number.
            Step::Repeated if matches!(order, Order::Linked | Order::Increasing) => Follow::Unproved,
            Step::Repeated => Follow::Repetition,
            Step::Old => {
                let Sequence { first, last, prev } = *sequence;
                let first = match (order, prev) {
                    (Order::Linked, Some(prev)) => u64::try_from(prev + 1).unwrap_or(first),
                    _ => first,
                };
                if order != Order::Increasing && stream.recent.has(last) {
                    Follow::Repetition
                } else {
                    self.gaps.late(place, first, last);
                    self.counts.late += 1;
                    Follow::Old
                }
            }
            Step::Gap { first_missing, last_missing } => {
                self.counts.sequence_gaps += 1;
                events::sequence_gap(
                    self.venue,
                    stream.channel.as_str(),
                    &stream.symbol,
                    first_missing,
                    last_missing,
                );
                Follow::Missing(Missing {
                    first: first_missing,
                    last: last_missing,
                    is_count: order == Order::PlusOne,
                })
            }
        };
        if order != Order::Increasing && follow != Follow::Repetition {
            stream.recent.push(sequence.last);
        }
        follow
    }

    /// A message that tells that its stream is whole from here on, unless its book is not.
    fn good(
        &mut self,
        place: usize,
        missing: Option<&Missing>,
        is_proved: bool,
        from: From<'_>,
        draft: &mut Draft,
    ) {
        let received = from.received_at.ms();
        let stream = &self.streams[place];
        let own_desk = stream.feeds.iter().map(|desk| &self.desks[*desk]).find(|_| stream.is_book);
        let waits_for_snapshot = own_desk.is_some_and(|desk| !desk.over_rest && !desk.is_live());
        // Where a hash proves several messages together, those before it are good with the last of them.
        if waits_for_snapshot || own_desk.is_some_and(Desk::is_pending) {
            return;
        }
        if let Some(missing) = missing
            && self.gaps.open(place).is_none()
            && let Some(told) = self.gaps.jump(place, *missing, received, from.label, from.now)
        {
            self.tell(&told, from.received_at, draft);
        }
        if let Some(told) = self.gaps.good(place, received, missing, is_proved) {
            self.tell(&told, from.received_at, draft);
        }
    }

    /// The last message of a stream has proved to be right, though nothing has followed.
    pub(crate) fn proved(&mut self, place: usize, now: UnixNs, draft: &mut Draft) {
        if let Some(received) = self.streams[place].received
            && let Some(told) = self.gaps.good(place, received, None, false)
        {
            self.tell(&told, now, draft);
        }
    }

    /// Hands a message to the books it belongs to.
    fn feed(
        &mut self,
        place: usize,
        data: &Data<'_>,
        missing: Option<Missing>,
        from: From<'_>,
        draft: &mut Draft,
    ) {
        for at in 0..self.streams[place].feeds.len() {
            let desk = self.streams[place].feeds[at];
            self.hand(desk, place, data, missing, from, draft);
            if !self.streams[place].is_book {
                self.tell_kin(desk, place, data, from, draft);
            }
        }
    }

    /// A trade concerns all books of its market. It is told of one of them alone, and what a witness says of the others' trades
    /// is this one.
    fn tell_kin(&mut self, desk: usize, place: usize, data: &Data<'_>, from: From<'_>, draft: &mut Draft) {
        let kin = self.desks[desk].ladder.market().and_then(|market| self.markets.get(market));
        for other in kin.cloned().unwrap_or_default().into_iter().filter(|other| *other != desk) {
            self.hand(other, self.places[other], data, None, from, draft);
            for heard in &self.fed_by[other] {
                if self.streams[*heard].channel == self.streams[place].channel {
                    self.silence.heard(*heard, from.now);
                    self.streams[*heard].spoke();
                }
            }
        }
    }

    fn hand(
        &mut self,
        desk: usize,
        place: usize,
        data: &Data<'_>,
        missing: Option<Missing>,
        from: From<'_>,
        draft: &mut Draft,
    ) {
        let agreed = self.desks[desk].agreed();
        let reaction = self.desks[desk].message(data.text, data.server_time, from.now);
        self.counts.checks_agreed += self.desks[desk].agreed() - agreed;
        self.react(desk, place, reaction, missing, from, draft);
    }

    /// A book that has just begun may be one of several of its market.
    fn introduce(&mut self, desk: usize) {
        let Some(market) = self.desks[desk].ladder.market() else { return };
        match self.markets.get_mut(market) {
            Some(kin) if kin.contains(&desk) => {}
            Some(kin) => kin.push(desk),
            None => drop(self.markets.insert(market.into(), vec![desk])),
        }
    }

    /// Does what a book's verdict asks for.
    pub(crate) fn react(
        &mut self,
        desk: usize,
        place: usize,
        reaction: Reaction,
        missing: Option<Missing>,
        from: From<'_>,
        draft: &mut Draft,
    ) {
        match reaction {
            Reaction::None => {}
            Reaction::Ready => {
                self.introduce(desk);
                self.write_book(desk, place, from, draft);
            }
            Reaction::Wrong(wrong) => self.wrong(desk, place, &wrong, missing, from, draft),
        }
    }

    fn wrong(
        &mut self,
        desk: usize,
        place: usize,
        wrong: &Wrong,
        missing: Option<Missing>,
        from: From<'_>,
        draft: &mut Draft,
    ) {
        let stream = &self.streams[place];
        events::book_wrong(self.venue, &stream.symbol, wrong.outcome, &wrong.detail);
        let ladder = &self.desks[desk].ladder;
        let record = CheckRecord {
            channel: stream.channel.as_str(),
            outcome: wrong.outcome,
            detail: &wrong.detail,
            sequence: ladder.sequence(),
            epoch: ladder.epoch(),
            resync: wrong.remedy.as_str(),
            connection: from.label,
        };
        let of = Of {
            venue: self.venue,
            symbol: Some(&stream.symbol),
            now: from.received_at,
            source: from.source,
        };
        let pushed = records::push_check(draft, of, &record);
        self.counts.unrecorded += u64::from(pushed.is_err());
        self.counts.checks_failed += u64::from(wrong.remedy != Remedy::None);
        self.counts.resyncs += u64::from(wrong.remedy != Remedy::None);
        if let Remedy::Resubscribe(after) = wrong.remedy {
            match missing {
                Some(missing) => self.gaps.interrupt_at(place, missing, from.label, from.now),
                None => self.gaps.interrupt(place, Cause::Failure, from.label, from.now),
            }
            self.resubscribe.push((place, Monotonic(from.now.0 + after)));
        }
    }

    /// Writes a book whole.
    pub(crate) fn write_book(&mut self, desk: usize, place: usize, from: From<'_>, draft: &mut Draft) {
        let stream = &self.streams[place];
        let desk = &mut self.desks[desk];
        desk.written(self.settings.snapshot_interval, from.now);
        self.page.clear();
        let time = desk.write(&stream.symbol, self.settings.depth, &mut self.page);
        let of = Of {
            venue: self.venue,
            symbol: Some(&stream.symbol),
            now: from.received_at,
            source: from.source,
        };
        match records::push_book(draft, of, time, &self.page) {
            Ok(()) => self.counts.snapshots += 1,
            Err(_too_large) => self.counts.unrecorded += 1,
        }
    }

    /// Writes a gap down.
    pub(crate) fn tell(&mut self, told: &Told, now: UnixNs, draft: &mut Draft) {
        let symbol = Some(&*self.streams[told.place].symbol);
        let of = Of { venue: self.venue, symbol, now, source: Source::RECORDER.as_str() };
        let pushed = records::push_gap(draft, of, &told.gap);
        self.counts.gaps_told += u64::from(pushed.is_ok());
        if let Some(listener) = &self.listener {
            let symbol = self.streams[told.place].symbol.to_string();
            // Full: not told. The record is there all the same.
            let _ = listener.try_send(GapNotice { venue: self.venue, symbol, gap: told.gap.clone() });
        }
    }

    /// Writes down a gap that could be anybody's.
    pub(crate) fn tell_of_all(&mut self, gap: &Gap, now: UnixNs, draft: &mut Draft) {
        let of = Of { venue: self.venue, symbol: None, now, source: Source::RECORDER.as_str() };
        let pushed = records::push_gap(draft, of, gap);
        self.counts.gaps_told += u64::from(pushed.is_ok());
    }

    /// What the witness says, in the light of what the stream has brought and of what the witness said before.
    pub(crate) fn compare(&mut self, place: usize, said: Witness) -> Testimony {
        let stream = &mut self.streams[place];
        let number: Option<u64> = said.id.as_deref().and_then(|id| id.parse().ok());
        let hash = said.id.as_deref().map(|id| xxh3_64(id.as_bytes()));
        let before = stream.testimony.replace(said.clone());
        let has_moved = before.is_some_and(|before| before != said);
        match (number.zip(stream.id.number()), hash.zip(stream.id.hash())) {
            (Some((theirs, ours)), _) if theirs > ours => return Testimony::Newer,
            (Some(_), _) => return Testimony::Same,
            (None, Some((theirs, ours))) if theirs == ours => return Testimony::Same,
            _ => {}
        }
        match said.time.zip(stream.time) {
            Some((theirs, ours)) if theirs > ours => Testimony::Newer,
            Some(_) => Testimony::Same,
            None if has_moved => Testimony::Newer,
            None => Testimony::Same,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// The one that was due: nothing is missing between.
    Next,
    /// Nothing is known to be missing.
    Unproved,
    Missing(Missing),
    /// After a later one, and not seen before.
    Old,
    Repetition,
}
