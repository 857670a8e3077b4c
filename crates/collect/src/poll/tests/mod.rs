//! The loop under paused time, with a venue made up on the spot.

mod rig;

use std::time::Duration;

use catchment_governor::HoldCause;
use serde_json::Value;

use self::rig::{Behave, Rig, Running, WALL_MS};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn number(record: &Value, path: &str) -> u64 {
    record.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {record}"))
}

#[tokio::test(start_paused = true)]
async fn every_instrument_is_read_once_an_interval_whatever_answers_take() {
    let rig = Rig::new().await;
    rig.list(1_000);
    rig.venue.set_latency(seconds(0.3));
    let running = rig.poll(|settings| settings.books_per_request = 100);
    tokio::time::sleep(seconds(20.5)).await;
    let starts = rig.venue.starts();
    for two in starts.windows(2).take(190) {
        assert!((two[1] - two[0] - 0.1).abs() < 0.003, "one every 100 ms: {two:?}");
    }
    let status = rig.status();
    assert_eq!((status.instruments, status.batches), (1_000, 10));
    assert!((status.books_per_s - 1_000.0).abs() < 20.0, "{}", status.books_per_s);
    let p95 = status.spacing_p95.unwrap().as_secs_f64();
    assert!((0.97..1.03).contains(&p95), "{p95}");
    assert_eq!(status.latency_p95.unwrap().as_millis(), 300);
    rig.stop(running).await;
    let (low, high) = rig.spacing();
    assert!(low > 0.99 && high < 1.01, "spacings from {low} to {high}");
    let counts = rig.status().counts;
    assert_eq!((counts.late, counts.requests_failed, counts.records_lost), (0, 0, 0));
    assert_eq!(counts.books, rig.lines("orderbook").len() as u64);
    assert_eq!(counts.slots, counts.requests_submitted);
}

#[tokio::test(start_paused = true)]
async fn a_book_becomes_an_envelope_with_its_own_times_and_symbol() {
    let rig = Rig::new().await;
    rig.list(1);
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(1.5)).await;
    rig.stop(running).await;
    let line = &rig.lines("orderbook")[0];
    assert_eq!((&line["symbol"], &line["source"]), (&Value::from("S-1000"), &Value::from("poll")));
    assert_eq!(line["server_time_ms"], 1_798_000_000_000_i64);
    assert_eq!(line["payload"]["bids"][0][0], "0.47");
    assert!(line["received_at_ms"].as_i64().unwrap() >= WALL_MS);
}

#[tokio::test(start_paused = true)]
async fn stats_are_told_every_ten_seconds_with_totals_and_what_was_added() {
    let rig = Rig::new().await;
    rig.list(20);
    rig.venue.behave(|_, n| match n {
        3 => Behave::Status(503, "{\"error\":\"maintenance\"}".into()),
        5 => Behave::Status(404, "{\"error\":\"gone fishing\"}".into()),
        7 => Behave::TimedOut,
        _ => Behave::Books,
    });
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(34.0)).await;
    rig.stop(running).await;
    let stats: Vec<Value> = rig.lines("poll_stats").into_iter().map(|line| line["payload"].clone()).collect();
    assert_eq!(stats.len(), 4, "three periods and the last words");
    assert_eq!(stats[0]["period_ms"], 10_000);
    for key in stats[0]["total"].as_object().unwrap().keys() {
        let sum: u64 = stats.iter().map(|record| number(record, &format!("/period/{key}"))).sum();
        assert_eq!(sum, number(&stats[3], &format!("/total/{key}")), "{key}");
    }
    let last = &stats[3];
    assert_eq!(last["active_instruments"], 20);
    for (key, expected) in [("http_4xx", 1), ("http_5xx", 1), ("http_429", 0), ("timeouts", 1)] {
        assert_eq!(number(last, &format!("/total/{key}")), expected, "{key}");
    }
    let total = |key: &str| number(last, &format!("/total/{key}"));
    assert_eq!(total("requests_failed"), 3);
    assert_eq!(total("requests_submitted"), total("requests_successful") + 3);
    assert_eq!(total("polls_submitted"), total("polls_successful") + total("polls_failed"));
    assert_eq!(total("slots"), total("requests_submitted") + total("late") + total("held") + total("rested"));
    assert_eq!(last["workers_max"], 16);
    assert_eq!(last["inflight_max"], 32);
    assert_eq!(last["latency_ms_p50"], 20.0);
    assert_eq!(rig.venue.sent() as u64, total("requests_submitted"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_book_costs_only_its_own_instrument_and_is_told_as_a_gap() {
    let rig = Rig::new().await;
    rig.list(10);
    let clock = rig.clock.clone();
    rig.venue.behave(move |_, _| {
        let is_gone = (5.0..40.0).contains(&clock.seconds());
        if is_gone { Behave::Without("1003".into()) } else { Behave::Books }
    });
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(100.0)).await;
    rig.stop(running).await;
    let asked = |key: &str| rig.venue.asked(key, 5.0, 40.0);
    assert_eq!(asked("1004"), 35);
    assert!((3..=8).contains(&asked("1003")), "{} times in 35 s: it backs off", asked("1003"));
    let errors = rig.lines("poll_errors");
    assert_eq!(errors[0]["symbol"], "S-1003");
    let error = &errors[0]["payload"];
    assert_eq!((&error["market_id"], &error["instrument_key"]), (&"M-1003".into(), &"1003".into()));
    assert_eq!((&error["error_type"], &error["http_status"]), (&"missing".into(), &200.into()));
    assert_eq!((&error["slug"], &error["instruments"]), (&"slug-1003".into(), &1.into()));
    let gaps = rig.gaps();
    assert!(gaps.iter().all(|gap| gap.symbol == "S-1003" && gap.cause == "failure"), "{gaps:?}");
    assert!((gaps[0].from - 4.0).abs() < 0.2, "from the last book: {gaps:?}");
    assert!(gaps[0].told < 5.0 + 5.0 + 5.0, "told soon: {gaps:?}");
    assert!(gaps.windows(2).all(|two| (two[0].to - two[1].from).abs() < 0.001), "they adjoin: {gaps:?}");
    let back = gaps.last().unwrap().to;
    assert!((40.0..72.0).contains(&back), "until it was back: {gaps:?}");
    assert_eq!(rig.status().counts.missing, asked("1003") as u64);
}

/// Twenty instruments, whose planned end is months away; the last is dead from 20 s on.
async fn a_death(is_dead: impl Fn(f64) -> bool + Send + 'static, books_per_request: usize) -> (Rig, Running) {
    let rig = Rig::new().await;
    rig.list_with_expiry(20, WALL_MS + 90 * 86_400_000);
    let clock = rig.clock.clone();
    rig.venue.behave(move |keys, _| match keys {
        _ if !is_dead(clock.seconds()) => Behave::Books,
        [key] if key == "1019" => {
            Behave::Status(404, "{\"error\":\"No orderbook exists for the requested token id\"}".into())
        }
        _ => Behave::Without("1019".into()),
    });
    let running = rig.poll(|settings| settings.books_per_request = books_per_request);
    (rig, running)
}

#[tokio::test(start_paused = true)]
async fn a_dead_instrument_leaves_when_it_is_listed_no_more_and_its_gap_ends() {
    for books_per_request in [20, 1] {
        let (rig, running) = a_death(|at| at >= 20.0, books_per_request).await;
        tokio::time::sleep(seconds(80.0)).await;
        assert_eq!(rig.status().instruments, 20, "it is listed");
        rig.list_with_expiry(19, WALL_MS + 90 * 86_400_000);
        tokio::time::sleep(seconds(600.0)).await;
        assert_eq!(rig.status().instruments, 19);
        assert_eq!(rig.venue.asked("1019", 83.0, 700.0), 0, "it is asked for no more");
        rig.stop(running).await;
        let gaps = rig.gaps();
        assert!(gaps.iter().all(|gap| gap.symbol == "S-1019" && gap.told < 83.0), "{gaps:?}");
        assert!(rig.reads("S-1018") >= 670, "the others are polled on");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_absent_and_disowned_leaves_within_seconds_and_one_that_is_absent_alone_stays() {
    let (rig, running) = a_death(|at| at >= 20.0, 20).await;
    tokio::time::sleep(seconds(10.0)).await;
    rig.list_with_expiry(10, WALL_MS + 90 * 86_400_000);
    tokio::time::sleep(seconds(5.0)).await;
    assert_eq!(rig.status().instruments, 20, "absent, and answered");
    tokio::time::sleep(seconds(25.0)).await;
    assert_eq!(rig.status().instruments, 19, "the nine others that are absent have books");
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_listed_instrument_without_a_book_for_a_while_stays_and_is_read_again() {
    let (rig, running) = a_death(|at| (20.0..200.0).contains(&at), 20).await;
    for _ in 0..30 {
        rig.list_with_expiry(20, WALL_MS + 90 * 86_400_000);
        tokio::time::sleep(seconds(20.0)).await;
        assert_eq!(rig.status().instruments, 20);
    }
    rig.stop(running).await;
    assert!(rig.reads("S-1019") >= 60, "{}", rig.reads("S-1019"));
    let back = rig.gaps().last().unwrap().to;
    assert!((200.0..520.0).contains(&back), "{back}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_nobody_but_the_dead_goes_and_an_empty_answer_for_the_listed_costs_nobody() {
    let rig = Rig::new().await;
    rig.list_with_expiry(20, WALL_MS + 90 * 86_400_000);
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(10.0)).await;
    rig.venue.answer_with_nothing();
    tokio::time::sleep(seconds(120.0)).await;
    assert_eq!(rig.status().instruments, 20, "all are listed");
    rig.list_with_expiry(10, WALL_MS + 90 * 86_400_000);
    tokio::time::sleep(seconds(120.0)).await;
    assert_eq!(rig.status().instruments, 10, "a whole batch has gone");
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_poisonous_instrument_is_found_and_the_others_go_on() {
    let rig = Rig::new().await;
    rig.list(64);
    rig.venue.behave(|keys, _| {
        let is_poisoned = keys.iter().any(|key| key == "1037");
        if is_poisoned { Behave::Status(400, "{\"error\":\"bad token\"}".into()) } else { Behave::Books }
    });
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(60.0)).await;
    rig.stop(running).await;
    let counts = rig.status().counts;
    assert_eq!(counts.splits, 6, "64 halved six times is one");
    let read = |key: usize| rig.reads(&format!("S-{key}"));
    assert!((1_000..1_064).filter(|key| *key != 1_037).all(|key| read(key) >= 50), "the others were read");
    assert_eq!(read(1_037), 0);
    let asked = rig.venue.asked("1037", 20.0, 60.0);
    assert!(asked <= 5, "{asked} times: it backs off");
    assert!(rig.gaps().iter().any(|gap| gap.symbol == "S-1037"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_the_venue_and_after_it_there_is_no_burst() {
    let rig = Rig::new().await;
    rig.list(200);
    rig.venue.behave(|_, n| match n {
        50 => Behave::Held(429, HoldCause::RetryAfter, seconds(12.0)),
        _ => Behave::Books,
    });
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(30.0)).await;
    rig.stop(running).await;
    let starts = rig.venue.starts();
    let refused_at = starts[50] + 0.02;
    let inside = starts.iter().filter(|at| (refused_at + 0.001..refused_at + 12.0).contains(at)).count();
    assert_eq!(inside, 0, "nothing is sent while it is held");
    let again: Vec<f64> = starts.iter().copied().filter(|at| *at >= refused_at + 12.0).collect();
    for two in again.windows(2).take(100) {
        assert!((two[1] - two[0] - 0.05).abs() < 0.01, "evenly from the first: {two:?}");
    }
    let gaps = rig.gaps();
    assert!(gaps.iter().all(|gap| gap.symbol == "*" && gap.cause == "cooldown"), "{gaps:?}");
    assert_eq!(gaps.len(), 2, "when it was noticed, and when it was over: {gaps:?}");
    assert!(gaps[0].from < refused_at && gaps[0].told < refused_at + 7.0, "{gaps:?}");
    assert!(gaps[1].to >= refused_at + 12.9 && gaps[1].to < refused_at + 15.0, "{gaps:?}");
    let counts = rig.status().counts;
    assert_eq!((counts.http_429, counts.refused), (1, 1));
    assert!((230..=242).contains(&counts.held), "{}", counts.held);
}

#[tokio::test(start_paused = true)]
async fn a_venue_that_answers_nothing_is_left_alone_and_told_as_one_gap() {
    let rig = Rig::new().await;
    rig.list(100);
    let clock = rig.clock.clone();
    rig.venue.behave(
        move |_, _| {
            if (10.0..70.0).contains(&clock.seconds()) { Behave::TimedOut } else { Behave::Books }
        },
    );
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(120.0)).await;
    rig.stop(running).await;
    let asked = rig.venue.starts().iter().filter(|at| (10.0..70.0).contains(*at)).count();
    assert!(asked < 10 * 14, "{asked} requests in a minute: batches back off");
    let after = rig.venue.starts().iter().filter(|at| (86.0..96.0).contains(*at)).count();
    assert_eq!(after, 100, "everybody is back within the longest back-off");
    let gaps = rig.gaps();
    assert!(gaps[0].symbol == "*" && gaps[0].cause == "silence", "{gaps:?}");
    assert!(gaps.len() <= 40, "{gaps:?}");
    assert!(rig.venue.rounds().iter().any(|(failed, total)| failed == total), "the governor is told");
    assert_eq!(rig.status().counts.timeouts as usize, asked);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_garbage_costs_its_batch_a_moment() {
    let rig = Rig::new().await;
    rig.list(20);
    rig.venue.behave(|_, n| match n {
        10 => Behave::Status(200, "[{\"market\":\"0x1".into()),
        15 => Behave::Status(200, "<html>hello</html>".into()),
        20 => Behave::Status(200, "{\"unexpected\":1}".into()),
        _ => Behave::Books,
    });
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(30.0)).await;
    rig.stop(running).await;
    let mut kinds: Vec<String> = rig
        .lines("poll_errors")
        .iter()
        .map(|line| line["payload"]["error_type"].as_str().unwrap().to_owned())
        .collect();
    kinds.sort();
    assert_eq!(kinds, ["empty", "not_json", "trouble"]);
    assert!(rig.reads("S-1000") >= 20 && rig.reads("S-1019") >= 20);
    assert_eq!((rig.status().counts.requests_failed, rig.status().counts.garbage), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn slots_that_cannot_be_served_are_skipped_and_everybody_gets_their_turn() {
    let rig = Rig::new().await;
    rig.list(40);
    // Four workers, 400 ms each: ten requests a second for forty batches.
    rig.venue.set_latency(seconds(0.4));
    let running = rig.poll(|settings| (settings.books_per_request, settings.max_workers) = (1, 4));
    tokio::time::sleep(seconds(80.0)).await;
    rig.stop(running).await;
    let reads: Vec<usize> = (1_000..1_040).map(|key| rig.reads(&format!("S-{key}"))).collect();
    assert!(reads.iter().all(|reads| (18..=21).contains(reads)), "fairly: {reads:?}");
    let counts = rig.status().counts;
    assert!(counts.late > 2_000, "{}", counts.late);
    let accounted = counts.requests_submitted + counts.late + counts.held + counts.rested;
    assert!(counts.slots - accounted <= 40, "{counts:?}");
    assert!(rig.venue.most_at_once() <= 4);
    assert!(rig.gaps().is_empty(), "late is not failing");
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_may_be_missing_torn_older_or_empty_and_polling_goes_on() {
    let rig = Rig::new().await;
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(3.5)).await;
    assert_eq!(rig.status().instruments, 0);
    assert!(rig.status().snapshot_kept.is_some(), "it says why");
    rig.list_with_expiry(10, WALL_MS + 60_000);
    tokio::time::sleep(seconds(3.0)).await;
    assert_eq!(rig.status().instruments, 10);
    for torn in ["", "{\"version\":1,\"venue\":\"polym", "null", "{\"version\":99}"] {
        rig.write_snapshot(torn.as_bytes());
        tokio::time::sleep(seconds(2.0)).await;
        assert_eq!(rig.status().instruments, 10, "{torn:?}");
    }
    rig.remove_snapshot();
    tokio::time::sleep(seconds(2.0)).await;
    rig.list(0);
    tokio::time::sleep(seconds(2.0)).await;
    let before = rig.status();
    assert_eq!(before.instruments, 10, "sticky until expiry");
    tokio::time::sleep(seconds(20.0)).await;
    assert_eq!(rig.status().counts.books - before.counts.books, 200, "and polled on");
    tokio::time::sleep(seconds(30.0)).await;
    assert_eq!(rig.status().instruments, 0, "they have expired");
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_instruments_are_taken_over_and_polled() {
    let rig = Rig::new().await;
    rig.list(100_000);
    rig.venue.answer_with_nothing();
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(1.9)).await;
    assert_eq!((rig.status().instruments, rig.status().batches), (100_000, 200));
    assert!(rig.venue.sent() >= 180, "{}", rig.venue.sent());
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_is_under_way_and_not_for_ever() {
    let rig = Rig::new().await;
    rig.list(20);
    rig.venue.set_latency(seconds(0.8));
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(1.7)).await;
    let sent = rig.venue.sent() as u64;
    rig.stop(running).await;
    let counts = rig.status().counts;
    assert_eq!((counts.requests_submitted, counts.requests_abandoned), (sent, 0));
    assert_eq!(counts.books, rig.lines("orderbook").len() as u64);

    let rig = Rig::new().await;
    rig.list(20);
    rig.venue.behave(|_, _| Behave::Hang);
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(2.0)).await;
    let stopped_at = rig.clock.seconds();
    rig.stop(running).await;
    assert!(rig.clock.seconds() - stopped_at <= 5.1, "{}", rig.clock.seconds() - stopped_at);
    assert_eq!(rig.status().counts.requests_abandoned, 2);
    assert_eq!(rig.lines("poll_stats").len(), 1, "the last words are said");
    assert!(rig.status().is_over);
}

#[tokio::test(start_paused = true)]
async fn records_carry_the_date_they_were_received_on_and_midnight_skips_nobody() {
    // The rig's clock starts at a midnight; this one starts 15 s before the next.
    let rig = Rig::at(WALL_MS + 86_400_000 - 15_000).await;
    rig.list(100);
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(29.5)).await;
    rig.stop(running).await;
    let days = |channel: &str| {
        let midnight = WALL_MS + 86_400_000;
        let lines = rig.lines(channel);
        let before = lines.iter().filter(|line| line["received_at_ms"].as_i64().unwrap() < midnight).count();
        (before, lines.len() - before)
    };
    let (before, after) = days("orderbook");
    assert!((1_490..=1_510).contains(&before) && (1_430..=1_460).contains(&after), "{before} and {after}");
    assert_eq!(days("poll_stats"), (1, 2));
    let (low, high) = rig.spacing();
    assert!(low > 0.99 && high < 1.01, "spacings from {low} to {high}");
}

#[tokio::test(start_paused = true)]
async fn midnight_under_load_files_every_book_under_its_own_date_and_loses_none() {
    const TOKENS: usize = 20_000;
    let midnight = WALL_MS + 86_400_000;
    let mut rig = Rig::with_archive(midnight - 2_500).await;
    rig.list(TOKENS);
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(5.4)).await;
    rig.stop(running).await;
    rig.close_pipeline().await;
    let sent = rig.venue.books_asked();
    assert!((5 * TOKENS..=6 * TOKENS).contains(&sent), "40 requests of 500 a second: {sent}");
    let counts = rig.status().counts;
    assert_eq!((counts.books, counts.records_lost, counts.late), (sent as u64, 0, 0));
    let mut days = std::collections::BTreeMap::<String, usize>::new();
    let mut seen = std::collections::HashSet::new();
    for (folder, line) in rig.archived("orderbooks") {
        let line: Value = serde_json::from_slice(&line).unwrap();
        let received = line["received_at_ms"].as_i64().unwrap();
        let date = if received < midnight { "date=2027-01-01" } else { "date=2027-01-02" };
        assert_eq!(folder, date, "{line}");
        assert!(seen.insert((line["symbol"].to_string(), received)), "twice: {line}");
        *days.entry(folder).or_default() += 1;
    }
    assert_eq!(seen.len(), sent, "as many as the venue sent");
    assert!(days.len() == 2 && days.values().all(|day| *day >= 2 * TOKENS), "{days:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_is_closed_costs_records_which_are_counted_and_no_poller() {
    let mut rig = Rig::new().await;
    rig.list(10);
    let running = rig.poll(|_| {});
    tokio::time::sleep(seconds(3.5)).await;
    rig.close_pipeline().await;
    tokio::time::sleep(seconds(10.0)).await;
    let counts = rig.status().counts;
    assert!(counts.books >= 120, "it goes on: {}", counts.books);
    assert!(counts.records_lost >= 80, "{}", counts.records_lost);
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_panics_costs_one_request() {
    let rig = Rig::new().await;
    rig.list(20);
    rig.venue.behave(|_, n| match n {
        6 => Behave::Status(200, "[\"panic\"]".into()),
        _ => Behave::Books,
    });
    let running = rig.poll(|settings| settings.books_per_request = 10);
    tokio::time::sleep(seconds(20.5)).await;
    rig.stop(running).await;
    let counts = rig.status().counts;
    assert_eq!(counts.requests_failed, 1);
    assert_eq!(counts.slots, counts.requests_submitted + counts.rested, "{counts:?}");
    assert!(rig.reads("S-1000") >= 18 && rig.reads("S-1010") >= 18);
}
