//! Asks the venue for a job's events, page by page, each with a permit.
//!
//! The venue gives at most 100 events however many are asked for, so a job asks until its stretch is full or the venue has no
//! more: by offset an empty page, by keyset a page without a cursor. A short page is neither.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catchment_collect::{Courier, CourierSettings, Phase, SendError};
use catchment_governor::{Ask, Budget, Family, FamilyId, Governor, Lane, Limits, Open, Parts, Settings};
use catchment_model::{Clock, Monotonic};
use catchment_venues::polymarket::events::{self, EventPage, Span};
use catchment_venues::{Endpoints, ReadError, Reading, Request};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::bronze::{Follow, Harvest};
use crate::job::{Pass, Task};
use crate::ledger::{CURSOR_CIRCLE, Failure, jitter};

/// A page is asked for so often before its job rests.
const TRIES: u32 = 3;
/// The wait before the second try; it doubles.
const WAIT: Duration = Duration::from_millis(250);
/// A page that failed is asked for again within this, or its job rests.
const RETRY_WITHIN: Duration = Duration::from_secs(5);
/// If the venue wants to be left alone for longer, the job rests meanwhile, and says so in its row.
const HOLD_MAX: Duration = Duration::from_secs(30);
/// Permits that may expire for one page before something must be wrong with our own speed.
const EXPIRED_MAX: u32 = 16;
/// Pages without a single event that a walk may pass.
const EMPTY_MAX: u32 = 16;
/// A page of five hundred events, should a server give so many.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The venue's id.
pub const VENUE: &str = "polymarket";
/// The family in which the requests count. The venue's spec has it, within `events`, with S3's 40 a second.
const FAMILY: &str = "backfill";

/// Who asks.
pub struct Fetcher {
    base: String,
    governor: Governor,
    family: FamilyId,
    courier: Courier,
    clock: Arc<dyn Clock>,
    chance: Mutex<StdRng>,
}

/// What cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum FetcherError {
    /// The client could not be made.
    #[error("the client cannot be made")]
    Client(#[from] SendError),
    /// The limits are another venue's.
    #[error("the limits have no family {FAMILY}")]
    NoFamily,
}

/// Puts another speed in the place of S3's 40 requests a second, such that the share of the limits that is used comes to it.
pub fn set_rate(families: &mut [Family], per_second: u32, share: f64) {
    for family in families.iter_mut().filter(|family| family.name == FAMILY) {
        family.limits.clear();
        let cost = (f64::from(per_second.max(1)) / share).ceil() as u32;
        *family = family.clone().limit(cost, Duration::from_secs(1));
    }
}

impl Fetcher {
    /// Asks at these addresses, within these limits. The budget says who else spends of them.
    pub fn open(
        endpoints: &Endpoints,
        limits: Limits,
        budget: Arc<dyn Budget>,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Result<Self, FetcherError> {
        let spec = catchment_venues::find(VENUE).expect("the venue is built in");
        let parts = Parts {
            clock: Arc::clone(&clock),
            budget,
            // The rate is ours to choose and below what the venue declares, so all of it is used.
            limiter: Box::new(|_family, _ceiling| Box::new(Open)),
            notebook: None,
            seed,
        };
        let governor = Governor::open(spec.id, limits, Settings::default(), parts);
        let family = governor.family(FAMILY).ok_or(FetcherError::NoFamily)?;
        let settings = CourierSettings {
            body_bytes_max: BODY_BYTES_MAX,
            deadline: Duration::from_secs(30),
            ..CourierSettings::default()
        };
        let courier = Courier::new(spec, settings, Arc::clone(&clock))?;
        let chance = Mutex::new(StdRng::seed_from_u64(seed));
        Ok(Self { base: endpoints.url("gamma").to_owned(), governor, family, courier, clock, chance })
    }

    /// The governor, for its figures.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// All events of a job. By keyset no cursor may lead to one at which the walk has `been`. May be dropped midway.
    pub async fn fetch(&self, task: &Task, been: HashSet<String>) -> Result<Harvest, Failure> {
        match task {
            Task::Offset { offset, limit } => self.by_offset(*offset, *limit).await,
            Task::Keyset { pass, span, limit, after, .. } => {
                self.by_keyset(*pass, *span, *limit, after.clone(), been).await
            }
        }
    }

    async fn by_offset(&self, offset: i64, limit: i32) -> Result<Harvest, Failure> {
        let (offset, limit) = (offset.unsigned_abs(), limit.unsigned_abs());
        let (mut lines, mut taken) = (Vec::new(), 0);
        while taken < limit {
            let request = events::by_offset(&self.base, offset + u64::from(taken), limit - taken);
            let mut here = Taken::default();
            self.ask(&request, |page| {
                here = self.take(&page, Span::All, limit - taken, &mut lines)?;
                Ok(())
            })
            .await?;
            if here.sent == 0 {
                break;
            }
            taken += here.kept;
        }
        Ok(Harvest { lines: lines.into(), follow: None })
    }

    async fn by_keyset(
        &self,
        pass: Pass,
        span: Span,
        limit: i32,
        mut after: Option<String>,
        mut been: HashSet<String>,
    ) -> Result<Harvest, Failure> {
        let limit = limit.unsigned_abs();
        let (mut lines, mut taken, mut empty) = (Vec::new(), 0, 0);
        while taken < limit {
            let request =
                events::by_keyset(&self.base, pass == Pass::Closed, span, limit - taken, after.as_deref());
            let (mut here, mut next) = (Taken::default(), None);
            self.ask(&request, |page| {
                here = self.take(&page, span, limit - taken, &mut lines)?;
                next = page.next_cursor;
                Ok(())
            })
            .await?;
            taken += here.kept;
            empty = if here.sent == 0 { empty + 1 } else { 0 };
            if matches!(span, Span::Undated { .. }) && here.kept < here.sent {
                next = None; // those with a date begin here, and are not this walk's
            }
            if next.is_some() && (next == after || empty > EMPTY_MAX) {
                let words = "the venue's next_cursor does not advance; the walk would not end";
                return Err(self.failure("CURSOR_STUCK", words, false));
            }
            if next.as_ref().is_some_and(|next| !been.insert(next.clone())) {
                return Err(self.failure(CURSOR_CIRCLE.0, CURSOR_CIRCLE.1, false));
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        Ok(Harvest { lines: lines.into(), follow: Some(Follow { next_cursor: after }) })
    }

    /// Asks until there is a page, or it has failed too often. What is refused for speed waits with the governor.
    async fn ask(
        &self,
        request: &Request,
        mut read: impl FnMut(EventPage<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut tries, mut expired, mut last) = (0, 0, None);
        loop {
            let ask = Ask::new(self.family, Lane::Backfill);
            let permit = match last.take() {
                None => self.governor.acquire(ask).await,
                // If many fail, few of them may try again at once; the others rest as their job does.
                Some(failure) => {
                    let soon = Monotonic(self.clock.monotonic().0 + RETRY_WITHIN);
                    self.governor.acquire_before(ask.retry(), soon).await.ok_or(failure)?
                }
            };
            let failure = match self.courier.send(permit, request).await {
                Err(SendError::Expired) if expired < EXPIRED_MAX => {
                    expired += 1;
                    continue;
                }
                Err(error) => self.not_sent(&error),
                Ok(reply) if reply.reading == Reading::Ok => match events::read_events(&reply.body) {
                    Ok(page) => return read(page),
                    Err(error) => self.unreadable(&error),
                },
                Ok(reply) => self.refused(reply.status, &reply.reading),
            };
            tries += 1;
            let is_held = failure.retry_after.is_some_and(|wait| wait > HOLD_MAX);
            if failure.is_final || tries >= TRIES || is_held {
                return Err(failure);
            }
            last = Some(failure);
            tokio::time::sleep(WAIT * (1 << (tries - 1))).await;
        }
    }

    fn not_sent(&self, error: &SendError) -> Failure {
        let code = match error {
            SendError::TimedOut { phase: Phase::Connect, .. } => "CONNECT_TIMEOUT",
            SendError::TimedOut { .. } => "TIMEOUT",
            SendError::Expired => "PERMIT_EXPIRED",
            SendError::Unresolved { .. } => "DNS",
            SendError::Tls { .. } => "TLS",
            SendError::TooLarge { .. } => "TOO_LARGE",
            _ => "CONNECTION",
        };
        self.failure(code, &error.to_string(), false)
    }

    fn unreadable(&self, error: &ReadError) -> Failure {
        self.failure("UNREADABLE", &error.to_string(), false)
    }

    fn refused(&self, status: u16, reading: &Reading) -> Failure {
        let code = format!("HTTP_{status}");
        match reading {
            Reading::BadRequest(said) if said.contains("offset too large") => {
                let words =
                    format!("{said} (this server does not allow S3's offsets: set up with --mode keyset)");
                self.failure(&code, &words, true)
            }
            Reading::BadRequest(said) => self.failure(&code, said, true),
            Reading::Trouble(said) => self.failure(&code, said, false),
            other => self.failure(&code, other.name(), false),
        }
    }

    /// A failure with its share of chance, and not before the venue wants to be asked again.
    pub(crate) fn failure(&self, code: &str, message: &str, is_final: bool) -> Failure {
        let snapshot = self.governor.snapshot();
        let held = snapshot.families.iter().filter_map(|family| family.hold.map(|(wait, _)| wait));
        let retry_after = held.chain(snapshot.hold.map(|(wait, _)| wait)).max();
        let jitter = jitter(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner));
        Failure { code: code.to_owned(), message: message.to_owned(), retry_after, is_final, jitter }
    }

    /// Appends those of a page's events that are of the span. A page with more than was asked for would leave some out or take
    /// them twice.
    fn take(
        &self,
        page: &EventPage<'_>,
        span: Span,
        room: u32,
        lines: &mut Vec<u8>,
    ) -> Result<Taken, Failure> {
        let sent = u32::try_from(page.events.len()).unwrap_or(u32::MAX);
        if sent > room {
            let words = format!("the venue sent {sent} events where {room} were asked for");
            return Err(self.failure("TOO_MANY", &words, false));
        }
        let mut kept = 0;
        for event in page.events.iter().filter(|event| span.takes(event)) {
            event.write_line(lines);
            kept += 1;
        }
        Ok(Taken { sent, kept })
    }
}

/// What came of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    /// Events on it.
    sent: u32,
    /// Of these, the walk's own.
    kept: u32,
}
