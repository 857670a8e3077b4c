//! Frames: a length of four bytes, the highest first, and as many bytes of JSON.
//!
//! ```text
//! 00 00 00 2e  {"tokens": ["id1", "id2"], "trigger": true}
//! ```
//!
//! The buffer grows with what has come, never with what a length claims; a length above the limit is an error as soon as
//! its four bytes are there. Pure: bytes in, frames out.

/// The longest frame there is: 500 tokens of the longest kind take a quarter of it.
pub const FRAME_MAX: usize = 256 << 10;
/// The longest frame of somebody who has not shown who they are.
pub const STRANGER_FRAME_MAX: usize = 4 << 10;

const HEAD: usize = 4;

/// Why bytes are not frames. There is no way on from here: the connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length that no frame has.
    #[error("a frame of {len} bytes; at most {limit} are taken")]
    TooLong {
        /// As claimed.
        len: usize,
        /// What is taken.
        limit: usize,
    },
    /// Nothing in it.
    #[error("a frame without content")]
    Empty,
}

/// Bytes on their way to becoming frames.
#[derive(Debug)]
pub struct Frames {
    buffer: Vec<u8>,
    limit: usize,
}

impl Frames {
    /// Takes frames of up to so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), limit }
    }

    /// From now on frames may be so long.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// What was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame. `None`: more must be read first.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some(head) = self.buffer.first_chunk::<HEAD>() else { return Ok(None) };
        let len = u32::from_be_bytes(*head) as usize;
        if len == 0 {
            return Err(FrameError::Empty);
        }
        if len > self.limit {
            return Err(FrameError::TooLong { len, limit: self.limit });
        }
        if self.buffer.len() < HEAD + len {
            return Ok(None);
        }
        let frame = self.buffer[HEAD..HEAD + len].to_vec();
        self.buffer.drain(..HEAD + len);
        Ok(Some(frame))
    }

    /// Whether a frame has begun and is not whole.
    pub fn is_midway(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// A frame with this content, ready to be sent.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("nobody sends frames of 4 GB");
    let mut frame = Vec::with_capacity(HEAD + body.len());
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_the_same_however_they_arrive() {
        let sent = [framed(b"one"), framed(b"2"), framed(&[b'x'; 300])].concat();
        for step in [1, 2, 3, 7, 100, sent.len()] {
            let mut frames = Frames::new(1_000);
            let mut seen = Vec::new();
            for part in sent.chunks(step) {
                frames.push(part);
                while let Some(frame) = frames.take().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, [b"one".to_vec(), b"2".to_vec(), vec![b'x'; 300]], "{step} bytes at a time");
            assert!(!frames.is_midway());
        }
    }

    #[test]
    fn a_huge_length_is_an_error_at_once_and_takes_no_memory() {
        let mut frames = Frames::new(FRAME_MAX);
        frames.push(&[0xff; 3]);
        assert_eq!(frames.take(), Ok(None));
        frames.push(&[0xff]);
        assert_eq!(frames.take(), Err(FrameError::TooLong { len: 0xffff_ffff, limit: FRAME_MAX }));
        assert!(frames.buffer.capacity() < 64);
        let mut frames = Frames::new(FRAME_MAX);
        frames.push(&[0; 4]);
        assert_eq!(frames.take(), Err(FrameError::Empty));
    }

    proptest! {
        #[test]
        fn random_bytes_give_frames_within_the_limit_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut frames = Frames::new(64);
            frames.push(&bytes);
            while let Ok(Some(frame)) = frames.take() {
                prop_assert!((1..=64).contains(&frame.len()));
            }
        }
    }
}
