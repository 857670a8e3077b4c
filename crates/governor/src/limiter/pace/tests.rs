use super::*;
use crate::limiter::Used;

const RTT: Duration = Duration::from_millis(80);

/// A limiter, its clock, and what is under way.
struct Desk {
    pace: Pace,
    now: Monotonic,
    under_way: std::collections::VecDeque<Monotonic>,
}

impl Desk {
    fn new(pace: Pace) -> Self {
        Self { pace, now: Monotonic(Duration::from_secs(50)), under_way: std::collections::VecDeque::new() }
    }

    /// At its ceiling of 50 a second, and calm.
    fn settled() -> Self {
        let mut desk = Self::new(Pace::warm(PaceSettings::default(), 50.0, 1));
        desk.work(20.0, 1e9, RTT);
        assert_eq!(desk.phase(), "hold");
        desk
    }

    /// Works for a while at a venue that answers all, with at most so many requests a second wanted. Gives back when
    /// they left.
    fn work(&mut self, length_s: f64, wanted: f64, rtt: Duration) -> Vec<f64> {
        let end = self.later(length_s);
        let mut next_wanted = self.now;
        let mut left = Vec::new();
        loop {
            let asks_at = match self.pace.ask(1, self.now.max(next_wanted)) {
                Verdict::Now => self.now.max(next_wanted),
                Verdict::NotBefore(then) => then,
                Verdict::WhenOneEnds => Monotonic(Duration::MAX),
            };
            let ends_at = self.under_way.front().map(|sent_at| Monotonic(sent_at.0 + rtt));
            let (at, ends) = match ends_at {
                Some(ends_at) if ends_at <= asks_at => (ends_at, true),
                _ => (asks_at, false),
            };
            if at >= end {
                self.now = end;
                return left;
            }
            self.now = self.now.max(at);
            if ends {
                let sent_at = self.under_way.pop_front().unwrap();
                self.end(sent_at, Outcome::Answered, Feedback::default());
            } else if self.pace.ask(1, self.now) == Verdict::Now {
                self.send();
                left.push(self.now.0.as_secs_f64());
                next_wanted = self.later(1.0 / wanted);
            }
        }
    }

    fn send(&mut self) -> Monotonic {
        self.pace.sent(1, self.now);
        self.under_way.push_back(self.now);
        self.now
    }

    fn end(&mut self, sent_at: Monotonic, outcome: Outcome, feedback: Feedback) {
        self.pace.ended(&End { sent_at, cost: 1, outcome, feedback }, self.now);
    }

    /// One leaves and is refused.
    fn refuse(&mut self, retry_after: Option<Duration>) {
        self.pace.sent(1, self.now);
        let sent_at = self.now;
        self.now = self.later(RTT.as_secs_f64());
        self.end(sent_at, Outcome::Refused, Feedback { retry_after, ..Feedback::default() });
    }

    /// Waits as told, sends one ahead, and gets an answer.
    fn come_back(&mut self) {
        while let Some(sent_at) = self.under_way.pop_front() {
            self.end(sent_at, Outcome::Answered, Feedback::default());
        }
        if let Verdict::NotBefore(then) = self.pace.ask(1, self.now) {
            self.now = then;
        }
        self.pace.sent(1, self.now);
        let sent_at = self.now;
        self.now = self.later(RTT.as_secs_f64());
        self.end(sent_at, Outcome::Answered, Feedback::default());
    }

    /// How long the door stays closed.
    fn closed_s(&mut self) -> f64 {
        match self.pace.ask(1, self.now) {
            Verdict::NotBefore(then) => then.since(self.now).as_secs_f64(),
            other => panic!("the door is open: {other:?}"),
        }
    }

    fn later(&self, s: f64) -> Monotonic {
        Monotonic(self.now.0 + Duration::from_secs_f64(s))
    }

    fn phase(&self) -> &'static str {
        self.pace.gauge(self.now).phase
    }
}

#[test]
fn requests_leave_evenly_with_a_little_jitter() {
    let mut desk = Desk::settled();
    let left = desk.work(20.0, 1e9, RTT);
    let gaps: Vec<f64> = left.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let even = 1.0 / (0.96 * 50.0);
    assert!(gaps.iter().all(|gap| (0.89..1.11).contains(&(gap / even))), "a burst or a pause");
    assert!(
        gaps.iter().any(|gap| gap / even < 0.95) && gaps.iter().any(|gap| gap / even > 1.05),
        "no jitter"
    );
    assert!((left.len() as f64 / 20.0 - 48.0).abs() < 1.0, "{}", left.len());
}

#[test]
fn after_a_refusal_one_goes_ahead_and_the_others_follow_its_answer() {
    let mut desk = Desk::settled();
    desk.refuse(None);
    assert!((1.0..1.2).contains(&desk.closed_s()));
    desk.now = desk.later(1.2);
    assert_eq!(desk.pace.ask(1, desk.now), Verdict::Now);
    let scout = desk.send();
    assert_eq!(desk.pace.ask(1, desk.now), Verdict::WhenOneEnds);
    desk.now = desk.later(0.1);
    desk.end(scout, Outcome::Answered, Feedback::default());
    assert_eq!(desk.pace.ask(1, desk.now), Verdict::Now);
    let back = desk.pace.gauge(desk.now).rate.unwrap();
    assert!(back < 0.3 * 50.0, "back at once with {back}");
}

#[test]
fn a_refused_scout_doubles_the_wait() {
    let mut desk = Desk::settled();
    desk.refuse(None);
    for wanted in [2.0, 4.0, 8.0] {
        desk.now = desk.later(desk.pace.settings.wait_max.as_secs_f64());
        desk.refuse(None);
        let closed = desk.closed_s();
        assert!((wanted..1.1 * wanted + 0.01).contains(&closed), "{closed} for {wanted}");
    }
}

/// Asks 15 times a second at a venue that was never seen to refuse.
fn steady(seconds: f64) -> Desk {
    let settings = PaceSettings { start_rate: 17.0, rate_max: 19.0, ..PaceSettings::default() };
    let mut desk = Desk::new(Pace::cold(settings, 1));
    desk.work(seconds, 15.0, RTT);
    while let Some(sent_at) = desk.under_way.pop_front() {
        desk.end(sent_at, Outcome::Answered, Feedback::default());
    }
    desk
}

/// How many of fifteen a second leave, once it is back.
fn share(desk: &mut Desk) -> f64 {
    desk.work(3.0, 15.0, RTT);
    desk.work(20.0, 15.0, RTT).len() as f64 / 300.0
}

#[test]
fn a_storm_that_no_rate_could_have_caused_teaches_nothing() {
    let mut desk = steady(90.0);
    desk.refuse(None);
    desk.now = desk.later(6.0);
    desk.refuse(None);
    desk.come_back();
    let got = share(&mut desk);
    assert!(got > 0.98, "back at {got}");
    // Again, before it has held for a minute: this time it is a limit that fell.
    desk.refuse(None);
    desk.now = desk.later(6.0);
    desk.refuse(None);
    desk.come_back();
    let got = share(&mut desk);
    assert!(got < 0.96, "back at {got}");
}

#[test]
fn a_refusal_while_it_is_not_known_what_works_is_a_limit() {
    let mut desk = steady(30.0);
    desk.refuse(None);
    desk.now = desk.later(6.0);
    desk.refuse(None);
    desk.come_back();
    assert!(desk.pace.ceiling.is_some_and(|ceiling| ceiling < 15.5), "{:?}", desk.pace.ceiling);
}

#[test]
fn a_silence_does_not_make_it_crawl() {
    for (held, least) in [(90.0, 0.98), (20.0, 0.5)] {
        let mut desk = steady(held);
        for _ in 0..30 {
            if let Verdict::NotBefore(then) = desk.pace.ask(1, desk.now) {
                desk.now = then;
            }
            desk.pace.sent(1, desk.now);
            let sent_at = desk.now;
            desk.now = desk.later(10.0);
            desk.end(sent_at, Outcome::TimedOut, Feedback::default());
        }
        desk.come_back();
        let got = share(&mut desk);
        assert!(got > least, "after {held} s of work, back at {got}");
    }
}

#[test]
fn a_scout_that_was_dropped_is_replaced() {
    let mut desk = Desk::settled();
    desk.refuse(None);
    desk.now = desk.later(1.2);
    let scout = desk.send();
    assert_eq!(desk.pace.ask(1, desk.now), Verdict::WhenOneEnds);
    desk.end(scout, Outcome::Abandoned, Feedback::default());
    assert_eq!(desk.pace.ask(1, desk.now), Verdict::Now);
}

#[test]
fn retry_after_is_obeyed_with_a_floor_and_a_cap() {
    for (asked_s, least_s) in [(7.0, 7.0), (0.0, 0.5), (36_000.0, 3_600.0)] {
        let mut desk = Desk::settled();
        desk.refuse(Some(Duration::from_secs_f64(asked_s)));
        let closed = desk.closed_s();
        assert!((least_s..=1.1 * least_s).contains(&closed), "{closed} s for {asked_s}");
    }
}

#[test]
fn what_was_under_way_belongs_to_the_same_episode() {
    let mut desk = Desk::settled();
    let before: Vec<Monotonic> = (0..4).map(|_| desk.send()).collect();
    desk.refuse(None);
    let (ceiling, closed) = (desk.pace.ceiling(), desk.closed_s());
    for sent_at in before {
        desk.end(sent_at, Outcome::Refused, Feedback::default());
    }
    assert_eq!((desk.pace.ceiling(), desk.closed_s()), (ceiling, closed));
    // Even when it comes in after the others are back.
    let sent_at = desk.now;
    desk.come_back();
    desk.end(sent_at, Outcome::Refused, Feedback::default());
    assert_ne!(desk.phase(), "hold-back");
}

#[test]
fn a_failed_probe_makes_the_next_wait_twice_as_long_up_to_ten_minutes() {
    let mut desk = Desk::settled();
    let mut waits = Vec::new();
    for _ in 0..6 {
        let began = desk.now;
        while desk.phase() != "probe" {
            desk.work(1.0, 1e9, RTT);
            assert!(desk.now.since(began) < Duration::from_secs(2_000), "no probe");
        }
        waits.push(desk.now.since(began).as_secs());
        desk.refuse(None);
        desk.come_back();
    }
    // The first refusal costs no more than itself, so what it cost (300 s) is the least.
    let wanted = [60, 300, 600, 600, 600, 600];
    let is_near = |(got, wanted): (&u64, u64)| got.abs_diff(wanted) <= 25;
    assert!(waits.iter().zip(wanted).skip(1).all(is_near), "{waits:?}");
}

#[test]
fn a_ceiling_that_is_left_alone_is_probed_in_small_steps_first() {
    let mut desk = Desk::settled();
    while desk.phase() != "probe" {
        desk.work(1.0, 1e9, RTT);
    }
    let begun = desk.pace.rate;
    desk.work(13.0, 1e9, RTT);
    assert!((desk.pace.rate / begun - 1.01).abs() < 0.011, "{} after {begun}", desk.pace.rate);
    desk.work(300.0, 1e9, RTT);
    assert!(desk.pace.rate > 1.5 * begun, "a raised limit is not found: {}", desk.pace.rate);
}

#[test]
fn one_slow_spell_eases_and_a_second_soon_after_is_not_believed_if_all_comes_back() {
    let mut desk = Desk::settled();
    let slow = Duration::from_millis(400);
    desk.work(2.5, 1e9, slow);
    assert_eq!(desk.phase(), "ease");
    assert_eq!(desk.pace.ceiling(), Some(50.0));
    desk.work(20.0, 1e9, RTT);
    assert_eq!(desk.phase(), "hold");
    desk.work(10.0, 1e9, slow);
    assert_eq!(desk.pace.ceiling(), Some(50.0));
}

#[test]
fn a_queue_is_believed_in_at_the_second_warning_only() {
    let mut desk = Desk::new(Pace::cold(PaceSettings::default(), 1));
    desk.work(20.0, 1e9, RTT);
    desk.work(2.5, 1e9, 5 * RTT);
    assert_eq!((desk.phase(), desk.pace.ceiling()), ("ease", None));
    desk.work(5.0, 1e9, RTT);
    desk.work(4.5, 1e9, 5 * RTT);
    assert!(desk.pace.ceiling().is_some());
}

#[test]
fn a_quiet_hour_raises_nothing_and_does_not_end_in_a_burst() {
    let mut desk = Desk::settled();
    desk.work(2.0, 1.0, RTT);
    let (rate, ceiling) = (desk.pace.rate, desk.pace.ceiling());
    desk.now = desk.later(3_600.0);
    desk.under_way.clear();
    desk.pace.inflight = 0;
    let mut at_once = 0;
    while desk.pace.ask(1, desk.now) == Verdict::Now {
        desk.send();
        at_once += 1;
    }
    assert!(at_once <= 1, "{at_once} at once");
    assert_eq!((desk.pace.rate, desk.pace.ceiling()), (rate, ceiling));
    assert!(desk.work(1.0, 1e9, RTT).len() <= 50);
}

#[test]
fn a_rate_that_is_not_used_is_not_raised() {
    let mut desk = Desk::settled();
    desk.work(3_000.0, 30.0, RTT);
    assert_eq!(desk.phase(), "hold");
    assert!((desk.pace.rate - 48.0).abs() < 0.1, "{}", desk.pace.rate);

    let mut desk = Desk::new(Pace::cold(PaceSettings::default(), 1));
    desk.work(600.0, 10.0, RTT);
    assert!(desk.pace.rate < 13.0, "{} untried", desk.pace.rate);
}

#[test]
fn a_remembered_ceiling_is_started_from() {
    let pace = Pace::warm(PaceSettings::default(), 50.0, 1);
    assert_eq!((pace.rate, pace.ceiling()), (40.0, Some(50.0)));
    let pace = Pace::warm(PaceSettings::default(), f64::NAN, 1);
    assert_eq!((pace.rate, pace.ceiling()), (2.0, None));
}

#[test]
fn a_remembered_ceiling_that_is_too_high_is_given_up() {
    let mut desk = Desk::new(Pace::warm(PaceSettings::default(), 500.0, 1));
    for _ in 0..8 {
        desk.work(3.0, 20.0, RTT);
        desk.refuse(None);
        desk.come_back();
    }
    assert!(desk.pace.ceiling().unwrap() < 250.0, "{:?}", desk.pace.ceiling());
}

#[test]
fn a_ban_is_sat_out() {
    let mut desk = Desk::settled();
    let sent_at = desk.send();
    let retry_after = Some(Duration::from_secs(120));
    desk.end(sent_at, Outcome::Banned, Feedback { retry_after, ..Feedback::default() });
    assert!(desk.closed_s() >= 125.0);
    let mut desk = Desk::settled();
    let sent_at = desk.send();
    desk.end(sent_at, Outcome::Banned, Feedback::default());
    assert!(desk.closed_s() >= 305.0);
}

#[test]
fn a_told_window_that_is_used_up_is_waited_out() {
    let mut desk = Desk::new(Pace::warm(PaceSettings::default(), 50.0, 1));
    let window = Duration::from_secs(60);
    let tell = |desk: &mut Desk, cost, used| {
        desk.pace.sent(cost, desk.now);
        let sent_at = desk.now;
        desk.now = desk.later(10.0);
        let used = Some(Used { used, limit: 1_000, allowed: 950, window });
        let feedback = Feedback { used, ..Feedback::default() };
        desk.pace.next_at = desk.now;
        desk.pace.ended(&End { sent_at, cost, outcome: Outcome::Answered, feedback }, desk.now);
    };
    tell(&mut desk, 100, 100);
    tell(&mut desk, 400, 500);
    let rate = desk.pace.gauge(desk.now).rate.unwrap();
    assert!((8.0..9.1).contains(&rate), "{rate} for 450 in 50 s");
    tell(&mut desk, 460, 960);
    assert!((39.0..=40.1).contains(&desk.closed_s()), "{}", desk.closed_s());
    desk.now = desk.later(41.0);
    assert_eq!(desk.pace.ask(1, desk.now), Verdict::Now);
}

#[test]
fn costs_are_paid_and_nothing_waits_for_ever() {
    let mut desk = Desk::settled();
    desk.now = desk.later(1.0);
    desk.pace.sent(480, desk.now);
    assert!((8.9..11.1).contains(&desk.closed_s()), "{}", desk.closed_s());
    desk.now = desk.later(12.0);
    desk.pace.sent(0, desk.now);
    assert_eq!(desk.pace.ask(0, desk.now), Verdict::Now);
    desk.pace.sent(u32::MAX, desk.now);
    assert!(desk.closed_s() <= 86_400.0);

    let settings = PaceSettings { rate_min: 0.0, start_rate: 0.0, ..PaceSettings::default() };
    let mut desk = Desk::new(Pace::cold(settings, 1));
    desk.pace.sent(1, desk.now);
    assert!(desk.closed_s() <= 86_400.0);
}

/// Whatever is told, in whatever order, the limiter stands, stays within its bounds and never asks to be asked again at
/// once.
#[test]
fn nothing_that_is_told_upsets_it() {
    let outcomes = [
        Outcome::Answered,
        Outcome::Refused,
        Outcome::Failed,
        Outcome::TimedOut,
        Outcome::Banned,
        Outcome::Abandoned,
    ];
    for seed in 0..50 {
        let mut dice = Dice::new(seed);
        let mut pick = |below: u64| dice.between(0.0, below as f64) as u64;
        let mut pace = Pace::cold(PaceSettings::default(), seed);
        let mut now = Monotonic::default();
        let mut under_way = Vec::new();
        for _ in 0..5_000 {
            now = Monotonic(now.0 + Duration::from_micros([0, 10, 20_000, 3_000_000][pick(4) as usize]));
            let cost = [0, 1, 1, 7, 5_000][pick(5) as usize];
            match pace.ask(cost, now) {
                Verdict::NotBefore(then) => {
                    assert!(then > now);
                    now = if pick(3) == 0 { then } else { now };
                }
                Verdict::WhenOneEnds => assert!(!under_way.is_empty(), "nothing can end"),
                Verdict::Now => {
                    pace.sent(cost, now);
                    under_way.push((now, cost));
                }
            }
            if !under_way.is_empty() && pick(2) == 0 {
                let (sent_at, cost) = under_way.swap_remove(pick(under_way.len() as u64) as usize);
                let outcome = if pick(10) > 0 { Outcome::Answered } else { outcomes[pick(6) as usize] };
                let some = pick(8);
                let feedback = Feedback {
                    retry_after: (some == 1).then(|| Duration::from_millis(pick(9_000))),
                    remaining: (some == 2).then(|| (pick(600), Duration::from_millis(pick(10_000)))),
                    used: (some == 3).then(|| Used {
                        used: pick(1_200),
                        limit: 1_000,
                        allowed: pick(1_000),
                        window: RTT * 100,
                    }),
                };
                pace.ended(&End { sent_at, cost, outcome, feedback }, now);
            }
            let gauge = pace.gauge(now);
            assert!(pace.rate.is_finite() && pace.rate >= 0.02 && gauge.rate.unwrap() > 0.0);
            assert_eq!(gauge.inflight as usize, under_way.len());
            assert!(gauge.inflight_max >= 1);
        }
    }
}
