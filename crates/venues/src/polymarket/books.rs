//! Polymarket's books: the general reader, and the fast way for what the scanner takes.

use catchment_model::{Book, BookFlags, Decimal, Level, UnixMs};
use serde_json::value::RawValue;

use super::hash::{BookHash, hash_around};
use super::scan::{FixedBook, FixedLevel};
use crate::book_page::{BookFacts, Matcher};
use crate::record::{self, Fields};
use crate::wire::{self, Members};
use crate::{BookForm, BookPage, ReadError};

/// Reads the answer of `POST /books` (an array) or of `GET /book` (one book).
pub(super) fn read(keys: &[&str], body: &[u8], page: &mut BookPage) -> Result<(), ReadError> {
    read_with(keys, body, page, true)
}

/// Without the scanner the result is the same and takes longer; tests hold the one against the other.
pub(super) fn read_with(
    keys: &[&str],
    body: &[u8],
    page: &mut BookPage,
    scanner: bool,
) -> Result<(), ReadError> {
    page.clear();
    let mut reader = Reader { body, page, matcher: Matcher::new(keys), fixed: FixedBook::default(), scanner };
    match reader.run() {
        Ok(()) => page.close(keys.len()),
        Err(error) => {
            page.clear();
            return Err(error);
        }
    }
    Ok(())
}

struct Reader<'a> {
    body: &'a [u8],
    page: &'a mut BookPage,
    matcher: Matcher<'a>,
    fixed: FixedBook,
    scanner: bool,
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), ReadError> {
        let mut at = self.skip_space(0);
        if self.body.get(at) != Some(&b'[') {
            wire::object(self.body)?;
            at = self.book(at)?;
            return self.end(at);
        }
        at = self.skip_space(at + 1);
        if self.body.get(at) == Some(&b']') {
            return self.end(at + 1);
        }
        loop {
            at = self.book(at)?;
            at = self.skip_space(at);
            match self.body.get(at) {
                Some(b',') => at = self.skip_space(at + 1),
                Some(b']') => return self.end(at + 1),
                _ => return Err(self.broken()),
            }
        }
    }

    /// Reads the value that begins here and gives the place after it.
    fn book(&mut self, at: usize) -> Result<usize, ReadError> {
        if self.scanner && self.fixed.scan(self.body, at).is_some() && self.record_fixed() {
            return Ok(self.fixed.whole.end);
        }
        let mut values = serde_json::Deserializer::from_slice(&self.body[at..]).into_iter::<&RawValue>();
        let Some(Ok(raw)) = values.next() else { return Err(self.broken()) };
        let end = at + values.byte_offset();
        self.record(raw)?;
        Ok(end)
    }

    /// Records a scanned book, if its hash agrees; if not, the general reader says so with all that belongs to it.
    fn record_fixed(&mut self) -> bool {
        let (body, fixed) = (self.body, &self.fixed);
        let hash_ok = (!self.page.trust_hashes).then(|| {
            let (before, after) = (fixed.whole.start..fixed.hash.start, fixed.hash.end..fixed.whole.end);
            body[fixed.hash.clone()] == hash_around(&body[before], &body[after]).as_bytes()[..]
        });
        if hash_ok == Some(false) {
            return false;
        }
        let key = std::str::from_utf8(&body[fixed.asset_id.clone()]).expect("the scanner takes only ASCII");
        let Some(asked) = self.matcher.find(key) else { return false };
        let start = self.page.bytes.len();
        match self.page.form {
            BookForm::AsSent => self.page.bytes.extend_from_slice(&body[fixed.whole.clone()]),
            BookForm::Normalised => write_fixed(body, fixed, hash_ok, &mut self.page.bytes),
        }
        let server_time = UnixMs::new(fixed.timestamp_ms).ok();
        let facts = BookFacts { server_time, flags: BookFlags::default(), hash_ok };
        self.page.add(asked, start, facts);
        true
    }

    fn record(&mut self, raw: &RawValue) -> Result<(), ReadError> {
        let members: Members<'_> = match serde_json::from_str(raw.get()) {
            Ok(members) => members,
            Err(error) => {
                self.page.refuse(None, error.to_string(), raw.get());
                return Ok(());
            }
        };
        if let (None, Some(said)) = (members.get("asset_id"), members.text("error")) {
            return Err(ReadError::Said(wire::shortened(&said)));
        }
        let key = members.required("asset_id");
        let asked = key.as_ref().ok().and_then(|key| self.matcher.find(key));
        let book = key.and_then(|key| match asked {
            Some(_) => WireBook::read(&members, !self.page.trust_hashes),
            None => Err(format!("{} was not asked for", wire::shortened(&key))),
        });
        let (book, asked) = match (book, asked) {
            (Ok(book), Some(asked)) => (book, asked),
            (Err(reason), asked) => {
                self.page.refuse(asked, reason, raw.get());
                return Ok(());
            }
            (Ok(_), None) => unreachable!("what was not asked for is an error above"),
        };
        let start = self.page.bytes.len();
        let facts = book.facts();
        match self.page.form {
            BookForm::AsSent => wire::push_on_one_line(raw.get().as_bytes(), &mut self.page.bytes),
            BookForm::Normalised => book.write(&members, raw, &facts, &mut self.page.bytes),
        }
        self.page.add(asked, start, facts);
        Ok(())
    }

    fn skip_space(&self, from: usize) -> usize {
        let rest = self.body.get(from..).unwrap_or_default();
        let space = rest.iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
        from + space
    }

    fn end(&self, at: usize) -> Result<(), ReadError> {
        if self.skip_space(at) == self.body.len() { Ok(()) } else { Err(self.broken()) }
    }

    /// What is wrong with the body, in the general reader's words.
    fn broken(&self) -> ReadError {
        match serde_json::from_slice::<&RawValue>(self.body) {
            Err(error) => ReadError::not_json(self.body, error),
            Ok(_) => ReadError::Shape("the elements are not books".to_owned()),
        }
    }
}

/// A book as the general reader sees it.
struct WireBook {
    book: Book,
    flags: BookFlags,
    server_time: Option<UnixMs>,
    hash_ok: Option<bool>,
    levels_have_more: bool,
}

/// The keys that have a place in the record or are answered for otherwise.
const KNOWN: [&str; 10] = [
    "market",
    "asset_id",
    "timestamp",
    "hash",
    "bids",
    "asks",
    "min_order_size",
    "tick_size",
    "neg_risk",
    "last_trade_price",
];

impl WireBook {
    fn read(members: &Members<'_>, check: bool) -> Result<Self, String> {
        let known = &["price", "size"];
        let (bids, more_bids) = wire::levels(members.get("bids"), "bids", known)?;
        let (asks, more_asks) = wire::levels(members.get("asks"), "asks", known)?;
        let hash_ok = if check { check_hash(members, &bids, &asks) } else { None };
        let one: Decimal = "1".parse().expect("a fixed number");
        let (book, mut flags) = Book::arrange(bids, asks, Some(&one));
        let server_time = match members.some("timestamp") {
            None => None,
            Some(raw) => {
                let time = wire::text(raw).and_then(|text| wire::digits(&text)).map(UnixMs::new);
                if !matches!(time, Some(Ok(_))) {
                    flags |= BookFlags::TIME;
                }
                time.and_then(Result::ok)
            }
        };
        Ok(Self { book, flags, server_time, hash_ok, levels_have_more: more_bids || more_asks })
    }

    fn facts(&self) -> BookFacts {
        BookFacts { server_time: self.server_time, flags: self.flags, hash_ok: self.hash_ok }
    }

    fn write(&self, members: &Members<'_>, raw: &RawValue, facts: &BookFacts, out: &mut Vec<u8>) {
        let keep_raw = !self.flags.is_empty() || self.hash_ok == Some(false) || self.levels_have_more;
        let fields = Fields {
            market: members.get("market"),
            instrument: members.get("asset_id"),
            min_order_size: members.get("min_order_size"),
            tick_size: members.get("tick_size"),
            neg_risk: members.flag("neg_risk"),
            last_trade_price: members.get("last_trade_price"),
            hash: members.get("hash"),
            extra: members.others(&KNOWN).collect(),
            raw: keep_raw.then_some(raw),
        };
        record::write(out, &self.book, facts, &fields);
    }
}

/// Makes the hash anew from the texts as sent and holds it against the book's own. `None` if a part is missing.
fn check_hash(members: &Members<'_>, bids: &[Level], asks: &[Level]) -> Option<bool> {
    let claimed = members.text("hash").filter(|hash| !hash.is_empty())?;
    let mut text = String::new();
    for key in KNOWN {
        text.push_str(if text.is_empty() { "{\"" } else { ",\"" });
        text.push_str(key);
        text.push_str("\":");
        match key {
            "hash" => text.push_str("\"\""),
            "bids" => push_levels(&mut text, bids),
            "asks" => push_levels(&mut text, asks),
            _ => text.push_str(members.get(key)?.get()),
        }
    }
    text.push('}');
    let made: BookHash = hash_around(text.as_bytes(), b"");
    Some(made.as_str() == claimed)
}

fn push_levels(text: &mut String, levels: &[Level]) {
    text.push('[');
    for (at, level) in levels.iter().enumerate() {
        let (price, size) = (level.price.as_str(), level.size.as_str());
        let comma = if at == 0 { "" } else { "," };
        text.extend([comma, "{\"price\":\"", price, "\",\"size\":\"", size, "\"}"]);
    }
    text.push(']');
}

/// The record of a book that is in order, from the places the scanner has noted. The same bytes as
/// [`record::write`] makes, at a fraction of the cost.
fn write_fixed(body: &[u8], book: &FixedBook, hash_ok: Option<bool>, out: &mut Vec<u8>) {
    let start = out.len();
    // A level takes 20 bytes less than the venue's, the rest at most this much more.
    out.resize(start + book.whole.len() + 192, 0);
    let mut pen = Pen { out: &mut out[start..], at: 0 };
    pen.put(b"{\"market\":\"");
    pen.put(&body[book.market.clone()]);
    pen.put(b"\",\"instrument\":\"");
    pen.put(&body[book.asset_id.clone()]);
    pen.put(b"\",\"timestamp_ms\":");
    pen.put(&body[book.timestamp.clone()]);
    pen.put(b",\"bids\":[");
    pen.levels(body, &book.bids);
    pen.put(b"],\"asks\":[");
    pen.levels(body, &book.asks);
    pen.put(b"],");
    pen.put(&body[book.terms.clone()]);
    pen.put(b",\"hash\":\"");
    pen.put(&body[book.hash.clone()]);
    pen.put(b"\",\"hash_ok\":");
    pen.put(if hash_ok.is_some() { b"true" } else { b"null" });
    pen.put(b",\"flags\":[]}");
    let end = start + pen.at;
    out.truncate(end);
}

struct Pen<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Pen<'_> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Copies sixteen bytes of which only the first `len` count: one move instead of a call. What is too much is
    /// overwritten next.
    #[inline(always)]
    fn put_short(&mut self, body: &[u8], from: usize, len: usize) {
        let source: &[u8; 16] = body[from..].first_chunk().expect("a book's terms come after its levels");
        self.out[self.at..self.at + 16].copy_from_slice(source);
        self.at += len;
    }

    /// The levels from the last to the first: best first.
    fn levels(&mut self, body: &[u8], levels: &[FixedLevel]) {
        for level in levels.iter().rev() {
            let (price, size) = (level.price(), level.size());
            self.put(b"[\"");
            self.put_short(body, price.start, price.len());
            self.put(b"\",\"");
            self.put_short(body, size.start, size.len());
            self.put(b"\"],");
        }
        // The comma after the last one goes again.
        self.at -= usize::from(!levels.is_empty());
    }
}
