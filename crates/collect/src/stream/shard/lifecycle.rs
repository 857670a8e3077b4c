//! Sockets of a connection: opened, lost, and replaced without a break.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use catchment_governor::{Ask, HoldCause, Lane, Report};
use catchment_model::{Cause, Monotonic, UnixMs};
use catchment_venues::stream::{Event, LoginError};

use super::{Dialed, FRAMES_AT_ONCE, From, Link, Overlap, Shard, Which, events};
use crate::stream::acks::Standing;
use crate::stream::books::Desk;
use crate::stream::socket::ConnectError;

impl Shard {
    /// A socket is gone.
    pub(super) fn lost(&mut self, which: Which, cause: Cause, reason: &str, now: Monotonic) {
        let mut wait = self.redial.lost(now);
        if self.link(which).is_some_and(|link| link.awaits_login()) {
            wait = wait.max(self.login_failed());
        }
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
        (self.replace, self.replace_for) = (None, None);
        self.interrupt_all(cause, &label, now);
    }

    /// A login came to nothing. What is wrong with it is seldom mended by itself, and venues lock out those who go on
    /// trying: the next attempt waits as long as that of a subscription that was refused.
    fn login_failed(&mut self) -> Duration {
        self.core.counts.logins_failed += 1;
        self.logins_failed = self.logins_failed.saturating_add(1);
        let acks = self.ground.settings.acks;
        acks.again_after.saturating_mul(1 << (self.logins_failed - 1).min(16)).min(acks.again_max)
    }

    /// The login of a new socket, where the venue wants one.
    fn login(&self) -> Result<Option<String>, LoginError> {
        let quality = *self.ground.venue_clock.borrow();
        // What is within the error of the measurement is not corrected.
        let offset = quality.offset_ms.zip(quality.uncertainty_ms);
        let offset =
            offset.filter(|(offset, within)| offset.abs() > *within).map_or(0, |(offset, _)| offset as i64);
        let ours = self.ground.clock.wall().ms();
        let theirs = UnixMs::new(ours.get().saturating_add(offset)).unwrap_or(ours);
        let login = self.route.descriptor.login(self.route.socket, &self.ground.secrets, theirs, &mut 0)?;
        Ok(login.map(|command| command.text))
    }

    pub(super) fn interrupt_all(&mut self, cause: Cause, label: &Arc<str>, now: Monotonic) {
        for place in 0..self.core.streams.len() {
            self.core.gaps.interrupt(place, cause, label, now);
            self.core.silence.unsubscribed(place);
        }
        self.core.desks.iter_mut().for_each(Desk::reset);
        self.core.resubscribe.clear();
    }

    pub(super) fn want_replacement(&mut self, reason: String) {
        if self.replace.is_none() && self.standby.is_none() && self.current.is_some() {
            events::switching(self.core.venue, &self.label(), &reason);
            self.replace = Some(reason);
            self.dial_at = self.ground.clock.monotonic();
        }
    }

    /// What a new socket was wanted for has mended itself: the present one stays. A new one may be worse, for whatever was
    /// wrong with the stream may be wrong there as well.
    pub(super) fn keep_current(&mut self) {
        if let Some(mut standby) = self.standby.take() {
            standby.socket.close();
            self.overlap = None;
        }
        (self.replace, self.replace_for) = (None, None);
    }

    /// The new socket takes over. If the old one is gone already, `gone` says why and which it was.
    pub(super) fn switch(&mut self, gone: Option<(Cause, Arc<str>)>, now: Monotonic) {
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
        // The snapshots with which the new one began were not those of these books. One that has none begins anew.
        for desk in 0..self.core.desks.len() {
            if !self.core.desks[desk].over_rest && !self.core.desks[desk].is_live() {
                self.core.resubscribe.push((self.core.place_of(desk), now));
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
        (self.replace, self.replace_for) = (None, None);
    }

    /// An attempt to connect has ended.
    pub(super) fn dialed(&mut self, dialed: Result<Dialed, tokio::task::JoinError>) {
        let now = self.ground.clock.monotonic();
        let (outcome, label, took) = match dialed {
            Ok(dialed) => dialed,
            Err(error) => {
                let wait = self.redial.lost(now);
                self.dial_at = Monotonic(now.0 + wait);
                self.last_error = Some(error.to_string());
                let label = self.label();
                return self.not_reached(&label, now);
            }
        };
        match outcome {
            Ok(socket) => {
                self.redial.up(now);
                let is_standby = self.current.is_some();
                if is_standby && self.replace.is_none() {
                    // It is not wanted any more.
                    let mut socket = socket;
                    return socket.close();
                }
                events::connected(self.core.venue, &label, is_standby, took);
                let login = match self.login() {
                    Ok(login) => login,
                    Err(error) => {
                        // It was tried at the start, so this is no matter of the configuration.
                        let wait = self.redial.lost(now).max(self.login_failed());
                        self.dial_at = Monotonic(now.0 + wait);
                        self.last_error = Some(error.to_string());
                        return self.not_reached(&label, now);
                    }
                };
                let mut link = Link::new(&self.route, socket, label, login, self.ground.settings.acks, now);
                if self.ground.settings.through_values {
                    link.reader.go_through_values();
                }
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
                self.not_reached(&label, now);
            }
        }
    }

    /// There is no socket yet, and the attempt to get one came to nothing. One that was lost has its gap already; if there
    /// never was one, what is missing is missing since the start.
    pub(super) fn not_reached(&mut self, label: &Arc<str>, now: Monotonic) {
        if self.current.is_some() {
            return;
        }
        let held = self.ground.governor.snapshot().hold;
        let cause = match held {
            Some((_, HoldCause::Ban)) => Cause::Ban,
            Some((_, HoldCause::Refused | HoldCause::RetryAfter)) => Cause::Cooldown,
            Some((_, HoldCause::Failures)) | None => Cause::Disconnect,
        };
        self.interrupt_all(cause, label, now);
    }

    /// An attempt to connect waits for those of others before it.
    pub(super) fn is_in_line(&self) -> bool {
        self.in_line.load(Ordering::Relaxed)
    }

    /// The venue has asked us to wait, or has banned us.
    pub(super) fn is_held(&self) -> bool {
        self.ground.governor.snapshot().hold.is_some()
    }

    pub(super) fn dial(&mut self) {
        self.opened += 1;
        self.core.counts.connects += 1;
        let label: Arc<str> = format!("{}.{}", self.name, self.opened).into();
        let (governor, dialer, url) =
            (self.ground.governor.clone(), self.ground.dialer.clone(), self.route.url.clone());
        let (ask, clock) = (Ask::new(self.family, Lane::Live), Arc::clone(&self.ground.clock));
        let in_line = Arc::clone(&self.in_line);
        in_line.store(true, Ordering::Relaxed);
        self.dialing.spawn(async move {
            let permit = governor.acquire(ask).await;
            in_line.store(false, Ordering::Relaxed);
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
}
