//! The hall of a venue: who is connected, who listens to what, what is due when, and what becomes of a frame on its way.
//!
//! A frame is made once for a stream (a *feed*) and shared by all who listen to it. Faults are in `trouble.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::codec::{PING, PONG, TEXT};
use super::dialect::Manners;
use super::fault::{Active, LogEntry, StreamFaultKind};
use super::line::{DataOf, Frame, Item, Line};

/// Connections of one venue; one more is turned away.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// A stream: a market, what of it, and which of the venue's forms of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) slot: u32,
    /// `book_delta`, `trades`, `ticker`: see [`super::CHANNELS`].
    pub(crate) channel: &'static str,
    /// The dialect's own: a depth, a wrapping.
    pub(crate) variant: u32,
}

#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) key: Key,
    pub(crate) symbol: String,
    /// The dialect's own count of its frames.
    pub(crate) count: u64,
    subscribers: Vec<(u64, Arc<Line>)>,
    /// A frame that is to follow the next one.
    pub(super) held: Option<Arc<Frame>>,
    /// The last frame sent as it should be: its number and its time.
    pub(super) good: Option<(u64, i64)>,
    /// Log entries that wait for the next such frame, and where in them.
    pub(super) awaiting: Vec<(u64, usize)>,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) line: Arc<Line>,
    /// What it has subscribed to, in that order.
    pub(crate) feeds: Vec<u32>,
    opened_us: i64,
    heard_us: i64,
    told_us: i64,
    pong_us: i64,
    messages: VecDeque<i64>,
}

/// What comes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    FaultBegins(u64),
    FaultEnds(u64),
    Beat { slot: u32, kind: u8 },
    Ping(u64),
    Heartbeat(u64),
    Idle(u64),
    Subscribed(u64),
    Life(u64),
}

/// What a subscription comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admit {
    Yes,
    /// In the venue's words.
    Refuse,
    /// Acknowledged, and nothing comes.
    Silent,
}

#[derive(Debug)]
pub(crate) struct Hall {
    pub(crate) venue: &'static str,
    pub(crate) now_us: i64,
    pub(crate) manners: Manners,
    pub(crate) conns: BTreeMap<u64, Conn>,
    pub(crate) feeds: Vec<Feed>,
    by_key: HashMap<Key, u32>,
    by_slot: HashMap<u32, Vec<u32>>,
    timers: BinaryHeap<Reverse<(i64, Due)>>,
    next_conn: u64,
    /// A slow reader holds the venue up instead of being closed.
    waits: bool,
    queue_max: usize,
    /// Some line is full; nothing more should be made before it has room.
    pub(crate) pressed: bool,
    /// Connections gone that the dialect has not been told of.
    pub(crate) gone: Vec<u64>,
    pub(super) faults: Vec<Active>,
    pub(super) log: VecDeque<LogEntry>,
    pub(super) next_fault: u64,
}

impl Hall {
    pub(crate) fn new(
        venue: &'static str,
        manners: Manners,
        now_us: i64,
        waits: bool,
        queue_max: usize,
    ) -> Self {
        Self {
            venue,
            now_us,
            manners,
            conns: BTreeMap::new(),
            feeds: Vec::new(),
            by_key: HashMap::new(),
            by_slot: HashMap::new(),
            timers: BinaryHeap::new(),
            next_conn: 1,
            waits,
            queue_max,
            pressed: false,
            gone: Vec::new(),
            faults: Vec::new(),
            log: VecDeque::new(),
            next_fault: 1,
        }
    }

    // ---- time ----

    pub(crate) fn arm(&mut self, at_us: i64, due: Due) {
        self.timers.push(Reverse((at_us, due)));
    }

    /// What is due first, if it is due by `until_us`; else when it will be.
    pub(crate) fn next_due(&mut self, until_us: i64) -> Result<(i64, Due), Option<i64>> {
        match self.timers.peek() {
            Some(Reverse((at_us, _))) if *at_us <= until_us => {
                let Reverse(due) = self.timers.pop().expect("just seen");
                Ok(due)
            }
            Some(Reverse((at_us, _))) => Err(Some(*at_us)),
            None => Err(None),
        }
    }

    /// Wall time in milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_us.div_euclid(1_000)
    }

    // ---- connections ----

    pub(crate) fn open(&mut self) -> (u64, Arc<Line>) {
        let (id, now) = (self.next_conn, self.now_us);
        self.next_conn += 1;
        let line = Arc::new(Line::default());
        let conn = Conn {
            line: Arc::clone(&line),
            feeds: Vec::new(),
            opened_us: now,
            heard_us: now,
            told_us: now,
            pong_us: now,
            messages: VecDeque::new(),
        };
        self.conns.insert(id, conn);
        let manners = self.manners;
        for (after, due) in [
            (manners.ping_us, Due::Ping(id)),
            (manners.heartbeat_us, Due::Heartbeat(id)),
            (manners.idle_us, Due::Idle(id)),
            (manners.subscribe_within_us, Due::Subscribed(id)),
            (manners.life_us, Due::Life(id)),
        ] {
            if let Some(after) = after {
                self.arm(now + after, due);
            }
        }
        (id, line)
    }

    /// The connection is gone, by whoever's doing.
    pub(crate) fn left(&mut self, id: u64) {
        let Some(conn) = self.conns.remove(&id) else { return };
        for feed in conn.feeds {
            self.feeds[feed as usize].subscribers.retain(|(other, _)| *other != id);
        }
        self.gone.push(id);
    }

    /// The server ends the connection, after what waits to be written.
    pub(crate) fn hang_up(&mut self, id: u64, how: Item) {
        if let Some(conn) = self.conns.get(&id) {
            conn.line.push(how);
            self.left(id);
        }
    }

    /// Takes note of a client's message; false: it was one too many, and the connection is closed.
    pub(crate) fn heard(&mut self, id: u64) -> bool {
        let (now, manners) = (self.now_us, self.manners);
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        conn.heard_us = now;
        let Some((max, window_us)) = manners.messages else { return true };
        while conn.messages.front().is_some_and(|at| *at + window_us <= now) {
            conn.messages.pop_front();
        }
        conn.messages.push_back(now);
        if conn.messages.len() <= max as usize {
            return true;
        }
        self.hang_up(id, Item::Close(1008, "too many requests"));
        false
    }

    pub(crate) fn pong_came(&mut self, id: u64) {
        let now = self.now_us;
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.pong_us = now;
        }
    }

    pub(crate) fn pong(&mut self, id: u64, payload: &[u8]) {
        self.sign(id, PONG, payload);
    }

    /// Handles what is due at a connection itself; the heartbeat is the dialect's, which is why it is given back.
    pub(crate) fn connection_due(&mut self, due: Due) -> Option<u64> {
        let (now, manners) = (self.now_us, self.manners);
        let (Due::Ping(id) | Due::Heartbeat(id) | Due::Idle(id) | Due::Subscribed(id) | Due::Life(id)) = due
        else {
            return None;
        };
        let conn = self.conns.get(&id)?;
        match due {
            Due::Ping(_) => {
                if manners.pong_within_us.is_some_and(|within| conn.pong_us + within < now) {
                    self.hang_up(id, Item::Cut);
                    return None;
                }
                let mut number = itoa::Buffer::new();
                let stamp = number.format(self.now_ms()).to_owned();
                self.sign(id, PING, stamp.as_bytes());
                self.arm(now + manners.ping_us?, due);
            }
            Due::Heartbeat(_) => {
                self.arm(now + manners.heartbeat_us?, due);
                return Some(id);
            }
            Due::Idle(_) => {
                let quiet_at = conn.heard_us.max(conn.told_us) + manners.idle_us?;
                match quiet_at <= now {
                    true => self.hang_up(id, Item::Close(1001, "idle")),
                    false => self.arm(quiet_at, due),
                }
            }
            Due::Subscribed(_) if conn.feeds.is_empty() => {
                self.hang_up(id, Item::Close(1008, "nothing subscribed"));
            }
            Due::Life(_) => self.hang_up(id, Item::Close(1001, "its time is over")),
            _ => {}
        }
        None
    }

    // ---- what is said ----

    /// An answer to a client; withheld while the connection is frozen.
    pub(crate) fn tell(&mut self, id: u64, text: &[u8]) {
        if self.conns.get(&id).is_some_and(|conn| !conn.line.frozen.load(Ordering::Acquire)) {
            self.sign(id, TEXT, text);
        }
    }

    /// A heartbeat or a pong of the venue's own: a sign of life, which goes on when everything else is frozen.
    pub(crate) fn tell_alive(&mut self, id: u64, text: &[u8]) {
        self.sign(id, TEXT, text);
    }

    fn sign(&mut self, id: u64, opcode: u8, payload: &[u8]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.told_us = self.now_us;
        conn.line.push(Item::Frame(Frame::new(opcode, payload, None)));
        // Whoever asks and asks and does not read the answers is not waited for, whatever drives the time.
        if conn.line.unwritten() > self.queue_max.saturating_mul(2) {
            self.strike_connections(StreamFaultKind::Overflow, &[id], None);
        }
    }

    // ---- streams ----

    /// The stream's number; it is made if nobody asked for it before.
    pub(crate) fn feed(&mut self, key: Key, symbol: &str) -> u32 {
        if let Some(feed) = self.by_key.get(&key) {
            return *feed;
        }
        let id = self.feeds.len() as u32;
        self.feeds.push(Feed {
            key,
            symbol: symbol.to_owned(),
            count: 0,
            subscribers: Vec::new(),
            held: None,
            good: None,
            awaiting: Vec::new(),
        });
        self.by_key.insert(key, id);
        self.by_slot.entry(key.slot).or_default().push(id);
        id
    }

    pub(crate) fn known_feed(&self, key: Key) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The streams of a market that somebody listens to.
    pub(crate) fn heard_feeds(&self, slot: u32, into: &mut Vec<u32>) {
        into.clear();
        let all = self.by_slot.get(&slot).map_or(&[][..], Vec::as_slice);
        into.extend(all.iter().filter(|id| !self.feeds[**id as usize].subscribers.is_empty()));
    }

    /// The connections that get this stream.
    pub(crate) fn subscribers(&self, feed: u32) -> impl Iterator<Item = u64> {
        self.feeds[feed as usize].subscribers.iter().map(|(conn, _)| *conn)
    }

    /// Whether the connection has this stream.
    pub(crate) fn has(&self, conn: u64, feed: u32) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.feeds.contains(&feed))
    }

    /// Puts the connection on the stream's list, unless it is to stay silent.
    pub(crate) fn join(&mut self, id: u64, feed: u32, admit: Admit) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if !conn.feeds.contains(&feed) {
            conn.feeds.push(feed);
        }
        let subscribers = &mut self.feeds[feed as usize].subscribers;
        subscribers.retain(|(other, _)| *other != id);
        if admit == Admit::Yes {
            subscribers.push((id, Arc::clone(&conn.line)));
        }
    }

    /// Takes it off again; false: it was not on it.
    pub(crate) fn leave(&mut self, id: u64, feed: u32) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let before = conn.feeds.len();
        conn.feeds.retain(|other| *other != feed);
        self.feeds[feed as usize].subscribers.retain(|(other, _)| *other != id);
        self.conns.get(&id).is_some_and(|conn| conn.feeds.len() < before)
    }

    /// Sends an update to all who listen.
    pub(crate) fn publish(&mut self, feed: u32, payload: &[u8], first: u64, last: u64) {
        let of = DataOf { feed, first, last, at_us: self.now_us };
        if self.faults.is_empty() && self.feeds[feed as usize].held.is_none() {
            let frame = Frame::new(TEXT, payload, Some(of));
            self.deliver(feed, None, &Item::Frame(frame));
            self.went_well(feed, last);
            return;
        }
        self.publish_in_trouble(of, payload);
    }

    /// Sends a state to one connection: a snapshot, a last trade.
    pub(crate) fn publish_to(&mut self, conn: u64, feed: u32, payload: &[u8], first: u64, last: u64) {
        let of = DataOf { feed, first, last, at_us: self.now_us };
        if self.withheld(of) {
            return;
        }
        let frame = Frame::new(TEXT, payload, Some(of));
        if self.deliver(feed, Some(conn), &Item::Frame(frame)) {
            self.went_well(feed, last);
        }
    }

    /// Sends an array of states to one connection, each of another stream.
    pub(crate) fn publish_parts(
        &mut self,
        conn: u64,
        payload: &[u8],
        parts: Vec<(DataOf, std::ops::Range<usize>)>,
    ) {
        let Some(found) = self.conns.get_mut(&conn) else { return };
        found.told_us = self.now_us;
        if found.line.frozen.load(Ordering::Acquire) {
            for (of, _) in parts {
                self.missed_in_frost(conn, of);
            }
            return;
        }
        let of: Vec<DataOf> = parts.iter().map(|(of, _)| *of).collect();
        found.line.push(Item::Frame(Frame::of_parts(payload, parts)));
        for of in of {
            self.went_well(of.feed, of.last);
        }
    }

    /// Puts an item on the lines of those who listen; false: on none.
    pub(super) fn deliver(&mut self, feed: u32, only: Option<u64>, item: &Item) -> bool {
        let now = self.now_us;
        let (mut frozen, mut slow, mut any) = (Vec::new(), Vec::new(), false);
        for (id, line) in &self.feeds[feed as usize].subscribers {
            if only.is_some_and(|only| only != *id) {
                continue;
            }
            if line.frozen.load(Ordering::Acquire) {
                frozen.push(*id);
                continue;
            }
            any |= line.push(item.clone());
            if line.unwritten() > self.queue_max {
                slow.push(*id);
            }
        }
        if self.manners.idle_us.is_some() {
            for (id, _) in &self.feeds[feed as usize].subscribers {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.told_us = now;
                }
            }
        }
        for id in slow {
            match self.waits {
                true => self.pressed = true,
                false => self.strike_connections(StreamFaultKind::Overflow, &[id], None),
            }
        }
        if !frozen.is_empty()
            && let Item::Frame(frame) | Item::Torn(frame) = item
            && let Some(of) = frame.data
        {
            for id in frozen {
                self.missed_in_frost(id, of);
            }
        }
        any
    }

    /// No line has more to write than half of what it may.
    pub(crate) fn has_room(&self) -> bool {
        self.conns.values().all(|conn| conn.line.unwritten() <= self.queue_max / 2)
    }

    pub(crate) fn is_written(&self) -> bool {
        self.conns.values().all(|conn| conn.line.unwritten() == 0)
    }

    /// How long a connection has lived, in milliseconds.
    pub(crate) fn age_ms(&self, conn: &Conn) -> i64 {
        (self.now_us - conn.opened_us) / 1_000
    }
}
