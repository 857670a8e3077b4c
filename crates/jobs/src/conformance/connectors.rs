//! Connectors.

use std::time::Duration;

use super::*;
use crate::connector::{ConnectorPatch, NamedWindow};
use crate::error::StoreError;
use crate::job::Status;

/// Runs them.
pub async fn all(make: &impl AsyncFn() -> Box<dyn Rig>) {
    a_connector_begins_as_said(&*make().await).await;
    ensuring_twice_gives_the_one_there_is(&*make().await).await;
    of_many_who_ensure_at_once_one_makes_it(&*make().await).await;
    limits_can_be_changed_and_wrong_ones_are_named(&*make().await).await;
    a_deleted_one_is_not_listed_and_can_come_back(&*make().await).await;
    counts_follow_the_jobs(&*make().await).await;
    windows_are_kept_in_their_places(&*make().await).await;
    what_an_exchange_lists_is_known(&*make().await).await;
}

async fn what_an_exchange_lists_is_known(rig: &dyn Rig) {
    let store = rig.store();
    let listed = async |exchange, symbol: &str| store.is_listed(exchange, symbol).await.expect("an answer");
    let list = |symbols: &[&str]| symbols.iter().map(|symbol| (*symbol).to_owned()).collect::<Vec<String>>();
    assert_eq!(listed(binance(), "BTC/USDT").await, None, "it is not known yet");
    let symbols = list(&["BTC/USDT", "ETH/USDT", "BTC/USDT"]);
    store.put_listing(binance(), &symbols).await.expect("kept");
    assert_eq!(listed(binance(), "BTC/USDT").await, Some(true));
    assert_eq!(listed(binance(), "FOO/BAR").await, Some(false));
    assert_eq!(listed(binance(), "{\"$gt\":\"\"}").await, Some(false));
    assert_eq!(listed(okx(), "BTC/USDT").await, None, "each has its own");
    store.put_listing(binance(), &list(&["FOO/BAR"])).await.expect("kept");
    assert_eq!(listed(binance(), "BTC/USDT").await, Some(false), "it is not traded any more");
    assert_eq!(listed(binance(), "FOO/BAR").await, Some(true));
    store.put_listing(binance(), &[]).await.expect("nothing at all is no listing");
    assert_eq!(listed(binance(), "FOO/BAR").await, Some(true));
    let beside = rig.beside().await;
    assert_eq!(beside.is_listed(binance(), "FOO/BAR").await.expect("an answer"), Some(true));
}

async fn a_connector_begins_as_said(rig: &dyn Rig) {
    let store = rig.store();
    let before = store.now().await.expect("a time");
    let new = NewConnector {
        exchange_id: binance(),
        rate: RateLimit { limit: 20, period_ms: 1_500 },
        max_concurrent_jobs: Some(3),
    };
    let (made, is_new) = store.ensure_connector(&new).await.expect("a connector");
    assert!(is_new);
    assert_eq!((made.exchange_id, made.status), (binance(), Status::Active));
    assert_eq!((made.rate_limit, made.rate_limit_period_ms, made.rate_limit_usage), (20, 1_500, 0));
    assert_eq!((made.jobs_count, made.active_jobs_count, made.rate_limit_saturated), (0, 0, 0));
    assert_eq!((made.max_concurrent_jobs, made.notes.clone(), made.last_job_run_time), (Some(3), None, None));
    assert_eq!(made.rate_limit_reset_at.get(), made.rate_limit_window_start.get() + 1_500);
    assert!(made.creation_date >= before && made.creation_date.get() <= before.get() + 60_000);
    assert_eq!(store.connector(binance()).await.expect("an answer"), Some(made.clone()));
    assert_eq!(store.connector(okx()).await.expect("an answer"), None);
    assert_eq!(store.connectors().await.expect("a list"), std::slice::from_ref(&made));
    let json = serde_json::to_value(&made).expect("a document");
    assert_eq!(json["creation_date"], made.creation_date.to_string());
    assert_eq!(serde_json::from_value::<crate::Connector>(json).expect("the same"), made);
}

pub(super) async fn ensuring_twice_gives_the_one_there_is(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, Duration::from_secs(1)).await;
    let first = store.connector(binance()).await.expect("an answer").expect("it is there");
    let other = NewConnector { rate: RateLimit { limit: 99, period_ms: 99 }, ..NewConnector::new(binance()) };
    let (second, is_new) = rig.beside().await.ensure_connector(&other).await.expect("a connector");
    assert!(!is_new);
    assert_eq!(second, first, "the one there is, unchanged");
    assert_eq!(store.connectors().await.expect("a list").len(), 1);
}

pub(super) async fn of_many_who_ensure_at_once_one_makes_it(rig: &dyn Rig) {
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = if n % 2 == 0 { rig.store() } else { rig.beside().await };
        asking.spawn(async move { store.ensure_connector(&NewConnector::new(binance())).await });
    }
    let answers = asking.join_all().await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("a connector")).collect();
    assert_eq!(answers.iter().filter(|(_, is_new)| *is_new).count(), 1, "one made it");
    assert!(answers.iter().all(|(connector, _)| connector.id == answers[0].0.id), "all have the same");
}

async fn limits_can_be_changed_and_wrong_ones_are_named(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, Duration::from_secs(1)).await;
    let patch = ConnectorPatch {
        rate_limit: Some(7),
        max_concurrent_jobs: Some(2),
        notes: Some("mind the weight".to_owned()),
        ..ConnectorPatch::default()
    };
    let changed = store.patch_connector(binance(), &patch).await.expect("a connector");
    assert_eq!((changed.rate_limit, changed.rate_limit_period_ms), (7, 1_000));
    assert_eq!((changed.max_concurrent_jobs, changed.notes.as_deref()), (Some(2), Some("mind the weight")));
    let patch = ConnectorPatch {
        rate_limit_period_ms: Some(60_000),
        max_concurrent_jobs: Some(0),
        notes: Some(String::new()),
        ..ConnectorPatch::default()
    };
    let changed = store.patch_connector(binance(), &patch).await.expect("a connector");
    assert_eq!((changed.rate_limit, changed.rate_limit_period_ms), (7, 60_000));
    assert_eq!((changed.max_concurrent_jobs, changed.notes), (None, None));
    for (patch, named) in [
        (ConnectorPatch { rate_limit: Some(0), ..ConnectorPatch::default() }, "rate_limit"),
        (
            ConnectorPatch { rate_limit_period_ms: Some(0), ..ConnectorPatch::default() },
            "rate_limit_period_ms",
        ),
        (
            ConnectorPatch { rate_limit_period_ms: Some(u64::MAX), ..ConnectorPatch::default() },
            "rate_limit_period_ms",
        ),
        (ConnectorPatch { notes: Some("x".repeat(5_000)), ..ConnectorPatch::default() }, "notes"),
    ] {
        let error = store.patch_connector(binance(), &patch).await.expect_err("it is wrong");
        assert!(matches!(error, StoreError::Invalid { field, .. } if field == named), "{error}");
    }
    let unchanged = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!((unchanged.rate_limit, unchanged.rate_limit_period_ms), (7, 60_000));
    let nobody = store.patch_connector(okx(), &ConnectorPatch::default()).await.expect_err("there is none");
    assert!(matches!(nobody, StoreError::NotFound { what: "connector", .. }), "{nobody}");
}

async fn a_deleted_one_is_not_listed_and_can_come_back(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, Duration::from_secs(1)).await;
    let gone = store.set_connector_status(binance(), Status::Deleted).await.expect("a connector");
    assert_eq!(gone.status, Status::Deleted);
    assert_eq!(store.connectors().await.expect("a list"), []);
    let refused = store.add_job(&hourly(binance(), "BTC/USDT")).await.expect_err("it is gone");
    assert!(matches!(refused, StoreError::Invalid { field: "exchange_id", .. }), "{refused}");
    let (back, is_new) = store.ensure_connector(&NewConnector::new(binance())).await.expect("a connector");
    assert_eq!((back.status, back.id, is_new), (Status::Active, gone.id, false));
    let missing = store.set_connector_status(okx(), Status::Paused).await.expect_err("there is none");
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing}");
}

async fn counts_follow_the_jobs(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, Duration::from_secs(1)).await;
    connect(&*store, okx(), 20, Duration::from_secs(1)).await;
    let counts = async |exchange| {
        let found = store.connector(exchange).await.expect("an answer").expect("it is there");
        (found.jobs_count, found.active_jobs_count)
    };
    let mut ids = Vec::new();
    for symbol in ["A", "B", "C"] {
        ids.push(store.add_job(&hourly(binance(), symbol)).await.expect("a job").id);
    }
    store.add_job(&hourly(binance(), "A")).await.expect_err("there is one");
    assert_eq!((counts(binance()).await, counts(okx()).await), ((3, 3), (0, 0)));
    store.pause_job(ids[0]).await.expect("paused");
    store.pause_job(ids[0]).await.expect("paused already");
    assert_eq!(counts(binance()).await, (3, 2));
    store.delete_job(ids[0]).await.expect("deleted");
    store.delete_job(ids[1]).await.expect("deleted");
    store.delete_job(ids[1]).await.expect("deleted already");
    assert_eq!(counts(binance()).await, (1, 1));
    store.pause_job(ids[2]).await.expect("paused");
    store.resume_job(ids[2]).await.expect("resumed");
    assert_eq!(counts(binance()).await, (1, 1));
    let (_, lease) = claim(&*store, "w").await;
    store.finish(&lease, &crate::Outcome::Success { next_in: None }).await.expect("finished");
    assert_eq!(counts(binance()).await, (1, 0), "finished for good: it rests");
    store.recount(binance()).await.expect("counted");
    assert_eq!(counts(binance()).await, (1, 0));
}

async fn windows_are_kept_in_their_places(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 20, Duration::from_secs(1)).await;
    let window = |name: &str, limit| NamedWindow {
        name: name.to_owned(),
        rate: RateLimit { limit, period_ms: 10_000 },
    };
    let windows = [window("books", 5), window("klines", 9)];
    store.declare_windows(binance(), &windows).await.expect("declared");
    let found = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(found.windows, windows);
    store.declare_windows(binance(), &[window("books", 6)]).await.expect("declared");
    let found = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(found.windows, [window("books", 6)]);
    let wrong = store.declare_windows(binance(), &[window("x", 0)]).await.expect_err("it is wrong");
    assert!(matches!(wrong, StoreError::Invalid { .. }), "{wrong}");
}
