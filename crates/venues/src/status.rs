//! What a status and a body mean. Venues say the same things differently; a caller sees one set of answers.

use serde::Deserialize;

use crate::wire::Members;

/// What an answer means, named by what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Read the body.
    Ok,
    /// Too fast: slow down, and wait as long as the headers say.
    Refused,
    /// A firewall has shut us out: stop asking this venue until the ban ends.
    Banned,
    /// The venue does not know this market or token any more: ask seldom, and stop once it is listed no more.
    UnknownMarket,
    /// The market is there and has no order book: ask seldom, and stop once it is listed no more.
    NoBook,
    /// There is nothing at this address: an endpoint is wrong, or has moved.
    NotFound,
    /// The request is wrong; sending it again changes nothing. The venue's words.
    BadRequest(String),
    /// The venue, or something before it, is in trouble: back off and try again. What it said.
    Trouble(String),
}

impl Reading {
    /// The name that metrics and error records use.
    pub fn name(&self) -> &'static str {
        match self {
            Reading::Ok => "ok",
            Reading::Refused => "refused",
            Reading::Banned => "banned",
            Reading::UnknownMarket => "unknown_market",
            Reading::NoBook => "no_book",
            Reading::NotFound => "not_found",
            Reading::BadRequest(_) => "bad_request",
            Reading::Trouble(_) => "trouble",
        }
    }
}

/// What is the same at every venue. `known` may say more of what the venue itself has said in words.
pub(crate) fn read(status: u16, body: &[u8], known: impl Fn(&str) -> Option<Reading>) -> Reading {
    let html = is_html(body);
    let said = if html { String::new() } else { message(body) };
    let cloudflare = cloudflare_code(body);
    let too_many = said.to_ascii_lowercase().contains("too many requests");
    match status {
        429 => Reading::Refused,
        _ if cloudflare == Some(1015) || too_many => Reading::Refused,
        _ if cloudflare.is_some_and(|code| (1006..=1012).contains(&code) || code == 1020) => Reading::Banned,
        418 => Reading::Banned,
        403 if html || said.is_empty() => Reading::Banned,
        200..=299 if html => Reading::Trouble("an HTML page with a good status".to_owned()),
        200..=299 if said.is_empty() => Reading::Ok,
        _ => known(&said).unwrap_or_else(|| by_status(status, html, said)),
    }
}

fn by_status(status: u16, html: bool, said: String) -> Reading {
    let words = match (html, said.is_empty()) {
        (true, _) => format!("an HTML page with status {status}"),
        (_, true) => format!("status {status}"),
        _ => said,
    };
    match status {
        404 | 410 => Reading::NotFound,
        // A timeout, maintenance, and whatever should not reach us: redirects and half-answers.
        408 | 425 => Reading::Trouble(words),
        400..=499 => Reading::BadRequest(words),
        _ => Reading::Trouble(words),
    }
}

fn is_html(body: &[u8]) -> bool {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start().first() == Some(&b'<')
}

/// `error code: 1015`, as text or within a page.
fn cloudflare_code(body: &[u8]) -> Option<u32> {
    // Data is long and never holds it; pages are short.
    if matches!(body.trim_ascii_start().first(), Some(b'{' | b'[') | None) {
        return None;
    }
    let start = String::from_utf8_lossy(&body[..body.len().min(16_384)]).to_ascii_lowercase();
    let after = ["error code: ", "error code ", "error "].iter().find_map(|intro| {
        let rest = &start[start.find(intro)? + intro.len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (digits.len() == 4).then_some(digits)
    });
    after?.parse().ok()
}

/// What the venue says in its own words: a string, or a list of them, under `error` or `message`, perhaps nested.
fn message(body: &[u8]) -> String {
    // A list is data, and so is a long object; errors are short.
    if body.trim_ascii_start().first() != Some(&b'{') || body.len() > 16_384 {
        return String::new();
    }
    serde_json::from_slice::<Members<'_>>(body).map(|members| said_in(&members, 0)).unwrap_or_default()
}

fn said_in(members: &Members<'_>, depth: usize) -> String {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        One(String),
        Many(Vec<String>),
    }
    for key in ["message", "error", "details"] {
        let Some(raw) = members.get(key) else { continue };
        let text = match serde_json::from_str(raw.get()) {
            Ok(Said::One(text)) => text,
            Ok(Said::Many(texts)) => texts.join("; "),
            Err(_) if depth < 4 => serde_json::from_str::<Members<'_>>(raw.get())
                .map(|inner| said_in(&inner, depth + 1))
                .unwrap_or_default(),
            Err(_) => String::new(),
        };
        if !text.is_empty() {
            return text.chars().take(256).collect();
        }
    }
    String::new()
}
