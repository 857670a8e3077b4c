//! Segments in S1's own format, `[u32 LE length][JSON]`, are taken over at start: each becomes a segment of ours, and
//! its records get ids. The format has no checksum, so a length that makes no sense ends what can be read of a file; the
//! rest is kept in quarantine.

use std::collections::BTreeMap;
use std::io;

use catchment_model::{EnvelopeLine, RecordId, UnixNs};

use crate::disk::{self, SyncPoint};
use crate::events;
use crate::frame::{self, HEADER, Header};
use crate::quarantine::Quarantine;
use crate::reader::{Damage, DamageKind, Position};
use crate::spool::{Found, Spool, segment_path};
use crate::{Draft, Keys};

/// A segment larger than this is not one that S1 wrote.
const SEGMENT_MAX: u64 = 1 << 30;

/// Converts every S1 segment, oldest first. A crash in between repeats or skips nothing: the new segment names the old
/// one, and an old one that is so named only remains to be removed.
pub(crate) fn convert_all(spool: &mut Spool, headers: &mut BTreeMap<u32, Found>) -> io::Result<()> {
    let done: Vec<u32> = headers.values().filter_map(|found| found.header()?.converted_from).collect();
    let old: Vec<u32> = headers.iter().filter(|(_, found)| **found == Found::Old).map(|(n, _)| *n).collect();
    for number in old {
        if !done.contains(&number) {
            let bytes = disk::read_file(&*spool.disk(), &spool.segment_path(number), SEGMENT_MAX)?;
            let made = convert(spool, number, &bytes)?;
            headers.insert(made.segment, Found::Ours(made));
        }
        // Durable with the cursors, which the start saves into the same folder before anything else happens.
        spool.disk().remove(&spool.segment_path(number))?;
        spool.disown(number);
        headers.remove(&number);
    }
    Ok(())
}

fn convert(spool: &mut Spool, number: u32, bytes: &[u8]) -> io::Result<Header> {
    let segment = spool.next_segment();
    let header =
        Header { segment, converted_from: Some(number), spool: spool.id(), first_seq: spool.next_seq() };
    let (draft, read) = read_records(bytes);
    if read < bytes.len() {
        let at = Position { segment: number, offset: read as u64 };
        let len = (bytes.len() - read) as u64;
        let damage = Damage::new(at, len, DamageKind::TornTail, 0);
        let kept =
            Quarantine::new(spool.disk(), &spool.config().dir).keep(&spool.segment_path(number), &damage)?;
        events::damage_found(&damage, &kept);
    }
    let mut next = RecordId { spool: spool.id(), seq: header.first_seq };
    let mut frames = draft.frames;
    frame::stamp(&mut frames, &mut next, segment, HEADER as u64);
    let mut file = header.encode().to_vec();
    file.extend_from_slice(&frames);
    let path = segment_path(&spool.config().dir, segment);
    disk::replace_file(&*spool.disk(), &path, &file, SyncPoint::ConvertedData, SyncPoint::ConvertedEntry)?;
    spool.adopt(segment, file.len() as u64, next.seq);
    events::segment_converted(number, segment, draft.marks.len());
    Ok(header)
}

/// Reads records until the bytes end or stop making sense; says how far it came.
fn read_records(bytes: &[u8]) -> (Draft, usize) {
    let mut draft = Draft::new(Keys::Off);
    let mut at = 0;
    while let Some(body) = body_at(bytes, at) {
        let epoch = UnixNs::from_ms(0).expect("the epoch is a time");
        let taken = EnvelopeLine::parse(body).ok().filter(|line| line.received_at().is_some());
        let pushed = taken.is_some_and(|line| draft.push(&line.envelope(epoch)).is_ok());
        if !pushed {
            break;
        }
        at += 4 + body.len();
    }
    (draft, at)
}

fn body_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let len = bytes.get(at..at + 4)?.try_into().map(u32::from_le_bytes).ok()? as usize;
    bytes.get(at + 4..)?.get(..len)
}

/// Whether a segment's first bytes are a length and the start of a JSON object.
pub(crate) fn looks_old(bytes: &[u8]) -> bool {
    let len = bytes.get(..4).map_or(0, |b| u32::from_le_bytes(b.try_into().expect("four bytes")) as usize);
    (2..=frame::LINE_MAX).contains(&len) && bytes.get(4) == Some(&b'{')
}
