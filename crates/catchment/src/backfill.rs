//! `catchment backfill events`: S3's four commands, and `verify`.

mod args;
mod show;

use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_governor::{Budget, Limits, MemoryBudget};
use catchment_jobs::{BudgetSettings, GivingBack, StoreBudget};
use catchment_lake::{
    Fetcher, JobTable, Lake, Mode, State, Status, VENUE, Worker, WorkerSettings, plan, plan_spans,
};
use catchment_model::{Clock, SystemClock, Venue};
use indicatif::{ProgressBar, ProgressDrawTarget};
use tokio_util::sync::CancellationToken;

pub(crate) use self::args::BackfillCommand;
use self::args::{
    EventsCommand, LakeArgs, ModeArg, ResetArgs, SetupArgs, StatusArgs, VerifyArgs, WorkerArgs,
};
use self::show::{describe, draw, report_json};
use crate::config::Config;
use crate::{COULD_NOT, DONE, WANTING, governors, say, signals, store};

/// In a table by offset.
const JOBS_MAX: u64 = 100_000;

async fn open(args: &LakeArgs) -> anyhow::Result<(Lake, JobTable)> {
    let (_, lake) = args.open()?;
    let table = JobTable::open(&lake, clock(), rand::random()).await?;
    Ok((lake, table))
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Runs it.
pub(crate) fn run(command: &BackfillCommand) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let BackfillCommand::Events(command) = command;
    runtime.context("no runtime")?.block_on(async {
        match command {
            EventsCommand::Setup(args) => set_up(args).await,
            EventsCommand::Status(args) => status(args).await,
            EventsCommand::Worker(args) => work(args).await,
            EventsCommand::ResetLeased(args) => reset(args).await,
            EventsCommand::Verify(args) => verify(args).await,
        }
    })
}

async fn set_up(args: &SetupArgs) -> anyhow::Result<u8> {
    let (_, lake) = args.lake.open()?;
    let mode = match args.mode {
        ModeArg::Keyset => Mode::Keyset,
        ModeArg::Offset => Mode::Offset,
    };
    let limit = i32::from(args.limit);
    let jobs = u64::from(args.max_offset) / u64::from(args.limit) + 1;
    anyhow::ensure!(
        mode == Mode::Keyset || jobs <= JOBS_MAX,
        "that would be {jobs} jobs, and the table, which is written anew with every commit, takes {JOBS_MAX}; \
         say a larger --limit or a smaller --max-offset"
    );
    let tasks = match (mode, args.span_days) {
        (Mode::Keyset, Some(days)) => plan_spans(days, clock().wall().date(), limit),
        (Mode::Offset, Some(_)) => anyhow::bail!("--span-days is for --mode keyset"),
        (mode, None) => plan(mode, i64::from(args.max_offset), limit),
    };
    let (_, done) = JobTable::set_up(&lake, &tasks, clock(), rand::random()).await?;
    if args.json {
        let line = serde_json::json!({ "is_new": done.is_new, "added": done.added, "jobs": done.jobs });
        tell!("{line}");
        return Ok(DONE);
    }
    let made = if done.is_new { "made" } else { "was there" };
    tell!("table {made}: {} jobs, {} of them new ({})", done.jobs, done.added, lake.table.shown());
    Ok(DONE)
}

async fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let (_, mut table) = open(&args.lake).await?;
    let clock = clock();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let mut enough = signals::listen("that was the last look")?;
    loop {
        let version = table.version();
        let status = Status::of(table.ledger(), version, clock.wall().ms());
        if args.json {
            tell!("{}", serde_json::to_string(&status)?);
        } else if args.watch && std::io::stderr().is_terminal() {
            draw(&bar, &status);
        } else {
            tell_text!("{}", describe(&status));
        }
        let code = if status.count(State::Failed) > 0 { WANTING } else { DONE };
        if !args.watch || status.is_finished {
            bar.abandon();
            return Ok(code);
        }
        std::io::stdout().flush()?;
        tokio::select! {
            () = signals::told(&mut enough) => return Ok(code),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        if let Err(error) = table.refresh().await {
            anyhow::ensure!(error.may_pass(), error);
            say(&format!("catchment: {error}"));
        }
    }
}

async fn work(args: &WorkerArgs) -> anyhow::Result<u8> {
    let (config, lake) = args.lake.open()?;
    let (clock, seed) = (clock(), rand::random());
    let table = JobTable::open(&lake, Arc::clone(&clock), rand::random()).await?;
    let (fetcher, giving_back) = open_fetcher(args, &config, &clock, seed).await?;
    let named = args.worker_id.clone().unwrap_or_else(|| {
        let chance: u16 = rand::random();
        format!("{}-{chance:04x}", std::process::id())
    });
    let settings = WorkerSettings {
        worker: named,
        leases_max: usize::from(args.leases),
        lease: args.lease,
        jobs_max: args.max_jobs,
        idle: args.idle_sleep,
        seed,
    };
    let stop = CancellationToken::new();
    let mut enough = signals::listen("leases are given back")?;
    let told = stop.clone();
    let listening = tokio::spawn(async move {
        signals::told(&mut enough).await;
        told.cancel();
    });
    let worker = Worker { lake, table, fetcher: Arc::new(fetcher), settings, clock: Arc::clone(&clock) };
    let began = clock.monotonic();
    let report = worker.work(stop).await;
    listening.abort();
    if let Some(giving_back) = giving_back {
        giving_back.ended().await;
    }
    let report = report?;
    let took = clock.monotonic().since(began);
    if args.json {
        tell!("{}", report_json(&report, took));
    } else {
        tell!(
            "{} jobs done, {} events, {} attempts failed, {} leases lost, {} given back, in {:.1} s",
            report.done,
            report.records,
            report.failed,
            report.lost,
            report.handed_back,
            took.as_secs_f64()
        );
    }
    Ok(if report.failed_for_good > 0 { WANTING } else { DONE })
}

/// Who asks, and the account it spends from: the store's, with whoever else has that store, or its own.
async fn open_fetcher(
    args: &WorkerArgs,
    config: &Config,
    clock: &Arc<dyn Clock>,
    seed: u64,
) -> anyhow::Result<(Fetcher, Option<GivingBack>)> {
    let spec = catchment_venues::find(VENUE).context("the venue is built in")?;
    let venue = config.venues.iter().find(|venue| venue.spec.id == VENUE);
    let endpoints = match (&args.base_url, venue) {
        (Some(url), _) => spec.endpoints([("gamma", url.as_str())]).context("--base-url")?,
        (None, Some(venue)) => venue.endpoints.clone(),
        (None, None) => spec.endpoints([])?,
    };
    let share = venue.map_or(1.0, |venue| venue.speed.limit_share);
    let streams =
        config.streams.iter().map(|stream| &stream.descriptor).find(|streams| streams.id() == VENUE);
    let mut families = governors::families_of(spec, &(spec.open)(&endpoints), streams);
    catchment_lake::set_rate(&mut families, u32::from(args.rate), share);
    let limits = Limits::new(families, share).context("the limits do not fit together")?;
    let (budget, giving_back): (Arc<dyn Budget>, _) = if args.alone {
        (Arc::new(MemoryBudget::new(limits.clone())), None)
    } else {
        let shared = store::open(&config.store).await?;
        let venue = Venue::new(VENUE).context("a name of a venue")?;
        let opened =
            StoreBudget::open(shared, venue, limits.clone(), Arc::clone(clock), BudgetSettings::default());
        let (budget, giving_back) = opened.await.context("cannot open the venue's account in the store")?;
        (Arc::new(budget), Some(giving_back))
    };
    let fetcher = Fetcher::open(&endpoints, limits, budget, Arc::clone(clock), seed)?;
    Ok((fetcher, giving_back))
}

async fn reset(args: &ResetArgs) -> anyhow::Result<u8> {
    let (_, mut table) = open(&args.lake).await?;
    let (reset, live) = table.reset_leased(args.force).await?;
    tell!("{reset} leased jobs given back");
    if args.failed {
        tell!("{} failed jobs have their attempts again", table.reset_failed().await?);
    }
    if live > 0 {
        say(&format!(
            "catchment: {live} leases are live and were left alone; --force takes them from their workers"
        ));
        return Ok(if reset == 0 { COULD_NOT } else { WANTING });
    }
    Ok(DONE)
}

async fn verify(args: &VerifyArgs) -> anyhow::Result<u8> {
    let (lake, mut table) = open(&args.lake).await?;
    let found = catchment_lake::verify(&lake, &mut table).await?;
    if args.json {
        tell!("{}", serde_json::to_string(&found)?);
    } else {
        tell!("{} files, {} events, {} different ones", found.files, found.records, found.distinct);
        tell!("{} in both passes, {} repeated within one", found.in_both_passes, found.repeated);
        tell!("{} versions, {} leases, {} taken over", found.versions, found.leases, found.taken_over);
        for wrong in &found.wrong {
            tell!("wrong: {wrong}");
        }
    }
    Ok(if found.wrong.is_empty() { DONE } else { WANTING })
}
