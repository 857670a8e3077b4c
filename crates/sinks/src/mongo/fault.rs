//! What MongoDB says when it does not do as it was told, by what follows from it.

use std::time::Duration;

use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind};

/// Why nothing was written, for a person to read. Holds no part of the connection string but addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MongoFault {
    /// Wrong name or password.
    #[error("MongoDB refuses the user name or password in mongo_uri ({0})")]
    Login(String),
    /// The right password of somebody who may not write here.
    #[error("MongoDB does not let this user write here ({0}); it needs the role readWrite on mongo_database")]
    Rights(String),
    /// No answer in time.
    #[error("MongoDB did not answer within {0:?}")]
    Late(Duration),
    /// Written, but not known to survive a crash.
    #[error("MongoDB could not make the write durable on a majority ({0})")]
    NotDurable(String),
    /// Anything else: not there, not the primary, out of space.
    #[error("{0}")]
    Other(String),
}

/// What follows from an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Try again later.
    Away(MongoFault),
    /// It is the content; the same again will fail again.
    Content(String),
}

const DUPLICATE_KEY: [i32; 3] = [11000, 11001, 12582];
/// Codes that condemn what was sent, not the moment: bad value, failed to parse, type mismatch, overflow, invalid length,
/// protocol error, invalid BSON, field names, document validation, document and key too large.
const CONTENT: [i32; 14] = [2, 9, 14, 15, 16, 17, 22, 52, 55, 56, 57, 121, 10334, 17280];

/// One record that was not inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotInserted {
    /// Its place in the command.
    pub(super) index: usize,
    pub(super) why: Why,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The id is taken, perhaps by this very record.
    SameId,
    /// A unique index that is not ours says no; the record itself may be there all the same.
    OtherIndex,
    /// The content is at fault.
    Content,
    /// The moment is at fault.
    Moment,
}

/// What the answer to an insert of so many says: which were not inserted, or that nothing of it may count.
pub(super) fn read_answer(answer: &Document, documents: usize) -> Result<Vec<NotInserted>, Fault> {
    let mut missing = Vec::new();
    if let Ok(errors) = answer.get_array("writeErrors") {
        for error in errors {
            let error = error.as_document().ok_or_else(|| odd("writeErrors"))?;
            let index = whole(error, "index").and_then(|index| usize::try_from(index).ok());
            let index = index.filter(|index| *index < documents);
            missing.push(NotInserted {
                index: index.ok_or_else(|| odd("writeErrors"))?,
                why: why(error),
                message: short(error.get_str("errmsg").unwrap_or("no reason given")),
            });
        }
    }
    if let Ok(concern) = answer.get_document("writeConcernError") {
        let said = short(concern.get_str("errmsg").unwrap_or("no reason given"));
        return Err(Fault::Away(MongoFault::NotDurable(said)));
    }
    Ok(missing)
}

fn why(error: &Document) -> Why {
    let code = whole(error, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
    if DUPLICATE_KEY.contains(&code) {
        let by_id = match error.get_document("keyPattern") {
            Ok(key) => key.contains_key("_id"),
            Err(_) => error.get_str("errmsg").is_ok_and(|text| text.contains("_id_")),
        };
        return if by_id { Why::SameId } else { Why::OtherIndex };
    }
    if CONTENT.contains(&code) { Why::Content } else { Why::Moment }
}

/// A number, of whichever width the server has chosen.
fn whole(document: &Document, key: &str) -> Option<i64> {
    let value = document.get(key)?;
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

fn odd(what: &str) -> Fault {
    Fault::Away(MongoFault::Other(format!("MongoDB's answer has {what} that cannot be read")))
}

/// What follows from an error of the driver or of a whole command.
pub(super) fn of(error: &Error) -> Fault {
    let text = words(error);
    match &*error.kind {
        ErrorKind::Authentication { .. } => Fault::Away(MongoFault::Login(text)),
        // Where the login fails, the driver soon says that it knows no server.
        ErrorKind::ServerSelection { message, .. } if message.contains("AuthenticationFailed") => {
            Fault::Away(MongoFault::Login("Authentication failed".to_owned()))
        }
        ErrorKind::Command(command) => match command.code {
            18 => Fault::Away(MongoFault::Login(text)),
            13 => Fault::Away(MongoFault::Rights(text)),
            code if CONTENT.contains(&code) => Fault::Content(text),
            _ => Fault::Away(MongoFault::Other(text)),
        },
        _ => Fault::Away(MongoFault::Other(text)),
    }
}

/// The error in words, without its labels and its server's whole answer.
pub(super) fn words(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(command) => short(&format!("{} ({})", command.message, command.code_name)),
        ErrorKind::ServerSelection { message, .. } => match cause_of(message) {
            Some(cause) => short(&format!("no server was found in time ({cause})")),
            None => short(message),
        },
        kind => short(&kind.to_string()),
    }
}

/// What the driver last heard of a server, out of the long text in which it says that it found none.
fn cause_of(message: &str) -> Option<&str> {
    let (_, cause) = message.split_once("Error: Kind: ")?;
    cause.split_once(", labels:").map(|(cause, _)| cause)
}

/// Servers quote what they were sent; a log line has an end.
fn short(text: &str) -> String {
    const LETTERS_MAX: usize = 300;
    match text.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    #[test]
    fn an_answer_says_which_records_are_at_fault_and_why() {
        let check = |error: Document, want: Why| {
            let answer = doc! { "ok": 1, "n": 0, "writeErrors": [error.clone()] };
            let missing = read_answer(&answer, 4).unwrap();
            assert_eq!((missing.len(), missing[0].index, missing[0].why), (1, 3, want), "{error}");
        };
        check(doc! { "index": 3, "code": 11000, "keyPattern": { "_id": 1 }, "errmsg": "dup" }, Why::SameId);
        check(doc! { "index": 3_i64, "code": 11000_i64, "errmsg": "index: _id_ dup key" }, Why::SameId);
        check(
            doc! { "index": 3, "code": 11000, "keyPattern": { "symbol": 1 }, "errmsg": "dup" },
            Why::OtherIndex,
        );
        check(doc! { "index": 3, "code": 121, "errmsg": "Document failed validation" }, Why::Content);
        check(doc! { "index": 3, "code": 11602, "errmsg": "stepping down" }, Why::Moment);
        check(doc! { "index": 3, "code": 14031, "errmsg": "no space" }, Why::Moment);
    }

    #[test]
    fn what_is_not_durable_is_not_written() {
        let concern = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
        let fault = read_answer(&doc! { "ok": 1, "n": 5, "writeConcernError": concern }, 5).unwrap_err();
        let Fault::Away(MongoFault::NotDurable(said)) = fault else { panic!("{fault:?}") };
        assert_eq!(said, "waiting for replication timed out");
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_tried_again() {
        let odd = [doc! {}, doc! { "index": -1, "code": 11000 }, doc! { "index": 4, "code": 11000 }];
        for error in odd {
            let answer = doc! { "ok": 1, "writeErrors": [error] };
            assert!(matches!(read_answer(&answer, 4), Err(Fault::Away(_))));
        }
    }

    #[test]
    fn the_cause_is_found_in_a_long_text() {
        let text = "Server selection timeout: No available servers. Topology: { Type: Single, Servers: [ { Address: \
                    a:1, Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {}, x } ] }";
        assert_eq!(cause_of(text), Some("I/O error: Connection refused (os error 111)"));
        assert_eq!(cause_of("Server selection timeout"), None);
    }

    #[test]
    fn words_have_an_end() {
        assert_eq!(short("ä").len(), 2);
        assert_eq!(short(&"ä".repeat(5_000)).chars().count(), 301);
    }
}
