//! The fast way through `POST /books`: a scanner that knows the one spelling Polymarket uses.
//!
//! It takes compact JSON with the ten keys in the venue's order, plain texts, and amounts of at most 8 digits before
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

/// Up to the point: a price is between 0 and 1, or else odd.
const BEFORE_PRICE: &[u8; 12] = b"{\"price\":\"0.";
const BEFORE_SIZE: &[u8; 10] = b"\",\"size\":\"";
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
        // A level is followed by the book's terms, so there are always bytes enough to look at; if not, it is cut off.
        let window: &[u8; WINDOW] = body.get(at..)?.first_chunk()?;
        let decimals = starts_with(window, BEFORE_PRICE)?;
        let decimals = Digits::at(decimals, 0);
        let price_e8 = eight_digits(decimals.values & decimals.mask);
        // What comes after the decimals is looked at next, and is nothing but a quote.
        let size_from = at + BEFORE_PRICE.len() + decimals.count;
        let window: &[u8; WINDOW] = body.get(size_from..)?.first_chunk()?;
        let size = starts_with(window, BEFORE_SIZE)?;
        let (size_e8, size_len) = amount(size)?;
        if price_e8 <= above || price_e8 >= below || size_e8 == 0 {
            return None;
        }
        *(if ASCENDING { &mut above } else { &mut below }) = price_e8;
        levels.push(FixedLevel {
            price_e8,
            size_e8,
            price_at: u32::try_from(at + BEFORE_PRICE.len() - "0.".len()).ok()?,
            price_len: ("0.".len() + decimals.count) as u8,
            size_len: size_len as u8,
        });
        let close = BEFORE_SIZE.len() + size_len;
        at = size_from + close + 3;
        match window.get(close..close + 3)? {
            b"\"}," => {}
            b"\"}]" => return Some(at),
            _ => return None,
        }
    }
}

/// What is looked at together: an introduction of 10 bytes, an amount of at most 17, and what closes a level.
const WINDOW: usize = 32;
/// What of it comes after the longest introduction.
const REST: usize = WINDOW - BEFORE_PRICE.len();

/// What comes after the introduction, if that is what stands first.
#[inline(always)]
fn starts_with<'a, const N: usize>(
    window: &'a [u8; WINDOW],
    introduction: &[u8; N],
) -> Option<&'a [u8; REST]> {
    let (first, rest) = window.split_first_chunk::<N>()?;
    (first == introduction).then_some(rest.first_chunk()?)
}

/// An amount of at most 8 digits before the point and 8 behind it, and how long it is up to its closing quote; eight
/// bytes at a time. The length is found first and by itself: the next amount begins after it, so the processor can go
/// on there while this one is still being made into a number.
#[inline(always)]
fn amount(bytes: &[u8; REST]) -> Option<(i64, usize)> {
    let len = quote_in(bytes)?;
    let whole = Digits::at(bytes, 0);
    let has_point = bytes[whole.count] == b'.';
    let fraction_at = whole.count + usize::from(has_point);
    let fraction = Digits::at(bytes, fraction_at);
    // With no point the second look begins where the first one ended: at the quote, or else it is no amount.
    let sound =
        (whole.count != 0) & (has_point == (fraction.count != 0)) & (fraction_at + fraction.count == len);
    if !sound {
        return None;
    }
    let pad = 64 - 8 * whole.count as u32;
    let value = eight_digits(whole.values << pad) * ONE_E8 + eight_digits(fraction.values & fraction.mask);
    Some((value, len))
}

/// Where the first quote is, within sixteen bytes.
#[inline(always)]
fn quote_in(bytes: &[u8; REST]) -> Option<usize> {
    let word = |from: usize| {
        let chunk: &[u8; 8] = bytes[from..].first_chunk().expect("sixteen bytes of 20");
        let zero_at_quotes = u64::from_le_bytes(*chunk) ^ u64::from_ne_bytes([b'"'; 8]);
        // The high bit of every byte that is a quote; a borrow can only spoil bytes above the first of them.
        zero_at_quotes.wrapping_sub(0x0101_0101_0101_0101) & !zero_at_quotes & 0x8080_8080_8080_8080
    };
    let (low, high) = (word(0), word(8));
    match (low, high) {
        (0, 0) => None,
        (0, high) => Some(8 + (high.trailing_zeros() / 8) as usize),
        (low, _) => Some((low.trailing_zeros() / 8) as usize),
    }
}

/// Up to eight digits in a row: their values, first one lowest, and how many of them there are.
struct Digits {
    values: u64,
    /// All bits of the bytes that are digits.
    mask: u64,
    count: usize,
}

impl Digits {
    #[inline(always)]
    fn at(bytes: &[u8; REST], from: usize) -> Self {
        let chunk: &[u8; 8] = bytes[from..].first_chunk().expect("at most nine bytes in, of 20");
        let values = u64::from_le_bytes(*chunk) ^ 0x3030_3030_3030_3030;
        // The high bit of every byte that is no digit; a carry can only spoil bytes above the first of them.
        let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
        let first = others >> 7;
        Self { values, mask: first.wrapping_sub(1) & !first, count: (others.trailing_zeros() / 8) as usize }
    }
}

/// The number that eight digits make, each a byte from 0 to 9, the first in the lowest.
#[inline(always)]
fn eight_digits(digits: u64) -> i64 {
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    ((fours * 10_000 + (fours >> 32)) & 0xffff_ffff) as i64
}
