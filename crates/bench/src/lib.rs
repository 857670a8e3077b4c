//! `catchment bench <name>`: what this machine can do, and how close we come.
//!
//! A bench measures pairs: *ours* beside a limit of the machine or a naive form. Both sides run in the same process, a
//! round each in turn, the order changing from round to round, so that a neighbour's load falls on both. What counts is
//! the ratio: its median over the rounds is held against the goal. Absolute figures are printed beside it and mean
//! little on another machine.
//!
//! A bench is a file here and a line in [`BENCHES`].

mod backfill;
mod books;
mod dedup;
mod descriptor;
mod fuzz_scanner;
mod handoff;
mod isolation;
#[cfg(feature = "mongo")]
mod job_pick;
mod jobs;
mod machine;
mod memory;
mod parse_books;
mod passthrough;
mod peer_depth;
mod peer_file;
mod peer_tape;
mod peer_trade;
mod peers;
mod permit;
mod pipeline;
mod poll;
mod processes;
mod sink_file;
#[cfg(feature = "mongo")]
mod sink_mongo;
#[cfg(feature = "redis")]
mod sink_redis;
mod spool;
mod tape;
#[cfg(feature = "mongo")]
mod tokens;
mod ws_pipe;
mod ws_server;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

/// What can be measured, in the order in which it is listed.
static BENCHES: &[Bench] = &[
    Bench {
        name: "spool",
        about: "durable appends and replay, beside the disk's own sync rate",
        run: spool::run,
    },
    Bench {
        name: "sink-file",
        about: "JSON lines to files, beside plain writes of the same bytes",
        run: sink_file::run,
    },
    #[cfg(feature = "mongo")]
    Bench {
        name: "sink-mongo",
        about: "records to MongoDB, beside serde Value documents",
        run: sink_mongo::run,
    },
    #[cfg(feature = "redis")]
    Bench {
        name: "sink-redis",
        about: "the latest of 500 tokens in Redis by one script, beside a script call a token",
        run: sink_redis::run,
    },
    Bench { name: "dedup", about: "the dedup window, beside a HashSet<String>", run: dedup::run },
    Bench { name: "handoff", about: "records from a collector to the intake", run: handoff::run },
    Bench {
        name: "pipeline",
        about: "durable accepts through the whole pipeline, beside a bare loop",
        run: pipeline::run,
    },
    Bench { name: "jobs", about: "durable claims of jobs, beside the disk's own sync rate", run: jobs::run },
    #[cfg(feature = "mongo")]
    Bench {
        name: "job-pick",
        about: "claims of jobs in MongoDB, beside S2's scheduling index",
        run: job_pick::run,
    },
    #[cfg(feature = "mongo")]
    Bench {
        name: "tokens",
        about: "tokens of a shared budget in MongoDB, beside two attempts for each",
        run: tokens::run,
    },
    Bench { name: "permit", about: "a permit from asking to report, beside a lock", run: permit::run },
    Bench {
        name: "parse-books",
        about: "an answer of 500 Polymarket books to fixed-point levels, beside serde_json",
        run: parse_books::run,
    },
    Bench {
        name: "descriptor",
        about: "Binance's frames read through its descriptor, beside a reader written by hand",
        run: descriptor::run,
    },
    Bench {
        name: "passthrough",
        about: "an answer of 500 Polymarket books to envelope lines, beside a Value round trip",
        run: passthrough::run,
    },
    Bench {
        name: "fuzz-scanner",
        about: "a million damaged answers through the scanner and through serde_json",
        run: fuzz_scanner::run,
    },
    Bench {
        name: "poll",
        about: "20,000 Polymarket books a second recorded from a simulator, beside a poller in Python",
        run: poll::run,
    },
    Bench {
        name: "isolation",
        about: "one venue refuses, is silent or answers garbage: the others' rates, and how soon it is back",
        run: isolation::run,
    },
    Bench {
        name: "peer-depth",
        about: "Binance depth messages to a book that is kept, beside cryptofeed and barter-data",
        run: peer_depth::run,
    },
    Bench {
        name: "peer-trade",
        about: "Binance trades to records, beside cryptofeed and barter-data",
        run: peer_trade::run,
    },
    Bench {
        name: "peer-file",
        about: "Binance trades to lines of a file, beside cryptofeed and json.dumps",
        run: peer_file::run,
    },
    Bench {
        name: "ws-pipe",
        about: "frames from a socket to spool and file, beside reading and discarding, and cryptofeed",
        run: ws_pipe::run,
    },
    Bench {
        name: "backfill",
        about: "history of candles against the limit a simulator declares, beside ccxt",
        run: backfill::run,
    },
    Bench { name: "memory", about: "memory over ten million records", run: memory::run },
];

struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&BenchArgs, &mut Report) -> anyhow::Result<()>,
}

/// `catchment bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Which; without a name they are listed
    name: Option<String>,
    /// How many rounds [default: 7; poll: 3; isolation: 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// Where files are written [default: a temporary folder in the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How many records, for the benches that run once through
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// How long it is watched at a steady pace, for the benches that record
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,
    /// A server to write to, for sink-mongo, job-pick and tokens (it gets a database catchment_bench) and sink-redis
    /// [default: one of their own]
    #[arg(long, value_name = "URI")]
    url: Option<String>,
    /// The Python of the benches that have a side in it
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Only beside this peer, for the benches that have several: cryptofeed or barter
    #[arg(long, value_name = "PEER")]
    against: Option<String>,
    /// Only the kinds of traffic with this in their name, for ws-pipe: "trades", "depth"
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The barter-data peer, built from crates/bench/peers/barter
    #[arg(long, value_name = "PROGRAM")]
    barter: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

impl BenchArgs {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(7)
    }

    /// Whether that peer is wanted.
    fn is_against(&self, peer: &str) -> bool {
        self.against.as_ref().is_none_or(|wanted| wanted == peer)
    }

    /// A folder on the disk to be measured, removed afterwards. Not `/tmp`, which may be memory.
    fn scratch(&self) -> anyhow::Result<tempfile::TempDir> {
        let near = self.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        Ok(tempfile::Builder::new().prefix("catchment-bench-").tempdir_in(near)?)
    }
}

/// Runs the bench of that name. 0: every goal was met, 1: not.
pub fn run(args: BenchArgs) -> anyhow::Result<u8> {
    let Some(name) = &args.name else {
        for bench in BENCHES {
            println!("{:<12} {}", bench.name, bench.about);
        }
        return Ok(0);
    };
    let bench = BENCHES.iter().find(|bench| bench.name == name).ok_or_else(|| {
        let names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        anyhow::anyhow!("there is no bench {name:?}; there are {}", names.join(", "))
    })?;
    anyhow::ensure!(args.rounds() > 0, "--rounds must be at least 1");
    let mut report = Report { bench: bench.name, figures: Vec::new(), results: Vec::new() };
    (bench.run)(&args, &mut report)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(u8::from(!report.results.iter().all(|result| result.met)))
}

/// What a bench found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    bench: &'static str,
    figures: Vec<Figure>,
    results: Vec<Outcome>,
}

/// Something worth knowing that has no goal.
#[derive(Debug, Serialize)]
struct Figure {
    what: &'static str,
    value: f64,
    unit: &'static str,
}

/// One comparison.
#[derive(Debug, Serialize)]
struct Outcome {
    what: String,
    unit: &'static str,
    ours: f64,
    ours_is: &'static str,
    theirs: f64,
    theirs_is: &'static str,
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
    goal: Goal,
    met: bool,
}

/// What the ratio, or a plain figure, must be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// Ours over theirs, at least.
    AtLeast(f64),
    /// Ours over theirs, at most.
    AtMost(f64),
    /// Ours over theirs, off one by at most this.
    Near(f64),
}

/// Two sides and what is asked of them. Each gives its figure of one round.
pub(crate) struct Duel<'a> {
    pub(crate) what: &'a str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Side<'a>,
    pub(crate) theirs: Side<'a>,
    pub(crate) goal: Goal,
}

/// What a side is called, and how to run a round of it.
pub(crate) type Side<'a> = (&'static str, &'a mut dyn FnMut() -> anyhow::Result<f64>);

impl Report {
    /// Runs both sides in turn and notes how they compare. One round of each comes first and does not count.
    pub(crate) fn duel(&mut self, rounds: usize, duel: Duel<'_>) -> anyhow::Result<()> {
        let Duel { what, unit, ours: (ours_is, ours), theirs: (theirs_is, theirs), goal } = duel;
        ours()?;
        theirs()?;
        let mut figures = Vec::with_capacity(rounds);
        for round in 0..rounds {
            // Whoever goes first finds colder caches; take turns at it.
            let pair = if round % 2 == 0 {
                let first = ours()?;
                (first, theirs()?)
            } else {
                let first = theirs()?;
                (ours()?, first)
            };
            figures.push(pair);
        }
        self.note(what, unit, (ours_is, theirs_is), &figures, goal);
        Ok(())
    }

    /// Notes something worth knowing that has no goal.
    pub(crate) fn figure(&mut self, what: &'static str, value: f64, unit: &'static str) {
        eprintln!("  {what:<44} {:>14} {unit}", short(value));
        self.figures.push(Figure { what, value, unit });
    }

    /// Notes rounds that were measured elsewhere: pairs of ours and theirs.
    pub(crate) fn note(
        &mut self,
        what: &str,
        unit: &'static str,
        (ours_is, theirs_is): (&'static str, &'static str),
        figures: &[(f64, f64)],
        goal: Goal,
    ) {
        let mut ratios: Vec<f64> = figures.iter().map(|(ours, theirs)| ours / theirs).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = median(&mut ratios.clone());
        let met = match goal {
            Goal::AtLeast(least) => ratio >= least,
            Goal::AtMost(most) => ratio <= most,
            Goal::Near(off) => (ratio - 1.0).abs() <= off,
        };
        let outcome = Outcome {
            what: what.to_owned(),
            unit,
            ours: median(&mut figures.iter().map(|f| f.0).collect::<Vec<_>>()),
            ours_is,
            theirs: median(&mut figures.iter().map(|f| f.1).collect::<Vec<_>>()),
            theirs_is,
            ratio,
            ratio_min: ratios[0],
            ratio_max: ratios[ratios.len() - 1],
            goal,
            met,
        };
        outcome.print();
        self.results.push(outcome);
    }
}

impl Outcome {
    fn print(&self) {
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("at least {least}"),
            Goal::AtMost(most) => format!("at most {most}"),
            Goal::Near(off) => format!("1 ± {off}"),
        };
        eprintln!("{}", self.what);
        eprintln!("  {:<44} {:>14} {}", self.ours_is, short(self.ours), self.unit);
        eprintln!("  {:<44} {:>14} {}", self.theirs_is, short(self.theirs), self.unit);
        eprintln!(
            "  ratio {:.3} [{:.3}..{:.3}], goal {goal}: {}",
            self.ratio,
            self.ratio_min,
            self.ratio_max,
            if self.met { "met" } else { "MISSED" }
        );
    }
}

fn short(figure: f64) -> String {
    match figure {
        f if f >= 1e6 => format!("{:.2} M", f / 1e6),
        f if f >= 1e4 => format!("{:.1} k", f / 1e3),
        f if f >= 10.0 => format!("{f:.1}"),
        f => format!("{f:.3}"),
    }
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report { bench: "test", figures: Vec::new(), results: Vec::new() }
    }

    #[test]
    fn the_median_of_the_ratios_decides() {
        let mut report = report();
        let figures = [(1.0, 2.0), (3.0, 2.0), (10.0, 1.0)];
        report.note("x", "u", ("a", "b"), &figures, Goal::AtLeast(1.5));
        report.note("x", "u", ("a", "b"), &figures, Goal::AtLeast(1.6));
        report.note("x", "u", ("a", "b"), &figures, Goal::AtMost(1.5));
        report.note("x", "u", ("a", "b"), &figures, Goal::Near(0.5));
        report.note("x", "u", ("a", "b"), &figures, Goal::Near(0.4));
        let met = [true, false, true, true, false];
        assert_eq!(report.results.iter().map(|r| r.met).collect::<Vec<_>>(), met);
        assert_eq!((report.results[0].ratio_min, report.results[0].ratio_max), (0.5, 10.0));
    }

    #[test]
    fn both_sides_take_turns() {
        let mut report = report();
        let order = std::cell::RefCell::new(String::new());
        let mut ours = || {
            order.borrow_mut().push('o');
            Ok(1.0)
        };
        let mut theirs = || {
            order.borrow_mut().push('t');
            Ok(1.0)
        };
        let duel = Duel {
            what: "x",
            unit: "u",
            ours: ("a", &mut ours),
            theirs: ("b", &mut theirs),
            goal: Goal::AtLeast(1.0),
        };
        report.duel(3, duel).unwrap();
        assert_eq!(*order.borrow(), "otottoot");
    }
}
