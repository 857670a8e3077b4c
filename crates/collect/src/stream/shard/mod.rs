//! One connection of a venue, from its first attempt to the end: a task that owns its socket, its successor while there
//! is one, and all that is known of its streams.
//!
//! ```text
//! dial ─▶ Link ─▶ subscribe ─▶ frames ─▶ Core::record ─▶ Draft ─▶ Intake
//!   ▲                 │           │ the pipeline takes nothing: the socket is not read
//!   └──── lost ◀──────┴───────────┘
//! ```
//!
//! Start reading at [`Shard::run`]. Nothing here waits for anything but in [`Shard::turn`].
//!
//! * `frames`: what comes, taken apart; `lifecycle`: sockets opened, lost and replaced; `upkeep`: what is done by the clock

mod frames;
mod lifecycle;
mod upkeep;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use catchment_governor::{FamilyId, Governor};
use catchment_model::{Cause, Clock, Monotonic};
use catchment_pipeline::{AcceptError, Draft, Intake, Pending, Resumed};
use catchment_venues::stream::{Event, Secrets};
use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::acks::Fault;
use super::core::{Core, From};
use super::link::{Link, Route};
use super::mend::mended;
use super::overlap::{Joining, Overlap};
use super::redial::Redial;
use super::rest::{Rest, Returned};
use super::socket::{ConnectError, Dialer, Frame, Socket};
use super::status::{ClockQuality, ConnectionState, ConnectionStatus, ms};
use super::{StreamSettings, events};
use crate::GapNotice;

/// So many frames of one socket before the other has its turn, …
const FRAMES_AT_ONCE: usize = 2_048;
/// … and so many times that before timers have theirs.
const ROUNDS_AT_ONCE: usize = 8;
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
    pub(crate) gaps: Option<mpsc::Sender<GapNotice>>,
    /// Of this venue.
    pub(crate) resumed: Arc<[Resumed]>,
    /// For sockets that want a login.
    pub(crate) secrets: Arc<Secrets>,
    /// How the venue's clock goes: a login is signed with its time.
    pub(crate) venue_clock: watch::Receiver<ClockQuality>,
}

/// Which of the two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Current,
    Standby,
}

type Submitting = Pin<Box<dyn Future<Output = Result<Pending, AcceptError>> + Send>>;
/// What is to be done besides reading.
enum Turn {
    Stop,
    /// The pipeline has taken a draft.
    Submitted(Result<Pending, AcceptError>),
    Dialed(Box<Result<Dialed, tokio::task::JoinError>>),
    Returned(Result<Returned, tokio::task::JoinError>),
    Tick,
}

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
    /// The one stream for whose sake it is wanted. It may come back by itself.
    replace_for: Option<usize>,
    overlap_began: Monotonic,
    /// Since when it may try, its turn having come.
    began: Monotonic,
    dialing: JoinSet<Dialed>,
    /// The attempt stands in line: the venue allows so many connections in a while.
    in_line: Arc<AtomicBool>,
    dial_at: Monotonic,
    opened: u32,
    redial: Redial,
    /// Logins that came to nothing, in a row.
    logins_failed: u32,
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
        let mut core = Core::new(&route, settings, ground.clock.wall(), now);
        core.listener.clone_from(&ground.gaps);
        core.resume(&ground.resumed, &Arc::from(name.as_str()), now);
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
            replace_for: None,
            overlap_began: now,
            began: now,
            dialing: JoinSet::new(),
            in_line: Arc::default(),
            dial_at: now,
            opened: 0,
            logins_failed: 0,
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
        // Once for all turns: to begin and to end such a wait costs more than many a frame.
        let mut stopped = std::pin::pin!(stop.cancelled());
        while !self.is_over {
            match poll_fn(|cx| self.turn(cx, stopped.as_mut(), &mut tick)).await {
                Turn::Stop => break,
                Turn::Submitted(done) => self.submitted(&done),
                Turn::Dialed(dialed) => self.dialed(*dialed),
                Turn::Returned(returned) => self.returned(returned),
                Turn::Tick => self.tick(),
            }
            self.flush();
        }
        self.finish().await;
    }

    /// Takes in what the sockets have, then looks after the rest, once for all that came. Nothing is lost if it is given up.
    fn turn(
        &mut self,
        cx: &mut Context<'_>,
        stopped: Pin<&mut impl Future<Output = ()>>,
        tick: &mut Interval,
    ) -> Poll<Turn> {
        let mut has_more = false;
        for round in 0..ROUNDS_AT_ONCE {
            if self.submitting.is_some() || self.is_over {
                break;
            }
            let Poll::Ready((which, frame)) = self.poll_read(cx) else { break };
            self.frames(which, frame);
            self.flush();
            has_more = round + 1 == ROUNDS_AT_ONCE;
        }
        if stopped.poll(cx).is_ready() || self.is_over {
            return Poll::Ready(Turn::Stop);
        }
        if let Some((submit, _)) = &mut self.submitting
            && let Poll::Ready(done) = submit.as_mut().poll(cx)
        {
            return Poll::Ready(Turn::Submitted(done));
        }
        // To ask those that are empty costs as much as many a frame.
        if !self.dialing.is_empty()
            && let Poll::Ready(Some(dialed)) = self.dialing.poll_join_next(cx)
        {
            return Poll::Ready(Turn::Dialed(Box::new(dialed)));
        }
        if !self.errands.is_empty()
            && let Poll::Ready(Some(returned)) = self.errands.poll_join_next(cx)
        {
            return Poll::Ready(Turn::Returned(returned));
        }
        if tick.poll_tick(cx).is_ready() {
            return Poll::Ready(Turn::Tick);
        }
        if has_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// The next frame of either socket.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<(Which, Result<Frame, tungstenite::Error>)> {
        let mut sockets = [(Which::Current, &mut self.current), (Which::Standby, &mut self.standby)];
        if self.standby_first {
            sockets.reverse();
        }
        for (which, link) in sockets {
            if let Some(link) = link
                && let Poll::Ready(frame) = link.socket.poll_frame(cx)
            {
                return Poll::Ready((which, frame));
            }
        }
        Poll::Pending
    }

    /// A frame has come; there may be more.
    fn frames(&mut self, which: Which, first: Result<Frame, tungstenite::Error>) {
        self.standby_first = which == Which::Current;
        let now = self.ground.clock.monotonic();
        // What one read has brought was received together.
        let mut received_at = self.ground.clock.wall();
        let mut reads = self.reads(which);
        let mut next = Some(first);
        let mut count = 0;
        while count < FRAMES_AT_ONCE {
            let Some(frame) = next.take() else { break };
            match frame {
                Ok(Frame::Close(reason)) => {
                    return self.lost(
                        which,
                        Cause::Disconnect,
                        &format!("the venue closed it: {reason}"),
                        now,
                    );
                }
                Ok(frame) => count += self.frame(which, frame, received_at, now),
                Err(error) => return self.lost(which, Cause::Disconnect, &error.to_string(), now),
            }
            if self.draft.is_full() {
                break;
            }
            next = self.link(which).and_then(|link| link.socket.try_frame());
            if reads != self.reads(which) {
                (reads, received_at) = (self.reads(which), self.ground.clock.wall());
            }
        }
        // What has been read is not lost.
        match next {
            None => {}
            Some(Ok(Frame::Close(reason))) => {
                self.lost(which, Cause::Disconnect, &format!("the venue closed it: {reason}"), now);
            }
            Some(Ok(frame)) => {
                self.frame(which, frame, received_at, now);
            }
            Some(Err(error)) => self.lost(which, Cause::Disconnect, &error.to_string(), now),
        }
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
                    link.acks.refused(&[place], Fault::Refused(reason.clone()), now);
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
        match self.ground.intake.lay(&mut self.draft) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return self.submitted(&Err(error)),
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

    /// How often the socket has brought something.
    fn reads(&mut self, which: Which) -> u64 {
        self.link(which).map_or(0, |link| link.socket.reads())
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
