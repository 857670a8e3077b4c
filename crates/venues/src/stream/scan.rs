//! JSON, byte by byte: where a value ends, and that it is one. Strict as RFC 8259 has it, strings eight bytes at a time.
//!
//! The caller has checked that the whole frame is UTF-8. Nothing is decoded here but escapes, and nothing is allocated.

use std::borrow::Cow;

use crate::mould::{Mould, SPAN, Two, chunk_at};
use crate::words::{digits_end, not_plain, word_at};

/// How deep values may be nested; a frame that goes deeper is refused.
pub const DEPTH_MAX: u32 = 127;

/// Why bytes are not JSON, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The byte at which reading stopped.
    pub at: usize,
    /// What is wrong there.
    pub why: &'static str,
}

/// The place after, or what is wrong.
pub type Scanned<T> = Result<T, Fault>;

#[cold]
#[inline(never)]
pub(super) fn fault<T>(bytes: &[u8], at: usize, why: &'static str) -> Scanned<T> {
    Err(Fault { at, why: if at >= bytes.len() { "it is cut off" } else { why } })
}

/// The next byte that is not white space.
#[inline(always)]
pub fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// From the byte after an opening quote to the closing one, and whether a backslash stands between.
#[inline(always)]
pub fn string_end(bytes: &[u8], mut at: usize) -> Scanned<(usize, bool)> {
    let mut escaped = false;
    loop {
        while let Some(word) = word_at(bytes, at) {
            let found = not_plain(word);
            if found != 0 {
                at += (found.trailing_zeros() / 8) as usize;
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            Some(b'"') => return Ok((at, escaped)),
            Some(b'\\') => {
                escaped = true;
                at = escape_end(bytes, at)?;
            }
            Some(0x20..) => at += 1,
            _ => return fault(bytes, at, "a control character stands in a text"),
        }
    }
}

/// From a backslash to the byte after the escape.
#[cold]
fn escape_end(bytes: &[u8], at: usize) -> Scanned<usize> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match code_unit(bytes, at)? {
            0xdc00..=0xdfff => fault(bytes, at, "half of a surrogate pair stands alone"),
            0xd800..=0xdbff => match code_unit(bytes, at + 6)? {
                0xdc00..=0xdfff => Ok(at + 12),
                _ => fault(bytes, at, "half of a surrogate pair stands alone"),
            },
            _ => Ok(at + 6),
        },
        _ => fault(bytes, at + 1, "an escape that does not exist"),
    }
}

/// The number of a `\uXXXX`.
fn code_unit(bytes: &[u8], at: usize) -> Scanned<u32> {
    if bytes.get(at) != Some(&b'\\') || bytes.get(at + 1) != Some(&b'u') {
        return fault(bytes, at, "half of a surrogate pair stands alone");
    }
    let mut unit = 0;
    for place in at + 2..at + 6 {
        match bytes.get(place).and_then(|b| char::from(*b).to_digit(16)) {
            Some(digit) => unit = unit * 16 + digit,
            None => return fault(bytes, place, "an escape without its four digits"),
        }
    }
    Ok(unit)
}

/// What the inside of a text says once its escapes are read. It has been through [`string_end`].
pub fn unescaped(inside: &str) -> Cow<'_, str> {
    if !inside.contains('\\') {
        return Cow::Borrowed(inside);
    }
    serde_json::from_str(&format!("\"{inside}\"")).map_or(Cow::Borrowed(inside), Cow::Owned)
}

/// From the first byte of a number to the byte after it.
#[inline]
pub fn number_end(bytes: &[u8], mut at: usize) -> Scanned<usize> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits_end(bytes, at + 1),
        _ => return fault(bytes, at, "a number without digits"),
    };
    if bytes.get(at) == Some(&b'.') {
        let end = digits_end(bytes, at + 1);
        if end == at + 1 {
            return fault(bytes, end, "a number without digits behind its point");
        }
        at = end;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let end = digits_end(bytes, at);
        if end == at {
            return fault(bytes, end, "a number without digits in its exponent");
        }
        at = end;
    }
    Ok(at)
}

/// The same of a whole number that something follows, as most are; others are left to [`number_end`].
#[inline(always)]
pub(super) fn whole_number_end(bytes: &[u8], at: usize) -> Scanned<usize> {
    if let Some(b'1'..=b'9') = bytes.get(at) {
        let end = digits_end(bytes, at + 1);
        if let Some(b',' | b'}' | b']') = bytes.get(end) {
            return Ok(end);
        }
    }
    number_end(bytes, at)
}

/// From the first byte of a value that holds no others to the byte after it.
#[inline(always)]
fn plain_end(bytes: &[u8], at: usize) -> Scanned<usize> {
    let word = |word: &'static [u8]| match bytes[at..].starts_with(word) {
        true => Ok(at + word.len()),
        false if word.starts_with(&bytes[at..]) => fault(bytes, bytes.len(), ""),
        false => fault(bytes, at, "neither a value nor its end"),
    };
    match bytes.get(at) {
        Some(b'"') => Ok(string_end(bytes, at + 1)?.0 + 1),
        Some(b'-' | b'0'..=b'9') => number_end(bytes, at),
        Some(b't') => word(b"true"),
        Some(b'f') => word(b"false"),
        Some(b'n') => word(b"null"),
        _ => fault(bytes, at, "neither a value nor its end"),
    }
}

/// From the first byte of any value to the byte after it; `depth` is how deep it stands.
#[inline]
pub fn value_end(bytes: &[u8], at: usize, depth: u32) -> Scanned<usize> {
    match bytes.get(at) {
        Some(b'{' | b'[') => nested_end(bytes, at, depth),
        _ => plain_end(bytes, at),
    }
}

/// As [`value_end`], of an array: one of levels that are spelled alike is gone through a level at a time. `None`: it is
/// something else, or no JSON; somebody else must look.
#[inline]
pub(super) fn levels_end(bytes: &[u8], at: usize, depth: u32, moulds: &mut Two<Mould>) -> Option<usize> {
    // The brackets of the array and of a level.
    if depth + 2 > DEPTH_MAX {
        return None;
    }
    let (mut at, mut end) = (at + 1, [0; SPAN]);
    loop {
        let chunk = chunk_at(bytes, at, &mut end)?;
        at = match moulds.find(|mould| mould.fits(chunk)) {
            Some(mould) => at + mould.len(),
            None => odd_level_end(bytes, at, depth + 1, moulds)?,
        };
        match bytes.get(at) {
            Some(b',') => at += 1,
            Some(b']') => return Some(at + 1),
            _ => return None,
        }
    }
}

/// The same of an element that is not spelled as those before it.
fn odd_level_end(bytes: &[u8], at: usize, depth: u32, moulds: &mut Two<Mould>) -> Option<usize> {
    let Some(end) = texts_end(bytes, at) else { return value_end(bytes, at, depth).ok() };
    moulds.other().cast(&bytes[at..end]);
    Some(end)
}

/// From the opening bracket of short texts and nothing else, `["1.783","411.1","0","3"]`, to the byte after its closing one.
#[inline]
fn texts_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at) != Some(&b'[') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at = short_text_end(bytes, at)?;
        match bytes.get(at) {
            Some(b',') => at += 1,
            Some(b']') => return Some(at + 1),
            _ => return None,
        }
    }
}

/// From the opening bracket of two short texts, `["61737.63","0.04"]`, to the byte after its closing one: a level, of which
/// a book's message has dozens. `None`: it is something else, or stands too near the end; somebody else must look.
#[inline(always)]
fn pair_end(bytes: &[u8], at: usize) -> Option<usize> {
    let comma = short_text_end(bytes, at + 1)?;
    if bytes.get(comma) != Some(&b',') {
        return None;
    }
    let end = short_text_end(bytes, comma + 1)?;
    (bytes.get(end) == Some(&b']')).then_some(end + 1)
}

/// From an opening quote to the byte after the closing one, of a text of less than sixteen bytes with nothing odd about it.
#[inline(always)]
fn short_text_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (first, rest) = bytes.get(at..)?.split_first()?;
    let (low, high) = rest.first_chunk::<16>()?.split_at(8);
    let odd = |half: &[u8]| half.first_chunk::<8>().map_or(0, |word| not_plain(u64::from_le_bytes(*word)));
    let len = match (odd(low), odd(high)) {
        (0, 0) => return None,
        (0, high) => 8 + (high.trailing_zeros() / 8) as usize,
        (low, _) => (low.trailing_zeros() / 8) as usize,
    };
    (*first == b'"' && rest.get(len) == Some(&b'"')).then_some(at + len + 2)
}

/// From the opening bracket of an object or an array to the byte after its closing one. No stack is used: a bit each
/// says which kind of bracket is open.
fn nested_end(bytes: &[u8], mut at: usize, outer: u32) -> Scanned<usize> {
    let mut objects: u128 = 0;
    let mut open = 0_u32;
    'value: loop {
        let pair = match bytes.get(at) {
            Some(b'[') if outer + open < DEPTH_MAX => pair_end(bytes, at),
            _ => None,
        };
        match (pair, bytes.get(at)) {
            (Some(end), _) if open == 0 => return Ok(end),
            (Some(end), _) => at = end,
            (None, Some(bracket @ (b'[' | b'{'))) => {
                open += 1;
                if outer + open > DEPTH_MAX {
                    return fault(bytes, at, "values are nested too deep");
                }
                let is_object = *bracket == b'{';
                objects = objects << 1 | u128::from(is_object);
                at = skip_space(bytes, at + 1);
                match bytes.get(at) {
                    Some(b'}') if is_object => {}
                    Some(b']') if !is_object => {}
                    _ if is_object => {
                        at = key_end(bytes, at)?;
                        continue 'value;
                    }
                    _ => continue 'value,
                }
            }
            _ => at = plain_end(bytes, at)?,
        }
        // After a value, or at the bracket that closes an empty one.
        loop {
            at = skip_space(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at = skip_space(bytes, at + 1);
                    if objects & 1 == 1 {
                        at = key_end(bytes, at)?;
                    }
                    continue 'value;
                }
                Some(b'}') if objects & 1 == 1 => {}
                Some(b']') if objects & 1 == 0 => {}
                _ => return fault(bytes, at, "neither a comma nor a closing bracket"),
            }
            at += 1;
            open -= 1;
            objects >>= 1;
            if open == 0 {
                return Ok(at);
            }
        }
    }
}

/// From the opening quote of a key to the first byte of its value.
#[inline(always)]
fn key_end(bytes: &[u8], at: usize) -> Scanned<usize> {
    Ok(key(bytes, at)?.1)
}

/// The inside of a key with whether it holds escapes, and the first byte of its value.
#[inline(always)]
pub fn key(bytes: &[u8], at: usize) -> Scanned<((usize, usize, bool), usize)> {
    if bytes.get(at) != Some(&b'"') {
        return fault(bytes, at, "a key is missing");
    }
    let (end, escaped) = string_end(bytes, at + 1)?;
    let colon = skip_space(bytes, end + 1);
    if bytes.get(colon) != Some(&b':') {
        return fault(bytes, colon, "a colon is missing");
    }
    Ok(((at + 1, end, escaped), skip_space(bytes, colon + 1)))
}
