//! What goes wrong on demand, each by itself; limits as clients meet them; the control endpoints.

use std::io::Read;
use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Bench, Reply, small, start};

const TIME: &str = "polymarket/clob/time";

async fn with(faults: Value) -> Bench {
    let bench = start(small()).await;
    bench.faults(&json!({ "polymarket": faults }).to_string()).await;
    bench
}

/// What one request for the time gets.
async fn once(faults: Value) -> Reply {
    with(faults).await.get(TIME).await
}

#[tokio::test]
async fn a_refusal_comes_with_and_without_a_time_to_come_back() {
    let check = async |faults: Value, retry_after: Option<&str>| {
        let reply = once(faults).await;
        assert_eq!((reply.status, reply.header("retry-after")), (429, retry_after));
        reply
    };
    let plain = check(json!({"refused":1}), None).await;
    assert_eq!(plain.error(), "Too Many Requests");
    check(json!({"refused":1,"retry_after":"auto","retry_after_ms":2500}), Some("3")).await;
    check(json!({"refused":1,"retry_after":"0"}), Some("0")).await;
    check(json!({"refused":1,"retry_after":"1000000"}), Some("1000000")).await;
    check(json!({"refused":1,"retry_after":"date"}), Some("Mon, 21 Sep 2026 14:13:21 GMT")).await;
    check(json!({"refused":1,"retry_after":"past"}), Some("Mon, 21 Sep 2026 13:13:20 GMT")).await;
    check(json!({"refused":1,"retry_after":"soon"}), Some("soon")).await;
    let html = check(json!({"refused":1,"refused_html":true}), None).await;
    assert!(html.body.starts_with(b"<!DOCTYPE html>"));
}

#[tokio::test]
async fn bans_walls_waves_and_pages_in_the_place_of_data() {
    let check = async |faults: Value, status: u16, content_type: &str, begins: &str| {
        let reply = once(faults.clone()).await;
        assert_eq!((reply.status, reply.header("content-type")), (status, Some(content_type)), "{faults}");
        assert!(reply.body.starts_with(begins.as_bytes()), "{faults}: {:?}", reply.body);
    };
    const HTML: &str = "text/html; charset=UTF-8";
    check(json!({"banned":1}), 418, "application/json", "{").await;
    check(json!({"forbidden":1}), 403, HTML, "<!DOCTYPE html>").await;
    check(json!({"server_error":1}), 503, HTML, "<!DOCTYPE html>").await;
    check(json!({"server_error":1,"server_error_status":502}), 502, HTML, "<!DOCTYPE html>").await;
    check(json!({"html_200":1}), 200, HTML, "<!DOCTYPE html>").await;
    check(json!({"error_200":1}), 200, "application/json", r#"{"error":"Too Many Requests"}"#).await;
    let away = once(json!({"redirect":1,"redirect_to":"http://other.invalid"})).await;
    let place = "http://other.invalid/polymarket/clob/time";
    assert_eq!((away.status, away.header("location")), (302, Some(place)));
}

#[tokio::test]
async fn a_wave_hits_its_share_of_requests_and_the_same_ones_again() {
    let wave = async || {
        let bench = with(json!({"server_error":0.5})).await;
        let mut statuses = Vec::new();
        for _ in 0..60 {
            statuses.push(bench.get(TIME).await.status);
        }
        statuses
    };
    let (one, two) = (wave().await, wave().await);
    assert_eq!(one, two);
    let hits = one.iter().filter(|status| **status == 503).count();
    assert!((18..42).contains(&hits), "{hits}");
}

#[tokio::test]
async fn a_request_that_hangs_is_never_answered_and_holds_its_connection() {
    let bench = with(json!({"hang":1})).await;
    let mut stream = TcpStream::connect(bench.sim.addr()).await.unwrap();
    stream
        .write_all(b"GET /polymarket/clob/time HTTP/1.1\r\nhost: x\r\nuser-agent: t\r\n\r\n")
        .await
        .unwrap();
    // Known to be held once it is counted; then nothing has come, and only the end of the simulation ends it.
    while bench.sim.stats()["polymarket"].get("clob/time").is_none_or(|stats| stats.faults.is_empty()) {
        tokio::task::yield_now().await;
    }
    let mut byte = [0];
    assert_eq!(stream.try_read(&mut byte).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    bench.sim.stop().await;
    assert!(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_connection_is_reset() {
    let bench = with(json!({"reset":1})).await;
    let mut stream = TcpStream::connect(bench.sim.addr()).await.unwrap();
    stream
        .write_all(b"GET /polymarket/clob/time HTTP/1.1\r\nhost: x\r\nuser-agent: t\r\n\r\n")
        .await
        .unwrap();
    let error = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn json_ends_in_the_middle_or_the_connection_does() {
    let bench = with(json!({})).await;
    let path = format!("polymarket/clob/book?token_id={}", bench.tokens().await[0]);
    let whole = bench.get(&path).await.body;
    bench.faults(r#"{"polymarket":{"truncated":1}}"#).await;
    let half = bench.get(&path).await;
    assert_eq!((half.status, &half.body[..]), (200, &whole[..whole.len() / 2]));
    assert!(serde_json::from_slice::<Value>(&half.body).is_err());
    bench.faults(r#"{"polymarket":{"cut":1}}"#).await;
    assert!(bench.send(Method::GET, &path, "", &[]).await.is_err());
}

#[tokio::test]
async fn a_slow_body_begins_and_does_not_end() {
    let bench = with(json!({"slow":1,"slow_bytes_per_s":2})).await;
    let mut stream = TcpStream::connect(bench.sim.addr()).await.unwrap();
    stream
        .write_all(b"GET /polymarket/clob/time HTTP/1.1\r\nhost: x\r\nuser-agent: t\r\n\r\n")
        .await
        .unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\n17") {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0);
    }
    let head = String::from_utf8(got).unwrap();
    assert!(head.contains("content-length: 10"), "{head}");
}

#[tokio::test]
async fn a_bomb_unpacks_to_far_more_than_was_sent() {
    let reply = once(json!({"gzip_bomb":1,"gzip_bomb_mib":64})).await;
    assert_eq!((reply.status, reply.header("content-encoding")), (200, Some("gzip")));
    assert!(reply.body.len() < 100_000, "{}", reply.body.len());
    let mut unpacked = 0;
    let mut reader = flate2::read::GzDecoder::new(&reply.body[..]);
    let mut piece = vec![1; 1 << 20];
    loop {
        match reader.read(&mut piece).unwrap() {
            0 => break,
            n => unpacked += n,
        }
    }
    assert_eq!(unpacked, 64 << 20);
}

#[tokio::test]
async fn hashes_are_wrong_and_tokens_missing_by_their_share() {
    let bench = start(small()).await;
    let tokens = bench.tokens().await;
    let right = bench.books(&tokens).await.json();
    bench.faults(r#"{"polymarket":{"wrong_hash":0.3}}"#).await;
    let wrong = bench.books(&tokens).await.json();
    let pairs: Vec<(&Value, &Value)> =
        right.as_array().unwrap().iter().zip(wrong.as_array().unwrap()).collect();
    let differ = pairs.iter().filter(|(a, b)| a["hash"] != b["hash"]).count();
    assert!((18..60).contains(&differ), "{differ} of 120");
    assert!(pairs.iter().all(|(a, b)| a["bids"] == b["bids"] && a["timestamp"] == b["timestamp"]));
    assert!(pairs.iter().all(|(_, b)| b["hash"].as_str().unwrap().len() == 40));
    bench.faults(r#"{"polymarket":{"missing_tokens":0.3}}"#).await;
    let fewer = bench.books(&tokens).await.json().as_array().unwrap().len();
    assert!((60..102).contains(&fewer), "{fewer} of 120");
    bench.faults(r#"{"polymarket":{}}"#).await;
    assert_eq!(bench.books(&tokens).await.json(), right);
}

#[tokio::test]
async fn pages_are_empty_and_cursors_stand_still() {
    let bench = start(small()).await;
    let everywhere =
        |faults: Value| json!({"polymarket":faults,"limitless":faults,"kalshi":faults}).to_string();
    bench.faults(&everywhere(json!({"empty_page":1}))).await;
    assert_eq!(bench.json("polymarket/gamma/markets").await, json!([]));
    assert_eq!(bench.json("polymarket/gamma/events/keyset").await["events"], json!([]));
    assert_eq!(bench.json("polymarket/clob/markets").await["data"], json!([]));
    assert_eq!(bench.json("limitless/markets/active").await, json!({"data":[],"totalMarketsCount":0}));
    assert_eq!(bench.json("kalshi/markets").await["markets"], json!([]));
    bench.faults(&everywhere(json!({"stuck_cursor":1}))).await;
    for (path, cursor, rows) in [
        ("polymarket/gamma/markets/keyset?limit=5&after_cursor=Mg==", "next_cursor", "markets"),
        ("polymarket/clob/markets?next_cursor=Mg==", "next_cursor", "data"),
        ("kalshi/markets?limit=5&cursor=MDoz", "cursor", "markets"),
    ] {
        let page = bench.json(path).await;
        assert!(path.ends_with(page[cursor].as_str().unwrap()), "{path}: {}", page[cursor]);
        assert!(!page[rows].as_array().unwrap().is_empty());
    }
    // On the first page too, where an empty cursor would be the end.
    let first = bench.json("kalshi/markets?limit=5").await;
    let cursor = first["cursor"].as_str().unwrap();
    assert!(!cursor.is_empty());
    let again = bench.json(&format!("kalshi/markets?limit=5&cursor={cursor}")).await;
    assert_eq!((&again["cursor"], &again["markets"]), (&first["cursor"], &first["markets"]));
}

#[tokio::test]
async fn markets_appear_and_end_while_a_fault_says_so() {
    let bench = with(json!({"births_per_min":60,"deaths_per_min":120,"for_ms":10_000})).await;
    let before = bench.tokens().await.len();
    bench.advance(5_000);
    assert_eq!(bench.tokens().await.len(), before - 10);
    bench.advance(60_000);
    assert_eq!(bench.tokens().await.len(), before - 20, "its time was over after ten seconds");
}

#[tokio::test]
async fn a_fault_ends_when_its_time_is_over() {
    let bench = with(json!({"server_error":1,"for_ms":5_000})).await;
    assert_eq!(bench.get(TIME).await.status, 503);
    bench.advance(4_999);
    assert_eq!(bench.get(TIME).await.status, 503);
    bench.advance(1);
    assert_eq!(bench.get(TIME).await.status, 200);
    assert_eq!(bench.json("_sim/faults").await["polymarket"]["server_error"], 0.0);
}

#[tokio::test]
async fn latency_is_waited_for() {
    let bench = with(json!({"latency_ms":30})).await;
    let began = tokio::time::Instant::now();
    assert_eq!(bench.get(TIME).await.status, 200);
    assert!(began.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn the_published_window_lets_500_batches_pass_then_delays() {
    let config = small().with("polymarket.limits", "null").unwrap();
    let bench = start(config).await;
    for _ in 0..500 {
        bench.books(&[]).await;
    }
    let stats = || bench.sim.stats()["polymarket"]["clob/books"].clone();
    assert_eq!((stats().delays, stats().answers[&200]), (0, 500));
    assert_eq!(bench.books(&[]).await.status, 200);
    assert_eq!((stats().delays, stats().delay_ms, stats().refusals), (1, 50, 0));
    bench.advance(10_000);
    bench.books(&[]).await;
    assert_eq!(stats().delays, 1);
}

#[tokio::test]
async fn a_hidden_limit_refuses_what_the_published_one_would_let_pass() {
    let bench = with(json!({"hidden_limit":{"requests":3,"window_ms":1000,"retry_after":"auto"}})).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let reply = bench.get(TIME).await;
        statuses.push((reply.status, reply.header("retry-after").map(str::to_owned)));
    }
    let refused = (429, Some("1".to_owned()));
    assert_eq!(statuses, [(200, None), (200, None), (200, None), refused.clone(), refused]);
    bench.advance(1_000);
    assert_eq!(bench.get(TIME).await.status, 200);
    assert_eq!(bench.sim.stats()["polymarket"]["clob/time"].refusals, 2);
}

#[tokio::test]
async fn each_venue_refuses_in_its_own_words() {
    let bench = start(small()).await;
    let refused = json!({"refused":1});
    bench.faults(&json!({"limitless":refused,"kalshi":refused}).to_string()).await;
    let limitless = bench.get("limitless/markets/active").await;
    assert_eq!((limitless.status, limitless.json()["statusCode"].clone()), (429, json!(429)));
    assert_eq!(bench.get("kalshi/exchange/status").await.body, r#"{"error":"too many requests"}"#);
}

#[tokio::test]
async fn a_mistake_in_the_faults_is_told_and_changes_nothing() {
    let bench = start(small()).await;
    for (body, want) in [
        (r#"{"polymarket":{"hangs":1}}"#, "unknown field `hangs`"),
        (
            r#"{"polymarket":{"server_error":1},"kalshi":{"hang":2}}"#,
            "kalshi.faults.hang is a share from 0 to 1",
        ),
        (r#"{"mtgox":{}}"#, "mtgox is not a venue of the simulation"),
        ("[", "faults"),
    ] {
        let reply = bench.post("_sim/faults", body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.error().contains(want), "{}", reply.error());
    }
    assert_eq!(bench.get(TIME).await.status, 200);
}

#[tokio::test]
async fn the_figures_say_what_was_asked_and_sent() {
    let bench = start(small()).await;
    let tokens = bench.tokens().await;
    let bytes = bench.books(&tokens).await.body.len();
    bench.books(&["1".into()]).await;
    bench.post("polymarket/clob/books", "nonsense").await;
    let stats = bench.json("_sim/stats").await;
    let books = &stats["polymarket"]["clob/books"];
    assert_eq!(books["requests"], 3);
    assert_eq!(books["answers"], json!({"200":2,"400":1}));
    assert_eq!(books["books"], 120);
    assert_eq!(books["bytes"], bytes + 2 + r#"{"error":"Invalid payload"}"#.len());
    assert_eq!(bench.get("nowhere").await.status, 404);
}

#[tokio::test]
async fn answers_are_compressed_only_if_both_sides_want_it() {
    let ask = async |gzip: &str, accepts: &str| {
        let bench = start(small().with("gzip", gzip).unwrap()).await;
        let headers = [("accept-encoding", accepts)];
        bench.send(Method::GET, "polymarket/gamma/markets", "", &headers).await.unwrap()
    };
    let plain = ask("false", "gzip").await;
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(ask("true", "identity").await.body, plain.body);
    let packed = ask("true", "gzip, deflate").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
}

#[tokio::test]
async fn nothing_listens_any_more_once_it_has_stopped() {
    let bench = start(small()).await;
    let addr = bench.sim.addr();
    assert!(addr.ip().is_loopback());
    bench.sim.stop().await;
    assert!(TcpStream::connect(addr).await.is_err());
}
