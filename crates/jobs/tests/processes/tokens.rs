//! One budget for four processes.

use std::time::Duration;

use catchment_model::SystemClock;
use catchment_sim::{Sim, SimConfig};

use super::*;

/// In no interval of the period's length more than the limit leaves, over all processes. In the long form, on a machine that
/// does nothing else, the venue's own log says so, too, and nearly all of the limit is used.
async fn four_processes_share_one_budget(
    place: &Place,
    limit: u32,
    period: Duration,
    requests_each: usize,
    used_min: f64,
) {
    // Made before the children come, so that all begin at once.
    drop(open(&place.name).await);
    let config = SimConfig::default().with("request_log", "1000000").unwrap();
    let sim =
        Sim::start(config.with("binance.limits", "[]").unwrap(), Arc::new(SystemClock::new())).await.unwrap();
    let more = [
        ("CHILD_LIMIT", limit.to_string()),
        ("CHILD_PERIOD_MS", period.as_millis().to_string()),
        ("CHILD_REQUESTS", requests_each.to_string()),
        ("CHILD_VENUE", sim.addr().to_string()),
    ];
    let children: Vec<Running> =
        (0..4).map(|child| start("tokens", &place.name, &place.log(child), &more)).collect();
    tokio::task::spawn_blocking(move || children.into_iter().for_each(Running::wait)).await.unwrap();
    let micros = |line: &str| Duration::from_micros(line.split(' ').next().unwrap().parse().unwrap());
    let mut left = Vec::new();
    for child in 0..4 {
        let text = std::fs::read_to_string(place.log(child)).unwrap();
        assert_eq!(text.lines().count(), requests_each, "child {child}");
        left.extend(text.lines().map(micros));
    }
    left.sort_unstable();
    let arrived: Vec<Duration> = sim.requests().lines().map(micros).collect();
    assert_eq!(arrived.len(), left.len(), "the venue has seen them all");
    let (worst_left, worst) = (most_within(&left, period), most_within(&arrived, period));
    // All that the limit allows may leave at the beginning of a period: what counts is how long whole ones take.
    let whole = (arrived.len() - 1) / limit as usize;
    let took = arrived[whole * limit as usize] - arrived[0];
    let used = whole as f64 * period.as_secs_f64() / took.as_secs_f64();
    println!(
        "{} tokens; at most {worst_left} of {limit} left within {period:?}, and {worst} arrived; {:.1} % used",
        arrived.len(),
        100.0 * used
    );
    assert!(worst_left <= limit as usize, "{worst_left} left within {period:?}, and {limit} may");
    // The short form shares its machine with other tests, and whoever is held up on the way arrives beside the next.
    if is_long() {
        assert!(worst <= limit as usize, "{worst} arrived within {period:?}, and {limit} may");
        assert!(used >= used_min, "{:.1} % of the limit was used", 100.0 * used);
    }
}

fn most_within(times: &[Duration], period: Duration) -> usize {
    let (mut first, mut most) = (0, 0);
    for last in 0..times.len() {
        while times[last] - times[first] >= period {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

async fn short_or_long(place: &Place) {
    match is_long() {
        true => four_processes_share_one_budget(place, 5_000, Duration::from_secs(5), 14_000, 0.95).await,
        false => four_processes_share_one_budget(place, 200, Duration::from_secs(1), 201, 0.0).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_file_never_exceed_the_limit() {
    short_or_long(&Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_file_and_a_short_period() {
    if is_long() {
        four_processes_share_one_budget(&Place::sqlite(), 1_000, Duration::from_secs(1), 12_500, 0.90).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_one_mongod_never_exceed_the_limit() {
    short_or_long(&Place::mongo()).await;
}
