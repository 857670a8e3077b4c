//! `catchment sim`: simulated venues on loopback, until a signal comes.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use catchment_model::SystemClock;
use catchment_sim::{Sim, SimConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::SimCommand;
use crate::{DONE, say};

pub(crate) fn run(command: &SimCommand) -> anyhow::Result<u8> {
    let config = match &command.config {
        Some(path) => read(path)?,
        None => SimConfig::default(),
    };
    let config = command.args.apply(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
        let sim = Sim::start(config, Arc::new(SystemClock::new())).await?;
        print(&sim);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        sim.stop().await;
        Ok(DONE)
    })
}

fn read(path: &Path) -> anyhow::Result<SimConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{}", path.display()))
}

/// Where to look: one line an API, its address last. Whoever reads them may be gone already.
fn print(sim: &Sim) {
    let bases = sim.bases();
    let width = bases.iter().map(|(api, _)| api.len()).max().unwrap_or(0);
    let mut out = std::io::stdout().lock();
    for (api, base) in &bases {
        let _ = writeln!(out, "{api:<width$}  {base}");
    }
    let _ = out.flush();
    say(&format!(
        "figures and faults: {}, {}; Ctrl-C ends it",
        sim.base("_sim/stats"),
        sim.base("_sim/faults")
    ));
}
