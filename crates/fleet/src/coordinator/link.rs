//! The connection to one node: made, kept open, and made again.
//!
//! A connect takes 200 ms at most, as S4 has it. A process that is stopped still accepts connections, so that is not
//! enough: four times a second the node is pinged, and one that says nothing for a second is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::brain::NodeFacts;
use crate::frame::FRAME_MAX;
use crate::hello::{FleetKey, Role, Seal, nonce};
use crate::message::{self, Heard, Message, Summary, is_name};
use crate::wire::{Ear, FRAME_DEADLINE, Mouth, split};

/// S4's time-out for a connect.
const CONNECT_DEADLINE: Duration = Duration::from_millis(200);
const PING_EVERY: Duration = Duration::from_millis(250);
/// A node that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_millis(1_200);
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(300);
/// No node is as fast as this; its word is not taken for more.
const CAPACITY_MAX: u32 = 10_000;

/// What happens on a link.
#[derive(Debug)]
pub(super) enum Happened {
    /// The node is there, and has shown that it belongs to the fleet.
    Up {
        node: Arc<str>,
        facts: NodeFacts,
        /// The highest fence it has seen.
        fence: u64,
    },
    /// It is not there, or not any more.
    Down { reason: String },
    /// It has answered an order.
    Answered(Summary),
}

/// What a link needs.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) addr: String,
    pub(super) coordinator: String,
    pub(super) key: Option<FleetKey>,
    /// Full: the link waits, and the node's answers wait in the socket.
    pub(super) happened: mpsc::Sender<(u64, Happened)>,
    pub(super) orders: mpsc::Receiver<Vec<u8>>,
}

struct Talk {
    ear: Ear,
    mouth: Mouth,
    theirs: Seal,
    ours: Seal,
}

impl Link {
    /// Keeps the connection until told to stop.
    pub(super) async fn keep(mut self, stop: CancellationToken) {
        loop {
            let reason = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                reason = self.connect_and_talk() => reason,
            };
            // Orders nobody will hear.
            while self.orders.try_recv().is_ok() {}
            if self.happened.send((self.number, Happened::Down { reason })).await.is_err() {
                return;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(TRY_EVERY) => {}
            }
        }
    }

    /// Why the connection ended, or could not be had.
    async fn connect_and_talk(&mut self) -> String {
        let stream = match timeout(CONNECT_DEADLINE, TcpStream::connect(&self.addr)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return format!("no connection: {error}"),
            Err(_) => return format!("no connection within {CONNECT_DEADLINE:?}"),
        };
        match self.greet(stream).await {
            Ok((talk, up)) => {
                if self.happened.send((self.number, up)).await.is_err() {
                    return "stopped".to_owned();
                }
                self.talk(talk).await
            }
            Err(reason) => reason,
        }
    }

    async fn greet(&self, stream: TcpStream) -> Result<(Talk, Happened), String> {
        let told = |error: &dyn std::fmt::Display| format!("no hello: {error}");
        let (mut ear, mut mouth) = split(stream, FRAME_MAX);
        let ours = nonce(rand::random());
        let hello = Message::Hello { nonce: ours.clone(), coordinator: self.coordinator.clone() };
        mouth.say(&hello.to_frame()).await.map_err(|error| told(&error))?;
        let frame = ear.next(FRAME_DEADLINE).await.map_err(|error| told(&error))?;
        let Heard::Ours(Message::Challenge { nonce, node, capacity_rps, pace_mrps, books_max, fence, mac }) =
            message::read(&frame).map_err(|error| told(&error))?
        else {
            return Err("no hello: an answer that nodes do not give".to_owned());
        };
        if !is_name(&node) || !is_name(&nonce) {
            return Err("no hello: a node with an odd name".to_owned());
        }
        let proof = match (&self.key, mac) {
            (None, None) => None,
            (None, Some(_)) => return Err("the node has a key and this coordinator has none".to_owned()),
            (Some(key), mac) => {
                if !key.is_proof(Role::Node, &nonce, &ours, &node, &mac.unwrap_or_default()) {
                    return Err("the node does not have the fleet's key".to_owned());
                }
                Some(key.proof(Role::Coordinator, &nonce, &ours, &self.coordinator))
            }
        };
        let session = self.key.as_ref().map(|key| key.session(&ours, &nonce));
        mouth.say(&Message::Proof { mac: proof }.to_frame()).await.map_err(|error| told(&error))?;
        let (theirs, ours) = (Seal::new(session.clone(), Role::Node), Seal::new(session, Role::Coordinator));
        let capacity_rps = capacity_rps.clamp(1, CAPACITY_MAX);
        let facts = NodeFacts {
            addr: self.addr.clone(),
            capacity_rps,
            pace_mrps: pace_mrps.clamp(1, u64::from(capacity_rps) * 1_000),
            books_max: books_max.clamp(1, 10_000),
        };
        Ok((Talk { ear, mouth, theirs, ours }, Happened::Up { node: node.into(), facts, fence }))
    }

    async fn talk(&mut self, mut talk: Talk) -> String {
        let mut ping = interval(PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pings = 0;
        loop {
            let said = tokio::select! {
                biased;
                frame = talk.ear.next_sealed(&mut talk.theirs, SILENCE_MAX) => {
                    let heard = frame.map_err(|error| error.to_string());
                    match heard.and_then(|frame| message::read(&frame).map_err(|error| error.to_string())) {
                        Ok(Heard::Ours(Message::Result(summary))) => {
                            if self.happened.send((self.number, Happened::Answered(summary))).await.is_err() {
                                return "stopped".to_owned();
                            }
                        }
                        Ok(Heard::Ours(Message::Pong { .. })) => {}
                        Ok(_) => return "it says what nodes do not say".to_owned(),
                        Err(reason) => return reason,
                    }
                    continue;
                }
                order = self.orders.recv() => match order {
                    Some(order) => order,
                    None => return "stopped".to_owned(),
                },
                _ = ping.tick() => {
                    pings += 1;
                    Message::Ping { id: pings }.to_json()
                }
            };
            if let Err(error) = talk.mouth.say_sealed(&mut talk.ours, &said).await {
                return error.to_string();
            }
        }
    }
}
