//! Who comes to a node's door, and what they get. X18: garbage, huge lengths, replays and strangers change nothing.

use std::net::SocketAddr;
use std::time::Duration;

use catchment_fleet::frame::framed;
use catchment_fleet::hello::{FleetKey, Role, nonce};
use catchment_fleet::message::{Heard, Message, read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::site::{PATIENCE, RunningNode, Site, key};

const KEY: &str = "a key that only the fleet knows";

/// Sends bytes and reads until the node hangs up; what it said, and how long it took.
async fn sent(addr: SocketAddr, bytes: &[u8]) -> (Vec<u8>, Duration) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // It may hang up before everything is written.
    let _ = stream.write_all(bytes).await;
    let mut said = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it hangs up");
    (said, began.elapsed())
}

async fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let len = stream.read_u32().await.unwrap();
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body).await.unwrap();
    body
}

#[tokio::test]
async fn s4s_message_is_answered_with_ok_and_the_books_are_there() {
    let site = Site::new(10).await;
    let node = site.node(1).await;
    let mut stream = TcpStream::connect(node.addr).await.unwrap();
    let ask = async |stream: &mut TcpStream, body: String| {
        stream.write_all(&framed(body.as_bytes())).await.unwrap();
        let mut said = [0; 2];
        stream.read_exact(&mut said).await.unwrap();
        said
    };
    let three = serde_json::to_string(&site.tokens[..3]).unwrap();
    assert_eq!(&ask(&mut stream, format!(r#"{{"tokens": {three}, "trigger": true}}"#)).await, b"OK");
    assert_eq!(site.books().await, 3);
    let key = format!("ob:{}", site.tokens[0]);
    let fields: Vec<String> = site.link.ask(redis::cmd("HKEYS").arg(&key)).await.unwrap();
    let mut fields = fields;
    fields.sort();
    assert_eq!(fields, ["asks", "bids", "hash", "market", "timestamp", "updated_at"]);
    let bids: String = site.link.ask(redis::cmd("HGET").arg(&key).arg("bids")).await.unwrap();
    assert!(bids.starts_with(r#"[{"price":""#), "the venue's own bytes: {bids}");
    // Without tokens, or with none, those of before: also on another connection.
    let mut another = TcpStream::connect(node.addr).await.unwrap();
    for body in [r#"{"trigger": true}"#, r#"{"tokens": [], "trigger": true}"#] {
        assert_eq!(&ask(&mut another, body.to_owned()).await, b"OK");
    }
    assert_eq!((node.window.counts().requests, node.window.counts().books), (3, 9));
    node.stop().await;
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let site = Site::new(10).await;
    let node = site.node(1).await;
    let mut stream = TcpStream::connect(node.addr).await.unwrap();
    stream.write_all(&framed(br#"{"trigger": true}"#)).await.unwrap();
    let mut said = [0; 30];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"ERR no tokens, and none before");
    assert_eq!(node.window.counts().batches, 0);
    node.stop().await;
}

#[tokio::test]
async fn garbage_is_hung_up_on_within_a_second_and_nothing_is_done() {
    let site = Site::new(10).await;
    for key in [None, key(KEY)] {
        let node = RunningNode::start(catchment_fleet::node::NodeConfig { key, ..site.node_config(1) }).await;
        let garbage: Vec<Vec<u8>> = vec![
            vec![0xff; 4],
            [&0xffff_ffff_u32.to_be_bytes()[..], &[b'x'; 100_000]].concat(),
            vec![0; 4],
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            framed(b"hello"),
            framed(b"{\"v\":1,\"type\":\"fetch\",\"id\":1,\"fence\":1,\"tokens\":[\"1\"]}"),
            framed(b"{\"v\":9}"),
            vec![0, 0, 0, 200, b'{'],
            vec![0],
            Vec::new(),
            (0..5_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
        ];
        let count = garbage.len() as u64;
        for bytes in garbage {
            let (said, took) = sent(node.addr, &bytes).await;
            assert_eq!(said, b"", "{:?}", &bytes[..bytes.len().min(60)]);
            assert!(took < Duration::from_millis(3_000), "{took:?} for {:?}", &bytes[..bytes.len().min(60)]);
        }
        assert_eq!((node.window.counts().batches, node.window.turned_away()), (0, count));
        node.stop().await;
    }
}

#[tokio::test]
async fn with_a_key_nobody_without_it_commands() {
    let site = Site::new(10).await;
    let node =
        RunningNode::start(catchment_fleet::node::NodeConfig { key: key(KEY), ..site.node_config(1) }).await;
    let plain = framed(format!(r#"{{"tokens": ["{}"], "trigger": true}}"#, site.tokens[0]).as_bytes());
    assert_eq!(sent(node.addr, &plain).await.0, b"", "S4's message has no key");
    // With a wrong key the node's own proof does not hold, and ours does not either.
    for text in ["another key, also a long one", KEY] {
        let ours = FleetKey::new(text).unwrap();
        let mut stream = TcpStream::connect(node.addr).await.unwrap();
        let nonce = nonce([7; 16]);
        stream
            .write_all(&Message::Hello { nonce: nonce.clone(), coordinator: "c".into() }.to_frame())
            .await
            .unwrap();
        let Heard::Ours(Message::Challenge { nonce: theirs, node: name, mac, .. }) =
            read(&read_frame(&mut stream).await).unwrap()
        else {
            panic!("no challenge");
        };
        let is_known = ours.is_proof(Role::Node, &theirs, &nonce, &name, &mac.unwrap());
        assert_eq!(is_known, text == KEY, "the node has shown its key");
        let proof = Message::Proof { mac: Some(ours.proof(Role::Coordinator, &theirs, &nonce, "c")) };
        stream.write_all(&proof.to_frame()).await.unwrap();
        // An unsealed command, as somebody in between would send it.
        let fetch = Message::Fetch { id: 1, fence: 1, tokens: vec![site.tokens[0].clone()], trigger: true };
        let _ = stream.write_all(&fetch.to_frame()).await;
        let mut said = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("it hangs up");
        assert_eq!(said, b"");
    }
    assert_eq!((node.window.counts().batches, site.books().await), (0, 0));
    node.stop().await;
}

#[tokio::test]
async fn a_recorded_hello_is_worth_nothing() {
    let site = Site::new(10).await;
    let node =
        RunningNode::start(catchment_fleet::node::NodeConfig { key: key(KEY), ..site.node_config(1) }).await;
    let ours = FleetKey::new(KEY).unwrap();
    let mut stream = TcpStream::connect(node.addr).await.unwrap();
    let nonce = nonce([7; 16]);
    let hello = Message::Hello { nonce: nonce.clone(), coordinator: "c".into() }.to_frame();
    stream.write_all(&hello).await.unwrap();
    let Heard::Ours(Message::Challenge { nonce: theirs, .. }) = read(&read_frame(&mut stream).await).unwrap()
    else {
        panic!("no challenge");
    };
    let proof = Message::Proof { mac: Some(ours.proof(Role::Coordinator, &theirs, &nonce, "c")) }.to_frame();
    stream.write_all(&proof).await.unwrap();
    let mut seal = catchment_fleet::hello::Seal::new(Some(ours.session(&nonce, &theirs)), Role::Coordinator);
    let fetch = Message::Fetch { id: 1, fence: 1, tokens: vec![site.tokens[0].clone()], trigger: true };
    let order = framed(&seal.close(&fetch.to_json()));
    stream.write_all(&order).await.unwrap();
    let answer = read_frame(&mut stream).await;
    assert!(!answer.is_empty());
    assert_eq!(node.window.counts().ok, 1, "the true one is served");
    // The whole conversation again, byte for byte.
    let (said, _) = sent(node.addr, &[hello, proof, order].concat()).await;
    assert!(!said.is_empty(), "another challenge, and nothing more");
    assert_eq!((node.window.counts().batches, node.window.turned_away()), (1, 1));
    node.stop().await;
}

#[tokio::test]
async fn a_key_is_needed_to_listen_beyond_loopback() {
    let site = Site::new(1).await;
    let mut config = site.node_config(1);
    config.bind = "0.0.0.0:0".parse().unwrap();
    let node = RunningNode::start(config.clone()).await;
    assert!(node.addr.ip().is_loopback());
    node.stop().await;
    config.key = key(KEY);
    let node = RunningNode::start(config).await;
    assert!(node.addr.ip().is_unspecified());
    node.stop().await;
}

#[tokio::test]
async fn a_node_holds_its_limit_whatever_it_is_told() {
    let site = Site::new(10).await;
    // What is measured is when requests arrive; a busy machine may hold some of them up by less than this.
    let slack = Duration::from_millis(500);
    let node = RunningNode::start(catchment_fleet::node::NodeConfig { slack, ..site.node_config(2) }).await;
    let body = serde_json::to_string(&site.tokens[..2]).unwrap();
    let frame = framed(format!(r#"{{"tokens": {body}, "trigger": true}}"#).as_bytes());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (addr, frame) = (node.addr, frame.clone());
        asking.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            loop {
                stream.write_all(&frame).await.unwrap();
                let mut said = [0; 256];
                let len = stream.read(&mut said).await.unwrap();
                match &said[..len] {
                    b"OK" => return,
                    said => assert!(said.starts_with(b"ERR late"), "{}", String::from_utf8_lossy(said)),
                }
            }
        });
    }
    asking.join_all().await;
    let log = crate::site::http_get(site.sim.addr(), "/_sim/requests").await;
    let of_ours = log.lines().filter(|line| line.contains(" 127.0.0.2 "));
    let times: Vec<u64> = of_ours.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(times.len(), 50);
    assert!(times.windows(21).all(|window| window[20] - window[0] >= 1_000_000), "{times:?}");
    node.stop().await;
}
