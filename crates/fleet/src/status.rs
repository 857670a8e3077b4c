//! How the fleet is doing, as the leading coordinator writes it to Redis once a second, and as people and programs read it.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::brain::{Counts, Freshness};

/// The whole fleet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetStatus {
    /// Who leads; empty if nobody does.
    pub leader: String,
    /// The fence of its lease.
    pub fence: u64,
    /// When this was written, in milliseconds.
    pub at_ms: i64,
    /// Since when it leads.
    pub leading_ms: u64,
    /// Over the last seconds.
    pub rates: Rates,
    /// What it does.
    #[serde(flatten)]
    pub plan: PlanStatus,
}

/// Figures a second, over the last few.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Requests to the venue.
    pub requests_per_s: f64,
    /// Books that came.
    pub books_per_s: f64,
    /// Books that were new.
    pub written_per_s: f64,
}

/// What the coordinator does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanStatus {
    /// Tokens.
    pub tokens: usize,
    /// Tokens that rest because they spoil batches.
    pub resting: usize,
    /// Tokens the venue has no book of.
    pub absent: usize,
    /// Tokens a request has, at most over the nodes.
    pub batch: usize,
    /// Requests a second that all nodes there are may send.
    pub capacity_rps: u64,
    /// What every token's refresh would take at full capacity: T / (B × capacity).
    pub ideal_ms: f64,
    /// How old the newest snapshots are.
    pub freshness: FreshnessStatus,
    /// The tokens with the oldest ones, the oldest first.
    pub stalest: Vec<StaleToken>,
    /// Slots since the start.
    pub slots: SlotStatus,
    /// Counts since the start.
    pub counts: Counts,
    /// Every node.
    pub nodes: Vec<NodeStatus>,
    /// What went wrong last, the newest first.
    pub errors: Vec<ErrorStatus>,
}

/// Percentiles of ages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub struct FreshnessStatus {
    pub tokens: usize,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Never fetched yet.
    pub never: usize,
}

/// A token and the age of its newest snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub struct StaleToken {
    pub token: String,
    pub age_ms: f64,
}

impl FreshnessStatus {
    pub(crate) fn of(freshness: &Freshness) -> Self {
        let ms = |age: std::time::Duration| age.as_secs_f64() * 1e3;
        Self {
            tokens: freshness.tokens,
            p50_ms: ms(freshness.p50),
            p90_ms: ms(freshness.p90),
            p99_ms: ms(freshness.p99),
            max_ms: ms(freshness.max),
            never: freshness.never,
        }
    }
}

/// Slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotStatus {
    /// Δ.
    pub length_us: u64,
    /// Used.
    pub used: u64,
    /// Of those, later than their length.
    pub late: u64,
    /// Too late to be used.
    pub missed: u64,
    /// Not used, because the node had too much under way.
    pub busy: u64,
    /// Not used, because there was nothing to fetch or nobody to do it.
    pub idle: u64,
}

/// One node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub addr: String,
    /// Whether it answers.
    pub is_up: bool,
    /// Requests in any second, at most.
    pub capacity_rps: u32,
    /// Over the last few seconds.
    pub requests_per_s: f64,
    /// Its tokens.
    pub tokens: usize,
    /// Tokens a request has.
    pub batch: usize,
    /// The share of the wanted batch that it is trusted with.
    pub batch_share: f64,
    /// Batches under way.
    pub under_way: usize,
    /// From order to answer, lately.
    pub latency_ms: f64,
    /// The venue refuses it for so long.
    pub hold_ms: u64,
    /// Counts since it came.
    pub counts: Counts,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// And when.
    pub last_error_ago_ms: Option<u64>,
}

/// Something that went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub struct ErrorStatus {
    pub ago_ms: u64,
    pub node: String,
    pub kind: String,
    pub message: String,
}

impl FleetStatus {
    /// Whether nothing is wanting: somebody leads and every node answers.
    pub fn is_well(&self) -> bool {
        !self.leader.is_empty()
            && !self.plan.nodes.is_empty()
            && self.plan.nodes.iter().all(|node| node.is_up)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write_text(&mut out).expect("a text takes whatever is written");
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let plan = &self.plan;
        if self.leader.is_empty() {
            return writeln!(out, "no coordinator leads");
        }
        writeln!(
            out,
            "coordinator  {} leads, fence {}, for {} s",
            self.leader,
            self.fence,
            self.leading_ms / 1_000
        )?;
        writeln!(
            out,
            "tokens       {} ({} resting, {} without a book), batches of {}",
            plan.tokens, plan.resting, plan.absent, plan.batch
        )?;
        writeln!(
            out,
            "rate         {:.1} of {} requests/s, {:.0} books/s, {:.0} changed/s",
            self.rates.requests_per_s, plan.capacity_rps, self.rates.books_per_s, self.rates.written_per_s
        )?;
        let fresh = plan.freshness;
        writeln!(
            out,
            "freshness    p50 {}  p90 {}  p99 {}  max {}  (a round at full capacity: {})",
            seconds(fresh.p50_ms),
            seconds(fresh.p90_ms),
            seconds(fresh.p99_ms),
            seconds(fresh.max_ms),
            seconds(plan.ideal_ms)
        )?;
        if let Some(first) = plan.stalest.first().filter(|first| first.age_ms > 2.0 * plan.ideal_ms) {
            writeln!(out, "stalest      {}, {} old", first.token, seconds(first.age_ms))?;
        }
        let slots = plan.slots;
        writeln!(
            out,
            "slots        {} us each; {} used, {} late, {} missed, {} busy, {} idle",
            slots.length_us, slots.used, slots.late, slots.missed, slots.busy, slots.idle
        )?;
        let width = plan.nodes.iter().map(|node| node.id.len()).max().unwrap_or(4).max(4);
        let place = plan.nodes.iter().map(|node| node.addr.len()).max().unwrap_or(7).max(7);
        writeln!(
            out,
            "\n{:<width$}  {:<place$}  state   req/s  tokens  batch  latency  last error",
            "node", "address"
        )?;
        for node in &plan.nodes {
            let state = match (node.is_up, node.hold_ms) {
                (false, _) => "down",
                (true, 0) => "up",
                (true, _) => "held",
            };
            let error = match (&node.last_error, node.last_error_ago_ms) {
                (Some(error), Some(ago)) => format!("{error} ({} ago)", seconds(ago as f64)),
                (Some(error), None) => error.clone(),
                (None, _) => "-".to_owned(),
            };
            writeln!(
                out,
                "{:<width$}  {:<place$}  {state:<5}  {:>6.1}  {:>6}  {:>5}  {:>5.0} ms  {error}",
                node.id, node.addr, node.requests_per_s, node.tokens, node.batch, node.latency_ms
            )?;
        }
        if !plan.errors.is_empty() {
            writeln!(out, "\nlast errors")?;
        }
        for error in plan.errors.iter().take(8) {
            let ago = seconds(error.ago_ms as f64);
            writeln!(out, "  {ago:>8} ago  {}  {}: {}", error.node, error.kind, error.message)?;
        }
        Ok(())
    }

    /// For Prometheus.
    pub fn to_metrics(&self) -> String {
        let mut out = String::new();
        let plan = &self.plan;
        let mut gauge = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
            let _ =
                writeln!(out, "# HELP catchment_fleet_{name} {help}\n# TYPE catchment_fleet_{name} {kind}");
            for (labels, value) in rows {
                let _ = writeln!(out, "catchment_fleet_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        gauge(
            "leads",
            "gauge",
            "Whether a coordinator leads.",
            &one(f64::from(u8::from(!self.leader.is_empty()))),
        );
        gauge("tokens", "gauge", "Tokens.", &one(plan.tokens as f64));
        gauge("tokens_resting", "gauge", "Tokens that spoil batches and rest.", &one(plan.resting as f64));
        gauge("tokens_absent", "gauge", "Tokens the venue has no book of.", &one(plan.absent as f64));
        gauge("tokens_never", "gauge", "Tokens never fetched yet.", &one(plan.freshness.never as f64));
        gauge("batch_tokens", "gauge", "Tokens a request has.", &one(plan.batch as f64));
        gauge(
            "capacity_rps",
            "gauge",
            "Requests a second the nodes may send.",
            &one(plan.capacity_rps as f64),
        );
        gauge("round_ideal_seconds", "gauge", "A round at full capacity.", &one(plan.ideal_ms / 1e3));
        let fresh = plan.freshness;
        let ages =
            [("0.5", fresh.p50_ms), ("0.9", fresh.p90_ms), ("0.99", fresh.p99_ms), ("1", fresh.max_ms)];
        let ages = ages.map(|(share, ms)| (format!("{{quantile=\"{share}\"}}"), ms / 1e3));
        gauge("freshness_seconds", "gauge", "Age of the newest snapshots.", &ages);
        let slots = plan.slots;
        let kinds = [
            ("used", slots.used),
            ("late", slots.late),
            ("missed", slots.missed),
            ("busy", slots.busy),
            ("idle", slots.idle),
        ];
        let rows = kinds.map(|(kind, count)| (format!("{{kind=\"{kind}\"}}"), count as f64));
        gauge("slots_total", "counter", "Slots by what became of them; late ones were used.", &rows);
        let up = |node: &NodeStatus| (format!("{{node=\"{}\"}}", node.id), f64::from(u8::from(node.is_up)));
        gauge("node_up", "gauge", "Whether a node answers.", &plan.nodes.iter().map(up).collect::<Vec<_>>());
        let of = |pick: fn(&Counts) -> u64| {
            let row = |node: &NodeStatus| (format!("{{node=\"{}\"}}", node.id), pick(&node.counts) as f64);
            plan.nodes.iter().map(row).collect::<Vec<_>>()
        };
        gauge("node_requests_total", "counter", "Requests to the venue.", &of(|counts| counts.requests));
        gauge("node_books_total", "counter", "Books that came.", &of(|counts| counts.books));
        gauge("node_written_total", "counter", "Books that were new.", &of(|counts| counts.written));
        gauge(
            "node_failed_total",
            "counter",
            "Batches that failed.",
            &of(|counts| counts.batches - counts.ok),
        );
        out
    }
}

/// `320 ms`, `4.2 s`.
fn seconds(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1e3) }
}
