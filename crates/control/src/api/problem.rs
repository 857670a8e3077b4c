//! Why something was refused: RFC 9457's problem details, with each field that is wrong.
//!
//! ```text
//! {"type":"urn:catchment:problem:invalid","title":"a field is wrong","status":422,
//!  "detail":"schedule.interval_ms is 0; it must be from 100 to 31622400000",
//!  "errors":[{"field":"schedule.interval_ms","detail":"is 0; it must be from 100 to 31622400000"}]}
//! ```

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use catchment_jobs::{Id, StoreError};
use hyper::header::{self, HeaderValue};
use hyper::{Method, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// What a refusal is written in.
pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// Which kind, for programs.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "urn:catchment:problem:invalid")]
    pub kind: Kind,
    /// Which kind, for people.
    #[schema(value_type = String)]
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What was wrong this time, and what would be right.
    pub detail: String,
    /// Each field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldError>,
    /// The job that stands in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub existing: Option<Id>,
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Which one: a key of the body, with dots where it is within another, or a parameter.
    #[schema(example = "schedule.interval_ms")]
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

/// Which kind of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The body is not JSON.
    Malformed,
    /// There is no token, or not the right one.
    Token,
    /// Asked for by a name or from a page that is not ours.
    Foreign,
    /// There is no such thing.
    NotFound,
    /// Not with this method.
    Method,
    /// The body came too slowly.
    Slow,
    /// It stands against something else.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The body is something else than JSON.
    MediaType,
    /// A field is wrong.
    Invalid,
    /// The store holds something that cannot be.
    Damaged,
    /// The store does not answer.
    Unavailable,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 12] = [
        Self::Malformed,
        Self::Token,
        Self::Foreign,
        Self::NotFound,
        Self::Method,
        Self::Slow,
        Self::Conflict,
        Self::TooLarge,
        Self::MediaType,
        Self::Invalid,
        Self::Damaged,
        Self::Unavailable,
    ];

    /// Its status, its name for programs, its name for people.
    fn words(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "malformed", "the body cannot be read"),
            Self::Token => (StatusCode::UNAUTHORIZED, "token", "a token is needed"),
            Self::Foreign => (StatusCode::FORBIDDEN, "foreign", "this comes from elsewhere"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "there is no such thing"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method", "this cannot be done here"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "slow", "the body did not come in time"),
            Self::Conflict => (StatusCode::CONFLICT, "conflict", "something stands against it"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "the body is too large"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", "the body must be JSON"),
            Self::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "a field is wrong"),
            Self::Damaged => (StatusCode::INTERNAL_SERVER_ERROR, "damaged", "the store cannot be read"),
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the store does not answer")
            }
        }
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        self.words().0
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        self.words().2
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("urn:catchment:problem:{}", self.words().1))
    }
}

impl Problem {
    /// Of a kind, in words.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            title: kind.title(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            existing: None,
        }
    }

    /// These fields are wrong.
    pub(crate) fn fields(errors: Vec<FieldError>) -> Self {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Self { errors, ..Self::new(Kind::Invalid, all.join("; ")) }
    }

    /// This field is wrong.
    pub(crate) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::fields(vec![FieldError { field: field.into(), detail: detail.into() }])
    }

    /// Nothing is at this address.
    pub(crate) fn no_place(path: &str) -> Self {
        let path: String = path.chars().take(200).collect();
        Self::new(Kind::NotFound, format!("nothing is at {path:?}; /api/v1/openapi.json says what there is"))
    }

    /// This address has other methods.
    pub(crate) fn method(method: &Method) -> Self {
        Self::new(Kind::Method, format!("{method} is not for this address; the header Allow says what is"))
    }

    /// There is no such job or connector.
    pub(crate) fn missing(what: &'static str, id: impl fmt::Display) -> Self {
        Self::new(Kind::NotFound, format!("there is no {what} {id}"))
    }

    /// It took too long. What was asked of the store is done as a whole or not at all; which of the two is not known.
    pub(crate) fn too_late(deadline: Duration) -> Self {
        let detail =
            format!("no answer was ready within {deadline:?}; look whether it was done, or ask again");
        Self::new(Kind::Unavailable, detail)
    }

    /// The store is not there.
    pub(crate) fn unavailable(why: &str) -> Self {
        Self::new(Kind::Unavailable, format!("{why}; nothing is half done, try again"))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let chain =
            std::error::Error::source(&error).map_or(error.to_string(), |why| format!("{error}: {why}"));
        match error {
            StoreError::Invalid { field, reason } => Self::field(field, reason),
            StoreError::NotFound { what, id } => Self::missing(what, id),
            StoreError::AlreadyActive(id) => Self { existing: Some(id), ..Self::new(Kind::Conflict, chain) },
            StoreError::Conflict { .. } | StoreError::Stale { .. } => Self::new(Kind::Conflict, chain),
            StoreError::Unreachable { .. } => Self::unavailable(&chain),
            StoreError::Newer { .. } | StoreError::Damaged { .. } => {
                tracing::error!(error = chain, "the store cannot be read");
                Self::new(Kind::Damaged, chain)
            }
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.detail)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("names and texts always serialise");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.kind.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        match self.kind {
            Kind::Token => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Kind::Unavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
            }
            // What is left of the body is not worth reading.
            Kind::Slow | Kind::TooLarge => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}
