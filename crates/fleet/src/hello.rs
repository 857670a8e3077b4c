//! Who is there: both sides show that they have the key, and neither says it.
//!
//! ```text
//! coordinator                                                        node
//!   hello      nonce c, its name                                ─▶
//!                                          ◀─  challenge  nonce n, its name, mac over both nonces and its name
//!   proof      mac over both nonces and its name                ─▶
//! ```
//!
//! The macs are HMAC-SHA-256 with the shared key over a label for the role, both nonces and the name, each with its
//! length before it. The nonces are drawn anew for every connection, so a recorded hello is worth nothing on another one.
//! From then on every frame ends with a mac over its direction, its number and its content, by a key made from the shared
//! one and both nonces: nobody in between can put in, leave out, change or repeat a frame. They can read: tokens and
//! counts are no secrets. Whoever minds uses a tunnel.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A shared key is at least this long.
pub const KEY_MIN: usize = 16;
/// What a mac takes at a frame's end.
pub const TAG: usize = 32;

/// Sixteen random bytes, in hexadecimal.
pub type Nonce = String;

/// The key that all of a fleet share.
#[derive(Clone)]
pub struct FleetKey(Vec<u8>);

/// Its bytes are never shown.
impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetKey(…)")
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the fleet's key has {0} bytes; at least {KEY_MIN} are needed (head -c 32 /dev/urandom | base64)")]
pub struct KeyTooShort(usize);

impl FleetKey {
    /// A key from what a file or the environment holds; white space around it does not count.
    pub fn new(text: &str) -> Result<Self, KeyTooShort> {
        let text = text.trim();
        if text.len() < KEY_MIN { Err(KeyTooShort(text.len())) } else { Ok(Self(text.as_bytes().to_vec())) }
    }

    /// What a side says to show that it has the key.
    pub fn proof(&self, role: Role, theirs: &str, ours: &str, name: &str) -> String {
        hex(&self.mac(role, theirs, ours, name).finalize().into_bytes())
    }

    /// Whether the other side has shown it. Takes the same time whatever is wrong.
    pub fn is_proof(&self, role: Role, theirs: &str, ours: &str, name: &str, proof: &str) -> bool {
        let Some(proof) = unhex(proof) else { return false };
        // Seen from the other side, ours and theirs are exchanged.
        self.mac(role, ours, theirs, name).verify_slice(&proof).is_ok()
    }

    /// The two directions of the connection that these nonces have begun.
    pub fn session(&self, coordinator_nonce: &str, node_nonce: &str) -> Session {
        let mut mac = start(&self.0);
        push(&mut mac, &[b"catchment-fleet-1 session", coordinator_nonce.as_bytes(), node_nonce.as_bytes()]);
        Session(mac.finalize().into_bytes().to_vec())
    }

    fn mac(&self, role: Role, theirs: &str, ours: &str, name: &str) -> Hmac<Sha256> {
        let mut mac = start(&self.0);
        push(&mut mac, &[role.label(), theirs.as_bytes(), ours.as_bytes(), name.as_bytes()]);
        mac
    }
}

/// Which side speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one that tells what to fetch.
    Coordinator,
    /// The one that fetches.
    Node,
}

impl Role {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Coordinator => b"catchment-fleet-1 coordinator",
            Self::Node => b"catchment-fleet-1 node",
        }
    }
}

/// What a connection's frames are sealed with.
#[derive(Clone)]
pub struct Session(Vec<u8>);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session(…)")
    }
}

/// One direction of a connection. Without a session nothing is sealed.
#[derive(Debug)]
pub struct Seal {
    session: Option<Session>,
    from: Role,
    number: u64,
}

/// The frame is not what the other side sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame without a valid seal")]
pub struct Broken;

impl Seal {
    /// Of frames that this side sends.
    pub fn new(session: Option<Session>, from: Role) -> Self {
        Self { session, from, number: 0 }
    }

    /// The content with its seal.
    pub fn close(&mut self, body: &[u8]) -> Vec<u8> {
        let mut sealed = body.to_vec();
        if let Some(mac) = self.next(body) {
            sealed.extend_from_slice(&mac.finalize().into_bytes());
        }
        sealed
    }

    /// The content of a sealed frame.
    pub fn open<'a>(&mut self, frame: &'a [u8]) -> Result<&'a [u8], Broken> {
        if self.session.is_none() {
            return Ok(frame);
        }
        let (body, tag) = frame.split_at_checked(frame.len().wrapping_sub(TAG)).ok_or(Broken)?;
        let mac = self.next(body).expect("there is a session");
        mac.verify_slice(tag).map_err(|_| Broken)?;
        Ok(body)
    }

    fn next(&mut self, body: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = start(&self.session.as_ref()?.0);
        push(&mut mac, &[self.from.label(), &self.number.to_be_bytes(), body]);
        self.number += 1;
        Some(mac)
    }
}

/// A nonce from randomness.
pub fn nonce(random: [u8; 16]) -> Nonce {
    hex(&random)
}

fn start(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("any length of key will do")
}

/// With lengths before them, the parts cannot be told to be others.
fn push(mac: &mut Hmac<Sha256>, parts: &[&[u8]]) {
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * TAG || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> FleetKey {
        FleetKey::new("0123456789abcdef\n").unwrap()
    }

    #[test]
    fn whoever_has_the_key_can_show_it() {
        let proof = key().proof(Role::Node, "c", "n", "fetch-001");
        assert!(key().is_proof(Role::Node, "n", "c", "fetch-001", &proof));
        let other = FleetKey::new("another key of some length").unwrap();
        assert!(!other.is_proof(Role::Node, "n", "c", "fetch-001", &proof));
    }

    #[test]
    fn a_proof_is_for_one_connection_one_role_and_one_name() {
        let proof = key().proof(Role::Coordinator, "n", "c", "c1");
        let check = |role, theirs, ours, name, proof: &str, holds| {
            assert_eq!(key().is_proof(role, theirs, ours, name, proof), holds, "{theirs} {ours} {name}");
        };
        check(Role::Coordinator, "c", "n", "c1", &proof, true);
        check(Role::Coordinator, "c", "another", "c1", &proof, false); // replayed
        check(Role::Coordinator, "n", "c", "c1", &proof, false); // sent back
        check(Role::Node, "c", "n", "c1", &proof, false);
        check(Role::Coordinator, "c", "n", "c2", &proof, false);
        check(Role::Coordinator, "c", "nc1", "", &proof, false); // parts shifted
        for odd in ["", "00", "zz", &"é".repeat(32), &proof[1..], &format!("{proof}00")] {
            check(Role::Coordinator, "c", "n", "c1", odd, false);
        }
    }

    #[test]
    fn a_sealed_frame_opens_once_in_its_place_and_direction() {
        let session = || Some(key().session("c", "n"));
        let mut ours = Seal::new(session(), Role::Coordinator);
        let (one, two) = (ours.close(b"one"), ours.close(b"two"));
        let mut theirs = Seal::new(session(), Role::Coordinator);
        assert_eq!(theirs.open(&one), Ok(&b"one"[..]));
        assert_eq!(theirs.open(&one), Err(Broken), "repeated");
        let mut theirs = Seal::new(session(), Role::Coordinator);
        assert_eq!(theirs.open(&two), Err(Broken), "out of turn");
        assert_eq!(Seal::new(session(), Role::Node).open(&one), Err(Broken), "of the other direction");
        assert_eq!(Seal::new(Some(key().session("c", "m")), Role::Coordinator).open(&one), Err(Broken));
        for at in 0..one.len() {
            let mut bad = one.clone();
            bad[at] ^= 1;
            assert_eq!(Seal::new(session(), Role::Coordinator).open(&bad), Err(Broken), "byte {at}");
        }
        assert_eq!(Seal::new(session(), Role::Coordinator).open(b"short"), Err(Broken));
        assert_eq!(Seal::new(None, Role::Coordinator).open(b"plain"), Ok(&b"plain"[..]));
    }

    #[test]
    fn a_short_key_is_refused_and_a_key_is_never_shown() {
        assert!(FleetKey::new("short").unwrap_err().to_string().contains("at least 16"));
        assert_eq!(format!("{:?} {:?}", key(), key().session("c", "n")), "FleetKey(…) Session(…)");
    }
}
