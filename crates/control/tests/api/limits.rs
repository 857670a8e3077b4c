use std::sync::Arc;
use std::sync::atomic::Ordering;

use catchment_control::api::{Catalogue, Desk};
use catchment_control::{Control, Status};
use serde_json::json;

use crate::client::{House, TOKEN};

const JSON: &str = "content-type: application/json\r\n";

#[tokio::test]
async fn a_body_must_be_json_and_not_too_large() {
    let house = House::open().await;
    let post = async |headers: &str, body: &str| house.ask("POST", "/api/v1/jobs", headers, body).await;
    assert_eq!(post("", "{}").await.status, 415);
    assert_eq!(post("content-type: text/plain\r\n", "{}").await.status, 415);
    assert_eq!(post("content-type: Application/JSON; charset=utf-8\r\n", "{}").await.status, 422);
    let broken = post(JSON, "{\"a\":").await;
    assert_eq!((broken.status, broken.header("content-type")), (400, Some("application/problem+json")));
    assert_eq!(post(JSON, "").await.status, 400);
    assert_eq!(post(JSON, "{\"symbol\":\"\\ud800\"}").await.status, 400, "half a character");
    let deep = "[".repeat(10_000);
    assert_eq!(post(JSON, &deep).await.status, 400);
    let large = format!("{{\"symbol\":\"{}\"}}", "x".repeat(70_000));
    let refused = post(JSON, &large).await;
    assert_eq!((refused.status, refused.header("connection")), (413, Some("close")));
}

#[tokio::test]
async fn headers_are_bounded_in_number_and_length() {
    let house = House::open().await;
    let many: String = (0..100).map(|n| format!("x-{n}: y\r\n")).collect();
    assert_eq!(house.ask("GET", "/api/v1/jobs", &many, "").await.status, 431);
    let long = format!("x: {}\r\n", "y".repeat(40_000));
    assert_eq!(house.ask("GET", "/api/v1/jobs", &long, "").await.status, 431);
}

#[tokio::test]
async fn whoever_is_slow_is_not_waited_for() {
    let house = House::open().await;
    tokio::time::pause();
    let head = "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let refused = house.raw(head.as_bytes()).await;
    assert_eq!((refused.status, refused.header("connection")), (408, Some("close")));
}

#[tokio::test]
async fn other_names_and_other_pages_are_refused() {
    let house = House::open().await;
    let get = async |headers: &str| house.ask("GET", "/api/v1/jobs", headers, "").await.status;
    assert_eq!(get("host: evil.example\r\n").await, 403);
    assert_eq!(get("host: localhost:80\r\nhost: evil.example\r\n").await, 403);
    assert_eq!(get("host: localhost:80\r\norigin: http://evil.example\r\n").await, 403);
    assert_eq!(get("host: localhost:80\r\norigin: null\r\n").await, 403);
    assert_eq!(get("host: localhost:80\r\norigin: http://localhost:81\r\n").await, 403);
    assert_eq!(get("host: localhost:80\r\norigin: http://localhost:80\r\n").await, 200);
    let post = house
        .ask("POST", "/api/v1/connectors", &format!("origin: http://evil.example\r\n{JSON}"), "{}")
        .await;
    assert_eq!((post.status, post.header("content-type")), (403, Some("application/problem+json")));
}

#[tokio::test]
async fn beyond_loopback_everything_but_the_probes_needs_the_token() {
    let house = House::with("0.0.0.0:0", Some(TOKEN)).await;
    let get = async |path: &str, headers: &str| house.ask("GET", path, headers, "").await;
    for path in ["/api/v1/jobs", "/api/v1/status", "/api/v1/openapi.json", "/metrics", "/healthz", "/nowhere"]
    {
        let refused = get(path, "").await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
    }
    for path in ["/", "/livez", "/readyz"] {
        assert_eq!(get(path, "").await.status, 200, "{path}");
    }
    let with = async |value: &str| {
        get("/api/v1/jobs", &format!("host: recorder.example\r\nauthorization: {value}\r\n")).await.status
    };
    assert_eq!(with(&format!("Bearer {TOKEN}")).await, 200);
    assert_eq!(with(&format!("bearer {TOKEN}")).await, 200);
    assert_eq!(with(&format!("Bearer {TOKEN}0")).await, 401);
    assert_eq!(with(&format!("Bearer {}", &TOKEN[1..])).await, 401);
    assert_eq!(with(&format!("Basic {TOKEN}")).await, 401);
    assert_eq!(with("Bearer").await, 401);
    assert_eq!(with("").await, 401);
}

#[tokio::test]
async fn a_token_on_loopback_is_asked_for_too() {
    let house = House::with("127.0.0.1:0", Some(TOKEN)).await;
    assert_eq!(house.get("/api/v1/jobs").await.status, 401);
    assert_eq!(
        house.ask("GET", "/api/v1/jobs", &format!("authorization: Bearer {TOKEN}\r\n"), "").await.status,
        200
    );
}

#[tokio::test]
async fn addresses_and_methods_that_are_not_there_say_so() {
    let house = House::open().await;
    let nowhere = house.get("/api/v1/nowhere").await;
    assert_eq!((nowhere.status, nowhere.header("content-type")), (404, Some("application/problem+json")));
    let method = house.ask("PATCH", "/api/v1/jobs", "", "").await;
    assert_eq!((method.status, method.header("content-type")), (405, Some("application/problem+json")));
    assert_eq!(method.header("allow"), Some("GET,HEAD,POST"));
}

#[tokio::test]
async fn without_its_store_it_answers_503_until_it_is_back() {
    let house = House::open().await;
    let body = json!({ "exchange_id": "binance" });
    house.is_up.store(false, Ordering::Relaxed);
    for path in ["/api/v1/jobs", "/api/v1/connectors", "/api/v1/jobs/000000000000000000000000"] {
        let refused = house.get(path).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("2")), "{path}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(house.post("/api/v1/connectors", body.clone()).await.status, 503);
    let wrong = house.post("/api/v1/connectors", json!({ "exchange_id": "x" })).await;
    assert_eq!(wrong.status, 422, "what is wrong is wrong without a store, too");
    assert_eq!(house.get("/livez").await.status, 200);
    house.is_up.store(true, Ordering::Relaxed);
    assert_eq!(
        house.get("/api/v1/connectors").await.json()["items"],
        json!([]),
        "nothing was stored meanwhile"
    );
    assert_eq!(house.post("/api/v1/connectors", body).await.status, 201);
}

#[tokio::test]
async fn a_store_whose_file_cannot_be_read_is_a_503_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = catchment_jobs::SqliteStore::open(&path).await.unwrap();
    let desk = Desk::over(Arc::new(store), Catalogue::default());
    let addr: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    let _control = Control::start(addr, Status::default, Some(desk.clone())).await.unwrap();
    drop(dir);
    let error = desk.jobs("").await.unwrap_err();
    assert_eq!(error.kind.status().as_u16(), 503, "{error}");
}
