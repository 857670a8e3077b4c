//! Recorded sequences, where somebody keeps them beside the checkout. They are not part of this repository.

use std::collections::BTreeMap;
use std::path::PathBuf;

use catchment_venues::ladder::{BookPlan, Checked, Ignored, LevelText, Outcome, Verdict};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Arc, Ladder, LadderState, Side, form, ladder, plan};

#[derive(Deserialize)]
struct Line<'a> {
    dir: &'a str,
    #[serde(borrow)]
    frame: &'a RawValue,
}

/// The file's text, or nothing, said once, if the samples are not here.
fn sample(name: &str) -> Option<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/venues/samples");
    if !folder.is_dir() {
        eprintln!("skipped: there are no recorded samples in {}", folder.display());
        return None;
    }
    Some(std::fs::read_to_string(folder.join(name)).unwrap())
}

/// What became of the messages of a recording.
#[derive(Debug, Default)]
struct Tally {
    outcomes: BTreeMap<String, usize>,
    agrees: usize,
    crossed: usize,
}

impl Tally {
    fn add(&mut self, verdict: Verdict) {
        assert!(!verdict.outcome.needs_resync(), "{verdict:?}");
        assert_ne!(verdict.checked, Checked::Differs);
        *self.outcomes.entry(format!("{:?}", verdict.outcome)).or_default() += 1;
        self.agrees += usize::from(verdict.checked == Checked::Agrees);
        self.crossed += usize::from(verdict.crossed);
    }

    fn of(&self, outcome: Outcome) -> usize {
        self.outcomes.get(&format!("{outcome:?}")).copied().unwrap_or_default()
    }
}

/// Plays a recording; `each` sees the ladder and the frame after each message.
fn play(text: &str, ladder: &mut Ladder, mut each: impl FnMut(&Ladder, &str)) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines() {
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        let frame = line.frame.get();
        match line.dir {
            "rx" => tally.add(ladder.message(frame.as_bytes())),
            "rest" => tally.add(ladder.rest_snapshot(frame.as_bytes())),
            _ => continue,
        }
        each(ladder, frame);
    }
    assert_eq!(ladder.state(), LadderState::Live);
    assert_eq!(tally.crossed, 0);
    tally
}

#[derive(Deserialize)]
struct Touch<'a> {
    #[serde(borrow)]
    data: TouchData<'a>,
}

#[derive(Deserialize)]
#[allow(non_snake_case)]
struct TouchData<'a> {
    u: i64,
    b: &'a str,
    B: &'a str,
    a: &'a str,
    A: &'a str,
}

#[test]
fn binance_books_agree_with_the_touch_the_venue_tells() {
    let files = [
        ("BTCUSDT", "ws_btcusdt_depth_trade_bookticker_2024.jsonl"),
        ("LRCBTC", "ws_lrcbtc_depth_with_rest_snapshot.jsonl"),
        ("BLZETH", "ws_blzeth_depth_with_rest_snapshot.jsonl"),
    ];
    let mut compared = 0;
    for (instrument, file) in files {
        let Some(text) = sample(&format!("binance/{file}")) else { return };
        let mut ladder = ladder("binance", instrument);
        let mut touches = BTreeMap::new();
        let mut stands = BTreeMap::new();
        let tally = play(&text, &mut ladder, |ladder, frame| {
            if let Ok(Touch { data }) = serde_json::from_str::<Touch<'_>>(frame) {
                touches.insert(data.u, [data.b, data.B, data.a, data.A].map(str::to_owned));
            }
            if ladder.state() == LadderState::Live {
                let best = [Side::Bid, Side::Ask].map(|side| ladder.best(side).unwrap());
                let [LevelText { price: b, size: bs }, LevelText { price: a, size: s }] = best;
                stands.insert(ladder.sequence().unwrap(), [b, bs, a, s].map(str::to_owned));
            }
        });
        assert!(tally.of(Outcome::Applied) > 0);
        assert_eq!(tally.of(Outcome::Replaced), 1);
        for (number, touch) in touches {
            if let Some(stand) = stands.get(&number) {
                assert_eq!(*stand, touch, "{instrument} at {number}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 8, "every touch told at a number where a depth message ends");
}

#[test]
fn kraken_checksums_agree() {
    for (instrument, depth, file, sums) in [
        ("MINA/GBP", 25, "ws_v2_book_minagbp_d25_resubscribe.jsonl", 19),
        ("ETH/USD", 10, "ws_v2_book_ethusd_d10_2025.jsonl", 2),
    ] {
        let Some(text) = sample(&format!("kraken/{file}")) else { return };
        let mut form = form("kraken");
        form.depth = Some(depth);
        let mut ladder = Ladder::new(&Arc::new(BookPlan::new(&form).unwrap()), instrument);
        let tally = play(&text, &mut ladder, |_, _| {});
        assert_eq!(tally.agrees, sums);
        assert_eq!(tally.of(Outcome::Applied) + tally.of(Outcome::Replaced), sums);
    }
}

#[test]
fn okx_checksums_and_coinbase_and_bybit_sequences_agree() {
    let Some(text) = sample("okx/ws_books_trades_tickers_uni-usd-swap_2022.jsonl") else { return };
    // In 2022 the messages were not numbered yet.
    let tally = play(&text, &mut super::ladder("okx", "UNI-USD-SWAP"), |_, _| {});
    assert_eq!(tally.agrees, 93);

    for (instrument, file) in [
        ("BAND-GBP", "exchange_ws_level2_matches_ticker_band-gbp_2021.jsonl"),
        ("NU-GBP", "exchange_ws_level2_nu-gbp_2021.jsonl"),
    ] {
        let text = sample(&format!("coinbase/{file}")).unwrap();
        let tally = play(&text, &mut super::ladder("coinbase", instrument), |_, _| {});
        assert_eq!(tally.of(Outcome::Replaced), 1);
        assert!(tally.of(Outcome::Applied) > 50);
    }

    let text = sample("bybit/ws_spot_orderbook200_btcusdt_2023.jsonl").unwrap();
    let tally = play(&text, &mut super::ladder("bybit", "BTCUSDT"), |_, _| {});
    assert_eq!((tally.of(Outcome::Replaced), tally.of(Outcome::Applied)), (1, 1));
    let text = sample("bybit/ws_spot_orderbook_1_and_50_2023.jsonl").unwrap();
    let tally = play(&text, &mut super::ladder("bybit", "BTCUSDT"), |_, _| {});
    assert_eq!((tally.of(Outcome::Replaced), tally.of(Outcome::Applied)), (1, 1));
    assert_eq!(tally.of(Outcome::Ignored(Ignored::NoBook)), 1, "a change of level 1 before any snapshot");
}

#[test]
fn venues_that_do_not_ship_are_described_by_the_same_form() {
    for (name, instrument, file, replaced, applied) in [
        ("gate", "FAST_USDT", "gate/ws_order_book_update_with_rest_snapshot_fast_usdt_2021.jsonl", 1, 10),
        ("kucoin", "COV-BTC", "kucoin/ws_level2_with_rest_snapshot_cov-btc_2021.jsonl", 1, 20),
        ("bitstamp", "", "bitstamp/ws_diff_order_book_with_rest_snapshot_galaeur_2022.jsonl", 1, 10),
        ("deribit", "BTC-31DEC21-34000-P", "deribit/ws_book_raw_btc-31dec21-34000-p_2021.jsonl", 1, 1),
        ("hyperliquid", "BTC", "hyperliquid/ws_l2book_trades_btc_2025.jsonl", 2, 0),
        ("kraken_v1", "GRT/ETH", "kraken/ws_v1_book1000_grt-eth_2021.jsonl", 1, 10),
    ] {
        let Some(text) = sample(file) else { return };
        let tally = play(&text, &mut Ladder::new(&plan(name), instrument), |_, _| {});
        eprintln!("{name} {tally:?}");
        assert!(tally.of(Outcome::Replaced) >= replaced, "{name}: {tally:?}");
        assert!(tally.of(Outcome::Applied) >= applied, "{name}: {tally:?}");
    }
}

#[derive(Deserialize)]
struct Session {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    direction: String,
    raw: String,
}

#[test]
fn polymarket_hashes_prove_every_batch_and_every_book() {
    let Some(text) = sample("polymarket/ws-session.json") else { return };
    let session: Session = serde_json::from_str(&text).unwrap();
    let frames: Vec<&str> =
        session.messages.iter().filter(|m| m.direction == "recv").map(|m| &*m.raw).collect();
    let asset = "34691510069031117755834214800869745291092253295564665516660269316660628637961";
    let mut ladder = ladder("polymarket", asset);
    let (mut batches, mut books, mut pending) = (0, 0, 0);
    for frame in frames.iter().filter(|frame| frame.starts_with(['[', '{'])) {
        let verdict = ladder.message(frame.as_bytes());
        assert!(!verdict.outcome.needs_resync() && !verdict.crossed, "{verdict:?} {frame}");
        match (verdict.outcome, verdict.checked) {
            (Outcome::Replaced, Checked::Agrees) => books += 1,
            (Outcome::Applied, Checked::Agrees) => batches += 1,
            (Outcome::Applied, Checked::Pending) => pending += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((books, batches, pending), (4, 29, 5));
    assert_eq!(ladder.settle(), None);

    // Leave out any one frame: no book that the hash proves is another than the true one, and what is wrong is said.
    let book = |ladder: &Ladder| {
        let mut out = Vec::new();
        ladder.write_snapshot("", None, usize::MAX, &mut out);
        out
    };
    let mut noticed = 0;
    // Nothing can tell that the very last one is missing.
    let last = frames.iter().rposition(|frame| frame.starts_with('{')).unwrap();
    for left_out in 1..last {
        let (mut whole, mut holed) = (super::ladder("polymarket", asset), super::ladder("polymarket", asset));
        let mut resyncs = 0;
        for (at, frame) in frames.iter().enumerate().filter(|(_, frame)| frame.starts_with(['[', '{'])) {
            let _ = whole.message(frame.as_bytes());
            if at == left_out {
                continue;
            }
            let verdict = holed.message(frame.as_bytes());
            resyncs += usize::from(verdict.outcome.needs_resync());
            assert!(verdict.checked != Checked::Agrees || book(&holed) == book(&whole), "{left_out} {at}");
        }
        resyncs += usize::from(holed.settle().is_some());
        assert!(resyncs > 0 || book(&holed) == book(&whole), "{left_out}");
        noticed += usize::from(resyncs > 0);
    }
    assert!(noticed > 20, "{noticed}");

    // REST tells every term; a book polled is proved as well.
    let Some(body) = sample("polymarket/clob-book.json") else { return };
    let asset = body.split("\"asset_id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut polled = super::ladder("polymarket", &asset);
    let verdict = polled.rest_snapshot(body.as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::Agrees));

    // A first book alone is enough to find out what it does not say.
    let first = sample("polymarket/ws-initial-book.json").unwrap();
    let asset = first.split("\"asset_id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let verdict = super::ladder("polymarket", &asset).message(first.as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::Agrees));

    // The rule of 2024 is not known: the book is taken, and nothing is claimed about it.
    let old = sample("polymarket/ws-old-book-2024.json").unwrap();
    let verdict = super::ladder("polymarket", "").message(old.as_bytes());
    assert_eq!((verdict.outcome, verdict.checked), (Outcome::Replaced, Checked::None));
}
