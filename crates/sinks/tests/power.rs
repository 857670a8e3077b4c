//! Power cuts, kills and failing disks at random moments, against what the archive promises:
//!
//! 1. what was acknowledged is there, once; what was not is there at most once;
//! 2. right after a power cut, every manifest that can be seen parses and matches its file;
//! 3. after a start, every line of the archive is whole;
//! 4. after a close that succeeded and a power cut, every file is sealed (but for one whose manifest an earlier process
//!    was killed over: it is sealed again at the next start);
//! 5. a sealed file may be moved away, with whatever bears its name: its records are not written again.
//!
//! Then each sync is left out in turn, and some run must break a promise: no sync is there for show.
#![allow(clippy::unwrap_used)] // a test may

mod shelves;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use catchment_model::{Envelope, EnvelopeLine, Payload};
use catchment_pipeline::disk::sim::SimDisk;
use catchment_pipeline::disk::{parent, with_suffix};
use catchment_pipeline::{Batch, Disk, Sink, SyncPoint};
use catchment_sinks::conformance::{self, NOON_MS};
use catchment_sinks::{JsonlConfig, JsonlSink, Manifest};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sha2::{Digest, Sha256};
use shelves::mortal::Mortal;
use shelves::{Bench, lines_of, run};

/// One run of a recorder that has no luck.
struct Run {
    random: StdRng,
    sim: SimDisk,
    mortal: Mortal,
    bench: Bench,
    sink: Option<JsonlSink>,
    /// The highest number the pipeline was told is durable.
    acked: u64,
    /// The highest number it has offered.
    offered: u64,
    moved: BTreeSet<u64>,
    is_closed: bool,
    /// Since the last power cut.
    was_killed: bool,
}

type Promise = Result<(), String>;

fn simulate(seed: u64, left_out: Option<SyncPoint>) -> Promise {
    let mut random = StdRng::seed_from_u64(seed);
    let sim = SimDisk::new(seed);
    if let Some(point) = left_out {
        sim.leave_out(point);
    }
    let mortal = Mortal::new(sim.clone());
    let config = JsonlConfig {
        file_bytes_max: [1, 1_500, 6_000, 1 << 20][random.random_range(0..4)],
        compress: random.random_bool(0.5).then_some(1),
        ..JsonlConfig::new("/data")
    };
    let bench = Bench::new(config, Arc::new(mortal.clone()));
    let mut run = Run {
        random,
        sim,
        mortal,
        bench,
        sink: None,
        acked: 0,
        offered: 0,
        moved: BTreeSet::new(),
        is_closed: false,
        was_killed: false,
    };
    run.live().map_err(|broken| format!("seed {seed}: {broken}"))
}

impl Run {
    fn live(&mut self) -> Promise {
        self.open()?;
        for _ in 0..self.random.random_range(2..14) {
            self.step()?;
        }
        self.cut_power()?;
        self.open()?;
        self.offer(1, self.offered);
        let all: Vec<u64> = (1..=self.offered).collect();
        if self.acked < self.offered {
            return Err("a healthy disk did not take everything".to_owned());
        }
        expect(self.here() == all, || format!("expected all of {all:?} once, found {:?}", self.here()))
    }

    fn step(&mut self) -> Promise {
        match self.random.random_range(0..14) {
            0..5 => self.write(),
            5 => drop(run(self.sink().idle())),
            6 => self.is_closed = run(self.sink().close()).is_ok(),
            7 => {
                self.restart(Self::kill)?;
            }
            8 => {
                self.restart(Self::cut_power)?;
            }
            9 | 10 => self.write_with_faults(),
            _ => self.die()?,
        }
        Ok(())
    }

    fn sink(&self) -> &JsonlSink {
        self.sink.as_ref().expect("it is open between steps")
    }

    /// Offers the next records, or some again as after a restart.
    fn write(&mut self) {
        let back = if self.random.random_bool(0.2) { self.random.random_range(0..6) } else { 0 };
        let first = (self.acked + 1).saturating_sub(back).max(1);
        let last = self.acked + self.random.random_range(1..9);
        self.offer(first, last);
    }

    fn offer(&mut self, first: u64, last: u64) {
        self.is_closed = false;
        let mut at = first;
        while at <= last {
            let end = last.min(at + 7);
            self.offered = self.offered.max(end);
            if run(self.sink().write(&batch(at, end))).is_err() {
                return;
            }
            self.acked = self.acked.max(end);
            at = end + 1;
        }
    }

    /// One operation, or all from one on, fail; then the disk is well again.
    fn write_with_faults(&mut self) {
        self.inject_faults();
        self.write();
        drop(run(self.sink().idle()));
        self.sim.heal();
    }

    fn inject_faults(&mut self) {
        let (mut count, at) = (0, self.random.random_range(0..20));
        let (errno, for_good) = ([5, 28][self.random.random_range(0..2)], self.random.random_bool(0.5));
        self.sim.inject(move |_| {
            count += 1;
            (count - 1 == at || (for_good && count > at)).then_some(errno)
        });
    }

    /// Ends in the middle of something, by a kill or by a power cut, and perhaps again while starting.
    fn die(&mut self) -> Promise {
        let ends = if self.random.random_bool(0.3) { Self::kill } else { Self::cut_power };
        self.mortal.die_after(self.random.random_range(0..25));
        self.write();
        match self.random.random_range(0..3) {
            0 => drop(run(self.sink().idle())),
            1 => {
                let closed = run(self.sink().close()).is_ok();
                self.is_closed = closed && !self.mortal.is_dead();
            }
            _ => {}
        }
        self.mortal.revive();
        ends(self)?;
        while self.random.random_bool(0.4) {
            self.mortal.die_after(self.random.random_range(0..25));
            let opened = self.bench.try_open().is_ok();
            self.mortal.revive();
            self.is_closed &= opened;
            ends(self)?;
        }
        self.open()
    }

    fn restart(&mut self, end: fn(&mut Self) -> Promise) -> Promise {
        end(self)?;
        self.open()
    }

    fn kill(&mut self) -> Promise {
        self.sink = None;
        self.sim.kill();
        self.was_killed = true;
        Ok(())
    }

    fn cut_power(&mut self) -> Promise {
        self.sink = None;
        self.sim.cut_power();
        for path in self.bench.files_ending(".manifest.json") {
            self.check_manifest(&path)?;
        }
        let was_killed = std::mem::take(&mut self.was_killed);
        if self.is_closed && !was_killed {
            for path in self.bench.files_ending(".jsonl").iter().chain(&self.bench.files_ending(".zst")) {
                let sealed = self.is_sealed(path) || self.is_sealed(&with_suffix(path, ".zst"));
                // An empty file that was removed may come back; it holds nothing, and the next start removes it.
                let sealed = sealed || self.bench.read(path).is_empty();
                expect(sealed, || format!("{} is not sealed after a close", path.display()))?;
            }
        }
        if self.random.random_bool(0.3) {
            self.move_sealed_away();
        }
        Ok(())
    }

    fn open(&mut self) -> Promise {
        if self.random.random_bool(0.3) {
            self.inject_faults();
            self.sink = self.bench.try_open().ok();
            self.sim.heal();
        }
        if self.sink.is_none() {
            self.sink = Some(self.bench.try_open().map_err(|error| format!("start refused: {error}"))?);
        }
        for path in self.bench.files_ending(".jsonl") {
            let bytes = self.bench.read(&path);
            expect(bytes.is_empty() || bytes.ends_with(b"\n"), || format!("{} is torn", path.display()))?;
            for line in lines_of(&path, &bytes) {
                let whole =
                    EnvelopeLine::parse(&line[..line.len() - 1]).is_ok_and(|line| line.id().is_some());
                expect(whole, || format!("{} holds a broken line", path.display()))?;
            }
        }
        let here = self.here();
        expect(here.windows(2).all(|pair| pair[0] < pair[1]), || format!("doubled: {here:?}"))?;
        let lost = (1..=self.acked).find(|seq| here.binary_search(seq).is_err());
        expect(lost.is_none(), || format!("acknowledged up to {} and lost {lost:?}", self.acked))
    }

    /// All numbers in the archive and among what was moved away, sorted.
    fn here(&self) -> Vec<u64> {
        let mut here = self.bench.seqs();
        here.extend(&self.moved);
        here.sort_unstable();
        here
    }

    fn is_sealed(&self, path: &Path) -> bool {
        self.sim.open(&with_suffix(path, ".manifest.json")).is_ok()
    }

    fn check_manifest(&self, path: &Path) -> Promise {
        let broken = |what: &str| Err(format!("{}: {what}", path.display()));
        let Some(manifest) = Manifest::parse(&self.bench.read(path)) else { return broken("not a manifest") };
        let file = path.with_file_name(&manifest.file);
        if with_suffix(&file, ".manifest.json") != path {
            return broken("names another file");
        }
        if self.sim.open(&file).is_err() {
            return broken("its file is not there");
        }
        let bytes = self.bench.read(&file);
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if (bytes.len() as u64, sha256) != (manifest.bytes, manifest.sha256) {
            return broken("its file is not what it says");
        }
        expect(lines_of(&file, &bytes).len() as u64 == manifest.rows, || "other rows".to_owned())
    }

    /// What an archivist does: takes every sealed file, with whatever bears its name, to another place.
    fn move_sealed_away(&mut self) {
        for manifest in self.bench.files_ending(".manifest.json") {
            let said = Manifest::parse(&self.bench.read(&manifest)).expect("checked before");
            let file = manifest.with_file_name(&said.file);
            let lines = lines_of(&file, &self.bench.read(&file));
            self.moved.extend(lines.iter().map(|line| shelves::id(line).seq));
            let stem = said.file.split('.').next().expect("a name has a beginning");
            for entry in self.sim.list(parent(&file)).expect("it is a folder") {
                if entry.name.starts_with(stem) {
                    self.sim.remove(&file.with_file_name(&entry.name)).expect("it is there");
                }
            }
            self.sim.sync_dir(parent(&file), SyncPoint::ReserveEntry).expect("it is a folder");
        }
    }
}

fn expect(kept: bool, otherwise: impl FnOnce() -> String) -> Promise {
    if kept { Ok(()) } else { Err(otherwise()) }
}

/// The records with these numbers. A number is always the same record: its stream, size and time follow from it.
fn batch(first: u64, last: u64) -> Batch {
    let payloads: BTreeMap<u64, String> = (first..=last)
        .map(|seq| (seq, format!("\"{}\"", "x".repeat((seq * 397 % 1_300) as usize))))
        .collect();
    let records: Vec<Envelope<'_>> = payloads
        .iter()
        .map(|(seq, payload)| {
            let streams = [("okx", "trades"), ("okx", "trades"), ("okx", "gaps"), ("binance", "trades")];
            let (venue, channel) = streams[(seq * 7 / 3 % 4) as usize];
            // A day has a dozen records, and around midnight they come in no order.
            let at = NOON_MS + *seq as i64 * 7_200_000 + (seq * 31 % 5) as i64 * 3_600_000;
            let payload = Payload::parse(payload.as_bytes()).expect("valid JSON");
            Envelope { payload, ..conformance::plain(venue, channel, at) }
        })
        .collect();
    Batch::of(conformance::spool(), first, &records)
}

/// `POWER_SEEDS=100000` looks longer.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("POWER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(800)
}

#[test]
fn whatever_happens_every_promise_holds() {
    for seed in seeds() {
        simulate(seed, None).unwrap();
    }
}

/// Looks for a run that breaks a promise when a sync is left out.
fn is_needed(point: SyncPoint) {
    let broken = (0..4_000).find_map(|seed| simulate(seed, Some(point)).err());
    let broken = broken.unwrap_or_else(|| panic!("{point:?} can be left out and nothing breaks"));
    println!("{point:?}: {broken}");
}

#[test]
fn archive_data_is_needed() {
    is_needed(SyncPoint::ArchiveData);
}

#[test]
fn archive_entry_is_needed() {
    is_needed(SyncPoint::ArchiveEntry);
}

#[test]
fn archive_folder_is_needed() {
    is_needed(SyncPoint::ArchiveFolder);
}

#[test]
fn archive_repair_is_needed() {
    is_needed(SyncPoint::ArchiveRepair);
}

#[test]
fn checkpoint_data_is_needed() {
    is_needed(SyncPoint::CheckpointData);
}

#[test]
fn checkpoint_entry_is_needed() {
    is_needed(SyncPoint::CheckpointEntry);
}

#[test]
fn seal_data_is_needed() {
    is_needed(SyncPoint::SealData);
}

#[test]
fn seal_entry_is_needed() {
    is_needed(SyncPoint::SealEntry);
}
