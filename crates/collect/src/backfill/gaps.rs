//! A gap of a stream becomes a `trades_backfill`, where the venue has trades of the past.
//!
//! At most one is active for a symbol (S2's unique index). What comes meanwhile is added to a stretch that waits its turn, in
//! memory: the gap itself is in the data, so a process that dies forgets the wish to fill it, not the gap.
//!
//! While nobody listened, after a crash or a stop, all symbols of a channel have missed the same stretch: [`gaps_of_absence`]
//! makes a notice for each of those that are listened to again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catchment_jobs::{Cursor, JobType, NewJob, Store, StoreError};
use catchment_model::{Gap, UnixMs, Venue};
use catchment_pipeline::Resumed;
use catchment_venues::stream::{Descriptor, Wanted};
use catchment_venues::trades::{TradeVenue, trades_of};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::events;

/// Symbols that may wait. Full: the newest is not filled, which is told.
const WAITING_MAX: usize = 4_096;
/// How often those that wait are tried.
const AGAIN: Duration = Duration::from_secs(5);
/// What a bound of a gap may be off: it is a receive time, and a trade's own is the venue's.
const MARGIN_MS: i64 = 2_000;

/// A stream may have missed something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapNotice {
    /// Where.
    pub venue: Venue,
    /// Of which symbol.
    pub symbol: String,
    /// As it was recorded.
    pub gap: Gap,
}

/// What each symbol has missed while nobody listened, until `now`; once, whichever of its channels has trades.
pub fn gaps_of_absence(
    descriptor: &Descriptor,
    wanted: &[Wanted],
    resumed: &[Resumed],
    now: UnixMs,
) -> Vec<GapNotice> {
    let venue = descriptor.venue();
    let Some(past) = trades_of(venue.as_str()) else { return Vec::new() };
    let mut gaps: BTreeMap<&str, Gap> = BTreeMap::new();
    for wanted in wanted {
        let channel = descriptor.channels()[wanted.channel].name;
        let of_it = resumed.iter().filter(|stream| stream.venue == venue && stream.channel == channel);
        for stream in of_it {
            let gap = Gap::new(channel.as_str(), stream.since.min(now), now, stream.cause);
            if !is_of(past, &gap) {
                continue;
            }
            let known = gaps.entry(wanted.instrument.symbol.as_str()).or_insert_with(|| gap.clone());
            known.from_ms = known.from_ms.min(gap.from_ms);
        }
    }
    gaps.into_iter().map(|(symbol, gap)| GapNotice { venue, symbol: symbol.to_owned(), gap }).collect()
}

/// A stretch that is to be fetched.
#[derive(Debug, Clone)]
struct Stretch {
    from: UnixMs,
    to: UnixMs,
    /// Where pages begin, if that is known.
    next: Option<String>,
}

/// Turns what it is told into jobs, until told to stop.
pub async fn backfill_gaps(
    store: Arc<dyn Store>,
    mut told: mpsc::Receiver<GapNotice>,
    stop: CancellationToken,
) {
    let mut waiting: BTreeMap<(Venue, String), Stretch> = BTreeMap::new();
    let mut again = tokio::time::interval(AGAIN);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            notice = told.recv() => match notice {
                Some(notice) => wait_for(&mut waiting, notice),
                None => return,
            },
            _ = again.tick() => {}
        }
        let mut left = BTreeMap::new();
        for ((venue, symbol), wanted) in std::mem::take(&mut waiting) {
            match add(&*store, venue, &symbol, &wanted).await {
                Ok(()) => {}
                // Another is being filled, or the store is away: later.
                Err(StoreError::AlreadyActive(_) | StoreError::Unreachable { .. }) => {
                    left.insert((venue, symbol), wanted);
                }
                Err(error) => events::gap_not_filled(venue, &symbol, &error.to_string()),
            }
        }
        waiting = left;
    }
}

fn wait_for(waiting: &mut BTreeMap<(Venue, String), Stretch>, notice: GapNotice) {
    let GapNotice { venue, symbol, gap } = notice;
    let Some(past) = trades_of(venue.as_str()).filter(|past| is_of(past, &gap)) else { return };
    let bound = |at: UnixMs, by: i64| UnixMs::new((at.get() + by).max(1)).unwrap_or(at);
    let (from, to) = (bound(gap.from_ms, -MARGIN_MS), bound(gap.to_ms, MARGIN_MS));
    // The trade after the last that is missing.
    let last = gap.last_missing.as_deref().filter(|_| past.goes_back);
    let next = last.and_then(|last| Some((last.parse::<u64>().ok()?.checked_add(1)?).to_string()));
    if waiting.len() >= WAITING_MAX && !waiting.contains_key(&(venue, symbol.clone())) {
        events::gap_not_filled(venue, &symbol, "too many others wait");
        return;
    }
    let wanted = waiting.entry((venue, symbol)).or_insert_with(|| Stretch { from, to, next: next.clone() });
    if wanted.to < to {
        // The later one says where pages begin.
        wanted.next = next;
    }
    (wanted.from, wanted.to) = (wanted.from.min(from), wanted.to.max(to));
}

/// Single trades may be filled with aggregates of them: nothing that was traded is left out.
fn is_of(past: &TradeVenue, gap: &Gap) -> bool {
    gap.channel == past.channel || gap.channel == "trades"
}

async fn add(store: &dyn Store, venue: Venue, symbol: &str, wanted: &Stretch) -> Result<(), StoreError> {
    let cursor = Cursor { next: wanted.next.clone(), ..Cursor::over(wanted.from, Some(wanted.to)) };
    let new =
        NewJob { symbol: Some(symbol.to_owned()), cursor, ..NewJob::new(venue, JobType::TradesBackfill) };
    let job = store.add_job(&new).await?;
    events::gap_to_be_filled(venue, symbol, wanted.from, wanted.to, job.id);
    Ok(())
}
