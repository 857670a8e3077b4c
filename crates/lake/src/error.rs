//! What goes wrong with a lake, named by what a person or the caller does next.

use deltalake_core::DeltaTableError;

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The place is not one, or there is no way in.
    #[error("{place} cannot be used as a lake: {reason}")]
    Place {
        /// As the user wrote it, without anything secret.
        place: String,
        /// Why not.
        reason: String,
    },
    /// There is no table of jobs yet.
    #[error("there is no table of jobs at {place}; `catchment backfill events setup` makes it")]
    NoTable {
        /// Where it was looked for.
        place: String,
    },
    /// There is a table, and it is not ours to write.
    #[error("the table at {place} is not one of jobs as catchment writes them: {reason}")]
    Foreign {
        /// Where.
        place: String,
        /// What is different.
        reason: String,
    },
    /// The storage did not do what was asked of it.
    #[error("{what}: {reason}")]
    Storage {
        /// What was asked.
        what: String,
        /// What it said, without anything secret.
        reason: String,
        /// Trying again may help.
        may_pass: bool,
    },
    /// Others were quicker every time.
    #[error(
        "the table changed {tries} times while it was to be changed; there are too many workers for this storage"
    )]
    Crowded {
        /// How often it was tried.
        tries: u32,
    },
    /// Something of ours is wrong: rows could not be written as a file.
    #[error("the rows cannot be written: {reason}")]
    Rows {
        /// Why.
        reason: String,
    },
}

impl LakeError {
    /// Whether waiting and trying again may help.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Storage { may_pass: true, .. } | Self::Crowded { .. })
    }

    pub(crate) fn store(what: impl Into<String>, error: &object_store::Error) -> Self {
        use object_store::Error::{Generic, JoinError, NotFound, PermissionDenied, Unauthenticated};
        let said = chain(error);
        // A list that is refused is an error like any other.
        let is_refused = matches!(error, PermissionDenied { .. } | Unauthenticated { .. })
            || ["401 Unauthorized", "403 Forbidden"].iter().any(|status| said.contains(status));
        let may_pass = matches!(error, Generic { .. } | JoinError { .. }) && !is_refused;
        let reason = match error {
            NotFound { .. } => "it is not there".to_owned(),
            _ if is_refused => {
                format!("the storage does not let us in ({said}); see docs/lake.md on signing in")
            }
            _ => said,
        };
        Self::Storage { what: what.into(), reason: without_secrets(&reason), may_pass }
    }

    /// A folder that was there is not there any more.
    pub(crate) fn gone(what: impl Into<String>) -> Self {
        let reason = "it was there and is gone; is its disk still mounted?".to_owned();
        Self::Storage { what: what.into(), reason, may_pass: true }
    }

    pub(crate) fn delta(what: impl Into<String>, error: &DeltaTableError) -> Self {
        let what = what.into();
        match error {
            DeltaTableError::ObjectStore { source } => Self::store(what, source),
            other => Self::Storage { what, reason: without_secrets(&chain(other)), may_pass: true },
        }
    }
}

/// The error and what it came from, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.replace(['\n', '\r'], " ")
}

/// Addresses without their queries (a shared access signature is one) and without the user before the host, which may be a
/// key and its secret. The container of `abfss://container@account` is neither.
pub(crate) fn without_secrets(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(address_without_secrets).collect()
}

fn address_without_secrets(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let (address, query) = match rest.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (rest, None),
    };
    let has_container = scheme.ends_with("abfss") || scheme.ends_with("abfs");
    let is_container = |user: &str| has_container && !user.contains([':', '/']);
    // Up to the last `@`: a secret may have a slash in it, and would else be taken for a path.
    let shown = match (address.split_once('@'), address.rsplit_once('@')) {
        (Some((first, _)), _) if is_container(first) => address.to_owned(),
        (_, Some((_, place))) => format!("…@{place}"),
        _ => address.to_owned(),
    };
    let mut clean = format!("{scheme}://{shown}");
    if let Some(query) = query {
        clean.push_str("?…");
        clean.extend(query.chars().last().filter(|last| last.is_whitespace()));
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_in_an_address_is_not_told() {
        let told = without_secrets("PUT https://a.blob.core.windows.net/c/x?sv=1&sig=SECRET failed");
        assert_eq!(told, "PUT https://a.blob.core.windows.net/c/x?… failed");
        assert_eq!(without_secrets("is this so? yes"), "is this so? yes");
    }

    #[test]
    fn a_user_in_an_address_is_not_told_and_a_container_is() {
        for (address, shown) in [
            ("s3://KEY:SECRET@bucket/x", "s3://…@bucket/x"),
            ("s3://KEY:SE/CR@ET@bucket/x is no place", "s3://…@bucket/x is no place"),
            ("(https://SECRET@host/x?sig=SECRET\n", "(https://…@host/x?…\n"),
            ("abfss://c:SECRET@a.dfs.core.windows.net/x", "abfss://…@a.dfs.core.windows.net/x"),
            ("abfss://c@a.dfs.core.windows.net/x@y", "abfss://c@a.dfs.core.windows.net/x@y"),
            ("me@home", "me@home"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
    }
}
