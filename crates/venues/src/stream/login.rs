//! Logging in to a private stream: a text is signed with a secret, and the signature sent.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use catchment_model::UnixMs;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::{Sha256, Sha384, Sha512};

use super::Descriptor;
use super::command::Command;
use super::template::{Template, json_escaped};

/// What a venue gives its users. It is used where it is needed and shown nowhere.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The key's name; venues show it to their users, we do not.
    pub key: String,
    /// What signatures are made with.
    pub secret: String,
    /// A word that some venues want besides.
    pub passphrase: String,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// Why no login can be made. What the secret is stays unsaid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The secret is not written as the venue writes them.
    #[error("the secret for {venue} is not {expected}; copy it again from the venue's page")]
    Secret {
        /// Whose.
        venue: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Something the login needs was not given.
    #[error("the login of {venue} needs a {what}")]
    Missing {
        /// Whose.
        venue: &'static str,
        /// Which of the three.
        what: &'static str,
    },
}

/// What the signature is made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Algorithm {
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    #[serde(rename = "hmac-sha384")]
    HmacSha384,
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

/// How bytes are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Encoding {
    /// The text's own bytes; for a secret only.
    #[default]
    Text,
    Hex,
    Base64,
}

/// The places of the text to be signed.
pub(super) const SIGN_NAMES: [&str; 3] = ["time_ms", "time_s", "key"];
/// The places of the login.
pub(super) const SEND_NAMES: [&str; 6] = ["time_ms", "time_s", "key", "passphrase", "signature", "id"];
const PASSPHRASE: usize = 3;

/// How a login is made.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) sign: Template,
    pub(super) algorithm: Algorithm,
    pub(super) signature: Encoding,
    pub(super) secret: Encoding,
    pub(super) send: Template,
    /// So much later than now is the time that is signed.
    pub(super) ahead_ms: i64,
}

impl Descriptor {
    /// The login of a socket, or nothing where it needs none. `now` is the venue's time as well as it is known. Where the
    /// venue takes the time as the moment until which the login holds, its description puts it ahead.
    pub fn login(
        &self,
        socket: usize,
        secrets: &Secrets,
        now: UnixMs,
        number: &mut u64,
    ) -> Result<Option<Command>, LoginError> {
        let Some(login) = &self.0.sockets[socket].login else { return Ok(None) };
        let venue = self.id();
        let asked = [
            ("key", &secrets.key, true),
            ("secret", &secrets.secret, true),
            ("passphrase", &secrets.passphrase, login.send.has(PASSPHRASE)),
        ];
        if let Some((what, ..)) = asked.iter().find(|(_, given, needed)| *needed && given.is_empty()) {
            return Err(LoginError::Missing { venue, what });
        }
        let secret = login
            .secret
            .decode(&secrets.secret)
            .map_err(|expected| LoginError::Secret { venue, expected })?;
        *number += 1;
        let time = now.get() + login.ahead_ms;
        let (ms, s) = (time.to_string(), (time / 1_000).to_string());
        let signed = login.algorithm.sign(&secret, login.sign.with(&[&ms, &s, &secrets.key]).as_bytes());
        let text = login.send.with(&[
            &ms,
            &s,
            &json_escaped(&secrets.key),
            &json_escaped(&secrets.passphrase),
            &login.signature.encode(&signed),
            &number.to_string(),
        ]);
        Ok(Some(Command { text, number: *number, covers: Vec::new() }))
    }
}

impl Algorithm {
    fn sign(self, secret: &[u8], text: &[u8]) -> Vec<u8> {
        fn tag<M: Mac + KeyInit>(secret: &[u8], text: &[u8]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(secret).expect("HMAC takes keys of any length");
            mac.update(text);
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Algorithm::HmacSha256 => tag::<Hmac<Sha256>>(secret, text),
            Algorithm::HmacSha384 => tag::<Hmac<Sha384>>(secret, text),
            Algorithm::HmacSha512 => tag::<Hmac<Sha512>>(secret, text),
        }
    }
}

impl Encoding {
    fn encode(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Base64 => STANDARD.encode(bytes),
            Encoding::Hex | Encoding::Text => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    fn decode(self, text: &str) -> Result<Vec<u8>, &'static str> {
        match self {
            Encoding::Text => Ok(text.as_bytes().to_vec()),
            Encoding::Base64 => STANDARD.decode(text).map_err(|_| "base64"),
            Encoding::Hex => {
                let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
                let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or("hexadecimal")?;
                Ok(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        // Test case 2 of the RFC.
        let check = |algorithm: Algorithm, want: &str| {
            let signed = algorithm.sign(b"Jefe", b"what do ya want for nothing?");
            assert!(Encoding::Hex.encode(&signed).starts_with(want), "{algorithm:?}");
        };
        check(Algorithm::HmacSha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        check(Algorithm::HmacSha384, "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e");
        check(Algorithm::HmacSha512, "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554");
    }

    #[test]
    fn secrets_are_read_as_written_and_never_shown() {
        assert_eq!(Encoding::Base64.decode("AQID"), Ok(vec![1, 2, 3]));
        assert_eq!(Encoding::Hex.decode("01aB"), Ok(vec![1, 0xab]));
        assert_eq!(Encoding::Text.decode("é"), Ok("é".as_bytes().to_vec()));
        assert!(Encoding::Hex.decode("01a").is_err() && Encoding::Base64.decode("€").is_err());
        let secrets = Secrets { key: "abc".into(), secret: "def".into(), passphrase: "ghi".into() };
        assert_eq!(format!("{secrets:?}"), "Secrets(…)");
    }
}
