//! Refusals, bans and restarts: when nothing may be sent, nothing is.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod workshop;

use std::sync::Arc;
use std::time::Duration;

use catchment_governor::limiter::{Limiter, Outcome, Pace, PaceSettings};
use catchment_governor::{Ask, Expired, Family, Governor, HoldCause, Lane, Notebook, Open, Report, Scope};
use workshop::{PausedClock, Rig, WALL_MS, answer};

const SECOND: Duration = Duration::from_secs(1);

/// Two families without limits.
fn rig() -> Rig {
    Rig::new([Family::top("books"), Family::top("trades")])
}

async fn refuse(governor: &Governor, ask: Ask, status: u16, headers: &[(&str, &str)]) {
    answer(governor.acquire(ask).await, status, headers);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_inside_a_retry_after_in_whatever_form_it_comes() {
    let check = async |retry_after: Option<&str>, min_s: f64, max_s: f64| {
        let rig = rig();
        let governor = rig.open();
        let headers: Vec<(&str, &str)> =
            retry_after.map(|value| ("Retry-After", value)).into_iter().collect();
        refuse(&governor, rig.ask("books"), 429, &headers).await;
        for family in ["books", "trades"] {
            assert!(governor.try_acquire(rig.ask(family)).is_none());
        }
        let _permit = governor.acquire(rig.ask("trades")).await;
        let waited = rig.seconds();
        assert!((min_s..=max_s).contains(&waited), "{retry_after:?}: waited {waited} s");
    };
    // Jitter comes on top: half of it, and at most 2.5 s; the timer's millisecond as well.
    check(None, 5.0, 7.501).await;
    check(Some("7"), 7.0, 9.501).await;
    check(Some("0"), 0.5, 0.751).await;
    check(Some("-5"), 0.5, 0.751).await;
    check(Some("Fri, 01 Jan 2027 00:00:20 GMT"), 20.0, 22.501).await;
    check(Some("Fri, 01 Jan 2021 00:00:00 GMT"), 0.5, 0.751).await;
    check(Some("1000000"), 3_600.0, 3_602.501).await;
    check(Some("<html>soon</html>"), 5.0, 7.501).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_names_a_time_is_waited_for_and_a_success_is_not() {
    for (status, is_held) in [(503, true), (200, false), (500, true), (404, true)] {
        let rig = rig();
        let governor = rig.open();
        refuse(&governor, rig.ask("books"), status, &[("retry-after", "3")]).await;
        assert_eq!(governor.snapshot().hold.is_some(), is_held, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_soon_after_one_another_double_the_cooldown() {
    let rig = rig();
    let governor = rig.open();
    let mut lengths = Vec::new();
    for _ in 0..4 {
        let before = rig.seconds();
        let permit = governor.acquire(rig.ask("books")).await;
        lengths.push(rig.seconds() - before);
        answer(permit, 429, &[]);
    }
    for (length, expected) in lengths.iter().zip([0.0, 5.0, 10.0, 20.0]) {
        assert!((expected..=expected + 2.502).contains(length), "{lengths:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_storm_of_refusals_or_a_silence_the_venue_is_asked_again_within_half_a_minute() {
    let pace =
        |seed| move |_: &str, _| Box::new(Pace::cold(PaceSettings::default(), seed)) as Box<dyn Limiter>;
    for length in [3.0, 10.0, 20.0, 45.0, 90.0, 115.0] {
        let rig = rig();
        let governor = rig.open_with(pace(length as u64));
        loop {
            let permit = governor.acquire(rig.ask("books")).await;
            if rig.seconds() >= length {
                break;
            }
            answer(permit, 429, &[]);
        }
        assert!(rig.seconds() - length < 24.0, "{length} s of refusals cost {} s", rig.seconds());
    }
    for length in [15.0, 60.0, 600.0, 3_600.0] {
        let rig = rig();
        let governor = rig.open_with(pace(length as u64));
        loop {
            let flight = governor.acquire(rig.ask("books")).await.depart().unwrap();
            if rig.seconds() >= length {
                break;
            }
            // The deadline of a request.
            tokio::time::sleep(10 * SECOND).await;
            flight.end(Report::timed_out(), []);
            governor.loop_ended(4, 4);
        }
        assert!(rig.seconds() - length < 24.0, "{length} s of silence cost {} s", rig.seconds());
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_were_under_way_are_one_episode() {
    let rig = rig();
    let governor = rig.open();
    let mut flights = Vec::new();
    for _ in 0..10 {
        flights.push(governor.acquire(rig.ask("books")).await.depart().unwrap());
    }
    for flight in flights {
        assert_eq!(flight.end(Report::status(429), []), Outcome::Refused);
        tokio::time::sleep(SECOND / 10).await;
    }
    let _permit = governor.acquire(rig.ask("books")).await;
    assert!(rig.seconds() <= 7.6, "ten refusals of one moment are no ten strikes: {} s", rig.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_may_hold_its_family_alone() {
    let mut rig = rig();
    rig.settings.cooldown_scope = Scope::Family;
    let governor = rig.open();
    refuse(&governor, rig.ask("books"), 429, &[("Retry-After", "30")]).await;
    assert!(governor.try_acquire(rig.ask("books")).is_none());
    assert!(governor.try_acquire(rig.ask("trades")).is_some());
    let snapshot = governor.snapshot();
    assert_eq!((snapshot.hold, snapshot.families[0].hold.unwrap().1), (None, HoldCause::RetryAfter));
}

#[tokio::test(start_paused = true)]
async fn a_loop_in_which_too_many_failed_begins_a_cooldown() {
    let rig = rig();
    let governor = rig.open();
    governor.loop_ended(0, 0);
    governor.loop_ended(5, 10);
    assert_eq!(governor.snapshot().hold, None, "a half is not more than a half");
    governor.loop_ended(6, 10);
    assert_eq!(governor.snapshot().hold.unwrap().1, HoldCause::Failures);
    let _permit = governor.acquire(rig.ask("books")).await;
    assert!((5.0..=7.51).contains(&rig.seconds()));
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_while_banned_not_even_with_a_permit_from_before() {
    let bans = [Report::status(418), Report { is_firewall: true, ..Report::status(403) }];
    for ban in bans {
        let rig = rig();
        let governor = rig.open();
        let early = governor.acquire(rig.ask("trades")).await;
        let flight = governor.acquire(rig.ask("books")).await.depart().unwrap();
        let headers = [("Retry-After", b"300".as_slice())];
        assert_eq!(flight.end(ban, headers), Outcome::Banned);
        assert_eq!(early.depart().unwrap_err(), Expired);
        for lane in Lane::ALL {
            assert!(governor.try_acquire(Ask { lane, ..rig.ask("trades") }).is_none());
        }
        let _permit = governor.acquire(rig.ask("trades")).await;
        assert!((305.0..=305.01).contains(&rig.seconds()), "{} s", rig.seconds());
    }
}

#[tokio::test(start_paused = true)]
async fn a_403_that_is_no_firewalls_holds_nobody() {
    let rig = rig();
    let governor = rig.open();
    refuse(&governor, rig.ask("books"), 403, &[]).await;
    assert_eq!(governor.snapshot().hold, None);
}

#[tokio::test(start_paused = true)]
async fn a_ban_without_a_time_is_two_minutes_and_doubles() {
    let rig = rig();
    let governor = rig.open();
    let mut before = 0.0;
    for expected in [120.0, 240.0, 480.0, 960.0, 1_920.0, 3_600.0, 3_600.0] {
        refuse(&governor, rig.ask("books"), 418, &[]).await;
        let permit = governor.acquire(rig.ask("books")).await;
        let length = rig.seconds() - before;
        assert!((expected..=expected + 0.01).contains(&length), "{length} s instead of {expected}");
        before = rig.seconds();
        drop(permit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ban_is_remembered_across_a_restart_and_other_venues_are_free() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("governor.json");
    let mut rig = rig();
    rig.notebook = Some(Arc::new(Notebook::open(&path)));
    refuse(&rig.open(), rig.ask("books"), 418, &[("Retry-After", "7200")]).await;

    // Another process, an hour later by the calendar; its monotonic clock begins anew.
    let mut later = self::rig();
    later.clock = PausedClock::at(WALL_MS + 3_600_000);
    later.notebook = Some(Arc::new(Notebook::open(&path)));
    let governor = later.open();
    let (left, cause) = governor.snapshot().hold.unwrap();
    assert_eq!((left.as_secs(), cause), (3_605, HoldCause::Ban));
    assert!(governor.try_acquire(later.ask("trades")).is_none());
    let _permit = governor.acquire(later.ask("trades")).await;
    assert!((3_605.0..=3_605.01).contains(&later.seconds()), "{} s", later.seconds());
    refuse(&governor, later.ask("books"), 418, &[]).await;
    assert_eq!(governor.snapshot().hold.unwrap().0, Duration::from_secs(240), "it is the second one");
}

#[tokio::test(start_paused = true)]
async fn a_ban_is_on_disk_before_the_report_returns() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("governor.json");
    let mut rig = rig();
    rig.notebook = Some(Arc::new(Notebook::open(&path)));
    let governor = rig.open();
    refuse(&governor, rig.ask("books"), 418, &[]).await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("lantern") && text.contains("ends_at_ms"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_learned_rate_is_handed_to_the_next_limiter() {
    #[derive(Debug)]
    struct Knows(Open, f64);
    impl catchment_governor::limiter::Limiter for Knows {
        fn ask(
            &mut self,
            cost: u32,
            now: catchment_model::Monotonic,
        ) -> catchment_governor::limiter::Verdict {
            self.0.ask(cost, now)
        }
        fn sent(&mut self, _cost: u32, _now: catchment_model::Monotonic) {}
        fn ended(&mut self, _end: &catchment_governor::limiter::End, _now: catchment_model::Monotonic) {}
        fn ceiling(&self) -> Option<f64> {
            Some(self.1)
        }
        fn gauge(&self, now: catchment_model::Monotonic) -> catchment_governor::limiter::Gauge {
            self.0.gauge(now)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("governor.json");
    let mut rig = rig();
    rig.notebook = Some(Arc::new(Notebook::open(&path)));
    let governor = rig.open_with(|_, remembered| {
        assert_eq!(remembered, None);
        Box::new(Knows(Open, 48.5))
    });
    drop(governor.acquire(rig.ask("books")).await);
    governor.remember();
    rig.notebook = Some(Arc::new(Notebook::open(&path)));
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let governor = rig.open_with(move |family, remembered| {
        tell.send((family.to_owned(), remembered)).unwrap();
        Box::new(Open)
    });
    drop(governor.acquire(rig.ask("books")).await);
    assert_eq!(told.recv().unwrap(), ("books".to_owned(), Some(48.5)));
}
