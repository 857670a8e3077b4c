//! A governor for each venue, from what the venue declares and what the configuration says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catchment_governor::limiter::{Aimd, AimdSettings, Limiter, Pace, PaceSettings};
use catchment_governor::{
    Governor, Limits, MakeLimiter, MemoryBudget, Notebook, Parts, Settings, WindowSpec,
};
use catchment_model::Clock;
use catchment_venues::Opened;

use crate::config::{LimiterKind, VenueConfig};

/// Opens the governor of a venue. What it learns and which bans it meets are kept in the file `notebook`.
pub(crate) fn open(
    venue: &VenueConfig,
    opened: &Opened,
    notebook: &Path,
    clock: &Arc<dyn Clock>,
    seed: u64,
) -> anyhow::Result<Governor> {
    let limits = catchment_collect::limits_of(venue.spec, opened, venue.limit_share)
        .with_context(|| format!("the limits of {} do not fit together", venue.spec.id))?;
    let settings =
        Settings { max_inflight: venue.max_inflight, cooldown: venue.cooldown, ..Settings::default() };
    let parts = Parts {
        clock: Arc::clone(clock),
        budget: Arc::new(MemoryBudget::new(limits.clone())),
        limiter: limiters(venue, &limits, seed),
        notebook: Some(Arc::new(Notebook::open(notebook))),
        seed,
    };
    Ok(Governor::open(venue.spec.id, limits, settings, parts))
}

/// What learns the limits that are not declared. Where one is declared, it begins near it: the windows hold anyway.
fn limiters(venue: &VenueConfig, limits: &Limits, seed: u64) -> MakeLimiter {
    let declared: BTreeMap<String, f64> = limits
        .families()
        .filter_map(|family| {
            let rate = |window: WindowSpec| f64::from(window.allowed) / window.length.as_secs_f64();
            let slowest = limits.windows_of(family).map(rate).fold(f64::INFINITY, f64::min);
            slowest.is_finite().then(|| (limits.name(family).to_owned(), slowest))
        })
        .collect();
    let start = venue.spec.start;
    let (kind, max_inflight, aimd) = (venue.limiter, venue.max_inflight, venue.aimd);
    let cooldown = venue.cooldown;
    Box::new(move |family, remembered| -> Box<dyn Limiter> {
        match kind {
            LimiterKind::Pace => {
                let spaced = 1.0 / start.spacing.max(Duration::from_millis(1)).as_secs_f64();
                let begin = match declared.get(family) {
                    Some(rate) => rate * 0.9,
                    None => spaced.min(PaceSettings::default().start_rate),
                };
                let settings = PaceSettings {
                    start_rate: begin,
                    rate_max: declared.get(family).copied().unwrap_or(f64::INFINITY),
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
