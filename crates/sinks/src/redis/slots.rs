//! Which of a cluster's 16,384 slots a key is in. A script may touch the keys of one slot only.

/// The slot of a key: CRC-16/XMODEM of what stands between the first `{` and the next `}`, if anything does, else of all.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|b| *b == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let len = rest.iter().position(|b| *b == b'}')?;
        (len > 0).then(|| &rest[..len])
    });
    crc16(tag.unwrap_or(key)) % 16_384
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // As CLUSTER KEYSLOT has them.
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{foo}.bar"), 12_182);
        assert_eq!(slot_of(b"x{foo}{bar}"), 12_182);
        assert_eq!(slot_of(b"{}x"), crc16(b"{}x") % 16_384);
        assert_eq!(slot_of(b"{x"), crc16(b"{x") % 16_384);
    }
}
