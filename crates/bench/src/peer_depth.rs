//! A depth message of Binance to a book that is kept: the ladder, beside cryptofeed and barter-data. PERF goal 6.
//!
//! Ours is what the recorder does with a frame: the reader finds out what it is, and the ladder reads it once more,
//! checks its numbers and applies it. Each side begins a round with the same snapshot and ends it with the same best bid
//! and ask.

use catchment_venues::ladder::{Ladder, LadderState, Outcome, Side};
use catchment_venues::stream::{Descriptor, Event};

use crate::machine::thread_seconds;
use crate::peer_tape::PeerTape;
use crate::peers::Peer;
use crate::{BenchArgs, Duel, Goal, Report};

const MESSAGES: usize = 4_000;
/// Ours goes over the tape so often in a round.
const TIMES: usize = 5;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let tape = PeerTape::depth(MESSAGES);
    let bytes: usize = tape.lines.iter().map(String::len).sum();
    report.figure("a message", bytes as f64 / MESSAGES as f64, "bytes");
    let scratch = args.scratch()?;

    let mut alone: Vec<f64> =
        (0..args.rounds()).map(|_| keep(&tape, false)).collect::<anyhow::Result<_>>()?;
    report.figure("the ladder alone", crate::median(&mut alone), "messages/s");
    let mut both: Vec<f64> = (0..args.rounds()).map(|_| keep(&tape, true)).collect::<anyhow::Result<_>>()?;
    report.figure("reader and ladder", crate::median(&mut both), "messages/s");

    for (name, goal) in
        [("cryptofeed: JSON, Decimal, book, no-op callback", 14.0), ("barter-data: OrderBook::update", 2.8)]
    {
        let cryptofeed = goal > 10.0;
        tape.write(scratch.path(), !cryptofeed)?;
        let peer = match cryptofeed {
            true => Peer::cryptofeed(args, "depth", scratch.path())?,
            false => Peer::barter(args, "depth", scratch.path())?,
        };
        let Some(mut peer) = peer else { continue };
        let mut theirs = || {
            let round = peer.round()?;
            let same = |text: &String, ours: &str| text.parse::<f64>().ok() == ours.parse::<f64>().ok();
            let [bid, ask] = round.best.as_slice() else { anyhow::bail!("no best levels: {round:?}") };
            anyhow::ensure!(
                same(bid, &tape.best[0].0) && same(ask, &tape.best[1].0),
                "another book: {round:?}"
            );
            Ok(round.lines_per_second())
        };
        let duel = Duel {
            what: "a depth message to a book that is kept",
            unit: "messages/s",
            ours: ("reader and ladder", &mut || keep(&tape, true)),
            theirs: (name, &mut theirs),
            goal: Goal::AtLeast(goal),
        };
        report.duel(args.rounds(), duel)?;
    }
    Ok(())
}

/// Messages for a second of CPU time.
fn keep(tape: &PeerTape, with_reader: bool) -> anyhow::Result<f64> {
    let venue = Descriptor::find("binance").expect("it ships");
    let wanted = venue.want("book_delta", "BTC/USDT")?;
    let channel = &venue.channels()[wanted.channel];
    let plan = channel.book.as_ref().expect("its deltas make a book");
    let mut reader = venue.reader(channel.socket, std::slice::from_ref(&wanted));
    let mut events = Vec::new();
    let mut seconds = 0.0;
    for _ in 0..TIMES {
        let mut ladder = Ladder::new(plan, &wanted.instrument.frame);
        anyhow::ensure!(ladder.rest_snapshot(tape.snapshot.as_bytes()).outcome == Outcome::Replaced);
        let mut applied = 0;
        seconds += thread_seconds(|| {
            for line in &tape.lines {
                let verdict = if with_reader {
                    events.clear();
                    reader.read(line.as_bytes(), &mut events);
                    let [Event::Data(data)] = events.as_slice() else { continue };
                    ladder.message_text(data.text)
                } else {
                    ladder.message(line.as_bytes())
                };
                applied += usize::from(verdict.outcome == Outcome::Applied);
            }
        });
        anyhow::ensure!(
            applied == tape.lines.len() && ladder.state() == LadderState::Live,
            "{applied} applied"
        );
        for (side, (price, size)) in [Side::Bid, Side::Ask].into_iter().zip(&tape.best) {
            let best = ladder.best(side).expect("both sides have levels");
            anyhow::ensure!((best.price, best.size) == (price, size), "another book");
        }
    }
    Ok((TIMES * tape.lines.len()) as f64 / seconds)
}
