//! Other programs that read the same lines, each a process of its own that says what its CPU time was.
//!
//! A peer is started as `PROGRAM MODE DIR`, with `lines.jsonl` and `snapshot.json` in the folder. It says `ready`; for each
//! line on its input it reads all lines once and says `{"lines": n, "cpu_seconds": s, "best": [bid, ask]}`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

use crate::BenchArgs;
use crate::processes::Process;

const CRYPTOFEED: &str = include_str!("../peers/cryptofeed_peer.py");

/// A peer that waits for its next round.
pub(crate) struct Peer {
    process: Process,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

/// What a peer says of a round.
#[derive(Debug, Deserialize)]
pub(crate) struct Round {
    lines: f64,
    cpu_seconds: f64,
    /// Best bid and best ask at the end, where it keeps a book: numbers as text.
    #[serde(default)]
    pub(crate) best: Vec<String>,
}

impl Round {
    pub(crate) fn lines_per_second(&self) -> f64 {
        self.lines / self.cpu_seconds
    }
}

impl Peer {
    /// cryptofeed in Python. Nothing, and a line that says why: it is not there or not wanted.
    pub(crate) fn cryptofeed(args: &BenchArgs, mode: &str, dir: &Path) -> anyhow::Result<Option<Self>> {
        if !args.is_against("cryptofeed") {
            return Ok(None);
        }
        let mut probe = Command::new(&args.python);
        probe.args(["-c", "import cryptofeed"]).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            let python = args.python.display();
            eprintln!(
                "beside cryptofeed: skipped, {python} cannot import it. `{python} -m pip install cryptofeed` installs \
                 it; --python names another interpreter"
            );
            return Ok(None);
        }
        let script = dir.join("cryptofeed_peer.py");
        std::fs::File::create(&script)?.write_all(CRYPTOFEED.as_bytes())?;
        Self::start(Command::new(&args.python).arg(script).arg(mode).arg(dir)).map(Some)
    }

    /// barter-data, built from `crates/bench/peers/barter`.
    pub(crate) fn barter(args: &BenchArgs, mode: &str, dir: &Path) -> anyhow::Result<Option<Self>> {
        if !args.is_against("barter") {
            return Ok(None);
        }
        let Some(program) = &args.barter else {
            eprintln!(
                "beside barter-data: skipped, --barter does not say where it is. `cargo build --release \
                 --manifest-path crates/bench/peers/barter/Cargo.toml` builds it"
            );
            return Ok(None);
        };
        Self::start(Command::new(program).arg(mode).arg(dir)).map(Some)
    }

    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = Process::start(command.stdin(Stdio::piped()))?;
        let mut lines = process.lines()?;
        let ready = lines.next().transpose()?;
        anyhow::ensure!(ready.as_deref() == Some("ready"), "the peer did not start: {ready:?}");
        Ok(Self { process, lines })
    }

    /// One round over all lines.
    pub(crate) fn round(&mut self) -> anyhow::Result<Round> {
        let input = self.process.0.stdin.as_mut().context("the peer has an input")?;
        input.write_all(b"go\n")?;
        input.flush()?;
        let answer = self.lines.next().context("the peer has ended")??;
        serde_json::from_str(&answer).with_context(|| format!("the peer says {answer:?}"))
    }
}
