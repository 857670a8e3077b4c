//! The door of the pipeline: whoever has records offers them here, in drafts, and is told when they are durable.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use catchment_model::RecordId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::draft::{Draft, Keys};
use crate::spool::SpoolError;
use crate::tail::Tail;
use crate::writer::Submit;

/// A draft has no more room than this from the start.
const ROOM_MAX: usize = 320 << 10;
/// A larger draft is not laid on the tray: it is worth a way of its own.
const LAID_MAX: usize = 16 << 10;
/// What lies on the tray is sent on when it is this large.
const TRAY_FULL: usize = 128 << 10;

/// The door: offers drafts to the spool. Clones are the same door.
#[derive(Debug, Clone)]
pub struct Intake {
    /// Has a place for as many drafts as there may be: each takes up some of the room.
    pub(crate) door: mpsc::Sender<Submit>,
    pub(crate) tray: Arc<Tray>,
    pub(crate) tail: Arc<Tail>,
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
        let (bytes, records) = &*self.usual;
        let mut draft = Draft::new(self.keys.clone());
        draft.frames = self.tail.spare(bytes.load(Relaxed));
        draft.reserve(0, records.load(Relaxed));
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
        let mut tray = self.tray.lock();
        // Whoever laid something there before has that before this.
        self.send_tray(&mut tray)?;
        match self.send(Submit::new(draft, reply, room)) {
            None => Ok(Pending(told)),
            Some(_refused) => Err(AcceptError::Closed),
        }
    }

    /// Offers a small draft together with those of others, and empties it for further use: far cheaper than
    /// [`Intake::submit`] for records that come one at a time, and as soon on the disk. False: it is too large for that,
    /// or too much is on its way; it is as it was, and to be submitted.
    pub fn lay(&self, draft: &mut Draft) -> Result<bool, AcceptError> {
        if draft.bytes() > LAID_MAX {
            return Ok(false);
        }
        let mut tray = self.tray.lock();
        if tray.closed {
            return Err(AcceptError::Closed);
        }
        if tray.draft.is_empty() {
            let kib = ((TRAY_FULL + LAID_MAX) as u32 / 1024).min(self.room_kib);
            let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(kib) else { return Ok(false) };
            tray.room = Some(room);
            self.tray.laid.notify_one();
        }
        tray.draft.absorb(draft);
        if tray.draft.bytes() >= TRAY_FULL {
            self.send_tray(&mut tray)?;
        }
        Ok(true)
    }

    /// Puts in line what lies on the tray.
    fn send_tray(&self, tray: &mut Lying) -> Result<(), AcceptError> {
        let Some(submit) = tray.take(&self.tail) else { return Ok(()) };
        match self.send(submit) {
            None => Ok(()),
            Some(submit) => {
                // The writer comes for it when it has heard everybody.
                tray.put_back(submit);
                Err(AcceptError::Closed)
            }
        }
    }

    /// Puts a draft in line, or gives it back when nothing is taken any more.
    fn send(&self, submit: Submit) -> Option<Submit> {
        let error = self.door.try_send(submit).err()?;
        debug_assert!(matches!(error, mpsc::error::TrySendError::Closed(_)), "there is a place for each");
        Some(error.into_inner())
    }
}

/// Where small drafts of many are laid together. The writer comes for them whenever it can write.
#[derive(Debug)]
pub(crate) struct Tray {
    lying: Mutex<Lying>,
    /// Told when the first draft is laid there.
    pub(crate) laid: Notify,
}

#[derive(Debug)]
pub(crate) struct Lying {
    draft: Draft,
    room: Option<OwnedSemaphorePermit>,
    closed: bool,
}

impl Tray {
    pub(crate) fn new() -> Self {
        let draft = Draft::new(Keys::Off);
        Self { lying: Mutex::new(Lying { draft, room: None, closed: false }), laid: Notify::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().draft.is_empty()
    }

    /// What lies there.
    pub(crate) fn take(&self, tail: &Tail) -> Option<Submit> {
        self.lock().take(tail)
    }

    /// What lies there; nothing will be laid there any more.
    pub(crate) fn close(&self, tail: &Tail) -> Option<Submit> {
        let mut lying = self.lock();
        lying.closed = true;
        lying.take(tail)
    }

    fn lock(&self) -> MutexGuard<'_, Lying> {
        self.lying.lock().expect("no holder of this lock can panic")
    }
}

impl Lying {
    fn take(&mut self, tail: &Tail) -> Option<Submit> {
        if self.draft.is_empty() {
            return None;
        }
        let draft = std::mem::replace(&mut self.draft, Draft::new(Keys::Off));
        // The next will need about as much room.
        self.draft.frames = tail.spare(draft.bytes());
        self.draft.reserve(0, draft.len());
        Some(Submit::laid(draft, self.room.take()))
    }

    fn put_back(&mut self, submit: Submit) {
        (self.draft, self.room) = submit.into_parts();
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
