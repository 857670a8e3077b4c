//! What the driver or the server says when it does not do as it was told.

use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::error::StoreError;

/// Asking again later may help, whatever it is: a server that is away, busy, not the primary, or out of space.
pub(super) fn error(error: Error) -> StoreError {
    StoreError::Unreachable { store: "mongo", source: words(&error).into() }
}

/// A unique index says no.
pub(super) fn is_duplicate(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == 11_000,
        ErrorKind::Command(command) => command.code == 11_000,
        _ => false,
    }
}

/// In words, without its labels, its server's whole answer or anything of the connection string.
pub(super) fn words(error: &Error) -> String {
    let text = match &*error.kind {
        ErrorKind::Command(command) => format!("{} ({})", command.message, command.code_name),
        ErrorKind::ServerSelection { .. } => "no server was found in time".to_owned(),
        ErrorKind::Authentication { .. } => "it refuses the user name or password".to_owned(),
        kind => kind.to_string(),
    };
    text.chars().take(300).collect()
}
