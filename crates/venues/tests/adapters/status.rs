use catchment_venues::{Reading, find};

fn check(venue: &str, family: &str, status: u16, body: &str, expected: &str) {
    let reading = (find(venue).unwrap().read_status)(family, status, body.as_bytes());
    assert_eq!(reading.name(), expected, "{venue} {family} {status} {body:?} is {reading:?}");
}

const PAGE_1015: &str = "<!DOCTYPE html><html><head><title>Access denied | clob.example used Cloudflare to restrict access</title></head><body><h1>Error 1015</h1>You are being rate limited</body></html>";
const PAGE_BLOCKED: &str = "<!DOCTYPE html><html><body>Sorry, you have been blocked</body></html>";

#[test]
fn what_is_said_alike_everywhere() {
    for venue in ["polymarket", "limitless", "kalshi"] {
        check(venue, "", 200, "[]", "ok");
        check(venue, "", 200, "{}", "ok");
        check(venue, "", 429, "", "refused");
        check(venue, "", 429, "anything", "refused");
        check(venue, "", 429, PAGE_BLOCKED, "refused");
        check(venue, "", 403, PAGE_1015, "refused");
        check(venue, "", 200, "{\"error\":\"Too Many Requests\"}", "refused");
        check(venue, "", 403, PAGE_BLOCKED, "banned");
        check(venue, "", 403, "error code: 1010", "banned");
        check(venue, "", 403, "error code: 1015", "refused");
        check(venue, "", 403, "", "banned");
        check(venue, "", 418, "", "banned");
        check(venue, "", 403, "{\"message\":\"forbidden\"}", "bad_request");
        check(venue, "", 404, "", "not_found");
        check(venue, "", 404, "<html>", "not_found");
        check(venue, "", 401, "{\"error\":\"key\"}", "bad_request");
        check(venue, "", 425, "", "trouble");
        for status in [500, 502, 503, 504, 520, 302, 408] {
            check(venue, "", status, "<html>oops", "trouble");
            check(venue, "", status, "", "trouble");
        }
    }
}

#[test]
fn an_html_page_with_a_good_status_is_no_answer_and_says_so() {
    for body in ["<html>", "\u{feff}<!DOCTYPE html>", "\n <p>hello"] {
        let reading = (find("polymarket").unwrap().read_status)("books", 200, body.as_bytes());
        assert_eq!(reading, Reading::Trouble("an HTML page with a good status".to_owned()), "{body:?}");
    }
}

#[test]
fn an_error_with_a_good_status_is_no_answer() {
    let reading = (find("polymarket").unwrap().read_status)("books", 200, b"{\"error\":\"internal error\"}");
    assert_eq!(reading, Reading::Trouble("internal error".to_owned()));
}

#[test]
fn each_venue_has_its_own_words_for_a_market_it_does_not_know() {
    let gone = r#"{"error":"No orderbook exists for the requested token id"}"#;
    check("polymarket", "book", 404, gone, "unknown_market");
    check("polymarket", "books", 400, r#"{"error":"Payload exceeds the limit"}"#, "bad_request");
    let gone = r#"{"message":"Market not found for slug: x"}"#;
    check("limitless", "orderbook", 404, gone, "unknown_market");
    check("limitless", "orderbook", 400, r#"{"message":["AMM"],"statusCode":400}"#, "no_book");
    check("limitless", "listing", 400, r#"{"message":["limit must not be greater than 25"]}"#, "bad_request");
    check("kalshi", "read", 404, r#"{"error":{"code":"not_found","message":"not found"}}"#, "unknown_market");
    check("kalshi", "read", 404, r#"{"code":"not_found","message":"market not found"}"#, "unknown_market");
    check("kalshi", "read", 429, r#"{"error":"too many requests"}"#, "refused");
}

#[test]
fn the_venues_words_are_kept_and_cut_to_a_bearable_length() {
    let long = format!("{{\"message\":[\"{}\",\"b\"]}}", "é".repeat(2_000));
    let Reading::BadRequest(said) = (find("limitless").unwrap().read_status)("listing", 400, long.as_bytes())
    else {
        panic!("not a bad request")
    };
    assert_eq!(said.chars().count(), 256);
    let nested = "{\"error\":".repeat(5_000);
    check("kalshi", "read", 500, &nested, "trouble");
}
