//! Polymarket.

mod hash;

pub use hash::{BookHash, HashInput, book_hash};
