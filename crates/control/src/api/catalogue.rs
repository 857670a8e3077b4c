//! Which exchanges there are and what can be asked of them. This room knows no venue; whoever starts it says.

use catchment_jobs::{JobType, RateLimit};
use catchment_model::{Timeframe, Venue};

use super::fields::shown;

/// An exchange that can have a connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Its name.
    pub id: Venue,
    /// What a new connector begins with.
    pub rate: RateLimit,
    /// Which jobs it can have.
    pub types: Vec<JobType>,
    /// Which candles it has.
    pub timeframes: Vec<Timeframe>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue(Vec<Exchange>);

/// The longest side of a symbol.
pub(crate) const SIDE_MAX: usize = 20;

impl Catalogue {
    /// Of these.
    pub fn new(exchanges: Vec<Exchange>) -> Self {
        Self(exchanges)
    }

    /// The exchange of that name, or what to say instead.
    pub(crate) fn find(&self, id: &str) -> Result<&Exchange, String> {
        self.0.iter().find(|exchange| exchange.id.as_str() == id).ok_or_else(|| {
            let known: Vec<&str> = self.0.iter().map(|exchange| exchange.id.as_str()).collect();
            format!("is {}, which is no exchange we know; there is {}", shown(id), known.join(", "))
        })
    }
}

impl Exchange {
    /// Whether it can have such a job.
    pub(crate) fn check_type(&self, kind: JobType) -> Result<(), String> {
        if self.types.contains(&kind) {
            return Ok(());
        }
        let known: Vec<&str> = self.types.iter().map(|kind| kind.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(format!("is {}, which {} cannot do; there is {known}", kind.as_str(), self.id))
    }

    /// Whether it has such candles.
    pub(crate) fn check_timeframe(&self, timeframe: Timeframe) -> Result<(), String> {
        if self.timeframes.contains(&timeframe) {
            return Ok(());
        }
        let known: Vec<&str> = self.timeframes.iter().map(|timeframe| timeframe.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(format!("is {timeframe}, which {} does not have; there is {known}", self.id))
    }
}

/// A symbol as every exchange writes it here: `BTC/USDT`.
pub(crate) fn check_symbol(text: &str) -> Result<String, String> {
    let is_side = |side: &str| {
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
        (1..=SIDE_MAX).contains(&side.len()) && side.bytes().all(plain)
    };
    match text.split_once('/') {
        Some((base, quote)) if is_side(base) && is_side(quote) => Ok(text.to_owned()),
        _ => Err(format!("is {}; expected BASE/QUOTE in capitals, such as BTC/USDT", shown(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_has_two_sides_in_capitals() {
        assert_eq!(check_symbol("BTC/USDT").as_deref(), Ok("BTC/USDT"));
        assert_eq!(check_symbol("1INCH/EUR").as_deref(), Ok("1INCH/EUR"));
        for bad in
            ["", "/", "BTC", "BTC/", "/USDT", "btc/usdt", "BTC/USDT/X", "BTC-USDT", "BTC/US DT", "BTC/\u{fc}"]
        {
            assert!(check_symbol(bad).is_err(), "{bad:?} was taken");
        }
    }
}
