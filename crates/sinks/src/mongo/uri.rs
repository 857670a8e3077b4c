//! A connection string, which may hold a password and is therefore never shown whole.

use std::fmt;

use mongodb::options::ConnectionString;

/// A MongoDB connection string, checked. Showing it shows neither user name nor password nor options.
#[derive(Clone, PartialEq, Eq)]
pub struct MongoUri(String);

/// Why a text is no connection string. Never holds any of its user name, password or options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a MongoDB connection string: {0}")]
pub struct UriError(String);

/// Options whose values are secrets.
const SECRET_OPTIONS: [&str; 2] = ["tlscertificatekeyfilepassword", "authmechanismproperties"];

impl MongoUri {
    /// Checks the text, without asking anybody.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let text = text.trim();
        if ConnectionString::parse(text).is_ok() {
            return Ok(Self(text.to_owned()));
        }
        Err(UriError(problem(text)))
    }

    /// The text itself, for the driver alone.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

/// What is wrong. The driver's own words may quote what they complain about, so they are asked for of a text that has no
/// secret in it.
fn problem(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return "it starts with mongodb:// or mongodb+srv://".to_owned();
    };
    let lower = text.to_ascii_lowercase();
    if SECRET_OPTIONS.iter().any(|option| lower.contains(option)) {
        return "see the driver's description of its options".to_owned();
    }
    let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    match ConnectionString::parse(format!("{scheme}://{hosts}")) {
        Err(error) => super::fault::words(&error),
        Ok(_) => {
            "a character in its user name or password must be percent-encoded (@ is %40, / is %2F, : is %3A)"
                .to_owned()
        }
    }
}

impl fmt::Display for MongoUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("mongodb", ""));
        let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(_, hosts)| ("***@", hosts));
        let hosts = hosts.split(['/', '?']).next().unwrap_or_default();
        write!(f, "{scheme}://{user}{hosts}")
    }
}

impl fmt::Debug for MongoUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_nowhere() {
        let check = |text: &str, shown: &str| {
            let uri = MongoUri::parse(text).unwrap();
            assert_eq!((uri.to_string().as_str(), format!("{uri:?}")), (shown, format!("{shown:?}")));
            assert_eq!(uri.secret(), text);
        };
        check("mongodb://localhost:27017", "mongodb://localhost:27017");
        check("mongodb://sec:ret@a:1,b:2/admin?w=1", "mongodb://***@a:1,b:2");
        check("mongodb://sec:r%40t@a/?tls=true", "mongodb://***@a");
        check("mongodb+srv://sec:ret@cluster.example.net/x", "mongodb+srv://***@cluster.example.net");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let check = |text: &str, said: &str| {
            let error = MongoUri::parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text} gave {error:?}, expected {said:?}");
            for secret in ["hunter", "sesame", "alice"] {
                assert!(!error.contains(secret), "{error}");
            }
        };
        check("localhost", "it starts with mongodb://");
        check("postgres://alice:hunter@b", "scheme");
        check("mongodb://alice:hunter/sesame@host", "percent-encoded");
        check("mongodb://alice:hunter@sesame@host", "percent-encoded");
        check("mongodb://alice:hunter@host/?w=-5", "`w`");
        check("mongodb://alice:hunter@host:port", "port");
        check("mongodb://alice:hunter@host/?tlsCertificateKeyFilePassword=sesame&w=-1", "options");
    }
}
