//! What comes through a socket, taken apart: messages, answers, and frames that are not as they should be.

use std::sync::Arc;

use bytes::Bytes;
use catchment_model::{Cause, Gap, Monotonic, UnixNs};
use catchment_venues::stream::{Answer, Data, Done, Event, Unknown};

use super::{Frame, From, Joining, Shard, Which, events, mended};
use crate::stream::acks::Fault;
use crate::stream::overlap::Mark;
use crate::stream::socket::Run;

impl Shard {
    /// Takes in a frame, or a run of them. Says how many they were.
    pub(super) fn frame(&mut self, which: Which, frame: Frame, received_at: UnixNs, now: Monotonic) -> usize {
        let Some(link) = self.link(which) else { return 1 };
        link.heard = now;
        match frame {
            Frame::Run(run) => return self.run_of_texts(which, run, received_at, now),
            Frame::Text(text) => self.text(which, &text, received_at, now),
            Frame::Ping | Frame::Pong => self.core.counts.control += 1,
            Frame::Binary(bytes) => {
                self.core.counts.binary += 1;
                self.odd(which, "binary", bytes, self.core.counts.binary);
            }
            Frame::NotUtf8 => self.not_utf8(which, received_at),
            Frame::Close(_) => {}
        }
        self.core.counts.frames += 1;
        1
    }

    /// Texts that came together, until the last or until one of them has cost the connection.
    fn run_of_texts(&mut self, which: Which, mut run: Run, received_at: UnixNs, now: Monotonic) -> usize {
        let Some(label) = self.link(which).map(|link| Arc::clone(&link.label)) else { return 1 };
        let mut count = 0;
        while let Some(text) = run.next_text() {
            if !self.link(which).is_some_and(|link| Arc::ptr_eq(&link.label, &label)) {
                break;
            }
            count += 1;
            self.core.counts.frames += 1;
            match text {
                Ok(text) => self.text(which, text, received_at, now),
                Err(_) => self.not_utf8(which, received_at),
            }
        }
        count
    }

    fn not_utf8(&mut self, which: Which, received_at: UnixNs) {
        self.core.counts.garbled += 1;
        self.odd(which, "not UTF-8", 0, self.core.counts.garbled);
        self.tell_unattributed(which, received_at);
    }

    pub(super) fn text(&mut self, which: Which, text: &str, received_at: UnixNs, now: Monotonic) {
        self.core.counts.bytes += text.len() as u64;
        let is_oversized = text.len() > self.rules().frame_bytes_max;
        if is_oversized {
            self.core.counts.oversized += 1;
            self.odd(which, "oversized", text.len(), self.core.counts.oversized);
            return self.missed(which, text, false, received_at, now);
        }
        let mut events = recycled(std::mem::take(&mut self.events));
        let Some(link) = self.link(which) else { return };
        link.reader.read_text(text, &mut events);
        let mut held = Vec::new();
        for event in events.drain(..) {
            if let Event::Data(data) = &event
                && let Some((first, last)) = self.link(which).and_then(|link| link.skipped(data))
            {
                self.skipped(which, first, last, now);
            }
            match event {
                Event::Data(data) if which == Which::Current => self.record(&data, received_at, now),
                Event::Data(data) => self.join(&data, &mut held, received_at, now),
                Event::Ack(answer) => self.acknowledged(which, &answer, received_at, now),
                Event::Refused { answer, reason } => self.refused(which, &answer, &reason, now),
                Event::Heartbeat | Event::Pong | Event::Status => self.core.counts.control += 1,
                Event::ReconnectSoon { reason } => {
                    self.core.counts.control += 1;
                    if let Some(link) = self.link(which) {
                        link.ends = Some(format!("the venue will close it: {reason}"));
                    }
                }
                Event::Unasked => self.core.counts.unasked += 1,
                Event::Unknown(Unknown::NoRule) => {
                    self.core.counts.unknown += 1;
                    self.odd(which, "unknown", text.len(), self.core.counts.unknown);
                }
                Event::Unknown(Unknown::NotText | Unknown::NotJson(..)) => {
                    self.core.counts.garbled += 1;
                    self.odd(which, "garbled", text.len(), self.core.counts.garbled);
                    self.missed(which, text, true, received_at, now);
                }
            }
        }
        self.events = recycled(events);
        if let Some(overlap) = self.overlap.as_mut().filter(|_| !held.is_empty()) {
            overlap.hold(Bytes::copy_from_slice(text.as_bytes()), received_at, held);
        }
    }

    /// Numbers that go through all that comes over the connection were left out: it may have been of any of its streams. Books
    /// begin anew; other streams are whole again with their next message.
    fn skipped(&mut self, which: Which, first: u64, last: u64, now: Monotonic) {
        self.core.counts.sequence_gaps += 1;
        let label = self.label();
        events::connection_gap(self.core.venue, &label, first, last);
        if which == Which::Standby {
            return self.lost(which, Cause::Sequence, "it left numbers out", now);
        }
        for (place, _) in self.route.counted() {
            self.core.gaps.interrupt(place, Cause::Sequence, &label, now);
            if self.core.streams[place].is_book {
                self.core.resubscribe.push((place, now));
            }
        }
    }

    /// A message of the socket that is recorded.
    pub(super) fn record(&mut self, data: &Data<'_>, received_at: UnixNs, now: Monotonic) {
        let Some(link) = self.current.as_mut() else { return };
        for place in std::iter::once(data.wanted).chain(data.also.iter().copied()) {
            link.spoke[place as usize] = true;
            link.acks.flows(place as usize, data.is_snapshot);
        }
        if let Some(overlap) = &mut self.overlap {
            let (place, mark) = (data.wanted as usize, self.core.mark(data));
            if !overlap.has_switched() {
                overlap.old(place, mark);
            } else if overlap.new_one(place, mark) == Joining::Repeats && !data.is_snapshot {
                self.core.counts.repeats += 1;
                return;
            }
        }
        let from = From { label: &link.label, source: &link.source, received_at, now };
        self.core.record(data, from, &mut self.draft);
    }

    /// A message of the socket that is to take over.
    pub(super) fn join(
        &mut self,
        data: &Data<'_>,
        held: &mut Vec<(usize, Mark)>,
        received_at: UnixNs,
        now: Monotonic,
    ) {
        let (Some(link), Some(overlap)) = (self.standby.as_mut(), self.overlap.as_mut()) else { return };
        let place = data.wanted as usize;
        let is_opening = data.is_snapshot && !link.spoke[place];
        for place in std::iter::once(data.wanted).chain(data.also.iter().copied()) {
            link.spoke[place as usize] = true;
            link.acks.flows(place as usize, data.is_snapshot);
        }
        if is_opening {
            // What a subscription begins with. A book is stored, beside the changes that the old socket brings; trades
            // that were recorded already are not.
            overlap.begun(place);
            if self.core.streams[place].is_book {
                let from = From { label: &link.label, source: &link.source, received_at, now };
                self.core.push(data, from, &mut self.draft);
            } else {
                self.core.counts.repeats += 1;
            }
            return;
        }
        let mark = self.core.mark(data);
        match overlap.new_one(place, mark) {
            Joining::Repeats => self.core.counts.repeats += 1,
            Joining::IsNew => held.push((place, mark)),
        }
    }

    pub(super) fn acknowledged(
        &mut self,
        which: Which,
        answer: &Answer,
        received_at: UnixNs,
        now: Monotonic,
    ) {
        self.core.counts.control += 1;
        let Some(link) = self.link(which) else { return };
        match answer.done {
            Done::Unsubscribed | Done::Already => return,
            Done::LoggedIn => {
                link.logged_in();
                link.subscribe_due(now);
                self.logins_failed = 0;
                self.core.counts.logins += 1;
                return self.speak(which, now);
            }
            Done::Subscribed | Done::AsAsked => {}
        }
        let places = link.covered(answer);
        let news: Vec<usize> =
            places.into_iter().filter(|place| link.acks.acknowledged(*place, now)).collect();
        if which == Which::Current {
            self.subscribed(&news, received_at, now);
        }
    }

    /// These are subscribed now, as far as the venue says.
    pub(super) fn subscribed(&mut self, places: &[usize], wall: UnixNs, now: Monotonic) {
        for place in places {
            self.core.silence.subscribed(*place, now);
            let wanted = &self.route.table[*place];
            // One that begins with a snapshot is whole when the snapshot is there.
            if !self.route.descriptor.channels()[wanted.channel].snapshot_first {
                self.core.gaps.confirmed(*place, wall.ms(), now);
            }
        }
    }

    pub(super) fn refused(&mut self, which: Which, answer: &Answer, reason: &str, now: Monotonic) {
        self.core.counts.control += 1;
        let venue = self.core.venue;
        let Some(link) = self.link(which) else { return };
        if link.awaits_login() {
            let reason =
                format!("the venue refused the login: {reason}; see to the key, the secret and the clock");
            return self.lost(which, Cause::Failure, &reason, now);
        }
        let places = link.covered(answer);
        if places.is_empty() {
            events::complaint(venue, &link.label, reason);
            self.last_error = Some(format!("the venue complains: {reason}"));
            return;
        }
        let fault = match answer.done {
            Done::Already => Fault::Already(reason.to_owned()),
            _ => Fault::Refused(reason.to_owned()),
        };
        if let Some(place) = link.acks.refused(&places, fault, now) {
            self.failed(which, place, &format!("the venue refused it: {reason}"), now);
        }
    }

    /// A subscription failed: it is told, and tried again later.
    pub(super) fn failed(&mut self, which: Which, place: usize, reason: &str, now: Monotonic) {
        self.core.counts.subscriptions_failed += 1;
        let stream = &self.core.streams[place];
        events::subscription_failed(self.core.venue, stream.channel.as_str(), &stream.symbol, reason);
        self.last_error = Some(format!("{} of {}: {reason}", stream.channel, stream.symbol));
        if which == Which::Current {
            self.core.silence.unsubscribed(place);
            let label = self.label();
            self.core.gaps.interrupt(place, Cause::Failure, &label, now);
        }
    }

    /// A frame that cannot be used: whose message was it?
    pub(super) fn missed(
        &mut self,
        which: Which,
        text: &str,
        was_cut: bool,
        received_at: UnixNs,
        now: Monotonic,
    ) {
        let Some(beginning) = mended(text.as_bytes()) else {
            if was_cut {
                self.tell_unattributed(which, received_at);
            }
            return;
        };
        let Some(link) = self.link(which) else { return };
        let mut events = Vec::new();
        link.reader.read(&beginning, &mut events);
        let touched = events.iter().find_map(|event| match event {
            Event::Data(data) => Some(data.wanted as usize),
            _ => None,
        });
        match touched {
            Some(place) if which == Which::Current => {
                let label = self.label();
                self.core.gaps.interrupt(place, Cause::Failure, &label, now);
            }
            Some(_) => {}
            None if was_cut => self.tell_unattributed(which, received_at),
            None => {}
        }
    }

    /// Something came that could have been of any stream.
    pub(super) fn tell_unattributed(&mut self, which: Which, received_at: UnixNs) {
        if which == Which::Standby {
            return;
        }
        let at = received_at.ms();
        let gap = Gap {
            connection: Some(self.label().to_string()),
            ..Gap::new("*", at, at, Cause::Failure).records(1)
        };
        self.core.tell_of_all(&gap, received_at, &mut self.draft);
    }

    pub(super) fn odd(&mut self, which: Which, kind: &'static str, bytes: usize, total: u64) {
        let venue = self.core.venue;
        if let Some(link) = self.link(which) {
            events::odd_frame(venue, &link.label, kind, bytes, total);
        }
    }
}

/// The memory of a list of events, for those of another frame.
fn recycled<'to>(mut events: Vec<Event<'_>>) -> Vec<Event<'to>> {
    events.clear();
    // Of the same size, so that the memory is used again.
    events.into_iter().map(|_| unreachable!("it was cleared")).collect()
}
