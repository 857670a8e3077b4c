//! The books of one answer: a payload each in one buffer, and which of the asked ones they are.

use std::collections::HashMap;
use std::ops::Range;

use catchment_model::{BookFlags, Payload, UnixMs};

/// How a book is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BookForm {
    /// The same keys for every venue, best level first, every amount text: see the module `record`.
    #[default]
    Normalised,
    /// The venue's own bytes, checked and otherwise left alone.
    AsSent,
}

/// What an answer with books held. Made once and used again: its buffers stay.
#[derive(Debug, Default)]
pub struct BookPage {
    pub(crate) form: BookForm,
    pub(crate) trust_hashes: bool,
    pub(crate) through_values: bool,
    pub(crate) bytes: Vec<u8>,
    books: Vec<BookAt>,
    missing: Vec<usize>,
    unreadable: Vec<Unreadable>,
}

#[derive(Debug)]
struct BookAt {
    asked: usize,
    payload: Range<usize>,
    facts: BookFacts,
}

/// What is known of a book besides its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BookFacts {
    pub(crate) server_time: Option<UnixMs>,
    pub(crate) flags: BookFlags,
    pub(crate) hash_ok: Option<bool>,
}

/// One book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookRead<'a> {
    /// Which of the asked keys it is, counted from 0.
    pub asked: usize,
    /// What is recorded.
    pub payload: Payload<'a>,
    /// The venue's time of the book, where it gives one.
    pub server_time: Option<UnixMs>,
    /// What is odd about it.
    pub flags: BookFlags,
    /// Whether the venue's own hash agrees; nothing where there is none, or not all that goes into it.
    pub hash_ok: Option<bool>,
}

/// A book that came and could not be read. Its bytes are worth keeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which of the asked keys it is, if that much could be read and it was asked for.
    pub asked: Option<usize>,
    /// What was wrong.
    pub reason: String,
    /// The book as sent.
    pub raw: String,
}

impl BookPage {
    /// An empty page that will hold books in that form.
    pub fn new(form: BookForm) -> Self {
        Self { form, ..Self::default() }
    }

    /// The same, and the venue's hashes are not made anew: a book costs about a third less, and `hash_ok` is `null`.
    pub fn trusting_hashes(self) -> Self {
        Self { trust_hashes: true, ..self }
    }

    /// The same, and Polymarket's books are read into generic values first: for benches, as what not to do.
    pub fn through_values(self) -> Self {
        Self { through_values: true, ..self }
    }

    /// The books, in the order in which they were sent.
    pub fn books(&self) -> impl ExactSizeIterator<Item = BookRead<'_>> {
        self.books.iter().map(|book| BookRead {
            asked: book.asked,
            payload: Payload::written_on_one_line(&self.bytes[book.payload.clone()]),
            server_time: book.facts.server_time,
            flags: book.facts.flags,
            hash_ok: book.facts.hash_ok,
        })
    }

    /// The asked keys of which the venue sent nothing, by their place.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    /// What came and could not be read.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// How many books carry a hash that does not agree.
    pub fn hash_mismatches(&self) -> usize {
        self.books.iter().filter(|book| book.facts.hash_ok == Some(false)).count()
    }

    /// Empties the page; its buffers stay.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.books.clear();
        self.missing.clear();
        self.unreadable.clear();
    }

    /// Notes a book whose payload stands at the end of the buffer, from `start` on.
    pub(crate) fn add(&mut self, asked: usize, start: usize, facts: BookFacts) {
        self.books.push(BookAt { asked, payload: start..self.bytes.len(), facts });
    }

    pub(crate) fn refuse(&mut self, asked: Option<usize>, reason: String, raw: &str) {
        self.unreadable.push(Unreadable { asked, reason, raw: raw.to_owned() });
    }

    /// Works out which of the asked keys were not answered.
    pub(crate) fn close(&mut self, asked: usize) {
        if self.books.len() == asked && self.books.iter().enumerate().all(|(at, book)| book.asked == at) {
            return;
        }
        let mut answered = vec![false; asked];
        let refused = self.unreadable.iter().filter_map(|book| book.asked);
        self.books.iter().map(|book| book.asked).chain(refused).for_each(|at| answered[at] = true);
        self.missing.extend(answered.iter().enumerate().filter(|(_, yes)| !**yes).map(|(at, _)| at));
    }
}

/// Finds which of the asked keys a book belongs to. Venues mostly answer in the order asked, leaving out what they do
/// not have, so the next few are looked at before all of them are put into a table.
pub(crate) struct Matcher<'k> {
    keys: &'k [&'k str],
    next: usize,
    table: Option<HashMap<&'k str, usize>>,
}

impl<'k> Matcher<'k> {
    pub(crate) fn new(keys: &'k [&'k str]) -> Self {
        Self { keys, next: 0, table: None }
    }

    pub(crate) fn find(&mut self, key: &str) -> Option<usize> {
        let ahead = self.keys.iter().enumerate().skip(self.next).take(4);
        let found = ahead.filter(|(_, asked)| **asked == key).map(|(at, _)| at).next().or_else(|| {
            let keys = self.keys;
            let table = self
                .table
                .get_or_insert_with(|| keys.iter().enumerate().map(|(at, key)| (*key, at)).collect());
            table.get(key).copied()
        })?;
        self.next = found + 1;
        Some(found)
    }
}
