//! The suite that every table of leased jobs passes, on a folder and on the Azure emulator.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use catchment_jobs::conformance::LEASE;
use catchment_jobs::conformance::claims::{self, Desk, Office, Ticket, Word};
use catchment_lake::azurite::Azurite;
use catchment_lake::{Access, Failure, JobTable, Lake, Lease, Mode, Verdict, Write, plan};
use catchment_model::{SimClock, UnixNs};
use tokio::sync::Mutex;

struct LakeOffice {
    lake: Lake,
    clock: Arc<SimClock>,
    seeds: AtomicU64,
    _dir: Option<tempfile::TempDir>,
}

struct LakeDesk(Mutex<JobTable>);

async fn office(lake: Lake, jobs: usize, dir: Option<tempfile::TempDir>) -> Box<dyn Office> {
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(1_770_000_000_000).unwrap()));
    let tasks = plan(Mode::Offset, (jobs as i64 - 1) * 500, 500);
    JobTable::set_up(&lake, &tasks, clock.clone(), 1).await.unwrap();
    Box::new(LakeOffice { lake, clock, seeds: AtomicU64::new(2), _dir: dir })
}

#[async_trait]
impl Office for LakeOffice {
    async fn desk(&self) -> Arc<dyn Desk> {
        let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
        let table = JobTable::open(&self.lake, self.clock.clone(), seed).await.unwrap();
        Arc::new(LakeDesk(Mutex::new(table)))
    }

    async fn pass(&self, length: Duration) {
        self.clock.advance(length);
    }

    fn slack(&self) -> Duration {
        Duration::ZERO
    }
}

#[async_trait]
impl Desk for LakeDesk {
    async fn claim(&self, worker: &str) -> Option<Ticket> {
        let acted = self.0.lock().await.act(worker, &[], 1, LEASE).await.unwrap();
        let (_, lease) = acted.claimed.into_iter().next()?;
        Some(Ticket { job: lease.job_id, worker: lease.worker, fence: lease.fence })
    }

    async fn write(&self, ticket: &Ticket, word: Word) -> bool {
        let lease = Lease { job_id: ticket.job.clone(), worker: ticket.worker.clone(), fence: ticket.fence };
        let write = match word {
            Word::Renew => Write::Renew,
            Word::Done => Write::Done { payload_path: "p".to_owned(), records: 1, next: None },
            Word::Failed => Write::Failed(Failure {
                code: "HTTP_503".to_owned(),
                message: "down".to_owned(),
                retry_after: None,
                is_final: false,
                jitter: 0.1,
            }),
            Word::HandBack => Write::HandBack,
        };
        let acted = self.0.lock().await.act(&ticket.worker, &[(lease, write)], 0, LEASE).await.unwrap();
        acted.verdicts == [Verdict::Taken]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_keeps_claims_as_every_store_does() {
    claims::all(&async |jobs| {
        let dir = tempfile::tempdir().unwrap();
        let lake = Lake::open(dir.path().to_str().unwrap(), &Access::default()).unwrap();
        office(lake, jobs, Some(dir)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_azure_emulator_keeps_claims_as_every_store_does() {
    let dir = tempfile::tempdir().unwrap();
    let azurite = Azurite::start(dir.path()).unwrap();
    let access = Access { emulator: Some(azurite.address().to_owned()), ..Access::default() };
    let next = AtomicU64::new(0);
    claims::all(&async |jobs| {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let lake = Lake::open(&format!("az://lake{n}/x"), &access).unwrap();
        office(lake, jobs, None).await
    })
    .await;
}
