//! The closing figures, and what is shown on the way there.

use std::io::IsTerminal;

use catchment_pipeline::{Balance, Books, DropReason};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::say;

/// What `ingest --json` prints.
#[derive(Serialize)]
struct Closing {
    lines: u64,
    refused: u64,
    balanced: bool,
    balances: Vec<Balance>,
}

/// Prints the books: one line a sink and venue, and whether they balance.
pub(crate) fn print(books: &Books, lines: u64, refused: u64, json: bool) -> anyhow::Result<()> {
    let balances = books.balances();
    let balanced = balances.iter().all(Balance::is_even);
    if json {
        let closing = Closing { lines, refused, balanced, balances };
        say(&serde_json::to_string(&closing)?);
        return Ok(());
    }
    say(&format!("{lines} lines read, {refused} refused"));
    if !balances.is_empty() {
        say(&table(&balances));
    }
    if !balanced {
        say("catchment: the books do not balance; this is a fault in catchment, please report it");
    }
    Ok(())
}

fn table(balances: &[Balance]) -> String {
    let mut rows = vec![
        [
            "sink",
            "venue",
            "received",
            "recovered",
            "written",
            "duplicate",
            "dropped",
            "dead letters",
            "pending",
        ]
        .map(str::to_owned),
    ];
    for line in balances {
        rows.push([
            line.sink.clone(),
            line.venue.clone(),
            line.received.to_string(),
            line.recovered.to_string(),
            line.written.to_string(),
            line.duplicate.to_string(),
            dropped(line),
            line.quarantined.to_string(),
            line.pending.to_string(),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..9).map(width).collect();
    let print = |row: &[String; 9]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(print).collect::<Vec<_>>().join("\n")
}

fn dropped(line: &Balance) -> String {
    if line.dropped.is_empty() {
        return "0".to_owned();
    }
    let words = line.dropped.iter().map(|(reason, count)| {
        let reason = match reason {
            DropReason::SpoolFull => "spool full",
            DropReason::Storage => "storage",
            DropReason::Closed => "closed",
        };
        format!("{count} ({reason})")
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A line that says how far it is, on a terminal only.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn start(what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{prefix} {spinner} {elapsed} {msg}").expect("a fixed template");
            ProgressBar::new_spinner().with_style(style).with_prefix(what)
        });
        Self(bar)
    }

    pub(crate) fn show(&self, text: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(text.to_owned());
            bar.tick();
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
