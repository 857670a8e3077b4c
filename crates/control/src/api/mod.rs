//! `/api/v1`: connectors, jobs and candles, for programs and for the command line.
//!
//! * [`Desk`]: what can be done; everything given is checked there
//! * `http`: the desk's addresses; `shapes`: what goes over the wire, for the OpenAPI description
//! * [`Problem`]: why something was refused
//! * [`Catalogue`]: which exchanges there are; this room knows none by itself
//!
//! Deliberately absent: keys for idempotency. What may be sent twice is recognised by what it is: an exchange has one
//! connector, and a job of an exchange, type, symbol and timeframe is active once.

mod candles;
mod catalogue;
mod desk;
mod fields;
pub(crate) mod http;
mod problem;
mod shapes;

use std::collections::BTreeSet;

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, Info, OpenApi, Ref, RefOr, ResponseBuilder, SecurityRequirement,
    Server,
};
use utoipa::{PartialSchema, ToSchema};

use self::shapes::{FormatShape, LiveStatusShape, StateShape, StatusShape, TimeframeShape, TypeShape};

pub use candles::{CandlePage, Covered, Lack, Stretch};
pub use catalogue::{Catalogue, Exchange};
pub use desk::{Desk, Listed, Opened};
pub use fields::query;
pub use problem::{FieldError, Kind, Problem};

/// The addresses and their description.
pub(crate) fn routes() -> (axum::Router<Desk>, OpenApi) {
    let (router, mut api) = http::routes();
    api.info = Info::new("Catchment", env!("CARGO_PKG_VERSION"));
    api.info.description = Some("Connectors, jobs and candles of a recorder.".to_owned());
    api.servers = Some(vec![Server::new("/api/v1")]);
    describe_refusals(&mut api);
    (router, api)
}

/// The description as it is served and as it is committed.
pub fn openapi() -> String {
    let (_, api) = routes();
    let mut text = api.to_pretty_json().expect("a description always serialises");
    text.push('\n');
    text
}

/// Every address can refuse, and does so in the same words.
fn describe_refusals(api: &mut OpenApi) {
    let components = api.components.take().unwrap_or_default();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = ComponentsBuilder::from(components)
        .schema("Problem", Problem::schema())
        .schema("FieldError", FieldError::schema())
        .schema(TypeShape::name(), TypeShape::schema())
        .schema(StatusShape::name(), StatusShape::schema())
        .schema(LiveStatusShape::name(), LiveStatusShape::schema())
        .schema(StateShape::name(), StateShape::schema())
        .schema(TimeframeShape::name(), TimeframeShape::schema())
        .schema(FormatShape::name(), FormatShape::schema())
        .security_scheme("token", bearer)
        .build();
    api.components = Some(components);
    // Only beyond loopback.
    let either = [SecurityRequirement::default(), SecurityRequirement::new("token", Vec::<String>::new())];
    api.security = Some(either.into());
    for (path, item) in &mut api.paths.paths {
        let has_name = path.contains('{');
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            add_refusals(operation, has_name);
        }
    }
}

fn add_refusals(operation: &mut Operation, has_name: bool) {
    let mut kinds = vec![Kind::Token, Kind::Foreign, Kind::Invalid, Kind::Damaged, Kind::Unavailable];
    if has_name {
        kinds.push(Kind::NotFound);
    }
    if operation.request_body.is_some() {
        kinds.extend([Kind::Malformed, Kind::Slow, Kind::TooLarge, Kind::MediaType]);
    }
    let said: BTreeSet<String> = operation.responses.responses.keys().cloned().collect();
    for kind in Kind::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
        let status = kind.status().as_str().to_owned();
        if said.contains(&status) {
            continue;
        }
        let schema = RefOr::Ref(Ref::from_schema_name(Problem::name()));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response =
            ResponseBuilder::new().description(kind.title()).content(problem::CONTENT_TYPE, content);
        operation.responses.responses.insert(status, RefOr::T(response.build()));
    }
}
