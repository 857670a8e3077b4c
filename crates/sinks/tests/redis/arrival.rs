//! Whatever the order in which snapshots arrive, the same one stays. T26: a million orders in the long form.

use catchment_sinks::redis::{BookParts, Entry, LatestSettings, Stamp, Verdict};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::Bench;

/// A snapshot as a venue might send it; its hash covers its time.
#[derive(Debug, Clone)]
struct Snapshot {
    hash: String,
    timestamp: String,
    updated_at: i64,
}

impl Snapshot {
    fn stamp(&self) -> Stamp<'_> {
        Stamp { hash: &self.hash, timestamp: &self.timestamp, updated_at: self.updated_at }
    }
}

/// Times of 13 and 16 digits, with zeros before them, equal ones, and texts that are no times.
fn timestamp(choice: u32, near: u32) -> String {
    match choice % 8 {
        0 | 1 => format!("{}", 1_790_000_000_000_u64 + u64::from(near)),
        2 => format!("{}", 1_690_000_000_000_000_u64 + u64::from(near)),
        3 => format!("000{}", 1_790_000_000_000_u64 + u64::from(near)),
        4 => near.to_string(),
        5 => "99999999999999999999999999".to_owned(),
        6 => String::new(),
        _ => ["soon", "-5", "1e9", "1790000000000.5"][near as usize % 4].to_owned(),
    }
}

fn snapshots(dice: &mut StdRng, count: usize) -> Vec<Snapshot> {
    let mut all: Vec<Snapshot> = (0..count)
        .map(|_| {
            let timestamp = timestamp(dice.random_range(0..8), dice.random_range(0..4));
            let hash = format!("{:02x}{timestamp}", dice.random_range(0..5_u8));
            Snapshot { hash, timestamp, updated_at: 1_790_000_000_000 + dice.random_range(0..20_000) }
        })
        .collect();
    // The same snapshot may be fetched more than once.
    let again = all[0].clone();
    all.push(Snapshot { updated_at: again.updated_at + 1_000, ..again });
    all
}

/// The one that no other comes after.
fn winner(all: &[Snapshot]) -> &str {
    let mut best = &all[0];
    for other in all {
        if other.stamp().against(&best.stamp()) == Verdict::Written {
            best = other;
        }
    }
    &best.hash
}

proptest! {
    #[test]
    fn the_rule_has_one_winner(seed: u64, count in 1_usize..8) {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut all = snapshots(&mut dice, count);
        let expected = winner(&all).to_owned();
        for _ in 0..10 {
            all.shuffle(&mut dice);
            prop_assert_eq!(winner(&all), &expected);
        }
    }
}

#[tokio::test]
async fn every_order_of_arrival_leaves_the_same_snapshot_on_a_real_server() {
    let orders: usize = if std::env::var_os("CATCHMENT_LONG").is_some() { 1_000_000 } else { 10_000 };
    const SIDE_BY_SIDE: usize = 2_000;
    let bench = Bench::new();
    let store = bench.store(LatestSettings { memory_keys_max: 0, ..LatestSettings::default() });
    let mut dice = StdRng::seed_from_u64(26);
    let names: Vec<String> = (0..SIDE_BY_SIDE).map(|n| n.to_string()).collect();
    let mut arrivals = 0;
    for _ in 0..orders.div_ceil(SIDE_BY_SIDE) {
        let () = bench.ask(&["FLUSHDB"]).await;
        let sets: Vec<Vec<Snapshot>> = names
            .iter()
            .map(|_| {
                let count = dice.random_range(1..6);
                let mut all = snapshots(&mut dice, count);
                all.shuffle(&mut dice);
                all
            })
            .collect();
        for turn in 0.. {
            let entries: Vec<Entry<'_>> = (names.iter().zip(&sets))
                .filter_map(|(name, set)| {
                    let snapshot = set.get(turn)?;
                    let parts = BookParts { market: "", bids: b"[]", asks: b"[]" };
                    Some(Entry::book(name, &snapshot.hash, &snapshot.timestamp, snapshot.updated_at, parts))
                })
                .collect();
            if entries.is_empty() {
                break;
            }
            arrivals += entries.len();
            store.put(&entries).await.unwrap();
        }
        let mut look = redis::pipe();
        for name in &names {
            look.cmd("HGET").arg(format!("ob:{name}")).arg("hash");
        }
        let (mut connection, _) = bench.link.connection().await.unwrap();
        let held: Vec<String> = look.query_async(&mut connection).await.unwrap();
        for (held, set) in held.iter().zip(&sets) {
            assert_eq!(held, winner(set), "{set:?}");
        }
    }
    println!("{orders} orders, {arrivals} arrivals: the same winner always");
}
