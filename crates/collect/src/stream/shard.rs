//! One connection of a venue, from its first attempt to the end: a task that owns its socket, its successor while there
//! is one, and all that is known of its streams.
//!
//! ```text
//! dial ─▶ Link ─▶ subscribe ─▶ frames ─▶ Core::record ─▶ Draft ─▶ Intake
//!   ▲                 │           │ the pipeline takes nothing: the socket is not read
//!   └──── lost ◀──────┴───────────┘
//! ```
//!
//! Start reading at [`Shard::run`]. Nothing here waits for anything but in its `select!`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catchment_governor::{Ask, FamilyId, Governor, Lane, Report};
use catchment_model::{Cause, Clock, Gap, Monotonic, UnixNs};
use catchment_pipeline::{AcceptError, Draft, Intake, Pending};
use catchment_venues::stream::{Answer, Data, Done, Event, Unknown};
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::core::{Core, From};
use super::link::{Link, Route};
use super::mend::mended;
use super::overlap::{Joining, Overlap};
use super::redial::Redial;
use super::rest::{Rest, Returned};
use super::socket::{ConnectError, Dialer, Frame, Socket};
use super::status::{ConnectionState, ConnectionStatus, ms};
use super::{StreamSettings, events};

/// So many frames before timers have their turn.
const FRAMES_AT_ONCE: usize = 2_048;
/// Requests for snapshots under way at once.
const SNAPSHOTS_MAX: usize = 4;
/// At the end, what is under way is waited for at most this long.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a connection stands on.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) rest: Rest,
    pub(crate) governor: Governor,
    pub(crate) dialer: Dialer,
    pub(crate) intake: Intake,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: StreamSettings,
}

/// Which of the two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Current,
    Standby,
}

type Submitting = Pin<Box<dyn Future<Output = Result<Pending, AcceptError>> + Send>>;
type Dialed = (Result<Socket, ConnectError>, Arc<str>, Duration);

/// One connection.
pub(crate) struct Shard {
    ground: Ground,
    route: Route,
    /// `<socket>-<shard>`.
    name: String,
    family: FamilyId,
    core: Core,
    current: Option<Link>,
    standby: Option<Link>,
    overlap: Option<Overlap>,
    /// Why a new socket is wanted though there is one.
    replace: Option<String>,
    overlap_began: Monotonic,
    dialing: JoinSet<Dialed>,
    dial_at: Monotonic,
    opened: u32,
    redial: Redial,
    jitter: f64,
    errands: JoinSet<Returned>,
    snapshots_under_way: usize,
    draft: Draft,
    submitting: Option<(Submitting, Monotonic)>,
    is_over: bool,
    /// The standby is read first this time.
    standby_first: bool,
    events: Vec<Event<'static>>,
    look_at: Monotonic,
    tell_at: Monotonic,
    summary_at: Monotonic,
    last_error: Option<String>,
    status: watch::Sender<ConnectionStatus>,
}

impl Shard {
    pub(crate) fn new(
        ground: Ground,
        route: Route,
        name: String,
        family: FamilyId,
        seed: u64,
        status: watch::Sender<ConnectionStatus>,
    ) -> Self {
        let (now, settings) = (ground.clock.monotonic(), ground.settings);
        let core = Core::new(&route, settings, ground.clock.wall(), now);
        Self {
            draft: ground.intake.draft(),
            redial: Redial::new(settings.redial, seed),
            ground,
            route,
            name,
            family,
            core,
            current: None,
            standby: None,
            overlap: None,
            replace: None,
            overlap_began: now,
            dialing: JoinSet::new(),
            dial_at: now,
            opened: 0,
            jitter: (seed % 1_000) as f64 / 1_000.0,
            errands: JoinSet::new(),
            snapshots_under_way: 0,
            submitting: None,
            is_over: false,
            standby_first: false,
            events: Vec::new(),
            look_at: now,
            tell_at: now,
            summary_at: Monotonic(now.0 + settings.summary_interval),
            last_error: None,
            status,
        }
    }

    /// Records until `stop`. Then sockets are closed, open gaps told, and what was read is handed over.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut tick = interval(self.ground.settings.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.is_over {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                done = submitted(&mut self.submitting) => self.submitted(&done),
                (which, frame) = read(&mut self.current, &mut self.standby, self.standby_first),
                    if self.submitting.is_none() => self.frames(which, frame),
                Some(dialed) = self.dialing.join_next() => self.dialed(dialed),
                Some(returned) = self.errands.join_next() => self.returned(returned),
                _ = tick.tick() => self.tick(),
            }
            self.flush();
        }
        self.finish().await;
    }

    /// A frame has come; there may be more.
    fn frames(&mut self, which: Which, first: Result<Frame, tungstenite::Error>) {
        self.standby_first = which == Which::Current;
        let now = self.ground.clock.monotonic();
        let mut next = Some(first);
        for _ in 0..FRAMES_AT_ONCE {
            let Some(frame) = next.take() else { break };
            let received_at = self.ground.clock.wall();
            match frame {
                Ok(Frame::Close(reason)) => {
                    return self.lost(
                        which,
                        Cause::Disconnect,
                        &format!("the venue closed it: {reason}"),
                        now,
                    );
                }
                Ok(frame) => self.frame(which, frame, received_at, now),
                Err(error) => return self.lost(which, Cause::Disconnect, &error.to_string(), now),
            }
            if self.draft.is_full() {
                break;
            }
            next = self.link(which).and_then(|link| link.socket.try_frame());
        }
        // What has been read is not lost.
        match next {
            None => {}
            Some(Ok(Frame::Close(reason))) => {
                self.lost(which, Cause::Disconnect, &format!("the venue closed it: {reason}"), now);
            }
            Some(Ok(frame)) => {
                let received_at = self.ground.clock.wall();
                self.frame(which, frame, received_at, now);
            }
            Some(Err(error)) => self.lost(which, Cause::Disconnect, &error.to_string(), now),
        }
    }

    fn frame(&mut self, which: Which, frame: Frame, received_at: UnixNs, now: Monotonic) {
        let Some(link) = self.link(which) else { return };
        link.heard = now;
        self.core.counts.frames += 1;
        match frame {
            Frame::Text(text) => self.text(which, &text, received_at, now),
            Frame::Ping | Frame::Pong => self.core.counts.control += 1,
            Frame::Binary(bytes) => {
                self.core.counts.binary += 1;
                self.odd(which, "binary", bytes, self.core.counts.binary);
            }
            Frame::NotUtf8 => {
                self.core.counts.garbled += 1;
                self.odd(which, "not UTF-8", 0, self.core.counts.garbled);
                self.tell_unattributed(which, received_at);
            }
            Frame::Close(_) => {}
        }
    }

    fn text(&mut self, which: Which, text: &Bytes, received_at: UnixNs, now: Monotonic) {
        self.core.counts.bytes += text.len() as u64;
        let is_oversized = text.len() > self.rules().frame_bytes_max;
        if is_oversized {
            self.core.counts.oversized += 1;
            self.odd(which, "oversized", text.len(), self.core.counts.oversized);
            return self.missed(which, text, false, received_at, now);
        }
        let mut events = recycled(std::mem::take(&mut self.events));
        let Some(link) = self.link(which) else { return };
        link.reader.read(text, &mut events);
        let mut held = Vec::new();
        for event in events.drain(..) {
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
            overlap.hold(text.clone(), received_at, held);
        }
    }

    /// A message of the socket that is recorded.
    fn record(&mut self, data: &Data<'_>, received_at: UnixNs, now: Monotonic) {
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
    fn join(
        &mut self,
        data: &Data<'_>,
        held: &mut Vec<(usize, super::overlap::Mark)>,
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

    fn acknowledged(&mut self, which: Which, answer: &Answer, received_at: UnixNs, now: Monotonic) {
        self.core.counts.control += 1;
        if matches!(answer.done, Done::Unsubscribed | Done::LoggedIn) {
            return;
        }
        let Some(link) = self.link(which) else { return };
        let places = link.covered(answer);
        let news: Vec<usize> =
            places.into_iter().filter(|place| link.acks.acknowledged(*place, now)).collect();
        if which == Which::Current {
            self.subscribed(&news, received_at, now);
        }
    }

    /// These are subscribed now, as far as the venue says.
    fn subscribed(&mut self, places: &[usize], wall: UnixNs, now: Monotonic) {
        for place in places {
            self.core.silence.subscribed(*place, now);
            let wanted = &self.route.table[*place];
            // One that begins with a snapshot is whole when the snapshot is there.
            if !self.route.descriptor.channels()[wanted.channel].snapshot_first {
                self.core.gaps.confirmed(*place, wall.ms(), now);
            }
        }
    }

    fn refused(&mut self, which: Which, answer: &Answer, reason: &str, now: Monotonic) {
        self.core.counts.control += 1;
        let venue = self.core.venue;
        let Some(link) = self.link(which) else { return };
        let places = link.covered(answer);
        if places.is_empty() {
            events::complaint(venue, &link.label, reason);
            self.last_error = Some(format!("the venue complains: {reason}"));
            return;
        }
        if let Some(place) = link.acks.refused(&places, reason, now) {
            self.failed(which, place, &format!("the venue refused it: {reason}"), now);
        }
    }

    /// A subscription failed: it is told, and tried again later.
    fn failed(&mut self, which: Which, place: usize, reason: &str, now: Monotonic) {
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
    fn missed(&mut self, which: Which, text: &Bytes, was_cut: bool, received_at: UnixNs, now: Monotonic) {
        let Some(beginning) = mended(text) else {
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
    fn tell_unattributed(&mut self, which: Which, received_at: UnixNs) {
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

    fn odd(&mut self, which: Which, kind: &'static str, bytes: usize, total: u64) {
        let venue = self.core.venue;
        if let Some(link) = self.link(which) {
            events::odd_frame(venue, &link.label, kind, bytes, total);
        }
    }

    /// A socket is gone.
    fn lost(&mut self, which: Which, cause: Cause, reason: &str, now: Monotonic) {
        let wait = self.redial.lost(now);
        self.dial_at = Monotonic(now.0 + wait);
        self.last_error = Some(reason.to_owned());
        self.core.counts.disconnects += 1;
        if which == Which::Standby {
            let label = self.standby.take().map(|link| link.label);
            events::lost(self.core.venue, label.as_deref().unwrap_or(""), reason, wait);
            self.overlap = None;
            return;
        }
        let label = self.label();
        events::lost(self.core.venue, &label, reason, wait);
        if self.standby.is_some() && self.overlap.is_some() {
            // Its successor is there already.
            self.dial_at = now;
            return self.switch(Some((cause, label)), now);
        }
        self.current = None;
        self.overlap = None;
        self.replace = None;
        self.interrupt_all(cause, &label, now);
    }

    fn interrupt_all(&mut self, cause: Cause, label: &Arc<str>, now: Monotonic) {
        for place in 0..self.core.streams.len() {
            self.core.gaps.interrupt(place, cause, label, now);
            self.core.silence.unsubscribed(place);
        }
        self.core.desks.iter_mut().for_each(super::books::Desk::reset);
        self.core.resubscribe.clear();
    }

    fn want_replacement(&mut self, reason: String) {
        if self.replace.is_none() && self.standby.is_none() && self.current.is_some() {
            events::switching(self.core.venue, &self.label(), &reason);
            self.replace = Some(reason);
            self.dial_at = self.ground.clock.monotonic();
        }
    }

    /// The new socket takes over. If the old one is gone already, `gone` says why and which it was.
    fn switch(&mut self, gone: Option<(Cause, Arc<str>)>, now: Monotonic) {
        if gone.is_none() {
            // Whatever the old one has brought until now.
            for _ in 0..FRAMES_AT_ONCE {
                let Some(Ok(frame)) = self.current.as_mut().and_then(|link| link.socket.try_frame()) else {
                    break;
                };
                let received_at = self.ground.clock.wall();
                self.frame(Which::Current, frame, received_at, now);
            }
        }
        let (Some(mut new), Some(mut overlap)) = (self.standby.take(), self.overlap.take()) else { return };
        let old = self.current.take();
        let held = overlap.switch(now);
        for frame in held {
            let mut events = Vec::new();
            new.reader.read(&frame.frame, &mut events);
            for event in &events {
                let Event::Data(data) = event else { continue };
                let mark = self.core.mark(data);
                if overlap.is_due(data.wanted as usize, mark) {
                    let received_at = frame.received_at;
                    let from = From { label: &new.label, source: &new.source, received_at, now };
                    self.core.record(data, from, &mut self.draft);
                } else {
                    self.core.counts.repeats += 1;
                }
            }
        }
        let mut unjoined = 0;
        let label = Arc::clone(&new.label);
        for place in 0..self.core.streams.len() {
            use super::acks::Standing;
            let is_subscribed =
                matches!(new.acks.standing(place), Standing::Flowing | Standing::Acknowledged(_));
            let is_whole = is_subscribed && (gone.is_none() || overlap.has_joined(place));
            if is_whole {
                continue;
            }
            unjoined += 1;
            let (cause, label) = gone.as_ref().map_or((Cause::Failure, &label), |(cause, old)| (*cause, old));
            self.core.gaps.interrupt(place, cause, label, now);
            if is_subscribed {
                self.core.gaps.confirmed(place, self.ground.clock.wall().ms(), now);
            } else {
                self.core.silence.unsubscribed(place);
            }
        }
        let took = now.since(self.overlap_began);
        let old_label = old.as_ref().map_or_else(|| Arc::from(""), |link| Arc::clone(&link.label));
        events::switched(self.core.venue, &old_label, &label, took, unjoined);
        if let Some(mut old) = old.filter(|_| gone.is_none()) {
            old.socket.close();
        }
        self.core.counts.switches += 1;
        self.current = Some(new);
        self.overlap = Some(overlap);
        self.replace = None;
    }

    /// An attempt to connect has ended.
    fn dialed(&mut self, dialed: Result<Dialed, tokio::task::JoinError>) {
        let now = self.ground.clock.monotonic();
        let (outcome, label, took) = match dialed {
            Ok(dialed) => dialed,
            Err(error) => {
                let wait = self.redial.lost(now);
                self.dial_at = Monotonic(now.0 + wait);
                self.last_error = Some(error.to_string());
                return;
            }
        };
        match outcome {
            Ok(socket) => {
                self.redial.up(now);
                let is_standby = self.current.is_some();
                events::connected(self.core.venue, &label, is_standby, took);
                let mut link = Link::new(&self.route, socket, label, self.ground.settings.acks, now);
                link.subscribe_due(now);
                if is_standby {
                    self.overlap = Some(Overlap::new(self.core.last_marks(), self.ground.settings.overlap));
                    self.overlap_began = now;
                    self.standby = Some(link);
                    self.speak(Which::Standby, now);
                } else {
                    self.current = Some(link);
                    self.speak(Which::Current, now);
                }
            }
            Err(error) => {
                // A permit that grew old says nothing about the venue.
                if matches!(error, ConnectError::Expired) {
                    self.dial_at = now;
                    return;
                }
                self.core.counts.connects_failed += 1;
                let wait = self.redial.lost(now);
                self.dial_at = Monotonic(now.0 + wait);
                let reason = error.to_string();
                events::not_connected(self.core.venue, &label, self.redial.failures(), wait, &reason);
                self.last_error = Some(reason);
            }
        }
    }

    fn dial(&mut self) {
        self.opened += 1;
        self.core.counts.connects += 1;
        let label: Arc<str> = format!("{}.{}", self.name, self.opened).into();
        let (governor, dialer, url) =
            (self.ground.governor.clone(), self.ground.dialer.clone(), self.route.url.clone());
        let (ask, clock) = (Ask::new(self.family, Lane::Live), Arc::clone(&self.ground.clock));
        self.dialing.spawn(async move {
            let permit = governor.acquire(ask).await;
            let began = clock.monotonic();
            let Ok(flight) = permit.depart() else {
                return (Err(ConnectError::Expired), label, Duration::ZERO);
            };
            let outcome = dialer.dial(&url).await;
            let (report, headers) = match &outcome {
                Ok(_) => (Report::status(101), &[][..]),
                Err(error @ ConnectError::Refused { headers, .. }) => (error.report(), &headers[..]),
                Err(error) => (error.report(), &[][..]),
            };
            flight.end(report, headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())));
            (outcome, label, clock.monotonic().since(began))
        });
    }

    /// A request beside the stream has ended.
    fn returned(&mut self, returned: Result<Returned, tokio::task::JoinError>) {
        let now = self.ground.clock.monotonic();
        let Ok(returned) = returned else { return };
        match returned {
            Returned::Snapshot(place, answer) => {
                self.snapshots_under_way -= 1;
                self.snapshot(place, answer, now);
            }
            Returned::Witness(place, answer) => self.witness(place, answer, now),
        }
    }

    fn snapshot(&mut self, place: usize, answer: Result<Bytes, super::rest::RestError>, now: Monotonic) {
        let (venue, wall) = (self.core.venue, self.ground.clock.wall());
        let Some(desk) = self.core.desk_of(place) else { return };
        match answer {
            Ok(body) => {
                let reaction = self.core.desks[desk].snapshot(&body, now);
                let (label, source) = self.names();
                let from = From { label: &label, source: &source, received_at: wall, now };
                self.core.react(desk, place, reaction, None, from, &mut self.draft);
            }
            Err(error) => {
                events::rest_failed(venue, "snapshot", &self.core.streams[place].symbol, &error.to_string());
                self.core.desks[desk].snapshot_failed(now);
            }
        }
    }

    fn witness(
        &mut self,
        place: usize,
        answer: Result<catchment_venues::stream::Witness, super::rest::RestError>,
        now: Monotonic,
    ) {
        use super::rest::RestError;
        use super::silence::Testimony;
        let testimony = match answer {
            Ok(said) => self.core.compare(place, said),
            Err(error) => {
                let symbol = &self.core.streams[place].symbol;
                events::rest_failed(self.core.venue, "witness", symbol, &error.to_string());
                if let RestError::Unknown(reason) = &error
                    && let Some(link) = &mut self.current
                    && !link.spoke[place]
                {
                    // Acknowledged, silent, and the venue does not know it: a name that is none.
                    let reason = format!("the venue acknowledged it and does not know it: {reason}");
                    link.acks.refused(&[place], &reason, now);
                    self.failed(Which::Current, place, &reason, now);
                }
                Testimony::None
            }
        };
        self.core.silence.answered(place, testimony, now);
    }

    fn speak(&mut self, which: Which, now: Monotonic) {
        let Some(link) = self.link(which) else { return };
        match link.speak(now) {
            Ok(news) if news.is_empty() || which == Which::Standby => {}
            Ok(news) => {
                let wall = self.ground.clock.wall();
                self.subscribed(&news, wall, now);
            }
            Err(error) => self.lost(which, Cause::Disconnect, &error.to_string(), now),
        }
    }

    /// Hands over what was read, unless the pipeline still has its hands full.
    fn flush(&mut self) {
        if self.draft.is_empty() || self.submitting.is_some() {
            return;
        }
        let intake = self.ground.intake.clone();
        let draft = std::mem::replace(&mut self.draft, intake.draft());
        let mut submit: Submitting = Box::pin(async move { intake.submit(draft).await });
        match (&mut submit).now_or_never() {
            Some(done) => self.submitted(&done),
            None => self.submitting = Some((submit, self.ground.clock.monotonic())),
        }
    }

    fn submitted(&mut self, done: &Result<Pending, AcceptError>) {
        if let Some((_, since)) = self.submitting.take() {
            let stall = self.ground.clock.monotonic().since(since);
            if stall >= self.ground.settings.stall_min {
                events::held_up(self.core.venue, &self.label(), stall);
                self.core.silence.forgive(stall);
                self.current.iter_mut().chain(&mut self.standby).for_each(|link| link.forgive(stall));
            }
        }
        if let Err(error) = done {
            events::records_lost(self.core.venue, 0);
            self.last_error = Some(error.to_string());
            self.is_over = matches!(error, AcceptError::Closed);
        }
    }

    /// Timers. See `upkeep.rs`.
    fn tick(&mut self) {
        let now = self.ground.clock.monotonic();
        self.upkeep(now);
    }

    async fn finish(mut self) {
        let (now, wall) = (self.ground.clock.monotonic(), self.ground.clock.wall());
        self.tell_status(now);
        self.current.iter_mut().chain(&mut self.standby).for_each(|link| link.socket.close());
        if let Some(overlap) = self.overlap.take().filter(|overlap| !overlap.has_switched()) {
            // The old one was recorded until now; what the new one has beyond it is not ours to lose.
            self.overlap = Some(overlap);
            self.switch(None, now);
        }
        for told in self.core.gaps.end(wall.ms()) {
            self.core.tell(&told, wall, &mut self.draft);
        }
        if let Some((submit, _)) = self.submitting.take() {
            // Given up, its records are in line or not at all; there is nothing else to do with them.
            let _ = timeout(PATIENCE, submit).await;
        }
        if !self.draft.is_empty() {
            let records = self.draft.len() as u64;
            let accepted = timeout(PATIENCE, self.ground.intake.accept(self.draft)).await;
            if !matches!(accepted, Ok(Ok(_))) {
                events::records_lost(self.core.venue, records);
            }
        }
        let mut status = self.status.borrow().clone();
        (status.state, status.counts, status.gaps_open) = (ConnectionState::Over, self.core.counts, 0);
        self.status.send_replace(status);
    }

    fn link(&mut self, which: Which) -> Option<&mut Link> {
        match which {
            Which::Current => self.current.as_mut(),
            Which::Standby => self.standby.as_mut(),
        }
    }

    fn rules(&self) -> &catchment_venues::stream::SocketRules {
        &self.route.descriptor.sockets()[self.route.socket].rules
    }

    /// The name of the present socket, or of the shard while there is none.
    fn label(&self) -> Arc<str> {
        self.current.as_ref().map_or_else(|| Arc::from(self.name.as_str()), |link| Arc::clone(&link.label))
    }

    fn names(&self) -> (Arc<str>, Box<str>) {
        let label = self.label();
        let source = format!("ws:{label}").into();
        (label, source)
    }
}

/// The pipeline has taken a draft; never, if none was offered.
async fn submitted(submitting: &mut Option<(Submitting, Monotonic)>) -> Result<Pending, AcceptError> {
    match submitting {
        Some((submit, _)) => submit.await,
        None => std::future::pending().await,
    }
}

/// The next frame of either socket. May be dropped midway.
async fn read(
    current: &mut Option<Link>,
    standby: &mut Option<Link>,
    standby_first: bool,
) -> (Which, Result<Frame, tungstenite::Error>) {
    std::future::poll_fn(|cx| {
        let mut sockets = [(Which::Current, &mut *current), (Which::Standby, &mut *standby)];
        if standby_first {
            sockets.reverse();
        }
        for (which, link) in sockets {
            if let Some(link) = link
                && let std::task::Poll::Ready(frame) = link.socket.poll_frame(cx)
            {
                return std::task::Poll::Ready((which, frame));
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// The memory of a list of events, for those of another frame.
fn recycled<'to>(mut events: Vec<Event<'_>>) -> Vec<Event<'to>> {
    events.clear();
    // Of the same size, so that the memory is used again.
    events.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

#[path = "upkeep.rs"]
mod upkeep;
