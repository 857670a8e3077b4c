//! Seeded chance. Every draw comes from a seed and the place it is made at (a market's number, a step, a request's
//! number), never from what happened before: so what one venue is asked does not change what another answers.

/// SplitMix64: small, quick, and the same on every machine and in every version.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice for the place named by `parts`.
    pub(crate) fn at(parts: &[u64]) -> Self {
        let mut dice = Self(0x9e37_79b9_7f4a_7c15);
        for part in parts {
            dice.0 = dice.next() ^ part;
        }
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `n`; 0 for `n` of 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True for the given share of throws.
    pub(crate) fn hit(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// A log-normal draw: half of them below `median`, the spread of their logarithm `sigma`.
    pub(crate) fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        median * (sigma * normal).exp()
    }

    /// `n` decimal digits, the first of them not 0.
    pub(crate) fn digits(&mut self, n: usize) -> String {
        let mut text = String::with_capacity(n);
        text.push(char::from(b'1' + self.below(9) as u8));
        text.extend((1..n).map(|_| char::from(b'0' + self.below(10) as u8)));
        text
    }

    /// `0x` and `n` hexadecimal digits.
    pub(crate) fn hex(&mut self, n: usize) -> String {
        let mut text = String::from("0x");
        text.extend((0..n).map(|_| char::from(b"0123456789abcdef"[self.below(16) as usize])));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_throws_the_same() {
        let draw = |parts: &[u64]| Dice::at(parts).next();
        assert_eq!(draw(&[7, 1, 2]), draw(&[7, 1, 2]));
        assert_ne!(draw(&[7, 1, 2]), draw(&[7, 2, 1]));
        assert_ne!(draw(&[7, 1]), draw(&[8, 1]));
    }

    #[test]
    fn shares_and_medians_come_out() {
        let mut dice = Dice::at(&[1]);
        let hits = (0..10_000).filter(|_| dice.hit(0.3)).count();
        assert!((2_850..3_150).contains(&hits), "{hits}");
        let below = (0..10_000).filter(|_| dice.log_normal(80.0, 0.5) < 80.0).count();
        assert!((4_850..5_150).contains(&below), "{below}");
        assert!(!dice.hit(0.0));
        assert!(dice.hit(1.0));
    }
}
