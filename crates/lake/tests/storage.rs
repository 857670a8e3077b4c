//! The promises of the table of jobs, on a folder and on the Azure emulator.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use catchment_lake::azurite::Azurite;
use catchment_lake::bronze::{self, Harvest};
use catchment_lake::conformance::{self, Rig};
use catchment_lake::{Access, JobTable, Lake, LakeError, Mode, plan};
use catchment_model::{Clock, SimClock, SystemClock, UnixNs};

struct Place {
    lake: Lake,
    clock: Arc<SimClock>,
    dir: Option<tempfile::TempDir>,
}

impl Rig for Place {
    fn lake(&self) -> Lake {
        self.lake.clone()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::<SimClock>::clone(&self.clock)
    }

    fn pass(&self, length: Duration) {
        self.clock.advance(length);
    }
}

fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::at(UnixNs::from_ms(1_770_000_000_000).unwrap()))
}

fn on_folder() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let lake = Lake::open(dir.path().join("lake").to_str().unwrap(), &Access::default()).unwrap();
    Place { lake, clock: clock(), dir: Some(dir) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_holds_every_promise() {
    conformance::all(async || Box::new(on_folder()) as Box<dyn Rig>).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_azure_emulator_holds_every_promise() {
    let dir = tempfile::tempdir().unwrap();
    let azurite = Azurite::start(dir.path()).unwrap();
    let access = Access { emulator: Some(azurite.address().to_owned()), ..Access::default() };
    let next = AtomicU32::new(0);
    conformance::all(async || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let place = format!("abfss://lake{n}@devstoreaccount1.dfs.core.windows.net/bronze");
        let lake = Lake::open(&place, &access).unwrap();
        Box::new(Place { lake, clock: clock(), dir: None }) as Box<dyn Rig>
    })
    .await;
}

#[tokio::test]
async fn a_table_of_somebody_else_is_left_alone() {
    let place = on_folder();
    place.lake.prepare().await.unwrap();
    let (_, made) =
        JobTable::set_up(&place.lake, &plan(Mode::Offset, 0, 500), place.clock(), 1).await.unwrap();
    assert!(made.is_new);
    // A column more, in the way another engine would add it.
    let log = std::path::Path::new(place.lake.table.shown()).join("_delta_log");
    let first = std::fs::read_to_string(log.join("00000000000000000000.json")).unwrap();
    let line = first.lines().find(|line| line.contains("metaData")).unwrap();
    let more = line.replace(
        r#"\"fields\":["#,
        r#"\"fields\":[{\"name\":\"mine\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}},"#,
    );
    assert_ne!(more, line);
    let mut file = std::fs::File::create(log.join("00000000000000000001.json")).unwrap();
    std::io::Write::write_all(&mut file, more.as_bytes()).unwrap();
    let told = JobTable::open(&place.lake, place.clock(), 1).await.err().unwrap();
    assert!(
        matches!(&told, LakeError::Foreign { reason, .. } if reason.contains("further columns")),
        "{told}"
    );
}

#[tokio::test]
async fn a_lake_whose_disk_goes_is_not_begun_anew() {
    let place = on_folder();
    let (lake, tasks) = (&place.lake, plan(Mode::Offset, 500, 500));
    let (mut table, _) = JobTable::set_up(lake, &tasks, place.clock(), 1).await.unwrap();
    let lease = Duration::from_secs(300);
    let claimed = table.act("w", &[], 1, lease).await.unwrap().claimed;
    let root = place.dir.as_ref().unwrap().path().join("lake");
    let away = root.with_file_name("away");
    std::fs::rename(&root, &away).unwrap();
    // The place where it was mounted is still there.
    std::fs::create_dir(&root).unwrap();
    let told = table.act("w", &[], 1, lease).await.unwrap_err();
    assert!(told.may_pass() && told.to_string().contains("still mounted?"), "{told}");
    let harvest = Harvest { lines: "{}\n".into(), follow: None };
    let told = bronze::keep(&lake.bronze, &claimed[0].0, &tasks[0], &harvest).await.unwrap_err();
    assert!(told.may_pass() && told.to_string().contains("still mounted?"), "{told}");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing was written");
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    assert_eq!(table.act("w", &[], 2, lease).await.unwrap().claimed.len(), 1, "it goes on");
    bronze::keep(&lake.bronze, &claimed[0].0, &tasks[0], &harvest).await.unwrap();
}

#[tokio::test]
async fn jobs_of_another_length_are_not_added() {
    for mode in [Mode::Offset, Mode::Keyset] {
        let place = on_folder();
        JobTable::set_up(&place.lake, &plan(mode, 2_000, 500), place.clock(), 1).await.unwrap();
        let told =
            JobTable::set_up(&place.lake, &plan(mode, 2_000, 400), place.clock(), 1).await.err().unwrap();
        assert!(told.to_string().contains("of 500 events each, not of 400"), "{told}");
    }
}

#[tokio::test]
async fn a_table_with_a_job_twice_is_not_ours() {
    let place = on_folder();
    JobTable::set_up(&place.lake, &plan(Mode::Offset, 0, 500), place.clock(), 1).await.unwrap();
    // The same file of rows under another name, as an engine that appends would leave it.
    let folder = std::path::Path::new(place.lake.table.shown());
    let first = std::fs::read_to_string(folder.join("_delta_log/00000000000000000000.json")).unwrap();
    let add = first.lines().find(|line| line.contains("\"add\"")).unwrap();
    let add_value: serde_json::Value = serde_json::from_str(add).unwrap();
    let name = add_value["add"]["path"].as_str().unwrap();
    std::fs::copy(folder.join(name), folder.join("part-again.parquet")).unwrap();
    let mut second = std::fs::File::create(folder.join("_delta_log/00000000000000000001.json")).unwrap();
    std::io::Write::write_all(&mut second, add.replace(name, "part-again.parquet").as_bytes()).unwrap();
    let told = JobTable::open(&place.lake, place.clock(), 1).await.err().unwrap();
    assert!(told.to_string().contains("it has the job offset=0"), "{told}");
}

#[tokio::test]
async fn what_is_younger_than_a_day_stays_for_whoever_reads_or_is_about_to_name_it() {
    let place = on_folder();
    let now: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let tasks = plan(Mode::Offset, 500, 500);
    let (mut table, _) = JobTable::set_up(&place.lake, &tasks, Arc::clone(&now), 1).await.unwrap();
    table.act("a", &[], 1, Duration::from_secs(300)).await.unwrap();
    // Two that no version names: of a worker that ended two days ago, and of one that has yet to commit.
    let folder = std::path::Path::new(place.lake.table.shown());
    let [old, new] = ["part-old.parquet", "part-new.parquet"].map(|name| folder.join(name));
    let [file, _] = [&old, &new].map(|path| std::fs::File::create(path).unwrap());
    let wall = Duration::from_nanos(now.wall().get() as u64);
    file.set_modified(std::time::UNIX_EPOCH + wall - Duration::from_secs(2 * 86_400)).unwrap();
    assert_eq!(table.tidy().await.unwrap().files, 1);
    assert!(!old.exists() && new.exists());
    let is_rows = |path: &std::path::Path| path.extension().is_some_and(|end| end == "parquet");
    let left = std::fs::read_dir(folder).unwrap().filter(|found| is_rows(&found.as_ref().unwrap().path()));
    assert_eq!(left.count(), 3, "what was just replaced is there as well");
}

#[tokio::test]
async fn an_emulator_that_is_not_there_is_said_to_be() {
    let access = Access { emulator: Some("http://127.0.0.1:9".to_owned()), ..Access::default() };
    let lake = Lake::open("az://lake/x", &access).unwrap();
    let told = lake.prepare().await.unwrap_err().to_string();
    assert!(told.contains("is azurite-blob running?"), "{told}");
    let access = Access { emulator: Some("http://me:SECRET@127.0.0.1:9".to_owned()), ..access };
    let told = Lake::open("az://lake/x", &access).unwrap().prepare().await.unwrap_err().to_string();
    assert!(told.contains("127.0.0.1:9") && !told.contains("SECRET"), "{told}");
}

/// Eight who claim a job at a time from one table, in real time; how fast that goes is printed.
async fn eight_claim(lake: &Lake, name: &str) {
    let jobs = if std::env::var_os("CATCHMENT_LONG").is_some() { 376 } else { 40 };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    JobTable::set_up(lake, &plan(Mode::Offset, jobs * 500 - 500, 500), Arc::clone(&clock), 1).await.unwrap();
    let began = clock.monotonic();
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..8_u64 {
        let mut table = JobTable::open(lake, Arc::clone(&clock), n).await.unwrap();
        workers.spawn(async move {
            let worker = format!("w{n}");
            let mut mine = 0;
            while !table.act(&worker, &[], 1, Duration::from_secs(300)).await.unwrap().claimed.is_empty() {
                mine += 1;
            }
            (mine, table.commits())
        });
    }
    let done = workers.join_all().await;
    let took = clock.monotonic().since(began).as_secs_f64();
    assert_eq!(done.iter().map(|(mine, _)| mine).sum::<i64>(), jobs);
    let mut table = JobTable::open(lake, clock, 9).await.unwrap();
    let found = catchment_lake::verify(lake, &mut table).await.unwrap();
    assert_eq!((found.leases, found.taken_over, found.wrong), (jobs as u64, 0, vec![]));
    let lost: u64 = done.iter().map(|(_, commits)| commits.lost).sum();
    let time: Duration = done.iter().map(|(_, commits)| commits.time).sum();
    let longest = done.iter().map(|(_, commits)| commits.time_max).max().unwrap();
    eprintln!(
        "{name}: 8 workers, {jobs} claims in {took:.2} s: {:.0} claims/s; a commit {:.1} ms on average, {:.0} ms at most; {lost} lost to others",
        jobs as f64 / took,
        time.as_secs_f64() * 1_000.0 / jobs as f64,
        longest.as_secs_f64() * 1_000.0,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_claim_each_job_once_on_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    eight_claim(&Lake::open(dir.path().to_str().unwrap(), &Access::default()).unwrap(), "folder").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_claim_each_job_once_on_the_azure_emulator() {
    let dir = tempfile::tempdir().unwrap();
    let azurite = Azurite::start(dir.path()).unwrap();
    let access = Access { emulator: Some(azurite.address().to_owned()), ..Access::default() };
    eight_claim(&Lake::open("az://lake/bronze", &access).unwrap(), "azurite").await;
}
