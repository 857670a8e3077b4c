//! One venue's governor: whoever wants to send asks it first, waits for as long as it takes, and gets a [`Permit`].
//!
//! A request waits until nothing speaks against it: no cooldown and no ban, its family's limiter, a free slot under the
//! inflight cap, room in every declared window. The waiting of one family stand in line by lane; the first of the line
//! does the asking, for itself alone, and wakes the next when it is through. So there is no task in the background, and
//! families do not wait for each other unless they share a window or the last slot.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Clock, Monotonic};

use crate::budget::Budget;
use crate::house::House;
use crate::lanes::Lane;
use crate::limiter::Limiter;
use crate::notebook::Notebook;
use crate::permit::Permit;
use crate::snapshot::Snapshot;
use crate::spec::{FamilyId, Limits};
use crate::turn::Turn;

/// Says when a venue's requests may leave. Cloning gives another handle to the same one.
#[derive(Debug, Clone)]
pub struct Governor {
    house: Arc<House>,
}

/// One request that wants to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// What the venue counts it as.
    pub family: FamilyId,
    /// What it is for.
    pub lane: Lane,
    /// What it costs in the declared windows. What costs more than a whole window waits until it is empty.
    pub cost: u32,
    /// When it was due. Within a lane the longest overdue goes first; `None` means now.
    pub due: Option<Monotonic>,
    /// It was sent before and failed. Retries are at most a tenth of a family's requests.
    pub is_retry: bool,
}

impl Ask {
    /// A request of cost 1 that is due now.
    pub fn new(family: FamilyId, lane: Lane) -> Self {
        Self { family, lane, cost: 1, due: None, is_retry: false }
    }

    /// With this cost.
    #[must_use]
    pub fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    /// Due at this time.
    #[must_use]
    pub fn due(self, due: Monotonic) -> Self {
        Self { due: Some(due), ..self }
    }

    /// Sent before, and failed.
    #[must_use]
    pub fn retry(self) -> Self {
        Self { is_retry: true, ..self }
    }
}

/// What the user may set, per venue.
#[derive(Debug, Clone)]
pub struct Settings {
    /// So many requests may be under way; at most 4,096.
    pub max_inflight: u32,
    /// A permit that is not used for this long expires.
    pub permit_validity: Duration,
    /// How long nothing is sent after a refusal that names no time, or after a loop with too many failures.
    pub cooldown: Duration,
    /// Refusals soon after one another double it up to this.
    pub cooldown_max: Duration,
    /// After this long without one, a refusal is a new episode.
    pub cooldown_forgotten_after: Duration,
    /// What a refusal holds back.
    pub cooldown_scope: Scope,
    /// How long a ban lasts that names no time; bans within a day of one another double it up to an hour.
    pub ban: Duration,
    /// A loop of which more than this share failed begins a cooldown.
    pub failed_share_max: f64,
    /// Retries are at most this share of a family's requests …
    pub retry_share: f64,
    /// … within this time.
    pub retry_window: Duration,
}

/// What a refusal holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything of the venue.
    Venue,
    /// The family of the refused request.
    Family,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_inflight: 32,
            permit_validity: Duration::from_secs(1),
            cooldown: Duration::from_secs(5),
            cooldown_max: Duration::from_secs(300),
            cooldown_forgotten_after: Duration::from_secs(30),
            cooldown_scope: Scope::Venue,
            ban: Duration::from_secs(120),
            failed_share_max: 0.5,
            retry_share: 0.1,
            retry_window: Duration::from_secs(10),
        }
    }
}

/// Makes the limiter of a family when its first request comes, from its name and the rate remembered for it.
pub type MakeLimiter = Box<dyn Fn(&str, Option<f64>) -> Box<dyn Limiter> + Send + Sync>;

/// What a governor stands on.
pub struct Parts {
    /// Its time. Everybody who shares a budget shares the clock.
    pub clock: Arc<dyn Clock>,
    /// The declared windows, for the same limits.
    pub budget: Arc<dyn Budget>,
    /// The learned limits.
    pub limiter: MakeLimiter,
    /// What was remembered; without one, nothing is.
    pub notebook: Option<Arc<Notebook>>,
    /// Of its jitter.
    pub seed: u64,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Governor {
    /// Opens the venue. If the notebook knows of a ban that has not ended, it opens held.
    pub fn open(venue: impl Into<String>, limits: Limits, settings: Settings, parts: Parts) -> Self {
        Self { house: Arc::new(House::open(venue.into(), limits, settings, parts)) }
    }

    /// The family of that name.
    pub fn family(&self, name: &str) -> Option<FamilyId> {
        self.house.limits.family(name)
    }

    /// Waits until the request may leave. May be dropped midway: the place in line is gone, and nothing else.
    pub async fn acquire(&self, ask: Ask) -> Permit {
        if let Some(permit) = self.at_once(&ask) {
            return permit;
        }
        let permit = self.wait_until(ask, None).await;
        permit.unwrap_or_else(|_| unreachable!("without a deadline it is waited for"))
    }

    /// Waits as well, but `None` as soon as it is known that the request cannot leave by `deadline`; counted as late.
    pub async fn acquire_before(&self, ask: Ask, deadline: Monotonic) -> Option<Permit> {
        let permit = self.acquire_until(ask, Some(deadline)).await.ok();
        if permit.is_none() {
            self.house.late(ask.family);
        }
        permit
    }

    /// The same for whoever has other things to do meanwhile: instead of `None`, when to ask again, at the earliest. Not
    /// counted as late.
    pub async fn acquire_or_told(&self, ask: Ask, deadline: Monotonic) -> Result<Permit, Monotonic> {
        self.acquire_until(ask, Some(deadline)).await
    }

    /// A permit if there is one at this moment and nobody waits for it. A budget that has to ask somebody else has none.
    pub fn try_acquire(&self, ask: Ask) -> Option<Permit> {
        if ask.is_retry && self.house.take_retry(ask.family).is_err() {
            return None;
        }
        let permit = self.house.grant_at_once(&ask);
        if permit.is_none() {
            self.house.gave_up(&ask);
        }
        permit
    }

    /// A loop over instruments is through: `failed` of `total` requests failed. Too many begin a cooldown.
    pub fn loop_ended(&self, failed: usize, total: usize) {
        self.house.loop_ended(failed, total);
    }

    /// Writes what the limiters have learned into the notebook. It waits for the disk, so not from an async task.
    pub fn remember(&self) {
        self.house.remember();
    }

    /// Where everything stands.
    pub fn snapshot(&self) -> Snapshot {
        self.house.snapshot()
    }

    async fn acquire_until(&self, ask: Ask, deadline: Option<Monotonic>) -> Result<Permit, Monotonic> {
        match self.at_once(&ask) {
            Some(permit) => Ok(permit),
            None => self.wait_until(ask, deadline).await,
        }
    }

    /// As nearly always where a venue has room. A retry has to ask for its share first.
    fn at_once(&self, ask: &Ask) -> Option<Permit> {
        if ask.is_retry { None } else { self.house.grant_at_once(ask) }
    }

    /// In a box: whoever is granted something at once does not carry about what waiting takes.
    fn wait_until(
        &self,
        ask: Ask,
        deadline: Option<Monotonic>,
    ) -> Pin<Box<dyn Future<Output = Result<Permit, Monotonic>> + Send + '_>> {
        Box::pin(async move {
            if ask.is_retry {
                self.wait_for_retry(ask.family, deadline).await?;
                if let Some(permit) = self.house.grant_at_once(&ask) {
                    return Ok(permit);
                }
            }
            Turn::join(&self.house, ask).wait(deadline).await
        })
    }

    /// Outside of the line: a retry that waits for its share must not keep first attempts waiting.
    async fn wait_for_retry(&self, family: FamilyId, deadline: Option<Monotonic>) -> Result<(), Monotonic> {
        while let Err(again_at) = self.house.take_retry(family) {
            if deadline.is_some_and(|deadline| again_at > deadline) {
                return Err(again_at);
            }
            tokio::time::sleep(again_at.since(self.house.clock.monotonic())).await;
        }
        Ok(())
    }
}
