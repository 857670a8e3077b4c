//! How records lie in a segment, byte by byte. All numbers are little endian.
//!
//! ```text
//! segment   header, then frames
//! header    0  8  magic "CATCHSP1"
//!           8  4  number of the segment
//!          12  4  number of the S1 segment this one was made from, plus one; 0: none
//!          16  8  id of the spool
//!          24  8  number of the first record
//!          32  4  CRC-32C of bytes 0..32
//! frame     0  4  length of what follows byte 16
//!           4  4  CRC-32C of all from byte 8 on, started from segment number, offset and length mixed
//!           8  8  number of the record
//!          16  8  received_at, nanoseconds
//!          24  4  where the payload starts in the line
//!          28  4  the payload's length
//!          32  2  where the exchange's name starts in the line
//!          34  1  the exchange's length
//!          35  1  the channel's length
//!          36  2  where the symbol starts in the line
//!          38  2  the symbol's length, escaped
//!          40  …  the envelope's line, newline included
//! ```
//!
//! The checksum covers *where* the frame lies: a block of an older segment that comes back in the wrong place does not
//! pass for a record. The number is in every frame, so after damage the next whole frame is found by trying every offset
//! whose length and number are plausible; a flipped bit anywhere costs one record.
//! The header only names what the frames also know; its loss costs nothing.

use std::ops::Range;

use catchment_model::{Envelope, RecordId, SpoolId, UnixNs};
use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// Bytes before the first frame of a segment.
pub(crate) const HEADER: usize = 36;
/// Bytes of a frame before its line.
pub(crate) const HEAD: usize = 40;
/// Bytes of a frame that its length does not count.
const UNCOUNTED: usize = 16;
/// The longest line a record may have: what every sink we know can still take.
pub(crate) const LINE_MAX: usize = 16 << 20;
/// The shortest line that could be an envelope.
const LINE_MIN: usize = 64;

/// The shortest frame.
pub(crate) const FRAME_MIN: usize = HEAD + LINE_MIN;

const MAGIC: &[u8; 8] = b"CATCHSP1";

/// What the first bytes of a segment say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) segment: u32,
    pub(crate) converted_from: Option<u32>,
    pub(crate) spool: SpoolId,
    pub(crate) first_seq: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&self.segment.to_le_bytes());
        out[12..16].copy_from_slice(&self.converted_from.map_or(0, |n| n + 1).to_le_bytes());
        out[16..24].copy_from_slice(&self.spool.get().to_le_bytes());
        out[24..32].copy_from_slice(&self.first_seq.to_le_bytes());
        let crc = crc32_iscsi(&out[..32]);
        out[32..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let sound = &bytes[..8] == MAGIC && u32_at(bytes, 32) == crc32_iscsi(&bytes[..32]);
        sound.then(|| Self {
            segment: u32_at(bytes, 8),
            converted_from: u32_at(bytes, 12).checked_sub(1),
            spool: SpoolId::new(u64_at(bytes, 16)),
            first_seq: u64_at(bytes, 24),
        })
    }

    /// Whether the bytes look more like our header, perhaps damaged, than like S1's length and JSON.
    pub(crate) fn looks_like_ours(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).filter(|(a, b)| a == b).count() >= 6
    }
}

/// Where the parts of a line are, as the frame keeps them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) received_at_ns: i64,
    pub(crate) payload: u32,
    pub(crate) payload_len: u32,
    pub(crate) exchange: u16,
    pub(crate) exchange_len: u8,
    pub(crate) channel_len: u8,
    pub(crate) symbol: u16,
    pub(crate) symbol_len: u16,
}

impl Parts {
    /// Writes the frame's head in front of a line of `line_len` bytes. Number and checksum follow when it is spooled.
    pub(crate) fn encode(&self, head: &mut [u8], line_len: usize) {
        head[0..4].copy_from_slice(&((HEAD - UNCOUNTED + line_len) as u32).to_le_bytes());
        head[16..24].copy_from_slice(&self.received_at_ns.to_le_bytes());
        head[24..28].copy_from_slice(&self.payload.to_le_bytes());
        head[28..32].copy_from_slice(&self.payload_len.to_le_bytes());
        head[32..34].copy_from_slice(&self.exchange.to_le_bytes());
        head[34] = self.exchange_len;
        head[35] = self.channel_len;
        head[36..38].copy_from_slice(&self.symbol.to_le_bytes());
        head[38..40].copy_from_slice(&self.symbol_len.to_le_bytes());
    }

    pub(crate) fn decode(frame: &[u8]) -> Self {
        Self {
            received_at_ns: u64_at(frame, 16) as i64,
            payload: u32_at(frame, 24),
            payload_len: u32_at(frame, 28),
            exchange: u16_at(frame, 32),
            exchange_len: frame[34],
            channel_len: frame[35],
            symbol: u16_at(frame, 36),
            symbol_len: u16_at(frame, 38),
        }
    }
}

/// The whole length of the frame that starts here, if its length is one a frame can have.
pub(crate) fn frame_len(bytes: &[u8]) -> Option<usize> {
    let len = u32_at(bytes.get(..4)?, 0) as usize + UNCOUNTED;
    (HEAD + LINE_MIN..=HEAD + LINE_MAX).contains(&len).then_some(len)
}

/// The record's number, of a frame that is at least [`HEAD`] long.
pub(crate) fn seq(frame: &[u8]) -> u64 {
    u64_at(frame, 8)
}

/// When the record was received, of a frame that is at least [`HEAD`] long.
pub(crate) fn received_at(frame: &[u8]) -> UnixNs {
    UnixNs::new(Parts::decode(frame).received_at_ns).expect("written from a time")
}

/// Numbers a frame and writes the id into its line.
pub(crate) fn number(frame: &mut [u8], id: RecordId) {
    frame[8..16].copy_from_slice(&id.seq.to_le_bytes());
    let Parts { payload, payload_len, .. } = Parts::decode(frame);
    let id_at = HEAD + payload as usize + payload_len as usize + Envelope::BEFORE_ID.len();
    frame[id_at..id_at + RecordId::LEN].copy_from_slice(&id.text());
}

/// Numbers whole frames from `next` on.
pub(crate) fn number_all(frames: &mut [u8], next: &mut RecordId) {
    let mut end = 0;
    while end < frames.len() {
        let len = frame_len(&frames[end..]).expect("the frames were made by Draft");
        number(&mut frames[end..end + len], *next);
        next.seq += 1;
        end += len;
    }
}

/// Numbers whole frames from `next` on and writes their checksums; they will lie at `offset` of `segment`. All at once,
/// while a frame is at hand: going through them all twice takes twice as long.
pub(crate) fn stamp(frames: &mut [u8], next: &mut RecordId, segment: u32, offset: u64) {
    let mut end = 0;
    let mut numbered = 0..0;
    while end < frames.len() {
        let len = frame_len(&frames[end..]).expect("the frames were made by Draft");
        number(&mut frames[end..end + len], *next);
        next.seq += 1;
        // One behind: a processor is held up by reading what it has just written in other pieces.
        write_checksum(frames, numbered, segment, offset);
        numbered = end..end + len;
        end += len;
    }
    write_checksum(frames, numbered, segment, offset);
}

/// Of the frame at this place, if there is one.
fn write_checksum(frames: &mut [u8], place: Range<usize>, segment: u32, offset: u64) {
    if !place.is_empty() {
        let crc = checksum(&frames[place.clone()], segment, offset + place.start as u64);
        frames[place][4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Whether a whole frame is what was written at this place.
pub(crate) fn is_sound(frame: &[u8], segment: u32, offset: u64) -> bool {
    u32_at(frame, 4) == checksum(frame, segment, offset)
}

/// The place and the length go in as the checksum's start: every start gives another result for the same bytes.
fn checksum(frame: &[u8], segment: u32, offset: u64) -> u32 {
    let place = offset ^ u64::from(segment) << 40 ^ u64::from(u32_at(frame, 0)).rotate_left(20);
    let mixed = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut crc = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, !(mixed >> 32) & u64::from(u32::MAX));
    crc.update(&frame[8..]);
    crc.finalize() as u32
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_written_and_every_flipped_bit_is_noticed() {
        let header =
            Header { segment: 7, converted_from: Some(0), spool: SpoolId::new(0xabcdef), first_seq: 1 << 40 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped), None, "bit {bit}");
            assert!(Header::looks_like_ours(&flipped), "bit {bit}");
        }
    }

    /// As any other CRC-32C gives it: segments that were written by an older build are read by this one.
    #[test]
    fn the_checksum_is_crc_32c_started_from_the_place() {
        let mut frame = [b'x'; 600];
        frame[..4].copy_from_slice(&584_u32.to_le_bytes());
        assert_eq!(checksum(&frame, 3, 400), 0x8eab_bff2);
        assert_eq!(checksum(&frame, 70_000, 1 << 35), 0x66e2_5b54);
        assert_eq!(crc32_iscsi(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_frame_is_sound_only_where_it_was_written() {
        let mut frame = vec![b'x'; HEAD + 100];
        let parts = Parts {
            received_at_ns: 1,
            payload: 30,
            payload_len: 5,
            exchange: 1,
            exchange_len: 2,
            channel_len: 3,
            symbol: 4,
            symbol_len: 5,
        };
        parts.encode(&mut frame[..HEAD], 100);
        let mut next = RecordId { spool: SpoolId::new(1), seq: 7 };
        stamp(&mut frame, &mut next, 3, 400);
        assert_eq!((seq(&frame), next.seq), (7, 8));
        assert!(is_sound(&frame, 3, 400));
        assert!(!is_sound(&frame, 3, 401), "another offset");
        assert!(!is_sound(&frame, 4, 400), "another segment");
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(frame_len(&flipped) != Some(frame.len()) || !is_sound(&flipped, 3, 400), "bit {bit}");
        }
    }
}
