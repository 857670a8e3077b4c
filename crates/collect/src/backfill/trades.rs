//! S2's jobs for what a stream has missed: trades of the past, into the pipeline, on their channel.
//!
//! A page is durable in the spool before the cursor moves on; a worker that dies between the two leaves records that come
//! again, with the same `message_id`. Records say `backfill:<job>` where they are from.
//!
//! The lease is renewed directly before a page is recorded, and one that is lost records nothing. What remains: a worker that
//! stands still for longer than its lease between that renewal and the spool's answer records a page that its successor
//! records too, with the same `message_id`s; it moves no cursor.

use std::sync::atomic::Ordering;

use catchment_governor::Lane;
use catchment_jobs::{Cursor, Done, RunError};
use catchment_model::{Channel, Envelope, Payload, Source, Symbol};
use catchment_pipeline::{Fate, Intake};
use catchment_venues::trades::{PastTrade, TradeAsk, trades_of};

use super::errand::{Errand, Halt};
use crate::Reply;

/// From `since_ms` to `until_ms`.
pub(super) async fn trades(errand: &Errand<'_>, intake: Option<&Intake>) -> Result<Done, Halt> {
    let job = errand.work.job();
    let hopeless = |reason: String| Halt::Failed(RunError::Hopeless(reason));
    let venue = trades_of(errand.venue.venue.as_str())
        .ok_or_else(|| hopeless(format!("{} has no trades of the past", errand.venue.venue)))?;
    let intake = intake.ok_or_else(|| hopeless("this process records nothing".to_owned()))?;
    let symbol = job.symbol.clone().ok_or_else(|| hopeless("it names no symbol".to_owned()))?;
    let channel = Channel::new(venue.channel).expect("a plain name");
    loop {
        let mut cursor = errand.work.cursor();
        let ask = TradeAsk {
            base: errand.venue.base.clone(),
            symbol: symbol.clone(),
            since: cursor.since_ms,
            until: cursor.until_ms.unwrap_or_else(|| errand.now()),
            cursor: cursor.next.clone(),
        };
        let request =
            venue.request(&ask).ok_or_else(|| hopeless(format!("{symbol:?} is not like BTC/USDT")))?;
        let reply = errand.send(&request, Lane::GapFill).await?;
        let page = venue.read(&ask, &reply.body);
        let page = page
            .map_err(|error| RunError::failed(format!("the trades of {symbol} cannot be read: {error}")))?;
        // The spool knows no fences: whoever is not the holder any more finds out here.
        errand.work.renew().await?;
        record(errand, intake, channel, &symbol, &reply, &page.trades).await?;
        errand.tally.trades.fetch_add(page.trades.len() as u64, Ordering::Relaxed);
        let newest = page.trades.iter().map(|trade| trade.time).max();
        cursor = Cursor { page: cursor.page + 1, last_ts: newest.unwrap_or(cursor.last_ts), ..cursor };
        let is_over = page.next.is_none();
        // Of the last page the cursor is kept: whoever runs it again begins there.
        cursor.next = page.next.or(cursor.next);
        errand.work.save(cursor, &[], &[]).await?;
        if is_over {
            return Ok(Done::ForGood);
        }
    }
}

async fn record(
    errand: &Errand<'_>,
    intake: &Intake,
    channel: Channel,
    symbol: &str,
    reply: &Reply,
    trades: &[PastTrade<'_>],
) -> Result<(), RunError> {
    if trades.is_empty() {
        return Ok(());
    }
    let source = format!("backfill:{}", errand.work.job().id);
    let mut draft = intake.draft();
    for trade in trades {
        // Within its strings JSON has no line breaks; between, they say nothing.
        let json: Vec<u8> =
            trade.raw.get().bytes().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }).collect();
        let pushed = draft.push(&Envelope {
            message_id: Some(&trade.id),
            sequence: None,
            exchange: errand.venue.venue,
            channel,
            symbol: Symbol::new(symbol).unwrap_or(Symbol::ALL),
            server_time: Some(trade.time),
            received_at: reply.received_at,
            payload: Payload::already_validated(&json)
                .map_err(|error| RunError::failed(error.to_string()))?,
            source: Source::new(&source).unwrap_or(Source::RECORDER),
        });
        pushed.map_err(|error| RunError::failed(error.to_string()))?;
    }
    let receipt = intake.accept(draft).await.map_err(|error| RunError::failed(error.to_string()))?;
    match receipt.fates.iter().any(|fate| matches!(fate, Fate::Dropped)) {
        true => Err(RunError::failed("the spool is full; the page is fetched again later")),
        false => Ok(()),
    }
}
