//! Lays what was stored beside what the simulation says it sent, withheld and spoilt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use catchment_sim::{JournalEntry, LogEntry, Sim, StreamFaultKind as Kind};

use crate::ledger::{Kept, Kepts, StreamName, ToldGap};
use crate::world::{START_MS, VENUES};

/// A stretch of a stream, by receive times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hole {
    pub(crate) stream: StreamName,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) messages: u64,
    /// Gaps that are as they should be.
    pub(crate) exact: usize,
    /// Frames of no known stream that are told.
    pub(crate) unattributed: usize,
    pub(crate) false_ones: Vec<String>,
    pub(crate) missed: Vec<String>,
    pub(crate) wrong_numbers: Vec<String>,
    pub(crate) lost: Vec<String>,
    pub(crate) doubled: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        [&self.false_ones, &self.missed, &self.wrong_numbers, &self.lost, &self.doubled]
            .iter()
            .all(|list| list.is_empty())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} messages stored, {} lost, {} doubled; {} gaps exact, {} frames of no known stream told, {} gaps false, \
             {} missed, {} with wrong numbers",
            self.messages,
            self.lost.len(),
            self.doubled.len(),
            self.exact,
            self.unattributed,
            self.false_ones.len(),
            self.missed.len(),
            self.wrong_numbers.len(),
        )?;
        if f.alternate() {
            let lists = [
                ("false", &self.false_ones),
                ("missed", &self.missed),
                ("wrong numbers", &self.wrong_numbers),
                ("lost", &self.lost),
                ("doubled", &self.doubled),
            ];
            for (name, list) in lists {
                for line in list.iter().take(60) {
                    writeln!(f, "{name}: {line}")?;
                }
            }
        }
        Ok(())
    }
}

/// A stored message with the time at which it happened at the venue.
#[derive(Debug, Clone, Copy)]
struct Stored {
    kept: Kept,
    at_ms: i64,
}

/// The book is made from a snapshot in the stream: after whatever goes wrong, it is whole with the next one.
fn begins_with_a_snapshot(venue: &str, channel: &str) -> bool {
    channel == "book_delta" && venue != "binance"
}

/// Whether this leaves a hole in the stream.
fn leaves_a_hole(kind: Kind, venue: &str, channel: &str) -> bool {
    match kind {
        Kind::Gap
        | Kind::Truncated
        | Kind::NotUtf8
        | Kind::WrongChecksum
        | Kind::Mute
        | Kind::Freeze
        | Kind::Torn
        | Kind::Cut
        | Kind::Reset
        | Kind::Close
        | Kind::Refuse
        | Kind::SilentAck => true,
        // The venue has broken the rule of its own book, which is begun anew.
        Kind::Reorder => begins_with_a_snapshot(venue, channel),
        Kind::Duplicate
        | Kind::Binary
        | Kind::Oversized
        | Kind::Deaf
        | Kind::Trickle
        | Kind::Notice
        | Kind::Restart
        | Kind::TickSize
        | Kind::Overflow => false,
    }
}

pub(crate) fn judge(sim: &Sim, kepts: &Kepts) -> Verdict {
    let mut verdict = Verdict { messages: kepts.messages, ..Verdict::default() };
    let mut streams: BTreeMap<StreamName, Vec<Stored>> = BTreeMap::new();
    for (name, kept) in &kepts.streams {
        let sent = sim.journal(&name.0, &name.1, &name.2).unwrap();
        streams.insert(name.clone(), compare(name, kept, &sent, &mut verdict));
    }
    let log: Vec<LogEntry> = sim.log().into_iter().filter(|entry| VENUES.contains(&entry.venue)).collect();
    let mut expected: Vec<Expected> = Vec::new();
    for entry in &log {
        for affected in &entry.streams {
            let name = (entry.venue.to_owned(), affected.channel.to_owned(), affected.symbol.clone());
            let Some(stored) = streams.get(&name) else { continue };
            expected.extend(hole(&name, stored, entry));
        }
    }
    let told = joined(&kepts.gaps);
    for (hole, pieces) in &told {
        match is_made_of(hole.from, hole, &expected) {
            true => verdict.exact += 1,
            false => verdict.false_ones.push(format!("{hole:?} {:?}", causes(pieces))),
        }
        expected
            .iter_mut()
            .filter(|expected| expected.lies_in(hole))
            .for_each(|expected| expected.is_told = true);
    }
    for missed in expected.iter().filter(|expected| expected.must && !expected.is_told) {
        let near = |(hole, _): &&(Hole, Vec<&ToldGap>)| {
            let from = missed.from[0];
            hole.stream == missed.stream && hole.to > from - 1_000 && hole.from < from + 60_000
        };
        let near: Vec<String> = told
            .iter()
            .filter(near)
            .map(|(hole, pieces)| format!("{}..{} {:?}", hole.from, hole.to, causes(pieces)))
            .collect();
        verdict.missed.push(format!("{missed:?}; near it: {near:?}"));
    }
    numbers(&log, &told, &mut verdict);
    unattributed(&log, &kepts.gaps, &mut verdict);
    verdict
}

/// What is stored of a stream against what was sent.
fn compare(name: &StreamName, kept: &[Kept], sent: &[JournalEntry], verdict: &mut Verdict) -> Vec<Stored> {
    let mut times: HashMap<u64, Vec<&JournalEntry>> = HashMap::new();
    sent.iter().rev().for_each(|entry| times.entry(entry.hash).or_default().push(entry));
    let mut stored = Vec::with_capacity(kept.len());
    let mut numbers: BTreeSet<u64> = BTreeSet::new();
    for one in kept {
        match times.get_mut(&one.hash).and_then(Vec::pop) {
            Some(entry) => {
                numbers.insert(entry.last);
                stored.push(Stored { kept: *one, at_ms: entry.at_ms });
            }
            None => verdict.doubled.push(format!("{name:?} at {} ({:?})", one.received_ms, one.sequence)),
        }
    }
    // What was sent last was on its way at the end. What says again what is there already, as the first trade or ticker
    // does after a new subscription, is not lost.
    let end = stored.iter().map(|one| one.at_ms).max().unwrap_or(0);
    // The state of a ticker, made for a connection that was to take over: what it says is said by the one that is recorded.
    let is_opening = |entry: &JournalEntry| {
        let first = sent.iter().find(|other| other.connection == entry.connection);
        name.1 == "ticker" && first.is_some_and(|first| std::ptr::eq(first, entry))
    };
    for entry in times.into_values().flatten() {
        if entry.at_ms < end && !numbers.contains(&entry.last) && !is_opening(entry) {
            verdict.lost.push(format!("{name:?} at {} ({})", entry.at_ms, entry.last));
        }
    }
    stored
}

/// A hole that is to be told. There is more than one bound where only a checksum can tell: then it begins with the last
/// message with which the book agreed, and what was lost may have been overwritten.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    stream: StreamName,
    from: Vec<i64>,
    to: Vec<i64>,
    /// Any end between these: that of a stream on which nothing happened.
    quiet_until: Option<(i64, i64)>,
    why: String,
    /// Whether it can be noticed for certain.
    must: bool,
    is_told: bool,
}

impl Expected {
    fn lies_in(&self, hole: &Hole) -> bool {
        self.stream == hole.stream
            && self.from.iter().any(|from| *from >= hole.from)
            && (self.to.iter().any(|to| *to <= hole.to) || self.is_quiet_at(hole.to))
    }

    fn is_quiet_at(&self, to: i64) -> bool {
        self.quiet_until.is_some_and(|(from, until)| from <= to && to <= until)
    }
}

/// Whether the rest of a hole is one of those expected, or several that adjoin: nothing was heard between two faults.
fn is_made_of(from: i64, hole: &Hole, expected: &[Expected]) -> bool {
    let mut begin_here = expected.iter().filter(|one| one.stream == hole.stream && one.from.contains(&from));
    begin_here.any(|one| {
        let mut ends = one.to.iter().copied().filter(|to| *to > from && *to <= hole.to);
        one.is_quiet_at(hole.to) || ends.any(|to| to == hole.to || is_made_of(to, hole, expected))
    })
}

/// The hole that a fault leaves: from the last message before it to the first good one after it.
fn hole(name: &StreamName, stored: &[Stored], entry: &LogEntry) -> Option<Expected> {
    let (venue, channel) = (name.0.as_str(), name.1.as_str());
    let strike = entry.from_ms.filter(|_| leaves_a_hole(entry.fault, venue, channel))?;
    let spoilt = |one: &Stored| entry.fault == Kind::WrongChecksum && one.at_ms == strike;
    // What came late is older than what came before it.
    let latest = if entry.fault == Kind::Reorder { strike - 1 } else { strike };
    let before = stored.iter().rposition(|one| one.at_ms <= latest && !spoilt(one));
    let is_hashed = channel == "book_delta" && matches!(venue, "polymarket" | "kraken");
    let rest = &stored[before.map_or(0, |before| before + 1)..];
    let after = || rest.iter().filter(|one| !spoilt(one));
    let (next, book) = (after().next(), after().find(|one| one.kept.is_snapshot));
    let mut quiet_until = None;
    let to: Vec<i64> = match (venue, begins_with_a_snapshot(venue, channel)) {
        // It ends with the first message that its hash proves, or with a book; a subscription brings one though its
        // market is mute.
        ("polymarket", true) => {
            let mute_until = entry.to_ms.filter(|_| entry.fault == Kind::Mute).unwrap_or(0);
            let end = after().find(|one| one.kept.is_snapshot && one.at_ms >= mute_until);
            let all = rest.iter().map(|one| one.kept.received_ms);
            all.take_while(|at| end.is_none_or(|end| *at <= end.kept.received_ms)).collect()
        }
        // Nothing may happen there for long: then it ends with the new subscription.
        ("polymarket", false) => {
            quiet_until = Some((strike, next?.kept.received_ms));
            vec![next?.kept.received_ms]
        }
        (_, true) => vec![book?.kept.received_ms],
        (_, false) => vec![next?.kept.received_ms],
    };
    let mut from = vec![before.map_or(START_MS, |before| stored[before].kept.received_ms)];
    if is_hashed {
        let until = to.iter().max()?;
        from.extend(rest.iter().map(|one| one.kept.received_ms).take_while(|at| at < until));
    }
    // A hash that is wrong in the middle of a batch is not looked at, and what was lost may be overwritten.
    let is_sure = match entry.fault {
        Kind::Reorder | Kind::Gap => !is_hashed,
        Kind::WrongChecksum | Kind::NotUtf8 | Kind::Truncated => venue != "polymarket",
        _ => true,
    };
    Some(Expected {
        stream: name.clone(),
        from,
        to,
        why: format!("{:?} {} at {strike}", entry.fault, entry.id),
        quiet_until,
        must: is_sure,
        is_told: false,
    })
}

/// Pieces that adjoin are one gap.
fn joined(gaps: &[ToldGap]) -> Vec<(Hole, Vec<&ToldGap>)> {
    let mut by_stream: BTreeMap<StreamName, Vec<&ToldGap>> = BTreeMap::new();
    for told in gaps.iter().filter(|told| told.gap.channel != "*") {
        let name = (told.venue.clone(), told.gap.channel.clone(), told.symbol.clone());
        by_stream.entry(name).or_default().push(told);
    }
    let mut joined: Vec<(Hole, Vec<&ToldGap>)> = Vec::new();
    for (stream, mut pieces) in by_stream {
        pieces.sort_by_key(|told| (told.gap.from_ms, told.gap.to_ms));
        for told in pieces {
            let (from, to) = (told.gap.from_ms.get(), told.gap.to_ms.get());
            match joined.last_mut() {
                Some((hole, all)) if hole.stream == stream && hole.to == from => {
                    hole.to = to;
                    all.push(told);
                }
                _ => joined.push((Hole { stream: stream.clone(), from, to }, vec![told])),
            }
        }
    }
    joined
}

fn causes(pieces: &[&ToldGap]) -> Vec<String> {
    let words = |told: &&ToldGap| {
        let gap = &told.gap;
        format!("{:?} {:?}..{:?} told {}", gap.cause, gap.first_missing, gap.last_missing, told.told_ms)
    };
    pieces.iter().map(words).collect()
}

/// Where messages were simply not sent and the venue numbers them, the gap names exactly those.
fn numbers(log: &[LogEntry], told: &[(Hole, Vec<&ToldGap>)], verdict: &mut Verdict) {
    for entry in log.iter().filter(|entry| entry.fault == Kind::Gap) {
        for affected in &entry.streams {
            let is_numbered = entry.venue != "kraken" || affected.channel == "trades";
            let name = (entry.venue, affected.channel, affected.symbol.as_str());
            let strike = entry.from_ms.unwrap_or(0);
            let of = |(hole, _): &&(Hole, Vec<&ToldGap>)| {
                let is_same =
                    (hole.stream.0.as_str(), hole.stream.1.as_str(), hole.stream.2.as_str()) == name;
                is_same && hole.from <= strike && strike <= hole.to
            };
            let Some((_, pieces)) = told.iter().find(of).filter(|_| is_numbered) else { continue };
            let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u64>().ok());
            let first = pieces.iter().find_map(|told| number(&told.gap.first_missing));
            let last = pieces.iter().rev().find_map(|told| number(&told.gap.last_missing));
            // OKX's numbers jump: only where they end is known.
            let is_first = first == affected.first || (entry.venue == "okx" && first <= affected.first);
            if !is_first || last != affected.last {
                verdict.wrong_numbers.push(format!("{affected:?} told as {:?}", causes(pieces)));
            }
        }
    }
}

/// Frames that could not be read and could have been of any stream: each is told, at its time, and no other.
fn unattributed(log: &[LogEntry], gaps: &[ToldGap], verdict: &mut Verdict) {
    let strikes: Vec<(&str, i64, i64)> = log
        .iter()
        .filter(|entry| matches!(entry.fault, Kind::Truncated | Kind::NotUtf8))
        .map(|entry| (entry.venue, entry.from_ms.unwrap_or(0), entry.to_ms.unwrap_or(i64::MAX)))
        .collect();
    for told in gaps.iter().filter(|told| told.gap.channel == "*") {
        let at = told.gap.from_ms.get();
        let struck =
            |(venue, from, to): &(&str, i64, i64)| *venue == told.venue && (from - 1..=to + 5).contains(&at);
        match strikes.iter().any(struck) {
            true => verdict.unattributed += 1,
            false => verdict.false_ones.push(format!("{told:?}")),
        }
    }
}
