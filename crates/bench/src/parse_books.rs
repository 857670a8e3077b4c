//! `/books` to validated levels in fixed point: the scanner, beside serde_json. PERF goal 1.

use catchment_venues::polymarket::{FixedBook, scan_books};
use serde_json::Value;

use crate::books::{Answer, TypedBook, e8};
use crate::machine::thread_seconds;
use crate::{BenchArgs, Duel, Goal, Report};

/// Answers a round.
const TIMES: usize = 40;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let answer = Answer::new();
    let (scanned, typed, valued) = (scan(&answer.body), type_it(&answer.body), value_it(&answer.body));
    anyhow::ensure!(scanned == typed && typed == valued, "the sides have read different amounts");
    let measure = |read: fn(&[u8]) -> i64, times: usize| {
        let mut sum = 0_i64;
        let seconds = thread_seconds(|| (0..times).for_each(|_| sum = sum.wrapping_add(read(&answer.body))));
        assert_eq!(sum, scanned.wrapping_mul(times as i64), "the same amounts every time");
        Ok(answer.mb_per_second(seconds / times as f64))
    };
    for (theirs_is, theirs, times, goal) in [
        ("serde_json, typed, fixed point", type_it as fn(&[u8]) -> i64, TIMES, 4.5),
        ("serde_json, Value, then fixed point", value_it, TIMES / 4, 15.0),
    ] {
        let mut ours = || measure(scan, TIMES);
        let mut theirs = || measure(theirs, times);
        let duel = Duel {
            what: "500 books to fixed-point levels, validated",
            unit: "MB/s",
            ours: ("the scanner", &mut ours),
            theirs: (theirs_is, &mut theirs),
            goal: Goal::AtLeast(goal),
        };
        report.duel(args.rounds().max(11), duel)?;
    }
    Ok(())
}

/// All amounts added up, so that nobody can leave out reading them.
fn scan(body: &[u8]) -> i64 {
    let mut sum = 0_i64;
    let taken = scan_books(body, &mut FixedBook::default(), |book| {
        for level in book.bids.iter().chain(&book.asks) {
            sum = sum.wrapping_add(level.price_e8).wrapping_add(level.size_e8);
        }
    });
    assert!(taken, "the scanner takes the venue's own spelling");
    sum
}

fn type_it(body: &[u8]) -> i64 {
    let books: Vec<TypedBook<'_>> = serde_json::from_slice(body).expect("a sound answer");
    let levels = books.iter().flat_map(|book| book.bids.iter().chain(&book.asks));
    levels.fold(0, |sum, level| sum.wrapping_add(level.price.0).wrapping_add(level.size.0))
}

fn value_it(body: &[u8]) -> i64 {
    let books: Value = serde_json::from_slice(body).expect("a sound answer");
    let mut sum = 0_i64;
    for book in books.as_array().expect("an array") {
        for side in ["bids", "asks"] {
            for level in book[side].as_array().expect("a side") {
                for key in ["price", "size"] {
                    sum = sum.wrapping_add(level[key].as_str().and_then(e8).expect("an amount"));
                }
            }
        }
    }
    sum
}
