//! The descriptors of this build.

use std::sync::LazyLock;

use super::Descriptor;

/// Each a file in `descriptors/`, in the order in which they are listed.
static FILES: [(&str, &str); 6] = [
    ("binance.toml", include_str!("../../descriptors/binance.toml")),
    ("bybit.toml", include_str!("../../descriptors/bybit.toml")),
    ("coinbase.toml", include_str!("../../descriptors/coinbase.toml")),
    ("kraken.toml", include_str!("../../descriptors/kraken.toml")),
    ("okx.toml", include_str!("../../descriptors/okx.toml")),
    ("polymarket.toml", include_str!("../../descriptors/polymarket.toml")),
];

/// The shipped files, to be copied and changed by whoever wants it otherwise.
pub(super) fn files() -> &'static [(&'static str, &'static str)] {
    &FILES
}

pub(super) fn all() -> &'static [Descriptor] {
    static ALL: LazyLock<Vec<Descriptor>> = LazyLock::new(|| {
        let read = |(file, text): &(&str, &str)| {
            Descriptor::read(file, text)
                .unwrap_or_else(|error| panic!("the shipped ones are tested: {error}"))
        };
        FILES.iter().map(read).collect()
    });
    &ALL
}
