//! Streams.
#![allow(dead_code)]
mod acks;
mod gaps;
mod overlap;
mod pace;
mod plan;
mod redial;
mod rhythm;
mod silence;
mod socket;
