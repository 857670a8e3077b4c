//! `[api]`: where a running recorder can be looked at and told what to do, and by whom.
//!
//! The token is in a file or in the environment, never in the configuration itself.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use catchment_control::{ControlSettings, Token};
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// `[api]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ApiToml {
    enabled: bool,
    listen: String,
    token_file: Option<PathBuf>,
}

impl Default for ApiToml {
    fn default() -> Self {
        Self { enabled: true, listen: "127.0.0.1:8080".to_owned(), token_file: None }
    }
}

/// Where the page and the API are, and who may ask.
#[derive(Debug, Clone)]
pub(crate) struct ApiConfig {
    pub(crate) listen: SocketAddr,
    token_file: Option<PathBuf>,
}

/// What the environment may hold instead of a file.
const TOKEN_VARIABLE: &str = "CATCHMENT_API_TOKEN";

impl ApiToml {
    /// Whether there is a token where there must be one is found out at the start: the environment may hold it.
    pub(super) fn check(self) -> Result<Option<ApiConfig>, ConfigError> {
        let listen: SocketAddr = self.listen.parse().map_err(|_| {
            ConfigError::at(
                "api.listen",
                format!("is {:?}, expected an address such as 127.0.0.1:8080", self.listen),
            )
        })?;
        Ok(self.enabled.then_some(ApiConfig { listen, token_file: self.token_file }))
    }
}

impl ApiConfig {
    /// Where it listens and to whom, if that may be so.
    pub(crate) fn settings(&self) -> anyhow::Result<ControlSettings> {
        let settings = ControlSettings { listen: self.listen, token: self.token()?, mock: None };
        settings.check()?;
        Ok(settings)
    }

    /// The token, from the environment, else from its file, if there is one.
    fn token(&self) -> anyhow::Result<Option<Token>> {
        let (text, place) = match (std::env::var(TOKEN_VARIABLE), &self.token_file) {
            (Ok(text), _) => (text, TOKEN_VARIABLE.to_owned()),
            (Err(_), Some(path)) => {
                let place = format!("api.token_file, {}", path.display());
                (std::fs::read_to_string(path).with_context(|| format!("cannot read {place}"))?, place)
            }
            (Err(_), None) => return Ok(None),
        };
        Ok(Some(Token::new(&text).context(place)?))
    }
}
