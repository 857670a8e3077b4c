//! The API beside a recorder, or alone; and which exchanges it knows.

use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream;
use catchment_control::api::{Catalogue, Desk, Exchange};
use catchment_control::{Control, Reserved, Status};
use catchment_governor::Limits;
use catchment_jobs::{JobType, NewConnector, connector_of};
use catchment_model::{Clock, SystemClock, Venue};
use catchment_venues::candles::{CANDLE_VENUES, CandleVenue};
use catchment_venues::stream::Descriptor;
use catchment_venues::{markets, trades};

use crate::accounts::Door;
use crate::config::{ApiConfig, Config};
use crate::signals::{self, told};
use crate::{DONE, say, store};

/// How much of an exchange's declared limits a new connector uses, as a venue without settings does.
const SHARE: f64 = 0.95;

/// Takes the place where it will answer. The first of all that is opened: if it is taken, nothing else was touched.
pub(crate) async fn reserve(api: &ApiConfig) -> anyhow::Result<Reserved> {
    Ok(Control::reserve(api.settings()?).await?)
}

/// Starts to answer. The store is the recorder's, once that is open, or it is opened when somebody first asks for something
/// in it.
pub(crate) fn start(
    config: &Config,
    place: Reserved,
    look: impl Fn() -> Status + Send + Sync + 'static,
    door: Option<Door>,
) -> Control {
    let desk = match door {
        Some(door) => {
            let open = move || {
                let opened = door.store();
                std::future::ready(opened.ok_or_else(|| "the store is not open yet".to_owned()))
            };
            Desk::opening(open, catalogue())
        }
        None => {
            let place = config.store.clone();
            let open = move || {
                let place = place.clone();
                async move { store::open(&place).await.map_err(|error| format!("{error:#}")) }
            };
            Desk::opening(open, catalogue())
        }
    };
    let control = place.mount(config.mock).serve(look, Some(desk));
    let addr = control.addr();
    say(&format!("live figures: http://{addr}/"));
    say(&format!("api: http://{addr}/api/v1/"));
    if config.mock.is_some() {
        for path in ["ws/public", "ws/private"] {
            say(&format!("mock: ws://{addr}/mock/{path}"));
        }
        for path in ["rest/time", "rest/snapshot?symbol=BTC/USDT"] {
            say(&format!("mock: http://{addr}/mock/{path}"));
        }
    }
    control
}

/// `run --only api`: answers until it is enough, and records nothing.
pub(crate) fn only(config: &Config, length: Option<Duration>) -> anyhow::Result<u8> {
    let api = config.api.as_ref().context("api.enabled is false, so there is nothing to serve")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut enough = signals::listen("what is under way is ended")?;
        let clock = SystemClock::new();
        let started = clock.monotonic();
        let look = move || Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: clock.monotonic().since(started).as_secs(),
            ..Status::default()
        };
        let _control = start(config, reserve(api).await?, look, None);
        match length {
            Some(length) => drop(tokio::time::timeout(length, told(&mut enough)).await),
            None => told(&mut enough).await,
        }
        Ok(DONE)
    })
}

/// Every exchange that can have jobs: those with candles.
pub(crate) fn catalogue() -> Catalogue {
    Catalogue::new(CANDLE_VENUES.iter().filter_map(|venue| exchange(venue)).collect())
}

fn exchange(venue: &CandleVenue) -> Option<Exchange> {
    let id = Venue::new(venue.id).ok()?;
    let described = Descriptor::shipped().iter().find(|descriptor| descriptor.id() == venue.id);
    let limits = described.and_then(|descriptor| Limits::new(stream::families_of(descriptor), SHARE).ok());
    let new = limits.map_or_else(|| NewConnector::new(id), |limits| connector_of(id, &limits));
    let can = |kind: &JobType| match kind {
        JobType::MarketsRefresh => markets::markets_of(venue.id).is_some(),
        JobType::TradesBackfill => trades::trades_of(venue.id).is_some(),
        JobType::OhlcvIncremental | JobType::OhlcvBackfill | JobType::GapBackfill => true,
    };
    Some(Exchange {
        id,
        rate: new.rate,
        types: JobType::ALL.into_iter().filter(can).collect(),
        timeframes: venue.timeframes.iter().map(|(timeframe, _)| *timeframe).collect(),
    })
}
