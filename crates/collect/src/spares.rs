//! Memory of large bodies, used again: a page of books is megabytes, and memory that is fresh each time costs more than
//! reading it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// What is smaller is not worth keeping.
const BYTES_MIN: usize = 64 << 10;
/// What is larger was an exception.
const BYTES_MAX: usize = 8 << 20;
/// Bodies on their way at the same time are hardly more.
const KEPT_MAX: usize = 16;

/// Buffers that nobody uses just now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spares {
    /// An empty buffer, for a body of that length; zero if it is not known.
    pub(crate) fn take(&self, length: usize) -> Vec<u8> {
        let is_small = length > 0 && length < BYTES_MIN;
        let kept = if is_small { None } else { self.lock().pop() };
        kept.unwrap_or_default()
    }

    /// The body, whose memory comes back when its last reader is done with it.
    pub(crate) fn lend(&self, body: Vec<u8>) -> Bytes {
        match body.capacity() {
            BYTES_MIN..=BYTES_MAX => Bytes::from_owner(Lent { body, home: self.clone() }),
            _ => body.into(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        // A list of empty buffers is good at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lent {
    body: Vec<u8>,
    home: Spares,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let mut kept = self.home.lock();
        if kept.len() < KEPT_MAX {
            kept.push(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_reader_is_done() {
        let spares = Spares::default();
        let body = vec![7; BYTES_MIN];
        let place = body.as_ptr();
        let first = spares.lend(body);
        let second = first.slice(1..3);
        drop(first);
        assert_eq!(spares.take(0).capacity(), 0, "somebody still reads it");
        assert_eq!(&second[..], [7, 7]);
        drop(second);
        assert_eq!(spares.take(BYTES_MIN - 1).capacity(), 0, "small ones have their own");
        let again = spares.take(0);
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), place);
    }

    #[test]
    fn neither_small_nor_huge_nor_many_are_kept() {
        let spares = Spares::default();
        drop(spares.lend(vec![0; BYTES_MIN - 1]));
        drop(spares.lend(vec![0; BYTES_MAX + 1]));
        assert_eq!(spares.lock().len(), 0);
        let lent: Vec<Bytes> = (0..KEPT_MAX + 3).map(|_| spares.lend(vec![0; BYTES_MIN])).collect();
        drop(lent);
        assert_eq!(spares.lock().len(), KEPT_MAX);
    }
}
