//! Reads what was given, field by field, and remembers what is wrong with which. A text is never anything but a text:
//! `{"$gt":""}` in its place is refused here, before a store can see it.

use std::ops::RangeInclusive;

use catchment_model::UnixMs;
use serde_json::{Map, Value};

use super::problem::{FieldError, Kind, Problem};

/// How much of a wrong value is shown to whoever sent it.
const SHOWN_MAX: usize = 80;
/// The last moment a store can name: the end of the year 9999.
pub(crate) const MS_MAX: u64 = 253_402_300_799_999;

/// The fields of a body, of an object within one, or of a query.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Where in the body it is, with the dot.
    path: String,
    given: Map<String, Value>,
    /// In a query everything is text.
    is_query: bool,
    errors: Vec<FieldError>,
}

impl Fields {
    /// Of a body.
    pub(crate) fn of_body(body: Value) -> Result<Self, Problem> {
        match body {
            Value::Object(given) => {
                Ok(Self { path: String::new(), given, is_query: false, errors: Vec::new() })
            }
            other => {
                Err(Problem::new(Kind::Invalid, format!("the body is {}, expected an object", kind(&other))))
            }
        }
    }

    /// Of what stands after the question mark.
    pub(crate) fn of_query(query: &str) -> Self {
        let mut fields = Self { path: String::new(), given: Map::new(), is_query: true, errors: Vec::new() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if fields.given.contains_key(&*name) {
                fields.refuse::<()>(&name, "is given twice");
            }
            fields.given.insert(name.into_owned(), Value::String(value.into_owned()));
        }
        fields
    }

    /// A text that `read` understands.
    pub(crate) fn text<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match self.take(name)? {
            Value::String(text) => match read(&text) {
                Ok(value) => Some(value),
                Err(reason) => self.refuse(name, reason),
            },
            other => self.refuse(name, format!("is {}, expected a text", kind(&other))),
        }
    }

    /// One of these words.
    pub(crate) fn word<T: Copy, const N: usize>(
        &mut self,
        name: &str,
        all: [T; N],
        spelt: fn(T) -> &'static str,
    ) -> Option<T> {
        self.text(name, |text| {
            let found = all.into_iter().find(|one| spelt(*one) == text);
            found.ok_or_else(|| format!("is {}; there is {}", shown(text), all.map(spelt).join(", ")))
        })
    }

    /// A whole number within a range.
    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let given = self.take(name)?;
        let number = match &given {
            Value::String(text) if self.is_query => digits(text),
            Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Some(number),
            _ => {
                let (min, max) = (range.start(), range.end());
                let is = match &given {
                    Value::Number(number) => cut(&number.to_string()),
                    Value::String(text) if self.is_query => shown(text),
                    other => kind(other).to_owned(),
                };
                self.refuse(name, format!("is {is}; it must be a whole number from {min} to {max}"))
            }
        }
    }

    /// A moment, in milliseconds since 1970.
    pub(crate) fn moment(&mut self, name: &str) -> Option<UnixMs> {
        let ms = self.number(name, 0..=MS_MAX)?;
        i64::try_from(ms).ok().and_then(|ms| UnixMs::new(ms).ok())
    }

    /// An object within this one.
    pub(crate) fn object(&mut self, name: &str) -> Option<Fields> {
        match self.take(name)? {
            Value::Object(given) => {
                let path = format!("{}{name}.", self.path);
                Some(Fields { path, given, is_query: false, errors: Vec::new() })
            }
            other => self.refuse(name, format!("is {}, expected an object", kind(&other))),
        }
    }

    /// The object was read; what is wrong in it is wrong here.
    pub(crate) fn close(&mut self, inner: Fields, read_only: &[&str]) {
        self.errors.extend(inner.leftovers(read_only));
    }

    /// Says what is wrong with a field. There is no value then.
    pub(crate) fn refuse<T>(&mut self, name: &str, detail: impl Into<String>) -> Option<T> {
        self.errors.push(FieldError { field: format!("{}{name}", self.path), detail: detail.into() });
        None
    }

    /// It must be there. Where it was refused already, that is enough.
    pub(crate) fn needs<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        let field = format!("{}{name}", self.path);
        if value.is_none() && self.errors.iter().all(|error| error.field != field) {
            return self.refuse(name, "is missing");
        }
        value
    }

    /// Everything was read. What is left is read-only, or unknown.
    pub(crate) fn end(self, read_only: &[&str]) -> Result<(), Problem> {
        let errors = self.leftovers(read_only);
        if errors.is_empty() { Ok(()) } else { Err(Problem::fields(errors)) }
    }

    fn leftovers(mut self, read_only: &[&str]) -> Vec<FieldError> {
        for name in std::mem::take(&mut self.given).keys() {
            let known = read_only.contains(&name.as_str());
            let detail = if known { "is read-only; leave it out" } else { "is unknown" };
            self.refuse::<()>(&cut(name), detail);
        }
        self.errors
    }

    /// What was given; null is nothing.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.given.remove(name).filter(|value| !value.is_null())
    }
}

/// A query of what is given.
pub fn query(given: &[(&str, Option<String>)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in given {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

/// A text as it is shown to whoever sent it: in quotes, and not too much of it.
pub(crate) fn shown(text: &str) -> String {
    format!("{:?}", cut(text))
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

/// What it is, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Digits and nothing else.
fn digits(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok()).flatten()
}

/// `1.0` is a whole number, too; larger ones than 2^53 are not exact.
fn whole(number: f64) -> Option<u64> {
    let is_exact = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    is_exact.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrong(result: Result<(), Problem>) -> Vec<String> {
        result.unwrap_err().errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once_and_by_its_name() {
        let body = json!({ "a": {"$gt": ""}, "b": -1, "c": {"d": "x", "e": 1}, "lock": {}, "zz": 1 });
        let mut fields = Fields::of_body(body).unwrap();
        assert_eq!(fields.text("a", |text| Ok(text.to_owned())), None);
        assert_eq!(fields.number("b", 1..=9), None);
        let mut inner = fields.object("c").unwrap();
        assert_eq!(inner.number("d", 0..=1), None);
        fields.close(inner, &[]);
        let none = fields.number("f", 0..=1);
        assert_eq!(fields.needs("f", none), None);
        assert_eq!(
            wrong(fields.end(&["lock"])),
            [
                "a is an object, expected a text",
                "b is -1; it must be a whole number from 1 to 9",
                "c.d is a text; it must be a whole number from 0 to 1",
                "c.e is unknown",
                "f is missing",
                "lock is read-only; leave it out",
                "zz is unknown",
            ]
        );
    }

    #[test]
    fn a_query_is_text_and_says_each_thing_once() {
        let mut fields = Fields::of_query("limit=10&after=&limit=11&since_ms=%2B5&x%5B%24gt%5D=1");
        assert_eq!(fields.number("limit", 1..=1_000), Some(11));
        assert_eq!(fields.number("since_ms", 0..=9), None);
        assert_eq!(fields.text("after", |text| Ok(text.len())), Some(0));
        assert_eq!(
            wrong(fields.end(&[])),
            [
                "limit is given twice",
                "since_ms is \"+5\"; it must be a whole number from 0 to 9",
                "x[$gt] is unknown"
            ]
        );
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point() {
        let mut fields =
            Fields::of_body(json!({ "a": 2.0, "b": 2.5, "c": 1e300, "d": true, "e": null })).unwrap();
        assert_eq!(fields.number("a", 0..=9), Some(2));
        for name in ["b", "c", "d", "e"] {
            assert_eq!(fields.number(name, 0..=9), None, "{name}");
        }
        assert_eq!(wrong(fields.end(&[])).len(), 3);
    }
}
