//! Where values stand in a frame: JSON pointers, all of a socket's made into one tree, and the one walk that follows it.
//!
//! A pointer is RFC 6901's, `/data/u`, and two things more for arrays: `/data/-1/i` is of the last element, `/data/*/s`
//! of every one. The walk goes through the frame once from front to back, checks all of it, and notes where the values
//! are that somebody asked for. What it notes is a place in the frame; nothing is copied.
//!
//! A key that is asked for and stands twice in an object makes the frame ambiguous: it is refused.

use super::found::{Found, Place, SLOTS_MAX, Slot};
use super::keys::Keys;
use super::pointer::{Pointer, Step};
use super::scan::{self, Scanned, fault, skip_space, string_end, value_end};
use super::shape::Shape;
use crate::words::short_key;

/// The pointers of a socket while they are collected.
#[derive(Debug, Default)]
pub(super) struct PathsBuilder {
    wanted: Vec<(Pointer, Take)>,
}

/// What is noted of the value a pointer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// Where it is.
    Value,
    /// How many elements it has.
    Count,
}

impl PathsBuilder {
    /// The slot of this pointer, the same for equal ones.
    pub(super) fn slot(&mut self, pointer: &Pointer, take: Take) -> Result<Slot, String> {
        if pointer.0.contains(&Step::Every) && pointer.0.contains(&Step::Last) {
            return Err("has both '*' and '-1', and in a frame only one of them can be followed".to_owned());
        }
        let too_far =
            |step: &Step| matches!(step, Step::Key(key) if element(key).is_some_and(|n| n > ELEMENT_MAX));
        if pointer.0.iter().any(too_far) {
            return Err(format!("elements of an array can be named up to {ELEMENT_MAX}"));
        }
        let known = self.wanted.iter().position(|(p, t)| p == pointer && *t == take);
        let index = known.unwrap_or_else(|| {
            self.wanted.push((pointer.clone(), take));
            self.wanted.len() - 1
        });
        if index >= SLOTS_MAX {
            return Err(format!("more than {SLOTS_MAX} different pointers on one socket"));
        }
        Ok(Slot(index as u8))
    }

    pub(super) fn build(&self) -> Paths {
        let mut paths = Paths { nodes: Vec::new() };
        let all: Vec<Reach<'_>> = self
            .wanted
            .iter()
            .enumerate()
            .map(|(index, (pointer, take))| Reach {
                slot: Slot(index as u8),
                take: *take,
                many: pointer.is_many(),
                last: false,
                rest: &pointer.0,
            })
            .collect();
        paths.grow(&all);
        paths
    }
}

/// What is still to be walked of a pointer.
#[derive(Debug, Clone, Copy)]
struct Reach<'a> {
    slot: Slot,
    take: Take,
    many: bool,
    /// It goes through an array's last element, so whatever an earlier element left must go.
    last: bool,
    rest: &'a [Step],
}

/// The tree. Its root is the first node.
#[derive(Debug)]
pub(super) struct Paths {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    stores: Vec<(Slot, Store)>,
    keys: Keys,
    /// Nothing below it, and this alone to be noted: what most pointers end in.
    only: Option<Slot>,
    /// The nodes of the first elements, by number.
    elements: Vec<u16>,
    /// The node of the elements after those.
    others: Option<u16>,
    /// Slots that an element leaves empty unless it fills them anew.
    clears: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    One,
    Push,
    Count,
}

/// The highest element a pointer may name by number.
const ELEMENT_MAX: usize = 31;

impl Paths {
    /// Makes the node from which all these go on, and those below it.
    fn grow(&mut self, reaches: &[Reach<'_>]) -> u16 {
        let at = self.nodes.len();
        self.nodes.push(Node::default());
        let mut node = Node::default();
        let mut keys: Vec<&str> = Vec::new();
        let mut elements = 0;
        for reach in reaches {
            match reach.rest.first() {
                None => node.stores.push((
                    reach.slot,
                    match (reach.take, reach.many) {
                        (Take::Count, _) => Store::Count,
                        (Take::Value, true) => Store::Push,
                        (Take::Value, false) => Store::One,
                    },
                )),
                Some(Step::Key(key)) => {
                    if !keys.contains(&key.as_str()) {
                        keys.push(key);
                    }
                    if let Some(number) = element(key) {
                        elements = elements.max(number + 1);
                    }
                }
                Some(Step::Last | Step::Every) => {}
            }
        }
        let below = |keep: &dyn Fn(&Step) -> bool| -> Vec<Reach<'_>> {
            reaches
                .iter()
                .filter(|reach| reach.rest.first().is_some_and(keep))
                .map(|reach| Reach {
                    last: reach.last || reach.rest[0] == Step::Last,
                    rest: &reach.rest[1..],
                    ..*reach
                })
                .collect()
        };
        let children = keys
            .iter()
            .map(|key| (*key, self.grow(&below(&|step| matches!(step, Step::Key(k) if k == key)))));
        node.keys = Keys::new(children.collect());
        let any = |step: &Step| matches!(step, Step::Last | Step::Every);
        let others = below(&any);
        node.clears = others.iter().filter(|reach| reach.last).fold(0, |bits, reach| bits | reach.slot.bit());
        for number in 0..elements {
            let here = below(&|step| any(step) || matches!(step, Step::Key(k) if element(k) == Some(number)));
            let child = self.grow(&here);
            node.elements.push(child);
        }
        if !others.is_empty() {
            node.others = Some(self.grow(&others));
        }
        let is_leaf = node.keys.is_empty() && node.elements.is_empty() && node.others.is_none();
        node.only = match node.stores.as_slice() {
            [(slot, Store::One)] if is_leaf => Some(*slot),
            _ => None,
        };
        self.nodes[at] = node;
        at as u16
    }

    /// Walks the value that begins at `at` and notes what was asked for. The byte after it.
    #[inline]
    pub(super) fn walk(&self, bytes: &[u8], at: usize, found: &mut Found) -> Scanned<usize> {
        found.clear();
        self.value(&self.nodes[0], bytes, at, 0, found)
    }

    #[inline]
    fn value(&self, node: &Node, bytes: &[u8], at: usize, depth: u32, found: &mut Found) -> Scanned<usize> {
        let (end, escaped, count) = match bytes.get(at) {
            Some(b'"') => {
                let (quote, escaped) = string_end(bytes, at + 1)?;
                (quote + 1, escaped, 0)
            }
            Some(b'{') if !node.keys.is_empty() => {
                (self.object(node, bytes, at, depth + 1, found)?, false, 0)
            }
            Some(b'[') if !node.stores.is_empty() || node.others.is_some() || !node.elements.is_empty() => {
                let (end, count) = self.array(node, bytes, at, depth + 1, found)?;
                (end, false, count)
            }
            _ => (value_end(bytes, at, depth)?, false, 0),
        };
        for (slot, store) in &node.stores {
            let place = Place { start: at as u32, end: end as u32, escaped };
            match store {
                Store::One => found.set(*slot, place),
                Store::Push => found.push(*slot, place),
                Store::Count if bytes[at] == b'[' => {
                    found.set(*slot, Place { start: count, end: count, escaped: false });
                }
                Store::Count => {}
            }
        }
        Ok(end)
    }

    fn object(&self, node: &Node, bytes: &[u8], at: usize, depth: u32, found: &mut Found) -> Scanned<usize> {
        let mut at = skip_space(bytes, at + 1);
        if bytes.get(at) == Some(&b'}') {
            return Ok(at + 1);
        }
        let mut seen = 0_u64;
        loop {
            let (known, value_at) = match short_key(bytes, at) {
                Some((word, len, value_at)) => {
                    (node.keys.find_word(word, bytes, at + 1, at + 1 + len), value_at)
                }
                None => node.any_key(bytes, at)?,
            };
            at = match known {
                None => value_end(bytes, value_at, depth)?,
                Some((index, child)) => {
                    if seen & 1 << index != 0 {
                        return fault(bytes, at, "a key stands twice in one object");
                    }
                    seen |= 1 << index;
                    let child = &self.nodes[usize::from(child)];
                    match child.only {
                        Some(slot) => leaf(slot, bytes, value_at, depth, found)?,
                        None => self.value(child, bytes, value_at, depth, found)?,
                    }
                }
            };
            at = skip_space(bytes, at);
            match bytes.get(at) {
                Some(b',') => at = skip_space(bytes, at + 1),
                Some(b'}') => return Ok(at + 1),
                _ => return fault(bytes, at, "neither a comma nor a closing bracket"),
            }
        }
    }

    /// Notes the shape of a value that was walked. None: it has none.
    pub(super) fn learn(&self, bytes: &[u8], at: usize, shape: &mut Shape) -> Option<usize> {
        let mut done = at;
        let end = self.learn_value(&self.nodes[0], bytes, at, 0, (shape, &mut done))?;
        shape.finish(bytes.get(done..end)?);
        Some(end)
    }

    /// `done` is where the last value that was noted ends.
    fn learn_value(
        &self,
        node: &Node,
        bytes: &[u8],
        at: usize,
        depth: u32,
        (shape, done): (&mut Shape, &mut usize),
    ) -> Option<usize> {
        let looks_inside = match bytes.get(at)? {
            b'{' => !node.keys.is_empty(),
            // One that is only noted is passed over whole.
            b'[' if node.only.is_some() => false,
            b'[' => !node.stores.is_empty() || node.others.is_some() || !node.elements.is_empty(),
            _ => false,
        };
        if !looks_inside {
            let slot = match node.stores.as_slice() {
                [] => None,
                [(slot, Store::One)] => Some(*slot),
                _ => return None,
            };
            if !shape.note(bytes, (*done, at), slot, depth) {
                return None;
            }
            *done = value_end(bytes, at, depth).ok()?;
            return Some(*done);
        }
        if bytes[at] == b'[' || !node.stores.is_empty() {
            return None;
        }
        let depth = depth + 1;
        let mut at = skip_space(bytes, at + 1);
        if bytes.get(at) == Some(&b'}') {
            return Some(at + 1);
        }
        let nothing = Node::default();
        loop {
            let (known, value_at) = node.any_key(bytes, at).ok()?;
            let child = known.map_or(&nothing, |(_, child)| &self.nodes[usize::from(child)]);
            at = self.learn_value(child, bytes, value_at, depth, (&mut *shape, &mut *done))?;
            at = skip_space(bytes, at);
            match bytes.get(at)? {
                b',' => at = skip_space(bytes, at + 1),
                b'}' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// The byte after it, and how many elements it has.
    fn array(
        &self,
        node: &Node,
        bytes: &[u8],
        at: usize,
        depth: u32,
        found: &mut Found,
    ) -> Scanned<(usize, u32)> {
        let mut at = skip_space(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            return Ok((at + 1, 0));
        }
        let mut number = 0_usize;
        loop {
            found.mask &= !node.clears;
            let child = node.elements.get(number).copied().or(node.others);
            at = match child {
                Some(child) => self.value(&self.nodes[usize::from(child)], bytes, at, depth, found)?,
                None => value_end(bytes, at, depth)?,
            };
            number += 1;
            at = skip_space(bytes, at);
            match bytes.get(at) {
                Some(b',') => at = skip_space(bytes, at + 1),
                Some(b']') => return Ok((at + 1, number as u32)),
                _ => return fault(bytes, at, "neither a comma nor a closing bracket"),
            }
        }
    }
}

impl Node {
    /// The key that stands at `at`, if it is asked for, and where its value begins.
    fn any_key(&self, bytes: &[u8], at: usize) -> Scanned<(Option<(usize, u16)>, usize)> {
        let ((start, end, escaped), value_at) = scan::key(bytes, at)?;
        let known = match escaped {
            false => self.keys.find(bytes, start, end),
            true => self.keys.find_escaped(&bytes[start..end]),
        };
        Ok((known, value_at))
    }
}

/// Notes a value that nothing below is asked of.
#[inline(always)]
fn leaf(slot: Slot, bytes: &[u8], at: usize, depth: u32, found: &mut Found) -> Scanned<usize> {
    let (end, escaped) = match bytes.get(at) {
        Some(b'"') => {
            let (quote, escaped) = string_end(bytes, at + 1)?;
            (quote + 1, escaped)
        }
        _ => (value_end(bytes, at, depth)?, false),
    };
    found.set(slot, Place { start: at as u32, end: end as u32, escaped });
    Ok(end)
}

/// The number of an element, where a key can be one.
fn element(key: &str) -> Option<usize> {
    let plain = key.bytes().all(|b| b.is_ascii_digit()) && (key == "0" || !key.starts_with('0'));
    key.parse().ok().filter(|_| plain)
}
