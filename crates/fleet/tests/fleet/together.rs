//! Coordinator and nodes together: everything is fetched, fairly and within the limits, and goes on when something breaks.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::site::{RunningNode, Site, http_get, key};

/// Times of requests by client, in microseconds.
async fn arrivals(site: &Site) -> BTreeMap<String, Vec<u64>> {
    let mut by_client: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in http_get(site.sim.addr(), "/_sim/requests").await.lines() {
        let mut words = line.split(' ');
        let (at, client, endpoint) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        if endpoint.starts_with("clob/book") {
            by_client.entry(client.to_owned()).or_default().push(at.parse().unwrap());
        }
    }
    by_client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_keep_every_token_fresh_within_their_limits() {
    let site = Site::new(200).await;
    // What is measured is when requests arrive; a busy machine may hold some of them up by less than this.
    let slack = Duration::from_millis(500);
    let start =
        |number| RunningNode::start(catchment_fleet::node::NodeConfig { slack, ..site.node_config(number) });
    let (one, two) = (start(2).await, start(3).await);
    let mut coordinator = site.coordinator("c", &[one.addr]); // the other registers itself
    let status = coordinator
        .until("all fresh by two nodes", |status| {
            status.plan.nodes.len() == 2 && status.plan.counts.ok > 100 && status.plan.freshness.never == 0
        })
        .await;
    assert!(status.is_well() && status.leader == "c" && status.fence > 0);
    // 400 tokens once a second by two nodes of 13.3: half of them each, fifteen or sixteen at a time.
    assert!((15..=16).contains(&status.plan.batch), "{}", status.to_text());
    assert_eq!(site.books().await, 400);
    assert!(status.plan.counts.trouble == 0 && status.plan.counts.late == 0, "{:?}", status.plan.counts);
    for (client, times) in arrivals(&site).await {
        let most = times.windows(21).map(|window| window[20] - window[0]).min().unwrap_or(u64::MAX);
        assert!(most >= 1_000_000, "{client} sent 21 within {most} us");
    }
    coordinator.stop().await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_is_replaced_and_one_that_comes_back_is_used() {
    let site = Site::new(100).await;
    let (one, two) = (site.node(2).await, site.node(3).await);
    let mut coordinator = site.coordinator("c", &[]);
    coordinator.until("two nodes", |status| status.plan.nodes.len() == 2 && status.plan.counts.ok > 20).await;
    two.kill().await;
    let status = coordinator
        .until("one has all", |status| {
            status.plan.nodes.iter().any(|node| node.is_up && node.tokens == 200)
                && status.plan.freshness.p99_ms < 2_500.0
        })
        .await;
    assert!(status.plan.errors.iter().any(|error| error.kind == "down"), "{}", status.to_text());
    let two = site.node(3).await;
    coordinator
        .until("both share again", |status| {
            status.plan.nodes.iter().filter(|node| node.is_up && node.tokens > 80).count() == 2
        })
        .await;
    coordinator.stop().await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_redis_and_a_lost_script_are_got_over() {
    let mut site = Site::new(50).await;
    let node = site.node(2).await;
    let mut coordinator = site.coordinator("c", &[node.addr]);
    coordinator.until("fetching", |status| status.plan.counts.ok > 10).await;
    let () = site.link.ask(redis::cmd("SCRIPT").arg("FLUSH")).await.unwrap();
    let before = coordinator.status.borrow().plan.counts.clone();
    coordinator.until("fetching on", |status| status.plan.counts.ok > before.ok + 20).await;
    assert_eq!(coordinator.status.borrow().plan.counts.sink, 0, "a lost script is nobody's trouble");
    site.redis.kill().unwrap();
    coordinator.until("redis is missed", |status| status.leader.is_empty()).await;
    site.redis.start_again().unwrap();
    let before = coordinator.status.borrow().plan.counts.clone();
    let fence = coordinator.status.borrow().fence;
    let status = coordinator.until("back", |status| status.plan.counts.ok > before.ok + 20).await;
    assert!(status.fence > fence && status.plan.freshness.p99_ms < 5_000.0, "{}", status.to_text());
    assert_eq!(site.books().await, 100, "what was lost is there again");
    coordinator.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_key_they_work_together_and_with_two_they_do_not() {
    const ONE: &str = "the key of one fleet, long enough";
    let site = Site::new(20).await;
    let node =
        RunningNode::start(catchment_fleet::node::NodeConfig { key: key(ONE), ..site.node_config(2) }).await;
    let mut stranger = site.coordinator_config("stranger", &[node.addr]);
    stranger.key = key("the key of another fleet, as long");
    stranger.namespace = "another".to_owned();
    let mut stranger = crate::site::RunningCoordinator::start(stranger);
    let status = stranger
        .until("turned away", |status| {
            status
                .plan
                .nodes
                .iter()
                .any(|node| node.last_error.as_deref().is_some_and(|error| error.contains("key")))
        })
        .await;
    assert!(!status.is_well());
    assert_eq!(node.window.counts().batches, 0);
    let mut config = site.coordinator_config("c", &[node.addr]);
    config.key = key(ONE);
    let mut coordinator = crate::site::RunningCoordinator::start(config);
    coordinator.until("fetching", |status| status.plan.counts.ok > 10).await;
    stranger.stop().await;
    coordinator.stop().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_is_in_redis_and_for_prometheus() {
    let site = Site::new(20).await;
    let node = site.node(2).await;
    let mut config = site.coordinator_config("c", &[node.addr]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    config.metrics = Some(free);
    let mut coordinator = crate::site::RunningCoordinator::start(config);
    coordinator.until("fetching", |status| status.plan.counts.ok > 30).await;
    let registry = catchment_fleet::registry::Registry::new(site.link.clone(), "fleet");
    let status = registry.status().await.unwrap().unwrap();
    assert_eq!((status.leader.as_str(), status.plan.tokens, status.plan.nodes.len()), ("c", 40, 1));
    let text = status.to_text();
    assert!(text.contains("coordinator  c leads") && text.contains("fetch-002"), "{text}");
    let metrics = http_get(free, "/metrics").await;
    assert!(metrics.contains("catchment_fleet_freshness_seconds{quantile=\"0.99\"}"), "{metrics}");
    assert!(metrics.contains("catchment_fleet_node_up{node=\"fetch-002\"} 1"), "{metrics}");
    coordinator.stop().await;
    assert_eq!(registry.status().await.unwrap(), None, "whoever goes gives the lease back");
    node.stop().await;
    assert!(registry.nodes().await.unwrap().is_empty(), "and so with a node's name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_node_is_said_and_probed_again() {
    let site = Site::new(5).await;
    let gone = site.node(4).await;
    let addr = gone.addr;
    gone.stop().await;
    let node = site.node(2).await;
    let mut coordinator = site.coordinator("c", &[addr, node.addr]);
    let status = coordinator
        .until("one of two", |status| status.plan.counts.ok > 5 && status.plan.nodes.len() == 2)
        .await;
    let missing = status.plan.nodes.iter().find(|node| !node.is_up).unwrap();
    assert_eq!(missing.addr, addr.to_string());
    assert!(missing.last_error.as_ref().unwrap().contains("no connection"), "{missing:?}");
    let again = catchment_fleet::node::NodeConfig { bind: addr, ..site.node_config(4) };
    let gone = RunningNode::start(again).await;
    coordinator.until("both", |status| status.plan.nodes.iter().filter(|node| node.is_up).count() == 2).await;
    coordinator.stop().await;
    node.stop().await;
    gone.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_the_venue_cannot_stand_is_found_and_the_others_stay_fresh() {
    let poison = "666";
    let site = Site::with(50, Some(poison.to_owned())).await;
    let node = site.node(2).await;
    let mut config = site.coordinator_config("c", &[node.addr]);
    let mut tokens = site.tokens.clone();
    tokens.insert(17, poison.to_owned());
    config.tokens = catchment_fleet::tokens::TokenSources::new(tokens, None, None);
    let mut coordinator = crate::site::RunningCoordinator::start(config);
    let status = coordinator
        .until("found", |status| status.plan.resting == 1 && status.plan.freshness.never == 0)
        .await;
    assert!(
        status.plan.errors.iter().any(|error| error.message.starts_with("token 666 rests")),
        "{}",
        status.to_text()
    );
    assert_eq!(site.books().await, 100);
    let refused = status.plan.counts.bad_requests;
    assert!(refused <= 12, "a batch of six is soon halved to nothing, not in {refused}");
    coordinator.until("going on", |now| now.plan.counts.ok > status.plan.counts.ok + 30).await;
    assert_eq!(
        coordinator.status.borrow().plan.counts.bad_requests,
        refused,
        "while it rests nobody asks for it"
    );
    coordinator.stop().await;
    node.stop().await;
}
