//! What every table of leased jobs promises, whatever its jobs are: S2's stores and S3's table on a lake run the same lines.
//!
//! A claim names its holder and has a fence that only grows; whoever writes shows both; a stale one writes nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;

use super::{LEASE, Rig, binance, by, connect, hourly};
use crate::store::{Lease, Outcome, Store};

const SECOND: Duration = Duration::from_secs(1);

/// A table as one process has it.
#[async_trait]
pub trait Desk: Send + Sync {
    /// Takes a job that is due, for [`LEASE`]; none if none is.
    async fn claim(&self, worker: &str) -> Option<Ticket>;

    /// Writes what the holder says. False if the ticket is stale, and then nothing is written.
    async fn write(&self, ticket: &Ticket, word: Word) -> bool;
}

/// The right to work on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Which.
    pub job: String,
    /// Whose.
    pub worker: String,
    /// Grows with every claim of a job.
    pub fence: u64,
}

/// What a holder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It is still at work.
    Renew,
    /// It is done; the job is never due again.
    Done,
    /// It failed, and is due again after half a minute or so.
    Failed,
    /// It stops; the job is due at once.
    HandBack,
}

/// A table under test, with so many jobs that are due, and its clock.
#[async_trait]
pub trait Office: Send + Sync {
    /// The table as one more process has it.
    async fn desk(&self) -> Arc<dyn Desk>;

    /// Lets time pass.
    async fn pass(&self, length: Duration);

    /// How much time may pass by itself within a test.
    fn slack(&self) -> Duration;
}

/// Runs every promise, each in an office of its own with so many jobs.
pub async fn all(make: &impl AsyncFn(usize) -> Box<dyn Office>) {
    one_of_all_who_ask_gets_a_job(&*make(40).await).await;
    what_is_not_renewed_is_taken_over_with_a_higher_fence(&*make(1).await).await;
    a_stale_ticket_writes_nothing(&*make(1).await).await;
    a_forged_ticket_writes_nothing(&*make(2).await).await;
    a_renewed_claim_goes_on(&*make(1).await).await;
    what_is_handed_back_is_due_at_once(&*make(1).await).await;
    what_failed_rests(&*make(1).await).await;
}

/// The office of a store's rig.
pub async fn of_store(rig: Box<dyn Rig>, jobs: usize) -> Box<dyn Office> {
    let store = rig.store();
    connect(&*store, binance(), 20, SECOND).await;
    for n in 0..jobs {
        store.add_job(&hourly(binance(), &format!("S{n}"))).await.expect("a job");
    }
    Box::new(StoreOffice(rig))
}

async fn take(desk: &dyn Desk, worker: &str) -> Ticket {
    desk.claim(worker).await.expect("a job is due")
}

async fn one_of_all_who_ask_gets_a_job(office: &dyn Office) {
    let mut asking = JoinSet::new();
    for n in 0..8 {
        let desk = office.desk().await;
        asking.spawn(async move {
            let mut taken = Vec::new();
            while let Some(ticket) = desk.claim(&format!("w{n}")).await {
                taken.push(ticket.job);
            }
            taken
        });
    }
    let mut taken = asking.join_all().await.concat();
    taken.sort_unstable();
    assert_eq!(taken.len(), 40, "every job");
    taken.dedup();
    assert_eq!(taken.len(), 40, "once");
}

async fn what_is_not_renewed_is_taken_over_with_a_higher_fence(office: &dyn Office) {
    let (one, two) = (office.desk().await, office.desk().await);
    let first = take(&*one, "one").await;
    office.pass(LEASE - SECOND - office.slack()).await;
    assert_eq!(two.claim("two").await, None, "it is held");
    office.pass(SECOND * 2 + office.slack()).await;
    let second = take(&*two, "two").await;
    assert_eq!((second.job.as_str(), second.worker.as_str()), (first.job.as_str(), "two"));
    assert!(second.fence > first.fence, "{second:?} after {first:?}");
}

async fn a_stale_ticket_writes_nothing(office: &dyn Office) {
    let (one, two) = (office.desk().await, office.desk().await);
    let old = take(&*one, "same").await;
    office.pass(LEASE + SECOND).await;
    // Even one of the same name.
    let new = take(&*two, "same").await;
    for word in [Word::Renew, Word::HandBack, Word::Failed, Word::Done] {
        assert!(!one.write(&old, word).await, "{word:?} of a stale ticket");
        assert_eq!(one.claim("other").await, None, "{word:?} left a trace");
    }
    assert!(two.write(&new, Word::Renew).await, "the holder may");
    assert!(two.write(&new, Word::Done).await, "the holder may");
    // Said again, because an answer was lost: it is told so, or refused, and changes nothing.
    two.write(&new, Word::Done).await;
    assert!(!two.write(&new, Word::Renew).await, "it is in nobody's hands");
    office.pass(LEASE * 3).await;
    assert_eq!(one.claim("other").await, None, "done is done");
}

async fn a_forged_ticket_writes_nothing(office: &dyn Office) {
    let desk = office.desk().await;
    let (one, two) = (take(&*desk, "w").await, take(&*desk, "w").await);
    for forged in [
        Ticket { worker: "another".to_owned(), ..one.clone() },
        Ticket { fence: one.fence + 1_000, ..one.clone() },
        Ticket { fence: one.fence - 1, ..one.clone() },
    ] {
        assert!(!desk.write(&forged, Word::Renew).await, "{forged:?}");
        assert!(!desk.write(&forged, Word::Done).await, "{forged:?}");
    }
    assert!(desk.write(&one, Word::Done).await && desk.write(&two, Word::Done).await, "the holders may");
}

async fn a_renewed_claim_goes_on(office: &dyn Office) {
    let (one, two) = (office.desk().await, office.desk().await);
    let ticket = take(&*one, "one").await;
    for _ in 0..3 {
        office.pass(LEASE - SECOND - office.slack()).await;
        assert!(one.write(&ticket, Word::Renew).await, "it is held");
        assert_eq!(two.claim("two").await, None);
    }
    office.pass(LEASE * 3).await;
    assert!(one.write(&ticket, Word::Renew).await, "late, but nobody has taken it");
    assert_eq!(two.claim("two").await, None);
    office.pass(LEASE * 3).await;
    assert!(one.write(&ticket, Word::Done).await, "late, but nobody has taken it");
}

async fn what_is_handed_back_is_due_at_once(office: &dyn Office) {
    let (one, two) = (office.desk().await, office.desk().await);
    let first = take(&*one, "one").await;
    assert!(one.write(&first, Word::HandBack).await);
    let second = take(&*two, "two").await;
    assert!(second.fence > first.fence);
    assert!(!one.write(&first, Word::Done).await, "it gave it away");
}

async fn what_failed_rests(office: &dyn Office) {
    let desk = office.desk().await;
    let first = take(&*desk, "one").await;
    assert!(desk.write(&first, Word::Failed).await);
    assert_eq!(desk.claim("two").await, None, "not at once");
    assert!(!desk.write(&first, Word::Done).await, "the claim has ended");
    office.pass(SECOND * 60).await;
    assert!(take(&*desk, "two").await.fence > first.fence);
}

struct StoreOffice(Box<dyn Rig>);

struct StoreDesk(Arc<dyn Store>);

#[async_trait]
impl Office for StoreOffice {
    async fn desk(&self) -> Arc<dyn Desk> {
        Arc::new(StoreDesk(self.0.beside().await))
    }

    async fn pass(&self, length: Duration) {
        self.0.pass(length).await;
    }

    fn slack(&self) -> Duration {
        self.0.slack()
    }
}

#[async_trait]
impl Desk for StoreDesk {
    async fn claim(&self, worker: &str) -> Option<Ticket> {
        let (_, lease) = self.0.claim(&by(worker)).await.expect("an answer").job()?;
        Some(Ticket { job: lease.job.to_string(), worker: lease.worker, fence: lease.fence })
    }

    async fn write(&self, ticket: &Ticket, word: Word) -> bool {
        let job = ticket.job.parse().expect("an id");
        let lease = Lease { job, worker: ticket.worker.clone(), fence: ticket.fence, lasts: LEASE };
        let outcome = match word {
            Word::Renew => {
                return match self.0.renew(&lease).await {
                    Ok(_) => true,
                    Err(error) => told_stale(&error),
                };
            }
            Word::Done => Outcome::Success { next_in: None },
            Word::Failed => Outcome::Failed { error: "down".to_owned(), retry_in: SECOND * 30 },
            Word::HandBack => Outcome::HandedBack,
        };
        match self.0.finish(&lease, &outcome).await {
            Ok(_) => true,
            Err(error) => told_stale(&error),
        }
    }
}

/// Refused for being stale, and for nothing else.
fn told_stale(error: &crate::error::StoreError) -> bool {
    assert!(error.is_stale(), "{error}");
    false
}
