//! On a cluster a script may touch the keys of one slot only.

use std::sync::Arc;

use catchment_model::SystemClock;
use catchment_sinks::redis::server::RedisCluster;
use catchment_sinks::redis::{AuditStream, LatestSettings, LatestStore, RedisAddress, RedisLink, Verdict};

use crate::book;

#[tokio::test]
async fn a_cluster_keeps_the_latest_as_one_server_does() {
    let cluster = RedisCluster::start().unwrap();
    let address = RedisAddress { urls: cluster.urls(), ..RedisAddress::new("") };
    let link = Arc::new(RedisLink::new(&address).unwrap());
    let stream = Some(AuditStream { key: "audit".to_owned(), len_max: 100_000, with_books: false });
    let settings = LatestSettings { stream, memory_keys_max: 0, ..LatestSettings::default() };
    let store = LatestStore::new(Arc::clone(&link), settings, Arc::new(SystemClock::new()));
    let tokens: Vec<String> = (0..500).map(|n| format!("t{n}")).collect();
    let round = async |hash: &str, time: &str| {
        let books: Vec<_> = tokens.iter().map(|token| book(token, hash, time)).collect();
        store.put(&books).await.unwrap()
    };
    assert_eq!(round("b", "2").await.count(Verdict::Written), 500);
    assert_eq!(round("a", "1").await.count(Verdict::Older), 500);
    assert_eq!(round("b", "2").await.count(Verdict::Same), 500);
    assert_eq!(round("c", "3").await.count(Verdict::Written), 500);
    for token in [&tokens[0], &tokens[250], &tokens[499]] {
        let hash: String = link.ask(redis::cmd("HGET").arg(format!("ob:{token}")).arg("hash")).await.unwrap();
        assert_eq!(hash, "c");
    }
    let len: u64 = link.ask(redis::cmd("XLEN").arg("audit")).await.unwrap();
    assert_eq!(len, 1_000);
}

#[tokio::test]
async fn a_node_that_dies_is_replaced_and_nothing_becomes_older() {
    let mut cluster = RedisCluster::with_replicas().unwrap();
    let address = RedisAddress { urls: cluster.urls(), ..RedisAddress::new("") };
    let link = Arc::new(RedisLink::new(&address).unwrap());
    let settings = LatestSettings { memory_keys_max: 0, ..LatestSettings::default() };
    let store = LatestStore::new(Arc::clone(&link), settings, Arc::new(SystemClock::new()));
    let tokens: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    let books = |hash, time| tokens.iter().map(move |token| book(token, hash, time)).collect::<Vec<_>>();
    assert_eq!(store.put(&books("b", "2")).await.unwrap().count(Verdict::Written), 200);
    // The copy has it before its leader dies; a cluster does not promise that by itself.
    cluster.until_copied().unwrap();
    cluster.fail_over().unwrap();
    // The dead one's slots are answered for again as soon as the others have heard of it; whoever asks tries again.
    let put = loop {
        match store.put(&books("a", "1")).await {
            Ok(put) => break put,
            Err(error) => println!("not yet: {error}"),
        }
    };
    assert_eq!(put.count(Verdict::Older), 200, "what was there is there");
    assert_eq!(store.put(&books("c", "3")).await.unwrap().count(Verdict::Written), 200);
}
