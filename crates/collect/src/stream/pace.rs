//! How fast we may speak on a connection: at most so many frames in every interval of the window's length.

use std::collections::VecDeque;
use std::time::Duration;

use catchment_model::Monotonic;

/// Keeps the venue's limit of frames from client to server on one connection.
#[derive(Debug)]
pub(crate) struct Pacer {
    count: usize,
    window: Duration,
    sent: VecDeque<Monotonic>,
}

impl Pacer {
    /// `count` frames in every `window`. One of them is kept back for what the protocol itself sends, a pong above all,
    /// if there are more than two.
    pub(crate) fn new(count: u32, window: Duration) -> Self {
        let count = count.max(1) as usize;
        let count = if count > 2 { count - 1 } else { count };
        Self { count, window, sent: VecDeque::new() }
    }

    /// When the next frame may leave: now, or later.
    pub(crate) fn next_at(&mut self, now: Monotonic) -> Monotonic {
        // A frame that left exactly a window ago still shares a closed interval with one that leaves now.
        while self.sent.front().is_some_and(|at| now.since(*at) > self.window) {
            self.sent.pop_front();
        }
        if self.sent.len() < self.count {
            return now;
        }
        let oldest = self.sent[self.sent.len() - self.count];
        Monotonic(oldest.0 + self.window + Duration::from_millis(1))
    }

    /// A frame has left.
    pub(crate) fn sent(&mut self, now: Monotonic) {
        self.sent.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn no_interval_holds_more_than_the_limit() {
        let mut pacer = Pacer::new(5, Duration::from_secs(1));
        let (mut now, mut left) = (at(0), Vec::new());
        while left.len() < 40 {
            let next = pacer.next_at(now);
            if next <= now {
                pacer.sent(now);
                left.push(now);
            } else {
                now = next;
            }
        }
        for (place, start) in left.iter().enumerate() {
            let within = left[place..].iter().take_while(|at| at.since(*start) <= Duration::from_secs(1));
            assert!(within.count() <= 4, "one is kept back for a pong");
        }
        assert!(left[39].0 < Duration::from_secs(10), "and no slower than needed");
    }

    #[test]
    fn a_limit_of_one_is_one() {
        let mut one = Pacer::new(1, Duration::from_secs(1));
        assert_eq!(one.next_at(at(0)), at(0));
        one.sent(at(0));
        assert_eq!(one.next_at(at(10)), at(1_001));
    }
}
