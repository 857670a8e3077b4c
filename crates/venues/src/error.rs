//! Why an answer could not be read.

/// The body as a whole is of no use. What is wrong with a single market or book is told in the page instead.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Cut off, garbled, or not JSON at all. Keep the bytes aside and ask again.
    #[error("the answer is not JSON ({what})")]
    NotJson {
        /// What it begins with, in words.
        what: &'static str,
        /// Where the reading stopped.
        source: serde_json::Error,
    },
    /// A page for people, where data was expected. Most often somebody stands between us and the venue.
    #[error("the answer is an HTML page, not JSON")]
    Html,
    /// JSON of another shape: the format has changed, or the answer is to another question.
    #[error("the answer is JSON of an unknown shape: {0}")]
    Shape(String),
    /// The venue reports an error in a body whose status was good.
    #[error("the venue says: {0}")]
    Said(String),
    /// The listing leads back to where it has been; going on would never end.
    #[error("the listing does not advance: {0}")]
    Stuck(String),
}

impl ReadError {
    /// For bodies that the JSON reader has refused.
    pub(crate) fn not_json(body: &[u8], source: serde_json::Error) -> Self {
        let start = body.trim_ascii_start();
        match start {
            [] => Self::NotJson { what: "it is empty", source },
            [b'<', ..] => Self::Html,
            [0xef, 0xbb, 0xbf, ..] => Self::NotJson { what: "it starts with a byte order mark", source },
            _ if source.is_eof() => Self::NotJson { what: "it is cut off", source },
            _ => Self::NotJson { what: "it is malformed", source },
        }
    }
}
