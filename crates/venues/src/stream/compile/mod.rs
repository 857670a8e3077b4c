//! From a descriptor as written to one that works: every template and pointer compiled, every name looked up, every rule
//! tried once. Whatever is wrong is said here, with its key, and nowhere later.

mod outgoing;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use catchment_model::Venue;

use self::outgoing::{commands, compile_login, compile_rest, try_commands};
use self::reading::{compile_channel, compile_control, route, slots_of};
use super::error::{KeyPath, Wrong};
use super::naming::{NAMES, Naming};
use super::paths::PathsBuilder;
use super::reader::{Reading, Route};
use super::template::Template;
use super::written::{ChannelToml, DescriptorToml, LimitToml, RateToml, SocketToml, SymbolsToml};
use super::{ChannelSpec, Compiled, Heartbeat, Rate, SocketRules, SocketSpec};
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
    if let Some((name, channel)) =
        written.channels.iter().find(|(_, c)| !written.sockets.contains_key(&c.socket))
    {
        let known: Vec<&str> = written.sockets.keys().map(String::as_str).collect();
        let reason = format!("there is no socket {:?}; there is {}", channel.socket, known.join(", "));
        return Err(top.key("channels").key(name).key("socket").wrong(reason));
    }
    // Sockets compile their own channels, since these share their pointers; then all stand in the order of their names.
    let mut channels = BTreeMap::new();
    let mut sockets = Vec::new();
    for (name, socket) in &written.sockets {
        sockets.push(compile_socket(name, socket, &written.channels, sockets.len(), &around, &mut channels)?);
    }
    let mut channels: Vec<ChannelSpec> = channels.into_values().collect();
    for (index, (name, channel)) in written.channels.iter().enumerate() {
        let Some(book) = &channel.feeds_book else { continue };
        let fed = channels.iter().position(|fed| fed.name.as_str() == book && fed.book.is_some());
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

/// A socket, and the channels that come through it, each under its number.
fn compile_socket(
    name: &str,
    socket: &SocketToml,
    all: &BTreeMap<String, ChannelToml>,
    index: usize,
    around: &Around<'_>,
    channels: &mut BTreeMap<usize, ChannelSpec>,
) -> Checked<SocketSpec> {
    let top = KeyPath::default();
    let at = top.key("sockets").key(name);
    let mut paths = PathsBuilder::default();
    let mut route = route(&socket.route, &at.key("route"), &mut paths)?;
    let mut own = Vec::new();
    for (number, (name, channel)) in all.iter().enumerate().filter(|(_, (_, channel))| channel.socket == name)
    {
        let at = top.key("channels").key(name);
        let spec = compile_channel(name, channel, index, &socket.route, around, &mut paths, &at)?;
        if let Route::Tagged(_, tags) = &mut route {
            for tag in channel.frames.as_deref().unwrap_or(std::slice::from_ref(&spec.native)) {
                if let Some((_, other)) = tags.iter().find(|(known, _)| **known == *tag.as_bytes()) {
                    let other = all.keys().nth(*other).map_or("", String::as_str);
                    return Err(at.key("frames").wrong(format!("{tag:?} is already a frame of {other}")));
                }
                tags.push((tag.as_bytes().into(), number));
            }
        }
        own.push(number);
        channels.insert(number, spec);
    }
    if own.is_empty() {
        return Err(at.wrong("no channel comes through this socket"));
    }
    let unless = slots_of(&socket.route.unless, &at.key("route").key("unless"), &mut paths)?;
    let controls = socket.control.iter().enumerate();
    let controls = controls
        .map(|(number, control)| compile_control(control, &at.key("control").key(number), &mut paths))
        .collect::<Checked<_>>()?;
    let endpoint = match around.endpoints.iter().find(|(known, _)| **known == socket.endpoint) {
        Some((known, url)) if url.starts_with("ws") => *known,
        Some(_) => return Err(at.key("endpoint").wrong("must be one that begins with wss:// or ws://")),
        None => return Err(at.key("endpoint").wrong(unknown_endpoint(&socket.endpoint, around.endpoints))),
    };
    if !(socket.path.is_empty() || socket.path.starts_with('/')) {
        return Err(at.key("path").wrong("must begin with a slash, or be left out"));
    }
    Ok(SocketSpec {
        name: name.to_owned(),
        endpoint,
        path: socket.path.clone(),
        channels: own,
        rules: rules(socket, &at)?,
        commands: commands(socket, &at)?,
        reading: Reading { paths: paths.build(), route, unless, controls },
        login: socket.login.as_ref().map(|login| compile_login(login, &at.key("login"))).transpose()?,
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
