//! Sinks that are opened while records already come in.
//!
//! After a crash an archive reads every file that was left open, which takes a second or more for each gigabyte. A venue
//! does not wait: what is polled meanwhile is durable in the spool and is written as soon as the archive is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use async_trait::async_trait;
use catchment_pipeline::{Batch, Sink, SinkError};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Sinks that may not be open yet.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    tasks: JoinSet<anyhow::Result<()>>,
    window: OpeningWindow,
}

/// Which they are, by name and whether it is open.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpeningWindow(Vec<(String, Arc<AtomicBool>)>);

impl OpeningWindow {
    /// Those that are not open yet.
    pub(crate) fn names(&self) -> Vec<&str> {
        let closed = self.0.iter().filter(|(_, is_open)| !is_open.load(Ordering::Relaxed));
        closed.map(|(name, _)| name.as_str()).collect()
    }
}

impl Opening {
    /// Opens a sink on a thread of its own. What is given back stands for it, from now on.
    pub(crate) fn add(
        &mut self,
        name: &str,
        open: impl FnOnce() -> anyhow::Result<Arc<dyn Sink>> + Send + 'static,
    ) -> Arc<dyn Sink> {
        let (told, opened) = watch::channel(None);
        let is_open = Arc::new(AtomicBool::new(false));
        self.window.0.push((name.to_owned(), Arc::clone(&is_open)));
        self.tasks.spawn(async move {
            let sink = tokio::task::spawn_blocking(open).await.context("opening a sink panicked")??;
            told.send_replace(Some(sink));
            is_open.store(true, Ordering::Relaxed);
            Ok(())
        });
        Arc::new(OpeningSink { name: name.to_owned(), opened })
    }

    /// What can be seen of it, as long as one likes.
    pub(crate) fn window(&self) -> OpeningWindow {
        self.window.clone()
    }

    /// Ends when a sink cannot be opened, and says why; never, if all can.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        while let Some(opened) = self.tasks.join_next().await {
            let opened = opened.map_err(anyhow::Error::from).flatten();
            if let Err(error) = opened {
                return error;
            }
        }
        std::future::pending().await
    }
}

/// Stands for a sink until it is open, and passes everything on afterwards.
struct OpeningSink {
    name: String,
    opened: watch::Receiver<Option<Arc<dyn Sink>>>,
}

impl OpeningSink {
    async fn sink(&self) -> Result<Arc<dyn Sink>, SinkError> {
        let mut opened = self.opened.clone();
        let sink = opened.wait_for(Option::is_some).await;
        let cannot = |_| SinkError::unreachable(&self.name, "it could not be opened");
        Ok(sink.map_err(cannot)?.clone().expect("that is what was waited for"))
    }
}

#[async_trait]
impl Sink for OpeningSink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        self.sink().await?.write(batch).await
    }

    async fn idle(&self) -> Result<(), SinkError> {
        let opened = self.opened.borrow().clone();
        match opened {
            Some(sink) => sink.idle().await,
            None => Ok(()),
        }
    }

    async fn close(&self) -> Result<(), SinkError> {
        self.sink().await?.close().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use catchment_model::{Channel, Envelope, Payload, Source, Symbol, SystemClock, UnixNs, Venue};
    use catchment_pipeline::{Delivery, Fate, Pipeline, PipelineConfig, Spool, SpoolConfig};
    use catchment_sinks::MemorySink;

    use super::*;

    #[tokio::test]
    async fn records_are_accepted_before_the_sink_is_open_and_written_once_it_is() {
        let (go, gone) = mpsc::sync_channel(1);
        let memory = Arc::new(MemorySink::new("memory"));
        let mut opening = Opening::default();
        let stands_for = Arc::clone(&memory);
        let sink = opening.add("memory", move || {
            gone.recv()?;
            Ok(stands_for as Arc<dyn Sink>)
        });
        let spool = Spool::in_memory(SpoolConfig::at("nowhere"), 7);
        let sinks = vec![(sink, Delivery::default())];
        let clock = Arc::new(SystemClock::new());
        let pipeline = Pipeline::start(spool, sinks, PipelineConfig::default(), clock).unwrap();

        let intake = pipeline.intake();
        let mut draft = intake.draft();
        draft.push(&envelope()).unwrap();
        let receipt = intake.accept(draft).await.unwrap();
        assert!(matches!(receipt.fates[..], [Fate::Accepted(_)]));
        assert!(memory.is_empty(), "nobody has opened it");
        assert_eq!(opening.window().names(), ["memory"]);

        go.send(()).unwrap();
        pipeline.close(Duration::from_secs(60)).await.unwrap();
        assert_eq!(memory.len(), 1);
        assert_eq!(opening.window().names(), [""; 0]);
    }

    #[tokio::test]
    async fn one_that_cannot_be_opened_says_why() {
        let mut opening = Opening::default();
        let sink = opening.add("archive", || anyhow::bail!("the folder is a file"));
        assert_eq!(opening.failed().await.to_string(), "the folder is a file");
        assert!(matches!(sink.close().await, Err(SinkError::Unreachable { .. })));
    }

    fn envelope() -> Envelope<'static> {
        Envelope {
            message_id: None,
            sequence: None,
            exchange: Venue::new("lantern").unwrap(),
            channel: Channel::new("trades").unwrap(),
            symbol: Symbol::ALL,
            server_time: None,
            received_at: UnixNs::from_ms(1_798_761_600_000).unwrap(),
            payload: Payload::parse(b"{}").unwrap(),
            source: Source::INGEST,
        }
    }
}
