//! A log of requests: when each came, from where, and for what. Off unless `request_log` says how many are kept.
//!
//! `GET /_sim/requests` gives a line a request: microseconds since the start, the client's address, the endpoint.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Mutex;

use catchment_model::Monotonic;

/// The newest requests, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    max: usize,
    rows: Mutex<VecDeque<(Monotonic, IpAddr, &'static str)>>,
}

impl RequestLog {
    /// Keeps so many.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, rows: Mutex::default() }
    }

    pub(crate) fn note(&self, at: Monotonic, client: IpAddr, endpoint: &'static str) {
        if self.max == 0 {
            return;
        }
        let mut rows = self.rows.lock().expect("no holder of this lock can panic");
        if rows.len() == self.max {
            rows.pop_front();
        }
        // Who came a little earlier may be noted a little later.
        let place = rows.iter().rposition(|(other, ..)| *other <= at).map_or(0, |before| before + 1);
        rows.insert(place, (at, client, endpoint));
    }

    pub(crate) fn to_text(&self) -> String {
        let rows = self.rows.lock().expect("no holder of this lock can panic");
        let mut text = String::with_capacity(rows.len() * 40);
        for (at, client, endpoint) in rows.iter() {
            let _ = writeln!(text, "{} {client} {endpoint}", at.0.as_micros());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_newest_are_kept_and_none_if_it_is_off() {
        let (log, off) = (RequestLog::new(2), RequestLog::default());
        for us in 1..=3 {
            for log in [&log, &off] {
                log.note(Monotonic(Duration::from_micros(us)), IpAddr::from([127, 0, 0, 2]), "clob/books");
            }
        }
        assert_eq!(log.to_text(), "2 127.0.0.2 clob/books\n3 127.0.0.2 clob/books\n");
        assert_eq!(off.to_text(), "");
    }

    #[test]
    fn they_stand_in_the_order_in_which_they_came() {
        let log = RequestLog::new(4);
        for us in [20, 10, 30, 20] {
            log.note(Monotonic(Duration::from_micros(us)), IpAddr::from([127, 0, 0, us as u8]), "time");
        }
        let said = log.to_text();
        assert_eq!(said, "10 127.0.0.10 time\n20 127.0.0.20 time\n20 127.0.0.20 time\n30 127.0.0.30 time\n");
    }
}
