//! The walk held against serde_json: frames of every venue, damaged at random, and pointers into them.
//!
//! What the walk takes, serde_json takes, and every pointer leads both to the same value. What the walk refuses,
//! serde_json refuses, but for two things: a key that is pointed at and stands twice, and values nested very deep. The
//! same holds for frames that are compared with shapes instead. `CATCHMENT_LONG` asks for a million mutants of each;
//! `scripts/torture readers` runs them.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use serde_json::value::RawValue;

use super::found::{Found, Slot};
use super::paths::{Paths, PathsBuilder, Take};
use super::pointer::{Pointer, Step};
use super::scan::{DEPTH_MAX, Scanned, levels_end, skip_space, value_end};
use super::shape::Shapes;
use crate::mould::Two;

const FRAMES: [&str; 9] = [
    r#"{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","E":1723161255208,"s":"BTCUSDT","U":5,"u":9,"b":[["61737.63000000","0.00000000"],["61737.62000000","1.50000000"],["61737.61000000","0.12500000"],["61737.60000000","12.12500000"],["61737.59000000","0.12500000"]],"a":[["61738.01000000","0.50000000"],["61738.02000000","7.50000000"]]}}"#,
    r#"{"stream":"btcusdt@depth@100ms","data":{"e":"depthUpdate","E":1723161255208,"s":"BTCUSDT","U":5,"u":9,"b":[["61737.63","0.0"],["61737.62","1.50000000"],["7","0.002"]],"a":[]}}"#,
    r#"{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","side":"buy","price":83744.3,"qty":0.00044780,"trade_id":109116693},{"symbol":"ETH\/USD","trade_id":7}]}"#,
    r#"{"arg":{"channel":"books","instId":"NEAR-USDT"},"action":"snapshot","data":[{"asks":[["1.783","411.1","0","3"]],"bids":[],"ts":"1765201257005","checksum":-1197821412,"seqId":9690930615,"prevSeqId":-1}]}"#,
    r#"{"market":"0x1f","price_changes":[{"asset_id":"71","price":"0.4","size":"0"},{"asset_id":"72","price":"0.6"}], "timestamp":"1785491757532","event_type":"price_change"}"#,
    r#"{"success":false,"ret_msg":"args size \u003e10 \ud83d\ude00 \"quoted\"","conn_id":"d7u3","req_id":"2000001","op":"subscribe"}"#,
    "{ \"a\" : [ 1 , -0.5e+3 ,\t{ \"b\" : [ ] , \"c\" : { } } , null , true , false ] ,\r\n \"d\\u0061ta\" : \"x\" , \"\" : 0 }",
    r#"[[1,[2,[3,[4,"fünf"]]]],{"0":{"0":"zero"}},[]]"#,
    r#"{"data":{"data":[{"data":1},{"data":[{"data":2}]},3]},"u":1e5,"U":0}"#,
];

/// Bytes that matter to JSON are likelier.
const BYTES: &[u8] = b"{}[]\",:\\/0123456789.-+eEuUtrfalsn \t\n\r\x00\x1f\x7f\xc3\xa4\xffabcdsx";

fn damaged(random: &mut StdRng) -> Vec<u8> {
    let mut frame = FRAMES.choose(random).expect("there are some").as_bytes().to_vec();
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..frame.len().max(1));
        match random.random_range(0..6) {
            0 if at < frame.len() => frame[at] = *BYTES.choose(random).expect("there are some"),
            1 => frame.insert(at.min(frame.len()), *BYTES.choose(random).expect("there are some")),
            2 if at < frame.len() => drop(frame.remove(at)),
            3 => frame.truncate(at),
            4 => {
                // A piece of it once more: keys that stand twice, values that stand side by side.
                let end = random.random_range(at..=frame.len());
                let piece = frame[at..end].to_vec();
                let to = random.random_range(0..=frame.len());
                frame.splice(to..to, piece);
            }
            _ => {
                let other = FRAMES.choose(random).expect("there are some").as_bytes();
                let end = random.random_range(at..=frame.len());
                let from = random.random_range(0..other.len());
                let to = random.random_range(from..=other.len().min(from + 40));
                frame.splice(at..end.min(at + 40), other[from..to].iter().copied());
            }
        }
        if frame.is_empty() {
            frame.push(b'{');
        }
    }
    frame
}

fn pointers(random: &mut StdRng) -> Vec<Pointer> {
    const STEPS: [&str; 20] = [
        "stream",
        "data",
        "u",
        "U",
        "E",
        "s",
        "b",
        "0",
        "1",
        "2",
        "-1",
        "*",
        "symbol",
        "trade_id",
        "arg",
        "instId",
        "price_changes",
        "asset_id",
        "a",
        "c",
    ];
    let one = |random: &mut StdRng| {
        let steps: Vec<&str> =
            (0..random.random_range(1..4)).map(|_| *STEPS.choose(random).expect("there are some")).collect();
        let both = steps.contains(&"*") && steps.contains(&"-1");
        (!both).then(|| Pointer::read(&format!("/{}", steps.join("/"))).expect("well formed"))
    };
    (0..random.random_range(1..12)).filter_map(|_| one(random)).collect()
}

/// All values that a pointer leads to, the slow way.
fn all_of<'v>(steps: &[Step], value: &'v Value, out: &mut Vec<&'v Value>) {
    let Some((step, rest)) = steps.split_first() else { return out.push(value) };
    match (step, value) {
        (Step::Key(key), Value::Object(_) | Value::Array(_)) => {
            let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            if let Some(value) = value.pointer(&pointer) {
                all_of(rest, value, out);
            }
        }
        (Step::Last, Value::Array(list)) => {
            if let Some(value) = list.last() {
                all_of(rest, value, out);
            }
        }
        (Step::Every, Value::Array(list)) => list.iter().for_each(|value| all_of(rest, value, out)),
        _ => {}
    }
}

/// A million with `CATCHMENT_LONG`.
fn mutants(short: u32) -> u32 {
    if std::env::var_os("CATCHMENT_LONG").is_some() { 1_000_000 } else { short }
}

/// The pointers, compiled: where each one's value goes, and where the number of its elements.
struct Wanted {
    pointers: Vec<Pointer>,
    slots: Vec<Slot>,
    counts: Vec<Slot>,
    paths: Paths,
}

impl Wanted {
    fn new(pointers: Vec<Pointer>) -> Self {
        let mut builder = PathsBuilder::default();
        let mut take = |take| -> Vec<Slot> {
            pointers.iter().map(|pointer| builder.slot(pointer, take).expect("few")).collect()
        };
        let (slots, counts) = (take(Take::Value), take(Take::Count));
        Self { slots, counts, paths: builder.build(), pointers }
    }

    /// What is wrong, if anything, with what `walk` makes of a frame.
    fn compare(
        &self,
        frame: &str,
        walk: impl FnOnce(&Paths, &[u8], usize, &mut Found) -> Scanned<usize>,
    ) -> Result<bool, String> {
        let mut found = Found::new();
        let bytes = frame.as_bytes();
        let walked = walk(&self.paths, bytes, skip_space(bytes, 0), &mut found);
        let walked = walked.and_then(|end| match skip_space(bytes, end) == bytes.len() {
            true => Ok(()),
            false => Err(super::scan::Fault { at: end, why: "after" }),
        });
        let value = serde_json::from_str::<Value>(frame);
        match (walked, value) {
            (Err(fault), Ok(_)) if fault.why.contains("twice") || fault.why.contains("deep") => Ok(false),
            (Err(fault), Ok(_)) => Err(format!("refused at {} ({}), and is JSON", fault.at, fault.why)),
            (Err(_), Err(_)) => Ok(false),
            (Ok(()), Err(error)) => match serde_json::from_str::<&RawValue>(frame) {
                // A number that no float can hold; we do not make floats.
                Ok(_) if error.to_string().contains("number out of range") => Ok(false),
                _ => Err(format!("taken, and is no JSON: {error}")),
            },
            (Ok(()), Ok(value)) => self.same(frame, &found, &value).map(|()| true),
        }
    }

    fn same(&self, frame: &str, found: &Found, value: &Value) -> Result<(), String> {
        for ((pointer, slot), count) in self.pointers.iter().zip(&self.slots).zip(&self.counts) {
            let mut theirs = Vec::new();
            all_of(&pointer.0, value, &mut theirs);
            let ours: Vec<Value> = match pointer.is_many() {
                true => found
                    .many
                    .iter()
                    .filter(|(of, _)| of == slot)
                    .map(|(_, place)| place.value(frame))
                    .collect::<Vec<_>>(),
                false => found.value(*slot, frame).into_iter().collect(),
            }
            .into_iter()
            .map(|value| serde_json::from_str(value.raw).expect("a part of what was valid"))
            .collect();
            if ours.iter().collect::<Vec<_>>() != theirs {
                return Err(format!("{pointer:?}: {ours:?} and {theirs:?}"));
            }
            let (ours, theirs) = (found.count(*count), theirs.first().and_then(|value| value.as_array()));
            if !pointer.is_many() && ours != theirs.map(|list| list.len() as u32) {
                return Err(format!("{pointer:?}: {ours:?} elements and {theirs:?}"));
            }
        }
        Ok(())
    }
}

/// As the reader walks a frame that has no shape.
fn plainly(paths: &Paths, bytes: &[u8], at: usize, found: &mut Found) -> Scanned<usize> {
    paths.walk(bytes, at, found)
}

#[test]
fn the_walk_and_serde_json_agree() {
    let mut random = StdRng::seed_from_u64(7);
    let mut taken = 0;
    let mutants = mutants(30_000);
    for _ in 0..mutants {
        let frame = damaged(&mut random);
        let wanted = Wanted::new(pointers(&mut random));
        let Ok(text) = std::str::from_utf8(&frame) else { continue };
        match wanted.compare(text, plainly) {
            Ok(was_taken) => taken += u32::from(was_taken),
            Err(reason) => panic!("{reason}\n{text}"),
        }
    }
    assert!(taken > mutants / 5, "only {taken} were sound: the test has lost its meaning");
}

/// A list of levels, most of them spelled alike, with or without damage.
fn levels(random: &mut StdRng) -> Vec<u8> {
    const SIZES: [&str; 6] = ["0.00000000", "1.50000000", "12.25000000", "7", "\\u0031", "0.5\",\"0\",\"3"];
    let rows = (0..random.random_range(0..12)).map(|_| {
        let size = SIZES[random.random_range(0..20_usize).min(SIZES.len() - 1)];
        let size = if random.random_bool(0.6) { SIZES[1] } else { size };
        format!(
            "[\"{}.{:02}000000\",\"{size}\"]",
            random.random_range(10_000..99_999),
            random.random_range(0..100)
        )
    });
    let mut list = format!("[{}]}}}}", rows.collect::<Vec<_>>().join(",")).into_bytes();
    for _ in 0..random.random_range(0..3) {
        let at = random.random_range(0..list.len());
        match random.random_range(0..3) {
            0 => list[at] = *BYTES.choose(random).expect("there are some"),
            1 => list.insert(at, *BYTES.choose(random).expect("there are some")),
            _ => list.truncate(at.max(1)),
        }
    }
    list
}

#[test]
fn levels_spelled_alike_end_where_any_value_does() {
    let mut random = StdRng::seed_from_u64(13);
    let (mut moulds, mut ended) = (Two::default(), 0);
    let mutants = mutants(60_000);
    for _ in 0..mutants {
        let list = levels(&mut random);
        if list[0] != b'[' || std::str::from_utf8(&list).is_err() {
            continue;
        }
        let depth = if random.random_bool(0.1) { DEPTH_MAX - random.random_range(0..3) } else { 2 };
        if let Some(end) = levels_end(&list, 0, depth, &mut moulds) {
            assert_eq!(value_end(&list, 0, depth), Ok(end), "{}", list.escape_ascii());
            ended += 1;
        }
    }
    assert!(ended > mutants / 5, "only {ended} were sound: the test has lost its meaning");
}

#[test]
fn what_no_venue_should_send_is_refused() {
    let wanted = Wanted::new(vec![Pointer::read("/data/u").expect("well formed")]);
    let check = |frame: &str, sound: bool| {
        assert_eq!(wanted.compare(frame, plainly), Ok(sound), "{frame}");
    };
    check(r#"{"data":{"u":1},"data":{"u":2}}"#, false);
    check(r#"{"data":{"u":1},"d\u0061ta":{"u":2}}"#, false);
    check(r#"{"x":1,"x":2,"data":{"u":1}}"#, true);
    check(r#"{"data":{"u":1}} x"#, false);
    check(r#"{"data":{"u":01}}"#, false);
    check(r#"{"data":{"u":"\ud800"}}"#, false);
    check(r#"{"data":{"u":1e999}}"#, false);
    check(&format!("{}1{}", "[".repeat(100), "]".repeat(100)), true);
    // A bomb costs no stack.
    let deep = format!("{{\"x\":{}", "[".repeat(1_000_000));
    check(&deep, false);
}

#[test]
fn what_fits_a_shape_is_what_the_walk_and_serde_json_find() {
    let mut random = StdRng::seed_from_u64(11);
    let mut fitted = 0;
    let rounds = mutants(60_000) / 40;
    for _ in 0..rounds {
        let wanted = Wanted::new(pointers(&mut random));
        let mut shapes = Shapes::default();
        for _ in 0..40 {
            let frame = damaged(&mut random);
            let Ok(text) = std::str::from_utf8(&frame) else { continue };
            fitted += u32::from(shapes.fits(&frame, skip_space(&frame, 0)));
            let compared = wanted.compare(text, |paths, bytes, at, ours| {
                let mut theirs = Found::new();
                let walked = shapes.walk(paths, bytes, at, ours);
                assert_eq!(walked, paths.walk(bytes, at, &mut theirs), "{text}");
                if walked.is_ok() {
                    assert_eq!((ours.mask, &ours.many), (theirs.mask, &theirs.many), "{text}");
                    for slot in &wanted.slots {
                        assert_eq!(ours.place(*slot), theirs.place(*slot), "{text}");
                    }
                }
                walked
            });
            compared.unwrap_or_else(|reason| panic!("{reason}\n{text}"));
        }
    }
    assert!(fitted > rounds, "only {fitted} fitted: the test has lost its meaning");
}
