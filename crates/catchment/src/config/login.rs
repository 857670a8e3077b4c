//! `[venues.<id>.login]`: who we are to a venue whose private channels are recorded.
//!
//! ```toml
//! [venues.okx.login]
//! key = { env = "OKX_KEY" }
//! secret = { file = "/run/secrets/okx" }
//! passphrase = { env = "OKX_PASSPHRASE" }
//! ```
//!
//! The texts themselves are never in the configuration, which people copy, print and commit. One that is there all the same
//! is refused without being shown, whatever else is wrong with the file.

use std::fmt;
use std::path::PathBuf;

use catchment_venues::stream::Secrets;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ConfigError;

/// Nothing that a venue gives its users is longer.
const BYTES_MAX: usize = 16 << 10;

/// The keys as the user writes them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LoginToml {
    key: Option<Place>,
    secret: Option<Place>,
    passphrase: Option<Place>,
}

/// Where a text is.
#[derive(Clone)]
enum Place {
    Env(String),
    File(PathBuf),
    /// Anything else, perhaps the text itself. It is not kept.
    Unsaid,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Unsaid => f.write_str("***"),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Env(name) => map.serialize_entry("env", name)?,
            Self::File(path) => map.serialize_entry("file", path)?,
            Self::Unsaid => map.serialize_entry("env", "")?,
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Place {
    /// Takes whatever is there: an error here would quote it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let toml::Value::Table(table) = toml::Value::deserialize(deserializer)? else {
            return Ok(Self::Unsaid);
        };
        let text = |key: &str| table.get(key).and_then(toml::Value::as_str).filter(|_| table.len() == 1);
        Ok(match (text("env"), text("file")) {
            (Some(name), None) => Self::Env(name.to_owned()),
            (None, Some(path)) => Self::File(path.into()),
            _ => Self::Unsaid,
        })
    }
}

impl LoginToml {
    /// Fetches the texts from where they are.
    pub(super) fn read(&self, venue: &str) -> Result<Secrets, ConfigError> {
        let read = |name: &str, place: &Option<Place>| match place {
            None => Ok(String::new()),
            Some(place) => {
                let key = format!("venues.{venue}.login.{name}");
                place.read().map_err(|problem| ConfigError::at(key, problem))
            }
        };
        Ok(Secrets {
            key: read("key", &self.key)?,
            secret: read("secret", &self.secret)?,
            passphrase: read("passphrase", &self.passphrase)?,
        })
    }
}

impl Place {
    fn read(&self) -> Result<String, String> {
        let (text, what) = match self {
            Self::Env(name) => {
                let text = std::env::var(name).map_err(|_| {
                    format!("names the environment variable {name}, which is not set or not text")
                })?;
                (text, format!("the environment variable {name}"))
            }
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("names {}, which cannot be read: {error}", path.display()))?;
                (text, path.display().to_string())
            }
            Self::Unsaid => {
                let hint = "write { env = \"NAME\" } or { file = \"path\" }, and put the text there";
                return Err(format!("is to say where the text is, not what it is: {hint}"));
            }
        };
        // Editors end a file with a line break.
        let text = text.trim_end_matches(['\r', '\n']);
        match text.len() {
            0 => Err(format!("names {what}, which is empty")),
            1..=BYTES_MAX => Ok(text.to_owned()),
            _ => Err(format!("names {what}, which has more than {BYTES_MAX} bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_the_file_is_refused_and_not_shown() {
        for written in
            [r#"secret = "hunter2""#, "secret = 7777777", r#"secret = { env = "X", text = "hunter2" }"#]
        {
            let login: LoginToml = toml::from_str(written).unwrap();
            let error = login.read("okx").unwrap_err().to_string();
            assert!(error.starts_with("venues.okx.login.secret is to say where"), "{error}");
            for shown in [error, format!("{login:?}"), serde_json::to_string(&login).unwrap()] {
                assert!(!shown.contains("hunter2") && !shown.contains("7777777"), "{shown}");
            }
        }
    }

    #[test]
    fn a_file_is_read_without_its_line_break() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let login = |path: &std::path::Path| {
            let written = format!("secret = {{ file = {:?} }}", path.display().to_string());
            toml::from_str::<LoginToml>(&written).unwrap().read("okx")
        };
        assert!(login(&path).unwrap_err().to_string().contains("cannot be read"));
        #[allow(clippy::disallowed_methods, reason = "a test may write a file")]
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(login(&path).unwrap().secret, "abc");
        #[allow(clippy::disallowed_methods, reason = "a test may write a file")]
        std::fs::write(&path, "\n").unwrap();
        assert!(login(&path).unwrap_err().to_string().contains("is empty"));
    }
}
