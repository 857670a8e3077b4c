//! Silence at size, and planned reconnects by the dozen: with the settings of production, on a clock that jumps.

use std::time::Duration;

use catchment_collect::stream::StreamSettings;
use catchment_sim::{StreamFault, StreamFaultKind as Kind};
use catchment_venues::stream::Descriptor;
use tokio::time::{sleep, timeout};

use crate::is_long;
use crate::verdict;
use crate::world::{self, World};

const LIVELY: usize = 12;
const QUIET: usize = 200;

fn names() -> Vec<String> {
    let coins = ["BTC", "ETH", "SOL", "XRP", "DOGE", "ADA"];
    coins.iter().flat_map(|coin| [format!("{coin}/USDT"), format!("{coin}/USD")]).take(LIVELY).collect()
}

fn settings() -> StreamSettings {
    StreamSettings { snapshot_interval: Duration::from_secs(3_600), seed: 9, ..StreamSettings::default() }
}

/// One lively stream falls mute among 200 that are always quiet: it is found within half a minute, and nobody else is
/// accused.
async fn a_muted_one_among_the_quiet(venue: &'static str) {
    let mut world = World::start(world::config(LIVELY as u32, QUIET as u32)).await;
    let lively = names();
    let mut all = lively.clone();
    all.extend((0..QUIET).map(|at| format!("QUIET{at}/USDT")));
    world.record(venue, &["trades", "book_delta"], &all, settings());
    let mut status = world.status(venue);
    let well = world::flows_within(&mut status, Duration::from_secs(300)).await;
    assert!(well, "{:#?}", status.borrow());
    let minutes = if is_long() { 60 } else { 5 };
    sleep(Duration::from_secs(60 * minutes)).await;
    let witnesses = status.borrow().counts.witnesses;
    let mut found = Vec::new();
    for (symbol, channel) in [(&lively[3], "trades"), (&lively[7], "book_delta")] {
        let id = world
            .sim
            .inject(venue, &StreamFault::new(Kind::Mute).on(symbol, channel).for_ms(40_000))
            .unwrap();
        sleep(Duration::from_secs(90)).await;
        let entry = world.sim.log().into_iter().find(|entry| entry.venue == venue && entry.id == id).unwrap();
        found.push((symbol.clone(), channel, entry.from_ms.unwrap()));
    }
    let well = world::flows_within(&mut status, Duration::from_secs(120)).await;
    assert!(well, "{:#?}", status.borrow());
    let (sim, kepts, statuses) = world.finish().await;
    for (symbol, channel, muted_ms) in found {
        let of = |told: &&crate::ledger::ToldGap| told.symbol == symbol && told.gap.channel == channel;
        // The gap is told in pieces; the first is told a few seconds after the silence was noticed.
        let told = kepts.gaps.iter().filter(of).map(|told| told.told_ms).min();
        let after = told.map(|told| told - muted_ms);
        println!(
            "{venue}: {channel} of {symbol} muted, told after {after:?} ms ({witnesses} questions before)"
        );
        assert!(after.is_some_and(|after| after <= 30_000), "{venue} {channel} {symbol}: {:#?}", kepts.gaps);
    }
    let others = kepts.gaps.iter().filter(|told| told.symbol.starts_with("QUIET")).count();
    assert_eq!(others, 0, "{:#?}", kepts.gaps);
    let verdict = verdict::judge(&sim, &kepts);
    println!("{venue}: {verdict}");
    assert!(verdict.is_clean(), "{venue}: {verdict:#}");
    assert_eq!(statuses[0].1.counts.disconnects, 0, "{:#?}", statuses[0].1.counts);
}

/// What is sent with trades only is quiet where nobody trades, and nobody is accused, though candles of REST go on.
async fn what_needs_a_trade_is_quiet_without(venue: &'static str, channels: &[&str]) {
    let mut world = World::start(world::config(2, 40)).await;
    let mut all: Vec<String> = names().into_iter().take(2).collect();
    all.extend((0..40).map(|at| format!("QUIET{at}/USDT")));
    world.record(venue, channels, &all, settings());
    sleep(Duration::from_secs(60 * 15)).await;
    let (_, kepts, statuses) = world.finish().await;
    let told: Vec<_> = kepts.gaps.iter().filter(|told| told.symbol.starts_with("QUIET")).collect();
    assert!(told.is_empty(), "{venue}: {told:#?}");
    let counts = statuses[0].1.counts;
    assert!(counts.witnesses > 0 && counts.frozen == 0, "{venue}: {counts:#?}");
}

#[tokio::test(start_paused = true)]
async fn tickers_and_candles_are_quiet_without_trades_at_binance() {
    what_needs_a_trade_is_quiet_without("binance", &["candles"]).await;
}

#[tokio::test(start_paused = true)]
async fn tickers_and_candles_are_quiet_without_trades_at_coinbase() {
    what_needs_a_trade_is_quiet_without("coinbase", &["ticker"]).await;
}

#[tokio::test(start_paused = true)]
async fn tickers_and_candles_are_quiet_without_trades_at_kraken() {
    what_needs_a_trade_is_quiet_without("kraken", &["ticker", "candles"]).await;
}

#[tokio::test(start_paused = true)]
async fn tickers_and_candles_are_quiet_without_trades_at_okx() {
    what_needs_a_trade_is_quiet_without("okx", &["candles"]).await;
}

#[tokio::test(start_paused = true)]
async fn tickers_and_candles_are_quiet_without_trades_at_bybit() {
    what_needs_a_trade_is_quiet_without("bybit", &["ticker", "candles"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_muted_one_among_200_quiet_ones_is_found_at_binance() {
    a_muted_one_among_the_quiet("binance").await;
}

#[tokio::test(start_paused = true)]
async fn a_muted_one_among_200_quiet_ones_is_found_at_coinbase() {
    a_muted_one_among_the_quiet("coinbase").await;
}

#[tokio::test(start_paused = true)]
async fn a_muted_one_among_200_quiet_ones_is_found_at_kraken() {
    a_muted_one_among_the_quiet("kraken").await;
}

#[tokio::test(start_paused = true)]
async fn a_muted_one_among_200_quiet_ones_is_found_at_okx() {
    a_muted_one_among_the_quiet("okx").await;
}

#[tokio::test(start_paused = true)]
async fn a_muted_one_among_200_quiet_ones_is_found_at_bybit() {
    a_muted_one_among_the_quiet("bybit").await;
}

/// The venue's description with connections that live for two minutes.
fn short_lived(venue: &str) -> Descriptor {
    let text = match venue {
        "binance" => include_str!("../../../venues/descriptors/binance.toml"),
        "coinbase" => include_str!("../../../venues/descriptors/coinbase.toml"),
        "kraken" => include_str!("../../../venues/descriptors/kraken.toml"),
        "okx" => include_str!("../../../venues/descriptors/okx.toml"),
        "bybit" => include_str!("../../../venues/descriptors/bybit.toml"),
        _ => include_str!("../../../venues/descriptors/polymarket.toml"),
    };
    let line = text.lines().find(|line| line.starts_with("dead_after_ms")).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("lifetime_s")).collect();
    let text = kept.join("\n").replacen(line, &format!("{line}\nlifetime_s = 120"), 1);
    Descriptor::read(venue, &text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn fifty_planned_reconnects_lose_nothing_and_double_nothing() {
    let mut config = world::config(3, 0);
    for session in [
        &mut config.binance.session,
        &mut config.coinbase.session,
        &mut config.kraken.session,
        &mut config.okx.session,
        &mut config.bybit.session,
    ] {
        session.life_ms = Some(120_000);
    }
    let mut world = World::start(config).await;
    let symbols: Vec<String> = names()[..3].to_vec();
    let channels = ["trades", "book_delta"];
    let venues = ["binance", "coinbase", "kraken", "okx", "bybit"];
    for venue in venues {
        world.record_as(short_lived(venue), venue, &channels, &symbols, settings());
    }
    let each = if is_long() { 50 } else { 10 };
    for venue in venues {
        let mut status = world.status(venue);
        let enough = status.wait_for(|status| status.counts.switches >= each);
        assert!(timeout(Duration::from_secs(20_000), enough).await.is_ok(), "{:#?}", status.borrow());
    }
    let (sim, kepts, statuses) = world.finish().await;
    let switches: u64 = statuses.iter().map(|(_, status)| status.counts.switches).sum();
    let verdict = verdict::judge(&sim, &kepts);
    println!("{switches} planned reconnects: {verdict}");
    assert!(verdict.is_clean() && switches >= 50, "{verdict:#}");
    for (venue, status) in statuses {
        assert_eq!(
            (status.counts.disconnects, status.counts.gaps_told),
            (0, 0),
            "{venue}: {:#?}",
            status.counts
        );
    }
}
