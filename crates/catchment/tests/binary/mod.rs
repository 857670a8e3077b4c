//! Which program the tests run: the one built with them, or the one `CATCHMENT_BINARY` names. `scripts/torture` names a
//! release build, so that what is measured is what users run while the tests themselves need no second build.
#![allow(unreachable_pub)] // some use it through another file

use std::sync::LazyLock;

pub static BINARY: LazyLock<String> = LazyLock::new(|| {
    std::env::var("CATCHMENT_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_catchment").to_owned())
});
