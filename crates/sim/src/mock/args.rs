//! What users type after `catchment run` for the mock.

use clap::Args;

use crate::config::SimConfig;

/// When whoever asks for silence first hears it.
const FIRST_SILENCE_MS: u64 = 10_000;

/// Flags of the mock.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct MockArgs {
    /// Record from a small exchange inside this program, besides what is configured
    #[arg(long)]
    pub mock: bool,

    /// Of every stream, leave out one update in N
    #[arg(long, value_name = "N", default_value_t = 0, requires = "mock")]
    pub mock_gap_every: u64,

    /// End each connection after N messages
    #[arg(long, value_name = "N", default_value_t = 0, requires = "mock")]
    pub mock_disconnect_every: u64,

    /// Fall silent for N milliseconds on all connections: after ten seconds, then once a minute
    #[arg(long, value_name = "N", default_value_t = 0, requires = "mock")]
    pub mock_silence_ms: u64,

    /// Keep MongoDB away for N milliseconds, once, five seconds after the start
    #[arg(long, value_name = "N", default_value_t = 0, requires = "mock")]
    pub mock_mongo_down_ms: u64,

    /// Send a binary frame before this share of messages, from 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.0, requires = "mock")]
    pub mock_binary_rate: f64,
}

impl MockArgs {
    /// The configuration with what the flags say.
    pub fn apply(&self, mut config: SimConfig) -> SimConfig {
        let rules = &mut config.mock.rules;
        rules.gap_every = self.mock_gap_every;
        rules.disconnect_every = self.mock_disconnect_every;
        rules.silence_ms = self.mock_silence_ms;
        rules.silence_every_ms = rules.silence_every_ms.max(self.mock_silence_ms.saturating_mul(2));
        rules.silence_first_ms = Some(FIRST_SILENCE_MS);
        rules.binary_rate = self.mock_binary_rate;
        config
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MockArgs,
    }

    #[test]
    fn flags_reach_the_mock_and_need_it() {
        let flags = "run --mock --mock-gap-every 50 --mock-disconnect-every 900 --mock-silence-ms 3000 \
                     --mock-mongo-down-ms 60000 --mock-binary-rate 0.01";
        let args = Cli::try_parse_from(flags.split_whitespace()).unwrap().args;
        let rules = args.apply(SimConfig::default()).mock.rules;
        assert_eq!((rules.gap_every, rules.disconnect_every, rules.silence_ms), (50, 900, 3_000));
        assert_eq!((rules.binary_rate, args.mock_mongo_down_ms), (0.01, 60_000));
        assert!(Cli::try_parse_from(["run", "--mock-gap-every", "5"]).is_err());
    }
}
