//! A sink in memory that fails, refuses and stalls when a test tells it to.
//!
//! It keeps each record once, by its id. With [`MemorySink::counting`] it keeps ids only, one bit each, so that a long
//! run stays flat in memory.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use catchment_model::{Channel, RecordId, Venue};
use catchment_pipeline::{Batch, Record, Refusal, Sink, SinkError};
use tokio::sync::watch;

use crate::verify::seen::Seen;

/// Keeps records in memory. Clones share what they keep.
#[derive(Debug, Clone)]
pub struct MemorySink {
    name: String,
    state: Arc<Mutex<State>>,
    stalled: Arc<watch::Sender<bool>>,
}

/// A record as it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    id: RecordId,
    line: Vec<u8>,
    exchange: Venue,
    channel: Channel,
}

type Refuse = Box<dyn Fn(&Record<'_>) -> Option<String> + Send>;

#[derive(Default)]
struct State {
    kept: Vec<Kept>,
    ids: HashSet<RecordId>,
    seen: Seen,
    count: u64,
    only_counts: bool,
    writes: u64,
    fail_next: u64,
    failing: bool,
    refuse: Option<Refuse>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("count", &self.count).field("writes", &self.writes).finish()
    }
}

impl Default for MemorySink {
    fn default() -> Self {
        Self::new("memory")
    }
}

impl MemorySink {
    /// An empty sink under this name.
    pub fn new(name: &str) -> Self {
        let stalled = Arc::new(watch::Sender::new(false));
        Self { name: name.to_owned(), state: Arc::default(), stalled }
    }

    /// An empty sink that counts records and remembers their ids, one bit each, but keeps no lines.
    pub fn counting(name: &str) -> Self {
        let sink = Self::new(name);
        sink.lock().only_counts = true;
        sink
    }

    /// The next `writes` writes find nobody there.
    pub fn fail_next(&self, writes: u64) {
        self.lock().fail_next = writes;
    }

    /// While true, every write finds nobody there.
    pub fn fail_until_healed(&self, failing: bool) {
        self.lock().failing = failing;
    }

    /// Records for which this gives a reason are refused for good; a batch with one of them keeps none.
    pub fn refuse(&self, reason: impl Fn(&Record<'_>) -> Option<String> + Send + 'static) {
        self.lock().refuse = Some(Box::new(reason));
    }

    /// From now on writes wait.
    pub fn stall(&self) {
        self.stalled.send_replace(true);
    }

    /// Lets waiting writes go on.
    pub fn release(&self) {
        self.stalled.send_replace(false);
    }

    /// How many writes were begun, failed ones included.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// How many records it has, each counted once.
    pub fn len(&self) -> u64 {
        self.lock().count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids in the order in which they came; none if it only counts.
    pub fn ids(&self) -> Vec<RecordId> {
        self.lock().kept.iter().map(|kept| kept.id).collect()
    }

    /// The lines in the order in which they came; none if it only counts.
    pub fn lines(&self) -> Vec<Vec<u8>> {
        self.lock().kept.iter().map(|kept| kept.line.clone()).collect()
    }

    /// The line of one record.
    pub fn line(&self, id: RecordId) -> Option<Vec<u8>> {
        self.lock().kept.iter().find(|kept| kept.id == id).map(|kept| kept.line.clone())
    }

    /// The lines of one venue and channel, in the order in which they came.
    pub fn lines_of(&self, exchange: Venue, channel: Channel) -> Vec<Vec<u8>> {
        let state = self.lock();
        let ours = state.kept.iter().filter(|kept| (kept.exchange, kept.channel) == (exchange, channel));
        ours.map(|kept| kept.line.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

impl State {
    fn fails(&mut self) -> bool {
        if self.fail_next > 0 {
            self.fail_next -= 1;
            return true;
        }
        self.failing
    }

    fn refusals(&self, batch: &Batch) -> Vec<Refusal> {
        let Some(refuse) = &self.refuse else { return Vec::new() };
        let reasons = batch.iter().enumerate().map(|(index, record)| (index, refuse(&record)));
        reasons.filter_map(|(index, reason)| Some(Refusal { index, reason: reason? })).collect()
    }

    fn keep(&mut self, record: &Record<'_>) {
        let id = record.id();
        if self.only_counts {
            self.count += u64::from(self.seen.insert(id));
            return;
        }
        if self.ids.insert(id) {
            let (exchange, channel) = record.stream();
            self.kept.push(Kept { id, line: record.line().to_vec(), exchange, channel });
            self.count += 1;
        }
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        self.lock().writes += 1;
        let mut stalled = self.stalled.subscribe();
        let released = stalled.wait_for(|stalled| !stalled).await.map(|_| ());
        released.expect("the sender lives as long as the sink");
        let mut state = self.lock();
        if state.fails() {
            return Err(SinkError::unreachable(&self.name, "it was told to fail"));
        }
        let refused = state.refusals(batch);
        if !refused.is_empty() {
            return Err(SinkError::Refused { sink: self.name.clone(), refused });
        }
        batch.iter().for_each(|record| state.keep(&record));
        Ok(())
    }
}
