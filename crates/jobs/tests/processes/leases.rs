//! Workers that are stopped and continued, and workers that are killed.

use std::collections::BTreeMap;

use catchment_jobs::conformance::{binance, connect, history, minutes, span};
use catchment_jobs::{Id, State};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;

use super::child::{LEASE, PAGE};
use super::*;

/// A line of a child's log.
struct Line {
    at_ms: u64,
    what: String,
    fence: u64,
    page: u64,
}

fn read_logs(place: &Place, children: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for child in 0..children {
        let text = std::fs::read_to_string(place.log(child)).unwrap_or_default();
        for line in text.lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            // A child may be killed in the middle of a line.
            let [at, what, fence, page] = parts[..] else { continue };
            let numbers = (at.parse(), fence.parse(), page.parse());
            let (Ok(at_ms), Ok(fence), Ok(page)) = numbers else { continue };
            lines.push(Line { at_ms, what: what.to_owned(), fence, page });
        }
    }
    lines.sort_by_key(|line| line.at_ms);
    lines
}

/// A store with one job of so many pages.
async fn prepare(place: &Place) -> (Arc<dyn Store>, Id) {
    let store = open(&place.name).await;
    connect(&*store, binance(), 1_000, Duration::from_secs(1)).await;
    let id = store.add_job(&history(binance(), "BTC/USDT")).await.unwrap().id;
    (store, id)
}

async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Waits until the job is as wished, so long at most.
async fn until(
    store: &dyn Store,
    id: Id,
    within: Duration,
    wished: impl Fn(&catchment_jobs::Job) -> bool,
) -> Option<catchment_jobs::Job> {
    let since = now();
    while now() - since < within {
        let job = store.job(id).await.unwrap().unwrap();
        if wished(&job) {
            return Some(job);
        }
        pause(Duration::from_millis(10)).await;
    }
    None
}

/// Whether the workers were ended in the midst of their work: a store without transactions has the candles of a page before
/// its cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastPage {
    IsSaved,
    MayBeUnderWay,
}

/// Every candle is there, each written by a fence that is not older than that of the candle before it.
async fn check_candles(store: &dyn Store, pages: u64, last_page: LastPage) {
    let series = minutes(binance(), "BTC/USDT");
    let end = pages as i64 * PAGE;
    let coverage = store.coverage(&series).await.unwrap().unwrap();
    let one_more = if last_page == LastPage::MayBeUnderWay { PAGE as u64 } else { 0 };
    let (least, most) = (end as u64, end as u64 + one_more);
    assert!(
        (least..=most).contains(&coverage.candles),
        "none is missing and none is there twice: {coverage:?}"
    );
    assert_eq!(store.missing(&series, span(0, end), 9).await.unwrap(), []);
    let mut fence_before = 0;
    for page in 0..pages as i64 {
        let candles =
            store.candles(&series, span(page * PAGE, (page + 1) * PAGE), PAGE as u32).await.unwrap();
        for candle in candles {
            let fence: u64 = candle.open.as_str().split('.').next().unwrap().parse().unwrap();
            assert!(fence >= fence_before, "page {page}: fence {fence} has written over {fence_before}");
            fence_before = fence;
        }
    }
}

/// The pages that were saved, each once, in order, by fences that grow.
fn check_saves(lines: &[Line], pages: u64) {
    let mut saved: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.what == "saved") {
        let before = saved.insert(line.page, line.fence);
        assert_eq!(before, None, "page {} was saved twice", line.page);
    }
    // A child that is killed between the commit and the line leaves no line, so some may be missing here, and only here.
    assert!(saved.keys().all(|page| *page < pages));
    assert!(saved.values().is_sorted(), "a page was saved under an older fence than the one before it");
}

/// How often somebody tried to save a page after another had begun under a later fence. None of them was taken.
fn stale_tries(lines: &[Line]) -> usize {
    let mut newest = 0;
    let mut tried = Vec::new();
    for line in lines {
        newest = newest.max(line.fence);
        if line.what == "try" && line.fence < newest {
            tried.push((line.fence, line.page));
        }
        let is_taken = line.what == "saved" && tried.contains(&(line.fence, line.page));
        assert!(!is_taken, "page {} was saved under the stale fence {}", line.page, line.fence);
    }
    tried.len()
}

async fn stopped_past_its_lease(place: &Place, cycles: u32) {
    let pages = u64::from(cycles) * 12 + 20;
    let (store, id) = prepare(place).await;
    let more = [("CHILD_PAGES", (pages * 1_000).to_string()), ("CHILD_PAUSE_MS", "30".to_owned())];
    let children: Vec<Running> =
        (0..3).map(|child| start("backfill", &place.name, &place.log(child), &more)).collect();
    let (mut taken_over, mut in_a_transaction) = (0, 0);
    while taken_over < cycles {
        let running = until(&*store, id, Duration::from_secs(60), |job| {
            job.state == State::Running && job.cursor.page > 0
        });
        let job = running.await.expect("somebody works on it");
        let holder = job.lock.locked_by.clone().unwrap();
        let child =
            children.iter().find(|child| holder.contains(&format!("-{}-", child.child.id()))).unwrap();
        child.signal(Signal::STOP);
        let fence = store.job(id).await.unwrap().unwrap().fence;
        let taken = until(&*store, id, LEASE + Duration::from_secs(5), |job| {
            job.fence > fence
                && job.cursor.page > 0
                && job.lock.locked_by.as_deref().is_none_or(|by| *by != holder)
        });
        match taken.await {
            Some(_) => taken_over += 1,
            // It was stopped while it held SQLite's lock: nobody can write, and nothing can become stale.
            None => in_a_transaction += 1,
        }
        assert!(in_a_transaction < cycles + 20, "it is stopped within a transaction all the time");
        child.signal(Signal::CONT);
        // It comes back, and tries to go on where it was.
        pause(Duration::from_millis(120)).await;
    }
    drop(children);
    let lines = read_logs(place, 3);
    let refused = lines.iter().filter(|line| line.what == "refused").count();
    let saved = store.job(id).await.unwrap().unwrap().cursor.page;
    let stale = stale_tries(&lines);
    println!(
        "{taken_over} take-overs, {in_a_transaction} stopped within a transaction, {stale} stale writes tried, {refused} told \
         so, {saved} pages"
    );
    assert_eq!(taken_over, cycles);
    // Otherwise nothing was shown.
    assert!(!is_long() || (stale >= cycles as usize / 10 && refused > 0), "{stale} tried, {refused} told so");
    check_saves(&lines, saved);
    check_candles(&*store, saved, LastPage::MayBeUnderWay).await;
}

async fn killed_at_random(place: &Place, kills: u32, pages: u64) {
    let (store, id) = prepare(place).await;
    // Slow enough that it is not through before the last kill.
    let pause_ms = if is_long() { "20" } else { "50" };
    let more = [("CHILD_PAGES", pages.to_string()), ("CHILD_PAUSE_MS", pause_ms.to_owned())];
    let spawn = |child: usize| start("backfill", &place.name, &place.log(child), &more);
    let mut children: Vec<Running> = (0..3).map(spawn).collect();
    let mut rng = StdRng::seed_from_u64(1);
    let (mut killed, mut killed_at) = (0, Vec::new());
    while killed < kills {
        // While somebody who lives works on it.
        let holder = |job: &catchment_jobs::Job| {
            let by = job.lock.locked_by.clone().unwrap_or_default();
            children.iter().position(|child| by.contains(&format!("-{}-", child.child.id())))
        };
        let is_held = |job: &catchment_jobs::Job| job.state == State::Success || holder(job).is_some();
        until(&*store, id, Duration::from_secs(60), is_held).await.expect("somebody takes it");
        pause(Duration::from_millis(rng.random_range(50..400))).await;
        let held = holder(&store.job(id).await.unwrap().unwrap()).expect("it is not through yet");
        // Mostly whoever holds it, now and then somebody else.
        let at = if rng.random_range(0..4) > 0 { held } else { rng.random_range(0..3) };
        if held == at {
            killed_at.push(now().as_millis() as u64);
        }
        children[at].kill();
        children[at] = spawn(at);
        killed += 1;
    }
    until(&*store, id, Duration::from_secs(900), |job| job.state == State::Success)
        .await
        .expect("it is finished");
    drop(children);
    let lines = read_logs(place, 3);
    check_saves(&lines, pages);
    check_candles(&*store, pages, LastPage::IsSaved).await;
    let fetched = lines.iter().filter(|line| line.what == "fetch").count() as u64;
    let slowest = killed_at.iter().filter_map(|at| {
        let next = lines.iter().find(|line| line.at_ms > *at + 5 && line.what == "saved")?;
        Some(next.at_ms - at)
    });
    let slowest = slowest.max().unwrap_or(0);
    // A machine with other things to do may let a lease run out without a kill; whoever lost it was refused.
    let refused = lines.iter().filter(|line| line.what == "refused").count() as u64;
    println!(
        "{killed} kills, {pages} pages, {} fetched again, {refused} writes refused, slowest take-over {slowest} ms",
        fetched - pages
    );
    assert_eq!(killed, kills);
    assert!(killed_at.len() >= kills as usize / 2, "{} of {kills} met the one at work", killed_at.len());
    assert!(fetched <= pages + u64::from(killed) + refused, "at most one page a kill is fetched again");
    assert!(u128::from(slowest) <= LEASE.as_millis() + 5_000, "a take-over took {slowest} ms");
}

fn cycles(short: u32) -> u32 {
    if is_long() { 100 } else { short }
}

/// Five years of minutes in the long form.
fn pages() -> u64 {
    if is_long() { 2_628 } else { 60 }
}

#[tokio::test]
async fn a_worker_that_was_stopped_past_its_lease_changes_nothing() {
    stopped_past_its_lease(&Place::sqlite(), cycles(3)).await;
}

#[tokio::test]
async fn killed_workers_lose_and_double_nothing() {
    killed_at_random(&Place::sqlite(), cycles(5), pages()).await;
}

#[tokio::test]
async fn a_worker_that_was_stopped_past_its_lease_changes_nothing_in_mongo() {
    stopped_past_its_lease(&Place::mongo(), cycles(3)).await;
}

#[tokio::test]
async fn killed_workers_lose_and_double_nothing_in_mongo() {
    killed_at_random(&Place::mongo(), cycles(5), pages()).await;
}
