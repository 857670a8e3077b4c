//! `/books` to lines of the archive: the adapter, beside a round trip through `serde_json::Value` and beside memcpy.
//! PERF goal 2, and the same with all that a poller does.
//!
//! Answers come off the network, each into other memory. So all sides go through as many of them as no cache holds; a
//! memcpy of what was copied a moment ago would measure the cache.

use catchment_model::{Channel, Envelope, Payload, RecordId, Source, SpoolId, Symbol, UnixMs, UnixNs, Venue};
use catchment_venues::{BookForm, BookPage, Opened};
use serde::Serialize;
use serde_json::Value;

use crate::books::Answer;
use crate::machine::thread_seconds;
use crate::{BenchArgs, Duel, Goal, Report};

/// Answers a round, each in memory of its own: 95 MB, more than a core's share of any cache.
const TIMES: usize = 64;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let answer = Answer::new();
    let spec = catchment_venues::find("polymarket").expect("it is in the table");
    let venue = (spec.open)(&spec.endpoints([])?);
    let bodies = vec![answer.body.clone(); TIMES];
    let keys: Vec<&str> = answer.tokens.iter().map(String::as_str).collect();
    let lines = |body: &[u8], page: &mut BookPage, out: &mut Vec<u8>| ours(body, &keys, &venue, page, out);
    let as_sent = || BookPage::new(BookForm::AsSent).trusting_hashes();

    let (mut page, mut out, mut theirs_out) = (as_sent(), Vec::new(), Vec::new());
    lines(&answer.body, &mut page, &mut out);
    naive(&answer.body, &mut theirs_out);
    anyhow::ensure!(same_bytes(&page, &answer.body), "a payload is not the bytes of the wire");
    anyhow::ensure!(out.split(|b| *b == b'\n').count() == 501, "500 lines");

    let rounds = args.rounds().max(11);
    let mut through_values = || {
        let few = &bodies[..TIMES / 16];
        let seconds = thread_seconds(|| few.iter().for_each(|body| naive(body, &mut theirs_out)));
        Ok(answer.mb_per_second(seconds / few.len() as f64))
    };
    let mut measure = |page: &mut BookPage| {
        let seconds = thread_seconds(|| bodies.iter().for_each(|body| lines(body, page, &mut out)));
        Ok(answer.mb_per_second(seconds / TIMES as f64))
    };
    let what = "500 books to envelope lines, as sent, validated";
    let duel = Duel {
        what,
        unit: "MB/s",
        ours: ("the adapter", &mut || measure(&mut page)),
        theirs: ("serde_json, Value and back", &mut through_values),
        goal: Goal::AtLeast(15.0),
    };
    report.duel(rounds, duel)?;
    let mut copy = Vec::with_capacity(answer.body.len());
    let mut memcpy = || {
        let seconds = thread_seconds(|| {
            for body in &bodies {
                copy.clear();
                copy.extend_from_slice(std::hint::black_box(body));
            }
        });
        Ok(answer.mb_per_second(seconds / TIMES as f64))
    };
    let duel = Duel {
        what,
        unit: "MB/s",
        ours: ("the adapter", &mut || measure(&mut page)),
        theirs: ("memcpy of the answer", &mut memcpy),
        goal: Goal::AtLeast(0.08),
    };
    report.duel(rounds, duel)?;
    for (what, mut page, goal) in [
        ("the same, normalised", BookPage::new(BookForm::Normalised).trusting_hashes(), 12.0),
        ("the same, normalised, every hash made anew: what a poller does", BookPage::default(), 6.0),
    ] {
        let duel = Duel {
            what,
            unit: "MB/s",
            ours: ("the adapter", &mut || measure(&mut page)),
            theirs: ("serde_json, Value and back, no hash", &mut through_values),
            goal: Goal::AtLeast(goal),
        };
        report.duel(rounds, duel)?;
    }
    Ok(())
}

fn ours(body: &[u8], keys: &[&str], venue: &Opened, page: &mut BookPage, out: &mut Vec<u8>) {
    out.clear();
    let polls = venue.polls.as_ref().expect("it polls");
    polls.read_books(keys, body, page).expect("a sound answer");
    assert_eq!((page.books().len(), page.missing().len(), page.hash_mismatches()), (500, 0, 0));
    let id = RecordId { spool: SpoolId::new(7), seq: 1 };
    for book in page.books() {
        envelope(keys[book.asked], book.server_time, book.payload).write_line(&id, out);
    }
}

fn envelope<'a>(symbol: &'a str, server_time: Option<UnixMs>, payload: Payload<'a>) -> Envelope<'a> {
    Envelope {
        message_id: None,
        sequence: None,
        exchange: Venue::new("polymarket").expect("a fixed name"),
        channel: Channel::new("orderbook").expect("a fixed name"),
        symbol: Symbol::new(symbol).expect("digits"),
        server_time,
        received_at: UnixNs::from_ms(1_798_761_600_000).expect("a fixed time"),
        payload,
        source: Source::new("poll").expect("a fixed source"),
    }
}

fn same_bytes(page: &BookPage, body: &[u8]) -> bool {
    let all: Vec<&[u8]> = page.books().map(|book| book.payload.as_bytes()).collect();
    [b"[", all.join(&b',').as_slice(), b"]"].concat() == body
}

/// As one would first write it: all of the answer into values, and each of them out again.
fn naive(body: &[u8], out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Line<'a> {
        message_id: Option<&'a str>,
        sequence: Option<u64>,
        exchange: &'a str,
        channel: &'a str,
        symbol: &'a str,
        server_time_ms: Option<i64>,
        received_at_ms: i64,
        payload: &'a Value,
        id: &'a str,
        received_at_ns: i64,
        source: &'a str,
    }
    out.clear();
    let books: Vec<Value> = serde_json::from_slice(body).expect("a sound answer");
    for payload in &books {
        let line = Line {
            message_id: None,
            sequence: None,
            exchange: "polymarket",
            channel: "orderbook",
            symbol: payload["asset_id"].as_str().expect("a token"),
            server_time_ms: payload["timestamp"].as_str().and_then(|text| text.parse().ok()),
            received_at_ms: 1_798_761_600_000,
            payload,
            id: "000000000007-0000000000000001",
            received_at_ns: 1_798_761_600_000_000_000,
            source: "poll",
        };
        serde_json::to_writer(&mut *out, &line).expect("values always serialise");
        out.push(b'\n');
    }
}
