//! One budget for four processes.

use std::time::Duration;

use super::*;

/// In no interval of the period's length more than the limit leaves, over all processes, and nearly all of it is used.
async fn four_processes_share_one_budget(
    place: &Place,
    limit: u32,
    period: Duration,
    seconds: u64,
    used_min: f64,
) {
    // Made before the children come, so that all begin at once.
    drop(open(&place.name).await);
    let begins = now() + Duration::from_secs(2);
    let ends = begins + Duration::from_secs(seconds);
    let more = [
        ("CHILD_LIMIT", limit.to_string()),
        ("CHILD_PERIOD_MS", period.as_millis().to_string()),
        ("CHILD_ENDS_AT_MS", ends.as_millis().to_string()),
    ];
    let children: Vec<Running> =
        (0..4).map(|child| start("tokens", &place.name, &place.log(child), &more)).collect();
    tokio::task::spawn_blocking(move || children.into_iter().for_each(Running::wait)).await.unwrap();
    let mut left = Vec::new();
    let mut shares = Vec::new();
    for child in 0..4 {
        let text = std::fs::read_to_string(place.log(child)).unwrap();
        let times: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        shares.push(times.len());
        left.extend(times);
    }
    left.sort_unstable();
    let period_ns = period.as_nanos() as u64;
    let (mut first, mut worst) = (0, 0);
    for last in 0..left.len() {
        while left[last] - left[first] > period_ns {
            first += 1;
        }
        worst = worst.max(last - first + 1);
    }
    // From when all were there.
    let (begins, ends) = (begins.as_nanos() as u64, ends.as_nanos() as u64);
    let steady = left.iter().filter(|at| (begins..ends).contains(*at)).count();
    let allowed = f64::from(limit) * (ends - begins) as f64 / period_ns as f64;
    let used = steady as f64 / allowed;
    println!(
        "{} tokens left, {shares:?} each; at most {worst} of {limit} within {period:?}; {:.1} % used",
        left.len(),
        100.0 * used
    );
    assert!(worst <= limit as usize, "{worst} left within {period:?}, and {limit} may");
    assert!(used >= used_min, "{:.1} % of the limit was used", 100.0 * used);
}

#[tokio::test]
async fn four_processes_on_one_file_never_exceed_the_limit() {
    let place = Place::sqlite();
    // The short form shares its machine with other tests: how much is used is the long form's question.
    match is_long() {
        true => four_processes_share_one_budget(&place, 5_000, Duration::from_secs(5), 55, 0.95).await,
        false => four_processes_share_one_budget(&place, 200, Duration::from_secs(1), 4, 0.1).await,
    }
}

#[tokio::test]
async fn four_processes_on_one_file_and_a_short_period() {
    if is_long() {
        four_processes_share_one_budget(&Place::sqlite(), 1_000, Duration::from_secs(1), 55, 0.90).await;
    }
}

#[tokio::test]
async fn four_processes_on_one_mongod_never_exceed_the_limit() {
    let place = Place::mongo();
    match is_long() {
        true => four_processes_share_one_budget(&place, 5_000, Duration::from_secs(5), 55, 0.95).await,
        false => four_processes_share_one_budget(&place, 200, Duration::from_secs(1), 4, 0.1).await,
    }
}
