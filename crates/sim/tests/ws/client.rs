//! A WebSocket client, and a simulation whose time stands still until told to move.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{SimClock, UnixNs};
use catchment_sim::{Sim, SimConfig, StreamFault};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

pub(crate) const START_MS: i64 = 1_790_000_000_000;

pub(crate) struct Bench {
    pub(crate) sim: Sim,
    pub(crate) clock: Arc<SimClock>,
}

/// Few pairs, the journal kept, nothing happens until told.
pub(crate) fn small() -> SimConfig {
    let mut config = SimConfig::default();
    for (path, value) in [
        ("streams.pace", "manual"),
        ("streams.journal_frames", "1000000"),
        ("polymarket.universe.markets", "10"),
        ("limitless.universe.markets", "10"),
        ("kalshi.universe.markets", "10"),
    ] {
        config = config.with(path, value).unwrap();
    }
    config
}

pub(crate) async fn start(config: SimConfig) -> Bench {
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(START_MS).unwrap()));
    let sim = Sim::start(config, clock.clone()).await.unwrap();
    Bench { sim, clock }
}

impl Bench {
    /// Lets time pass, a tenth of a second at a time, and everything that is due in it happen.
    pub(crate) async fn pass(&self, ms: u64) {
        for at in (0..ms).step_by(100) {
            self.clock.advance(Duration::from_millis(100.min(ms - at)));
            self.sim.settle().await;
        }
    }

    pub(crate) async fn connect(&self, path: &str) -> Client {
        self.try_connect(path).await.unwrap()
    }

    pub(crate) async fn try_connect(&self, path: &str) -> Result<Client, Error> {
        Client::at(&self.sim.socket(path)).await
    }

    pub(crate) fn inject(&self, venue: &str, fault: &StreamFault) -> u64 {
        self.sim.inject(venue, fault).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, hyper::HeaderMap, Bytes) {
        self.send(Method::GET, path, "").await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body:?}");
        serde_json::from_slice(&body).unwrap()
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: &str,
    ) -> (u16, hyper::HeaderMap, Bytes) {
        let stream = TcpStream::connect(self.sim.addr()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(connection);
        let request = Request::builder().method(method).uri(format!("/{path}")).header("host", "sim");
        let request =
            request.header("user-agent", "catchment-tests").body(Full::new(Bytes::from(body.to_owned())));
        let (head, body) = sender.send_request(request.unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        driver.abort();
        (head.status.as_u16(), head.headers, body)
    }
}

pub(crate) struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    pub(crate) async fn at(url: &str) -> Result<Self, Error> {
        let config = WebSocketConfig::default().max_message_size(Some(1 << 20)).max_frame_size(Some(1 << 20));
        let (socket, _) = tokio_tungstenite::connect_async_with_config(url, Some(config), true).await?;
        Ok(Self { socket })
    }

    pub(crate) async fn say(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Whatever comes next; pings are answered as they are read.
    pub(crate) async fn next(&mut self) -> Result<Message, Error> {
        match self.socket.next().await {
            Some(message) => {
                let _ = self.socket.flush().await;
                message
            }
            None => Err(Error::ConnectionClosed),
        }
    }

    /// The next text.
    pub(crate) async fn text(&mut self) -> String {
        loop {
            match self.next().await.unwrap() {
                Message::Text(text) => return text.as_str().to_owned(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn read(&mut self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Everything that has been sent: a ping goes out, and what comes before its pong is what there was.
    pub(crate) async fn drain(&mut self) -> Vec<String> {
        self.socket.send(Message::Ping("mark".into())).await.unwrap();
        let mut texts = Vec::new();
        loop {
            match self.next().await.unwrap() {
                Message::Text(text) => texts.push(text.as_str().to_owned()),
                Message::Pong(payload) if payload == "mark" => return texts,
                Message::Ping(_) | Message::Binary(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn drain_json(&mut self) -> Vec<Value> {
        let texts = self.drain().await;
        texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    /// What is left until the server ends it: texts, and how it ended.
    pub(crate) async fn until_the_end(&mut self) -> (Vec<String>, Option<Error>, Option<u16>) {
        let mut texts = Vec::new();
        loop {
            match self.next().await {
                Ok(Message::Text(text)) => texts.push(text.as_str().to_owned()),
                Ok(Message::Close(frame)) => return (texts, None, frame.map(|frame| frame.code.into())),
                Ok(_) => {}
                Err(error) => return (texts, Some(error), None),
            }
        }
    }
}
