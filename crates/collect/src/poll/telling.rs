//! What the poller says about itself: records, and the status that others watch.

use std::time::Duration;

use catchment_model::Monotonic;

use super::records::{self, LimiterRecord, PollError, StatsRecord, millis, ms};
use super::silence::Told;
use super::{PollStatus, Poller, events};
use crate::stats::Latencies;

/// Beyond this, errors are counted and not told; gaps and figures always are.
const OUTBOX_BYTES_MAX: usize = 1 << 20;

impl Poller {
    pub(super) fn tell_stats(&mut self, now: Monotonic) {
        let snapshot = self.fetch.snapshot();
        let latency = self.latencies.p50_p95(now);
        let spacing = |percent| self.spacings.percentile(percent).map(millis);
        let stats = StatsRecord {
            venue: self.venue,
            uptime_ms: ms(now.since(self.started_at)),
            period_ms: ms(now.since(self.told.0)),
            active_instruments: self.roster.len(),
            batches: self.schedule.len(),
            resting: self.resting(now),
            total: self.counts,
            period: self.counts.since(&self.told.1),
            latency_ms_p50: latency.map(|(p50, _)| millis(p50)),
            latency_ms_p95: latency.map(|(_, p95)| millis(p95)),
            latency_window_ms: ms(Latencies::WINDOW),
            spacing_ms_p05: spacing(5),
            spacing_ms_p50: spacing(50),
            spacing_ms_p95: spacing(95),
            cooldown_remaining_ms: snapshot.hold.map_or(0, |(left, _)| ms(left)),
            cooldown_cause: snapshot.hold.map(|(_, cause)| cause.as_str()),
            workers_max: self.settings.max_workers,
            workers_busy: self.under_way.len(),
            inflight: snapshot.inflight,
            inflight_max: snapshot.inflight_max,
            limiter: LimiterRecord::all(snapshot),
        };
        let pushed = records::push_stats(&mut self.outbox, &stats, self.clock.wall());
        self.lose(u64::from(pushed.is_err()));
        self.told = (now, self.counts);
        self.spacings.turn();
        let roster = &self.roster;
        self.backoff.retain(now, |key| roster.knows(key));
        let schedule = &self.schedule;
        self.batch_backoff.retain(now, |id| {
            id.parse().is_ok_and(|id| schedule.get(id).is_some_and(|batch| batch.has_failed))
        });
    }

    pub(super) fn tell_error(&mut self, error: &PollError<'_>, now: Monotonic) {
        events::poll_failed(self.venue, error);
        let has_room = self.outbox.bytes() < OUTBOX_BYTES_MAX;
        let admitted = self.errors.admit(error.kind, now).filter(|_| has_room);
        let Some(suppressed) = admitted else {
            self.counts.errors_suppressed += 1;
            return;
        };
        let wall = self.clock.wall();
        let pushed = records::push_error(&mut self.outbox, self.venue, error, suppressed, wall);
        self.counts.errors_told += u64::from(pushed.is_ok());
    }

    pub(super) fn tell_silence(&mut self, now: Monotonic) {
        let told = self.silence.look(&mut self.roster, &self.schedule, now, self.clock.wall());
        self.tell_gaps(&told);
    }

    pub(super) fn tell_gaps(&mut self, told: &[Told]) {
        let wall = self.clock.wall();
        for Told { symbol, gap } in told {
            let pushed = records::push_gap(&mut self.outbox, self.venue, symbol.as_deref(), gap, wall);
            self.lose(u64::from(pushed.is_err()));
            self.counts.gaps_told += u64::from(pushed.is_ok());
        }
    }

    pub(super) fn tell_status(&mut self, now: Monotonic, is_over: bool) {
        let latency = self.latencies.p50_p95(now);
        let left = |(until, cause): (Monotonic, _)| (until.since(now), cause);
        let status = PollStatus {
            instruments: self.roster.len(),
            resting: self.resting(now),
            batches: self.schedule.len(),
            counts: self.counts,
            books_per_s: self.speed.turn(self.counts.books),
            latency_p50: latency.map(|(p50, _)| p50),
            latency_p95: latency.map(|(_, p95)| p95),
            spacing_p05: self.spacings.percentile(5),
            spacing_p50: self.spacings.percentile(50),
            spacing_p95: self.spacings.percentile(95),
            hold: self.hold.map(left).filter(|(left, _)| *left > Duration::ZERO),
            snapshot_kept: self.snapshot_kept.clone(),
            is_over,
        };
        self.status.send_replace(status);
    }

    /// Sends what has been gathered, unless the last is still on its way.
    pub(super) fn post(&mut self) {
        if self.outbox.is_empty() || !self.mail.is_empty() {
            return;
        }
        let draft = std::mem::replace(&mut self.outbox, self.intake.draft());
        let (intake, records) = (self.intake.clone(), draft.len() as u64);
        self.mail.spawn(async move { (records, intake.accept(draft).await) });
    }

    fn resting(&self, now: Monotonic) -> usize {
        self.schedule.resting(now)
    }
}
