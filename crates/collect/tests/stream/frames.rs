//! Frames that are not as they should be, and a pipeline that takes nothing.

use std::time::Duration;

use catchment_pipeline::{Delivery, PipelineConfig};
use catchment_venues::stream::Descriptor;
use futures_util::SinkExt;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

use crate::rig::{Start, gap, sequences};
use crate::stage::{Stage, trade};

const TRADES: &[(&str, &str)] = &[("trades", "BTC/USDT"), ("trades", "ETH/USDT"), ("ticker", "ETH/USDT")];
const BINANCE: &str = include_str!("../../../venues/descriptors/binance.toml");

#[tokio::test]
async fn damaged_frames_cost_themselves_and_nothing_else() {
    let text = BINANCE.replace("frame_bytes_max = 4_194_304", "frame_bytes_max = 1000");
    let mut stage = Stage::silent().await;
    let rig = Start::described(Descriptor::read("binance.toml", &text).unwrap(), TRADES).on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    let mut both = async |number: u64| {
        session.trade("BTCUSDT", number).await;
        session.trade("ETHUSDT", number).await;
    };
    both(1).await;
    let torn = trade("BTCUSDT", 2);
    session.say(&torn[..torn.len() - 40]).await;
    session.trade("ETHUSDT", 2).await;
    session.ws.send(Message::binary(vec![0; 99])).await.unwrap();
    session.say("{\"stream\":\"ethusdt@bookTicker\",\"data\":{\"u\":1,\"s\":\"ETH").await;
    session.say("nonsense").await;
    session.say(format!(r#"{{"x":"{}"}}"#, "y".repeat(2_000))).await;
    session.say(r#"{"stream":"dogeusdt@trade","data":{"t":5}}"#).await;
    session.say(r#"{"new":"kind of message"}"#).await;
    session.ws.get_mut().write_all(b"\x81\x03a\xffb").await.unwrap();
    session.trade("BTCUSDT", 3).await;
    session.trade("ETHUSDT", 3).await;
    let ticker = |number: u64| {
        format!(
            r#"{{"stream":"ethusdt@bookTicker","data":{{"u":{number},"s":"ETHUSDT","b":"1","B":"1","a":"2","A":"1"}}}}"#
        )
    };
    session.say(ticker(2)).await;
    session.say(ticker(2)).await; // a repetition
    rig.wait_for("ticker", 1).await;
    rig.wait_for("trades", 5).await;
    let (records, status) = rig.finish().await;
    assert_eq!(sequences(&records, "trades", "BTC/USDT"), [1, 3]);
    assert_eq!(sequences(&records, "trades", "ETH/USDT"), [1, 2, 3]);
    let gaps: Vec<String> = records.iter().filter(|line| line["channel"] == "gaps").map(gap).collect();
    assert_eq!(
        gaps,
        [
            "* * failure -..-",             // nonsense
            "* * failure -..-",             // not UTF-8
            "trades BTC/USDT failure 2..2", // cut off, but its beginning says whose it was
            "ticker ETH/USDT failure -..-",
        ]
    );
    let counts = status.counts;
    assert_eq!((counts.binary, counts.garbled, counts.oversized), (1, 4, 1));
    assert_eq!((counts.unasked, counts.unknown, counts.duplicates), (1, 1, 1));
    assert_eq!((counts.disconnects, status.connections.len()), (0, 1));
}

#[tokio::test]
async fn numbers_that_come_twice_late_or_not_at_all() {
    let mut stage = Stage::silent().await;
    let rig = Start::venue("binance", TRADES).on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    // Twice, in the wrong order, and with a hole; the second symbol is there to show that they are apart.
    for number in [1, 2, 2, 3, 2, 5, 4, 6, 9, 10] {
        session.trade("BTCUSDT", number).await;
        session.trade("ETHUSDT", 100 + number / 10).await;
    }
    rig.wait_for("gaps", 1).await;
    let (records, status) = rig.finish().await;
    assert_eq!(sequences(&records, "trades", "BTC/USDT"), [1, 2, 3, 5, 4, 6, 9, 10]);
    assert_eq!(sequences(&records, "trades", "ETH/USDT"), [100, 101]);
    let gaps: Vec<&Value> = records.iter().filter(|line| line["channel"] == "gaps").collect();
    assert_eq!(gaps.iter().map(|record| gap(record)).collect::<Vec<_>>(), ["trades BTC/USDT sequence 7..8"]);
    assert_eq!((status.counts.late, status.counts.duplicates), (1, 2 + 8));
    let time = |number: u64| {
        let of = |line: &&Value| line["symbol"] == "BTC/USDT" && line["sequence"] == number;
        records.iter().find(of).unwrap()["received_at_ms"].clone()
    };
    let payload = &gaps[0]["payload"];
    assert_eq!((&payload["from_ms"], &payload["to_ms"]), (&time(6), &time(9)));
}

#[tokio::test]
async fn a_pipeline_that_takes_nothing_holds_up_the_socket_and_not_memory() {
    let mut stage = Stage::silent().await;
    let mut start = Start::venue("binance", TRADES);
    // Little room everywhere, and a sink that stalls: the in-memory spool waits for it.
    start.pipeline =
        PipelineConfig { tail_bytes: 64 << 10, intake_bytes: 64 << 10, ..PipelineConfig::default() };
    start.spool_bytes = 1 << 20;
    start.delivery = Delivery { batch_age: Duration::from_millis(1), ..Delivery::default() };
    let mut rig = start.on(&stage);
    let mut session = stage.session().await;
    session.binance().await;
    session.trade("BTCUSDT", 0).await;
    rig.wait_for("trades", 1).await;
    rig.shelf.stall(true);
    // As much as the socket takes.
    let mut sent = 0u64;
    let feed = async {
        loop {
            session.trade("BTCUSDT", sent + 1).await;
            sent += 1;
        }
    };
    let held_up = rig.wait_status("the socket to be held up", |status| {
        status.connections.iter().any(|one| one.is_held_up)
    });
    tokio::select! {
        () = held_up => {}
        _ = feed => unreachable!("it sends for ever"),
    }
    // What is on its way is bounded, whatever the venue would like to send: kernel buffers, a read, a draft, the intake.
    let before = sent;
    let more = async {
        loop {
            session.trade("BTCUSDT", sent + 1).await;
            sent += 1;
        }
    };
    let stuck = tokio::time::timeout(Duration::from_secs(2), more).await;
    assert!(stuck.is_err());
    let bytes = sent * trade("BTCUSDT", 1_000).len() as u64;
    assert!(bytes < 24 << 20, "{bytes} bytes were taken, {before} messages before");
    rig.shelf.stall(false);
    rig.wait_count(sent as usize + 1).await;
    let (records, status) = rig.finish().await;
    let numbers = sequences(&records, "trades", "BTC/USDT");
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "nothing is lost");
    assert_eq!((status.counts.gaps_told, status.counts.disconnects), (0, 0));
}
