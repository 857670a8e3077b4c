//! One open socket of a venue: what is asked on it, at which pace, and whether it lives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::Monotonic;
use catchment_venues::stream::{
    Answer, Command, Data, Descriptor, Reader, Scope, SequenceChecker, SequenceRule, Step, Wanted,
};

use super::acks::{AckLedger, AckSettings, Standing};
use super::pace::Pacer;
use super::socket::Socket;

/// A venue's socket and the streams it is to carry.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) descriptor: Descriptor,
    /// An index into the descriptor's sockets.
    pub(crate) socket: usize,
    pub(crate) url: String,
    pub(crate) table: Arc<[Wanted]>,
}

impl Route {
    /// The streams that the venue numbers together, and how.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, SequenceRule)> + '_ {
        let rule = |wanted: &Wanted| self.descriptor.channels()[wanted.channel].sequence;
        let rules = self.table.iter().map(rule).enumerate();
        rules.filter_map(|(place, rule)| {
            rule.filter(|rule| rule.scope == Scope::Connection).map(|rule| (place, rule))
        })
    }
}

/// An open socket.
pub(crate) struct Link {
    pub(crate) socket: Socket,
    pub(crate) reader: Reader,
    pub(crate) acks: AckLedger,
    /// `<socket>-<shard>.<how many it has been>`.
    pub(crate) label: Arc<str>,
    /// As it stands in records.
    pub(crate) source: Box<str>,
    /// Which streams have spoken on it.
    pub(crate) spoke: Vec<bool>,
    pub(crate) opened: Monotonic,
    pub(crate) heard: Monotonic,
    /// Where the venue counts through all that comes over a connection.
    numbers: Option<SequenceChecker>,
    /// The venue has said that it will end it.
    pub(crate) ends: Option<String>,
    login: Login,
    route: Route,
    pacer: Pacer,
    outbox: VecDeque<Outgoing>,
    /// Commands made for this connection.
    number: u64,
    ping_at: Option<Monotonic>,
}

struct Outgoing {
    text: String,
    /// What it subscribes to, with its number.
    subscribes: Option<(u64, Vec<usize>)>,
}

/// Whether anything may be asked for yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    /// The login waits to be sent, or was sent then and is not answered.
    Awaited(Option<Monotonic>),
    /// It was taken, or none is needed.
    Done,
}

impl Link {
    /// `login` is what is said before anything else, where the venue wants that.
    pub(crate) fn new(
        route: &Route,
        socket: Socket,
        label: Arc<str>,
        login: Option<String>,
        acks: AckSettings,
        now: Monotonic,
    ) -> Self {
        let spec = &route.descriptor.sockets()[route.socket];
        let channels = route.descriptor.channels();
        let needs_first = route.table.iter().map(|wanted| channels[wanted.channel].snapshot_first);
        Self {
            socket,
            reader: route.descriptor.reader(route.socket, &route.table),
            acks: AckLedger::new(needs_first, spec.acknowledges(), acks),
            source: format!("ws:{label}").into(),
            label,
            spoke: vec![false; route.table.len()],
            opened: now,
            heard: now,
            numbers: route.counted().next().map(|(_, rule)| SequenceChecker::new(rule)),
            ends: None,
            pacer: Pacer::new(spec.rules.commands.count, spec.rules.commands.window),
            login: if login.is_some() { Login::Awaited(None) } else { Login::Done },
            number: u64::from(login.is_some()),
            outbox: login.into_iter().map(|text| Outgoing { text, subscribes: None }).collect(),
            ping_at: spec.rules.heartbeat.ping_every.map(|every| Monotonic(now.0 + every)),
            route: route.clone(),
        }
    }

    /// The login is not answered yet.
    pub(crate) fn awaits_login(&self) -> bool {
        self.login != Login::Done
    }

    /// The venue has taken the login.
    pub(crate) fn logged_in(&mut self) {
        self.login = Login::Done;
    }

    /// The login was sent, and nothing was said to it for so long.
    pub(crate) fn is_login_overdue(&self, within: Duration, now: Monotonic) -> bool {
        matches!(self.login, Login::Awaited(Some(at)) if now.since(at) >= within)
    }

    /// Asks for whatever is due to be asked for.
    pub(crate) fn subscribe_due(&mut self, now: Monotonic) {
        if self.awaits_login() {
            return;
        }
        for places in self.acks.take_due(now) {
            let wanted: Vec<Wanted> = places.iter().map(|place| self.route.table[*place].clone()).collect();
            let (descriptor, socket) = (self.route.descriptor.clone(), self.route.socket);
            let listed: Vec<usize> =
                places.iter().copied().filter(|place| self.acks.take_listed(*place)).collect();
            let listed: Vec<Wanted> =
                listed.into_iter().map(|place| self.route.table[place].clone()).collect();
            for Command { text, .. } in descriptor.unsubscribe(socket, &listed, &mut self.number) {
                self.outbox.push_back(Outgoing { text, subscribes: None });
            }
            let commands = descriptor.subscribe(socket, &wanted, &mut self.number);
            let mut covered = vec![false; places.len()];
            for Command { text, number, covers } in commands {
                covers.iter().for_each(|at| covered[*at as usize] = true);
                let places = covers.iter().map(|at| places[*at as usize]).collect();
                self.outbox.push_back(Outgoing { text, subscribes: Some((number, places)) });
            }
            // What comes by itself needs no answer.
            for (at, place) in places.iter().enumerate() {
                if !covered[at] {
                    self.acks.acknowledged(*place, now);
                }
            }
        }
    }

    /// Ends one subscription and asks for it anew. False if the venue has no way to do so.
    pub(crate) fn resubscribe(&mut self, place: usize) -> bool {
        let wanted = [self.route.table[place].clone()];
        let (descriptor, socket) = (self.route.descriptor.clone(), self.route.socket);
        let commands = descriptor.unsubscribe(socket, &wanted, &mut self.number);
        if commands.is_empty() {
            return false;
        }
        for Command { text, .. } in commands {
            self.outbox.push_back(Outgoing { text, subscribes: None });
        }
        self.acks.ask_again(place);
        true
    }

    /// Sends what is in line, as far as the pace allows, and a ping when it is time. Gives back what is subscribed by that
    /// at a venue that does not acknowledge.
    pub(crate) fn speak(&mut self, now: Monotonic) -> Result<Vec<usize>, tungstenite::Error> {
        let mut subscribed = Vec::new();
        if self.ping_at.is_some_and(|at| at <= now) && self.pacer.next_at(now) <= now {
            let spec = &self.route.descriptor.sockets()[self.route.socket];
            if let Some(text) = spec.ping(&mut self.number) {
                self.socket.send(text)?;
                self.pacer.sent(now);
            }
            let every = spec.rules.heartbeat.ping_every.unwrap_or(Duration::from_secs(20));
            self.ping_at = Some(Monotonic(now.0 + every));
        }
        while !self.outbox.is_empty() && self.pacer.next_at(now) <= now {
            let Some(Outgoing { text, subscribes }) = self.outbox.pop_front() else { break };
            self.socket.send(text)?;
            self.pacer.sent(now);
            // Nothing else is in line before it is answered.
            if self.login == Login::Awaited(None) {
                self.login = Login::Awaited(Some(now));
            }
            if let Some((number, places)) = subscribes {
                self.acks.sent(number, &places, now);
                let is_taken =
                    |place: &usize| matches!(self.acks.standing(*place), Standing::Acknowledged(_));
                subscribed.extend(places.into_iter().filter(is_taken));
            }
        }
        Ok(subscribed)
    }

    /// What the venue says to a command: which streams it is about. In whole: nothing more will be said to it.
    pub(crate) fn covered(&mut self, answer: &Answer) -> Vec<usize> {
        let named = answer.wanted.iter().map(|place| *place as usize);
        match answer.request {
            Some(id) if answer.wanted.is_empty() => self.acks.answered(id),
            Some(id) => {
                let covers = self.acks.covers(id);
                named.filter(|place| covers.is_empty() || covers.contains(place)).collect()
            }
            None if answer.wanted.is_empty() => self.acks.answered_oldest(),
            None => {
                let listed: Vec<usize> = named.collect();
                self.acks.answered_by(&listed);
                listed
            }
        }
    }

    /// The first and the last number that a message leaves out, where the venue counts through all that comes over a
    /// connection.
    #[inline]
    pub(crate) fn skipped(&mut self, data: &Data<'_>) -> Option<(u64, u64)> {
        let (Some(numbers), Some(sequence)) = (&mut self.numbers, &data.sequence) else { return None };
        let spec = &self.route.descriptor.channels()[self.route.table[data.wanted as usize].channel];
        spec.sequence.filter(|rule| rule.scope == Scope::Connection)?;
        // A snapshot of one stream is one message of the connection like any other.
        match numbers.next(sequence, false) {
            Step::Gap { first_missing, last_missing } => Some((first_missing, last_missing)),
            _ => None,
        }
    }

    /// Nothing at all has come for too long.
    pub(crate) fn is_dead(&self, now: Monotonic) -> bool {
        let rules = &self.route.descriptor.sockets()[self.route.socket].rules;
        now.since(self.heard) > rules.dead_after
    }

    /// When it should be replaced, because the venue will end it.
    pub(crate) fn replace_at(&self, jitter: f64) -> Option<Monotonic> {
        let rules = &self.route.descriptor.sockets()[self.route.socket].rules;
        let life = rules.lifetime?;
        // A twentieth before, but not more than half an hour, and time enough for the overlap; connections that opened
        // together do not end together.
        let margin = (life / 20).clamp((life / 2).min(Duration::from_secs(60)), Duration::from_secs(1_800));
        Some(Monotonic(self.opened.0 + life - margin.mul_f64(0.5 + jitter / 2.0)))
    }

    /// We have not read for this long.
    pub(crate) fn forgive(&mut self, stall: Duration) {
        self.acks.forgive(stall);
        self.heard.0 += stall;
        if let Login::Awaited(Some(at)) = &mut self.login {
            at.0 += stall;
        }
    }
}
