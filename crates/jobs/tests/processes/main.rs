//! Several processes on one store: stopped, continued, killed, and all of them in a hurry. Each child is this very program,
//! told by the environment what to do.
//!
//! Short forms run with the tests, long ones (`CATCHMENT_LONG`) by `scripts/torture jobs`.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod child;
mod leases;
mod tokens;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use catchment_jobs::sqlite::{HostClock, Machine};
use catchment_jobs::{MongoSettings, MongoStore, SqliteStore, Store};
use catchment_sinks::mongo::Mongod;

/// Not a test: what the children are started with.
#[test]
fn child() {
    if let Ok(task) = std::env::var("CATCHMENT_CHILD") {
        child::run(&task);
    }
}

/// Whether this is the long form.
fn is_long() -> bool {
    std::env::var_os("CATCHMENT_LONG").is_some()
}

/// Opens what `CATCHMENT_CHILD_STORE` or a test names: the path of a file, or `mongodb://…#database`.
async fn open(place: &str) -> Arc<dyn Store> {
    if let Some((uri, database)) = place.split_once('#') {
        let settings = MongoSettings { database: database.to_owned(), ..MongoSettings::default() };
        return Arc::new(MongoStore::open(uri, &settings).await.unwrap());
    }
    Arc::new(SqliteStore::open(place).await.unwrap())
}

/// A store that children share, and what keeps it alive.
struct Place {
    name: String,
    /// Stopped before its folder goes.
    _server: Option<Mongod>,
    dir: tempfile::TempDir,
}

impl Place {
    fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("jobs.db").to_str().unwrap().to_owned();
        Self { name, dir, _server: None }
    }

    fn mongo() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Mongod::start(dir.path(), &[]).unwrap_or_else(|error| panic!("{error}"));
        let name = format!("mongodb://127.0.0.1:{}/?directConnection=true#processes", server.port());
        Self { name, dir, _server: Some(server) }
    }

    fn log(&self, child: usize) -> PathBuf {
        self.dir.path().join(format!("child{child}.log"))
    }
}

/// Starts this program again with a task.
fn start(task: &str, place: &str, log: &Path, more: &[(&str, String)]) -> Running {
    let complaints = log.with_extension("err");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env("CATCHMENT_CHILD", task)
        .env("CATCHMENT_CHILD_STORE", place)
        .env("CATCHMENT_CHILD_LOG", log)
        .envs(more.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::options().create(true).append(true).open(&complaints).unwrap())
        .spawn()
        .unwrap();
    Running { child, complaints }
}

/// A child that does not outlive its test.
struct Running {
    child: Child,
    /// Where its stderr goes.
    complaints: PathBuf,
}

impl Running {
    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn wait(mut self) {
        let ended = self.child.wait().unwrap();
        let complaints = || std::fs::read_to_string(&self.complaints).unwrap();
        assert!(ended.success(), "a child failed with {ended}: {}", complaints());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same for all processes of this machine.
fn now() -> Duration {
    Machine.since_boot()
}
