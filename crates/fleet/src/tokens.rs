//! Which tokens to follow: from the configuration, from a file, from the snapshot that discovery writes.
//!
//! The file has a token a line, `#` before what is none, or is a JSON list. Both files are looked at again and again;
//! whatever is wrong with one, what was read last stays in force.

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use catchment_collect::{Loaded, SnapshotFile};

use crate::events;
use crate::message::is_token;

/// More than this is read from no file.
const FILE_BYTES_MAX: u64 = 128 << 20;
/// More tokens than this are not followed.
pub const TOKENS_MAX: usize = 1_000_000;

/// Where tokens come from. Each that is given counts.
#[derive(Debug, Default)]
pub struct TokenSources {
    fixed: Vec<String>,
    file: Option<TokenFile>,
    snapshot: Option<(SnapshotFile, Vec<String>)>,
    has_told: bool,
    /// What was last said of the snapshot.
    told: String,
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    seen: Option<(u64, u64, i64, i64)>,
    tokens: Vec<String>,
    /// Told once for each way in which it is wrong.
    told: String,
}

impl TokenSources {
    /// From these. Reads nothing yet.
    pub fn new(fixed: Vec<String>, file: Option<PathBuf>, snapshot: Option<SnapshotFile>) -> Self {
        let file = file.map(|path| TokenFile { path, seen: None, tokens: Vec::new(), told: String::new() });
        Self {
            fixed,
            file,
            snapshot: snapshot.map(|file| (file, Vec::new())),
            has_told: false,
            told: String::new(),
        }
    }

    /// Looks at the files; all tokens, each once, if they are others than the last time. It waits for the disk.
    pub fn load(&mut self) -> Option<Vec<Arc<str>>> {
        let mut has_changed = !self.has_told;
        if let Some(file) = &mut self.file {
            has_changed |= file.load();
        }
        if let Some((file, tokens)) = &mut self.snapshot {
            match file.load() {
                Loaded::New(snapshot) => {
                    *tokens =
                        snapshot.instruments.into_iter().map(|instrument| instrument.poll_key).collect();
                    has_changed = true;
                    self.told.clear();
                }
                Loaded::Unchanged => {}
                Loaded::Kept { reason } => {
                    let reason = reason.to_string();
                    if self.told != reason {
                        events::tokens_kept(&file.path().display().to_string(), &reason);
                        self.told = reason;
                    }
                }
            }
        }
        if !has_changed {
            return None;
        }
        self.has_told = true;
        let all = self.fixed.iter();
        let all = all.chain(self.file.iter().flat_map(|file| &file.tokens));
        let all = all.chain(self.snapshot.iter().flat_map(|(_, tokens)| tokens));
        let mut seen = HashSet::new();
        let once = all.filter(|token| is_token(token) && seen.insert(token.as_str()));
        Some(once.take(TOKENS_MAX).map(|token| Arc::from(token.as_str())).collect())
    }
}

impl TokenFile {
    fn load(&mut self) -> bool {
        match self.look() {
            Ok(has_changed) => {
                self.told.clear();
                has_changed
            }
            Err(reason) => {
                if self.told != reason {
                    events::tokens_kept(&self.path.display().to_string(), &reason);
                    self.told = reason;
                }
                false
            }
        }
    }

    fn look(&mut self) -> Result<bool, String> {
        let mut file = std::fs::File::open(&self.path).map_err(|error| error.to_string())?;
        let meta = file.metadata().map_err(|error| error.to_string())?;
        let stamp = (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
        if self.seen == Some(stamp) {
            return Ok(false);
        }
        let mut text = String::new();
        let read = file.by_ref().take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        let read = read.map_err(|error| error.to_string())?;
        if read as u64 > FILE_BYTES_MAX {
            return Err(format!("the file has more than {FILE_BYTES_MAX} bytes"));
        }
        self.seen = Some(stamp);
        self.tokens = parse(&text)?;
        Ok(true)
    }
}

/// The tokens of a file.
pub fn parse(text: &str) -> Result<Vec<String>, String> {
    if text.trim_start().starts_with('[') {
        let tokens: Vec<String> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return match tokens.iter().find(|token| !is_token(token)) {
            Some(odd) => Err(format!("{odd:?} is no token")),
            None => Ok(tokens),
        };
    }
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let token = |(number, line): (usize, &str)| match is_token(line) {
        true => Ok(line.to_owned()),
        false => Err(format!("line {number}: {line:?} is no token")),
    };
    lines.map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tokens: Option<Vec<Arc<str>>>) -> Option<String> {
        tokens.map(|tokens| tokens.join(" "))
    }

    #[test]
    fn lines_and_lists_are_read_and_what_is_wrong_is_named() {
        assert_eq!(parse("1\n\n # none\n 22 \r\n").unwrap(), ["1", "22"]);
        assert_eq!(parse(" [\"1\", \"2\"]").unwrap(), ["1", "2"]);
        assert_eq!(parse("1\na b\n").unwrap_err(), "line 2: \"a b\" is no token");
        assert!(parse("[1]").is_err() && parse("[\"a b\"]").is_err() && parse("[").is_err());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test's own file")]
    fn a_file_is_watched_and_a_bad_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let mut sources = TokenSources::new(vec!["9".into(), "1".into()], Some(path.clone()), None);
        assert_eq!(names(sources.load()).as_deref(), Some("9 1"));
        assert_eq!(sources.load(), None);
        std::fs::write(&path, "1\n2\n").unwrap();
        assert_eq!(names(sources.load()).as_deref(), Some("9 1 2"));
        assert_eq!(sources.load(), None);
        std::fs::write(&path, "not a token\n").unwrap();
        assert_eq!(sources.load(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sources.load(), None);
        std::fs::write(&path, "[\"3\"]").unwrap();
        assert_eq!(names(sources.load()).as_deref(), Some("9 1 3"));
    }
}
