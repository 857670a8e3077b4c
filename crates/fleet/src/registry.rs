//! What the fleet keeps in Redis about itself: who is there, who leads, how it is doing.
//!
//! | key | what |
//! |---|---|
//! | `{fleet}:nodes` | the names of nodes that registered themselves |
//! | `{fleet}:node:<name>` | what such a node says of itself; gone two seconds after its last beat |
//! | `{fleet}:lease` | the name of the coordinator that leads; gone when it does not renew it |
//! | `{fleet}:fence` | the fence of the last lease: it only grows |
//! | `{fleet}:status` | how it is doing, by whoever leads; gone after ten seconds |
//!
//! The braces put all of them into one slot of a cluster; `fleet` is the namespace. Whoever can write here can name nodes
//! and take the lease: Redis has passwords. Nodes and coordinators check each other's key besides.

use std::sync::Arc;
use std::time::Duration;

use catchment_sinks::redis::{RedisFailure, RedisLink};
use redis::Cmd;
use serde::{Deserialize, Serialize};

use crate::brain::Counts;
use crate::lease::LeaseAnswer;
use crate::message::is_name;
use crate::status::FleetStatus;

/// More nodes than this are not looked at.
const NODES_MAX: usize = 1_024;
/// How long a node is remembered after its last beat.
const BEAT_LASTS: Duration = Duration::from_secs(2);
/// How long a status is kept.
const STATUS_LASTS: Duration = Duration::from_secs(10);

/// `KEYS` lease, fence; `ARGV` name, milliseconds, the highest fence that was seen anywhere. A fence is at least the
/// server's time: it grows even if all was lost.
const ACQUIRE: &str = "
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, holder} end
local fence = redis.call('GET', KEYS[2])
if not holder or not fence or tonumber(fence) < tonumber(ARGV[3]) then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  fence = string.format('%.0f', math.max((tonumber(fence) or 0) + 1, now, tonumber(ARGV[3]) + 1))
  redis.call('SET', KEYS[2], fence)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, fence}";

/// `KEYS` lease; `ARGV` name. Only the holder's own lease is given back.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1";

/// `KEYS` node, nodes, fence; `ARGV` what it says, milliseconds, name.
const BEAT: &str = "
local was = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SADD', KEYS[2], ARGV[3])
return {was, redis.call('GET', KEYS[3]) or '0'}";

/// What a node says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Beat {
    /// Its name.
    pub node: String,
    /// Where coordinators reach it.
    pub addr: String,
    /// Requests in any second, at most.
    pub capacity_rps: u32,
    /// The program's version.
    pub version: String,
    /// Since its start.
    pub up_ms: u64,
    /// Counts since its start.
    pub counts: Counts,
}

/// What a beat was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beaten {
    /// Whether the beat before was still there.
    pub was_known: bool,
    /// The fence of the last lease.
    pub fence: u64,
}

/// The fleet's own keys.
#[derive(Debug, Clone)]
pub struct Registry {
    link: Arc<RedisLink>,
    namespace: String,
}

impl Registry {
    /// Of the fleet with this name.
    pub fn new(link: Arc<RedisLink>, namespace: impl Into<String>) -> Self {
        Self { link, namespace: namespace.into() }
    }

    /// Asks for the lease, or for more of it; `seen` is the highest fence that any node has told of.
    pub async fn acquire(
        &self,
        name: &str,
        length: Duration,
        seen: u64,
    ) -> Result<LeaseAnswer, RedisFailure> {
        let mut call = script(ACQUIRE, &[&self.key("lease"), &self.key("fence")]);
        call.arg(name).arg(length.as_millis() as u64).arg(seen);
        let (granted, said): (u8, String) = self.link.ask(&call).await?;
        if granted == 0 {
            return Ok(LeaseAnswer::Taken { holder: said });
        }
        let fence = said.parse().map_err(|_| RedisFailure::Odd(format!("the fence {said:?}")))?;
        Ok(LeaseAnswer::Granted { fence })
    }

    /// Gives the lease back, so that another need not wait for its end.
    pub async fn release(&self, name: &str) -> Result<(), RedisFailure> {
        let _: u8 = self.link.ask(script(RELEASE, &[&self.key("lease")]).arg(name)).await?;
        Ok(())
    }

    /// A node is there.
    pub async fn beat(&self, beat: &Beat) -> Result<Beaten, RedisFailure> {
        let node = self.key(&format!("node:{}", beat.node));
        let json = serde_json::to_vec(beat).expect("plain data");
        let mut call = script(BEAT, &[&node, &self.key("nodes"), &self.key("fence")]);
        call.arg(json).arg(BEAT_LASTS.as_millis() as u64).arg(&beat.node);
        let (was, fence): (u8, String) = self.link.ask(&call).await?;
        Ok(Beaten { was_known: was == 1, fence: fence.parse().unwrap_or(0) })
    }

    /// A node goes.
    pub async fn leave(&self, node: &str) -> Result<(), RedisFailure> {
        let _: u64 = self.link.ask(redis::cmd("DEL").arg(self.key(&format!("node:{node}")))).await?;
        let _: u64 = self.link.ask(redis::cmd("SREM").arg(self.key("nodes")).arg(node)).await?;
        Ok(())
    }

    /// The nodes that are there. Those whose beat has stopped are forgotten.
    pub async fn nodes(&self) -> Result<Vec<Beat>, RedisFailure> {
        let names: Vec<String> = self.link.ask(redis::cmd("SMEMBERS").arg(self.key("nodes"))).await?;
        let names: Vec<String> = names.into_iter().filter(|name| is_name(name)).take(NODES_MAX).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = redis::cmd("MGET");
        for name in &names {
            get.arg(self.key(&format!("node:{name}")));
        }
        let found: Vec<Option<Vec<u8>>> = self.link.ask(&get).await?;
        let mut beats = Vec::new();
        for (name, found) in names.iter().zip(found) {
            match found {
                None => {
                    let _: u64 = self.link.ask(redis::cmd("SREM").arg(self.key("nodes")).arg(name)).await?;
                }
                Some(json) => {
                    beats
                        .extend(serde_json::from_slice::<Beat>(&json).ok().filter(|beat| beat.node == *name));
                }
            }
        }
        beats.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(beats)
    }

    /// How the fleet is doing, by whoever leads.
    pub async fn tell(&self, status: &FleetStatus) -> Result<(), RedisFailure> {
        let json = serde_json::to_vec(status).expect("plain data");
        let mut set = redis::cmd("SET");
        set.arg(self.key("status")).arg(json).arg("PX").arg(STATUS_LASTS.as_millis() as u64);
        self.link.ask(&set).await
    }

    /// How the fleet was doing a moment ago; nothing if nobody leads.
    pub async fn status(&self) -> Result<Option<FleetStatus>, RedisFailure> {
        let holder: Option<String> = self.link.ask(redis::cmd("GET").arg(self.key("lease"))).await?;
        let json: Option<Vec<u8>> = self.link.ask(redis::cmd("GET").arg(self.key("status"))).await?;
        let (Some(_), Some(json)) = (holder, json) else { return Ok(None) };
        let odd = |error: serde_json::Error| RedisFailure::Odd(format!("the fleet's status: {error}"));
        serde_json::from_slice(&json).map(Some).map_err(odd)
    }

    fn key(&self, name: &str) -> String {
        format!("{{{}}}:{name}", self.namespace)
    }
}

fn script(text: &str, keys: &[&str]) -> Cmd {
    let mut call = redis::cmd("EVAL");
    call.arg(text).arg(keys.len());
    for key in keys {
        call.arg(*key);
    }
    call
}
