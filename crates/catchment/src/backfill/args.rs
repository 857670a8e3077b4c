//! What can be said on the command line.

use std::time::Duration;

use catchment_lake::{Access, Lake, SignIn};
use clap::{Args, Subcommand, ValueEnum};

use crate::cli::{ConfigArgs, length};
use crate::config::Config;

/// What can be backfilled.
#[derive(Debug, Subcommand)]
pub(crate) enum BackfillCommand {
    /// Polymarket's events, as files on a lake, with the jobs in a Delta table beside them
    #[command(subcommand)]
    Events(EventsCommand),
}

impl BackfillCommand {
    /// Whether every job is to be told of.
    pub(crate) fn is_verbose(&self) -> bool {
        matches!(self, Self::Events(EventsCommand::Worker(args)) if args.verbose)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Make the table of jobs, or add the jobs that it lacks; what is there stays as it is
    Setup(SetupArgs),
    /// How far it is: jobs by state, errors, who is at work, throughput and time to go
    ///
    /// Exits with 1 if a job has failed for good.
    Status(StatusArgs),
    /// Work on jobs until all are done, --max-jobs are, or told to stop
    ///
    /// Several may run at once, on one machine or many; each takes its share of the jobs. Ctrl-C or SIGTERM gives the
    /// leases back. Exits with 1 if a job has failed for good.
    Worker(WorkerArgs),
    /// Give jobs back whose lease is over, so that they are begun at once
    #[command(alias = "reset_leased")]
    ResetLeased(ResetArgs),
    /// Read every file and every version of the table again, and say what is not true
    ///
    /// Exits with 1 if anything is wrong.
    Verify(VerifyArgs),
}

/// Where the lake is and how we get in.
#[derive(Debug, Args)]
pub(crate) struct LakeArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,

    /// A folder, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, az://CONTAINER/PATH or s3://BUCKET/PATH, with table and
    /// files in it [default: as the configuration's [backfill.events] says]
    #[arg(long, value_name = "PLACE")]
    pub(super) lake: Option<String>,

    /// How to sign in to Azure; secrets come from the environment only
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) azure_sign_in: SignInArg,

    /// Use the Azure emulator (Azurite) instead of Azure [default address: AZURITE_BLOB_STORAGE_URL or http://127.0.0.1:10000]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub(super) emulator: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum SignInArg {
    /// A key or a signature if the environment has one, else the first of the other ways, in this order, that gives a token
    Auto,
    /// A service principal: AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET
    Environment,
    /// AZURE_FEDERATED_TOKEN_FILE with tenant and client
    WorkloadIdentity,
    /// The machine's own identity
    ManagedIdentity,
    /// Whoever has signed in with `az login`
    Cli,
    /// AZURE_STORAGE_SAS_TOKEN
    Sas,
    /// AZURE_STORAGE_ACCOUNT_KEY
    Key,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ModeArg {
    /// By cursor: what the venue allows today
    Keyset,
    /// By offset: for servers that allow any
    Offset,
}

#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    #[command(flatten)]
    pub(super) lake: LakeArgs,
    /// How to ask the venue
    #[arg(long, value_enum, default_value = "keyset")]
    pub(super) mode: ModeArg,
    /// By offset: the last job begins here
    #[arg(long, value_name = "OFFSET", default_value_t = 188_000)]
    pub(super) max_offset: u32,
    /// By keyset: cut the walk into spans of so many days of start dates, which are walked side by side; without it, it is one
    /// walk, one request after the other
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=3_660))]
    pub(super) span_days: Option<u16>,
    /// Events a job
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(super) limit: u16,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) lake: LakeArgs,
    /// Look again every second, with a bar, until all is done
    #[arg(long)]
    pub(super) watch: bool,
    /// Print it as JSON; with --watch a line each time
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(super) lake: LakeArgs,
    /// End after so many jobs
    #[arg(long, value_name = "N")]
    pub(super) max_jobs: Option<u64>,
    /// Tell of every job
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Its name in the table [default: the process's id and a number by chance]
    #[arg(long, value_name = "NAME")]
    pub(super) worker_id: Option<String>,
    /// How long to wait when no job is due, at most: seconds, or 30s, 5m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = seconds_or_length)]
    pub(super) idle_sleep: Duration,
    /// How long a worker may be silent before another takes its jobs
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = lease)]
    pub(super) lease: Duration,
    /// Jobs at once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) leases: u16,
    /// Requests a second, of all workers together that share a store
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=50))]
    pub(super) rate: u16,
    /// Count only this worker's requests; without it all who have the configuration's [store] spend from one account
    #[arg(long)]
    pub(super) alone: bool,
    /// Ask this server instead of Polymarket's
    #[arg(long, value_name = "URL")]
    pub(super) base_url: Option<String>,
    /// Print the closing figures as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(super) lake: LakeArgs,
    /// Take live leases, too: whoever holds one can write no more
    #[arg(long)]
    pub(super) force: bool,
    /// Give failed jobs all their attempts again, too
    #[arg(long)]
    pub(super) failed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(super) lake: LakeArgs,
    /// Print the findings as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Shorter ones are over before they can be renewed; longer ones keep the jobs of a worker that was killed.
fn lease(text: &str) -> Result<Duration, String> {
    let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(86_400));
    let lease = length(text)?;
    (shortest..=longest).contains(&lease).then_some(lease).ok_or_else(|| "it is from 1s to 24h".to_owned())
}

fn seconds_or_length(text: &str) -> Result<Duration, String> {
    text.parse::<u32>().map(|seconds| Duration::from_secs(u64::from(seconds))).or_else(|_| length(text))
}

impl LakeArgs {
    /// The configuration, and the lake.
    pub(super) fn open(&self) -> anyhow::Result<(Config, Lake)> {
        let sign_in = match self.azure_sign_in {
            SignInArg::Auto => SignIn::Auto,
            SignInArg::Environment => SignIn::Environment,
            SignInArg::WorkloadIdentity => SignIn::WorkloadIdentity,
            SignInArg::ManagedIdentity => SignIn::ManagedIdentity,
            SignInArg::Cli => SignIn::Cli,
            SignInArg::Sas => SignIn::Sas,
            SignInArg::Key => SignIn::Key,
        };
        let access = Access { sign_in, emulator: self.emulator.clone() };
        let config = self.config.read()?;
        let lake = match &self.lake {
            Some(place) => Lake::open(place, &access)?,
            None => Lake::of(&config.events.table, &config.events.bronze, &access)?,
        };
        Ok((config, lake))
    }
}
