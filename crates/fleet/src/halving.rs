//! Which token of a batch is the one a venue cannot stand: found by halving.
//!
//! A batch that the venue calls wrong is asked for again in two halves, the wrong half in two again, and so on. One
//! wrong token among `n` costs about `2·log₂ n` requests. The token that is left rests: a minute, then twice as long each
//! time, up to an hour. Pure.

use std::time::Duration;

const REST_FIRST: Duration = Duration::from_secs(60);
const REST_MAX: Duration = Duration::from_secs(3_600);

/// What follows from a refused batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<T> {
    /// Ask for these two instead.
    Halves(Vec<T>, Vec<T>),
    /// It is this one.
    Found(T),
    /// There was nothing in it.
    Nothing,
}

/// What follows when the venue calls this batch wrong.
pub fn refused<T>(mut batch: Vec<T>) -> Next<T> {
    match batch.len() {
        0 => Next::Nothing,
        1 => Next::Found(batch.remove(0)),
        len => {
            let second = batch.split_off(len / 2);
            Next::Halves(batch, second)
        }
    }
}

/// How long a token rests that was found so many times in a row.
pub fn rest(times: u32) -> Duration {
    REST_FIRST.saturating_mul(1 << times.saturating_sub(1).min(10)).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Asks until nothing is left; gives what was found and how often it asked.
    fn hunt(len: u32, poison: &[u32]) -> (Vec<u32>, usize) {
        let mut queue = VecDeque::from([(0..len).collect::<Vec<u32>>()]);
        let (mut found, mut asked) = (Vec::new(), 0);
        while let Some(batch) = queue.pop_front() {
            asked += 1;
            if !batch.iter().any(|token| poison.contains(token)) {
                continue;
            }
            match refused(batch) {
                Next::Halves(first, second) => queue.extend([first, second]),
                Next::Found(token) => found.push(token),
                Next::Nothing => unreachable!("an empty batch has nothing wrong in it"),
            }
        }
        found.sort_unstable();
        (found, asked)
    }

    #[test]
    fn the_wrong_token_is_found_wherever_it_is() {
        for at in 0..100 {
            let (found, asked) = hunt(100, &[at]);
            assert_eq!(found, [at]);
            assert!(asked <= 15, "{asked} requests for the one at {at}");
        }
        assert_eq!(hunt(500, &[3, 250, 499]).0, [3, 250, 499]);
        assert!(hunt(500, &[77]).1 <= 19);
        assert_eq!(hunt(1, &[0]), (vec![0], 1));
        assert_eq!(refused::<u32>(Vec::new()), Next::Nothing);
    }

    #[test]
    fn it_rests_longer_each_time_up_to_an_hour() {
        let minutes: Vec<u64> = [1, 2, 3, 7, 100].map(|times| rest(times).as_secs() / 60).to_vec();
        assert_eq!(minutes, [1, 2, 4, 60, 60]);
    }
}
