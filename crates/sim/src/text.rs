//! Small texts: JSON written as it goes, queries read, cursors, dates.

use std::borrow::Cow;
use std::fmt::{Display, Write};

/// JSON written member by member, in the order in which the venue sends them. Commas are put where they belong.
#[derive(Debug, Default)]
pub(crate) struct Json(String);

impl Json {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// `{`, `[` or what closes them, as it is.
    pub(crate) fn open(&mut self, bracket: char) -> &mut Self {
        self.comma();
        self.0.push(bracket);
        self
    }

    pub(crate) fn close(&mut self, bracket: char) -> &mut Self {
        self.0.push(bracket);
        self
    }

    /// A key; its value comes next.
    pub(crate) fn key(&mut self, key: &str) -> &mut Self {
        self.comma();
        let _ = write!(self.0, "\"{key}\":");
        self
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key).string(value)
    }

    /// A number, or anything else that is written as it stands.
    pub(crate) fn raw(&mut self, key: &str, value: impl Display) -> &mut Self {
        let _ = write!(self.key(key).0, "{value}");
        self
    }

    /// The same flag under each of these keys.
    pub(crate) fn flags(&mut self, keys: &[&str], value: bool) -> &mut Self {
        for key in keys {
            self.raw(key, value);
        }
        self
    }

    /// A string, as a value or an element.
    pub(crate) fn string(&mut self, value: &str) -> &mut Self {
        self.comma();
        self.0.push('"');
        for c in value.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                '\n' => self.0.push_str("\\n"),
                c if c < ' ' => drop(write!(self.0, "\\u{:04x}", u32::from(c))),
                c => self.0.push(c),
            }
        }
        self.0.push('"');
        self
    }

    /// JSON written elsewhere, as a value or an element.
    pub(crate) fn value(&mut self, json: &str) -> &mut Self {
        self.comma();
        self.0.push_str(json);
        self
    }

    pub(crate) fn done(&mut self) -> String {
        std::mem::take(&mut self.0)
    }

    fn comma(&mut self) {
        if !matches!(self.0.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(',');
        }
    }
}

/// `{"key":"value"}`
pub(crate) fn pair(key: &str, value: &str) -> String {
    Json::default().open('{').text(key, value).close('}').done()
}

/// What stands behind the question mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a>(pub(crate) &'a str);

impl<'a> Query<'a> {
    pub(crate) fn all(self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        let pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(move |(key, _)| *key == name).map(|(_, value)| unescape(value))
    }

    pub(crate) fn get(self, name: &'a str) -> Option<Cow<'a, str>> {
        self.all(name).next()
    }

    /// `None` if it is absent, `Some(Err)` if it is no number.
    pub(crate) fn number(self, name: &'a str) -> Option<Result<usize, ()>> {
        self.get(name).map(|text| text.parse().map_err(|_| ()))
    }

    pub(crate) fn flag(self, name: &'a str) -> Option<bool> {
        self.get(name).and_then(|text| text.parse().ok())
    }
}

/// `%3D` and `+` as what they stand for; a broken escape stays as it is.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (first, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &tail[2..];
                continue;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*first),
        }
        rest = tail;
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding; cursors are small and few, so three bytes at a time will do.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let [a, b, c] = [three[0], *three.get(1).unwrap_or(&0), *three.get(2).unwrap_or(&0)];
        let bits = u32::from_be_bytes([0, a, b, c]);
        for at in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// What [`base64`] has written, with or without its padding.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut bits = 0u32;
        for at in 0..4 {
            let digit = four.get(at).map_or(Some(0), |c| BASE64.iter().position(|d| d == c))?;
            bits = bits << 6 | digit as u32;
        }
        out.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(out)
}

/// A number in a cursor.
pub(crate) fn cursor_number(text: &str) -> Option<u64> {
    String::from_utf8(from_base64(text)?).ok()?.parse().ok()
}

/// `2026-07-31T12:00:00Z`
pub(crate) fn iso(ms: i64) -> String {
    timestamp(ms - ms.rem_euclid(1_000)).to_string()
}

/// `2026-07-31T12:00:00.000Z`
pub(crate) fn iso_ms(ms: i64) -> String {
    format!("{:.3}", timestamp(ms))
}

/// `2026-07-31T12:00:00.000000Z`
pub(crate) fn iso_us(ms: i64) -> String {
    format!("{:.6}", timestamp(ms))
}

/// `Jul 31, 2026`
pub(crate) fn day(ms: i64) -> String {
    jiff::fmt::strtime::format("%b %-d, %Y", civil(ms)).unwrap_or_default()
}

/// `Fri, 31 Jul 2026 12:00:00 GMT`, as HTTP has it.
pub(crate) fn http_date(ms: i64) -> String {
    jiff::fmt::strtime::format("%a, %d %b %Y %H:%M:%S GMT", civil(ms)).unwrap_or_default()
}

fn timestamp(ms: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default()
}

fn civil(ms: i64) -> jiff::civil::DateTime {
    jiff::tz::Offset::UTC.to_datetime(timestamp(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_its_commas_and_escapes() {
        let mut json = Json::default();
        json.open('{').text("a", "x\"\\\n\u{1}").raw("b", 1.5).key("c").open('[').string("d").string("e");
        json.close(']').key("f").open('{').close('}').flags(&["g"], true).close('}');
        let text = json.done();
        assert_eq!(text, r#"{"a":"x\"\\\n\u0001","b":1.5,"c":["d","e"],"f":{},"g":true}"#);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }

    #[test]
    fn cursors_come_back_as_they_went() {
        let check = |plain: &str, coded: &str| {
            assert_eq!(base64(plain.as_bytes()), coded);
            assert_eq!(from_base64(coded).unwrap(), plain.as_bytes());
            assert_eq!(from_base64(coded.trim_end_matches('=')).unwrap(), plain.as_bytes());
        };
        check("0", "MA==");
        check("100", "MTAw");
        check("-1", "LTE=");
        check("1000", "MTAwMA==");
        check("", "");
        assert_eq!(from_base64("!!"), None);
        assert_eq!(cursor_number("LTE="), None);
    }

    #[test]
    fn queries_are_read_with_their_escapes() {
        let query = Query("a=1&b=MA%3D%3D&a=2&c=x+y&d=%zz&e");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b").unwrap(), "MA==");
        assert_eq!(query.get("c").unwrap(), "x y");
        assert_eq!(query.get("d").unwrap(), "%zz");
        assert_eq!(query.get("e"), None);
        assert_eq!(query.number("a"), Some(Ok(1)));
        assert_eq!(query.number("c"), Some(Err(())));
    }

    #[test]
    fn dates_are_spelled_as_the_venues_spell_them() {
        let ms = 1_785_488_100_123;
        assert_eq!(iso(ms), "2026-07-31T08:55:00Z");
        assert_eq!(iso_ms(ms), "2026-07-31T08:55:00.123Z");
        assert_eq!(iso_us(ms), "2026-07-31T08:55:00.123000Z");
        assert_eq!(day(ms), "Jul 31, 2026");
        assert_eq!(http_date(ms), "Fri, 31 Jul 2026 08:55:00 GMT");
    }
}
