//! The fast way through `POST /books`: a scanner that knows the one spelling Polymarket uses.
//!
//! It takes compact JSON with the ten keys in the venue's order, plain texts, and amounts of at most 10 digits before
//! and 8 behind the point; it takes a book only if nothing about it is odd: levels strictly in the venue's order, prices
//! between 0 and 1, sizes above 0, not crossed. Whatever it refuses goes to the general reader (`books`), so it can
//! only be slower, never wrong. A fuzz test holds the two against each other.
//!
//! ```text
//! {"market":"0x…","asset_id":"…","timestamp":"1790000000000","hash":"cb5c…","bids":[{"price":"0.46","size":"1000"},…],
//!  "asks":[…],"min_order_size":"5","tick_size":"0.01","neg_risk":false,"last_trade_price":"0.480"}
//! ```

use std::ops::Range;

/// A level: its amounts in units of 10⁻⁸, and where its text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedLevel {
    /// The price.
    pub price_e8: i64,
    /// The size.
    pub size_e8: i64,
    price_at: u32,
    price_len: u8,
    size_len: u8,
}

impl FixedLevel {
    /// Where the price's digits are in the body.
    pub fn price(&self) -> Range<usize> {
        let at = self.price_at as usize;
        at..at + usize::from(self.price_len)
    }

    /// Where the size's digits are in the body.
    pub fn size(&self) -> Range<usize> {
        let at = self.price().end + BEFORE_SIZE.len();
        at..at + usize::from(self.size_len)
    }
}

/// A book that was scanned: its levels in the venue's order (best last), and where its parts are in the body. Used
/// again for the next book, so that the levels' memory stays.
#[derive(Debug, Default)]
pub struct FixedBook {
    /// Ascending.
    pub bids: Vec<FixedLevel>,
    /// Descending.
    pub asks: Vec<FixedLevel>,
    /// Milliseconds of the last change.
    pub timestamp_ms: i64,
    /// The whole book.
    pub whole: Range<usize>,
    /// The condition id, without quotes; likewise the next three.
    pub market: Range<usize>,
    /// The token id.
    pub asset_id: Range<usize>,
    /// The digits of the time.
    pub timestamp: Range<usize>,
    /// The hash.
    pub hash: Range<usize>,
    /// From the key `min_order_size` to the value of `last_trade_price`, keys and quotes included.
    pub terms: Range<usize>,
}

const BEFORE_PRICE: &[u8] = b"{\"price\":\"";
const BEFORE_SIZE: &[u8] = b"\",\"size\":\"";
const ONE_E8: i64 = 100_000_000;

impl FixedBook {
    /// Scans the book that begins at `start`. `None`: not in the one spelling, or odd; nothing is then to be relied on.
    pub fn scan(&mut self, body: &[u8], start: usize) -> Option<()> {
        let mut at = expect(body, start, b"{\"market\":\"")?;
        self.market = text(body, at)?;
        at = expect(body, self.market.end, b"\",\"asset_id\":\"")?;
        self.asset_id = text(body, at)?;
        at = expect(body, self.asset_id.end, b"\",\"timestamp\":\"")?;
        self.timestamp = text(body, at)?;
        self.timestamp_ms = milliseconds(&body[self.timestamp.clone()])?;
        at = expect(body, self.timestamp.end, b"\",\"hash\":\"")?;
        self.hash = text(body, at)?;
        at = expect(body, self.hash.end, b"\",\"bids\":[")?;
        at = side::<true>(body, at, &mut self.bids)?;
        at = expect(body, at, b",\"asks\":[")?;
        at = side::<false>(body, at, &mut self.asks)?;
        self.terms.start = at + 1;
        at = expect(body, at, b",\"min_order_size\":\"")?;
        at = expect(body, text(body, at)?.end, b"\",\"tick_size\":\"")?;
        at = expect(body, text(body, at)?.end, b"\",\"neg_risk\":")?;
        at = expect(body, at, b"false").or_else(|| expect(body, at, b"true"))?;
        at = expect(body, at, b",\"last_trade_price\":\"")?;
        self.terms.end = text(body, at)?.end + 1;
        let end = expect(body, self.terms.end - 1, b"\"}")?;
        self.whole = start..end;
        let crossed = match (self.bids.last(), self.asks.last()) {
            (Some(bid), Some(ask)) => bid.price_e8 >= ask.price_e8,
            _ => false,
        };
        (!crossed).then_some(())
    }
}

/// Scans a whole answer and hands each book on. `false`: the scanner refuses it, whatever was handed on before.
pub fn scan_books(body: &[u8], book: &mut FixedBook, mut each: impl FnMut(&FixedBook)) -> bool {
    if body == b"[]" {
        return true;
    }
    if body.first() != Some(&b'[') {
        return false;
    }
    let mut at = 1;
    loop {
        if book.scan(body, at).is_none() {
            return false;
        }
        each(book);
        at = book.whole.end + 1;
        match body.get(at - 1) {
            Some(b',') => {}
            Some(b']') => return at == body.len(),
            _ => return false,
        }
    }
}

/// The place after `what`, if that is what stands at `at`.
#[inline(always)]
fn expect(body: &[u8], at: usize, what: &[u8]) -> Option<usize> {
    let end = at + what.len();
    (body.get(at..end)? == what).then_some(end)
}

/// A text up to its closing quote: ASCII that prints, no escapes.
#[inline]
fn text(body: &[u8], at: usize) -> Option<Range<usize>> {
    let rest = body.get(at..)?;
    let len = memchr::memchr(b'"', &rest[..rest.len().min(256)])?;
    let odd = rest[..len].iter().fold(false, |odd, b| odd | !(0x20..0x7f).contains(b) | (*b == b'\\'));
    (!odd).then_some(at..at + len)
}

/// A time in milliseconds as JSON would write the number: no sign, no leading zero, up to the year 9999.
fn milliseconds(digits: &[u8]) -> Option<i64> {
    if !(1..=15).contains(&digits.len()) || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let ms =
        digits.iter().try_fold(0_i64, |ms, b| b.is_ascii_digit().then(|| ms * 10 + i64::from(b - b'0')))?;
    (ms <= 253_402_300_799_999).then_some(ms)
}

/// The levels of a side, from after its `[` to after its `]`: strictly ascending, or strictly descending.
#[inline]
fn side<const ASCENDING: bool>(body: &[u8], start: usize, levels: &mut Vec<FixedLevel>) -> Option<usize> {
    levels.clear();
    if body.get(start) == Some(&b']') {
        return Some(start + 1);
    }
    // Prices must lie between these two, and each level closes the gap from one side.
    let (mut above, mut below) = (0, ONE_E8);
    let mut at = start;
    loop {
        let price_at = expect(body, at, BEFORE_PRICE)?;
        let (price_e8, price_len) = short_amount(body, price_at)?;
        let size_at = expect(body, price_at + price_len, BEFORE_SIZE)?;
        let (size_e8, size_len) = amount(body, size_at)?;
        if price_e8 <= above || price_e8 >= below || size_e8 == 0 {
            return None;
        }
        *(if ASCENDING { &mut above } else { &mut below }) = price_e8;
        levels.push(FixedLevel {
            price_e8,
            size_e8,
            price_at: u32::try_from(price_at).ok()?,
            price_len: price_len as u8,
            size_len: size_len as u8,
        });
        at = size_at + size_len + 3;
        match body.get(at - 3..at)? {
            b"\"}," => {}
            b"\"}]" => return Some(at),
            _ => return None,
        }
    }
}

/// An amount of at most 7 characters before its closing quote, eight bytes at a time; longer ones go the longer way.
#[inline(always)]
fn short_amount(body: &[u8], at: usize) -> Option<(i64, usize)> {
    const QUOTES: u64 = u64::from_ne_bytes([b'"'; 8]);
    const DOTS: u64 = u64::from_ne_bytes([b'.'; 8]);
    const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);
    let word = u64::from_le_bytes(*body.get(at..)?.first_chunk()?);
    let len = (zero_bytes(word ^ QUOTES).trailing_zeros() / 8) as usize;
    if len == 8 {
        return amount(body, at);
    }
    let dots = zero_bytes(word ^ DOTS) & below(8 * len as u32);
    let has_dot = usize::from(dots != 0);
    let whole = if dots == 0 { len } else { (dots.trailing_zeros() / 8) as usize };
    let fraction = len - whole - has_dot;
    if whole == 0 || (has_dot == 1 && fraction == 0) {
        return None;
    }
    // Close the hole that the point leaves, then push the digits to the high end and fill up with zeros before them.
    let digits = (word & below(8 * whole as u32)) | ((word >> (8 * has_dot)) & !below(8 * whole as u32));
    let pad = 8 * (8 - (len - has_dot)) as u32;
    let aligned = (digits << pad) | (ZEROS & below(pad));
    let value = eight_digits(aligned)?;
    Some((value * POWERS[8 - fraction], len))
}

/// An amount of at most 15 characters before its closing quote, sixteen bytes at a time.
#[inline(always)]
fn amount(body: &[u8], at: usize) -> Option<(i64, usize)> {
    const QUOTES: u128 = u128::from_ne_bytes([b'"'; 16]);
    const DOTS: u128 = u128::from_ne_bytes([b'.'; 16]);
    const ZEROS: u128 = u128::from_ne_bytes([b'0'; 16]);
    let word = u128::from_le_bytes(*body.get(at..)?.first_chunk()?);
    let len = (zero_bytes_16(word ^ QUOTES).trailing_zeros() / 8) as usize;
    if len == 16 {
        return None;
    }
    let dots = zero_bytes_16(word ^ DOTS) & below_16(8 * len as u32);
    let has_dot = usize::from(dots != 0);
    let whole = if dots == 0 { len } else { (dots.trailing_zeros() / 8) as usize };
    let fraction = len - whole - has_dot;
    if whole == 0 || whole > 10 || fraction > 8 || (has_dot == 1 && fraction == 0) {
        return None;
    }
    let digits =
        (word & below_16(8 * whole as u32)) | ((word >> (8 * has_dot)) & !below_16(8 * whole as u32));
    let pad = 8 * (16 - (len - has_dot)) as u32;
    let aligned = (digits << pad) | (ZEROS & below_16(pad));
    let value = eight_digits(aligned as u64)? * ONE_E8 + eight_digits((aligned >> 64) as u64)?;
    // At most 10 digits before the point and 8 behind it: below 10^18.
    Some((value * POWERS[8 - fraction], len))
}

const POWERS: [i64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Marks the high bit of the lowest byte that is zero; bytes above it may be marked wrongly.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

#[inline(always)]
fn zero_bytes_16(word: u128) -> u128 {
    word.wrapping_sub(0x0101_0101_0101_0101_0101_0101_0101_0101)
        & !word
        & 0x8080_8080_8080_8080_8080_8080_8080_8080
}

/// As many low bits as said, fewer than 64.
#[inline(always)]
fn below(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[inline(always)]
fn below_16(bits: u32) -> u128 {
    (1 << bits) - 1
}

/// Eight ASCII digits, the first in the lowest byte.
#[inline(always)]
fn eight_digits(ascii: u64) -> Option<i64> {
    let digits = ascii ^ 0x3030_3030_3030_3030;
    if (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some(((fours * 10_000 + (fours >> 32)) & 0xffff_ffff) as i64)
}
