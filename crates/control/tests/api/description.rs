use catchment_control::api;
use serde_json::Value;

use crate::client::House;

#[tokio::test]
async fn the_description_that_is_served_is_the_one_that_is_committed() {
    let house = House::open().await;
    let served = house.get("/api/v1/openapi.json").await;
    assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
    assert_eq!(served.text, api::openapi());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    if std::env::var_os("CATCHMENT_WRITE_OPENAPI").is_some() {
        #[allow(clippy::disallowed_methods, reason = "a person asked for it, and looks at what git says")]
        std::fs::write(path, &served.text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        served.text == committed,
        "docs/openapi.json is not what the code says; look at `CATCHMENT_WRITE_OPENAPI=1 cargo nextest run -p \
         catchment-control description` and at what git then shows"
    );
}

/// Nothing is named that is not there.
#[test]
fn every_reference_leads_somewhere() {
    let text = api::openapi();
    let described: Value = serde_json::from_str(&text).unwrap();
    let schemas = described["components"]["schemas"].as_object().unwrap();
    let mut count = 0;
    for named in text.split("\"#/components/schemas/").skip(1) {
        let name = named.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is not described");
        count += 1;
    }
    assert!(count > 50, "only {count} references were found");
}

/// The keys that the description knows of a thing are those that are sent.
#[tokio::test]
async fn what_is_sent_is_what_is_described() {
    let house = House::open().await;
    let described: Value = serde_json::from_str(&api::openapi()).unwrap();
    let keys = |name: &str| -> Vec<String> {
        let properties = &described["components"]["schemas"][name]["properties"];
        let mut keys: Vec<String> = properties.as_object().expect(name).keys().cloned().collect();
        keys.sort();
        keys
    };
    let sent = |value: &Value, and: &[&str]| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.extend(and.iter().map(|key| (*key).to_owned()));
        keys.sort();
        keys
    };
    let connector =
        house.post("/api/v1/connectors", serde_json::json!({ "exchange_id": "binance" })).await.json();
    assert_eq!(sent(&connector, &[]), keys("Connector"));
    let job = serde_json::json!({ "exchange_id": "binance", "type": "markets_refresh" });
    let job = house.post("/api/v1/jobs", job).await.json();
    assert_eq!(sent(&job, &[]), keys("Job"));
    assert_eq!(sent(&job["cursor"], &["next"]), keys("Cursor"));
    assert_eq!(sent(&job["stats"], &[]), keys("Stats"));
    assert_eq!(sent(&job["lock"], &[]), keys("Lock"));
}
