//! The descriptors of this build.

use std::sync::LazyLock;

use super::Descriptor;

/// Each a file in `descriptors/`, in the order in which they are listed.
static FILES: [(&str, &str); 1] = [("binance.toml", include_str!("../../descriptors/binance.toml"))];

pub(super) fn all() -> &'static [Descriptor] {
    static ALL: LazyLock<Vec<Descriptor>> = LazyLock::new(|| {
        let read =
            |(file, text): &(&str, &str)| Descriptor::read(file, text).expect("the shipped ones are tested");
        FILES.iter().map(read).collect()
    });
    &ALL
}
