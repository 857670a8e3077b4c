//! What a commit says of itself, for whoever reads the table's history: who leased, renewed and ended what.

use serde_json::{Map, Value, json};

use crate::job::Lease;
use crate::ledger::{Verdict, Write};
use crate::table::Acted;

/// `operation` and `operationParameters` of a log entry.
pub(crate) struct Note {
    pub(crate) operation: &'static str,
    pub(crate) parameters: Map<String, Value>,
}

impl Note {
    pub(crate) fn new<const N: usize>(operation: &'static str, parameters: [(&str, Value); N]) -> Self {
        let parameters =
            parameters.into_iter().map(|(key, value)| (key.to_owned(), value.to_string().into()));
        Self { operation, parameters: parameters.collect() }
    }

    /// Of what a worker did.
    pub(crate) fn of(worker: &str, writes: &[(Lease, Write)], acted: &Acted) -> Self {
        let named = |lease: &Lease| format!("{} {}", lease.holder(), lease.job_id);
        let taken = |is_of: fn(&Write) -> bool| -> Vec<String> {
            let pairs = writes.iter().zip(&acted.verdicts);
            let pairs = pairs.filter(|((_, write), verdict)| **verdict != Verdict::Lost && is_of(write));
            pairs.map(|((lease, _), _)| named(lease)).collect()
        };
        let leased: Vec<String> = acted.claimed.iter().map(|(_, lease)| named(lease)).collect();
        Self::new(
            "UPDATE",
            [
                ("worker", json!(worker)),
                ("leased", json!(leased)),
                ("renewed", json!(taken(|write| *write == Write::Renew))),
                ("done", json!(taken(|write| matches!(write, Write::Done { .. })))),
                ("failed", json!(taken(|write| matches!(write, Write::Failed(_))))),
                ("handed_back", json!(taken(|write| *write == Write::HandBack))),
            ],
        )
    }
}
