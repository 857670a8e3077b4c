//! The store's clock, for a store in a file: all who share it are on one machine.
//!
//! The calendar of a machine may be set in either direction at any moment, and leases and budgets must not care. So the
//! file remembers one moment on both of the machine's clocks, the calendar and the time since boot, and goes on from
//! there by the latter:
//!
//! ```text
//! now = wall at the anchor + (since boot now − since boot at the anchor)
//! ```
//!
//! When the calendar has been set by more than two seconds, the anchor is moved, and with it whatever is measured by the
//! store's clock: the ends of leases and the logs of tokens. Due times stay: they are the calendar's. After a boot there
//! is a new anchor, and every lease is over, because whoever held it is gone.

use std::time::Duration;

use catchment_model::UnixMs;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::time::from_ms;
use crate::window_log::WindowLog;

/// The clocks of a machine.
pub trait HostClock: Send + Sync + std::fmt::Debug {
    /// The calendar.
    fn wall(&self) -> UnixMs;

    /// How long the machine is up, sleep included; the same for all processes.
    fn since_boot(&self) -> Duration;

    /// Which boot that was.
    fn boot(&self) -> String;
}

/// This machine's.
#[derive(Debug, Default)]
pub struct Machine;

impl HostClock for Machine {
    fn wall(&self) -> UnixMs {
        use catchment_model::Clock;
        catchment_model::SystemClock::new().wall().ms()
    }

    fn since_boot(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Empty where the system does not say; the calendar then shows that there was a boot.
    fn boot(&self) -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }
}

/// So far apart may the two clocks drift.
const STEP_MS: i64 = 2_000;

struct Anchor {
    boot: String,
    wall_ms: i64,
    since_boot_ms: i64,
}

/// Now, without changing anything: for those who only read.
pub(super) fn read_now(conn: &Connection, host: &dyn HostClock) -> Result<UnixMs, StoreError> {
    let anchor = anchor(conn)?.filter(|anchor| anchor.boot == host.boot());
    let now = anchor.map(|anchor| now_by(&anchor, host));
    Ok(from_ms(now.unwrap_or_else(|| host.wall().get())))
}

/// Now; within a transaction that may write. `boot` is the host's, asked for once.
pub(super) fn now(conn: &Connection, host: &dyn HostClock, boot: &str) -> Result<UnixMs, StoreError> {
    let wall_ms = host.wall().get();
    match anchor(conn)? {
        Some(anchor) if anchor.boot == boot => {
            let now = now_by(&anchor, host);
            let step = wall_ms - now;
            if step.abs() <= STEP_MS {
                return Ok(from_ms(now));
            }
            tracing::warn!(step_ms = step, "calendar was set; leases and budgets move along");
            drop_anchor(conn, host, boot, wall_ms)?;
            move_along(conn, step)?;
        }
        other => {
            drop_anchor(conn, host, boot, wall_ms)?;
            if other.is_some() {
                let over = "UPDATE jobs SET lock_until = ?1, due_at = CASE WHEN due_at IS NULL THEN NULL ELSE ?1 END \
                            WHERE state = 'running'";
                conn.execute(over, params![wall_ms])?;
            }
        }
    }
    Ok(from_ms(wall_ms))
}

fn now_by(anchor: &Anchor, host: &dyn HostClock) -> i64 {
    anchor.wall_ms + since_boot_ms(host) - anchor.since_boot_ms
}

fn since_boot_ms(host: &dyn HostClock) -> i64 {
    i64::try_from(host.since_boot().as_millis()).unwrap_or(i64::MAX / 2)
}

fn anchor(conn: &Connection) -> Result<Option<Anchor>, StoreError> {
    let mut find = conn.prepare_cached("SELECT boot, wall_ms, since_boot_ms FROM clock WHERE one = 1")?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Anchor { boot: row.get(0)?, wall_ms: row.get(1)?, since_boot_ms: row.get(2)? })
    };
    Ok(find.query_row([], read).optional()?)
}

fn drop_anchor(conn: &Connection, host: &dyn HostClock, boot: &str, wall_ms: i64) -> Result<(), StoreError> {
    let set = "INSERT INTO clock (one, boot, wall_ms, since_boot_ms) VALUES (1, ?1, ?2, ?3) \
               ON CONFLICT (one) DO UPDATE SET boot = ?1, wall_ms = ?2, since_boot_ms = ?3";
    conn.execute(set, params![boot, wall_ms, since_boot_ms(host)])?;
    Ok(())
}

fn move_along(conn: &Connection, step: i64) -> Result<(), StoreError> {
    let leases = "UPDATE jobs SET lock_until = lock_until + ?1, due_at = due_at + ?1 WHERE state = 'running'";
    conn.execute(leases, [step])?;
    let windows = "UPDATE connectors SET rate_limit_window_start = max(0, rate_limit_window_start + ?1), \
                   rate_limit_reset_at = max(0, rate_limit_reset_at + ?1)";
    conn.execute(windows, [step])?;
    let mut all = conn.prepare("SELECT rowid, log FROM windows")?;
    let logs: Vec<(i64, String)> =
        all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (rowid, text) in logs {
        let mut log: WindowLog = super::tokens::read_log(&text)?;
        log.shift(step);
        conn.execute(
            "UPDATE windows SET log = ?2 WHERE rowid = ?1",
            params![rowid, super::tokens::log_text(&log)],
        )?;
    }
    Ok(())
}
