//! The pass itself: checks that a message is JSON, and hands on what the plan looks for.

use std::ops::Range;

use super::amount::{Price, number_end, read_size};
use super::level::LevelMould;
use super::plan::{List, Name, Node, Reading, Shape, Side, Target};
use super::scan::{Change, Item, Scan, Span, TEXT_MAX, side_of};
use super::verdict::{Unreadable, Why};
use crate::mould::{SPAN, Two, chunk_at};
use crate::words::{not_plain, short_key, word_at};

/// Objects and arrays inside one another, at most.
const DEPTH_MAX: usize = 64;

/// Where the reading is.
pub(super) struct Walk<'w> {
    message: &'w [u8],
    at: usize,
    plan: &'w Reading,
    scan: &'w mut Scan,
    /// The item we are in.
    item: usize,
    /// How the levels before were spelled.
    moulds: &'w mut Two<LevelMould>,
}

impl<'w> Walk<'w> {
    /// At the beginning of a message.
    pub(super) fn new(
        message: &'w [u8],
        plan: &'w Reading,
        scan: &'w mut Scan,
        moulds: &'w mut Two<LevelMould>,
    ) -> Self {
        Self { message, at: 0, plan, scan, item: 0, moulds }
    }

    /// How far it came.
    pub(super) fn at(&self) -> usize {
        self.at.min(self.message.len())
    }

    /// The whole message.
    pub(super) fn whole(&mut self) -> Result<(), Why> {
        let root = &self.plan.nodes[0];
        match self.next()? {
            b'[' if root.elements.is_empty() => self.array(|walk, _| {
                walk.begin_item(0)?;
                walk.value_at(root, 1)
            })?,
            _ => {
                self.begin_item(0)?;
                self.value_at(root, 0)?;
            }
        }
        self.space();
        if self.at == self.message.len() { Ok(()) } else { Err(Why::NotJson) }
    }

    fn begin_item(&mut self, scope: u8) -> Result<(), Why> {
        let new = self.scan.items.len();
        let outer = if scope == 0 { new } else { self.item };
        let outer = u16::try_from(outer).map_err(|_| Why::TooLarge)?;
        if new > usize::from(u16::MAX) {
            return Err(Why::TooLarge);
        }
        let spans_at = self.scan.spans.len();
        self.scan.spans.resize(spans_at + self.plan.slots[usize::from(scope)], Span::default());
        self.scan.items.push(Item { scope, outer, lists: 0, bad_list: None, spans_at: spans_at as u32 });
        self.item = new;
        Ok(())
    }

    /// The next byte that is not space, left where it is.
    #[inline]
    fn next(&mut self) -> Result<u8, Why> {
        self.space();
        self.message.get(self.at).copied().ok_or(Why::NotJson)
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.message.get(self.at) {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), Why> {
        if self.next()? == byte {
            self.at += 1;
            Ok(())
        } else {
            Err(Why::NotJson)
        }
    }

    /// An array; `each` reads one element, which begins here.
    #[inline]
    fn array(&mut self, mut each: impl FnMut(&mut Self, usize) -> Result<(), Why>) -> Result<(), Why> {
        self.expect(b'[')?;
        if self.next()? == b']' {
            self.at += 1;
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.space();
            each(self, index)?;
            index += 1;
            let byte = self.next()?;
            self.at += 1;
            match byte {
                b',' => {}
                b']' => return Ok(()),
                _ => return Err(Why::NotJson),
            }
        }
    }

    /// An object; `each` is given a name and reads the value, which begins here.
    #[inline]
    fn object(&mut self, mut each: impl FnMut(&mut Self, Name<'w>) -> Result<(), Why>) -> Result<(), Why> {
        self.expect(b'{')?;
        if self.next()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            let name = self.name()?;
            each(self, name)?;
            let byte = self.next()?;
            self.at += 1;
            match byte {
                b',' => {}
                b'}' => return Ok(()),
                _ => return Err(Why::NotJson),
            }
        }
    }

    /// The name of a member; then its value begins here.
    #[inline(always)]
    fn name(&mut self) -> Result<Name<'w>, Why> {
        if let Some((word, len, value_at)) = short_key(self.message, self.at) {
            let bytes = &self.message[self.at + 1..][..len];
            self.at = value_at;
            return Ok(Name { bytes, word, escaped: false });
        }
        let (start, end, escaped) = self.string()?;
        self.expect(b':')?;
        self.space();
        Ok(Name { bytes: &self.message[start..end], word: Name::LONG, escaped })
    }

    /// A string: where its inside begins and ends, and whether it has a backslash.
    #[inline]
    fn string(&mut self) -> Result<(usize, usize, bool), Why> {
        if self.message.get(self.at) != Some(&b'"') {
            return Err(Why::NotJson);
        }
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            while let Some(word) = word_at(self.message, at) {
                let odd = not_plain(word);
                at += (odd.trailing_zeros() / 8) as usize;
                if odd != 0 {
                    break;
                }
            }
            match self.message.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at += self.escape(at)?;
                }
                Some(0..0x20) | None => {
                    self.at = at;
                    return Err(Why::NotJson);
                }
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok((start, at, escaped))
    }

    /// How long an escape is, if it is one.
    #[cold]
    fn escape(&self, at: usize) -> Result<usize, Why> {
        match self.message.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
            Some(b'u') => {
                let digits = self.message.get(at + 2..at + 6).ok_or(Why::NotJson)?;
                if digits.iter().all(u8::is_ascii_hexdigit) { Ok(6) } else { Err(Why::NotJson) }
            }
            _ => Err(Why::NotJson),
        }
    }

    /// A value in which something is looked for.
    fn value_at(&mut self, node: &'w Node, depth: usize) -> Result<(), Why> {
        if depth > DEPTH_MAX {
            return Err(Why::TooDeep);
        }
        match self.next()? {
            b'{' => {
                let mut seen = 0_u64;
                self.object(|walk, name| {
                    // No venue does that, and a name that is spelled otherwise must not be overlooked.
                    if name.escaped {
                        return Err(Why::EscapedName);
                    }
                    let Some(found) = node.member(name) else { return walk.skip(depth + 1) };
                    if seen & (1 << found) != 0 {
                        return Err(Why::Twice);
                    }
                    seen |= 1 << found;
                    walk.target(node.members[found].1, depth + 1)
                })
            }
            b'[' => {
                self.array(|walk, index| match node.elements.iter().find(|(wanted, _)| *wanted == index) {
                    Some((_, target)) => walk.target(*target, depth + 1),
                    None => walk.skip(depth + 1),
                })
            }
            _ => self.skip(depth),
        }
    }

    fn target(&mut self, target: Target, depth: usize) -> Result<(), Why> {
        let plan = self.plan;
        match target {
            Target::Slot(slot) => self.slot(slot, depth),
            Target::List(list) => self.list(list, depth),
            Target::Node(node) => self.value_at(&plan.nodes[usize::from(node)], depth),
            Target::Items { node, scope } => {
                let node = &plan.nodes[usize::from(node)];
                let around = self.item;
                let one = |walk: &mut Self| {
                    walk.begin_item(scope)?;
                    let read = walk.value_at(node, depth + 1);
                    walk.item = around;
                    read
                };
                match self.next()? {
                    b'[' if node.elements.is_empty() => self.array(|walk, _| one(walk)),
                    _ => one(self),
                }
            }
        }
    }

    /// Notes a text, number or flag.
    fn slot(&mut self, slot: u8, depth: usize) -> Result<(), Why> {
        let span = match self.next()? {
            b'"' => {
                let (start, end, escaped) = self.string()?;
                Span { start: start as u32, end: end as u32, there: true, escaped }
            }
            b'{' | b'[' => return self.skip(depth),
            _ => {
                let start = self.at;
                self.skip(depth)?;
                let there = &self.message[start..self.at] != b"null";
                Span { start: start as u32, end: self.at as u32, there, escaped: false }
            }
        };
        let spans_at = self.scan.items[self.item].spans_at as usize;
        self.scan.spans[spans_at + usize::from(slot)] = span;
        Ok(())
    }

    /// What should be a list of levels. Other messages may have something else under the same name (Binance: `b` is
    /// a price in a ticker), so what is wrong with it is only noted, as long as it is JSON.
    fn list(&mut self, at: u8, depth: usize) -> Result<(), Why> {
        let item = &mut self.scan.items[self.item];
        item.lists |= 1 << at;
        let (start, changes) = (self.at, self.scan.changes.len());
        let Err(why) = self.levels(at, depth) else { return Ok(()) };
        let noticed = self.at;
        self.scan.changes.truncate(changes);
        self.at = start;
        self.skip(depth)?;
        self.scan.items[self.item].bad_list.get_or_insert(Unreadable { why, at: noticed });
        Ok(())
    }

    fn levels(&mut self, at: u8, depth: usize) -> Result<(), Why> {
        let plan = self.plan;
        let list = &plan.lists[usize::from(at)];
        match self.next()? {
            b'[' => {}
            b'n' => return self.skip(depth),
            _ => return Err(Why::LevelShape),
        }
        match &list.shape {
            Shape::Array { price: 0, size: 1, side: None } => {
                // What is in a level may be as deep as that.
                let side = list.side.filter(|_| depth + 2 <= DEPTH_MAX);
                self.array(|walk, _| match side {
                    Some(side) if walk.alike(side) => Ok(()),
                    _ => walk.pair(list, depth + 1),
                })
            }
            Shape::Array { price, size, side } => {
                let places = (*price, *size, *side);
                self.array(|walk, _| walk.row(list, places, depth + 1))
            }
            Shape::Object { price, size, side } => {
                let keys = (&**price, &**size, side.as_deref());
                self.array(|walk, _| walk.record(list, keys, depth + 1))
            }
        }
    }

    /// Levels that are spelled like one before, up to the first that is not or needs care. False: that is the first.
    #[inline(never)]
    fn alike(&mut self, side: Side) -> bool {
        let (item, ask) = (self.item as u16, side == Side::Ask);
        let (message, start) = (self.message, self.at);
        let (mut at, mut end) = (start, [0; SPAN]);
        while let Some(chunk) = chunk_at(message, at, &mut end)
            && let Some(mould) = self.moulds.find(|mould| mould.fits(chunk))
            && let Some(change) = mould.read(chunk, at)
            && change.mantissa != 0
        {
            self.scan.changes.push(Change { item, ask, ..change });
            self.at = at + mould.len();
            if message.get(self.at) != Some(&b',') {
                break;
            }
            at = self.at + 1;
        }
        self.at > start
    }

    /// `["price","size",…]`.
    fn pair(&mut self, list: &List, depth: usize) -> Result<(), Why> {
        let start = self.at;
        if self.next()? != b'[' {
            return Err(Why::LevelShape);
        }
        self.at += 1;
        self.space();
        let price = self.price()?;
        // Almost always `","`, in one step.
        if self.message.get(self.at..self.at + 2) == Some(b",\"") {
            self.at += 1;
        } else {
            self.expect_in_level(b',')?;
            self.space();
        }
        let size = self.size()?;
        let mut others_are_texts = true;
        loop {
            let byte = self.next()?;
            self.at += 1;
            match byte {
                b']' => break,
                b',' => {
                    others_are_texts &= self.next()? == b'"';
                    self.skip(depth + 1)?;
                }
                _ => return Err(Why::NotJson),
            }
        }
        if others_are_texts {
            let within = |range: &Range<usize>| range.start - start..range.end - start;
            self.moulds.other().cast(&self.message[start..self.at], within(&price.0), within(&size.0));
        }
        self.change(list, Some(price), Some(size), list.side)
    }

    #[inline]
    fn expect_in_level(&mut self, byte: u8) -> Result<(), Why> {
        self.expect(byte).map_err(|_| Why::LevelShape)
    }

    /// `["side","price","size",…]` in any order.
    fn row(
        &mut self,
        list: &List,
        (price_at, size_at, side_at): (usize, usize, Option<usize>),
        depth: usize,
    ) -> Result<(), Why> {
        if self.next()? != b'[' {
            return Err(Why::LevelShape);
        }
        let (mut price, mut size, mut side) = (None, None, list.side);
        self.array(|walk, index| {
            if index == price_at {
                price = Some(walk.price()?);
            } else if index == size_at {
                size = Some(walk.size()?);
            } else if Some(index) == side_at {
                side = Some(walk.side(list)?);
            } else {
                walk.skip(depth + 1)?;
            }
            Ok(())
        })?;
        self.change(list, price, size, side)
    }

    /// `{"price":…,"size":…}`.
    fn record(
        &mut self,
        list: &List,
        (price_key, size_key, side_key): (&[u8], &[u8], Option<&[u8]>),
        depth: usize,
    ) -> Result<(), Why> {
        if self.next()? != b'{' {
            return Err(Why::LevelShape);
        }
        let (mut price, mut size, mut side) = (None, None, list.side);
        let once = |there: bool| if there { Err(Why::Twice) } else { Ok(()) };
        self.object(|walk, name| {
            if name.escaped {
                return Err(Why::EscapedName);
            }
            let key = name.bytes;
            if key == price_key {
                once(price.is_some())?;
                price = Some(walk.price()?);
            } else if key == size_key {
                once(size.is_some())?;
                size = Some(walk.size()?);
            } else if Some(key) == side_key {
                once(side.is_some())?;
                side = Some(walk.side(list)?);
            } else {
                walk.skip(depth + 1)?;
            }
            Ok(())
        })?;
        self.change(list, price, size, side)
    }

    /// A price with quotes or without, and where its digits are.
    #[inline]
    fn price(&mut self) -> Result<(Range<usize>, Price), Why> {
        let quoted = self.open_quote();
        let start = self.at;
        let (price, end) = Price::read(self.message, start)?;
        self.at = end;
        self.close_quote(quoted)?;
        Ok((start..end, price))
    }

    /// Likewise a size: whether it is zero.
    #[inline]
    fn size(&mut self) -> Result<(Range<usize>, bool), Why> {
        let quoted = self.open_quote();
        let start = self.at;
        let (zero, end) = read_size(self.message, start)?;
        self.at = end;
        self.close_quote(quoted)?;
        Ok((start..end, zero))
    }

    #[inline]
    fn open_quote(&mut self) -> bool {
        let quoted = self.message.get(self.at) == Some(&b'"');
        self.at += usize::from(quoted);
        quoted
    }

    #[inline]
    fn close_quote(&mut self, quoted: bool) -> Result<(), Why> {
        if quoted {
            if self.message.get(self.at) != Some(&b'"') {
                return Err(Why::NotANumber);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn side(&mut self, list: &List) -> Result<Side, Why> {
        if self.next()? != b'"' {
            return Err(Why::UnknownSide);
        }
        let (start, end, _) = self.string()?;
        side_of(list, &self.message[start..end]).ok_or(Why::UnknownSide)
    }

    #[inline]
    fn change(
        &mut self,
        list: &List,
        price: Option<(Range<usize>, Price)>,
        size: Option<(Range<usize>, bool)>,
        side: Option<Side>,
    ) -> Result<(), Why> {
        let (Some((price_at, price)), Some((size_at, gone)), Some(side)) = (price, size, side) else {
            return Err(Why::LevelShape);
        };
        if price_at.len() + size_at.len() > TEXT_MAX {
            return Err(Why::TooLong);
        }
        if price.mantissa == 0 {
            return if list.skip_price_0 { Ok(()) } else { Err(Why::PriceZero) };
        }
        self.scan.changes.push(Change::new(
            price,
            price_at,
            size_at,
            side == Side::Ask,
            gone,
            self.item as u16,
        ));
        Ok(())
    }

    /// Steps over a value, checking it.
    fn skip(&mut self, depth: usize) -> Result<(), Why> {
        if depth > DEPTH_MAX {
            return Err(Why::TooDeep);
        }
        match self.next()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(|walk, _| walk.skip(depth + 1)),
            b'[' => self.array(|walk, _| walk.skip(depth + 1)),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'-' => {
                self.at += 1;
                self.number()
            }
            _ => self.number(),
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), Why> {
        if self.message[self.at..].starts_with(literal) {
            self.at += literal.len();
            Ok(())
        } else {
            Err(Why::NotJson)
        }
    }

    fn number(&mut self) -> Result<(), Why> {
        self.at = number_end(self.message, self.at).map_err(|_| Why::NotJson)?;
        Ok(())
    }
}
