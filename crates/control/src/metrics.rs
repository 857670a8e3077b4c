//! `/metrics`: the figures in Prometheus' text format.
//!
//! S1's names are kept as S1 has them; everything else is `catchment_<room>_<noun>_<unit>`. Nothing is counted here: the page is
//! written anew from a [`Status`] each time it is asked for, so it can never disagree with the others.
//!
//! A label's values come from venues too (channels a descriptor names, causes), so each family holds at most
//! [`SERIES_MAX`] series; what is more is summed up under `other`.

mod jobs;

use std::fmt::Write;

use catchment_pipeline::WriteTimes;

use crate::Status;

/// How the answer says what it is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// So many series a family at most.
const SERIES_MAX: usize = 2_000;

/// The page.
pub(crate) fn page(status: &Status) -> String {
    let mut page = Page::default();
    process(&mut page, status);
    spool(&mut page, status);
    sinks(&mut page, status);
    venues(&mut page, status);
    streams(&mut page, status);
    jobs::jobs(&mut page, status);
    page.text
}

fn process(page: &mut Page, status: &Status) {
    page.family("catchment_build_info", Kind::Gauge, "The version that is running; always 1.", |family| {
        family.sample(&[("version", status.version)], 1.0);
    });
    page.family("catchment_uptime_seconds", Kind::Gauge, "How long it has been running.", |family| {
        family.sample(&[], status.uptime_s as f64);
    });
    page.family("catchment_ready", Kind::Gauge, "Whether records are accepted: 1, or 0.", |family| {
        family.sample(&[], f64::from(u8::from(status.not_ready.is_empty())));
    });
}

fn spool(page: &mut Page, status: &Status) {
    page.family("spool_bytes", Kind::Gauge, "Bytes of the spool on disk.", |family| {
        family.sample(&[], status.spool.bytes as f64);
    });
    page.family("spool_segments", Kind::Gauge, "Files of the spool.", |family| {
        family.sample(&[], status.spool.segments as f64);
    });
    page.family(
        "spool_replay_total",
        Kind::Counter,
        "Records delivered from disk instead of from memory.",
        |family| family.sample(&[], status.spool.replayed as f64),
    );
    let lines = || status.channels.iter();
    page.family(
        "spool_dropped_total",
        Kind::Counter,
        "Records that were not accepted because the spool was full.",
        |family| {
            for line in lines() {
                family
                    .sample(&[("exchange", &line.venue), ("channel", &line.channel)], line.spool_full as f64);
            }
        },
    );
    page.family(
        "dedup_dropped_total",
        Kind::Counter,
        "Records that had come before and were dropped.",
        |family| {
            for line in lines() {
                family
                    .sample(&[("exchange", &line.venue), ("channel", &line.channel)], line.duplicate as f64);
            }
        },
    );
    page.family(
        "catchment_pipeline_received_records_total",
        Kind::Counter,
        "Records that came in.",
        |family| {
            for line in lines() {
                family.sample(&[("venue", &line.venue), ("channel", &line.channel)], line.received as f64);
            }
        },
    );
    page.family(
        "catchment_pipeline_accepted_records_total",
        Kind::Counter,
        "Records that are durable in the spool.",
        |family| {
            for line in lines() {
                family.sample(&[("venue", &line.venue), ("channel", &line.channel)], line.accepted as f64);
            }
        },
    );
}

fn sinks(page: &mut Page, status: &Status) {
    page.family(
        "write_batch_latency_ms",
        Kind::Gauge,
        "How long the last batch took; catchment_sink_write_duration_seconds has all of them.",
        |family| {
            for sink in &status.sinks {
                family.sample(&[("sink", &sink.name)], sink.write_batch_latency_ms);
            }
        },
    );
    page.histogram(
        "catchment_sink_write_duration_seconds",
        "How long a sink takes to make a batch durable.",
        status.sinks.iter().map(|sink| (sink.name.as_str(), &sink.write_times)),
    );
    page.family("ingest_errors_total", Kind::Counter, "Tries to write to a sink that failed.", |family| {
        for (exchange, errors) in &status.ingest_errors {
            family.sample(&[("exchange", exchange)], *errors as f64);
        }
    });
    page.family("catchment_sink_state", Kind::Gauge, "1 for the state that each sink is in.", |family| {
        for sink in &status.sinks {
            for state in ["ok", "unreachable", "degraded"] {
                let is_it = f64::from(u8::from(sink.state == state));
                family.sample(&[("sink", &sink.name), ("state", state)], is_it);
            }
        }
    });
    type Of = fn(&crate::Balance) -> f64;
    let families: [(&str, Kind, &str, Of); 4] = [
        ("catchment_sink_written_records_total", Kind::Counter, "Records that are in the sink.", |l| {
            l.written as f64
        }),
        (
            "catchment_sink_quarantined_records_total",
            Kind::Counter,
            "Records that the sink refused; they are in its dead-letter file.",
            |l| l.quarantined as f64,
        ),
        (
            "catchment_sink_pending_records",
            Kind::Gauge,
            "Records that are accepted and not yet in the sink.",
            |l| l.pending as f64,
        ),
        (
            "catchment_sink_unaccounted_records",
            Kind::Gauge,
            "Records received less all that became of them: 0, or something is lost.",
            |l| l.lost as f64,
        ),
    ];
    for (name, kind, help, of) in families {
        page.family(name, kind, help, |family| {
            for line in &status.balances {
                family.sample(&[("sink", &line.sink), ("venue", &line.venue)], of(line));
            }
        });
    }
}

fn venues(page: &mut Page, status: &Status) {
    type Of = fn(&crate::Venue) -> f64;
    let families: [(&str, Kind, &str, Of); 9] = [
        ("catchment_collect_instruments", Kind::Gauge, "Instruments that are recorded.", |v| {
            v.instruments as f64
        }),
        ("catchment_collect_books_total", Kind::Counter, "Books read by polling.", |v| v.books as f64),
        ("catchment_collect_requests_total", Kind::Counter, "Requests sent.", |v| v.requests as f64),
        ("catchment_collect_refusals_total", Kind::Counter, "Requests refused for being too fast.", |v| {
            v.refusals as f64
        }),
        ("catchment_collect_failures_total", Kind::Counter, "Requests that failed otherwise.", |v| {
            v.failures as f64
        }),
        ("catchment_collect_timeouts_total", Kind::Counter, "Requests without an answer in time.", |v| {
            v.timeouts as f64
        }),
        (
            "catchment_collect_late_slots_total",
            Kind::Counter,
            "Slots in which no request could leave in time.",
            |v| v.late as f64,
        ),
        (
            "catchment_collect_latency_p95_seconds",
            Kind::Gauge,
            "95 of 100 answers of late were quicker.",
            |v| v.latency_ms_p95 / 1e3,
        ),
        (
            "catchment_collect_spacing_p95_seconds",
            Kind::Gauge,
            "Between two reads of one book; 95 of 100 came sooner.",
            |v| v.spacing_ms_p95 / 1e3,
        ),
    ];
    for (name, kind, help, of) in families {
        page.family(name, kind, help, |family| {
            for venue in &status.venues {
                family.sample(&[("venue", &venue.venue)], of(venue));
            }
        });
    }
    page.family(
        "catchment_governor_rate_per_second",
        Kind::Gauge,
        "Cost a second that the limiter lets through, where it paces.",
        |family| {
            for venue in &status.venues {
                if let Some(rate) = venue.rate {
                    family.sample(&[("venue", &venue.venue)], rate);
                }
            }
        },
    );
    page.family(
        "catchment_governor_hold_seconds",
        Kind::Gauge,
        "For how long yet nothing is sent, and why.",
        |family| {
            for venue in &status.venues {
                if let Some(hold) = &venue.hold {
                    let labels = [("venue", venue.venue.as_str()), ("cause", hold.cause.as_str())];
                    family.sample(&labels, hold.remaining_ms as f64 / 1e3);
                }
            }
        },
    );
}

fn streams(page: &mut Page, status: &Status) {
    let streams = || status.streams.iter();
    page.family(
        "catchment_stream_connections",
        Kind::Gauge,
        "Connections, by the state they are in.",
        |family| {
            for stream in streams() {
                for (state, count) in stream.connections_by_state() {
                    family.sample(&[("venue", &stream.venue), ("state", state)], count as f64);
                }
            }
        },
    );
    type Of = fn(&crate::Stream) -> f64;
    let families: [(&str, Kind, &str, Of); 7] = [
        ("catchment_stream_messages_total", Kind::Counter, "Data messages received.", |s| s.messages as f64),
        ("catchment_stream_received_bytes_total", Kind::Counter, "Bytes of all messages.", |s| {
            s.bytes as f64
        }),
        ("catchment_stream_reconnects_total", Kind::Counter, "Connections made after the first.", |s| {
            s.reconnects as f64
        }),
        ("catchment_stream_gaps_total", Kind::Counter, "Gaps that were recorded.", |s| s.gaps as f64),
        (
            "catchment_stream_duplicates_total",
            Kind::Counter,
            "Messages that had come before and were not recorded again.",
            |s| s.duplicates as f64,
        ),
        ("catchment_stream_resyncs_total", Kind::Counter, "Books begun anew.", |s| s.resyncs as f64),
        (
            "catchment_stream_silent_instruments",
            Kind::Gauge,
            "Instruments that say less than they should.",
            |s| s.silent as f64,
        ),
    ];
    for (name, kind, help, of) in families {
        page.family(name, kind, help, |family| {
            for stream in streams() {
                family.sample(&[("venue", &stream.venue)], of(stream));
            }
        });
    }
    page.family(
        "catchment_stream_book_checks_total",
        Kind::Counter,
        "Books held against the venue's own checksum, by what came of it.",
        |family| {
            for stream in streams() {
                for (verdict, count) in [("agrees", stream.checks_agree), ("differs", stream.checks_differ)] {
                    family.sample(&[("venue", &stream.venue), ("verdict", verdict)], count as f64);
                }
            }
        },
    );
    let clocks = || streams().filter_map(|stream| stream.clock.as_ref().map(|clock| (&stream.venue, clock)));
    page.family(
        "catchment_clock_offset_seconds",
        Kind::Gauge,
        "The venue's clock less ours; above 0: the venue is ahead.",
        |family| {
            clocks().for_each(|(venue, clock)| family.sample(&[("venue", venue)], clock.offset_ms / 1e3));
        },
    );
    page.family(
        "catchment_clock_uncertainty_seconds",
        Kind::Gauge,
        "That offset is right to within this, either way.",
        |family| {
            clocks()
                .for_each(|(venue, clock)| family.sample(&[("venue", venue)], clock.uncertainty_ms / 1e3));
        },
    );
    page.family(
        "catchment_clock_jitter_seconds",
        Kind::Gauge,
        "How much that offset differs from one look to the next.",
        |family| {
            clocks().for_each(|(venue, clock)| family.sample(&[("venue", venue)], clock.jitter_ms / 1e3));
        },
    );
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// Begins a family. One without a sample leaves only its head, which is allowed.
    fn family(&mut self, name: &str, kind: Kind, help: &str, fill: impl FnOnce(&mut Family<'_>)) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(name, kind, help);
        let mut family = Family { text: &mut self.text, name, series: 0, others: 0.0, keys: Vec::new() };
        fill(&mut family);
        family.close();
    }

    fn histogram<'a>(&mut self, name: &str, help: &str, of: impl Iterator<Item = (&'a str, &'a WriteTimes)>) {
        self.head(name, "histogram", help);
        for (sink, times) in of.take(SERIES_MAX) {
            let mut sink_label = String::new();
            push_labels(&mut sink_label, &[("sink", sink)]);
            let inside = sink_label.trim_matches(['{', '}']);
            let mut below = 0;
            for (bound, count) in WriteTimes::BOUNDS_S.iter().zip(&times.counts) {
                below += count;
                put(&mut self.text, format_args!("{name}_bucket{{{inside},le=\"{bound}\"}} {below}\n"));
            }
            let all: u64 = times.counts.iter().sum();
            put(&mut self.text, format_args!("{name}_bucket{{{inside},le=\"+Inf\"}} {all}\n"));
            put(&mut self.text, format_args!("{name}_sum{sink_label} {}\n", times.sum_s));
            put(&mut self.text, format_args!("{name}_count{sink_label} {all}\n"));
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        put(&mut self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }
}

struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    series: usize,
    others: f64,
    keys: Vec<String>,
}

impl Family<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.series += 1;
        if self.series > SERIES_MAX {
            self.others += value;
            self.keys = labels.iter().map(|(key, _)| (*key).to_owned()).collect();
            return;
        }
        self.write(labels, value);
    }

    fn write(&mut self, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(self.name);
        push_labels(self.text, labels);
        put(self.text, format_args!(" {value}\n"));
    }

    fn close(mut self) {
        if self.series > SERIES_MAX {
            let keys = std::mem::take(&mut self.keys);
            let labels: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "other")).collect();
            self.write(&labels, self.others);
        }
    }
}

fn push_labels(text: &mut String, labels: &[(&str, &str)]) {
    for (at, (key, value)) in labels.iter().enumerate() {
        text.push(if at == 0 { '{' } else { ',' });
        text.push_str(key);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Balance, ChannelCounts, Clock, Connection, Hold, Sink, Stream, Venue};

    fn busy() -> Status {
        let mut write_times = WriteTimes::default();
        let times = [0.0004, 0.003, 0.003, 99.0].map(std::time::Duration::from_secs_f64);
        times.into_iter().for_each(|time| write_times.add(time));
        Status {
            version: "0.1.0",
            sinks: vec![Sink {
                name: "jsonl".to_owned(),
                state: "ok".to_owned(),
                write_batch_latency_ms: 3.0,
                write_times,
            }],
            channels: vec![ChannelCounts {
                venue: "binance".to_owned(),
                channel: "trades".to_owned(),
                received: 12,
                accepted: 9,
                duplicate: 2,
                spool_full: 1,
            }],
            ingest_errors: [("binance".to_owned(), 4)].into(),
            venues: vec![Venue {
                venue: "odd\"name\\".to_owned(),
                hold: Some(Hold { cause: "ban".to_owned(), remaining_ms: 1_500 }),
                ..Venue::default()
            }],
            balances: vec![Balance {
                sink: "jsonl".to_owned(),
                venue: "binance".to_owned(),
                ..Balance::default()
            }],
            streams: vec![Stream {
                venue: "kraken".to_owned(),
                connections: vec![Connection { state: "live".to_owned(), ..Connection::default() }],
                gaps: 2,
                clock: Some(Clock { offset_ms: -12.5, jitter_ms: 2.0, ..Clock::default() }),
                ..Stream::default()
            }],
            ..Status::default()
        }
    }

    fn has(page: &str, line: &str) {
        assert!(page.lines().any(|l| l == line), "no line {line:?} in\n{page}");
    }

    #[test]
    fn the_names_of_s1_are_there_as_s1_has_them() {
        let page = page(&busy());
        has(&page, "write_batch_latency_ms{sink=\"jsonl\"} 3");
        has(&page, "ingest_errors_total{exchange=\"binance\"} 4");
        has(&page, "spool_bytes 0");
        has(&page, "spool_segments 0");
        has(&page, "spool_dropped_total{exchange=\"binance\",channel=\"trades\"} 1");
        has(&page, "spool_replay_total 0");
        has(&page, "dedup_dropped_total{exchange=\"binance\",channel=\"trades\"} 2");
    }

    #[test]
    fn buckets_add_up_and_odd_names_are_escaped() {
        let page = page(&busy());
        has(&page, "catchment_sink_write_duration_seconds_bucket{sink=\"jsonl\",le=\"0.001\"} 1");
        has(&page, "catchment_sink_write_duration_seconds_bucket{sink=\"jsonl\",le=\"0.005\"} 3");
        has(&page, "catchment_sink_write_duration_seconds_bucket{sink=\"jsonl\",le=\"+Inf\"} 4");
        has(&page, "catchment_sink_write_duration_seconds_count{sink=\"jsonl\"} 4");
        has(&page, "catchment_governor_hold_seconds{venue=\"odd\\\"name\\\\\",cause=\"ban\"} 1.5");
        has(&page, "catchment_stream_connections{venue=\"kraken\",state=\"live\"} 1");
        has(&page, "catchment_stream_gaps_total{venue=\"kraken\"} 2");
        has(&page, "catchment_clock_offset_seconds{venue=\"kraken\"} -0.0125");
    }

    /// Prometheus' own tool reads the page, and finds nothing but the unit that S1 gave a name.
    #[test]
    fn prometheus_finds_nothing_but_the_unit_in_a_name_of_s1() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let mut command = Command::new("promtool");
        command
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tool = command.spawn().expect("promtool is needed; as root: apt-get install prometheus");
        tool.stdin.take().unwrap().write_all(page(&busy()).as_bytes()).unwrap();
        let said = tool.wait_with_output().unwrap();
        let said = [said.stdout, said.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let complaints: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        assert!(complaints.iter().all(|line| line.starts_with("write_batch_latency_ms ")), "{said}");
        assert!(!complaints.is_empty(), "promtool looked at nothing");
    }

    #[test]
    fn a_venue_cannot_make_the_page_grow_without_end() {
        let mut status = busy();
        let line =
            |n: usize| ChannelCounts { channel: format!("c{n}"), duplicate: 1, ..ChannelCounts::default() };
        status.channels = (0..SERIES_MAX + 5).map(line).collect();
        let page = page(&status);
        has(&page, "dedup_dropped_total{exchange=\"other\",channel=\"other\"} 5");
        assert_eq!(page.lines().filter(|l| l.starts_with("dedup_dropped_total{")).count(), SERIES_MAX + 1);
    }
}
