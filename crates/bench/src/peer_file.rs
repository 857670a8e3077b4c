//! A trade of Binance to a line of a file: reader and envelope, beside cryptofeed and `json.dumps`. PERF goal 7.
//!
//! Both write to a file in the same folder and neither syncs it.

use std::fs::File;
use std::io::Write;

use catchment_model::{RecordId, SpoolId};

use crate::machine::thread_seconds;
use crate::peer_tape::PeerTape;
use crate::peer_trade::Trades;
use crate::peers::Peer;
use crate::{BenchArgs, Duel, Goal, Report};

const MESSAGES: usize = 20_000;
const TIMES: usize = 5;
/// Bytes that are written at once.
const BLOCK: usize = 256 * 1024;

pub(crate) fn run(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let scratch = args.scratch()?;
    let tape = PeerTape::trades(MESSAGES, true);
    tape.write(scratch.path(), false)?;
    let path = scratch.path().join("ours.jsonl");
    let mut ours = || {
        let mut file = File::create(&path)?;
        let mut trades = Trades::new(true)?;
        let mut out = Vec::with_capacity(2 * BLOCK);
        let mut failed = None;
        let mut seq = 0;
        let seconds = thread_seconds(|| {
            for line in (0..TIMES).flat_map(|_| &tape.lines) {
                trades.read(line.as_bytes(), |record| {
                    seq += 1;
                    record.write_line(&RecordId { spool: SpoolId::new(7), seq }, &mut out);
                });
                if out.len() >= BLOCK {
                    failed = failed.take().or(file.write_all(&out).err());
                    out.clear();
                }
            }
            failed = failed.take().or(file.write_all(&out).err());
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        anyhow::ensure!(seq as usize == TIMES * MESSAGES, "{seq} lines");
        Ok(seq as f64 / seconds)
    };
    let Some(mut peer) = Peer::cryptofeed(args, "file", scratch.path())? else {
        report.figure("ours", ours()?, "messages/s");
        return Ok(());
    };
    let duel = Duel {
        what: "a trade to a line of a file",
        unit: "messages/s",
        ours: ("the reader, to an envelope's line", &mut ours),
        theirs: ("cryptofeed: Trade, json.dumps", &mut || Ok(peer.round()?.lines_per_second())),
        goal: Goal::AtLeast(20.0),
    };
    report.duel(args.rounds(), duel)
}
