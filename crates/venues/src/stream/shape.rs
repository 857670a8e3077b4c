//! The shapes of the frames that came last. Frames of one kind have the same keys in the same order with the same
//! punctuation, and differ in their values only: what stands between two values is then compared at once, and no key is
//! looked for.
//!
//! A shape is learned from a frame that the walk has taken. A frame that fits it is what the walk would have taken, with
//! the same values in the same places; one that does not fit is walked. Of arrays in which something is looked for
//! nothing is learned.

use super::found::{Found, Place, Slot};
use super::paths::Paths;
use super::scan::{Scanned, levels_end, string_end, value_end, whole_number_end};
use crate::mould::{Mould, Two};

/// So many shapes are remembered: a socket carries a few kinds of frames.
const SHAPES: usize = 4;
/// A frame with more values than this has no shape.
const STEPS_MAX: usize = 40;
/// Nor has one with more between them.
const BETWEEN_MAX: usize = 1 << 10;
/// Between two lessons that came to nothing lie at most so many frames.
const WAIT_MAX: u32 = 4_096;

/// The shapes of one socket's frames.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: Vec<Shape>,
    /// The one that fitted last.
    last: usize,
    /// The one to be forgotten next.
    oldest: usize,
    /// Frames that fit none before the next lesson, and how many those were the last time.
    wait: u32,
    next_wait: u32,
    /// How the levels of books are spelled.
    moulds: Two<Mould>,
}

/// A frame without its values.
#[derive(Debug, Default)]
pub(super) struct Shape {
    steps: Vec<Step>,
    /// What stands behind the last value.
    end: Between,
}

/// What stands before a value, and the value.
#[derive(Debug)]
struct Step {
    before: Between,
    kind: Kind,
    slot: Option<Slot>,
    depth: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    /// `true`, `false` or `null`.
    Word,
    Array,
    Object,
}

impl Kind {
    fn of(first: u8) -> Option<Self> {
        Some(match first {
            b'"' => Self::Text,
            b'-' | b'0'..=b'9' => Self::Number,
            b't' | b'f' | b'n' => Self::Word,
            b'[' => Self::Array,
            b'{' => Self::Object,
            _ => return None,
        })
    }
}

/// So many of the bytes between two values are compared at once: most often that is all of them.
const FIRST: usize = 16;

/// Bytes between two values.
#[derive(Debug, Default)]
struct Between {
    /// The first of them, and which of their bits count.
    first: u128,
    mask: u128,
    text: Box<[u8]>,
}

impl Between {
    fn new(text: &[u8]) -> Self {
        let mut first = [0; FIRST];
        let len = text.len().min(FIRST);
        first[..len].copy_from_slice(&text[..len]);
        let mask = if len == FIRST { u128::MAX } else { (1 << (8 * len)) - 1 };
        Self { first: u128::from_le_bytes(first), mask, text: text.into() }
    }

    /// The byte after it, if it stands there.
    #[inline(always)]
    fn skip(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let (rest, len) = (bytes.get(at..)?, self.text.len());
        match rest.first_chunk() {
            Some(first) => {
                let same = u128::from_le_bytes(*first) & self.mask == self.first;
                let same = same && (len <= FIRST || rest.get(FIRST..len) == self.text.get(FIRST..));
                same.then_some(at + len)
            }
            None => rest.starts_with(&self.text).then_some(at + len),
        }
    }
}

impl Shape {
    /// The byte after the value that begins at `at`, if it is of this shape; then `found` is what a walk would have found.
    #[inline]
    fn fit(&self, bytes: &[u8], mut at: usize, found: &mut Found, moulds: &mut Two<Mould>) -> Option<usize> {
        found.clear();
        for step in &self.steps {
            let start = step.before.skip(bytes, at)?;
            at = match (step.kind, bytes.get(start)?) {
                (Kind::Text, b'"') => match string_end(bytes, start + 1) {
                    Ok((quote, false)) => quote + 1,
                    _ => return None,
                },
                (Kind::Number, b'-' | b'0'..=b'9') => whole_number_end(bytes, start).ok()?,
                (Kind::Array, b'[') => match levels_end(bytes, start, step.depth, moulds) {
                    Some(end) => end,
                    None => value_end(bytes, start, step.depth).ok()?,
                },
                (Kind::Word, b't' | b'f' | b'n') | (Kind::Object, b'{') => {
                    value_end(bytes, start, step.depth).ok()?
                }
                // Of another kind: something may be looked for in it.
                _ => return None,
            };
            if let Some(slot) = step.slot {
                found.set(slot, Place { start: start as u32, end: at as u32, escaped: false });
            }
        }
        self.end.skip(bytes, at)
    }

    /// Notes a value that stands at `start..end`, `done` being where the one before it ended. False: it is too much.
    pub(super) fn note(
        &mut self,
        bytes: &[u8],
        (done, start): (usize, usize),
        slot: Option<Slot>,
        depth: u32,
    ) -> bool {
        let Some(kind) = bytes.get(start).and_then(|first| Kind::of(*first)) else { return false };
        let Some(before) = bytes.get(done..start).filter(|before| before.len() <= BETWEEN_MAX) else {
            return false;
        };
        self.steps.push(Step { before: Between::new(before), kind, slot, depth });
        self.steps.len() <= STEPS_MAX
    }

    /// Notes what stands behind the last value.
    pub(super) fn finish(&mut self, rest: &[u8]) {
        self.end = Between::new(rest);
    }
}

impl Shapes {
    /// As [`Paths::walk`]: the same result for every frame.
    #[inline]
    pub(super) fn walk(
        &mut self,
        paths: &Paths,
        bytes: &[u8],
        at: usize,
        found: &mut Found,
    ) -> Scanned<usize> {
        let last = self.known.get(self.last);
        if let Some(end) = last.and_then(|shape| shape.fit(bytes, at, found, &mut self.moulds)) {
            return Ok(end);
        }
        self.others(paths, bytes, at, found)
    }

    /// Whether the next frame, if it is this one, is not walked.
    #[cfg(test)]
    pub(super) fn fits(&self, bytes: &[u8], at: usize) -> bool {
        self.known.iter().any(|shape| shape.fit(bytes, at, &mut Found::new(), &mut Two::default()).is_some())
    }

    fn others(&mut self, paths: &Paths, bytes: &[u8], at: usize, found: &mut Found) -> Scanned<usize> {
        for (number, shape) in self.known.iter().enumerate().filter(|(number, _)| *number != self.last) {
            if let Some(end) = shape.fit(bytes, at, found, &mut self.moulds) {
                self.last = number;
                return Ok(end);
            }
        }
        let end = paths.walk(bytes, at, found)?;
        match self.wait.checked_sub(1) {
            Some(wait) => self.wait = wait,
            None => self.learn(paths, bytes, at),
        }
        Ok(end)
    }

    #[cold]
    fn learn(&mut self, paths: &Paths, bytes: &[u8], at: usize) {
        let mut shape = Shape::default();
        let end = paths.learn(bytes, at, &mut shape);
        // With an escape in a text it does not fit itself.
        let is_good = end.is_some() && shape.fit(bytes, at, &mut Found::new(), &mut self.moulds) == end;
        // Soon for the first few, then seldom: frames may all be different, or have no shape.
        let is_new = is_good && self.known.len() < SHAPES;
        self.next_wait = if is_new { 0 } else { (2 * self.next_wait + 16).min(WAIT_MAX) };
        self.wait = self.next_wait;
        if is_new {
            self.last = self.known.len();
            self.known.push(shape);
        } else if is_good {
            self.last = self.oldest;
            self.known[self.oldest] = shape;
            self.oldest = (self.oldest + 1) % SHAPES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::paths::{PathsBuilder, Take};
    use super::super::pointer::Pointer;
    use super::*;

    fn paths(pointers: &[&str]) -> (Paths, Vec<Slot>) {
        let mut builder = PathsBuilder::default();
        let slots = pointers
            .iter()
            .map(|text| builder.slot(&Pointer::read(text).unwrap(), Take::Value).unwrap())
            .collect();
        (builder.build(), slots)
    }

    #[test]
    fn frames_of_the_same_shape_fit_and_others_are_walked() {
        let (paths, slots) = paths(&["/stream", "/data/t", "/data/m"]);
        let mut shapes = Shapes::default();
        let frames = [
            r#"{"stream":"a@trade","data":{"t":17,"p":"1.5","m":true,"x":[1,{"y":2}]}}"#,
            r#"{"stream":"bcd@trade","data":{"t":-1845,"p":"22.50","m":false,"x":null}}"#,
            r#"{"stream":"b\u0063","data":{"t":18,"p":"22.50","m":false,"x":[]}}"#,
            r#"{"stream":"a","data":{"t":"18","p":"22.50","m":false,"x":[]}}"#,
            r#"{"stream":"a","data":{"p":"22.50","t":18,"m":false,"x":[]}}"#,
            r#"{"result":null,"id":7}"#,
            r#"{"stream":"a@trade","data":{"t":1e5,"p":"","m":{},"x":{"t":1}}}"#,
        ];
        for round in 0..3 {
            for text in frames {
                let (mut ours, mut theirs) = (Found::new(), Found::new());
                let end = shapes.walk(&paths, text.as_bytes(), 0, &mut ours);
                assert_eq!(end, paths.walk(text.as_bytes(), 0, &mut theirs), "{text}");
                assert_eq!(ours.mask, theirs.mask, "{text}");
                for slot in &slots {
                    assert_eq!(ours.place(*slot), theirs.place(*slot), "{text}, round {round}");
                }
            }
        }
        let mut shapes = Shapes::default();
        shapes.walk(&paths, frames[0].as_bytes(), 0, &mut Found::new()).unwrap();
        let fits = |text: &str| shapes.fits(text.as_bytes(), 0);
        assert!(fits(r#"{"stream":"zzz","data":{"t":9,"p":"3","m":true,"x":[5]}}"#));
        for wrong in [
            r#"{"stream":"zzz","data":{"t":9,"p":"3","m":true,"x":[5]}"#,
            r#"{"stream":"zzz","data":{"t":09,"p":"3","m":true,"x":[5]}}"#,
            r#"{"stream":"zzz","data":{"t":9,"p":3,"m":true,"x":[5]}}"#,
            r#"{"stream":"zzz","data":{"t":9,"t":"3","m":true,"x":[5]}}"#,
            "{\"stream\":\"z\nz\",\"data\":{\"t\":9,\"p\":\"3\",\"m\":true,\"x\":[5]}}",
        ] {
            assert!(!fits(wrong), "{wrong}");
        }
    }
}
