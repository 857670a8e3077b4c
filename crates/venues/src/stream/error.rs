//! What is wrong with a descriptor, and on which line.

use toml::de::{DeTable, DeValue};

/// Why a descriptor was refused: `binance.toml:41: channels.trades.id: "data/t" is not a JSON pointer: …`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}{}{reason}", if key.is_empty() { "" } else { ": " })]
pub struct DescriptorError {
    /// The file, as the caller named it.
    pub file: String,
    /// Which line of it, from 1.
    pub line: usize,
    /// The key, from the top: `channels.trades.id`. Empty where the file as a whole is meant.
    pub key: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

/// A key, step by step from the top; an element of a list by its number.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyPath(Vec<String>);

impl KeyPath {
    /// A key of the table that stands here.
    pub(super) fn key(&self, key: impl ToString) -> Self {
        let mut path = self.clone();
        path.0.push(key.to_string());
        path
    }

    /// What is wrong here.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> Wrong {
        Wrong { path: self.clone(), reason: reason.into() }
    }
}

/// What is wrong, before anybody has looked up the line.
#[derive(Debug)]
pub(super) struct Wrong {
    path: KeyPath,
    reason: String,
}

impl Wrong {
    /// Finds the line of the key, or of the table that lacks it.
    pub(super) fn located(self, file: &str, text: &str) -> DescriptorError {
        let mut at = 0;
        if let Ok(table) = DeTable::parse(text) {
            let mut here = DeValue::Table(table.into_inner());
            for step in &self.path.0 {
                let next = match &here {
                    DeValue::Table(table) => {
                        table.iter().find(|(key, _)| key.get_ref() == step).map(|(key, value)| {
                            at = key.span().start;
                            value
                        })
                    }
                    DeValue::Array(list) => step
                        .parse()
                        .ok()
                        .and_then(|n: usize| list.get(n))
                        .inspect(|value| at = value.span().start),
                    _ => None,
                };
                let Some(next) = next else { break };
                here = next.get_ref().clone();
            }
        }
        DescriptorError {
            file: file.to_owned(),
            line: line(text, at),
            key: self.path.0.join("."),
            reason: self.reason,
        }
    }
}

/// For what the TOML reader itself has refused: a typing error, a key that does not exist, a value of another kind.
pub(super) fn unreadable(file: &str, text: &str, error: &toml::de::Error) -> DescriptorError {
    let at = error.span().map_or(0, |span| span.start);
    let mut keys = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        key_at(&table.into_inner(), at, &mut keys);
    }
    DescriptorError {
        file: file.to_owned(),
        line: line(text, at),
        key: keys.join("."),
        reason: error.message().replace('\n', " "),
    }
}

/// The keys that lead to the byte at `at`.
fn key_at(table: &DeTable<'_>, at: usize, keys: &mut Vec<String>) {
    for (key, value) in table {
        if key.span().contains(&at) {
            return keys.push(key.get_ref().to_string());
        }
        if value.span().contains(&at) || holds(value.get_ref(), at) {
            keys.push(key.get_ref().to_string());
            return value_at(value.get_ref(), at, keys);
        }
    }
}

fn value_at(value: &DeValue<'_>, at: usize, keys: &mut Vec<String>) {
    match value {
        DeValue::Table(table) => key_at(table, at, keys),
        DeValue::Array(list) => {
            let found = list.iter().enumerate();
            let mut found =
                found.filter(|(_, value)| value.span().contains(&at) || holds(value.get_ref(), at));
            if let Some((number, value)) = found.next() {
                keys.push(number.to_string());
                value_at(value.get_ref(), at, keys);
            }
        }
        _ => {}
    }
}

/// Whether anything in the value stands at that byte: a table that is spread over headings has no place of its own.
fn holds(value: &DeValue<'_>, at: usize) -> bool {
    match value {
        DeValue::Table(table) => table.iter().any(|(key, value)| {
            key.span().contains(&at) || value.span().contains(&at) || holds(value.get_ref(), at)
        }),
        DeValue::Array(list) => {
            list.iter().any(|value| value.span().contains(&at) || holds(value.get_ref(), at))
        }
        _ => false,
    }
}

fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}
