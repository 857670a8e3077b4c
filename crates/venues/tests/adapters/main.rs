//! The adapters, fed with payloads of `fixtures/` and with what no venue should send.

#![allow(clippy::unwrap_used)] // helpers of tests may panic as tests do

mod books;
mod discover;
mod samples;
mod spec;
mod status;

use std::path::PathBuf;

use catchment_venues::{BookForm, BookPage, Opened, ReadError};

/// The workspace's own folder.
fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fixture(name: &str) -> String {
    let path = workspace().join("fixtures").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn open(venue: &str) -> Opened {
    let spec = catchment_venues::find(venue).unwrap();
    (spec.open)(&spec.endpoints([]).unwrap())
}

fn read(venue: &str, keys: &[&str], body: &[u8]) -> Result<BookPage, ReadError> {
    read_as(BookForm::Normalised, venue, keys, body)
}

fn read_as(form: BookForm, venue: &str, keys: &[&str], body: &[u8]) -> Result<BookPage, ReadError> {
    let mut page = BookPage::new(form);
    open(venue).polls.unwrap().read_books(keys, body, &mut page)?;
    Ok(page)
}

/// The payload of the only book.
fn only(page: &BookPage) -> String {
    assert_eq!(page.books().len(), 1, "{page:?}");
    payload(page, 0)
}

fn payload(page: &BookPage, at: usize) -> String {
    String::from_utf8(page.books().nth(at).unwrap().payload.as_bytes().to_vec()).unwrap()
}
