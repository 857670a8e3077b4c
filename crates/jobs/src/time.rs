//! Sums of store times and lengths that cannot overflow.

use std::time::Duration;

use catchment_model::UnixMs;

/// The last moment a store can name.
const LAST: i64 = 253_402_300_799_999;

/// That long after; at the end of time there is no later.
pub(crate) fn after(at: UnixMs, length: Duration) -> UnixMs {
    let ms = i64::try_from(length.as_millis()).unwrap_or(LAST);
    from_ms(at.get().saturating_add(ms))
}

/// From `earlier` to `later`, nothing if they stand the other way round.
pub(crate) fn between(earlier: UnixMs, later: UnixMs) -> Duration {
    Duration::from_millis(u64::try_from(later.get() - earlier.get()).unwrap_or(0))
}

/// The nearest time there is.
pub(crate) fn from_ms(ms: i64) -> UnixMs {
    UnixMs::new(ms.clamp(0, LAST)).expect("it is in the range")
}

/// Whole milliseconds, at least one unless it is nothing at all: a lease must not become none by rounding.
pub(crate) fn whole_ms(length: Duration) -> i64 {
    i64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(LAST)
}
