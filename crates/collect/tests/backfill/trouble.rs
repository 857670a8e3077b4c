//! What venues do to those who ask, and what becomes of the jobs.

use catchment_jobs::{Cursor, JobType, State, Status};
use catchment_sim::{Faults, RetryAfter};

use crate::rig::{MINUTE, Rig, at, this_minute};

async fn rig(faults: Faults) -> (Rig, i64) {
    let since = this_minute().get() - 2_500 * MINUTE;
    let rig = Rig::new("binance", &[("binance.candles.since_ms", since.to_string())]).await;
    rig.sim.set_faults("binance", faults).unwrap();
    rig.add(JobType::OhlcvBackfill, "BTC/USDT", Cursor::over(at(since), None)).await;
    (rig, since)
}

#[tokio::test]
async fn a_refusal_makes_the_job_wait_as_long_as_the_venue_says() {
    let faults = Faults {
        refused: 1.0,
        retry_after: RetryAfter::Auto,
        retry_after_ms: 3_000,
        for_ms: Some(500),
        ..Faults::default()
    };
    let (rig, since) = rig(faults).await;
    let waiting = rig.turn().await;
    assert_eq!(waiting.state, State::WaitingRateLimit, "{waiting:?}");
    let wait = waiting.next_run_at.get() - waiting.updated_at.get();
    // The venue's three seconds, and up to half of that on top.
    assert!((2_500..=4_700).contains(&wait), "{wait} ms");
    assert_eq!((waiting.attempts, waiting.stats.fail), (0, 0), "waiting is no failure");
    let ended = rig.work().await;
    assert_eq!(ended.last().unwrap().state, State::Success);
    assert_eq!(rig.missing("BTC/USDT", at(since)).await, []);
    assert_eq!(
        rig.sim.stats()["binance"]["rest/klines"].answers.get(&429),
        Some(&1),
        "nobody asked meanwhile"
    );
}

#[tokio::test]
async fn a_ban_holds_the_job_and_nobody_knocks() {
    let faults = Faults { banned: 1.0, retry_after_ms: 60_000, ..Faults::default() };
    let (rig, _) = rig(faults).await;
    let waiting = rig.turn().await;
    assert_eq!(waiting.state, State::WaitingRateLimit, "{waiting:?}");
    assert!(waiting.next_run_at.get() - waiting.updated_at.get() > 30_000);
    assert_eq!(rig.work().await, []);
    assert_eq!(rig.requests("rest/klines"), 1);
}

#[tokio::test]
async fn a_venue_that_is_out_for_a_moment_costs_a_retry() {
    let faults = Faults { server_error: 1.0, for_ms: Some(100), ..Faults::default() };
    let (rig, since) = rig(faults).await;
    let ended = rig.work().await;
    assert_eq!(ended.last().unwrap().state, State::Success, "{:?}", ended.last());
    assert_eq!(rig.missing("BTC/USDT", at(since)).await, []);
}

#[tokio::test]
async fn a_venue_that_is_out_fails_the_run_and_the_next_goes_on_from_the_cursor() {
    let (rig, since) = rig(Faults::default()).await;
    // The second page and all that follow.
    let first = rig.workers.turn();
    let broken = async {
        while rig.requests("rest/klines") < 1 {
            tokio::task::yield_now().await;
        }
        rig.sim.set_faults("binance", Faults { server_error: 1.0, ..Faults::default() }).unwrap();
    };
    let (turn, ()) = tokio::join!(first, broken);
    let catchment_jobs::Turn::Worked(Some(failed)) = turn.unwrap() else { panic!("it was worked on") };
    assert_eq!(failed.state, State::Failed, "{failed:?}");
    assert!(failed.stats.last_error.as_ref().unwrap().contains("binance answered with status"), "{failed:?}");
    let page = failed.cursor.page;
    assert!(page <= 2);
    rig.sim.set_faults("binance", Faults::default()).unwrap();
    rig.store.run_job_now(failed.id).await.unwrap();
    let ended = rig.work().await;
    assert_eq!(ended.last().unwrap().state, State::Success, "{:?}", ended.last());
    assert_eq!(ended.last().unwrap().cursor.page, 3, "no page twice");
    assert_eq!(rig.missing("BTC/USDT", at(since)).await, []);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_stores_nothing() {
    let faults = Faults { html_200: 1.0, ..Faults::default() };
    let (rig, _) = rig(faults).await;
    let failed = rig.turn().await;
    assert_eq!(failed.state, State::Failed, "{failed:?}");
    assert_eq!(rig.store.coverage(&rig.series("BTC/USDT")).await.unwrap(), None);
}

#[tokio::test]
async fn a_paused_connector_lets_nothing_through() {
    let (rig, _) = rig(Faults::default()).await;
    rig.store.set_connector_status(rig.venue(), Status::Paused).await.unwrap();
    assert_eq!(rig.work().await, []);
    assert_eq!(rig.requests("rest/klines"), 0);
    rig.store.set_connector_status(rig.venue(), Status::Active).await.unwrap();
    assert_eq!(rig.work().await.last().unwrap().state, State::Success);
}

/// Every request has its token: the connector counts what the venue counts.
#[tokio::test]
async fn every_request_takes_a_token_first() {
    let (rig, _) = rig(Faults::default()).await;
    rig.work().await;
    let connector = rig.store.connector(rig.venue()).await.unwrap().unwrap();
    assert_eq!(u64::from(connector.rate_limit_usage), 2 * rig.requests("rest/klines"));
    assert_eq!(rig.governor.snapshot().inflight, 0);
}
