//! Tokens: the budget all share.

use std::time::Duration;

use super::*;
use crate::connector::{ConnectorPatch, NamedWindow};
use crate::error::StoreError;
use crate::job::Status;
use crate::token::{Grant, TokenAsk, Tokens};

const SECOND: Duration = Duration::from_secs(1);
const VALID: Duration = Duration::from_millis(30);

/// Runs them.
pub async fn all(make: &impl AsyncFn() -> Box<dyn Rig>) {
    the_limit_is_given_and_no_more(&*make().await).await;
    the_wait_is_exact(&*make().await).await;
    several_are_given_at_once_and_the_rest_taken_back(&*make().await).await;
    all_windows_are_charged_or_none(&*make().await).await;
    what_is_dearer_than_a_window_has_it_to_itself(&*make().await).await;
    the_system_has_a_limit_of_its_own(&*make().await).await;
    a_paused_connector_gives_none(&*make().await).await;
    a_changed_limit_holds_at_once(&*make().await).await;
    nobody_gets_more_than_the_limit_at_once(&*make().await).await;
}

fn ask(requests: u32) -> TokenAsk<'static> {
    TokenAsk { valid_for: Some(VALID), ..TokenAsk::several(binance(), requests) }
}

/// How many are given at once.
async fn take(store: &dyn Store, ask: &TokenAsk<'_>) -> u32 {
    store.take_tokens(ask).await.expect("an answer").granted().map_or(0, |grant| grant.requests)
}

async fn granted(store: &dyn Store, ask: &TokenAsk<'_>) -> Grant {
    store.take_tokens(ask).await.expect("an answer").granted().expect("there is room")
}

async fn wait(store: &dyn Store, ask: &TokenAsk<'_>) -> Duration {
    match store.take_tokens(ask).await.expect("an answer") {
        Tokens::Wait { retry_after } => retry_after,
        other => panic!("{other:?} where there is no room"),
    }
}

async fn the_limit_is_given_and_no_more(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 5, SECOND * 3_600).await;
    let usage = async || {
        let found = store.connector(binance()).await.expect("an answer").expect("it is there");
        (found.rate_limit_usage, found.rate_limit_saturated)
    };
    for taken in 1..=5 {
        assert_eq!(take(&*store, &ask(1)).await, 1);
        assert_eq!(usage().await, (taken, 0));
    }
    for missed in 1..=3 {
        assert_eq!(take(&*rig.beside().await, &ask(1)).await, 0);
        assert_eq!(usage().await, (5, missed), "each miss is counted");
    }
    // Of the next aligned window, the sliding one keeps everybody out until the last has gone.
    rig.pass(SECOND * 3_600).await;
    if rig.slack().is_zero() {
        assert_eq!(take(&*store, &ask(1)).await, 0, "the validity and the rounding are not over");
    }
    rig.pass(SECOND * 37).await;
    assert_eq!(take(&*store, &ask(9)).await, 5);
    assert_eq!(usage().await.0, 5, "a new window");
    let nobody = store.take_tokens(&TokenAsk::one(okx())).await.expect_err("there is none");
    assert!(matches!(nobody, StoreError::NotFound { what: "connector", .. }), "{nobody}");
    for wrong in [
        TokenAsk { cost: 0, ..ask(1) },
        ask(0),
        TokenAsk { valid_for: Some(SECOND * 11), ..ask(1) },
        TokenAsk { windows: &[0], ..ask(1) },
    ] {
        let error = store.take_tokens(&wrong).await.expect_err("it is wrong");
        assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    }
}

async fn the_wait_is_exact(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 4, SECOND * 100).await;
    let first = granted(&*store, &ask(2)).await;
    rig.pass(SECOND * 10).await;
    granted(&*store, &ask(2)).await;
    rig.pass(SECOND * 5).await;
    let said = wait(&*store, &ask(1)).await;
    // Rounded up to the next hundredth of the period.
    let until = first.marks[0].until - first.granted_at.get();
    assert!((100_031..=101_030).contains(&until), "{until}");
    about(said, Duration::from_millis(until as u64 - 15_000), rig.slack());
    let both = TokenAsk { cost: 3, ..ask(1) };
    // Ten seconds later, and again rounded up.
    about(wait(&*store, &both).await, said + SECOND * 11, rig.slack() + SECOND * 2);
    let step = Duration::from_millis(1) + rig.slack();
    rig.pass(said - step).await;
    if rig.slack().is_zero() {
        assert_eq!(take(&*store, &ask(1)).await, 0, "a millisecond too early");
    }
    rig.pass(step).await;
    assert_eq!(take(&*store, &ask(4)).await, 2, "now the first two are back");
}

async fn several_are_given_at_once_and_the_rest_taken_back(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 10, SECOND * 3_600).await;
    let first = granted(&*store, &ask(6)).await;
    assert_eq!((first.requests, first.cost, first.valid_for), (6, 1, VALID));
    let second = granted(&*store, &ask(6)).await;
    assert_eq!(second.requests, 4, "as many as there are");
    assert_eq!(take(&*store, &ask(1)).await, 0);
    store.give_back(&first, 2).await.expect("taken back");
    let found = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(found.rate_limit_usage, 8);
    let dear = TokenAsk { cost: 2, ..ask(3) };
    let third = granted(&*store, &dear).await;
    assert_eq!((third.requests, third.cost), (1, 2), "in whole requests");
    store.give_back(&third, 1).await.expect("taken back");
    store.give_back(&second, 99).await.expect("not more than were given");
    assert_eq!(take(&*store, &ask(10)).await, 6);
}

async fn all_windows_are_charged_or_none(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 10, SECOND * 3_600).await;
    let window = |name: &str, limit| NamedWindow {
        name: name.to_owned(),
        rate: RateLimit { limit, period_ms: 3_600_000 },
    };
    store.declare_windows(binance(), &[window("books", 3), window("klines", 5)]).await.expect("declared");
    let of = |windows| TokenAsk { windows, ..ask(1) };
    let books = granted(&*store, &TokenAsk { requests: 9, ..of(&[0]) }).await;
    assert_eq!(books.requests, 3, "the smallest window says");
    assert_eq!(take(&*store, &of(&[0])).await, 0);
    assert_eq!(take(&*store, &of(&[0, 1])).await, 0);
    assert_eq!(take(&*store, &TokenAsk { requests: 9, ..of(&[1]) }).await, 5, "a refusal charges nothing");
    assert_eq!(take(&*store, &TokenAsk { requests: 9, ..of(&[]) }).await, 2);
    assert_eq!(take(&*store, &of(&[])).await, 0);
    store.give_back(&books, 1).await.expect("taken back");
    assert_eq!(take(&*store, &of(&[1])).await, 0, "klines are full");
    assert_eq!(take(&*store, &of(&[0])).await, 1, "given back in every window");
}

async fn what_is_dearer_than_a_window_has_it_to_itself(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 3, SECOND * 3_600).await;
    let dear = TokenAsk { cost: 50, ..ask(2) };
    let grant = granted(&*store, &dear).await;
    assert_eq!((grant.requests, grant.cost), (1, 50));
    assert_eq!(take(&*store, &ask(1)).await, 0);
    store.give_back(&grant, 1).await.expect("taken back");
    assert_eq!(take(&*store, &ask(1)).await, 1);
    assert_eq!(take(&*store, &dear).await, 0);
}

async fn the_system_has_a_limit_of_its_own(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 10, SECOND * 3_600).await;
    connect(&*store, okx(), 10, SECOND * 3_600).await;
    store.set_system_limit(Some(RateLimit { limit: 12, period_ms: 3_600_000 })).await.expect("set");
    let grant = granted(&*store, &ask(8)).await;
    let other = TokenAsk { exchange: okx(), ..ask(9) };
    assert_eq!(grant.requests, 8);
    assert_eq!(take(&*store, &other).await, 4);
    assert_eq!(take(&*store, &other).await, 0);
    let of_okx = store.connector(okx()).await.expect("an answer").expect("it is there");
    assert_eq!(of_okx.rate_limit_usage, 4, "a refusal by the system charges nobody");
    store.give_back(&grant, 3).await.expect("taken back");
    assert_eq!(take(&*store, &other).await, 3);
    assert_eq!(store.connectors().await.expect("a list").len(), 2, "the system is no connector");
    store.set_system_limit(None).await.expect("set");
    assert_eq!(take(&*store, &other).await, 3);
    assert_eq!(take(&*store, &ask(10)).await, 5);
}

async fn a_paused_connector_gives_none(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 10, SECOND).await;
    store.set_connector_status(binance(), Status::Paused).await.expect("paused");
    assert_eq!(store.take_tokens(&ask(1)).await.expect("an answer"), Tokens::Paused);
    let found = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!((found.rate_limit_usage, found.rate_limit_saturated), (0, 0));
    store.set_connector_status(binance(), Status::Active).await.expect("resumed");
    assert_eq!(take(&*store, &ask(1)).await, 1);
}

async fn a_changed_limit_holds_at_once(rig: &dyn Rig) {
    let store = rig.store();
    connect(&*store, binance(), 10, SECOND * 3_600).await;
    assert_eq!(take(&*store, &ask(6)).await, 6);
    let set = async |limit| {
        let patch = ConnectorPatch { rate_limit: Some(limit), ..ConnectorPatch::default() };
        store.patch_connector(binance(), &patch).await.expect("changed");
    };
    set(4).await;
    assert_eq!(take(&*store, &ask(1)).await, 0, "what was granted still counts");
    set(7).await;
    assert_eq!(take(&*store, &ask(9)).await, 1);
}

pub(super) async fn nobody_gets_more_than_the_limit_at_once(rig: &dyn Rig) {
    const LIMIT: u32 = 500;
    let store = rig.store();
    connect(&*store, binance(), LIMIT, SECOND * 3_600).await;
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..64 {
        let store = if n % 2 == 0 { rig.store() } else { rig.beside().await };
        asking.spawn(async move {
            let mut taken = 0;
            for requests in 1..=6 {
                taken += take(&*store, &ask(requests)).await;
            }
            taken
        });
    }
    let taken: u32 = asking.join_all().await.into_iter().sum();
    assert_eq!(taken, LIMIT, "exactly");
    let found = store.connector(binance()).await.expect("an answer").expect("it is there");
    assert_eq!(found.rate_limit_usage, LIMIT);
}
