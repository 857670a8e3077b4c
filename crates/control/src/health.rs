//! `/healthz`: S1's health report. Whether it is well, and of what it is made, instance by instance.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::status::{Clock, Connection, Dedup, Sink, Spool, Status, Stream, Venue};

#[derive(Serialize)]
pub(crate) struct Health<'a> {
    status: &'static str,
    reasons: &'a [String],
    version: &'static str,
    uptime_s: u64,
    instances: Vec<Instance<'a>>,
    persistence: Persistence<'a>,
    time_quality: BTreeMap<&'a str, &'a Clock>,
}

/// A venue as one recorder sees it: polled, streamed, or worked on by jobs; one that is several of these is there several
/// times.
#[derive(Serialize)]
struct Instance<'a> {
    exchange: &'a str,
    kind: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instruments: Option<usize>,
    connections: &'a [Connection],
    last_error: Option<&'a str>,
}

#[derive(Serialize)]
struct Persistence<'a> {
    spool: &'a Spool,
    dedup: DedupState<'a>,
    sinks: &'a [Sink],
    dedup_dropped_total: u64,
    spool_dropped_total: u64,
}

#[derive(Serialize)]
struct DedupState<'a> {
    enabled: bool,
    #[serde(flatten)]
    window: Option<&'a Dedup>,
}

impl<'a> Health<'a> {
    pub(crate) fn of(status: &'a Status) -> Self {
        let of_kind = |kind| status.venues.iter().filter(move |venue| venue.kinds.contains(&kind));
        let polled = of_kind("poll").map(polled);
        let streamed = status.streams.iter().map(streamed);
        let store_up = status.jobs.as_ref().is_some_and(|jobs| jobs.store_up);
        let worked_on = of_kind("jobs").map(|venue| worked_on(venue, store_up));
        // A venue that is asked for its time knows better than the headers of its answers.
        let by_date =
            status.venues.iter().filter_map(|venue| Some((venue.venue.as_str(), venue.clock.as_ref()?)));
        let asked =
            status.streams.iter().filter_map(|stream| Some((stream.venue.as_str(), stream.clock.as_ref()?)));
        Self {
            status: if status.not_ready.is_empty() { "ok" } else { "not ready" },
            reasons: &status.not_ready,
            version: status.version,
            uptime_s: status.uptime_s,
            instances: polled.chain(streamed).chain(worked_on).collect(),
            persistence: Persistence {
                spool: &status.spool,
                dedup: DedupState { enabled: status.dedup.is_some(), window: status.dedup.as_ref() },
                sinks: &status.sinks,
                dedup_dropped_total: status.channels.iter().map(|line| line.duplicate).sum(),
                spool_dropped_total: status.channels.iter().map(|line| line.spool_full).sum(),
            },
            time_quality: by_date.chain(asked).collect(),
        }
    }
}

fn polled(venue: &Venue) -> Instance<'_> {
    Instance {
        exchange: &venue.venue,
        kind: "poll",
        state: if venue.hold.is_some() { "held" } else { "running" },
        instruments: Some(venue.instruments),
        connections: &[],
        last_error: venue.last_error.as_deref(),
    }
}

fn streamed(stream: &Stream) -> Instance<'_> {
    Instance {
        exchange: &stream.venue,
        kind: "stream",
        state: match stream.live() {
            0 => "down",
            live if live < stream.connections.len() => "partly live",
            _ => "live",
        },
        instruments: Some(stream.instruments),
        connections: &stream.connections,
        last_error: stream.last_error.as_deref(),
    }
}

fn worked_on(venue: &Venue, store_up: bool) -> Instance<'_> {
    Instance {
        exchange: &venue.venue,
        kind: "jobs",
        state: match (store_up, &venue.hold) {
            (false, _) => "store away",
            (true, Some(_)) => "held",
            (true, None) => "running",
        },
        instruments: None,
        connections: &[],
        last_error: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Hold, Jobs};

    fn venue(name: &str, kinds: &[&'static str]) -> Venue {
        Venue { venue: name.to_owned(), kinds: kinds.to_vec(), instruments: 7, ..Venue::default() }
    }

    fn report(status: &Status) -> Value {
        serde_json::to_value(Health::of(status)).unwrap()
    }

    /// Exchange, kind and state of each.
    fn instances(status: &Status) -> Vec<String> {
        let report = report(status);
        let word = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        let all = report["instances"].as_array().unwrap().iter();
        all.map(|one| ["exchange", "kind", "state"].map(|key| word(one, key)).join(" ")).collect()
    }

    #[test]
    fn each_venue_is_listed_as_what_it_is() {
        let connection = Connection { state: "live".to_owned(), ..Connection::default() };
        let stream = |name: &str, connections: Vec<Connection>| Stream {
            venue: name.to_owned(),
            connections,
            ..Stream::default()
        };
        let mut status = Status {
            venues: vec![
                venue("lantern", &["poll"]),
                venue("okx", &["stream"]),
                venue("kraken", &["jobs"]),
                venue("binance", &["poll", "stream", "jobs"]),
            ],
            streams: vec![stream("okx", vec![connection]), stream("binance", Vec::new())],
            jobs: Some(Jobs { store_up: true, ..Jobs::default() }),
            ..Status::default()
        };
        status.venues[0].hold = Some(Hold { cause: "ban".to_owned(), remaining_ms: 1 });
        let expected = [
            "lantern poll held",
            "binance poll running",
            "okx stream live",
            "binance stream down",
            "kraken jobs running",
            "binance jobs running",
        ];
        assert_eq!(instances(&status), expected);
        assert_eq!(report(&status)["instances"][4].get("instruments"), None, "jobs have none");
        status.jobs = None;
        assert_eq!(instances(&status)[4], "kraken jobs store away");
    }

    #[test]
    fn spool_and_dedup_say_whether_they_are_on_and_how_large() {
        let mut status = Status::default();
        assert_eq!(report(&status)["persistence"]["dedup"], json!({ "enabled": false }));
        assert_eq!(report(&status)["persistence"]["spool"]["enabled"], false);
        status.dedup = Some(Dedup { window_s: 300.0, keys_max: 1_000, keys: 12 });
        status.spool.enabled = true;
        let dedup = json!({ "enabled": true, "window_s": 300.0, "keys_max": 1_000, "keys": 12 });
        assert_eq!(report(&status)["persistence"]["dedup"], dedup);
        assert_eq!(report(&status)["persistence"]["spool"]["enabled"], true);
    }

    #[test]
    fn a_clock_that_was_asked_for_counts_more_than_the_date_of_an_answer() {
        let clock = |offset_ms| Some(Clock { offset_ms, ..Clock::default() });
        let mut status = Status {
            venues: vec![venue("lantern", &["poll"]), venue("okx", &["poll"])],
            ..Status::default()
        };
        status.venues.iter_mut().for_each(|venue| venue.clock = clock(500.0));
        status.streams = vec![Stream { venue: "okx".to_owned(), clock: clock(3.0), ..Stream::default() }];
        let quality = &report(&status)["time_quality"];
        assert_eq!(
            (&quality["lantern"]["offset_ms"], &quality["okx"]["offset_ms"]),
            (&json!(500.0), &json!(3.0))
        );
    }
}
