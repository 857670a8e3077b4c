//! Which instruments can be polled, page by page.

use std::collections::HashSet;

use catchment_model::Instrument;

use crate::{ReadError, Request};

/// A venue that lists its instruments.
pub trait Discovers: Send + Sync {
    /// Begins at the first page.
    fn walk(&self) -> Box<dyn Walk>;
}

/// One pass over a venue's listing.
pub trait Walk: Send {
    /// The request for the next page; nothing once the end was reached. Asking again gives the same request, so a page
    /// that failed can be tried again.
    fn next_request(&self) -> Option<Request>;

    /// Reads the page that was asked for and moves on. After an error the walk stands where it stood.
    fn read(&mut self, body: &[u8]) -> Result<InstrumentPage, ReadError>;
}

/// What a page of a listing held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstrumentPage {
    /// What can be polled, each once in a walk.
    pub instruments: Vec<Instrument>,
    /// Markets that could not be read. The rest of the page is not lost for it.
    pub skipped: Vec<Skipped>,
    /// Markets that are listed and cannot be traded now, or have no book.
    pub not_tradable: usize,
    /// Markets that an earlier page already held.
    pub repeated: usize,
    /// How many markets the page held in all.
    pub rows: usize,
}

/// A market that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name, as far as it could be read.
    pub market: String,
    /// What was wrong.
    pub reason: String,
}

/// What a market on a page turned out to be.
pub(crate) enum Row {
    Tradable(Vec<Instrument>),
    NotTradable,
}

/// What a walk remembers: the cursors it was given and the instruments it has seen.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    cursors: HashSet<String>,
    poll_keys: HashSet<String>,
}

impl Trail {
    /// Notes a cursor; one that was given before leads in a circle.
    pub(crate) fn follow(&mut self, cursor: &str) -> Result<(), ReadError> {
        if self.cursors.insert(cursor.to_owned()) {
            return Ok(());
        }
        Err(ReadError::Stuck(format!("the cursor {:?} came twice", shortened(cursor))))
    }

    /// Sorts what was read of a market into the page.
    pub(crate) fn place(&mut self, page: &mut InstrumentPage, market: &str, row: Result<Row, String>) {
        page.rows += 1;
        match row {
            Err(reason) => page.skipped.push(Skipped { market: shortened(market), reason }),
            Ok(Row::NotTradable) => page.not_tradable += 1,
            Ok(Row::Tradable(instruments)) => {
                let before = page.instruments.len();
                let new = instruments.into_iter().filter(|i| self.poll_keys.insert(i.poll_key.clone()));
                page.instruments.extend(new);
                page.repeated += usize::from(page.instruments.len() == before);
            }
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}
