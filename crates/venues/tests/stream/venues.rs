//! The other venues: frames as their documents have them, with made-up values.

use catchment_venues::Reading;
use catchment_venues::stream::{Descriptor, Done, Event, Reader, Secrets, Sequence, Spelled, Step, Unknown};

use crate::{data, descriptor, only, wanted};

fn socket(descriptor: &Descriptor, name: &str) -> usize {
    descriptor.sockets().iter().position(|socket| socket.name == name).unwrap()
}

/// A command that was taken: the request's number, and which entries are named.
fn ack(reader: &mut Reader, frame: &str) -> (Done, Option<u64>, Vec<u32>) {
    match only(reader, frame) {
        Event::Ack(answer) => (answer.done, answer.request, answer.wanted.to_vec()),
        event => panic!("{frame}: {event:?}"),
    }
}

fn refused(reader: &mut Reader, frame: &str) -> (Option<u64>, Vec<u32>, String) {
    match only(reader, frame) {
        Event::Refused { answer, reason } => (answer.request, answer.wanted.to_vec(), reason),
        event => panic!("{frame}: {event:?}"),
    }
}

#[test]
fn coinbase() {
    let coinbase = descriptor("coinbase");
    let table = wanted(&coinbase, &["trades", "book_delta"], &["BTC/USD", "ETH/USD"]);
    let mut reader = coinbase.reader(0, &table);
    let frame = r#"{"type":"match","trade_id":10,"side":"sell","size":"5.2","price":"400.2","product_id":"ETH-USD","sequence":50,"time":"2026-11-07T08:19:27.028459Z"}"#;
    let trade = data(&mut reader, frame);
    assert_eq!((trade.wanted, trade.id.as_deref()), (1, Some("10")));
    // Another product's numbers stand in `sequence`; a trade's own number is its id.
    assert_eq!(trade.sequence, Some(Sequence { first: 10, last: 10, prev: None }));
    let book = r#"{"type":"snapshot","product_id":"BTC-USD","bids":[["10101.10","0.45"]],"asks":[]}"#;
    let book = data(&mut reader, book);
    assert!(book.is_snapshot && book.flaw.is_none() && book.server_time.is_none() && book.wanted == 2);
    let update = r#"{"type":"l2update","product_id":"BTC-USD","changes":[["buy","1","2"]],"time":"2026-11-07T08:19:28.464459Z"}"#;
    assert!(!data(&mut reader, update).is_snapshot);
    let listed = r#"{"type":"subscriptions","channels":[{"name":"level2_50","product_ids":["BTC-USD","DOGE-USD"]},{"name":"matches","product_ids":["ETH-USD"]},{"name":"heartbeat","product_ids":["BTC-USD"]}]}"#;
    assert_eq!(ack(&mut reader, listed), (Done::Subscribed, None, vec![2, 1]));
    let error =
        r#"{"type":"error","message":"Failed to subscribe","reason":"FOO-USD is not a valid product"}"#;
    assert_eq!(refused(&mut reader, error).2, "Failed to subscribe: FOO-USD is not a valid product");
    let beat = r#"{"type":"heartbeat","sequence":90,"last_trade_id":20,"product_id":"BTC-USD","time":"2026-11-07T08:19:28.464459Z"}"#;
    assert_eq!(only(&mut reader, beat), Event::Heartbeat);
    assert_eq!(
        only(&mut reader, r#"{"type":"auction","product_id":"BTC-USD"}"#),
        Event::Unknown(Unknown::NoRule)
    );
    assert_eq!(only(&mut reader, &update.replace("BTC", "XRP").leak()[..]), Event::Unasked);
    assert_eq!(coinbase.unified("BTC-USD").as_deref(), Some("BTC/USD"));
    assert_eq!(coinbase.read_status(404, br#"{"message":"NotFound"}"#), Reading::UnknownMarket);
    assert_eq!(coinbase.read_status(200, br#"{"trade_id":1}"#), Reading::Ok);
}

#[test]
fn kraken() {
    let kraken = descriptor("kraken");
    let table = wanted(&kraken, &["trades", "book_delta"], &["BTC/USD", "ETH/USD"]);
    let mut reader = kraken.reader(0, &table);
    let frame = r#"{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","trade_id":7,"timestamp":"2026-09-25T17:48:26.844359Z"},{"symbol":"BTC/USD","trade_id":9,"timestamp":"2026-09-25T17:48:26.944359Z"}]}"#;
    let trades = data(&mut reader, frame);
    assert_eq!((trades.wanted, trades.items, trades.id.as_deref()), (0, 2, Some("9")));
    assert_eq!(trades.sequence, Some(Sequence { first: 7, last: 9, prev: None }));
    // An escaped slash is the same name; several instruments in one message have no common numbers.
    let both = frame.replacen("BTC/USD", r"ETH\/USD", 1);
    let trades = data(&mut reader, &both);
    assert_eq!(
        (trades.wanted, trades.also.as_slice(), trades.sequence, trades.flaw),
        (1, [0].as_slice(), None, None)
    );

    let taken = r#"{"method":"subscribe","req_id":3,"result":{"channel":"book","depth":10,"snapshot":true,"symbol":"ETH/USD"},"success":true,"time_in":"x"}"#;
    assert_eq!(ack(&mut reader, taken), (Done::Subscribed, Some(3), vec![3]));
    match only(&mut reader, taken) {
        Event::Ack(answer) => assert_eq!(answer.depth, Some(10)),
        event => panic!("{event:?}"),
    }
    let gone = r#"{"method":"unsubscribe","result":{"channel":"book","depth":10,"symbol":"ETH/USD"},"success":true}"#;
    assert_eq!(ack(&mut reader, gone), (Done::Unsubscribed, None, vec![3]));
    let no = r#"{"error":"Currency pair not supported BTC/USD","method":"subscribe","req_id":4,"success":false,"symbol":"BTC/USD"}"#;
    assert_eq!(
        refused(&mut reader, no),
        (Some(4), vec![0, 2], "Currency pair not supported BTC/USD".to_owned())
    );
    let twice = r#"{"error":"Already subscribed","method":"subscribe","req_id":5,"success":false,"symbol":"BTC/USD"}"#;
    assert!(
        matches!(only(&mut reader, twice), Event::Refused { answer, .. } if answer.done == Done::Already)
    );
    assert_eq!(only(&mut reader, r#"{"channel":"heartbeat"}"#), Event::Heartbeat);
    assert_eq!(only(&mut reader, r#"{"method":"pong","req_id":1}"#), Event::Pong);
    let busy = br#"{"error":["EGeneral:Too many requests"]}"#;
    assert_eq!(kraken.read_status(200, busy), Reading::Refused);
    assert_eq!(
        kraken.read_status(200, br#"{"error":["EQuery:Unknown asset pair"]}"#),
        Reading::UnknownMarket
    );
    assert_eq!(kraken.read_status(200, br#"{"error":[],"result":{}}"#), Reading::Ok);
    let commands = kraken.subscribe(0, &table, &mut 0);
    assert_eq!(commands.len(), 2, "a command for each channel");
    // Channels are in the order of their names.
    let book = r#"{"method":"subscribe","params":{"channel":"book","symbol":["BTC/USD","ETH/USD"],"depth":10},"req_id":1}"#;
    assert_eq!((commands[0].text.as_str(), commands[0].covers.as_slice()), (book, [2, 3].as_slice()));
}

#[test]
fn okx() {
    let okx = descriptor("okx");
    let public = socket(&okx, "public");
    let table = wanted(&okx, &["trades", "book_delta"], &["BTC/USDT"]);
    let mut reader = okx.reader(public, &table);
    let rule = okx.channels()[okx.channel("book_delta").unwrap()].sequence.unwrap();
    let mut checker = catchment_venues::stream::SequenceChecker::new(rule);
    let mut step = |action: &str, prev: i64, last: i64| {
        let frame = format!(
            r#"{{"arg":{{"channel":"books","instId":"BTC-USDT"}},"action":"{action}","data":[{{"asks":[],"bids":[],"ts":"1765201257005","checksum":0,"seqId":{last},"prevSeqId":{prev}}}]}}"#
        );
        let book = data(&mut reader, &frame);
        checker.next(&book.sequence.unwrap(), book.is_snapshot)
    };
    assert_eq!(step("snapshot", -1, 100), Step::First);
    assert_eq!(step("update", 100, 140), Step::Next);
    assert_eq!(step("update", 140, 140), Step::Repeated, "nothing has happened for a minute");
    assert_eq!(step("update", 140, 3), Step::Reset, "maintenance");
    assert_eq!(step("update", 3, 8), Step::Next);
    assert_eq!(step("update", 12, 20), Step::Gap { first_missing: 9, last_missing: 12 });
    assert_eq!(step("snapshot", -1, 30), Step::Reset);

    let taken =
        r#"{"id":"7","event":"subscribe","arg":{"channel":"books","instId":"BTC-USDT"},"connId":"a4d3ae55"}"#;
    assert_eq!(ack(&mut reader, taken), (Done::Subscribed, Some(7), vec![1]));
    let no = r#"{"event":"error","code":"60018","msg":"Wrong URL or channel","connId":"a4d3ae55"}"#;
    assert_eq!(refused(&mut reader, no), (None, vec![], "60018: Wrong URL or channel".to_owned()));
    assert_eq!(only(&mut reader, "pong"), Event::Pong);
    assert_eq!(only(&mut reader, "pang"), Event::Unknown(Unknown::NotJson(0, "neither a value nor its end")));
    let soon = r#"{"event":"notice","code":"64008","msg":"The connection will soon be closed"}"#;
    assert!(
        matches!(only(&mut reader, soon), Event::ReconnectSoon { reason } if reason.starts_with("64008"))
    );
    let mut number = 4;
    let commands = okx.subscribe(public, &table, &mut number);
    let text = r#"{"id":"5","op":"subscribe","args":[{"channel":"trades","instId":"BTC-USDT"},{"channel":"books","instId":"BTC-USDT"}]}"#;
    assert_eq!(commands[0].text, text);
    assert_eq!(okx.sockets()[public].ping(&mut number).as_deref(), Some("ping"));
    assert_eq!(
        okx.read_status(200, br#"{"code":"50011","msg":"Too Many Requests","data":[]}"#),
        Reading::Refused
    );
    assert_eq!(okx.read_status(200, br#"{"code":"0","msg":"","data":[]}"#), Reading::Ok);
}

#[test]
fn bybit() {
    let bybit = descriptor("bybit");
    let public = socket(&bybit, "public");
    let table = wanted(&bybit, &["trades", "book_delta"], &["BTC/USDT"]);
    let mut reader = bybit.reader(public, &table);
    let frame = |kind: &str, u: u64| {
        format!(
            r#"{{"topic":"orderbook.200.BTCUSDT","ts":1703430557696,"type":"{kind}","data":{{"s":"BTCUSDT","b":[],"a":[],"u":{u},"seq":9}}}}"#
        )
    };
    assert!(data(&mut reader, &frame("snapshot", 7)).is_snapshot);
    assert_eq!(data(&mut reader, &frame("snapshot", 7)).id.as_deref(), Some("snapshot-7-1703430557696"));
    assert_eq!(data(&mut reader, &frame("delta", 7)).id.as_deref(), Some("delta-7-1703430557696"));
    assert!(!data(&mut reader, &frame("delta", 8)).is_snapshot);
    assert!(data(&mut reader, &frame("delta", 1)).is_snapshot, "the service began anew");
    let trades = r#"{"topic":"publicTrade.BTCUSDT","ts":1703430744103,"type":"snapshot","data":[{"i":"1"},{"i":"2290000000090712222"}]}"#;
    let trades = data(&mut reader, trades);
    assert!(!trades.is_snapshot);
    assert_eq!((trades.items, trades.id.as_deref()), (2, Some("2290000000090712222")));
    let pong = r#"{"success":true,"ret_msg":"pong","conn_id":"x","req_id":"2","op":"ping"}"#;
    assert_eq!(only(&mut reader, pong), Event::Pong);
    let taken = r#"{"success":true,"ret_msg":"subscribe","conn_id":"x","req_id":"1","op":"subscribe"}"#;
    assert_eq!(ack(&mut reader, taken), (Done::Subscribed, Some(1), vec![]));
    let no =
        r#"{"success":false,"ret_msg":"args size \u003e10","conn_id":"x","req_id":"3","op":"subscribe"}"#;
    assert_eq!(refused(&mut reader, no), (Some(3), vec![], "args size >10".to_owned()));
    let time = br#"{"retCode":0,"retMsg":"OK","result":{"timeSecond":"1688639403","timeNano":"1688639403423213947"},"time":1688639403423}"#;
    assert_eq!(bybit.read_time(time).map(catchment_model::UnixMs::get), Some(1_688_639_403_423));
}

#[test]
fn polymarket() {
    let polymarket = descriptor("polymarket");
    let table = wanted(&polymarket, &["trades", "book_delta", "ticker"], &["71", "72"]);
    let mut reader = polymarket.reader(0, &table);
    let frame = "[{\"market\":\"0x1\",\"asset_id\":\"72\",\"timestamp\":\"1785491757532\",\"bids\":[],\"asks\":[],\"event_type\":\"book\"},\n {\"market\":\"0x1\",\"asset_id\":\"71\",\"timestamp\":\"1785491757532\",\"event_type\":\"book\"}]\n";
    let mut events = Vec::new();
    reader.read(frame.as_bytes(), &mut events);
    let books = events.iter().map(|event| match event {
        Event::Data(book) => (
            book.wanted,
            book.is_snapshot,
            serde_json::from_str::<serde_json::Value>(book.text).unwrap()["asset_id"].clone(),
        ),
        event => panic!("{event:?}"),
    });
    assert_eq!(books.collect::<Vec<_>>(), [(3, true, "72".into()), (2, true, "71".into())]);
    // Half of it would be worse than nothing of it.
    events.clear();
    reader.read(&frame.as_bytes()[..frame.len() - 3], &mut events);
    assert!(matches!(events.as_slice(), [Event::Unknown(Unknown::NotJson(..))]), "{events:?}");
    assert_eq!(only(&mut reader, "[]"), Event::Status);
    assert_eq!(only(&mut reader, "PONG"), Event::Pong);

    let change = r#"{"market":"0x1", "price_changes":[{"asset_id":"9","price":"0.4"},{"asset_id":"72","price":"0.6"},{"asset_id":"71","price":"0.3"},{"asset_id":"72","price":"0.5"}], "timestamp":"1785491757533", "event_type":"price_change"}"#;
    let changed = data(&mut reader, change);
    assert_eq!((changed.wanted, changed.also.as_slice(), changed.is_snapshot), (3, [2].as_slice(), false));
    let strangers = r#"{"price_changes":[{"asset_id":"9"}],"timestamp":"1","event_type":"price_change"}"#;
    assert_eq!(only(&mut reader, strangers), Event::Unasked);
    let market = r#"{"id":"3","event_type":"new_market","timestamp":"1785491757533"}"#;
    assert_eq!(only(&mut reader, market), Event::Unasked, "nobody wants markets here");
    let all = [table.clone(), vec![polymarket.want("markets", "").unwrap()]].concat();
    assert_eq!(data(&mut polymarket.reader(0, &all), market).wanted, 6);
    assert_eq!(all[6].instrument.symbol, Spelled::WHOLE_VENUE);

    // One subscription brings all kinds; the first command of a connection is another one.
    let mut number = 0;
    let commands = polymarket.subscribe(0, &all, &mut number);
    assert_eq!(commands.len(), 1);
    assert_eq!(
        commands[0].text,
        r#"{"assets_ids":["71","72"],"type":"market","custom_feature_enabled":true}"#
    );
    assert_eq!(commands[0].covers, [0, 2, 4, 1, 3, 5]);
    let later = polymarket.subscribe(0, &all[..1], &mut number);
    assert!(later[0].text.starts_with(r#"{"operation":"subscribe""#), "{}", later[0].text);
    assert_eq!(polymarket.shard(0, &all), [vec![0, 2, 4, 1, 3, 5, 6]]);
    let fed = polymarket.channels()[polymarket.channel("trades").unwrap()].feeds_book;
    assert_eq!(fed, polymarket.channel("book_delta"));
    assert_eq!(
        polymarket.read_time(b"1785207335").map(catchment_model::UnixMs::get),
        Some(1_785_207_335_000)
    );
    assert_eq!(
        polymarket.read_status(404, br#"{"error":"No orderbook exists for the requested token id"}"#),
        Reading::UnknownMarket
    );
}

#[test]
fn logins_are_signed_and_secrets_stay_inside() {
    let secrets = Secrets { key: "my\"key".into(), secret: "hush".into(), passphrase: "word".into() };
    let now = catchment_model::UnixMs::new(1_700_000_000_123).unwrap();
    let okx = descriptor("okx");
    let login = okx.login(socket(&okx, "private"), &secrets, now, &mut 0).unwrap().unwrap();
    // printf '1700000000GET/users/self/verify' | openssl dgst -sha256 -hmac hush -binary | base64
    let want = r#"{"op":"login","args":[{"apiKey":"my\"key","passphrase":"word","timestamp":"1700000000","sign":"I+c4/p5ylo7byjd5xmulf7Hzo/xYJbkYv+dR9kN2VIc="}]}"#;
    assert_eq!(login.text, want);
    assert_eq!(okx.login(socket(&okx, "public"), &secrets, now, &mut 0), Ok(None));
    let bybit = descriptor("bybit");
    // Its time is an end, ten seconds from now.
    let sooner = catchment_model::UnixMs::new(now.get() - 10_000).unwrap();
    let login = bybit.login(socket(&bybit, "private"), &secrets, sooner, &mut 6).unwrap().unwrap();
    // printf 'GET/realtime1700000000123' | openssl dgst -sha256 -hmac hush
    let want = r#"{"req_id":"7","op":"auth","args":["my\"key",1700000000123,"c317837851725137e48a8070808f13ed98a48c46521d2aadc96518a1f6896c19"]}"#;
    assert_eq!(login.text, want);
    let nothing = okx.login(
        socket(&okx, "private"),
        &Secrets { passphrase: String::new(), ..secrets.clone() },
        now,
        &mut 0,
    );
    assert_eq!(nothing.unwrap_err().to_string(), "the login of okx needs a passphrase");
    assert!(!format!("{secrets:?} {okx:?}").contains("hush"));
    let mut reader = okx.reader(socket(&okx, "private"), &wanted(&okx, &["orders", "account"], &[""]));
    assert_eq!(ack(&mut reader, r#"{"event":"login","code":"0","msg":"","connId":"a"}"#).0, Done::LoggedIn);
    assert_eq!(data(&mut reader, r#"{"arg":{"channel":"account","uid":"7"},"data":[{}]}"#).wanted, 1);
}
