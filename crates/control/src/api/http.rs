//! The desk over HTTP: one function an address. They read, ask and write; what is right is for the desk to say.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use catchment_jobs::Status;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::desk::Desk;
use super::problem::{Kind, Problem};
use super::shapes::{
    CandlePageShape, ConnectorChangeShape, ConnectorListShape, ConnectorShape, CoverageShape, FormatShape,
    JobChangeShape, JobListShape, JobShape, LiveStatusShape, NewConnectorShape, NewJobShape, StateShape,
    StatusShape, TimeframeShape, TypeShape,
};

/// The largest body that is read.
pub(crate) const BODY_MAX: usize = 64 << 10;
/// How long a body may take to come.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

type Answer = Result<Response, Problem>;
type Named = Result<Path<String>, PathRejection>;

/// Every address with its description.
pub(super) fn routes() -> (axum::Router<Desk>, OpenApi) {
    OpenApiRouter::new()
        .routes(routes!(list_connectors, upsert_connector))
        .routes(routes!(get_connector, change_connector, delete_connector))
        .routes(routes!(pause_connector))
        .routes(routes!(resume_connector))
        .routes(routes!(list_jobs, add_job))
        .routes(routes!(get_job, change_job, delete_job))
        .routes(routes!(pause_job))
        .routes(routes!(resume_job))
        .routes(routes!(run_job))
        .routes(routes!(get_candles))
        .routes(routes!(get_coverage))
        .split_for_parts()
}

/// A body that is JSON, not too large and in time.
struct Given(Value);

impl<S: Send + Sync> FromRequest<S> for Given {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let essence = kind.split(';').next().unwrap_or("").trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Problem::new(
                Kind::MediaType,
                "send JSON, with the header Content-Type: application/json",
            ));
        }
        let body = Limited::new(request.into_body(), BODY_MAX).collect();
        let body = match tokio::time::timeout(BODY_DEADLINE, body).await {
            Err(_) => {
                return Err(Problem::new(Kind::Slow, format!("it has {BODY_DEADLINE:?} to come")));
            }
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(Problem::new(Kind::TooLarge, format!("it may have {BODY_MAX} bytes")));
            }
            Ok(Err(error)) => {
                return Err(Problem::new(Kind::Malformed, format!("the body broke off: {error}")));
            }
            Ok(Ok(body)) => body.to_bytes(),
        };
        let value = serde_json::from_slice(&body)
            .map_err(|error| Problem::new(Kind::Malformed, format!("the body is not JSON: {error}")))?;
        Ok(Self(value))
    }
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("names and numbers always serialise");
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// 201 for what is new, with its address; else 200.
fn made(is_new: bool, place: &str, value: &impl Serialize) -> Response {
    if !is_new {
        return json(StatusCode::OK, value);
    }
    let mut response = json(StatusCode::CREATED, value);
    if let Ok(place) = HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn named(name: Named) -> Result<String, Problem> {
    let Path(name) = name.map_err(|error| Problem::new(Kind::NotFound, format!("the address: {error}")))?;
    Ok(name)
}

/// All connectors that are not deleted, by name
#[utoipa::path(get, path = "/connectors", tag = "connectors", params(
    ("status" = Option<LiveStatusShape>, Query, description = "only these"),
    ("limit" = Option<u32>, Query, minimum = 1, maximum = 500, description = "so many at once; default 100"),
    ("after" = Option<String>, Query, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$", description = "the `next` of the page before"),
), responses((status = 200, description = "a page", body = ConnectorListShape)))]
async fn list_connectors(State(desk): State<Desk>, RawQuery(query): RawQuery) -> Answer {
    Ok(json(StatusCode::OK, &desk.connectors(&query.unwrap_or_default()).await?))
}

/// See to it that an exchange has a connector
///
/// Asked twice, there is still one. Limits that are given hold afterwards; without them, one that is there stays as it is.
/// One that was deleted is there again.
#[utoipa::path(post, path = "/connectors", tag = "connectors", request_body = NewConnectorShape, responses(
    (status = 201, description = "it is new", body = ConnectorShape),
    (status = 200, description = "it was there", body = ConnectorShape),
))]
async fn upsert_connector(State(desk): State<Desk>, Given(body): Given) -> Answer {
    let (connector, is_new) = desk.upsert_connector(body).await?;
    let place = format!("/api/v1/connectors/{}", connector.exchange_id);
    Ok(made(is_new, &place, &connector))
}

/// The connector of an exchange
#[utoipa::path(get, path = "/connectors/{exchange_id}", tag = "connectors",
    params(("exchange_id" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$")),
    responses((status = 200, description = "as it is now", body = ConnectorShape)))]
async fn get_connector(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.connector(&named(name)?).await?))
}

/// Change its limit, its cap or its notes
#[utoipa::path(put, path = "/connectors/{exchange_id}", tag = "connectors",
    params(("exchange_id" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$")), request_body = ConnectorChangeShape,
    responses((status = 200, description = "as it is now", body = ConnectorShape)))]
async fn change_connector(State(desk): State<Desk>, name: Named, Given(body): Given) -> Answer {
    Ok(json(StatusCode::OK, &desk.change_connector(&named(name)?, body).await?))
}

/// Delete it; none of its jobs is begun any more
#[utoipa::path(delete, path = "/connectors/{exchange_id}", tag = "connectors",
    params(("exchange_id" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$")),
    responses((status = 204, description = "it is deleted")))]
async fn delete_connector(State(desk): State<Desk>, name: Named) -> Answer {
    desk.delete_connector(&named(name)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Begin none of its jobs, and give no token
#[utoipa::path(post, path = "/connectors/{exchange_id}/pause", tag = "connectors",
    params(("exchange_id" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$")),
    responses((status = 200, description = "as it is now", body = ConnectorShape)))]
async fn pause_connector(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.set_connector_status(&named(name)?, Status::Paused).await?))
}

/// Let it go on
#[utoipa::path(post, path = "/connectors/{exchange_id}/resume", tag = "connectors",
    params(("exchange_id" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$")),
    responses((status = 200, description = "as it is now", body = ConnectorShape)))]
async fn resume_connector(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.set_connector_status(&named(name)?, Status::Active).await?))
}

/// The jobs that match, the oldest first
///
/// Deleted ones are left out unless `status=deleted`.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(
    ("exchange_id" = Option<String>, Query, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$"),
    ("type" = Option<TypeShape>, Query),
    ("symbol" = Option<String>, Query, pattern = "^[A-Z0-9]{1,20}/[A-Z0-9]{1,20}$"),
    ("timeframe" = Option<TimeframeShape>, Query),
    ("status" = Option<StatusShape>, Query),
    ("state" = Option<StateShape>, Query),
    ("limit" = Option<u32>, Query, minimum = 1, maximum = 500, description = "so many at once; default 100"),
    ("after" = Option<String>, Query, pattern = "^[0-9a-f]{24}$", description = "the `next` of the page before"),
), responses((status = 200, description = "a page", body = JobListShape)))]
async fn list_jobs(State(desk): State<Desk>, RawQuery(query): RawQuery) -> Answer {
    Ok(json(StatusCode::OK, &desk.jobs(&query.unwrap_or_default()).await?))
}

/// Add a job
///
/// At most one is active for an exchange, type, symbol and timeframe. Asked for twice, the one that is there is the answer;
/// if it differs from what is asked for, it is a conflict.
#[utoipa::path(post, path = "/jobs", tag = "jobs", request_body = NewJobShape, responses(
    (status = 201, description = "it is new", body = JobShape),
    (status = 200, description = "it was there", body = JobShape),
    (status = 409, description = "another is active in its place", body = Problem, content_type = "application/problem+json"),
))]
async fn add_job(State(desk): State<Desk>, Given(body): Given) -> Answer {
    let (job, is_new) = desk.add_job(body).await?;
    Ok(made(is_new, &format!("/api/v1/jobs/{}", job.id), &job))
}

/// One job
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path, pattern = "^[0-9a-f]{24}$")),
    responses((status = 200, description = "as it is now", body = JobShape)))]
async fn get_job(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.job(&named(name)?).await?))
}

/// Change when it runs, how urgent it is, or where it begins
#[utoipa::path(put, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path, pattern = "^[0-9a-f]{24}$")),
    request_body = JobChangeShape, responses(
    (status = 200, description = "as it is now", body = JobShape),
    (status = 409, description = "it is running; its cursor stays", body = Problem, content_type = "application/problem+json"),
))]
async fn change_job(State(desk): State<Desk>, name: Named, Given(body): Given) -> Answer {
    Ok(json(StatusCode::OK, &desk.change_job(&named(name)?, body).await?))
}

/// Delete it; a worker that is at it can write no more
#[utoipa::path(delete, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path, pattern = "^[0-9a-f]{24}$")),
    responses((status = 204, description = "it is deleted")))]
async fn delete_job(State(desk): State<Desk>, name: Named) -> Answer {
    desk.delete_job(&named(name)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Do not begin it again until it is resumed
#[utoipa::path(post, path = "/jobs/{id}/pause", tag = "jobs", params(("id" = String, Path, pattern = "^[0-9a-f]{24}$")),
    responses((status = 200, description = "as it is now", body = JobShape)))]
async fn pause_job(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.pause_job(&named(name)?).await?))
}

/// Let it go on from its cursor; one that was given up has all its attempts again
#[utoipa::path(post, path = "/jobs/{id}/resume", tag = "jobs", params(("id" = String, Path, pattern = "^[0-9a-f]{24}$")),
    responses(
    (status = 200, description = "as it is now", body = JobShape),
    (status = 409, description = "another is active in its place", body = Problem, content_type = "application/problem+json"),
))]
async fn resume_job(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.resume_job(&named(name)?).await?))
}

/// Run it now
#[utoipa::path(post, path = "/jobs/{id}/run", tag = "jobs", params(("id" = String, Path, pattern = "^[0-9a-f]{24}$")),
    responses(
    (status = 200, description = "as it is now", body = JobShape),
    (status = 409, description = "it is not active", body = Problem, content_type = "application/problem+json"),
))]
async fn run_job(State(desk): State<Desk>, name: Named) -> Answer {
    Ok(json(StatusCode::OK, &desk.run_job(&named(name)?).await?))
}

/// Candles of a series that open within a stretch of time
///
/// As JSON or as CSV. Where there are more, the header `Link` says where the rest is, and so does `next_since_ms`.
#[utoipa::path(get, path = "/candles", tag = "candles", params(
    ("exchange_id" = String, Query, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$"),
    ("symbol" = String, Query, pattern = "^[A-Z0-9]{1,20}/[A-Z0-9]{1,20}$", example = "BTC/USDT"),
    ("timeframe" = inline(TimeframeShape), Query),
    ("since_ms" = Option<u64>, Query, maximum = 253_402_300_799_999_u64, description = "from here on; default: from the first"),
    ("until_ms" = Option<u64>, Query, minimum = 1, maximum = 253_402_300_799_999_u64, description = "before this; default: up to the last"),
    ("limit" = Option<u32>, Query, minimum = 1, maximum = 10_000, description = "so many at once; default 1000"),
    ("format" = Option<FormatShape>, Query, description = "default: json"),
), responses((status = 200, description = "the first of them", content(
    (CandlePageShape = "application/json"),
    (String = "text/csv"),
), headers(("Link" = String, description = "where the rest is, with rel=next")))))]
async fn get_candles(State(desk): State<Desk>, RawQuery(query): RawQuery) -> Answer {
    let page = desk.candles(&query.unwrap_or_default()).await?;
    let mut response = match page.is_csv {
        false => json(StatusCode::OK, &page),
        true => {
            let kind = HeaderValue::from_static("text/csv; charset=utf-8");
            ([(header::CONTENT_TYPE, kind)], page.csv()).into_response()
        }
    };
    let rest = page.rest().and_then(|rest| HeaderValue::try_from(format!("<{rest}>; rel=\"next\"")).ok());
    if let Some(rest) = rest {
        response.headers_mut().insert(header::LINK, rest);
    }
    Ok(response)
}

/// What there is of a series, and what is missing
///
/// From its first candle up to now, or within a stretch of time.
#[utoipa::path(get, path = "/coverage", tag = "candles", params(
    ("exchange_id" = String, Query, pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$"),
    ("symbol" = String, Query, pattern = "^[A-Z0-9]{1,20}/[A-Z0-9]{1,20}$", example = "BTC/USDT"),
    ("timeframe" = inline(TimeframeShape), Query),
    ("since_ms" = Option<u64>, Query, maximum = 253_402_300_799_999_u64, description = "from here on; default: from the first candle"),
    ("until_ms" = Option<u64>, Query, minimum = 1, maximum = 253_402_300_799_999_u64, description = "before this; default: up to now"),
    ("limit" = Option<u32>, Query, minimum = 1, maximum = 1_000, description = "so many stretches of each kind at once; default 100"),
), responses((status = 200, description = "the first of them", body = CoverageShape)))]
async fn get_coverage(State(desk): State<Desk>, RawQuery(query): RawQuery) -> Answer {
    Ok(json(StatusCode::OK, &desk.coverage(&query.unwrap_or_default()).await?))
}
