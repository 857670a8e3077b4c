//! Silence: quiet, frozen, refused, dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use catchment_venues::stream::Descriptor;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::rig::{Start, gap, impatient};
use crate::stage::{PATIENCE, Session, Stage};

const BINANCE: &str = include_str!("../../../venues/descriptors/binance.toml");
const OKX: &str = include_str!("../../../venues/descriptors/okx.toml");

/// Answers for trades with the newest number of each symbol, 1 unless it is BTC's.
fn witness(newest: Arc<AtomicU64>) -> impl Fn(&str) -> (u16, String) + Send + Sync {
    move |path| match path {
        path if path.contains("symbol=NOUSDT") => {
            (400, r#"{"code":-1121,"msg":"Invalid symbol."}"#.to_owned())
        }
        path if path.starts_with("/api/v3/trades") => {
            let number = if path.contains("symbol=BTCUSDT") { newest.load(Relaxed) } else { 1 };
            (
                200,
                json!([{"id": number, "price": "1", "qty": "1", "time": 1_700_000_000_000_i64}]).to_string(),
            )
        }
        _ => (503, "{}".to_owned()),
    }
}

/// Lets these trade every 20 ms until something is said.
async fn trade_until_heard(session: &mut Session, symbols: &[&str], number: &mut u64) -> Value {
    for _ in 0..PATIENCE.as_millis() / 20 {
        for symbol in symbols {
            session.trade(symbol, *number).await;
        }
        *number += 1;
        if let Ok(heard) = tokio::time::timeout(Duration::from_millis(20), session.heard()).await {
            return serde_json::from_str(&heard).unwrap();
        }
    }
    panic!("nothing was said");
}

#[tokio::test]
async fn a_muted_stream_is_found_and_subscribed_anew_while_the_others_flow() {
    let newest = Arc::new(AtomicU64::new(0));
    let mut stage = Stage::start(witness(Arc::clone(&newest))).await;
    let streams = [("trades", "BTC/USDT"), ("trades", "ETH/USDT"), ("trades", "LTC/USDT")];
    let mut start = Start::venue("binance", &streams);
    start.settings.silence = impatient();
    let rig = start.on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    let mut number = 1;
    for _ in 0..12 {
        for symbol in ["BTCUSDT", "ETHUSDT", "LTCUSDT"] {
            session.trade(symbol, number).await;
        }
        number += 1;
        rig.wait_for("trades", 3 * (number as usize - 1)).await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    // The venue goes on with BTC, and does not send it.
    newest.store(number + 5, Relaxed);
    let said = trade_until_heard(&mut session, &["ETHUSDT", "LTCUSDT"], &mut number).await;
    assert_eq!((&said["method"], &said["params"]), (&"UNSUBSCRIBE".into(), &json!(["btcusdt@trade"])));
    session.say(json!({"result": null, "id": said["id"]}).to_string()).await;
    let said = trade_until_heard(&mut session, &["ETHUSDT", "LTCUSDT"], &mut number).await;
    assert_eq!((&said["method"], &said["params"]), (&"SUBSCRIBE".into(), &json!(["btcusdt@trade"])));
    session.say(json!({"result": null, "id": said["id"]}).to_string()).await;
    session.trade("BTCUSDT", number + 10).await;
    let gaps = rig.wait_for("gaps", 1).await;
    let (_, status) = rig.finish().await;
    assert_eq!(
        gaps.iter().map(gap).collect::<Vec<_>>(),
        [format!("trades BTC/USDT silence 13..{}", number + 9)]
    );
    assert_eq!((status.counts.frozen, status.counts.disconnects), (1, 0));
}

#[tokio::test]
async fn two_hundred_quiet_streams_raise_no_alarm() {
    let mut stage = Stage::start(witness(Arc::new(AtomicU64::new(1)))).await;
    let symbols: Vec<String> =
        (0..200).map(|n| format!("Q{n}/USDT")).chain(["ETH/USDT".to_owned()]).collect();
    let streams: Vec<(&str, &str)> = symbols.iter().map(|symbol| ("trades", symbol.as_str())).collect();
    let mut start = Start::venue("binance", &streams);
    start.settings.silence = impatient();
    let rig = start.on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    session.binance().await;
    for number in 0..100 {
        session.trade("ETHUSDT", number).await;
        rig.wait_for("trades", number as usize + 1).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let (records, status) = rig.finish().await;
    assert_eq!(records.len(), 100, "trades, and nothing else");
    assert_eq!((status.counts.frozen, status.counts.gaps_told), (0, 0));
    assert!(status.counts.witnesses >= 200, "they were doubted: {}", status.counts.witnesses);
}

#[tokio::test]
async fn a_refused_subscription_is_told_and_the_others_flow() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("binance", &[("trades", "BTC/USDT"), ("trades", "NO/USDT")]).on(&stage);
    let mut session = stage.session().await;
    // The request for both is refused, then the one alone. It is asked for again later.
    let mut refusals = 0;
    while refusals < 3 {
        let command: Value = serde_json::from_str(&session.heard().await).unwrap();
        let has_bad = command["params"].as_array().unwrap().contains(&"nousdt@trade".into());
        let answer = match has_bad {
            true => json!({"code": 2, "msg": "Invalid request: unknown stream", "id": command["id"]}),
            false => json!({"result": null, "id": command["id"]}),
        };
        refusals += u32::from(has_bad);
        session.say(answer.to_string()).await;
    }
    session.trade("BTCUSDT", 1).await;
    rig.wait_for("trades", 1).await;
    rig.wait_for("gaps", 1).await;
    let (records, status) = rig.finish().await;
    let gaps: Vec<String> = records.iter().filter(|line| line["channel"] == "gaps").map(gap).collect();
    assert!(!gaps.is_empty() && gaps.iter().all(|told| told == "trades NO/USDT failure -..-"), "{gaps:?}");
    assert!(status.counts.subscriptions_failed >= 2);
    let trouble = &status.connections[0].last_error.as_deref().unwrap();
    assert!(trouble.contains("unknown stream"), "{trouble}");
}

#[tokio::test]
async fn a_name_that_is_acknowledged_and_does_not_exist_is_told() {
    let mut stage = Stage::start(witness(Arc::new(AtomicU64::new(1)))).await;
    let mut start = Start::venue("binance", &[("trades", "ETH/USDT"), ("trades", "NO/USDT")]);
    start.settings.silence = impatient();
    let mut rig = start.on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    rig.wait_status("the trouble", |status| status.counts.subscriptions_failed > 0).await;
    let (_, status) = rig.finish().await;
    let said = status.connections[0].last_error.as_deref().unwrap();
    assert!(said.contains("trades of NO/USDT") && said.contains("does not know it"), "{said}");
}

#[tokio::test]
async fn a_dead_link_is_replaced_and_told_as_silence() {
    let text = BINANCE.replace("dead_after_ms = 45_000", "dead_after_ms = 300");
    let text = text.replace("server_every_ms = 20_000", "server_every_ms = 100");
    let mut stage = Stage::silent().await;
    let rig = Start::described(Descriptor::read("binance.toml", &text).unwrap(), &[("trades", "BTC/USDT")])
        .on(&stage);
    let mut dead = stage.session().await;
    dead.binance().await;
    dead.trade("BTCUSDT", 1).await;
    let mut session = stage.session().await;
    session.binance().await;
    session.trade("BTCUSDT", 3).await;
    let gaps = rig.wait_for("gaps", 1).await;
    assert_eq!(gaps.iter().map(gap).collect::<Vec<_>>(), ["trades BTC/USDT silence 2..2"]);
    drop(dead);
}

#[tokio::test]
async fn a_frozen_connection_is_replaced_though_it_pings() {
    let newest = Arc::new(AtomicU64::new(0));
    let answer = Arc::clone(&newest);
    let mut stage = Stage::start(move |path| {
        let number = answer.load(Relaxed);
        match path.starts_with("/api/v3/trades") {
            true => (200, json!([{"id": number, "time": 1_700_000_000_000_i64}]).to_string()),
            false => (503, "{}".to_owned()),
        }
    })
    .await;
    let streams = [("trades", "BTC/USDT"), ("trades", "ETH/USDT"), ("trades", "LTC/USDT")];
    let mut start = Start::venue("binance", &streams);
    start.settings.silence = impatient();
    let rig = start.on(&stage);
    let mut frozen = stage.session().await;
    frozen.binance().await;
    for number in 1..=12 {
        for symbol in ["BTCUSDT", "ETHUSDT", "LTCUSDT"] {
            frozen.trade(symbol, number).await;
        }
        rig.wait_for("trades", 3 * number as usize).await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    newest.store(20, Relaxed);
    let pings = async {
        // Until the client has had enough.
        while futures_util::SinkExt::send(&mut frozen.ws, Message::Ping("x".into())).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut session = tokio::select! {
        session = stage.session() => session,
        () = pings => unreachable!("it pings for ever"),
    };
    session.binance().await;
    for symbol in ["BTCUSDT", "ETHUSDT", "LTCUSDT"] {
        session.trade(symbol, 21).await;
    }
    let gaps = rig.wait_for("gaps", 3).await;
    for (record, symbol) in gaps.iter().zip(["BTC", "ETH", "LTC"]) {
        assert_eq!(gap(record), format!("trades {symbol}/USDT silence 13..20"));
    }
}

#[tokio::test]
async fn pings_are_sent_as_the_venue_wants_them() {
    let text = OKX.replacen("ping_every_ms = 15_000", "ping_every_ms = 50", 1);
    let mut stage = Stage::silent().await;
    let _rig =
        Start::described(Descriptor::read("okx.toml", &text).unwrap(), &[("trades", "BTC/USDT")]).on(&stage);
    let mut session = stage.session().await;
    let subscribe: Value = serde_json::from_str(&session.heard().await).unwrap();
    assert_eq!(subscribe["op"], "subscribe");
    for _ in 0..3 {
        assert_eq!(session.heard().await, "ping");
        session.say("pong").await;
    }
}
