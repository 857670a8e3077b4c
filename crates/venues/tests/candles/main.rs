//! Candles of five venues: what is asked, and how each answer becomes the same thing.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

use catchment_model::{Candle, Timeframe, UnixMs};
use catchment_venues::candles::{CANDLE_VENUES, CandleAsk, CandlePage, candles_of};

const MINUTE: i64 = 60_000;
/// 2026-09-25T16:00:00Z.
const START: i64 = 1_790_352_000_000;

fn ms(at: i64) -> UnixMs {
    UnixMs::new(at).unwrap()
}

/// So many minutes from the start, at a venue whose time is `now` minutes after it.
fn ask(symbol: &str, minutes: i64, now: i64) -> CandleAsk {
    CandleAsk {
        base: "http://v".to_owned(),
        symbol: symbol.to_owned(),
        timeframe: Timeframe::M1,
        since: ms(START),
        until: ms(START + minutes * MINUTE),
        now: ms(START + now * MINUTE),
    }
}

fn read(venue: &str, ask: &CandleAsk, body: &str) -> CandlePage {
    candles_of(venue).unwrap().read(ask, body.as_bytes()).unwrap()
}

/// `minute open close volume final`, a line a candle.
fn told(candles: &[Candle]) -> Vec<String> {
    let line = |candle: &Candle| {
        let minute = (candle.open_time.get() - START) / MINUTE;
        let last = if candle.is_final { "final" } else { "open" };
        format!(
            "{minute} {} {} {} {last}",
            candle.open.as_str(),
            candle.close.as_str(),
            candle.volume.as_str()
        )
    };
    candles.iter().map(line).collect()
}

#[test]
fn each_venue_is_asked_in_its_own_words() {
    let url = |venue: &str, symbol: &str| {
        let request = candles_of(venue).unwrap().request(&ask(symbol, 3, 10)).unwrap();
        format!("{} {} {}", request.family, request.cost, request.url)
    };
    let binance = "weight 2 http://v/api/v3/klines?symbol=BTCUSDT&interval=1m\
                   &startTime=1790352000000&endTime=1790352179999&limit=1000";
    assert_eq!(url("binance", "BTC/USDT"), binance);
    let coinbase =
        "public 1 http://v/products/BTC-USD/candles?granularity=60&start=1790352000&end=1790352120";
    assert_eq!(url("coinbase", "BTC/USD"), coinbase);
    let kraken = "public 1 http://v/0/public/OHLC?pair=BTC%2FUSD&interval=1&since=1790351940";
    assert_eq!(url("kraken", "BTC/USD"), kraken);
    let okx = "history_candles 1 http://v/api/v5/market/history-candles?instId=BTC-USDT&bar=1m\
               &before=1790351999999&after=1790352180000&limit=300";
    assert_eq!(url("okx", "BTC/USDT"), okx);
    let bybit = "ip 1 http://v/v5/market/kline?category=spot&symbol=BTCUSDT&interval=1\
                 &start=1790352000000&end=1790352179999&limit=1000";
    assert_eq!(url("bybit", "BTC/USDT"), bybit);
}

#[test]
fn whatever_the_order_and_shape_the_candles_are_the_same() {
    let now = ask("BTC/USDT", 5, 2);
    let expected = ["0 1.0 1.5 10 final", "1 1.5 1.2 3 final", "2 1.2 1.3 1 open"];
    let row = |minute: i64| START + minute * MINUTE;
    let binance = format!(
        r#"[[{},"1.0","2","0.5","1.5","10",{},"15",7,"1","1","0"],[{},"1.5","2","0.5","1.2","3",0,"4",2,"1","1","0"],[{},"1.2","2","0.5","1.3","1",0,"1",1,"1","1","0"]]"#,
        row(0),
        row(1) - 1,
        row(1),
        row(2)
    );
    let page = read("binance", &now, &binance);
    assert_eq!(told(&page.candles), expected);
    assert_eq!(
        (page.candles[0].trades, page.candles[0].quote_volume.as_ref().unwrap().as_str()),
        (Some(7), "15")
    );
    // low, high, open, close; a row from before the range is not ours.
    let s = |minute: i64| row(minute) / 1_000;
    let coinbase = format!(
        "[[{},0.5,2,1.2,1.3,1],[{},0.5,2,1.5,1.2,3],[{},0.5,2,1.0,1.5,10],[{},9,9,9,9,9]]",
        s(2),
        s(1),
        s(0),
        s(-1)
    );
    assert_eq!(told(&read("coinbase", &now, &coinbase).candles), expected);
    let kraken = format!(
        r#"{{"error":[],"result":{{"XXBTZUSD":[[{},"1.0","2","0.5","1.5","1","10",7],[{},"1.5","2","0.5","1.2","1","3",2],[{},"1.2","2","0.5","1.3","1","1",1]],"last":{}}}}}"#,
        s(0),
        s(1),
        s(2),
        s(1)
    );
    assert_eq!(told(&read("kraken", &now, &kraken).candles), expected);
    let okx = format!(
        r#"{{"code":"0","msg":"","data":[["{}","1.2","2","0.5","1.3","1","1","1","0"],["{}","1.5","2","0.5","1.2","3","1","4","1"],["{}","1.0","2","0.5","1.5","10","1","15","1"]]}}"#,
        row(2),
        row(1),
        row(0)
    );
    assert_eq!(told(&read("okx", &now, &okx).candles), expected);
    let bybit = format!(
        r#"{{"retCode":0,"retMsg":"OK","result":{{"list":[["{}","1.2","2","0.5","1.3","1","1"],["{}","1.5","2","0.5","1.2","3","4"],["{}","1.0","2","0.5","1.5","10","15"]]}}}}"#,
        row(2),
        row(1),
        row(0)
    );
    assert_eq!(told(&read("bybit", &now, &bybit).candles), expected);
}

#[test]
fn a_long_range_is_asked_for_a_page_at_a_time_and_ends() {
    for venue in CANDLE_VENUES.iter().filter(|venue| venue.reach_rows.is_none()) {
        let empty = match venue.id {
            "okx" => r#"{"code":"0","msg":"","data":[]}"#,
            "bybit" => r#"{"retCode":0,"retMsg":"OK","result":{"list":[]}}"#,
            _ => "[]",
        };
        let mut ask = ask("BTC/USDT", 2_500, 100_000);
        let mut pages = 1;
        while let Some(next) = venue.read(&ask, empty.as_bytes()).unwrap().next {
            assert_eq!(next.get(), ask.since.get() + i64::from(venue.page_rows) * MINUTE, "{}", venue.id);
            ask.since = next;
            pages += 1;
        }
        assert_eq!(pages, 2_500_u32.div_ceil(venue.page_rows), "{}", venue.id);
    }
}

#[test]
fn nothing_is_asked_for_that_lies_ahead() {
    let page = read("binance", &ask("BTC/USDT", 5_000, 500), "[]");
    assert_eq!(page.next, None);
}

#[test]
fn kraken_says_what_it_will_never_give_again() {
    let ask = ask("BTC/USD", 3_000, 3_000);
    let rows: Vec<String> = (2_280..=3_000)
        .map(|m| format!(r#"[{},"1","1","1","1","1","0",0]"#, (START + m * MINUTE) / 1_000))
        .collect();
    let body = format!(r#"{{"error":[],"result":{{"BTC/USD":[{}],"last":0}}}}"#, rows.join(","));
    let page = read("kraken", &ask, &body);
    assert_eq!(page.unreachable, Some(ms(START)..ms(START + 2_280 * MINUTE)));
    // The last one is open, and lies beyond the range besides.
    assert_eq!((page.candles.len(), page.next), (720, None));
    assert!(page.candles.iter().all(|candle| candle.is_final));
}

#[test]
fn a_range_that_begins_within_a_candle_begins_with_the_next() {
    let mut ask = ask("BTC/USDT", 3, 10);
    ask.since = ms(START + 1);
    let url = candles_of("binance").unwrap().request(&ask).unwrap().url;
    assert!(url.contains("startTime=1790352060000"), "{url}");
}

#[test]
fn what_cannot_be_asked_is_said() {
    let refused =
        |venue: &str, ask: &CandleAsk| candles_of(venue).unwrap().request(ask).unwrap_err().to_string();
    let mut odd = ask("BTC/USDT", 3, 10);
    odd.timeframe = Timeframe::M3;
    assert_eq!(refused("coinbase", &odd), "coinbase has no candles of 3m; it has 1m, 5m, 15m, 1h, 6h, 1d");
    assert!(refused("binance", &ask("BTCUSDT", 3, 10)).contains("is not a symbol such as BTC/USDT"));
    assert!(refused("binance", &ask("BTC/../x", 3, 10)).contains("is not a symbol"));
    assert!(refused("binance", &ask("BTC/USDT", 0, 10)).contains("is not before until"));
}

#[test]
fn a_venue_that_says_no_is_quoted_and_nonsense_is_an_error() {
    let error = |venue: &str, body: &str| {
        let read = candles_of(venue).unwrap().read(&ask("BTC/USDT", 3, 10), body.as_bytes());
        read.unwrap_err().to_string()
    };
    assert_eq!(
        error("binance", r#"{"code":-1121,"msg":"Invalid symbol."}"#),
        "the venue says: -1121: Invalid symbol."
    );
    assert_eq!(error("coinbase", r#"{"message":"NotFound"}"#), "the venue says: NotFound");
    assert_eq!(
        error("kraken", r#"{"error":["EQuery:Unknown asset pair"]}"#),
        "the venue says: EQuery:Unknown asset pair"
    );
    assert!(error("okx", r#"{"code":"51001","msg":"no such","data":[]}"#).contains("51001: no such"));
    assert!(error("bybit", r#"{"retCode":10001,"retMsg":"bad","result":{}}"#).contains("10001: bad"));
    for venue in CANDLE_VENUES {
        for body in
            ["", "<html>", "[[1]]", "{}", "null", "[[\"x\",1,1,1,1,1,1,1,1]]", "[[-5,1,1,1,1,1,1,1,1]]"]
        {
            assert!(venue.read(&ask("BTC/USDT", 3, 10), body.as_bytes()).is_err(), "{} {body}", venue.id);
        }
    }
    let off = format!(r#"[[{},"1","1","1","1","1",0,"1",1]]"#, START + 1);
    assert!(error("binance", &off).contains("a candle of 1m opens at"));
    let twice = format!(r#"[[{START},"1","1","1","1","1",0,"1",1],[{START},"1","1","1","1","1",0,"1",1]]"#);
    assert!(error("binance", &twice).contains("two candles open at the same time"));
}

/// Payloads really recorded, where they are at hand.
#[test]
fn recorded_candles_are_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/venues/samples");
    if !folder.is_dir() {
        eprintln!("skipped: there are no recorded samples in {}", folder.display());
        return;
    }
    let check = |venue: &str, file: &str, timeframe, since: i64, until: i64, rows: usize| {
        let ask = CandleAsk {
            timeframe,
            since: ms(since),
            until: ms(until),
            now: ms(1_800_000_000_000),
            ..ask("A/B", 1, 1)
        };
        let body = std::fs::read(folder.join(file)).unwrap();
        let page = candles_of(venue).unwrap().read(&ask, &body).unwrap();
        assert_eq!(page.candles.len(), rows, "{file}");
    };
    let (start, end) = (1_588_740_088_000, 1_588_743_688_000);
    check("binance", "binance/rest_klines_1m_unaligned_start.json", Timeframe::M1, start, end, 60);
    let kraken = "kraken/rest_ohlc_1h_2026.json";
    check("kraken", kraken, Timeframe::H1, 1_790_348_400_000, 1_790_362_800_000, 4);
    check("okx", "okx/rest_candles_1h_2024.json", Timeframe::H1, 1_705_420_800_000, 1_705_435_200_000, 4);
    let bybit = "bybit/rest_kline_inverse_DOC_EXAMPLE.json";
    check("bybit", bybit, Timeframe::H1, 1_670_601_600_000, 1_670_612_400_000, 3);
}
