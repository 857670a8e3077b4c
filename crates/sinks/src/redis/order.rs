//! Which of two snapshots of one token is the later one. The Lua script follows the same rule; a test on a real server
//! holds the two against each other.
//!
//! 1. The same hash: the same snapshot. A venue's hash covers its timestamp.
//! 2. The greater timestamp is later, compared as integers of any number of digits: 13 digits are before 16, leading
//!    zeros mean nothing. A text that is no integer is before every integer.
//! 3. With equal timestamps the one that was fetched more than [`TIE_MS`] after the other is later: the venue still says
//!    so. Within that time the greater hash is, byte by byte, so that every order of arrival leaves the same one.

use std::cmp::Ordering;

/// Two answers cannot overtake each other by more than this, in milliseconds: requests have given up long before.
pub const TIE_MS: i64 = 30_000;

/// What the order of snapshots rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// The venue's hash of the snapshot.
    pub hash: &'a str,
    /// The venue's time, as it wrote it.
    pub timestamp: &'a str,
    /// When it was fetched, in milliseconds.
    pub updated_at: i64,
}

/// What becomes of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is there now.
    Written,
    /// It was there already.
    Same,
    /// There is a later one.
    Older,
    /// Under its key is something that is no hash.
    WrongType,
}

impl Stamp<'_> {
    /// What becomes of this snapshot where `held` is.
    pub fn against(&self, held: &Stamp<'_>) -> Verdict {
        if self.hash == held.hash {
            return Verdict::Same;
        }
        let later = match compare_times(self.timestamp, held.timestamp) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => {
                let apart = self.updated_at.saturating_sub(held.updated_at);
                apart > TIE_MS || (apart >= -TIE_MS && self.hash.as_bytes() > held.hash.as_bytes())
            }
        };
        if later { Verdict::Written } else { Verdict::Older }
    }
}

/// Compares two times as integers.
pub(crate) fn compare_times(a: &str, b: &str) -> Ordering {
    match (digits(a), digits(b)) {
        (Some(a), Some(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The digits without leading zeros; nothing if there is anything else.
fn digits(text: &str) -> Option<&str> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_as_integers() {
        let check = |a: &str, b: &str, order| assert_eq!(compare_times(a, b), order, "{a:?} and {b:?}");
        check("9", "10", Ordering::Less);
        check("1790000000000", "1790000000000", Ordering::Equal);
        check("1790000000000", "1789999999999999", Ordering::Less);
        check("0001", "1", Ordering::Equal);
        check("0", "00", Ordering::Equal);
        check("99999999999999999999999998", "99999999999999999999999999", Ordering::Less);
        check("", "0", Ordering::Less);
        check("soon", "0", Ordering::Less);
        check("-5", "0", Ordering::Less);
        check("soon", "later", Ordering::Equal);
        check("1e3", "1", Ordering::Less);
    }

    #[test]
    fn the_later_one_stays() {
        let check = |new: (&str, &str, i64), held: (&str, &str, i64), verdict| {
            let stamp = |(hash, timestamp, updated_at)| Stamp { hash, timestamp, updated_at };
            assert_eq!(stamp(new).against(&stamp(held)), verdict, "{new:?} where {held:?} is");
        };
        check(("a", "2", 0), ("b", "1", 0), Verdict::Written);
        check(("a", "1", 0), ("b", "2", 0), Verdict::Older);
        check(("a", "9", 0), ("a", "1", 0), Verdict::Same);
        check(("b", "1", 0), ("a", "1", 0), Verdict::Written);
        check(("a", "1", 0), ("b", "1", 0), Verdict::Older);
        check(("a", "1", TIE_MS + 1), ("b", "1", 0), Verdict::Written);
        check(("b", "1", 0), ("a", "1", TIE_MS + 1), Verdict::Older);
    }
}
