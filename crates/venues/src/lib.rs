//! What each venue offers and how to read it. Pure: requests out, values in; nothing here sends, sleeps, logs or reads
//! a clock.

pub mod polymarket;
