//! The MongoDB sink on a real mongod: its promises, what it stores, and what happens when the server goes away.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod cellar;
mod documents;
mod logins;
mod outages;
mod promises;
