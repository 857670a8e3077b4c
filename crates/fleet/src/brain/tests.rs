//! A fleet in simulated time: nodes that answer, fail, vanish and refuse.

use std::collections::{BTreeMap, VecDeque};

use super::*;

const RTT: Duration = Duration::from_millis(80);

fn at(ms: u64) -> Monotonic {
    Monotonic(Duration::from_millis(ms))
}

fn facts() -> NodeFacts {
    NodeFacts { addr: "x:1".into(), capacity_rps: 20, pace_mrps: 20_000, books_max: 500 }
}

/// Answers orders after a while, as it is told to.
struct World {
    brain: Brain,
    now: Monotonic,
    flying: VecDeque<(Monotonic, Order)>,
    answer: Box<dyn FnMut(&Order) -> Summary>,
    sent: BTreeMap<Arc<str>, Vec<Monotonic>>,
    asked: Vec<Order>,
    told: Vec<Told>,
}

impl World {
    fn new(tokens: usize, nodes: &[&str]) -> Self {
        let now = at(1_000);
        let mut brain = Brain::new(BrainSettings::default(), now);
        brain.set_tokens((0..tokens).map(|n| Arc::from(format!("t{n}"))).collect(), now);
        nodes.iter().for_each(|name| brain.node_up((*name).into(), facts(), now));
        Self {
            brain,
            now,
            flying: VecDeque::new(),
            answer: Box::new(ok),
            sent: BTreeMap::new(),
            asked: Vec::new(),
            told: Vec::new(),
        }
    }

    fn answering(mut self, answer: impl FnMut(&Order) -> Summary + 'static) -> Self {
        self.answer = Box::new(answer);
        self
    }

    fn run(&mut self, ms: u64) {
        let end = Monotonic(self.now.0 + Duration::from_millis(ms));
        while self.now < end {
            while let Some(slot) = self.brain.slot(self.now) {
                if let Slot::Order(order) = slot {
                    self.sent.entry(Arc::clone(&order.node)).or_default().push(self.now);
                    self.flying.push_back((Monotonic(self.now.0 + RTT), order.clone()));
                    self.asked.push(order);
                }
            }
            while self.flying.front().is_some_and(|(due, _)| *due <= self.now) {
                let (_, order) = self.flying.pop_front().unwrap();
                let summary = Summary { id: order.id, asked: order.tokens.len(), ..(self.answer)(&order) };
                self.told.push(self.brain.answered(&order.node, &summary, self.now));
            }
            self.now = Monotonic(self.now.0 + Duration::from_millis(1));
        }
    }

    fn p99_ms(&self) -> u128 {
        self.brain.freshness(self.now).p99.as_millis()
    }
}

fn ok(order: &Order) -> Summary {
    Summary { books: order.tokens.len(), status: Some(200), latency_ms: 60, ..Summary::default() }
}

fn failing(outcome: Outcome) -> Summary {
    Summary { outcome, message: Some("no".into()), ..Summary::default() }
}

#[test]
fn forty_thousand_tokens_are_fresh_within_a_round() {
    let mut world = World::new(40_000, &["a", "b", "c", "d"]);
    world.run(20_000);
    let status = world.brain.status(world.now);
    assert_eq!((status.batch, status.slots.length_us, status.slots.missed), (101, 12_500, 0));
    assert!((4_900.0..5_050.0).contains(&status.ideal_ms), "{}", status.ideal_ms);
    let p50 = status.freshness.p50_ms;
    assert!((2_300.0..2_800.0).contains(&p50), "{p50}");
    assert!(status.freshness.p99_ms <= 1.05 * status.ideal_ms, "{}", status.freshness.p99_ms);
    for (node, sent) in &world.sent {
        assert!((399..=401).contains(&sent.len()), "{node} was told {}", sent.len());
        assert!(sent.windows(21).all(|window| window[20].since(window[0]) >= Duration::from_millis(999)));
    }
}

#[test]
fn a_dead_nodes_tokens_are_taken_over_at_once() {
    let mut world = World::new(4_000, &["a", "b", "c", "d"]);
    world.run(8_000);
    let normal = world.p99_ms();
    let gone: Vec<Arc<str>> =
        world.asked.iter().rev().find(|order| &*order.node == "c").unwrap().tokens.clone();
    world.flying.retain(|(_, order)| &*order.node != "c");
    world.brain.node_down("c", "killed", world.now);
    let before = world.asked.len();
    world.run(2_000);
    let since = &world.asked[before..];
    assert!(since.iter().all(|order| &*order.node != "c"));
    let first: Vec<&Arc<str>> = since.iter().take(12).flat_map(|order| &order.tokens).collect();
    assert!(gone.iter().all(|token| first.contains(&token)), "what it had under way comes first");
    world.run(6_000);
    // Batches have grown: fewer nodes, the same goal.
    assert!(world.p99_ms() <= normal * 11 / 10, "{} after {normal}", world.p99_ms());
    assert_eq!(world.brain.status(world.now).errors[0].kind, "down");
}

#[test]
fn a_poisonous_token_is_found_and_rests_and_the_rest_goes_on() {
    let mut world = World::new(2_000, &["a", "b"]).answering(|order| {
        if order.tokens.iter().any(|token| &**token == "t777") {
            Summary { status: Some(400), ..failing(Outcome::BadRequest) }
        } else {
            ok(order)
        }
    });
    world.run(12_000);
    let status = world.brain.status(world.now);
    assert_eq!(status.resting, 1);
    assert!(
        status.errors.iter().any(|error| error.message.starts_with("token t777 rests")),
        "{:?}",
        status.errors
    );
    assert!(status.freshness.p99_ms < 5_500.0, "{:?}", status.freshness);
    assert_eq!(status.freshness.never, 1);
    let bad = status.counts.bad_requests;
    assert!(bad <= 9, "{bad} refusals");
    world.run(30_000);
    assert_eq!(world.brain.counts().bad_requests, bad, "while it rests nobody asks for it");
    world.run(60_000);
    assert!(world.brain.counts().bad_requests > bad, "after a minute it has another chance");
}

#[test]
fn a_token_that_spoils_batches_and_is_unknown_alone_rests_too() {
    let mut world = World::new(640, &["a"]).answering(|order| {
        match (order.tokens.iter().any(|token| &**token == "t7"), order.tokens.len()) {
            (true, 1) => Summary { missing: vec![0], ..ok(order) },
            (true, _) => Summary { status: Some(400), ..failing(Outcome::BadRequest) },
            _ => ok(order),
        }
    });
    world.run(5_000);
    assert_eq!(world.brain.status(world.now).resting, 1);
}

#[test]
fn a_batch_that_is_too_large_makes_batches_smaller() {
    let mut world = World::new(4_000, &["a"]).answering(|order| match order.tokens.len() {
        ..=30 => ok(order),
        _ => Summary {
            status: Some(400),
            outcome: Outcome::BadRequest,
            message: Some("Payload exceeds the limit".into()),
            ..Summary::default()
        },
    });
    world.run(12_000);
    let status = world.brain.status(world.now);
    assert_eq!((status.batch, status.resting, status.freshness.never), (20, 0, 0));
}

#[test]
fn trouble_is_tried_in_the_next_slot_and_makes_batches_smaller() {
    let mut fail = 10;
    let mut world = World::new(1_000, &["a"]).answering(move |order| {
        fail -= i32::from(fail > 0);
        if fail > 0 { failing(Outcome::Trouble) } else { ok(order) }
    });
    world.run(1_000);
    assert!(world.brain.status(world.now).nodes[0].batch_share < 0.5);
    assert_eq!(world.asked[0].tokens, world.asked[2].tokens, "every other slot is for what failed");
    world.run(20_000);
    let status = world.brain.status(world.now);
    assert!(status.nodes[0].batch_share > 0.99 && status.freshness.p99_ms < 5_300.0, "{status:?}");
}

#[test]
fn while_redis_is_away_tokens_keep_their_place() {
    let is_away = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    let mut world = World::new(4_000, &["a"]).answering(move |order| {
        let is_away = away.load(std::sync::atomic::Ordering::Relaxed);
        if is_away { failing(Outcome::Sink) } else { ok(order) }
    });
    world.run(10_000);
    let normal = world.p99_ms();
    is_away.store(true, std::sync::atomic::Ordering::Relaxed);
    world.run(2_000);
    is_away.store(false, std::sync::atomic::Ordering::Relaxed);
    world.run(5_600);
    assert!(world.p99_ms() <= normal + 300, "{} after {normal}", world.p99_ms());
}

#[test]
fn after_a_while_without_a_leader_a_round_is_soon_through() {
    let mut world = World::new(10_000, &["a", "b"]);
    world.run(10_000);
    let normal = world.p99_ms();
    world.brain.forget_orders();
    world.flying.clear();
    world.now = Monotonic(world.now.0 + Duration::from_secs(3));
    world.brain.begin(world.now);
    world.run(3_500);
    assert!(world.p99_ms() < normal + 200, "{} after {normal}", world.p99_ms());
    world.run(10_000);
    let status = world.brain.status(world.now);
    // One of the two has a few tokens more.
    let last = world.asked.last().unwrap().tokens.len();
    assert!(last == status.batch || last + 1 == status.batch, "and then as before: {last}");
}

#[test]
fn a_held_node_rests_and_its_tokens_move() {
    let mut world = World::new(1_000, &["a", "b"]);
    world.run(1_000);
    world.answer = Box::new(|order| match &*order.node {
        "a" => Summary { hold_ms: 5_000, ..failing(Outcome::Held) },
        _ => ok(order),
    });
    world.run(200);
    let status = world.brain.status(world.now);
    assert_eq!((status.nodes[0].tokens, status.nodes[1].tokens), (0, 1_000));
    assert!(status.nodes[0].hold_ms > 4_000);
    world.answer = Box::new(ok);
    let before = world.sent["a"].len();
    world.run(4_000);
    assert_eq!(world.sent["a"].len(), before, "nothing is asked of it");
    world.run(2_000);
    assert!(world.sent["a"].len() > before && world.p99_ms() < 5_500);
}

#[test]
fn a_stale_answer_is_told() {
    let mut world = World::new(10, &["a"]).answering(|_| Summary { fence: 9, ..failing(Outcome::Stale) });
    world.run(200);
    assert!(world.told.contains(&Told::Stale(9)));
}

#[test]
fn a_node_that_does_not_answer_is_not_buried_in_orders() {
    let mut world = World::new(1_000, &["a"]);
    while world.asked.len() < 16 {
        world.run(10);
        world.flying.clear();
    }
    world.run(3_000);
    assert_eq!(world.asked.len(), 16);
    assert!(world.brain.status(world.now).slots.busy > 50);
}

#[test]
fn after_a_pause_there_is_no_burst() {
    let mut world = World::new(1_000, &["a", "b"]);
    world.run(1_000);
    let before = world.asked.len();
    world.now = Monotonic(world.now.0 + Duration::from_secs(60));
    world.flying.clear();
    world.run(1);
    assert!(world.asked.len() - before <= 3, "{} at once", world.asked.len() - before);
    assert!(world.brain.slot_counts().missed > 2_000);
}

#[test]
fn tokens_that_come_and_go_keep_what_is_known_of_the_others() {
    let mut world = World::new(100, &["a"]);
    world.run(6_000);
    let names = (50..150).map(|n| Arc::from(format!("t{n}"))).collect();
    world.brain.set_tokens(names, world.now);
    let freshness = world.brain.freshness(world.now);
    assert_eq!((freshness.tokens, freshness.never), (100, 50));
    let stalest = world.brain.status(world.now).stalest;
    assert_eq!(stalest.len(), 5);
    assert!((stalest[0].age_ms - freshness.max.as_secs_f64() * 1e3).abs() < 0.01, "{stalest:?}");
    assert!(stalest.windows(2).all(|pair| pair[0].age_ms >= pair[1].age_ms), "{stalest:?}");
    world.run(6_000);
    assert_eq!(world.brain.freshness(world.now).never, 0);
    world.brain.set_tokens(Vec::new(), world.now);
    world.run(1_000);
    assert_eq!(world.brain.status(world.now).tokens, 0);
}

#[test]
fn unequal_nodes_have_unequal_turns_evenly_spread() {
    let mut world = World::new(1_000, &["a"]);
    let small = NodeFacts { capacity_rps: 5, pace_mrps: 5_000, ..facts() };
    world.brain.node_up("b".into(), small, world.now);
    world.run(10_000);
    let count = |node: &str| world.sent[node].len();
    assert!(
        (198..=202).contains(&count("a")) && (48..=52).contains(&count("b")),
        "{} {}",
        count("a"),
        count("b")
    );
    assert!(world.sent["b"].windows(2).all(|pair| pair[1].since(pair[0]) > Duration::from_millis(150)));
}
