//! The latest of 500 tokens in Redis: a batch by one script, beside a script call for each token. PERF goal 12.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_model::SystemClock;
use catchment_sinks::redis::server::RedisServer;
use catchment_sinks::redis::{
    BookParts, Entry, LatestSettings, LatestStore, RedisAddress, RedisLink, Verdict,
};

use crate::machine::Stopwatch;
use crate::{BenchArgs, Duel, Goal, Report};

const TOKENS: usize = 500;
/// Levels of each side: a book is then about 2.9 KB, as on the venue.
const LEVELS: usize = 39;
/// Batches in a round, where each costs next to nothing.
const PASSES: usize = 400;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    // A server of its own, unless one is given; gone at the end.
    let own = match &args.url {
        Some(_) => None,
        None => Some(RedisServer::start().context("no server, and no --url")?),
    };
    let url = args.url.clone().or(own.as_ref().map(RedisServer::url)).context("no server")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = Arc::new(SystemClock::new());
    let link = Arc::new(RedisLink::new(&RedisAddress::new(url))?);
    let plain = LatestSettings { prefix: "bench:ob:".to_owned(), ..LatestSettings::default() };
    let forgetful = LatestSettings { memory_keys_max: 0, ..plain.clone() };
    let remembering = LatestSettings { memory_trusted_for: Duration::from_secs(3_600), ..plain };
    let forgetful = LatestStore::new(Arc::clone(&link), forgetful, clock.clone());
    let remembering = LatestStore::new(link, remembering, clock);
    let books = Books::new();

    let mut time = 1_790_000_000_000_u64;
    let mut newer = |each_alone: bool| {
        time += 1;
        runtime.block_on(write(&forgetful, &books, time, each_alone, Verdict::Written))
    };
    newer(false)?;
    newer(true)?;
    // Times only grow, over both sides, so the rounds are run here.
    let mut pairs = Vec::new();
    for _ in 0..args.rounds() {
        let ours = TOKENS as f64 / newer(false)?;
        pairs.push((ours, TOKENS as f64 / newer(true)?));
    }
    let sides = ("one script for 50 tokens, ten in a pipeline", "one EVALSHA a token, each awaited");
    report.note("500 books, all newer", "tokens/s", sides, &pairs, Goal::AtLeast(4.0));

    let last = time;
    runtime.block_on(write(&remembering, &books, last, false, Verdict::Same))?;
    let mut ours = || {
        let watch = Stopwatch::start();
        for _ in 0..PASSES {
            runtime.block_on(write(&remembering, &books, last, false, Verdict::Same))?;
        }
        Ok((PASSES * TOKENS) as f64 / watch.seconds())
    };
    let mut theirs =
        || Ok(TOKENS as f64 / runtime.block_on(write(&forgetful, &books, last, true, Verdict::Same))?);
    let duel = Duel {
        what: "500 books, none changed",
        unit: "tokens/s",
        ours: ("known to be there, not sent", &mut ours),
        theirs: ("one EVALSHA a token, each awaited", &mut theirs),
        goal: Goal::AtLeast(300.0),
    };
    report.duel(args.rounds(), duel)
}

/// Seconds to write every book with this time.
async fn write(
    store: &LatestStore,
    books: &Books,
    time: u64,
    each_alone: bool,
    expected: Verdict,
) -> anyhow::Result<f64> {
    let (hash, timestamp) = (format!("{time:040x}"), time.to_string());
    let entries: Vec<Entry<'_>> =
        books.tokens.iter().map(|token| books.entry(token, &hash, &timestamp)).collect();
    let watch = Stopwatch::start();
    let mut met = 0;
    if each_alone {
        for entry in &entries {
            met += store.put(std::slice::from_ref(entry)).await?.count(expected);
        }
    } else {
        met = store.put(&entries).await?.count(expected);
    }
    let seconds = watch.seconds();
    anyhow::ensure!(met == TOKENS, "{met} of {TOKENS} books were {expected:?}");
    Ok(seconds)
}

/// Tokens and a book that all of them have.
struct Books {
    tokens: Vec<String>,
    bids: String,
    asks: String,
}

impl Books {
    fn new() -> Self {
        let side = |from: usize| {
            let level =
                |at: usize| format!(r#"{{"price":"0.{:03}","size":"{}.25"}}"#, from + at, 1_000 + at * 37);
            format!("[{}]", (0..LEVELS).map(level).collect::<Vec<_>>().join(","))
        };
        let token = |n: usize| {
            format!("3039294895497007091716317179140308523952553753120448710590843522895754{n:07}")
        };
        Self { tokens: (0..TOKENS).map(token).collect(), bids: side(100), asks: side(500) }
    }

    fn entry<'a>(&'a self, token: &'a str, hash: &'a str, timestamp: &'a str) -> Entry<'a> {
        let market = "0x48b0c5c2f6b1a6a1f2c41a7f4f1e0c3d9b7a5e6f8091a2b3c4d5e6f708192a3b";
        let parts = BookParts { market, bids: self.bids.as_bytes(), asks: self.asks.as_bytes() };
        Entry::book(token, hash, timestamp, 1_790_000_000_000, parts)
    }
}
