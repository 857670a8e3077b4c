//! What goes over the wire, as the OpenAPI description has it. Nothing here is ever made: what is sent is the store's own
//! documents, what is taken is read field by field. A test holds these shapes to both.

#![allow(dead_code, reason = "they are only described, never made")]

use catchment_jobs::{HoleKind, JobType, State, Status};
use catchment_model::Timeframe;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A name out of a list that the code has anyway.
macro_rules! names {
    ($($shape:ident, $name:literal, $about:literal, $all:expr, $spelt:expr;)*) => {$(
        pub(crate) struct $shape;

        impl PartialSchema for $shape {
            fn schema() -> RefOr<Schema> {
                let names = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some($about))
                    .enum_values(Some($all.map($spelt)));
                RefOr::T(Schema::Object(names.build()))
            }
        }

        impl ToSchema for $shape {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
        }
    )*};
}

names! {
    TypeShape, "JobType", "What a job does.", JobType::ALL, JobType::as_str;
    StatusShape, "Status", "What its owner wants of it.", Status::ALL, Status::as_str;
    HoleKindShape, "HoleKind", "absent: the exchange itself has none; unreachable: it does not give them any more.", HoleKind::ALL, HoleKind::as_str;
    StateShape, "State", "Where a job stands.", State::ALL, State::as_str;
    TimeframeShape, "Timeframe", "How long a candle lasts: 1m is a minute, 1M a month.", Timeframe::ALL, Timeframe::as_str;
    LiveStatusShape, "LiveStatus", "Whether it runs.", [Status::Active, Status::Paused], Status::as_str;
    FormatShape, "Format", "As what.", ["json", "csv"], |format: &'static str| format;
}

/// A connector: one exchange, and the budget that all who ask it share.
#[derive(ToSchema)]
#[schema(as = Connector)]
pub(crate) struct ConnectorShape {
    #[schema(pattern = "^[0-9a-f]{24}$")]
    _id: String,
    /// Which exchange.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$", example = "binance")]
    exchange_id: String,
    #[schema(format = DateTime)]
    creation_date: String,
    #[schema(inline)]
    status: StatusShape,
    /// Whatever its owner wants to remember.
    #[schema(required = true)]
    notes: Option<String>,
    /// How long the window is.
    #[schema(minimum = 10, maximum = 604_800_000)]
    rate_limit_period_ms: u64,
    /// How many requests it lets through; and in no other interval of its length more.
    #[schema(minimum = 1, maximum = 100_000_000)]
    rate_limit: u32,
    /// How many it let through so far.
    rate_limit_usage: u32,
    /// When the window began, in milliseconds since 1970.
    rate_limit_window_start: u64,
    /// When it ends.
    rate_limit_reset_at: u64,
    /// How often somebody asked for a token and there was none.
    rate_limit_saturated: u64,
    #[schema(required = true, format = DateTime)]
    last_job_run_time: Option<String>,
    /// Jobs that are not deleted.
    jobs_count: u64,
    /// Of these, those that are active.
    active_jobs_count: u64,
    /// So many of its jobs run at once; null: no cap.
    #[schema(required = true)]
    max_concurrent_jobs: Option<u32>,
    /// Further limits, by families of requests.
    windows: Vec<WindowShape>,
    #[schema(format = DateTime)]
    updated_at: String,
}

/// A further limit.
#[derive(ToSchema)]
#[schema(as = Window)]
pub(crate) struct WindowShape {
    name: String,
    limit: u32,
    period_ms: u64,
}

/// A connector that should be there.
#[derive(ToSchema)]
#[schema(as = NewConnector)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConnectorShape {
    /// Which exchange.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$", example = "binance")]
    exchange_id: String,
    /// How many requests; default: what the exchange allows.
    #[schema(minimum = 1, maximum = 100_000_000)]
    rate_limit: Option<u32>,
    /// In how many milliseconds.
    #[schema(minimum = 10, maximum = 604_800_000)]
    rate_limit_period_ms: Option<u64>,
    /// So many of its jobs run at once; 0: no cap.
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_concurrent_jobs: Option<u32>,
}

/// What is to be changed of a connector; what is left out stays.
#[derive(ToSchema)]
#[schema(as = ConnectorChange)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConnectorChangeShape {
    /// How many requests.
    #[schema(minimum = 1, maximum = 100_000_000)]
    rate_limit: Option<u32>,
    /// In how many milliseconds.
    #[schema(minimum = 10, maximum = 604_800_000)]
    rate_limit_period_ms: Option<u64>,
    /// So many of its jobs run at once; 0: no cap.
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_concurrent_jobs: Option<u32>,
    /// Whatever its owner wants to remember; an empty text forgets it.
    #[schema(max_length = 1_024)]
    notes: Option<String>,
}

/// A part of the connectors, by name.
#[derive(ToSchema)]
#[schema(as = ConnectorList)]
pub(crate) struct ConnectorListShape {
    items: Vec<ConnectorShape>,
    /// What to give as `after` for the rest; null: that is all.
    #[schema(required = true)]
    next: Option<String>,
}

/// A job: work on one exchange that is done again and again, or page by page until it is finished.
#[derive(ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobShape {
    #[schema(pattern = "^[0-9a-f]{24}$")]
    _id: String,
    exchange_id: String,
    #[schema(rename = "type", inline)]
    kind: TypeShape,
    /// `BASE/QUOTE`; null where it is about the whole exchange.
    #[schema(required = true)]
    symbol: Option<String>,
    #[schema(required = true, inline)]
    timeframe: Option<TimeframeShape>,
    #[schema(inline)]
    status: StatusShape,
    #[schema(inline)]
    state: StateShape,
    schedule: ScheduleShape,
    /// Not before this, in milliseconds since 1970.
    next_run_at: u64,
    /// The lower, the sooner.
    #[schema(minimum = 0, maximum = 255)]
    priority: u8,
    cursor: CursorShape,
    stats: StatsShape,
    lock: LockShape,
    /// Grows whenever a worker takes it; a worker with an older one can write no more.
    fence: u64,
    /// Failures since it last went well.
    attempts: u32,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
}

/// When a job runs again.
#[derive(ToSchema)]
#[schema(as = Schedule)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ScheduleShape {
    /// Again and again.
    Interval {
        /// How often, give or take a twentieth.
        #[schema(minimum = 100, maximum = 31_622_400_000_u64)]
        interval_ms: u64,
    },
    /// Until it is finished.
    Once,
}

/// How far a job is. Times in milliseconds since 1970.
#[derive(ToSchema)]
#[schema(as = Cursor)]
pub(crate) struct CursorShape {
    /// From here on; 0: from the first there is.
    since_ms: u64,
    /// Up to here and not further; null: up to now.
    #[schema(required = true)]
    until_ms: Option<u64>,
    /// Pages saved so far.
    page: u64,
    /// The time of the last record saved.
    last_ts: u64,
    /// There is nothing more to fetch.
    done: bool,
    /// What the venue wants to see for the next page, where a time does not say it.
    #[schema(nullable = false)]
    next: Option<String>,
}

/// What became of its runs.
#[derive(ToSchema)]
#[schema(as = Stats)]
pub(crate) struct StatsShape {
    runs: u64,
    success: u64,
    fail: u64,
    #[schema(required = true, format = DateTime)]
    last_run_at: Option<String>,
    #[schema(required = true, format = DateTime)]
    last_success_at: Option<String>,
    #[schema(required = true)]
    last_error: Option<String>,
}

/// Who works on it.
#[derive(ToSchema)]
#[schema(as = Lock)]
pub(crate) struct LockShape {
    #[schema(required = true)]
    locked_by: Option<String>,
    /// From then on another may take it, in milliseconds since 1970.
    #[schema(required = true)]
    lock_until: Option<u64>,
}

/// A stretch of time, in milliseconds since 1970.
#[derive(ToSchema)]
#[schema(as = Stretch)]
#[serde(deny_unknown_fields)]
pub(crate) struct StretchShape {
    /// From here on; 0 or nothing: from the first there is.
    #[schema(minimum = 0, maximum = 253_402_300_799_999_u64)]
    since_ms: Option<u64>,
    /// Up to here and not further; nothing: up to now. After `since_ms`.
    #[schema(minimum = 1, maximum = 253_402_300_799_999_u64)]
    until_ms: Option<u64>,
}

/// A job that should be there.
#[derive(ToSchema)]
#[schema(as = NewJob)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJobShape {
    /// On which exchange; its connector must be there.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,30}$", example = "binance")]
    exchange_id: String,
    #[schema(rename = "type", inline)]
    kind: TypeShape,
    /// For which symbol; all types but markets_refresh need one.
    #[schema(pattern = "^[A-Z0-9]{1,20}/[A-Z0-9]{1,20}$", example = "BTC/USDT")]
    symbol: Option<String>,
    /// For which candles; all types about candles need one.
    #[schema(inline)]
    timeframe: Option<TimeframeShape>,
    /// Default: what suits the type.
    schedule: Option<ScheduleShape>,
    /// Not before this, in milliseconds since 1970; default: now.
    #[schema(minimum = 0, maximum = 253_402_300_799_999_u64)]
    next_run_at: Option<u64>,
    /// The lower, the sooner; default: what suits the type.
    #[schema(minimum = 0, maximum = 255)]
    priority: Option<u8>,
    /// Where it begins and ends; a gap_backfill needs an end.
    cursor: Option<StretchShape>,
}

/// What is to be changed of a job; what is left out stays.
#[derive(ToSchema)]
#[schema(as = JobChange)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobChangeShape {
    schedule: Option<ScheduleShape>,
    /// Not before this, in milliseconds since 1970.
    #[schema(minimum = 0, maximum = 253_402_300_799_999_u64)]
    next_run_at: Option<u64>,
    /// The lower, the sooner.
    #[schema(minimum = 0, maximum = 255)]
    priority: Option<u8>,
    /// It begins again here; only while nobody works on it.
    cursor: Option<StretchShape>,
}

/// A part of the jobs, the oldest first.
#[derive(ToSchema)]
#[schema(as = JobList)]
pub(crate) struct JobListShape {
    items: Vec<JobShape>,
    /// What to give as `after` for the rest; null: that is all.
    #[schema(required = true)]
    next: Option<String>,
}

/// Some candles, in order.
#[derive(ToSchema)]
#[schema(as = CandlePage)]
pub(crate) struct CandlePageShape {
    exchange_id: String,
    symbol: String,
    #[schema(inline)]
    timeframe: TimeframeShape,
    candles: Vec<CandleShape>,
    /// What to give as `since_ms` for the rest; null: that is all.
    #[schema(required = true)]
    next_since_ms: Option<u64>,
}

/// What happened in one stretch of time. Amounts are the exchange's own text, no digit lost.
#[derive(ToSchema)]
#[schema(as = Candle)]
pub(crate) struct CandleShape {
    /// In milliseconds since 1970.
    open_time: u64,
    #[schema(example = "42000.10")]
    open: String,
    high: String,
    low: String,
    close: String,
    /// In the base currency.
    volume: String,
    /// In the quote currency, where the exchange says.
    #[schema(nullable = false)]
    quote_volume: Option<String>,
    /// How many, where the exchange says.
    #[schema(nullable = false)]
    trades: Option<u64>,
    /// Whether it has closed; only such are stored.
    is_final: bool,
}

/// What there is of a series, and what is not.
#[derive(ToSchema)]
#[schema(as = Coverage)]
pub(crate) struct CoverageShape {
    exchange_id: String,
    symbol: String,
    #[schema(inline)]
    timeframe: TimeframeShape,
    /// How many candles there are at all.
    candles: u64,
    /// When the first of them opens.
    #[schema(required = true)]
    first: Option<u64>,
    /// When the last of them opens.
    #[schema(required = true)]
    last: Option<u64>,
    /// Where there are candles, without a break.
    ranges: Vec<SpanShape>,
    /// Where there should be some.
    missing: Vec<SpanShape>,
    /// Where there are none to be had.
    holes: Vec<HoleShape>,
    /// What to give as `since_ms` for the rest; null: that is all.
    #[schema(required = true)]
    next_since_ms: Option<u64>,
}

/// From a moment up to, not including, another, in milliseconds since 1970.
#[derive(ToSchema)]
#[schema(as = Span)]
pub(crate) struct SpanShape {
    since_ms: u64,
    until_ms: u64,
}

/// A stretch without candles that is not asked for again, and why.
#[derive(ToSchema)]
#[schema(as = Hole)]
pub(crate) struct HoleShape {
    since_ms: u64,
    until_ms: u64,
    #[schema(inline)]
    kind: HoleKindShape,
}
