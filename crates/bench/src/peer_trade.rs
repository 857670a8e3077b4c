//! A trade of Binance to a record: the reader, beside cryptofeed and barter-data. PERF goal 5.
//!
//! Ours is what the recorder does with a frame: checked to be JSON, told what it is, its instrument, id, number and time
//! found, and an envelope around its bytes. cryptofeed only knows `aggTrade`, barter-data only `trade` without its
//! wrapper, so each has a tape of its own.

use catchment_model::{Channel, Envelope, Payload, Source, Symbol, UnixNs, Venue};
use catchment_venues::stream::{Descriptor, Event, Reader};

use crate::machine::thread_seconds;
use crate::peer_tape::PeerTape;
use crate::peers::Peer;
use crate::{BenchArgs, Duel, Goal, Report};

const MESSAGES: usize = 20_000;
const TIMES: usize = 5;
const SYMBOL: &str = "BTC/USDT";

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    for (name, aggregated, goal) in [
        ("cryptofeed: JSON, Decimal, Trade, no-op callback", true, 15.0),
        ("barter-data: BinanceTrade to MarketEvent", false, 1.6),
    ] {
        let tape = PeerTape::trades(MESSAGES, aggregated);
        tape.write(scratch.path(), !aggregated)?;
        let mut ours = || read(&tape, aggregated);
        let peer = match aggregated {
            true => Peer::cryptofeed(args, "trade", scratch.path())?,
            false => Peer::barter(args, "trade", scratch.path())?,
        };
        let Some(mut peer) = peer else {
            report.figure(if aggregated { "ours, aggTrade" } else { "ours, trade" }, ours()?, "messages/s");
            continue;
        };
        let duel = Duel {
            what: "a trade to a record",
            unit: "messages/s",
            ours: ("the reader, to an envelope", &mut ours),
            theirs: (name, &mut || Ok(peer.round()?.lines_per_second())),
            goal: Goal::AtLeast(goal),
        };
        report.duel(args.rounds(), duel)?;
    }
    Ok(())
}

/// Messages for a second of CPU time.
fn read(tape: &PeerTape, aggregated: bool) -> anyhow::Result<f64> {
    let mut trades = Trades::new(aggregated)?;
    let mut records = 0;
    let seconds = thread_seconds(|| {
        for _ in 0..TIMES {
            for line in &tape.lines {
                trades.read(line.as_bytes(), |record| {
                    std::hint::black_box(record);
                    records += 1;
                });
            }
        }
    });
    anyhow::ensure!(records == TIMES * tape.lines.len(), "{records} records");
    Ok(records as f64 / seconds)
}

/// Frames of trades to records.
pub(crate) struct Trades<'t> {
    venue: Venue,
    channel: Channel,
    symbol: Symbol<'static>,
    source: Source<'static>,
    received_at: UnixNs,
    reader: Reader,
    events: Vec<Event<'t>>,
}

impl<'t> Trades<'t> {
    pub(crate) fn new(aggregated: bool) -> anyhow::Result<Self> {
        let venue = Descriptor::find("binance").expect("it ships");
        let wanted = venue.want(if aggregated { "agg_trades" } else { "trades" }, SYMBOL)?;
        let channel = &venue.channels()[wanted.channel];
        let reader = venue.reader(channel.socket, std::slice::from_ref(&wanted));
        Ok(Self {
            venue: venue.venue(),
            channel: channel.name,
            symbol: Symbol::new(SYMBOL)?,
            source: Source::new("ws:1")?,
            received_at: UnixNs::from_ms(1_798_761_600_000)?,
            reader,
            events: Vec::new(),
        })
    }

    pub(crate) fn read(&mut self, frame: &'t [u8], mut each: impl FnMut(&Envelope<'_>)) {
        self.events.clear();
        self.reader.read(frame, &mut self.events);
        for event in &self.events {
            let Event::Data(data) = event else { continue };
            each(&Envelope {
                message_id: data.id.as_deref(),
                sequence: data.sequence.map(|sequence| sequence.last),
                exchange: self.venue,
                channel: self.channel,
                symbol: self.symbol,
                server_time: data.server_time,
                received_at: self.received_at,
                payload: Payload::already_validated(data.text.as_bytes()).expect("one line of JSON"),
                source: self.source,
            });
        }
    }
}
