//! `catchment connectors`, `catchment jobs` and `catchment candles`: what the API does, from the command line. They ask
//! the store that the configuration names, whether anything is running or not, and everything given is checked by the same
//! desk as over HTTP.

pub(crate) mod cli;
pub(crate) mod serve;
mod table;

use anyhow::Context;
use catchment_control::api::{Covered, Desk, Kind, Lack, Listed, Problem, Stretch, query};
use catchment_jobs::{Connector, HoleKind, Job, Schedule, Status};
use catchment_model::{Timeframe, UnixMs};
use serde::Serialize;
use serde_json::{Value, json};

use self::cli::{
    CandlesCommand, CandlesList, CandlesRange, Common, ConnectorLimits, ConnectorsCommand, ConnectorsList,
    JobsAdd, JobsCommand, JobsList, PageArgs, Several, When,
};
use crate::{COULD_NOT, DONE, WANTING, say, store};

/// Candles asked for at once.
const CANDLES: u64 = 10_000;

pub(crate) fn jobs(command: &JobsCommand) -> anyhow::Result<u8> {
    match command {
        JobsCommand::List(args) => ask(&args.common, async |desk| list_jobs(&desk, args).await),
        JobsCommand::Show(args) => ask(&args.common, async |desk| {
            show(&desk.job(&args.id).await?, args.common.json);
            Ok(DONE)
        }),
        JobsCommand::Add(args) => ask(&args.common, async |desk| add_job(&desk, args).await),
        JobsCommand::Set(args) => ask(&args.common, async |desk| {
            let body = Value::Object(args.when.body());
            show_jobs(&[desk.change_job(&args.id, body).await?], args.common.json);
            Ok(DONE)
        }),
        JobsCommand::Pause(args) => each(args, async |desk, id| desk.pause_job(id).await, show_jobs),
        JobsCommand::Resume(args) => each(args, async |desk, id| desk.resume_job(id).await, show_jobs),
        JobsCommand::Run(args) => each(args, async |desk, id| desk.run_job(id).await, show_jobs),
        JobsCommand::Delete(args) => each(args, async |desk, id| desk.delete_job(id).await, deleted),
    }
}

pub(crate) fn connectors(command: &ConnectorsCommand) -> anyhow::Result<u8> {
    let (pause, resume) = (Status::Paused, Status::Active);
    match command {
        ConnectorsCommand::List(args) => ask(&args.common, async |desk| list_connectors(&desk, args).await),
        ConnectorsCommand::Show(args) => ask(&args.common, async |desk| {
            show(&desk.connector(&args.id).await?, args.common.json);
            Ok(DONE)
        }),
        ConnectorsCommand::Add(args) => ask(&args.common, async |desk| {
            let mut body = args.body();
            body.insert("exchange_id".to_owned(), json!(args.exchange));
            let (connector, is_new) = desk.upsert_connector(Value::Object(body)).await?;
            if !is_new {
                say("catchment: it was there already");
            }
            show_connectors(&[connector], args.common.json);
            Ok(DONE)
        }),
        ConnectorsCommand::Set(args) => ask(&args.limits.common, async |desk| {
            let mut body = args.limits.body();
            body.insert("notes".to_owned(), json!(args.notes));
            let connector = desk.change_connector(&args.limits.exchange, Value::Object(body)).await?;
            show_connectors(&[connector], args.limits.common.json);
            Ok(DONE)
        }),
        ConnectorsCommand::Pause(args) => {
            each(args, async |desk, id| desk.set_connector_status(id, pause).await, show_connectors)
        }
        ConnectorsCommand::Resume(args) => {
            each(args, async |desk, id| desk.set_connector_status(id, resume).await, show_connectors)
        }
        ConnectorsCommand::Delete(args) => {
            each(args, async |desk, id| desk.delete_connector(id).await, deleted)
        }
    }
}

pub(crate) fn candles(command: &CandlesCommand) -> anyhow::Result<u8> {
    match command {
        CandlesCommand::List(args) => ask(&args.range.common, async |desk| list_candles(&desk, args).await),
        CandlesCommand::Coverage(args) => ask(&args.common, async |desk| coverage(&desk, args).await),
    }
}

/// Opens the store, asks the desk and says what it refused.
fn ask(common: &Common, act: impl AsyncFnOnce(Desk) -> Result<u8, Problem>) -> anyhow::Result<u8> {
    let config = common.config.read()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let done = runtime.block_on(async {
        let store = store::open(&config.store).await?;
        Ok::<_, anyhow::Error>(act(Desk::over(store, serve::catalogue())).await)
    })?;
    match done {
        Ok(code) => Ok(code),
        Err(problem) => Ok(refused(&problem, common.json)),
    }
}

fn refused(problem: &Problem, json: bool) -> u8 {
    match serde_json::to_string(problem) {
        Ok(text) if json => say(&text),
        _ => say(&format!("catchment: {problem}")),
    }
    if matches!(problem.kind, Kind::NotFound | Kind::Conflict) { WANTING } else { COULD_NOT }
}

/// One after the other; what is refused does not keep the rest from being done.
fn each<T>(
    args: &Several,
    act: impl AsyncFn(&Desk, &str) -> Result<T, Problem>,
    print: fn(&[T], bool),
) -> anyhow::Result<u8> {
    ask(&args.common, async |desk| {
        let (mut done, mut code) = (Vec::new(), DONE);
        for id in &args.ids {
            match act(&desk, id).await {
                Ok(one) => done.push(one),
                Err(problem) => code = code.max(refused(&problem, args.common.json)),
            }
        }
        print(&done, args.common.json);
        Ok(code)
    })
}

async fn list_jobs(desk: &Desk, args: &JobsList) -> Result<u8, Problem> {
    let listed = desk
        .jobs(&query(&[
            ("exchange_id", args.exchange.clone()),
            ("type", args.kind.clone()),
            ("symbol", args.symbol.clone()),
            ("timeframe", args.timeframe.clone()),
            ("status", args.status.clone()),
            ("state", args.state.clone()),
            ("limit", Some(args.page.limit.to_string())),
            ("after", args.page.after.clone()),
        ]))
        .await?;
    print_list(&listed, &args.page, args.common.json, |items| show_jobs(items, false));
    Ok(DONE)
}

async fn list_connectors(desk: &Desk, args: &ConnectorsList) -> Result<u8, Problem> {
    let listed = desk
        .connectors(&query(&[
            ("status", args.status.clone()),
            ("limit", Some(args.page.limit.to_string())),
            ("after", args.page.after.clone()),
        ]))
        .await?;
    print_list(&listed, &args.page, args.common.json, |items| show_connectors(items, false));
    Ok(DONE)
}

fn print_list<T: Serialize>(listed: &Listed<T>, page: &PageArgs, json: bool, print: impl FnOnce(&[T])) {
    if json {
        return print_json(listed);
    }
    print(&listed.items);
    if let Some(next) = &listed.next {
        say(&format!("catchment: there are more than {}; the rest: --after {next}", page.limit));
    }
}

async fn add_job(desk: &Desk, args: &JobsAdd) -> Result<u8, Problem> {
    let mut body = args.when.body();
    body.insert("exchange_id".to_owned(), json!(args.exchange));
    body.insert("type".to_owned(), json!(args.kind));
    body.insert("symbol".to_owned(), json!(args.symbol));
    body.insert("timeframe".to_owned(), json!(args.timeframe));
    let (job, is_new) = desk.add_job(Value::Object(body)).await?;
    if !is_new {
        say("catchment: it was there already");
    }
    show_jobs(&[job], args.common.json);
    Ok(DONE)
}

impl When {
    /// What was said of it; what was not is null.
    fn body(&self) -> serde_json::Map<String, Value> {
        let mut body = serde_json::Map::new();
        let schedule = match self.every {
            Some(every) => json!({ "mode": "interval", "interval_ms": every.as_millis() as u64 }),
            None if self.once => json!({ "mode": "once" }),
            None => Value::Null,
        };
        body.insert("schedule".to_owned(), schedule);
        body.insert("next_run_at".to_owned(), json!(self.at));
        body.insert("priority".to_owned(), json!(self.priority));
        if self.since.is_some() || self.until.is_some() {
            body.insert("cursor".to_owned(), json!({ "since_ms": self.since, "until_ms": self.until }));
        }
        body
    }
}

impl ConnectorLimits {
    fn body(&self) -> serde_json::Map<String, Value> {
        let mut body = serde_json::Map::new();
        body.insert("rate_limit".to_owned(), json!(self.rate_limit));
        let period = self.period.map(|period| period.as_millis() as u64);
        body.insert("rate_limit_period_ms".to_owned(), json!(period));
        body.insert("max_concurrent_jobs".to_owned(), json!(self.max_concurrent_jobs));
        body
    }
}

fn show_jobs(jobs: &[Job], json: bool) {
    if json {
        return jobs.iter().for_each(print_json);
    }
    let dash = || "-".to_owned();
    let row = |job: &Job| {
        let every = match job.schedule {
            Schedule::Interval { interval_ms } => words(interval_ms),
            Schedule::Once => "once".to_owned(),
        };
        [
            job.id.to_string(),
            job.exchange_id.to_string(),
            job.kind.as_str().to_owned(),
            job.symbol.clone().unwrap_or_else(dash),
            job.timeframe.map_or_else(dash, |timeframe: Timeframe| timeframe.to_string()),
            job.status.as_str().to_owned(),
            job.state.as_str().to_owned(),
            job.priority.to_string(),
            every,
            job.due_at().map_or_else(dash, |at| at.to_string()),
            format!("{}/{}", job.stats.success, job.stats.runs),
        ]
    };
    let names = [
        "id",
        "exchange",
        "type",
        "symbol",
        "candles",
        "status",
        "state",
        "priority",
        "every",
        "due",
        "went well",
    ];
    table::print(names, &jobs.iter().map(row).collect::<Vec<_>>());
}

fn show_connectors(connectors: &[Connector], json: bool) {
    if json {
        return connectors.iter().for_each(print_json);
    }
    let row = |one: &Connector| {
        [
            one.exchange_id.to_string(),
            one.status.as_str().to_owned(),
            format!("{} in {}", one.rate_limit, words(one.rate_limit_period_ms)),
            one.rate_limit_usage.to_string(),
            one.rate_limit_saturated.to_string(),
            format!("{}/{}", one.active_jobs_count, one.jobs_count),
            one.max_concurrent_jobs.map_or("-".to_owned(), |cap| cap.to_string()),
            one.last_job_run_time.map_or("-".to_owned(), |at| at.to_string()),
            one.notes.clone().unwrap_or_default(),
        ]
    };
    let names =
        ["exchange", "status", "limit", "used", "saturated", "jobs active", "at once", "last run", "notes"];
    table::print(names, &connectors.iter().map(row).collect::<Vec<_>>());
}

fn deleted(done: &[()], json: bool) {
    if !json && !done.is_empty() {
        say(&format!("catchment: {} deleted", done.len()));
    }
}

async fn list_candles(desk: &Desk, args: &CandlesList) -> Result<u8, Problem> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut since = args.range.since;
    let mut is_first = true;
    while left > 0 {
        let mut asked = args.range.query(since);
        asked.push(("limit", Some(left.min(CANDLES).to_string())));
        let page = desk.candles(&query(&asked)).await?;
        if args.range.common.json {
            page.candles.iter().for_each(print_line);
        } else {
            let csv = page.csv();
            let rows = csv.split_once('\n').map_or("", |(_, rows)| rows);
            table::out(if is_first { &csv } else { rows });
        }
        is_first = false;
        left -= page.candles.len() as u64;
        match page.next_since_ms {
            Some(next) => since = Some(next.get()),
            None => break,
        }
    }
    Ok(DONE)
}

async fn coverage(desk: &Desk, args: &CandlesRange) -> Result<u8, Problem> {
    let mut covered = desk.coverage(&query(&args.query(args.since))).await?;
    while let Some(since) = covered.next_since_ms.take() {
        let more = desk.coverage(&query(&args.query(Some(since.get())))).await?;
        join(&mut covered.ranges, more.ranges);
        join(&mut covered.missing, more.missing);
        join_lacks(&mut covered.holes, more.holes);
        covered.next_since_ms = more.next_since_ms;
    }
    if args.common.json {
        print_json(&covered);
    } else {
        print_covered(&covered);
    }
    Ok(if covered.missing.is_empty() { DONE } else { WANTING })
}

/// What was cut between two pages is one again.
fn join(all: &mut Vec<Stretch>, more: Vec<Stretch>) {
    for one in more {
        match all.last_mut() {
            Some(last) if last.until_ms == one.since_ms => last.until_ms = one.until_ms,
            _ => all.push(one),
        }
    }
}

/// The same of holes; those of two kinds may overlap.
fn join_lacks(all: &mut Vec<Lack>, more: Vec<Lack>) {
    for one in more {
        let cut = all
            .iter_mut()
            .rev()
            .find(|last| last.kind == one.kind && last.stretch.until_ms == one.stretch.since_ms);
        match cut {
            Some(last) => last.stretch.until_ms = one.stretch.until_ms,
            None => all.push(one),
        }
    }
}

fn print_covered(covered: &Covered) {
    let row = |what: &'static str| {
        move |one: &Stretch| [what.to_owned(), one.since_ms.to_string(), one.until_ms.to_string()]
    };
    let mut rows: Vec<(UnixMs, [String; 3])> = Vec::new();
    rows.extend(covered.ranges.iter().map(|one| (one.since_ms, row("there")(one))));
    rows.extend(covered.missing.iter().map(|one| (one.since_ms, row("missing")(one))));
    rows.extend(covered.holes.iter().map(|one| {
        let what = match one.kind {
            HoleKind::Absent => "none at the exchange",
            HoleKind::Unreachable => "out of reach",
        };
        (one.stretch.since_ms, row(what)(&one.stretch))
    }));
    rows.sort_by_key(|(at, _)| *at);
    table::print(["what", "from", "up to"], &rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
    say(&format!("catchment: {} candles, {} stretches missing", covered.candles, covered.missing.len()));
}

impl CandlesRange {
    fn query(&self, since: Option<i64>) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("exchange_id", Some(self.exchange.clone())),
            ("symbol", Some(self.symbol.clone())),
            ("timeframe", Some(self.timeframe.clone())),
            ("since_ms", since.map(|ms| ms.to_string())),
            ("until_ms", self.until.map(|ms| ms.to_string())),
        ]
    }
}

fn show(document: &impl Serialize, json: bool) {
    if json {
        return print_json(document);
    }
    table::print_all(&serde_json::to_value(document).unwrap_or_default());
}

fn print_json(document: &impl Serialize) {
    table::out(&(serde_json::to_string_pretty(document).unwrap_or_default() + "\n"));
}

fn print_line(document: &impl Serialize) {
    table::out(&(serde_json::to_string(document).unwrap_or_default() + "\n"));
}

/// A length of time in its largest whole unit.
fn words(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    match units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", ms / unit),
        None => format!("{ms} ms"),
    }
}
