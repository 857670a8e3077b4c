//! `catchment fleet coordinator | fetcher | status`: many fetch nodes, one latest picture in Redis.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_fleet::coordinator::coordinate;
use catchment_fleet::node::FetchNode;
use catchment_fleet::registry::Registry;
use catchment_fleet::status::FleetStatus;
use catchment_model::SystemClock;
use catchment_sinks::redis::{RedisAddress, RedisLink};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cli::{FleetCommand, FleetStatusArgs};
use crate::config::fleet::{read_coordinator, read_fetcher};
use crate::{DONE, WANTING, say, signals};

pub(crate) fn run(command: &FleetCommand) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        match command {
            FleetCommand::Coordinator { config } => coordinator(config.as_deref()).await,
            FleetCommand::Fetcher { config } => fetcher(config.as_deref()).await,
            FleetCommand::Status(args) => status(args).await,
        }
    })
}

async fn coordinator(path: Option<&std::path::Path>) -> anyhow::Result<u8> {
    let config = read_coordinator(path)?.check(rand::random())?;
    let stop = until_signal()?;
    say(&format!("coordinator {}: Ctrl-C ends it; `catchment fleet status` shows how it goes", config.name));
    let (status, _seen) = watch::channel(FleetStatus::default());
    coordinate(config, Arc::new(SystemClock::new()), status, stop).await?;
    Ok(DONE)
}

async fn fetcher(path: Option<&std::path::Path>) -> anyhow::Result<u8> {
    let config = read_fetcher(path)?.check()?;
    let (name, has_key, wanted) = (config.node_id.clone(), config.key.is_some(), config.bind);
    let node = FetchNode::open(config, Arc::new(SystemClock::new())).await?;
    let stop = until_signal()?;
    let note = if has_key || wanted.ip().is_loopback() { "" } else { ", on loopback only: it has no key" };
    say(&format!("{name} listens on {}{note}; Ctrl-C ends it", node.addr()));
    node.run(stop).await;
    Ok(DONE)
}

/// Cancelled by the first signal; the second ends the process at once.
fn until_signal() -> anyhow::Result<CancellationToken> {
    let mut enough = signals::listen("what is under way is ended")?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        signals::told(&mut enough).await;
        told.cancel();
    });
    Ok(stop)
}

async fn status(args: &FleetStatusArgs) -> anyhow::Result<u8> {
    let config = read_coordinator(args.config.as_deref());
    let (address, namespace) = match (&args.redis_url, config) {
        (Some(url), _) => (RedisAddress::new(url), "fleet".to_owned()),
        (None, Ok(config)) => (config.redis(), config.namespace().to_owned()),
        (None, Err(error)) => return Err(error),
    };
    let namespace = args.namespace.clone().unwrap_or(namespace);
    let registry = Registry::new(Arc::new(RedisLink::new(&address)?), namespace);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut code = DONE;
    let mut stop = args.watch.then(|| signals::listen("that was the last look")).transpose()?;
    loop {
        match &mut stop {
            None => {}
            Some(stop) => tokio::select! {
                biased;
                _ = stop.changed() => return Ok(code),
                _ = tick.tick() => {}
            },
        }
        let status = match look(&registry).await {
            Ok(status) => status,
            // Whoever watches wants to see it come back.
            Err(error) if args.watch => {
                say(&format!("catchment: {error:#}"));
                code = WANTING;
                continue;
            }
            Err(error) => return Err(error),
        };
        code = if status.is_well() { DONE } else { WANTING };
        let is_heard = print(&status, args)?;
        if !args.watch || !is_heard {
            return Ok(code);
        }
    }
}

/// What the leader says; without one, at least which nodes have registered themselves.
async fn look(registry: &Registry) -> anyhow::Result<FleetStatus> {
    if let Some(status) = registry.status().await.context("cannot ask Redis")? {
        return Ok(status);
    }
    let beats = registry.nodes().await.context("cannot ask Redis")?;
    let node = |beat: catchment_fleet::registry::Beat| catchment_fleet::status::NodeStatus {
        id: beat.node,
        addr: beat.addr,
        is_up: true,
        capacity_rps: beat.capacity_rps,
        counts: beat.counts,
        ..catchment_fleet::status::NodeStatus::default()
    };
    let mut status = FleetStatus::default();
    status.plan.nodes = beats.into_iter().map(node).collect();
    Ok(status)
}

/// Whether somebody was there to read it.
fn print(status: &FleetStatus, args: &FleetStatusArgs) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    let text = match (args.json, args.metrics) {
        (true, _) => format!("{}\n", serde_json::to_string(status)?),
        (false, true) => status.to_metrics(),
        (false, false) => status.to_text(),
    };
    // A terminal shows one picture after the other in the same place.
    let clear = if args.watch && !args.json && out.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    Ok(write!(out, "{clear}{text}").and_then(|()| out.flush()).is_ok())
}
