//! Candles: their history, what is new, what is missing.
//!
//! A job's cursor begins at `since_ms`, which stays; `last_ts` is how far it is, so the next page begins one candle later.
//! A candle that has not closed by the venue's own clock is never saved: it is fetched again when it has.
//!
//! What an answer lacks is a hole of the venue if it was asked for because it was missing (`gap_backfill`), or if the venue
//! leaves out stretches without a trade. Otherwise it is found missing later, and asked for once more. An answer with nothing
//! in it may also be a venue in trouble: only the second, in a later run, makes a hole. What a venue does not give any more
//! is a hole of another kind.

use std::sync::atomic::Ordering;

use catchment_governor::Lane;
use catchment_jobs::{
    self as jobs, Cursor, Done, Hole, Job, JobFilter, JobType, RunError, Series, Span, State, Store, plan_gap,
};
use catchment_model::{Candle, Timeframe, UnixMs};
use catchment_venues::ReadError;
use catchment_venues::candles::{CandleAsk, CandlePage};

use super::Backfill;
use super::errand::{Errand, Halt};
use super::first::first_candle;
use super::holes::{can_tell, first_open, lacking};
use crate::events;

/// A new incremental job begins so many candles back, or a page, whichever is less.
const BEGIN_BACK: i64 = 300;

/// The series of a job.
pub(super) struct Line {
    pub(super) symbol: String,
    pub(super) timeframe: Timeframe,
}

impl Line {
    fn of(job: &Job) -> Result<Self, RunError> {
        match (&job.symbol, job.timeframe) {
            (Some(symbol), Some(timeframe)) => Ok(Self { symbol: symbol.clone(), timeframe }),
            _ => Err(RunError::Hopeless("it names no symbol or no timeframe".to_owned())),
        }
    }

    pub(super) fn unreadable(&self, error: &ReadError) -> RunError {
        RunError::failed(format!("the candles of {} {} cannot be read: {error}", self.symbol, self.timeframe))
    }
}

/// What to do about candles that an answer lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacking {
    /// They were asked for because they were missing: the venue has none.
    IsHole,
    /// They are missing, unless the venue leaves out what was not traded.
    IsMissing,
}

/// S2's `ohlcv_backfill`: from the first there is, or `since_ms`, up to `until_ms` or now.
pub(super) async fn backfill(errand: &Errand<'_>) -> Result<Done, Halt> {
    let line = Line::of(errand.work.job())?;
    let mut cursor = errand.work.cursor();
    if cursor.since_ms.get() == 0 && cursor.last_ts.get() == 0 {
        match first_candle(errand, &line).await? {
            Some(first) => cursor.since_ms = first,
            None => {
                let reason = format!("{} has no candles of {} at all", errand.venue.venue, line.symbol);
                return Err(RunError::failed(reason).into());
            }
        }
        if cursor.until_ms.is_some_and(|until| until <= cursor.since_ms) {
            // All of it was before the beginning.
            return Ok(Done::ForGood);
        }
        errand.work.save(cursor.clone(), &[], &[]).await?;
    }
    walk(errand, &line, cursor.until_ms, Lane::Backfill, Lacking::IsMissing).await?;
    Ok(Done::ForGood)
}

/// S2's `ohlcv_incremental`: what has closed since the last run.
pub(super) async fn incremental(errand: &Errand<'_>) -> Result<Done, Halt> {
    let line = Line::of(errand.work.job())?;
    let mut cursor = errand.work.cursor();
    if cursor.since_ms.get() == 0 && cursor.last_ts.get() == 0 {
        let back = BEGIN_BACK.min(i64::from(errand.venue.candles.page_rows)) * line.timeframe.ms();
        let now = line.timeframe.open_of(errand.now());
        let begin = UnixMs::new((now.get() - back).max(1)).unwrap_or(now);
        cursor.since_ms = first_open(line.timeframe, begin);
        errand.work.save(cursor, &[], &[]).await?;
    }
    walk(errand, &line, None, Lane::Live, Lacking::IsMissing).await?;
    Ok(Done::ForNow)
}

/// S2's `gap_backfill`: a stretch that was found missing.
pub(super) async fn gap(errand: &Errand<'_>) -> Result<Done, Halt> {
    let line = Line::of(errand.work.job())?;
    walk(errand, &line, errand.work.cursor().until_ms, Lane::GapFill, Lacking::IsHole).await?;
    Ok(Done::ForGood)
}

/// Page after page from where the cursor is, up to `until` or to the last candle that has closed.
async fn walk(
    errand: &Errand<'_>,
    line: &Line,
    until: Option<UnixMs>,
    lane: Lane,
    lacks: Lacking,
) -> Result<(), Halt> {
    let (venue, timeframe) = (errand.venue.candles, line.timeframe);
    loop {
        let mut cursor = errand.work.cursor();
        let since = first_open(timeframe, resume_at(&cursor, timeframe));
        let asked_at = errand.now();
        let closed = timeframe.open_of(asked_at);
        let until = until.map_or(closed, |until| until.min(closed));
        if since >= until {
            return Ok(());
        }
        let base = errand.venue.base.clone();
        let ask = CandleAsk { base, symbol: line.symbol.clone(), timeframe, since, until, now: asked_at };
        let request = venue.request(&ask).map_err(|error| RunError::Hopeless(error.to_string()))?;
        let reply = errand.send(&request, lane).await?;
        let seen = CandleAsk { now: errand.seen_at(asked_at, &reply), ..ask };
        let page = venue.read(&seen, &reply.body).map_err(|error| line.unreadable(&error))?;
        let page = Page::new(errand, line, &seen, page, lacks);
        if lacks == Lacking::IsHole && page.candles.is_empty() && page.unreachable.is_none() {
            let reason = doubt(errand, line, since);
            if errand.work.job().stats.last_error.as_ref() != Some(&reason) {
                return Err(RunError::Failed { reason, not_before: Some(errand.settings.doubt) }.into());
            }
        }
        cursor.page += 1;
        cursor.last_ts = page.last_ts.unwrap_or(cursor.last_ts);
        page.tell(errand, line);
        let is_stuck = page.next.is_some() && page.last_ts.is_none();
        errand.work.save(cursor, &page.candles, &page.holes).await?;
        if is_stuck {
            let reason = format!("{} gives no candles of {timeframe} that can be told apart", venue.id);
            return Err(RunError::failed(reason).into());
        }
        if page.next.is_none() {
            return Ok(());
        }
    }
}

/// What a run says that was given nothing: it stands in the job, and tells the next one that it is the second.
fn doubt(errand: &Errand<'_>, line: &Line, since: UnixMs) -> String {
    let (venue, symbol) = (errand.venue.venue, &line.symbol);
    format!(
        "{venue} gave no candles of {symbol} from {since} on; it is asked once more before that is believed"
    )
}

/// One candle after the last one, or where the job begins.
fn resume_at(cursor: &Cursor, timeframe: Timeframe) -> UnixMs {
    match cursor.last_ts.get() {
        0 => cursor.since_ms,
        _ => timeframe.next(cursor.last_ts).max(cursor.since_ms),
    }
}

/// What an answer means.
struct Page {
    /// Only those that are final.
    candles: Vec<Candle>,
    holes: Vec<Hole>,
    unreachable: Option<Span>,
    /// Up to here, this one included, nothing needs to be asked for again.
    last_ts: Option<UnixMs>,
    next: Option<UnixMs>,
}

impl Page {
    fn new(errand: &Errand<'_>, line: &Line, ask: &CandleAsk, page: CandlePage, lacks: Lacking) -> Self {
        let CandlePage { mut candles, next, unreachable } = page;
        let timeframe = line.timeframe;
        candles.retain(|candle| candle.is_final);
        let end = next.unwrap_or(ask.until);
        // What is younger may still come.
        let settle = errand.settings.settle.as_millis() as i64;
        let settled =
            UnixMs::new((ask.now.get() - settle).max(0)).map_or(end, |at| timeframe.open_of(at).min(end));
        let last = candles.last().map(|candle| candle.open_time);
        let by_time =
            UnixMs::new(settled.get() - 1).ok().map(|at| timeframe.open_of(at)).filter(|at| *at >= ask.since);
        let last_ts = if can_tell(timeframe) { last.max(by_time) } else { last.or(by_time) };
        let unreachable = unreachable.map(|range| Span { from: range.start, to: range.end });
        let is_told = match lacks {
            Lacking::IsHole => true,
            // Whoever answers with nothing at all may merely be in trouble.
            Lacking::IsMissing => errand.venue.candles.leaves_out_empty && !candles.is_empty(),
        };
        let from = unreachable.map_or(ask.since, |span| span.to.max(ask.since));
        let mut holes = Vec::new();
        if is_told && can_tell(timeframe) && from < settled {
            let lacks = lacking(timeframe, Span { from, to: settled }, &candles);
            holes.extend(lacks.into_iter().map(Hole::absent));
        }
        holes.extend(unreachable.map(Hole::unreachable));
        Self { candles, holes, unreachable, last_ts, next }
    }

    fn tell(&self, errand: &Errand<'_>, line: &Line) {
        let (venue, symbol, timeframe) = (errand.venue.venue, line.symbol.as_str(), line.timeframe.as_str());
        errand.tally.holes.fetch_add(self.holes.len() as u64, Ordering::Relaxed);
        if let Some(span) = self.unreachable {
            errand.tally.unreachable.fetch_add(1, Ordering::Relaxed);
            let rows = errand.venue.candles.reach_rows.unwrap_or_default();
            events::candles_unreachable(venue, symbol, timeframe, span, rows);
        }
        events::candles_fetched(venue, symbol, timeframe, self.candles.len(), self.holes.len());
    }
}

/// Looks through every series whose history was fetched, all of it: what follows from a run is lost if its process dies in
/// between, and with it the stretches behind the first.
pub(super) async fn look_for_all_gaps(house: &Backfill, store: &dyn Store) {
    let filter =
        JobFilter { kind: Some(JobType::OhlcvBackfill), state: Some(State::Success), ..JobFilter::default() };
    let mut page = jobs::Page::first(jobs::Page::LIMIT_MAX);
    loop {
        let found = match store.jobs(&filter, page).await {
            Ok(found) => found,
            Err(error) => return events::not_looked_over(&error),
        };
        let Some(last) = found.last() else { return };
        page.after = Some(last.id);
        for job in &found {
            look_for_gaps(house, store, job).await;
        }
    }
}

/// A run went well, or a gap was given up: looks for what is missing, and adds a job for the first stretch.
pub(super) async fn look_for_gaps(house: &Backfill, store: &dyn Store, job: &Job) {
    // Of a history that was given up the rest is not missing: it was never asked for.
    if job.state == State::Dead && job.kind != JobType::GapBackfill {
        return;
    }
    let Some((series, span)) = where_to_look(house, job) else { return };
    match plan_gap(store, &series, span).await {
        Ok(plan) => {
            if let Some(added) = plan.added {
                house.tally.gaps_planned.fetch_add(1, Ordering::Relaxed);
                let from = added.cursor.since_ms;
                let to = added.cursor.until_ms.unwrap_or(span.to);
                events::gap_planned(&series, from, to, plan.missing.len(), added.id);
            }
        }
        // The next run looks again.
        Err(error) => events::gaps_not_looked_for(&series, &error),
    }
}

/// After history: all of it. After what is new: the newest. After a gap: what comes behind it, as far as whoever planned it
/// has looked.
fn where_to_look(house: &Backfill, job: &Job) -> Option<(Series, Span)> {
    let (symbol, timeframe) = (job.symbol.clone()?, job.timeframe?);
    if !can_tell(timeframe) || !house.venues.contains_key(&job.exchange_id) {
        return None;
    }
    let settle = house.settings.settle.as_millis() as i64;
    let settled = timeframe.open_of(UnixMs::new((house.clock.wall().ms().get() - settle).max(0)).ok()?);
    let cursor = &job.cursor;
    let (from, to) = match job.kind {
        JobType::OhlcvBackfill => (cursor.since_ms, cursor.until_ms.unwrap_or(settled)),
        JobType::OhlcvIncremental => {
            let back = settled.get() - i64::from(house.settings.look_back) * timeframe.ms();
            (cursor.since_ms.max(UnixMs::new(back.max(0)).ok()?), settled)
        }
        JobType::GapBackfill => (cursor.until_ms?, UnixMs::new(cursor.next.as_ref()?.parse().ok()?).ok()?),
        JobType::MarketsRefresh | JobType::TradesBackfill => return None,
    };
    let span = Span::new(from, to.min(settled)).ok()?;
    Some((Series { exchange_id: job.exchange_id, symbol, timeframe }, span))
}
