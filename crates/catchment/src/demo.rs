//! `catchment demo`: simulated venues, a recorder and its page in one process; nothing else is needed.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context;
use catchment_control::{Control, ControlError, Reserved};
use catchment_model::SystemClock;
use catchment_sim::{Sim, SimConfig};

use crate::cli::DemoArgs;
use crate::config::{self, Config};
use crate::recorder::Rooms;
use crate::run::record;
use crate::{say, signals};

/// What is simulated: small enough for a laptop, with books that move and markets that come and go.
const UNIVERSE: &[(&str, &str)] = &[
    ("polymarket.universe.markets", "500"),
    ("polymarket.universe.births_per_min", "12"),
    ("polymarket.universe.deaths_per_min", "12"),
    ("limitless.universe.markets", "30"),
    ("kalshi.universe.markets", "300"),
    ("polymarket.faults.latency_ms", "40"),
    ("limitless.faults.latency_ms", "60"),
    ("kalshi.faults.latency_ms", "50"),
];

/// Where the page is if nobody says otherwise.
const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let enough = signals::listen("what was accepted is being delivered")?;
        let place = reserve(args.listen).await?;
        let mut simulated = SimConfig { seed: args.seed, ..SimConfig::default() };
        for (path, value) in UNIVERSE {
            simulated = simulated.with(path, value)?;
        }
        let sim = Sim::start(simulated, Arc::new(SystemClock::new())).await?;
        let config = config_of(&sim, args, place.addr())?;
        say(&format!("simulated venues: {}", sim.base("_sim/stats")));
        let ended = record(&config, Rooms::ALL, args.length, enough, Some(place)).await?;
        sim.stop().await;
        ended.print(args.json)?;
        say(&format!(
            "the data is in {}; look it over with: catchment verify {}",
            config.data_dir.display(),
            config.data_dir.display()
        ));
        Ok(ended.code())
    })
}

/// Where the user wants the page; if nobody has said, where it usually is, or where there is room.
async fn reserve(listen: Option<SocketAddr>) -> Result<Reserved, ControlError> {
    match Control::reserve(listen.unwrap_or(USUAL)).await {
        Err(ControlError::Listen { addr, source })
            if listen.is_none() && source.kind() == ErrorKind::AddrInUse =>
        {
            say(&format!("{addr} is taken by another program; the page goes where there is room"));
            Control::reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
        }
        reserved => reserved,
    }
}

/// The configuration a user would write for these venues.
fn config_of(sim: &Sim, args: &DemoArgs, listen: SocketAddr) -> anyhow::Result<Config> {
    let text = format!(
        r#"
data_dir = {data_dir:?}
[api]
listen = "{listen}"
[venues.polymarket]
endpoints = {{ clob = "{clob}", gamma = "{gamma}" }}
discover_interval_s = 10
[venues.limitless]
endpoints = {{ api = "{limitless}" }}
poll_interval_ms = 15000
discover_interval_s = 30
[venues.kalshi]
endpoints = {{ api = "{kalshi}" }}
poll_interval_ms = 1000
discover_interval_s = 30
"#,
        data_dir = args.data_dir,
        clob = sim.base("polymarket/clob"),
        gamma = sim.base("polymarket/gamma"),
        limitless = sim.base("limitless"),
        kalshi = sim.base("kalshi"),
    );
    config::from_text(&text).context("the demo's configuration")
}
