//! Waiting in line for a permit.
//!
//! Whoever waits has a bell. The first of a line sleeps until its time or its bell, whichever comes first, and looks
//! again; the others only listen for their bell. Everything that may let somebody go rings: a grant and a departure from
//! the line ring the next, an end rings the first of its family and whoever is first for a slot. A bell that rings while
//! nobody listens is heard later, so no ring is lost.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::Monotonic;
use tokio::sync::Notify;

use crate::budget::{Answer, Charge};
use crate::governor::Ask;
use crate::house::{House, Step};
use crate::lanes::Place;
use crate::permit::Permit;

/// The timer knows no less, and whoever says "not before" a time that has passed must not keep us spinning.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A place in a family's line. Dropped, it is left without a trace.
#[derive(Debug)]
pub(crate) struct Turn<'h> {
    house: &'h Arc<House>,
    ask: Ask,
    place: Place,
    bell: Arc<Notify>,
    is_over: bool,
}

impl<'h> Turn<'h> {
    pub(crate) fn join(house: &'h Arc<House>, ask: Ask) -> Self {
        let bell = Arc::new(Notify::new());
        let place = house.join_line(&ask, bell.clone());
        Self { house, ask, place, bell, is_over: false }
    }

    /// Until it is its turn, or it is known that this comes too late: then when to ask again, at the earliest.
    pub(crate) async fn wait(mut self, deadline: Option<Monotonic>) -> Result<Permit, Monotonic> {
        loop {
            let until = match self.house.step(&self.ask, self.place, None) {
                Step::Granted(permit) => return Ok(self.over(permit)),
                Step::NotBefore(at) => Some(at),
                Step::Bell => None,
                Step::Asking(answer) => match answer.await {
                    Answer::Now(charge) => match self.use_or_give_back(charge) {
                        Some(permit) => return Ok(permit),
                        None => continue,
                    },
                    Answer::NotBefore(at) => {
                        self.house.told(&self.ask, self.place, at);
                        Some(at)
                    }
                },
            };
            let is_too_late = until.zip(deadline).is_some_and(|(until, deadline)| until > deadline);
            if is_too_late || !self.rest(until, deadline).await {
                // Whoever stands behind others knows no time of its own.
                return Err(until.or(deadline).unwrap_or_else(|| self.house.clock.monotonic()));
            }
        }
    }

    /// While a store was asked, a cooldown may have begun, the slot may be gone, or too much time may have passed.
    fn use_or_give_back(&mut self, charge: Charge) -> Option<Permit> {
        if self.house.is_too_late(&charge) {
            self.house.budget.unsent(charge);
            return None;
        }
        match self.house.step(&self.ask, self.place, Some(charge)) {
            Step::Granted(permit) => Some(self.over(permit)),
            _ => {
                self.house.budget.unsent(charge);
                None
            }
        }
    }

    fn over(&mut self, permit: Permit) -> Permit {
        self.is_over = true;
        permit
    }

    /// Sleeps until then or the bell; `false` once the deadline has passed.
    async fn rest(&self, until: Option<Monotonic>, deadline: Option<Monotonic>) -> bool {
        let now = self.house.clock.monotonic();
        let Some(until) = earlier(until, deadline) else {
            self.bell.notified().await;
            return true;
        };
        let wait = until.since(now).max(WAIT_MIN);
        // Whether it was the bell or the time makes no difference: look again.
        let _ = tokio::time::timeout(wait, self.bell.notified()).await;
        deadline.is_none_or(|deadline| self.house.clock.monotonic() <= deadline)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.house.leave_line(&self.ask, self.place);
        }
    }
}

fn earlier(a: Option<Monotonic>, b: Option<Monotonic>) -> Option<Monotonic> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
