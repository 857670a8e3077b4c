//! Standard output, which whoever reads it may close before we are through (`catchment verify | head`).

use std::fmt;
use std::io::{ErrorKind, Write as _};

use crate::{COULD_NOT, DONE, say};

/// A line on standard output.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Text on standard output that ends its lines itself.
macro_rules! tell_text {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

/// Ends the process if that cannot be written: quietly if nobody reads any more, else with the reason.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let Err(error) = std::io::stdout().lock().write_fmt(text) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(DONE.into());
    }
    say(&format!("catchment: standard output cannot be written: {error}"));
    std::process::exit(COULD_NOT.into());
}
