//! One connection: who it is, what they want, and what is said back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Shared, UNDER_WAY_MAX};
use crate::events;
use crate::frame::{FRAME_MAX, STRANGER_FRAME_MAX};
use crate::hello::{Role, Seal, nonce};
use crate::message::{self, Heard, Message, Outcome, PlainFetch, Summary, is_name, is_token};
use crate::wire::{Ear, FRAME_DEADLINE, Mouth, WireError, split};

/// Coordinators ping four times a second; whoever is silent for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Why a connection is closed from here.
#[derive(Debug, thiserror::Error)]
enum Away {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Message(#[from] message::MessageError),
    #[error("{0}")]
    Stranger(&'static str),
}

/// Serves one connection to its end.
pub(super) async fn attend(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    stop: CancellationToken,
) {
    let frame_max = if shared.config.key.is_some() { STRANGER_FRAME_MAX } else { FRAME_MAX };
    let (ear, mouth) = split(stream, frame_max);
    let served = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        served = serve(ear, mouth, shared) => served,
    };
    match served {
        Err(Away::Wire(WireError::Closed)) | Ok(()) => {}
        Err(away) => {
            shared.turned_away.fetch_add(1, Ordering::Relaxed);
            events::turned_away(peer, &away.to_string());
        }
    }
}

async fn serve(mut ear: Ear, mut mouth: Mouth, shared: &Arc<Shared>) -> Result<(), Away> {
    let first = ear.next(FRAME_DEADLINE).await?;
    match message::read(&first)? {
        Heard::Plain(plain) if shared.config.key.is_none() => serve_plain(ear, mouth, plain, shared).await,
        Heard::Plain(_) => Err(Away::Stranger("a command without a hello, and there is a key")),
        Heard::Ours(Message::Hello { nonce, coordinator }) => {
            let seals = welcome(&mut ear, &mut mouth, &nonce, &coordinator, shared).await?;
            ear.frames.set_limit(FRAME_MAX);
            serve_ours(ear, mouth, seals, shared).await
        }
        Heard::Ours(_) => Err(Away::Stranger("a command without a hello")),
    }
}

/// S4's way: one message, one answer, as often as the other side likes.
async fn serve_plain(
    mut ear: Ear,
    mut mouth: Mouth,
    first: PlainFetch,
    shared: &Arc<Shared>,
) -> Result<(), Away> {
    let mut fetch = first;
    loop {
        let answer = match prepare(fetch.tokens, shared) {
            Err(reason) => format!("ERR {reason}"),
            Ok(_) if !fetch.trigger => "OK".to_owned(),
            Ok(tokens) => {
                let summary = shared.fetcher.fetch(&tokens).await;
                count(shared, &summary);
                match summary.outcome {
                    Outcome::Ok => "OK".to_owned(),
                    other => format!("ERR {}: {}", other.as_str(), summary.message.unwrap_or_default()),
                }
            }
        };
        mouth.say(answer.as_bytes()).await?;
        fetch = match message::read(&ear.next(SILENCE_MAX).await?)? {
            Heard::Plain(plain) => plain,
            Heard::Ours(_) => return Err(Away::Stranger("a hello in the middle of a talk without one")),
        };
    }
}

/// Both sides show that they have the key; gives the seals of both directions, theirs first.
async fn welcome(
    ear: &mut Ear,
    mouth: &mut Mouth,
    theirs: &str,
    coordinator: &str,
    shared: &Arc<Shared>,
) -> Result<(Seal, Seal), Away> {
    if !is_name(theirs) || !is_name(coordinator) {
        return Err(Away::Stranger("a hello with odd names"));
    }
    let config = &shared.config;
    let ours = nonce(rand::random());
    let challenge = Message::Challenge {
        nonce: ours.clone(),
        node: config.node_id.clone(),
        capacity_rps: config.capacity_rps,
        pace_mrps: shared.pace_mrps(),
        books_max: shared.books_max,
        fence: shared.fences.highest(),
        mac: config.key.as_ref().map(|key| key.proof(Role::Node, theirs, &ours, &config.node_id)),
    };
    mouth.say(&challenge.to_frame()).await?;
    let Heard::Ours(Message::Proof { mac }) = message::read(&ear.next(FRAME_DEADLINE).await?)? else {
        return Err(Away::Stranger("no proof after the hello"));
    };
    let session = match &config.key {
        None => None,
        Some(key) => {
            let proof = mac.unwrap_or_default();
            if !key.is_proof(Role::Coordinator, theirs, &ours, coordinator, &proof) {
                return Err(Away::Stranger("a hello without the fleet's key"));
            }
            Some(key.session(theirs, &ours))
        }
    };
    Ok((Seal::new(session.clone(), Role::Coordinator), Seal::new(session, Role::Node)))
}

async fn serve_ours(
    mut ear: Ear,
    mut mouth: Mouth,
    (mut theirs, mut ours): (Seal, Seal),
    shared: &Arc<Shared>,
) -> Result<(), Away> {
    // Full: a batch waits with its result; there are no more batches than this.
    let (done, mut results) = mpsc::channel::<Summary>(UNDER_WAY_MAX);
    let mut batches = JoinSet::new();
    loop {
        let heard = tokio::select! {
            biased;
            Some(_) = batches.join_next(), if !batches.is_empty() => continue,
            Some(summary) = results.recv() => {
                mouth.say_sealed(&mut ours, &Message::Result(summary).to_json()).await?;
                continue;
            }
            heard = ear.next_sealed(&mut theirs, SILENCE_MAX) => heard?,
        };
        let said = match message::read(&heard)? {
            Heard::Ours(Message::Ping { id }) => Some(Message::Pong { id }),
            Heard::Ours(Message::Fetch { id, fence, tokens, trigger }) => {
                match admit(fence, tokens, trigger, shared) {
                    Err(summary) => Some(Message::Result(Summary { id, ..*summary })),
                    Ok((tokens, seat)) => {
                        let (shared, done) = (Arc::clone(shared), done.clone());
                        batches.spawn(async move {
                            let summary = Summary { id, ..shared.fetcher.fetch(&tokens).await };
                            drop(seat);
                            count(&shared, &summary);
                            // Nobody may be waiting for it any more.
                            let _ = done.send(summary).await;
                        });
                        None
                    }
                }
            }
            _ => return Err(Away::Stranger("a message that coordinators do not send")),
        };
        if let Some(said) = said {
            mouth.say_sealed(&mut ours, &said.to_json()).await?;
        }
    }
}

/// The tokens to fetch and a place to do it in; or why not.
fn admit(
    fence: u64,
    tokens: Vec<String>,
    trigger: bool,
    shared: &Arc<Shared>,
) -> Result<(Arc<Vec<String>>, OwnedSemaphorePermit), Box<Summary>> {
    let refuse = |outcome, message: String| {
        Box::new(Summary { outcome, message: Some(message), ..Summary::default() })
    };
    if !shared.fences.admits(fence) {
        let highest = shared.fences.highest();
        let mut stale = refuse(Outcome::Stale, format!("fence {fence} is over, {highest} has been seen"));
        stale.fence = highest;
        return Err(stale);
    }
    let tokens = prepare(tokens, shared).map_err(|reason| refuse(Outcome::Odd, reason))?;
    if !trigger {
        return Err(Box::default());
    }
    let seat = Arc::clone(&shared.under_way).try_acquire_owned();
    let seat = seat.map_err(|_| refuse(Outcome::Busy, format!("{UNDER_WAY_MAX} batches are under way")))?;
    Ok((tokens, seat))
}

/// The tokens of the command, or those of the last one if it has none.
fn prepare(tokens: Vec<String>, shared: &Arc<Shared>) -> Result<Arc<Vec<String>>, String> {
    let mut last = shared.last_tokens.lock().expect("no holder of this lock can panic");
    if tokens.is_empty() {
        return if last.is_empty() {
            Err("no tokens, and none before".to_owned())
        } else {
            Ok(Arc::clone(&last))
        };
    }
    if tokens.len() > shared.books_max {
        return Err(format!("{} tokens; at most {} at once", tokens.len(), shared.books_max));
    }
    if let Some(odd) = tokens.iter().find(|token| !is_token(token)) {
        return Err(format!("{:?} is no token", odd.chars().take(40).collect::<String>()));
    }
    *last = Arc::new(tokens);
    Ok(Arc::clone(&last))
}

fn count(shared: &Shared, summary: &Summary) {
    shared.counts.lock().expect("no holder of this lock can panic").add(summary);
}
