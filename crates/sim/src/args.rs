//! What users type after `catchment sim`.

use std::net::SocketAddr;

use clap::Args;

use crate::VENUES;
use crate::config::{SimConfig, SimError};

/// Flags of the simulation; each wins over the configuration it is applied to.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9600")]
    pub listen: SocketAddr,

    /// Listen even though other machines can reach the address
    #[arg(long)]
    pub beyond_loopback: bool,

    /// The same seed gives the same markets, books and faults [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,

    /// Open markets of every venue [default: 1000]
    #[arg(long, value_name = "N")]
    pub markets: Option<u32>,

    /// Take requests as fast as they come, instead of the venues' limits
    #[arg(long)]
    pub no_limits: bool,

    /// Compress answers for clients that take gzip
    #[arg(long)]
    pub gzip: bool,

    /// Something that goes wrong, as VENUE.FAULT=VALUE: polymarket.server_error=0.5, all.latency_ms=80
    #[arg(long = "fault", value_name = "VENUE.FAULT=VALUE")]
    pub faults: Vec<String>,

    /// Any other value of the simulation, as PATH=VALUE: polymarket.universe.births_per_min=6
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
}

impl SimArgs {
    /// The configuration with what the flags say.
    pub fn apply(&self, mut config: SimConfig) -> Result<SimConfig, SimError> {
        config.listen = self.listen;
        config.beyond_loopback |= self.beyond_loopback;
        config.gzip |= self.gzip;
        config.seed = self.seed.unwrap_or(config.seed);
        for spec in VENUES {
            if let Some(markets) = self.markets {
                config = config.with(&format!("{}.{}", spec.id, spec.size_key), &markets.to_string())?;
            }
            if self.no_limits {
                config = config.with(&format!("{}.limits", spec.id), "[]")?;
            }
        }
        for text in &self.faults {
            let (path, value) = split(text, "--fault")?;
            let wrong = || SimError::config(format!("--fault {text}"), "is not VENUE.FAULT=VALUE");
            let (venue, fault) = path.split_once('.').ok_or_else(wrong)?;
            let venues = VENUES.iter().map(|spec| spec.id).filter(|id| venue == "all" || *id == venue);
            let venues: Vec<&str> = venues.collect();
            if venues.is_empty() {
                return Err(SimError::config(venue, "is not a venue of the simulation"));
            }
            for venue in venues {
                config = config.with(&format!("{venue}.faults.{fault}"), value)?;
            }
        }
        for text in &self.sets {
            let (path, value) = split(text, "--set")?;
            config = config.with(path, value)?;
        }
        config.check()?;
        Ok(config)
    }
}

fn split<'a>(text: &'a str, flag: &str) -> Result<(&'a str, &'a str), SimError> {
    text.split_once('=').ok_or_else(|| SimError::config(format!("{flag} {text}"), "has no `=`"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SimArgs,
    }

    fn apply(flags: &str) -> Result<SimConfig, SimError> {
        let args = Cli::parse_from(std::iter::once("sim").chain(flags.split_whitespace())).args;
        args.apply(SimConfig::default())
    }

    #[test]
    fn flags_reach_what_they_name() {
        let config =
            apply("--markets 5 --no-limits --fault all.hang=0.1 --fault kalshi.hang=0.2 --set seed=9")
                .unwrap();
        assert_eq!((config.limitless.universe.markets, config.seed), (5, 9));
        assert_eq!(config.polymarket.limits.as_deref(), Some(&[][..]));
        assert_eq!((config.polymarket.faults.hang, config.kalshi.faults.hang), (0.1, 0.2));
        assert_eq!(config.listen.to_string(), "127.0.0.1:9600");
    }

    #[test]
    fn a_flag_that_means_nothing_is_named() {
        let check = |flags: &str, want: &str| assert_eq!(apply(flags).unwrap_err().to_string(), want);
        check("--fault mtgox.hang=1", "mtgox is not a venue of the simulation");
        check("--fault kalshi.hangs=1", "kalshi.faults.hangs is no key of the simulation");
        check("--set seed", "--set seed has no `=`");
        check("--listen 0.0.0.0:1", "listen is not loopback; beyond_loopback allows that");
    }
}
