//! Archives that a test can look into, on a disk in memory or on the machine's own.
#![allow(dead_code, unreachable_pub)] // each test file uses a part of it
#![allow(clippy::unwrap_used)] // a test may

pub mod mortal;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use catchment_model::{EnvelopeLine, RecordId, SimClock, UnixNs};
use catchment_pipeline::disk::sim::SimDisk;
use catchment_pipeline::{Batch, Disk, RealDisk, Sink, SinkError, disk};
use catchment_sinks::conformance::{self, NOON_MS, Shelf};
use catchment_sinks::{JsonlConfig, JsonlError, JsonlSink};

/// An archive with everything a test needs to open it again.
pub struct Bench {
    pub config: JsonlConfig,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<SimClock>,
    sink: Mutex<Option<Arc<dyn Sink>>>,
    _dir: Option<tempfile::TempDir>,
}

impl Bench {
    pub fn new(config: JsonlConfig, disk: Arc<dyn Disk>) -> Self {
        let clock = Arc::new(SimClock::at(UnixNs::from_ms(NOON_MS).unwrap()));
        Self { config, disk, clock, sink: Mutex::default(), _dir: None }
    }

    pub fn on_sim(disk: &SimDisk) -> Self {
        Self::new(JsonlConfig::new("/data"), Arc::new(disk.clone()))
    }

    pub fn on_real_disk() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Self::new(JsonlConfig::new(dir.path().join("data")), Arc::new(RealDisk::shared()));
        bench._dir = Some(dir);
        bench
    }

    pub fn compressed(mut self) -> Self {
        self.config.compress = Some(1);
        self
    }

    pub fn file_bytes_max(mut self, bytes: u64) -> Self {
        self.config.file_bytes_max = bytes;
        self
    }

    pub fn try_open(&self) -> Result<JsonlSink, JsonlError> {
        JsonlSink::open(
            self.config.clone(),
            conformance::spool(),
            Arc::clone(&self.disk),
            Arc::clone(&self.clock) as _,
        )
    }

    pub fn open(&self) -> JsonlSink {
        self.try_open().unwrap()
    }

    /// Every file below the archive's folder.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        files_below(&*self.disk, &self.config.dir, &mut files);
        files
    }

    pub fn files_ending(&self, suffix: &str) -> Vec<PathBuf> {
        self.files().into_iter().filter(|path| path.to_str().unwrap().ends_with(suffix)).collect()
    }

    pub fn read(&self, path: &Path) -> Vec<u8> {
        disk::read_file(&*self.disk, path, u64::MAX).unwrap()
    }

    /// Every whole line of the archive, file by file in the order in which they were made. An original beside its
    /// sealed compressed form does not count, as for every reader.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        let mut files: Vec<PathBuf> = self.files_ending(".jsonl");
        files.retain(|path| {
            let packed = disk::with_suffix(path, ".zst");
            !(self.exists(&packed) && self.exists(&disk::with_suffix(&packed, ".manifest.json")))
        });
        files.extend(self.files_ending(".jsonl.zst").into_iter().filter(|path| {
            self.exists(&disk::with_suffix(path, ".manifest.json")) || !self.exists(&path.with_extension(""))
        }));
        files.sort_by_key(|path| path.file_name().unwrap().to_str().unwrap()[33..39].to_owned());
        files.iter().flat_map(|path| lines_of(path, &self.read(path))).collect()
    }

    pub fn ids(&self) -> Vec<RecordId> {
        self.lines().iter().map(|line| id(line)).collect()
    }

    /// The numbers of all records in the archive, sorted; a number twice is a record twice.
    pub fn seqs(&self) -> Vec<u64> {
        let mut seqs: Vec<u64> = self.ids().iter().map(|id| id.seq).collect();
        seqs.sort_unstable();
        seqs
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.open(path).is_ok()
    }
}

/// The lines of a file, with their newlines.
pub fn lines_of(path: &Path, bytes: &[u8]) -> Vec<Vec<u8>> {
    let content = if path.extension().is_some_and(|e| e == "zst") {
        zstd::decode_all(bytes).unwrap()
    } else {
        bytes.to_vec()
    };
    content
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|l| l.ends_with(b"\n"))
        .map(<[u8]>::to_vec)
        .collect()
}

/// The id of a line.
pub fn id(line: &[u8]) -> RecordId {
    EnvelopeLine::parse(&line[..line.len() - 1]).unwrap().id().unwrap()
}

fn files_below(disk: &dyn Disk, dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in disk.list(dir).unwrap_or_default() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            files_below(disk, &path, files);
        } else {
            files.push(path);
        }
    }
}

/// Runs to the end on a thread of its own runtime.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub fn write(sink: &JsonlSink, batch: &Batch) -> Result<(), SinkError> {
    run(sink.write(batch))
}

#[async_trait]
impl Shelf for Bench {
    fn sink(&self) -> Arc<dyn Sink> {
        let mut sink = self.sink.lock().unwrap();
        Arc::clone(sink.get_or_insert_with(|| Arc::new(self.open())))
    }

    async fn ids(&self) -> Vec<RecordId> {
        Bench::ids(self)
    }

    async fn line(&self, wanted: RecordId) -> Option<Vec<u8>> {
        let text = wanted.to_string();
        let end = |line: &Vec<u8>| line[line.len().saturating_sub(400)..].to_vec();
        let names_it = |line: &Vec<u8>| end(line).windows(text.len()).any(|part| part == text.as_bytes());
        self.lines().into_iter().find(|line| names_it(line) && id(line) == wanted)
    }

    async fn reopen(&self) -> Arc<dyn Sink> {
        *self.sink.lock().unwrap() = None;
        self.sink()
    }
}
