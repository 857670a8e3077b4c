//! One request from the permit to the pipeline. It runs beside the others and changes nothing but its own; what follows
//! from it is for the owner of the venue.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::{Channel, Envelope, Monotonic, Source, Symbol, UnixNs, Venue};
use catchment_pipeline::{Draft, Intake, Pending};
use catchment_venues::{BookPage, Polls, ReadError, Reading};

use super::fetch::{Answer, Fetch, Fetched, Lost};
use super::schedule::{BatchId, Sheet};

/// What is needed to ask for a batch.
pub(crate) struct Errand {
    pub(crate) batch: BatchId,
    pub(crate) sheet: Arc<Sheet>,
    pub(crate) due: Monotonic,
    pub(crate) deadline: Monotonic,
    pub(crate) page: BookPage,
    pub(crate) venue: Venue,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) polls: Arc<dyn Polls>,
    pub(crate) intake: Intake,
}

/// What came of it. The page goes back to be used again.
pub(crate) struct Returned {
    pub(crate) batch: BatchId,
    pub(crate) sheet: Arc<Sheet>,
    pub(crate) page: BookPage,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    /// It never left.
    Late,
    Lost(Lost),
    /// An answer that holds no books.
    NoBooks {
        status: u16,
        latency: Duration,
        why: WhyNot,
    },
    Books(Haul),
}

pub(crate) enum WhyNot {
    Said(Reading),
    Unreadable(ReadError),
}

/// Books that were read and are on their way to the disk. Which are missing or unreadable is in the page.
pub(crate) struct Haul {
    pub(crate) status: u16,
    pub(crate) latency: Duration,
    pub(crate) received_at: UnixNs,
    pub(crate) read_at: Monotonic,
    /// Which of the asked ones came.
    pub(crate) came: Vec<u32>,
    /// Each with the number of its records.
    pub(crate) pending: Vec<(Pending, u64)>,
    /// Records that the pipeline did not take.
    pub(crate) lost: u64,
}

impl Errand {
    pub(crate) async fn run(mut self) -> Returned {
        let outcome = match self.fetch.fetch(&self.sheet.request, self.due, self.deadline).await {
            Fetched::Late => Outcome::Late,
            Fetched::Lost(lost) => Outcome::Lost(lost),
            Fetched::Answer(answer) => self.read(answer).await,
        };
        Returned { batch: self.batch, sheet: self.sheet, page: self.page, outcome }
    }

    async fn read(&mut self, answer: Answer) -> Outcome {
        let (status, latency) = (answer.status, answer.latency);
        if answer.reading != Reading::Ok {
            return Outcome::NoBooks { status, latency, why: WhyNot::Said(answer.reading) };
        }
        let keys: Vec<&str> = self.sheet.members.iter().map(|(_, what)| what.poll_key.as_str()).collect();
        if let Err(error) = self.polls.read_books(&keys, &answer.body, &mut self.page) {
            return Outcome::NoBooks { status, latency, why: WhyNot::Unreadable(error) };
        }
        let read_at = Monotonic(answer.sent_at.0 + latency);
        let came = self.page.books().map(|book| book.asked as u32).collect();
        let received_at = answer.received_at;
        let (pending, lost) = self.hand_over(received_at).await;
        Outcome::Books(Haul { status, latency, received_at, read_at, came, pending, lost })
    }

    /// Writes the books into drafts and offers them. Waits while the pipeline is full: then fewer requests are made.
    async fn hand_over(&self, received_at: UnixNs) -> (Vec<(Pending, u64)>, u64) {
        let (mut pending, mut lost) = (Vec::new(), 0);
        let channel = orderbook();
        let mut draft = self.intake.draft();
        for book in self.page.books() {
            let symbol = &self.sheet.members[book.asked].1.symbol;
            let envelope = Envelope {
                message_id: None,
                sequence: None,
                exchange: self.venue,
                channel,
                symbol: Symbol::new(symbol).expect("the roster takes only names that records can have"),
                server_time: book.server_time,
                received_at,
                payload: book.payload,
                source: source(),
            };
            if draft.push(&envelope).is_err() {
                lost += 1;
            }
            if draft.is_full() {
                let full = std::mem::replace(&mut draft, self.intake.draft());
                lost += self.offer(full, &mut pending).await;
            }
        }
        if !draft.is_empty() {
            lost += self.offer(draft, &mut pending).await;
        }
        (pending, lost)
    }

    async fn offer(&self, draft: Draft, pending: &mut Vec<(Pending, u64)>) -> u64 {
        let records = draft.len() as u64;
        match self.intake.submit(draft).await {
            Ok(told) => {
                pending.push((told, records));
                0
            }
            Err(_) => records,
        }
    }
}

pub(crate) fn orderbook() -> Channel {
    Channel::new("orderbook").expect("a fixed, plain name")
}

pub(crate) fn source() -> Source<'static> {
    Source::new("poll").expect("a fixed, plain text")
}
