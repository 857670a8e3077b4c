//! Recordings of real venues, played through the runtime: over a real socket, with the answers over REST that were
//! recorded beside them, into a sink in memory.
//!
//! Whatever a recording holds must be stored byte for byte, without a gap, and every checksum and sequence must agree.
//! Nothing here knows what is in a file: the streams are found in it. Recordings are not part of this repository;
//! `CATCHMENT_RECORDINGS` names the folder, one folder a venue in it:
//!
//! ```text
//! {"recv_ns":1633998514465973000,"dir":"rx","frame":{"stream":"blzeth@depth@100ms","data":{…}}}
//! {"recv_ns":1633998514646289800,"dir":"rest","url":"https://api.binance.com/api/v3/depth?symbol=BLZETH&limit=1000","frame":{…}}
//! ```
//!
//! Lines without `dir` are frames that were received. A `.json` file with `messages` is a session of Polymarket.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catchment_venues::stream::{Descriptor, Event, Wanted};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::rig::{Start, gap};
use crate::stage::{Session, Stage};

/// What was recorded, in order.
enum Line {
    Frame(String),
    Rest { url: String, body: String },
}

/// A stream that a recording holds: channel and symbol.
type Stream = (String, String);

#[derive(Default, Debug)]
struct Tally {
    files: usize,
    messages: usize,
    checks: u64,
    books: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_are_stored_byte_for_byte_and_every_checksum_and_sequence_agrees() {
    let Some(folder) = folder() else { return };
    let mut playing = JoinSet::new();
    for (venue, file) in recordings(&folder) {
        let name = file.strip_prefix(&folder).unwrap().display().to_string();
        if name.contains("TRIMMED") {
            eprintln!("{name}: not played, levels are cut and checksums cannot agree");
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = Arc::new(read(&text).unwrap_or_else(|reason| panic!("{name}: {reason}")));
        let descriptor = as_recorded(&venue, &text);
        let sockets = descriptor.sockets().iter().enumerate();
        for (socket, _) in sockets.filter(|(_, socket)| !socket.needs_login()) {
            playing.spawn(play(name.clone(), descriptor.clone(), socket, Arc::clone(&lines)));
        }
    }
    let mut tally = Tally::default();
    while let Some(played) = playing.join_next().await {
        let played = played.unwrap();
        tally.files += played.files;
        tally.messages += played.messages;
        tally.checks += played.checks;
        tally.books += played.books;
    }
    eprintln!("{tally:?}");
    assert!(tally.messages > 0, "no recording in {} holds anything", folder.display());
}

/// Where the recordings are, or nothing, and then it says so.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CATCHMENT_RECORDINGS") {
        let folder = PathBuf::from(named);
        assert!(folder.is_dir(), "CATCHMENT_RECORDINGS names {}, which is no folder", folder.display());
        return Some(folder);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/venues/samples");
    if !folder.is_dir() {
        eprintln!("skipped: there are no recordings in {}", folder.display());
        return None;
    }
    Some(folder)
}

/// Every recording of a venue whose descriptor ships.
fn recordings(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for descriptor in Descriptor::shipped() {
        let Ok(files) = std::fs::read_dir(folder.join(descriptor.id())) else { continue };
        for file in files {
            let path = file.unwrap().path();
            let is_session = path.file_name().is_some_and(|name| name == "ws-session.json");
            if is_session || path.extension().is_some_and(|extension| extension == "jsonl") {
                found.push((descriptor.id().to_owned(), path));
            }
        }
    }
    found.sort();
    found
}

fn read(text: &str) -> Result<Vec<Line>, String> {
    #[derive(Deserialize)]
    struct Written<'a> {
        dir: Option<String>,
        url: Option<String>,
        #[serde(borrow)]
        frame: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Session {
        messages: Vec<Message>,
    }
    #[derive(Deserialize)]
    struct Message {
        direction: String,
        raw: String,
    }
    if let Ok(session) = serde_json::from_str::<Session>(text) {
        let received = session.messages.into_iter().filter(|message| message.direction == "recv");
        return Ok(received.map(|message| Line::Frame(message.raw)).collect());
    }
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let written: Written<'_> =
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        match (written.dir.as_deref(), written.frame, written.url) {
            (None, _, _) => lines.push(Line::Frame(line.to_owned())),
            (Some("rx"), Some(frame), _) => lines.push(Line::Frame(text_of(frame))),
            (Some("rest"), Some(body), Some(url)) => {
                lines.push(Line::Rest { url, body: body.get().to_owned() });
            }
            (Some("tx"), _, _) => {}
            (Some(other), _, _) => {
                return Err(format!("line {}: a {other} line without all of it", number + 1));
            }
        }
    }
    Ok(lines)
}

/// A frame that is no JSON, `pong`, was recorded as a text.
fn text_of(frame: &RawValue) -> String {
    serde_json::from_str::<String>(frame.get()).unwrap_or_else(|_| frame.get().to_owned())
}

/// The shipped descriptor, asking for the depth that was recorded.
fn as_recorded(venue: &str, text: &str) -> Descriptor {
    let (file, shipped) =
        Descriptor::shipped_files().iter().find(|(file, _)| *file == format!("{venue}.toml")).unwrap();
    let number_after = |mark: &str| {
        let rest = text.split(mark).skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
        Some(rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().to_owned())
    };
    let mut own = (*shipped).to_owned();
    match venue {
        "kraken" => {
            if let Some(depth) = number_after("\"depth\":").or_else(|| number_after("\"depth\": ")) {
                own = own.replace("\"depth\":10'", &format!("\"depth\":{depth}'"));
                own = own.replace("\ndepth = 10\n", &format!("\ndepth = {depth}\n"));
            }
        }
        "bybit" => {
            let mut deep =
                text.split("orderbook.").skip(1).map(|rest| rest.split('.').next().unwrap_or_default());
            if let Some(depth) = deep.find(|depth| *depth != "1") {
                own = own.replace("orderbook.200.", &format!("orderbook.{depth}."));
            }
        }
        "binance" if !text.contains("@depth@100ms") => own = own.replace("@depth@100ms", "@depth"),
        _ => {}
    }
    Descriptor::read(file, &own).unwrap()
}

/// Plays one socket's part of a recording, if it has one.
async fn play(name: String, descriptor: Descriptor, socket: usize, lines: Arc<Vec<Line>>) -> Tally {
    let streams = streams_of(&descriptor, socket, &lines);
    if streams.is_empty() {
        return Tally::default();
    }
    let wanted: Vec<Wanted> =
        streams.iter().map(|(channel, symbol)| descriptor.want(channel, symbol).unwrap()).collect();
    let is_book = |wanted: &&Wanted| descriptor.channels()[wanted.channel].book.is_some();
    let books: Vec<&Wanted> = wanted.iter().filter(is_book).collect();
    let has_rest = lines.iter().any(|line| matches!(line, Line::Rest { .. }));
    let books_live =
        books.iter().filter(|book| has_rest || descriptor.channels()[book.channel].snapshot_first);
    let books_live = books_live.count();
    let mut reader = descriptor.reader(socket, &wanted);
    let mut expected = Vec::new();
    let mut script = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Line::Frame(frame) = line else { continue };
        let mut events = Vec::new();
        reader.read(frame.as_bytes(), &mut events);
        // Answers to the commands of whoever recorded it are no answers to ours.
        let answers = |event: &Event<'_>| {
            matches!(event, Event::Ack(_) | Event::Refused { .. } | Event::ReconnectSoon { .. })
        };
        if events.iter().any(answers) {
            continue;
        }
        for event in &events {
            if let Event::Data(data) = event {
                let (channel, symbol) = &streams[data.wanted as usize];
                let payload = data.text.replace('\n', " ");
                expected.push((channel.clone(), symbol.clone(), payload));
            }
        }
        script.push((at, frame.clone()));
    }

    let sent = Arc::new(AtomicUsize::new(0));
    let answers: Vec<(usize, String, String)> = lines.iter().enumerate().filter_map(rest_of).collect();
    let position = Arc::clone(&sent);
    let mut stage = Stage::start(move |path| {
        let now = position.load(Ordering::Relaxed);
        let fitting: Vec<_> = answers.iter().filter(|(_, url, _)| is_same_question(url, path)).collect();
        let newest = fitting.iter().rev().find(|(at, _, _)| *at <= now).or(fitting.first());
        newest.map_or((503, "{}".to_owned()), |(_, _, body)| (200, body.clone()))
    })
    .await;
    let named: Vec<(&str, &str)> = streams.iter().map(|(channel, symbol)| (&**channel, &**symbol)).collect();
    let mut rig = Start::described(descriptor.clone(), &named).on(&stage);
    let mut session = stage.session().await;
    subscribe(descriptor.id(), &mut session, &streams).await;
    for (at, frame) in script {
        sent.store(at, Ordering::Relaxed);
        session.say(frame).await;
    }
    let is_data = |channel: &str| streams.iter().any(|(known, _)| known == channel);
    let count = expected.len();
    rig.wait_until(&format!("{count} messages of {name}"), |rig| {
        rig.hashes().iter().filter(|(channel, _, _)| is_data(channel)).count() >= count
    })
    .await;
    rig.wait_status(&format!("{books_live} live books of {name}"), |status| {
        status.connections.iter().map(|connection| connection.books_live).sum::<usize>() >= books_live
    })
    .await;
    let stored: Vec<_> = rig.hashes().into_iter().filter(|(channel, _, _)| is_data(channel)).collect();
    let gaps: Vec<String> = rig.records("gaps").iter().map(gap).collect();
    let checks = rig.records("book_checks");
    let (_, status) = rig.finish().await;
    assert_eq!(stored.len(), count, "{name}");
    for (stored, (channel, symbol, payload)) in stored.into_iter().zip(expected) {
        assert_eq!(stored, (channel, symbol, xxh3_64(payload.as_bytes())), "{name}: {payload}");
    }
    assert_eq!(gaps, Vec::<String>::new(), "{name}");
    assert!(checks.is_empty(), "{name}: {checks:#?}");
    let counts = status.counts;
    assert_eq!((counts.checks_failed, counts.resyncs, counts.disconnects), (0, 0, 0), "{name}: {counts:?}");
    assert_eq!((counts.duplicates, counts.late, counts.garbled), (0, 0, 0), "{name}: {counts:?}");
    eprintln!(
        "{name}: {count} messages of {} streams, {books_live} books, {} checksums",
        streams.len(),
        counts.checks_agreed
    );
    Tally { files: 1, messages: count, checks: counts.checks_agreed, books: books_live }
}

/// The streams of a socket that the frames hold. A book that never begins in the recording is left out.
fn streams_of(descriptor: &Descriptor, socket: usize, lines: &[Line]) -> Vec<Stream> {
    let mut names = BTreeSet::new();
    for line in lines {
        let Line::Frame(frame) = line else { continue };
        if let Ok(value) = serde_json::from_str::<Value>(frame) {
            collect_names(&value, &mut names);
        }
    }
    let symbols = names.iter().map(|native| descriptor.unified(native).unwrap_or_else(|| native.clone()));
    let symbols: BTreeSet<String> = symbols.collect();
    let mut asked: Vec<(Stream, Wanted)> = Vec::new();
    for index in &descriptor.sockets()[socket].channels {
        let spec = &descriptor.channels()[*index];
        let channel = spec.name.as_str();
        let of_channel = symbols.iter().take(if spec.venue_wide { 1 } else { symbols.len() });
        asked.extend(of_channel.filter_map(|symbol| {
            let wanted = descriptor.want(channel, symbol).ok()?;
            Some(((channel.to_owned(), wanted.instrument.symbol.clone()), wanted))
        }));
    }
    let table: Vec<Wanted> = asked.iter().map(|(_, wanted)| wanted.clone()).collect();
    let mut reader = descriptor.reader(socket, &table);
    let (mut seen, mut begun) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        let Line::Frame(frame) = line else { continue };
        let mut events = Vec::new();
        reader.read(frame.as_bytes(), &mut events);
        for event in &events {
            let Event::Data(data) = event else { continue };
            for place in data.also.iter().chain([&data.wanted]) {
                seen.insert(*place);
                if data.is_snapshot {
                    begun.insert(*place);
                }
            }
        }
    }
    let begins = |place: &u32| {
        let spec = &descriptor.channels()[table[*place as usize].channel];
        spec.book.is_none() || !spec.snapshot_first || begun.contains(place)
    };
    seen.iter().filter(|place| begins(place)).map(|place| asked[*place as usize].0.clone()).collect()
}

/// Everything that stands where venues name instruments.
fn collect_names(value: &Value, names: &mut BTreeSet<String>) {
    const KEYS: [&str; 7] = ["s", "symbol", "instId", "product_id", "asset_id", "stream", "topic"];
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    // `btcusdt@trade` and `orderbook.200.BTCUSDT` hold one.
                    Value::String(text) if KEYS.contains(&key.as_str()) => {
                        let name = text.split('@').next().unwrap_or_default();
                        let is_topic = key == "topic";
                        let name = if is_topic { name.rsplit('.').next().unwrap_or_default() } else { name };
                        let name = if key == "stream" { name.to_uppercase() } else { name.to_owned() };
                        names.insert(name);
                    }
                    value => collect_names(value, names),
                }
            }
        }
        _ => {}
    }
}

fn rest_of((at, line): (usize, &Line)) -> Option<(usize, String, String)> {
    match line {
        Line::Rest { url, body } => Some((at, url.clone(), body.clone())),
        Line::Frame(_) => None,
    }
}

/// Whether the recorded address and the path asked for now are about the same: not its depth, and on whatever host.
fn is_same_question(url: &str, path: &str) -> bool {
    let recorded = url.split_once("://").map_or(url, |(_, rest)| rest);
    let recorded = recorded.find('/').map_or("", |at| &recorded[at..]);
    let parts = |text: &str| {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let told: BTreeSet<String> =
            query.split('&').filter(|pair| !pair.starts_with("limit=")).map(str::to_owned).collect();
        (path.to_owned(), told)
    };
    // With a limit of one it is a witness that is asked.
    !path.ends_with("limit=1") && parts(recorded) == parts(path)
}

/// Takes commands, as the venue would, until all streams are subscribed to.
async fn subscribe(venue: &str, session: &mut Session, streams: &[Stream]) {
    let symbols: BTreeSet<&str> =
        streams.iter().map(|(_, symbol)| &**symbol).filter(|symbol| *symbol != "*").collect();
    let mut left = if venue == "polymarket" { symbols.len() } else { streams.len() };
    let mut listed = Vec::new();
    while left > 0 {
        let command: Value = serde_json::from_str(&session.heard().await).unwrap();
        let args = ["/params/symbol", "/params", "/args", "/product_ids", "/assets_ids"];
        let args = args.iter().find_map(|at| command.pointer(at)?.as_array()).unwrap().clone();
        left = left.checked_sub(args.len()).unwrap_or_else(|| panic!("more than was asked for: {command}"));
        let answers = match venue {
            "binance" => vec![json!({"result": null, "id": command["id"]})],
            "bybit" => {
                vec![
                    json!({"success": true, "ret_msg": "subscribe", "conn_id": "c", "req_id": command["req_id"], "op": "subscribe"}),
                ]
            }
            "okx" => {
                let answer =
                    |arg| json!({"event": "subscribe", "arg": arg, "id": command["id"], "connId": "c"});
                args.iter().map(answer).collect()
            }
            "kraken" => {
                let answer = |symbol| {
                    let mut result = command["params"].clone();
                    result["symbol"] = Value::clone(symbol);
                    json!({"method": "subscribe", "result": result, "success": true, "req_id": command["req_id"]})
                };
                args.iter().map(answer).collect()
            }
            "coinbase" => {
                listed.push(json!({"name": command["channels"][0], "product_ids": args}));
                vec![json!({"type": "subscriptions", "channels": listed})]
            }
            _ => Vec::new(),
        };
        for answer in answers {
            session.say(answer.to_string()).await;
        }
    }
}
