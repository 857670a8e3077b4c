//! What follows from an errand: counters, back-off, halving, holds.

use std::time::Duration;

use catchment_model::{Cause, Instrument, Monotonic};
use catchment_venues::{BookPage, ReadError, Reading};
use tokio::task::{self, JoinError};

use super::errand::{Haul, Outcome, Returned, WhyNot};
use super::fetch::Lost;
use super::records::PollError;
use super::roster::Place;
use super::schedule::{BatchId, Sheet};
use super::{Landed, Poller, events};

impl Poller {
    pub(super) fn errand_ended(&mut self, ended: Result<(task::Id, Returned), JoinError>) {
        match ended {
            Ok((id, returned)) => {
                self.batch_of.remove(&id);
                self.settle(returned);
            }
            Err(error) => {
                let Some(batch) = self.batch_of.remove(&error.id()) else { return };
                events::errand_panicked(self.venue, &error.to_string());
                self.schedule.ended(batch, true);
                self.counts.requests_submitted += 1;
                self.counts.requests_failed += 1;
                self.batch_failed(batch, Cause::Failure, self.clock.monotonic());
            }
        }
    }

    fn settle(&mut self, returned: Returned) {
        let Returned { batch, sheet, mut page, outcome } = returned;
        let now = self.clock.monotonic();
        let asked = sheet.members.len() as u64;
        let was_sent = !matches!(outcome, Outcome::Late);
        self.schedule.ended(batch, was_sent);
        if was_sent {
            self.counts.requests_submitted += 1;
            self.counts.polls_submitted += asked;
            self.round.total += 1;
        }
        match outcome {
            Outcome::Late => {
                self.counts.late += 1;
                self.look_for_hold(sheet.request.family, now);
                if let Some((_, cause)) = self.hold.filter(|(until, _)| *until > now)
                    && let Some(batch) = self.schedule.get_mut(batch)
                {
                    batch.trouble = Some(super::cause_of(cause, batch.trouble));
                }
            }
            Outcome::Books(haul) if haul.came.is_empty() && asked > 1 => {
                self.nothing_came(batch, &sheet, &page, &haul, now);
            }
            Outcome::Books(haul) => self.books_came(batch, &sheet, &page, haul, now),
            Outcome::Lost(lost) => {
                self.request_failed(asked);
                self.lost(batch, &sheet, lost, now);
            }
            Outcome::NoBooks { status, latency, why } => {
                self.request_failed(asked);
                self.count_status(status);
                self.latencies.add(now, latency);
                self.no_books(batch, &sheet, status, latency, why, now);
            }
        }
        page.clear();
        self.pages.push(page);
    }

    /// Not one of many: that is the venue's fault, and not of each of them.
    fn nothing_came(&mut self, batch: BatchId, sheet: &Sheet, page: &BookPage, haul: &Haul, now: Monotonic) {
        self.count_status(haul.status);
        self.latencies.add(now, haul.latency);
        self.request_failed(sheet.members.len() as u64);
        self.counts.garbage += 1;
        self.counts.missing += page.missing().len() as u64;
        self.counts.unreadable += page.unreadable().len() as u64;
        let message = match page.unreadable().first() {
            Some(book) => book.reason.clone(),
            None => "no book in the answer".to_owned(),
        };
        self.tell_request_error(sheet, Some(haul.status), haul.latency, "empty", message, now);
        self.batch_failed(batch, Cause::Failure, now);
        self.disown_all_absent(sheet, page);
    }

    /// A batch may be left with nobody but the dead. If discovery has none of them any more, an answer without any of
    /// them is what it says.
    fn disown_all_absent(&mut self, sheet: &Sheet, page: &BookPage) {
        let is_absent = |(place, what): &(Place, std::sync::Arc<Instrument>)| {
            let entry = self.roster.get(*place);
            entry.is_none_or(|entry| entry.is_absent() || entry.what.poll_key != what.poll_key)
        };
        if page.missing().len() < sheet.members.len() || !sheet.members.iter().all(is_absent) {
            return;
        }
        for (place, what) in &sheet.members {
            if let Some(entry) =
                self.roster.get_mut(*place).filter(|entry| entry.what.poll_key == what.poll_key)
            {
                entry.disowned += 1;
            }
        }
    }

    fn books_came(&mut self, batch: BatchId, sheet: &Sheet, page: &BookPage, haul: Haul, now: Monotonic) {
        self.count_status(haul.status);
        self.latencies.add(now, haul.latency);
        let (asked, came) = (sheet.members.len() as u64, haul.came.len() as u64);
        self.counts.requests_successful += 1;
        self.counts.polls_successful += came;
        self.counts.polls_failed += asked - came;
        self.counts.books += came;
        self.counts.missing += page.missing().len() as u64;
        self.counts.unreadable += page.unreadable().len() as u64;
        self.counts.hash_mismatches += page.hash_mismatches() as u64;
        self.lose(haul.lost);
        for (pending, records) in haul.pending {
            self.landing.spawn(async move { (records, pending.durable().await) });
        }
        for asked in haul.came {
            self.book_came(&sheet.members[asked as usize], haul.read_at, haul.received_at.ms());
        }
        for asked in page.missing() {
            let (place, what) = &sheet.members[*asked];
            let message = "not in the answer".to_owned();
            self.instrument_failed(*place, what, ("missing", message), haul.status, haul.latency, now);
        }
        for book in page.unreadable() {
            let Some((place, what)) = book.asked.map(|asked| &sheet.members[asked]) else { continue };
            let message = book.reason.clone();
            self.instrument_failed(*place, what, ("unreadable", message), haul.status, haul.latency, now);
        }
        self.schedule.clear_of_suspicion(batch);
        let Some(state) = self.schedule.get_mut(batch) else { return };
        state.trouble = None;
        if std::mem::take(&mut state.has_failed) {
            self.batch_backoff.answered(&batch.to_string(), now);
            // Until it is forgiven, it is remembered.
            state.has_failed = !self.batch_backoff.is_empty();
            state.rests_until = None;
        }
    }

    fn book_came(
        &mut self,
        (place, what): &(Place, std::sync::Arc<Instrument>),
        read_at: Monotonic,
        read_at_ms: catchment_model::UnixMs,
    ) {
        let Some(entry) = self.roster.get_mut(*place) else { return };
        if entry.what.poll_key != what.poll_key {
            return; // the place is another's by now
        }
        if entry.is_read {
            self.spacings.add(read_at.since(entry.read_at));
        }
        (entry.read_at, entry.read_at_ms, entry.is_read, entry.trouble) = (read_at, read_at_ms, true, None);
        entry.disowned = 0;
        if entry.has_failed {
            self.backoff.answered(&what.poll_key, read_at);
        }
    }

    fn lost(&mut self, batch: BatchId, sheet: &Sheet, lost: Lost, now: Monotonic) {
        let (counter, cause) = match lost.has_timed_out {
            true => (&mut self.counts.timeouts, Cause::Silence),
            false => (&mut self.counts.unreachable, Cause::Disconnect),
        };
        *counter += 1;
        self.latencies.add(now, lost.latency);
        self.tell_request_error(sheet, None, lost.latency, lost.kind, lost.message, now);
        self.batch_failed(batch, cause, now);
    }

    fn no_books(
        &mut self,
        batch: BatchId,
        sheet: &Sheet,
        status: u16,
        latency: Duration,
        why: WhyNot,
        now: Monotonic,
    ) {
        let (kind, message) = match &why {
            WhyNot::Said(reading) => (reading.name(), words(reading)),
            WhyNot::Unreadable(error) => (kind_of(error), error.to_string()),
        };
        let is_one = sheet.members.len() == 1;
        match why {
            WhyNot::Said(Reading::Refused) => {
                self.counts.refused += 1;
                self.tell_request_error(sheet, Some(status), latency, kind, message, now);
                self.venue_held(batch, sheet, Cause::Cooldown, now);
            }
            WhyNot::Said(Reading::Banned) => {
                self.counts.banned += 1;
                self.tell_request_error(sheet, Some(status), latency, kind, message, now);
                self.venue_held(batch, sheet, Cause::Ban, now);
            }
            WhyNot::Said(Reading::UnknownMarket | Reading::NoBook | Reading::BadRequest(_)) if is_one => {
                let (place, what) = &sheet.members[0];
                self.instrument_failed(*place, what, (kind, message), status, latency, now);
                self.schedule.keep_alone(batch);
            }
            WhyNot::Said(Reading::UnknownMarket | Reading::NoBook | Reading::BadRequest(_)) => {
                self.tell_request_error(sheet, Some(status), latency, kind, message, now);
                self.take_apart(batch, sheet, now);
            }
            WhyNot::Said(_) => {
                // A page where books should be is no better for being recognised.
                self.counts.garbage += u64::from((200..300).contains(&status));
                self.tell_request_error(sheet, Some(status), latency, kind, message, now);
                self.batch_failed(batch, Cause::Failure, now);
            }
            WhyNot::Unreadable(_) => {
                self.counts.garbage += 1;
                self.tell_request_error(sheet, Some(status), latency, kind, message, now);
                self.batch_failed(batch, Cause::Failure, now);
            }
        }
    }

    fn take_apart(&mut self, batch: BatchId, sheet: &Sheet, now: Monotonic) {
        if let Some(batch) = self.schedule.get_mut(batch) {
            batch.trouble = Some(Cause::Failure);
        }
        if self.schedule.split(batch) {
            self.counts.splits += 1;
            events::batch_split(self.venue, sheet.members.len());
            return;
        }
        self.batch_failed(batch, Cause::Failure, now);
    }

    fn venue_held(&mut self, batch: BatchId, sheet: &Sheet, cause: Cause, now: Monotonic) {
        if let Some(batch) = self.schedule.get_mut(batch) {
            batch.trouble = Some(cause);
        }
        self.look_for_hold(sheet.request.family, now);
    }

    fn batch_failed(&mut self, id: BatchId, cause: Cause, now: Monotonic) {
        let Some(batch) = self.schedule.get_mut(id) else { return };
        let rest = self.batch_backoff.failed(&id.to_string(), now);
        batch.rests_until = Some(Monotonic(now.0 + rest));
        batch.has_failed = true;
        batch.trouble = Some(cause);
    }

    /// It is left out of its batch for a while.
    fn instrument_failed(
        &mut self,
        place: Place,
        what: &Instrument,
        (kind, message): (&'static str, String),
        status: u16,
        latency: Duration,
        now: Monotonic,
    ) {
        let (status, instrument) = (Some(status), Some(what));
        self.tell_error(&PollError { instrument, instruments: 1, status, latency, kind, message }, now);
        let Some(entry) = self.roster.get_mut(place) else { return };
        if entry.what.poll_key != what.poll_key {
            return; // the place is another's by now
        }
        (entry.has_failed, entry.trouble) = (true, Some(Cause::Failure));
        match kind {
            "missing" | "unknown_market" | "no_book" => entry.disowned += 1,
            _ => entry.disowned = 0, // it has something to say of it
        }
        let rest = self.backoff.failed(&what.poll_key, now);
        if let Some(batch) = self.schedule.of(place) {
            batch.resting.retain(|(other, _)| *other != place);
            batch.resting.push((place, Monotonic(now.0 + rest)));
            batch.sheet = None;
        }
    }

    fn request_failed(&mut self, asked: u64) {
        self.counts.requests_failed += 1;
        self.counts.polls_failed += asked;
        self.round.failed += 1;
    }

    fn count_status(&mut self, status: u16) {
        self.counts.http_4xx += u64::from((400..500).contains(&status));
        self.counts.http_429 += u64::from(status == 429);
        self.counts.http_5xx += u64::from(status >= 500);
    }

    pub(super) fn landed(&mut self, landed: Result<Landed, JoinError>) {
        let Ok((records, fate)) = landed else { return };
        let Ok(receipt) = fate else { return self.lose(records) };
        for fate in receipt.fates {
            match fate {
                catchment_pipeline::Fate::Accepted(_) => self.counts.records_accepted += 1,
                catchment_pipeline::Fate::Duplicate => self.counts.records_duplicate += 1,
                catchment_pipeline::Fate::Dropped => self.counts.records_lost += 1,
            }
        }
    }

    pub(super) fn lose(&mut self, records: u64) {
        if records > 0 {
            self.counts.records_lost += records;
            events::records_lost(self.venue, records);
        }
    }

    fn tell_request_error(
        &mut self,
        sheet: &Sheet,
        status: Option<u16>,
        latency: Duration,
        kind: &'static str,
        message: String,
        now: Monotonic,
    ) {
        let instrument = match &sheet.members[..] {
            [(_, what)] => Some(&**what),
            _ => None,
        };
        let instruments = sheet.members.len();
        self.tell_error(&PollError { instrument, instruments, status, latency, kind, message }, now);
    }
}

fn words(reading: &Reading) -> String {
    match reading {
        Reading::BadRequest(said) | Reading::Trouble(said) => said.clone(),
        other => other.name().replace('_', " "),
    }
}

fn kind_of(error: &ReadError) -> &'static str {
    match error {
        ReadError::NotJson { .. } => "not_json",
        ReadError::Html => "html",
        ReadError::Shape(_) => "shape",
        ReadError::Said(_) => "said",
        ReadError::Stuck(_) => "stuck",
    }
}
