//! Candles, and what is missing of them.

use super::*;
use crate::candles::{Coverage, Hole};
use crate::error::StoreError;

/// Runs them.
pub async fn all(make: &impl AsyncFn() -> Box<dyn Rig>) {
    a_candle_is_there_once(&*make().await).await;
    digits_are_kept(&*make().await).await;
    series_are_apart(&*make().await).await;
    what_is_missing_is_found(&*make().await).await;
    holes_are_noted_once(&*make().await).await;
    many_candles_fit(&*make().await).await;
}

async fn a_candle_is_there_once(rig: &dyn Rig) {
    let (store, series) = (rig.store(), minutes(binance(), "BTC/USDT"));
    assert_eq!(store.coverage(&series).await.expect("an answer"), None);
    store.put_candles(&series, &some_candles(0, 10, 1)).await.expect("stored");
    store.put_candles(&series, &some_candles(5, 10, 2)).await.expect("stored");
    store.put_candles(&series, &[]).await.expect("nothing is fine");
    let found = store.candles(&series, span(0, 100), 1_000).await.expect("candles");
    let expected: Vec<Candle> = some_candles(0, 5, 1).into_iter().chain(some_candles(5, 10, 2)).collect();
    assert_eq!(found, expected, "the later one is kept");
    let coverage = Coverage { candles: 15, first: minute_at(0), last: minute_at(14) };
    assert_eq!(store.coverage(&series).await.expect("an answer"), Some(coverage));
    let part = store.candles(&series, span(3, 8), 3).await.expect("candles");
    assert_eq!(part, expected[3..6], "from the first on, not more than asked for");
    let mut open = some_candles(20, 1, 1);
    open[0].is_final = false;
    let error = store.put_candles(&series, &open).await.expect_err("it has not closed");
    assert!(matches!(error, StoreError::Invalid { field: "candles", .. }), "{error}");
}

async fn digits_are_kept(rig: &dyn Rig) {
    let (store, series) = (rig.store(), minutes(binance(), "quo\"ted\\ $ne {} é"));
    let mut candles = some_candles(0, 4, 1);
    for (candle, text) in
        candles.iter_mut().zip(["0.00000000000000000001", "1e-7", "9".repeat(40).as_str(), "00.10"])
    {
        candle.open = text.parse().expect("a decimal");
    }
    store.put_candles(&series, &candles).await.expect("stored");
    let found = store.candles(&series, span(0, 9), 9).await.expect("candles");
    for (found, given) in found.iter().zip(&candles) {
        assert_eq!(found.open.as_str(), given.open.as_str());
        assert_eq!(found, given);
    }
}

async fn series_are_apart(rig: &dyn Rig) {
    let store = rig.store();
    let btc = minutes(binance(), "BTC/USDT");
    let others = [
        minutes(binance(), "ETH/USDT"),
        minutes(okx(), "BTC/USDT"),
        Series { timeframe: Timeframe::H1, ..btc.clone() },
    ];
    store.put_candles(&btc, &some_candles(0, 3, 1)).await.expect("stored");
    for other in &others {
        assert_eq!(store.candles(other, span(0, 9), 9).await.expect("candles"), []);
        store.note_hole(other, Hole::absent(span(0, 9))).await.expect("noted");
    }
    assert_eq!(store.holes(&btc).await.expect("holes"), []);
}

async fn what_is_missing_is_found(rig: &dyn Rig) {
    let (store, series) = (rig.store(), minutes(binance(), "BTC/USDT"));
    let missing = async |from, to, limit| store.missing(&series, span(from, to), limit).await.expect("spans");
    assert_eq!(missing(0, 10, 9).await, [span(0, 10)]);
    for (first, len) in [(2, 3), (7, 1), (9, 2)] {
        store.put_candles(&series, &some_candles(first, len, 1)).await.expect("stored");
    }
    assert_eq!(missing(0, 12, 9).await, [span(0, 2), span(5, 7), span(8, 9), span(11, 12)]);
    assert_eq!(missing(0, 12, 2).await, [span(0, 2), span(5, 7)]);
    assert_eq!(missing(3, 6, 9).await, [span(5, 6)]);
    assert_eq!(missing(2, 5, 9).await, []);
    store.note_hole(&series, Hole::absent(span(5, 6))).await.expect("noted");
    store.note_hole(&series, Hole::unreachable(span(8, 9))).await.expect("noted");
    assert_eq!(
        missing(0, 12, 9).await,
        [span(0, 2), span(6, 7), span(11, 12)],
        "holes are not asked for again"
    );
    // The minute that has not ended is not missing.
    let now = store.now().await.expect("a time");
    let open = Timeframe::M1.open_of(now);
    let around = Span { from: from_ms(open.get() - 60_000), to: from_ms(open.get() + 600_000) };
    let found = store.missing(&series, around, 9).await.expect("spans");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].from, around.from);
    assert!(found[0].to.get() <= open.get() + 60_000, "{found:?} at {now}");
}

async fn holes_are_noted_once(rig: &dyn Rig) {
    let (store, series) = (rig.store(), minutes(binance(), "BTC/USDT"));
    let absent = |from, to| Hole::absent(span(from, to));
    let holes = async || store.holes(&series).await.expect("holes");
    for (from, to) in [(10, 20), (30, 40), (12, 15), (40, 45), (5, 10), (60, 70), (10, 20)] {
        store.note_hole(&series, absent(from, to)).await.expect("noted");
    }
    assert_eq!(holes().await, [absent(5, 20), absent(30, 45), absent(60, 70)]);
    store.note_hole(&series, absent(0, 65)).await.expect("noted");
    assert_eq!(holes().await, [absent(0, 70)]);
    // What is out of reach is told from what is not there, also where they meet or overlap.
    let unreachable = |from, to| Hole::unreachable(span(from, to));
    for (from, to) in [(70, 80), (80, 90), (60, 65), (0, 5)] {
        store.note_hole(&series, unreachable(from, to)).await.expect("noted");
    }
    let all = [unreachable(0, 5), absent(0, 70), unreachable(60, 65), unreachable(70, 90)];
    assert_eq!(holes().await, all);
    assert_eq!(store.missing(&series, span(0, 95), 9).await.expect("spans"), [span(90, 95)]);
}

async fn many_candles_fit(rig: &dyn Rig) {
    let (store, series) = (rig.store(), minutes(binance(), "BTC/USDT"));
    store.put_candles(&series, &some_candles(0, 2_500, 1)).await.expect("stored");
    assert_eq!(store.candles(&series, span(0, 9_999), 9_999).await.expect("candles").len(), 2_500);
    assert_eq!(store.missing(&series, span(0, 2_500), 9).await.expect("spans"), []);
}
