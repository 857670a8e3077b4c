//! S2's metrics: budgets of the exchanges, jobs by state, what the workers of this process did.

use super::{Kind, Page};
use crate::{Connector, Status};

pub(super) fn jobs(page: &mut Page, status: &Status) {
    let Some(jobs) = &status.jobs else { return };
    type Of = fn(&Connector) -> f64;
    let of_connectors: [(&str, Kind, &str, Of); 6] = [
        ("catchment_jobs_rate_limit", Kind::Gauge, "Requests an exchange lets through in a window.", |c| {
            f64::from(c.rate_limit)
        }),
        (
            "catchment_jobs_rate_limit_usage",
            Kind::Gauge,
            "Of these, those let through since the window began.",
            |c| f64::from(c.rate_limit_usage),
        ),
        (
            "catchment_jobs_rate_limit_reset_at_seconds",
            Kind::Gauge,
            "When the window ends, in seconds since 1970.",
            |c| c.rate_limit_reset_at_ms as f64 / 1e3,
        ),
        (
            "catchment_jobs_rate_limit_saturated_total",
            Kind::Counter,
            "Times somebody asked for a token and there was none.",
            |c| c.rate_limit_saturated as f64,
        ),
        ("catchment_jobs_count", Kind::Gauge, "Jobs that are not deleted.", |c| c.jobs as f64),
        ("catchment_jobs_active_count", Kind::Gauge, "Of these, those that are active.", |c| {
            c.active_jobs as f64
        }),
    ];
    for (name, kind, help, of) in of_connectors {
        page.family(name, kind, help, |family| {
            for connector in &jobs.connectors {
                family.sample(&[("exchange", &connector.exchange)], of(connector));
            }
        });
    }
    page.family(
        "catchment_jobs_state_count",
        Kind::Gauge,
        "Jobs that are queued, running, waiting for tokens, failed or given up.",
        |family| {
            for line in &jobs.states {
                family.sample(&[("exchange", &line.exchange), ("state", line.state)], line.jobs as f64);
            }
        },
    );
    page.family(
        "catchment_jobs_runs_total",
        Kind::Counter,
        "What became of the runs of this process's workers.",
        |family| {
            for (outcome, runs) in &jobs.runs {
                family.sample(&[("outcome", outcome)], *runs as f64);
            }
        },
    );
    let plain = [
        (
            "catchment_jobs_store_up",
            Kind::Gauge,
            "Whether the store answers: 1, or 0.",
            f64::from(u8::from(jobs.store_up)),
        ),
        (
            "catchment_jobs_in_hand_count",
            Kind::Gauge,
            "Jobs that this process works on.",
            jobs.in_hand as f64,
        ),
        (
            "catchment_jobs_store_errors_total",
            Kind::Counter,
            "Times the store did not answer a worker.",
            jobs.store_errors as f64,
        ),
        ("catchment_jobs_pages_total", Kind::Counter, "Pages saved.", jobs.pages as f64),
        ("catchment_jobs_candles_total", Kind::Counter, "Candles saved.", jobs.candles as f64),
        (
            "catchment_jobs_holes_total",
            Kind::Counter,
            "Stretches noted that a venue has no candles of.",
            jobs.holes as f64,
        ),
        (
            "catchment_jobs_unreachable_total",
            Kind::Counter,
            "Stretches of candles that a venue will never give any more.",
            jobs.unreachable as f64,
        ),
        (
            "catchment_jobs_gaps_planned_total",
            Kind::Counter,
            "Jobs added for missing candles.",
            jobs.gaps_planned as f64,
        ),
    ];
    for (name, kind, help, value) in plain {
        page.family(name, kind, help, |family| family.sample(&[], value));
    }
}
