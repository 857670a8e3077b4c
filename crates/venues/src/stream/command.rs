//! What is sent to subscribe and to unsubscribe: commands that keep within what the venue takes.

use std::ops::Range;
use std::sync::Arc;

use super::template::{Template, json_escaped};
use super::{ChannelSpec, Descriptor, Spelled};

/// One channel of one instrument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// An index into [`Descriptor::channels`].
    pub channel: usize,
    /// Which instrument, as the venue spells it.
    pub instrument: Arc<Spelled>,
}

/// One frame to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What is sent.
    pub text: String,
    /// The number that an answer may give back; see [`Answer::request`](super::Answer::request).
    pub number: u64,
    /// Which of the wanted things it is about: indices into the list it was made from.
    pub covers: Vec<u32>,
}

/// The places of a whole command.
pub(super) const SEND_NAMES: [&str; 4] = ["args", "id", "channel", "params"];
/// The places of one of its arguments.
pub(super) const ARG_NAMES: [&str; 4] = ["symbol", "topic", "channel", "params"];

/// How commands of a socket are written.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) subscribe: CommandForm,
    pub(super) unsubscribe: Option<CommandForm>,
    /// Its only place is the number.
    pub(super) ping: Option<Template>,
}

#[derive(Debug)]
pub(super) struct CommandForm {
    pub(super) send: Template,
    pub(super) first: Option<Template>,
    pub(super) arg: Template,
    /// One command names one channel.
    pub(super) per_channel: bool,
}

impl Commands {
    pub(super) fn ping(&self, number: &mut u64) -> Option<String> {
        let ping = self.ping.as_ref()?;
        *number += 1;
        Some(ping.with(&[&number.to_string()]))
    }
}

/// An argument and all that it brings: where a venue sends several channels for one argument, several.
struct Arg {
    text: String,
    channel: usize,
    covers: Vec<u32>,
}

impl Descriptor {
    /// The commands that subscribe to all of these on one connection. `number` counts the commands of that connection:
    /// 0 when nothing has been sent yet, which some venues want to be told differently. A channel that comes without
    /// being asked for needs no command and is covered by none.
    pub fn subscribe(&self, socket: usize, wanted: &[Wanted], number: &mut u64) -> Vec<Command> {
        self.commands(socket, &self.0.sockets[socket].commands.subscribe, wanted, number)
    }

    /// The commands that end these subscriptions. Empty for a venue that cannot.
    pub fn unsubscribe(&self, socket: usize, wanted: &[Wanted], number: &mut u64) -> Vec<Command> {
        match &self.0.sockets[socket].commands.unsubscribe {
            Some(form) => self.commands(socket, form, wanted, number),
            None => Vec::new(),
        }
    }

    /// Splits what is wanted from one socket into what fits on a connection each: indices into `wanted`. What comes
    /// by one subscription stays together and counts once.
    pub fn shard(&self, socket: usize, wanted: &[Wanted]) -> Vec<Vec<u32>> {
        let rules = &self.0.sockets[socket].rules;
        let mut shards: Vec<Vec<u32>> = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        for arg in self.args(socket, &self.0.sockets[socket].commands.subscribe, wanted) {
            let full = count + 1 > rules.subscriptions_max
                || rules.args_bytes_max.is_some_and(|max| bytes + arg.text.len() > max);
            if shards.is_empty() || full && count > 0 {
                shards.push(Vec::new());
                (count, bytes) = (0, 0);
            }
            count += 1;
            bytes += arg.text.len();
            shards.last_mut().expect("one was just made").extend(&arg.covers);
        }
        // Whatever comes without being asked for goes with the first connection.
        let unasked =
            self.of_socket(socket, wanted).filter(|(_, w)| self.0.channels[w.channel].comes_unasked);
        let unasked: Vec<u32> = unasked.map(|(index, _)| index).collect();
        match shards.first_mut() {
            Some(first) => first.extend(unasked),
            None if !unasked.is_empty() => shards.push(unasked),
            None => {}
        }
        shards
    }

    fn of_socket<'a>(
        &'a self,
        socket: usize,
        wanted: &'a [Wanted],
    ) -> impl Iterator<Item = (u32, &'a Wanted)> {
        let all = wanted.iter().enumerate().map(|(index, wanted)| (index as u32, wanted));
        all.filter(move |(_, wanted)| self.0.channels[wanted.channel].socket == socket)
    }

    /// The arguments of all these in their order, equal ones once.
    fn args(&self, socket: usize, form: &CommandForm, wanted: &[Wanted]) -> Vec<Arg> {
        let mut args: Vec<Arg> = Vec::new();
        let mut known = std::collections::HashMap::new();
        for (index, wanted) in self.of_socket(socket, wanted) {
            let channel = &self.0.channels[wanted.channel];
            if channel.comes_unasked {
                continue;
            }
            let text = form.arg(channel, &wanted.instrument);
            // Where commands are made for one channel each, the same argument means something else in another one.
            let of_channel = form.per_channel.then_some(wanted.channel);
            let at = *known.entry((of_channel, text.clone())).or_insert_with(|| {
                args.push(Arg { text, channel: wanted.channel, covers: Vec::new() });
                args.len() - 1
            });
            args[at].covers.push(index);
        }
        args
    }

    fn commands(
        &self,
        socket: usize,
        form: &CommandForm,
        wanted: &[Wanted],
        number: &mut u64,
    ) -> Vec<Command> {
        let rules = &self.0.sockets[socket].rules;
        let mut args = self.args(socket, form, wanted);
        if form.per_channel {
            args.sort_by_key(|arg| arg.channel);
        }
        let mut commands = Vec::new();
        let mut from = 0;
        while from < args.len() {
            let channel = &self.0.channels[args[from].channel];
            // As long as the rest of the command can be, so that the whole stays within the limit.
            let frame = form.text(*number == 0, "", u64::MAX, channel).len();
            let mut bytes = frame + args[from].text.len();
            let mut to = from + 1;
            while to < args.len() && to - from < rules.args_per_request {
                let another_channel = form.per_channel && args[to].channel != args[from].channel;
                bytes += 1 + args[to].text.len();
                if another_channel || bytes > rules.request_bytes_max {
                    break;
                }
                to += 1;
            }
            commands.push(self.command(form, &args, from..to, number));
            from = to;
        }
        commands
    }

    fn command(&self, form: &CommandForm, args: &[Arg], range: Range<usize>, number: &mut u64) -> Command {
        let is_first = *number == 0;
        *number += 1;
        let args = &args[range];
        let texts: Vec<&str> = args.iter().map(|arg| arg.text.as_str()).collect();
        let channel = &self.0.channels[args[0].channel];
        Command {
            text: form.text(is_first, &texts.join(","), *number, channel),
            number: *number,
            covers: args.iter().flat_map(|arg| arg.covers.iter().copied()).collect(),
        }
    }
}

impl CommandForm {
    pub(super) fn text(&self, is_first: bool, args: &str, number: u64, channel: &ChannelSpec) -> String {
        let template = self.first.as_ref().filter(|_| is_first).unwrap_or(&self.send);
        template.with(&[args, &number.to_string(), &json_escaped(&channel.native), &channel.params])
    }

    pub(super) fn arg(&self, channel: &ChannelSpec, instrument: &Spelled) -> String {
        let topic =
            channel.topic.as_ref().map(|topic| topic.with(&[&instrument.subscribe])).unwrap_or_default();
        let (symbol, topic) = (json_escaped(&instrument.subscribe), json_escaped(&topic));
        self.arg.with(&[&symbol, &topic, &json_escaped(&channel.native), &channel.params])
    }
}
