//! The room as its users see it, over real sockets.

#![allow(clippy::unwrap_used)] // a test may

mod courier;
mod discover;
mod poll;
mod support;
mod tls;
