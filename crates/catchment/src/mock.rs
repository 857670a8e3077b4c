//! `run --mock`: an exchange inside this program, recorded like any other, and going wrong as the flags say.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use catchment_model::{Clock, Monotonic, SystemClock};
use catchment_pipeline::{Batch, Sink, SinkError};
use catchment_sim::mock::{DESCRIPTOR, MockArgs, MockExchange};
use catchment_venues::stream::Descriptor;

use crate::config::{Config, Place, StreamConfig};
use crate::say;

const SYMBOLS: [&str; 2] = ["BTC/USDT", "ETH/USDT"];
const CHANNELS: [&str; 3] = ["trades", "book_delta", "ticker"];
/// The database goes away this long after the start.
const AWAY_AFTER: Duration = Duration::from_secs(5);

/// Starts the mock and adds it to what is recorded. It lives as long as what is given back.
pub(crate) async fn start(args: &MockArgs, config: &mut Config) -> anyhow::Result<MockExchange> {
    let has_mongo = config.sinks.iter().any(|sink| matches!(sink.place, Place::Mongo(_)));
    if args.mock_mongo_down_ms > 0 && !has_mongo {
        anyhow::bail!(
            "--mock-mongo-down-ms keeps MongoDB away, and nothing is written to one: add\n\n  [[sinks]]\n  kind = \"mongo\"\n\n\
             and [persistence] mongo_uri to the configuration (`catchment config init` writes one), or leave the flag out"
        );
    }
    let mock =
        MockExchange::start(args, Arc::new(SystemClock::new())).await.context("cannot start the mock")?;
    let descriptor = Descriptor::read("mock.toml", DESCRIPTOR).context("the mock's own descriptor")?;
    let endpoints = mock.endpoints();
    let endpoints = descriptor.endpoints(endpoints.iter().map(|(name, url)| (*name, url.as_str())))?;
    let pairs = SYMBOLS.iter().flat_map(|symbol| CHANNELS.map(|channel| (channel, *symbol)));
    let wanted = pairs.map(|(channel, symbol)| descriptor.want(channel, symbol)).collect::<Result<_, _>>()?;
    config.streams.push(StreamConfig::of(descriptor, endpoints, wanted)?);
    config.mongo_away = mock.mongo_down().map(|length| (AWAY_AFTER, length));
    config.mock = Some(mock.addr());
    say(&format!("a mock exchange is at http://{}/mock/", mock.addr()));
    Ok(mock)
}

/// A sink that is not to be reached for a while.
pub(crate) struct Away {
    inner: Arc<dyn Sink>,
    clock: Arc<dyn Clock>,
    from: Monotonic,
    until: Monotonic,
}

impl Away {
    /// Keeps a sink away for `length`, from `after` now.
    pub(crate) fn new(
        inner: Arc<dyn Sink>,
        clock: &Arc<dyn Clock>,
        (after, length): (Duration, Duration),
    ) -> Self {
        let from = Monotonic(clock.monotonic().0 + after);
        Self { inner, clock: Arc::clone(clock), from, until: Monotonic(from.0 + length) }
    }
}

#[async_trait]
impl Sink for Away {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        let now = self.clock.monotonic();
        if self.from <= now && now < self.until {
            return Err(SinkError::unreachable(self.name(), "--mock-mongo-down-ms keeps it away"));
        }
        self.inner.write(batch).await
    }

    async fn idle(&self) -> Result<(), SinkError> {
        self.inner.idle().await
    }

    async fn close(&self) -> Result<(), SinkError> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_model::{SimClock, SpoolId, UnixNs};
    use catchment_sinks::MemorySink;

    #[tokio::test]
    async fn a_sink_is_away_for_as_long_as_it_is_told_and_then_back() {
        let sim = Arc::new(SimClock::at(UnixNs::from_ms(1_790_000_000_000).unwrap()));
        let clock: Arc<dyn Clock> = Arc::clone(&sim) as Arc<dyn Clock>;
        let times = (Duration::from_secs(60), Duration::from_secs(5));
        let away = Away::new(Arc::new(MemorySink::new("m")), &clock, times);
        let batch = Batch::of(SpoolId::new(1), 1, &[]);
        away.write(&batch).await.unwrap();
        sim.advance(Duration::from_secs(60));
        assert!(away.write(&batch).await.unwrap_err().to_string().contains("unreachable"));
        sim.advance(Duration::from_secs(5));
        away.write(&batch).await.unwrap();
    }
}
