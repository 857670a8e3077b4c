//! `[[sinks]] kind = "redis"`: where the latest of each symbol is kept.

use catchment_sinks::redis::{AuditStream, LatestSettings, Names, RedisAddress, RedisConfig};

use super::{ConfigError, SinkToml};

/// Checks the keys that only this kind has.
pub(super) fn check(sink: &SinkToml, name: &str, at: usize) -> Result<RedisConfig, ConfigError> {
    let key = |name: &str| format!("sinks[{at}].{name}");
    let Some(url) = &sink.url else {
        return Err(ConfigError::at(
            key("url"),
            "is missing; kind = \"redis\" needs one, such as redis://127.0.0.1:6379",
        ));
    };
    let urls: Vec<String> = url.split(',').map(|url| url.trim().to_owned()).collect();
    // The address may hold a password, so it is not repeated.
    if urls.iter().any(|url| !["redis://", "rediss://", "unix://"].iter().any(|start| url.starts_with(start)))
    {
        return Err(ConfigError::at(key("url"), "is not an address such as redis://127.0.0.1:6379"));
    }
    let stream = (sink.stream_len > 0).then(|| AuditStream {
        key: format!("{}audit", sink.prefix),
        len_max: sink.stream_len,
        with_books: sink.stream_books,
    });
    let address = RedisAddress { urls, ..RedisAddress::new("") };
    Ok(RedisConfig {
        name: name.to_owned(),
        latest: LatestSettings {
            prefix: sink.prefix.clone(),
            stream,
            publish: sink.publish.clone(),
            ..LatestSettings::default()
        },
        names: Names(sink.names.clone()),
        channels: sink.channels.iter().cloned().collect(),
        ..RedisConfig::new(address)
    })
}
