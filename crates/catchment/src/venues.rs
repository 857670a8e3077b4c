//! `catchment venues`: what each venue can do, where it is and what it allows.

use std::path::Path;
use std::time::Duration;

use catchment_venues::stream::{ChannelSpec, Descriptor};
use catchment_venues::{Ability, Limit, VENUES, VenueSpec};
use serde_json::json;

use crate::{DONE, config};

pub(crate) fn run(config: Option<&Path>, json: bool) -> anyhow::Result<u8> {
    let described = config::described(config)?;
    if json {
        let polled = VENUES.iter().map(|spec| as_json(spec));
        let all: Vec<_> = polled.chain(described.all().iter().map(described_as_json)).collect();
        tell!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(DONE);
    }
    for (at, spec) in VENUES.iter().enumerate() {
        if at > 0 {
            tell!("");
        }
        tell_text!("{}", as_text(spec));
    }
    for descriptor in described.all() {
        tell_text!("\n{}", described_as_text(descriptor));
    }
    Ok(DONE)
}

fn described_as_text(descriptor: &Descriptor) -> String {
    let mut text = format!("{} ({}), streams: {}\n", descriptor.id(), descriptor.name(), descriptor.about());
    for (at, channel) in descriptor.channels().iter().enumerate() {
        let head = if at == 0 { "channels" } else { "" };
        text.push_str(&format!("  {head:<9}  {}{}\n", channel.name, channel_notes(channel)));
    }
    for (at, (name, url)) in descriptor.default_endpoints().enumerate() {
        let head = if at == 0 { "endpoints" } else { "" };
        text.push_str(&format!("  {head:<9}  {name} = {url}\n"));
    }
    for (at, socket) in descriptor.sockets().iter().enumerate() {
        let head = if at == 0 { "sockets" } else { "" };
        let (rules, name) = (&socket.rules, &socket.name);
        text.push_str(&format!(
            "  {head:<9}  {name}: {} streams a connection, {} connections in {}\n",
            rules.subscriptions_max,
            rules.connects.count,
            seconds(rules.connects.window)
        ));
    }
    text.push_str(&format!("  docs       {}\n", descriptor.docs()));
    text
}

fn channel_notes(channel: &ChannelSpec) -> String {
    let notes = [
        (channel.book.is_some(), "a live book is kept"),
        (channel.sequence.is_some(), "numbered"),
        (channel.has_witness(), "quiet is told from frozen"),
    ];
    let notes: Vec<&str> = notes.iter().filter(|(holds, _)| *holds).map(|(_, note)| *note).collect();
    if notes.is_empty() { String::new() } else { format!(": {}", notes.join(", ")) }
}

fn described_as_json(descriptor: &Descriptor) -> serde_json::Value {
    let endpoints: serde_json::Map<_, _> =
        descriptor.default_endpoints().map(|(name, url)| (name.to_owned(), url.into())).collect();
    let channels: Vec<_> = descriptor
        .channels()
        .iter()
        .map(|channel| {
            json!({
                "name": channel.name,
                "has_book": channel.book.is_some(),
                "is_numbered": channel.sequence.is_some(),
                "has_witness": channel.has_witness(),
            })
        })
        .collect();
    json!({
        "id": descriptor.id(),
        "name": descriptor.name(),
        "about": descriptor.about(),
        "docs": descriptor.docs(),
        "endpoints": endpoints,
        "channels": channels,
    })
}

fn as_text(spec: &VenueSpec) -> String {
    let mut text = format!("{} ({}): {}\n", spec.id, spec.name, spec.about);
    let abilities: Vec<String> = spec.abilities.iter().map(ability).collect();
    text.push_str(&format!("  can        {}\n", abilities.join(", ")));
    for (at, endpoint) in spec.endpoints.iter().enumerate() {
        let head = if at == 0 { "endpoints" } else { "" };
        text.push_str(&format!("  {head:<9}  {} = {}\n", endpoint.name, endpoint.url));
    }
    for (at, limit) in spec.limits.iter().enumerate() {
        let head = if at == 0 { "limits" } else { "" };
        text.push_str(&format!("  {head:<9}  {}\n", limit_text(limit)));
    }
    if spec.limits.is_empty() {
        text.push_str("  limits     none published; what it allows is learned\n");
    }
    text.push_str(&format!("  docs       {}\n", spec.docs));
    text
}

fn ability(ability: &Ability) -> String {
    match ability {
        Ability::Discovers => "list its markets".to_owned(),
        Ability::PollsOne => "give a book a request".to_owned(),
        Ability::PollsMany(most) => format!("give {most} books a request"),
    }
}

fn limit_text(limit: &Limit) -> String {
    let cost = if limit.cost == 1 { String::new() } else { format!(", {} a request", limit.cost) };
    let within = limit.parent.map_or(String::new(), |parent| format!(", counts for {parent} too"));
    format!("{}: {} in {}{cost}{within}", limit.family, limit.budget, seconds(limit.window))
}

fn seconds(window: Duration) -> String {
    match window.as_millis() % 1_000 {
        0 => format!("{} s", window.as_secs()),
        _ => format!("{} ms", window.as_millis()),
    }
}

fn as_json(spec: &VenueSpec) -> serde_json::Value {
    let endpoints: serde_json::Map<_, _> =
        spec.endpoints.iter().map(|endpoint| (endpoint.name.to_owned(), endpoint.url.into())).collect();
    let limits: Vec<_> = spec
        .limits
        .iter()
        .map(|limit| {
            json!({
                "family": limit.family,
                "parent": limit.parent,
                "budget": limit.budget,
                "window_ms": limit.window.as_millis() as u64,
                "cost": limit.cost,
            })
        })
        .collect();
    json!({
        "id": spec.id,
        "name": spec.name,
        "about": spec.about,
        "docs": spec.docs,
        "endpoints": endpoints,
        "limits": limits,
        "books_per_request": crate::config::books_at_once(spec),
    })
}
