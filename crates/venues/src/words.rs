//! Eight bytes at a time: digits, and what is not plain text. A word has its first byte lowest.

/// Eight characters `0`.
const ZEROS: u64 = 0x3030_3030_3030_3030;
const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// The eight bytes from `at` on, if there are as many.
#[inline(always)]
pub(crate) fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The high bit of every byte that is a quote, a backslash or a control character; a borrow can only spoil bytes above
/// the first of them.
#[inline(always)]
pub(crate) fn not_plain(word: u64) -> u64 {
    let quote = word ^ (ONES * u64::from(b'"'));
    let slash = word ^ (ONES * u64::from(b'\\'));
    (quote.wrapping_sub(ONES) & !quote
        | slash.wrapping_sub(ONES) & !slash
        | word.wrapping_sub(ONES * 0x20) & !word)
        & TOPS
}

/// A key of less than eight bytes with nothing odd about it, as most are: its bytes in one word, how many they are, and
/// its value right after the colon. `None`: somebody else must look.
#[inline(always)]
pub(crate) fn short_key(bytes: &[u8], at: usize) -> Option<(u64, usize, usize)> {
    let (first, rest) = bytes.get(at..)?.split_first()?;
    let word = u64::from_le_bytes(*rest.first_chunk::<8>()?);
    let found = not_plain(word);
    if *first != b'"' || found == 0 {
        return None;
    }
    let len = (found.trailing_zeros() / 8) as usize;
    match rest.get(len..len + 3)? {
        [b'"', b':', value] if *value > b' ' => Some((word & ((1 << (8 * len)) - 1), len, at + len + 3)),
        _ => None,
    }
}

/// What each byte is above the character 0, if all are digits the digits themselves.
#[inline(always)]
pub(crate) fn ones(word: u64) -> u64 {
    word ^ ZEROS
}

/// How many digits stand at the beginning.
#[inline(always)]
pub(crate) fn digits_first(word: u64) -> usize {
    let ones = ones(word);
    // A digit stays below the high bit; a carry can only come from what is none, and spoils those behind it.
    let others = (ones.wrapping_add(ONES * (0x80 - 10)) | ones) & TOPS;
    (others.trailing_zeros() / 8) as usize
}

/// The number that eight digits make, each as a number: pairs, then fours, then all.
#[inline(always)]
pub(crate) fn value_of(ones: u64) -> u64 {
    let pairs = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff
}

/// The byte after the digits that begin at `at`.
#[inline(always)]
pub(crate) fn digits_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word_at(bytes, at) {
        let digits = digits_first(word);
        at += digits;
        if digits < 8 {
            return at;
        }
    }
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    at
}

/// A number of nothing but digits, at most 19 of them: so many always fit.
#[inline]
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    let (mut number, mut rest) = (0, text);
    while let Some((eight, behind)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*eight);
        if digits_first(word) < 8 {
            return None;
        }
        number = number * 100_000_000 + value_of(ones(word));
        rest = behind;
    }
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_in_every_place_is_seen_for_what_it_is() {
        for plain in [*b"12345678", *b"00000000", *b"99999999", *b"abcdefgh", [0xfa; 8], [0x7f; 8]] {
            for (at, byte) in (0..8).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                let mut bytes = plain;
                bytes[at] = byte;
                let word = u64::from_le_bytes(bytes);
                let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
                assert_eq!(digits_first(word), digits, "{bytes:?}");
                assert_eq!(digits_end(&bytes, 0), digits, "{bytes:?}");
                let is_odd = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
                let odd = bytes.iter().position(is_odd).unwrap_or(8);
                assert_eq!(not_plain(word).trailing_zeros() as usize / 8, odd, "{bytes:?}");
            }
        }
    }

    #[test]
    fn digits_are_the_number_they_make() {
        for text in ["0", "7", "12345678", "00000001", "1798761600000", "9999999999999999999", "0042"] {
            assert_eq!(number(text.as_bytes()), text.parse().ok(), "{text}");
            for at in 0..text.len() {
                for byte in [b'/', b':', b'-', b' ', 0, 0xb0, 0xff] {
                    let mut spoilt = text.as_bytes().to_vec();
                    spoilt[at] = byte;
                    assert_eq!(number(&spoilt), None, "{}", spoilt.escape_ascii());
                }
            }
            for behind in ["", ".", "x", "\"]]}}]]}}]]}}"] {
                let text = format!("{text}{behind}");
                assert_eq!(digits_end(text.as_bytes(), 0), text.len() - behind.len(), "{text}");
            }
        }
        assert_eq!(number(b""), None);
        assert_eq!(number(b"10000000000000000000"), None);
    }
}
