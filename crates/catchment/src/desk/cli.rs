//! What users type for connectors, jobs and candles.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::{ConfigArgs, length};

/// What all of them have.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,

    /// Print JSON, as the API has it
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// The jobs that match, the oldest first
    List(JobsList),
    /// Everything about one job
    Show(One),
    /// Add a job; the connector of its exchange must be there
    Add(Box<JobsAdd>),
    /// Change when it runs, how urgent it is, or where it begins
    Set(JobsSet),
    /// Do not begin them again until they are resumed
    Pause(Several),
    /// Let them go on; those that were given up have all their attempts again
    Resume(Several),
    /// Run them now
    Run(Several),
    /// Delete them; a worker that is at one can write no more
    Delete(Several),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConnectorsCommand {
    /// All connectors
    List(ConnectorsList),
    /// Everything about one connector
    Show(One),
    /// See to it that an exchange has a connector
    Add(ConnectorLimits),
    /// Change its limit, its cap or its notes
    Set(ConnectorSet),
    /// Begin none of their jobs, and give no token
    Pause(Several),
    /// Let them go on
    Resume(Several),
    /// Delete them; none of their jobs is begun any more
    Delete(Several),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CandlesCommand {
    /// Candles of a series, as CSV or JSON
    List(CandlesList),
    /// What there is of a series, and what is missing; exits with 1 if something is
    Coverage(CandlesRange),
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Its id; of a connector, the exchange
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Several {
    /// Their ids; of connectors, the exchanges
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct JobsList {
    /// On this exchange
    #[arg(long)]
    pub(crate) exchange: Option<String>,
    /// Of this type: markets_refresh, ohlcv_incremental, ohlcv_backfill, gap_backfill, trades_backfill
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// For this symbol: BTC/USDT
    #[arg(long)]
    pub(crate) symbol: Option<String>,
    /// For these candles: 1m, 1h, 1d
    #[arg(long)]
    pub(crate) timeframe: Option<String>,
    /// active, paused or deleted
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// idle, queued, running, waiting_rate_limit, success, failed or dead
    #[arg(long)]
    pub(crate) state: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectorsList {
    /// active or paused
    #[arg(long)]
    pub(crate) status: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// So many at once, up to 500
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: u32,
    /// Those after this one
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobsAdd {
    /// On which exchange
    #[arg(long)]
    pub(crate) exchange: String,
    /// markets_refresh, ohlcv_incremental, ohlcv_backfill, gap_backfill or trades_backfill
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: String,
    /// For which symbol: BTC/USDT
    #[arg(long)]
    pub(crate) symbol: Option<String>,
    /// For which candles: 1m, 1h, 1d
    #[arg(long)]
    pub(crate) timeframe: Option<String>,
    #[command(flatten)]
    pub(crate) when: When,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct JobsSet {
    /// Its id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) when: When,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// When a job runs and where it begins.
#[derive(Debug, Args)]
pub(crate) struct When {
    /// Again and again, this often: 1h, 12h
    #[arg(long, value_name = "TIME", value_parser = length, conflicts_with = "once")]
    pub(crate) every: Option<Duration>,
    /// Until it is finished
    #[arg(long)]
    pub(crate) once: bool,
    /// Not before this: 2026-01-17, 2026-01-17T10:30:00Z, or milliseconds since 1970
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) at: Option<i64>,
    /// The lower, the sooner: 0 to 255
    #[arg(long)]
    pub(crate) priority: Option<u8>,
    /// Where it begins
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) since: Option<i64>,
    /// Where it ends
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) until: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectorLimits {
    /// The exchange
    pub(crate) exchange: String,
    /// So many requests [default: what the exchange allows]
    #[arg(long, value_name = "REQUESTS")]
    pub(crate) rate_limit: Option<u32>,
    /// in every interval of this length: 1s, 500ms
    #[arg(long, value_name = "TIME", value_parser = length)]
    pub(crate) period: Option<Duration>,
    /// So many of its jobs run at once; 0: no cap
    #[arg(long, value_name = "JOBS")]
    pub(crate) max_concurrent_jobs: Option<u32>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectorSet {
    #[command(flatten)]
    pub(crate) limits: ConnectorLimits,
    /// Whatever you want to remember; an empty text forgets it
    #[arg(long)]
    pub(crate) notes: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CandlesRange {
    /// The exchange
    pub(crate) exchange: String,
    /// BTC/USDT
    pub(crate) symbol: String,
    /// 1m, 1h, 1d
    pub(crate) timeframe: String,
    /// From here on: 2026-01-17, 2026-01-17T10:30:00Z, or milliseconds since 1970
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) since: Option<i64>,
    /// Before this
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub(crate) until: Option<i64>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CandlesList {
    #[command(flatten)]
    pub(crate) range: CandlesRange,
    /// So many at most [default: all]
    #[arg(long)]
    pub(crate) limit: Option<u64>,
}

/// A moment as people write it, in milliseconds since 1970.
fn moment(text: &str) -> Result<i64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| "that is after the end of time".to_owned());
    }
    let midnight =
        |date: jiff::civil::Date| date.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|day| day.timestamp());
    let at = text.parse().ok().or_else(|| text.parse().ok().and_then(midnight));
    at.map(jiff::Timestamp::as_millisecond).ok_or_else(|| {
        "expected a date (2026-01-17), a time (2026-01-17T10:30:00Z) or milliseconds since 1970".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_times_or_milliseconds() {
        assert_eq!(moment("2026-01-17"), Ok(1_768_608_000_000));
        assert_eq!(moment("2026-01-17T00:00:01Z"), Ok(1_768_608_001_000));
        assert_eq!(moment("1768608000000"), Ok(1_768_608_000_000));
        assert!(
            moment("tomorrow").is_err() && moment("").is_err() && moment("99999999999999999999").is_err()
        );
    }
}
