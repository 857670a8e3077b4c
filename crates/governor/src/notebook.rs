//! What is remembered across a restart: until when a venue has banned us, and the rates that were learned.
//!
//! One small JSON file for all venues:
//!
//! ```json
//! {"version":1,"venues":{"binance":{
//!   "ban":{"ends_at_ms":1798761720000,"length_ms":125000,"strikes":1},
//!   "ceilings":{"rest":{"rate":48.5,"noted_at_ms":1798761600000}}}}}
//! ```
//!
//! It is written under a temporary name, synced, renamed, and its folder synced; a crash leaves the old one or the new
//! one. A file that cannot be understood is renamed, told of, and a new one begun: a recorder that does not start
//! because of its notes would be worse than one without.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use catchment_model::UnixNs;
use serde::{Deserialize, Serialize};

use crate::events;

const VERSION: u32 = 1;
/// A rate that was learned is worth something for a day.
const CEILING_KEPT: Duration = Duration::from_secs(86_400);
/// Nobody's notes are longer.
const BYTES_MAX: u64 = 4 << 20;

/// The notes of every venue, on disk.
#[derive(Debug)]
pub struct Notebook {
    path: PathBuf,
    pages: Mutex<BTreeMap<String, Page>>,
}

/// A ban that was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BanNote {
    pub(crate) ends_at_ms: i64,
    pub(crate) length_ms: u64,
    pub(crate) strikes: u32,
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<BanNote>,
    #[serde(default)]
    ceilings: BTreeMap<String, CeilingNote>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CeilingNote {
    rate: f64,
    noted_at_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Book {
    version: u32,
    venues: BTreeMap<String, Page>,
}

impl Notebook {
    /// Opens the notes, or begins new ones. Reads and perhaps renames a file, so not from an async task.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let pages = match read(&path) {
            Ok(pages) => pages,
            Err(Unread::Missing) => BTreeMap::new(),
            Err(Unread::Io(error)) => {
                events::notebook_unreadable(&path, &error);
                BTreeMap::new()
            }
            Err(Unread::Foreign(reason)) => {
                set_aside(&path, &reason);
                BTreeMap::new()
            }
        };
        events::notebook_opened(&path, pages.len());
        Self { path, pages: Mutex::new(pages) }
    }

    /// How long a ban lasts yet, perhaps no longer at all, and how many there were in a row. Never longer than it was
    /// when it was noted, in case the calendar was set back meanwhile.
    pub(crate) fn ban(&self, venue: &str, wall: UnixNs) -> Option<(Duration, u32)> {
        let note = self.lock().get(venue)?.ban?;
        let left_ms = note.ends_at_ms.saturating_sub(wall.ms().get());
        let left_ms = u64::try_from(left_ms).unwrap_or(0).min(note.length_ms);
        Some((Duration::from_millis(left_ms), note.strikes))
    }

    /// The rate a family was known to be let, if that is not too long ago.
    pub(crate) fn ceiling(&self, venue: &str, family: &str, wall: UnixNs) -> Option<f64> {
        let pages = self.lock();
        let note = pages.get(venue)?.ceilings.get(family)?;
        let age_ms = wall.ms().get().saturating_sub(note.noted_at_ms);
        let is_fresh = u128::from(age_ms.unsigned_abs()) <= CEILING_KEPT.as_millis();
        (is_fresh && note.rate.is_finite() && note.rate > 0.0).then_some(note.rate)
    }

    /// Notes a ban, durably. It blocks for the sync of one small file; bans are rare.
    pub(crate) fn note_ban(&self, venue: &str, length: Duration, strikes: u32, wall: UnixNs) {
        let length_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let ends_at_ms = wall.ms().get().saturating_add(i64::try_from(length_ms).unwrap_or(i64::MAX));
        let mut pages = self.lock();
        pages.entry(venue.to_owned()).or_default().ban = Some(BanNote { ends_at_ms, length_ms, strikes });
        self.save(&pages);
    }

    /// Notes what was learned. Blocks, so not from an async task.
    pub(crate) fn note_ceilings<'a>(
        &self,
        venue: &str,
        rates: impl IntoIterator<Item = (&'a str, f64)>,
        wall: UnixNs,
    ) {
        let mut pages = self.lock();
        let page = pages.entry(venue.to_owned()).or_default();
        let before = page.clone();
        for (family, rate) in rates {
            page.ceilings.insert(family.to_owned(), CeilingNote { rate, noted_at_ms: wall.ms().get() });
        }
        if *page != before {
            self.save(&pages);
        }
    }

    fn save(&self, pages: &BTreeMap<String, Page>) {
        let book = Book { version: VERSION, venues: pages.clone() };
        let text = serde_json::to_vec(&book).expect("names and numbers can always be written");
        if let Err(error) = replace(&self.path, &text) {
            events::notebook_not_saved(&self.path, &error);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Page>> {
        self.pages.lock().expect("no holder of this lock can panic")
    }
}

enum Unread {
    Missing,
    Io(io::Error),
    Foreign(String),
}

fn read(path: &Path) -> Result<BTreeMap<String, Page>, Unread> {
    let len = match fs::metadata(path) {
        Ok(meta) => meta.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unread::Missing),
        Err(error) => return Err(Unread::Io(error)),
    };
    if len > BYTES_MAX {
        return Err(Unread::Foreign(format!("{len} bytes are too many")));
    }
    let text = fs::read(path).map_err(Unread::Io)?;
    let book: Book = serde_json::from_slice(&text).map_err(|error| Unread::Foreign(error.to_string()))?;
    if book.version != VERSION {
        return Err(Unread::Foreign(format!("version {} is not {VERSION}", book.version)));
    }
    Ok(book.venues)
}

fn set_aside(path: &Path, reason: &str) {
    let kept = (0..1_000)
        .map(|number| with_ending(path, &format!(".set-aside-{number}")))
        .find(|kept| !kept.exists())
        .unwrap_or_else(|| with_ending(path, ".set-aside"));
    events::notebook_set_aside(path, &kept, reason);
    if let Err(error) = fs::rename(path, &kept) {
        events::notebook_unreadable(path, &error);
    }
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = with_ending(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(seconds: i64) -> UnixNs {
        UnixNs::from_ms(seconds * 1_000).unwrap()
    }

    #[test]
    fn a_ban_is_there_after_a_restart_and_ends_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("governor.json");
        Notebook::open(&path).note_ban("binance", Duration::from_secs(120), 2, wall(1_000));
        let book = Notebook::open(&path);
        let (length, strikes) = book.ban("binance", wall(1_050)).unwrap();
        assert_eq!((length.as_secs(), strikes), (70, 2));
        assert_eq!(book.ban("kraken", wall(1_050)), None);
        assert_eq!(
            book.ban("binance", wall(1_121)),
            Some((Duration::ZERO, 2)),
            "over, and the next is the third"
        );
        let set_back = book.ban("binance", wall(0)).unwrap().0;
        assert_eq!(set_back.as_secs(), 120, "no longer than it was");
    }

    #[test]
    fn a_learned_rate_is_kept_for_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("governor.json");
        Notebook::open(&path).note_ceilings("okx", [("books", 48.5)], wall(1_000));
        let book = Notebook::open(&path);
        assert_eq!(book.ceiling("okx", "books", wall(87_000)), Some(48.5));
        assert_eq!(book.ceiling("okx", "books", wall(87_401)), None);
        assert_eq!(book.ceiling("okx", "trades", wall(1_000)), None);
    }

    #[test]
    fn notes_that_cannot_be_understood_are_kept_aside_and_new_ones_begun() {
        let torn: &[u8] = br#"{"version":1,"venues":{"bin"#;
        let newer: &[u8] = br#"{"version":2,"venues":{}}"#;
        for text in [torn, newer, b"", b"\xff\x00", b"[]", br#"{"version":1,"venues":{},"more":1}"#] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("governor.json");
            File::create(&path).unwrap().write_all(text).unwrap();
            let book = Notebook::open(&path);
            assert_eq!(fs::read(with_ending(&path, ".set-aside-0")).unwrap(), text);
            book.note_ban("okx", Duration::from_secs(9), 1, wall(0));
            assert!(Notebook::open(&path).ban("okx", wall(1)).is_some());
        }
    }

    #[test]
    fn a_folder_that_is_not_there_stops_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let book = Notebook::open(dir.path().join("nowhere/governor.json"));
        book.note_ban("okx", Duration::from_secs(9), 1, wall(0));
        assert!(book.ban("okx", wall(1)).is_some(), "at least until the end of this run");
    }
}
