//! A venue that does as the test says: sockets handed over one by one, and an answer to every request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

type Answer = Box<dyn Fn(&str) -> (u16, String) + Send + Sync>;

/// The venue.
pub(crate) struct Stage {
    pub(crate) addr: SocketAddr,
    sessions: mpsc::Receiver<Session>,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Stage {
    /// `answer` is given the path and query of every request.
    pub(crate) async fn start(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer)
    }

    /// Where somebody listens already.
    fn on(listener: TcpListener, answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let addr = listener.local_addr().unwrap();
        let (sender, sessions) = mpsc::channel(64);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answer> = Arc::new(Box::new(answer));
        let mut serving = JoinSet::new();
        let log = Arc::clone(&asked);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                connections.spawn(serve(tcp, sender.clone(), Arc::clone(&answer), Arc::clone(&log)));
            }
        });
        Self { addr, sessions, asked, _serving: serving }
    }

    /// Knows nothing over REST.
    pub(crate) async fn silent() -> Self {
        Self::start(|_| (503, "{}".to_owned())).await
    }

    /// Knows nothing over REST, and is where nobody listened until now.
    pub(crate) fn silent_at(place: TcpSocket) -> Self {
        Self::on(place.listen(64).unwrap(), |_| (503, "{}".to_owned()))
    }

    /// The next socket that is opened.
    pub(crate) async fn session(&mut self) -> Session {
        timeout(PATIENCE, self.sessions.recv()).await.expect("a socket is opened").unwrap()
    }

    /// Requests so far that hold this text.
    pub(crate) fn asked(&self, what: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|path| path.contains(what)).count()
    }
}

async fn serve(
    tcp: TcpStream,
    sessions: mpsc::Sender<Session>,
    answer: Arc<Answer>,
    log: Arc<Mutex<Vec<String>>>,
) {
    let mut head = [0; 4096];
    loop {
        // An upgrade is left in the socket for the WebSocket handshake.
        let read = tcp.peek(&mut head).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&head[..read]).into_owned();
        if !text.contains("\r\n\r\n") {
            tokio::task::yield_now().await;
            continue;
        }
        if text.to_ascii_lowercase().contains("upgrade: websocket") {
            if let Ok(ws) = tokio_tungstenite::accept_async(tcp).await {
                let _ = sessions.send(Session { ws }).await;
            }
            return;
        }
        return rest(tcp, answer, log).await;
    }
}

async fn rest(mut tcp: TcpStream, answer: Arc<Answer>, log: Arc<Mutex<Vec<String>>>) {
    let mut head = vec![0; 4096];
    loop {
        let read = tcp.read(&mut head).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&head[..read]).into_owned();
        let path = text.split(' ').nth(1).unwrap_or("").to_owned();
        let (status, body) = answer(&path);
        log.lock().unwrap().push(path);
        let reply = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if tcp.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One socket, from the venue's side.
pub(crate) struct Session {
    pub(crate) ws: WebSocketStream<TcpStream>,
}

impl Session {
    /// The next text of the client, pings and pongs left out.
    pub(crate) async fn heard(&mut self) -> String {
        loop {
            let message = timeout(PATIENCE, self.ws.next()).await.expect("the client says something");
            match message.expect("the socket is open").expect("the frame is sound") {
                Message::Text(text) => return text.to_string(),
                Message::Close(_) => panic!("the client said goodbye"),
                _ => {}
            }
        }
    }

    /// Whether the client closes or drops the socket without saying anything more.
    pub(crate) async fn is_left(&mut self) -> bool {
        let next = timeout(PATIENCE, self.ws.next()).await.expect("the client leaves");
        !matches!(next, Some(Ok(Message::Text(_) | Message::Binary(_))))
    }

    pub(crate) async fn say(&mut self, text: impl Into<String>) {
        self.ws.send(Message::text(text.into())).await.unwrap();
    }

    /// Ends it without a word.
    pub(crate) fn cut(self) {
        drop(self.ws.into_inner());
    }

    /// Takes Binance's next command and acknowledges it. Gives back its method and its streams.
    pub(crate) async fn binance(&mut self) -> (String, Vec<String>) {
        let command: Value = serde_json::from_str(&self.heard().await).unwrap();
        self.say(format!(r#"{{"result":null,"id":{}}}"#, command["id"])).await;
        let streams = command["params"].as_array().unwrap().iter();
        (
            command["method"].as_str().unwrap().to_owned(),
            streams.map(|stream| stream.as_str().unwrap().to_owned()).collect(),
        )
    }

    /// Binance's trade with this number.
    pub(crate) async fn trade(&mut self, symbol: &str, number: u64) {
        self.say(trade(symbol, number)).await;
    }
}

/// A trade at Binance.
pub(crate) fn trade(symbol: &str, number: u64) -> String {
    let lower = symbol.to_lowercase();
    format!(
        r#"{{"stream":"{lower}@trade","data":{{"e":"trade","E":1700000000000,"s":"{symbol}","t":{number},"p":"1.50","q":"2.00","T":1700000000000,"m":true,"M":true}}}}"#
    )
}
