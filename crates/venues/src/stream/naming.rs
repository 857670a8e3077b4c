//! How a venue spells its instruments, and how to get back from its spelling to ours.

use std::collections::BTreeMap;

use super::template::Template;

/// The places of a naming rule.
pub(super) const NAMES: [&str; 5] = ["base", "quote", "BASE", "QUOTE", "id"];

/// An instrument in every spelling that is needed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spelled {
    /// Ours: `BTC/USDT`, or the venue's own name where there is no such pair.
    pub symbol: String,
    /// As subscriptions name it.
    pub subscribe: String,
    /// As the venue's frames name it.
    pub frame: String,
    /// As requests name it.
    pub rest: String,
}

impl Spelled {
    /// What a channel about the venue as a whole is filed under.
    pub const WHOLE_VENUE: &'static str = "*";
}

/// Why an instrument cannot be spelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamingError {
    /// Not of the form the venue's names are made from.
    #[error("{symbol:?} is not an instrument of {venue}: {reason}")]
    Form {
        /// Whose.
        venue: String,
        /// As given.
        symbol: String,
        /// What it should look like.
        reason: String,
    },
    /// No such channel.
    #[error("{venue} has no channel {channel:?}; it has {known}")]
    Channel {
        /// Whose.
        venue: String,
        /// As given.
        channel: String,
        /// What there is.
        known: String,
    },
}

/// The rules of one venue.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    pub(super) subscribe: Template,
    pub(super) frame: Template,
    pub(super) rest: Template,
    /// Our name of a currency to the venue's.
    pub(super) rename: BTreeMap<String, String>,
}

impl Naming {
    const LONGEST: usize = 256;

    pub(super) fn spell(&self, symbol: &str) -> Result<Spelled, String> {
        if symbol.is_empty() || symbol.len() > Self::LONGEST || symbol.chars().any(char::is_control) {
            return Err(format!("it must have 1 to {} bytes and no control characters", Self::LONGEST));
        }
        if self.is_pair() && !symbol.contains('/') {
            return self.native(symbol);
        }
        let pair = self.is_pair().then(|| pair(symbol)).transpose()?;
        let (base, quote) = pair.unwrap_or_default();
        let native = |ours: &str| self.rename.get(ours).map_or(ours, String::as_str).to_owned();
        let (base, quote) = (native(base), native(quote));
        let values = [
            base.to_lowercase(),
            quote.to_lowercase(),
            base.to_uppercase(),
            quote.to_uppercase(),
            symbol.to_owned(),
        ];
        let spell = |rule: &Template| rule.with(&values.each_ref().map(String::as_str));
        Ok(Spelled {
            symbol: symbol.to_owned(),
            subscribe: spell(&self.subscribe),
            frame: spell(&self.frame),
            rest: spell(&self.rest),
        })
    }

    /// The venue's own name, for what is not a pair of two currencies: `BTC-USDT-SWAP`. It is filed under that name, and
    /// spelled in small letters where pairs are.
    fn native(&self, name: &str) -> Result<Spelled, String> {
        if name.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\\' | ':')) {
            return Err("expected BTC/USDT, or the venue's own name such as BTC-USDT-SWAP".to_owned());
        }
        let spell = |rule: &Template| if rule.has(0) { name.to_lowercase() } else { name.to_owned() };
        Ok(Spelled {
            symbol: name.to_owned(),
            subscribe: spell(&self.subscribe),
            frame: spell(&self.frame),
            rest: spell(&self.rest),
        })
    }

    /// Ours from the spelling of the venue's frames, where the rule can be read backwards.
    pub(super) fn unified(&self, native: &str) -> Option<String> {
        let pieces: Vec<_> = self.frame.pieces().collect();
        let ours = |theirs: &str| {
            let renamed = self.rename.iter().find(|(_, name)| **name == theirs).map(|(ours, _)| ours.clone());
            renamed.unwrap_or_else(|| theirs.to_owned()).to_uppercase()
        };
        match pieces.as_slice() {
            [Ok(4)] => Some(native.to_owned()),
            // Between the two names stands something that no name holds.
            [Ok(0 | 2), Err(between), Ok(1 | 3)] => {
                let (base, quote) = native.split_once(between)?;
                let sound = !base.is_empty() && !quote.is_empty() && !quote.contains(between);
                sound.then(|| format!("{}/{}", ours(base), ours(quote)))
            }
            _ => None,
        }
    }

    /// Whether its names are made from two currencies.
    pub(super) fn is_pair(&self) -> bool {
        (0..4).any(|place| self.subscribe.has(place) || self.frame.has(place) || self.rest.has(place))
    }
}

fn pair(symbol: &str) -> Result<(&str, &str), String> {
    let wrong = || "expected two names and a slash between them, such as BTC/USDT".to_owned();
    let (base, quote) = symbol.split_once('/').ok_or_else(wrong)?;
    let sound = |name: &str| !name.is_empty() && !name.contains(['/', ':', ' ', '-']);
    if sound(base) && sound(quote) { Ok((base, quote)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(subscribe: &str, frame: &str) -> Naming {
        let rule = |text| Template::compile(text, &NAMES).unwrap();
        let rename = BTreeMap::from([("CELO".to_owned(), "CGLD".to_owned())]);
        Naming { subscribe: rule(subscribe), frame: rule(frame), rest: rule(frame), rename }
    }

    #[test]
    fn names_go_there_and_back() {
        let check = |naming: &Naming, symbol: &str, subscribe: &str, frame: &str, back: Option<&str>| {
            let spelled = naming.spell(symbol).unwrap();
            assert_eq!((spelled.subscribe.as_str(), spelled.frame.as_str()), (subscribe, frame), "{symbol}");
            assert_eq!(naming.unified(frame).as_deref(), back, "{frame}");
        };
        let dashed = naming("{BASE}-{QUOTE}", "{BASE}-{QUOTE}");
        check(&dashed, "btc/USD", "BTC-USD", "BTC-USD", Some("BTC/USD"));
        check(&dashed, "CELO/USD", "CGLD-USD", "CGLD-USD", Some("CELO/USD"));
        check(&dashed, "BTC-USDT-SWAP", "BTC-USDT-SWAP", "BTC-USDT-SWAP", None);
        let joined = naming("{base}{quote}", "{BASE}{QUOTE}");
        check(&joined, "1INCHUP/USDT", "1inchupusdt", "1INCHUPUSDT", None);
        check(&joined, "BTCUSDT", "btcusdt", "BTCUSDT", None);
        check(&naming("{id}", "{id}"), "7132/1", "7132/1", "7132/1", Some("7132/1"));
    }

    #[test]
    fn what_is_no_instrument_is_refused() {
        for bad in ["", "BTC/", "/USD", "BTC/USD/EUR", "BTC/USD:USD", "B TC/USD", "BTC\n", "a b", "a\"b"] {
            assert!(naming("{BASE}-{QUOTE}", "{BASE}-{QUOTE}").spell(bad).is_err(), "{bad:?}");
        }
    }
}
