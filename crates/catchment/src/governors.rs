//! A governor for each venue, from what the venue declares and what the configuration says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_collect::stream;
use catchment_governor::limiter::{Aimd, AimdSettings, Limiter, Pace, PaceSettings};
use catchment_governor::{
    Budget, Family, Governor, Limits, MakeLimiter, MemoryBudget, Notebook, Open, Parts, Settings, WindowSpec,
};
use catchment_model::Clock;
use catchment_venues::stream::Descriptor;
use catchment_venues::{Opened, VenueSpec};

use crate::accounts::Accounts;
use crate::config::{LimiterKind, Speed, VenueConfig};

/// Opens the governor of a venue that is polled, and of its streams if it is streamed too. What it learns and which bans
/// it meets are kept in the file `notebook`.
pub(crate) fn open(
    venue: &VenueConfig,
    opened: &Opened,
    streams: Option<&Descriptor>,
    accounts: Option<&Accounts>,
    notebook: &Path,
    clock: &Arc<dyn Clock>,
    seed: u64,
) -> anyhow::Result<Governor> {
    let mut families = families_of(venue.spec, opened, streams);
    if venue.unlimited {
        families.iter_mut().for_each(|family| family.limits.clear());
        let limits = Limits::new(families, 1.0)?;
        let parts = Parts {
            clock: Arc::clone(clock),
            budget: Arc::new(MemoryBudget::new(limits.clone())),
            limiter: Box::new(|_family, _remembered| Box::new(Open)),
            notebook: None,
            seed,
        };
        let settings = Settings { max_inflight: venue.speed.max_inflight, ..Settings::default() };
        return Ok(Governor::open(venue.spec.id, limits, settings, parts));
    }
    start(venue.spec.id, families, &venue.speed, venue.spec.start.spacing, accounts, notebook, clock, seed)
}

/// The families of a venue that is polled, and of its streams if it is streamed too. Everybody who shares its account has the
/// same, in the same order.
pub(crate) fn families_of(spec: &VenueSpec, opened: &Opened, streams: Option<&Descriptor>) -> Vec<Family> {
    let mut families = catchment_collect::families_of(spec, opened);
    let more = streams.map(stream::families_of).unwrap_or_default();
    families.extend(more.into_iter().filter(|family| {
        let is_known = spec.limits.iter().any(|limit| limit.family == family.name);
        !is_known
    }));
    families
}

/// Opens the governor of a venue that is described in a file: only streamed, or asked for its history.
pub(crate) fn open_described(
    descriptor: &Descriptor,
    speed: &Speed,
    accounts: Option<&Accounts>,
    notebook: &Path,
    clock: &Arc<dyn Clock>,
    seed: u64,
) -> anyhow::Result<Governor> {
    let families = stream::families_of(descriptor);
    let spacing = Duration::from_millis(100);
    start(descriptor.id(), families, speed, spacing, accounts, notebook, clock, seed)
}

#[allow(clippy::too_many_arguments)] // two callers, a few lines above
fn start(
    id: &'static str,
    families: Vec<Family>,
    speed: &Speed,
    spacing: Duration,
    accounts: Option<&Accounts>,
    notebook: &Path,
    clock: &Arc<dyn Clock>,
    seed: u64,
) -> anyhow::Result<Governor> {
    let limits = Limits::new(families, speed.limit_share)
        .with_context(|| format!("the limits of {id} do not fit together"))?;
    let shared = match accounts {
        Some(accounts) => accounts.budget(id, &limits, clock)?,
        None => None,
    };
    let budget: Arc<dyn Budget> = shared.unwrap_or_else(|| Arc::new(MemoryBudget::new(limits.clone())));
    let settings =
        Settings { max_inflight: speed.max_inflight, cooldown: speed.cooldown, ..Settings::default() };
    let parts = Parts {
        clock: Arc::clone(clock),
        budget,
        limiter: limiters(*speed, spacing, &limits, seed),
        notebook: Some(Arc::new(Notebook::open(notebook))),
        seed,
    };
    Ok(Governor::open(id, limits, settings, parts))
}

/// What learns the limits that are not declared. Where one is declared, it begins near it: the windows hold anyway.
fn limiters(speed: Speed, spacing: Duration, limits: &Limits, seed: u64) -> MakeLimiter {
    let declared: BTreeMap<String, f64> = limits
        .families()
        .filter_map(|family| {
            let rate = |window: WindowSpec| f64::from(window.allowed) / window.length.as_secs_f64();
            let slowest = limits.windows_of(family).map(rate).fold(f64::INFINITY, f64::min);
            slowest.is_finite().then(|| (limits.name(family).to_owned(), slowest))
        })
        .collect();
    let Speed { limiter: kind, max_inflight, aimd, cooldown, .. } = speed;
    Box::new(move |family, remembered| -> Box<dyn Limiter> {
        // Attempts to connect are few, and how many there may be is declared.
        if family.starts_with("connects.") {
            return Box::new(Open);
        }
        match kind {
            LimiterKind::Pace => {
                let spaced = 1.0 / spacing.max(Duration::from_millis(1)).as_secs_f64();
                let begin = match declared.get(family) {
                    Some(rate) => rate * 0.9,
                    None => spaced.min(PaceSettings::default().start_rate),
                };
                let settings = PaceSettings {
                    start_rate: begin,
                    // A little faster than the windows let through on the whole: what a late timer cost is made up for.
                    rate_max: declared.get(family).map_or(f64::INFINITY, |rate| rate * 1.03),
                    inflight_max: max_inflight,
                    ..PaceSettings::default()
                };
                match remembered {
                    Some(ceiling) => Box::new(Pace::warm(settings, ceiling, seed)),
                    None => Box::new(Pace::cold(settings, seed)),
                }
            }
            LimiterKind::Aimd => Box::new(Aimd::new(AimdSettings {
                start: aimd.start_inflight,
                inflight_max: max_inflight,
                stable: Duration::from_secs(aimd.stable_s),
                adjust: Duration::from_secs(aimd.adjust_s),
                cooldown,
                failure_share_max: aimd.failure_share_max,
                latency_p95_low: Duration::from_millis(aimd.latency_low_ms),
                latency_p95_high: Duration::from_millis(aimd.latency_high_ms),
            })),
        }
    })
}
