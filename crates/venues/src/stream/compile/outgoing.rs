//! What is sent: commands, logins and requests, each tried once.

use super::reading::parsed;
use super::{Around, Checked, unknown_endpoint};
use crate::stream::command::{self, CommandForm, Commands};
use crate::stream::error::KeyPath;
use crate::stream::login::{self, Encoding, Login};
use crate::stream::rest::{self, Failed, Rest, RestRequest, TimeRequest, WitnessRequest};
use crate::stream::template::Template;
use crate::stream::written::{LoginToml, PerToml, RestToml, SocketToml, SubscribeToml, WitnessToml};
use crate::stream::{ChannelSpec, SocketSpec, Spelled};

pub(super) fn commands(socket: &SocketToml, at: &KeyPath) -> Checked<Commands> {
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

pub(super) fn compile_login(written: &LoginToml, at: &KeyPath) -> Checked<Login> {
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
        ahead_ms: i64::from(written.ahead_ms),
    };
    if !login.send.has(4) {
        return Err(at.key("send").wrong("must have a place for the {signature}"));
    }
    is_json(&login.send.with(&["1", "1", "k", "p", "s", "1"]), &at.key("send"))?;
    Ok(login)
}

pub(super) fn compile_rest(written: &RestToml, around: &Around<'_>, at: &KeyPath) -> Checked<Rest> {
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

pub(super) fn witness(written: &WitnessToml, around: &Around<'_>, at: &KeyPath) -> Checked<WitnessRequest> {
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

pub(super) fn rest_request(
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
pub(super) fn try_commands(
    sockets: &[SocketSpec],
    channels: &[ChannelSpec],
    example: &Spelled,
) -> Checked<()> {
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
