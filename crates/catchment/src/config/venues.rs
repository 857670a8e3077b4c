//! `[venues.<id>]`: what is recorded, and how fast.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use catchment_venues::stream::Descriptor;
use catchment_venues::{Ability, Endpoints, VENUES, VenueSpec};
use serde::{Deserialize, Serialize};

use super::login::LoginToml;
use super::{ConfigError, between};

/// One venue, checked.
#[derive(Clone)]
pub(crate) struct VenueConfig {
    pub(crate) spec: &'static VenueSpec,
    pub(crate) endpoints: Endpoints,
    pub(crate) max_workers: usize,
    pub(crate) speed: Speed,
    pub(crate) poll_interval: Duration,
    pub(crate) books_per_request: usize,
    pub(crate) check_hashes: bool,
    /// For `bench poll`; not a key of the file.
    pub(crate) through_values: bool,
    /// Likewise: what the venue declares does not count.
    pub(crate) unlimited: bool,
    pub(crate) discover_interval: Duration,
}

/// How fast a venue is asked, whether it is polled or streamed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    pub(crate) max_inflight: u32,
    pub(crate) limiter: LimiterKind,
    pub(crate) limit_share: f64,
    pub(crate) deadline: Duration,
    pub(crate) cooldown: Duration,
    pub(crate) aimd: AimdToml,
}

impl std::fmt::Debug for VenueConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VenueConfig").field("id", &self.spec.id).finish_non_exhaustive()
    }
}

/// Which limiter learns what the venue allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimiterKind {
    Pace,
    Aimd,
}

/// `[venues.<id>]` as the user writes it. Present means enabled.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct VenueToml {
    endpoints: BTreeMap<String, String>,
    poll_interval_ms: u64,
    books_per_request: Option<u64>,
    check_hashes: bool,
    discover_interval_s: u64,
    limiter: LimiterKind,
    limit_share: f64,
    max_workers: u64,
    max_inflight: u64,
    request_deadline_ms: u64,
    cooldown_ms: u64,
    aimd: AimdToml,
    pub(super) login: LoginToml,
}

impl Default for VenueToml {
    fn default() -> Self {
        Self {
            endpoints: BTreeMap::new(),
            poll_interval_ms: 1_000,
            books_per_request: None,
            check_hashes: true,
            discover_interval_s: 300,
            limiter: LimiterKind::Pace,
            limit_share: 0.95,
            max_workers: 16,
            max_inflight: 32,
            request_deadline_ms: 10_000,
            cooldown_ms: 5_000,
            aimd: AimdToml::default(),
            login: LoginToml::default(),
        }
    }
}

/// `[venues.<id>.aimd]`: S0's settings, used with `limiter = "aimd"`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AimdToml {
    pub(crate) start_inflight: u32,
    pub(crate) stable_s: u64,
    pub(crate) adjust_s: u64,
    pub(crate) failure_share_max: f64,
    pub(crate) latency_low_ms: u64,
    pub(crate) latency_high_ms: u64,
}

impl Default for AimdToml {
    fn default() -> Self {
        Self {
            start_inflight: 2,
            stable_s: 30,
            adjust_s: 5,
            failure_share_max: 0.2,
            latency_low_ms: 800,
            latency_high_ms: 2_000,
        }
    }
}

impl VenueToml {
    /// The overrides that concern a described venue: all, unless it is polled too. Then names that nobody knows are told
    /// with the poller's.
    pub(super) fn endpoints_for(&self, descriptor: &Descriptor) -> Vec<(&str, &str)> {
        let is_polled = catchment_venues::find(descriptor.id()).is_some();
        let given = self.endpoints.iter().map(|(name, url)| (socket_name(name, descriptor), url.as_str()));
        given.filter(|(name, _)| descriptor.has_endpoint(name) || !is_polled).collect()
    }

    /// How fast the venue is asked.
    pub(super) fn speed(&self, id: &str) -> Result<Speed, ConfigError> {
        let key = |name: &str| format!("venues.{id}.{name}");
        let milliseconds =
            |name: &str, value, min, max| between(key(name), value, min, max).map(Duration::from_millis);
        if !(0.0..=1.0).contains(&self.limit_share) || self.limit_share < 0.01 {
            let problem = format!("is {}, expected 0.01 to 1", self.limit_share);
            return Err(ConfigError::at(key("limit_share"), problem));
        }
        Ok(Speed {
            max_inflight: between(key("max_inflight"), self.max_inflight, 1, 4_096)? as u32,
            limiter: self.limiter,
            limit_share: self.limit_share,
            deadline: milliseconds("request_deadline_ms", self.request_deadline_ms, 50, 300_000)?,
            cooldown: milliseconds("cooldown_ms", self.cooldown_ms, 100, 3_600_000)?,
            aimd: self.aimd,
        })
    }

    /// Of a venue that can only be streamed: that its settings make sense.
    pub(super) fn check_streamed(self, id: &str, streams: Option<&Descriptor>) -> Result<(), ConfigError> {
        self.speed(id)?;
        let overrides = streams.map(|streams| streams.endpoints(self.endpoints_for(streams)));
        overrides.transpose().map_err(|error| ConfigError::whole(error.to_string()))?;
        Ok(())
    }

    /// `streams` is the description by which the venue is streamed, if it has one.
    pub(super) fn check(self, id: &str, streams: Option<&Descriptor>) -> Result<VenueConfig, ConfigError> {
        let key = |name: &str| format!("venues.{id}.{name}");
        let Some(spec) = catchment_venues::find(id) else {
            let known = VENUES.iter().map(|spec| spec.id).collect::<Vec<_>>().join(", ");
            return Err(ConfigError::at(
                format!("venues.{id}"),
                format!("is not a venue we know; there is {known}"),
            ));
        };
        // What is streamed may have endpoints of its own; those are checked with it.
        let of_stream =
            |name: &str| streams.is_some_and(|streams| streams.has_endpoint(socket_name(name, streams)));
        let of_poll = |name: &str| spec.endpoints.iter().any(|endpoint| endpoint.name == name);
        if let Some(name) = self.endpoints.keys().find(|name| !of_poll(name) && !of_stream(name)) {
            let polled = spec.endpoints.iter().map(|endpoint| endpoint.name);
            let streamed = streams.into_iter().flat_map(Descriptor::default_endpoints).map(|(name, _)| name);
            let known: BTreeSet<&str> = polled.chain(streamed).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let problem = format!("does not exist; {id} has {known} (ws is another name for stream)");
            return Err(ConfigError::at(key(&format!("endpoints.{name}")), problem));
        }
        let given = self.endpoints.iter().map(|(name, url)| (name.as_str(), url.as_str()));
        let given = given.filter(|(name, _)| of_poll(name));
        let speed = self.speed(id)?;
        let endpoints = spec.endpoints(given).map_err(|error| ConfigError::whole(error.to_string()))?;
        let books_max = books_at_once(spec) as u64;
        let books = self.books_per_request.unwrap_or(books_max);
        let milliseconds =
            |name: &str, value, min, max| between(key(name), value, min, max).map(Duration::from_millis);
        Ok(VenueConfig {
            spec,
            endpoints,
            max_workers: between(key("max_workers"), self.max_workers, 1, 1_024)? as usize,
            speed,
            poll_interval: milliseconds("poll_interval_ms", self.poll_interval_ms, 50, 86_400_000)?,
            books_per_request: between(key("books_per_request"), books, 1, books_max)? as usize,
            check_hashes: self.check_hashes,
            through_values: false,
            unlimited: false,
            discover_interval: Duration::from_secs(between(
                key("discover_interval_s"),
                self.discover_interval_s,
                1,
                86_400,
            )?),
        })
    }
}

/// `ws` is what many call the socket that descriptions call `stream`.
fn socket_name<'n>(name: &'n str, descriptor: &Descriptor) -> &'n str {
    if name == "ws" && !descriptor.has_endpoint("ws") && descriptor.has_endpoint("stream") {
        return "stream";
    }
    name
}

/// How many books the venue gives in one answer.
pub(crate) fn books_at_once(spec: &VenueSpec) -> usize {
    let many = spec.abilities.iter().map(|ability| match ability {
        Ability::PollsMany(most) => *most,
        _ => 1,
    });
    many.max().unwrap_or(1)
}
