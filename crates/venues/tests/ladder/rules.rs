//! What each venue's rule says about what follows what, on messages made up for it.

use catchment_venues::ladder::{BookPlan, Checked, Ignored, Outcome, Verdict, Why};

use super::{Arc, Ladder, LadderState, Side, form, ladder};

fn top(ladder: &Ladder) -> String {
    let side = |side| {
        let levels = ladder.levels(side).map(|level| format!("{}x{}", level.price, level.size));
        levels.collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", side(Side::Bid), side(Side::Ask))
}

fn gap(verdict: Verdict) -> (Option<i64>, Option<i64>) {
    match verdict.outcome {
        Outcome::Gap { first_missing, last_missing } => (first_missing, last_missing),
        other => panic!("{other:?}"),
    }
}

fn binance(first: i64, last: i64, bids: &str) -> String {
    format!(
        "{{\"data\":{{\"e\":\"depthUpdate\",\"s\":\"X\",\"U\":{first},\"u\":{last},\"b\":{bids},\"a\":[]}}}}"
    )
}

fn depth(last: i64) -> String {
    format!("{{\"lastUpdateId\":{last},\"bids\":[[\"1.0\",\"5\"]],\"asks\":[[\"2.0\",\"6\"]]}}")
}

/// A script: each word is `first-last` for a message, `=last` for a snapshot, and what must become of it.
fn check_binance(script: &str, expected: &str) {
    let mut ladder = ladder("binance", "X");
    let mut outcomes = Vec::new();
    for word in script.split_whitespace() {
        let verdict = if let Some(last) = word.strip_prefix('=') {
            ladder.rest_snapshot(depth(last.parse().unwrap()).as_bytes())
        } else {
            let (first, last) = word.split_once('-').unwrap();
            ladder.message(
                binance(first.parse().unwrap(), last.parse().unwrap(), "[[\"1.5\",\"1\"]]").as_bytes(),
            )
        };
        outcomes.push(match verdict.outcome {
            Outcome::Replaced => "new".to_owned(),
            Outcome::Applied => "ok".to_owned(),
            Outcome::Buffered => "kept".to_owned(),
            Outcome::Ignored(why) => format!("{why:?}"),
            Outcome::Gap { first_missing: Some(first), last_missing: Some(last) } => {
                format!("gap{first}-{last}")
            }
            Outcome::Gap { .. } => "gap".to_owned(),
            Outcome::BufferFull { dropped } => format!("full{dropped}"),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(outcomes.join(" "), expected, "{script}");
}

#[test]
fn binance_numbers() {
    check_binance("1-5 6-9 =9 10-12 13-13", "kept kept new ok ok");
    // Between two messages, right after the first, and long before or after everything.
    check_binance("1-5 6-9 =5 10-12", "kept kept new ok");
    check_binance("1-5 6-9 =3 10-12", "kept kept new ok");
    check_binance("5-6 =4 7-8", "kept new ok");
    check_binance("5-6 =3 =4 7-8", "kept SnapshotTooOld new ok");
    check_binance("5-6 =30 7-8 9-30 31-33", "kept new Stale Stale ok");
    check_binance("5-6 =30 7-8 9-35 36-36", "kept new Stale ok ok");
    // No message yet: the snapshot is a book, and the first message must fit it.
    check_binance("=30 7-8 9-35", "new Stale ok");
    check_binance("=30 40-41", "new gap31-39");
    // Lost, told again, begun anew; and a gap is followed by keeping.
    check_binance("1-5 =5 6-6 8-9 10-11 =10", "kept new ok gap7-7 kept new");
    check_binance("1-5 =5 6-6 6-6 4-6 7-7", "kept new ok Duplicate Duplicate ok");
    check_binance("1001-1005 =1005 1006-1006 1-2 3-4 =4", "kept new ok gap kept new");
    check_binance("1-5 7-8 9-9 =9", "kept gap6-6 kept new");
    // A message that is partly in the book is whole again after it: sizes are absolute.
    check_binance("1-5 =5 4-8 9-9", "kept new ok ok");
}

#[test]
fn the_buffer_has_an_end_and_says_so() {
    let mut form = form("binance");
    form.buffer_messages_max = 3;
    let mut ladder = Ladder::new(&Arc::new(BookPlan::new(&form).unwrap()), "X");
    for (number, dropped) in [(1, None), (2, None), (3, None), (4, Some(3)), (5, None)] {
        let verdict = ladder.message(binance(number, number, "[]").as_bytes());
        let expected = dropped.map_or(Outcome::Buffered, |dropped| Outcome::BufferFull { dropped });
        assert_eq!(verdict.outcome, expected);
    }
    assert_eq!(ladder.buffered(), 2);
    assert_eq!(ladder.rest_snapshot(depth(2).as_bytes()).outcome, Outcome::Ignored(Ignored::SnapshotTooOld));
    assert_eq!(ladder.rest_snapshot(depth(3).as_bytes()).outcome, Outcome::Replaced);
    assert_eq!((ladder.buffered(), ladder.sequence()), (0, Some(5)));

    // A new connection, or a message lost to damage: what was kept before is of no use.
    let _ = ladder.message(binance(9, 9, "[]").as_bytes());
    let _ = ladder.message(binance(10, 10, "[]").as_bytes());
    assert_eq!(ladder.buffered(), 2);
    ladder.reset();
    assert_eq!(ladder.buffered(), 0);
    let _ = ladder.message(binance(9, 9, "[]").as_bytes());
    assert!(matches!(ladder.message(b"{").outcome, Outcome::Unreadable(_)));
    assert_eq!(ladder.buffered(), 0);

    form.buffer_bytes_max = 200;
    form.buffer_messages_max = 1000;
    let mut ladder = Ladder::new(&Arc::new(BookPlan::new(&form).unwrap()), "X");
    let full = (1..50).filter(|number| {
        let verdict = ladder.message(binance(*number, *number, "[]").as_bytes());
        matches!(verdict.outcome, Outcome::BufferFull { .. })
    });
    assert!(full.count() > 10);
    let huge = binance(50, 50, &format!("[{}[\"1\",\"1\"]]", "[\"1\",\"1\"],".repeat(50)));
    let _ = ladder.message(huge.as_bytes());
    assert_eq!(ladder.buffered(), 0);
}

#[test]
fn what_cannot_be_read_ends_the_book_until_the_next_snapshot() {
    for (bids, why) in [
        ("[[\"1\",\"NaN\"]]", Why::NotANumber),
        ("[[\"NaN\",\"1\"]]", Why::NotANumber),
        ("[[\"-1\",\"1\"]]", Why::Negative),
        ("[[-1,1]]", Why::Negative),
        ("[[\"0\",\"1\"]]", Why::PriceZero),
        ("[[\"1e400\",\"1\"]]", Why::TooPrecise),
        ("[[\"0.1234567890123456789\",\"1\"]]", Why::TooPrecise),
        ("[[\"1\"]]", Why::LevelShape),
        ("[1]", Why::LevelShape),
        ("7", Why::LevelShape),
        ("[[\"1 \",\"1\"]]", Why::NotANumber),
        ("[[\"1\",null]]", Why::NotANumber),
        ("[[\"1\",{\"a\":1}]]", Why::NotANumber),
        ("[[\"1\",\"1\"]],\"b\":[]", Why::Twice),
        ("[[\"1\",\"1\"]],\"u\":8", Why::Twice),
        ("[[\"1\",\"1\"]],\"\\u0062\":[]", Why::EscapedName),
        ("[[\"1\",\"1\"]", Why::NotJson),
        ("[[\"1\",\"1\"],]", Why::NotJson),
        (&format!("[[\"1\",\"1\",{}1{}]]", "[".repeat(99), "]".repeat(99)), Why::TooDeep),
        (&format!("[[\"1\",\"{}\"]]", "9".repeat(60)), Why::TooLong),
    ] {
        let mut ladder = ladder("binance", "X");
        let _ = ladder.rest_snapshot(depth(5).as_bytes());
        let verdict = ladder.message(binance(6, 6, bids).as_bytes());
        match verdict.outcome {
            Outcome::Unreadable(unreadable) => assert_eq!(unreadable.why, why, "{bids}"),
            other => panic!("{bids}: {other:?}"),
        }
        assert_eq!((ladder.state(), ladder.is_empty()), (LadderState::Buffering, true));
        let _ = ladder.message(binance(7, 7, "[]").as_bytes());
        assert_eq!(ladder.rest_snapshot(depth(7).as_bytes()).outcome, Outcome::Replaced);
    }

    // A venue that sends its snapshots itself: broken, deltas are of no use, then whole again.
    let snapshot = r#"{"type":"snapshot","product_id":"X","bids":[["1","1"]],"asks":[]}"#;
    let change = r#"{"type":"l2update","product_id":"X","changes":[["buy","1.5","2"]]}"#;
    let mut ladder = ladder("coinbase", "X");
    assert_eq!(ladder.message(change.as_bytes()).outcome, Outcome::Ignored(Ignored::NoBook));
    assert_eq!(ladder.message(snapshot.as_bytes()).outcome, Outcome::Replaced);
    for (message, why) in [
        (change.replace("buy", "bought"), Why::UnknownSide),
        (change.replace("\"2\"", "\"two\""), Why::NotANumber),
        (change.replace("changes", "chances"), Why::NoLevels),
        (change.replace("product_id", "product"), Why::NoInstrument),
        (snapshot.replace("[[\"1\",\"1\"]]", "[[\"1\",\"1\"],[\"1.0\",\"2\"]]"), Why::PriceTwice),
        ("{".to_owned(), Why::NotJson),
        (String::new(), Why::NotJson),
    ] {
        let verdict = ladder.message(message.as_bytes());
        assert!(matches!(verdict.outcome, Outcome::Unreadable(un) if un.why == why), "{message} {verdict:?}");
        assert_eq!((ladder.state(), ladder.is_empty()), (LadderState::Broken, true));
        assert_eq!(ladder.message(change.as_bytes()).outcome, Outcome::Ignored(Ignored::NoBook));
        assert_eq!(ladder.message(snapshot.as_bytes()).outcome, Outcome::Replaced);
        assert_eq!(ladder.message(change.as_bytes()).outcome, Outcome::Applied);
        assert_eq!(top(&ladder), "1.5x2 1x1 | ");
    }
    // What is no concern of the book does not touch it.
    for message in [
        r#"{"type":"ticker","product_id":"X","bids":"1","changes":7}"#,
        r#"{"type":"subscriptions","channels":[]}"#,
        "[]",
        "7",
        r#"{"type":"l2update","product_id":"Y","changes":[["buy","9","9"]]}"#,
    ] {
        assert!(matches!(ladder.message(message.as_bytes()).outcome, Outcome::Ignored(_)), "{message}");
        assert_eq!((ladder.state(), &*top(&ladder)), (LadderState::Live, "1.5x2 1x1 | "));
    }
    let crossing = r#"{"type":"l2update","product_id":"X","changes":[["sell","1.20","2"]]}"#;
    assert!(ladder.message(crossing.as_bytes()).crossed);
}

fn okx(action: &str, previous: i64, last: i64, bids: &str, checksum: i64) -> Vec<u8> {
    format!(
        "{{\"arg\":{{\"channel\":\"books\",\"instId\":\"X\"}},\"action\":\"{action}\",\"data\":[{{\"asks\":[],\
         \"bids\":{bids},\"ts\":\"1\",\"checksum\":{checksum},\"prevSeqId\":{previous},\"seqId\":{last}}}]}}"
    )
    .into_bytes()
}

#[test]
fn okx_links() {
    let one = "[[\"1.50\",\"3\",\"0\",\"1\"]]";
    let snapshot = okx("snapshot", -1, 50, one, 0);
    let check = |ladder: &mut Ladder, previous, last, bids: &str| {
        ladder.message(&okx("update", previous, last, bids, 0)).outcome
    };
    let mut ladder = ladder("okx", "X");
    assert_eq!(ladder.message(&snapshot).checked, Checked::None, "zero means there is none");
    assert_eq!(check(&mut ladder, 50, 70, one), Outcome::Applied);
    assert_eq!(check(&mut ladder, 70, 70, "[]"), Outcome::Ignored(Ignored::KeepAlive));
    assert_eq!(check(&mut ladder, 50, 70, one), Outcome::Ignored(Ignored::Duplicate));
    assert_eq!(check(&mut ladder, 70, 75, one), Outcome::Applied);
    // Maintenance: the number falls once.
    assert_eq!(check(&mut ladder, 75, 3, one), Outcome::Applied);
    assert_eq!(check(&mut ladder, 3, 9, one), Outcome::Applied);
    // 70 was here before the fall; that does not make it old.
    assert_eq!(gap(ladder.message(&okx("update", 60, 70, one, 0))), (Some(10), Some(60)));
    let _ = ladder.message(&snapshot);
    assert_eq!(check(&mut ladder, 50, 9, one), Outcome::Applied);
    assert_eq!(gap(ladder.message(&okx("update", 20, 30, one, 0))), (Some(10), Some(20)));
    assert_eq!(ladder.state(), LadderState::Broken);
    assert_eq!(check(&mut ladder, 30, 31, one), Outcome::Ignored(Ignored::NoBook));
    assert_eq!(ladder.message(&snapshot).outcome, Outcome::Replaced);
    // The message with the fall is lost: what follows is not taken for old.
    assert_eq!(gap(ladder.message(&okx("update", 3, 9, one, 0))), (None, None));

    // CRC-32 of "1.50:3" and of "1.50:3" with a second bid, made elsewhere; the second is negative.
    let _ = ladder.message(&snapshot);
    let verdict = ladder.message(&okx("update", 50, 51, "[]", 2_045_949_602));
    assert_eq!(verdict.checked, Checked::Agrees);
    let verdict = ladder.message(&okx("update", 51, 52, "[[\"1.4\",\"2\"]]", -1_164_980_668));
    assert_eq!(verdict.checked, Checked::Agrees, "{verdict:?}");
    let verdict = ladder.message(&okx("update", 52, 53, "[[\"1.4\",\"3\"]]", -1_164_980_668));
    assert!(matches!(verdict.outcome, Outcome::Mismatch { .. }));
    assert_eq!((verdict.checked, ladder.state()), (Checked::Differs, LadderState::Broken));
    let verdict = ladder.message(&okx("snapshot", -1, 50, one, 99_999_999_999));
    assert!(matches!(verdict.outcome, Outcome::Unreadable(un) if un.why == Why::BadChecksum));
    let verdict = ladder.message(&okx("snapshot", -1, 50, "[]", 0));
    assert_eq!((verdict.outcome, ladder.is_empty()), (Outcome::Replaced, true));
    assert!(matches!(
        ladder.message(String::from_utf8(okx("update", 50, 51, one, 0)).unwrap().replace("prevSeqId", "x").as_bytes()).outcome,
        Outcome::Unreadable(un) if un.why == Why::BadSequence
    ));
}

#[test]
fn bybit_counts() {
    let message = |kind: &str, number: i64, size: &str| {
        format!(
            "{{\"type\":\"{kind}\",\"data\":{{\"s\":\"X\",\"b\":[[\"1\",\"{size}\"]],\"a\":[],\"u\":{number}}}}}"
        )
    };
    let mut ladder = ladder("bybit", "X");
    let mut send = |kind: &str, number, size: &str| {
        let verdict = ladder.message(message(kind, number, size).as_bytes());
        (verdict.outcome, top(&ladder))
    };
    assert_eq!(send("delta", 4, "1").0, Outcome::Ignored(Ignored::NoBook));
    assert_eq!(send("snapshot", 4, "1"), (Outcome::Replaced, "1x1 | ".to_owned()));
    assert_eq!(send("delta", 5, "2"), (Outcome::Applied, "1x2 | ".to_owned()));
    assert_eq!(send("delta", 5, "3"), (Outcome::Ignored(Ignored::Duplicate), "1x2 | ".to_owned()));
    assert_eq!(send("snapshot", 5, "4"), (Outcome::Replaced, "1x4 | ".to_owned()));
    assert_eq!(send("snapshot", 500, "4"), (Outcome::Replaced, "1x4 | ".to_owned()));
    // The service began anew: a snapshot, whatever it is called.
    assert_eq!(send("delta", 1, "7"), (Outcome::Replaced, "1x7 | ".to_owned()));
    assert_eq!(send("delta", 2, "8"), (Outcome::Applied, "1x8 | ".to_owned()));
    let lost = Outcome::Gap { first_missing: Some(3), last_missing: Some(3) };
    assert_eq!(send("delta", 4, "9"), (lost, " | ".to_owned()));
    assert_eq!(send("delta", 1, "7"), (Outcome::Replaced, "1x7 | ".to_owned()));
    assert_eq!(send("snapshot", 900, "7").0, Outcome::Replaced);
    assert_eq!(send("delta", 2, "8").0, Outcome::Gap { first_missing: None, last_missing: None });
}

#[test]
fn kraken_cuts_to_its_depth_and_proves_the_ten_best() {
    let mut form = form("kraken");
    form.depth = Some(2);
    let mut ladder = Ladder::new(&Arc::new(BookPlan::new(&form).unwrap()), "A/B");
    let message = |kind: &str, bids: &str, sum: &str| {
        format!(
            "{{\"channel\":\"book\",\"type\":\"{kind}\",\"data\":[{{\"symbol\":\"A\\/B\",\"bids\":[{bids}],\
             \"asks\":[{{\"price\":0.0520,\"qty\":0.00070}}]{sum}}}]}}"
        )
    };
    let two = "{\"price\":0.0500,\"qty\":1.00},{\"price\":0.0510,\"qty\":2.00}";
    // Sums made elsewhere: of "520"+"70"+"510"+"200"+"500"+"100", and with "515"+"300" before "510".
    let verdict = ladder.message(message("snapshot", two, ",\"checksum\":2393989878").as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::Agrees));
    let better = "{\"qty\":3.00,\"price\":0.0515}";
    let verdict = ladder.message(message("update", better, ",\"checksum\":\"1086663192\"").as_bytes());
    assert_eq!(verdict.checked, Checked::Agrees, "{verdict:?}");
    assert_eq!(top(&ladder), "0.0515x3.00 0.0510x2.00 | 0.0520x0.00070");
    let verdict = ladder.message(message("update", "", "").as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Applied, Checked::None));
    let verdict = ladder.message(message("update", better, ",\"checksum\":1").as_bytes());
    assert!(matches!(verdict.outcome, Outcome::Mismatch { .. }));
    assert_eq!(ladder.state(), LadderState::Broken);
}

#[test]
fn a_snapshot_is_written_with_the_keys_that_polled_books_have() {
    let mut ladder = ladder("binance", "X");
    let _ = ladder.rest_snapshot(depth(5).as_bytes());
    let mut out = Vec::new();
    ladder.write_snapshot("X/Y", None, 10, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        concat!(
            r#"{"market":null,"instrument":"X/Y","timestamp_ms":null,"bids":[["1.0","5"]],"asks":[["2.0","6"]],"#,
            r#""min_order_size":null,"tick_size":null,"neg_risk":null,"last_trade_price":null,"hash":null,"#,
            r#""hash_ok":null,"flags":[],"extra":{"sequence":5,"epoch":0}}"#
        )
    );
}

#[test]
fn a_form_that_cannot_work_is_refused_with_its_part() {
    let broken = |change: &dyn Fn(&mut catchment_venues::ladder::BookForm)| {
        let mut form = form("binance");
        change(&mut form);
        BookPlan::new(&form).unwrap_err().to_string()
    };
    assert_eq!(broken(&|form| form.messages.clear()), "messages: there are none");
    assert_eq!(
        broken(&|form| form.rest = None),
        "messages: no message is a snapshot, and there is no `rest`"
    );
    assert_eq!(broken(&|form| form.messages[1].last = None), "messages.1.last: the sequence rule needs it");
    assert_eq!(broken(&|form| form.messages[0].first = None), "messages.0.first: the sequence rule needs it");
    assert_eq!(
        broken(&|form| form.messages[0].item = "data".to_owned()),
        "messages.0.item: must begin with `/`"
    );
    assert_eq!(
        broken(&|form| form.messages[0].asks = Some("b".to_owned())),
        "messages.0.asks: another kind of message reads it otherwise"
    );
    assert_eq!(
        broken(&|form| form.messages[0].instrument = Some("b".to_owned())),
        "messages.0.bids: `b` is already something else"
    );
    assert_eq!(broken(&|form| form.depth = Some(0)), "depth: must be at least 1");
}
