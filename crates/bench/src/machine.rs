//! Stopwatches, and what the machine says of this process.

use std::time::Duration;

use anyhow::Context;
use catchment_model::{Clock, Monotonic, SystemClock};
#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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

/// Two processors: one for what is measured, the other for whoever serves it. Neither pushes the other's memory out of the
/// caches then, and a figure is one of a single processor.
pub(crate) struct Processors(#[cfg(target_os = "linux")] Option<[CpuSet; 2]>);

#[cfg(target_os = "linux")]
impl Processors {
    /// Takes the first two this process may use. This thread and those it starts are put on the second; with only one, they
    /// stay where they are.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut those = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| {
            let mut set = CpuSet::new();
            set.set(cpu);
            set
        });
        let (Some(measured), Some(serving)) = (those.next(), those.next()) else { return Ok(Self(None)) };
        sched_setaffinity(None, &serving)?;
        Ok(Self(Some([measured, serving])))
    }

    /// Does something on the first: this thread, and whatever it starts meanwhile.
    pub(crate) fn measured<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Some([measured, serving]) = &self.0 else { return work() };
        sched_setaffinity(None, measured)?;
        let done = work();
        sched_setaffinity(None, serving)?;
        done
    }
}

#[cfg(not(target_os = "linux"))]
impl Processors {
    pub(crate) fn take() -> anyhow::Result<Self> {
        Ok(Self())
    }

    pub(crate) fn measured<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        work()
    }
}

/// Memory of this process that is in RAM, in MiB.
pub(crate) fn resident_mib() -> anyhow::Result<f64> {
    memory_mib("self", "VmRSS")
}

/// The most memory that a process has had in RAM, in MiB.
pub(crate) fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    memory_mib(&pid.to_string(), "VmHWM")
}

/// Seconds that a process has worked, all its threads together, in steps of some 10 ms.
pub(crate) fn process_seconds(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let ticks = ticks_worked(&std::fs::read_to_string(&path)?).with_context(|| format!("{path} is odd"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn memory_mib(process: &str, field: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/status");
    let kib =
        kib_of(&std::fs::read_to_string(&path)?, field).with_context(|| format!("{path} has no {field}"))?;
    Ok(kib / 1024.0)
}

/// A line such as `VmRSS:      5120 kB`.
fn kib_of(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// `utime` and `stime`, the 14th and 15th field. The second is the program's name in brackets, and may hold anything.
fn ticks_worked(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_whatever_the_program_is_called() {
        let check = |stat: &str, want: Option<u64>| assert_eq!(ticks_worked(stat), want, "{stat}");
        let rest = "S 1 7 7 0 -1 4194560 900 0 3 0 120 34 5 6 20 0 4 0 81 1000 200";
        check(&format!("7 (catchment) {rest}"), Some(154));
        check(&format!("7 (a) b (c) {rest}"), Some(154));
        check("7 (catchment) S 1 7 7 0 -1 4194560 900 0 3 0 120", None);
        check("", None);
    }

    #[test]
    fn memory_is_that_of_the_whole_name() {
        let status = "VmHWM:\t  5120 kB\nVmRSS:\t  1024 kB\nThreads:\t4\n";
        let check = |field: &str, want: Option<f64>| assert_eq!(kib_of(status, field), want, "{field}");
        check("VmRSS", Some(1024.0));
        check("VmHWM", Some(5120.0));
        check("VmH", None);
        check("Threads", None);
    }

    #[test]
    fn the_machine_says_so_of_this_process() {
        let pid = std::process::id();
        assert!(peak_mib(pid).unwrap() > 0.0 && resident_mib().unwrap() > 0.0);
        assert!(process_seconds(pid).unwrap() >= 0.0);
    }
}
