//! OKX: acknowledgements by argument, linked sequences, checksums when switched on, silence.

use catchment_sim::{StreamFault, StreamFaultKind as Kind};
use flate2::Crc;
use serde_json::Value;

use crate::client::{Client, small, start};

#[derive(Default)]
struct Book {
    sides: [Vec<(String, String)>; 2],
    seq: i64,
}

impl Book {
    /// Applies a frame of `books`, checks that it is linked to the last; whether the checksum agrees.
    fn apply(&mut self, frame: &Value) -> bool {
        let data = &frame["data"][0];
        let prev = data["prevSeqId"].as_i64().unwrap();
        match frame["action"].as_str().unwrap() {
            "snapshot" => {
                assert_eq!(prev, -1);
                self.sides = Default::default();
            }
            _ => assert_eq!(prev, self.seq),
        }
        self.seq = data["seqId"].as_i64().unwrap();
        for (at, (side, key)) in self.sides.iter_mut().zip(["bids", "asks"]).enumerate() {
            for level in data[key].as_array().unwrap() {
                let (price, size) = (level[0].as_str().unwrap(), level[1].as_str().unwrap());
                assert_eq!(level[2], "0");
                side.retain(|(other, _)| other != price);
                if size != "0" {
                    side.push((price.into(), size.into()));
                }
            }
            side.sort_by(|a, b| a.0.parse::<f64>().unwrap().total_cmp(&b.0.parse().unwrap()));
            if at == 0 {
                side.reverse();
            }
        }
        let mut texts = Vec::new();
        for at in 0..25 {
            for side in &self.sides {
                if let Some((price, size)) = side.get(at) {
                    texts.push(format!("{price}:{size}"));
                }
            }
        }
        let mut crc = Crc::new();
        crc.update(texts.join(":").as_bytes());
        crc.sum() as i32 == data["checksum"].as_i64().unwrap() as i32
    }
}

fn books(frames: &[Value]) -> Vec<&Value> {
    frames.iter().filter(|frame| frame["arg"]["channel"] == "books" && frame["data"].is_array()).collect()
}

async fn subscribe(client: &mut Client, channel: &str, name: &str) {
    client
        .say(&format!(
            r#"{{"op":"subscribe","args":[{{"channel":"{channel}","instId":"{name}"}}],"id":"7"}}"#
        ))
        .await;
}

#[tokio::test]
async fn every_argument_is_answered_for_itself() {
    let bench = start(small()).await;
    let mut client = bench.connect("okx/ws/v5/public").await;
    client
        .say(r#"{"op":"subscribe","args":[{"channel":"trades","instId":"BTC-USDT"},{"channel":"trades","instId":"NO-SUCH"},{"channel":"candle1m","instId":"BTC-USDT"},{"channel":"tickers","instId":"ETH-USDT"}]}"#)
        .await;
    let (one, two, three, four) =
        (client.read().await, client.read().await, client.read().await, client.read().await);
    let id = one["connId"].as_str().unwrap();
    assert_eq!(id.len(), 8);
    assert_eq!(one["arg"], serde_json::json!({"channel":"trades","instId":"BTC-USDT"}));
    assert_eq!((&two["event"], &two["code"]), (&"error".into(), &"60018".into()));
    assert!(
        two["msg"].as_str().unwrap().starts_with("Wrong URL or channel:trades,instId:NO-SUCH doesn't exist")
    );
    assert_eq!(three["code"], "60018", "candles are on the business socket");
    assert_eq!((&four["event"], &four["arg"]["channel"]), (&"subscribe".into(), &"tickers".into()));
    client.say("ping").await;
    assert_eq!(client.drain().await.last().unwrap(), "pong");
    let mut business = bench.connect("okx/ws/ws/v5/business").await;
    subscribe(&mut business, "candle1m", "BTC-USDT").await;
    assert_eq!(business.read().await["id"], "7");
    assert_eq!(business.read().await["data"][0].as_array().unwrap().len(), 9);
}

#[tokio::test]
async fn updates_are_linked_and_the_checksum_is_nothing_or_right() {
    for on in ["true", "false"] {
        let bench = start(small().with("okx.rules.checksum", on).unwrap()).await;
        let mut client = bench.connect("okx/ws/v5/public").await;
        subscribe(&mut client, "books", "BTC-USDT").await;
        subscribe(&mut client, "trades", "BTC-USDT").await;
        let mut frames = client.drain_json().await;
        bench.pass(20_000).await;
        frames.extend(client.drain_json().await);
        let updates = books(&frames);
        assert!(updates.len() > 80);
        let mut book = Book::default();
        for frame in &updates {
            assert_eq!(book.apply(frame), on == "true");
            if on == "false" {
                assert_eq!(frame["data"][0]["checksum"], 0);
            }
        }
        let rest = bench.json("okx/rest/api/v5/market/books?instId=BTC-USDT&sz=400").await;
        assert_eq!(rest["data"][0]["seqId"].as_i64(), Some(book.seq));
        assert_eq!(rest["data"][0]["bids"].as_array().unwrap().len(), book.sides[0].len());
        let trades: Vec<u64> = frames
            .iter()
            .filter(|frame| frame["arg"]["channel"] == "trades" && frame["data"].is_array())
            .map(|frame| frame["data"][0]["tradeId"].as_str().unwrap().parse().unwrap())
            .collect();
        assert!(trades.len() > 12 && trades.windows(2).all(|pair| pair[1] == pair[0] + 1));
        let recent = bench.json("okx/rest/api/v5/market/trades?instId=BTC-USDT&limit=1").await;
        assert_eq!(recent["data"][0]["tradeId"], trades.last().unwrap().to_string());
    }
}

#[tokio::test]
async fn a_quiet_book_says_so_every_minute_and_numbers_may_begin_anew() {
    let bench = start(small().with("okx.pairs.quiet", "1").unwrap()).await;
    let mut client = bench.connect("okx/ws/v5/public").await;
    subscribe(&mut client, "books", "QUIET0-USDT").await;
    client.drain().await;
    for _ in 0..6 {
        bench.pass(20_000).await;
        client.say("ping").await;
        let texts = client.drain().await;
        assert_eq!(texts.last().unwrap(), "pong");
        for text in &texts[..texts.len() - 1] {
            let data = &serde_json::from_str::<Value>(text).unwrap()["data"][0];
            assert_eq!(data["seqId"], data["prevSeqId"]);
            assert!(data["asks"].as_array().unwrap().is_empty());
        }
    }
    bench.pass(30_000).await;
    assert_eq!(client.until_the_end().await.2, Some(1001), "thirty seconds without a word");

    let mut client = bench.connect("okx/ws/v5/public").await;
    subscribe(&mut client, "books", "BTC-USDT").await;
    client.drain().await;
    bench.pass(2_000).await;
    client.drain().await;
    bench.sim.inject("okx", &StreamFault::new(Kind::Restart).on("BTC-USDT", "book_delta")).unwrap();
    bench.pass(2_000).await;
    let frames = client.drain_json().await;
    let (reset, next) = (&frames[0]["data"][0], &frames[1]["data"][0]);
    assert!(reset["seqId"].as_i64() < reset["prevSeqId"].as_i64());
    assert_eq!(next["prevSeqId"], reset["seqId"]);

    let id = bench.inject("okx", &StreamFault::new(Kind::Notice).for_ms(5_000));
    bench.pass(6_000).await;
    let (texts, _, code) = client.until_the_end().await;
    assert!(texts.iter().any(|text| text.contains(r#""event":"notice","code":"64008""#)));
    assert_eq!((code, bench.sim.log()[id as usize - 1].connections.len()), (Some(1001), 1));
}

#[tokio::test]
async fn refusals_have_their_codes() {
    let bench = start(small()).await;
    assert_eq!(bench.json("okx/rest/api/v5/public/time").await["data"][0]["ts"], "1790000000000");
    let unknown = bench.json("okx/rest/api/v5/market/books?instId=NO-SUCH").await;
    assert_eq!(unknown["code"], "51001");
    let spot = bench.json("okx/rest/api/v5/public/instruments?instType=SPOT").await;
    assert_eq!(spot["data"].as_array().unwrap().len(), 40);
    for _ in 0..9 {
        bench.get("okx/rest/api/v5/public/time").await;
    }
    let (status, _, body) = bench.get("okx/rest/api/v5/public/time").await;
    assert_eq!((status, &body[..]), (429, &br#"{"code":"50011","msg":"Too Many Requests","data":[]}"#[..]));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(bench.connect("okx/ws/v5/public").await);
    }
    assert!(bench.try_connect("okx/ws/v5/public").await.is_err(), "three a second");
    let client = &mut clients[0];
    for _ in 0..481 {
        subscribe(client, "trades", "BTC-USDT").await;
    }
    let answers = client.drain_json().await;
    assert_eq!(answers[479]["event"], "subscribe");
    assert_eq!(answers[480]["code"], "60014", "480 an hour");
}
