//! What a simulated venue provides. The rest (sockets, limits, faults, figures) is the same for all.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use catchment_model::Clock;
use hyper::Method;
use hyper::header::{HeaderName, HeaderValue};

use crate::config::SimConfig;
use crate::faults::{Faults, Twist};
use crate::limit::LimitRule;
use crate::text::Query;
use crate::ws::floor::Floor;

/// A venue's line in the table.
#[derive(Debug)]
pub struct VenueSpec {
    /// Its name, and the first part of its paths.
    pub id: &'static str,
    /// Its APIs, as paths below the server's address.
    pub apis: &'static [&'static str],
    /// Where its streams are, likewise.
    pub sockets: &'static [&'static str],
    /// The key below its own that says how many markets it has.
    pub(crate) size_key: &'static str,
    pub(crate) open: fn(&SimConfig, &Arc<dyn Clock>) -> Opened,
}

/// A venue, ready to be asked.
pub(crate) struct Opened {
    pub(crate) venue: Box<dyn Venue>,
    pub(crate) limits: Vec<LimitRule>,
    pub(crate) faults: Faults,
    /// Its streams, if it has any.
    pub(crate) floor: Option<Arc<Floor>>,
}

pub(crate) trait Venue: Send + Sync {
    /// The name of what is asked (`clob/books`), for limits, faults and figures; from a small set.
    fn endpoint(&self, method: &Method, path: &str) -> &'static str;

    /// The answer when nothing goes wrong on the way.
    fn answer(&self, ask: &mut Ask<'_>) -> Answer;

    /// 429 as this venue says it.
    fn refusal(&self) -> Answer;

    /// What a client with this User-Agent gets instead of any answer, if it is turned away.
    fn turn_away(&self, user_agent: &str) -> Option<Answer>;

    /// Markets appear and end at these rates from now on; `None` for the configured ones.
    fn set_rates(&self, now_ms: i64, births_per_min: Option<f64>, deaths_per_min: Option<f64>);
}

/// A request.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    /// Below the venue's own part: `clob/books`.
    pub(crate) path: &'a str,
    pub(crate) query: Query<'a>,
    pub(crate) body: &'a [u8],
    pub(crate) client: IpAddr,
    pub(crate) now_ms: i64,
    pub(crate) twist: Twist,
}

/// What is sent back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Books in it.
    pub(crate) books: u64,
}

impl Answer {
    pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "application/json", body: body.into(), headers: Vec::new(), books: 0 }
    }

    pub(crate) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self { content_type: "text/plain; charset=utf-8", ..Self::json(status, body) }
    }

    pub(crate) fn html(status: u16, title: &str) -> Self {
        let page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><title>{title}</title></head>\n\
             <body><h1>{title}</h1><p>Ray ID: 0000000000000000</p></body></html>\n"
        );
        Self { content_type: "text/html; charset=UTF-8", ..Self::json(status, page) }
    }

    pub(crate) fn books(self, books: u64) -> Self {
        Self { books, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }
}

/// The names that libraries give themselves when their user gives none.
pub(crate) fn is_default_user_agent(user_agent: &str) -> bool {
    let libraries = ["Python-urllib/", "python-requests/", "Go-http-client/", "Java/", "libwww-perl/"];
    user_agent.is_empty() || libraries.iter().any(|name| user_agent.starts_with(name))
}
