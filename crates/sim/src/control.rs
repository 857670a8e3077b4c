//! `/_sim/…`: figures, faults, the log and the journal, for those who do not hold the simulation in their hands.

use std::collections::BTreeMap;

use hyper::Method;

use crate::config::{SimError, check_faults};
use crate::faults::Faults;
use crate::server::House;
use crate::text::{Query, pair};
use crate::venue::Answer;
use crate::ws::fault::StreamFault;

impl House {
    pub(crate) fn control(&self, method: &Method, path: &str, query: Query<'_>, body: &[u8]) -> Answer {
        match (method.as_str(), path) {
            ("GET", "stats") => json(&self.stats()),
            ("GET", "requests") => Answer::text(200, self.requests.to_text()),
            ("GET", "faults") => {
                let now = self.now();
                let in_force = self.desks.iter().map(|desk| (desk.spec.id, Faults::clone(&desk.faults(now))));
                json(&in_force.collect::<BTreeMap<_, _>>())
            }
            ("POST", "faults") => said(self.set_faults_from(body).map(|()| r#"{"ok":true}"#.to_owned())),
            ("POST", "inject") => said(self.inject_from(body).map(|ids| format!(r#"{{"ids":{ids:?}}}"#))),
            ("GET", "log") => json(&self.floors().flat_map(|floor| floor.log()).collect::<Vec<_>>()),
            ("GET", "connections") => {
                json(&self.floors().map(|floor| (floor.id, floor.connections())).collect::<BTreeMap<_, _>>())
            }
            ("GET", "journal") => self.journal(query),
            _ => Answer::json(
                404,
                pair("error", "GET stats, requests, faults, log, connections, journal; POST faults, inject"),
            ),
        }
    }

    /// All or nothing: a mistake in one venue's faults changes none.
    fn set_faults_from(&self, body: &[u8]) -> Result<(), SimError> {
        let wrong = |error: serde_json::Error| SimError::config("faults", error.to_string());
        let wanted: BTreeMap<String, Faults> = serde_json::from_slice(body).map_err(wrong)?;
        for (venue, faults) in &wanted {
            self.desk(venue)?;
            check_faults(venue, faults)?;
        }
        wanted.into_iter().try_for_each(|(venue, faults)| self.set_faults(&venue, faults))
    }

    /// `{"binance":[{"fault":"gap","symbol":"BTCUSDT","channel":"book_delta","count":3}]}`: beside those in force.
    fn inject_from(&self, body: &[u8]) -> Result<Vec<u64>, SimError> {
        let wrong = |error: serde_json::Error| SimError::config("inject", error.to_string());
        let wanted: BTreeMap<String, Vec<StreamFault>> = serde_json::from_slice(body).map_err(wrong)?;
        let mut ids = Vec::new();
        for (venue, faults) in &wanted {
            for fault in faults {
                ids.push(self.inject(venue, fault)?);
            }
        }
        Ok(ids)
    }

    /// Counts of all venues; the frames of one stream if `venue`, `channel` and `symbol` name it.
    fn journal(&self, query: Query<'_>) -> Answer {
        let Some(venue) = query.get("venue") else {
            return json(&self.floors().map(|floor| (floor.id, floor.counts())).collect::<BTreeMap<_, _>>());
        };
        match (self.floor(&venue), query.get("channel"), query.get("symbol")) {
            (Ok(floor), Some(channel), Some(symbol)) => json(&floor.journal(&channel, &symbol)),
            (Ok(floor), _, _) => json(&floor.counts()),
            (Err(error), _, _) => Answer::json(404, pair("error", &error.to_string())),
        }
    }
}

fn said(result: Result<String, SimError>) -> Answer {
    match result {
        Ok(body) => Answer::json(200, body),
        Err(error) => Answer::json(400, pair("error", &error.to_string())),
    }
}

fn json(value: &impl serde::Serialize) -> Answer {
    Answer::json(200, serde_json::to_vec(value).expect("plain data"))
}
