//! A book's hash, in place: SHA-1 in lower-case hexadecimal over the book's own compact JSON with `hash` left empty.
//!
//! Since the book is written in the venue's order of keys, what is hashed is what is sent, less the 40 digits. Those who
//! check books have their own function; that the two agree is worth more than sharing one.

use sha1::{Digest, Sha1};

/// Fills in the 40 digits that begin at `at`.
pub(super) fn stamp(book: &mut [u8], at: usize) {
    let digest = Sha1::new().chain_update(&book[..at]).chain_update(&book[at + 40..]).finalize();
    for (two, byte) in book[at..at + 40].chunks_exact_mut(2).zip(digest) {
        two.copy_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
    }
}

/// The digits in a book's text.
pub(super) fn of(book: &[u8]) -> &[u8] {
    const KEY: &[u8] = b"\"hash\":\"";
    let at = book.windows(KEY.len()).position(|some| some == KEY).map_or(0, |at| at + KEY.len());
    &book[at..at + 40]
}

/// Another hash that looks as good.
pub(super) fn spoil(hash: &mut [u8]) {
    hash[0] = if hash[0] == b'0' { b'1' } else { b'0' };
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_left_out_of_what_is_hashed() {
        let blank = "-".repeat(40);
        let mut book = format!("{{\"hash\":\"{blank}\"}}").into_bytes();
        stamp(&mut book, 9);
        // printf '{"hash":""}' | sha1sum
        assert_eq!(book, br#"{"hash":"763e398c59f02095c335aa404b4c17071d168207"}"#);
        let mut other = book.clone();
        spoil(&mut other[9..49]);
        assert_ne!(book, other);
    }
}
