//! What Binance sends, made up: depth messages that keep a book going, and trades. Both sides of a bench read these.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// Levels a side of the book that a depth tape begins with.
const LEVELS: u64 = 1_000;
/// The middle, in hundredths.
const MIDDLE: u64 = 6_183_764;

/// Lines of combined streams (`{"stream":…,"data":…}`), and the book before the first of them.
pub(crate) struct PeerTape {
    pub(crate) lines: Vec<String>,
    /// As REST tells it; nothing where no book is kept.
    pub(crate) snapshot: String,
    /// Best bid and ask after the last line: price and size.
    pub(crate) best: [(String, String); 2],
}

impl PeerTape {
    /// Depth messages, about 960 bytes each: some 25 levels, most of them near the best, a third of them removals.
    pub(crate) fn depth(messages: usize) -> Self {
        Self::depth_of(messages, 12)
    }

    /// The same, about 1,900 bytes each: some 50 levels.
    pub(crate) fn deep(messages: usize) -> Self {
        Self::depth_of(messages, 25)
    }

    fn depth_of(messages: usize, touches: usize) -> Self {
        let mut dice = Dice(7);
        let mut sides = [true, false].map(|bid| {
            let price = |at| if bid { MIDDLE - 1 - at } else { MIDDLE + at };
            (0..LEVELS).map(|at| (price(at), dice.size())).collect::<BTreeMap<u64, String>>()
        });
        let [bids, asks] = [true, false].map(|bid| {
            let side = &sides[usize::from(!bid)];
            let level = |(price, size): (&u64, &String)| format!("[\"{}\",\"{size}\"]", amount(*price));
            let mut levels: Vec<String> = side.iter().map(level).collect();
            if bid {
                levels.reverse();
            }
            levels.join(",")
        });
        let snapshot = format!("{{\"lastUpdateId\":1000,\"bids\":[{bids}],\"asks\":[{asks}]}}");
        let mut first = 1001;
        let lines = (0..messages).map(|at| {
            let [bids, asks] = [true, false].map(|bid| changes(&mut sides, bid, touches, &mut dice));
            let last = first + dice.below(40);
            let line = format!(
                "{{\"stream\":\"btcusdt@depth@100ms\",\"data\":{{\"e\":\"depthUpdate\",\"E\":{},\"s\":\"BTCUSDT\",\
                 \"U\":{first},\"u\":{last},\"b\":[{bids}],\"a\":[{asks}]}}}}",
                1_798_761_600_000 + 100 * at
            );
            first = last + 1;
            line
        });
        let lines = lines.collect();
        let best = [sides[0].last_key_value(), sides[1].first_key_value()];
        let best =
            best.map(|level| level.map(|(price, size)| (amount(*price), size.clone())).unwrap_or_default());
        Self { lines, snapshot, best }
    }

    /// Trades: `trade` (about 170 bytes) or, for those who read no other, `aggTrade` (about 200).
    pub(crate) fn trades(messages: usize, aggregated: bool) -> Self {
        let mut dice = Dice(11);
        let lines = (0..messages).map(|at| {
            let (price, size, time) = (amount(MIDDLE + dice.below(500)), dice.size(), 1_798_761_600_000 + at);
            let maker = dice.below(2) == 0;
            if aggregated {
                return format!(
                    "{{\"stream\":\"btcusdt@aggTrade\",\"data\":{{\"e\":\"aggTrade\",\"E\":{time},\"s\":\"BTCUSDT\",\
                     \"a\":{},\"p\":\"{price}\",\"q\":\"{size}\",\"f\":{},\"l\":{},\"T\":{time},\"m\":{maker},\"M\":true}}}}",
                    3_000_000_000_u64 + at as u64,
                    5_000_000_000_u64 + 2 * at as u64,
                    5_000_000_001_u64 + 2 * at as u64,
                );
            }
            format!(
                "{{\"stream\":\"btcusdt@trade\",\"data\":{{\"e\":\"trade\",\"E\":{time},\"s\":\"BTCUSDT\",\"t\":{},\
                 \"p\":\"{price}\",\"q\":\"{size}\",\"T\":{time},\"m\":{maker},\"M\":true}}}}",
                3_000_000_000_u64 + at as u64,
            )
        });
        Self { lines: lines.collect(), snapshot: String::new(), best: Default::default() }
    }

    /// Puts the tape into files for another process. `bare`: only what is within `data`.
    pub(crate) fn write(&self, dir: &Path, bare: bool) -> anyhow::Result<()> {
        let mut text = String::new();
        for line in &self.lines {
            let inner = line.split_once(",\"data\":").map_or("", |(_, data)| &data[..data.len() - 1]);
            writeln!(text, "{}", if bare { inner } else { line })?;
        }
        File::create(dir.join("lines.jsonl"))?.write_all(text.as_bytes())?;
        File::create(dir.join("snapshot.json"))?.write_all(self.snapshot.as_bytes())?;
        Ok(())
    }
}

/// Some changes of one side.
fn changes(sides: &mut [BTreeMap<u64, String>; 2], bid: bool, touches: usize, dice: &mut Dice) -> String {
    let mut text = String::new();
    let (best_bid, best_ask) = (sides[0].last_key_value(), sides[1].first_key_value());
    let best_bid = best_bid.map_or(MIDDLE, |level| *level.0);
    let best_ask = best_ask.map_or(MIDDLE, |level| *level.0);
    let mut touched = Vec::new();
    for _ in 0..touches {
        // Near the best, with a long tail; now and then one better than the best, if there is room between the two.
        let reach = 1 << (1 + dice.below(9));
        let distance = dice.below(reach);
        let price = match (bid, distance) {
            (true, 0) if best_bid + 1 < best_ask => best_bid + 1,
            (false, 0) if best_ask - 1 > best_bid => best_ask - 1,
            (true, _) => best_bid - distance,
            (false, _) => best_ask + distance,
        };
        if touched.contains(&price) {
            continue;
        }
        touched.push(price);
        let side = &mut sides[usize::from(!bid)];
        let size =
            if dice.below(3) == 0 && side.len() as u64 > LEVELS / 2 { None } else { Some(dice.size()) };
        let comma = if text.is_empty() { "" } else { "," };
        let shown = size.as_deref().unwrap_or("0.00000000");
        write!(text, "{comma}[\"{}\",\"{shown}\"]", amount(price)).expect("text takes everything");
        match size {
            Some(size) => side.insert(price, size),
            None => side.remove(&price),
        };
    }
    text
}

fn amount(hundredths: u64) -> String {
    format!("{}.{:02}000000", hundredths / 100, hundredths % 100)
}

/// The same throws every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn size(&mut self) -> String {
        format!("{}.{:05}000", self.below(12), 1 + self.below(99_999))
    }
}
