use catchment_model::BookFlags;
use catchment_venues::{BookForm, BookPage, ReadError, polymarket};
use serde_json::Value;

use crate::{fixture, only, open, payload, read, read_as};

fn tokens(books: &str) -> Vec<String> {
    let books: Vec<Value> = serde_json::from_str(books).unwrap();
    books.iter().map(|book| book["asset_id"].as_str().unwrap().to_owned()).collect()
}

fn keys(tokens: &[String]) -> Vec<&str> {
    tokens.iter().map(String::as_str).collect()
}

/// A book of Polymarket's with these sides, the rest fixed, and a true hash.
fn polymarket_book(bids: &[(&str, &str)], asks: &[(&str, &str)]) -> String {
    let input = polymarket::HashInput {
        market: "0x1f",
        asset_id: "77",
        timestamp: "1790000000000",
        bids,
        asks,
        min_order_size: "5",
        tick_size: "0.01",
        neg_risk: false,
        last_trade_price: "0.480",
    };
    let side = |side: &[(&str, &str)]| {
        let level = |(price, size): &(&str, &str)| format!(r#"{{"price":"{price}","size":"{size}"}}"#);
        side.iter().map(level).collect::<Vec<_>>().join(",")
    };
    format!(
        r#"{{"market":"0x1f","asset_id":"77","timestamp":"1790000000000","hash":"{}","bids":[{}],"asks":[{}],"min_order_size":"5","tick_size":"0.01","neg_risk":false,"last_trade_price":"0.480"}}"#,
        polymarket::book_hash(&input),
        side(bids),
        side(asks)
    )
}

fn flags(page: &BookPage) -> String {
    page.books()
        .map(|book| book.flags)
        .fold(BookFlags::default(), |a, b| a | b)
        .names()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_polymarket_book_becomes_a_record_with_the_best_first() {
    let body = format!(
        "[{}]",
        polymarket_book(&[("0.46", "1000"), ("0.47", "120")], &[("0.6", "1"), ("0.49", "80.5")])
    );
    let page = read("polymarket", &["77"], body.as_bytes()).unwrap();
    let hash = &body[body.find("hash").unwrap() + 7..][..40];
    assert_eq!(
        only(&page),
        format!(
            r#"{{"market":"0x1f","instrument":"77","timestamp_ms":1790000000000,"bids":[["0.47","120"],["0.46","1000"]],"asks":[["0.49","80.5"],["0.6","1"]],"min_order_size":"5","tick_size":"0.01","neg_risk":false,"last_trade_price":"0.480","hash":"{hash}","hash_ok":true,"flags":[]}}"#
        )
    );
    let book = page.books().next().unwrap();
    assert_eq!((book.server_time.unwrap().get(), book.hash_ok), (1_790_000_000_000, Some(true)));
}

#[test]
fn the_spelling_of_the_json_makes_no_difference_to_the_record() {
    let compact = fixture("polymarket/books.json");
    let tokens = tokens(&compact);
    let fast = read("polymarket", &keys(&tokens), compact.as_bytes()).unwrap();
    let spaced = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&compact).unwrap()).unwrap();
    let slow = read("polymarket", &keys(&tokens), spaced.as_bytes()).unwrap();
    assert_eq!(fast.books().len(), 4);
    for (fast, slow) in fast.books().zip(slow.books()) {
        assert_eq!(fast.hash_ok, Some(true));
        assert_eq!(fast, slow);
    }
}

#[test]
fn one_book_and_many_are_read_alike() {
    let many = fixture("polymarket/books.json");
    let tokens = tokens(&many);
    let many = read("polymarket", &keys(&tokens), many.as_bytes()).unwrap();
    let one = read("polymarket", &[&tokens[0]], fixture("polymarket/book.json").as_bytes()).unwrap();
    assert_eq!(only(&one), payload(&many, 0));
}

#[test]
fn books_are_matched_by_token_and_what_is_left_out_is_said() {
    let all = fixture("polymarket/books.json");
    let tokens = tokens(&all);
    let mut asked: Vec<&str> = keys(&tokens);
    asked.reverse();
    asked.insert(1, "1234");
    asked.push("99");
    let page = read("polymarket", &asked, all.as_bytes()).unwrap();
    assert_eq!(page.books().map(|book| book.asked).collect::<Vec<_>>(), [4, 3, 2, 0]);
    assert_eq!(page.missing(), [1, 5]);
    let page = read("polymarket", &["1", "2"], b"[]").unwrap();
    assert_eq!((page.books().len(), page.missing()), (0, &[0, 1][..]));
}

#[test]
fn a_book_nobody_asked_for_is_kept_aside() {
    let body = format!("[{}]", polymarket_book(&[], &[]));
    let page = read("polymarket", &["78"], body.as_bytes()).unwrap();
    assert_eq!((page.books().len(), page.missing()), (0, &[0][..]));
    let stranger = &page.unreadable()[0];
    assert_eq!((stranger.asked, stranger.reason.as_str()), (None, "77 was not asked for"));
    assert_eq!(stranger.raw, body[1..body.len() - 1]);
}

#[test]
fn a_wrong_hash_is_marked_counted_and_kept_with_the_bytes() {
    let body = polymarket_book(&[("0.46", "1000")], &[]).replace("1000", "1001");
    let page = read("polymarket", &["77"], format!("[{body}]").as_bytes()).unwrap();
    assert_eq!((page.hash_mismatches(), page.books().next().unwrap().hash_ok), (1, Some(false)));
    assert!(
        only(&page).ends_with(&format!(r#""hash_ok":false,"flags":[],"raw":{body}}}"#)),
        "{}",
        only(&page)
    );
    // What is needed for the hash is not there: nothing can be said.
    let short = body.replace(r#","tick_size":"0.01""#, "");
    let page = read("polymarket", &["77"], short.as_bytes()).unwrap();
    assert_eq!(page.books().next().unwrap().hash_ok, None);
    assert!(only(&page).contains(r#""tick_size":null"#));
}

#[test]
fn an_odd_book_is_stored_with_flags_and_the_venues_own_bytes() {
    let check = |bids: &[(&str, &str)], asks: &[(&str, &str)], expected: &str| {
        let body = polymarket_book(bids, asks);
        let page = read("polymarket", &["77"], format!("[{body}]").as_bytes()).unwrap();
        assert_eq!(flags(&page), expected, "{body}");
        let record: Value = serde_json::from_str(&only(&page)).unwrap();
        assert_eq!(record["hash_ok"], true, "the hash is that of the wire's order");
        assert_eq!(record["bids"].as_array().unwrap().len(), bids.len());
        let kept = only(&page).ends_with(&format!(",\"raw\":{body}}}"));
        assert_eq!(kept, !expected.is_empty(), "{}", only(&page));
    };
    check(&[("0.46", "1"), ("0.47", "1")], &[("0.49", "1")], "");
    check(&[("0.5", "1")], &[("0.49", "1")], "crossed");
    check(&[("0.5", "1")], &[("0.5", "1")], "crossed");
    check(&[("0.46", "1"), ("0.48", "1"), ("0.47", "1")], &[], "unsorted");
    check(&[("0.46", "1"), ("0.46", "2")], &[], "duplicate_level");
    check(&[("0.46", "-1")], &[], "negative_size");
    check(&[("0.46", "0")], &[], "zero_size");
    check(&[("0", "1")], &[("1", "1")], "price_range");
    check(&[("-0.1", "1")], &[("1e999", "1")], "price_range");
    // The other direction than today's is no fault.
    check(&[("0.47", "1"), ("0.46", "1")], &[("0.49", "1"), ("0.5", "1")], "");
}

#[test]
fn amounts_keep_every_digit() {
    let long = "7".repeat(400);
    for size in
        ["0.1", "0.30000000000000004", "1e999", "100.000", &long, "1E-7", "12345678901234567890.123456789"]
    {
        let body = polymarket_book(&[("0.46", size)], &[]);
        let page = read("polymarket", &["77"], body.as_bytes()).unwrap();
        assert!(only(&page).contains(&format!(r#""bids":[["0.46","{size}"]]"#)), "{}", only(&page));
    }
}

#[test]
fn one_bad_book_costs_only_itself() {
    let good = polymarket_book(&[("0.46", "1")], &[]);
    let check = |bad: &str, asked: Option<usize>, reason: &str| {
        let other = good.replace("\"77\"", "\"78\"");
        let body = format!("[{bad},{other}]");
        let page = read("polymarket", &["77", "78"], body.as_bytes()).unwrap();
        assert_eq!(page.books().map(|book| book.asked).collect::<Vec<_>>(), [1], "{bad}");
        let refused = &page.unreadable()[0];
        assert_eq!((refused.asked, refused.raw.as_str()), (asked, bad));
        assert!(refused.reason.contains(reason), "{:?}, expected {reason:?}", refused.reason);
        assert_eq!(page.missing().len(), usize::from(asked.is_none()));
    };
    for price in ["NaN", "Infinity", "", "0x1", " 0.4", "0,4", "4."] {
        check(&good.replace("0.46", price), Some(0), "is not a decimal number");
    }
    check(&good.replace("\"0.46\"", "\"\\ud800\""), Some(0), "is not a decimal number");
    check(&good.replace("\"0.46\"", "null"), Some(0), "is not a decimal number");
    check(&good.replace("\"price\"", "\"prize\""), Some(0), "a level has no price");
    check(&good.replace(",\"asks\":[]", ""), Some(0), "asks is missing");
    check(&good.replace("\"asks\":[]", "\"asks\":{}"), Some(0), "asks: ");
    check(&good.replace("\"asks\":[]", "\"asks\":[],\"asks\":[]"), None, "duplicate field `asks`");
    check(&good.replace("\"77\"", "null"), None, "asset_id is missing");
    let many: String = (0..100_000).map(|n| format!("\"k{n}\":1,")).collect();
    check(&good.replacen('{', &format!("{{{many}"), 1), None, "more members than any");
    check("[]", None, "expected an object");
    check("null", None, "expected an object");
}

#[test]
fn a_time_that_is_none_is_flagged_and_the_book_kept() {
    for time in ["", "soon", "-1", "99999999999999999999", "1790000000000000000"] {
        let body = polymarket_book(&[("0.46", "1")], &[]).replace("1790000000000", time);
        let page = read("polymarket", &["77"], body.as_bytes()).unwrap();
        assert_eq!(flags(&page), "time", "{time:?}");
        assert!(only(&page).contains("\"timestamp_ms\":null"));
    }
}

#[test]
fn members_the_record_does_not_know_are_kept_as_sent() {
    let body = polymarket_book(&[("0.46", "1")], &[]).replacen('{', "{\"new\": [1e3,\n \"x\"],", 1);
    let page = read("polymarket", &["77"], body.as_bytes()).unwrap();
    assert!(only(&page).ends_with(r#""flags":[],"extra":{"new":[1e3,  "x"]}}"#), "{}", only(&page));
    // A member of a level has no place in the record, so the bytes come along.
    let body =
        polymarket_book(&[("0.46", "1")], &[]).replace("\"size\":\"1\"", "\"size\":\"1\",\"orders\":3");
    let page = read("polymarket", &["77"], body.as_bytes()).unwrap();
    assert!(only(&page).ends_with(&format!(",\"raw\":{body}}}")), "{}", only(&page));
}

#[test]
fn in_the_form_as_sent_the_bytes_are_those_of_the_wire() {
    let body = fixture("polymarket/books.json");
    let tokens = tokens(&body);
    let page = read_as(BookForm::AsSent, "polymarket", &keys(&tokens), body.as_bytes()).unwrap();
    let all: Vec<String> = (0..4).map(|at| payload(&page, at)).collect();
    assert_eq!(format!("[{}]", all.join(",")), body);
    assert_eq!(page.hash_mismatches(), 0);
    let book = fixture("limitless/orderbook.json");
    assert_eq!(only(&read_as(BookForm::AsSent, "limitless", &["a"], book.as_bytes()).unwrap()), book);
    let book = fixture("kalshi/orderbook.json");
    assert_eq!(only(&read_as(BookForm::AsSent, "kalshi", &["a"], book.as_bytes()).unwrap()), book);
}

#[test]
fn a_limitless_book_is_in_whole_units_and_text() {
    let body = fixture("limitless/orderbook.json");
    let page = read("limitless", &["coin-up"], body.as_bytes()).unwrap();
    let token = &body[body.find("tokenId").unwrap() + 10..][..77];
    assert_eq!(
        only(&page),
        format!(
            r#"{{"market":"coin-up","instrument":"{token}","timestamp_ms":null,"bids":[["0.31","7215.004003"],["0.295","100"],["0.003","0.0005"]],"asks":[["0.335","100"],["0.997","612.34"]],"min_order_size":null,"tick_size":null,"neg_risk":null,"last_trade_price":"0.31","hash":null,"hash_ok":null,"flags":[],"extra":{{"adjustedMidpoint":0.3225,"midpoint":0.3225,"maxSpread":"0.035","minSize":"100000000"}}}}"#
        )
    );
}

#[test]
fn limitless_prices_are_taken_from_their_text_and_percents_are_refused() {
    let body = r#"{"bids":[{"price":0.30000000000000004,"size":1,"side":"BUY"}],"asks":[{"price":3.35e-1,"size":"2500000"}]}"#;
    let page = read("limitless", &["a"], body.as_bytes()).unwrap();
    assert!(
        only(&page).contains(r#""bids":[["0.30000000000000004","0.000001"]],"asks":[["3.35e-1","2.5"]]"#)
    );
    for price in ["31", "1.001", "1e999"] {
        let page = read("limitless", &["a"], body.replace("3.35e-1", price).as_bytes()).unwrap();
        assert_eq!((page.books().len(), page.unreadable()[0].asked), (0, Some(0)));
        assert!(page.unreadable()[0].reason.contains("above 1: another format"), "{page:?}");
    }
    let page = read("limitless", &["a"], body.replace("3.35e-1", "0.2").as_bytes()).unwrap();
    assert_eq!(flags(&page), "crossed");
    assert!(only(&page).contains(",\"raw\":{"));
}

#[test]
fn a_kalshi_ask_is_one_minus_a_bid_of_the_other_side() {
    let page = read("kalshi", &["KXRAIN-27JAN03-T1"], fixture("kalshi/orderbook.json").as_bytes()).unwrap();
    assert_eq!(
        only(&page),
        r#"{"market":"KXRAIN-27JAN03-T1","instrument":"KXRAIN-27JAN03-T1","timestamp_ms":null,"bids":[["0.4100","120.00"],["0.4000","15.82"],["0.0100","1209.98"]],"asks":[["0.4300","33.33"],["0.4500","7.00"],["0.9900","501.00"]],"min_order_size":null,"tick_size":null,"neg_risk":null,"last_trade_price":null,"hash":null,"hash_ok":null,"flags":[]}"#
    );
    let crossed = fixture("kalshi/orderbook.json").replace("0.5700", "0.6000");
    assert_eq!(flags(&read("kalshi", &["x"], crossed.as_bytes()).unwrap()), "crossed");
}

#[test]
fn kalshi_books_of_many_are_matched_by_ticker() {
    let keys = ["KXRAIN-27JAN03-T1", "KXRAIN-27JAN03-T9", "KXRAIN-27JAN03-T2"];
    let page = read("kalshi", &keys, fixture("kalshi/orderbooks.json").as_bytes()).unwrap();
    assert_eq!(page.books().map(|book| book.asked).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(page.missing(), [1]);
    assert!(payload(&page, 0).contains(r#""bids":[],"asks":[["0.9900","501.00"]]"#));
}

#[test]
fn a_kalshi_book_in_cents_is_an_error_and_not_an_empty_book() {
    let old = br#"{"orderbook":{"no":null,"no_dollars":null,"yes":null,"yes_dollars":null}}"#;
    let error = read("kalshi", &["x"], old).unwrap_err();
    assert!(matches!(&error, ReadError::Shape(what) if what.contains("cents")), "{error}");
    let page = read("kalshi", &["x"], br#"{"orderbook_fp":{"no_dollars":null,"yes_dollars":null}}"#).unwrap();
    assert_eq!(page.books().len(), 1);
    let page = read("kalshi", &["x"], br#"{"orderbook_fp":{"no_dollars":[]}}"#).unwrap();
    assert_eq!(page.unreadable()[0].reason, "yes_dollars is missing");
}

#[test]
fn what_is_not_an_answer_is_an_error_that_says_so() {
    let good = fixture("polymarket/books.json");
    let bodies = [
        (String::new(), "it is empty"),
        ("<!DOCTYPE html><html>".to_owned(), "an HTML page"),
        (good[..good.len() - 1].to_owned(), "it is cut off"),
        (good[..good.len() / 2].to_owned(), "it is cut off"),
        (format!("\u{feff}{good}"), "byte order mark"),
        (format!("{good}]"), "malformed"),
        (good.replace("},{\"market", "}{\"market"), "malformed"),
        (good.replace("\"1000\"", "NaN"), "malformed"),
        (good.replace("\"1000\"", "1e"), "malformed"),
        (good.replace("1000", "10\0"), "malformed"),
        ("{\"error\":\"Invalid payload\"}".to_owned(), "the venue says: Invalid payload"),
        ("7".to_owned(), "it is not an object"),
    ];
    for (body, reason) in bodies {
        for venue in ["polymarket", "limitless", "kalshi"] {
            let error = read(venue, &["77"], body.as_bytes()).expect_err(&body).to_string();
            let body_is_polymarkets = body.contains("asset_id") || body.contains("error");
            if venue == "polymarket" || !body_is_polymarkets {
                assert!(error.contains(reason), "{venue}: {error:?}, expected {reason:?}");
            }
        }
    }
    let mut bytes = good.into_bytes();
    bytes[20] = 0xff;
    assert!(matches!(read("polymarket", &["77"], &bytes), Err(ReadError::NotJson { .. })));
}

#[test]
fn after_an_error_the_page_is_empty_and_can_be_used_again() {
    let good = fixture("polymarket/books.json");
    let tokens = tokens(&good);
    let polls = open("polymarket").polls.unwrap();
    let mut page = BookPage::default();
    polls.read_books(&keys(&tokens), good.as_bytes(), &mut page).unwrap();
    polls.read_books(&keys(&tokens), &good.as_bytes()[..good.len() - 5], &mut page).unwrap_err();
    assert_eq!((page.books().len(), page.missing().len(), page.unreadable().len()), (0, 0, 0));
    polls.read_books(&keys(&tokens), good.as_bytes(), &mut page).unwrap();
    assert_eq!(page.books().len(), 4);
}

#[test]
fn nothing_a_venue_can_send_makes_an_adapter_panic() {
    let seeds = [
        "polymarket/books.json",
        "limitless/orderbook.json",
        "kalshi/orderbooks.json",
        "kalshi/orderbook.json",
    ];
    for name in seeds {
        let body = fixture(name).into_bytes();
        for at in 0..body.len() {
            for byte in [b'"', b'{', b']', b'0', b'9', b'-', b'e', b'\\', 0, 0xff, b'\n'] {
                let mut mutant = body.clone();
                mutant[at] = byte;
                for venue in ["polymarket", "limitless", "kalshi"] {
                    // Dev builds check every payload to be JSON as it is handed out.
                    if name.starts_with(venue)
                        && let Ok(page) = read(venue, &["KXRAIN-27JAN03-T1"], &mutant)
                    {
                        page.books().for_each(drop);
                    }
                }
            }
        }
    }
}
