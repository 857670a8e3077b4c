//! Text with places to fill in: `{"method":"SUBSCRIBE","params":[{args}],"id":{id}}`.
//!
//! A place is a name in braces, nothing else between them; every other brace is text, so JSON needs no escaping.
//! Which names there are is checked when the template is compiled.

use std::fmt::Write;

/// A compiled template. The places are numbers into the list of names that it was compiled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Place(usize),
}

impl Template {
    /// Compiles it, or says which place does not exist.
    pub(super) fn compile(text: &str, names: &[&str]) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        let mut literal = String::new();
        while let Some(brace) = rest.find('{') {
            literal.push_str(&rest[..brace]);
            let inside = &rest[brace + 1..];
            let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inside.len());
            if end == 0 || !inside[end..].starts_with('}') {
                literal.push('{');
                rest = inside;
                continue;
            }
            let name = &inside[..end];
            let Some(place) = names.iter().position(|known| *known == name) else {
                return Err(format!("there is no {{{name}}} here; there is {}", listed(names)));
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Place(place));
            rest = &inside[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// Whether it has that place.
    pub(super) fn has(&self, place: usize) -> bool {
        self.parts.contains(&Part::Place(place))
    }

    /// The text with every place filled in by `fill`.
    pub(super) fn render(&self, mut fill: impl FnMut(usize, &mut String)) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Place(place) => fill(*place, &mut out),
            }
        }
        out
    }

    /// Likewise, from a list in the order of the names.
    pub(super) fn with(&self, values: &[&str]) -> String {
        self.render(|place, out| out.push_str(values[place]))
    }

    /// The texts and places in their order: what a naming rule needs to be read backwards.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Result<usize, &str>> {
        self.parts.iter().map(|part| match part {
            Part::Text(text) => Err(text.as_str()),
            Part::Place(place) => Ok(*place),
        })
    }
}

fn listed(names: &[&str]) -> String {
    let mut out = String::new();
    for (number, name) in names.iter().enumerate() {
        let _ = write!(out, "{}{{{name}}}", if number == 0 { "" } else { ", " });
    }
    if out.is_empty() { "nothing to fill in".to_owned() } else { out }
}

/// Text as the inside of a JSON string.
pub(super) fn json_escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_places() {
        let check = |text: &str, want: Result<&str, &str>| {
            let got = Template::compile(text, &["args", "id"]).map(|t| t.with(&["A", "7"]));
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text}");
        };
        check("", Ok(""));
        check(r#"{"a":[{args}],"id":{id}}"#, Ok(r#"{"a":[A],"id":7}"#));
        check(r#"{"a":{"b":{id}}}"#, Ok(r#"{"a":{"b":7}}"#));
        check("{}{ id}{id {id", Ok("{}{ id}{id {id"));
        check("{topic}", Err("there is no {topic} here; there is {args}, {id}"));
    }
}
