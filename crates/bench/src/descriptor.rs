//! Frames read through Binance's descriptor, beside the same reading written by hand for Binance alone.
//!
//! Both sides check the whole frame, find the same values, look the topic up among the same 500 instruments and hand on the
//! same event. The reader by hand uses the scanner that the descriptor's walk uses; what is measured is what it costs
//! that pointers come from a file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use catchment_model::UnixMs;
use catchment_venues::stream::scan::{Scanned, key, skip_space, string_end, value_end};
use catchment_venues::stream::{Data, Descriptor, Event, Sequence, Wanted};

use crate::machine::thread_seconds;
use crate::{BenchArgs, Duel, Goal, Report};

/// Frames a round, each read this often.
const FRAMES: usize = 2_000;
const TIMES: usize = 20;
const GOAL: f64 = 1.25;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let binance = Descriptor::find("binance").expect("Binance ships");
    let symbols: Vec<String> = (0..250).map(|n| format!("COIN{n}/USDT")).collect();
    let mut table = Vec::new();
    for channel in ["trades", "book_delta"] {
        for symbol in &symbols {
            table.push(binance.want(channel, symbol)?);
        }
    }
    let mut reader = binance.reader(0, &table);
    let mut by_hand = ByHand::new(&table, binance.channel("trades").expect("it has trades"));
    for (what, frames) in [("a trade", trades()), ("a depth update", depths())] {
        let bytes = frames.iter().map(Vec::len).sum::<usize>() / frames.len();
        report.figure(
            if what == "a trade" { "bytes of a trade" } else { "bytes of a depth update" },
            bytes as f64,
            "bytes",
        );
        for frame in &frames {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            reader.read(frame, &mut ours);
            by_hand.read(frame, &mut theirs);
            anyhow::ensure!(ours == theirs, "the sides have read different things: {ours:?} and {theirs:?}");
        }
        let per_frame = |seconds: f64| seconds * 1e9 / (FRAMES * TIMES) as f64;
        let mut ours = || {
            let mut events = Vec::new();
            let mut sum = 0_u64;
            let seconds = thread_seconds(|| {
                for frame in (0..TIMES).flat_map(|_| &frames) {
                    reader.read(frame, &mut events);
                    sum = sum.wrapping_add(taken(&mut events));
                }
            });
            anyhow::ensure!(sum != 0, "nothing was read");
            Ok(per_frame(seconds))
        };
        let mut theirs = || {
            let mut events = Vec::new();
            let mut sum = 0_u64;
            let seconds = thread_seconds(|| {
                for frame in (0..TIMES).flat_map(|_| &frames) {
                    by_hand.read(frame, &mut events);
                    sum = sum.wrapping_add(taken(&mut events));
                }
            });
            anyhow::ensure!(sum != 0, "nothing was read");
            Ok(per_frame(seconds))
        };
        let duel = Duel {
            what: &format!("reading {what} of Binance"),
            unit: "ns",
            ours: ("through the descriptor", &mut ours),
            theirs: ("written by hand", &mut theirs),
            goal: Goal::AtMost(GOAL),
        };
        report.duel(args.rounds().max(11), duel)?;
    }
    Ok(())
}

/// Looks at what was read, so that nobody can leave it out.
fn taken(events: &mut Vec<Event<'_>>) -> u64 {
    let sum = events.iter().fold(0_u64, |sum, event| match event {
        Event::Data(data) => sum
            .wrapping_add(u64::from(data.wanted))
            .wrapping_add(data.sequence.map_or(0, |sequence| sequence.last))
            .wrapping_add(data.server_time.map_or(0, |time| time.get() as u64)),
        _ => sum,
    });
    events.clear();
    sum
}

/// What one would write for these two streams and nothing else.
struct ByHand {
    topics: HashMap<String, (u32, bool), BuildHasherDefault<Quick>>,
}

impl ByHand {
    fn new(table: &[Wanted], trades: usize) -> Self {
        let topics = table.iter().enumerate().map(|(index, wanted)| {
            let is_trade = wanted.channel == trades;
            let stream = if is_trade { "trade" } else { "depth@100ms" };
            (format!("{}@{stream}", wanted.instrument.subscribe), (index as u32, is_trade))
        });
        Self { topics: topics.collect() }
    }

    fn read<'m>(&mut self, frame: &'m [u8], events: &mut Vec<Event<'m>>) {
        let Ok(text) = std::str::from_utf8(frame) else { return };
        let mut fields = Fields::default();
        let start = skip_space(frame, 0);
        let Ok(end) = fields.frame(frame, start) else { return };
        if skip_space(frame, end) != frame.len() {
            return;
        }
        let Some(&(wanted, is_trade)) = fields.stream.and_then(|(from, to)| self.topics.get(&text[from..to]))
        else {
            return;
        };
        let number = |place: Option<(usize, usize)>| text.get(place?.0..place?.1)?.parse::<u64>().ok();
        let (first, last, time) = match is_trade {
            true => (fields.trade, fields.trade, fields.trade_time),
            false => (fields.first, fields.last, fields.event_time),
        };
        let Some((id_from, id_to)) = last else { return };
        let sequence = match (number(first), number(last)) {
            (Some(first), Some(last)) => Some(Sequence { first, last, prev: None }),
            _ => None,
        };
        events.push(Event::Data(Data {
            wanted,
            also: Default::default(),
            text: &text[start..end],
            id: Some(Cow::Borrowed(&text[id_from..id_to])),
            sequence,
            server_time: number(time).and_then(|ms| UnixMs::new(i64::try_from(ms).ok()?).ok()),
            is_snapshot: false,
            items: 1,
            flaw: None,
        }));
    }
}

type Place = Option<(usize, usize)>;

/// Where the values are.
#[derive(Default)]
struct Fields {
    stream: Place,
    event_time: Place,
    trade_time: Place,
    trade: Place,
    first: Place,
    last: Place,
}

impl Fields {
    fn frame(&mut self, bytes: &[u8], at: usize) -> Scanned<usize> {
        members(bytes, at, |name, at| match name {
            b"stream" if bytes.get(at) == Some(&b'"') => {
                let (end, _) = string_end(bytes, at + 1)?;
                self.stream = Some((at + 1, end));
                Ok(end + 1)
            }
            b"data" if bytes.get(at) == Some(&b'{') => self.data(bytes, at),
            _ => value_end(bytes, at, 1),
        })
    }

    fn data(&mut self, bytes: &[u8], at: usize) -> Scanned<usize> {
        members(bytes, at, |name, at| {
            let end = value_end(bytes, at, 2)?;
            match name {
                b"E" => self.event_time = Some((at, end)),
                b"T" => self.trade_time = Some((at, end)),
                b"t" => self.trade = Some((at, end)),
                b"U" => self.first = Some((at, end)),
                b"u" => self.last = Some((at, end)),
                _ => {}
            }
            Ok(end)
        })
    }
}

/// Goes through an object; `each` gets a key and where its value begins, and says where it ends.
#[inline(always)]
fn members<'m>(
    bytes: &'m [u8],
    at: usize,
    mut each: impl FnMut(&'m [u8], usize) -> Scanned<usize>,
) -> Scanned<usize> {
    let wrong = |at: usize| catchment_venues::stream::scan::Fault { at, why: "not an object" };
    if bytes.get(at) != Some(&b'{') {
        return Err(wrong(at));
    }
    let mut at = skip_space(bytes, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    loop {
        let ((from, to, _), value) = key(bytes, at)?;
        at = skip_space(bytes, each(&bytes[from..to], value)?);
        match bytes.get(at) {
            Some(b',') => at = skip_space(bytes, at + 1),
            Some(b'}') => return Ok(at + 1),
            _ => return Err(wrong(at)),
        }
    }
}

/// As quick as the descriptor's own table: a multiplication for eight bytes.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let mut mix =
            |word: u64| self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            mix(u64::from_le_bytes(*chunk.first_chunk().expect("chunks of eight")));
        }
        mix(chunks.remainder().iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

fn trades() -> Vec<Vec<u8>> {
    let frame = |n: usize| {
        let (coin, time) = (n % 250, 1_723_161_255_000 + n);
        format!(
            r#"{{"stream":"coin{coin}usdt@trade","data":{{"e":"trade","E":{time},"s":"COIN{coin}USDT","t":{},"p":"{}.63000000","q":"0.0{}000000","T":{time},"m":{},"M":true}}}}"#,
            3_735_683_259_u64 + n as u64,
            61_000 + n % 977,
            n % 89 + 10,
            n.is_multiple_of(2)
        )
    };
    (0..FRAMES).map(|n| frame(n).into_bytes()).collect()
}

/// Depth updates of 2 to 40 levels.
fn depths() -> Vec<Vec<u8>> {
    let side = |n: usize, levels: usize| {
        let level = |l: usize| {
            format!(r#"["{}.{:02}000000","{}.{:05}000"]"#, 61_000 + (n + l) % 977, l % 100, l % 7, n % 99_999)
        };
        (0..levels).map(level).collect::<Vec<_>>().join(",")
    };
    let frame = |n: usize| {
        let (coin, first) = (n % 250, 50_093_239_189_u64 + 9 * n as u64);
        format!(
            r#"{{"stream":"coin{coin}usdt@depth@100ms","data":{{"e":"depthUpdate","E":{},"s":"COIN{coin}USDT","U":{first},"u":{},"b":[{}],"a":[{}]}}}}"#,
            1_723_161_255_208_u64 + n as u64,
            first + 8,
            side(n, 1 + n % 20),
            side(n + 7, 1 + n / 3 % 20)
        )
    };
    (0..FRAMES).map(|n| frame(n).into_bytes()).collect()
}
