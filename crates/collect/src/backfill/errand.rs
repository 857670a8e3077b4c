//! One request of a job.

use std::sync::atomic::Ordering;
use std::time::Duration;

use catchment_governor::{Ask, Lane};
use catchment_jobs::{Done, RunError, Work};
use catchment_model::{Clock, Monotonic, UnixMs};
use catchment_venues::{Reading, Request};

use super::{BackfillSettings, BackfillVenue, Tally};
use crate::{Reply, SendError};

/// Nobody is told to come back sooner.
const AGAIN_MIN: Duration = Duration::from_millis(50);
/// Between two tries of a page.
const BETWEEN: Duration = Duration::from_millis(250);
/// Permits that expire one after the other before something is wrong.
const EXPIRED_MAX: u32 = 20;

/// Who asks, whom, and for which job.
pub(super) struct Errand<'a> {
    pub(super) work: &'a Work,
    pub(super) venue: &'a BackfillVenue,
    pub(super) clock: &'a dyn Clock,
    pub(super) settings: BackfillSettings,
    pub(super) tally: &'a Tally,
}

/// Why a run ends before its work is done.
pub(super) enum Halt {
    /// In good order: out of tokens, or asked to stop.
    Done(Done),
    /// Otherwise.
    Failed(RunError),
}

impl From<RunError> for Halt {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl Errand<'_> {
    /// The time here; the venue's may be another.
    pub(super) fn now(&self) -> UnixMs {
        self.clock.wall().ms()
    }

    /// The venue's time when it answered, at the latest: a candle that has closed by then has closed.
    pub(super) fn seen_at(&self, asked_at: UnixMs, reply: &Reply) -> UnixMs {
        reply.date.map_or(asked_at, |date| date.min(asked_at))
    }

    /// Sends it when it may leave. What passes by itself is tried again; a refusal is waited for, here if it is short, else
    /// as a job that waits.
    pub(super) async fn send(&self, request: &Request, lane: Lane) -> Result<Reply, Halt> {
        let governor = &self.venue.governor;
        let family = governor.family(request.family).ok_or_else(|| {
            RunError::Hopeless(format!("{} has no limits for {:?}", self.venue.venue, request.family))
        })?;
        let (mut failed, mut expired) = (0, 0);
        let mut last: Option<String> = None;
        loop {
            if self.work.is_stopping() {
                return Err(Halt::Done(Done::Stopped));
            }
            let ask = Ask::new(family, lane).cost(request.cost);
            let ask = if failed > 0 { ask.retry() } else { ask };
            let latest = Monotonic(self.clock.monotonic().0 + self.settings.patience);
            let permit = tokio::select! {
                biased;
                () = self.work.stopping() => return Err(Halt::Done(Done::Stopped)),
                permit = governor.acquire_or_told(ask, latest) => permit,
            };
            let permit = match (permit, last.take()) {
                (Ok(permit), _) => permit,
                // What fails is not sent again at once, as often as one likes: then the run has failed.
                (Err(_), Some(reason)) => return Err(RunError::failed(reason).into()),
                (Err(at), None) => {
                    let retry_after = at.since(self.clock.monotonic()).max(AGAIN_MIN);
                    return Err(Halt::Done(Done::OutOfTokens { retry_after }));
                }
            };
            let reason = match self.venue.courier.send(permit, request).await {
                Ok(reply) => match reply.reading {
                    Reading::Ok => {
                        self.tally.pages.fetch_add(1, Ordering::Relaxed);
                        return Ok(reply);
                    }
                    // The governor holds the venue now, and knows for how long.
                    Reading::Refused | Reading::Banned => {
                        self.tally.refusals.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    Reading::UnknownMarket => {
                        self.tally.failures.fetch_add(1, Ordering::Relaxed);
                        let symbol = self.work.job().symbol.as_deref().unwrap_or("it");
                        let reason = format!("{} does not know {symbol}", self.venue.venue);
                        return Err(RunError::Hopeless(reason).into());
                    }
                    Reading::BadRequest(said) => {
                        self.tally.failures.fetch_add(1, Ordering::Relaxed);
                        return Err(
                            RunError::failed(format!("{} refused it: {said}", self.venue.venue)).into()
                        );
                    }
                    reading => format!(
                        "{} answered with status {}: {}",
                        self.venue.venue,
                        reply.status,
                        words(&reading)
                    ),
                },
                // It was never sent.
                Err(SendError::Expired) if expired < EXPIRED_MAX => {
                    expired += 1;
                    continue;
                }
                Err(error) => error.with_sources(),
            };
            self.tally.failures.fetch_add(1, Ordering::Relaxed);
            failed += 1;
            if failed >= self.settings.tries {
                return Err(RunError::failed(reason).into());
            }
            last = Some(reason);
            tokio::time::sleep(BETWEEN * failed).await;
        }
    }
}

fn words(reading: &Reading) -> String {
    match reading {
        Reading::Trouble(said) => said.clone(),
        other => other.name().to_owned(),
    }
}
