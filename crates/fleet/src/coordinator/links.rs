//! The links to all nodes, by number: which there should be, which are up, and under which name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::link::{Happened, Link};
use crate::hello::FleetKey;
use crate::registry::Beat;

/// Orders that wait for a link; more are not given.
const ORDERS_MAX: usize = 32;

pub(super) struct Links {
    configured: Vec<String>,
    coordinator: String,
    key: Option<FleetKey>,
    happened: mpsc::Sender<(u64, Happened)>,
    next: u64,
    all: BTreeMap<u64, Kept>,
    by_node: HashMap<Arc<str>, u64>,
    tasks: JoinSet<()>,
}

struct Kept {
    addr: String,
    node: Option<Arc<str>>,
    reason: String,
    orders: mpsc::Sender<Vec<u8>>,
    stop: CancellationToken,
}

impl Links {
    pub(super) fn new(
        configured: Vec<String>,
        coordinator: String,
        key: Option<FleetKey>,
        happened: mpsc::Sender<(u64, Happened)>,
    ) -> Self {
        Self {
            configured,
            coordinator,
            key,
            happened,
            next: 1,
            all: BTreeMap::new(),
            by_node: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// These have registered themselves. Links to new ones begin; links to those gone end, unless they still work.
    pub(super) fn set_registered(&mut self, beats: &[Beat]) {
        while self.tasks.try_join_next().is_some() {}
        let wanted: Vec<String> =
            self.configured.iter().cloned().chain(beats.iter().map(|beat| beat.addr.clone())).collect();
        self.all.retain(|_, kept| {
            let stays = kept.node.is_some() || wanted.contains(&kept.addr);
            if !stays {
                kept.stop.cancel();
            }
            stays
        });
        for addr in wanted {
            if self.all.values().all(|kept| kept.addr != addr) {
                self.begin(addr);
            }
        }
    }

    /// The node of this link is there. Not if another link has it already.
    pub(super) fn up(&mut self, link: u64, node: &Arc<str>) -> bool {
        if let Some(other) = self.by_node.get(node) {
            let other = self.all.get(other).map_or("?", |kept| kept.addr.as_str());
            let reason = format!("its name, {node}, is that of the node at {other}");
            if let Some(kept) = self.all.get_mut(&link) {
                kept.reason = reason;
                kept.stop.cancel();
            }
            return false;
        }
        let Some(kept) = self.all.get_mut(&link) else { return false };
        kept.node = Some(Arc::clone(node));
        self.by_node.insert(Arc::clone(node), link);
        true
    }

    /// The link is down; the node that is gone with it.
    pub(super) fn down(&mut self, link: u64, reason: &str) -> Option<(Arc<str>, String)> {
        let kept = self.all.get_mut(&link)?;
        kept.reason = reason.to_owned();
        let node = kept.node.take()?;
        let addr = kept.addr.clone();
        self.by_node.remove(&node);
        // Links that were turned away because of it may try again.
        self.all.retain(|_, kept| !kept.stop.is_cancelled());
        Some((node, addr))
    }

    pub(super) fn node(&self, link: u64) -> Option<Arc<str>> {
        self.all.get(&link)?.node.clone()
    }

    pub(super) fn addr(&self, link: u64) -> &str {
        self.all.get(&link).map_or("?", |kept| &kept.addr)
    }

    /// Hands an order on; whether there was room.
    pub(super) fn order(&self, node: &Arc<str>, order: Vec<u8>) -> bool {
        let link = self.by_node.get(node).and_then(|link| self.all.get(link));
        link.is_some_and(|kept| kept.orders.try_send(order).is_ok())
    }

    /// Where a node should be and none is, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.values().filter(|kept| kept.node.is_none()).map(|kept| (&*kept.addr, &*kept.reason))
    }

    pub(super) async fn stop(mut self) {
        for kept in self.all.values() {
            kept.stop.cancel();
        }
        self.tasks.shutdown().await;
    }

    fn begin(&mut self, addr: String) {
        // Full: the node takes nothing any more, and the slot counts as busy.
        let (give, orders) = mpsc::channel(ORDERS_MAX);
        let (number, stop) = (self.next, CancellationToken::new());
        self.next += 1;
        let link = Link {
            number,
            addr: addr.clone(),
            coordinator: self.coordinator.clone(),
            key: self.key.clone(),
            happened: self.happened.clone(),
            orders,
        };
        self.tasks.spawn(link.keep(stop.clone()));
        let kept = Kept { addr, node: None, reason: "not tried yet".to_owned(), orders: give, stop };
        self.all.insert(number, kept);
    }
}
