//! Every key of the configuration with its default and what it means: `config init`, `config explain`, `docs/config.md`.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::DONE;

/// What a key means.
#[derive(Debug, Serialize)]
struct Key {
    /// Its table; empty for the top, `[[sinks]]` for each sink.
    table: &'static str,
    name: &'static str,
    /// As it would be written.
    default: &'static str,
    /// Whether leaving it out means something else than the default shown.
    optional: bool,
    means: &'static str,
}

const fn key(table: &'static str, name: &'static str, default: &'static str, means: &'static str) -> Key {
    Key { table, name, default, optional: false, means }
}

const fn optional(
    table: &'static str,
    name: &'static str,
    default: &'static str,
    means: &'static str,
) -> Key {
    Key { table, name, default, optional: true, means }
}

/// Every key, in the order in which they are printed.
#[rustfmt::skip]
const KEYS: &[Key] = &[
    key("", "data_dir", r#""data""#, "the archive: <venue>/<channel>/date=YYYY-MM-DD/*.jsonl"),
    key("[api]", "enabled", "true", "serve a page of live figures, health, metrics and the API while `run` runs"),
    key("[api]", "listen", r#""127.0.0.1:8080""#, "where; beyond loopback only with a token"),
    optional("[api]", "token_file", r#""/etc/catchment/api_token""#, "a file with the token that everybody must show; CATCHMENT_API_TOKEN in the environment comes before it"),
    optional("", "descriptors_dir", r#""descriptors""#, "a folder with descriptions of more venues that stream, a .toml file each; read at the start"),
    optional("[venues.polymarket]", "endpoints", "{}", "other addresses by name, such as { clob = \"http://127.0.0.1:9600/polymarket/clob\" }; `catchment venues` lists the names"),
    optional("[venues.polymarket]", "poll_interval_ms", "1000", "each book is asked for this often"),
    optional("[venues.polymarket]", "books_per_request", "500", "books asked for at once; default: as many as the venue takes"),
    optional("[venues.polymarket]", "check_hashes", "true", "make every book's hash anew and compare; without it a book costs about a sixth less, and hash_ok is null"),
    optional("[venues.polymarket]", "discover_interval_s", "300", "how often the venue's markets are listed anew"),
    optional("[venues.polymarket]", "limiter", r#""pace""#, "what learns the limits a venue does not declare: pace (a rate) | aimd (requests under way)"),
    optional("[venues.polymarket]", "limit_share", "0.95", "how much of the venue's declared limits is used"),
    optional("[venues.polymarket]", "max_workers", "16", "requests of the poller under way at once"),
    optional("[venues.polymarket]", "max_inflight", "32", "requests of everybody under way at once; the ceiling of aimd"),
    optional("[venues.polymarket]", "request_deadline_ms", "10000", "a request without a whole answer by then has failed"),
    optional("[venues.polymarket]", "cooldown_ms", "5000", "how long nothing is sent after a refusal that names no time, or when most requests failed"),
    optional("[venues.polymarket.login]", "key", r#"{ env = "VENUE_KEY" }"#, "where the key for private streams is: { env = … } or { file = … }"),
    optional("[venues.polymarket.login]", "secret", r#"{ file = "/etc/catchment/secret" }"#, "where the secret is; it is never in this file itself, and never shown"),
    optional("[venues.polymarket.login]", "passphrase", r#"{ env = "VENUE_PASSPHRASE" }"#, "where the passphrase is, for venues that have one"),
    optional("[venues.polymarket.aimd]", "start_inflight", "2", "requests under way at the start"),
    optional("[venues.polymarket.aimd]", "stable_s", "30", "no refusal for so long before one is added"),
    optional("[venues.polymarket.aimd]", "adjust_s", "5", "between two adjustments"),
    optional("[venues.polymarket.aimd]", "failure_share_max", "0.2", "more failures take one away; fewer than half of it may add one"),
    optional("[venues.polymarket.aimd]", "latency_low_ms", "800", "one may be added while the 95th percentile is below"),
    optional("[venues.polymarket.aimd]", "latency_high_ms", "2000", "one is taken away when it is above"),
    optional("[[streams]]", "venue", r#""binance""#, "a venue that streams; `catchment venues` lists them. Several blocks of one venue are taken together"),
    optional("[[streams]]", "symbols", r#"["BTC/USDT"]"#, "what is recorded of it: BASE/QUOTE, or the venue's own id where it has no such names"),
    optional("[[streams]]", "channels", r#"["trades", "book_delta"]"#, "which of its channels; `catchment venues` lists them"),
    optional("[[streams]]", "books", "true", "whether order books are kept, proved by the venue's checksums and written whole; false: changes are recorded and their numbers followed, at less cost. A venue's books are kept if one of its blocks wants them"),
    optional("[[streams]]", "snapshot_interval_s", "60", "whole books are written to the channel orderbook this often, and after each new beginning"),
    optional("[[streams]]", "snapshot_depth", "5000", "levels a side in these"),
    key("[store]", "kind", r#""sqlite""#, "where connectors, jobs and candles are kept: sqlite (a file; several processes of one machine) | mongo (a server; several machines)"),
    optional("[store]", "path", r#""data/jobs.db""#, "the file; default: jobs.db in data_dir"),
    key("[store]", "uri", r#""mongodb://localhost:27017""#, "the server; may hold a password, which is never shown. CATCHMENT_STORE_URI in the environment comes first"),
    optional("[store]", "uri_file", r#""/etc/catchment/store_uri""#, "a file that holds the connection string instead"),
    key("[store]", "database", r#""market_data""#, "its database"),
    key("[store]", "limits", r#""jobs""#, "whose limits are kept there, for all processes together: jobs (of the venues that have jobs) | all"),
    optional("[jobs]", "enabled", "true", "whether this process works on jobs; default: if there are pairs"),
    optional("[jobs]", "workers", "8", "jobs worked on at once"),
    optional("[jobs]", "lease_s", "30", "a worker that was silent for so long has lost its job to another"),
    optional("[jobs]", "attempts_max", "10", "a job that has failed so often in a row is given up until somebody looks"),
    optional("[jobs]", "max_concurrent_per_exchange", "0", "so many jobs of an exchange at once, over all processes; 0: no cap"),
    optional("[jobs]", "system_requests_per_s", "0", "what all exchanges together may be asked, over all processes; 0: no limit"),
    optional("[[jobs.pairs]]", "venue", r#""binance""#, "whose candles are kept: binance, coinbase, kraken, okx, bybit"),
    optional("[[jobs.pairs]]", "symbols", r#"["BTC/USDT"]"#, "of which pairs"),
    optional("[[jobs.pairs]]", "timeframes", r#"["1m"]"#, "which candles: 1s 1m 3m 5m 15m 30m 1h 2h 4h 6h 8h 12h 1d 3d 1w 2w 1M, as far as the venue has them"),
    optional("[[jobs.pairs]]", "history", "true", "fetch those of the past, too"),
    optional("[[jobs.pairs]]", "since", r#""2020-01-01""#, "from when on; default: from the first the venue has"),
    optional("[backfill.events]", "table", r#""data/_meta/backfill_jobs_events""#, "the Delta table of `backfill events`: a folder, abfss://…, az://… or s3://…; default: in data_dir"),
    optional("[backfill.events]", "bronze", r#""data/bronze/polymarket/events""#, "its files: <bronze>/mode=backfill/ingest_date=YYYY-MM-DD/*.jsonl; likewise"),
    key("[persistence]", "memory_mb", "64", "what may be in memory on its way into the spool and to the sinks; a stalled sink then reads from disk"),
    key("[persistence]", "mongo_uri", r#""mongodb://localhost:27017""#, "where [[sinks]] kind = \"mongo\" writes; may hold a password, which is never shown. CATCHMENT_MONGO_URI in the environment comes before it"),
    optional("[persistence]", "mongo_uri_file", r#""/etc/catchment/mongo_uri""#, "a file that holds the connection string instead"),
    key("[persistence]", "mongo_database", r#""market_data""#, "the database"),
    key("[persistence]", "mongo_collection", r#""crypto_envelopes""#, "the collection"),
    key("[persistence]", "mongo_max_retries", "3", "how often a failed batch is tried again before the sink counts as unreachable"),
    key("[persistence]", "mongo_retry_base_ms", "100", "the first wait between tries; each further one is twice as long, with jitter"),
    key("[persistence]", "mongo_consecutive_failures_for_degraded", "3", "so many exhausted batches in a row make the sink degraded"),
    key("[persistence.spool]", "enabled", "true", "make every record durable before it counts as accepted; false keeps them in memory only"),
    optional("[persistence.spool]", "dir", r#""data/spool""#, "its folder, one process at a time; default: spool in data_dir"),
    key("[persistence.spool]", "max_segment_mb", "64", "a segment that would grow beyond this is followed by another"),
    key("[persistence.spool]", "max_total_mb", "1024", "what all segments together may take; at least two segments"),
    key("[persistence.spool]", "on_full", r#""drop_ticker_depth_keep_trade""#, "when they do: drop_all | drop_ticker_depth_keep_trade (the rest waits) | block"),
    key("[persistence.spool]", "commit_ms", "10", "how long a record may wait for others to be synced with it; 0: no wait"),
    key("[persistence.spool]", "commit_kb", "1024", "sync at once when so much has gathered"),
    key("[persistence.dedup]", "enabled", "false", "drop records that were accepted lately, by message id, else by sequence, within exchange, channel and symbol"),
    key("[persistence.dedup]", "window_seconds", "300", "what lately means"),
    key("[persistence.dedup]", "max_keys", "100000", "how many records are remembered at most"),
    key("[persistence.dedup]", "by_payload", "[]", "channels in which equal payloads are duplicates even without an id or sequence"),
    key("[[sinks]]", "kind", r#""jsonl""#, "jsonl: files of JSON lines under data_dir | mongo: the collection that [persistence] names | redis: the latest of each symbol"),
    optional("[[sinks]]", "name", r#""jsonl""#, "what its cursor is kept under; default: its kind"),
    optional("[[sinks]]", "dir", r#""data""#, "where its files are; default: data_dir. Two sinks have two folders"),
    key("[[sinks]]", "file_mb", "256", "a file that has reached this is sealed and followed by another"),
    key("[[sinks]]", "compress", "false", "compress sealed files with zstd"),
    key("[[sinks]]", "compress_level", "1", "1 to 19"),
    optional("[[sinks]]", "batch_records", "10000", "a batch holds at most so many records (default for mongo: 4000, sent a thousand at a time),"),
    key("[[sinks]]", "batch_kb", "4096", "and so many KiB,"),
    key("[[sinks]]", "batch_ms", "100", "and waits so long for more"),
    optional("[[sinks]]", "max_retries", "3", "how often a failed batch is tried again before the sink counts as unreachable; default for mongo: mongo_max_retries"),
    optional("[[sinks]]", "retry_base_ms", "100", "the first wait between tries; each further one is twice as long, with jitter; default for mongo: mongo_retry_base_ms"),
    key("[[sinks]]", "retry_cap_ms", "5000", "no wait is longer"),
    optional("[[sinks]]", "consecutive_failures_for_degraded", "3", "so many exhausted batches in a row make the sink degraded; default for mongo: mongo_consecutive_failures_for_degraded"),
    key("[[sinks]]", "replay_rate_limit_ms", "0", "a rest between batches that come from disk while catching up"),
    optional("[[sinks]]", "url", r#""redis://127.0.0.1:6379""#, "redis: where it is; several addresses with commas between them are a cluster"),
    optional("[[sinks]]", "prefix", r#""ob:""#, "redis: what stands before a name in its key"),
    optional("[[sinks]]", "names", r#""{symbol}""#, "redis: the name, of {symbol}, {venue} and {channel}"),
    optional("[[sinks]]", "channels", r#"["orderbook"]"#, "redis: the channels whose latest is kept; none named: all"),
    optional("[[sinks]]", "stream_len", "0", "redis: keep about so many entries of an audit stream for each venue, <prefix>audit:<venue>; 0: none"),
    optional("[[sinks]]", "stream_books", "false", "redis: whether its entries have the books"),
    optional("[[sinks]]", "publish", r#""ob:changed""#, "redis: publish every changed name on this channel"),
    optional("[fleet.coordinator]", "redis_url", r#""redis://127.0.0.1:6379""#, "where the fleet meets; several addresses with commas between them are a cluster"),
    optional("[fleet.coordinator]", "base_url", r#""https://clob.polymarket.com""#, "the venue, for the record; the nodes have their own"),
    optional("[fleet.coordinator]", "tokens", "[]", "tokens to follow"),
    optional("[fleet.coordinator]", "fetch_nodes", "[]", "nodes, host:port; others register themselves in Redis"),
    optional("[fleet.coordinator]", "plan_horizon_secs", "5.0", "every token is to be fetched once in so many seconds; batches are as large as that needs"),
    optional("[fleet.coordinator]", "tokens_file", r#""tokens.txt""#, "more tokens, one a line or a JSON list; watched"),
    optional("[fleet.coordinator]", "snapshot", r#""data/polymarket/state/active_instruments.snapshot.json""#, "more tokens, from the file that discovery writes; watched"),
    optional("[fleet.coordinator]", "key_file", r#""fleet.key""#, "the key that all of the fleet share; else CATCHMENT_FLEET_KEY"),
    optional("[fleet.coordinator]", "coordinator_id", r#""coordinator""#, "its name in the status"),
    optional("[fleet.coordinator]", "namespace", r#""fleet""#, "the fleet's name in Redis"),
    optional("[fleet.coordinator]", "inflight_max", "16", "batches a node may have under way"),
    optional("[fleet.coordinator]", "slow_ms", "2000", "answers that take longer make batches smaller"),
    optional("[fleet.coordinator]", "metrics_listen", r#""127.0.0.1:9101""#, "where Prometheus may ask; loopback only"),
    optional("[fleet.fetcher]", "redis_url", r#""redis://127.0.0.1:6379""#, "where the books go and the fleet meets"),
    optional("[fleet.fetcher]", "base_url", r#""https://clob.polymarket.com""#, "the venue"),
    optional("[fleet.fetcher]", "node_id", r#""fetch-001""#, "its name, unique in the fleet"),
    optional("[fleet.fetcher]", "capacity_rps", "20", "requests in any second, at most, whatever it is told"),
    optional("[fleet.fetcher]", "bind_addr", r#""0.0.0.0:3000""#, "where it listens; without a key on loopback only"),
    optional("[fleet.fetcher]", "advertise_addr", r#""10.0.0.1:3000""#, "where coordinators reach it, if not at bind_addr"),
    optional("[fleet.fetcher]", "source_addr", r#""10.0.0.1""#, "the local address its requests leave from"),
    optional("[fleet.fetcher]", "key_file", r#""fleet.key""#, "the key that all of the fleet share; else CATCHMENT_FLEET_KEY"),
    optional("[fleet.fetcher]", "namespace", r#""fleet""#, "the fleet's name in Redis"),
    optional("[fleet.fetcher]", "slack_ms", "25", "capacity_rps holds in every second and this much more: what a network may shift"),
    optional("[fleet.fetcher]", "request_deadline_ms", "5000", "a request without a whole answer by then has failed"),
    optional("[fleet.fetcher]", "prefix", r#""ob:""#, "what stands before a token in its key"),
    optional("[fleet.fetcher]", "stream_len", "0", "keep about so many entries of an audit stream for each venue, <prefix>audit:<venue>; 0: none"),
    optional("[fleet.fetcher]", "stream_books", "false", "whether its entries have the books"),
    optional("[fleet.fetcher]", "publish", r#""ob:changed""#, "publish every changed token on this channel"),
];

/// `config init`.
pub(crate) fn init(path: &Path, force: bool) -> anyhow::Result<u8> {
    let text = starter();
    if path == Path::new("-") {
        tell_text!("{text}");
        return Ok(DONE);
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).create_new(!force);
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            anyhow::bail!("{} is already there; write over it with --force", path.display())
        }
        opened => opened.with_context(|| format!("cannot write {}", path.display()))?,
    };
    std::io::Write::write_all(&mut file, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    crate::say(&format!("wrote {}", path.display()));
    Ok(DONE)
}

/// `config explain`.
pub(crate) fn explain(json: bool, markdown: bool) -> anyhow::Result<u8> {
    if json {
        tell!("{}", serde_json::to_string_pretty(KEYS)?);
    } else if markdown {
        tell_text!("{}", reference());
    } else {
        tell_text!("{}", starter());
    }
    Ok(DONE)
}

/// A file with every key at its default, each explained.
fn starter() -> String {
    let mut text = String::from("# catchment.toml: every key, its default and what it means.\n");
    let mut table = "";
    for key in KEYS {
        if key.table != table {
            table = key.table;
            // A venue that is named is recorded; whether to is the user's to say.
            let is_choice =
                table.starts_with("[venues") || table.starts_with("[[streams") || table.contains("[jobs");
            let off = if is_choice { "# " } else { "" };
            text.push_str(&format!("\n{off}{table}\n"));
        }
        let off = if key.optional { "# " } else { "" };
        text.push_str(&format!("# {}\n{off}{} = {}\n", key.means, key.name, key.default));
    }
    text
}

/// `docs/config.md`.
fn reference() -> String {
    let mut text = String::from(
        "# Configuration\n\nWritten by `catchment config explain --markdown`. Unknown keys are errors.\n",
    );
    let mut table = None;
    for key in KEYS {
        if table != Some(key.table) {
            table = Some(key.table);
            let heading =
                if key.table.is_empty() { "Top level".to_owned() } else { format!("`{}`", key.table) };
            text.push_str(&format!("\n## {heading}\n\n| key | default | meaning |\n|---|---|---|\n"));
        }
        let means = key.means.replace('|', "\\|");
        text.push_str(&format!("| `{}` | `{}` | {means} |\n", key.name, key.default));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::jobs::{JobsToml, PairToml};
    use super::super::tests::checked;
    use super::super::{ConfigToml, StreamToml, VenueToml};
    use super::*;

    #[test]
    fn the_explained_defaults_are_the_defaults() {
        let mut explained = BTreeMap::new();
        for key in KEYS {
            let table = key.table.trim_matches(['[', ']']);
            let path = if table.is_empty() { key.name.to_owned() } else { format!("{table}.{}", key.name) };
            let toml = format!("x = {}", key.default);
            let value: BTreeMap<String, serde_json::Value> = toml::from_str(&toml).unwrap();
            explained.insert(path, (key.optional, value["x"].clone()));
        }
        let mut real = BTreeMap::new();
        let venues = BTreeMap::from([("polymarket".to_owned(), VenueToml::default())]);
        let streams = vec![StreamToml::default()];
        let mut jobs = JobsToml::default();
        jobs.pairs.push(PairToml::default());
        let whole = ConfigToml { venues, streams, jobs, ..ConfigToml::default() };
        flatten("", serde_json::to_value(whole).unwrap(), &mut real);
        assert_eq!(explained.keys().collect::<Vec<_>>(), real.keys().collect::<Vec<_>>());
        for (path, value) in real {
            let (optional, explained) = &explained[&path];
            assert!(*optional || *explained == value, "{path} is {value}, explained as {explained}");
        }
    }

    fn flatten(at: &str, value: serde_json::Value, out: &mut BTreeMap<String, serde_json::Value>) {
        match value {
            serde_json::Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    let path = if at.is_empty() { name } else { format!("{at}.{name}") };
                    flatten(&path, value, out);
                }
            }
            serde_json::Value::Array(mut items)
                if items.first().is_some_and(serde_json::Value::is_object) =>
            {
                flatten(at, items.remove(0), out);
            }
            value => {
                out.insert(at.to_owned(), value);
            }
        }
    }

    #[test]
    fn the_starter_is_a_configuration() {
        let started = format!("{:?}", checked(&starter()).unwrap());
        assert_eq!(started, format!("{:?}", checked("").unwrap()));
    }

    #[test]
    fn the_reference_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            written,
            reference(),
            "write it again: catchment config explain --markdown > docs/config.md"
        );
    }
}
