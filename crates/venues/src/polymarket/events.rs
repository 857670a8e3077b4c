//! Gamma's events, as they are: by offset (S3's way, for servers that allow it) or by keyset.
//!
//! ```text
//! GET /events?ascending=true&limit=500&offset=12500        [{"id":"…",…},…]
//! GET /events/keyset?closed=false&limit=500&after_cursor=… {"events":[…],"next_cursor":"…"}
//! ```
//!
//! The server gives at most 100 however many are asked for, so a short page is not the end: by offset, the end is an empty
//! page; by keyset, a page without `next_cursor`. Offsets above 2,000 are refused. `closed` defaults to `false`, so the whole
//! is two passes.
//!
//! A walk by keyset is one request after the other. Its filters `start_date_min` and `start_date_max` cut it into [`Span`]s
//! that can be walked side by side. Whether the edges themselves are in is nowhere said, so a second more is asked for, and
//! what belongs to the neighbour is left to it.

use std::borrow::Cow;

use catchment_model::{UnixNs, UtcDate};
use serde_json::value::RawValue;

use crate::request::encoded;
use crate::wire::{self, Members};
use crate::{ReadError, Request};

const FAMILY: &str = "events";

/// Asks for `limit` events from `offset` on, oldest first.
pub fn by_offset(base: &str, offset: u64, limit: u32) -> Request {
    Request::get(format!("{base}/events?ascending=true&limit={limit}&offset={offset}"), FAMILY)
}

/// Which events a walk by keyset goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// All of them.
    All,
    /// Those that say no start date. No filter finds them; they are at one end of the order by start date.
    Undated {
        /// Which end: the beginning of the ascending order, or of the descending one.
        ascending: bool,
    },
    /// Those that start on one of these days.
    Dates {
        /// From this one on.
        from: Option<UtcDate>,
        /// Before this one.
        to: Option<UtcDate>,
    },
}

impl Span {
    /// Whether the event is one of them. Days are UTC's, and a start date begins with its day.
    pub fn takes(self, event: &Event<'_>) -> bool {
        let day =
            event.start_date.as_deref().and_then(|date| date.get(..10)).and_then(|day| day.parse().ok());
        match self {
            Self::All => true,
            Self::Undated { .. } => day.is_none(),
            Self::Dates { from, to } => day.is_some_and(|day: UtcDate| {
                from.is_none_or(|from| day >= from) && to.is_none_or(|to| day < to)
            }),
        }
    }
}

/// Asks for the events after a cursor, or for the first ones.
pub fn by_keyset(base: &str, closed: bool, span: Span, limit: u32, after: Option<&str>) -> Request {
    let ascending = !matches!(span, Span::Undated { ascending: false });
    let mut url = format!("{base}/events/keyset?ascending={ascending}&closed={closed}&limit={limit}");
    match span {
        Span::All => {}
        Span::Undated { .. } => url.push_str("&order=startDate"),
        Span::Dates { from, to } => {
            let before = |day: UtcDate| UnixNs::from_ms(day.start().get().saturating_sub(1_000)).ok();
            if let Some(eve) = from.and_then(before) {
                url.push_str(&format!("&start_date_min={}T23:59:59Z", eve.date()));
            }
            if let Some(day) = to {
                url.push_str(&format!("&start_date_max={day}T00:00:00Z"));
            }
        }
    }
    if let Some(cursor) = after {
        url.push_str("&after_cursor=");
        url.push_str(&encoded(cursor));
    }
    Request::get(url, FAMILY)
}

/// What an answer held, in the order of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage<'a> {
    /// The events.
    pub events: Vec<Event<'a>>,
    /// Where the next page begins; by keyset only.
    pub next_cursor: Option<String>,
}

/// An event, unread but for its id and its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its id: the same in every page it comes in.
    pub id: Cow<'a, str>,
    /// When it starts, as sent; not every one says it.
    pub start_date: Option<Cow<'a, str>>,
    /// The event as sent.
    pub raw: &'a str,
}

/// Reads the answer to either question.
pub fn read_events(body: &[u8]) -> Result<EventPage<'_>, ReadError> {
    if body.trim_ascii_start().first() == Some(&b'[') {
        let rows: &RawValue =
            serde_json::from_slice(body).map_err(|error| ReadError::not_json(body, error))?;
        return Ok(EventPage { events: events(rows)?, next_cursor: None });
    }
    let answer = wire::object(body)?;
    let rows = answer.get("events").ok_or_else(|| wire::unexpected(&answer, "there are no events"))?;
    let next_cursor = answer.text("next_cursor").filter(|cursor| !cursor.is_empty());
    Ok(EventPage { events: events(rows)?, next_cursor: next_cursor.map(Into::into) })
}

fn events(rows: &RawValue) -> Result<Vec<Event<'_>>, ReadError> {
    wire::array(rows, "events")?.into_iter().map(read_event).collect()
}

fn read_event(raw: &RawValue) -> Result<Event<'_>, ReadError> {
    let members: Members<'_> =
        serde_json::from_str(raw.get()).map_err(|error| ReadError::Shape(format!("an event: {error}")))?;
    let id = members.required("id").map_err(|error| ReadError::Shape(format!("an event's {error}")))?;
    Ok(Event { id, start_date: members.text("startDate"), raw: raw.get() })
}

impl Event<'_> {
    /// Appends the event as one line. Line breaks between its tokens become spaces; every other byte stays.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        wire::push_on_one_line(self.raw.as_bytes(), out);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_asking_are_spelled_as_the_venue_wants_them() {
        assert_eq!(
            by_offset("http://g", 12_500, 500).url,
            "http://g/events?ascending=true&limit=500&offset=12500"
        );
        let first = by_keyset("http://g", false, Span::All, 100, None).url;
        assert_eq!(first, "http://g/events/keyset?ascending=true&closed=false&limit=100");
        let next = by_keyset("http://g", true, Span::All, 100, Some("a+/=&b"));
        assert!(next.url.ends_with("closed=true&limit=100&after_cursor=a%2B%2F%3D%26b"), "{}", next.url);
        assert_eq!(next.family, "events");
    }

    #[test]
    fn a_walk_can_be_cut_by_start_date_and_every_event_is_of_one_part() {
        let day = |text: &str| Some(text.parse::<UtcDate>().unwrap());
        let part = |from, to| Span::Dates { from, to };
        let parts = [
            Span::Undated { ascending: false },
            part(None, day("2024-03-01")),
            part(day("2024-03-01"), day("2024-03-08")),
            part(day("2024-03-08"), None),
        ];
        let asked = parts.map(|span| by_keyset("g", true, span, 9, None).url.replace("g/events/keyset?", ""));
        assert_eq!(
            asked,
            [
                "ascending=false&closed=true&limit=9&order=startDate",
                "ascending=true&closed=true&limit=9&start_date_max=2024-03-01T00:00:00Z",
                "ascending=true&closed=true&limit=9&start_date_min=2024-02-29T23:59:59Z&start_date_max=2024-03-08T00:00:00Z",
                "ascending=true&closed=true&limit=9&start_date_min=2024-03-07T23:59:59Z",
            ]
        );
        let of = |start: &str| {
            let body = format!(r#"[{{"id":"1"{start}}}]"#);
            let page = read_events(body.as_bytes()).unwrap();
            parts.map(|span| span.takes(&page.events[0]))
        };
        assert_eq!(of(""), [true, false, false, false]);
        assert_eq!(of(r#","startDate":null"#), [true, false, false, false]);
        assert_eq!(of(r#","startDate":"2020-10-02T16:10:01.467Z""#), [false, true, false, false]);
        assert_eq!(of(r#","startDate":"2024-02-29T23:59:59.999999Z""#), [false, true, false, false]);
        assert_eq!(of(r#","startDate":"2024-03-01T00:00:00Z""#), [false, false, true, false]);
        assert_eq!(of(r#","startDate":"2024-03-08 00:00:00+00""#), [false, false, false, true]);
    }

    #[test]
    fn an_event_is_kept_as_it_was_sent() {
        let body = b" [{\"id\":\"1\",\"price\":0.5699998232997013},\n{\"id\":2,\n\"title\":\"a\\nb\"}]";
        let page = read_events(body).unwrap();
        let mut lines = Vec::new();
        page.events.iter().for_each(|event| event.write_line(&mut lines));
        assert_eq!(lines, b"{\"id\":\"1\",\"price\":0.5699998232997013}\n{\"id\":2, \"title\":\"a\\nb\"}\n");
        assert_eq!(page.events.iter().map(|event| &*event.id).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(page.next_cursor, None);
    }

    #[test]
    fn a_keyset_page_says_where_the_next_begins_or_that_it_is_the_last() {
        let page = read_events(br#"{"$schema":"x","events":[{"id":"7"}],"next_cursor":"c2"}"#).unwrap();
        assert_eq!((page.events.len(), page.next_cursor.as_deref()), (1, Some("c2")));
        assert_eq!(read_events(br#"{"events":[]}"#).unwrap().next_cursor, None);
    }

    #[test]
    fn what_is_not_a_page_of_events_is_an_error() {
        let error = |body: &str| read_events(body.as_bytes()).unwrap_err().to_string();
        let refused = r#"{"type":"validation error","error":"offset too large, use /markets/keyset for deeper pagination"}"#;
        assert!(error(refused).starts_with("the venue says: offset too large"), "{}", error(refused));
        assert!(error("<html>").contains("HTML"));
        assert!(error("[{\"id\":\"1\"}").contains("cut off"));
        assert!(error("[{\"slug\":\"x\"}]").contains("an event's id is missing"));
        assert!(error("[1]").contains("an event"));
        assert!(error("{\"events\":{}}").contains("events is not an array"));
    }
}
