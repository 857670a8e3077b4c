use serde_json::json;

use crate::client::House;

#[tokio::test]
async fn creating_a_connector_twice_gives_the_one_there_is() {
    let house = House::open().await;
    let first = house.post("/api/v1/connectors", json!({ "exchange_id": "binance" })).await;
    assert_eq!(first.status, 201, "{}", first.text);
    assert_eq!(first.header("location"), Some("/api/v1/connectors/binance"));
    let first = first.json();
    assert_eq!((&first["rate_limit"], &first["rate_limit_period_ms"]), (&json!(20), &json!(1_000)));
    let second = house.post("/api/v1/connectors", json!({ "exchange_id": "binance" })).await;
    assert_eq!(second.status, 200);
    assert_eq!(second.json(), first);
    let third = house.post("/api/v1/connectors", json!({ "exchange_id": "binance", "rate_limit": 7 })).await;
    assert_eq!((third.status, &third.json()["rate_limit"]), (200, &json!(7)));
    assert_eq!(third.json()["_id"], first["_id"]);
    let listed = house.get("/api/v1/connectors").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_connector_is_paused_changed_deleted_and_there_again() {
    let house = House::open().await;
    house.post("/api/v1/connectors", json!({ "exchange_id": "kraken" })).await;
    let at = "/api/v1/connectors/kraken";
    assert_eq!(house.act(&format!("{at}/pause")).await.json()["status"], "paused");
    assert_eq!(house.get("/api/v1/connectors?status=active").await.json()["items"], json!([]));
    assert_eq!(house.act(&format!("{at}/resume")).await.json()["status"], "active");
    let change =
        json!({ "rate_limit": 3, "rate_limit_period_ms": 500, "max_concurrent_jobs": 2, "notes": "slowly" });
    let changed = house.put(at, change.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    for (name, value) in change.as_object().unwrap() {
        assert_eq!(&changed.json()[name], value, "{name}");
    }
    assert_eq!(house.get(at).await.json(), changed.json());
    assert_eq!(
        house.put(at, json!({ "max_concurrent_jobs": 0, "notes": "" })).await.json()["notes"],
        json!(null)
    );
    assert_eq!(house.delete(at).await.status, 204);
    assert_eq!(house.delete(at).await.status, 204, "deleting twice is deleting once");
    assert_eq!(house.get(at).await.status, 404);
    assert_eq!(
        house.act(&format!("{at}/resume")).await.status,
        404,
        "a deleted one is not brought back by the way"
    );
    assert_eq!(house.put(at, json!({})).await.status, 404);
    let again = house.post("/api/v1/connectors", json!({ "exchange_id": "kraken" })).await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("active")));
}

#[tokio::test]
async fn connectors_are_listed_page_by_page() {
    let house = House::open().await;
    for exchange in ["polymarket", "binance", "kraken"] {
        house.post("/api/v1/connectors", json!({ "exchange_id": exchange })).await;
    }
    let first = house.get("/api/v1/connectors?limit=2").await.json();
    assert_eq!(first["next"], "kraken");
    let rest = house.get("/api/v1/connectors?limit=2&after=kraken").await.json();
    assert_eq!((&rest["items"][0]["exchange_id"], &rest["next"]), (&json!("polymarket"), &json!(null)));
}

#[tokio::test]
async fn bad_connectors_are_refused_by_field_and_nothing_is_stored() {
    let house = House::open().await;
    let check = async |body: serde_json::Value, fields: &[&str]| {
        let reply = house.post("/api/v1/connectors", body.clone()).await;
        assert_eq!(
            (reply.status, reply.fields()),
            (422, fields.iter().map(|f| (*f).to_owned()).collect()),
            "{body}"
        );
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    };
    check(json!({}), &["exchange_id"]).await;
    check(json!([]), &[]).await;
    check(json!({ "exchange_id": "mtgox" }), &["exchange_id"]).await;
    check(json!({ "exchange_id": {"$gt": ""} }), &["exchange_id"]).await;
    check(json!({ "exchange_id": "binance", "rate_limit": 0 }), &["rate_limit"]).await;
    check(json!({ "exchange_id": "binance", "rate_limit_period_ms": "1s" }), &["rate_limit_period_ms"]).await;
    check(
        json!({ "exchange_id": "binance", "rate_limit_usage": 0, "$where": "1" }),
        &["$where", "rate_limit_usage"],
    )
    .await;
    assert_eq!(house.get("/api/v1/connectors").await.json()["items"], json!([]));
    assert_eq!(house.get("/api/v1/connectors/mtgox").await.status, 404);
    assert_eq!(house.get("/api/v1/connectors/MtGox").await.fields(), ["exchange_id"]);
    assert_eq!(house.get("/api/v1/connectors?status=deleted").await.fields(), ["status"]);
}
