//! Synthetic records, shaped like what venues send: four trades to one book update, about 500 bytes a line.

use catchment_model::{Channel, Envelope, Payload, Source, Symbol, UnixMs, UnixNs, Venue};

/// Payloads, and envelopes around them.
pub(crate) struct Tape {
    payloads: Vec<String>,
    trades: Channel,
    books: Channel,
    venue: Venue,
}

const SYMBOLS: [&str; 4] = ["BTC/USDT", "ETH/USDT", "SOL/USDT", "XRP/USDT"];

impl Tape {
    /// Records that differ from each other.
    pub(crate) fn new(records: usize) -> Self {
        let name = "fixed names are good";
        Self {
            payloads: (0..records).map(payload).collect(),
            trades: Channel::new("trades").expect(name),
            books: Channel::new("book_delta").expect(name),
            venue: Venue::new("binance").expect(name),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.payloads.len()
    }

    /// The record at a place, the tape being a ring.
    pub(crate) fn envelope(&self, at: usize) -> Envelope<'_> {
        let payload = &self.payloads[at % self.payloads.len()];
        let ms = 1_798_761_600_000 + (at as i64 / 1_000) % 1_000_000;
        Envelope {
            message_id: None,
            sequence: Some(at as u64),
            exchange: self.venue,
            channel: if at % 5 == 4 { self.books } else { self.trades },
            symbol: Symbol::new(SYMBOLS[at % SYMBOLS.len()]).expect("fixed symbols are good"),
            server_time: UnixMs::new(ms).ok(),
            received_at: UnixNs::from_ms(ms + 3).expect("a time of our own making"),
            payload: Payload::already_validated(payload.as_bytes()).expect("one line of JSON"),
            source: Source::new("ws:1").expect("a fixed source is good"),
        }
    }
}

fn payload(n: usize) -> String {
    let price = 60_000 + n % 977;
    if n % 5 != 4 {
        return format!(
            r#"{{"stream":"btcusdt@trade","data":{{"e":"trade","E":{},"s":"BTCUSDT","t":{n},"p":"{price}.10000000","q":"0.00{}1000","T":{},"m":{},"M":true}}}}"#,
            1_798_761_600_000_u64 + n as u64,
            n % 90 + 10,
            1_798_761_599_998_u64 + n as u64,
            n.is_multiple_of(2),
        );
    }
    let level = |step: usize| format!(r#"["{}.{:02}000000","0.{:08}"]"#, price - step, n % 100, n * 7 + step);
    let side = |from: usize| (from..from + 6).map(level).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"stream":"btcusdt@depth@100ms","data":{{"e":"depthUpdate","E":{},"s":"BTCUSDT","U":{n},"u":{},"b":[{}],"a":[{}]}}}}"#,
        1_798_761_600_000_u64 + n as u64,
        n + 4,
        side(0),
        side(20),
    )
}
