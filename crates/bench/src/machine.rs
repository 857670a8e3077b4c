//! Stopwatches, and what the machine says of this process.

use std::time::Duration;

use catchment_model::{Clock, Monotonic, SystemClock};

/// Wall time: for whatever waits for a disk.
pub(crate) struct Stopwatch(SystemClock, Monotonic);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let clock = SystemClock::new();
        let now = clock.monotonic();
        Self(clock, now)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.monotonic().since(self.1).as_secs_f64()
    }
}

/// Time this thread has worked: for whatever only calculates. A neighbour's load does not count.
pub(crate) fn thread_seconds(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64()
    };
    let before = now();
    work();
    now() - before
}

/// Memory of this process that is in RAM, in MiB.
pub(crate) fn resident_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.trim().parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| anyhow::anyhow!("/proc/self/status has no VmRSS"))
}
