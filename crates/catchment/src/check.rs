//! `catchment check`: the configuration, without touching anything; with `--connect`, whether the venues and databases
//! answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream::try_socket;
use catchment_collect::{Courier, CourierSettings};
use catchment_governor::{Ask, Lane};
use catchment_model::{Clock, SystemClock};
use catchment_venues::Reading;
use serde_json::json;

use crate::config::{ApiConfig, Config, Place, SinkConfig, VenueConfig};
use crate::{DONE, WANTING, governors};

/// How long a venue may keep us waiting: for a permit, then for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(config: &Config, connect: bool, json: bool) -> anyhow::Result<u8> {
    // As the start would: a token may be in the environment, which the configuration itself does not look into.
    config.api.as_ref().map(ApiConfig::settings).transpose()?;
    let answers = if connect { ask_all(config)? } else { Vec::new() };
    let is_good = answers.iter().all(|(_, answer)| answer.is_ok());
    let sinks: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
    let venues: Vec<&str> = config.venues.iter().map(|venue| venue.spec.id).collect();
    let streams: Vec<String> = config
        .streams
        .iter()
        .map(|stream| format!("{} ({} streams)", stream.descriptor.id(), stream.wanted.len()))
        .collect();
    let code = if is_good { DONE } else { WANTING };
    if json {
        let answers = answers.iter().map(|(venue, answer)| match answer {
            Ok(latency) => {
                json!({ venue.0: venue.1, "answers": true, "latency_ms": latency.as_millis() as u64 })
            }
            Err(problem) => json!({ venue.0: venue.1, "answers": false, "problem": problem }),
        });
        let report = json!({
            "ok": is_good,
            "data_dir": config.data_dir,
            "spool": config.spool_enabled.then_some(&config.spool.dir),
            "sinks": sinks,
            "venues": venues,
            "jobs": config.jobs.as_ref().map(|jobs| jobs.pairs.len()),
            "streams": config.streams.iter().map(|stream| stream.descriptor.id()).collect::<Vec<_>>(),
            "notes": config.notes,
            "connect": connect.then(|| answers.collect::<Vec<_>>()),
        });
        tell!("{report}");
        return Ok(code);
    }
    tell!("the configuration is good");
    for note in &config.notes {
        tell!("  note     {note}");
    }
    tell!("  archive  {}", config.data_dir.display());
    match config.spool_enabled {
        true => tell!(
            "  spool    {}, at most {} MiB",
            config.spool.dir.display(),
            config.spool.total_bytes_max >> 20
        ),
        false => tell!("  spool    off: what is not delivered when the process ends is lost"),
    }
    tell!("  sinks    {}", sinks.join(", "));
    let none = "none; name one, such as [venues.polymarket]";
    if (streams.is_empty() && config.jobs.is_none()) || !venues.is_empty() {
        tell!("  venues   {}", if venues.is_empty() { none.to_owned() } else { venues.join(", ") });
    }
    if !streams.is_empty() {
        tell!("  streams  {}", streams.join(", "));
    }
    if let Some(jobs) = &config.jobs {
        let (series, workers) = (jobs.pairs.len(), jobs.workers);
        tell!(
            "  jobs     candles of {series} pairs and timeframes, {workers} workers; {}",
            config.store.place
        );
    }
    for (venue, answer) in answers {
        match answer {
            Ok(latency) => tell!("  {} answers, after {} ms", venue.1, latency.as_millis()),
            Err(problem) => tell!("  {}: {problem}", venue.1),
        }
    }
    Ok(code)
}

/// Who was asked (a venue or a sink, and its name), and what it said: how long it took, or what is wrong.
type Answer = ((&'static str, String), Result<Duration, String>);

fn ask_all(config: &Config) -> anyhow::Result<Vec<Answer>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut answers = Vec::new();
        for venue in &config.venues {
            // As the recorder itself would: a venue that has banned us is not asked.
            let notebook = config.data_dir.join(venue.spec.id).join("state").join("governor.json");
            let answer = ask(venue, &notebook, &clock).await;
            let who = ("venue", venue.spec.id.to_owned());
            answers.push((who, answer.map_err(|error| format!("{error:#}"))));
        }
        for stream in &config.streams {
            let id = stream.descriptor.id();
            let notebook = config.data_dir.join(id).join("state").join("governor.json");
            let governor = governors::open_described(
                &stream.descriptor,
                &stream.speed,
                None,
                &notebook,
                &clock,
                rand::random(),
            )?;
            let client = crate::streams::client(stream);
            let used = |socket: usize| {
                stream
                    .wanted
                    .iter()
                    .any(|wanted| stream.descriptor.channels()[wanted.channel].socket == socket)
            };
            for (at, socket) in stream.descriptor.sockets().iter().enumerate().filter(|(at, _)| used(*at)) {
                let (descriptor, endpoints) = (&stream.descriptor, &stream.endpoints);
                let tried = try_socket(descriptor, endpoints, at, &governor, &client, &*clock).await;
                answers.push((("venue", format!("{id}, socket {}", socket.name)), tried));
            }
        }
        for sink in &config.sinks {
            if !matches!(sink.place, Place::Jsonl { .. }) {
                let answer = ask_sink(sink, &clock).await;
                answers.push((("sink", sink.name.clone()), answer.map_err(|error| format!("{error:#}"))));
            }
        }
        Ok(answers)
    })
}

/// Looks into the collection of a database, or says hello to it.
async fn ask_sink(sink: &SinkConfig, clock: &Arc<dyn Clock>) -> anyhow::Result<Duration> {
    let asked = clock.monotonic();
    match &sink.place {
        Place::Jsonl { .. } => {}
        #[cfg(feature = "mongo")]
        Place::Mongo(place) => {
            catchment_sinks::mongo::MongoSink::new(place.open(&sink.name)?).ask().await?;
        }
        #[cfg(not(feature = "mongo"))]
        Place::Mongo(_) => anyhow::bail!("this build has no MongoDB"),
        #[cfg(feature = "redis")]
        Place::Redis(redis) => {
            catchment_sinks::redis::RedisSink::open(redis.clone(), Arc::clone(clock))?.ask().await?;
        }
    }
    Ok(clock.monotonic().since(asked))
}

/// Sends the first request of a discovery.
async fn ask(
    venue: &VenueConfig,
    notebook: &std::path::Path,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Duration> {
    let opened = (venue.spec.open)(&venue.endpoints);
    let governor = governors::open(venue, &opened, None, None, notebook, clock, rand::random())?;
    let settings = CourierSettings { deadline: PATIENCE, ..CourierSettings::default() };
    let courier = Courier::new(venue.spec, settings, Arc::clone(clock))?;
    let discovers = opened.discovers.context("it lists no markets")?;
    let request = discovers.walk().next_request().context("it lists no markets")?;
    let family = governor.family(request.family).context("a family without limits")?;
    let latest = catchment_model::Monotonic(clock.monotonic().0 + PATIENCE);
    let ask = Ask::new(family, Lane::Live).cost(request.cost);
    let permit = governor.acquire_before(ask, latest).await;
    let permit = permit.with_context(|| match governor.snapshot().hold {
        Some((remaining, cause)) => format!("held for {} s yet: {}", remaining.as_secs(), cause.as_str()),
        None => "no request may leave yet".to_owned(),
    })?;
    let reply = courier.send(permit, &request).await?;
    anyhow::ensure!(
        matches!(reply.reading, Reading::Ok),
        "it answers {} ({:?})",
        reply.status,
        reply.reading
    );
    Ok(reply.latency)
}
