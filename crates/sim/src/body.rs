//! Bodies: whole, dripping, cut off, or far larger than they look.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// What a bomb is made of: so many zeros, compressed once and sent again and again.
const BLOCK: usize = 1 << 20;

pub(crate) enum SimBody {
    Whole(Bytes),
    /// `rate` bytes, then a second's rest.
    Slow {
        rest: Bytes,
        rate: usize,
        wait: Option<Pin<Box<Sleep>>>,
    },
    /// So much, and then the connection ends although more was promised.
    Cut {
        first: Bytes,
        promised: u64,
    },
    Bomb(Bomb),
}

impl SimBody {
    pub(crate) fn slow(body: Bytes, bytes_per_s: u32) -> Self {
        Self::Slow { rest: body, rate: bytes_per_s as usize, wait: None }
    }

    pub(crate) fn cut(body: Bytes) -> Self {
        Self::Cut { promised: body.len() as u64, first: body.slice(..body.len() / 2) }
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let data = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => data(std::mem::take(bytes)),
            Self::Slow { rest, rate, wait } => {
                if let Some(waiting) = wait {
                    std::task::ready!(waiting.as_mut().poll(cx));
                }
                if rest.is_empty() {
                    return Poll::Ready(None);
                }
                *wait = Some(Box::pin(sleep(Duration::from_secs(1))));
                data(rest.split_to((*rate).min(rest.len())))
            }
            Self::Cut { first, .. } if first.is_empty() => {
                Poll::Ready(Some(Err(io::Error::other("cut off on purpose"))))
            }
            Self::Cut { first, .. } => data(std::mem::take(first)),
            Self::Bomb(bomb) => Poll::Ready(bomb.next().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Slow { rest, .. } => SizeHint::with_exact(rest.len() as u64),
            Self::Cut { promised, .. } => SizeHint::with_exact(*promised),
            Self::Bomb(_) => SizeHint::default(),
        }
    }
}

/// A gzip stream of zeros. In memory there is one block of it, however long it is.
pub(crate) struct Bomb {
    head: Option<Bytes>,
    block: Bytes,
    blocks: u32,
    tail: Option<Bytes>,
}

impl Bomb {
    /// Unpacks to `mib` MiB: one member, with its length and checksum right.
    pub(crate) fn new(mib: u32) -> Self {
        let zeros = vec![0; BLOCK];
        let mut packer = Compress::new(Compression::best(), false);
        let mut block = Vec::with_capacity(64 << 10);
        // A full flush ends on a byte and forgets what came before, so the next block is the same bytes again.
        packer
            .compress_vec(&zeros, &mut block, FlushCompress::Full)
            .expect("zeros fit into a sixteenth of their length");
        let mut crc = Crc::new();
        crc.update(&zeros);
        let mut sum = Crc::new();
        for _ in 0..mib {
            sum.combine(&crc);
        }
        let mut tail = vec![0x03, 0x00]; // an empty last block
        tail.extend(sum.sum().to_le_bytes());
        tail.extend(mib.wrapping_mul(BLOCK as u32).to_le_bytes());
        Self {
            head: Some(Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255])),
            block: block.into(),
            blocks: mib,
            tail: Some(tail.into()),
        }
    }

    fn next(&mut self) -> Option<Bytes> {
        if let Some(head) = self.head.take() {
            return Some(head);
        }
        if self.blocks > 0 {
            self.blocks -= 1;
            return Some(self.block.clone());
        }
        self.tail.take()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_bomb_is_small_on_our_side_and_sound_gzip() {
        let mut bomb = Bomb::new(3);
        assert!(bomb.block.len() < 2 << 10, "{} bytes a MiB", bomb.block.len());
        let packed: Vec<u8> = std::iter::from_fn(|| bomb.next()).flatten().collect();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, vec![0; 3 * BLOCK]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_takes_its_time() {
        let body = SimBody::slow(Bytes::from_static(b"0123456789"), 4);
        let began = tokio::time::Instant::now();
        let whole = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        assert_eq!(whole, "0123456789");
        assert_eq!(began.elapsed().as_secs(), 3);
    }
}
