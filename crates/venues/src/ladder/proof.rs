//! Polymarket's proof of a book: its hash, which needs more than levels.
//!
//! The hash covers the market, the time, the least order, the tick, a flag and the last price of the market. A stream
//! says some of that in its first message and the rest never; REST says all. So what is not known is tried: a hash
//! that agrees proves what was tried with it. It comes with every change, but is that of the whole step, which may be
//! spread over several messages: it is met by the last of them, and only when the next step begins is it known that it
//! was not. A trade changes the last price, and when the hash begins to have the new one is not promised: so it is tried
//! as well, as the stream told it or as one of the prices that changed lately.

use std::collections::VecDeque;

use catchment_model::Decimal;

use super::Checked;
use super::half::Half;
use super::plan::{Kind, Member};
use super::scan::Scan;
use super::span;
use super::verdict::Why;
use crate::polymarket::{BookHash, hash_around};

/// The least orders that are tried.
const MIN_ORDER_SIZES: [&str; 4] = ["5", "15", "1", "10"];
/// Prices of the last changes that are tried as the last price.
const PRICES_MAX: usize = 32;
/// The longest text of a term.
const TERM_MAX: usize = 100;

/// What is known of what goes into the hash besides the levels.
#[derive(Debug, Default)]
pub(super) struct Proof {
    terms: Known,
    /// Whether a hash agreed since the terms were last in doubt. Before that, one that differs says nothing.
    proven: bool,
    batch: Option<Batch>,
    /// The last price as the stream told it, until a hash has it.
    told: Option<String>,
    /// Prices that changed lately, each once.
    prices: VecDeque<String>,
}

#[derive(Debug, Default, Clone)]
struct Known {
    market: Option<String>,
    timestamp: String,
    min_order_size: Option<String>,
    tick_size: Option<String>,
    neg_risk: Option<bool>,
    last_trade_price: Option<String>,
}

/// A step whose hash is still to be met.
#[derive(Debug)]
struct Batch {
    hash: BookHash,
    timestamp: String,
}

impl Proof {
    pub(super) fn market(&self) -> Option<&str> {
        self.terms.market.as_deref()
    }

    pub(super) fn min_order_size(&self) -> Option<&str> {
        self.terms.min_order_size.as_deref()
    }

    pub(super) fn tick_size(&self) -> Option<&str> {
        self.terms.tick_size.as_deref()
    }

    pub(super) fn neg_risk(&self) -> Option<bool> {
        self.terms.neg_risk
    }

    pub(super) fn last_trade_price(&self) -> Option<&str> {
        self.terms.last_trade_price.as_deref()
    }

    /// Forgets the step that was not proved yet.
    pub(super) fn forget_batch(&mut self) {
        self.batch = None;
    }

    /// The terms changed (tick size): a step before is over.
    pub(super) fn new_terms(&mut self) {
        self.batch = None;
    }

    /// Notes what a message says about the terms.
    pub(super) fn note(&mut self, kind: &Kind, scan: &Scan, at: usize, message: &[u8]) {
        let text = |member: Option<Member>| text(member, scan, at, message);
        let terms = &mut self.terms;
        // A message that is only about the terms names the market, not the instrument.
        if kind.act == super::Act::Terms
            && kind.market.is_some()
            && text(kind.market) != terms.market.as_deref()
        {
            return;
        }
        for (place, member) in [
            (&mut terms.market, kind.market),
            (&mut terms.min_order_size, kind.min_order_size),
            (&mut terms.tick_size, kind.tick_size),
        ] {
            if let Some(text) = text(member) {
                *place = Some(text.to_owned());
            }
        }
        if let Some(flag) = text(kind.neg_risk) {
            terms.neg_risk = Some(flag == "true");
        }
        if let Some(time) = text(kind.timestamp) {
            terms.timestamp = time.to_owned();
        }
        if let Some(price) = text(kind.last_trade_price) {
            match kind.act {
                super::Act::Terms => self.told = Some(padded(price)),
                _ => terms.last_trade_price = Some(price.to_owned()),
            }
        }
    }

    /// The hash a message carries.
    pub(super) fn sent(
        &self,
        kind: &Kind,
        scan: &Scan,
        at: usize,
        message: &[u8],
    ) -> Result<Option<BookHash>, Why> {
        let Some(text) = text(kind.checksum, scan, at, message).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        BookHash::parse(text).map(Some).ok_or(Why::BadChecksum)
    }

    /// A whole book came with its hash; `self_contained` if it says its tick and its last price itself.
    pub(super) fn snapshot(
        &mut self,
        hash: BookHash,
        self_contained: bool,
        asset: &[u8],
        bids: &Half,
        asks: &Half,
        text: &mut Vec<u8>,
    ) -> Checked {
        self.batch = None;
        if !self.put_book(asset, bids, asks, text) {
            return Checked::None;
        }
        if self.find(hash, text, true) {
            self.proven = true;
            return Checked::Agrees;
        }
        let differs = self.proven;
        // It said everything itself and still does not agree: the rule is another now, and no later hash says a thing.
        self.proven &= !self_contained;
        if differs { Checked::Differs } else { Checked::None }
    }

    /// A change came with the hash of its step.
    pub(super) fn expect(&mut self, hash: BookHash, kind: &Kind, scan: &Scan, at: usize, message: &[u8]) {
        let timestamp = text(kind.timestamp, scan, at, message).unwrap_or_default();
        if !self.proven {
            return;
        }
        if self.is_another_batch(kind, scan, at, message) || self.batch.is_none() {
            self.batch = Some(Batch { hash, timestamp: timestamp.to_owned() });
        }
        let price = kind.single.as_ref().and_then(|single| text(Some(single.price), scan, at, message));
        if let Some(price) = price
            && !self.prices.iter().any(|known| known == price)
        {
            self.prices.truncate(PRICES_MAX - 1);
            self.prices.push_front(price.to_owned());
        }
    }

    /// Whether a change is of another step than the one that is still to be proved.
    pub(super) fn is_another_batch(&self, kind: &Kind, scan: &Scan, at: usize, message: &[u8]) -> bool {
        let Some(batch) = &self.batch else { return false };
        let text = |member| text(member, scan, at, message).unwrap_or_default();
        text(kind.checksum) != batch.hash.as_str() || text(kind.timestamp) != batch.timestamp
    }

    /// After a message of a step: is its hash met? Nothing: there is none to be met.
    pub(super) fn batch(
        &mut self,
        asset: &[u8],
        bids: &Half,
        asks: &Half,
        text: &mut Vec<u8>,
    ) -> Option<Checked> {
        let batch = self.batch.as_ref()?;
        self.terms.timestamp.clone_from(&batch.timestamp);
        let hash = batch.hash;
        if self.put_book(asset, bids, asks, text) && self.find(hash, text, false) {
            self.batch = None;
            return Some(Checked::Agrees);
        }
        Some(Checked::Pending)
    }

    /// The step is over. If its hash is not met: what it should be, and what it is.
    pub(super) fn settle(
        &mut self,
        asset: &[u8],
        bids: &Half,
        asks: &Half,
        text: &mut Vec<u8>,
    ) -> Option<(BookHash, BookHash)> {
        let batch = self.batch.take()?;
        self.terms.timestamp.clone_from(&batch.timestamp);
        if !self.put_book(asset, bids, asks, text) || self.find(batch.hash, text, true) {
            return None;
        }
        let tail = tail(
            self.terms.min_order_size.as_deref().unwrap_or_default(),
            self.terms.tick_size.as_deref().unwrap_or_default(),
            self.terms.neg_risk.unwrap_or_default(),
            self.terms.last_trade_price.as_deref().unwrap_or_default(),
        );
        Some((batch.hash, hash_around(text, tail.as_bytes())))
    }

    /// Looks for terms with which the hash agrees, and keeps them. `all`: also among the prices that changed lately.
    fn find(&mut self, hash: BookHash, head: &[u8], all: bool) -> bool {
        let Some(tick) = &self.terms.tick_size else { return false };
        let sizes = match &self.terms.min_order_size {
            Some(size) => vec![size.as_str()],
            None => MIN_ORDER_SIZES.to_vec(),
        };
        let flags = self.terms.neg_risk.map_or_else(|| vec![false, true], |flag| vec![flag]);
        let agrees = |last: &str| {
            let pairs = sizes.iter().flat_map(|size| flags.iter().map(move |flag| (*size, *flag)));
            let mut pairs = pairs.map(|(size, flag)| (size, flag, tail(size, tick, flag, last)));
            let found = pairs.find(|(_, _, tail)| hash_around(head, tail.as_bytes()) == hash);
            found.map(|(size, flag, _)| (size.to_owned(), flag))
        };
        let known = self.terms.last_trade_price.clone().unwrap_or_default();
        let lately = self.prices.iter().take(if all { PRICES_MAX } else { 0 }).flat_map(|price| {
            let mirrored = price.parse::<Decimal>().ok().and_then(|price| price.one_minus());
            [Some(padded(price)), mirrored.map(|price| padded(price.as_str()))].into_iter().flatten()
        });
        let mut lasts = std::iter::once(known).chain(self.told.clone()).chain(lately);
        let Some((last, (size, flag))) = lasts.find_map(|last| agrees(&last).map(|found| (last, found)))
        else {
            return false;
        };
        if self.told.as_ref() == Some(&last) {
            self.told = None;
        }
        self.terms.min_order_size = Some(size);
        self.terms.neg_risk = Some(flag);
        self.terms.last_trade_price = Some(last);
        true
    }

    /// The book up to its asks, as the hash wants it. False: something is not known.
    fn put_book(&self, asset: &[u8], bids: &Half, asks: &Half, text: &mut Vec<u8>) -> bool {
        let Some(market) = &self.terms.market else { return false };
        text.clear();
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| text.extend_from_slice(part));
        put(&[b"{\"market\":\"", market.as_bytes(), b"\",\"asset_id\":\"", asset]);
        put(&[b"\",\"timestamp\":\"", self.terms.timestamp.as_bytes(), b"\",\"hash\":\"\""]);
        for (opening, half) in [(",\"bids\":[", bids), ("],\"asks\":[", asks)] {
            put(&[opening.as_bytes()]);
            for (at, level) in half.best_last().enumerate() {
                let comma: &[u8] = if at == 0 { b"" } else { b"," };
                put(&[comma, b"{\"price\":\"", level.price(), b"\",\"size\":\"", level.size(), b"\"}"]);
            }
        }
        true
    }
}

fn tail(min_order_size: &str, tick_size: &str, neg_risk: bool, last_trade_price: &str) -> String {
    format!(
        "],\"min_order_size\":\"{min_order_size}\",\"tick_size\":\"{tick_size}\",\"neg_risk\":{neg_risk},\
         \"last_trade_price\":\"{last_trade_price}\"}}"
    )
}

/// A price as the venue spells a last price: at least three digits behind the point.
fn padded(price: &str) -> String {
    let (whole, decimals) = price.split_once('.').unwrap_or((price, ""));
    format!("{whole}.{decimals:0<3}")
}

/// A member as text, unless it is too long or not plain.
fn text<'m>(member: Option<Member>, scan: &Scan, at: usize, message: &'m [u8]) -> Option<&'m str> {
    let span = span(member?, scan, at);
    let plain = span.there && !span.escaped;
    let text = plain.then(|| span.of(message)).filter(|text| text.len() <= TERM_MAX)?;
    std::str::from_utf8(text).ok()
}
