//! Which node fetches which token: evenly, and with as little moving as can be when a node comes or goes.
//!
//! Rendezvous hashing: every token has a favourite order of the nodes, and takes the first that has room. A node has room
//! for its share by capacity and a hundredth more, so that luck cannot load one of them; the tokens it has no room for go
//! to their second choice. Without that bound a node that leaves moves exactly its own tokens; with it, a little more.
//! Pure, and the same on every machine: a coordinator that takes over assigns as the one before.

use xxhash_rust::xxh3::xxh3_64;

/// A node that can be given tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name: what the assignment rests on.
    pub name: &'a str,
    /// How much it can take, in any unit that all share.
    pub capacity: u64,
}

/// What the assignment needs of a token.
pub fn token_hash(token: &str) -> u64 {
    xxh3_64(token.as_bytes())
}

/// For each token the place of its node; empty if there are no nodes. `tokens` are hashes of [`token_hash`].
pub fn assign(tokens: &[u64], nodes: &[Candidate<'_>]) -> Vec<u32> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let total: u64 = nodes.iter().map(|node| node.capacity).sum::<u64>().max(1);
    let is_even = nodes.iter().all(|node| node.capacity == nodes[0].capacity);
    let seeds: Vec<u64> = nodes.iter().map(|node| xxh3_64(node.name.as_bytes())).collect();
    let weights: Vec<f64> = nodes.iter().map(|node| node.capacity as f64).collect();
    let mut room: Vec<usize> = nodes.iter().map(|node| room_of(tokens.len(), node.capacity, total)).collect();
    // Whoever comes late may find its favourite full, so the order must be the same for everybody: by hash.
    let mut order: Vec<u32> = (0..tokens.len() as u32).collect();
    order.sort_unstable_by_key(|at| tokens[*at as usize]);
    let mut assigned = vec![0; tokens.len()];
    for at in order {
        let token = tokens[at as usize];
        let score = |node: usize| {
            let mixed = mix(token ^ seeds[node]);
            if is_even { mixed as f64 } else { -weights[node] / unit(mixed).ln() }
        };
        let with_room = (0..nodes.len()).filter(|node| room[*node] > 0);
        let best = with_room.max_by(|a, b| score(*a).total_cmp(&score(*b)).then(a.cmp(b)));
        let best = best.expect("there is room for more than all tokens");
        room[best] -= 1;
        assigned[at as usize] = best as u32;
    }
    assigned
}

/// A node's share, a hundredth more, and at least so much that all find a place.
fn room_of(tokens: usize, capacity: u64, total: u64) -> usize {
    let share = tokens as u128 * u128::from(capacity) * 101;
    share.div_ceil(u128::from(total) * 100) as usize + usize::from(capacity == 0)
}

/// Spreads the bits: neighbours become strangers.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Between 0 and 1, neither of them.
fn unit(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: usize) -> Vec<u64> {
        (0..count).map(|n| token_hash(&format!("token-{n}"))).collect()
    }

    fn nodes(names: &[&'static str]) -> Vec<Candidate<'static>> {
        names.iter().map(|name| Candidate { name, capacity: 20 }).collect()
    }

    fn loads(assigned: &[u32], nodes: usize) -> Vec<usize> {
        (0..nodes).map(|node| assigned.iter().filter(|at| **at as usize == node).count()).collect()
    }

    #[test]
    fn every_node_has_its_share_and_a_hundredth_more_at_most() {
        for count in [0, 1, 2, 5, 100, 40_000] {
            let names = ["a", "b", "c", "d"];
            let assigned = assign(&tokens(count), &nodes(&names));
            assert_eq!(assigned.len(), count);
            let most = (count as f64 * 1.01 / 4.0).ceil() as usize;
            let loads = loads(&assigned, 4);
            assert!(loads.iter().all(|load| *load <= most), "{count}: {loads:?}");
        }
        assert!(assign(&tokens(5), &[]).is_empty());
    }

    #[test]
    fn capacity_decides_the_share() {
        let nodes = [
            Candidate { name: "small", capacity: 10 },
            Candidate { name: "large", capacity: 30 },
            Candidate { name: "none", capacity: 0 },
        ];
        let loads = loads(&assign(&tokens(40_000), &nodes), 3);
        assert!((9_800..=10_100).contains(&loads[0]) && loads[2] <= 1, "{loads:?}");
    }

    /// How many tokens have another node than before.
    fn moved(before: &[&'static str], after: &[&'static str], count: usize) -> usize {
        let tokens = tokens(count);
        let (old, new) = (assign(&tokens, &nodes(before)), assign(&tokens, &nodes(after)));
        old.iter().zip(&new).filter(|(old, new)| before[**old as usize] != after[**new as usize]).count()
    }

    #[test]
    fn a_node_that_comes_or_goes_moves_about_its_share() {
        let check = |before: &[&'static str], after: &[&'static str], share: f64| {
            let moved = moved(before, after, 40_000) as f64 / 40_000.0;
            assert!((share * 0.95..share * 1.15).contains(&moved), "{moved} moved, expected about {share}");
        };
        check(&["a", "b", "c"], &["a", "b", "c", "d"], 0.25);
        check(&["a", "b", "c", "d"], &["a", "b", "d"], 0.25);
        check(&["a", "b", "c", "d", "e", "f", "g"], &["a", "b", "c", "d", "e", "f", "g", "h"], 0.125);
        assert_eq!(moved(&["a", "b"], &["a", "b"], 1_000), 0);
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter() {
        assert_eq!(moved(&["a", "b", "c", "d"], &["d", "b", "a", "c"], 10_000), 0);
    }
}
