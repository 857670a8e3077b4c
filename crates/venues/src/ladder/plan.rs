//! A form made ready for reading: its pointers as a tree, so that one pass over a message finds all of them.

use super::form::{Act, BookForm, Checksum, LevelForm, MessageForm, Place, SequenceRule};

/// Members that are noted of a message, and again of an item.
pub(super) const SLOTS: usize = 16;
/// Members of one object that are looked for; reading has a bit for each.
const MEMBERS_MAX: usize = 64;
/// Lists of levels that the messages of a venue may have.
const LISTS_MAX: usize = 64;

/// A form made ready: made once, shared by the ladders of a channel.
#[derive(Debug)]
pub struct BookPlan {
    pub(super) stream: Reading,
    pub(super) rest: Option<Reading>,
    pub(super) stream_snapshots: bool,
    pub(super) sequence: SequenceRule,
    pub(super) restart: Option<i64>,
    pub(super) depth: Option<usize>,
    pub(super) checksum: Option<Checksum>,
    pub(super) levels_max: usize,
    pub(super) buffer_messages_max: usize,
    pub(super) buffer_bytes_max: usize,
}

/// Why a form cannot be used: which part of it, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {reason}")]
pub struct FormError {
    /// The part, as `messages.1.bids`.
    pub part: String,
    /// What is wrong with it.
    pub reason: String,
}

impl BookPlan {
    /// Makes a form ready, or says what is wrong with it.
    pub fn new(form: &BookForm) -> Result<Self, FormError> {
        if form.messages.is_empty() {
            return Err(error("messages", "there are none"));
        }
        if form.depth == Some(0) {
            return Err(error("depth", "must be at least 1"));
        }
        if let Some(Checksum::Crc32 { levels: 0, .. }) = form.checksum {
            return Err(error("checksum", "must be over at least one level"));
        }
        if form.buffer_messages_max == 0 || form.levels_max == 0 {
            return Err(error("levels_max", "limits must be at least 1"));
        }
        let stream = Reading::new("messages", &form.messages, form)?;
        let rest = form.rest.as_ref().map(|rest| {
            let rest = MessageForm { act: Act::Snapshot, when: Vec::new(), ..rest.clone() };
            Reading::new("rest", std::slice::from_ref(&rest), form)
        });
        let acts = |act| form.messages.iter().any(|message| message.act == act);
        if !acts(Act::Snapshot) && form.rest.is_none() {
            return Err(error("messages", "no message is a snapshot, and there is no `rest`"));
        }
        Ok(Self {
            stream,
            rest: rest.transpose()?,
            stream_snapshots: form.stream_snapshots || form.rest.is_none(),
            sequence: form.sequence,
            restart: form.restart,
            depth: form.depth,
            checksum: form.checksum.clone(),
            levels_max: form.levels_max,
            buffer_messages_max: form.buffer_messages_max,
            buffer_bytes_max: form.buffer_bytes_max,
        })
    }

    /// Whether the first book must be asked for over REST.
    pub fn snapshot_over_rest(&self) -> bool {
        !self.stream_snapshots
    }
}

/// How one kind of bytes (frames of the stream, answers of REST) is read.
#[derive(Debug)]
pub(super) struct Reading {
    /// The first is the message's own.
    pub(super) nodes: Vec<Node>,
    pub(super) lists: Vec<List>,
    pub(super) kinds: Vec<Kind>,
    /// How many members each scope has.
    pub(super) slots: Vec<usize>,
}

/// An object or array on the way to something that is looked for.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) members: Vec<(Box<[u8]>, Target)>,
    /// The members' names as words, those of less than eight bytes.
    words: Vec<u64>,
    pub(super) elements: Vec<(usize, Target)>,
}

/// What a member is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A text, number or flag that is noted.
    Slot(u8),
    /// A list of levels.
    List(u8),
    /// More to find inside.
    Node(u16),
    /// The items: an object or an array of objects.
    Items { node: u16, scope: u8 },
}

/// A list of levels.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) shape: Shape,
    /// Nothing: each level says.
    pub(super) side: Option<Side>,
    pub(super) bid: Vec<Box<[u8]>>,
    pub(super) ask: Vec<Box<[u8]>>,
    pub(super) skip_price_0: bool,
}

/// How a level is spelled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Array { price: usize, size: usize, side: Option<usize> },
    Object { price: Box<[u8]>, size: Box<[u8]>, side: Option<Box<[u8]>> },
}

/// Which side of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who wants to buy.
    Bid,
    /// Who wants to sell.
    Ask,
}

/// Where a noted member is: in the item, or in the message around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) slot: u8,
    pub(super) outer: bool,
}

/// One kind of message, ready.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) scope: u8,
    pub(super) act: Act,
    pub(super) when: Vec<(Member, Vec<Box<[u8]>>)>,
    pub(super) instrument: Option<Member>,
    pub(super) first: Option<Member>,
    pub(super) last: Option<Member>,
    pub(super) previous: Option<Member>,
    pub(super) checksum: Option<Member>,
    pub(super) single: Option<Single>,
    /// The lists it reads, a bit each.
    pub(super) lists: u64,
    pub(super) market: Option<Member>,
    pub(super) timestamp: Option<Member>,
    pub(super) min_order_size: Option<Member>,
    pub(super) tick_size: Option<Member>,
    pub(super) neg_risk: Option<Member>,
    pub(super) last_trade_price: Option<Member>,
}

/// An item that is itself a level.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) price: Member,
    pub(super) size: Member,
    pub(super) side: Member,
    pub(super) list: u8,
}

impl Reading {
    /// The kind of an item: the first that fits and whose levels are there, or else the first that fits.
    pub(super) fn kind(&self, fits: impl Fn(&Kind) -> bool, lists: u64) -> Option<&Kind> {
        let mut fitting = self.kinds.iter().filter(|kind| fits(kind));
        let first = fitting.next()?;
        let complete = |kind: &&Kind| kind.lists == 0 || kind.lists & lists != 0;
        if complete(&first) { Some(first) } else { fitting.find(complete).or(Some(first)) }
    }

    fn new(name: &str, forms: &[MessageForm], whole: &BookForm) -> Result<Self, FormError> {
        let mut reading =
            Self { nodes: vec![Node::default()], lists: Vec::new(), kinds: Vec::new(), slots: vec![0] };
        let mut scopes: Vec<(String, u16)> = vec![(String::new(), 0)];
        for (at, form) in forms.iter().enumerate() {
            let part = |field: &str| match name {
                "rest" => format!("rest.{field}"),
                _ => format!("{name}.{at}.{field}"),
            };
            let scope = reading.scope(&form.item, &mut scopes).map_err(|why| error(&part("item"), &why))?;
            let base = scopes[scope].1;
            let mut maker = Maker { reading: &mut reading, scope, base };
            let kind = maker.kind(form, whole, &part)?;
            reading.kinds.push(kind);
        }
        Ok(reading)
    }

    /// The scope of items at `pointer`, and its node.
    fn scope(&mut self, pointer: &str, scopes: &mut Vec<(String, u16)>) -> Result<usize, String> {
        if let Some(at) = scopes.iter().position(|(item, _)| item == pointer) {
            return Ok(at);
        }
        if !pointer.starts_with('/') {
            return Err("must begin with `/`".to_owned());
        }
        let scope = scopes.len();
        let node = self.add_node()?;
        let target =
            Target::Items { node, scope: u8::try_from(scope).map_err(|_| "there are too many".to_owned())? };
        self.place(0, &pointer[1..], target)?;
        scopes.push((pointer.to_owned(), node));
        self.slots.push(0);
        Ok(scope)
    }

    fn add_node(&mut self) -> Result<u16, String> {
        self.nodes.push(Node::default());
        u16::try_from(self.nodes.len() - 1).map_err(|_| "there are too many".to_owned())
    }

    /// Puts `target` where `pointer` leads from a node. What is there already must be the same.
    fn place(&mut self, from: u16, pointer: &str, target: Target) -> Result<(), String> {
        if pointer.is_empty() {
            return Err("is empty".to_owned());
        }
        let mut node = from;
        let mut steps = pointer.split('/').peekable();
        while let Some(step) = steps.next() {
            let step = step.replace("~1", "/").replace("~0", "~");
            let found = self.nodes[usize::from(node)].find(&step);
            if steps.peek().is_none() {
                return match found {
                    None => self.nodes[usize::from(node)].add(&step, target),
                    Some(there) if there == target => Ok(()),
                    Some(_) => Err(format!("`{pointer}` is already something else")),
                };
            }
            node = match found {
                Some(Target::Node(inner)) => inner,
                Some(_) => return Err(format!("`{pointer}` leads through something that is read whole")),
                None => {
                    let inner = self.add_node()?;
                    self.nodes[usize::from(node)].add(&step, Target::Node(inner))?;
                    inner
                }
            };
        }
        Ok(())
    }

    /// What is already at a pointer.
    fn at(&self, from: u16, pointer: &str) -> Option<Target> {
        let mut node = from;
        let mut steps = pointer.split('/').peekable();
        while let Some(step) = steps.next() {
            let found = self.nodes[usize::from(node)].find(&step.replace("~1", "/").replace("~0", "~"))?;
            match (found, steps.peek()) {
                (found, None) => return Some(found),
                (Target::Node(inner), Some(_)) => node = inner,
                _ => return None,
            }
        }
        None
    }
}

/// Makes one kind.
struct Maker<'r> {
    reading: &'r mut Reading,
    scope: usize,
    base: u16,
}

impl Maker<'_> {
    fn kind(
        &mut self,
        form: &MessageForm,
        whole: &BookForm,
        part: &dyn Fn(&str) -> String,
    ) -> Result<Kind, FormError> {
        let mut member = |pointer: &Option<String>, field: &str| {
            let found = pointer.as_ref().map(|pointer| self.member(pointer));
            found.transpose().map_err(|why| error(&part(field), &why))
        };
        let mut kind = Kind {
            scope: 0,
            act: form.act,
            when: Vec::new(),
            instrument: member(&form.instrument, "instrument")?,
            first: member(&form.first, "first")?,
            last: member(&form.last, "last")?,
            previous: member(&form.previous, "previous")?,
            checksum: member(&form.checksum, "checksum")?,
            single: None,
            lists: 0,
            market: member(&form.terms.market, "terms.market")?,
            timestamp: member(&form.terms.timestamp, "terms.timestamp")?,
            min_order_size: member(&form.terms.min_order_size, "terms.min_order_size")?,
            tick_size: member(&form.terms.tick_size, "terms.tick_size")?,
            neg_risk: member(&form.terms.neg_risk, "terms.neg_risk")?,
            last_trade_price: member(&form.terms.last_trade_price, "terms.last_trade_price")?,
        };
        kind.scope = u8::try_from(self.scope).expect("checked when the scope was made");
        for when in &form.when {
            let at = self.member(&when.at).map_err(|why| error(&part("when"), &why))?;
            kind.when.push((at, boxed(when.is.as_slice())));
        }
        if !matches!(form.act, Act::Snapshot | Act::Delta) {
            return Ok(kind);
        }
        self.levels(form, &mut kind, part)?;
        let missing = match whole.sequence {
            SequenceRule::None => None,
            SequenceRule::Range if form.act == Act::Delta && kind.first.is_none() => Some("first"),
            SequenceRule::Linked if form.act == Act::Delta && kind.previous.is_none() => Some("previous"),
            _ if kind.last.is_none() => Some("last"),
            _ => None,
        };
        match missing {
            Some(field) => Err(error(&part(field), "the sequence rule needs it")),
            None => Ok(kind),
        }
    }

    fn levels(
        &mut self,
        form: &MessageForm,
        kind: &mut Kind,
        part: &dyn Fn(&str) -> String,
    ) -> Result<(), FormError> {
        if form.single {
            let mut place = |place: Option<&Place>, field: &str| match place {
                Some(Place::Key(key)) => self.member(key).map_err(|why| error(&part(field), &why)),
                _ => Err(error(&part(field), "must be a key, since the item is the level")),
            };
            let price = place(Some(&form.level.price), "level.price")?;
            let size = place(Some(&form.level.size), "level.size")?;
            let side = place(form.level.side.as_ref(), "level.side")?;
            let list = self.list(&form.level, None).map_err(|why| error(&part("level"), &why))?;
            kind.single = Some(Single { price, size, side, list });
            return Ok(());
        }
        let lists = [
            (&form.bids, Some(Side::Bid), "bids"),
            (&form.asks, Some(Side::Ask), "asks"),
            (&form.levels, None, "levels"),
        ];
        if lists.iter().all(|(pointer, ..)| pointer.is_none()) {
            return Err(error(&part("bids"), "neither `bids` and `asks` nor `levels` is given"));
        }
        for (pointer, side, field) in lists {
            let Some(pointer) = pointer else { continue };
            let list =
                self.place_list(pointer, &form.level, side).map_err(|why| error(&part(field), &why))?;
            kind.lists |= 1 << list;
        }
        Ok(())
    }

    fn place_list(&mut self, pointer: &str, level: &LevelForm, side: Option<Side>) -> Result<u8, String> {
        if pointer.starts_with('/') {
            return Err("must be given from the item, without `/` before it".to_owned());
        }
        if side.is_none() && level.side.is_none() {
            return Err("`level.side` must say where the side is".to_owned());
        }
        let list = self.list(level, side)?;
        // Two kinds may share a list (a snapshot and a delta that read alike).
        if let Some(Target::List(there)) = self.reading.at(self.base, pointer) {
            if self.reading.lists[usize::from(there)] != self.reading.lists[usize::from(list)] {
                return Err("another kind of message reads it otherwise".to_owned());
            }
            self.reading.lists.pop();
            return Ok(there);
        }
        self.reading.place(self.base, pointer, Target::List(list))?;
        Ok(list)
    }

    fn list(&mut self, level: &LevelForm, side: Option<Side>) -> Result<u8, String> {
        let own_side = if side.is_some() { None } else { level.side.as_ref() };
        let bytes = |key: &String| key.as_bytes().into();
        let shape = match (&level.price, &level.size, own_side) {
            (Place::Index(price), Place::Index(size), None) => {
                Shape::Array { price: *price, size: *size, side: None }
            }
            (Place::Index(price), Place::Index(size), Some(Place::Index(side))) => {
                Shape::Array { price: *price, size: *size, side: Some(*side) }
            }
            (Place::Key(price), Place::Key(size), None) => {
                Shape::Object { price: bytes(price), size: bytes(size), side: None }
            }
            (Place::Key(price), Place::Key(size), Some(Place::Key(side))) => {
                Shape::Object { price: bytes(price), size: bytes(size), side: Some(bytes(side)) }
            }
            _ => return Err("price, size and side must be all numbers or all keys".to_owned()),
        };
        let list = List {
            shape,
            side,
            bid: boxed(&level.bid),
            ask: boxed(&level.ask),
            skip_price_0: level.skip_price_0,
        };
        if self.reading.lists.len() == LISTS_MAX {
            return Err("there are too many lists".to_owned());
        }
        self.reading.lists.push(list);
        Ok(u8::try_from(self.reading.lists.len() - 1).expect("at most 64"))
    }

    /// The member at a pointer: `/…` from the message, otherwise from the item.
    fn member(&mut self, pointer: &str) -> Result<Member, String> {
        let (scope, base, outer, path) = match pointer.strip_prefix('/') {
            Some(path) => (0, 0, self.scope != 0, path),
            None => (self.scope, self.base, false, pointer),
        };
        if let Some(Target::Slot(slot)) = self.reading.at(base, path) {
            return Ok(Member { slot, outer });
        }
        let slot = self.reading.slots[scope];
        if slot == SLOTS {
            return Err(format!("there are more than {SLOTS} members to note"));
        }
        let slot = u8::try_from(slot).expect("fewer than 16");
        self.reading.place(base, path, Target::Slot(slot))?;
        self.reading.slots[scope] += 1;
        Ok(Member { slot, outer })
    }
}

impl Node {
    fn find(&self, step: &str) -> Option<Target> {
        let member =
            self.members.iter().find(|(key, _)| **key == *step.as_bytes()).map(|(_, target)| *target);
        let index = || step.parse::<usize>().ok();
        let element = || self.elements.iter().find(|(at, _)| Some(*at) == index()).map(|(_, target)| *target);
        member.or_else(element)
    }

    /// Which member is looked for under this name.
    #[inline]
    pub(super) fn member(&self, name: Name<'_>) -> Option<usize> {
        match name.word {
            Name::LONG => self.members.iter().position(|(wanted, _)| **wanted == *name.bytes),
            word => self.words.iter().position(|wanted| *wanted == word),
        }
    }

    /// A step that is a number is a member's name and an element's place: which of them shows when it is read.
    fn add(&mut self, step: &str, target: Target) -> Result<(), String> {
        if self.members.len() == MEMBERS_MAX {
            return Err(format!("there are more than {MEMBERS_MAX} members beside it"));
        }
        self.members.push((step.as_bytes().into(), target));
        self.words.push(short_word(step.as_bytes()));
        if let Ok(index) = step.parse::<usize>() {
            self.elements.push((index, target));
        }
        Ok(())
    }
}

/// The name of a member, as it stands in a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'m> {
    pub(super) bytes: &'m [u8],
    /// The same as one word, if it is known to be short.
    pub(super) word: u64,
    /// Whether it is written with escapes.
    pub(super) escaped: bool,
}

impl Name<'_> {
    /// Instead of a word. No short name has eight bytes.
    pub(super) const LONG: u64 = u64::MAX;
}

fn short_word(name: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    if name.len() >= bytes.len() {
        return Name::LONG;
    }
    bytes[..name.len()].copy_from_slice(name);
    u64::from_le_bytes(bytes)
}

fn boxed(texts: &[String]) -> Vec<Box<[u8]>> {
    texts.iter().map(|text| text.as_bytes().into()).collect()
}

fn error(part: &str, reason: &str) -> FormError {
    FormError { part: part.to_owned(), reason: reason.to_owned() }
}
