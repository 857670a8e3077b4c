//! Records that become durable together.

use catchment_model::{Monotonic, RecordId, SpoolId};

use super::Submit;
use crate::frame;
use crate::intake::{Fate, Receipt};
use crate::{DedupWindow, Draft};

/// A group while it gathers, and the drafts it is made of.
pub(super) struct Group {
    frames: Vec<u8>,
    next_seq: u64,
    keys: usize,
    members: Vec<(Submit, Receipt)>,
}

impl Group {
    /// An empty group whose first record will have this number.
    pub(super) fn from(next_seq: u64) -> Self {
        Self { frames: Vec::new(), next_seq, keys: 0, members: Vec::new() }
    }

    /// The group that follows this one. It will need about as much room.
    pub(super) fn next(&self) -> Self {
        Self {
            frames: Vec::with_capacity(self.frames.len()),
            members: Vec::with_capacity(self.members.len()),
            ..Self::from(self.next_seq)
        }
    }

    /// Gives the records their ids and copies their frames in, duplicates and dropped ones left out.
    pub(super) fn add(
        &mut self,
        submit: Submit,
        spool: SpoolId,
        dedup: &mut Option<DedupWindow>,
        now: Monotonic,
    ) {
        let mut fates = Vec::with_capacity(submit.draft.len());
        self.frames.reserve(submit.draft.frames.len());
        let Draft { frames, marks, .. } = &submit.draft;
        for mark in marks {
            if mark.dropped {
                fates.push(Fate::Dropped);
                continue;
            }
            if let Some(window) = dedup.as_mut().filter(|_| mark.key != 0) {
                if !window.insert(mark.key, now) {
                    fates.push(Fate::Duplicate);
                    continue;
                }
                self.keys += 1;
            }
            let id = RecordId { spool, seq: self.next_seq };
            let start = self.frames.len();
            self.frames.extend_from_slice(&frames[mark.start..mark.start + mark.len]);
            frame::number(&mut self.frames[start..], id, mark.id_at);
            self.next_seq += 1;
            fates.push(Fate::Accepted(id));
        }
        self.members.push((submit, Receipt { fates }));
    }

    /// Bytes to be written.
    pub(super) fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Whether nobody waits for it.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The number after its last record's.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// How many keys of the dedup window are its.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    pub(super) fn take_frames(&mut self) -> Vec<u8> {
        let mut frames = std::mem::take(&mut self.frames);
        // They stay in memory for the sinks, which counts what is in them.
        if frames.capacity() > 2 * frames.len() {
            frames.shrink_to_fit();
        }
        frames
    }

    pub(super) fn into_members(self) -> impl Iterator<Item = (Submit, Receipt)> {
        self.members.into_iter()
    }

    pub(super) fn into_submits(self) -> impl DoubleEndedIterator<Item = Submit> {
        self.members.into_iter().map(|(submit, _)| submit)
    }
}
