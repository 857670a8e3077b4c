//! How things are told: a page, a bar, a line of JSON.

use std::fmt::Write as _;
use std::time::Duration;

use catchment_lake::{State, Status, WorkReport};
use indicatif::{ProgressBar, ProgressStyle};

/// A bar for somebody who watches.
pub(super) fn draw(bar: &ProgressBar, status: &Status) {
    let template = match status.mode {
        Some("offset") => "{bar:40} {pos}/{len} jobs  {msg}",
        _ => "{spinner} {pos} jobs done  {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_length(status.jobs as u64);
    bar.set_position(status.count(State::Done) as u64);
    let left = status.eta_s.map_or_else(String::new, |eta| format!("  {} to go", people(eta)));
    bar.set_message(format!(
        "{} events  {:.0}/s  {} leased  {} failed{left}",
        status.records,
        status.records_per_s,
        status.count(State::Leased),
        status.count(State::Failed)
    ));
    bar.tick();
}

/// For people.
pub(super) fn describe(status: &Status) -> String {
    let mut text = String::new();
    let states = State::ALL.map(|state| format!("{} {}", status.count(state), state.as_str())).join(", ");
    let mode = status.mode.unwrap_or("no");
    let _ = writeln!(text, "jobs      {} by {mode}: {states}", status.jobs);
    let _ = writeln!(text, "events    {} written", status.records);
    let left = match status.eta_s {
        Some(0) => "nothing left".to_owned(),
        Some(eta) => format!("{} to go", people(eta)),
        None if status.mode == Some("keyset") => {
            "time to go unknown: a walk by cursor does not know its end".to_owned()
        }
        None => "time to go unknown yet".to_owned(),
    };
    let _ = writeln!(
        text,
        "speed     {:.2} jobs/s, {:.0} events/s; {left}",
        status.jobs_per_s, status.records_per_s
    );
    for error in &status.errors {
        let _ = writeln!(
            text,
            "error     {} x {} ({} for good): {}",
            error.jobs, error.code, error.failed, error.message
        );
    }
    for lease in &status.leases {
        let (age, left) = (lease.age_ms / 1_000, lease.expires_in_ms / 1_000);
        let _ = writeln!(
            text,
            "lease     {} has {}, renewed {age} s ago, {left} s left",
            lease.worker, lease.job_id
        );
    }
    if let Some(next) = status.next_due_s.filter(|next| *next > 0 && status.leases.is_empty()) {
        let _ = writeln!(text, "next      a job is due in {}", people(next));
    }
    text
}

fn people(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// For programs.
pub(super) fn report_json(report: &WorkReport, took: Duration) -> serde_json::Value {
    let commits = &report.commits;
    let mean = commits.time.as_secs_f64() * 1_000.0 / commits.made.max(1) as f64;
    serde_json::json!({
        "done": report.done,
        "records": report.records,
        "failed": report.failed,
        "lost": report.lost,
        "handed_back": report.handed_back,
        "failed_for_good": report.failed_for_good,
        "is_finished": report.is_finished,
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "commits": {
            "made": commits.made,
            "lost": commits.lost,
            "found": commits.found,
            "ms_mean": (mean * 100.0).round() / 100.0,
            "ms_max": u64::try_from(commits.time_max.as_millis()).unwrap_or(u64::MAX),
        },
    })
}
