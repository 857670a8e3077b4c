//! Rounds of discovery against simulated venues: what is written, and what a failed round leaves alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catchment_collect::{
    Courier, CourierSettings, DiscoverStatus, DiscoverTask, LOSS_BELIEVED_AFTER, Loaded, PageRetries,
    SnapshotFile, discover, snapshot_path,
};
use catchment_model::{Channel, SimClock, Snapshot, SystemClock, UnixMs, UnixNs};
use catchment_pipeline::disk::sim::{Op, SimDisk};
use catchment_pipeline::disk::{self, Disk};
use catchment_pipeline::{Delivery, Pipeline, PipelineConfig, RealDisk, Spool, SpoolConfig, SyncPoint};
use catchment_sim::{Faults, Sim, SimConfig};
use catchment_sinks::MemorySink;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::{governor, opened, quick, sim, venue};

/// What survives from round to round: the files, and the records.
struct House {
    id: &'static str,
    sim: Sim,
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    pipeline: Pipeline,
    sink: MemorySink,
    _dir: tempfile::TempDir,
}

impl House {
    async fn new(id: &'static str, sim: Sim) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        Self::on(id, sim, Arc::new(RealDisk::shared()), data_dir, dir).await
    }

    async fn on(
        id: &'static str,
        sim: Sim,
        disk: Arc<dyn Disk>,
        data_dir: PathBuf,
        dir: tempfile::TempDir,
    ) -> Self {
        let sink = MemorySink::default();
        let spool = Spool::in_memory(SpoolConfig::at("unused"), 7);
        let sinks = vec![(Arc::new(sink.clone()) as _, Delivery::default())];
        let clock = Arc::new(SystemClock::new());
        let pipeline = Pipeline::start(spool, sinks, PipelineConfig::default(), clock).unwrap();
        Self { id, sim, disk, data_dir, pipeline, sink, _dir: dir }
    }

    fn faults(&self, faults: Faults) {
        self.sim.set_faults(self.id, faults).unwrap();
    }

    fn task(&self) -> (DiscoverTask, watch::Receiver<DiscoverStatus>) {
        let (status, told) = watch::channel(DiscoverStatus::default());
        let clock = Arc::new(SystemClock::new());
        let courier = Courier::new(venue(self.id), CourierSettings::default(), clock.clone()).unwrap();
        let retries = PageRetries {
            attempts: 3,
            wait: Duration::from_millis(1),
            wait_max: Duration::from_millis(2),
            seed: 1,
        };
        let task = DiscoverTask {
            spec: venue(self.id),
            discovers: opened(self.id, &self.sim).discovers.unwrap(),
            governor: governor(self.id, quick(), clock.clone()),
            courier: Arc::new(courier),
            intake: self.pipeline.intake(),
            disk: Arc::clone(&self.disk),
            data_dir: self.data_dir.clone(),
            interval: Duration::from_millis(50),
            retries,
            clock,
            status,
        };
        (task, told)
    }

    /// Starts as after a restart, runs until so many rounds have ended, and stops.
    async fn rounds(&self, rounds: u64) -> DiscoverStatus {
        let (task, mut told) = self.task();
        let stop = CancellationToken::new();
        let watching = async {
            let ended = told.wait_for(|status| status.rounds >= rounds).await.unwrap().clone();
            stop.cancel();
            ended
        };
        tokio::join!(watching, discover(task, stop.clone())).0
    }

    fn requests(&self) -> u64 {
        self.sim.stats()[self.id].values().map(|endpoint| endpoint.requests).sum()
    }

    fn path(&self) -> PathBuf {
        snapshot_path(&self.data_dir, venue(self.id).venue())
    }

    fn bytes(&self) -> Vec<u8> {
        disk::read_file(&*self.disk, &self.path(), u64::MAX).unwrap()
    }

    fn snapshot(&self) -> Snapshot {
        match SnapshotFile::new(self.path(), venue(self.id).venue()).load() {
            Loaded::New(snapshot) => snapshot,
            other => panic!("{other:?}"),
        }
    }

    /// The payloads of the channel `markets`, once everything has been delivered.
    async fn markets(self) -> Vec<Value> {
        let (sink, venue) = (self.sink.clone(), venue(self.id).venue());
        self.pipeline.close(Duration::from_secs(60)).await.unwrap();
        let lines = sink.lines_of(venue, Channel::new("markets").unwrap());
        lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

fn universe(markets: u32) -> SimConfig {
    let mut config = SimConfig::default();
    for universe in
        [&mut config.polymarket.universe, &mut config.limitless.universe, &mut config.kalshi.universe]
    {
        universe.markets = markets;
        universe.closed = 5;
    }
    config
}

async fn house(id: &'static str) -> House {
    House::new(id, sim(universe(120)).await).await
}

fn count(records: &[Value], event: &str) -> usize {
    records.iter().filter(|record| record["payload"]["event"] == event).count()
}

async fn every_page_is_walked(
    id: &'static str,
    markets: u32,
    pages: usize,
    instruments: std::ops::RangeInclusive<usize>,
) {
    let house = House::new(id, sim(universe(markets)).await).await;
    let status = house.rounds(1).await;
    assert_eq!(status.last_error, None);
    assert!(status.pages >= pages, "{} pages", status.pages);
    assert!(instruments.contains(&status.instruments), "{} instruments", status.instruments);
    let snapshot = house.snapshot();
    assert_eq!(snapshot.instruments.len(), status.instruments);
    assert_eq!(Some(snapshot.written_at), status.written_at);
    let records = house.markets().await;
    assert_eq!(count(&records, "joined"), status.instruments);
    let last = records.last().unwrap();
    assert_eq!(last["symbol"], "*");
    assert_eq!(last["source"], "discover");
    assert_eq!(last["payload"]["event"], "changed");
    assert_eq!(last["payload"]["instruments"], status.instruments);
    assert_eq!(last["payload"]["since_ms"], Value::Null);
}

#[tokio::test]
async fn polymarket_is_walked_to_its_last_page() {
    every_page_is_walked("polymarket", 250, 3, 500..=500).await;
}

#[tokio::test]
async fn limitless_is_walked_to_its_last_page() {
    every_page_is_walked("limitless", 120, 4, 60..=240).await;
}

#[tokio::test]
async fn kalshi_is_walked_to_its_last_page() {
    every_page_is_walked("kalshi", 1_500, 2, 1_500..=5_000).await;
}

#[tokio::test]
async fn membership_that_stays_writes_a_new_file_and_no_record() {
    let house = house("limitless").await;
    let first = house.rounds(2).await;
    let again = house.rounds(1).await;
    assert_eq!(first.instruments, again.instruments);
    assert!(again.written_at > first.written_at);
    let records = house.markets().await;
    assert_eq!(records.len(), first.instruments + 1, "one for each, and one for all");
}

#[tokio::test]
async fn what_joins_and_what_leaves_is_recorded_also_across_a_restart() {
    let mut config = universe(40);
    (config.kalshi.universe.births_per_min, config.kalshi.universe.deaths_per_min) = (2.0, 1.0);
    config.kalshi.rules.combos = 0;
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(1_800_000_000_000).unwrap()));
    let house = House::new("kalshi", Sim::start(config, clock.clone()).await.unwrap()).await;
    let before = house.rounds(1).await;
    clock.advance(Duration::from_secs(60));
    let after = house.rounds(1).await;
    assert_eq!((before.instruments, after.instruments), (40, 41));
    let records = house.markets().await;
    assert_eq!((count(&records, "joined"), count(&records, "left")), (42, 1));
    let summary = &records.last().unwrap()["payload"];
    assert_eq!(
        (&summary["joined"], &summary["left"], &summary["instruments"]),
        (&2.into(), &1.into(), &41.into())
    );
    assert_eq!(summary["since_ms"], before.written_at.unwrap().get());
    let left = records.iter().find(|record| record["payload"]["event"] == "left").unwrap();
    assert_eq!(left["symbol"], left["payload"]["instrument"]["symbol"]);
}

/// A good round, then one that meets a fault: the file is as it was, and nothing is recorded.
async fn leaves_the_last_snapshot(id: &'static str, faults: Faults, error: &str) -> DiscoverStatus {
    let house = house(id).await;
    let good = house.rounds(1).await;
    let before = house.bytes();
    house.faults(faults);
    let failed = house.rounds(1).await;
    assert_eq!((failed.failed_rounds, failed.failed_in_a_row), (1, 1));
    let said = failed.last_error.clone().unwrap();
    assert!(said.contains(error), "expected {error:?} in {said:?}");
    assert_eq!(house.bytes(), before);
    assert_eq!(failed.instruments, good.instruments, "the snapshot in force");
    house.faults(Faults::default());
    assert_eq!(house.rounds(1).await.last_error, None);
    assert_eq!(house.markets().await.len(), good.instruments + 1);
    failed
}

#[tokio::test]
async fn a_cursor_that_does_not_advance_fails_the_round() {
    let stuck = Faults { stuck_cursor: 1.0, ..Faults::default() };
    leaves_the_last_snapshot("polymarket", stuck.clone(), "does not advance").await;
    leaves_the_last_snapshot("kalshi", stuck, "does not advance").await;
}

#[tokio::test]
async fn a_venue_in_trouble_is_asked_a_few_times_and_then_not_again() {
    let trouble = Faults { server_error: 1.0, ..Faults::default() };
    leaves_the_last_snapshot(
        "limitless",
        trouble.clone(),
        "page 1 of the listing could not be had: status 503",
    )
    .await;
    let house = house("limitless").await;
    house.faults(trouble);
    house.rounds(1).await;
    assert_eq!(house.requests(), 3);
    assert!(!house.path().exists());
}

#[tokio::test]
async fn a_page_that_fails_now_and_then_costs_no_round() {
    let house = House::new("limitless", sim(universe(250)).await).await;
    house.faults(Faults { reset: 0.15, ..Faults::default() });
    let status = house.rounds(1).await;
    let met: u64 =
        house.sim.stats()["limitless"].values().flat_map(|endpoint| endpoint.faults.values()).sum();
    assert!(met > 0, "no fault was met");
    assert_eq!((status.failed_rounds, status.last_error), (0, None));
}

#[tokio::test]
async fn pages_for_people_and_torn_pages_fail_the_round() {
    leaves_the_last_snapshot("limitless", Faults { html_200: 1.0, ..Faults::default() }, "HTML page").await;
    leaves_the_last_snapshot("limitless", Faults { truncated: 1.0, ..Faults::default() }, "not JSON").await;
}

async fn is_asked_once(id: &'static str, faults: Faults) {
    let house = house(id).await;
    house.faults(faults);
    house.rounds(1).await;
    assert_eq!(house.requests(), 1);
}

#[tokio::test]
async fn a_redirect_fails_the_round_at_once() {
    let led = Faults { redirect: 1.0, ..Faults::default() };
    leaves_the_last_snapshot("polymarket", led.clone(), "leads to http://elsewhere.invalid").await;
    is_asked_once("polymarket", led).await;
}

#[tokio::test]
async fn a_ban_fails_the_round_at_once() {
    let banned = Faults { forbidden: 1.0, ..Faults::default() };
    leaves_the_last_snapshot("limitless", banned.clone(), "means banned").await;
    is_asked_once("limitless", banned).await;
}

#[tokio::test]
async fn an_empty_listing_is_believed_when_it_comes_again_and_again() {
    let house = house("limitless").await;
    let good = house.rounds(1).await;
    let before = house.bytes();
    house.faults(Faults { empty_page: 1.0, ..Faults::default() });
    let doubted = house.rounds(u64::from(LOSS_BELIEVED_AFTER) - 1).await;
    assert_eq!(doubted.failed_rounds, doubted.rounds);
    assert!(doubted.last_error.unwrap().contains("the listing lacks"));
    assert_eq!(house.bytes(), before);
    // A restart forgets how often; three times in a row it must be.
    let believed = house.rounds(LOSS_BELIEVED_AFTER.into()).await;
    assert_eq!((believed.instruments, believed.last_error), (0, None));
    assert_eq!(house.snapshot().instruments, []);
    let records = house.markets().await;
    assert_eq!(count(&records, "left"), good.instruments);
}

#[tokio::test]
async fn a_listing_that_has_lost_most_of_its_instruments_is_doubted_and_then_believed() {
    let mut config = universe(40);
    config.kalshi.universe.deaths_per_min = 30.0;
    config.kalshi.rules.combos = 0;
    // The venue's calendar is ahead of ours, so that by ours the time of what it ends is not over.
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(4_000_000_000_000).unwrap()));
    let house = House::new("kalshi", Sim::start(config, clock.clone()).await.unwrap()).await;
    house.rounds(1).await;
    clock.advance(Duration::from_secs(40));
    assert_eq!(house.rounds(1).await.last_error, None, "a half may go");
    clock.advance(Duration::from_secs(30));
    let doubted = house.rounds(2).await;
    assert_eq!((doubted.failed_rounds, doubted.instruments), (2, 20));
    assert!(doubted.last_error.unwrap().contains("lacks 15 of 20 instruments"));
    let believed = house.rounds(3).await;
    assert_eq!((believed.failed_rounds, believed.instruments), (2, 5));
}

#[tokio::test]
async fn a_torn_snapshot_is_replaced_and_every_instrument_is_new() {
    let house = house("limitless").await;
    let good = house.rounds(1).await;
    let whole = house.bytes();
    let torn = &whole[..whole.len() / 2];
    disk::replace_file(&*house.disk, &house.path(), torn, SyncPoint::StateData, SyncPoint::StateEntry)
        .unwrap();
    let repaired = house.rounds(1).await;
    assert_eq!((repaired.last_error, house.snapshot().instruments.len()), (None, good.instruments));
    assert_eq!(count(&house.markets().await, "joined"), 2 * good.instruments);
}

#[tokio::test]
async fn a_calendar_that_is_set_back_does_not_make_a_snapshot_older() {
    let house = house("limitless").await;
    house.rounds(1).await;
    let far = UnixMs::new(4_000_000_000_000).unwrap();
    let ahead = Snapshot::new(venue("limitless").venue(), far, house.snapshot().instruments);
    let bytes = ahead.to_json();
    disk::replace_file(&*house.disk, &house.path(), &bytes, SyncPoint::StateData, SyncPoint::StateEntry)
        .unwrap();
    house.rounds(1).await;
    assert_eq!(house.snapshot().written_at.get(), far.get() + 1);
}

#[tokio::test]
async fn stop_ends_a_round_that_waits_for_the_venue() {
    let house = house("limitless").await;
    house.faults(Faults { hang: 1.0, ..Faults::default() });
    let (task, told) = house.task();
    let stop = CancellationToken::new();
    let stopping = async {
        while house.requests() == 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(discover(task, stop.clone()), stopping) };
    // Much sooner than the request would have ended by itself.
    tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    assert_eq!(told.borrow().rounds, 0);
}

#[tokio::test]
async fn a_pipeline_that_is_closed_ends_discovery() {
    let house = house("limitless").await;
    let (task, told) = house.task();
    house.pipeline.close(Duration::from_secs(60)).await.unwrap();
    discover(task, CancellationToken::new()).await;
    assert_eq!(told.borrow().rounds, 0);
}

async fn house_on(disk: &SimDisk) -> House {
    let dir = tempfile::tempdir().unwrap();
    House::on("limitless", sim(universe(30)).await, Arc::new(disk.clone()), PathBuf::from("/data"), dir).await
}

#[tokio::test]
async fn a_snapshot_survives_a_power_cut_and_every_sync_is_needed_for_it() {
    async fn survives(leave_out: Option<SyncPoint>) -> bool {
        let mut all = true;
        for seed in 0..12 {
            let disk = SimDisk::new(seed);
            disk.create_dir(Path::new("/data")).unwrap();
            disk.sync_dir(Path::new("/"), SyncPoint::StateFolder).unwrap();
            if let Some(point) = leave_out {
                disk.leave_out(point);
            }
            let house = house_on(&disk).await;
            let status = house.rounds(1).await;
            assert_eq!(status.last_error, None);
            disk.cut_power();
            let read = disk::read_file(&disk, &house.path(), u64::MAX);
            let is_whole = |bytes: Vec<u8>| {
                Snapshot::read(venue("limitless").venue(), &bytes)
                    .is_ok_and(|snapshot| snapshot.instruments.len() == status.instruments)
            };
            all &= read.is_ok_and(is_whole);
        }
        all
    }
    assert!(survives(None).await);
    for point in [SyncPoint::StateFolder, SyncPoint::StateData, SyncPoint::StateEntry] {
        assert!(!survives(Some(point)).await, "{point:?} is not needed");
    }
}

#[tokio::test]
async fn a_disk_that_is_full_fails_the_round_and_repeats_no_record() {
    const NO_SPACE: i32 = 28;
    let disk = SimDisk::new(3);
    let house = house_on(&disk).await;
    disk.create_dir(Path::new("/data")).unwrap();
    disk.inject(|op| matches!(op, Op::Append(..)).then_some(NO_SPACE));
    let failed = house.rounds(2).await;
    assert_eq!(failed.failed_rounds, 2);
    assert!(failed.last_error.unwrap().contains("the snapshot could not be written: No space left"));
    assert!(disk::read_file(&disk, &house.path(), u64::MAX).is_err());
    disk.heal();
    let good = house.rounds(1).await;
    assert_eq!(good.last_error, None);
    // Once by the first of the two that failed; and once more after the restart, for which there was no file.
    let records = house.markets().await;
    assert_eq!((count(&records, "changed"), count(&records, "joined")), (2, 2 * good.instruments));
}

#[tokio::test]
async fn a_disk_that_is_full_leaves_the_last_snapshot() {
    let disk = SimDisk::new(3);
    let house = house_on(&disk).await;
    disk.create_dir(Path::new("/data")).unwrap();
    let good = house.rounds(1).await;
    let before = house.bytes();
    for broken in ["append", "sync", "rename"] {
        disk.inject(move |op| {
            let hits = match op {
                Op::Append(..) => broken == "append",
                Op::Sync(..) => broken == "sync",
                Op::Rename(..) => broken == "rename",
                _ => false,
            };
            hits.then_some(5)
        });
        let failed = house.rounds(1).await;
        assert_eq!((failed.failed_rounds, failed.instruments), (1, good.instruments), "{broken}");
        assert_eq!(house.bytes(), before, "{broken}");
    }
    disk.heal();
    assert_eq!(house.rounds(1).await.last_error, None);
}
