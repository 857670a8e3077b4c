//! Who is let in. On loopback: whoever asks for this machine by its own name, and no page from elsewhere. Beyond it:
//! whoever has the token.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::HeaderMap;
use hyper::header::{self, HeaderName};
use subtle::ConstantTimeEq;

use crate::api::{Kind, Problem};

/// What everybody beyond loopback has to show.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// Why a text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Somebody could guess it.
    #[error("the token has {0} characters; it needs at least 16. `openssl rand -hex 32` makes a good one")]
    Short(usize),
    /// It would not fit into a header.
    #[error(
        "the token holds a space or a character that is not ASCII; `openssl rand -hex 32` makes a good one"
    )]
    Character,
}

impl Token {
    /// Without the white space around it.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Character);
        }
        if text.len() < 16 {
            return Err(TokenError::Short(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// How long it takes says nothing but how long the token is.
    fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

/// Never its text.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What is asked of whoever comes.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) token: Option<Token>,
    /// Nobody else can come.
    pub(crate) is_loopback: bool,
}

impl Gate {
    /// Whether the request shows the token, or need not.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = text(headers, &header::AUTHORIZATION).and_then(|given| given.split_once(' '));
        given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case("bearer") && token.is(given.trim()))
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let headers = request.headers();
        if self.is_loopback && !is_for_this_machine(headers) {
            let detail = "ask for this machine by its address or as localhost";
            return Err(Problem::new(Kind::Foreign, detail));
        }
        if self.is_loopback && !is_from_our_page(headers) {
            let detail = "the header Origin names a page that is not ours";
            return Err(Problem::new(Kind::Foreign, detail));
        }
        // The page holds no figures; and probes learn no more than yes or no.
        let is_open = matches!(request.uri().path(), "/" | "/livez" | "/readyz");
        if !is_open && !self.knows(headers) {
            let detail =
                "show it in the header Authorization: Bearer <token>; it is that of [api] token_file";
            return Err(Problem::new(Kind::Token, detail));
        }
        Ok(())
    }
}

/// Lets the request through, or refuses it.
pub(crate) async fn gate(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match gate.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A page elsewhere can point a name of its own at this machine and make a browser ask us; such a request carries that
/// name.
fn is_for_this_machine(headers: &HeaderMap) -> bool {
    if !headers.contains_key(header::HOST) {
        return true;
    }
    text(headers, &header::HOST).is_some_and(is_loopback_host)
}

/// A page elsewhere can make a browser send something here without reading the answer; such a request says where it comes
/// from.
fn is_from_our_page(headers: &HeaderMap) -> bool {
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let host = text(headers, &header::ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
    host.is_some() && host == text(headers, &header::HOST)
}

fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The header, if it is there once and is text.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_enough_and_never_shown() {
        assert_eq!(Token::new("short"), Err(TokenError::Short(5)));
        assert_eq!(Token::new("0123456789 abcdef"), Err(TokenError::Character));
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(token.is("0123456789abcdef"));
        assert!(!token.is("0123456789abcdeF") && !token.is("0123456789abcdef0") && !token.is(""));
    }
}
