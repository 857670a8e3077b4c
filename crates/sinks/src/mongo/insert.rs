//! Batches as `insert` commands: built in one buffer each, two on their way at once.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use catchment_pipeline::{Batch, Refusal};
use mongodb::Database;
use mongodb::bson::RawDocumentBuf;
use tokio::task::JoinSet;

use super::document::{self, DOCUMENT_MAX};
use super::fault::{self, Fault, MongoFault, NotInserted, Why};
use super::{Link, MongoConfig, json};

/// Documents in one command: more make it slower, not faster.
const DOCUMENTS_MAX: usize = 1_000;
/// A command is a document itself, with a little room beyond 16 MiB for what is around one that large.
const COMMAND_MAX: usize = DOCUMENT_MAX + (8 << 10);
/// The next command is built and sent while the server syncs the one before.
const UNDER_WAY_MAX: usize = 2;

/// An insert of some neighbours of a batch.
#[derive(Debug)]
pub(super) struct Command {
    /// Their places in the batch.
    places: Range<usize>,
    body: RawDocumentBuf,
}

/// The commands that insert a batch, or the records that can be no documents.
pub(super) fn commands(
    batch: &Batch,
    collection: &str,
    answer_within: Duration,
) -> Result<Vec<Command>, Vec<Refusal>> {
    let mut made = Vec::new();
    let mut refused = Vec::new();
    let mut next = 0;
    while next < batch.len() {
        let command = build(batch, next..batch.len(), collection, answer_within, &mut refused);
        next = command.places.end;
        made.push(command);
    }
    if refused.is_empty() { Ok(made) } else { Err(refused) }
}

/// As many of these records as fit into one command, at least one.
fn build(
    batch: &Batch,
    places: Range<usize>,
    collection: &str,
    answer_within: Duration,
    refused: &mut Vec<Refusal>,
) -> Command {
    let mut out = Vec::with_capacity(batch.bytes() / batch.len() * places.len().min(DOCUMENTS_MAX) * 5 / 4);
    let documents = begin(collection, answer_within, &mut out);
    let mut end = places.start;
    for index in places.clone().take(DOCUMENTS_MAX) {
        let start = out.len();
        let record = batch.get(index).expect("a place in the batch");
        out.push(json::DOCUMENT);
        json::push_index((index - places.start) as u32, &mut out);
        if let Err(reason) = document::push(&record, &mut out) {
            out.truncate(start);
            refused.push(Refusal { index, reason });
        } else if out.len() > COMMAND_MAX && index > places.start {
            out.truncate(start);
            break;
        }
        end = index + 1;
    }
    let sized = json::close(&mut out, documents).and_then(|()| json::close(&mut out, 0));
    sized.expect("a command is far smaller than 2 GiB");
    let body = RawDocumentBuf::from_bytes(out).expect("a document with its length and end");
    Command { places: places.start..end, body }
}

/// Everything of the command but the documents. Gives where their array starts.
fn begin(collection: &str, answer_within: Duration, out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(b"\x02insert\0");
    json::push_string(collection.as_bytes(), out);
    out.extend_from_slice(b"\x08ordered\0\0");
    out.extend_from_slice(b"\x03writeConcern\0");
    let concern = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(b"\x02w\0");
    json::push_string(b"majority", out);
    out.extend_from_slice(b"\x08j\0\x01");
    out.extend_from_slice(b"\x12wtimeout\0");
    // Told by the server that it takes too long is better than not told.
    let wait_ms = i64::try_from(answer_within.as_millis()).unwrap_or(i64::MAX) * 3 / 4;
    out.extend_from_slice(&wait_ms.max(1).to_le_bytes());
    json::close(out, concern).expect("a few bytes");
    out.extend_from_slice(b"\x04documents\0");
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Sends the commands. What was not inserted comes back by its place in the batch.
pub(super) async fn send(
    link: &Link,
    batch: &Batch,
    commands: Vec<Command>,
    config: &MongoConfig,
) -> Result<Vec<NotInserted>, MongoFault> {
    let mut waiting = VecDeque::from(commands);
    // Dropped with an error: whether the other command was done will be known when it comes again.
    let mut under_way = JoinSet::new();
    let mut missing = Vec::new();
    loop {
        while under_way.len() < UNDER_WAY_MAX
            && let Some(command) = waiting.pop_front()
        {
            under_way.spawn(run(link.database.clone(), command, config.answer_within));
        }
        let Some(ended) = under_way.join_next().await else { return Ok(missing) };
        let (places, answer) = ended.expect("sending does not panic");
        match answer {
            Ok(some) => missing.extend(
                some.into_iter().map(|record| NotInserted { index: places.start + record.index, ..record }),
            ),
            Err(Fault::Away(fault)) => return Err(fault),
            // The server took none because of one of them. Halves find it.
            Err(Fault::Content(message)) => match places.len() {
                1 => missing.push(NotInserted { index: places.start, why: Why::Content, message }),
                len => {
                    let middle = places.start + len / 2;
                    for half in [places.start..middle, middle..places.end] {
                        let (collection, within) = (&config.collection, config.answer_within);
                        waiting.push_back(build(batch, half, collection, within, &mut Vec::new()));
                    }
                }
            },
        }
    }
}

async fn run(
    database: Database,
    command: Command,
    within: Duration,
) -> (Range<usize>, Result<Vec<NotInserted>, Fault>) {
    let Command { places, body } = command;
    let asked = async { database.run_raw_command(body).await };
    let answer = match tokio::time::timeout(within, asked).await {
        Err(_) => Err(Fault::Away(MongoFault::Late(within))),
        Ok(Err(error)) => Err(fault::of(&error)),
        Ok(Ok(answer)) => fault::read_answer(&answer, places.len()),
    };
    (places, answer)
}
