//! What the writer itself has to say: gaps, for records that were not accepted, damaged or refused.

use std::collections::BTreeMap;

use catchment_model::{Cause, Channel, Envelope, Gap, Payload, RecordId, Source, Symbol, UnixMs, Venue};
use tokio::sync::oneshot;

use super::{RefusedRecord, Submit, Writer};
use crate::books::DropReason;
use crate::draft::{Draft, Keys};
use crate::events;
use crate::frame;
use crate::quarantine::Quarantine;
use crate::reader::{Damage, DamageKind};
use crate::spool::Heard;

/// Records that were not accepted, by stream and reason, until a gap says so.
#[derive(Debug, Default)]
pub(super) struct MissedMap(BTreeMap<(Venue, Channel, DropReason), Missed>);

#[derive(Debug, Clone)]
struct Missed {
    from: UnixMs,
    to: UnixMs,
    records: u64,
    /// The symbol, as JSON has it, while there is only one.
    symbol: Option<String>,
}

impl MissedMap {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a record that is not accepted.
    pub(super) fn add(&mut self, venue: Venue, channel: Channel, reason: DropReason, frame: &[u8]) {
        if channel == Channel::gaps() {
            return; // what it tells of is counted by itself
        }
        let parts = frame::Parts::decode(frame);
        let at = frame::received_at(frame).ms();
        let symbol = &frame[frame::HEAD..][usize::from(parts.symbol)..][..usize::from(parts.symbol_len)];
        let symbol = Some(String::from_utf8_lossy(symbol).into_owned());
        self.join((venue, channel, reason), Missed { from: at, to: at, records: 1, symbol });
    }

    /// Takes over what another one has counted.
    pub(super) fn merge(&mut self, other: MissedMap) {
        for (key, missed) in other.0 {
            self.join(key, missed);
        }
    }

    fn join(&mut self, key: (Venue, Channel, DropReason), more: Missed) {
        match self.0.get_mut(&key) {
            None => {
                self.0.insert(key, more);
            }
            Some(missed) => {
                missed.from = missed.from.min(more.from);
                missed.to = missed.to.max(more.to);
                missed.records += more.records;
                if missed.symbol != more.symbol {
                    missed.symbol = None;
                }
            }
        }
    }

    fn gaps(&self) -> Vec<Told> {
        let gap = |((venue, channel, reason), missed): (&(Venue, Channel, DropReason), &Missed)| {
            let cause = if *reason == DropReason::SpoolFull { Cause::Overflow } else { Cause::Storage };
            let gap = Gap::new(channel.as_str(), missed.from, missed.to, cause).records(missed.records);
            Told { venue: *venue, symbol: missed.symbol.clone(), gap }
        };
        self.0.iter().map(gap).collect()
    }
}

type Stream = (Venue, Channel);

/// A gap and whom it concerns.
struct Told {
    venue: Venue,
    /// As JSON has it; none: all.
    symbol: Option<String>,
    gap: Gap,
}

impl Writer {
    /// What the start noticed becomes the first records.
    pub(super) async fn tell_findings(&mut self) {
        let findings = self.home().take_findings();
        for damage in findings.damage {
            let (told, _) = oneshot::channel();
            self.set_aside(damage, told).await;
        }
        let now = self.wiring.clock.wall().ms();
        let mut gaps = Vec::new();
        let mut tell = |streams: &Heard, cause| {
            let streams = streams.iter().filter(|((_, channel), _)| *channel != Channel::gaps());
            gaps.extend(streams.map(|((venue, channel), since)| {
                let gap = Gap::new(channel.as_str(), (*since).min(now), now, cause);
                Told { venue: *venue, symbol: None, gap }
            }));
        };
        let mut told = Heard::new();
        if findings.unclean {
            events::crash_found(findings.last_seen.len());
            tell(&findings.last_seen, Cause::Crash);
            told.extend(findings.last_seen);
        }
        // Whoever is not listened to now either waits for a start that does.
        let is_live = |((venue, _), _): &(Stream, UnixMs)| self.wiring.live.contains(venue);
        let (resumed, silent): (Heard, Heard) = findings.stopped.into_iter().partition(is_live);
        if !resumed.is_empty() {
            events::stop_found(resumed.len());
            tell(&resumed, Cause::Stopped);
            told.extend(resumed);
            self.cursors_moved = true; // they are to be saved without these
        }
        self.stopped = silent;
        // What is missing until now is told; an end before they are heard of again misses what follows.
        self.heard = told.into_keys().map(|stream| (stream, now)).collect();
        self.write(gaps, MissedMap::new(), Vec::new());
    }

    /// From here on nobody listens, as the next start will tell.
    pub(super) fn note_stop(&mut self) {
        let now = self.wiring.clock.wall().ms();
        let since = self.wiring.last_call.get().copied().unwrap_or(now);
        let live = self.heard.keys().filter(|(venue, _)| self.wiring.live.contains(venue));
        self.stopped.extend(live.map(|stream| (*stream, since)));
    }

    /// Damage is told once, however many sinks come across it.
    pub(super) async fn set_aside(&mut self, damage: Damage, told: oneshot::Sender<()>) {
        if !self.damage_seen.insert((damage.at.segment, damage.at.offset)) {
            return;
        }
        let path = self.home().segment_path(damage.at.segment);
        if damage.kind == DamageKind::Unreadable {
            self.home().mark_unreadable(damage.at.segment);
        }
        let Some(disk) = self.home().maybe_disk() else { return };
        let quarantine = Quarantine::new(disk, &self.config.dir);
        match self.blocking(move |_| quarantine.keep(&path, &damage)).await {
            Ok(kept) => events::damage_found(&damage, &kept),
            Err(error) => events::damage_not_kept(&damage, &error),
        }
        self.wiring.books.damaged();
        if damage.kind == DamageKind::Header {
            return; // no record is lost with it
        }
        let now = self.wiring.clock.wall();
        let until = damage.before_time.unwrap_or(now).min(now);
        let from = damage.after_time.or(damage.before_time).unwrap_or(now).min(until);
        let mut gap = Gap::new("*", from.ms(), until.ms(), Cause::Corruption);
        let id = |seq| RecordId { spool: self.id, seq };
        if let Some(before) = damage.before_seq.filter(|before| *before > damage.after_seq + 1) {
            let count = before - damage.after_seq - 1;
            gap = gap.missing(id(damage.after_seq + 1), id(before - 1)).records(count);
        }
        self.write(vec![Told { venue: Venue::recorder(), symbol: None, gap }], MissedMap::new(), vec![told]);
    }

    pub(super) fn tell_refused(&mut self, records: Vec<RefusedRecord>, told: oneshot::Sender<()>) {
        let gaps = records.into_iter().map(|record| {
            let RefusedRecord { venue, channel, symbol, id, at } = record;
            let gap = Gap::new(channel.as_str(), at, at, Cause::Refused).missing(id, id).records(1);
            Told { venue, symbol: Some(symbol), gap }
        });
        self.write(gaps.collect(), MissedMap::new(), vec![told]);
    }

    /// Says in the data what was not accepted. On a disk that fails it is tried once, with the space of the reserve,
    /// and again when the disk is back.
    pub(super) fn flush_missed(&mut self) {
        let may_tell = self.wound.as_ref().is_none_or(|wound| !wound.told);
        if self.missed.is_empty() || !may_tell {
            return;
        }
        if let Some(wound) = &mut self.wound {
            wound.told = true;
        }
        let missed = std::mem::take(&mut self.missed);
        self.write(missed.gaps(), missed, Vec::new());
    }

    /// Adds gaps to the group past every policy: a few hundred bytes that say what the policies cost.
    fn write(&mut self, gaps: Vec<Told>, missed: MissedMap, waiting: Vec<oneshot::Sender<()>>) {
        if gaps.is_empty() {
            return;
        }
        let now = self.wiring.clock.wall();
        let mut draft = Draft::new(Keys::Off);
        for Told { venue, symbol, gap } in &gaps {
            let json = gap.to_json();
            let symbol =
                symbol.as_ref().and_then(|text| serde_json::from_str::<String>(&format!("\"{text}\"")).ok());
            let envelope = Envelope {
                message_id: None,
                sequence: None,
                exchange: *venue,
                channel: Channel::gaps(),
                symbol: symbol.as_deref().and_then(|text| Symbol::new(text).ok()).unwrap_or(Symbol::ALL),
                server_time: None,
                received_at: now,
                payload: Payload::parse(json.as_bytes()).expect("a gap is JSON on one line"),
                source: Source::RECORDER,
            };
            draft.push(&envelope).expect("a gap is small");
        }
        self.number(Submit { is_own: true, missed, _waiting: waiting, ..Submit::laid(draft, None) });
    }
}
