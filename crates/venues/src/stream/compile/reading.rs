//! How frames are read: where they are routed by, what of them is noted, and which are no data.

use std::collections::BTreeMap;
use std::sync::Arc;

use catchment_model::Channel;
use smallvec::smallvec;

use super::outgoing::{rest_request, witness};
use super::{Around, Checked};
use crate::ladder::BookPlan;
use crate::stream::error::KeyPath;
use crate::stream::found::Slot;
use crate::stream::paths::{PathsBuilder, Take};
use crate::stream::pointer::Pointer;
use crate::stream::reader::{Control, Listed, Reads, Route, SequenceAt, SymbolAt};
use crate::stream::sequence::{Order, SequenceRule};
use crate::stream::template::Template;
use crate::stream::written::{
    ChannelScopeToml, ChannelToml, ControlIs, ControlToml, Literal, RequestToml, RouteToml,
};
use crate::stream::{ChannelKind, ChannelSpec};

pub(super) fn route(written: &RouteToml, at: &KeyPath, paths: &mut PathsBuilder) -> Checked<Route> {
    match (&written.topic, &written.channel) {
        (Some(topic), None) if written.symbol.is_none() => {
            Ok(Route::Topic(one(topic, &at.key("topic"), paths)?))
        }
        (None, Some(channel)) => Ok(Route::Tagged(one(channel, &at.key("channel"), paths)?, Vec::new())),
        _ => Err(at.wrong("needs either `topic`, or `channel` and where the symbol is")),
    }
}

pub(super) fn compile_channel(
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
        id: match &written.id {
            Some(ids) => {
                ids.as_slice().iter().map(|id| one(id, &at.key("id"), paths)).collect::<Checked<_>>()?
            }
            None => smallvec![],
        },
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

pub(super) fn compile_control(
    written: &ControlToml,
    at: &KeyPath,
    paths: &mut PathsBuilder,
) -> Checked<Control> {
    let has_conditions = !(written.when.is_empty() && written.present.is_empty());
    if written.text.is_some() == has_conditions || written.text.is_some() && !written.absent.is_empty() {
        return Err(at.wrong("needs either `text`, or `when` or `present`"));
    }
    if matches!(written.is, ControlIs::Refused | ControlIs::Already) && written.reason.is_empty() {
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
pub(super) fn slots_of(pointers: &[String], at: &KeyPath, paths: &mut PathsBuilder) -> Checked<u64> {
    pointers
        .iter()
        .enumerate()
        .try_fold(0, |bits, (n, pointer)| Ok(bits | one(pointer, &at.key(n), paths)?.bit()))
}

pub(super) fn parsed(pointer: &str, at: &KeyPath) -> Checked<Pointer> {
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
