//! The spool against flipped bits, torn tails, failing disks and power cuts.

use std::collections::{BTreeMap, BTreeSet};

use catchment_model::{Envelope, EnvelopeLine, Payload, Source, Symbol, UnixNs};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;
use crate::batch::BatchBuilder;
use crate::dead_letter::DeadLetters;
use crate::disk::sim::{Op, SimDisk};
use crate::quarantine::Quarantine;
use crate::reader::{self, Piece};
use crate::tail::{Tail, Whereabouts};
use crate::{Batch, Keys};

const DIR: &str = "/data/spool";

fn config() -> SpoolConfig {
    SpoolConfig { segment_bytes_max: 4 << 10, reserve_bytes: 64, ..SpoolConfig::at(DIR) }
}

fn open(disk: &SimDisk) -> Result<Spool, SpoolError> {
    Spool::open(config(), Arc::new(disk.clone()), 0xfeed)
}

/// A draft of records whose payload says which they are.
fn draft(payloads: &[String]) -> Draft {
    let mut draft = Draft::new(Keys::Off);
    for payload in payloads {
        let envelope = Envelope {
            message_id: None,
            sequence: None,
            exchange: Venue::new("okx").unwrap(),
            channel: Channel::new("trades").unwrap(),
            symbol: Symbol::new("BTC/USDT").unwrap(),
            server_time: None,
            received_at: UnixNs::from_ms(1_798_761_600_000).unwrap(),
            payload: Payload::parse(payload.as_bytes()).unwrap(),
            source: Source::INGEST,
        };
        draft.push(&envelope).unwrap();
    }
    draft
}

fn append(spool: &mut Spool, payloads: &[String]) -> Result<Vec<u64>, SpoolError> {
    let first = spool.accept(draft(payloads))?;
    Ok((first..first + payloads.len() as u64).collect())
}

/// What a sink with this cursor would be given, and the damage it would come across.
fn drain(spool: &Spool, cursor: Cursor) -> (Vec<(Cursor, u64, String)>, Vec<Damage>) {
    let tail = Tail::new(spool.readable(), 0);
    let (mut records, mut damages) = (Vec::new(), Vec::new());
    let mut after = cursor;
    loop {
        match tail.find(after.at) {
            Whereabouts::Memory(..) => unreachable!("nothing was pushed"),
            Whereabouts::End => return (records, damages),
            Whereabouts::Next { at, .. } => after.at = at,
            Whereabouts::Disk { at, end } => {
                let file = spool.disk().open(&spool.segment_path(at.segment)).unwrap();
                match reader::read_piece(&*file, at, end, after.seq).unwrap() {
                    Piece::End => after.at.offset = end,
                    Piece::Damage(damage) => {
                        damages.push(damage);
                        after.at.offset += damage.len;
                    }
                    Piece::Frames(frames) => {
                        let frames = Arc::new(frames);
                        let mut start = 0;
                        while start < frames.bytes.len() {
                            let mut builder = BatchBuilder::new(spool.id());
                            let (stopped, seq) = builder.take(&frames, start, after.seq, 1, usize::MAX);
                            after = Cursor { at: Position { offset: at.offset + stopped as u64, ..at }, seq };
                            start = stopped;
                            for record in builder.build().iter() {
                                let payload = String::from_utf8(record.payload().to_vec()).unwrap();
                                records.push((after, record.seq(), payload));
                            }
                        }
                    }
                }
            }
        }
    }
}

fn payloads(range: std::ops::Range<usize>, size: usize) -> Vec<String> {
    range.map(|n| format!(r#"{{"n":{n},"pad":"{}"}}"#, "x".repeat(size))).collect()
}

/// A closed folder with one segment of `bytes` or a little more, and what it holds.
fn one_segment(bytes: u64) -> (SimDisk, Vec<u8>, Vec<(u64, String)>) {
    let disk = SimDisk::new(1);
    let config = SpoolConfig { segment_bytes_max: u64::MAX, ..config() };
    let mut spool = Spool::open(config, Arc::new(disk.clone()), 7).unwrap();
    spool.serve(&["sink".to_owned()]);
    let mut held = Vec::new();
    while spool.bytes() < bytes {
        let start = held.len();
        let texts = payloads(start..start + 4, 300);
        let seqs = append(&mut spool, &texts).unwrap();
        held.extend(seqs.into_iter().zip(texts));
    }
    spool.tidy(true).unwrap();
    let path = spool.segment_path(1);
    drop(spool);
    let segment = disk::read_file(&disk, &path, 1 << 30).unwrap();
    (disk, segment, held)
}

fn reopened(disk: &SimDisk) -> (Spool, Vec<(u64, String)>, Vec<Damage>) {
    let mut spool = open(disk).expect("a start always succeeds");
    let cursor = spool.serve(&["sink".to_owned()])[0];
    let (records, mut damages) = drain(&spool, cursor);
    damages.extend(spool.take_findings().damage);
    (spool, records.into_iter().map(|(_, seq, payload)| (seq, payload)).collect(), damages)
}

#[test]
fn a_flipped_bit_in_any_byte_is_noticed_and_costs_at_most_one_record() {
    let (disk, segment, held) = one_segment(64 << 10);
    assert!(segment.len() >= 64 << 10);
    let path = PathBuf::from(DIR).join("spool_000001.dat");
    let bits: &[u32] =
        if std::env::var_os("CATCHMENT_LONG").is_some() { &[0, 1, 2, 3, 4, 5, 6, 7] } else { &[0] };
    let (mut flips, mut lost_most) = (0, 0);
    for at in 0..segment.len() {
        for bit in bits {
            // Which bit: another one in every byte.
            let bit = (bit + at as u32) % 8;
            disk.damage(&path, |bytes| bytes[at] ^= 1 << bit);
            let (spool, records, damages) = reopened(&disk);
            assert_eq!(damages.len(), 1, "bit {bit} of byte {at} was not noticed");
            let lost = held.iter().filter(|record| !records.contains(record)).count();
            assert!(lost <= 1, "bit {bit} of byte {at} cost {lost} records");
            assert_eq!(records.len(), held.len() - lost, "bit {bit} of byte {at} made a record up");
            assert!(spool.next_seq() > held.len() as u64, "a number would be given twice");
            drop(spool);
            disk.damage(&path, |bytes| bytes[at] ^= 1 << bit);
            (flips, lost_most) = (flips + 1, lost_most.max(lost));
        }
    }
    println!("flipped {flips} bits in {} bytes: all noticed, at most {lost_most} record lost", segment.len());
}

#[test]
fn a_segment_cut_at_any_length_keeps_its_whole_records() {
    let (disk, segment, held) = one_segment(16 << 10);
    let path = PathBuf::from(DIR).join("spool_000001.dat");
    let mut ends = vec![HEADER];
    reader::walk(&segment[HEADER..], Position { segment: 1, offset: HEADER as u64 }, |frame| {
        ends.push(ends.last().unwrap() + frame.len());
    });
    for len in (0..=segment.len()).rev() {
        // A file too short to hold anything is cleared away at the start.
        if disk.open(&path).is_err() {
            disk.put(&path, &[]);
        }
        disk.damage(&path, |bytes| *bytes = segment[..len].to_vec());
        let (_, records, damages) = reopened(&disk);
        let whole = ends.iter().skip(1).filter(|end| **end <= len).count();
        assert_eq!(records, held[..whole], "cut at {len}");
        let torn = damages.iter().any(|damage| damage.kind == DamageKind::TornTail);
        assert_eq!(torn, len > HEADER && !ends.contains(&len), "cut at {len}");
    }
}

#[test]
fn a_block_that_comes_back_from_another_segment_does_not_pass_for_a_record() {
    let disk = SimDisk::new(3);
    let config = SpoolConfig { segment_bytes_max: 8 << 10, ..config() };
    let mut spool = Spool::open(config, Arc::new(disk.clone()), 7).unwrap();
    spool.serve(&["sink".to_owned()]);
    // Records of one size, so that the frames of both segments lie at the same places.
    for at in (100..180).step_by(4) {
        append(&mut spool, &payloads(at..at + 4, 300)).unwrap();
    }
    let [old, new] = [1, 2].map(|n| spool.segment_path(n));
    drop(spool);
    let older = disk::read_file(&disk, &old, 1 << 20).unwrap();
    disk.damage(&new, |bytes| bytes[2048..6144].copy_from_slice(&older[2048..6144]));
    let (_, records, damages) = reopened(&disk);
    let numbers: BTreeSet<u64> = records.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers.len(), records.len(), "an old record came back");
    assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert_eq!(damages.len(), 1);
    assert!(records.len() < 80);
}

#[test]
fn flipped_cursors_lose_nothing() {
    let (disk, _, held) = one_segment(8 << 10);
    let path = PathBuf::from(DIR).join("cursors");
    let cursors = disk::read_file(&disk, &path, 1 << 20).unwrap();
    for at in 0..cursors.len() {
        disk.damage(&path, |bytes| {
            bytes.clone_from(&cursors);
            bytes[at] ^= 1 << (at % 8);
        });
        let (spool, records, _) = reopened(&disk);
        assert_eq!(records, held, "byte {at}");
        assert_eq!(spool.id(), SpoolId::new(7), "byte {at}: the id is known from the segments");
        assert_eq!(spool.next_seq(), held.len() as u64 + 1);
    }
}

#[test]
fn header_and_cursors_both_gone_still_lose_nothing() {
    let (disk, _, held) = one_segment(8 << 10);
    disk.damage(&PathBuf::from(DIR).join("spool_000001.dat"), |bytes| bytes[20] ^= 4);
    disk.damage(&PathBuf::from(DIR).join("cursors"), |bytes| bytes[20] ^= 4);
    let (spool, records, damages) = reopened(&disk);
    assert_eq!(records, held);
    assert_eq!(spool.id(), SpoolId::new(7), "the id is known from the records");
    assert_eq!(damages[0].kind, DamageKind::Header);
}

#[test]
fn a_second_process_is_told_that_the_spool_is_in_use() {
    let disk = SimDisk::new(0);
    let first = open(&disk).unwrap();
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, SpoolError::InUse(_)));
    assert!(error.to_string().contains("/data/spool is in use by another process"), "{error}");
    drop(first);
    open(&disk).unwrap();
}

#[test]
fn a_failed_sync_is_never_tried_again_on_the_same_file() {
    for nth in 0..12 {
        let disk = SimDisk::new(nth);
        let mut spool = open(&disk).unwrap();
        spool.serve(&["sink".to_owned()]);
        let mut syncs = 0;
        let mut failed: Option<PathBuf> = None;
        disk.inject(move |op| {
            if let Op::Create(path) = op
                && failed.as_deref() == Some(path)
            {
                failed = None; // another file under the name of one that was removed
            }
            let Op::Sync(path, SyncPoint::SegmentData) = op else { return None };
            assert_ne!(failed.as_deref(), Some(path), "synced again after it had failed");
            syncs += 1;
            (syncs == nth + 1).then(|| {
                failed = Some(path.to_owned());
                5
            })
        });
        let mut held = Vec::new();
        for at in 0..12 {
            let texts = payloads(at * 3..at * 3 + 3, 200);
            held.extend(append(&mut spool, &texts).unwrap().into_iter().zip(texts));
        }
        drop(spool);
        disk.heal();
        disk.cut_power();
        let (_, records, _) = reopened(&disk);
        assert_eq!(records, held, "sync {nth} failed");
    }
}

#[test]
fn a_disk_that_fails_for_good_accepts_nothing_and_spends_its_numbers() {
    let disk = SimDisk::new(0);
    let mut spool = open(&disk).unwrap();
    spool.serve(&["sink".to_owned()]);
    let kept = append(&mut spool, &payloads(0..2, 10)).unwrap();
    for errno in [5, 28, 30] {
        disk.inject(move |op| matches!(op, Op::Append(..) | Op::Sync(..) | Op::Create(_)).then_some(errno));
        let error = append(&mut spool, &payloads(0..2, 10)).unwrap_err();
        assert!(matches!(error, SpoolError::Storage { .. }));
        assert!(error.to_string().contains("/data/spool"), "{error}");
    }
    disk.heal();
    let after = append(&mut spool, &payloads(2..3, 10)).unwrap();
    assert!(after[0] > kept[1] + 6, "numbers of refused groups are not given again");
    drop(spool);
    let (_, records, damages) = reopened(&disk);
    assert_eq!(records.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [kept, after].concat());
    assert_eq!(damages, []);
}

#[test]
fn a_full_disk_frees_its_reserve_for_the_last_words() {
    let disk = SimDisk::new(0);
    let mut spool = open(&disk).unwrap();
    spool.serve(&["sink".to_owned()]);
    let reserve = PathBuf::from(DIR).join("reserve");
    assert_eq!(disk.open(&reserve).unwrap().len().unwrap(), 64);
    disk.inject(|op| matches!(op, Op::Append(..)).then_some(28));
    append(&mut spool, &payloads(0..1, 10)).unwrap_err();
    assert!(disk.open(&reserve).is_err());
    assert!(!spool.has_reserve());
    spool.try_disk().unwrap_err();
    disk.heal();
    spool.try_disk().unwrap();
    assert!(spool.has_reserve());
}

fn s1_segment(records: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(record.as_bytes());
    }
    bytes
}

fn s1_record(n: usize) -> String {
    format!(
        r#"{{"message_id":"m{n}","sequence":{n},"exchange":"kraken","channel":"trades","symbol":"BTC/USD","server_time_ms":null,"received_at_ms":1798761600000,"payload":{{"n":{n}}}}}"#
    )
}

#[test]
fn segments_in_the_old_format_are_read_and_their_records_get_ids() {
    let disk = SimDisk::new(0);
    let texts: Vec<String> = (0..5).map(s1_record).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    disk.put(&PathBuf::from(DIR).join("spool_000001.dat"), &s1_segment(&texts[..3]));
    let mut torn = s1_segment(&texts[3..]);
    torn.truncate(torn.len() - 1);
    disk.put(&PathBuf::from(DIR).join("spool_000002.dat"), &torn);
    let (spool, records, damages) = reopened(&disk);
    let expected: Vec<(u64, String)> = (0..4).map(|n| (n + 1, format!(r#"{{"n":{n}}}"#))).collect();
    assert_eq!(records, expected);
    assert_eq!(damages, []);
    drop(spool);
    let kept = disk.list(&PathBuf::from(DIR).join("quarantine")).unwrap();
    assert_eq!(kept.len(), 1, "the torn record's bytes are kept");
    let (_, again, _) = reopened(&disk);
    assert_eq!(again, expected, "taken over once, not twice");
}

#[test]
fn junk_in_the_folder_never_keeps_it_from_starting() {
    let disk = SimDisk::new(0);
    for (name, bytes) in [
        ("spool_000001.dat", vec![0; 5000]),
        ("spool_000002.dat", vec![0xff; 5000]),
        ("spool_000003.dat", b"{}".to_vec()),
        ("spool_000004.dat", Vec::new()),
        ("spool_000005.dat", [&200_u32.to_le_bytes()[..], b"{\"not\":\"an envelope\""].concat()),
        ("spool_7.dat", b"odd".to_vec()),
        ("notes.txt", b"mine".to_vec()),
        ("cursors.tmp", b"half".to_vec()),
    ] {
        disk.put(&PathBuf::from(DIR).join(name), &bytes);
    }
    let (mut spool, records, _) = reopened(&disk);
    assert_eq!(records, []);
    append(&mut spool, &payloads(0..1, 10)).unwrap();
    assert!(disk.open(&PathBuf::from(DIR).join("notes.txt")).is_ok(), "what is not ours is left alone");
}

#[test]
fn dead_letters_are_kept_once_with_their_reason() {
    let disk = SimDisk::new(0);
    let spool = open(&disk).unwrap();
    let line = s1_record(1);
    let parsed = EnvelopeLine::parse(line.as_bytes()).unwrap();
    let envelope = parsed.envelope(UnixNs::from_ms(0).unwrap());
    let batch = Batch::of(spool.id(), 9, &[envelope]);
    for _ in 0..2 {
        let mut letters = DeadLetters::open(spool.disk(), Path::new(DIR), "mongo").unwrap();
        letters.add(&[(batch.get(0).unwrap(), "too \"big\"")], UnixNs::from_ms(5).unwrap()).unwrap();
    }
    let dir = PathBuf::from(DIR).join("dead_letter");
    let files = disk.list(&dir).unwrap();
    assert_eq!(files.len(), 1);
    let text = disk::read_file(&disk, &dir.join(&files[0].name), 1 << 20).unwrap();
    let letter: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(letter["reason"], "too \"big\"");
    assert_eq!(letter["record"]["payload"]["n"], 1);
    assert_eq!(letter["record"]["id"], letter["id"]);
}

// Power cuts.

/// One step of a life of the spool.
#[derive(Debug, Clone)]
enum Step {
    Append {
        records: usize,
        size: usize,
    },
    Deliver {
        sink: usize,
        records: usize,
    },
    Tidy,
    TryDisk,
    Letter,
    Damage {
        at: usize,
    },
    Close,
    Kill,
    CutPower,
    /// The power goes in the middle of one of the next operations.
    PowerFailsAfter(u64),
    /// A segment in the old format appears, as after going back to S1 for a while.
    OldSegment {
        records: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..6_usize, 0..900_usize).prop_map(|(records, size)| Step::Append { records, size }),
        4 => (0..2_usize, 1..12_usize).prop_map(|(sink, records)| Step::Deliver { sink, records }),
        3 => Just(Step::Tidy),
        1 => Just(Step::TryDisk),
        1 => Just(Step::Letter),
        1 => (0..4000_usize).prop_map(|at| Step::Damage { at }),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        2 => Just(Step::CutPower),
        2 => (0..30_u64).prop_map(Step::PowerFailsAfter),
        1 => (1..4_usize).prop_map(|records| Step::OldSegment { records }),
    ];
    prop::collection::vec(step, 1..40)
}

const SINKS: [&str; 2] = ["archive", "mongo"];

/// What must be true, kept beside the spool in the plainest way.
struct Life {
    disk: SimDisk,
    spool: Option<Spool>,
    made: usize,
    /// Every number anybody was told or shown, and its record.
    known: BTreeMap<u64, String>,
    acknowledged: BTreeSet<u64>,
    /// What each sink has durably.
    taken: [BTreeSet<u64>; 2],
    cursors: [Cursor; 2],
    saved: [Cursor; 2],
    removed: BTreeSet<u32>,
    letters: BTreeSet<String>,
    kept: Vec<(PathBuf, Vec<u8>)>,
    reserved: bool,
    /// Payloads of old segments, each to be seen under one number.
    old: BTreeSet<String>,
    old_numbers: BTreeMap<String, u64>,
}

impl Life {
    fn new(disk: SimDisk) -> Self {
        let mut life = Self {
            disk,
            spool: None,
            made: 0,
            known: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            taken: Default::default(),
            cursors: Default::default(),
            saved: Default::default(),
            removed: BTreeSet::new(),
            letters: BTreeSet::new(),
            kept: Vec::new(),
            reserved: false,
            old: BTreeSet::new(),
            old_numbers: BTreeMap::new(),
        };
        life.start();
        life
    }

    /// Opens the spool and holds it to its promises. While the power may fail, opening may, too.
    fn start(&mut self) {
        let mut spool = match open(&self.disk) {
            Ok(spool) => spool,
            Err(_) => {
                self.disk.cut_power();
                open(&self.disk).expect("a start always succeeds")
            }
        };
        let cursors = spool.serve(&SINKS.map(str::to_owned));
        for (sink, cursor) in cursors.into_iter().enumerate() {
            assert!(cursor.at >= self.saved[sink].at, "a saved cursor was forgotten");
            self.check_readable(&spool, sink, cursor);
            self.cursors[sink] = cursor;
        }
        let here = spool.readable();
        assert!(self.removed.iter().all(|number| !here.contains_key(number)), "a removed segment came back");
        let dead = self.dead_letters();
        assert!(self.letters.iter().all(|id| dead.contains(id)), "a dead letter is gone");
        for (path, bytes) in &self.kept {
            let found = disk::read_file(&self.disk, path, 1 << 20).ok();
            assert_eq!(found.as_ref(), Some(bytes), "damaged bytes were not kept");
        }
        self.spool = Some(spool);
    }

    /// Everything acknowledged that the sink does not have is there, as it was; nothing has two numbers or two contents.
    fn check_readable(&mut self, spool: &Spool, sink: usize, cursor: Cursor) {
        let (records, _) = drain(spool, cursor);
        let mut readable = BTreeSet::new();
        for (_, seq, payload) in records {
            assert!(readable.insert(seq), "record {seq} is there twice");
            let first = self.known.entry(seq).or_insert_with(|| payload.clone());
            assert_eq!(*first, payload, "number {seq} was given to two records");
            if self.old.contains(&payload) {
                let number = *self.old_numbers.entry(payload.clone()).or_insert(seq);
                assert_eq!(number, seq, "an old record was taken over twice");
            }
        }
        for seq in self.acknowledged.difference(&self.taken[sink]) {
            assert!(readable.contains(seq), "acknowledged record {seq} is lost to {}", SINKS[sink]);
        }
        for payload in &self.old {
            let known = self
                .old_numbers
                .get(payload)
                .is_some_and(|seq| readable.contains(seq) || self.taken[sink].contains(seq));
            assert!(known, "an old record is lost to {}", SINKS[sink]);
        }
    }

    fn dead_letters(&self) -> BTreeSet<String> {
        let dir = PathBuf::from(DIR).join("dead_letter");
        let files = self.disk.list(&dir).unwrap_or_default();
        let texts =
            files.iter().map(|file| disk::read_file(&self.disk, &dir.join(&file.name), 1 << 20).unwrap());
        let lines = texts.flat_map(|text| {
            String::from_utf8_lossy(&text)
                .lines()
                .filter_map(|l| l.get(7..36).map(str::to_owned))
                .collect::<Vec<_>>()
        });
        lines.collect()
    }

    /// Does the step. An error is the power failing in the middle: then it is gone, and everything starts anew.
    fn take(&mut self, step: &Step) {
        if self.act(step).is_err() {
            self.spool = None;
            self.disk.cut_power();
            self.start();
        }
    }

    fn act(&mut self, step: &Step) -> Result<(), Box<dyn std::error::Error>> {
        let spool = self.spool.as_mut().expect("open between steps");
        match *step {
            Step::Append { records, size } => {
                let texts = payloads(self.made..self.made + records, size);
                self.made += records;
                for (seq, text) in append(spool, &texts)?.into_iter().zip(texts) {
                    assert!(self.known.insert(seq, text).is_none(), "number {seq} was given before");
                    self.acknowledged.insert(seq);
                }
            }
            Step::Deliver { sink, records } => {
                let (found, _) = drain(spool, self.cursors[sink]);
                for (cursor, seq, payload) in found.into_iter().take(records) {
                    self.known.entry(seq).or_insert(payload);
                    self.taken[sink].insert(seq);
                    self.cursors[sink] = cursor;
                }
                spool.settle(SINKS[sink], self.cursors[sink]);
            }
            Step::Tidy => {
                let gone = spool.tidy(false)?;
                self.saved = self.cursors;
                self.removed.extend(gone);
            }
            Step::TryDisk => {
                spool.try_disk()?;
                self.reserved = true;
            }
            Step::Letter => {
                let line = s1_record(self.made);
                let parsed = EnvelopeLine::parse(line.as_bytes())?;
                let seq = self.made as u64 + 1;
                let batch = Batch::of(spool.id(), seq, &[parsed.envelope(UnixNs::from_ms(0)?)]);
                let mut letters = DeadLetters::open(spool.disk(), Path::new(DIR), "mongo")?;
                let record = batch.get(0).expect("it holds one");
                letters.add(&[(record, "no")], UnixNs::from_ms(0)?)?;
                self.letters.insert(record.id().to_string());
            }
            Step::Damage { at } => {
                let Some((segment, len)) = spool.readable().into_iter().next() else { return Ok(()) };
                let offset = at as u64 % len;
                let at = Position { segment, offset };
                let damage = Damage::new(at, (len - offset).min(700), DamageKind::Flipped, 0);
                let path = spool.segment_path(segment);
                let kept = Quarantine::new(spool.disk(), Path::new(DIR)).keep(&path, &damage)?;
                let bytes = disk::read_file(&self.disk, &kept, 1 << 20)?;
                self.kept.retain(|(path, _)| *path != kept);
                self.kept.push((kept, bytes));
            }
            Step::Close => {
                spool.seal();
                let gone = spool.tidy(true)?;
                self.saved = self.cursors;
                self.removed.extend(gone);
                self.spool = None;
                self.start();
            }
            Step::Kill => {
                self.spool = None;
                self.disk.kill();
                self.start();
            }
            Step::CutPower => {
                self.spool = None;
                self.disk.cut_power();
                self.check_reserve();
                self.start();
            }
            Step::PowerFailsAfter(operations) => self.disk.fail_power_after(operations),
            Step::OldSegment { records } => {
                let number = spool.next_segment();
                let path = spool.segment_path(number);
                self.spool = None;
                let texts: Vec<String> = (self.made..self.made + records).map(s1_record).collect();
                self.old.extend((self.made..self.made + records).map(|n| format!(r#"{{"n":{n}}}"#)));
                self.made += records;
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                self.disk.cut_power();
                self.disk.put(&path, &s1_segment(&texts));
                self.removed.clear();
                // Taking it over may be interrupted anywhere.
                self.disk.fail_power_after(self.made as u64 % 17);
                self.start();
            }
        }
        Ok(())
    }

    fn check_reserve(&mut self) {
        if std::mem::take(&mut self.reserved) {
            let path = PathBuf::from(DIR).join("reserve");
            let len = self.disk.open(&path).and_then(|file| file.len()).unwrap_or(0);
            let zeros = disk::read_file(&self.disk, &path, 1 << 20).unwrap_or_default();
            assert!(len == 64 && zeros.len() == 64, "the reserve is gone");
        }
    }
}

fn live(seed: u64, left_out: Option<SyncPoint>, steps: &[Step]) {
    let disk = SimDisk::new(seed);
    if let Some(point) = left_out {
        disk.leave_out(point);
    }
    let mut life = Life::new(disk);
    for step in steps {
        life.take(step);
    }
    life.take(&Step::CutPower);
}

fn cases() -> u32 {
    if std::env::var_os("CATCHMENT_LONG").is_some() { 1_000_000 } else { 10_000 }
}

fn runner(cases: u32) -> TestRunner {
    let seed = [7; 32];
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

#[test]
fn whatever_the_power_does_nothing_acknowledged_is_lost_or_doubled() {
    let outcome = runner(cases()).run(&(any::<u64>(), steps()), |(seed, steps)| {
        live(seed, None, &steps);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    println!("{} lives with power cuts: nothing lost, nothing doubled", cases());
}

/// Each sync in the code is needed: without any one of them some life goes wrong.
#[test]
fn leaving_out_any_one_sync_is_noticed() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut unnoticed = Vec::new();
    let mut report = Vec::new();
    for point in SyncPoint::SPOOL {
        let mut runner = runner(10_000);
        let mut lives = 0;
        let noticed = (0..10_000).any(|_| {
            lives += 1;
            let tree = (any::<u64>(), steps()).new_tree(&mut runner).unwrap();
            let (seed, steps) = tree.current();
            std::panic::catch_unwind(|| live(seed, Some(point), &steps)).is_err()
        });
        report.push(format!("  without {point:<18} noticed in life {lives}", point = format!("{point:?}")));
        if !noticed {
            unnoticed.push(point);
        }
    }
    std::panic::set_hook(quiet);
    println!("{}", report.join("\n"));
    assert_eq!(unnoticed, [], "these syncs could be left out and no test would notice");
}
