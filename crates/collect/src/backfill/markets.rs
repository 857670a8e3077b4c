//! S2's `markets_refresh`: what an exchange lists, and which candles it has, written down when it has changed.
//!
//! The symbols go into the store, so that a job for one that is not listed can be refused when it is added. And one envelope on the channel `markets`, symbol `*`; the job's cursor remembers a fingerprint of the last.
//!
//! ```text
//! {"markets":[{"symbol":"BTC/USDT","id":"BTCUSDT","active":true},…],"timeframes":["1m","5m",…]}
//! ```

use catchment_governor::Lane;
use catchment_jobs::{Cursor, Done, RunError};
use catchment_model::{Channel, Envelope, Payload, Source, Symbol};
use catchment_pipeline::Intake;
use catchment_venues::markets::{Market, markets_of};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::errand::{Errand, Halt};

#[derive(Serialize)]
struct Listing<'a> {
    markets: &'a [Market],
    timeframes: Vec<&'static str>,
}

pub(super) async fn markets(errand: &Errand<'_>, intake: Option<&Intake>) -> Result<Done, Halt> {
    let id = errand.venue.venue;
    let venue =
        markets_of(id.as_str()).ok_or_else(|| RunError::Hopeless(format!("{id} lists no markets here")))?;
    let reply = errand.send(&venue.request(&errand.venue.base), Lane::Backfill).await?;
    let markets = venue.read(&reply.body);
    let markets =
        markets.map_err(|error| RunError::failed(format!("the listing of {id} cannot be read: {error}")))?;
    // Always, not only when it has changed: a store may be younger than the job's cursor.
    let symbols: Vec<String> = markets.iter().map(|market| market.symbol.clone()).collect();
    errand.work.renew().await?;
    errand.work.store().put_listing(id, &symbols).await.map_err(RunError::from)?;
    let timeframes =
        errand.venue.candles.timeframes.iter().map(|(timeframe, _)| timeframe.as_str()).collect();
    let json = serde_json::to_vec(&Listing { markets: &markets, timeframes })
        .expect("plain fields always serialise");
    let print = format!("{:016x}", xxh3_64(&json));
    let cursor = errand.work.cursor();
    if cursor.next.as_ref() == Some(&print) {
        return Ok(Done::ForNow);
    }
    if let Some(intake) = intake {
        let mut draft = intake.draft();
        let pushed = draft.push(&Envelope {
            message_id: None,
            sequence: None,
            exchange: id,
            channel: Channel::new("markets").expect("a plain name"),
            symbol: Symbol::ALL,
            server_time: None,
            received_at: reply.received_at,
            payload: Payload::already_validated(&json)
                .map_err(|error| RunError::failed(error.to_string()))?,
            source: Source::new(&format!("backfill:{}", errand.work.job().id)).unwrap_or(Source::RECORDER),
        });
        pushed.map_err(|error| RunError::failed(error.to_string()))?;
        intake.accept(draft).await.map_err(|error| RunError::failed(error.to_string()))?;
    }
    let last_ts = reply.received_at.ms();
    errand
        .work
        .save(Cursor { page: cursor.page + 1, last_ts, next: Some(print), ..cursor }, &[], &[])
        .await?;
    Ok(Done::ForNow)
}
