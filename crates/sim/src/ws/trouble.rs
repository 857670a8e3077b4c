//! The part of the hall where things go wrong: faults begin, strike, end, and are written down.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::CHANNELS;
use super::codec::{BINARY, TEXT};
use super::dialect::Dialect;
use super::fault::{Active, Affected, LOG_MAX, LogEntry, STREAMS_MAX, StreamFault, StreamFaultKind as Kind};
use super::hall::{Admit, Due, Hall};
use super::line::{DataOf, Frame, Item};

/// What an oversized frame has unless told otherwise: beyond the 16 MiB that clients usually take.
const OVERSIZED: u32 = (16 << 20) + 1_024;
const OVERSIZED_MAX: u32 = 256 << 20;

impl Hall {
    /// Puts a fault in force. Gives its number in the log, or what is wrong with it.
    pub(crate) fn inject(&mut self, dialect: &mut dyn Dialect, wanted: &StreamFault) -> Result<u64, String> {
        let slot = match &wanted.symbol {
            None => None,
            Some(symbol) => Some(
                dialect
                    .find(symbol)
                    .ok_or_else(|| format!("there is no symbol {symbol} at {}", self.venue))?,
            ),
        };
        if let Some(channel) = &wanted.channel
            && !CHANNELS.contains(&channel.as_str())
        {
            return Err(format!("channel {channel} is none of {}", CHANNELS.join(", ")));
        }
        let lacks = match wanted.fault {
            Kind::WrongChecksum if !self.manners.has_checksum => Some("no checksum that could be wrong"),
            Kind::Restart if !self.manners.has_restart => Some("no numbers that begin anew"),
            Kind::Notice if !self.manners.has_notice => Some("no words for that"),
            Kind::TickSize if !self.manners.has_tick_size => Some("no tick sizes that change"),
            Kind::Overflow => Some("no say in whether a client reads"),
            _ => None,
        };
        if let Some(lacks) = lacks {
            return Err(format!("{} has {lacks}", self.venue));
        }
        if matches!(wanted.fault, Kind::Restart | Kind::TickSize) && slot.is_none() {
            return Err("this fault needs a symbol".to_owned());
        }
        if wanted.count == 0 || wanted.bytes.is_some_and(|bytes| bytes == 0 || bytes > OVERSIZED_MAX) {
            return Err("count and bytes are at least 1, bytes at most 268435456".to_owned());
        }
        let id = self.open_entry(wanted.fault);
        let from_us = self.now_us + wanted.after_ms as i64 * 1_000;
        self.faults.push(Active {
            id,
            kind: wanted.fault,
            slot,
            channel: wanted.channel.clone(),
            connection: wanted.connection,
            feed: None,
            left: wanted.count,
            for_us: wanted.for_ms.map(|ms| ms as i64 * 1_000),
            bytes: wanted.bytes,
            on: Vec::new(),
            begun: false,
        });
        match wanted.after_ms {
            0 => self.begin(dialect, id),
            _ => self.arm(from_us, Due::FaultBegins(id)),
        }
        Ok(id)
    }

    fn open_entry(&mut self, fault: Kind) -> u64 {
        let id = self.next_fault;
        self.next_fault += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(LogEntry {
            id,
            fault,
            venue: self.venue,
            asked_ms: self.now_ms(),
            from_ms: None,
            to_ms: None,
            connections: Vec::new(),
            streams: Vec::new(),
        });
        id
    }

    /// The stream's next frame meets this fault: for venues that go wrong by themselves.
    pub(crate) fn strike_feed(&mut self, kind: Kind, feed: u32) {
        let id = self.open_entry(kind);
        self.faults.push(Active {
            id,
            kind,
            slot: None,
            channel: None,
            connection: None,
            feed: Some(feed),
            left: 1,
            for_us: None,
            bytes: None,
            on: Vec::new(),
            begun: true,
        });
    }

    /// These connections meet this fault now.
    pub(crate) fn strike_connections(&mut self, kind: Kind, conns: &[u64], for_us: Option<i64>) {
        let id = self.open_entry(kind);
        self.write_down(id, |entry| entry.connections = conns.to_vec());
        self.began(id);
        for conn in conns {
            let Some(found) = self.conns.get(conn) else { continue };
            let line = Arc::clone(&found.line);
            for feed in found.feeds.clone() {
                self.note(id, feed, None);
            }
            match kind {
                Kind::Freeze => line.frozen.store(true, Ordering::Release),
                Kind::Overflow => self.hang_up(*conn, Item::Close(1008, "too slow")),
                _ => self.hang_up(*conn, Item::Cut),
            }
        }
        let Some(for_us) = for_us else { return self.over(id) };
        self.arm(self.now_us + for_us, Due::FaultEnds(id));
        self.faults.push(Active {
            id,
            kind,
            slot: None,
            channel: None,
            connection: None,
            feed: None,
            left: 1,
            for_us: Some(for_us),
            bytes: None,
            on: conns.to_vec(),
            begun: true,
        });
    }

    /// The time of the fault has come.
    pub(crate) fn begin(&mut self, dialect: &mut dyn Dialect, id: u64) {
        let Some(at) = self.faults.iter().position(|fault| fault.id == id) else { return };
        self.faults[at].begun = true;
        let (kind, for_us, slot) = (self.faults[at].kind, self.faults[at].for_us, self.faults[at].slot);
        if kind.lasts() {
            self.began(id);
            if let Some(for_us) = for_us {
                self.arm(self.now_us + for_us, Due::FaultEnds(id));
            }
        }
        if kind.is_of_connections() {
            let targets = self.targets(at);
            self.faults[at].on.clone_from(&targets);
            self.write_down(id, |entry| entry.connections.clone_from(&targets));
            self.began(id);
            for conn in targets {
                self.strike(dialect, id, kind, conn);
            }
            if !kind.lasts() {
                self.over(id);
            }
        }
        if matches!(kind, Kind::Restart | Kind::TickSize) {
            self.began(id);
            if let Some(slot) = slot {
                dialect.happen(self, kind, slot);
            }
            self.over(id);
        }
    }

    fn targets(&self, at: usize) -> Vec<u64> {
        let fault = &self.faults[at];
        let concerns = |feed: &u32| {
            let key = &self.feeds[*feed as usize].key;
            fault.slot.is_none_or(|slot| slot == key.slot)
                && fault.channel.as_deref().is_none_or(|channel| channel == key.channel)
        };
        let all = self.conns.iter().filter(|(id, _)| fault.connection.is_none_or(|only| only == **id));
        let anything = fault.slot.is_none() && fault.channel.is_none();
        all.filter(|(_, conn)| anything || conn.feeds.iter().any(concerns)).map(|(id, _)| *id).collect()
    }

    fn strike(&mut self, dialect: &mut dyn Dialect, fault: u64, kind: Kind, conn: u64) {
        let Some(found) = self.conns.get(&conn) else { return };
        let line = Arc::clone(&found.line);
        let bytes = self.faults.iter().find(|other| other.id == fault).and_then(|fault| fault.bytes);
        if matches!(kind, Kind::Freeze | Kind::Cut | Kind::Reset | Kind::Close) {
            for feed in found.feeds.clone() {
                self.note(fault, feed, None);
            }
        }
        match kind {
            Kind::Freeze => line.frozen.store(true, Ordering::Release),
            Kind::Deaf => line.deaf.store(true, Ordering::Release),
            Kind::Trickle => line.trickle.store(bytes.unwrap_or(100), Ordering::Release),
            Kind::Cut => self.hang_up(conn, Item::Cut),
            Kind::Reset => self.hang_up(conn, Item::Reset),
            Kind::Close => self.hang_up(conn, Item::Close(1001, "going away")),
            Kind::Notice => dialect.notice(self, conn),
            _ => {}
        }
    }

    /// The time of the fault is over, or it is lifted.
    pub(crate) fn end(&mut self, id: u64) {
        let Some(at) = self.faults.iter().position(|fault| fault.id == id) else { return };
        let (kind, on) = (self.faults[at].kind, std::mem::take(&mut self.faults[at].on));
        self.over(id);
        for conn in on {
            let others =
                |kind: Kind| self.faults.iter().any(|other| other.kind == kind && other.on.contains(&conn));
            let Some(found) = self.conns.get(&conn) else { continue };
            match kind {
                Kind::Freeze if !others(kind) => found.line.frozen.store(false, Ordering::Release),
                Kind::Deaf if !others(kind) => {
                    found.line.deaf.store(false, Ordering::Release);
                    found.line.hears_again.notify_one();
                }
                Kind::Trickle if !others(kind) => found.line.trickle.store(0, Ordering::Release),
                Kind::Notice => self.hang_up(conn, Item::Close(1001, "going away")),
                _ => {}
            }
        }
    }

    /// Lifts everything.
    pub(crate) fn lift(&mut self) {
        let ids: Vec<u64> = self.faults.iter().map(|fault| fault.id).collect();
        for id in ids {
            self.end(id);
        }
        let held: Vec<(u32, Arc<Frame>)> =
            (0..).zip(&mut self.feeds).filter_map(|(id, feed)| Some((id, feed.held.take()?))).collect();
        for (feed, frame) in held {
            self.deliver(feed, None, &Item::Frame(frame));
        }
    }

    // ---- frames ----

    /// Whether the dialect is to spoil the checksum of the stream's next frame.
    pub(crate) fn spoils(&self, feed: u32) -> bool {
        self.faults.iter().any(|fault| fault.kind == Kind::WrongChecksum && self.concerns(fault, feed))
    }

    fn concerns(&self, fault: &Active, feed: u32) -> bool {
        let key = &self.feeds[feed as usize].key;
        fault.begun
            && fault.left > 0
            && !fault.kind.is_of_connections()
            && fault.feed.is_none_or(|only| only == feed)
            && fault.slot.is_none_or(|slot| slot == key.slot)
            && fault.channel.as_deref().is_none_or(|channel| channel == key.channel)
    }

    /// The stream is muted; what was to be sent is written down.
    pub(super) fn withheld(&mut self, of: DataOf) -> bool {
        let muted =
            self.faults.iter().find(|fault| fault.kind == Kind::Mute && self.concerns(fault, of.feed));
        let Some(id) = muted.map(|fault| fault.id) else { return false };
        self.note(id, of.feed, Some(of));
        true
    }

    pub(super) fn publish_in_trouble(&mut self, of: DataOf, payload: &[u8]) {
        if self.withheld(of) {
            return;
        }
        let feed = of.feed;
        let mut frame = Frame::new(TEXT, payload, Some(of));
        let (mut twice, mut hold, mut well) = (false, false, true);
        for at in 0..self.faults.len() {
            let swaps_already =
                self.faults[at].kind == Kind::Reorder && self.feeds[feed as usize].held.is_some();
            let of_frames = !matches!(self.faults[at].kind, Kind::Refuse | Kind::SilentAck);
            if swaps_already || !of_frames || !self.concerns(&self.faults[at], feed) {
                continue;
            }
            let fault = &mut self.faults[at];
            fault.feed = Some(feed); // what begins with one stream stays with it
            fault.left -= 1;
            let (id, kind, bytes) = (fault.id, fault.kind, fault.bytes);
            let only = fault.connection;
            self.began(id);
            self.note(id, feed, Some(of));
            well &= matches!(kind, Kind::Binary | Kind::Oversized | Kind::Duplicate);
            match kind {
                Kind::Gap => {
                    self.tidy();
                    return;
                }
                Kind::Duplicate => twice = true,
                Kind::Reorder => hold = true,
                Kind::Truncated => frame = Frame::new(TEXT, &payload[..payload.len() / 2], None),
                Kind::NotUtf8 => {
                    let mut broken = payload.to_vec();
                    let middle = broken.len() / 2;
                    broken[middle] = 0xff;
                    frame = Frame::new(TEXT, &broken, None);
                }
                Kind::Torn => {
                    let struck: Vec<u64> = self.listeners(feed, only);
                    self.deliver(feed, only, &Item::Torn(Frame::new(TEXT, payload, None)));
                    self.write_down(id, |entry| entry.connections.clone_from(&struck));
                    for conn in struck {
                        for other in self.conns.get(&conn).map(|conn| conn.feeds.clone()).unwrap_or_default()
                        {
                            self.note(id, other, None);
                        }
                        self.left(conn);
                    }
                }
                Kind::Binary => {
                    let rubbish: Vec<u8> = (0..=255).collect();
                    self.deliver(feed, only, &Item::Frame(Frame::new(BINARY, &rubbish, None)));
                }
                Kind::Oversized => {
                    let mut huge = b"{\"oversized\":\"".to_vec();
                    huge.resize(bytes.unwrap_or(OVERSIZED).saturating_sub(2).max(20) as usize, b'x');
                    huge.extend_from_slice(b"\"}");
                    self.deliver(feed, only, &Item::Frame(Frame::new(TEXT, &huge, None)));
                }
                _ => {}
            }
        }
        self.tidy();
        if hold && self.feeds[feed as usize].held.is_none() {
            self.feeds[feed as usize].held = Some(frame);
            return;
        }
        let item = Item::Frame(frame);
        self.deliver(feed, None, &item);
        if twice {
            self.deliver(feed, None, &item);
        }
        if well {
            self.went_well(feed, of.last);
        }
        if let Some(held) = self.feeds[feed as usize].held.take() {
            self.deliver(feed, None, &Item::Frame(held));
        }
    }

    fn listeners(&self, feed: u32, only: Option<u64>) -> Vec<u64> {
        let has = |id: &u64| self.conns.get(id).is_some_and(|conn| conn.feeds.contains(&feed));
        self.conns.keys().filter(|id| only.is_none_or(|only| only == **id) && has(id)).copied().collect()
    }

    /// A subscription comes in: is it to be refused, or to stay silent?
    pub(crate) fn admit(&mut self, conn: u64, slot: u32, channel: &'static str) -> Admit {
        let concerned = |fault: &Active| {
            fault.begun
                && matches!(fault.kind, Kind::Refuse | Kind::SilentAck)
                && fault.slot.is_none_or(|only| only == slot)
                && fault.channel.as_deref().is_none_or(|only| only == channel)
                && fault.connection.is_none_or(|only| only == conn)
        };
        let Some(at) = self.faults.iter().position(concerned) else { return Admit::Yes };
        self.faults[at].left -= 1;
        let (id, kind) = (self.faults[at].id, self.faults[at].kind);
        self.began(id);
        self.write_down(id, |entry| {
            if !entry.connections.contains(&conn) {
                entry.connections.push(conn);
            }
        });
        self.tidy();
        if kind == Kind::Refuse { Admit::Refuse } else { Admit::Silent }
    }

    /// Writes down which stream it was that was refused or stays silent.
    pub(crate) fn admitted(&mut self, admit: Admit, feed: u32) {
        let kind = match admit {
            Admit::Yes => return,
            Admit::Refuse => Kind::Refuse,
            Admit::Silent => Kind::SilentAck,
        };
        if let Some(id) = self.log.iter().rev().find(|entry| entry.fault == kind).map(|entry| entry.id) {
            self.note(id, feed, None);
        }
    }

    pub(super) fn missed_in_frost(&mut self, conn: u64, of: DataOf) {
        let frost = self.faults.iter().find(|fault| fault.kind == Kind::Freeze && fault.on.contains(&conn));
        if let Some(id) = frost.map(|fault| fault.id) {
            self.note(id, of.feed, Some(of));
        }
    }

    /// A frame was sent as it should be: entries that waited for it have their end.
    pub(super) fn went_well(&mut self, feed: u32, number: u64) {
        let now_ms = self.now_ms();
        let feed = &mut self.feeds[feed as usize];
        feed.good = Some((number, now_ms));
        if feed.awaiting.is_empty() {
            return;
        }
        for (id, at) in std::mem::take(&mut feed.awaiting) {
            if let Some(affected) = self.entry(id).and_then(|entry| entry.streams.get_mut(at)) {
                (affected.after, affected.after_ms) = (Some(number), Some(now_ms));
            }
        }
    }

    // ---- the log ----

    /// Writes down that the fault concerned this stream, and the update if one was not sent as it should be.
    fn note(&mut self, id: u64, feed: u32, of: Option<DataOf>) {
        let good = self.feeds[feed as usize].good;
        let (channel, symbol) =
            (self.feeds[feed as usize].key.channel, self.feeds[feed as usize].symbol.clone());
        let Some(entry) = self.entry(id) else { return };
        let found = entry.streams.iter().position(|other| other.channel == channel && other.symbol == symbol);
        let at = match found {
            Some(at) => at,
            None if entry.streams.len() == STREAMS_MAX => return,
            None => {
                entry.streams.push(Affected {
                    channel,
                    symbol,
                    first: None,
                    last: None,
                    frames: 0,
                    before: good.map(|(number, _)| number),
                    before_ms: good.map(|(_, ms)| ms),
                    after: None,
                    after_ms: None,
                });
                entry.streams.len() - 1
            }
        };
        let affected = &mut entry.streams[at];
        if let Some(of) = of {
            affected.first.get_or_insert(of.first);
            affected.last = Some(of.last);
            affected.frames += 1;
        }
        (affected.after, affected.after_ms) = (None, None);
        let awaiting = &mut self.feeds[feed as usize].awaiting;
        if !awaiting.contains(&(id, at)) {
            awaiting.push((id, at));
        }
    }

    /// The entry, unless it is so old that it was dropped.
    fn entry(&mut self, id: u64) -> Option<&mut LogEntry> {
        let first = self.log.front()?.id;
        self.log.get_mut(id.checked_sub(first)? as usize)
    }

    fn write_down(&mut self, id: u64, change: impl FnOnce(&mut LogEntry)) {
        if let Some(entry) = self.entry(id) {
            change(entry);
        }
    }

    fn began(&mut self, id: u64) {
        let now_ms = self.now_ms();
        self.write_down(id, |entry| entry.from_ms = entry.from_ms.or(Some(now_ms)));
    }

    fn over(&mut self, id: u64) {
        let now_ms = self.now_ms();
        self.write_down(id, |entry| entry.to_ms = Some(now_ms));
        self.faults.retain(|fault| fault.id != id);
    }

    /// Takes those out of force that have done what they were to do.
    fn tidy(&mut self) {
        let done: Vec<u64> =
            self.faults.iter().filter(|fault| fault.left == 0).map(|fault| fault.id).collect();
        for id in done {
            self.over(id);
        }
    }
}
