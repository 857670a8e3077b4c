//! What can be polled, and the file that says so: `state/active_instruments.snapshot.json`.
//!
//! ```text
//! {"version":1,"venue":"polymarket","written_at_ms":1798761600000,"instruments":[
//!   {"venue":"polymarket","poll_key":"7132…","symbol":"7132…","market_id":"0x1f…","slug":"rain-in-june","outcome":"Yes",
//!    "expiry_ms":1801440000000,"tick_size":"0.01","min_order_size":"5"}]}
//! ```
//!
//! Discovery writes it, pollers read it, and neither needs to be of the same build: keys that a reader does not know
//! are ignored, an instrument it cannot read is left out and counted.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Decimal, UnixMs, Venue};

/// Something that has a book of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instrument {
    /// Where it is traded.
    pub venue: Venue,
    /// What the venue's requests name it by: a token id, a slug, a ticker. A poller hands it on and never looks inside.
    pub poll_key: String,
    /// What its records are filed under.
    pub symbol: String,
    /// The market it belongs to, as the venue names it.
    pub market_id: String,
    /// The market's readable name in addresses, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// Which outcome of the market this is: `Yes`, `No`, a team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// When the market is planned to end. Markets go on past it, and end before it.
    #[serde(default, rename = "expiry_ms", skip_serializing_if = "Option::is_none")]
    pub expiry: Option<UnixMs>,
    /// The step of prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_size: Option<Decimal>,
    /// The least size of an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_order_size: Option<Decimal>,
}

/// The active instruments of a venue, as discovery last saw them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    version: u32,
    /// Whose instruments they are.
    pub venue: Venue,
    /// When the snapshot was written.
    #[serde(rename = "written_at_ms")]
    pub written_at: UnixMs,
    /// The instruments.
    pub instruments: Vec<Instrument>,
    /// Instruments of the file that could not be read, each with the reason. Not written.
    #[serde(skip)]
    pub unreadable: Vec<String>,
}

/// Why a file is not a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not the JSON of a snapshot; perhaps cut off.
    #[error("the snapshot of instruments cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by a build that came later.
    #[error("the snapshot of instruments has version {0}; this build reads up to {max}", max = Snapshot::VERSION)]
    Version(u32),
    /// Somebody else's.
    #[error("the snapshot of instruments is of {found}, not of {expected}")]
    Venue {
        /// As the file says.
        found: Venue,
        /// As it was asked for.
        expected: Venue,
    },
}

#[derive(Deserialize)]
struct Wire<'a> {
    version: u32,
    venue: Venue,
    written_at_ms: UnixMs,
    #[serde(borrow)]
    instruments: Vec<&'a RawValue>,
}

impl Snapshot {
    /// The version written, and the newest read.
    pub const VERSION: u32 = 1;

    /// A snapshot to be written.
    pub fn new(venue: Venue, written_at: UnixMs, instruments: Vec<Instrument>) -> Self {
        Self { version: Self::VERSION, venue, written_at, instruments, unreadable: Vec::new() }
    }

    /// The file's bytes: one instrument a line, so that a difference of two files is readable.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_string(&Self { instruments: Vec::new(), ..self.clone() })
            .expect("names and numbers always serialise");
        text.truncate(text.len() - "]}".len());
        for (at, instrument) in self.instruments.iter().enumerate() {
            text.push_str(if at == 0 { "\n" } else { ",\n" });
            text.push_str(&serde_json::to_string(instrument).expect("texts always serialise"));
        }
        text.push_str("\n]}\n");
        text.into_bytes()
    }

    /// Reads a venue's file. What is unreadable within it costs that instrument only.
    pub fn read(expected: Venue, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let version = version_of(bytes)?;
        if version > Self::VERSION {
            return Err(SnapshotError::Version(version));
        }
        let wire: Wire<'_> = serde_json::from_slice(bytes)?;
        if wire.venue != expected {
            return Err(SnapshotError::Venue { found: wire.venue, expected });
        }
        let mut snapshot = Self::new(wire.venue, wire.written_at_ms, Vec::new());
        snapshot.version = wire.version;
        for raw in wire.instruments {
            match serde_json::from_str(raw.get()) {
                Ok(instrument) => snapshot.instruments.push(instrument),
                Err(error) => snapshot.unreadable.push(error.to_string()),
            }
        }
        Ok(snapshot)
    }
}

/// A later version may have other keys; its number is read first, so that the error names the version and not a key.
fn version_of(bytes: &[u8]) -> Result<u32, serde_json::Error> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    Ok(serde_json::from_slice::<Version>(bytes)?.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn venue(name: &str) -> Venue {
        Venue::new(name).unwrap()
    }

    fn snapshot() -> Snapshot {
        let instrument = |key: &str| Instrument {
            venue: venue("polymarket"),
            poll_key: key.to_owned(),
            symbol: key.to_owned(),
            market_id: "0x1f".to_owned(),
            slug: Some("rain \"or\" shine".to_owned()),
            outcome: None,
            expiry: UnixMs::new(1_801_440_000_000).ok(),
            tick_size: "0.010".parse().ok(),
            min_order_size: None,
        };
        let at = UnixMs::new(1_798_761_600_000).unwrap();
        Snapshot::new(venue("polymarket"), at, vec![instrument("71"), instrument("72")])
    }

    fn text(snapshot: &Snapshot) -> String {
        String::from_utf8(snapshot.to_json()).unwrap()
    }

    #[test]
    fn a_snapshot_written_and_read_is_the_same_snapshot() {
        let written = snapshot();
        let read = Snapshot::read(venue("polymarket"), &written.to_json()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.instruments[0].tick_size.as_ref().unwrap().as_str(), "0.010");
        assert_eq!(text(&written).lines().count(), 4, "one instrument a line");
        let empty = Snapshot { instruments: Vec::new(), ..written };
        assert_eq!(Snapshot::read(venue("polymarket"), &empty.to_json()).unwrap(), empty);
    }

    #[test]
    fn what_cannot_be_read_costs_one_instrument_and_unknown_keys_cost_nothing() {
        let odd = text(&snapshot())
            .replacen("\"poll_key\":\"71\"", "\"poll_key\":71", 1)
            .replace("\"version\":1", "\"version\":1,\"note\":[1]");
        let read = Snapshot::read(venue("polymarket"), odd.as_bytes()).unwrap();
        assert_eq!((read.instruments.len(), read.unreadable.len()), (1, 1));
        assert!(read.unreadable[0].contains("invalid type: integer `71`"), "{:?}", read.unreadable);
    }

    #[test]
    fn what_is_not_a_snapshot_is_refused_with_the_reason() {
        let check = |bytes: &str, reason: &str| {
            let error = Snapshot::read(venue("polymarket"), bytes.as_bytes()).expect_err(bytes).to_string();
            assert!(error.contains(reason), "{bytes} gave {error:?}, expected {reason:?}");
        };
        let good = text(&snapshot());
        check("", "EOF while parsing");
        check(&good[..good.len() / 2], "EOF while parsing");
        check("{\"version\":2,\"other\":true}", "has version 2; this build reads up to 1");
        check("{\"version\":1,\"venue\":\"polymarket\",\"written_at_ms\":1}", "missing field `instruments`");
        check(&good.replacen("polymarket", "kalshi", 1), "is of kalshi, not of polymarket");
    }
}
