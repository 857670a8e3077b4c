//! The room as its users see it, over real sockets.

mod courier;
mod discover;
mod support;
mod tls;
