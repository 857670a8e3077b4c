//! Records that become durable together.

use catchment_model::{Monotonic, RecordId, SpoolId, UnixNs};

use super::Submit;
use crate::frames::{Frames, Index};
use crate::intake::{Fate, Receipt};
use crate::tail::Tail;
use crate::{DedupWindow, Draft};

/// A group while it gathers, and the drafts it is made of.
pub(super) struct Group {
    /// Frames to be written, one part behind the other: the drafts' own memory, where all of a draft is kept.
    parts: Vec<Frames>,
    bytes: usize,
    first_seq: u64,
    next_seq: u64,
    keys: usize,
    members: Vec<Member>,
}

/// A draft of a group, and what becomes of it.
pub(super) struct Member {
    pub(super) submit: Submit,
    pub(super) fates: Fates,
    /// What became of the records of each of its streams.
    pub(super) tallies: Vec<Tally>,
    /// The part of the group that is this draft's memory.
    part: Option<usize>,
}

/// What becomes of a stream's records of one draft.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    pub(super) received: u64,
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    pub(super) dropped: u64,
    /// When the last one that was accepted was received.
    pub(super) last: Option<UnixNs>,
}

/// What becomes of the records of a draft once the group is durable.
pub(super) enum Fates {
    /// All are accepted, numbered from this one on.
    Accepted(RecordId),
    /// One a record.
    Each(Vec<Fate>),
}

impl Fates {
    /// As whoever offered the draft of so many records is told.
    pub(super) fn receipt(self, records: usize) -> Receipt {
        match self {
            Self::Accepted(first) => Receipt { fates: accepted(first, records).collect() },
            Self::Each(fates) => Receipt { fates },
        }
    }
}

fn accepted(first: RecordId, records: usize) -> impl Iterator<Item = Fate> {
    (0..records as u64).map(move |at| Fate::Accepted(RecordId { seq: first.seq + at, ..first }))
}

impl Group {
    /// An empty group whose first record will have this number.
    pub(super) fn from(next_seq: u64) -> Self {
        Self { parts: Vec::new(), bytes: 0, first_seq: next_seq, next_seq, keys: 0, members: Vec::new() }
    }

    /// The group that follows this one. It will need about as much room.
    pub(super) fn next(&self) -> Self {
        Self {
            parts: Vec::with_capacity(self.parts.len()),
            members: Vec::with_capacity(self.members.len()),
            ..Self::from(self.next_seq)
        }
    }

    /// Takes the frames of the records in, duplicates and dropped ones left out. They are numbered one after the other when
    /// they are written.
    pub(super) fn add(
        &mut self,
        mut submit: Submit,
        spool: SpoolId,
        dedup: &mut Option<DedupWindow>,
        now: Monotonic,
    ) {
        let first = RecordId { spool, seq: self.next_seq };
        let mut each: Option<Vec<Fate>> = None;
        let Draft { frames, marks, streams, .. } = &mut submit.draft;
        let mut tallies = vec![Tally::default(); streams.len()];
        let mut index = Index::with_room(marks.len(), streams);
        for (at, mark) in marks.iter().enumerate() {
            let tally = &mut tallies[mark.stream as usize];
            tally.received += 1;
            let refused = if mark.dropped {
                Some(Fate::Dropped)
            } else {
                let window = dedup.as_mut().filter(|_| mark.key != 0);
                let is_new = window.map(|window| window.insert(mark.key, now));
                self.keys += usize::from(is_new == Some(true));
                (is_new == Some(false)).then_some(Fate::Duplicate)
            };
            if let Some(fate) = refused {
                tally.duplicate += u64::from(fate == Fate::Duplicate);
                tally.dropped += u64::from(fate == Fate::Dropped);
                each.get_or_insert_with(|| accepted(first, at).collect()).push(fate);
                continue;
            }
            if let Some(fates) = &mut each {
                fates.push(Fate::Accepted(RecordId { spool, seq: self.next_seq }));
            }
            tally.accepted += 1;
            tally.last = Some(mark.received_at);
            index.push(mark.len as usize, self.next_seq, mark.stream, mark.received_at.date());
            self.next_seq += 1;
        }
        let (bytes, fates) = match each {
            None => (std::mem::take(frames), Fates::Accepted(first)),
            Some(fates) => {
                let mut kept = Vec::with_capacity(frames.len());
                for (mark, fate) in marks.iter().zip(&fates) {
                    if matches!(fate, Fate::Accepted(_)) {
                        kept.extend_from_slice(&frames[mark.range()]);
                    }
                }
                (kept, Fates::Each(fates))
            }
        };
        let is_own = matches!(fates, Fates::Accepted(_));
        self.members.push(Member { submit, fates, tallies, part: is_own.then_some(self.parts.len()) });
        self.bytes += bytes.len();
        self.parts.push(Frames { bytes, index });
    }

    /// Bytes to be written.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nobody waits for it.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The number of its first record.
    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// The number after its last record's.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// How many keys of the dedup window are its.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// What is to be written. If it is not, it is to be put back.
    pub(super) fn take_parts(&mut self, tail: &Tail) -> Vec<Frames> {
        let mut parts = std::mem::take(&mut self.parts);
        for Frames { bytes: part, .. } in &mut parts {
            // They stay in memory for the sinks, which counts what is in them.
            if part.capacity() > 2 * part.len() {
                let mut exact = tail.spare(part.len());
                exact.extend_from_slice(part);
                tail.give_back(std::mem::replace(part, exact));
            }
        }
        parts
    }

    /// What could not be written.
    pub(super) fn put_back(&mut self, parts: Vec<Frames>) {
        self.parts = parts;
    }

    pub(super) fn into_members(self) -> impl Iterator<Item = Member> {
        self.members.into_iter()
    }

    /// The drafts as they were offered.
    pub(super) fn into_submits(mut self) -> impl DoubleEndedIterator<Item = Submit> {
        self.members.into_iter().map(move |mut member| {
            if let Some(part) = member.part {
                member.submit.draft.frames = std::mem::take(&mut self.parts[part].bytes);
            }
            member.submit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use crate::frames::tests::{draft, told};

    #[test]
    fn what_is_noted_of_a_group_is_what_its_frames_say() {
        let check = |words: &str, dropped: &[usize], want: &str| {
            let mut draft = draft(words);
            dropped.iter().for_each(|at| draft.marks[*at].dropped = true);
            let mut group = Group::from(5);
            group.add(Submit::laid(draft, None), SpoolId::new(7), &mut None, Monotonic::default());
            let Frames { mut bytes, index } = group.parts.pop().unwrap();
            frame::number_all(&mut bytes, &mut RecordId { spool: SpoolId::new(7), seq: 5 });
            let noted = Frames { bytes: bytes.clone(), index };
            let read = Frames::of(bytes);
            assert_eq!(told(noted.runs(0..noted.len())), want);
            assert_eq!(told(read.runs(0..read.len())), want);
            let frames = |frames: &Frames| -> Vec<Vec<u8>> {
                (0..frames.len()).map(|at| frames.frame(at).to_vec()).collect()
            };
            assert_eq!(frames(&noted), frames(&read));
        };
        check("trades0 trades0 books0 trades1", &[], "trades0:5-6 books0:7-7 trades1:8-8");
        check("trades0 books0 trades0 trades1", &[1], "trades0:5-6 trades1:7-7");
        check("trades0 books0 books0 trades0", &[0, 3], "books0:5-6");
    }
}
