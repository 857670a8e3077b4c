//! What users type.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use catchment_sim::mock::MockArgs;
use clap::{Args, Parser, Subcommand};

use crate::config::{self, Config};
use crate::desk::cli::{CandlesCommand, ConnectorsCommand, JobsCommand};

/// Records markets round the clock: asks as fast as a venue allows, loses nothing it accepted, says what it missed.
#[derive(Debug, Parser)]
#[command(name = "catchment", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record simulated venues on this machine, with a page of live figures; nothing else is needed
    ///
    /// Prints where to look. Ends on Ctrl-C, or after --for, with a line a venue on standard output. Exits with 1 if a
    /// record was lost.
    Demo(DemoArgs),

    /// Record the venues of the configuration
    ///
    /// Finds their markets, asks for the books as fast as each venue allows and no faster, and delivers them to every
    /// sink. Ctrl-C or SIGTERM ends it within ten seconds, with a line a venue on standard output; what is then not yet
    /// in a sink waits in the spool for the next start.
    Run(RunArgs),

    /// What each venue can do, where it is and what it allows
    Venues {
        /// A configuration, whose descriptors_dir is listed too [default: what this build knows]
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: Option<PathBuf>,

        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },

    /// Take envelopes as JSON lines from standard input
    ///
    /// One envelope a line, with the keys exchange, channel, symbol and payload, and where known message_id, sequence,
    /// server_time_ms, received_at_ms and source. Each is made durable in the spool, then delivered to every sink.
    /// A line that is not an envelope is refused with its number and the reason; the rest goes on.
    /// Exits with 1 if a line was refused or records still wait in the spool for a sink, 2 if nothing could be written.
    Ingest(IngestArgs),

    /// Re-read an archive: every line, id, date, manifest and checksum
    ///
    /// Prints what is wrong with file and line. Exits with 1 if anything is.
    Verify(VerifyArgs),

    /// Check the configuration without touching anything
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        /// Ask each venue once, too: is it there, does it let us in
        #[arg(long)]
        connect: bool,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },

    /// Write a configuration to start from, or explain every key
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Simulated venues on this machine, with whatever should go wrong
    ///
    /// One server with a path for each API: Polymarket, Limitless and Kalshi, and five exchanges with their sockets. Prints
    /// each one's address on standard output. GET /_sim/stats has the figures, POST /_sim/faults changes the faults while it
    /// runs. Ends with 0 on Ctrl-C.
    Sim(SimCommand),

    /// Connectors: one an exchange, with the limit that all who ask it share
    #[command(subcommand)]
    Connectors(ConnectorsCommand),

    /// Jobs: list, add, change, pause, resume, run or delete them
    ///
    /// They ask the store that the configuration names, whether anything is running or not.
    /// Exits with 1 if there is no such job or something stands against it.
    #[command(subcommand)]
    Jobs(JobsCommand),

    /// Candles that were fetched, and what is missing
    #[command(subcommand)]
    Candles(CandlesCommand),

    /// The store of connectors, jobs and candles
    #[command(subcommand)]
    Store(StoreCommand),

    /// Many fetch nodes, one latest picture of every order book in Redis
    #[cfg(feature = "redis")]
    #[command(subcommand)]
    Fleet(FleetCommand),
    #[cfg(not(feature = "redis"))]
    #[command(hide = true, disable_help_flag = true)]
    Fleet(Absent),

    /// Fetch history, job by job, onto a lake
    #[cfg(feature = "lake")]
    #[command(subcommand)]
    Backfill(crate::backfill::BackfillCommand),
    #[cfg(not(feature = "lake"))]
    #[command(hide = true, disable_help_flag = true)]
    Backfill(Absent),

    /// Measure this machine and how close Catchment comes to it
    ///
    /// Both sides run interleaved in one process; printed are both figures, the median ratio, its range and the goal.
    /// Exits with 1 if a goal is missed.
    #[cfg(feature = "bench")]
    Bench(catchment_bench::BenchArgs),
    #[cfg(not(feature = "bench"))]
    #[command(hide = true, disable_help_flag = true)]
    Bench(Absent),
}

/// Whatever is asked of a command that this build was made without: it is told so, and not that there is no such command.
#[cfg(not(all(feature = "bench", feature = "lake", feature = "redis")))]
#[derive(Debug, Args)]
pub(crate) struct Absent {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<std::ffi::OsString>,
}

#[cfg(not(all(feature = "bench", feature = "lake", feature = "redis")))]
impl Absent {
    pub(crate) fn refuse(&self, command: &str, feature: &str) -> anyhow::Result<u8> {
        let asked: Vec<_> = self.rest.iter().map(|word| word.to_string_lossy()).collect();
        anyhow::bail!(
            "cannot do `{command} {}`: this program was built without the feature `{feature}`; `cargo build --release \
             --features {feature}` has it",
            asked.join(" ")
        )
    }
}

impl Command {
    /// What is told where `CATCHMENT_LOG` says nothing.
    pub(crate) fn log_default(&self) -> &'static str {
        match self {
            #[cfg(feature = "lake")]
            Self::Backfill(command) if command.is_verbose() => "warn,catchment_lake=info",
            _ => "warn",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a configuration with every key, its default and what it means
    Init {
        /// Where to; `-` for standard output
        #[arg(default_value = "catchment.toml")]
        path: PathBuf,
        /// Write over what is there
        #[arg(long)]
        force: bool,
    },
    /// Print every key, its default and what it means
    Explain {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// As a Markdown table
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Bring the store up to date: its schema, a connector for each venue, jobs for the configured pairs
    ///
    /// May be done again at any time; what is there is left as it is. `run` does the same when it starts.
    Migrate {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

#[cfg(feature = "redis")]
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Tell the nodes what to fetch, slot by slot
    ///
    /// Several may run: one leads, another takes over within five seconds. Ends with 0 on Ctrl-C.
    Coordinator {
        /// S4's client_config.toml, or a catchment.toml with [fleet.coordinator] [default: whichever is there]
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Fetch what the coordinator says, never faster than capacity_rps, and keep the latest in Redis
    Fetcher {
        /// S4's fetch_config.toml, or a catchment.toml with [fleet.fetcher] [default: whichever is there]
        #[arg(short = 'c', long = "config", value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// How the fleet is doing: nodes, rates, batch size, how old the snapshots are, last errors
    ///
    /// Exits with 1 if nobody leads or a node does not answer.
    Status(FleetStatusArgs),
}

#[cfg(feature = "redis")]
#[derive(Debug, Args)]
pub(crate) struct FleetStatusArgs {
    /// The coordinator's configuration: where Redis is
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Ask this Redis instead
    #[arg(long, value_name = "URL")]
    pub(crate) redis_url: Option<String>,
    /// The fleet's name in Redis
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Again every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print it for Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Print each record's id on standard output once it is durable, in the order of the lines
    #[arg(long)]
    pub(crate) ack: bool,

    /// Keep refused lines in this file, each with its number and the reason
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,

    /// When the disk takes nothing (full, read-only, failing): wait for it instead of ending with exit code 2
    #[arg(long)]
    pub(crate) wait_for_disk: bool,

    /// Print the closing figures as JSON on standard error
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Run only some of the rooms in this process: discover, poll, stream, jobs, api
    ///
    /// Discovery writes the list of instruments, polling reads it; two processes on one data_dir can share the work.
    #[arg(long, value_name = "ROOMS", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// End after this long: 30s, 10m, 1h30m
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    pub(crate) length: Option<Duration>,

    /// Print the closing figures as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Read books and frames through generic values: `bench poll` and `bench ws-pipe` show what that costs
    #[arg(long, hide = true)]
    pub(crate) through_values: bool,

    /// Ask as fast as we can, whatever is declared, servers on this machine only: `bench poll` shows how fast that is
    #[arg(long, hide = true)]
    pub(crate) unlimited: bool,

    #[command(flatten)]
    pub(crate) mock: MockArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where the data goes
    #[arg(long, value_name = "DIR", default_value = "catchment-demo")]
    pub(crate) data_dir: PathBuf,

    /// Where the page of live figures listens; port 0 for any that is free [default: 127.0.0.1:8080, or any if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,

    /// End after this long: 30s, 10m, 1h30m
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    pub(crate) length: Option<Duration>,

    /// The same seed gives the same markets and books
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print the closing figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A length of time as people write it.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let length: jiff::SignedDuration =
        text.parse().map_err(|_| "expected a number with its unit, such as 30s, 10m or 1h30m".to_owned())?;
    Duration::try_from(length).map_err(|_| "time does not run backwards".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct SimCommand {
    /// What to simulate, as TOML; flags win over it
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) args: catchment_sim::SimArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The archive: the data_dir of the configuration
    pub(crate) dir: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration [default: catchment.toml if it is there, else built-in defaults]
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    path: Option<PathBuf>,

    /// Use this folder instead of the configuration's data_dir
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl ConfigArgs {
    /// Reads and checks the configuration.
    pub(crate) fn read(&self) -> anyhow::Result<Config> {
        config::read(self.path.as_deref(), self.data_dir.as_deref())
    }
}
