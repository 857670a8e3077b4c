//! Why there is no reply, named by what the caller does next.

use std::error::Error;
use std::io;
use std::time::Duration;

type BoxError = Box<dyn Error + Send + Sync>;

/// Why there is no reply. The governor has been told already, unless nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing was sent: the permit was too old, or the venue has been held since. Ask for another.
    #[error("the permit is no longer valid")]
    Expired,
    /// Nothing was sent: this is no request that could be. Asking again changes nothing.
    #[error("the request cannot be sent: {reason}")]
    BadRequest {
        /// What is wrong with it.
        reason: String,
    },
    /// The client could not be made: a setting is wrong.
    #[error("the HTTP client cannot be made: {reason}")]
    Setup {
        /// Which, and how.
        reason: String,
    },
    /// It took too long. What has come of the answer is gone.
    #[error("no complete answer after {after:?}, {phase}")]
    TimedOut {
        /// What was being waited for.
        phase: Phase,
        /// How long.
        after: Duration,
    },
    /// The name has no address.
    #[error("the host's name could not be resolved")]
    Unresolved {
        /// What the resolver said.
        source: BoxError,
    },
    /// There is no connection to be had.
    #[error("the host is unreachable")]
    Unreachable {
        /// What the system said.
        source: BoxError,
    },
    /// The other end could not show who it is, or did not want to. Nothing was sent in the clear instead.
    #[error("no trusted connection")]
    Tls {
        /// What was wrong.
        source: BoxError,
    },
    /// The connection ended before the answer did.
    #[error("the connection broke")]
    Broken {
        /// What the system said.
        source: BoxError,
    },
    /// The answer is longer than any answer should be; unpacked, if it came packed.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// The most that is taken.
        limit: usize,
    },
    /// The venue sends us elsewhere. We do not go: an endpoint that has moved is set by a person.
    #[error("status {status} leads to {to}, which is not followed")]
    Redirected {
        /// The answer's status.
        status: u16,
        /// Where to, without its query.
        to: String,
    },
    /// The answer is packed in a way we did not ask for, or its packing is damaged.
    #[error("the answer cannot be unpacked: {reason}")]
    Garbled {
        /// In what way.
        reason: String,
    },
}

/// What a request that timed out was waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A connection.
    Connect,
    /// The beginning of the answer.
    Answer,
    /// The rest of the answer.
    Body,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "while connecting",
            Self::Answer => "before it began",
            Self::Body => "in the middle of the body",
        })
    }
}

impl SendError {
    /// Every word that [`SendError::kind`] can give.
    pub const KINDS: [&'static str; 11] = [
        "expired",
        "bad_request",
        "setup",
        "timeout",
        "dns",
        "connect",
        "tls",
        "reset",
        "too_large",
        "redirect",
        "garbled",
    ];

    /// A word for metrics and error records.
    pub fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_at()]
    }

    /// Whether a request left, and so the governor knows how it ended.
    pub fn has_left(&self) -> bool {
        !matches!(self, Self::Expired | Self::BadRequest { .. } | Self::Setup { .. })
    }

    /// The error and what it came from, as one line.
    pub fn with_sources(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }

    pub(crate) fn kind_at(&self) -> usize {
        match self {
            Self::Expired => 0,
            Self::BadRequest { .. } => 1,
            Self::Setup { .. } => 2,
            Self::TimedOut { .. } => 3,
            Self::Unresolved { .. } => 4,
            Self::Unreachable { .. } => 5,
            Self::Tls { .. } => 6,
            Self::Broken { .. } => 7,
            Self::TooLarge { .. } => 8,
            Self::Redirected { .. } => 9,
            Self::Garbled { .. } => 10,
        }
    }

    /// What the client reports. Its address is left out: it is long, and whoever asks knows it.
    pub(crate) fn from_client(error: reqwest::Error, after: Duration) -> Self {
        let error = error.without_url();
        let is_connect = error.is_connect();
        if holds::<Unresolved>(&error) {
            return Self::Unresolved { source: error.into() };
        }
        if error.is_timeout() {
            let phase = if is_connect { Phase::Connect } else { Phase::Answer };
            return Self::TimedOut { phase, after };
        }
        if holds::<rustls::Error>(&error) || (is_connect && has_handshake_been_cut(&error)) {
            return Self::Tls { source: error.into() };
        }
        if is_connect {
            return Self::Unreachable { source: error.into() };
        }
        if error.is_builder() {
            return Self::BadRequest { reason: error.to_string() };
        }
        if let Some(io) = unpacking(&error) {
            return Self::Garbled { reason: io.to_string() };
        }
        Self::Broken { source: error.into() }
    }
}

/// The name has no address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unresolved(#[source] pub(crate) io::Error);

/// Whether the error, or anything it came from, is a `T`.
fn holds<T: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    find(error, &|link| link.is::<T>().then_some(())).is_some()
}

/// The first I/O error that is not merely the wrapping of another.
fn find_io<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    find(error, &|link| {
        link.downcast_ref::<io::Error>()
            .filter(|io| io.get_ref().is_none_or(|inner| !inner.is::<io::Error>()))
    })
}

fn has_handshake_been_cut(error: &reqwest::Error) -> bool {
    find_io(error).is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof)
}

/// What the unpacker had to say about the bytes. Its errors come as they are; what happened to the connection meanwhile is
/// wrapped once more.
fn unpacking(error: &reqwest::Error) -> Option<&io::Error> {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    let io = error.source().filter(|_| error.is_decode())?.downcast_ref::<io::Error>()?;
    matches!(io.kind(), InvalidData | InvalidInput | UnexpectedEof).then_some(io)
}

/// Walks from an error to what it came from. An I/O error that wraps another does not name it as its source, so it is
/// looked into.
fn find<'e, T>(
    error: &'e (dyn Error + 'static),
    pick: &dyn Fn(&'e (dyn Error + 'static)) -> Option<T>,
) -> Option<T> {
    if let Some(picked) = pick(error) {
        return Some(picked);
    }
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    if let Some(inner) = wrapped
        && let Some(picked) = find(inner, pick)
    {
        return Some(picked);
    }
    find(error.source()?, pick)
}
