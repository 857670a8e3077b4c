//! What can go wrong on purpose: a switch for each fault, per venue, at the start or while running.
//!
//! Shares are of requests, from 0 (never) to 1 (always), drawn with seeded dice: the same requests in the same order
//! meet the same faults. Of the faults that replace the answer, the first in the order below that hits is the one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::limit::{LimitRule, RetryAfter};
use crate::ws::fault::StreamFault;

/// The faults of one venue. Everything is off unless said otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// For so long from when they are set; absent: until they are set anew.
    pub for_ms: Option<u64>,
    /// Only requests to this endpoint (`clob/books`) or those beginning so (`clob`); absent: all.
    pub only: Option<String>,

    /// Median of the delay before an answer.
    pub latency_ms: f64,
    /// Spread of its logarithm: 0 for always the median, 0.5 for a lively network.
    pub latency_sigma: f64,
    /// A limit beside the published ones.
    pub hidden_limit: Option<LimitRule>,

    /// Share that is never answered; the connection is held.
    pub hang: f64,
    /// Share whose connection is reset.
    pub reset: f64,
    /// Share answered 418, as a ban.
    pub banned: f64,
    /// Share answered 403 with a firewall's HTML page.
    pub forbidden: f64,
    /// Share answered 429.
    pub refused: f64,
    /// What `refused` and `banned` say about when to come back.
    pub retry_after: RetryAfter,
    /// What `auto` and `date` in `retry_after` stand for.
    pub retry_after_ms: u64,
    /// `refused` sends an HTML page instead of the venue's JSON.
    pub refused_html: bool,
    /// Share answered with `server_error_status`.
    pub server_error: f64,
    /// 500 to 599.
    pub server_error_status: u16,
    /// Share redirected to `redirect_to`.
    pub redirect: f64,
    /// Another host.
    pub redirect_to: String,
    /// Share answered 200 with an HTML page.
    pub html_200: f64,
    /// Share answered 200 with `{"error":"Too Many Requests"}`.
    pub error_200: f64,
    /// Share answered with zeros, gzip-compressed.
    pub gzip_bomb: f64,
    /// What they unpack to.
    pub gzip_bomb_mib: u32,

    /// Share whose JSON ends in the middle, in an answer that is otherwise whole.
    pub truncated: f64,
    /// Share whose connection ends in the middle of the body.
    pub cut: f64,
    /// Share whose body drips.
    pub slow: f64,
    /// How fast.
    pub slow_bytes_per_s: u32,

    /// Share of books with a wrong hash.
    pub wrong_hash: f64,
    /// Share of tokens left out of answers for many.
    pub missing_tokens: f64,
    /// Share of list pages that are empty.
    pub empty_page: f64,
    /// Share of list pages whose cursor leads to the same page again.
    pub stuck_cursor: f64,

    /// Markets that appear, instead of the configured rate.
    pub births_per_min: Option<f64>,
    /// Markets that end, instead of the configured rate.
    pub deaths_per_min: Option<f64>,

    /// What goes wrong with streams. Unlike the rest, each of these is done with once it has struck.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stream: Vec<StreamFault>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            for_ms: None,
            only: None,
            latency_ms: 0.0,
            latency_sigma: 0.0,
            hidden_limit: None,
            hang: 0.0,
            reset: 0.0,
            banned: 0.0,
            forbidden: 0.0,
            refused: 0.0,
            retry_after: RetryAfter::None,
            retry_after_ms: 1_000,
            refused_html: false,
            server_error: 0.0,
            server_error_status: 503,
            redirect: 0.0,
            redirect_to: "http://elsewhere.invalid".to_owned(),
            html_200: 0.0,
            error_200: 0.0,
            gzip_bomb: 0.0,
            gzip_bomb_mib: 10_240,
            truncated: 0.0,
            cut: 0.0,
            slow: 0.0,
            slow_bytes_per_s: 1,
            wrong_hash: 0.0,
            missing_tokens: 0.0,
            empty_page: 0.0,
            stuck_cursor: 0.0,
            births_per_min: None,
            deaths_per_min: None,
            stream: Vec::new(),
        }
    }
}

impl Faults {
    /// The key that is out of range, and why.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let shares = [
            ("hang", self.hang),
            ("reset", self.reset),
            ("banned", self.banned),
            ("forbidden", self.forbidden),
            ("refused", self.refused),
            ("server_error", self.server_error),
            ("redirect", self.redirect),
            ("html_200", self.html_200),
            ("error_200", self.error_200),
            ("gzip_bomb", self.gzip_bomb),
            ("truncated", self.truncated),
            ("cut", self.cut),
            ("slow", self.slow),
            ("wrong_hash", self.wrong_hash),
            ("missing_tokens", self.missing_tokens),
            ("empty_page", self.empty_page),
            ("stuck_cursor", self.stuck_cursor),
        ];
        if let Some((key, _)) = shares.iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
            return Err((key, "is a share from 0 to 1"));
        }
        if !(500..=599).contains(&self.server_error_status) {
            return Err(("server_error_status", "is from 500 to 599"));
        }
        if self.slow_bytes_per_s == 0 {
            return Err(("slow_bytes_per_s", "is at least 1; for nothing at all there is `hang`"));
        }
        if hyper::header::HeaderValue::from_str(&self.redirect_to).is_err() {
            return Err(("redirect_to", "does not fit in a header"));
        }
        if hyper::header::HeaderValue::from_str(&String::from(self.retry_after.clone())).is_err() {
            return Err(("retry_after", "does not fit in a header"));
        }
        if !(0.0..=600_000.0).contains(&self.latency_ms) || !(0.0..=5.0).contains(&self.latency_sigma) {
            return Err(("latency_ms", "is from 0 to 600000, latency_sigma from 0 to 5"));
        }
        let rates = [self.births_per_min, self.deaths_per_min];
        if rates.into_iter().flatten().any(|rate| !(0.0..=crate::config::RATE_MAX).contains(&rate)) {
            return Err(("births_per_min", "and deaths_per_min are from 0 to 60000"));
        }
        Ok(())
    }

    fn concerns(&self, endpoint: &str) -> bool {
        self.only.as_deref().is_none_or(|only| endpoint.starts_with(only))
    }

    /// What befalls the request with these dice.
    pub(crate) fn draw(&self, endpoint: &str, dice: &mut Dice) -> Fate {
        if !self.concerns(endpoint) {
            return Fate::default();
        }
        let latency = match self.latency_ms {
            0.0 => Duration::ZERO,
            median => {
                Duration::from_secs_f64(dice.log_normal(median, self.latency_sigma).min(3.6e6) / 1_000.0)
            }
        };
        let instead = [
            (self.hang, Instead::Hang),
            (self.reset, Instead::Reset),
            (self.banned, Instead::Banned),
            (self.forbidden, Instead::Forbidden),
            (self.refused, Instead::Refused),
            (self.server_error, Instead::ServerError),
            (self.redirect, Instead::Redirect),
            (self.html_200, Instead::Html200),
            (self.error_200, Instead::Error200),
            (self.gzip_bomb, Instead::GzipBomb),
        ];
        // Every die is thrown, whatever the ones before it showed: switching one fault on moves no other.
        let thrown = instead.map(|(share, instead)| (dice.hit(share), instead));
        let bodies = [
            (self.truncated, BodyFault::Truncated),
            (self.cut, BodyFault::Cut),
            (self.slow, BodyFault::Slow),
        ];
        let bodies = bodies.map(|(share, fault)| (dice.hit(share), fault));
        Fate {
            latency,
            instead: thrown.into_iter().find_map(|(hit, which)| hit.then_some(which)),
            body: bodies.into_iter().find_map(|(hit, which)| hit.then_some(which)),
            twist: Twist {
                wrong_hash: self.wrong_hash,
                missing: self.missing_tokens,
                empty_page: dice.hit(self.empty_page),
                stuck_cursor: dice.hit(self.stuck_cursor),
                dice: dice.clone(),
            },
        }
    }
}

/// What befalls one request.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    pub(crate) latency: Duration,
    pub(crate) instead: Option<Instead>,
    pub(crate) body: Option<BodyFault>,
    pub(crate) twist: Twist,
}

/// What comes instead of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instead {
    Hang,
    Reset,
    Banned,
    Forbidden,
    Refused,
    ServerError,
    Redirect,
    Html200,
    Error200,
    GzipBomb,
}

impl Instead {
    /// The switch's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Reset => "reset",
            Self::Banned => "banned",
            Self::Forbidden => "forbidden",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
            Self::Redirect => "redirect",
            Self::Html200 => "html_200",
            Self::Error200 => "error_200",
            Self::GzipBomb => "gzip_bomb",
        }
    }
}

/// What happens to the body on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    Truncated,
    Cut,
    Slow,
}

impl BodyFault {
    /// The switch's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Cut => "cut",
            Self::Slow => "slow",
        }
    }
}

/// What the venue itself gets wrong.
#[derive(Debug)]
pub(crate) struct Twist {
    pub(crate) wrong_hash: f64,
    pub(crate) missing: f64,
    pub(crate) empty_page: bool,
    pub(crate) stuck_cursor: bool,
    pub(crate) dice: Dice,
}

impl Default for Twist {
    fn default() -> Self {
        Self { wrong_hash: 0.0, missing: 0.0, empty_page: false, stuck_cursor: false, dice: Dice::at(&[]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_switched_on_moves_no_other() {
        let fates = |faults: &Faults| -> Vec<bool> {
            let fate = |n| faults.draw("clob/books", &mut Dice::at(&[1, n]));
            (0..500).map(|n| fate(n).instead == Some(Instead::ServerError)).collect()
        };
        let alone = Faults { server_error: 0.2, ..Faults::default() };
        let both = Faults { error_200: 0.5, ..alone.clone() };
        assert_eq!(fates(&alone), fates(&both));
        let hits = fates(&alone).iter().filter(|hit| **hit).count();
        assert!((70..130).contains(&hits), "{hits}");
    }

    #[test]
    fn a_fault_for_one_endpoint_leaves_the_others_alone() {
        let faults = Faults { hang: 1.0, only: Some("clob".into()), ..Faults::default() };
        let hangs = |endpoint| faults.draw(endpoint, &mut Dice::at(&[1])).instead.is_some();
        assert!(hangs("clob/books"));
        assert!(!hangs("gamma/markets"));
    }

    #[test]
    fn an_unknown_switch_and_a_share_beyond_one_are_refused() {
        let error = serde_json::from_str::<Faults>(r#"{"hangs":1}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `hangs`"), "{error}");
        let faults: Faults = serde_json::from_str(r#"{"hang":1.5}"#).unwrap();
        assert_eq!(faults.check(), Err(("hang", "is a share from 0 to 1")));
    }
}
