//! `[backfill.events]`: where the events of a backfill go, and its table of jobs.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Where the events backfill keeps things: folders, or addresses of object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "lake"), allow(dead_code))]
pub(crate) struct EventsConfig {
    pub(crate) table: String,
    pub(crate) bronze: String,
}

/// `[backfill]` as the user writes it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BackfillToml {
    events: EventsToml,
}

/// `[backfill.events]` as the user writes it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EventsToml {
    table: Option<String>,
    bronze: Option<String>,
}

impl BackfillToml {
    pub(super) fn check(self, data_dir: &Path) -> Result<EventsConfig, ConfigError> {
        let place = |name: &str, given: Option<String>, usual: &str| match given {
            None => Ok(data_dir.join(usual).display().to_string()),
            Some(place) if place.is_empty() => {
                let key = format!("backfill.events.{name}");
                Err(ConfigError::at(key, "is empty; expected a folder, abfss://…, az://… or s3://…"))
            }
            // A signature is a secret, and this file is none's place.
            Some(place) if place.contains("://") && place.contains('?') => {
                let key = format!("backfill.events.{name}");
                Err(ConfigError::at(key, "has a query; secrets come from the environment"))
            }
            Some(place) => Ok(place),
        };
        Ok(EventsConfig {
            table: place("table", self.events.table, "_meta/backfill_jobs_events")?,
            bronze: place("bronze", self.events.bronze, "bronze/polymarket/events")?,
        })
    }
}
