//! The fleet as processes: coordinators, fetch nodes, a real Redis, the simulator. Short forms here; `scripts/torture fleet`
//! runs the long ones, on a machine that has nothing else to do, and prints the figures.
#![allow(clippy::unwrap_used)] // a test may
#![allow(unreachable_pub)] // what the files share

#[path = "../binary/mod.rs"]
mod binary;
mod house;

use std::io::{Read, Write};
use std::time::Duration;

use house::{House, Process, Scale, most_in_a_second, percentiles};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;

/// Whether the long forms are asked for.
fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A small fleet on a busy machine, or the one of the issue on a quiet one.
fn scale() -> Scale {
    match is_long() {
        true => Scale { tokens: 40_000, horizon_secs: 5.0, slack_ms: 25 },
        false => Scale { tokens: 600, horizon_secs: 2.0, slack_ms: 500 },
    }
}

/// What Redis holds, looked at again and again: nothing may ever become older.
struct Watch<'h> {
    house: &'h House,
    step: usize,
    newest: Vec<u64>,
    looks: u64,
}

impl<'h> Watch<'h> {
    fn new(house: &'h House) -> Self {
        let step = house.tokens.len().div_ceil(2_000);
        Self { house, step, newest: vec![0; house.tokens.len().div_ceil(step)], looks: 0 }
    }

    /// Ages in seconds at half and at 99 of 100; nothing while Redis is away or a token is missing.
    async fn look(&mut self) -> Option<(f64, f64)> {
        let rows = self.house.look(self.step).await?;
        let now = self.house.now_ms();
        self.looks += 1;
        let mut ages = Vec::with_capacity(rows.len());
        let mut is_whole = true;
        for (newest, row) in self.newest.iter_mut().zip(rows) {
            let Some((time, at)) = row else {
                assert_eq!(*newest, 0, "a book is gone");
                is_whole = false;
                continue;
            };
            assert!(time >= *newest, "a book became older: {time} after {newest}");
            *newest = time;
            ages.push((now - at) as f64 / 1e3);
        }
        (is_whole && !ages.is_empty()).then(|| percentiles(ages))
    }

    /// Looks for so many seconds at least, and until 99 of 100 have been younger than `limit` for a second. Gives the
    /// seconds until they were so for good.
    async fn until_fresh(&mut self, limit: f64, at_least: f64, patience: f64) -> Result<f64, f64> {
        let began = self.house.seconds();
        let (mut since, mut last) = (None, f64::INFINITY);
        loop {
            let seen = self.look().await;
            let now = self.house.seconds();
            let is_fresh = seen.is_some_and(|(_, p99)| p99 <= limit);
            last = seen.map_or(last, |(_, p99)| p99);
            since = if is_fresh { since.or(Some(now)) } else { None };
            match since {
                Some(at) if now - at >= 1.0 && now - began >= at_least => return Ok(at - began),
                _ if now - began > patience => return Err(last),
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }
}

/// What is normal: a round at the pace of the nodes, what the venue and Redis take, and a fifth.
fn normal(scale: Scale) -> f64 {
    scale.horizon_secs * 1.2 + if is_long() { 0.0 } else { 3.0 }
}

/// How long recovery may take; on a busy machine it only has to come.
fn within() -> f64 {
    if is_long() { 5.0 } else { 60.0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_token_is_fresh_and_no_node_exceeds_its_limit() {
    let scale = scale();
    let house = House::new(scale).await;
    let nodes = if is_long() { 4 } else { 2 };
    let _fetchers: Vec<Process> = (1..=nodes).map(|number| house.fetcher(number)).collect();
    let _coordinator = house.coordinator("c1");
    let mut watch = Watch::new(&house);
    watch.until_fresh(normal(scale), 0.0, 90.0).await.expect("a first round");
    // Steady from here on.
    let (began, seconds) = (house.seconds(), if is_long() { 60.0 } else { 5.0 });
    let before: usize = house.arrivals().values().map(Vec::len).sum();
    let from = house.seconds();
    let mut worst: (f64, f64) = (0.0, 0.0);
    while house.seconds() - began < seconds {
        if let Some((p50, p99)) = watch.look().await {
            worst = (worst.0.max(p50), worst.1.max(p99));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let to = house.seconds();
    let arrivals = house.arrivals();
    let sent = arrivals.values().map(Vec::len).sum::<usize>() - before;
    let rate = sent as f64 / (to - from);
    let capacity = 20.0 * nodes as f64;
    let (code, status) = house.status();
    let batch = status["batch"].as_f64().unwrap();
    let ideal = scale.tokens as f64 / (batch * capacity);
    let most = most_in_a_second(&arrivals);
    println!(
        "{} tokens, {nodes} nodes, batches of {batch}: {rate:.1} of {capacity} requests/s ({:.1} %), at most {most} in a second; \
         ideal round {ideal:.2} s; worst age p50 {:.2} s, p99 {:.2} s ({:.2} x); as the leader sees it p50 {:.0} ms, p99 {:.0} ms",
        scale.tokens,
        100.0 * rate / capacity,
        worst.0,
        worst.1,
        worst.1 / ideal,
        status["freshness"]["p50_ms"].as_f64().unwrap(),
        status["freshness"]["p99_ms"].as_f64().unwrap(),
    );
    assert_eq!(code, 0, "{status}");
    assert!(most <= 20, "{most} requests within a second");
    if is_long() {
        assert!(rate >= 0.95 * capacity, "{rate} of {capacity}");
        assert!(worst.0 <= 1.2 * ideal && worst.1 <= 1.2 * ideal, "{worst:?}, ideal {ideal}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_nothing_becomes_older_and_freshness_comes_back() {
    let scale = scale();
    let mut house = House::new(scale).await;
    let mut fetchers: Vec<Process> = (1..=4).map(|number| house.fetcher(number)).collect();
    let (first, second) = (house.coordinator("c1"), house.coordinator("c2"));
    let limit = normal(scale);
    let start = Watch::new(&house).until_fresh(limit, 0.0, 90.0).await;
    start.expect("a first round");
    let mut newest = vec![0; Watch::new(&house).newest.len()];
    // Each with the watch going on from what the last one saw.
    macro_rules! after {
        ($what:expr, $at_least:expr) => {{
            let mut watch = Watch { newest, ..Watch::new(&house) };
            // In the long form always until something that goes stale would be seen.
            let at_least = if is_long() { 9.0 } else { $at_least };
            let took = watch.until_fresh(limit, at_least, within() + 10.0).await;
            let took = took.unwrap_or_else(|p99| panic!("{}: p99 is still {p99:.1} s", $what));
            println!("{:<44} fresh again after {took:.1} s ({} looks)", $what, watch.looks);
            assert!(took <= within(), "{}: {took:.1} s", $what);
            newest = watch.newest;
        }};
    }

    fetchers.remove(0).kill();
    after!("a fetch node killed", 1.0);
    fetchers.push(house.fetcher(1));
    after!("and started again", 0.0);

    fetchers[0].signal(Signal::STOP);
    after!("a fetch node stopped", 2.0);
    fetchers[0].signal(Signal::CONT);
    after!("and continued", 0.0);

    let () = house.link.ask(redis::cmd("SCRIPT").arg("FLUSH")).await.unwrap();
    after!("SCRIPT FLUSH", 0.0);

    house.redis.kill().unwrap();
    house.redis.start_again().unwrap();
    after!("Redis killed and started again", 1.0);

    let (leader, other) = match leads(&house).as_str() {
        name if name.starts_with("c1.") => (first, second),
        _ => (second, first),
    };
    let fence = house.status().1["fence"].as_u64().unwrap();
    leader.signal(Signal::STOP);
    // From here the clock runs: take-over and a round.
    after!("the leading coordinator stopped", 3.0);
    let now = another_leads(&house, fence).await;
    leader.signal(Signal::CONT);
    after!("and continued: it does not lead any more", 1.0);
    let again = house.status().1;
    assert_eq!(again["fence"], now["fence"], "nodes and Redis know who leads");

    other.kill();
    after!("the leading coordinator killed", 3.0);
    another_leads(&house, again["fence"].as_u64().unwrap()).await;

    let most = most_in_a_second(&house.arrivals());
    println!("at most {most} requests of a node within a second, all the while");
    assert!(most <= 20, "{most} requests within a second");
    drop(newest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4s_files_work_as_they_are_written_but_for_their_addresses() {
    let house = House::new(Scale { tokens: 20, horizon_secs: 5.0, slack_ms: 40 }).await;
    let folder = tempfile::tempdir().unwrap();
    let fetcher = house.example("fetch_config.example.toml", &[("0.0.0.0:3000", "0.0.0.0:0")]);
    house::put(&folder.path().join("fetch_config.toml"), &fetcher);
    let _fetcher = house.run_in(folder.path(), &["fetcher"]);
    let node = house.node_addr("fetch-001").await;
    assert!(node.starts_with("127.0.0.1:"), "without a key it is on loopback: {node}");
    let theirs = "30392948954970070917163171791403085239525537531204487105908435228957543147284";
    let client =
        house.example("client_config.example.toml", &[(theirs, &house.tokens[0]), ("10.0.0.1:3000", &node)]);
    house::put(&folder.path().join("client_config.toml"), &client);
    let coordinator = house.run_in(folder.path(), &["coordinator"]);
    // `--watch --json` says how it goes, a line a second, and ends with 0 when all is well.
    let mut watching = house.run_in(folder.path(), &["status", "--watch", "--json"]);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(watching.child.stdout.take().unwrap()));
    let mut last = serde_json::Value::Null;
    for line in lines.take(60) {
        last = serde_json::from_str(&line.unwrap()).unwrap();
        if last["freshness"]["never"] == 0 && last["counts"]["ok"].as_u64() > Some(0) {
            break;
        }
    }
    assert_eq!((&last["tokens"], &last["nodes"][0]["id"]), (&1.into(), &"fetch-001".into()), "{last}");
    watching.signal(Signal::INT);
    assert_eq!(watching.child.wait().unwrap().code(), Some(0));
    let book: Vec<String> =
        house.link.ask(redis::cmd("HVALS").arg(format!("ob:{}", house.tokens[0]))).await.unwrap();
    assert_eq!(book.len(), 6);
    drop(coordinator);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_get_nothing_done_and_take_no_memory() {
    let house = House::new(Scale { tokens: 20, horizon_secs: 2.0, slack_ms: 500 }).await;
    let node = house.fetcher(1);
    let addr = house.node_addr("fetch-001").await;
    let mut dice = StdRng::seed_from_u64(18);
    let rounds = if is_long() { 20_000 } else { 400 };
    let mut before = 0;
    for round in 0..rounds {
        let mut bytes = vec![0; dice.random_range(1..2_000)];
        dice.fill(&mut bytes[..]);
        match round % 4 {
            0 => bytes[0] = 0xff,                                      // a length of gigabytes
            1 => bytes.splice(0..0, [0, 0, 0xf, 0xff]).for_each(drop), // almost the longest frame of a stranger
            2 => bytes = framed(r#"{"tokens": ["1"], "trigger": true}"#),
            _ => {}
        }
        let mut stream = std::net::TcpStream::connect(&addr).unwrap();
        // It may hang up before everything is written.
        let _ = stream.write_all(&bytes);
        if round % 4 != 1 {
            let _ = stream.read_to_end(&mut Vec::new());
        }
        if round == rounds / 4 {
            before = house::resident_kib(&node);
        }
    }
    let after = house::resident_kib(&node);
    println!("{rounds} strangers: {before} KiB, then {after} KiB");
    assert!(after < before + 8 * 1_024, "{before} KiB, then {after} KiB");
    assert!(house.arrivals().is_empty(), "nothing was fetched for them");
}

fn framed(body: &str) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body.as_bytes()].concat()
}

/// Waits until somebody leads with a higher fence. In the long form somebody must by now.
async fn another_leads(house: &House, fence: u64) -> serde_json::Value {
    let began = house.seconds();
    loop {
        let status = house.status().1;
        if status["fence"].as_u64() > Some(fence) {
            return status;
        }
        assert!(!is_long() && house.seconds() - began < 30.0, "another leads: {status}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn leads(house: &House) -> String {
    house.status().1["leader"].as_str().unwrap_or("").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_nodes_are_more_requests_in_proportion() {
    let counts: &[usize] = if is_long() { &[1, 2, 4, 8] } else { &[1, 2] };
    let seconds = if is_long() { 15.0 } else { 3.0 };
    let mut single = 0.0;
    for nodes in counts {
        let (horizon_secs, slack_ms) = if is_long() { (5.0, 40) } else { (2.0, 500) };
        let house = House::new(Scale { tokens: 400 * nodes, horizon_secs, slack_ms }).await;
        let _fetchers: Vec<Process> = (1..=*nodes).map(|number| house.fetcher(number)).collect();
        let _coordinator = house.coordinator("c1");
        let mut watch = Watch::new(&house);
        watch.until_fresh(if is_long() { 6.5 } else { 15.0 }, 0.0, 90.0).await.expect("a first round");
        let (before, from) = (house.arrivals().values().map(Vec::len).sum::<usize>(), house.seconds());
        while house.seconds() - from < seconds {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (after, to) = (house.arrivals().values().map(Vec::len).sum::<usize>(), house.seconds());
        let rate = (after - before) as f64 / (to - from);
        if *nodes == 1 {
            single = rate;
        }
        let linear = single * *nodes as f64;
        let share = rate / linear;
        println!("{nodes} nodes: {rate:.1} requests/s, {:.1} % of linear", 100.0 * share);
        let tolerance = if is_long() { 0.05 } else { 0.5 };
        assert!(
            (share - 1.0).abs() <= tolerance,
            "{nodes} nodes: {rate:.1} requests/s, linear would be {linear:.1}"
        );
    }
}
