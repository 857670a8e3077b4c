//! Polymarket's rule: no numbers, but a hash that only the last message of a step meets.

use catchment_venues::ladder::{Checked, Digest, Ignored, Outcome, Side};
use catchment_venues::polymarket::{BookHash, HashInput, book_hash};

use super::{Ladder, LadderState, ladder};

const MARKET: &str = "0xabc";

/// The book as the venue has it, best last on both sides.
#[derive(Clone)]
struct Venue {
    bids: Vec<(&'static str, &'static str)>,
    asks: Vec<(&'static str, &'static str)>,
    tick: &'static str,
    last: &'static str,
}

impl Venue {
    fn new() -> Self {
        let bids = vec![("0.45", "10"), ("0.46", "20")];
        Self { bids, asks: vec![("0.5", "7"), ("0.48", "5.5")], tick: "0.01", last: "0.470" }
    }

    fn hash(&self, time: &str) -> BookHash {
        book_hash(&HashInput {
            market: MARKET,
            asset_id: "7",
            timestamp: time,
            bids: &self.bids,
            asks: &self.asks,
            min_order_size: "5",
            tick_size: self.tick,
            neg_risk: true,
            last_trade_price: self.last,
        })
    }

    /// A book; the first one of a subscription has the tick and the last price.
    fn book(&self, time: &str, first: bool) -> String {
        let side = |levels: &[(&str, &str)]| {
            let levels = levels.iter().map(|(p, s)| format!("{{\"price\":\"{p}\",\"size\":\"{s}\"}}"));
            levels.collect::<Vec<_>>().join(",")
        };
        let terms = match first {
            true => format!("\"tick_size\":\"{}\",\"last_trade_price\":\"{}\",", self.tick, self.last),
            false => String::new(),
        };
        format!(
            "{{\"market\":\"{MARKET}\",\"asset_id\":\"7\",\"bids\":[{}],\"asks\":[{}],{terms}\"hash\":\"{}\",\
             \"timestamp\":\"{time}\",\"event_type\":\"book\"}}",
            side(&self.bids),
            side(&self.asks),
            self.hash(time)
        )
    }

    /// A message with changes of a step whose end is this book: `(side, price, size)` each.
    fn changes(&self, time: &str, changes: &[(&str, &str, &str)]) -> String {
        let changes = changes.iter().map(|(side, price, size)| {
            format!(
                "{{\"asset_id\":\"8\",\"price\":\"0.9\",\"size\":\"1\",\"side\":\"BUY\",\"hash\":\"{}\"}},\
                 {{\"asset_id\":\"7\",\"price\":\"{price}\",\"size\":\"{size}\",\"side\":\"{side}\",\
                 \"hash\":\"{}\"}}",
                "0".repeat(40),
                self.hash(time)
            )
        });
        format!(
            "{{\"market\":\"{MARKET}\",\"price_changes\":[{}],\"timestamp\":\"{time}\",\
             \"event_type\":\"price_change\"}}",
            changes.collect::<Vec<_>>().join(",")
        )
    }
}

fn live(venue: &Venue) -> Ladder {
    let mut ladder = ladder("polymarket", "7");
    let verdict = ladder.message(venue.book("1", true).as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::Agrees));
    ladder
}

#[test]
fn a_step_over_several_messages_is_met_by_its_last() {
    let mut venue = Venue::new();
    let mut ladder = live(&venue);
    venue.bids = vec![("0.44", "3"), ("0.46", "25")];
    for (changes, checked) in [
        (&[("BUY", "0.44", "3")][..], Checked::Pending),
        (&[("BUY", "0.45", "0"), ("BUY", "0.46", "21")], Checked::Pending),
        (&[("BUY", "0.46", "25")], Checked::Agrees),
    ] {
        let verdict = ladder.message(venue.changes("2", changes).as_bytes());
        assert_eq!((verdict.outcome, verdict.checked), (Outcome::Applied, checked));
    }
    assert_eq!(ladder.settle(), None);
    assert_eq!(ladder.best(Side::Bid).unwrap().size, "25");

    // The next step loses its last message: noticed when another step begins, or when somebody says it is over.
    for settle in [false, true] {
        let mut ladder = live(&venue);
        let mut after = venue.clone();
        after.asks = vec![("0.5", "9"), ("0.48", "1")];
        let verdict = ladder.message(after.changes("3", &[("SELL", "0.5", "9")]).as_bytes());
        assert_eq!(verdict.checked, Checked::Pending);
        let verdict = match settle {
            true => ladder.settle().unwrap(),
            false => ladder.message(after.changes("4", &[("SELL", "0.5", "8")]).as_bytes()),
        };
        let Outcome::Mismatch { expected, .. } = verdict.outcome else { panic!("{verdict:?}") };
        assert_eq!(expected, Digest::Sha1(after.hash("3")));
        assert_eq!((ladder.state(), ladder.is_empty()), (LadderState::Broken, true));
        let none = ladder.message(after.changes("5", &[("SELL", "0.5", "8")]).as_bytes());
        assert_eq!(none.outcome, Outcome::Ignored(Ignored::NoBook));
        assert_eq!(ladder.message(after.book("6", true).as_bytes()).checked, Checked::Agrees);
    }
}

#[test]
fn a_trade_moves_the_last_price_before_the_stream_says_so() {
    let mut venue = Venue::new();
    let mut ladder = live(&venue);
    // Somebody buys 2 at 0.48; the last price is in the hash at once, and no message has told it.
    venue.asks[1] = ("0.48", "3.5");
    venue.last = "0.480";
    let verdict = ladder.message(venue.changes("2", &[("SELL", "0.48", "3.5")]).as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Applied, Checked::Pending));
    let verdict = ladder.message(venue.book("2", false).as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::Agrees));
    // Or the trade was the sibling's: the price is one minus ours, and no book follows.
    venue.asks[1] = ("0.48", "3");
    venue.last = "0.520";
    let verdict = ladder.message(venue.changes("3", &[("SELL", "0.48", "3")]).as_bytes());
    assert_eq!(verdict.checked, Checked::Pending);
    venue.asks[1] = ("0.48", "4");
    let verdict = ladder.message(venue.changes("4", &[("SELL", "0.48", "4")]).as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Applied, Checked::Agrees));
    // Or the hash has the new price only from the next step on.
    venue.asks[0] = ("0.5", "6");
    let verdict = ladder.message(venue.changes("41", &[("SELL", "0.5", "6")]).as_bytes());
    assert_eq!(verdict.checked, Checked::Agrees);
    venue.last = "0.500";
    venue.bids[0] = ("0.45", "12");
    let verdict = ladder.message(venue.changes("42", &[("BUY", "0.45", "12")]).as_bytes());
    assert_eq!(verdict.checked, Checked::Pending);
    venue.bids[0] = ("0.45", "13");
    let verdict = ladder.message(venue.changes("43", &[("BUY", "0.45", "13")]).as_bytes());
    assert_eq!(verdict.checked, Checked::Agrees);
    // Or the stream says it, for this market and not for another.
    let told = |market: &str| {
        format!(
            "{{\"market\":\"{market}\",\"asset_id\":\"8\",\"price\":\"0.3\",\"size\":\"1\",\
             \"event_type\":\"last_trade_price\"}}"
        )
    };
    assert_eq!(ladder.message(told(MARKET).as_bytes()).outcome, Outcome::Ignored(Ignored::TermsNoted));
    let _ = ladder.message(told("0xother").replace("0.3", "0.9").as_bytes());
    venue.last = "0.300";
    venue.bids[0] = ("0.45", "11");
    let verdict = ladder.message(venue.changes("5", &[("BUY", "0.45", "11")]).as_bytes());
    assert_eq!(verdict.checked, Checked::Agrees);
}

#[test]
fn a_new_tick_is_a_new_epoch_and_enters_the_hash() {
    let mut venue = Venue::new();
    let mut ladder = live(&venue);
    let change = "{\"market\":\"0xabc\",\"asset_id\":\"7\",\"old_tick_size\":\"0.01\",\"new_tick_size\":\"0.001\",\
                  \"event_type\":\"tick_size_change\"}";
    let other = ladder.message(change.replace("\"7\"", "\"8\"").as_bytes());
    assert_eq!((other.outcome, ladder.epoch()), (Outcome::Ignored(Ignored::OtherInstrument), 0));
    assert_eq!(ladder.message(change.as_bytes()).outcome, Outcome::NewEpoch);
    assert_eq!((ladder.epoch(), ladder.len(Side::Bid)), (1, 2));
    venue.tick = "0.001";
    venue.bids.push(("0.461", "4"));
    let verdict = ladder.message(venue.changes("2", &[("BUY", "0.461", "4")]).as_bytes());
    assert_eq!(verdict.checked, Checked::Agrees);
}

#[test]
fn a_hash_that_never_agreed_accuses_nobody() {
    let venue = Venue::new();
    let mut ladder = ladder("polymarket", "7");
    let lie = venue.book("1", true).replace(venue.hash("1").as_str(), &"a".repeat(40));
    let verdict = ladder.message(lie.as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::None));
    for time in ["2", "3"] {
        let verdict = ladder.message(venue.changes(time, &[("BUY", "0.2", time)]).as_bytes());
        assert_eq!((verdict.outcome, verdict.checked), (Outcome::Applied, Checked::None));
    }
    // After one that agreed it does; but a whole book that says all its terms only takes the hash's word away.
    let mut ladder = live(&venue);
    assert_eq!(ladder.message(lie.as_bytes()).checked, Checked::Differs);
    assert_eq!(ladder.state(), LadderState::Live);
    let verdict = ladder.message(venue.changes("3", &[("BUY", "0.2", "1")]).as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Applied, Checked::None));
}
