//! Which subscriptions share a connection. Pure: the venue's caps in, shards out.
//!
//! What belongs to one instrument stays together where it can, so that its trades and its book end with the same
//! connection. Shards are as few as the caps allow and filled alike: a venue that cuts one connection then costs as
//! little as it can.

/// What one connection may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    /// Subscriptions.
    pub(crate) subscriptions: usize,
    /// Bytes of all subscriptions' names together, where the venue counts them.
    pub(crate) bytes: Option<usize>,
}

/// What the planner needs to know of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which instrument it is of.
    pub(crate) group: usize,
    /// How long its name is in a request.
    pub(crate) bytes: usize,
}

#[derive(Debug, Default, Clone)]
struct Shard {
    members: Vec<usize>,
    bytes: usize,
}

impl Shard {
    fn has_room(&self, count: usize, bytes: usize, caps: &Caps) -> bool {
        let fits = caps.bytes.is_none_or(|max| self.bytes + bytes <= max);
        self.members.len() + count <= caps.subscriptions && (fits || self.members.is_empty())
    }
}

/// The places of `pieces`, dealt into shards. Every piece is in exactly one; no shard is empty or above the caps (but a
/// piece that is longer than a whole connection's bytes is alone on one).
pub(crate) fn shards(pieces: &[Piece], caps: Caps) -> Vec<Vec<usize>> {
    let caps = Caps { subscriptions: caps.subscriptions.max(1), ..caps };
    let groups = groups(pieces, &caps);
    // As few as the sums allow; where the pieces do not fit so closely, one more, until they do.
    let fewest = fewest(pieces, &caps).min(pieces.len());
    (fewest..=pieces.len()).find_map(|count| deal(&groups, pieces, count, &caps)).unwrap_or_default()
}

fn deal(groups: &[Vec<usize>], pieces: &[Piece], count: usize, caps: &Caps) -> Option<Vec<Vec<usize>>> {
    let mut shards = vec![Shard::default(); count];
    for group in groups {
        let bytes = group.iter().map(|place| pieces[*place].bytes).sum();
        let roomy = shards.iter_mut().filter(|shard| shard.has_room(group.len(), bytes, caps));
        // The emptiest; of equals the first, so that a plan is always the same.
        let shard = roomy.min_by_key(|shard| shard.members.len())?;
        shard.members.extend(group);
        shard.bytes += bytes;
    }
    Some(shards.into_iter().map(|shard| shard.members).collect())
}

fn fewest(pieces: &[Piece], caps: &Caps) -> usize {
    let by_count = pieces.len().div_ceil(caps.subscriptions);
    let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
    let by_bytes = caps.bytes.map_or(0, |max| bytes.div_ceil(max.max(1)));
    by_count.max(by_bytes)
}

/// The instruments' pieces, in the order in which the instruments first come; one that no connection could carry whole
/// is cut.
fn groups(pieces: &[Piece], caps: &Caps) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    let mut first_of = std::collections::HashMap::new();
    for (place, piece) in pieces.iter().enumerate() {
        first_of.entry(piece.group).or_insert(place);
    }
    order.sort_by_key(|place| (first_of[&pieces[*place].group], *place));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for place in order {
        let piece = pieces[place];
        let joins = groups.last().is_some_and(|group: &Vec<usize>| {
            pieces[group[0]].group == piece.group
                && group.len() < caps.subscriptions
                && caps.bytes.is_none_or(|max| bytes + piece.bytes <= max)
        });
        if joins {
            groups.last_mut().expect("there is one to join").push(place);
            bytes += piece.bytes;
        } else {
            groups.push(vec![place]);
            bytes = piece.bytes;
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(instruments: usize, channels: usize, bytes: usize) -> Vec<Piece> {
        let one = |group| (0..channels).map(move |_| Piece { group, bytes });
        (0..instruments).flat_map(one).collect()
    }

    fn check(pieces: &[Piece], caps: Caps, sizes: &[usize]) {
        let plan = shards(pieces, caps);
        assert_eq!(plan.iter().map(Vec::len).collect::<Vec<_>>(), sizes, "{caps:?}");
        let mut all: Vec<usize> = plan.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..pieces.len()).collect::<Vec<_>>(), "everyone once");
    }

    #[test]
    fn shards_are_few_full_and_alike() {
        let caps = |subscriptions| Caps { subscriptions, bytes: None };
        check(&pieces(4, 1, 10), caps(1024), &[4]);
        check(&pieces(10, 1, 10), caps(4), &[4, 3, 3]);
        check(&pieces(500, 3, 10), caps(1024), &[750, 750]);
        check(&pieces(0, 1, 1), caps(10), &[]);
        // The cap is not one of whole instruments: what does not fit opens another.
        check(&pieces(3, 3, 10), caps(4), &[3, 3, 3]);
        // More channels than a connection carries.
        check(&pieces(1, 5, 10), caps(2), &[2, 2, 1]);
    }

    #[test]
    fn bytes_are_a_cap_too() {
        let caps = Caps { subscriptions: 1000, bytes: Some(100) };
        check(&pieces(10, 1, 30), caps, &[3, 3, 2, 2]);
        check(&pieces(2, 1, 500), caps, &[1, 1]);
    }

    #[test]
    fn an_instrument_stays_together() {
        let pieces = pieces(7, 3, 5);
        for shard in shards(&pieces, Caps { subscriptions: 9, bytes: None }) {
            let mut groups: Vec<usize> = shard.iter().map(|place| pieces[*place].group).collect();
            groups.dedup();
            assert_eq!(groups.len() * 3, shard.len());
        }
    }

    #[test]
    fn plans_hold_whatever_comes() {
        // Sizes from a small generator: every cap holds, everyone is placed once, twice the same plan.
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let count = next(60) as usize;
            let made: Vec<Piece> = (0..count)
                .map(|_| Piece { group: next(9) as usize, bytes: next(40) as usize + 1 })
                .collect();
            let caps = Caps { subscriptions: next(12) as usize + 1, bytes: Some(next(200) as usize + 40) };
            let plan = shards(&made, caps);
            assert_eq!(plan, shards(&made, caps));
            let mut all: Vec<usize> = plan.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
            for shard in plan {
                assert!(!shard.is_empty() && shard.len() <= caps.subscriptions);
                let bytes: usize = shard.iter().map(|place| made[*place].bytes).sum();
                assert!(bytes <= caps.bytes.unwrap());
            }
        }
    }
}
