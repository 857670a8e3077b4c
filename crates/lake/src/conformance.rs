//! The promises of the table of jobs, as tests. A storage on which [`all`] passes may be trusted with jobs.
//!
//! What every table of leased jobs promises is in `catchment_jobs::conformance::claims`, which our tests run as well; here is
//! what is this one's own: setting up, history, the walk, the files, upkeep.
//!
//! A failed promise panics and names itself, as a test does. The suite knows nothing of the storage: a folder and the Azure
//! emulator run the same lines.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::Clock;
use catchment_venues::polymarket::events::Span;
use futures_util::TryStreamExt;
use tokio::task::JoinSet;

use crate::bronze::{self, Follow, Harvest};
use crate::error::LakeError;
use crate::job::{Lease, Mode, Pass, State, Task, plan, plan_spans};
use crate::lake::Lake;
use crate::ledger::{Failure, Verdict, Write};
use crate::table::JobTable;
use crate::verify::verify;

/// How long the suite's leases last.
pub const LEASE: Duration = Duration::from_secs(300);

/// A lake under test, empty, and its clock.
pub trait Rig: Send + Sync {
    /// The lake.
    fn lake(&self) -> Lake;

    /// The clock that everybody shares.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Lets time pass.
    fn pass(&self, length: Duration);
}

/// Runs every promise, each on a rig of its own.
pub async fn all(make: impl AsyncFn() -> Box<dyn Rig>) {
    set_up_is_done_once_however_often(&*make().await).await;
    a_walk_stays_cut_as_it_was(&*make().await).await;
    one_of_all_who_ask_gets_a_job(&*make().await).await;
    a_stale_fence_writes_nothing(&*make().await).await;
    a_renewed_lease_is_nobody_elses(&*make().await).await;
    a_failure_rests_and_a_handed_back_job_does_not(&*make().await).await;
    force_moves_the_fence(&*make().await).await;
    a_walk_goes_on_from_what_was_saved(&*make().await).await;
    a_file_is_written_once(&*make().await).await;
    upkeep_removes_what_nobody_needs_and_changes_nothing(&*make().await).await;
}

async fn open(rig: &dyn Rig, seed: u64) -> JobTable {
    JobTable::open(&rig.lake(), rig.clock(), seed).await.expect("the table is there")
}

async fn set_up(rig: &dyn Rig, mode: Mode, max_offset: i64) -> JobTable {
    let made = JobTable::set_up(&rig.lake(), &plan(mode, max_offset, 500), rig.clock(), 1).await;
    made.expect("it can be set up").0
}

async fn claim(table: &mut JobTable, worker: &str, want: usize) -> Vec<Lease> {
    let acted = table.act(worker, &[], want, LEASE).await.expect("a claim");
    acted.claimed.into_iter().map(|(_, lease)| lease).collect()
}

async fn settle(table: &mut JobTable, lease: &Lease, write: Write) -> Verdict {
    let acted = table.act(&lease.worker, &[(lease.clone(), write)], 0, LEASE).await.expect("an answer");
    acted.verdicts[0]
}

fn done() -> Write {
    Write::Done { payload_path: "somewhere".to_owned(), records: 500, next: None }
}

fn failed() -> Write {
    let (code, message) = ("HTTP_503".to_owned(), "down".to_owned());
    Write::Failed(Failure { code, message, retry_after: None, is_final: false, jitter: 0.1 })
}

async fn set_up_is_done_once_however_often(rig: &dyn Rig) {
    let nothing = JobTable::open(&rig.lake(), rig.clock(), 1).await.err();
    assert!(matches!(nothing, Some(LakeError::NoTable { .. })), "{nothing:?}");
    let mut setting_up = JoinSet::new();
    for seed in 0..4 {
        let (lake, clock) = (rig.lake(), rig.clock());
        setting_up.spawn(async move {
            JobTable::set_up(&lake, &plan(Mode::Offset, 188_000, 500), clock, seed)
                .await
                .map(|(_, done)| done)
        });
    }
    let done: Vec<_> =
        setting_up.join_all().await.into_iter().map(|done| done.expect("it can be set up")).collect();
    assert_eq!(done.iter().filter(|done| done.is_new).count(), 1, "{done:?}");
    assert!(done.iter().all(|done| done.jobs == 377), "{done:?}");
    let more = JobTable::set_up(&rig.lake(), &plan(Mode::Offset, 190_000, 500), rig.clock(), 9).await;
    assert_eq!(more.expect("more jobs").1.added, 4);
    let other = JobTable::set_up(&rig.lake(), &plan(Mode::Keyset, 0, 500), rig.clock(), 9).await.err();
    assert!(other.expect("another mode").to_string().contains("by offset, not by keyset"));
}

async fn a_walk_stays_cut_as_it_was(rig: &dyn Rig) {
    let day = |text: &str| text.parse().expect("a day");
    let set_up = async |tasks: &[Task]| {
        JobTable::set_up(&rig.lake(), tasks, rig.clock(), 1).await.map(|(_, done)| (done.added, done.jobs))
    };
    let cut = plan_spans(28, day("2021-09-07"), 500);
    assert_eq!(set_up(&cut).await.expect("a table"), (16, 16));
    let later = plan_spans(28, day("2022-09-07"), 500);
    assert_eq!(
        set_up(&later).await.expect("the table"),
        (0, 16),
        "the last span has no end, so none is missing"
    );
    for other in [plan_spans(7, day("2021-09-07"), 500), plan(Mode::Keyset, 0, 500)] {
        let told = set_up(&other).await.expect_err("cut in another way").to_string();
        assert!(told.contains("cut into other spans"), "{told}");
    }
}

async fn one_of_all_who_ask_gets_a_job(rig: &dyn Rig) {
    set_up(rig, Mode::Offset, 19_500).await;
    let mut asking = JoinSet::new();
    for seed in 0..8 {
        let mut table = open(rig, seed).await;
        asking.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let claimed = claim(&mut table, "w", 3).await;
                if claimed.is_empty() {
                    return mine;
                }
                mine.extend(claimed);
            }
        });
    }
    let mut leases = asking.join_all().await.concat();
    assert_eq!(leases.len(), 40);
    leases.sort_by(|a, b| a.job_id.cmp(&b.job_id));
    leases.dedup_by(|a, b| a.job_id == b.job_id);
    assert_eq!(leases.len(), 40, "each job once");
    let mut table = open(rig, 9).await;
    let found = verify(&rig.lake(), &mut table).await.expect("the history can be read");
    assert_eq!((found.leases, found.taken_over, found.wrong), (40, 0, vec![]));
}

async fn a_stale_fence_writes_nothing(rig: &dyn Rig) {
    let mut first = set_up(rig, Mode::Offset, 0).await;
    let mut second = open(rig, 2).await;
    let old = claim(&mut first, "a", 1).await.remove(0);
    assert_eq!(claim(&mut second, "b", 1).await, [], "it is leased");
    rig.pass(LEASE + Duration::from_millis(1));
    let new = claim(&mut second, "b", 1).await.remove(0);
    assert!(new.fence > old.fence);
    for write in [Write::Renew, Write::HandBack, failed(), done()] {
        assert_eq!(settle(&mut first, &old, write).await, Verdict::Lost);
    }
    assert_eq!(settle(&mut second, &new, done()).await, Verdict::Taken);
    let job = first.refresh().await.expect("the rows").jobs[0].clone();
    assert_eq!((job.state, job.records_written, job.leased_by), (State::Done, Some(500), None));
    assert_eq!(claim(&mut first, "a", 1).await, [], "done is done");
}

async fn a_renewed_lease_is_nobody_elses(rig: &dyn Rig) {
    let mut first = set_up(rig, Mode::Offset, 0).await;
    let mut second = open(rig, 2).await;
    let lease = claim(&mut first, "a", 1).await.remove(0);
    for _ in 0..3 {
        rig.pass(LEASE / 3 * 2);
        assert_eq!(settle(&mut first, &lease, Write::Renew).await, Verdict::Taken);
        assert_eq!(claim(&mut second, "b", 1).await, []);
    }
    rig.pass(LEASE * 2);
    assert_eq!(settle(&mut first, &lease, done()).await, Verdict::Taken, "over, but nobody took it");
}

async fn a_failure_rests_and_a_handed_back_job_does_not(rig: &dyn Rig) {
    let mut table = set_up(rig, Mode::Offset, 0).await;
    let lease = claim(&mut table, "a", 1).await.remove(0);
    settle(&mut table, &lease, Write::HandBack).await;
    let lease = claim(&mut table, "a", 1).await.remove(0);
    settle(&mut table, &lease, failed()).await;
    rig.pass(Duration::from_millis(32_999));
    assert_eq!(claim(&mut table, "a", 1).await, [], "30 s and a tenth");
    rig.pass(Duration::from_millis(1));
    assert_eq!(claim(&mut table, "a", 1).await.len(), 1);
    let job = &table.ledger().jobs[0];
    assert_eq!((job.attempts, job.last_error_code.as_deref()), (1, Some("HTTP_503")));
}

async fn force_moves_the_fence(rig: &dyn Rig) {
    let mut holder = set_up(rig, Mode::Offset, 500).await;
    let leases = claim(&mut holder, "a", 2).await;
    let mut other = open(rig, 2).await;
    assert_eq!(other.reset_leased(false).await.expect("an answer"), (0, 2));
    assert_eq!(settle(&mut holder, &leases[0], Write::Renew).await, Verdict::Taken);
    assert_eq!(other.reset_leased(true).await.expect("an answer"), (2, 0));
    for lease in &leases {
        assert_eq!(settle(&mut holder, lease, done()).await, Verdict::Lost);
    }
    assert_eq!(claim(&mut other, "b", 9).await.len(), 2);
}

async fn a_walk_goes_on_from_what_was_saved(rig: &dyn Rig) {
    let mut table = set_up(rig, Mode::Keyset, 0).await;
    let first = claim(&mut table, "a", 9).await.remove(0);
    let after = Some("c==".to_owned());
    let next = Task::Keyset { pass: Pass::Open, span: Span::All, offset: 500, limit: 500, after };
    let write = Write::Done { payload_path: "p".to_owned(), records: 500, next: Some(next.clone()) };
    let acted = table.act("a", &[(first, write)], 9, LEASE).await.expect("an answer");
    assert_eq!(acted.claimed.len(), 1, "the next is leased in the same commit");
    assert_eq!(acted.claimed[0].1.job_id, next.to_string());
    rig.pass(LEASE * 2);
    let mut heir = open(rig, 2).await;
    assert_eq!(claim(&mut heir, "b", 9).await[0].job_id, next.to_string());
}

async fn a_file_is_written_once(rig: &dyn Rig) {
    let mut table = set_up(rig, Mode::Keyset, 0).await;
    let acted = table.act("a", &[], 1, LEASE).await.expect("a claim");
    let (job, _) = &acted.claimed[0];
    let task = Task::read(&job.job_id).expect("a task");
    let harvest = |lines: &'static str, cursor: &str| Harvest {
        lines: lines.into(),
        follow: Some(Follow { next_cursor: Some(cursor.to_owned()) }),
    };
    let lake = rig.lake();
    let keep =
        async |harvest: &Harvest| bronze::keep(&lake.bronze, job, &task, harvest).await.expect("it is kept");
    let (one, two) =
        (harvest("{\"id\":\"1\"}\n{\"id\":\"2\"}\n", "after 2"), harvest("{\"id\":\"1\"}\n", "after 1"));
    let first = keep(&one).await;
    assert_eq!(first.records, 2);
    assert_eq!(keep(&one).await, first, "again");
    assert_eq!(
        keep(&two).await,
        first,
        "another answer leaves the file, and goes on from the file's own cursor"
    );
}

/// The rig's clock stands long ago, so what is replaced by it was replaced more than a day ago.
async fn upkeep_removes_what_nobody_needs_and_changes_nothing(rig: &dyn Rig) {
    let mut table = set_up(rig, Mode::Offset, 2_000).await;
    let mut leases = claim(&mut table, "a", 5).await;
    let lease = leases.remove(0);
    settle(&mut table, &lease, done()).await;
    let files = async || {
        let place = rig.lake().table;
        let listed: Vec<_> = place.store().list(Some(&place.path(""))).try_collect().await.expect("a list");
        listed.iter().filter(|found| found.location.as_ref().ends_with(".snappy.parquet")).count()
    };
    assert_eq!(files().await, 3, "one for each version");
    let tidied = table.tidy().await.expect("it can be tidied");
    assert_eq!((tidied.files, files().await), (2, 1), "the newest is the table");
    table.checkpoint().await;
    let mut other = open(rig, 2).await;
    assert_eq!(other.ledger(), table.refresh().await.expect("the rows"));
    assert_eq!(settle(&mut other, &leases[0], done()).await, Verdict::Taken);
    assert_eq!(table.refresh().await.expect("the rows").jobs[1].state, State::Done);
    let found = verify(&rig.lake(), &mut other).await.expect("the history can be read");
    assert_eq!(found.versions, 2, "versions whose rows are gone are passed over");
}
