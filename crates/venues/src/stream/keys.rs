//! The keys that an object is asked for, found with one comparison: a table without collisions, searched for when the
//! descriptor is compiled.

use super::scan;

/// Keys and what each leads to.
#[derive(Debug, Default)]
pub(super) struct Keys {
    all: Vec<Entry>,
    /// Keys by hash; [`NONE`] is no key. Empty where there is no table.
    table: Vec<u8>,
    factor: u64,
    shift: u32,
}

#[derive(Debug)]
struct Entry {
    /// The first eight bytes.
    word: u64,
    text: Box<[u8]>,
    child: u16,
}

const NONE: u8 = u8::MAX;

impl Keys {
    /// At most 64 different ones.
    pub(super) fn new(keys: Vec<(&str, u16)>) -> Self {
        let entry = |(text, child): (&str, u16)| Entry {
            word: word(text.as_bytes()),
            text: text.as_bytes().into(),
            child,
        };
        let mut keys = Self { all: keys.into_iter().map(entry).collect(), ..Self::default() };
        keys.spread();
        keys
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Looks for a factor that gives every key a place of its own. Keys that agree in their length and in their first
    /// eight bytes have none; then there is no table, and all keys are looked at one by one.
    fn spread(&mut self) {
        for bits in 1..=8_u32 {
            let mut factor = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..500 {
                factor = factor.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(2) | 1;
                let mut table = vec![NONE; 1 << bits];
                let place =
                    |entry: &Entry| (hash(entry.word, entry.text.len(), factor) >> (64 - bits)) as usize;
                let apart = self.all.iter().enumerate().all(|(number, entry)| {
                    let at = place(entry);
                    let free = table[at] == NONE;
                    table[at] = number as u8;
                    free
                });
                if apart {
                    (self.table, self.factor, self.shift) = (table, factor, 64 - bits);
                    return;
                }
            }
        }
    }

    /// The number of the key and what it leads to. The key stands in `bytes` from `start` to `end`.
    #[inline(always)]
    pub(super) fn find(&self, bytes: &[u8], start: usize, end: usize) -> Option<(usize, u16)> {
        let len = end - start;
        let word = match bytes.get(start..).and_then(|rest| rest.first_chunk::<8>()) {
            // What follows the key is masked away.
            Some(chunk) if len < 8 => u64::from_le_bytes(*chunk) & ((1 << (8 * len)) - 1),
            Some(chunk) => u64::from_le_bytes(*chunk),
            None => word(&bytes[start..end]),
        };
        self.find_word(word, bytes, start, end)
    }

    /// The same, for whoever has the first eight bytes at hand, what follows the key masked away.
    #[inline(always)]
    pub(super) fn find_word(
        &self,
        word: u64,
        bytes: &[u8],
        start: usize,
        end: usize,
    ) -> Option<(usize, u16)> {
        let len = end - start;
        let number = match self.table.get((hash(word, len, self.factor) >> self.shift) as usize) {
            Some(number) => usize::from(*number),
            None => return self.one_by_one(&bytes[start..end]),
        };
        let entry = self.all.get(number)?;
        let same = entry.word == word
            && entry.text.len() == len
            && (len <= 8 || entry.text.get(8..) == bytes.get(start + 8..end));
        same.then_some((number, entry.child))
    }

    #[cold]
    fn one_by_one(&self, key: &[u8]) -> Option<(usize, u16)> {
        let number = self.all.iter().position(|entry| *entry.text == *key)?;
        Some((number, self.all[number].child))
    }

    /// Likewise, for a key that holds escapes.
    #[cold]
    pub(super) fn find_escaped(&self, key: &[u8]) -> Option<(usize, u16)> {
        self.one_by_one(scan::unescaped(std::str::from_utf8(key).ok()?).as_bytes())
    }
}

#[inline(always)]
fn hash(word: u64, len: usize, factor: u64) -> u64 {
    (word ^ (len as u64) << 56).wrapping_mul(factor)
}

/// Up to eight bytes as one number.
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], others: &[&str]) {
        let keys = Keys::new(names.iter().enumerate().map(|(n, name)| (*name, n as u16 + 100)).collect());
        for (number, name) in names.iter().enumerate() {
            // With much behind it, with little, and with nothing.
            for behind in ["\":1,\"another\":2}", "\"", ""] {
                let frame = format!("{{\"{name}{behind}");
                let got = keys.find(frame.as_bytes(), 2, 2 + name.len());
                assert_eq!(got, Some((number, number as u16 + 100)), "{frame}");
            }
        }
        for name in others {
            assert_eq!(keys.find(format!("{name}\":1234567890").as_bytes(), 0, name.len()), None, "{name}");
        }
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        let long = ["price_changes", "price_change", "price_ch", "event_type", "timestamp", "timestam"];
        check(&long, &["price_changed", "price_c", "", "timestamps", "event_typo"]);
        check(&["e", "E", "s", "U", "u", "T", "t", "a", ""], &["b", "A", "ee", "\0", "e\0"]);
        let many: Vec<String> = (0..64).map(|n| format!("key{n}")).collect();
        check(&many.iter().map(String::as_str).collect::<Vec<_>>(), &["key64", "key", "key00"]);
        // The same length and the same first eight bytes: no table, and found all the same.
        check(&["samestart_1", "samestart_2"], &["samestart_3"]);
        check(&[], &["a", ""]);
    }
}
