//! `[persistence] mongo_…`: S1's keys, S1's meanings. `[[sinks]] kind = "mongo"` uses them.
//!
//! The connection string may hold a password. It is shown nowhere: not by `Debug`, not in an error, not even where the
//! file itself cannot be read. It can also be kept out of the file, in `mongo_uri_file` or in the environment.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What the environment may hold instead of the file.
const VARIABLE: &str = "CATCHMENT_MONGO_URI";

/// The keys as the user writes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MongoToml {
    mongo_uri: Hidden,
    mongo_uri_file: Option<PathBuf>,
    mongo_database: String,
    mongo_collection: String,
    pub(super) mongo_max_retries: u32,
    pub(super) mongo_retry_base_ms: u64,
    pub(super) mongo_consecutive_failures_for_degraded: u32,
}

impl Default for MongoToml {
    fn default() -> Self {
        Self {
            mongo_uri: Hidden("mongodb://localhost:27017".to_owned()),
            mongo_uri_file: None,
            mongo_database: "market_data".to_owned(),
            mongo_collection: "crypto_envelopes".to_owned(),
            mongo_max_retries: 3,
            mongo_retry_base_ms: 100,
            mongo_consecutive_failures_for_degraded: 3,
        }
    }
}

/// Text that is not shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Hidden(pub(super) String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where the collection is.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "mongo"), allow(dead_code))]
pub(crate) struct MongoPlace {
    uri: Hidden,
    uri_file: Option<PathBuf>,
    database: String,
    collection: String,
}

impl MongoToml {
    /// Whether somebody has written where it is.
    pub(super) fn names_a_place(&self) -> bool {
        let usual = Self::default();
        self.mongo_uri.0 != usual.mongo_uri.0
            || self.mongo_uri_file.is_some()
            || self.mongo_database != usual.mongo_database
            || self.mongo_collection != usual.mongo_collection
    }

    /// The place these keys name. Whether anybody is there is not asked.
    pub(super) fn check(&self) -> Result<MongoPlace, ConfigError> {
        if !cfg!(feature = "mongo") {
            let problem = "is \"mongo\", but this build has no MongoDB; build it with the feature mongo";
            return Err(ConfigError::at("sinks.kind", problem));
        }
        #[cfg(feature = "mongo")]
        catchment_sinks::mongo::MongoUri::parse(&self.mongo_uri.0)
            .map_err(|error| ConfigError::at("persistence.mongo_uri", error.to_string()))?;
        let name = |key: &str, name: &str, odd: &[char], max: usize| {
            let bad =
                name.is_empty() || name.len() > max || name.contains(odd) || name.starts_with("system.");
            let problem = format!("is {name:?}, which MongoDB does not take as a name");
            if bad {
                Err(ConfigError::at(format!("persistence.{key}"), problem))
            } else {
                Ok(name.to_owned())
            }
        };
        let odd_in_database = ['/', '\\', '.', ' ', '"', '$', '*', '<', '>', ':', '|', '?', '\0'];
        Ok(MongoPlace {
            uri: self.mongo_uri.clone(),
            uri_file: self.mongo_uri_file.clone(),
            database: name("mongo_database", &self.mongo_database, &odd_in_database, 63)?,
            collection: name("mongo_collection", &self.mongo_collection, &['$', '\0'], 180)?,
        })
    }
}

#[cfg(feature = "mongo")]
impl MongoPlace {
    /// The sink's configuration: the connection string from the environment, else from its file, else as written.
    pub(crate) fn open(&self, name: &str) -> anyhow::Result<catchment_sinks::mongo::MongoConfig> {
        use anyhow::Context;
        use catchment_sinks::mongo::{MongoConfig, MongoUri};
        let uri = match (std::env::var(VARIABLE), &self.uri_file) {
            (Ok(uri), _) => MongoUri::parse(&uri).context(VARIABLE)?,
            (Err(_), Some(path)) => {
                let read = std::fs::read_to_string(path);
                let place = || format!("persistence.mongo_uri_file, {},", path.display());
                let uri = read.with_context(|| format!("cannot read {}", place().trim_end_matches(',')))?;
                MongoUri::parse(&uri).with_context(place)?
            }
            (Err(_), None) => MongoUri::parse(&self.uri.0).context("persistence.mongo_uri")?,
        };
        let (database, collection) = (self.database.clone(), self.collection.clone());
        Ok(MongoConfig { name: name.to_owned(), database, collection, ..MongoConfig::new(uri) })
    }
}

/// A text without the logins of connection strings in it: what complains about a line of the file quotes that line.
pub(super) fn hide_logins(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let Some((before, rest)) = line.split_once("://") else { return line.to_owned() };
        match rest.rsplit_once('@') {
            Some((_, after)) => format!("{before}://***@{after}"),
            // Cut short before the @: all of it may be a password.
            None if before.contains("mongo") || before.contains("redis") => format!("{before}://***"),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}
