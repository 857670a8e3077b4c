//! The door of the pipeline: whoever has records offers them here, in drafts, and is told when they are durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use catchment_model::RecordId;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::draft::{Draft, Keys};
use crate::spool::SpoolError;
use crate::writer::Submit;

/// A draft has no more room than this from the start.
const ROOM_MAX: usize = 320 << 10;

/// The door: offers drafts to the spool. Clones are the same door.
#[derive(Debug, Clone)]
pub struct Intake {
    pub(crate) door: mpsc::Sender<Submit>,
    /// Bytes that may be on their way at once, in KiB; whoever finds it full waits.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) room_kib: u32,
    pub(crate) keys: Keys,
    /// Bytes and records of the draft that came last: the next will need about as much room.
    pub(crate) usual: Arc<(AtomicUsize, AtomicUsize)>,
}

/// What became of the records of a draft, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// One fate a record.
    pub fates: Vec<Fate>,
}

impl Receipt {
    /// The ids of the records that are now durable.
    pub fn ids(&self) -> impl Iterator<Item = RecordId> + '_ {
        self.fates.iter().filter_map(|fate| match fate {
            Fate::Accepted(id) => Some(*id),
            Fate::Duplicate | Fate::Dropped => None,
        })
    }
}

/// What became of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is durable under this id and will reach every sink.
    Accepted(RecordId),
    /// It was accepted before.
    Duplicate,
    /// The spool is full and its policy drops such records; counted, and told as a gap.
    Dropped,
}

/// Why a draft was not accepted. Nothing of it will be delivered under an id that anybody was told.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcceptError {
    /// Nothing can be made durable just now; try again in a while.
    #[error(transparent)]
    Storage(Arc<SpoolError>),
    /// The pipeline is closed.
    #[error("the pipeline is closed")]
    Closed,
}

/// A draft that is on its way to the disk.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Receipt, AcceptError>>);

impl Pending {
    /// Waits until the draft is durable. May be dropped; the records are then accepted all the same.
    pub async fn durable(self) -> Result<Receipt, AcceptError> {
        self.0.await.unwrap_or(Err(AcceptError::Closed))
    }
}

impl Intake {
    /// An empty draft for this door.
    pub fn draft(&self) -> Draft {
        let mut draft = Draft::new(self.keys.clone());
        let (bytes, records) = &*self.usual;
        draft.reserve(bytes.load(Relaxed), records.load(Relaxed));
        draft
    }

    /// Offers the draft and waits until it is durable.
    pub async fn accept(&self, draft: Draft) -> Result<Receipt, AcceptError> {
        self.submit(draft).await?.durable().await
    }

    /// Offers the draft and returns as soon as it is in line, so that more can follow before it is durable. Waits while
    /// too much is on its way.
    pub async fn submit(&self, draft: Draft) -> Result<Pending, AcceptError> {
        let kib = (draft.bytes() as u32 / 1024 + 1).min(self.room_kib);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(|_| AcceptError::Closed)?;
        self.usual.0.store(draft.bytes().min(ROOM_MAX), Relaxed);
        self.usual.1.store(draft.len().min(ROOM_MAX / 512), Relaxed);
        let (reply, told) = oneshot::channel();
        let submit = Submit::new(draft, reply, room);
        self.door.send(submit).await.map_err(|_| AcceptError::Closed)?;
        Ok(Pending(told))
    }
}

/// What happens to drafts while the disk takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStorageError {
    /// They wait, and whoever offers them; nothing is missed that can wait.
    #[default]
    Wait,
    /// They are refused with the reason, counted, and told as a gap as soon as anything can be written.
    Refuse,
}
