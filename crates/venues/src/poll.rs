//! Books for one instrument or many.

use crate::{BookPage, ReadError, Request};

/// A venue whose books can be asked for.
pub trait Polls: Send + Sync {
    /// The most instruments that one request may name.
    fn books_max(&self) -> usize;

    /// Asks for the books of these instruments, at least one and at most [`Polls::books_max`]. For a single one the
    /// venue's form for a single one is used.
    fn books_request(&self, poll_keys: &[&str]) -> Request;

    /// Reads the answer to that request into the page, which is emptied first. Every key that was asked for ends up in
    /// exactly one of: a book, unreadable, missing. After an error the page is empty.
    fn read_books(&self, poll_keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError>;
}
