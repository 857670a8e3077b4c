//! Two coordinators: one leads, the other takes over, and nodes know which.

use std::time::Duration;

use catchment_fleet::frame::framed;
use catchment_fleet::lease::LeaseAnswer;
use catchment_fleet::message::{Heard, Message, Outcome, read};
use catchment_fleet::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_takes_over_from_a_killed_one_within_five_seconds() {
    let site = Site::new(50).await;
    let node = site.node(2).await;
    let mut first = site.coordinator("first", &[node.addr]);
    let fence = first.until("first leads", |status| status.plan.counts.ok > 10).await.fence;
    let mut second = site.coordinator("second", &[node.addr]);
    let waiting = second.until("second waits", |status| status.plan.nodes.len() == 1).await;
    assert!(waiting.leader.is_empty() && waiting.plan.counts.batches == 0);
    let killed = Instant::now();
    first.kill().await;
    let status = second.until("second fetches", |status| status.plan.counts.ok > 10).await;
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}"); // the status comes once a second
    assert!(status.leader == "second" && status.fence > fence);
    assert_eq!(node.window.fence(), status.fence);
    second.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_goes_of_its_own_accord_hands_over_at_once() {
    let site = Site::new(10).await;
    let node = site.node(2).await;
    let mut first = site.coordinator("first", &[node.addr]);
    first.until("first leads", |status| status.plan.counts.ok > 3).await;
    let mut second = site.coordinator("second", &[node.addr]);
    second.until("second waits", |status| status.plan.nodes.len() == 1).await;
    first.stop().await;
    second.until("second leads", |status| status.leader == "second").await;
    second.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn the_lease_has_one_holder_and_the_fence_only_grows() {
    let mut site = Site::new(1).await;
    let registry = Registry::new(site.link.clone(), "fleet");
    let long = Duration::from_secs(60);
    let fence = async |name: &str, seen| match registry.acquire(name, long, seen).await.unwrap() {
        LeaseAnswer::Granted { fence } => fence,
        LeaseAnswer::Taken { holder } => panic!("taken by {holder}"),
    };
    let first = fence("a", 0).await;
    assert_eq!(fence("a", 0).await, first, "renewed, not taken anew");
    let taken = registry.acquire("b", long, 0).await.unwrap();
    assert_eq!(taken, LeaseAnswer::Taken { holder: "a".into() });
    registry.release("b").await.unwrap();
    assert_eq!(fence("a", 0).await, first, "only the holder gives it back");
    registry.release("a").await.unwrap();
    let second = fence("b", 0).await;
    assert!(second > first);
    site.redis.restart().unwrap();
    let third = fence("b", 0).await;
    assert!(third > second, "even if the server has lost everything");
    let far = third + 1_000_000;
    assert!(fence("b", far).await > far, "and above whatever a node has seen");
}

/// A coordinator by hand, without a key.
async fn greet(addr: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let hello = Message::Hello { nonce: "00".into(), coordinator: "old".into() };
    stream.write_all(&hello.to_frame()).await.unwrap();
    assert!(matches!(hear(&mut stream).await, Message::Challenge { .. }));
    stream.write_all(&Message::Proof { mac: None }.to_frame()).await.unwrap();
    stream
}

async fn hear(stream: &mut TcpStream) -> Message {
    let len = stream.read_u32().await.unwrap();
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body).await.unwrap();
    match read(&body).unwrap() {
        Heard::Ours(message) => message,
        Heard::Plain(_) => panic!("not ours"),
    }
}

#[tokio::test]
async fn a_node_refuses_the_old_leader_as_soon_as_it_knows_the_new_one() {
    let site = Site::new(10).await;
    let node = site.node(2).await;
    let mut old = greet(node.addr).await;
    let mut ask = async |fence: u64| {
        let fetch = Message::Fetch { id: fence, fence, tokens: vec![site.tokens[0].clone()], trigger: true };
        old.write_all(&framed(&fetch.to_json())).await.unwrap();
        match hear(&mut old).await {
            Message::Result(summary) => summary,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(5).await.outcome, Outcome::Ok);
    // Somebody else leads now. The node hears of it from Redis, without having been spoken to.
    let registry = Registry::new(site.link.clone(), "fleet");
    let LeaseAnswer::Granted { fence } = registry.acquire("new", Duration::from_secs(60), 0).await.unwrap()
    else {
        panic!("taken");
    };
    tokio::time::timeout(crate::site::PATIENCE, async {
        while node.window.fence() < fence {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let refused = ask(5).await;
    assert_eq!((refused.outcome, refused.fence), (Outcome::Stale, fence));
    assert_eq!(node.window.counts().batches, 1, "nothing was fetched for it");
    assert_eq!(ask(fence).await.outcome, Outcome::Ok);
    node.stop().await;
}
