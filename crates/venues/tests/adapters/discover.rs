use catchment_model::{Instrument, Snapshot, UnixMs};
use catchment_venues::{InstrumentPage, ReadError, Walk};

use crate::{fixture, open};

fn walk(venue: &str) -> Box<dyn Walk> {
    open(venue).discovers.unwrap().walk()
}

/// Walks over these pages and expects that to be all of them.
fn walked(venue: &str, pages: &[&str]) -> Vec<InstrumentPage> {
    let mut walk = walk(venue);
    let read = pages.iter().map(|page| {
        assert!(walk.next_request().is_some(), "it ended early");
        walk.read(fixture(page).as_bytes()).unwrap()
    });
    let read = read.collect();
    assert_eq!(walk.next_request(), None, "it goes on");
    read
}

fn keys(pages: &[InstrumentPage]) -> Vec<&str> {
    pages.iter().flat_map(|page| &page.instruments).map(|i| i.poll_key.as_str()).collect()
}

fn reasons(page: &InstrumentPage) -> Vec<&str> {
    page.skipped.iter().map(|skipped| skipped.reason.as_str()).collect()
}

#[test]
fn gammas_pages_are_followed_by_cursor_and_broken_markets_cost_only_themselves() {
    let pages =
        walked("polymarket", &["polymarket/markets-keyset-1.json", "polymarket/markets-keyset-2.json"]);
    assert_eq!((pages[0].rows, pages[0].instruments.len(), pages[0].not_tradable), (3, 4, 1));
    let (yes, up) = (&pages[0].instruments[0], &pages[0].instruments[2]);
    assert_eq!((yes.outcome.as_deref(), yes.slug.as_deref()), (Some("Yes"), Some("rain-on-day-1")));
    assert_eq!(yes.tick_size.as_ref().unwrap().as_str(), "0.01");
    assert_eq!(yes.expiry.unwrap().to_string(), "2027-01-01T12:00:00.000Z");
    assert_eq!((yes.poll_key.as_str(), &yes.market_id[..4]), (yes.symbol.as_str(), "0xbd"));
    assert_eq!(up.outcome.as_deref(), Some("Up"), "real arrays are read as arrays in strings are");
    assert_eq!(up.expiry.unwrap().to_string(), "2027-01-02T05:25:46.000Z", "the other spelling of a time");
    assert_eq!(pages[0].instruments[3].outcome.as_deref(), Some("Down"));

    assert_eq!(pages[1].rows, 8);
    let expected = [
        "clobTokenIds is missing",
        "clobTokenIds: EOF while parsing a value at line 1 column 7",
        "2 token ids and 3 outcomes",
        "conditionId is missing or not a text",
        "token id \"0x12\" is not a number",
        "invalid type: integer `17`, expected an object at line 1 column 2",
    ];
    assert_eq!(reasons(&pages[1]), expected);
    assert!(pages[1].skipped[0].market.starts_with("0x"), "the market is named");
    assert_eq!((pages[1].instruments.len(), pages[1].repeated), (2, 1));
    assert_eq!((&pages[1].instruments[0].outcome, pages[1].instruments[0].expiry), (&None, None));
}

#[test]
fn gammas_requests_carry_the_cursor_under_the_one_name_that_works() {
    let mut walk = walk("polymarket");
    let first = walk.next_request().unwrap();
    assert_eq!(first.url, "https://gamma-api.polymarket.com/markets/keyset?closed=false&limit=100");
    assert_eq!((first.family, first.cost), ("markets", 1));
    walk.read(fixture("polymarket/markets-keyset-1.json").as_bytes()).unwrap();
    let next = walk.next_request().unwrap();
    assert!(next.url.ends_with("&limit=100&after_cursor=eyJpZCI6M30%3D"), "{}", next.url);
    assert_eq!(walk.next_request().unwrap(), next, "a page that failed can be asked for again");
}

#[test]
fn a_short_or_empty_page_with_a_cursor_is_not_the_end() {
    for (venue, empty) in
        [("polymarket", r#"{"markets":[],"next_cursor":"b"}"#), ("kalshi", r#"{"markets":[],"cursor":"b"}"#)]
    {
        let mut walk = walk(venue);
        assert_eq!(walk.read(empty.as_bytes()).unwrap().rows, 0);
        assert!(walk.next_request().unwrap().url.contains("cursor=b"), "{venue}");
        walk.read(br#"{"markets":[],"next_cursor":null,"cursor":""}"#).unwrap();
        assert_eq!(walk.next_request(), None, "{venue}");
    }
}

#[test]
fn a_cursor_that_leads_back_is_an_error_and_not_an_endless_walk() {
    for (venue, key) in [("polymarket", "next_cursor"), ("kalshi", "cursor")] {
        let page = |cursor: &str| format!(r#"{{"markets":[],"{key}":"{cursor}"}}"#);
        let mut walk = walk(venue);
        for cursor in ["a", "b"] {
            walk.read(page(cursor).as_bytes()).unwrap();
        }
        let before = walk.next_request();
        for cursor in ["b", "a"] {
            let error = walk.read(page(cursor).as_bytes()).unwrap_err();
            assert!(
                matches!(&error, ReadError::Stuck(what) if what.contains("came twice")),
                "{venue}: {error}"
            );
        }
        assert_eq!(walk.next_request(), before, "the walk stands where it stood");
    }
    let mut walk = walk("limitless");
    let page = fixture("limitless/markets-active-2.json");
    let outcome: Vec<bool> = (0..6).map(|_| walk.read(page.as_bytes()).is_ok()).collect();
    assert_eq!(outcome, [true, true, true, true, true, false], "a venue that ignores the page number");
}

#[test]
fn limitless_is_walked_until_an_empty_page_and_each_slug_comes_once() {
    let pages = [
        "limitless/markets-active-1.json",
        "limitless/markets-active-2.json",
        "limitless/markets-active-3.json",
    ];
    let pages = walked("limitless", &pages);
    let slug = |n: u32| format!("coin-up-or-down-5-min-{n}");
    assert_eq!(keys(&pages), [slug(1), slug(5), slug(6), slug(7)]);
    assert_eq!((pages[0].rows, pages[0].not_tradable), (6, 2), "a formula market and one that has expired");
    assert_eq!(reasons(&pages[0]), ["slug is missing or not a text"]);
    assert_eq!((pages[1].repeated, pages[1].instruments.len()), (1, 1));
    let first = &pages[0].instruments[0];
    assert_eq!(first.expiry, UnixMs::new(1_798_761_900_000).ok());
    assert!(first.market_id.starts_with("0x"));
    let request = walk("limitless").next_request().unwrap();
    assert_eq!(request.url, "https://api.limitless.exchange/markets/active?page=1&limit=25");
}

#[test]
fn kalshi_is_walked_until_the_cursor_is_empty() {
    let pages = walked("kalshi", &["kalshi/markets-1.json", "kalshi/markets-2.json"]);
    assert_eq!(keys(&pages), ["KXRAIN-27JAN03-T1", "KXRAIN-27JAN03-T2", "KXRAIN-27JAN03-T5"]);
    assert_eq!((pages[0].not_tradable, reasons(&pages[0])), (1, vec!["ticker is missing or not a text"]));
    assert_eq!((pages[1].not_tradable, pages[1].repeated), (1, 1), "a combination, and one that came before");
    let first = &pages[0].instruments[0];
    assert_eq!(first.tick_size.as_ref().unwrap().as_str(), "0.0010", "the finest of its grid");
    assert_eq!(pages[1].instruments[0].expiry.unwrap().to_string(), "2027-01-04T04:59:00.123Z");
    let request = walk("kalshi").next_request().unwrap();
    assert!(request.url.ends_with("/trade-api/v2/markets?status=open&mve_filter=exclude&limit=1000"));
    assert_eq!((request.family, request.cost), ("read", 10));
}

#[test]
fn a_page_that_cannot_be_read_leaves_the_walk_where_it_was() {
    for venue in ["polymarket", "limitless", "kalshi"] {
        let mut walk = walk(venue);
        let before = walk.next_request();
        let check = |walk: &mut Box<dyn Walk>, body: &str, reason: &str| {
            let error = walk.read(body.as_bytes()).expect_err(body).to_string();
            assert!(error.contains(reason), "{venue}: {error:?}, expected {reason:?}");
            assert_eq!(walk.next_request(), before);
        };
        check(&mut walk, "", "empty");
        check(&mut walk, "<html>", "HTML");
        check(&mut walk, "[]", "not an object");
        check(&mut walk, "{\"markets\":[{", "cut off");
        check(&mut walk, "{\"markets\":7,\"data\":7}", "is not an array");
        check(&mut walk, "{}", "there is no");
        check(&mut walk, "{\"error\":\"no\",\"message\":\"no\"}", "the venue says: no");
    }
}

#[test]
fn instruments_survive_the_snapshot() {
    let pages = walked("kalshi", &["kalshi/markets-1.json", "kalshi/markets-2.json"]);
    let instruments: Vec<Instrument> = pages.into_iter().flat_map(|page| page.instruments).collect();
    let venue = instruments[0].venue;
    let snapshot = Snapshot::new(venue, UnixMs::new(1_798_761_600_000).unwrap(), instruments);
    assert_eq!(Snapshot::read(venue, &snapshot.to_json()).unwrap(), snapshot);
}
