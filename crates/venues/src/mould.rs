//! Levels spelled alike: `["61837.64000000","0.12345000"]`. Those of a book mostly differ in their digits only, so one that
//! was read with care is a model for those behind it: each is laid upon it, all of its bytes at once, and where it
//! ends is known before any of them was looked at.
//!
//! What fits has at every place the model's own byte, or a digit where the model has a digit. Everything else is for
//! whoever reads with care. Two models are kept, since sizes of two lengths are usual.

/// So many bytes are looked at together.
pub(crate) const SPAN: usize = 48;
/// A level longer than this is no model. Of a shorter one eight bytes from any place on are within the span.
pub(crate) const LEVEL_MAX: usize = SPAN - 8;

/// A model.
#[derive(Debug)]
pub(crate) struct Mould {
    /// The model, with zeros for digits.
    text: [u8; SPAN],
    /// How much a byte may differ from that: at a digit 9, behind the level anything.
    slack: [u8; SPAN],
    len: usize,
}

impl Default for Mould {
    fn default() -> Self {
        // No text has these bytes.
        Self { text: [0xff; SPAN], slack: [0; SPAN], len: 0 }
    }
}

impl Mould {
    /// Whether the level that begins here fits.
    #[inline(always)]
    pub(crate) fn fits(&self, chunk: &[u8; SPAN]) -> bool {
        // A digit differs from the character 0 by its value, everything else by more.
        let both = self.text.iter().zip(&self.slack);
        let over = |(byte, (text, slack)): (&u8, (&u8, &u8))| (byte ^ text).saturating_sub(*slack);
        chunk.iter().zip(both).fold(0, |any, each| any | over(each)) == 0
    }

    /// How long a level is that fits.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes a level the model, if it is not too long. It is plain text throughout, and stays what it is
    /// whatever its digits are.
    pub(crate) fn cast(&mut self, level: &[u8]) -> bool {
        if level.len() > LEVEL_MAX {
            return false;
        }
        let model = padded(level);
        for (at, byte) in model.iter().enumerate() {
            let is_digit = byte.is_ascii_digit();
            self.text[at] = if is_digit { b'0' } else { *byte };
            self.slack[at] = if is_digit { 9 } else { 0 };
            if at >= level.len() {
                self.slack[at] = u8::MAX;
            }
        }
        self.len = level.len();
        true
    }
}

/// Two models.
#[derive(Debug, Default)]
pub(crate) struct Two<M> {
    models: [M; 2],
    /// The one that something was like last.
    last: usize,
}

impl<M> Two<M> {
    /// The one that fits.
    #[inline(always)]
    pub(crate) fn find(&mut self, fits: impl Fn(&M) -> bool) -> Option<&M> {
        if fits(&self.models[0]) {
            self.last = 0;
            return Some(&self.models[0]);
        }
        if !fits(&self.models[1]) {
            return None;
        }
        if self.last == 1 {
            self.swap();
            return Some(&self.models[0]);
        }
        self.last = 1;
        Some(&self.models[1])
    }

    /// The second has fitted twice in a row, so it should be the first.
    #[cold]
    fn swap(&mut self) {
        self.models.swap(0, 1);
        self.last = 0;
    }

    /// The model that a new one may replace.
    pub(crate) fn other(&mut self) -> &mut M {
        &mut self.models[1 - self.last]
    }
}

/// The bytes from `at` on that are looked at together. `end` is memory to use, for the end of a message.
#[inline(always)]
pub(crate) fn chunk_at<'b>(bytes: &'b [u8], at: usize, end: &'b mut [u8; SPAN]) -> Option<&'b [u8; SPAN]> {
    let rest = bytes.get(at..)?;
    Some(match rest.first_chunk() {
        Some(chunk) => chunk,
        None => {
            *end = padded(rest);
            end
        }
    })
}

/// The end of a message, with zeros behind it: no level has one, so none fits that is cut off.
#[cold]
fn padded(rest: &[u8]) -> [u8; SPAN] {
    let mut chunk = [0; SPAN];
    let len = rest.len().min(SPAN);
    chunk[..len].copy_from_slice(&rest[..len]);
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(mould: &Mould, bytes: &[u8], at: usize) -> Option<usize> {
        chunk_at(bytes, at, &mut [0; SPAN]).filter(|chunk| mould.fits(chunk)).map(|_| at + mould.len())
    }

    #[test]
    fn what_differs_in_its_digits_only_fits_and_nothing_else_does() {
        let model = r#"["61837.64000000","0.12345000"]"#;
        let mut mould = Mould::default();
        assert_eq!(end(&mould, model.as_bytes(), 0), None);
        assert!(mould.cast(model.as_bytes()));
        for behind in ["", "]}}", r#",["1.5","2"],["1.5","2"],["1.5","2"],["1.5","2"]"#] {
            let text = format!("[{}{behind}", model.replace('6', "9").replace('1', "0"));
            assert_eq!(end(&mould, text.as_bytes(), 1), Some(1 + model.len()), "{text}");
            assert_eq!(end(&mould, text.as_bytes(), 0), None, "{text}");
        }
        for at in 0..model.len() {
            for byte in 0..=u8::MAX {
                let mut text = model.as_bytes().to_vec();
                text[at] = byte;
                let same = byte == model.as_bytes()[at];
                let fits = same || (byte.is_ascii_digit() && model.as_bytes()[at].is_ascii_digit());
                assert_eq!(end(&mould, &text, 0).is_some(), fits, "{}", text.escape_ascii());
            }
            assert_eq!(end(&mould, &model.as_bytes()[..at], 0), None, "{at}");
        }
        assert_eq!(end(&mould, model.as_bytes(), model.len() + 1), None);
    }

    #[test]
    fn a_long_level_is_no_model() {
        let mut mould = Mould::default();
        assert!(mould.cast(br#"["1","2"]"#));
        assert!(!mould.cast(&[b'1'; LEVEL_MAX + 1]));
        assert_eq!(end(&mould, br#"["3","4"]"#, 0), Some(9));
    }

    #[test]
    fn of_two_models_the_one_that_fitted_last_stays() {
        let [short, long, longer] = [r#"["1","2"]"#, r#"["1","20"]"#, r#"["1","200"]"#];
        let mut two = Two::<Mould>::default();
        let mut fits = |text: &str, expected: bool| {
            let found = two.find(|mould| end(mould, text.as_bytes(), 0) == Some(text.len()));
            assert_eq!(found.is_some(), expected, "{text}");
            if found.is_none() {
                two.other().cast(text.as_bytes());
            }
        };
        fits(short, false);
        fits(short, true);
        fits(long, false);
        fits(short, true);
        fits(longer, false);
        fits(short, true);
        fits(longer, true);
        fits(long, false);
        fits(longer, true);
    }
}
