//! What is told of: a function for each event.

use std::net::SocketAddr;
use std::time::Duration;

use catchment_model::Monotonic;
use tracing::{debug, info, warn};

pub(crate) fn loopback_only(wanted: SocketAddr, instead: SocketAddr) {
    warn!(%wanted, listens_on = %instead, "without a key (key_file, CATCHMENT_FLEET_KEY) a node listens on loopback only");
}

pub(crate) fn not_registered(addr: SocketAddr) {
    warn!(%addr, "the node does not register itself: it listens everywhere and advertise_addr does not say where it is reached");
}

pub(crate) fn door_full(peer: SocketAddr) {
    warn!(%peer, "a connection was closed at the door: too many");
}

pub(crate) fn door_broken(error: &std::io::Error) {
    warn!(%error, "a connection could not be taken");
}

pub(crate) fn turned_away(peer: SocketAddr, reason: &str) {
    info!(%peer, reason, "a connection was closed");
}

pub(crate) fn beat_failed(node: &str, error: &dyn std::error::Error) {
    debug!(node, %error, "redis did not take the beat");
}

/// Tells when beats are heard again after a while without.
pub(crate) fn beat_heard(node: &str, last: &mut Option<Monotonic>, now: Monotonic) {
    let gap = last.map_or(Duration::ZERO, |last| now.since(last));
    if gap > Duration::from_secs(2) {
        warn!(node, gap_ms = gap.as_millis() as u64, "redis hears the node again");
    }
    *last = Some(now);
}

pub(crate) fn node_up(node: &str, addr: &str) {
    info!(node, addr, "a node is there");
}

pub(crate) fn node_down(node: &str, addr: &str, reason: &str) {
    warn!(node, addr, reason, "a node is gone");
}

pub(crate) fn node_unreachable(addr: &str, reason: &str) {
    debug!(addr, reason, "a node does not answer");
}

pub(crate) fn leads(name: &str, fence: u64) {
    info!(coordinator = name, fence, "this coordinator leads");
}

pub(crate) fn leads_no_more(name: &str, reason: &str) {
    warn!(coordinator = name, reason, "this coordinator does not lead any more");
}

pub(crate) fn lease_unanswered(error: &dyn std::error::Error) {
    debug!(%error, "redis did not answer for the lease");
}

pub(crate) fn tokens_changed(tokens: usize) {
    info!(tokens, "the tokens to follow");
}

pub(crate) fn tokens_kept(source: &str, reason: &str) {
    warn!(source, reason, "the tokens stay as they were");
}
