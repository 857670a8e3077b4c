//! Stores to be tested.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use catchment_jobs::conformance::Rig;
use catchment_jobs::sqlite::HostClock;
use catchment_jobs::{SqliteStore, Store};
use catchment_model::UnixMs;
use tempfile::TempDir;

/// A machine whose clocks move when told to.
#[derive(Debug)]
pub(crate) struct Host(Mutex<(i64, Duration, u32)>);

impl Host {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((1_800_000_000_123, Duration::from_secs(1_000), 1)))
    }

    /// Time passes.
    pub(crate) fn advance(&self, length: Duration) {
        let mut now = self.0.lock().unwrap();
        now.0 += length.as_millis() as i64;
        now.1 += length;
    }

    /// Somebody sets the calendar.
    #[allow(dead_code)]
    pub(crate) fn set_calendar(&self, by_ms: i64) {
        self.0.lock().unwrap().0 += by_ms;
    }

    /// The machine is started again.
    #[allow(dead_code)]
    pub(crate) fn reboot(&self) {
        let mut now = self.0.lock().unwrap();
        now.1 = Duration::from_secs(1);
        now.2 += 1;
    }
}

impl HostClock for Host {
    fn wall(&self) -> UnixMs {
        UnixMs::new(self.0.lock().unwrap().0).unwrap()
    }

    fn since_boot(&self) -> Duration {
        self.0.lock().unwrap().1
    }

    fn boot(&self) -> String {
        self.0.lock().unwrap().2.to_string()
    }
}

/// A file of its own.
pub(crate) struct SqliteRig {
    pub(crate) dir: TempDir,
    pub(crate) host: Arc<Host>,
    pub(crate) store: SqliteStore,
}

impl SqliteRig {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Arc::new(Host::new());
        let store = SqliteStore::open_with(dir.path().join("jobs.db"), host.clone(), 1).await.unwrap();
        Self { dir, host, store }
    }

    pub(crate) async fn open(&self, random: u64) -> SqliteStore {
        SqliteStore::open_with(self.dir.path().join("jobs.db"), self.host.clone(), random).await.unwrap()
    }
}

#[async_trait]
impl Rig for SqliteRig {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn beside(&self) -> Arc<dyn Store> {
        Arc::new(self.open(2).await)
    }

    async fn pass(&self, length: Duration) {
        self.host.advance(length);
    }

    fn slack(&self) -> Duration {
        Duration::ZERO
    }
}
