//! Why a recorder is not ready: each reason a sentence that names whom it concerns.

use catchment_control as control;
use catchment_pipeline::{Health, OnFull, SinkState};

/// What is looked at.
pub(crate) struct Seen<'a> {
    pub(crate) health: &'a Health,
    /// What happens to records while the spool is full.
    pub(crate) on_full: OnFull,
    /// Sinks that are not open yet.
    pub(crate) opening: Vec<&'a str>,
    pub(crate) venues: &'a [control::Venue],
    pub(crate) streams: &'a [control::Stream],
}

impl Seen<'_> {
    /// All that holds now; none: it is ready. One venue or sink that is away while others are there is no reason: what it
    /// concerns waits, and the rest is recorded.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let reasons =
            [self.storage(), self.full(), self.opening(), self.sinks(), self.sockets(), self.held()];
        reasons.into_iter().flatten().collect()
    }

    fn storage(&self) -> Option<String> {
        self.health.stopped.as_ref().map(|why| format!("nothing is accepted: {why}"))
    }

    fn full(&self) -> Option<String> {
        let is_so = self.health.full && self.on_full == OnFull::Block;
        is_so.then(|| "the spool is full, and records wait until a sink has taken some".to_owned())
    }

    fn opening(&self) -> Option<String> {
        (!self.opening.is_empty()).then(|| format!("still being opened: {}", self.opening.join(", ")))
    }

    fn sinks(&self) -> Option<String> {
        let sinks = &self.health.sinks;
        let is_so = !sinks.is_empty() && sinks.iter().all(|sink| sink.state != SinkState::Ok);
        let each = sinks.iter().map(|sink| format!("{} is {}", sink.name, state(sink.state)));
        is_so.then(|| format!("no sink takes anything: {}", each.collect::<Vec<_>>().join(", ")))
    }

    fn sockets(&self) -> Option<String> {
        let is_so = !self.streams.is_empty() && self.streams.iter().all(|stream| stream.live() == 0);
        let each = self.streams.iter().map(|stream| match &stream.last_error {
            Some(error) => format!("{} ({error})", stream.venue),
            None => stream.venue.clone(),
        });
        is_so.then(|| format!("no stream is live: {}", each.collect::<Vec<_>>().join(", ")))
    }

    fn held(&self) -> Option<String> {
        let holds = self.venues.iter().map(|venue| Some((&venue.venue, venue.hold.as_ref()?)));
        let held: Option<Vec<_>> = holds.collect();
        let held = held.filter(|held| !held.is_empty())?;
        let words = held.iter().map(|(venue, hold)| {
            format!("{venue} ({}, {} s yet)", hold.cause, hold.remaining_ms.div_ceil(1_000))
        });
        Some(format!("every venue is held: {}", words.collect::<Vec<_>>().join(", ")))
    }
}

/// A sink's state in a word.
pub(crate) fn state(state: SinkState) -> &'static str {
    match state {
        SinkState::Ok => "ok",
        SinkState::Unreachable => "unreachable",
        SinkState::Degraded => "degraded",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use catchment_pipeline::{SinkHealth, WriteTimes};

    use super::*;

    fn health(sinks: &[SinkState]) -> Health {
        let sink = |(at, state): (usize, &SinkState)| SinkHealth {
            name: format!("sink{at}"),
            state: *state,
            last_write: Duration::ZERO,
            write_times: WriteTimes::default(),
        };
        Health {
            stopped: None,
            full: false,
            spool_bytes: 0,
            spool_segments: 1,
            tail_bytes: 0,
            dedup_keys: 0,
            sinks: sinks.iter().enumerate().map(sink).collect(),
        }
    }

    fn venue(name: &str, is_held: bool) -> control::Venue {
        let hold = || control::Hold { cause: "ban".to_owned(), remaining_ms: 1_001 };
        control::Venue { venue: name.to_owned(), hold: is_held.then(hold), ..control::Venue::default() }
    }

    fn stream(name: &str, states: &[&str]) -> control::Stream {
        let connection = |state: &&str| control::Connection {
            state: (*state).to_owned(),
            ..control::Connection::default()
        };
        control::Stream {
            venue: name.to_owned(),
            connections: states.iter().map(connection).collect(),
            ..control::Stream::default()
        }
    }

    /// One that is ready: each test changes what it is about.
    fn check(
        change: impl FnOnce(&mut Health, &mut Vec<control::Venue>, &mut Vec<control::Stream>),
        reasons: &[&str],
    ) {
        let mut health = health(&[SinkState::Ok, SinkState::Unreachable]);
        let mut venues = vec![venue("lantern", true), venue("kraken", false)];
        let mut streams = vec![stream("kraken", &["connecting", "live"]), stream("okx", &["waiting"])];
        change(&mut health, &mut venues, &mut streams);
        let on_full = OnFull::Block;
        let seen = Seen { health: &health, on_full, opening: Vec::new(), venues: &venues, streams: &streams };
        assert_eq!(seen.reasons(), reasons);
    }

    #[test]
    fn one_sink_one_venue_or_one_socket_that_is_away_is_no_reason() {
        check(|_, _, _| {}, &[]);
        check(|_, venues, streams| (venues.clear(), streams.clear()).0, &[]);
    }

    #[test]
    fn a_disk_that_takes_nothing_is() {
        let reason = "nothing is accepted: no space left";
        check(|health, _, _| health.stopped = Some("no space left".to_owned()), &[reason]);
    }

    #[test]
    fn when_all_sinks_are_away_it_says_which_and_how() {
        let away = &[SinkState::Degraded, SinkState::Unreachable];
        let reason = "no sink takes anything: sink0 is degraded, sink1 is unreachable";
        check(|health, _, _| health.sinks = super::tests::health(away).sinks, &[reason]);
    }

    #[test]
    fn when_no_stream_is_live_it_says_what_went_wrong() {
        let dark = |_: &mut Health, _: &mut Vec<control::Venue>, streams: &mut Vec<control::Stream>| {
            *streams = vec![stream("kraken", &[]), stream("okx", &["connecting"])];
            streams[1].last_error = Some("connection refused".to_owned());
        };
        check(dark, &["no stream is live: kraken, okx (connection refused)"]);
        check(|_, _, streams| *streams = vec![stream("kraken", &["switching"])], &[]);
    }

    #[test]
    fn when_every_venue_is_held_it_says_for_how_long() {
        let reason = "every venue is held: lantern (ban, 2 s yet)";
        check(|_, venues, _| venues.truncate(1), &[reason]);
    }

    #[test]
    fn a_full_spool_is_a_reason_only_where_records_wait_for_room() {
        let mut health = health(&[SinkState::Ok]);
        health.full = true;
        let reasons = |on_full, opening: &[&'static str]| {
            let opening = opening.to_vec();
            Seen { health: &health, on_full, opening, venues: &[], streams: &[] }.reasons()
        };
        assert_eq!(reasons(OnFull::DropAll, &[]), [""; 0]);
        assert_eq!(reasons(OnFull::DropTickerDepthKeepTrade, &[]), [""; 0]);
        let full = "the spool is full, and records wait until a sink has taken some";
        assert_eq!(reasons(OnFull::Block, &["archive"]), [full, "still being opened: archive"]);
    }
}
