//! `/healthz`: S1's health report. Whether it is well, and of what it is made, instance by instance.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::status::{Clock, Connection, Sink, Spool, Status};

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

/// A venue as one recorder sees it: by its streams, by polling, or both.
#[derive(Serialize)]
struct Instance<'a> {
    exchange: &'a str,
    kind: &'static str,
    state: &'static str,
    instruments: usize,
    connections: &'a [Connection],
    last_error: Option<&'a str>,
}

#[derive(Serialize)]
struct Persistence<'a> {
    spool: &'a Spool,
    sinks: &'a [Sink],
    dedup_dropped_total: u64,
    spool_dropped_total: u64,
}

impl<'a> Health<'a> {
    pub(crate) fn of(status: &'a Status) -> Self {
        let polled = status.venues.iter().map(|venue| Instance {
            exchange: &venue.venue,
            kind: "poll",
            state: if venue.hold.is_some() { "held" } else { "running" },
            instruments: venue.instruments,
            connections: &[],
            last_error: venue.last_error.as_deref(),
        });
        let streamed = status.streams.iter().map(|stream| {
            let live = stream
                .connections
                .iter()
                .filter(|c| matches!(c.state.as_str(), "live" | "switching"))
                .count();
            Instance {
                exchange: &stream.venue,
                kind: "stream",
                state: match live {
                    0 => "down",
                    live if live < stream.connections.len() => "partly live",
                    _ => "live",
                },
                instruments: stream.instruments,
                connections: &stream.connections,
                last_error: stream.last_error.as_deref(),
            }
        });
        let clocks = status.streams.iter().filter_map(|s| s.clock.as_ref().map(|c| (s.venue.as_str(), c)));
        Self {
            status: if status.not_ready.is_empty() { "ok" } else { "not ready" },
            reasons: &status.not_ready,
            version: status.version,
            uptime_s: status.uptime_s,
            instances: polled.chain(streamed).collect(),
            persistence: Persistence {
                spool: &status.spool,
                sinks: &status.sinks,
                dedup_dropped_total: status.channels.iter().map(|line| line.duplicate).sum(),
                spool_dropped_total: status.channels.iter().map(|line| line.spool_full).sum(),
            },
            time_quality: clocks.collect(),
        }
    }
}
