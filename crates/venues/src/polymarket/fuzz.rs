//! The scanner held against serde_json, over bodies with a few bytes changed. A test runs some thousands of them, and
//! `catchment bench fuzz-scanner` a million.

use std::ops::Range;

use catchment_model::Decimal;
use serde::Deserialize;

use super::hash::hash_around;
use super::{FixedBook, HashInput, book_hash, books, scan_books};
use crate::BookPage;

/// What came of it. Anything in `faults` is a fault of ours.
#[derive(Debug, Default)]
pub struct FuzzOutcome {
    /// Mutants the scanner took.
    pub accepted: u64,
    /// Mutants it left to the general reader.
    pub refused: u64,
    /// Where the two disagree, with the mutant.
    pub faults: Vec<String>,
}

/// Changes a body of six books in so many ways. Whatever the scanner takes, serde_json must take too and find the same
/// values in; and with or without the scanner, a page must hold the same bytes.
pub fn fuzz_scanner(mutants: u64, seed: u64) -> FuzzOutcome {
    let mut dice = Dice(seed);
    let (tokens, original) = sample_books(6, 3, seed);
    let keys: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut outcome = FuzzOutcome::default();
    let (mut fixed, mut hashes) = (FixedBook::default(), Vec::new());
    for round in 0..mutants {
        let mut body = original.clone();
        for _ in 0..1 + dice.below(3) {
            mutate(&mut body, &mut dice);
        }
        let mut values = Vec::new();
        hashes.clear();
        let taken = scan_books(&body, &mut fixed, |book| {
            values.push(FixedValues::of(book));
            hashes.push((book.hash.clone(), book.whole.clone()));
        });
        if taken {
            outcome.accepted += 1;
            if let Err(fault) = agrees_with_serde(&body, &values) {
                outcome.faults.push(format!("{fault}: {}", String::from_utf8_lossy(&body)));
            }
            mend_hashes(&mut body, &hashes);
        } else {
            outcome.refused += 1;
        }
        // Mutants that are refused go one way only; a few of them suffice.
        if (taken || round % 8 == 0)
            && let Err(fault) = pages_agree(&keys, &body)
        {
            outcome.faults.push(format!("{fault}: {}", String::from_utf8_lossy(&body)));
        }
    }
    outcome
}

/// The body of an answer with so many sound books of about so many levels a side, and the tokens to ask for. Shaped
/// like the venue's, its values invented.
pub fn sample_books(books: usize, levels: usize, seed: u64) -> (Vec<String>, Vec<u8>) {
    let mut dice = Dice(seed);
    let mut body = vec![b'['];
    let mut tokens = Vec::new();
    for at in 0..books {
        let token: String = (0..77)
            .map(|digit| char::from(b'0' + (if digit == 0 { 1 } else { dice.below(10) }) as u8))
            .collect();
        let market: String = (0..64).map(|_| format!("{:x}", dice.below(16))).collect();
        let middle = 200 + dice.below(600);
        let mut side = |step: i64| -> Vec<(String, String)> {
            let count = levels - levels / 4 + dice.below(levels as u64 / 2 + 1) as usize;
            let price = |n: usize| middle as i64 + step * (n as i64 + 1);
            let inside = (0..count).map(price).take_while(|p| (1..1_000).contains(p)).collect::<Vec<_>>();
            let text = |p: i64| format!("0.{p:03}").trim_end_matches('0').to_owned();
            inside.into_iter().rev().map(|p| (text(p), size(&mut dice))).collect()
        };
        let (bids, asks) = (side(-2), side(2));
        fn texts(side: &[(String, String)]) -> Vec<(&str, &str)> {
            side.iter().map(|(price, size)| (price.as_str(), size.as_str())).collect()
        }
        let input = HashInput {
            market: &format!("0x{market}"),
            asset_id: &token,
            timestamp: &(1_790_000_000_000 + dice.below(1_000_000)).to_string(),
            bids: &texts(&bids),
            asks: &texts(&asks),
            min_order_size: "5",
            tick_size: "0.001",
            neg_risk: at % 3 == 0,
            last_trade_price: &format!("0.{middle}"),
        };
        if at > 0 {
            body.push(b',');
        }
        write_book(&input, &mut body);
        tokens.push(token);
    }
    body.push(b']');
    (tokens, body)
}

fn size(dice: &mut Dice) -> String {
    match dice.below(4) {
        0 => (5 + dice.below(50_000)).to_string(),
        1 => format!("{}.{}", dice.below(9_000), 1 + dice.below(9)),
        _ => format!("{}.{:02}", dice.below(200_000), 1 + dice.below(99)).trim_end_matches('0').to_owned(),
    }
}

/// A book as the venue writes it.
fn write_book(book: &HashInput<'_>, out: &mut Vec<u8>) {
    let side = |side: &[(&str, &str)]| {
        let levels: Vec<String> = side
            .iter()
            .map(|(price, size)| format!("{{\"price\":\"{price}\",\"size\":\"{size}\"}}"))
            .collect();
        levels.join(",")
    };
    let text = format!(
        r#"{{"market":"{}","asset_id":"{}","timestamp":"{}","hash":"{}","bids":[{}],"asks":[{}],"min_order_size":"{}","tick_size":"{}","neg_risk":{},"last_trade_price":"{}"}}"#,
        book.market,
        book.asset_id,
        book.timestamp,
        book_hash(book),
        side(book.bids),
        side(book.asks),
        book.min_order_size,
        book.tick_size,
        book.neg_risk,
        book.last_trade_price,
    );
    out.extend_from_slice(text.as_bytes());
}

/// A small generator of numbers (splitmix64): the same seed, the same run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn mutate(body: &mut Vec<u8>, dice: &mut Dice) {
    const TELLING: &[u8] = b"\"\"{}[],:.0123456789-+eE\\/ \n\t\0\x1f\x7f\x80\xff\xc3truefalsn";
    let at = dice.below(body.len() as u64) as usize;
    let telling = TELLING[dice.below(TELLING.len() as u64) as usize];
    // A digit for a digit is what the scanner most often takes, so it comes often.
    match dice.below(8) {
        0 => body[at] = dice.next() as u8,
        1 | 2 => body[at] = telling,
        3 => body.insert(at, telling),
        4 => drop(body.remove(at)),
        5 => {
            let digit = body[at..].iter().position(u8::is_ascii_digit).map(|ahead| at + ahead);
            body[digit.unwrap_or(at)] = b'0' + dice.below(10) as u8;
        }
        6 => {
            let piece = body[at..(at + dice.below(60) as usize).min(body.len())].to_vec();
            let to = dice.below(body.len() as u64) as usize;
            body.splice(to..to, piece);
        }
        _ if dice.below(4) == 0 => body.truncate(at.max(1)),
        _ => drop(body.drain(at..(at + dice.below(40) as usize).min(body.len()))),
    }
    if body.is_empty() {
        body.push(b'[');
    }
}

/// What the scanner has found in a book.
struct FixedValues {
    timestamp_ms: i64,
    bids: Vec<(i64, i64)>,
    asks: Vec<(i64, i64)>,
}

impl FixedValues {
    fn of(book: &FixedBook) -> Self {
        let side = |levels: &[super::FixedLevel]| levels.iter().map(|l| (l.price_e8, l.size_e8)).collect();
        Self { timestamp_ms: book.timestamp_ms, bids: side(&book.bids), asks: side(&book.asks) }
    }
}

/// A book as serde_json finds it: every key there, once, and no other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)] // some fields are only there to be required
struct TypedBook {
    market: String,
    asset_id: String,
    timestamp: String,
    hash: String,
    bids: Vec<TypedLevel>,
    asks: Vec<TypedLevel>,
    min_order_size: String,
    tick_size: String,
    neg_risk: bool,
    last_trade_price: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedLevel {
    price: Decimal,
    size: Decimal,
}

fn agrees_with_serde(body: &[u8], values: &[FixedValues]) -> Result<(), String> {
    let typed: Vec<TypedBook> =
        serde_json::from_slice(body).map_err(|error| format!("accepted and invalid: {error}"))?;
    if typed.len() != values.len() {
        return Err("another number of books".to_owned());
    }
    for (typed, fixed) in typed.iter().zip(values) {
        let side = |levels: &[TypedLevel]| -> Option<Vec<(i64, i64)>> {
            levels.iter().map(|level| Some((level.price.to_e8()?, level.size.to_e8()?))).collect()
        };
        let same = side(&typed.bids).as_ref() == Some(&fixed.bids)
            && side(&typed.asks).as_ref() == Some(&fixed.asks)
            && typed.timestamp == fixed.timestamp_ms.to_string();
        if !same {
            return Err("other values".to_owned());
        }
    }
    Ok(())
}

/// Gives every book the hash it should now have, so that the scanner's own way of writing is taken.
fn mend_hashes(body: &mut [u8], hashes: &[(Range<usize>, Range<usize>)]) {
    for (digits, whole) in hashes {
        if digits.len() == 40 {
            let hash = hash_around(&body[whole.start..digits.start], &body[digits.end..whole.end]);
            body[digits.clone()].copy_from_slice(hash.as_bytes());
        }
    }
}

fn pages_agree(keys: &[&str], body: &[u8]) -> Result<(), String> {
    let (mut fast, mut slow) = (BookPage::default(), BookPage::default());
    let with = books::read_with(keys, body, &mut fast, true).map_err(|error| error.to_string());
    let without = books::read_with(keys, body, &mut slow, false).map_err(|error| error.to_string());
    if with != without {
        return Err(format!("{with:?} with the scanner and {without:?} without"));
    }
    let same = fast.books().eq(slow.books())
        && fast.missing() == slow.missing()
        && fast.unreadable() == slow.unreadable();
    if same { Ok(()) } else { Err("another page without the scanner".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scanner_takes_nothing_that_serde_json_refuses_and_finds_no_other_values() {
        let mutants = if std::env::var_os("CATCHMENT_LONG").is_some() { 1_000_000 } else { 50_000 };
        let outcome = fuzz_scanner(mutants, 7);
        assert!(
            outcome.faults.is_empty(),
            "{} faults, the first: {}",
            outcome.faults.len(),
            outcome.faults[0]
        );
        assert_eq!(outcome.accepted + outcome.refused, mutants);
        // Or else it has tested nothing.
        assert!(outcome.accepted > mutants / 100, "only {} were taken", outcome.accepted);
    }

    #[test]
    fn the_scanner_takes_every_sound_book_of_the_venues_own_spelling() {
        let (tokens, body) = sample_books(50, 39, 1);
        let mut count = 0;
        assert!(
            scan_books(&body, &mut FixedBook::default(), |book| count += book.bids.len() + book.asks.len())
        );
        assert!(count > 50 * 60, "{count}");
        let keys: Vec<&str> = tokens.iter().map(String::as_str).collect();
        pages_agree(&keys, &body).unwrap();
        let mut page = BookPage::default();
        books::read_with(&keys, &body, &mut page, true).unwrap();
        assert!(page.books().all(|book| book.hash_ok == Some(true) && book.flags.is_empty()));
        assert_eq!(page.books().len(), 50);
    }
}
