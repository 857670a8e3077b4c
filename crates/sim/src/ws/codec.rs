//! The WebSocket protocol from the server's side: the handshake's answer, frames written, frames read.
//!
//! Written here rather than taken from a library for two reasons. A frame is encoded once and the same bytes go to every
//! connection; and a frame has to be torn, oversized or not UTF-8 on demand, which libraries rightly refuse. No extension
//! is offered, so payloads travel as they are.

use bytes::{Buf, Bytes, BytesMut};
use sha1::{Digest, Sha1};

use crate::text::base64;

/// What a client may send in one message; a subscription of a thousand names fits several times.
pub(crate) const CLIENT_BYTES_MAX: usize = 1 << 20;

pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;

/// `Sec-WebSocket-Accept` for a client's `Sec-WebSocket-Key`.
pub(crate) fn accept_key(key: &str) -> String {
    let digest = Sha1::new()
        .chain_update(key.as_bytes())
        .chain_update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
        .finalize();
    base64(&digest)
}

/// Bytes of a frame's head before a payload of this length.
pub(crate) fn head_len(payload: usize) -> usize {
    match payload {
        0..126 => 2,
        126..65_536 => 4,
        _ => 10,
    }
}

/// A whole frame, as it goes over the wire.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(payload.len() + 10);
    wire.push(0x80 | opcode);
    match payload.len() {
        short @ 0..126 => wire.push(short as u8),
        middle @ 126..65_536 => {
            wire.push(126);
            wire.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            wire.push(127);
            wire.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    wire.extend_from_slice(payload);
    wire
}

/// A close frame.
pub(crate) fn close(code: u16, reason: &str) -> Vec<u8> {
    frame(CLOSE, &[&code.to_be_bytes()[..], reason.as_bytes()].concat())
}

/// What a client said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Text(Bytes),
    Binary,
    Ping(Bytes),
    Pong,
    Close,
}

/// A client that breaks the protocol; its connection is closed with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) u16);

/// Puts a client's messages together from what is read.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    partial: Option<(u8, BytesMut)>,
}

impl Ear {
    /// The next message in `read`, if it is whole; `None`: more has to be read.
    pub(crate) fn next(&mut self, read: &mut BytesMut) -> Result<Option<Said>, Broken> {
        loop {
            let Some((first, payload)) = take_frame(read)? else { return Ok(None) };
            let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
            match opcode {
                PING => return Ok(Some(Said::Ping(payload.freeze()))),
                PONG => return Ok(Some(Said::Pong)),
                CLOSE => return Ok(Some(Said::Close)),
                0 => match &mut self.partial {
                    None => return Err(Broken(1002)),
                    Some((_, whole)) if whole.len() + payload.len() > CLIENT_BYTES_MAX => {
                        return Err(Broken(1009));
                    }
                    Some((_, whole)) => whole.extend_from_slice(&payload),
                },
                TEXT | BINARY if self.partial.is_none() => self.partial = Some((opcode, payload)),
                _ => return Err(Broken(1002)),
            }
            if fin && let Some((opcode, whole)) = self.partial.take() {
                return match opcode {
                    TEXT if std::str::from_utf8(&whole).is_err() => Err(Broken(1007)),
                    TEXT => Ok(Some(Said::Text(whole.freeze()))),
                    _ => Ok(Some(Said::Binary)),
                };
            }
        }
    }
}

/// The first byte and the unmasked payload of a whole frame.
fn take_frame(read: &mut BytesMut) -> Result<Option<(u8, BytesMut)>, Broken> {
    let [first, second, ..] = **read else { return Ok(None) };
    if first & 0x70 != 0 || second & 0x80 == 0 {
        return Err(Broken(1002)); // an extension nobody agreed on, or a client that does not mask
    }
    let (len, mask_at) = match second & 0x7f {
        126 => match read.get(2..4) {
            Some(two) => (usize::from(u16::from_be_bytes([two[0], two[1]])), 4),
            None => return Ok(None),
        },
        127 => match read.get(2..10) {
            Some(eight) => {
                let len = eight.iter().fold(0u64, |len, byte| len << 8 | u64::from(*byte));
                (usize::try_from(len).unwrap_or(usize::MAX), 10)
            }
            None => return Ok(None),
        },
        short => (usize::from(short), 2),
    };
    if len > CLIENT_BYTES_MAX {
        return Err(Broken(1009));
    }
    if read.len() < mask_at + 4 + len {
        return Ok(None);
    }
    let mask = [read[mask_at], read[mask_at + 1], read[mask_at + 2], read[mask_at + 3]];
    read.advance(mask_at + 4);
    let mut payload = read.split_to(len);
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[at % 4];
    }
    Ok(Some((first, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut wire = frame(first & 0x0f, payload);
        wire[0] = first;
        wire[1] |= 0x80;
        let head = head_len(payload.len());
        let body: Vec<u8> =
            payload.iter().enumerate().map(|(at, byte)| byte ^ [1, 2, 3, 4][at % 4]).collect();
        wire.truncate(head);
        wire.extend([1, 2, 3, 4]);
        wire.extend(body);
        wire
    }

    #[test]
    fn the_key_is_answered_as_the_standard_shows() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn messages_come_out_whole_however_they_are_read() {
        for len in [0, 5, 125, 126, 65_535, 65_536] {
            let text = vec![b'x'; len];
            let wire = masked(0x81, &text);
            let (mut ear, mut read) = (Ear::default(), BytesMut::new());
            for byte in &wire[..wire.len() - 1] {
                read.extend_from_slice(&[*byte]);
                assert_eq!(ear.next(&mut read), Ok(None));
            }
            read.extend_from_slice(&wire[wire.len() - 1..]);
            assert_eq!(ear.next(&mut read), Ok(Some(Said::Text(text.into()))));
            assert!(read.is_empty());
        }
    }

    #[test]
    fn fragments_are_joined_and_a_ping_may_stand_between() {
        let wire = [masked(0x01, b"ab"), masked(0x89, b"?"), masked(0x80, b"cd")].concat();
        let (mut ear, mut read) = (Ear::default(), BytesMut::from(&wire[..]));
        assert_eq!(ear.next(&mut read), Ok(Some(Said::Ping("?".into()))));
        assert_eq!(ear.next(&mut read), Ok(Some(Said::Text("abcd".into()))));
    }

    #[test]
    fn a_client_that_breaks_the_rules_is_told_so() {
        let check = |wire: &[u8], code| {
            assert_eq!(Ear::default().next(&mut BytesMut::from(wire)), Err(Broken(code)));
        };
        check(&frame(TEXT, b"not masked"), 1002);
        check(&masked(0xc1, b"compressed"), 1002);
        check(&masked(0x80, b"of nothing"), 1002);
        check(&masked(0x81, &[0xff]), 1007);
        check(&[0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4], 1009);
    }
}
