use std::collections::BTreeMap;

use super::*;

fn pairs(config: &PairsConfig) -> Vec<Pair> {
    Pair::all(config, 7, 1_000_000)
}

#[test]
fn a_book_stays_sound_and_a_reader_of_its_changes_has_the_same() {
    for levels in [10, 60, 400] {
        let config = PairsConfig { levels, symbols: 6, ..PairsConfig::default() };
        for mut pair in pairs(&config) {
            let mut copy: BTreeMap<(bool, i64), u64> = BTreeMap::new();
            for bid in [true, false] {
                copy.extend(pair.side(bid).map(|level| ((bid, level.price), level.size)));
            }
            for _ in 0..5_000 {
                pair.step(BOOK_BEAT);
                for change in &pair.changes {
                    match change.size {
                        0 => drop(copy.remove(&(change.bid, change.price)).unwrap()),
                        size => drop(copy.insert((change.bid, change.price), size)),
                    }
                }
            }
            let sides = [true, false];
            let all: BTreeMap<(bool, i64), u64> = sides
                .iter()
                .flat_map(|bid| pair.side(*bid).map(|level| ((*bid, level.price), level.size)))
                .collect();
            assert_eq!(copy, all);
        }
    }
}

#[test]
fn whoever_sees_only_some_levels_has_those_right_with_and_without_truncating() {
    for (depth, tells_fallen) in [(10, false), (25, false), (10, true), (50, true), (1, true)] {
        let config = PairsConfig { symbols: 4, ..PairsConfig::default() };
        for mut pair in pairs(&config) {
            let top = |pair: &Pair, bid| pair.side(bid).take(depth).copied().collect::<Vec<Level>>();
            let mut copy = [true, false].map(|bid| top(&pair, bid));
            let mut view = Vec::new();
            for step in 0..3_000 {
                pair.step(BOOK_BEAT);
                pair.view(depth, tells_fallen, &mut view);
                for change in &view {
                    let side = &mut copy[usize::from(!change.bid)];
                    side.retain(|level| level.price != change.price);
                    if change.size > 0 {
                        side.push(Level { price: change.price, size: change.size });
                    }
                }
                for (side, bid) in copy.iter_mut().zip([true, false]) {
                    side.sort_by_key(|level| if bid { -level.price } else { level.price });
                    if !tells_fallen {
                        side.truncate(depth);
                    }
                    assert_eq!(*side, top(&pair, bid), "depth {depth}, step {step}");
                }
            }
        }
    }
}

#[test]
fn events_keep_their_times_and_numbers_whether_anybody_looks_or_not() {
    let config = PairsConfig { book_per_s: 3.0, trades_per_s: 0.7, symbols: 1, ..PairsConfig::default() };
    let mut watched = pairs(&config).remove(0);
    let mut times = Vec::new();
    while watched.due(TRADE_BEAT).unwrap() <= 61_000_000 {
        times.push(watched.step(TRADE_BEAT));
    }
    assert!(times.is_sorted() && (38..=46).contains(&times.len()), "{times:?}");
    let mut asleep = pairs(&config).remove(0);
    asleep.catch_up(61_000_000);
    assert_eq!(asleep.last_trade().id, watched.last_trade().id);
    assert_eq!(asleep.last_trade().at_us, watched.last_trade().at_us);
}

#[test]
fn quiet_pairs_never_stir() {
    let config = PairsConfig { symbols: 1, quiet: 2, ..PairsConfig::default() };
    let all = pairs(&config);
    assert_eq!(all[1].unified, "QUIET0/USDT");
    assert!((0..3).all(|kind| all[2].due(kind).is_none()));
    assert!((0..3).all(|kind| all[0].due(kind).is_some()));
}
