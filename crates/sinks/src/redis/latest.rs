//! The latest snapshot of each token, written by compare-and-set: one script call for many tokens.
//!
//! ```text
//! put(entries) ─▶ known to be there? ─yes─▶ Same, nothing is sent
//!                    │ no
//!                    └─▶ groups of 50 ─▶ one pipeline of EVALSHA ─▶ a verdict each ─▶ remembered
//!                          │                  └ NOSCRIPT: those groups again, by EVAL
//!                          └ in a cluster: a group for each slot, side by side
//! ```
//!
//! Groups of 50, because a script holds up everybody else on the server for as long as it runs. Whatever fails may be
//! repeated: the order of arrival does not matter (see `order`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use catchment_model::{Clock, Monotonic};
use redis::{Cmd, Pipeline, RedisError, RedisResult, ServerErrorKind};
use sha1::{Digest, Sha1};
use tokio::task::JoinSet;

use super::link::{RedisConnection, RedisFailure, RedisLink, was_dead};
use super::memory::Memory;
use super::order::{TIE_MS, Verdict};
use super::slots::slot_of;

const SCRIPT: &str = include_str!("latest.lua");
/// Tokens a script call has at most, and bytes after which it has no more.
const GROUP_TOKENS: usize = 50;
const GROUP_BYTES: usize = 512 << 10;
/// What one pipeline has at most; more goes in several, one after the other.
const PIPELINE_BYTES: usize = 8 << 20;
/// Calls under way to a cluster.
const CLUSTER_CALLS: usize = 128;

/// What the user may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestSettings {
    /// What stands before a token in its key.
    pub prefix: String,
    /// The audit trail: every snapshot that was written, as an entry of a stream.
    pub stream: Option<AuditStream>,
    /// The channel on which the name of every changed token is published.
    pub publish: Option<String>,
    /// So many hashes are remembered at most; 0 sends everything.
    pub memory_keys_max: usize,
    /// A remembered hash is trusted for so long; then it is sent again.
    pub memory_trusted_for: Duration,
}

/// An audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditStream {
    /// The stream's key; behind it stand a colon and the venue, if the snapshot has one.
    pub key: String,
    /// About so many entries are kept.
    pub len_max: u64,
    /// Whether entries have the books, too, and not only what changed when.
    pub with_books: bool,
}

impl Default for LatestSettings {
    fn default() -> Self {
        Self {
            prefix: "ob:".to_owned(),
            stream: None,
            publish: None,
            memory_keys_max: 1_000_000,
            memory_trusted_for: Duration::from_secs(60),
        }
    }
}

/// One snapshot on its way.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// What it is a snapshot of: the key without the prefix.
    pub name: &'a str,
    /// Whose: each venue has its own audit stream. May be empty.
    pub venue: &'a str,
    /// The venue's hash of it.
    pub hash: &'a str,
    /// The venue's time, as it wrote it.
    pub timestamp: &'a str,
    /// When it was fetched, in milliseconds.
    pub updated_at: i64,
    /// The other fields of the hash.
    pub fields: [Option<(&'static str, &'a [u8])>; 3],
}

impl<'a> Entry<'a> {
    /// The snapshot of a book, its sides as the venue's own bytes.
    pub fn book(
        name: &'a str,
        hash: &'a str,
        timestamp: &'a str,
        updated_at: i64,
        book: BookParts<'a>,
    ) -> Self {
        let BookParts { market, bids, asks } = book;
        let fields = [Some(("market", market.as_bytes())), Some(("bids", bids)), Some(("asks", asks))];
        Self { name, venue: "", hash, timestamp, updated_at, fields }
    }

    /// The same, of this venue.
    pub fn of_venue(self, venue: &'a str) -> Self {
        Self { venue, ..self }
    }

    fn bytes(&self) -> usize {
        let fields: usize =
            self.fields.iter().flatten().map(|(name, value)| name.len() + value.len() + 16).sum();
        2 * self.name.len() + self.hash.len() + self.timestamp.len() + fields + 64
    }
}

impl AuditStream {
    fn key_for(&self, venue: &str) -> String {
        if venue.is_empty() { self.key.clone() } else { format!("{}:{venue}", self.key) }
    }
}

/// What a book consists of.
#[derive(Debug, Clone, Copy)]
pub struct BookParts<'a> {
    /// The market it belongs to.
    pub market: &'a str,
    /// Who wants to buy, as the venue wrote it.
    pub bids: &'a [u8],
    /// Who wants to sell, likewise.
    pub asks: &'a [u8],
}

/// What became of the entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Put {
    /// A verdict for each, in their order.
    pub verdicts: Vec<Verdict>,
    /// How many were not sent, because the server is known to have them.
    pub unsent: usize,
}

impl Put {
    /// How many have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.verdicts.iter().filter(|other| **other == verdict).count()
    }
}

/// Keeps the latest snapshot of each token on a Redis server or cluster.
#[derive(Debug)]
pub struct LatestStore {
    link: Arc<RedisLink>,
    settings: LatestSettings,
    clock: Arc<dyn Clock>,
    sha: String,
    known: Mutex<(Memory, u64)>,
}

impl LatestStore {
    /// Connects to nobody yet.
    pub fn new(link: Arc<RedisLink>, settings: LatestSettings, clock: Arc<dyn Clock>) -> Self {
        let memory = Memory::new(settings.memory_keys_max, settings.memory_trusted_for);
        Self { link, settings, clock, sha: sha_of(SCRIPT), known: Mutex::new((memory, 0)) }
    }

    /// The way to the server.
    pub fn link(&self) -> &Arc<RedisLink> {
        &self.link
    }

    /// Returns once the server has answered for every entry. May be dropped midway, and may be repeated.
    pub async fn put(&self, entries: &[Entry<'_>]) -> Result<Put, RedisFailure> {
        let mut put = Put { verdicts: vec![Verdict::Same; entries.len()], unsent: 0 };
        let unknown = self.unknown(entries);
        put.unsent = entries.len() - unknown.len();
        if unknown.is_empty() {
            return Ok(put);
        }
        for part in self.groups(entries, unknown) {
            self.put_groups(entries, &part, &mut put.verdicts).await?;
        }
        Ok(put)
    }

    /// Nothing is known any more of what the server has.
    pub fn forget(&self) {
        self.lock().0.forget();
    }

    /// How many hashes are remembered.
    pub fn remembered(&self) -> usize {
        self.lock().0.len()
    }

    fn unknown(&self, entries: &[Entry<'_>]) -> Vec<usize> {
        let now = self.clock.monotonic();
        let known = self.lock();
        let is_known = |entry: &Entry<'_>| known.0.knows(entry.name.as_bytes(), entry.hash.as_bytes(), now);
        entries.iter().enumerate().filter(|(_, entry)| !is_known(entry)).map(|(at, _)| at).collect()
    }

    /// Parts that each fit into a pipeline, each of groups that each fit into a call.
    fn groups(&self, entries: &[Entry<'_>], mut unknown: Vec<usize>) -> Vec<Vec<Vec<usize>>> {
        if self.link.is_cluster() {
            let mut by_slot: HashMap<u16, Vec<usize>> = HashMap::new();
            for at in unknown {
                by_slot.entry(slot_of(&self.key(entries[at].name))).or_default().push(at);
            }
            return vec![by_slot.into_values().collect()];
        }
        // A call has one stream, so the snapshots of a venue go together; of one token they keep their order.
        let has_stream = self.settings.stream.is_some();
        if has_stream {
            unknown.sort_by_key(|at| entries[*at].venue);
        }
        let (mut parts, mut part, mut part_bytes) = (Vec::new(), Vec::new(), 0);
        let (mut group, mut group_bytes) = (Vec::<usize>::new(), 0);
        for at in unknown {
            let is_other = |first: &usize| has_stream && entries[*first].venue != entries[at].venue;
            if group.len() == GROUP_TOKENS || group_bytes > GROUP_BYTES || group.first().is_some_and(is_other)
            {
                part.push(std::mem::take(&mut group));
                part_bytes += std::mem::take(&mut group_bytes);
                if part_bytes > PIPELINE_BYTES {
                    parts.push(std::mem::take(&mut part));
                    part_bytes = 0;
                }
            }
            group_bytes += entries[at].bytes();
            group.push(at);
        }
        part.push(group);
        parts.push(part);
        parts
    }

    async fn put_groups(
        &self,
        entries: &[Entry<'_>],
        groups: &[Vec<usize>],
        verdicts: &mut [Verdict],
    ) -> Result<(), RedisFailure> {
        let mut has_failed = false;
        loop {
            let (connection, generation) = self.link.connection().await?;
            self.forget_if_new(generation);
            match self.try_groups(connection, entries, groups).await {
                Ok(said) => return self.take_in(entries, groups, &said, verdicts, generation),
                Err(error) => {
                    self.link.give_up(generation);
                    self.forget();
                    if has_failed || !was_dead(&error) {
                        return Err(error.into());
                    }
                    has_failed = true;
                }
            }
        }
    }

    /// What the server says to each group.
    async fn try_groups(
        &self,
        mut connection: RedisConnection,
        entries: &[Entry<'_>],
        groups: &[Vec<usize>],
    ) -> RedisResult<Vec<String>> {
        let calls: Vec<Cmd> =
            groups.iter().map(|group| self.call("EVALSHA", &self.sha, entries, group)).collect();
        let mut said = send(&mut connection, calls).await?;
        let lost: Vec<usize> =
            said.iter().enumerate().filter(|(_, said)| is_lost(said)).map(|(at, _)| at).collect();
        if !lost.is_empty() {
            super::events::script_lost(lost.len());
            let calls = lost.iter().map(|at| self.call("EVAL", SCRIPT, entries, &groups[*at])).collect();
            let again = send(&mut connection, calls).await?;
            for (at, answer) in lost.into_iter().zip(again) {
                said[at] = answer;
            }
        }
        let said: Vec<String> = said.into_iter().collect::<RedisResult<_>>()?;
        if self.link.is_cluster() {
            self.add_to_stream(&mut connection, entries, groups, &said).await?;
        }
        Ok(said)
    }

    fn call(&self, command: &str, script: &str, entries: &[Entry<'_>], group: &[usize]) -> Cmd {
        // In a cluster the stream lies elsewhere; see `add_to_stream`.
        let stream = self.settings.stream.as_ref().filter(|_| !self.link.is_cluster());
        let bytes = group.iter().map(|at| entries[*at].bytes()).sum::<usize>() + script.len() + 256;
        let mut cmd = Cmd::with_capacity(16 + 12 * group.len(), bytes);
        cmd.arg(command).arg(script).arg(group.len() + usize::from(stream.is_some()));
        for at in group {
            cmd.arg(self.key(entries[*at].name));
        }
        if let Some(stream) = stream {
            let venue = group.first().map_or("", |at| entries[*at].venue);
            cmd.arg(stream.key_for(venue));
        }
        cmd.arg(group.len()).arg(TIE_MS).arg(stream.map_or(0, |stream| stream.len_max));
        cmd.arg(u8::from(stream.is_some_and(|stream| stream.with_books)));
        cmd.arg(self.settings.publish.as_deref().unwrap_or(""));
        for at in group {
            let entry = &entries[*at];
            cmd.arg(entry.name).arg(entry.hash).arg(entry.timestamp).arg(entry.updated_at);
            cmd.arg(entry.fields.iter().flatten().count());
            for (name, value) in entry.fields.iter().flatten() {
                cmd.arg(*name).arg(*value);
            }
        }
        cmd
    }

    /// In a cluster the stream is in another slot than most keys, so it is written to afterwards. Whoever is killed in
    /// between leaves a snapshot without its entry in the stream.
    async fn add_to_stream(
        &self,
        connection: &mut RedisConnection,
        entries: &[Entry<'_>],
        groups: &[Vec<usize>],
        said: &[String],
    ) -> RedisResult<()> {
        let Some(stream) = &self.settings.stream else { return Ok(()) };
        let mut pipeline = Pipeline::new();
        for (group, said) in groups.iter().zip(said) {
            for (at, _) in group.iter().zip(said.bytes()).filter(|(_, said)| *said == b'1') {
                let entry = &entries[*at];
                pipeline
                    .cmd("XADD")
                    .arg(stream.key_for(entry.venue))
                    .arg("MAXLEN")
                    .arg("~")
                    .arg(stream.len_max)
                    .arg("*");
                pipeline.arg("key").arg(entry.name).arg("hash").arg(entry.hash);
                pipeline.arg("timestamp").arg(entry.timestamp).arg("updated_at").arg(entry.updated_at);
                for (name, value) in entry.fields.iter().flatten().filter(|_| stream.with_books) {
                    pipeline.arg(*name).arg(*value);
                }
                pipeline.ignore();
            }
        }
        if pipeline.is_empty() { Ok(()) } else { pipeline.exec_async(connection).await }
    }

    fn take_in(
        &self,
        entries: &[Entry<'_>],
        groups: &[Vec<usize>],
        said: &[String],
        verdicts: &mut [Verdict],
        generation: u64,
    ) -> Result<(), RedisFailure> {
        let now = self.clock.monotonic();
        let mut known = self.lock();
        // Somebody else may have lost the connection in the meantime.
        let may_learn = known.1 == generation;
        for (group, said) in groups.iter().zip(said) {
            if group.len() != said.len() {
                return Err(RedisFailure::Odd(format!("{} verdicts for {} tokens", said.len(), group.len())));
            }
            for (at, digit) in group.iter().zip(said.bytes()) {
                let entry = &entries[*at];
                verdicts[*at] = read_verdict(digit)?;
                if may_learn && verdicts[*at] != Verdict::WrongType {
                    learn(&mut known.0, entry, now);
                }
            }
        }
        Ok(())
    }

    /// On another connection there may be another server, or the same one with less in it.
    fn forget_if_new(&self, generation: u64) {
        let mut known = self.lock();
        if known.1 != generation {
            known.0.forget();
            known.1 = generation;
        }
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [self.settings.prefix.as_bytes(), name.as_bytes()].concat()
    }

    fn lock(&self) -> MutexGuard<'_, (Memory, u64)> {
        self.known.lock().expect("no holder of this lock can panic")
    }
}

fn learn(memory: &mut Memory, entry: &Entry<'_>, now: Monotonic) {
    memory.learn(entry.name.as_bytes(), entry.hash.as_bytes(), now);
}

fn read_verdict(digit: u8) -> Result<Verdict, RedisFailure> {
    match digit {
        b'0' => Ok(Verdict::Same),
        b'1' => Ok(Verdict::Written),
        b'2' => Ok(Verdict::Older),
        b'3' => Ok(Verdict::WrongType),
        other => Err(RedisFailure::Odd(format!("the verdict {:?}", char::from(other)))),
    }
}

/// One round trip; in a cluster one a call, side by side.
async fn send(connection: &mut RedisConnection, calls: Vec<Cmd>) -> RedisResult<Vec<RedisResult<String>>> {
    let RedisConnection::Cluster(cluster) = connection else {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            pipeline.add_command(call);
        }
        return pipeline.ignore_errors().query_async(connection).await;
    };
    let mut said: Vec<Option<RedisResult<String>>> = calls.iter().map(|_| None).collect();
    let mut calls = calls.into_iter().enumerate();
    let mut under_way: JoinSet<(usize, RedisResult<String>)> = JoinSet::new();
    loop {
        while under_way.len() < CLUSTER_CALLS
            && let Some((at, call)) = calls.next()
        {
            let mut cluster = cluster.clone();
            under_way.spawn(async move { (at, call.query_async(&mut cluster).await) });
        }
        match under_way.join_next().await {
            Some(Ok((at, answer))) => said[at] = Some(answer),
            Some(Err(panic)) => return Err(std::io::Error::other(panic).into()),
            None => break,
        }
    }
    Ok(said.into_iter().map(|answer| answer.expect("every call was joined")).collect())
}

fn is_lost(said: &RedisResult<String>) -> bool {
    said.as_ref().is_err_and(|error: &RedisError| error.kind() == ServerErrorKind::NoScript.into())
}

fn sha_of(script: &str) -> String {
    Sha1::digest(script.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
