//! Which instruments there are, what joined and what left, and how that is recorded.
//!
//! A round that finds other instruments than the last one writes to the channel `markets`, for each that joined and each
//! that left, under its symbol, and then once for all of them under `*`:
//!
//! ```text
//! {"event":"joined","instrument":{"venue":"kalshi","poll_key":"KXRAIN-26","symbol":"KXRAIN-26",…}}
//! {"event":"left","instrument":{…}}
//! {"event":"changed","joined":1,"left":1,"instruments":812,"since_ms":1798761600000}
//! ```
//!
//! An instrument is known by its poll key. Its other traits may change without a word here; the snapshot has them as they
//! are. Who reads the channel from its beginning and adds and removes has the membership at any time. `since_ms` is when the
//! snapshot before was written; where it is null there was none, and `joined` is all there is.

use std::collections::BTreeMap;

use catchment_model::{Channel, Envelope, Instrument, Payload, Source, Symbol, UnixMs, UnixNs, Venue};
use catchment_pipeline::{AcceptError, Intake};
use serde::Serialize;

/// Instruments by their poll key.
pub(crate) type Members = BTreeMap<String, Instrument>;

/// Those of a listing, in the order of their keys.
pub(crate) fn members(instruments: Vec<Instrument>) -> Members {
    instruments.into_iter().map(|instrument| (instrument.poll_key.clone(), instrument)).collect()
}

/// How two memberships differ.
pub(crate) struct Change<'a> {
    pub(crate) joined: Vec<&'a Instrument>,
    pub(crate) left: Vec<&'a Instrument>,
    instruments: usize,
}

impl<'a> Change<'a> {
    pub(crate) fn between(before: &'a Members, now: &'a Members) -> Self {
        let beyond = |some: &'a Members, others: &Members| -> Vec<&'a Instrument> {
            some.iter()
                .filter(|(key, _)| !others.contains_key(*key))
                .map(|(_, instrument)| instrument)
                .collect()
        };
        Self { joined: beyond(now, before), left: beyond(before, now), instruments: now.len() }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.joined.is_empty() && self.left.is_empty()
    }

    /// How many left although their time is not over.
    pub(crate) fn lost(&self, now: UnixMs) -> usize {
        self.left.iter().filter(|instrument| instrument.expiry.is_none_or(|expiry| expiry > now)).count()
    }

    /// Writes the change and waits until it is durable.
    pub(crate) async fn record(
        &self,
        intake: &Intake,
        venue: Venue,
        at: UnixNs,
        since: Option<UnixMs>,
    ) -> Result<(), AcceptError> {
        let joined = self.joined.iter().map(|instrument| Event::Joined { instrument });
        let left = self.left.iter().map(|instrument| Event::Left { instrument });
        let whole = Event::Changed {
            joined: self.joined.len(),
            left: self.left.len(),
            instruments: self.instruments,
            since_ms: since,
        };
        let mut draft = intake.draft();
        for event in joined.chain(left).chain([whole]) {
            let payload = serde_json::to_vec(&event).expect("texts and numbers always serialise");
            let envelope = Envelope {
                message_id: None,
                sequence: None,
                exchange: venue,
                channel: Channel::new("markets").expect("a fixed, plain name"),
                symbol: event.symbol(),
                server_time: None,
                received_at: at,
                payload: Payload::already_validated(&payload).expect("JSON is written on one line"),
                source: Source::new("discover").expect("a fixed, plain name"),
            };
            draft.push(&envelope).expect("an instrument is much shorter than the longest record");
            if draft.is_full() {
                intake.accept(std::mem::replace(&mut draft, intake.draft())).await?;
            }
        }
        intake.accept(draft).await?;
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Joined { instrument: &'a Instrument },
    Left { instrument: &'a Instrument },
    Changed { joined: usize, left: usize, instruments: usize, since_ms: Option<UnixMs> },
}

impl Event<'_> {
    fn symbol(&self) -> Symbol<'_> {
        match self {
            // A name that cannot be a symbol is in the payload all the same.
            Self::Joined { instrument } | Self::Left { instrument } => {
                Symbol::new(&instrument.symbol).unwrap_or(Symbol::ALL)
            }
            Self::Changed { .. } => Symbol::ALL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &str) -> Members {
        let instrument = |text: &str| {
            let (key, expiry) = text.split_once('@').map_or((text, None), |(key, at)| (key, at.parse().ok()));
            Instrument {
                venue: Venue::new("kalshi").unwrap(),
                poll_key: key.to_owned(),
                symbol: key.to_owned(),
                market_id: key.to_owned(),
                slug: None,
                outcome: None,
                expiry: expiry.and_then(|ms| UnixMs::new(ms).ok()),
                tick_size: None,
                min_order_size: None,
            }
        };
        members(keys.split_ascii_whitespace().map(instrument).collect())
    }

    fn check(before: &str, now: &str, joined: &str, left: &str, lost_at_100: usize) {
        let (before, now) = (all(before), all(now));
        let change = Change::between(&before, &now);
        let keys = |some: &[&Instrument]| {
            some.iter().map(|instrument| instrument.poll_key.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((keys(&change.joined), keys(&change.left)), (joined.to_owned(), left.to_owned()));
        assert_eq!(change.lost(UnixMs::new(100).unwrap()), lost_at_100);
        assert_eq!(change.is_none(), joined.is_empty() && left.is_empty());
    }

    #[test]
    fn what_joined_what_left_and_what_should_not_have() {
        check("", "", "", "", 0);
        check("", "b a", "a b", "", 0);
        check("a b", "b c", "c", "a", 1);
        check("a@99 b@101 c", "", "", "a b c", 2);
        // Another expiry is the same instrument.
        check("a@99 b", "b a@200", "", "", 0);
    }
}
