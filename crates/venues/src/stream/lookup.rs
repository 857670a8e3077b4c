//! From the venue's spelling of an instrument to its place in the table of what was subscribed to.

/// A table that is made once and asked for every message: open addressing, half empty.
#[derive(Debug)]
pub(super) struct Lookup {
    /// Entries by hash; 0 is an empty place, else the entry's number and one.
    places: Vec<u32>,
    entries: Vec<(u64, Box<[u8]>, u32)>,
}

impl Lookup {
    /// From a channel and a text to a value. Of equal keys the first one counts.
    pub(super) fn new(keys: impl Iterator<Item = (usize, String, u32)>) -> Self {
        let mut lookup = Self { places: Vec::new(), entries: Vec::new() };
        for (channel, text, value) in keys {
            lookup.entries.push((hash(channel, text.as_bytes()), text.into_bytes().into(), value));
        }
        lookup.places = vec![0; (lookup.entries.len() * 2).next_power_of_two().max(4)];
        for (number, (hash, text, _)) in lookup.entries.iter().enumerate() {
            let mut at = *hash as usize & (lookup.places.len() - 1);
            while lookup.places[at] != 0 {
                let (other_hash, other, _) = &lookup.entries[lookup.places[at] as usize - 1];
                if other_hash == hash && other == text {
                    break;
                }
                at = (at + 1) & (lookup.places.len() - 1);
            }
            if lookup.places[at] == 0 {
                lookup.places[at] = number as u32 + 1;
            }
        }
        lookup
    }

    #[inline]
    pub(super) fn find(&self, channel: usize, text: &[u8]) -> Option<u32> {
        let hash = hash(channel, text);
        let mut at = hash as usize & (self.places.len() - 1);
        loop {
            let place = self.places[at];
            if place == 0 {
                return None;
            }
            let (known_hash, known, value) = &self.entries[place as usize - 1];
            if *known_hash == hash && **known == *text {
                return Some(*value);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }
}

/// The keys are our own, so nobody can choose them to collide; it only has to be quick.
#[inline(always)]
fn hash(channel: usize, text: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(29) ^ word).wrapping_mul(ODD);
    let mut hash = mix(text.len() as u64, channel as u64);
    match text.last_chunk::<8>() {
        Some(last) => {
            for chunk in text[..text.len() - 1].chunks_exact(8) {
                hash = mix(hash, u64::from_le_bytes(*chunk.first_chunk().expect("chunks of eight")));
            }
            // The rest, and some of what came before it once more.
            hash = mix(hash, u64::from_le_bytes(*last));
        }
        None => hash = mix(hash, text.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))),
    }
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_leads_to_its_own_value_and_no_other() {
        let keys = (0..5_000_u32).map(|n| ((n % 3) as usize, format!("SYM{}/USD", n / 3), n));
        let lookup = Lookup::new(keys);
        for n in 0..5_000_u32 {
            let text = format!("SYM{}/USD", n / 3);
            assert_eq!(lookup.find((n % 3) as usize, text.as_bytes()), Some(n));
            assert_eq!(lookup.find(3, text.as_bytes()), None);
        }
        assert_eq!(lookup.find(0, b""), None);
        assert_eq!(Lookup::new(std::iter::empty()).find(0, b"x"), None);
    }

    #[test]
    fn of_equal_keys_the_first_counts() {
        let lookup = Lookup::new([(1, "a".to_owned(), 5), (1, "a".to_owned(), 6)].into_iter());
        assert_eq!(lookup.find(1, b"a"), Some(5));
    }
}
