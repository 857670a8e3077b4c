//! Tables on standard output: columns as wide as they need to be.

use std::io::Write;

/// Prints a line of names and a line for each row.
pub(super) fn print<const N: usize>(names: [&str; N], rows: &[[String; N]]) {
    out(&text(names, rows));
}

/// To standard output. Nobody may be reading any more; that is no reason to fail.
pub(super) fn out(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn text<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = names.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    let head = line(names);
    rows.iter().fold(head, |text, row| text + &line(row.each_ref().map(String::as_str)))
}

/// Everything that is in a document, a line each: `schedule.mode  interval`.
pub(super) fn print_all(document: &serde_json::Value) {
    let mut lines = Vec::new();
    flatten("", document, &mut lines);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in lines {
        out(&format!("{name:<width$}  {value}\n"));
    }
}

fn flatten(at: &str, value: &serde_json::Value, lines: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                flatten(&path, value, lines);
            }
        }
        serde_json::Value::String(text) => lines.push((at.to_owned(), text.clone())),
        serde_json::Value::Null => lines.push((at.to_owned(), "-".to_owned())),
        other => lines.push((at.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let rows = [row(["a", "long enough"]), row(["bbbb", ""])];
        assert_eq!(text(["x", "y"], &rows), "x     y\na     long enough\nbbbb\n");
    }
}
