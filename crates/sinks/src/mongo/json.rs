//! JSON to BSON in one pass, into one buffer, with nothing built in between.
//!
//! What is read has been checked to be JSON when it was accepted; should it be none, that is an error like any other. On
//! the way it is noticed whether the text could be written back from the BSON byte for byte, which is so for what almost
//! every venue sends: no blanks, no needless escapes, numbers in plain digits.

use super::number::{self, Number};

/// Values in values, at most: MongoDB takes a hundred levels, the envelope being the first.
const DEPTH_MAX: u32 = 96;

pub(super) const STRING: u8 = 0x02;
pub(super) const DOCUMENT: u8 = 0x03;
pub(super) const ARRAY: u8 = 0x04;
pub(super) const BOOLEAN: u8 = 0x08;
pub(super) const NULL: u8 = 0x0a;
pub(super) const INT64: u8 = 0x12;
pub(super) const DECIMAL128: u8 = 0x13;

/// Why a text cannot be a BSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// More levels than MongoDB takes.
    TooDeep,
    /// A key with a NUL in it, which ends a key in BSON.
    NulInKey,
    /// Larger as BSON than a document may be.
    TooLarge,
    /// Not JSON.
    NotJson,
}

/// A text on its way to BSON.
#[derive(Debug)]
pub(super) struct Json<'a> {
    text: &'a [u8],
    at: usize,
    /// Where what is appended to may end at the latest.
    out_max: usize,
    /// Whether the BSON so far gives back the text so far, byte for byte.
    exact: bool,
}

impl<'a> Json<'a> {
    pub(super) fn new(text: &'a [u8], out_max: usize) -> Self {
        Self { text, at: 0, out_max, exact: true }
    }

    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    /// Passes over bytes that must be there.
    pub(super) fn pass(&mut self, expected: &[u8]) -> Result<(), Unfit> {
        let rest = self.text.get(self.at..).ok_or(Unfit::NotJson)?;
        if !rest.starts_with(expected) {
            return Err(Unfit::NotJson);
        }
        self.at += expected.len();
        Ok(())
    }

    /// Takes so many bytes as they are.
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Unfit> {
        let taken = self.text.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(Unfit::NotJson)?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Appends the value that comes next and says its type.
    pub(super) fn value(&mut self, out: &mut Vec<u8>) -> Result<u8, Unfit> {
        self.value_at(out, 0)
    }

    fn value_at(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<u8, Unfit> {
        // Short numbers in an array are seven times as long in BSON: better stopped on the way than found at the end.
        if out.len() > self.out_max {
            return Err(Unfit::TooLarge);
        }
        match self.peek()? {
            b'"' => {
                self.at += 1;
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                self.string(out)?;
                out.push(0);
                let len = i32::try_from(out.len() - start - 4).map_err(|_| Unfit::TooLarge)?;
                out[start..start + 4].copy_from_slice(&len.to_le_bytes());
                Ok(STRING)
            }
            b'{' => self.object(out, depth + 1),
            b'[' => self.array(out, depth + 1),
            b'-' | b'0'..=b'9' => Ok(self.number(out)),
            b't' => self.pass(b"true").map(|()| boolean(true, out)),
            b'f' => self.pass(b"false").map(|()| boolean(false, out)),
            b'n' => self.pass(b"null").map(|()| NULL),
            _ => Err(Unfit::NotJson),
        }
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<u8, Unfit> {
        let start = self.open(out, depth)?;
        if self.peek()? == b'}' {
            self.at += 1;
            return close(out, start).map(|()| DOCUMENT);
        }
        loop {
            if self.peek()? != b'"' {
                return Err(Unfit::NotJson);
            }
            self.at += 1;
            let kind = out.len();
            out.push(0);
            self.string(out)?;
            if memchr::memchr(0, &out[kind + 1..]).is_some() {
                return Err(Unfit::NulInKey);
            }
            out.push(0);
            self.next(b':')?;
            out[kind] = self.value_at(out, depth)?;
            match self.either(b',', b'}')? {
                true => {}
                false => return close(out, start).map(|()| DOCUMENT),
            }
        }
    }

    fn array(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<u8, Unfit> {
        let start = self.open(out, depth)?;
        if self.peek()? == b']' {
            self.at += 1;
            return close(out, start).map(|()| ARRAY);
        }
        let mut index = 0_u32;
        loop {
            let kind = out.len();
            out.push(0);
            push_index(index, out);
            out[kind] = self.value_at(out, depth)?;
            index += 1;
            match self.either(b',', b']')? {
                true => {}
                false => return close(out, start).map(|()| ARRAY),
            }
        }
    }

    /// Steps over the bracket and leaves room for the length.
    fn open(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<usize, Unfit> {
        if depth > DEPTH_MAX {
            return Err(Unfit::TooDeep);
        }
        self.at += 1;
        out.extend_from_slice(&[0; 4]);
        Ok(out.len() - 4)
    }

    fn number(&mut self, out: &mut Vec<u8>) -> u8 {
        let rest = &self.text[self.at..];
        let in_number = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|b| !in_number(b)).unwrap_or(rest.len());
        let text = &rest[..len];
        self.at += len;
        let (number, exact) = number::read(text);
        self.exact &= exact;
        match number {
            Number::Int(whole) => {
                out.extend_from_slice(&whole.to_le_bytes());
                INT64
            }
            Number::Decimal(bytes) => {
                out.extend_from_slice(&bytes);
                DECIMAL128
            }
            Number::Neither => {
                push_string(text, out);
                STRING
            }
        }
    }

    /// Appends what is inside a string, without its escapes, and steps over the closing quote.
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Unfit> {
        loop {
            let rest = &self.text[self.at..];
            let len = rest.iter().position(|b| matches!(b, b'"' | b'\\')).ok_or(Unfit::NotJson)?;
            out.extend_from_slice(&rest[..len]);
            self.at += len + 1;
            if rest[len] == b'"' {
                return Ok(());
            }
            self.escape(out)?;
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), Unfit> {
        let plain = match self.take(1)?[0] {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 0x08,
            b'f' => 0x0c,
            same @ (b'"' | b'\\') => same,
            b'/' => {
                self.exact = false;
                b'/'
            }
            b'u' => return self.code(out),
            _ => return Err(Unfit::NotJson),
        };
        out.push(plain);
        Ok(())
    }

    /// `\uXXXX`, or two of them. Half of a pair has no UTF-8 and becomes U+FFFD; the text is kept beside it.
    fn code(&mut self, out: &mut Vec<u8>) -> Result<(), Unfit> {
        let digits = self.take(4)?;
        let unit = hex(digits)?;
        let is_needed = unit < 0x20 && !matches!(unit, 0x08 | 0x09 | 0x0a | 0x0c | 0x0d);
        self.exact &= is_needed && !digits.iter().any(u8::is_ascii_uppercase);
        let mut letter = char::from_u32(unit);
        if (0xd800..0xdc00).contains(&unit) && self.pass(b"\\u").is_ok() {
            let low = hex(self.take(4)?)?;
            if (0xdc00..0xe000).contains(&low) {
                letter = char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00));
            } else {
                // A letter of its own, after half a pair.
                self.at -= 6;
            }
        }
        let mut room = [0; 4];
        out.extend_from_slice(letter.unwrap_or('\u{fffd}').encode_utf8(&mut room).as_bytes());
        Ok(())
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Result<u8, Unfit> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Ok(*byte);
            }
            self.exact = false;
            self.at += 1;
        }
        Err(Unfit::NotJson)
    }

    fn next(&mut self, expected: u8) -> Result<(), Unfit> {
        let found = self.peek()?;
        self.at += 1;
        if found == expected { Ok(()) } else { Err(Unfit::NotJson) }
    }

    /// Whether the one comes next; the other must, if not.
    fn either(&mut self, one: u8, other: u8) -> Result<bool, Unfit> {
        let found = self.peek()?;
        self.at += 1;
        match found {
            f if f == one => Ok(true),
            f if f == other => Ok(false),
            _ => Err(Unfit::NotJson),
        }
    }
}

fn boolean(value: bool, out: &mut Vec<u8>) -> u8 {
    out.push(u8::from(value));
    BOOLEAN
}

fn hex(digits: &[u8]) -> Result<u32, Unfit> {
    let text = std::str::from_utf8(digits).map_err(|_| Unfit::NotJson)?;
    u32::from_str_radix(text, 16).map_err(|_| Unfit::NotJson)
}

/// The end of a document or array, and its length at its start.
pub(super) fn close(out: &mut Vec<u8>, start: usize) -> Result<(), Unfit> {
    out.push(0);
    let len = i32::try_from(out.len() - start).map_err(|_| Unfit::TooLarge)?;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// A BSON string of text that is at most a record long.
pub(super) fn push_string(text: &[u8], out: &mut Vec<u8>) {
    let len = i32::try_from(text.len() + 1).expect("a record is far smaller than 2 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text);
    out.push(0);
}

/// The key of an array's element: its number in digits.
pub(super) fn push_index(index: u32, out: &mut Vec<u8>) {
    if index < 10 {
        out.extend_from_slice(&[b'0' + index as u8, 0]);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
        out.push(0);
    }
}
