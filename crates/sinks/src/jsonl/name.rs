//! The names of the archive's files and folders, read and written in one place.

use std::fmt;

use catchment_model::{Channel, SpoolId, UnixNs, UtcDate};

/// What a manifest's name adds to that of its file.
pub(crate) const MANIFEST: &str = ".manifest.json";
const STAMP_LEN: usize = 19;

/// The part that a file, its compressed form and its manifest share: when it was opened, by whom, and its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    pub(crate) number: u64,
    stamp: String,
    pub(crate) writer: SpoolId,
}

/// Which of a name's files it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `.jsonl`
    Plain,
    /// `.jsonl.zst`
    Packed,
    /// `.jsonl.manifest.json`
    PlainManifest,
    /// `.jsonl.zst.manifest.json`
    PackedManifest,
    /// Any of them, not finished.
    Temporary,
}

impl FileName {
    pub(crate) fn new(opened_at: UnixNs, writer: SpoolId, number: u64) -> Self {
        let at = jiff::Timestamp::from_millisecond(opened_at.ms().get()).unwrap_or_default();
        let stamp = at.strftime("%Y%m%dT%H%M%S%3fZ").to_string();
        Self { number, stamp, writer }
    }

    /// Takes a file's name apart; none if the recorder gives no such names.
    pub(crate) fn parse(text: &str) -> Option<(Self, Kind)> {
        let (stem, rest) = text.split_once(".jsonl")?;
        let kind = match rest {
            "" => Kind::Plain,
            ".zst" => Kind::Packed,
            MANIFEST => Kind::PlainManifest,
            _ if rest.strip_prefix(".zst") == Some(MANIFEST) => Kind::PackedManifest,
            _ if rest.ends_with(".tmp") => Kind::Temporary,
            _ => return None,
        };
        let (stamp, rest) = stem.split_at_checked(STAMP_LEN)?;
        let (writer, number) = rest.strip_prefix('-')?.split_once('-')?;
        let stamp_is_ours = stamp.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            18 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
        let name =
            Self { number: number.parse().ok()?, stamp: stamp.to_owned(), writer: writer.parse().ok()? };
        (stamp_is_ours && name.to_string() == stem).then_some((name, kind))
    }

    /// The name of the file of lines.
    pub(crate) fn plain(&self) -> String {
        format!("{self}.jsonl")
    }

    /// The name of the compressed file.
    pub(crate) fn packed(&self) -> String {
        format!("{self}.jsonl.zst")
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:06}", self.stamp, self.writer, self.number)
    }
}

/// The channel whose folder this is.
pub(crate) fn channel_of_folder(folder: &str) -> Option<Channel> {
    let name = if folder == "orderbooks" { "orderbook" } else { folder };
    Channel::new(name).ok().filter(|channel| channel.folder() == folder)
}

/// The name of a date's folder.
pub(super) fn date_folder(date: UtcDate) -> String {
    format!("date={date}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_when_by_whom_and_the_number() {
        let at = UnixNs::from_ms(1_798_761_600_012).unwrap();
        let name = FileName::new(at, SpoolId::new(0xab), 7);
        assert_eq!(name.plain(), "20270101T000000012Z-0000000000ab-000007.jsonl");
        for (text, kind) in [
            (name.plain(), Kind::Plain),
            (name.packed(), Kind::Packed),
            (name.plain() + MANIFEST, Kind::PlainManifest),
            (name.packed() + MANIFEST, Kind::PackedManifest),
            (name.packed() + ".tmp", Kind::Temporary),
            (name.plain() + MANIFEST + ".tmp", Kind::Temporary),
        ] {
            assert_eq!(FileName::parse(&text), Some((name.clone(), kind)), "{text}");
        }
        let large = FileName::new(at, SpoolId::new(0xab), 1_234_567);
        assert_eq!(FileName::parse(&large.plain()).unwrap().0, large);
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for other in [
            "",
            ".jsonl",
            "notes.jsonl",
            "20270101T000000012Z-0000000000ab-7.jsonl",
            "20270101T000000012Z-0000000000AB-000007.jsonl",
            "20270101t000000012Z-0000000000ab-000007.jsonl",
            "20270101T000000012Z-0000000000ab-000007.jsonl.bak",
            "20270101T000000012Z-0000000000ab-+00007.jsonl",
            "ééééééééééééééééééé-0000000000ab-000007.jsonl",
        ] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_folder_names_one_channel() {
        assert_eq!(channel_of_folder("orderbooks").unwrap().as_str(), "orderbook");
        assert_eq!(channel_of_folder("trades").unwrap().as_str(), "trades");
        for other in ["orderbook", "state", "..", "Trades"] {
            assert_eq!(channel_of_folder(other), None, "{other}");
        }
    }
}
