//! Finds the files of an archive, and what is wrong before any of them is opened.

use std::collections::BTreeSet;
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};

use catchment_model::{Channel, UtcDate, Venue};

use super::{Problem, VerifyError};
use crate::jsonl::{FileName, Kind, MANIFEST, channel_of_folder};

/// A file to be read.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) venue: Venue,
    pub(super) channel: Channel,
    pub(super) date: UtcDate,
    /// None: the recorder gives no such names.
    pub(super) name: Option<FileName>,
    pub(super) is_packed: bool,
    pub(super) has_manifest: bool,
    pub(super) len: u64,
}

/// What lies in the archive.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) files: Vec<Found>,
    pub(super) problems: Vec<Problem>,
}

/// Lists every file of lines below `<venue>/<channel>/date=…/`.
pub(super) fn walk(dir: &Path) -> Result<Walk, VerifyError> {
    let mut walk = Walk::default();
    for (venue_name, _) in list(dir)?.into_iter().filter(|(_, kind)| kind.is_dir()) {
        let Ok(venue) = Venue::new(&venue_name) else { continue };
        let venue_dir = dir.join(&venue_name);
        for (channel_name, _) in list(&venue_dir)?.into_iter().filter(|(_, kind)| kind.is_dir()) {
            let Some(channel) = channel_of_folder(&channel_name) else { continue };
            walk.channel(&venue_dir.join(&channel_name), venue, channel)?;
        }
    }
    Ok(walk)
}

impl Walk {
    fn channel(&mut self, dir: &Path, venue: Venue, channel: Channel) -> Result<(), VerifyError> {
        for (name, kind) in list(dir)? {
            let (path, Some(date)) = (dir.join(&name), name.strip_prefix("date=")) else { continue };
            match date.parse() {
                Ok(date) if kind.is_dir() => self.date(&path, (venue, channel, date))?,
                Ok(_) => self.problem(path, "not a folder"),
                Err(_) => self.problem(path, "the folder's name is not date=YYYY-MM-DD"),
            }
        }
        Ok(())
    }

    fn date(&mut self, dir: &Path, of: (Venue, Channel, UtcDate)) -> Result<(), VerifyError> {
        let entries = list(dir)?;
        let names: BTreeSet<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        let has = |name: &str, suffix: &str| names.contains(format!("{name}{suffix}").as_str());
        for (name, kind) in &entries {
            if let Some(file) = name.strip_suffix(MANIFEST) {
                if !names.contains(file) {
                    self.problem(dir.join(name), "its file is missing");
                }
                continue;
            }
            let is_packed = name.ends_with(".jsonl.zst");
            // Sealing removes the original last, and may not have come to it.
            let is_leftover = has(name, ".zst") && has(name, &format!(".zst{MANIFEST}"));
            // Or it is just being made, and the original still counts.
            let original = name.strip_suffix(".zst").unwrap_or(name);
            let is_half_made = is_packed && !has(name, MANIFEST) && names.contains(original);
            if !(is_packed || name.ends_with(".jsonl")) || is_leftover || is_half_made {
                continue;
            }
            if !kind.is_file() {
                self.problem(dir.join(name), "not a regular file");
                continue;
            }
            self.file(dir.join(name), name, of, is_packed, has(name, MANIFEST));
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: PathBuf,
        name: &str,
        (venue, channel, date): (Venue, Channel, UtcDate),
        is_packed: bool,
        has_manifest: bool,
    ) {
        let parsed = FileName::parse(name).filter(|(_, kind)| matches!(kind, Kind::Plain | Kind::Packed));
        if parsed.is_none() {
            self.problem(path.clone(), "not a name the recorder gives");
        }
        let name = parsed.map(|(name, _)| name);
        let len = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        self.files.push(Found { path, venue, channel, date, name, is_packed, has_manifest, len });
    }

    fn problem(&mut self, path: PathBuf, reason: &str) {
        self.problems.push(Problem { path, line: None, reason: reason.to_owned() });
    }
}

/// A folder's entries in the order of their names. Names that are not text are nobody's.
fn list(dir: &Path) -> Result<Vec<(String, FileType)>, VerifyError> {
    let wrong = |source| VerifyError::List { path: dir.to_owned(), source };
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if let Ok(name) = entry.file_name().into_string() {
            entries.push((name, entry.file_type().map_err(wrong)?));
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}
