//! Many fetch nodes, one latest picture in Redis.
//!
//! ```text
//! coordinator ── orders over TCP ──▶ fetch nodes ── /books ──▶ venue
//!      │  ▲ results                        │
//!      ▼  │                                ▼
//!    Redis: lease, nodes, status         Redis: ob:<token>, the latest book of each
//! ```
//!
//! * [`node`]: a fetch node; [`coordinator`]: who tells them what to fetch, and when
//! * [`brain`]: the coordinator's head; [`slots`], [`assign`], [`sizing`], [`halving`], [`lease`]: what it knows; all pure
//! * [`frame`], [`message`], [`hello`]: what they say to each other, and how they know each other; all pure
//! * [`registry`]: what the fleet keeps in Redis about itself; [`status`]: how it is doing
//! * [`tokens`]: what to follow
//!
//! Deliberately absent: an order book of its own, and any limit of its own. A node asks the governor before every request,
//! and Redis decides which snapshot is the later one.

pub mod assign;
pub mod brain;
pub mod coordinator;
mod events;
pub mod frame;
pub mod halving;
pub mod hello;
pub mod lease;
pub mod message;
pub mod node;
pub mod registry;
pub mod sizing;
pub mod slots;
pub mod status;
pub mod tokens;
mod wire;
