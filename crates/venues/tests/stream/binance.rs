//! Binance: combined streams, routed by topic.

use catchment_model::UnixMs;
use catchment_venues::stream::{Event, Sequence, Unknown};

use crate::{data, descriptor, only, wanted};

#[test]
fn trades_and_depth_are_read() {
    let binance = descriptor("binance");
    let table = wanted(&binance, &["trades", "book_delta", "ticker"], &["BTC/USDT", "ETH/USDT"]);
    let mut reader = binance.reader(0, &table);

    let frame = r#"{"stream":"ethusdt@trade","data":{"e":"trade","E":1723161255343,"s":"ETHUSDT","t":37,"p":"2.1","q":"0.2","T":1723161255342,"m":true,"M":true}}"#;
    let trade = data(&mut reader, frame);
    assert_eq!((trade.wanted, trade.id.as_deref(), trade.items), (1, Some("37"), 1));
    assert_eq!(trade.sequence, Some(Sequence { first: 37, last: 37, prev: None }));
    assert_eq!(trade.server_time.map(UnixMs::get), Some(1_723_161_255_342));
    assert_eq!((trade.text, trade.flaw), (frame, None));

    let frame = r#"{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","E":1723161255208,"s":"BTCUSDT","U":5,"u":9,"b":[["61737.63","0.0"]],"a":[]}}"#;
    let depth = data(&mut reader, frame);
    assert_eq!((depth.wanted, depth.sequence), (2, Some(Sequence { first: 5, last: 9, prev: None })));
    assert!(!depth.is_snapshot && depth.also.is_empty());

    let frame =
        r#"{"stream":"btcusdt@bookTicker","data":{"u":7,"s":"BTCUSDT","b":"1","B":"1","a":"2","A":"1"}}"#;
    let ticker = data(&mut reader, frame);
    assert_eq!((ticker.wanted, ticker.server_time, ticker.flaw), (4, None, None));

    let unasked = r#"{"stream":"xrpusdt@trade","data":{}}"#;
    assert_eq!(only(&mut reader, unasked), Event::Unasked);
    let flawed = r#"{"stream":"btcusdt@trade","data":{"t":"x","T":1}}"#;
    assert_eq!(data(&mut reader, flawed).flaw, Some("sequence"));
}

#[test]
fn control_frames_are_told_apart() {
    let binance = descriptor("binance");
    let mut reader = binance.reader(0, &wanted(&binance, &["trades"], &["BTC/USDT"]));
    match only(&mut reader, r#"{"result":null,"id":3}"#) {
        Event::Ack(answer) => {
            assert_eq!((answer.request, answer.wanted.len(), answer.all), (Some(3), 0, false));
        }
        event => panic!("{event:?}"),
    }
    match only(&mut reader, r#"{"code":2,"msg":"Invalid request: unknown \"x\"","id":4}"#) {
        Event::Refused { answer, reason } => {
            assert_eq!((answer.request, reason.as_str()), (Some(4), r#"2: Invalid request: unknown "x""#));
        }
        event => panic!("{event:?}"),
    }
    let soon = r#"{"stream":"!serverShutdown","data":{"e":"serverShutdown","E":1}}"#;
    assert!(matches!(only(&mut reader, soon), Event::ReconnectSoon { .. }));
    assert_eq!(only(&mut reader, r#"{"x":1}"#), Event::Unknown(Unknown::NoRule));
    assert_eq!(
        only(&mut reader, r#"{"stream":"btcusdt@tra"#),
        Event::Unknown(Unknown::NotJson(22, "it is cut off"))
    );
    let mut events = Vec::new();
    reader.read(&[0xff, b'{'], &mut events);
    assert_eq!(events, [Event::Unknown(Unknown::NotText)]);
}

#[test]
fn commands_and_requests_are_spelled_as_the_venue_wants() {
    let binance = descriptor("binance");
    let table = wanted(&binance, &["trades", "book_delta"], &["BTC/USDT"]);
    let mut number = 0;
    let commands = binance.subscribe(0, &table, &mut number);
    assert_eq!(commands.len(), 1);
    assert_eq!(
        commands[0].text,
        r#"{"method":"SUBSCRIBE","params":["btcusdt@trade","btcusdt@depth@100ms"],"id":1}"#
    );
    assert_eq!((commands[0].covers.as_slice(), commands[0].number, number), ([0, 1].as_slice(), 1, 1));
    let endpoints = binance.endpoints([("rest", "http://127.0.0.1:9/binance/")]).unwrap();
    let request = binance.snapshot_request(&table[1], &endpoints).unwrap();
    assert_eq!(request.url, "http://127.0.0.1:9/binance/api/v3/depth?symbol=BTCUSDT&limit=1000");
    assert_eq!((request.family, request.cost), ("weight", 50));
    let witness =
        binance.read_witness(table[0].channel, br#"[{"id":28457,"price":"4.0","time":1499865549590}]"#);
    assert_eq!(witness.unwrap().id.as_deref(), Some("28457"));
    let time = binance.read_time(br#"{"serverTime":1499827319559}"#);
    assert_eq!(time.map(UnixMs::get), Some(1_499_827_319_559));
}
