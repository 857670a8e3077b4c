//! A request, as a value. Somebody else asks the governor and sends it.

use std::fmt::Write;

/// What is to be sent, and what it will cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How.
    pub method: Method,
    /// Where, query included.
    pub url: String,
    /// Which of the venue's limits it counts against; see [`Limit`](crate::Limit).
    pub family: &'static str,
    /// How much of that limit it uses.
    pub cost: u32,
    /// What is sent along.
    pub body: Option<Vec<u8>>,
    /// Headers beyond those that every request carries.
    pub headers: Vec<(&'static str, String)>,
}

/// The two that public market data needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Asks.
    Get,
    /// Asks, with a body.
    Post,
}

impl Method {
    /// As it stands in the request.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
        }
    }
}

impl Request {
    /// A request without a body that costs 1.
    pub fn get(url: String, family: &'static str) -> Self {
        Self { method: Method::Get, url, family, cost: 1, body: None, headers: Vec::new() }
    }

    /// A request with a body of JSON that costs 1.
    pub fn post_json(url: String, family: &'static str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { method: Method::Post, body: Some(body), headers, ..Self::get(url, family) }
    }

    /// The same at another cost.
    pub fn costing(self, cost: u32) -> Self {
        Self { cost, ..self }
    }
}

/// Text for a path or a query: whatever is not plain is written as `%xx`, so that a venue's own names cannot lead
/// elsewhere.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("a text takes whatever is written"),
        }
        out
    })
}
