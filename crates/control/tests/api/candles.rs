use catchment_jobs::{Hole, Series, Span, Store};
use catchment_model::{Candle, Timeframe, UnixMs, Venue};
use serde_json::{Value, json};

use crate::client::House;

const MINUTE: i64 = 60_000;
const SERIES: &str = "exchange_id=binance&symbol=BTC/USDT&timeframe=1m";

fn at(minute: i64) -> UnixMs {
    UnixMs::new(minute * MINUTE).unwrap()
}

fn series() -> Series {
    Series {
        exchange_id: Venue::new("binance").unwrap(),
        symbol: "BTC/USDT".to_owned(),
        timeframe: Timeframe::M1,
    }
}

async fn put(store: &dyn Store, minutes: impl Iterator<Item = i64>) {
    let candle = |minute: i64| Candle {
        open_time: at(minute),
        open: "1.10".parse().unwrap(),
        high: "2".parse().unwrap(),
        low: "0.5".parse().unwrap(),
        close: "1.0".parse().unwrap(),
        volume: format!("{minute}.000").parse().unwrap(),
        quote_volume: (minute % 2 == 0).then(|| "7".parse().unwrap()),
        trades: (minute % 2 == 0).then_some(3),
        is_final: true,
    };
    let candles: Vec<Candle> = minutes.map(candle).collect();
    store.put_candles(&series(), &candles).await.unwrap();
}

fn stretches(value: &Value) -> Vec<(i64, i64)> {
    let minutes = |value: &Value| value.as_i64().unwrap() / MINUTE;
    let list = value.as_array().unwrap_or_else(|| panic!("{value}"));
    list.iter().map(|one| (minutes(&one["since_ms"]), minutes(&one["until_ms"]))).collect()
}

#[tokio::test]
async fn candles_come_page_by_page_with_every_digit() {
    let house = House::open().await;
    put(&*house.store, 10..15).await;
    let page = house.get(&format!("/api/v1/candles?{SERIES}&limit=3")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let rest = page.header("link").unwrap().to_owned();
    let page = page.json();
    assert_eq!(
        page["candles"][0],
        json!({ "open_time": 10 * MINUTE, "open": "1.10", "high": "2", "low": "0.5", "close": "1.0",
            "volume": "10.000", "quote_volume": "7", "trades": 3, "is_final": true })
    );
    assert_eq!((page["candles"].as_array().unwrap().len(), &page["next_since_ms"]), (3, &json!(13 * MINUTE)));
    let rest = rest.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).unwrap();
    let rest = house.get(rest).await;
    assert_eq!((rest.status, rest.header("link")), (200, None), "{}", rest.text);
    assert_eq!(rest.json()["candles"].as_array().unwrap().len(), 2);
    let middle = format!("/api/v1/candles?{SERIES}&since_ms={}&until_ms={}", 11 * MINUTE, 13 * MINUTE);
    let opens: Vec<Value> = house.get(&middle).await.json()["candles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["open_time"].clone())
        .collect();
    assert_eq!(opens, [json!(11 * MINUTE), json!(12 * MINUTE)]);
}

#[tokio::test]
async fn candles_come_as_csv_too() {
    let house = House::open().await;
    put(&*house.store, 10..13).await;
    let page = house.get(&format!("/api/v1/candles?{SERIES}&format=csv&limit=2")).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/csv; charset=utf-8")));
    assert_eq!(
        page.text,
        "open_time,open,high,low,close,volume,quote_volume,trades\n\
         600000,1.10,2,0.5,1.0,10.000,7,3\n\
         660000,1.10,2,0.5,1.0,11.000,,\n"
    );
    assert!(page.header("link").unwrap().contains("format=csv"));
}

#[tokio::test]
async fn coverage_says_what_is_there_what_is_missing_and_what_never_was() {
    let house = House::open().await;
    let nothing = house.get(&format!("/api/v1/coverage?{SERIES}")).await.json();
    assert_eq!(
        (&nothing["candles"], &nothing["first"], &nothing["missing"]),
        (&json!(0), &json!(null), &json!([]))
    );
    put(&*house.store, (10..15).chain(17..20).chain(25..30)).await;
    house.store.note_hole(&series(), Hole::absent(Span { from: at(20), to: at(21) })).await.unwrap();
    house.store.note_hole(&series(), Hole::unreachable(Span { from: at(21), to: at(22) })).await.unwrap();
    let until = 30 * MINUTE;
    let covered = house.get(&format!("/api/v1/coverage?{SERIES}&until_ms={until}")).await;
    assert_eq!(covered.status, 200, "{}", covered.text);
    let covered = covered.json();
    assert_eq!(
        (&covered["candles"], &covered["first"], &covered["last"]),
        (&json!(13), &json!(10 * MINUTE), &json!(29 * MINUTE))
    );
    assert_eq!(stretches(&covered["ranges"]), [(10, 15), (17, 20), (25, 30)]);
    assert_eq!(stretches(&covered["missing"]), [(15, 17), (22, 25)]);
    assert_eq!(stretches(&covered["holes"]), [(20, 21), (21, 22)]);
    assert_eq!(covered["holes"][0]["kind"], "absent");
    assert_eq!(
        covered["holes"][1]["kind"], "unreachable",
        "what is out of reach is not said not to be there"
    );
    assert_eq!(covered["next_since_ms"], json!(null));
    let wider =
        house.get(&format!("/api/v1/coverage?{SERIES}&since_ms=0&until_ms={}", 40 * MINUTE)).await.json();
    assert_eq!(stretches(&wider["missing"]), [(0, 10), (15, 17), (22, 25), (30, 40)]);
    assert_eq!(stretches(&wider["ranges"]), stretches(&covered["ranges"]));
    let first = house.get(&format!("/api/v1/coverage?{SERIES}&until_ms={until}&limit=1")).await.json();
    assert_eq!(stretches(&first["missing"]), [(15, 17)]);
    assert_eq!(stretches(&first["ranges"]), [(10, 15), (17, 20)]);
    assert_eq!(first["next_since_ms"], json!(21 * MINUTE));
    let rest = format!("/api/v1/coverage?{SERIES}&since_ms={}&until_ms={until}&limit=1", 21 * MINUTE);
    let rest = house.get(&rest).await.json();
    assert_eq!((stretches(&rest["missing"]), stretches(&rest["ranges"])), (vec![(22, 25)], vec![(25, 30)]));
}

#[tokio::test]
async fn bad_ranges_are_refused_by_field() {
    let house = House::open().await;
    for path in ["/api/v1/candles", "/api/v1/coverage"] {
        for (query, field) in [
            ("symbol=BTC/USDT&timeframe=1m", "exchange_id"),
            ("exchange_id=x&symbol=BTC/USDT&timeframe=1m", "exchange_id"),
            ("exchange_id=binance&timeframe=1m", "symbol"),
            ("exchange_id=binance&symbol=btcusdt&timeframe=1m", "symbol"),
            ("exchange_id=binance&symbol=BTC/USDT", "timeframe"),
            ("exchange_id=binance&symbol=BTC/USDT&timeframe=7m", "timeframe"),
            ("exchange_id=binance&symbol=BTC/USDT&timeframe=5m", "timeframe"),
            (&format!("{SERIES}&since_ms=5&until_ms=5"), "until_ms"),
            (&format!("{SERIES}&since_ms=-5"), "since_ms"),
            (&format!("{SERIES}&until_ms=253402300800000"), "until_ms"),
            (&format!("{SERIES}&limit=10001"), "limit"),
            (&format!("{SERIES}&since=5"), "since"),
        ] {
            let reply = house.get(&format!("{path}?{query}")).await;
            assert_eq!((reply.status, reply.fields()), (422, vec![field.to_owned()]), "{path}?{query}");
        }
    }
    assert_eq!(house.get(&format!("/api/v1/candles?{SERIES}&format=xml")).await.fields(), ["format"]);
    for path in ["/api/v1/candles", "/api/v1/coverage"] {
        let end = format!("{path}?{SERIES}&since_ms=253402300799998&until_ms=253402300799999");
        assert_eq!(house.get(&end).await.status, 200, "the end of time: {path}");
    }
}
