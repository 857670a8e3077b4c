//! The binary. Data goes to standard output, talk to standard error; it exits with 0 when it did what was asked, 1 when
//! it looked and found something wanting, 2 when it could not.

#[macro_use]
mod out;

mod accounts;
#[cfg(feature = "lake")]
mod backfill;
mod check;
mod cli;
mod config;
mod demo;
mod desk;
#[cfg(feature = "redis")]
mod fleet;
mod floorplan;
mod governors;
mod ingest;
mod jobs;
mod lines;
mod mock;
mod opening;
mod readiness;
mod recorder;
mod run;
mod signals;
mod sim;
mod store;
mod streams;
mod summary;
mod venues;
mod verify;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, ConfigCommand, StoreCommand};

/// Done.
const DONE: u8 = 0;
/// Looked, and found something wanting.
const WANTING: u8 = 1;
/// Could not do it.
const COULD_NOT: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    catchment_collect::prefer_ring();
    start_logging(cli.command.log_default());
    let code = match run(cli) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("catchment: {error:#}"));
            COULD_NOT
        }
    };
    ExitCode::from(code)
}

fn run(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::Config(ConfigCommand::Init { path, force }) => config::init(&path, force),
        Command::Config(ConfigCommand::Explain { json, markdown }) => config::explain(json, markdown),
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Venues { config, json } => venues::run(config.as_deref(), json),
        Command::Check { config, connect, json } => check::run(&config.read()?, connect, json),
        Command::Ingest(args) => ingest::run(args),
        Command::Verify(args) => verify::run(&args),
        Command::Sim(command) => sim::run(&command),
        Command::Connectors(command) => desk::connectors(&command),
        Command::Jobs(command) => desk::jobs(&command),
        Command::Candles(command) => desk::candles(&command),
        Command::Store(StoreCommand::Migrate { config, json }) => store::migrate(&config.read()?, json),
        #[cfg(feature = "redis")]
        Command::Fleet(command) => fleet::run(&command),
        #[cfg(not(feature = "redis"))]
        Command::Fleet(absent) => absent.refuse("fleet", "redis"),
        #[cfg(feature = "lake")]
        Command::Backfill(command) => backfill::run(&command),
        #[cfg(not(feature = "lake"))]
        Command::Backfill(absent) => absent.refuse("backfill", "lake"),
        #[cfg(feature = "bench")]
        Command::Bench(args) => catchment_bench::run(args),
        #[cfg(not(feature = "bench"))]
        Command::Bench(absent) => absent.refuse("bench", "bench"),
    }
}

/// `CATCHMENT_LOG` chooses what is told (`debug`, `catchment_pipeline=trace`, …); without it what the command wants: warnings and worse.
fn start_logging(default: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CATCHMENT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// Says something to the person. Nobody may be listening any more; that is no reason to fail.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
