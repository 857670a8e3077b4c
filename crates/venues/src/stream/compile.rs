//! From a descriptor as written to one that works: every template and pointer compiled, every name looked up, every rule
//! tried once. Whatever is wrong is said here, with its key, and nowhere later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use catchment_model::{Channel, Venue};
use smallvec::smallvec;

use super::command::{self, CommandForm, Commands};
use super::error::{KeyPath, Wrong};
use super::login::{self, Encoding, Login};
use super::naming::{NAMES, Naming};
use super::paths::{PathsBuilder, Pointer, Slot, Take};
use super::reader::{Control, Listed, Reading, Reads, Route, SequenceAt, SymbolAt};
use super::rest::{self, Failed, Rest, RestRequest, TimeRequest, WitnessRequest};
use super::sequence::{Order, SequenceRule};
use super::template::Template;
use super::written::{
    ChannelScopeToml, ChannelToml, ControlIs, ControlToml, DescriptorToml, LimitToml, Literal, LoginToml,
    PerToml, RateToml, RequestToml, RestToml, RouteToml, SocketToml, SubscribeToml, SymbolsToml, WitnessToml,
};
use super::{ChannelKind, ChannelSpec, Compiled, Heartbeat, Rate, SocketRules, SocketSpec, Spelled};
use crate::ladder::BookPlan;
use crate::spec::Limit;

/// The format that this build reads.
const FORMAT: u32 = 1;
/// Nothing in a descriptor takes longer, or is a mistake in the unit.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3_600);

type Checked<T> = Result<T, Wrong>;

pub(super) fn compile(written: DescriptorToml) -> Checked<Compiled> {
    let top = KeyPath::default();
    if written.format != FORMAT {
        return Err(top
            .key("format")
            .wrong(format!("format {} is not known; this build reads {FORMAT}", written.format)));
    }
    let venue = Venue::new(&written.id).map_err(|error| top.key("id").wrong(error.to_string()))?;
    for (key, text) in [("name", &written.name), ("about", &written.about), ("docs", &written.docs)] {
        if text.trim().is_empty() {
            return Err(top.key(key).wrong("must not be empty"));
        }
    }
    let endpoints = endpoints(&written.endpoints, &top.key("endpoints"))?;
    let limits = limits(&written.limits, &top.key("limits"))?;
    let naming = naming(&written.symbols, &top.key("symbols"))?;
    let around = Around { endpoints: &endpoints, limits: &limits };
    let mut sockets = Vec::new();
    let mut channels = Vec::new();
    for (name, channel) in &written.channels {
        if !written.sockets.contains_key(&channel.socket) {
            let known: Vec<&str> = written.sockets.keys().map(String::as_str).collect();
            let reason = format!("there is no socket {:?}; there is {}", channel.socket, known.join(", "));
            return Err(top.key("channels").key(name).key("socket").wrong(reason));
        }
    }
    let channel_index = |name: &str| written.channels.keys().position(|key| key == name);
    for (index, (name, socket)) in written.sockets.iter().enumerate() {
        let at = top.key("sockets").key(name);
        let own: Vec<(&String, &ChannelToml)> =
            written.channels.iter().filter(|(_, channel)| channel.socket == *name).collect();
        if own.is_empty() {
            return Err(at.wrong("no channel comes through this socket"));
        }
        let mut paths = PathsBuilder::default();
        let mut route = route(&socket.route, &at.key("route"), &mut paths)?;
        let mut tags = Vec::new();
        for (channel_name, channel) in &own {
            let at = top.key("channels").key(channel_name);
            let spec =
                compile_channel(channel_name, channel, index, &socket.route, &around, &mut paths, &at)?;
            let number = channel_index(channel_name).expect("it is one of them");
            if matches!(route, Route::Tagged(..)) {
                let own_name = vec![spec.native.clone()];
                for tag in channel.frames.as_ref().unwrap_or(&own_name) {
                    if let Some((_, other)) =
                        tags.iter().find(|(known, _): &&(Box<[u8]>, usize)| **known == *tag.as_bytes())
                    {
                        let other = written.channels.keys().nth(*other).map_or("", String::as_str);
                        return Err(at.key("frames").wrong(format!("{tag:?} is already a frame of {other}")));
                    }
                    tags.push((tag.as_bytes().into(), number));
                }
            }
            channels.push((number, spec));
        }
        if let Route::Tagged(_, list) = &mut route {
            *list = tags;
        }
        let unless = slots_of(&socket.route.unless, &at.key("route").key("unless"), &mut paths)?;
        let mut controls = Vec::new();
        for (number, control) in socket.control.iter().enumerate() {
            controls.push(compile_control(control, &at.key("control").key(number), &mut paths)?);
        }
        let reading = Reading { paths: paths.build(), route, unless, controls };
        let Some(endpoint) = endpoints.keys().find(|known| **known == socket.endpoint).copied() else {
            return Err(at.key("endpoint").wrong(unknown_endpoint(&socket.endpoint, &endpoints)));
        };
        let commands = commands(socket, &at)?;
        let login = socket.login.as_ref().map(|login| compile_login(login, &at.key("login"))).transpose()?;
        if !(socket.path.is_empty() || socket.path.starts_with('/')) {
            return Err(at.key("path").wrong("must begin with a slash, or be left out"));
        }
        sockets.push(SocketSpec {
            name: name.clone(),
            endpoint,
            path: socket.path.clone(),
            channels: own.iter().filter_map(|(name, _)| channel_index(name)).collect(),
            rules: rules(socket, &at)?,
            commands,
            reading,
            login,
        });
    }
    channels.sort_by_key(|(number, _)| *number);
    let mut channels: Vec<ChannelSpec> = channels.into_iter().map(|(_, channel)| channel).collect();
    for (index, (name, channel)) in written.channels.iter().enumerate() {
        let Some(book) = &channel.feeds_book else { continue };
        let fed = channel_index(book).filter(|fed| channels[*fed].book.is_some());
        channels[index].feeds_book = Some(fed.ok_or_else(|| {
            let at = top.key("channels").key(name).key("feeds_book");
            at.wrong(format!("there is no channel {book:?} that makes a book"))
        })?);
    }
    let example = naming.spell(&written.symbols.example);
    let example = example.map_err(|reason| top.key("symbols").key("example").wrong(reason))?;
    try_commands(&sockets, &channels, &example)?;
    let rest = compile_rest(&written.rest, &around, &top.key("rest"))?;
    Ok(Compiled {
        venue,
        id: lasting(&written.id),
        name: written.name,
        about: written.about,
        docs: written.docs,
        endpoints,
        naming,
        limits,
        sockets,
        channels,
        rest,
    })
}

/// What requests refer to.
struct Around<'a> {
    endpoints: &'a BTreeMap<&'static str, String>,
    limits: &'a [Limit],
}

/// A name that lasts as long as the program. Descriptors are few, and the same name is kept once.
fn lasting(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<BTreeSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(kept);
    kept
}

fn endpoints(written: &BTreeMap<String, String>, at: &KeyPath) -> Checked<BTreeMap<&'static str, String>> {
    let mut endpoints = BTreeMap::new();
    for (name, url) in written {
        let at = at.key(name);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.is_empty() || name == "symbol" || !name.bytes().all(plain) {
            return Err(at.wrong("an endpoint's name holds only a-z, 0-9 and '_', and is not \"symbol\""));
        }
        let has_scheme = ["http://", "https://", "ws://", "wss://"].iter().any(|s| url.starts_with(s));
        if !has_scheme || url.contains(['?', '#', ' ']) || url.ends_with('/') {
            return Err(at.wrong(format!(
                "{url:?} is not a base address such as https://api.example, without a slash at its end"
            )));
        }
        endpoints.insert(lasting(name), url.clone());
    }
    Ok(endpoints)
}

fn unknown_endpoint(name: &str, endpoints: &BTreeMap<&'static str, String>) -> String {
    let known: Vec<&str> = endpoints.keys().copied().collect();
    format!("there is no endpoint {name:?}; there is {}", known.join(", "))
}

fn limits(written: &[LimitToml], at: &KeyPath) -> Checked<Vec<Limit>> {
    let mut limits: Vec<Limit> = Vec::new();
    for (number, limit) in written.iter().enumerate() {
        let at = at.key(number);
        if let Some(parent) = &limit.parent
            && !limits.iter().any(|known| known.family == parent)
        {
            return Err(at.key("parent").wrong(format!("there is no family {parent:?} above this one")));
        }
        if limit.budget == 0 || limit.cost == 0 || limit.cost > limit.budget {
            return Err(at.key("budget").wrong("must be at least 1 and at least what one request costs"));
        }
        limits.push(Limit {
            family: lasting(&limit.family),
            parent: limit.parent.as_deref().map(lasting),
            budget: limit.budget,
            window: duration(limit.window_ms, &at.key("window_ms"))?,
            cost: limit.cost,
        });
    }
    Ok(limits)
}

fn naming(written: &SymbolsToml, at: &KeyPath) -> Checked<Naming> {
    let rule = |key: &str, text: &str| {
        let rule = Template::compile(text, &NAMES).map_err(|reason| at.key(key).wrong(reason))?;
        let (has_base, has_quote) = (rule.has(0) || rule.has(2), rule.has(1) || rule.has(3));
        match (rule.has(4), has_base, has_quote) {
            (true, false, false) | (false, true, true) => Ok(rule),
            _ => Err(at
                .key(key)
                .wrong("must name both {base} and {quote} (or {BASE} and {QUOTE}), or else {id}")),
        }
    };
    let subscribe = rule("subscribe", &written.subscribe)?;
    let other = |key: &str, text: &Option<String>| {
        text.as_ref().map_or(Ok(subscribe.clone()), |text| rule(key, text))
    };
    let (frame, rest) = (other("frame", &written.frame)?, other("rest", &written.rest)?);
    Ok(Naming { subscribe, frame, rest, rename: written.rename.clone() })
}

fn rules(socket: &SocketToml, at: &KeyPath) -> Checked<SocketRules> {
    let some = |key: &str, number: u32| match number {
        0 => Err(at.key(key).wrong("must be at least 1")),
        number => Ok(number as usize),
    };
    let optional = |key: &str, ms: Option<u64>| ms.map(|ms| duration(ms, &at.key(key))).transpose();
    let beat = at.key("heartbeat");
    let heartbeat = Heartbeat {
        server_every: socket
            .heartbeat
            .server_every_ms
            .map(|ms| duration(ms, &beat.key("server_every_ms")))
            .transpose()?,
        ping_every: socket
            .heartbeat
            .ping_every_ms
            .map(|ms| duration(ms, &beat.key("ping_every_ms")))
            .transpose()?,
    };
    if socket.heartbeat.ping.is_some() != heartbeat.ping_every.is_some() {
        return Err(beat.wrong("ping and ping_every_ms belong together"));
    }
    let dead_after = duration(socket.dead_after_ms, &at.key("dead_after_ms"))?;
    let expected = heartbeat.server_every.or(heartbeat.ping_every);
    if expected.is_some_and(|every| every >= dead_after) {
        return Err(at.key("dead_after_ms").wrong("must be longer than the time between two heartbeats"));
    }
    Ok(SocketRules {
        subscriptions_max: some("subscriptions_max", socket.subscriptions_max)?,
        args_per_request: some("args_per_request", socket.args_per_request)?,
        request_bytes_max: some("request_bytes_max", socket.request_bytes_max)?,
        args_bytes_max: socket.args_bytes_max.map(|bytes| some("args_bytes_max", bytes)).transpose()?,
        commands: rate(&socket.commands, &at.key("commands"))?,
        connects: rate(&socket.connects, &at.key("connects"))?,
        lifetime: optional("lifetime_s", socket.lifetime_s.map(|s| s.saturating_mul(1_000)))?,
        subscribe_within: optional("subscribe_within_ms", socket.subscribe_within_ms)?,
        heartbeat,
        dead_after,
        frame_bytes_max: some("frame_bytes_max", socket.frame_bytes_max)?,
        split: socket.split,
    })
}

fn duration(ms: u64, at: &KeyPath) -> Checked<Duration> {
    let duration = Duration::from_millis(ms);
    if duration.is_zero() || duration > LONGEST {
        return Err(at.wrong(format!(
            "must be between 1 ms and {} days; is the unit right?",
            LONGEST.as_secs() / 86_400
        )));
    }
    Ok(duration)
}

fn rate(written: &RateToml, at: &KeyPath) -> Checked<Rate> {
    if written.count == 0 {
        return Err(at.key("count").wrong("must be at least 1"));
    }
    Ok(Rate { count: written.count, window: duration(written.window_ms, &at.key("window_ms"))? })
}

fn route(written: &RouteToml, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<Route> {
    match (&written.topic, &written.channel) {
        (Some(topic), None) if written.symbol.is_none() => {
            Ok(Route::Topic(one(topic, &at.key("topic"), paths)?))
        }
        (None, Some(channel)) => Ok(Route::Tagged(one(channel, &at.key("channel"), paths)?, Vec::new())),
        _ => Err(at.wrong("needs either `topic`, or `channel` and where the symbol is")),
    }
}

fn compile_channel(
    name: &str,
    written: &ChannelToml,
    socket: usize,
    route: &RouteToml,
    around: &Around<'_>,
    paths: &mut PathsBuilder,
    at: &KeyPath,
) -> Checked<ChannelSpec> {
    let channel = Channel::new(name).map_err(|error| at.wrong(error.to_string()))?;
    let venue_wide = written.scope == ChannelScopeToml::Venue;
    let by_topic = route.topic.is_some();
    let topic = written.topic.as_ref().map(|text| Template::compile(text, &["symbol"]));
    let topic = topic.transpose().map_err(|reason| at.key("topic").wrong(reason))?;
    match &topic {
        Some(topic) if !venue_wide && !topic.has(0) => {
            return Err(at.key("topic").wrong("must name the {symbol}, or the channel's scope be \"venue\""));
        }
        None if by_topic => return Err(at.wrong("needs a `topic`: its socket routes by topic")),
        _ => {}
    }
    if by_topic && (written.symbol.is_some() || written.frames.is_some()) {
        let key = if written.symbol.is_some() { "symbol" } else { "frames" };
        return Err(at.key(key).wrong("has no use here: the topic says which channel and instrument it is"));
    }
    let symbol = match (&written.symbol, &route.symbol) {
        _ if by_topic => smallvec![SymbolAt::Topic],
        _ if venue_wide => smallvec![SymbolAt::Venue],
        (Some(pointers), _) => {
            let all = pointers.as_slice().iter();
            all.map(|pointer| symbol_at(pointer, &at.key("symbol"), paths)).collect::<Checked<_>>()?
        }
        (None, Some(pointer)) => smallvec![symbol_at(pointer, &at.key("symbol"), paths)?],
        (None, None) => return Err(at.wrong("needs `symbol`: where the instrument's name is")),
    };
    let reads = Reads {
        symbol,
        id: written.id.as_ref().map(|id| one(id, &at.key("id"), paths)).transpose()?,
        time: match &written.time {
            Some(time) => Some((one(&time.at, &at.key("time").key("at"), paths)?, time.unit)),
            None => None,
        },
        sequence: sequence_at(written, at, paths)?,
        items: match &written.items {
            Some(items) => Some(slot(items, Take::Count, &at.key("items"), paths)?),
            None => None,
        },
        snapshot_when: written
            .snapshot_when
            .iter()
            .enumerate()
            .map(|(number, all)| conditions(all, &at.key("snapshot_when").key(number), paths))
            .collect::<Checked<_>>()?,
    };
    let request = |written: &RequestToml, at: &KeyPath| {
        rest_request(&written.get, &written.family, written.cost, around, true, at)
    };
    Ok(ChannelSpec {
        name: channel,
        kind: written.kind,
        socket,
        venue_wide,
        book: book(written, at)?,
        feeds_book: None,
        comes_unasked: written.comes_unasked,
        answers_to: written.answers_to.clone(),
        sequence: written.sequence.as_ref().map(|s| SequenceRule { order: s.rule, scope: s.scope }),
        quiet: written.quiet,
        snapshot_first: written.snapshot_first,
        native: written.name.clone().unwrap_or_else(|| name.to_owned()),
        params: written.params.clone().unwrap_or_default(),
        topic,
        reads,
        snapshot: written.snapshot.as_ref().map(|r| request(r, &at.key("snapshot"))).transpose()?,
        witness: written.witness.as_ref().map(|w| witness(w, around, &at.key("witness"))).transpose()?,
    })
}

fn book(written: &ChannelToml, at: &KeyPath) -> Checked<Option<Arc<BookPlan>>> {
    match (&written.book, written.kind) {
        (None, ChannelKind::BookDelta) => {
            Err(at.wrong("a channel of the kind \"book_delta\" needs a table `book`"))
        }
        (Some(_), kind) if kind != ChannelKind::BookDelta => {
            Err(at.key("book").wrong("has no use here: only channels of the kind \"book_delta\" make a book"))
        }
        (None, _) => Ok(None),
        (Some(form), _) => match BookPlan::new(form) {
            Ok(plan) => Ok(Some(Arc::new(plan))),
            Err(error) => {
                let part = error.part.split('.').fold(at.key("book"), |at, step| at.key(step));
                Err(part.wrong(error.reason))
            }
        },
    }
}

fn symbol_at(pointer: &str, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<SymbolAt> {
    let is_many = parsed(pointer, at)?.is_many();
    let slot = slot(pointer, Take::Value, at, paths)?;
    Ok(if is_many { SymbolAt::Many(slot) } else { SymbolAt::One(slot) })
}

fn sequence_at(written: &ChannelToml, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<Option<SequenceAt>> {
    let Some(sequence) = &written.sequence else { return Ok(None) };
    let at = at.key("sequence");
    match (sequence.rule, &sequence.first, &sequence.previous) {
        (Order::Linked, _, None) => return Err(at.wrong("a linked sequence needs `previous`")),
        (Order::Range, None, _) => return Err(at.wrong("a range needs `first`")),
        (Order::PlusOne | Order::Range | Order::Increasing, _, Some(_)) => {
            return Err(at.key("previous").wrong("has no use here: only the rule \"linked\" looks at it"));
        }
        _ => {}
    }
    Ok(Some(SequenceAt {
        first: sequence.first.as_ref().map(|p| one(p, &at.key("first"), paths)).transpose()?,
        last: one(&sequence.last, &at.key("last"), paths)?,
        previous: sequence.previous.as_ref().map(|p| one(p, &at.key("previous"), paths)).transpose()?,
    }))
}

fn compile_control(written: &ControlToml, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<Control> {
    let has_conditions = !(written.when.is_empty() && written.present.is_empty());
    if written.text.is_some() == has_conditions || written.text.is_some() && !written.absent.is_empty() {
        return Err(at.wrong("needs either `text`, or `when` or `present`"));
    }
    if written.is == ControlIs::Refused && written.reason.is_empty() {
        return Err(at.wrong("a refusal needs `reason`: where the venue says why"));
    }
    if written.listed.is_some() && written.is != ControlIs::Subscribed {
        return Err(at.key("listed").wrong("has no use here: only `is = \"subscribed\"` looks at it"));
    }
    if written.channel.is_some() && written.symbol.is_none() {
        return Err(at.key("channel").wrong("needs `symbol` beside it"));
    }
    let equals = conditions(&written.when, &at.key("when"), paths)?;
    let needs = equals
        .iter()
        .fold(slots_of(&written.present, &at.key("present"), paths)?, |bits, (s, _)| bits | s.bit());
    let mut optional = |key: &str, pointer: &Option<String>| {
        pointer.as_ref().map(|pointer| one(pointer, &at.key(key), paths)).transpose()
    };
    let (request, topic) = (optional("request", &written.request)?, optional("topic", &written.topic)?);
    let depth = optional("depth", &written.depth)?;
    let (channel, symbol) = (optional("channel", &written.channel)?, optional("symbol", &written.symbol)?);
    let reason = written.reason.iter().enumerate();
    let reason =
        reason.map(|(n, pointer)| one(pointer, &at.key("reason").key(n), paths)).collect::<Checked<_>>()?;
    let listed = match &written.listed {
        Some(listed) => {
            let at = at.key("listed");
            Some(Listed {
                list: parsed(&listed.list, &at.key("list"))?,
                channel: parsed(&listed.channel, &at.key("channel"))?,
                symbols: parsed(&listed.symbols, &at.key("symbols"))?,
            })
        }
        None => None,
    };
    Ok(Control {
        is: written.is,
        text: written.text.clone(),
        needs,
        lacks: slots_of(&written.absent, &at.key("absent"), paths)?,
        equals,
        request,
        topic,
        channel,
        symbol,
        depth,
        listed,
        reason,
    })
}

fn conditions(
    written: &BTreeMap<String, Literal>,
    at: &KeyPath,
    paths: &mut PathsBuilder,
) -> Checked<Vec<(Slot, Literal)>> {
    written
        .iter()
        .map(|(pointer, literal)| Ok((one(pointer, &at.key(pointer), paths)?, literal.clone())))
        .collect()
}

/// The bits of all these pointers.
fn slots_of(pointers: &[String], at: &KeyPath, paths: &mut PathsBuilder) -> Checked<u64> {
    pointers
        .iter()
        .enumerate()
        .try_fold(0, |bits, (n, pointer)| Ok(bits | one(pointer, &at.key(n), paths)?.bit()))
}

fn parsed(pointer: &str, at: &KeyPath) -> Checked<Pointer> {
    Pointer::read(pointer).map_err(|reason| at.wrong(reason))
}

fn slot(pointer: &str, take: Take, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<Slot> {
    paths.slot(&parsed(pointer, at)?, take).map_err(|reason| at.wrong(reason))
}

/// The slot of a pointer that names one value.
fn one(pointer: &str, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<Slot> {
    if parsed(pointer, at)?.is_many() {
        return Err(at.wrong(format!("{pointer:?} names several values, and one is needed here")));
    }
    slot(pointer, Take::Value, at, paths)
}

fn commands(socket: &SocketToml, at: &KeyPath) -> Checked<Commands> {
    let form = |written: &SubscribeToml, at: &KeyPath| {
        let compile = |key: &str, text: &str, names: &[&str]| {
            Template::compile(text, names).map_err(|reason| at.key(key).wrong(reason))
        };
        let send = compile("send", &written.send, &command::SEND_NAMES)?;
        let first =
            written.first.as_ref().map(|text| compile("first", text, &command::SEND_NAMES)).transpose()?;
        let per_channel = written.per == PerToml::Channel;
        for (key, template) in [("send", Some(&send)), ("first", first.as_ref())] {
            let Some(template) = template else { continue };
            if !template.has(0) {
                return Err(at.key(key).wrong("must have a place for the {args}"));
            }
            if !per_channel && (template.has(2) || template.has(3)) {
                return Err(at.key(key).wrong("names a channel, so it needs `per = \"channel\"`"));
            }
        }
        Ok(CommandForm { send, first, arg: compile("arg", &written.arg, &command::ARG_NAMES)?, per_channel })
    };
    let ping = socket.heartbeat.ping.as_ref().map(|text| Template::compile(text, &["id"]));
    Ok(Commands {
        subscribe: form(&socket.subscribe, &at.key("subscribe"))?,
        unsubscribe: socket
            .unsubscribe
            .as_ref()
            .map(|written| form(written, &at.key("unsubscribe")))
            .transpose()?,
        ping: ping.transpose().map_err(|reason| at.key("heartbeat").key("ping").wrong(reason))?,
    })
}

fn compile_login(written: &LoginToml, at: &KeyPath) -> Checked<Login> {
    let compile = |key: &str, text: &str, names: &[&str]| {
        Template::compile(text, names).map_err(|reason| at.key(key).wrong(reason))
    };
    if written.signature == Encoding::Text {
        return Err(at.key("signature").wrong("must be \"hex\" or \"base64\""));
    }
    let login = Login {
        sign: compile("sign", &written.sign, &login::SIGN_NAMES)?,
        algorithm: written.algorithm,
        signature: written.signature,
        secret: written.secret,
        send: compile("send", &written.send, &login::SEND_NAMES)?,
    };
    if !login.send.has(4) {
        return Err(at.key("send").wrong("must have a place for the {signature}"));
    }
    is_json(&login.send.with(&["1", "1", "k", "p", "s", "1"]), &at.key("send"))?;
    Ok(login)
}

fn compile_rest(written: &RestToml, around: &Around<'_>, at: &KeyPath) -> Checked<Rest> {
    let time = match &written.time {
        Some(time) => {
            let at = at.key("time");
            Some(TimeRequest {
                request: rest_request(&time.get, &time.family, time.cost, around, false, &at)?,
                at: time.at.as_ref().map(|pointer| parsed(pointer, &at.key("at"))).transpose()?,
                unit: time.unit,
            })
        }
        None => None,
    };
    let failed = written.failed.iter().enumerate().map(|(number, failed)| {
        Ok(Failed {
            at: parsed(&failed.at, &at.key("failed").key(number).key("at"))?,
            unless: failed.unless.clone(),
            refused: failed.refused.clone(),
            unknown: failed.unknown.clone(),
        })
    });
    Ok(Rest { time, failed: failed.collect::<Checked<_>>()? })
}

fn witness(written: &WitnessToml, around: &Around<'_>, at: &KeyPath) -> Checked<WitnessRequest> {
    if written.id.is_none() && written.time.is_none() && written.mark.is_empty() {
        return Err(at.wrong("needs at least one of `id`, `time` and `mark`"));
    }
    Ok(WitnessRequest {
        request: rest_request(&written.get, &written.family, written.cost, around, true, at)?,
        id: written.id.as_ref().map(|pointer| parsed(pointer, &at.key("id"))).transpose()?,
        time: match &written.time {
            Some(time) => Some((parsed(&time.at, &at.key("time").key("at"))?, time.unit)),
            None => None,
        },
        mark: written
            .mark
            .iter()
            .enumerate()
            .map(|(n, pointer)| parsed(pointer, &at.key("mark").key(n)))
            .collect::<Checked<_>>()?,
    })
}

fn rest_request(
    get: &str,
    family: &str,
    cost: Option<u32>,
    around: &Around<'_>,
    needs_symbol: bool,
    at: &KeyPath,
) -> Checked<RestRequest> {
    let wrong = |reason: String| at.key("get").wrong(reason);
    let split = get.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    let (name, path) =
        split.ok_or_else(|| wrong("must begin with an endpoint in braces: \"{rest}/time\"".into()))?;
    let endpoint = around.endpoints.keys().find(|known| **known == name);
    let endpoint = *endpoint.ok_or_else(|| wrong(unknown_endpoint(name, around.endpoints)))?;
    if !path.starts_with('/') {
        return Err(wrong("must have a slash after the endpoint".into()));
    }
    let path = Template::compile(path, &rest::URL_NAMES).map_err(wrong)?;
    if path.has(0) != needs_symbol {
        let needs = if needs_symbol { "must name the {symbol}" } else { "cannot name a {symbol}" };
        return Err(wrong(needs.into()));
    }
    let Some(limit) = around.limits.iter().find(|limit| limit.family == family) else {
        let known: Vec<&str> = around.limits.iter().map(|limit| limit.family).collect();
        let reason = format!("there is no limit of the family {family:?}; there is {}", known.join(", "));
        return Err(at.key("family").wrong(reason));
    };
    let cost = cost.unwrap_or(limit.cost);
    if cost == 0 || cost > limit.budget {
        return Err(at
            .key("cost")
            .wrong(format!("must be between 1 and the family's budget, {}", limit.budget)));
    }
    Ok(RestRequest { endpoint, path, family: limit.family, cost })
}

/// Writes every command once with the example and reads it as JSON.
fn try_commands(sockets: &[SocketSpec], channels: &[ChannelSpec], example: &Spelled) -> Checked<()> {
    for socket in sockets {
        let at = KeyPath::default().key("sockets").key(&socket.name);
        let forms = [
            ("subscribe", Some(&socket.commands.subscribe)),
            ("unsubscribe", socket.commands.unsubscribe.as_ref()),
        ];
        for (key, form) in forms {
            let Some(form) = form else { continue };
            for channel in socket.channels.iter().map(|index| &channels[*index]) {
                let arg = form.arg(channel, example);
                is_json(&arg, &at.key(key).key("arg"))?;
                let two = format!("{arg},{arg}");
                if form.first.is_some() {
                    is_json(&form.text(true, &two, 1, channel), &at.key(key).key("first"))?;
                }
                let text = form.text(false, &two, 2, channel);
                is_json(&text, &at.key(key).key("send"))?;
                if text.len() > socket.rules.request_bytes_max {
                    return Err(at
                        .key("request_bytes_max")
                        .wrong("is too small for a command with two arguments"));
                }
            }
        }
    }
    Ok(())
}

fn is_json(text: &str, at: &KeyPath) -> Checked<()> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(at.wrong(format!("makes no JSON: {error}, in {text}"))),
    }
}
