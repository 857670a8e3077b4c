//! Times that S2's documents carry as text: `2026-01-17T10:30:00.000Z`. Whoever compares uses milliseconds; these are to
//! be read.

use catchment_model::UnixMs;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(at: &UnixMs, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixMs, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
    UnixMs::new(at.as_millisecond()).map_err(serde::de::Error::custom)
}

/// The same where there may be none.
pub(crate) mod maybe {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(at: &Option<UnixMs>, serializer: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => serializer.collect_str(at),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<UnixMs>, D::Error> {
        #[derive(Deserialize)]
        struct Text(#[serde(with = "super")] UnixMs);
        Ok(Option::<Text>::deserialize(deserializer)?.map(|text| text.0))
    }
}
