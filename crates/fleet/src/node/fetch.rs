//! One batch: a permit, a request, the books, Redis.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use catchment_collect::{Courier, Reply, SendError};
use catchment_governor::{Ask, Governor, Lane, Permit};
use catchment_model::{Clock, Monotonic};
use catchment_sinks::redis::{BookFields, Entry, LatestStore, Put, Verdict};
use catchment_venues::{BookForm, BookPage, Polls, Reading, Request};

use super::landing::Landings;
use crate::message::{Outcome, Summary};

/// Pages kept for answers to come.
const PAGES_MAX: usize = 4;

/// Whatever fetches books.
pub struct Fetcher {
    pub(super) governor: Governor,
    pub(super) landings: Landings,
    pub(super) courier: Courier,
    pub(super) polls: Arc<dyn Polls>,
    pub(super) store: LatestStore,
    /// Its name, for the audit stream.
    pub(super) venue: &'static str,
    pub(super) clock: Arc<dyn Clock>,
    /// A request that cannot leave within this is given up.
    pub(super) patience: Duration,
    pub(super) pages: Mutex<Vec<BookPage>>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("courier", &self.courier).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Fetches the books of these tokens and brings them to Redis. One request at most leaves.
    pub async fn fetch(&self, tokens: &[String]) -> Summary {
        let keys: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let mut summary = Summary { asked: keys.len(), ..Summary::default() };
        let request = self.polls.books_request(&keys);
        let reply = match self.send(&request, &mut summary).await {
            Ok(reply) => reply,
            Err((outcome, message)) => return Summary { outcome, message: Some(message), ..summary },
        };
        summary.status = Some(reply.status);
        summary.latency_ms = reply.latency.as_millis() as u64;
        let received = Monotonic(reply.sent_at.0 + reply.latency);
        if let Some((outcome, message)) = self.judge(&reply, &mut summary) {
            return Summary { outcome, message: Some(message), ..summary };
        }
        self.keep(&keys, &reply, &mut summary).await;
        summary.age_ms = self.clock.monotonic().since(received).as_millis() as u64;
        summary
    }

    async fn send(&self, request: &Request, summary: &mut Summary) -> Result<Reply, (Outcome, String)> {
        let asked = self.clock.monotonic();
        let until = Monotonic(asked.0 + self.patience);
        loop {
            let permit = self.permit(request, until).await;
            summary.waited_ms = self.clock.monotonic().since(asked).as_millis() as u64;
            let Some(permit) = permit else { return Err(self.why_not(summary)) };
            let under_way = self.landings.depart().await;
            match self.courier.send(permit, request).await {
                // Nothing has left; until the patience is at its end there may be another.
                Err(SendError::Expired) => under_way.stayed(),
                Err(error) if !error.has_left() => {
                    under_way.stayed();
                    return Err((Outcome::Odd, error.with_sources()));
                }
                Err(error) => return Err((Outcome::Trouble, error.with_sources())),
                Ok(reply) => {
                    under_way.answered();
                    return Ok(reply);
                }
            }
        }
    }

    async fn permit(&self, request: &Request, until: Monotonic) -> Option<Permit> {
        let family = self.governor.family(request.family)?;
        self.governor.acquire_before(Ask::new(family, Lane::Live).cost(request.cost), until).await
    }

    fn why_not(&self, summary: &mut Summary) -> (Outcome, String) {
        match self.governor.snapshot().hold {
            Some((remaining, cause)) => {
                summary.hold_ms = remaining.as_millis() as u64 + 1;
                (Outcome::Held, format!("held for {} ms yet: {}", remaining.as_millis(), cause.as_str()))
            }
            None => (Outcome::Late, format!("no permit within {:?}", self.patience)),
        }
    }

    /// What speaks against reading the body, if anything.
    fn judge(&self, reply: &Reply, summary: &mut Summary) -> Option<(Outcome, String)> {
        match &reply.reading {
            Reading::Ok => None,
            // Of one token asked for alone: there is no book, and that is an answer.
            Reading::UnknownMarket | Reading::NoBook if summary.asked == 1 => {
                summary.missing = vec![0];
                Some((Outcome::Ok, "the venue has no book of it".to_owned()))
            }
            Reading::Refused | Reading::Banned => {
                let hold = self.governor.snapshot().hold.map_or(Duration::ZERO, |(remaining, _)| remaining);
                summary.hold_ms = hold.as_millis() as u64 + 1;
                Some((Outcome::Held, reply.reading.name().replace('_', " ")))
            }
            Reading::BadRequest(said) => Some((Outcome::BadRequest, said.clone())),
            Reading::UnknownMarket | Reading::NoBook => {
                Some((Outcome::BadRequest, reply.reading.name().replace('_', " ")))
            }
            Reading::NotFound => {
                Some((Outcome::Trouble, "nothing is at this address; look at base_url".to_owned()))
            }
            Reading::Trouble(said) => Some((Outcome::Trouble, said.clone())),
        }
    }

    async fn keep(&self, keys: &[&str], reply: &Reply, summary: &mut Summary) {
        let mut page = self.page();
        if let Err(error) = self.polls.read_books(keys, &reply.body, &mut page) {
            (summary.outcome, summary.message) = (Outcome::Trouble, Some(error.to_string()));
            return;
        }
        let received_at = reply.received_at.ms().get();
        let mut missing: Vec<usize> = page.missing().to_vec();
        missing.extend(page.unreadable().iter().filter_map(|book| book.asked));
        let fields: Vec<(usize, Option<BookFields<'_>>)> = page
            .books()
            .map(|book| (book.asked, BookFields::read(book.payload.as_bytes(), received_at)))
            .collect();
        missing.extend(fields.iter().filter(|(_, book)| book.is_none()).map(|(at, _)| *at));
        let books = fields.iter().filter_map(|(at, book)| Some((*at, book.as_ref()?)));
        let entries: Vec<Entry<'_>> =
            books.map(|(at, book)| book.entry(keys[at]).of_venue(self.venue)).collect();
        match self.store.put(&entries).await {
            Ok(put) => count(summary, &put, entries.len()),
            Err(error) => {
                let why =
                    std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
                (summary.outcome, summary.message) = (Outcome::Sink, Some(format!("{error}{why}")));
            }
        }
        missing.sort_unstable();
        missing.dedup();
        summary.missing = missing.into_iter().map(|at| at as u32).collect();
        if let Some(first) = page.unreadable().first() {
            summary.message.get_or_insert_with(|| format!("a book could not be read: {}", first.reason));
        }
        drop(entries);
        drop(fields);
        self.keep_page(page);
    }

    fn page(&self) -> BookPage {
        let spare = self.pages.lock().expect("no holder of this lock can panic").pop();
        spare.unwrap_or_else(|| BookPage::new(BookForm::AsSent).trusting_hashes())
    }

    fn keep_page(&self, page: BookPage) {
        let mut pages = self.pages.lock().expect("no holder of this lock can panic");
        if pages.len() < PAGES_MAX {
            pages.push(page);
        }
    }
}

fn count(summary: &mut Summary, put: &Put, books: usize) {
    summary.books = books;
    summary.written = put.count(Verdict::Written);
    summary.unchanged = put.count(Verdict::Same);
    summary.older = put.count(Verdict::Older);
    summary.unsent = put.unsent;
    let wrong = put.count(Verdict::WrongType);
    if wrong > 0 {
        summary.books -= wrong;
        summary.message = Some(format!("{wrong} keys in Redis hold something else than a hash"));
    }
}
