//! What a venue is, as data. Help, API, dashboard and simulator read it; nothing else matches on venue names.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use catchment_model::Venue;

use crate::{Discovers, Polls, Reading};

/// All there is to know of a venue before the first request.
pub struct VenueSpec {
    /// Its name in configuration, records and folders.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Where its own documentation is.
    pub docs: &'static str,
    /// Where it can be reached; each can be overridden.
    pub endpoints: &'static [Endpoint],
    /// What the venue says it allows. A family without a line has only the limits of its parents, or learned ones.
    pub limits: &'static [Limit],
    /// How to begin before anything is learned.
    pub start: Start,
    /// What it can do.
    pub abilities: &'static [Ability],
    /// Makes the adapter.
    pub open: fn(&Endpoints) -> Opened,
    /// What a status and a body mean, in answer to a request of this family. Asked before anything else is read.
    pub read_status: fn(family: &str, status: u16, body: &[u8]) -> Reading,
}

impl VenueSpec {
    /// The venue's name as a type.
    pub fn venue(&self) -> Venue {
        Venue::new(self.id).expect("the names in the table are tested")
    }

    /// The endpoints with what the configuration overrides. A name the venue does not have is an error.
    pub fn endpoints<'a>(
        &self,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Endpoints, EndpointsError> {
        let known = self.endpoints.iter().map(|endpoint| (endpoint.name, endpoint.url.to_owned())).collect();
        Endpoints::overridden(self.id, known, overrides)
    }
}

/// A base address and its name in `[venues.<id>.endpoints]`.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// The key.
    pub name: &'static str,
    /// The address, without a slash at the end.
    pub url: &'static str,
}

/// The addresses that an adapter uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(BTreeMap<&'static str, String>);

impl Endpoints {
    /// Those known, with what the configuration says instead.
    pub(crate) fn overridden<'a>(
        venue: &'static str,
        mut urls: BTreeMap<&'static str, String>,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, EndpointsError> {
        for (name, url) in overrides {
            let Some(place) = urls.get_mut(name) else {
                let known = urls.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(EndpointsError::Unknown { venue, name: name.to_owned(), known });
            };
            let has_scheme = ["http://", "https://", "ws://", "wss://"].iter().any(|s| url.starts_with(s));
            if !has_scheme || url.contains(['?', '#', ' ']) {
                return Err(EndpointsError::Url { venue, name: name.to_owned(), url: without_secrets(url) });
            }
            url.trim_end_matches('/').clone_into(place);
        }
        Ok(Endpoints(urls))
    }

    /// The address of that name.
    pub fn url(&self, name: &str) -> &str {
        self.0.get(name).expect("an adapter asks for the endpoints of its own spec")
    }

    /// Whether all of them are servers on this machine.
    pub fn are_local(&self) -> bool {
        self.0.values().all(|url| {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let host = rest.split('/').next().unwrap_or_default();
            let address = host.parse::<SocketAddr>().map(|address| address.ip());
            address.or_else(|_| host.parse::<IpAddr>()).is_ok_and(|ip| ip.is_loopback())
        })
    }
}

/// An address for people: without its query and without the user before the host, either of which may be a key.
fn without_secrets(url: &str) -> String {
    let (shown, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let rest = if query.len() > 1 { format!("{}…", &query[..1]) } else { query.to_owned() };
    match (shown.find("://"), shown.rfind('@')) {
        (Some(scheme), Some(user)) => format!("{}…{}{rest}", &shown[..scheme + 3], &shown[user..]),
        _ => format!("{shown}{rest}"),
    }
}

/// Why an override was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointsError {
    /// No such endpoint.
    #[error("venues.{venue}.endpoints.{name} does not exist; {venue} has {known}")]
    Unknown {
        /// Whose.
        venue: &'static str,
        /// As given.
        name: String,
        /// What there is.
        known: String,
    },
    /// Not the beginning of an address.
    #[error("venues.{venue}.endpoints.{name}: {url:?} is not a base address such as https://api.example")]
    Url {
        /// Whose.
        venue: &'static str,
        /// As given.
        name: String,
        /// As given, without what may be secret.
        url: String,
    },
}

/// What a venue says it allows: in every interval of `window`, requests of this family, and of those below it, cost at
/// most `budget` together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Its name, which requests refer to.
    pub family: &'static str,
    /// The wider limit that it also counts against.
    pub parent: Option<&'static str>,
    /// How much may be spent.
    pub budget: u32,
    /// How long the interval is.
    pub window: Duration,
    /// What one request costs, where it does not say otherwise.
    pub cost: u32,
}

impl Limit {
    /// So many requests in so many seconds.
    pub(crate) const fn requests(
        family: &'static str,
        parent: Option<&'static str>,
        budget: u32,
        seconds: u64,
    ) -> Self {
        Self { family, parent, budget, window: Duration::from_secs(seconds), cost: 1 }
    }
}

/// How to begin, before anything is learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// How many requests at once.
    pub inflight: u32,
    /// How long between two of them.
    pub spacing: Duration,
}

/// What a venue's adapter can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Lists its instruments.
    Discovers,
    /// Gives a book for one instrument a request.
    PollsOne,
    /// Gives books for up to so many instruments a request.
    PollsMany(usize),
}

/// An adapter, by ability.
#[derive(Clone)]
pub struct Opened {
    /// Lists instruments.
    pub discovers: Option<Arc<dyn Discovers>>,
    /// Reads books.
    pub polls: Option<Arc<dyn Polls>>,
}
