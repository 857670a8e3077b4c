use catchment_jobs::{Claim, Claimed, NewConnector};
use catchment_model::Venue;
use serde_json::{Value, json};

use crate::client::House;

async fn with_binance() -> House {
    let house = House::open().await;
    house.store.ensure_connector(&NewConnector::new(Venue::new("binance").unwrap())).await.unwrap();
    house
}

/// As in S2's appendix.
fn hourly(symbol: &str) -> Value {
    json!({
        "exchange_id": "binance", "type": "ohlcv_incremental", "symbol": symbol, "timeframe": "1h",
        "schedule": { "mode": "interval", "interval_ms": 3_600_000 }
    })
}

#[tokio::test]
async fn a_job_is_added_paused_resumed_run_changed_and_deleted() {
    let house = with_binance().await;
    let added = house.post("/api/v1/jobs", hourly("BTC/USDT")).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let job = added.json();
    let at = format!("/api/v1/jobs/{}", job["_id"].as_str().unwrap());
    assert_eq!(added.header("location"), Some(at.as_str()));
    assert_eq!(
        (&job["status"], &job["state"], &job["priority"]),
        (&json!("active"), &json!("idle"), &json!(50))
    );
    assert_eq!(house.get(&at).await.json(), job);
    assert_eq!(house.act(&format!("{at}/pause")).await.json()["status"], "paused");
    let refused = house.act(&format!("{at}/run")).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert_eq!(house.act(&format!("{at}/resume")).await.json()["status"], "active");
    assert_eq!(house.act(&format!("{at}/run")).await.json()["state"], "queued");
    let change = json!({ "priority": 5, "schedule": { "mode": "once" }, "next_run_at": 1_700_000_000_000_u64,
        "cursor": { "since_ms": 1_000, "until_ms": 2_000 } });
    let changed = house.put(&at, change).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let changed = changed.json();
    assert_eq!((&changed["priority"], &changed["schedule"]), (&json!(5), &json!({ "mode": "once" })));
    assert_eq!(changed["next_run_at"], json!(1_700_000_000_000_u64));
    assert_eq!(
        changed["cursor"],
        json!({ "since_ms": 1000, "until_ms": 2000, "page": 0, "last_ts": 0, "done": false })
    );
    assert_eq!(house.delete(&at).await.status, 204);
    assert_eq!(house.delete(&at).await.status, 204, "deleting twice is deleting once");
    assert_eq!(house.get(&at).await.status, 404);
    for act in ["pause", "resume", "run"] {
        assert_eq!(house.act(&format!("{at}/{act}")).await.status, 404, "{act}");
    }
    assert_eq!(house.get("/api/v1/jobs").await.json()["items"], json!([]));
    assert_eq!(house.get("/api/v1/jobs?status=deleted").await.json()["items"][0]["_id"], job["_id"]);
}

#[tokio::test]
async fn a_symbol_that_the_exchange_does_not_list_is_refused_once_its_listing_is_known() {
    let house = with_binance().await;
    assert_eq!(house.post("/api/v1/jobs", hourly("FOO/BAR")).await.status, 201, "nobody knows better yet");
    let listed = ["BTC/USDT".to_owned(), "ETH/USDT".to_owned()];
    house.store.put_listing(Venue::new("binance").unwrap(), &listed).await.unwrap();
    let refused = house.post("/api/v1/jobs", hourly("FOO/BAZ")).await;
    assert_eq!((refused.status, refused.fields()), (422, vec!["symbol".to_owned()]), "{}", refused.text);
    assert!(refused.text.contains("binance does not list"), "{}", refused.text);
    assert_eq!(house.post("/api/v1/jobs", hourly("BTC/USDT")).await.status, 201);
    let stored = house.get("/api/v1/jobs").await.json();
    let symbols: Vec<&str> =
        stored["items"].as_array().unwrap().iter().map(|job| job["symbol"].as_str().unwrap()).collect();
    assert_eq!(symbols, ["FOO/BAR", "BTC/USDT"], "nothing of it is stored");
    let markets = json!({ "exchange_id": "binance", "type": "markets_refresh" });
    assert_eq!(house.post("/api/v1/jobs", markets).await.status, 201, "that one has no symbol");
}

#[tokio::test]
async fn asking_twice_for_the_same_job_is_asking_once() {
    let house = with_binance().await;
    let first = house.post("/api/v1/jobs", hourly("BTC/USDT")).await.json();
    let again = house.post("/api/v1/jobs", hourly("BTC/USDT")).await;
    assert_eq!((again.status, again.json()), (200, first.clone()));
    let mut other = hourly("BTC/USDT");
    other["priority"] = json!(1);
    let refused = house.post("/api/v1/jobs", other).await;
    assert_eq!((refused.status, &refused.json()["existing"]), (409, &first["_id"]));
    let once = json!({ "exchange_id": "binance", "type": "ohlcv_backfill", "symbol": "BTC/USDT", "timeframe": "1h",
        "cursor": { "since_ms": 5 } });
    assert_eq!(house.post("/api/v1/jobs", once.clone()).await.status, 201);
    assert_eq!(house.post("/api/v1/jobs", once).await.status, 200);
    assert_eq!(house.get("/api/v1/jobs").await.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn jobs_are_filtered_and_paged() {
    let house = with_binance().await;
    for symbol in ["A/USDT", "B/USDT", "C/USDT", "D/USDT", "E/USDT"] {
        assert_eq!(house.post("/api/v1/jobs", hourly(symbol)).await.status, 201);
    }
    let markets = json!({ "exchange_id": "binance", "type": "markets_refresh" });
    assert_eq!(house.post("/api/v1/jobs", markets).await.status, 201);
    let mut seen = Vec::new();
    let mut next = String::new();
    for _ in 0..10 {
        let page = house.get(&format!("/api/v1/jobs?type=ohlcv_incremental&limit=2{next}")).await.json();
        let symbols =
            page["items"].as_array().unwrap().iter().map(|job| job["symbol"].as_str().unwrap().to_owned());
        seen.extend(symbols);
        match page["next"].as_str() {
            Some(id) => next = format!("&after={id}"),
            None => break,
        }
    }
    assert_eq!(seen, ["A/USDT", "B/USDT", "C/USDT", "D/USDT", "E/USDT"]);
    let count = async |query: &str| {
        let page = house.get(&format!("/api/v1/jobs?{query}")).await.json();
        page["items"].as_array().unwrap_or_else(|| panic!("{query}: {page}")).len()
    };
    assert_eq!(count("symbol=B%2FUSDT").await, 1);
    assert_eq!(count("symbol=B/USDT&timeframe=1h&status=active&state=idle&exchange_id=binance").await, 1);
    assert_eq!(count("timeframe=1d").await, 0);
    assert_eq!(count("type=markets_refresh").await, 1);
    assert_eq!(count("exchange_id=kraken").await, 0);
}

#[tokio::test]
async fn bad_jobs_are_refused_by_field_and_nothing_is_stored() {
    let house = with_binance().await;
    let check = async |change: Value, fields: &[&str]| {
        let mut body = hourly("BTC/USDT");
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let reply = house.post("/api/v1/jobs", body).await;
        assert_eq!(reply.status, 422, "{change}: {}", reply.text);
        assert_eq!(reply.fields(), fields, "{change}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    };
    check(json!({ "exchange_id": "mtgox" }), &["exchange_id"]).await;
    check(json!({ "exchange_id": "kraken" }), &["exchange_id"]).await;
    check(json!({ "exchange_id": {"$gt": ""} }), &["exchange_id"]).await;
    check(json!({ "exchange_id": "polymarket" }), &["type", "timeframe"]).await;
    check(json!({ "type": "steal" }), &["type"]).await;
    check(json!({ "type": null }), &["type"]).await;
    check(json!({ "type": "markets_refresh" }), &["symbol"]).await;
    check(json!({ "type": "gap_backfill" }), &["cursor.until_ms"]).await;
    check(json!({ "symbol": "nothing" }), &["symbol"]).await;
    check(json!({ "symbol": null }), &["symbol"]).await;
    check(json!({ "symbol": {"$gt": ""} }), &["symbol"]).await;
    check(json!({ "timeframe": "7m" }), &["timeframe"]).await;
    check(json!({ "timeframe": "5m" }), &["timeframe"]).await;
    check(json!({ "timeframe": null }), &["timeframe"]).await;
    check(json!({ "schedule": { "mode": "interval", "interval_ms": 0 } }), &["schedule.interval_ms"]).await;
    check(json!({ "schedule": { "mode": "interval" } }), &["schedule.interval_ms"]).await;
    check(json!({ "schedule": { "mode": "once", "interval_ms": 5_000 } }), &["schedule.interval_ms"]).await;
    check(json!({ "schedule": { "mode": "cron" } }), &["schedule.mode"]).await;
    check(json!({ "schedule": "hourly" }), &["schedule"]).await;
    check(json!({ "cursor": { "since_ms": 5, "until_ms": 5 } }), &["cursor.until_ms"]).await;
    check(json!({ "cursor": { "since_ms": -5 } }), &["cursor.since_ms"]).await;
    check(json!({ "cursor": { "since_ms": 1e18 } }), &["cursor.since_ms"]).await;
    check(json!({ "cursor": { "page": 5 } }), &["cursor.page"]).await;
    check(json!({ "next_run_at": "soon" }), &["next_run_at"]).await;
    check(json!({ "priority": 256 }), &["priority"]).await;
    check(json!({ "lock": {}, "fence": 9, "stats": {}, "zeal": 1 }), &["fence", "lock", "stats", "zeal"])
        .await;
    assert_eq!(house.get("/api/v1/jobs").await.json()["items"], json!([]));
    assert_eq!(house.get("/api/v1/connectors/binance").await.json()["jobs_count"], 0);
}

#[tokio::test]
async fn bad_changes_and_queries_are_refused_by_field() {
    let house = with_binance().await;
    let job = house.post("/api/v1/jobs", hourly("BTC/USDT")).await.json();
    let at = format!("/api/v1/jobs/{}", job["_id"].as_str().unwrap());
    for (change, field) in [
        (json!({ "fence": 99 }), "fence"),
        (json!({ "lock": { "locked_by": "me" } }), "lock"),
        (json!({ "status": "deleted" }), "status"),
        (json!({ "symbol": "ETH/USDT" }), "symbol"),
        (json!({ "priority": -1 }), "priority"),
        (
            json!({ "priority": 5, "schedule": { "mode": "interval", "interval_ms": 0 } }),
            "schedule.interval_ms",
        ),
        (json!({ "cursor": { "since_ms": 9, "until_ms": 3 } }), "cursor.until_ms"),
    ] {
        let reply = house.put(&at, change.clone()).await;
        assert_eq!((reply.status, reply.fields()), (422, vec![field.to_owned()]), "{change}");
    }
    assert_eq!(house.get(&at).await.json(), job, "nothing of it was taken");
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("after=me", "after"),
        ("status[$ne]=x", "status[$ne]"),
        ("status=gone", "status"),
        ("state=gone", "state"),
        ("type=x", "type"),
        ("symbol=x", "symbol"),
        ("timeframe=x", "timeframe"),
        ("exchange_id=x", "exchange_id"),
    ] {
        let reply = house.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!((reply.status, reply.fields()), (422, vec![field.to_owned()]), "{query}");
    }
    assert_eq!(house.get("/api/v1/jobs/me").await.fields(), ["id"]);
    let nobody = house.get("/api/v1/jobs/000000000000000000000000").await;
    assert_eq!((nobody.status, nobody.header("content-type")), (404, Some("application/problem+json")));
    assert_eq!(house.delete("/api/v1/jobs/000000000000000000000000").await.status, 404);
    assert_eq!(house.get("/api/v1/jobs/%ff").await.status, 404);
}

#[tokio::test]
async fn the_cursor_of_a_job_that_is_running_stays() {
    let house = with_binance().await;
    house.post("/api/v1/jobs", hourly("BTC/USDT")).await;
    let ask = Claim { worker: "w", lease: std::time::Duration::from_secs(60), cap: None, only: None };
    let Claimed::Job(job, _) = house.store.claim(&ask).await.unwrap() else { panic!("it is due") };
    let at = format!("/api/v1/jobs/{}", job.id);
    assert_eq!(house.put(&at, json!({ "cursor": { "since_ms": 5 } })).await.status, 409);
    assert_eq!(house.put(&at, json!({ "priority": 7 })).await.status, 200);
    assert_eq!(house.get("/api/v1/jobs?state=running").await.json()["items"][0]["lock"]["locked_by"], "w");
}
