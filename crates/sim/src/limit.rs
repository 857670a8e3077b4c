//! How many requests a venue takes: four models, each asked with the time and told when a request was let in.
//!
//! Limits count for each address a client comes from, as the venues' do; two nodes behind `127.0.0.1` share one budget,
//! a client bound to `127.0.0.2` has its own. A refused request is not counted against the limit.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Clients remembered; loopback has more addresses than anybody uses.
const CLIENTS_MAX: usize = 1_024;

/// One limit as the user writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRule {
    /// What it counts: names of endpoints (`clob/books`) or beginnings of them (`clob`); empty for everything.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// So many requests …
    pub requests: u32,
    /// … in so long.
    pub window_ms: u64,
    /// What the window is like, and what happens beyond it.
    #[serde(default)]
    pub model: LimitModel,
    /// `queue` only: so many requests beyond the limit are delayed before any is refused; a fifth of it if absent.
    #[serde(default)]
    pub queue: Option<u32>,
    /// `queue` only: the delay of the first and of the last of those.
    #[serde(default = "delay_ms")]
    pub delay_ms: [u64; 2],
    /// After a refusal, everything is refused for so long.
    #[serde(default)]
    pub penalty_ms: u64,
    /// What a refusal says about when to come back.
    #[serde(default)]
    pub retry_after: RetryAfter,
}

fn delay_ms() -> [u64; 2] {
    [50, 500]
}

impl LimitRule {
    /// A rule with the usual rest: no penalty, no Retry-After.
    pub fn new(endpoints: &[&str], requests: u32, window_ms: u64, model: LimitModel) -> Self {
        Self {
            endpoints: endpoints.iter().map(|&name| name.to_owned()).collect(),
            requests,
            window_ms,
            model,
            queue: None,
            delay_ms: delay_ms(),
            penalty_ms: 0,
            retry_after: RetryAfter::None,
        }
    }

    fn counts(&self, endpoint: &str) -> bool {
        let within = |name: &String| {
            endpoint.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.endpoints.is_empty() || self.endpoints.iter().any(within)
    }
}

/// What a limit's window is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitModel {
    /// No interval of the window's length holds more than the limit.
    #[default]
    Sliding,
    /// The count begins anew at every multiple of the window's length.
    Fixed,
    /// A bucket of as many tokens as the limit, filled evenly over the window.
    Bucket,
    /// As `sliding`, but requests beyond the limit are first delayed, the more the longer, and only then refused.
    Queue,
}

/// What stands in `Retry-After`: `none`, `auto` (whole seconds), `date` and `past` (HTTP dates), or any other text, which
/// is sent as it is (`0`, `1000000`, `soon`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RetryAfter {
    /// The header is absent.
    #[default]
    None,
    /// Whole seconds, rounded up.
    Auto,
    /// The HTTP date from which on it is worth trying.
    Date,
    /// An HTTP date an hour ago.
    Past,
    /// This text.
    Text(String),
}

impl From<String> for RetryAfter {
    fn from(text: String) -> Self {
        match text.as_str() {
            "none" => Self::None,
            "auto" => Self::Auto,
            "date" => Self::Date,
            "past" => Self::Past,
            _ => Self::Text(text),
        }
    }
}

impl From<RetryAfter> for String {
    fn from(value: RetryAfter) -> Self {
        match value {
            RetryAfter::None => "none".to_owned(),
            RetryAfter::Auto => "auto".to_owned(),
            RetryAfter::Date => "date".to_owned(),
            RetryAfter::Past => "past".to_owned(),
            RetryAfter::Text(text) => text,
        }
    }
}

impl RetryAfter {
    /// The header's value at `now_ms`, if `wait` is how long one should.
    pub(crate) fn header(&self, now_ms: i64, wait: Duration) -> Option<String> {
        match self {
            Self::None => None,
            Self::Auto => Some(wait.as_millis().div_ceil(1_000).to_string()),
            Self::Date => Some(crate::text::http_date(now_ms + wait.as_millis() as i64 + 999)),
            Self::Past => Some(crate::text::http_date(now_ms - 3_600_000)),
            Self::Text(text) => Some(text.clone()),
        }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Delay(Duration),
    Refuse { wait: Duration, retry_after: RetryAfter },
}

/// The limits of one venue, for every client.
#[derive(Debug)]
pub(crate) struct Limits {
    rules: Vec<LimitRule>,
    clients: HashMap<IpAddr, Vec<Meter>>,
}

impl Limits {
    pub(crate) fn new(rules: Vec<LimitRule>) -> Self {
        Self { rules, clients: HashMap::new() }
    }

    /// Judges a request at `now`. It counts against every rule that concerns it if none of them refuses it.
    pub(crate) fn ask(&mut self, client: IpAddr, endpoint: &str, now: Duration) -> Verdict {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            self.clients.clear();
        }
        let fresh = || vec![Meter::default(); self.rules.len()];
        let meters = self.clients.entry(client).or_insert_with(fresh);
        let mut delay = Duration::ZERO;
        let concerned = || self.rules.iter().zip(0..).filter(|(rule, _)| rule.counts(endpoint));
        for (rule, at) in concerned() {
            match meters[at].look(rule, now) {
                Verdict::Pass => {}
                Verdict::Delay(longer) => delay = delay.max(longer),
                refused @ Verdict::Refuse { .. } => return refused,
            }
        }
        for (rule, at) in concerned() {
            meters[at].take(rule, now);
        }
        if delay.is_zero() { Verdict::Pass } else { Verdict::Delay(delay) }
    }
}

/// What one client has used of one rule.
#[derive(Debug, Clone, Default)]
struct Meter {
    /// `sliding`, `queue`: when the requests of the last window came.
    recent: VecDeque<Duration>,
    /// `fixed`: the window's number, and its requests.
    window: (u128, u32),
    /// `bucket`: when it will be full again.
    full_at: Duration,
    /// Until when everything is refused.
    barred_until: Duration,
}

impl Meter {
    fn look(&mut self, rule: &LimitRule, now: Duration) -> Verdict {
        if now < self.barred_until {
            return Verdict::Refuse { wait: self.barred_until - now, retry_after: rule.retry_after.clone() };
        }
        let verdict = self.judge(rule, now);
        if let Verdict::Refuse { .. } = verdict {
            self.barred_until = now + Duration::from_millis(rule.penalty_ms);
        }
        verdict
    }

    fn judge(&mut self, rule: &LimitRule, now: Duration) -> Verdict {
        let window = Duration::from_millis(rule.window_ms);
        let refuse = |wait: Duration| {
            let wait = wait.max(Duration::from_millis(rule.penalty_ms));
            Verdict::Refuse { wait, retry_after: rule.retry_after.clone() }
        };
        match rule.model {
            LimitModel::Sliding | LimitModel::Queue => {
                while self.recent.front().is_some_and(|at| *at + window <= now) {
                    self.recent.pop_front();
                }
                let (used, limit) = (self.recent.len() as u64, u64::from(rule.requests));
                let queue = match rule.model {
                    LimitModel::Queue => u64::from(rule.queue.unwrap_or(rule.requests.div_ceil(5))),
                    _ => 0,
                };
                match used {
                    _ if used < limit => Verdict::Pass,
                    _ if used < limit + queue => {
                        let [first, last] = rule.delay_ms;
                        let further = last.saturating_sub(first) * (used - limit) / (queue - 1).max(1);
                        Verdict::Delay(Duration::from_millis(first + further))
                    }
                    _ => refuse(self.recent.front().map_or(window, |at| *at + window - now)),
                }
            }
            LimitModel::Fixed => {
                let number = now.as_nanos() / window.as_nanos().max(1);
                if self.window.0 != number {
                    self.window = (number, 0);
                }
                let end = Duration::from_nanos(((number + 1) * window.as_nanos()) as u64);
                if self.window.1 < rule.requests { Verdict::Pass } else { refuse(end - now) }
            }
            LimitModel::Bucket => {
                // Full when `full_at` has passed; each request moves that by the time one token takes.
                let after = self.full_at.max(now) + window / rule.requests.max(1);
                let overdrawn = after.saturating_sub(now + window);
                if overdrawn.is_zero() && rule.requests > 0 { Verdict::Pass } else { refuse(overdrawn) }
            }
        }
    }

    fn take(&mut self, rule: &LimitRule, now: Duration) {
        match rule.model {
            LimitModel::Sliding | LimitModel::Queue => self.recent.push_back(now),
            LimitModel::Fixed => self.window.1 += 1,
            LimitModel::Bucket => {
                let token = Duration::from_millis(rule.window_ms) / rule.requests.max(1);
                self.full_at = self.full_at.max(now) + token;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Asks at these milliseconds: `.` passed, `r` refused, `d` delayed.
    fn check(rule: &LimitRule, at_ms: &[u64], want: &str) {
        let mut limits = Limits::new(vec![rule.clone()]);
        let got: String = at_ms.iter().map(|ms| letter(&ask(&mut limits, "clob/books", *ms))).collect();
        assert_eq!(got, want, "{:?} at {at_ms:?}", rule.model);
    }

    fn ask(limits: &mut Limits, endpoint: &str, ms: u64) -> Verdict {
        limits.ask(HOME, endpoint, Duration::from_millis(ms))
    }

    fn letter(verdict: &Verdict) -> char {
        match verdict {
            Verdict::Pass => '.',
            Verdict::Delay(_) => 'd',
            Verdict::Refuse { .. } => 'r',
        }
    }

    fn rule(model: LimitModel) -> LimitRule {
        LimitRule::new(&[], 3, 1_000, model)
    }

    #[test]
    fn a_sliding_window_holds_at_most_its_limit_wherever_it_is_laid() {
        check(&rule(LimitModel::Sliding), &[0, 500, 900, 950, 999, 1_000, 1_001, 1_500], "...rr.r.");
    }

    #[test]
    fn a_fixed_window_begins_anew_at_its_multiples() {
        check(&rule(LimitModel::Fixed), &[900, 910, 920, 930, 1_000, 1_010, 1_020, 1_030], "...r...r");
    }

    #[test]
    fn a_bucket_refills_evenly() {
        check(
            &rule(LimitModel::Bucket),
            &[0, 0, 0, 0, 333, 334, 335, 2_000, 2_000, 2_000, 2_000],
            "...rr.r...r",
        );
    }

    #[test]
    fn a_queue_delays_before_it_refuses() {
        let rule = LimitRule { queue: Some(2), ..rule(LimitModel::Queue) };
        check(&rule, &[0, 0, 0, 1, 2, 3, 1_000, 1_000, 1_000, 1_000], "...ddr.ddr"); // the delayed ones count, too
        let mut limits = Limits::new(vec![rule]);
        let verdicts: Vec<_> = (0..5).map(|_| ask(&mut limits, "x", 0)).collect();
        assert_eq!(verdicts[3..], [50, 500].map(|ms| Verdict::Delay(Duration::from_millis(ms))));
    }

    #[test]
    fn a_penalty_bars_everything_for_its_time() {
        let rule = LimitRule { penalty_ms: 5_000, ..rule(LimitModel::Sliding) };
        check(&rule, &[0, 0, 0, 1, 2_000, 5_000, 5_001], "...rrr.");
    }

    #[test]
    fn a_rule_counts_only_its_endpoints_and_a_refusal_counts_nowhere() {
        let sliding = |names: &[&str], requests| LimitRule::new(names, requests, 1_000, LimitModel::Sliding);
        let mut limits = Limits::new(vec![sliding(&["clob/books"], 1), sliding(&["clob"], 2)]);
        let mut got = String::new();
        for name in ["clob/books", "clob/books", "clob/book", "clob/time", "gamma/markets", "clobber"] {
            got.push(letter(&ask(&mut limits, name, 0)));
        }
        assert_eq!(got, ".r.r..");
        let other = "127.0.0.2".parse().unwrap();
        assert_eq!(limits.ask(other, "clob/books", Duration::ZERO), Verdict::Pass);
    }

    #[test]
    fn retry_after_is_spelled_as_asked_for() {
        let check = |word: &str, want: Option<&str>| {
            let header =
                RetryAfter::from(word.to_owned()).header(1_785_488_100_000, Duration::from_millis(1_500));
            assert_eq!(header.as_deref(), want, "{word}");
        };
        check("none", None);
        check("auto", Some("2"));
        check("date", Some("Fri, 31 Jul 2026 08:55:02 GMT"));
        check("past", Some("Fri, 31 Jul 2026 07:55:00 GMT"));
        check("1000000", Some("1000000"));
        check("soon", Some("soon"));
    }

    #[test]
    fn a_refusal_says_how_long_to_wait() {
        let check = |model, at_ms: &[u64], wait_ms: u64| {
            let mut limits = Limits::new(vec![rule(model)]);
            let last = at_ms.iter().map(|ms| ask(&mut limits, "x", *ms)).last().unwrap();
            let Verdict::Refuse { wait, .. } = last else { panic!("{last:?}") };
            assert_eq!(wait.as_millis() as u64, wait_ms, "{model:?}");
        };
        check(LimitModel::Sliding, &[0, 100, 200, 300], 700);
        check(LimitModel::Fixed, &[1_000, 1_100, 1_200, 1_300], 700);
        check(LimitModel::Bucket, &[0, 0, 0, 0], 333);
    }
}
