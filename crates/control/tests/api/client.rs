//! A store in a folder of its own, a server before it, and somebody who asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use catchment_control::api::{Catalogue, Desk, Exchange, Opened};
use catchment_control::{Control, ControlSettings, Status, Token};
use catchment_jobs::{JobType, RateLimit, SqliteStore, Store};
use catchment_model::{Timeframe, Venue};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) struct House {
    control: Control,
    pub(crate) store: Arc<dyn Store>,
    /// Whether it can be opened.
    pub(crate) is_up: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The fields that it says are wrong.
    pub(crate) fn fields(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| line.split_once(": ").map(|(name, _)| name.to_owned());
        let line = self.headers.lines().find(|line| of(line).as_deref() == Some(name))?;
        Some(&line[name.len() + 2..])
    }
}

impl House {
    pub(crate) async fn open() -> Self {
        Self::with("127.0.0.1:0", None).await
    }

    pub(crate) async fn with(listen: &str, token: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path().join("jobs.db")).await.unwrap());
        let is_up = Arc::new(AtomicBool::new(true));
        let (up, opened) = (Arc::clone(&is_up), Arc::clone(&store));
        let open = move || -> Opened {
            let is_up = up.load(Ordering::Relaxed);
            if is_up { Ok(Arc::clone(&opened)) } else { Err("the store cannot be reached".to_owned()) }
        };
        let desk = Desk::opening(move || std::future::ready(open()), catalogue());
        let token = token.map(|token| Token::new(token).unwrap());
        let settings = ControlSettings { listen: listen.parse().unwrap(), token, mock: None };
        let control = Control::start(settings, Status::default, Some(desk)).await.unwrap();
        Self { control, store, is_up, _dir: dir }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match self.control.addr() {
            addr if addr.ip().is_unspecified() => ([127, 0, 0, 1], addr.port()).into(),
            addr => addr,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path, "", "").await
    }

    /// Without a body.
    pub(crate) async fn act(&self, path: &str) -> Reply {
        self.ask("POST", path, "", "").await
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        self.ask(method, path, "content-type: application/json\r\n", &body.to_string()).await
    }

    /// `headers` are whole lines.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let host = if headers.contains("host:") { "" } else { "host: localhost\r\n" };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}connection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        self.raw(request.as_bytes()).await
    }

    /// Exactly these bytes.
    pub(crate) async fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.addr()).await.unwrap();
        // It may answer and hang up before it has read everything.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, headers: headers.to_owned(), text: text.to_owned() }
    }
}

pub(crate) fn catalogue() -> Catalogue {
    let exchange = |id: &str, types: &[JobType], timeframes: &[Timeframe]| Exchange {
        id: Venue::new(id).unwrap(),
        rate: RateLimit { limit: 20, period_ms: 1_000 },
        types: types.to_vec(),
        timeframes: timeframes.to_vec(),
    };
    Catalogue::new(vec![
        exchange("binance", &JobType::ALL, &[Timeframe::M1, Timeframe::H1, Timeframe::D1]),
        exchange("kraken", &JobType::ALL, &[Timeframe::H1]),
        exchange("polymarket", &[], &[]),
    ])
}
