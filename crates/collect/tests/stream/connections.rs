//! Connections: subscribing, breaking, being replaced.

use std::time::Duration;

use catchment_collect::stream::{GapSettings, StreamSettings};
use catchment_model::{Cause, Channel, Clock, SystemClock, UnixMs, Venue};
use catchment_pipeline::Resumed;
use catchment_venues::stream::Descriptor;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::rig::{Start, gap, sequences};
use crate::stage::{PATIENCE, Session, Stage, trade};

const BINANCE: &str = include_str!("../../../venues/descriptors/binance.toml");
const TRADES: &[(&str, &str)] = &[("trades", "BTC/USDT"), ("trades", "ETH/USDT")];

async fn subscribed(stage: &mut Stage) -> Session {
    let mut session = stage.session().await;
    let (method, mut streams) = session.binance().await;
    streams.sort();
    assert_eq!((method.as_str(), streams.join(" ").as_str()), ("SUBSCRIBE", "btcusdt@trade ethusdt@trade"));
    session
}

fn times(records: &[Value], symbol: &str) -> Vec<i64> {
    let of = records.iter().filter(|line| line["channel"] == "trades" && line["symbol"] == symbol);
    of.map(|line| line["received_at_ms"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn messages_are_stored_as_they_came() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("binance", TRADES).on(&stage);
    let mut session = subscribed(&mut stage).await;
    session.trade("BTCUSDT", 7).await;
    let records = rig.wait_for("trades", 1).await;
    assert!(rig.has_payload(&trade("BTCUSDT", 7)), "byte for byte");
    assert_eq!(records[0]["exchange"], "binance");
    assert_eq!((&records[0]["message_id"], &records[0]["sequence"]), (&"7".into(), &7.into()));
    assert_eq!((&records[0]["symbol"], &records[0]["source"]), (&"BTC/USDT".into(), &"ws:public-0.1".into()));
    assert_eq!(records[0]["server_time_ms"], 1_700_000_000_000_i64);
    let (_, status) = rig.finish().await;
    assert_eq!((status.counts.messages, status.counts.gaps_told), (1, 0));
}

#[tokio::test]
async fn a_lost_connection_is_a_gap_with_exact_bounds() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("binance", TRADES).on(&stage);
    let mut session = subscribed(&mut stage).await;
    for (symbol, number) in [("BTCUSDT", 1), ("BTCUSDT", 2), ("ETHUSDT", 50)] {
        session.trade(symbol, number).await;
    }
    rig.wait_for("trades", 3).await;
    session.cut();
    let mut session = subscribed(&mut stage).await;
    session.trade("BTCUSDT", 6).await; // three are missing
    session.trade("ETHUSDT", 51).await; // none is
    session.trade("BTCUSDT", 7).await;
    rig.wait_for("trades", 6).await;
    let (records, status) = rig.finish().await;

    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    let told: Vec<String> = gaps.iter().map(|record| gap(record)).collect();
    assert_eq!(told, ["trades BTC/USDT disconnect 3..5", "trades ETH/USDT disconnect -..-"]);
    for (record, symbol, before, missing) in [(gaps[0], "BTC/USDT", 1, 3), (gaps[1], "ETH/USDT", 0, 0)] {
        let (payload, times) = (&record["payload"], times(&records, symbol));
        assert_eq!(payload["from_ms"], times[before], "the last good one before");
        assert_eq!(payload["to_ms"], times[before + 1], "the first good one after");
        assert_eq!((&payload["records"], &payload["connection"]), (&missing.into(), &"public-0.1".into()));
    }
    assert_eq!(status.counts.disconnects, 1);
}

#[tokio::test]
async fn a_venue_that_cannot_be_reached_at_the_start_is_a_gap_until_it_can() {
    // Taken, and nobody listens: whoever connects is refused.
    let place = TcpSocket::new_v4().unwrap();
    place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = place.local_addr().unwrap();
    let started = SystemClock::new().wall().ms().get();
    let start = Start::venue("binance", TRADES);
    let gaps = GapSettings { tell_after: PATIENCE, ..start.settings.gaps };
    let settings = StreamSettings { gaps, ..start.settings };
    let mut rig = Start { settings, ..start }.where_it_is(addr);
    rig.wait_status("some attempts", |status| status.counts.connects_failed >= 3).await;
    assert_eq!(rig.status.borrow().connections[0].gaps_open, TRADES.len());

    let mut stage = Stage::silent_at(place);
    let mut session = subscribed(&mut stage).await;
    session.trade("BTCUSDT", 1).await;
    session.trade("ETHUSDT", 50).await;
    session.trade("BTCUSDT", 2).await;
    rig.wait_for("trades", 3).await;
    let (records, status) = rig.finish().await;

    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    let told: Vec<String> = gaps.iter().map(|record| gap(record)).collect();
    assert_eq!(told, ["trades BTC/USDT disconnect -..-", "trades ETH/USDT disconnect -..-"]);
    for (record, symbol) in gaps.iter().zip(["BTC/USDT", "ETH/USDT"]) {
        let (payload, first) = (&record["payload"], times(&records, symbol)[0]);
        let from = payload["from_ms"].as_i64().unwrap();
        assert!((started..first).contains(&from), "since the start, {started}: {payload}");
        assert_eq!(payload["to_ms"], first, "the first good one");
        assert_eq!(payload["records"], Value::Null, "nobody knows how many");
    }
    assert_eq!((status.counts.disconnects, status.counts.gaps_told), (0, 2));
}

#[tokio::test]
async fn a_connection_that_waits_its_turn_has_missed_nothing() {
    let mut stage = Stage::silent().await;
    // One connection a second, one stream on each.
    let text = BINANCE.replace("subscriptions_max = 1024", "subscriptions_max = 1").replace(
        "connects = { count = 300, window_ms = 300_000 }",
        "connects = { count = 1, window_ms = 1000 }",
    );
    let start = Start::described(Descriptor::read("binance.toml", &text).unwrap(), TRADES);
    let gaps = GapSettings { tell_after: Duration::from_millis(50), ..start.settings.gaps };
    let settings = StreamSettings { gaps, ..start.settings };
    let rig = Start { settings, ..start }.on(&stage);
    let mut sessions = Vec::new();
    for _ in TRADES {
        let mut session = stage.session().await;
        let (_, streams) = session.binance().await;
        let symbol = streams[0].trim_end_matches("@trade").to_ascii_uppercase();
        session.trade(&symbol, 1).await;
        sessions.push(session);
    }
    rig.wait_for("trades", 2).await;
    let (records, status) = rig.finish().await;
    let times: Vec<i64> = TRADES.iter().map(|(_, symbol)| times(&records, symbol)[0]).collect();
    assert!(times[0].abs_diff(times[1]) > 500, "the second one has waited: {times:?}");
    assert_eq!((status.counts.gaps_told, status.counts.connects_failed), (0, 0));
}

#[tokio::test]
async fn what_was_recorded_before_this_start_has_a_gap_until_it_flows() {
    let mut stage = Stage::silent().await;
    let started = SystemClock::new().wall();
    let before = Resumed {
        venue: Venue::new("binance").unwrap(),
        channel: Channel::new("trades").unwrap(),
        since: UnixMs::new(started.ms().get() - 60_000).unwrap(),
        cause: Cause::Stopped,
    };
    let streams = &[("trades", "BTC/USDT"), ("ticker", "BTC/USDT")];
    let rig = Start { resumed: vec![before], ..Start::venue("binance", streams) }.on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    session.trade("BTCUSDT", 7).await;
    rig.wait_for("gaps", 1).await;
    let (records, _) = rig.finish().await;
    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    let told: Vec<String> = gaps.iter().map(|record| gap(record)).collect();
    assert_eq!(told, ["trades BTC/USDT stopped -..-"], "not of what is recorded for the first time");
    let (payload, first) = (&gaps[0]["payload"], times(&records, "BTC/USDT")[0]);
    assert!(
        payload["from_ms"].as_i64().unwrap() >= started.ms().get(),
        "until then the channel has one: {payload}"
    );
    assert_eq!(payload["to_ms"], first);
}

#[tokio::test]
async fn a_venue_that_takes_the_connection_and_never_answers_is_a_gap_as_well() {
    // Connections wait to be taken, and nobody takes them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = Start::venue("binance", TRADES).where_it_is(listener.local_addr().unwrap());
    let told = rig.wait_for("gaps", 2).await;
    let told: Vec<String> = told.iter().map(gap).collect();
    assert_eq!(told, ["trades BTC/USDT disconnect -..-", "trades ETH/USDT disconnect -..-"]);
    rig.finish().await;
}

/// A numbered trade of each symbol, and a candle that is known by its bytes alone.
async fn send(session: &mut Session, number: u64) {
    session.trade("BTCUSDT", number).await;
    session.trade("ETHUSDT", number).await;
    session.say(candle(number)).await;
}

fn candle(number: u64) -> String {
    format!(
        r#"{{"stream":"btcusdt@kline_1m","data":{{"e":"kline","E":{number},"s":"BTCUSDT","k":{{"t":1,"x":false}}}}}}"#
    )
}

#[tokio::test]
async fn a_replaced_connection_loses_and_doubles_nothing() {
    const SWITCHES: u64 = 50;
    let streams = [TRADES[0], TRADES[1], ("candles", "BTC/USDT")];
    let mut stage = Stage::silent().await;
    let mut rig = Start::venue("binance", &streams).on(&stage);
    let subscribed = async |stage: &mut Stage| {
        let mut session = stage.session().await;
        assert_eq!(session.binance().await.1.len(), 3);
        session
    };
    let mut current = subscribed(&mut stage).await;
    let mut next = 1;
    for switch in 1..=SWITCHES {
        for n in next..next + 5 {
            send(&mut current, n).await;
        }
        next += 5;
        current.say(r#"{"stream":"!serverShutdown","data":{"e":"serverShutdown","E":1700000000000}}"#).await;
        let mut fresh = subscribed(&mut stage).await;
        // Both bring the same, one of them a little behind; which one changes from switch to switch.
        let lead = switch % 4;
        for n in next..next + 10 {
            let (ahead, behind) =
                if switch % 2 == 0 { (&mut current, &mut fresh) } else { (&mut fresh, &mut current) };
            send(ahead, n).await;
            if n >= next + lead {
                send(behind, n - lead).await;
            }
        }
        let late = next + 10 - lead;
        next += 10;
        // The one behind may be the one that goes on.
        for n in late..next {
            // If it was ahead, it has sent them already.
            if switch % 2 == 0 {
                send(&mut fresh, n).await;
            }
        }
        // The old one is left when the new one has taken over.
        assert!(current.is_left().await);
        current = fresh;
    }
    send(&mut current, next).await;
    rig.wait_for("trades", 2 * next as usize).await;
    rig.wait_for("candles", next as usize).await;
    rig.wait_status("the last switch", |status| status.counts.switches == SWITCHES).await;
    let (records, status) = rig.finish().await;
    for symbol in ["BTC/USDT", "ETH/USDT"] {
        assert_eq!(sequences(&records, "trades", symbol), (1..=next).collect::<Vec<_>>(), "{symbol}");
    }
    let candles = records.iter().filter(|line| line["channel"] == "candles");
    let candles: Vec<u64> = candles.map(|line| line["payload"]["data"]["E"].as_u64().unwrap()).collect();
    assert_eq!(candles, (1..=next).collect::<Vec<_>>(), "known by their bytes");
    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    assert!(gaps.is_empty(), "{gaps:#?}");
    assert_eq!(status.counts.disconnects, 0);
}

#[tokio::test]
async fn a_number_of_the_connection_that_is_left_out_is_a_gap_of_each_of_its_streams() {
    let rule = r#"sequence = { rule = "plus_one", last = "/data/t" }"#;
    let counted = rule.replace(" }", r#", scope = "connection" }"#);
    let text = BINANCE.replacen(rule, &counted, 1);
    assert_ne!(text, BINANCE);
    let mut stage = Stage::silent().await;
    let streams = [("trades", "BTC/USDT"), ("trades", "ETH/USDT"), ("agg_trades", "LTC/USDT")];
    let rig = Start::described(Descriptor::read("binance.toml", &text).unwrap(), &streams).on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    for (symbol, number) in [("BTCUSDT", 1), ("ETHUSDT", 2), ("ETHUSDT", 3), ("BTCUSDT", 6), ("ETHUSDT", 7)] {
        session.trade(symbol, number).await;
    }
    rig.wait_for("gaps", 2).await;
    let (records, status) = rig.finish().await;
    let mut told: Vec<String> = records.iter().filter(|line| line["channel"] == "gaps").map(gap).collect();
    told.sort();
    assert_eq!(told, ["trades BTC/USDT sequence -..-", "trades ETH/USDT sequence -..-"], "{records:#?}");
    assert_eq!((status.counts.sequence_gaps, status.counts.disconnects), (1, 0));
}
