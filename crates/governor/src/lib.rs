//! How fast. No request leaves without a permit, and only this room makes one.
//!
//! * [`limiter`]: learns what a venue allows and does not say

pub mod limiter;
