use std::collections::HashSet;

use catchment_venues::{Ability, EndpointsError, Method, VENUES, find};

use crate::open;

#[test]
fn the_table_of_venues_is_sound() {
    for spec in VENUES {
        assert_eq!(spec.venue().as_str(), spec.id, "a name that can stand in records");
        assert_eq!(find(spec.id).map(|found| found.id), Some(spec.id));
        let families: Vec<&str> = spec.limits.iter().map(|limit| limit.family).collect();
        for (at, limit) in spec.limits.iter().enumerate() {
            assert!(!families[..at].contains(&limit.family), "{} stands twice", limit.family);
            let Some(parent) = limit.parent else { continue };
            // Parents first, so that no family is its own ancestor; and a child never has more than its parent.
            let above = spec.limits[..at].iter().find(|above| above.family == parent).unwrap();
            assert!(above.budget >= limit.budget, "{} of {}", limit.family, spec.id);
        }
        let opened = open(spec.id);
        let many = spec.abilities.iter().find_map(|ability| match ability {
            Ability::PollsMany(most) => Some(*most),
            _ => None,
        });
        assert_eq!(opened.polls.unwrap().books_max(), many.unwrap_or(1), "{}", spec.id);
        assert_eq!(opened.discovers.is_some(), spec.abilities.contains(&Ability::Discovers));
    }
    let ids: HashSet<&str> = VENUES.iter().map(|spec| spec.id).collect();
    assert_eq!(ids.len(), VENUES.len());
    assert!(find("nowhere").is_none());
}

#[test]
fn requests_count_against_a_limit_that_is_declared() {
    for spec in VENUES.iter().filter(|spec| !spec.limits.is_empty()) {
        let opened = open(spec.id);
        let (polls, walk) = (opened.polls.unwrap(), opened.discovers.unwrap().walk());
        for request in
            [polls.books_request(&["1"]), polls.books_request(&["1", "2"]), walk.next_request().unwrap()]
        {
            let limit = spec.limits.iter().find(|limit| limit.family == request.family).unwrap();
            assert_eq!(request.cost, limit.cost, "{request:?}");
        }
    }
}

#[test]
fn every_endpoint_can_be_overridden_and_a_wrong_name_is_refused() {
    let spec = find("polymarket").unwrap();
    let endpoints = spec.endpoints([("clob", "http://127.0.0.1:9600/polymarket/clob/")]).unwrap();
    let polls = (spec.open)(&endpoints).polls.unwrap();
    assert_eq!(polls.books_request(&["7"]).url, "http://127.0.0.1:9600/polymarket/clob/book?token_id=7");
    assert_eq!(endpoints.url("gamma"), "https://gamma-api.polymarket.com");
    let error = spec.endpoints([("klob", "http://x")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "venues.polymarket.endpoints.klob does not exist; polymarket has clob, gamma"
    );
    for bad in ["", "clob.example", "ftp://x", "https://x?y"] {
        assert!(matches!(spec.endpoints([("clob", bad)]), Err(EndpointsError::Url { .. })), "{bad:?}");
    }
}

#[test]
fn servers_on_this_machine_are_known_by_their_address() {
    let spec = find("polymarket").unwrap();
    let are_local =
        |clob: &str, gamma: &str| spec.endpoints([("clob", clob), ("gamma", gamma)]).unwrap().are_local();
    assert!(are_local("http://127.0.0.1:9600/polymarket/clob", "http://[::1]:9600"));
    assert!(are_local("http://127.0.0.1", "https://127.9.9.9/x"));
    for far in [
        "https://gamma-api.polymarket.com",
        "http://10.0.0.1:80",
        "http://127.0.0.1.example/x",
        "http://127.0.0.1@x",
    ] {
        assert!(!are_local("http://127.0.0.1", far), "{far}");
    }
}

#[test]
fn requests_for_books_are_those_the_venues_expect() {
    let many = open("polymarket").polls.unwrap().books_request(&["71", "72"]);
    assert_eq!(
        (many.method, many.url.as_str(), many.family),
        (Method::Post, "https://clob.polymarket.com/books", "books")
    );
    assert_eq!(many.body.as_deref(), Some(&br#"[{"token_id":"71"},{"token_id":"72"}]"#[..]));
    assert_eq!(many.headers, [("content-type", "application/json".to_owned())]);
    let one = open("polymarket").polls.unwrap().books_request(&["71"]);
    assert_eq!((one.method, one.family, one.body), (Method::Get, "book", None));
    let one = open("limitless").polls.unwrap().books_request(&["../a b?c"]);
    assert_eq!(one.url, "https://api.limitless.exchange/markets/..%2Fa%20b%3Fc/orderbook");
    let many = open("kalshi").polls.unwrap().books_request(&["A-1", "B&2"]);
    assert!(many.url.ends_with("/markets/orderbooks?tickers=A-1&tickers=B%262"), "{}", many.url);
}
