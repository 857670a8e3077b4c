//! Jobs against simulated exchanges: history, what is new, what is missing, and what venues do to those who ask.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

mod candles;
mod rig;
mod trades;
mod trouble;
