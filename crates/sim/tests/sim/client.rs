//! A small client, and a simulation that stands still until told to move.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{SimClock, UnixNs};
use catchment_sim::{Sim, SimConfig};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

pub(crate) const START_MS: i64 = 1_790_000_000_000;

/// A simulation under test and the clock it asks.
pub(crate) struct Bench {
    pub(crate) sim: Sim,
    pub(crate) clock: Arc<SimClock>,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Few markets, no limits, so that a test shows what it is about.
pub(crate) fn small() -> SimConfig {
    let mut config = SimConfig::default();
    for path in ["polymarket", "limitless", "kalshi"] {
        config = config.with(&format!("{path}.limits"), "[]").unwrap();
        config = config.with(&format!("{path}.universe.markets"), "60").unwrap();
        config = config.with(&format!("{path}.universe.closed"), "10").unwrap();
    }
    config.with("kalshi.rules.combos", "30").unwrap()
}

pub(crate) async fn start(config: SimConfig) -> Bench {
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(START_MS).unwrap()));
    let sim = Sim::start(config, clock.clone()).await.unwrap();
    Bench { sim, clock }
}

impl Bench {
    pub(crate) fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, "", &[]).await.unwrap()
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {:?}", reply.body);
        reply.json()
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.send(Method::POST, path, body, &[]).await.unwrap()
    }

    pub(crate) async fn books(&self, tokens: &[String]) -> Reply {
        let wanted: Vec<String> = tokens.iter().map(|token| format!(r#"{{"token_id":"{token}"}}"#)).collect();
        self.post("polymarket/clob/books", &format!("[{}]", wanted.join(","))).await
    }

    /// Both tokens of every open market on Polymarket, Yes first.
    pub(crate) async fn tokens(&self) -> Vec<String> {
        let page = self.json("polymarket/gamma/markets/keyset?limit=100").await;
        let markets = page["markets"].as_array().unwrap();
        let ids = |market: &Value| -> Vec<String> {
            serde_json::from_str(market["clobTokenIds"].as_str().unwrap()).unwrap()
        };
        markets.iter().flat_map(ids).collect()
    }

    pub(crate) async fn faults(&self, json: &str) {
        let reply = self.post("_sim/faults", json).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
    }

    /// One request on a connection of its own; an error is the client's or the connection's.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Reply, hyper::Error> {
        let stream = TcpStream::connect(self.sim.addr()).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(format!("/{path}")).header("host", "sim");
        if headers.iter().all(|(name, _)| *name != "user-agent") {
            request = request.header("user-agent", "catchment-tests");
        }
        let mut request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let answer = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
        };
        let reply = answer.await;
        driver.abort();
        reply
    }
}
