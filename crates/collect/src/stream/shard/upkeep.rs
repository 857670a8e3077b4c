//! What a connection does by the clock, a few times a second: nothing here is on the way of a message.

use catchment_model::{Cause, Monotonic};

use super::super::acks::Standing;
use super::super::core::From;
use super::super::records::{self, Of};
use super::super::silence::Finding;
use super::super::status::Trouble;
use super::{ConnectionState, ConnectionStatus, SNAPSHOTS_MAX, Shard, Which, events, ms};

impl Shard {
    pub(super) fn upkeep(&mut self, now: Monotonic) {
        self.connect(now);
        // While the pipeline takes nothing we do not listen, so silence means nothing.
        let listens = self.submitting.is_none();
        if self.look_at <= now {
            self.look_at = Monotonic(now.0 + self.ground.settings.look_every);
            if listens {
                self.look(now);
            }
            self.tell_gaps(now);
        }
        if listens {
            self.begin_anew(now);
            self.ask_for_snapshots(now);
        }
        for which in [Which::Current, Which::Standby] {
            if let Some(link) = self.link(which) {
                link.subscribe_due(now);
                self.speak(which, now);
            }
        }
        if self.tell_at <= now {
            self.tell_at = Monotonic(now.0 + std::time::Duration::from_secs(1));
            self.tell_status(now);
        }
    }

    /// Connects where a connection is missing, or is to be replaced.
    fn connect(&mut self, now: Monotonic) {
        if let Some(link) = &mut self.current
            && self.standby.is_none()
            && self.overlap.is_none()
        {
            let is_old = link.replace_at(self.jitter).is_some_and(|at| at <= now);
            let age = || is_old.then(|| "the venue ends connections of its age".to_owned());
            if let Some(reason) = link.ends.take().or_else(age) {
                self.want_replacement(reason);
            }
        }
        if self.replace_for.is_some_and(|place| self.core.gaps.open(place).is_none()) {
            self.keep_current();
        }
        let is_wanted = self.current.is_none() || (self.replace.is_some() && self.standby.is_none());
        if is_wanted && self.dialing.is_empty() && self.dial_at <= now {
            self.dial();
        }
        // Who merely stands in line behind other connections has not begun to listen, and misses nothing.
        if self.is_in_line() && !self.is_held() {
            self.began = now;
        }
        // Nobody has failed to reach the venue yet: it is held, or does not answer.
        let is_told = self.core.gaps.open_count() > 0;
        let is_late = now.since(self.began) >= self.ground.settings.gaps.tell_after;
        if self.current.is_none() && !is_told && is_late {
            let label = self.label();
            self.not_reached(&label, now);
        }
        if let (Some(standby), Some(overlap)) = (&self.standby, &mut self.overlap) {
            if standby.acks.is_settled() {
                overlap.settled(now);
            }
            if overlap.is_ripe(now) {
                self.switch(None, now);
            }
        } else if self.overlap.as_ref().is_some_and(|overlap| overlap.is_over(now)) {
            self.overlap = None;
        }
    }

    fn look(&mut self, now: Monotonic) {
        let within = self.ground.settings.acks.ack_within;
        for which in [Which::Current, Which::Standby] {
            let Some(link) = self.link(which) else { continue };
            if link.is_dead(now) {
                let silent = now.since(link.heard);
                self.lost(which, Cause::Silence, &format!("nothing came for {} ms", ms(silent)), now);
                continue;
            }
            if link.is_login_overdue(within, now) {
                self.lost(which, Cause::Failure, "the venue did not answer the login", now);
                continue;
            }
            for (place, fault) in link.acks.look(now) {
                self.failed(which, place, &fault.to_string(), now);
            }
        }
        for finding in self.core.silence.look(now) {
            match finding {
                Finding::Ask(place) => {
                    self.core.counts.witnesses += 1;
                    let (rest, wanted) = (self.ground.rest.clone(), self.route.table[place].clone());
                    self.errands.spawn(rest.witness(place, wanted));
                }
                Finding::Frozen(place, silence) => {
                    let stream = &mut self.core.streams[place];
                    stream.strikes += 1;
                    let strikes = stream.strikes;
                    events::frozen(self.core.venue, stream.channel.as_str(), &stream.symbol, silence);
                    self.core.counts.frozen += 1;
                    let label = self.label();
                    self.core.gaps.interrupt(place, Cause::Silence, &label, now);
                    self.resubscribe(place, strikes > 1);
                }
                Finding::AllFrozen => {
                    events::all_frozen(self.core.venue, &self.label());
                    self.core.counts.frozen += 1;
                    self.lost(Which::Current, Cause::Silence, "it was frozen, though it answered", now);
                }
            }
        }
        for desk in 0..self.core.desks.len() {
            let reaction = self.core.desks[desk].look(now);
            if self.core.desks[desk].take_proved() {
                let (place, wall) = (self.core.place_of(desk), self.ground.clock.wall());
                self.core.proved(place, wall, &mut self.draft);
            }
            if reaction == super::super::books::Reaction::None {
                continue;
            }
            let (label, source) = self.names();
            let received_at = self.ground.clock.wall();
            let from = From { label: &label, source: &source, received_at, now };
            let place = self.core.place_of(desk);
            self.core.react(desk, place, reaction, None, from, &mut self.draft);
        }
        self.write_books(now);
    }

    /// Books are written whole now and then, and once a minute what was checked of them.
    fn write_books(&mut self, now: Monotonic) {
        let is_summary_due = self.summary_at <= now;
        let period = self.ground.settings.summary_interval;
        if is_summary_due {
            self.summary_at = Monotonic(now.0 + period);
        }
        let every = self.ground.settings.snapshot_interval;
        let (label, source) = self.names();
        let received_at = self.ground.clock.wall();
        let from = From { label: &label, source: &source, received_at, now };
        for desk in 0..self.core.desks.len() {
            // The rest the next time: what is gathered here is held in memory.
            if self.draft.is_full() {
                break;
            }
            let place = self.core.place_of(desk);
            if self.core.desks[desk].take_snapshot_due(every, now) {
                self.core.write_book(desk, place, from, &mut self.draft);
            }
            if is_summary_due {
                let stream = &self.core.streams[place];
                let record = self.core.desks[desk].summary(stream.channel.as_str(), &label, period);
                let symbol = Some(&*stream.symbol);
                let of = Of { venue: self.core.venue, symbol, now: received_at, source: &source };
                let pushed = records::push_check(&mut self.draft, of, &record);
                self.core.counts.unrecorded += u64::from(pushed.is_err());
            }
        }
    }

    fn tell_gaps(&mut self, now: Monotonic) {
        let wall = self.ground.clock.wall();
        for told in self.core.gaps.look(now, wall.ms()) {
            self.core.tell(&told, wall, &mut self.draft);
        }
    }

    /// Subscribes anew to the books whose time has come.
    fn begin_anew(&mut self, now: Monotonic) {
        if self.core.resubscribe.is_empty() || self.current.is_none() {
            return;
        }
        let mut due = Vec::new();
        self.core.resubscribe.retain(|(place, at)| {
            if *at <= now {
                due.push(*place);
            }
            *at > now
        });
        due.sort_unstable();
        due.dedup();
        for place in due {
            self.resubscribe(place, false);
        }
    }

    /// Subscribes one stream anew; the whole connection if that did not help, or cannot be done.
    fn resubscribe(&mut self, place: usize, is_in_vain: bool) {
        self.core.silence.unsubscribed(place);
        // Whatever its book was, changes are missing: it is none before the snapshot.
        if let Some(desk) = self.core.desk_of(place)
            && !self.core.desks[desk].over_rest
        {
            self.core.desks[desk].reset();
        }
        let done = self.current.as_mut().is_some_and(|link| !is_in_vain && link.resubscribe(place));
        if !done {
            let stream = &self.core.streams[place];
            let reason = format!("{} of {} cannot be begun anew", stream.channel, stream.symbol);
            if self.replace.is_none() {
                self.want_replacement(reason);
                self.replace_for = Some(place).filter(|_| self.replace.is_some());
            }
        }
    }

    fn ask_for_snapshots(&mut self, now: Monotonic) {
        for desk in 0..self.core.desks.len() {
            if self.snapshots_under_way == SNAPSHOTS_MAX {
                return;
            }
            if self.core.desks[desk].take_ask(now) {
                let place = self.core.place_of(desk);
                self.snapshots_under_way += 1;
                let (rest, wanted) = (self.ground.rest.clone(), self.route.table[place].clone());
                self.errands.spawn(rest.snapshot(place, wanted));
            }
        }
    }

    pub(super) fn tell_status(&mut self, now: Monotonic) {
        let link = self.current.as_ref();
        let (subscribed, _) = link.map_or((0, 0), |link| link.acks.counts());
        let state = match (&self.current, &self.standby) {
            (Some(_), Some(_)) => ConnectionState::Switching,
            (Some(link), None) if link.acks.is_live() => ConnectionState::Live,
            (Some(_), None) => ConnectionState::Subscribing,
            (None, _) if !self.dialing.is_empty() => ConnectionState::Connecting,
            (None, _) => ConnectionState::Waiting,
        };
        let troubles = link.into_iter().flat_map(|link| {
            let bad = (0..self.core.streams.len()).filter_map(|place| {
                let fault = link.acks.fault(place)?;
                matches!(link.acks.standing(place), Standing::Resting(_)).then(|| Trouble {
                    channel: self.core.streams[place].channel.to_string(),
                    symbol: self.core.streams[place].symbol.to_string(),
                    reason: fault.to_string(),
                })
            });
            bad.take(16)
        });
        let status = ConnectionStatus {
            name: self.label().to_string(),
            state,
            up_s: link.map_or(0, |link| now.since(link.opened).as_secs()),
            silent_ms: link.map(|link| ms(now.since(link.heard))),
            streams: self.core.streams.len(),
            subscribed,
            troubles: troubles.collect(),
            frozen: self.core.silence.frozen(),
            gaps_open: self.core.gaps.open_count(),
            books_live: self.core.desks.iter().filter(|desk| desk.is_live()).count(),
            books: self.core.desks.len(),
            is_held_up: self.submitting.is_some(),
            last_error: self.last_error.clone(),
            counts: self.core.counts,
            lag_ms: self.core.lag.mean(),
            lag_jitter_ms: self.core.lag.jitter(),
        };
        self.status.send_replace(status);
    }
}
