//! Live books: the venues' own messages through the forms that describe them.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

mod model;
mod polymarket;
mod rules;
mod samples;

use std::sync::Arc;

use catchment_venues::ladder::{BookForm, BookPlan, Ladder, LadderState, Side};

/// The form of a venue, as a descriptor would have it.
fn form(name: &str) -> BookForm {
    let path = format!("{}/tests/ladder/forms/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn plan(name: &str) -> Arc<BookPlan> {
    Arc::new(BookPlan::new(&form(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn ladder(name: &str, instrument: &str) -> Ladder {
    Ladder::new(&plan(name), instrument)
}
