//! What is refused, and with which words; what is taken together.

use super::*;

pub(super) fn checked(text: &str) -> Result<Config, String> {
    parse(text).map_err(|e| e.to_string())?.check().map_err(|e| e.to_string())
}

/// The text is refused, and the message names what is wrong.
fn refused(text: &str, names: &str) {
    let error = checked(text).expect_err(text);
    assert!(error.contains(names), "{text}\ngave {error:?}, expected {names:?}");
}

#[test]
fn what_is_wrong_is_named() {
    refused("data_dri = 'x'", "unknown field `data_dri`, expected one of `data_dir`");
    refused("[persistence.spool]\nmax_segment_mb = '64MB'", "the unit is part of the key");
    refused(
        "[persistence.spool]\nmax_segment_mb = 64\nmax_total_mb = 100",
        "persistence.spool.max_total_mb is 100",
    );
    refused(
        "[persistence.spool]\nmax_segment_mb = 0",
        "persistence.spool.max_segment_mb is 0, expected 1 to",
    );
    refused("[persistence.spool]\non_full = 'explode'", "unknown variant `explode`");
    refused(
        "[persistence.dedup]\nby_payload = ['Ticker']",
        "persistence.dedup.by_payload holds channel \"Ticker\"",
    );
    refused("[[sinks]]\nkind = 'paper'", "unknown variant `paper`");
    refused("[[sinks]]\nkind = 'redis'", "sinks[0].url is missing");
    refused("[[sinks]]\nkind = 'redis'\nurl = 'http://x'", "sinks[0].url is not an address");
    refused("[[sinks]]\n[[sinks]]", "sinks[1].name \"jsonl\" is taken");
    refused("[[sinks]]\n[[sinks]]\nname = 'b'", "sinks[1].dir is data, the folder of \"jsonl\"");
    refused("[[sinks]]\nname = '../x'", "sinks[0].name");
    refused("[[sinks]]\ncompress_level = 40", "sinks[0].compress_level is 40");
    refused("sinks = []", "sinks is empty");
    refused("[persistence]\nmongo_url = 'x'", "unknown field `mongo_url`");
    refused("data_dir = ", "line 1");
    refused(
        "[[streams]]\nvenue = 'bourse'",
        "streams[0].venue is \"bourse\", which is no venue that streams",
    );
    refused("[[streams]]\nsymbols = []", "streams[0].symbols is empty");
    refused("[[streams]]\nsymbols = ['BTC/']", "streams[0].symbols is wrong: \"BTC/\"");
    refused(
        "[[streams]]\nchannels = ['moods']",
        "streams[0].channels is wrong: binance has no channel \"moods\"",
    );
    refused("[[streams]]\nsnapshot_interval_s = 0", "streams[0].snapshot_interval_s is 0");
    refused(
        "[venues.binance]\nendpoints = { moon = 'ws://x' }",
        "venues.binance.endpoints.moon does not exist",
    );
    refused("[venues.binance]\nlimit_share = 2.0", "venues.binance.limit_share is 2");
    refused(
        "[[streams]]\nvenue = 'bybit'\nsymbols = ['BTC/USDT', 'btc/usdt']\n",
        "name one instrument of bybit in two ways, BTC/USDT and btc/usdt",
    );
    refused("descriptors_dir = 'nowhere/at/all'", "descriptors_dir is nowhere/at/all, which cannot be read");
    refused(
        "[venues.bourse]",
        "venues.bourse is not a venue we know; there is polymarket, limitless, kalshi",
    );
    refused("[venues.kalshi]\npoll_interval_ms = 1", "venues.kalshi.poll_interval_ms is 1, expected 50 to");
    refused("[venues.polymarket]\nbooks_per_request = 501", "venues.polymarket.books_per_request is 501");
    refused("[venues.polymarket]\nlimit_share = 2.0", "venues.polymarket.limit_share is 2");
    refused(
        "[venues.kalshi]\nendpoints = { moon = 'http://x' }",
        "venues.kalshi.endpoints.moon does not exist",
    );
    refused("[venues.kalshi]\nendpoints = { api = 'x' }", "venues.kalshi.endpoints.api");
    refused("[api]\nlisten = 'here'", "api.listen is \"here\"");
    refused(
        "[[jobs.pairs]]\nvenue = 'kalshi'",
        "jobs.pairs[0].venue is \"kalshi\", which is no venue with candles",
    );
    refused(
        "[[jobs.pairs]]\ntimeframes = ['7m']",
        "jobs.pairs[0].timeframes holds \"7m\" is not a timeframe",
    );
    refused(
        "[[jobs.pairs]]\nvenue = 'coinbase'\ntimeframes = ['4h']",
        "jobs.pairs[0].timeframes holds 4h; coinbase has 1m,",
    );
    refused("[[jobs.pairs]]\nsymbols = ['BTC-USDT']", "jobs.pairs[0].symbols holds \"BTC-USDT\"");
    refused("[[jobs.pairs]]\nsince = 'soon'", "jobs.pairs[0].since is \"soon\"");
    refused("[jobs]\nworkers = 0\n[[jobs.pairs]]", "jobs.workers is 0");
    refused("[jobs]\nenabled = true", "jobs.enabled is true, but no venue with candles is named");
    refused("[store]\nkind = 'paper'", "unknown variant `paper`");
    refused("[store]\nkind = 'mongo'\npath = 'x'", "store.path is given");
}

#[cfg(feature = "mongo")]
#[test]
fn a_mongo_sink_takes_s1s_keys_and_its_own_come_first() {
    let mongo = |persistence: &str, sink: &str| {
        checked(&format!("[persistence]\n{persistence}\n[[sinks]]\nkind = 'mongo'\n{sink}"))
    };
    let delivery = |persistence: &str, sink: &str| {
        let config = mongo(persistence, sink).unwrap();
        assert_eq!(config.sinks[0].name, "mongo");
        let delivery = config.sinks[0].delivery.clone();
        (delivery.batch_records, delivery.retries_max, delivery.retry_base, delivery.degraded_after)
    };
    let ms = Duration::from_millis;
    assert_eq!(delivery("", ""), (4_000, 3, ms(100), 3));
    let keys = "mongo_max_retries = 5\nmongo_retry_base_ms = 7\nmongo_consecutive_failures_for_degraded = 9";
    assert_eq!(delivery(keys, ""), (4_000, 5, ms(7), 9));
    assert_eq!(delivery(keys, "max_retries = 1\nbatch_records = 10"), (10, 1, ms(7), 9));
    let refused = |persistence: &str, sink: &str, names: &str| {
        let error = mongo(persistence, sink).unwrap_err();
        assert!(error.contains(names) && !error.contains("sesame"), "{error:?}, expected {names:?}");
    };
    refused("mongo_database = 'a.b'", "", "persistence.mongo_database is \"a.b\"");
    refused("mongo_collection = ''", "", "persistence.mongo_collection is \"\"");
    refused("mongo_uri = 'mongodb://u:sesame/1@h'", "", "percent-encoded");
    refused("mongo_uri = 'mongodb://u:sesame@h", "", "mongodb://***");
    refused("mongo_uri = 'mongodb://u:sesame", "", "mongodb://***");
    refused("", "dir = 'x'", "sinks[0].dir is given");
    refused(
        "",
        "name = 'a'\n[[sinks]]\nkind = 'mongo'",
        "sinks[1].kind is \"mongo\", the collection of \"a\"",
    );
    let shown = format!("{:?}", mongo("mongo_uri = 'mongodb://u:sesame@h'", "").unwrap());
    assert!(!shown.contains("sesame"), "{shown}");
}

#[test]
fn private_streams_need_a_login_whose_texts_are_elsewhere() {
    const ORDERS: &str = "[[streams]]\nvenue = 'okx'\nchannels = ['orders']\n[venues.okx.login]\n";
    refused(
        "[[streams]]\nvenue = 'okx'\nchannels = ['orders']",
        "venues.okx.login is needed for \"orders\": the login of okx needs a key",
    );
    refused(
        &format!("{ORDERS}key = {{ env = 'CATCHMENT_NO_SUCH_VARIABLE' }}"),
        "venues.okx.login.key names the environment variable CATCHMENT_NO_SUCH_VARIABLE, which is not set",
    );
    let error = checked(&format!("{ORDERS}key = 'sesame'")).unwrap_err();
    assert!(error.contains("venues.okx.login.key is to say where") && !error.contains("sesame"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    #[allow(clippy::disallowed_methods, reason = "a file for a test, which no power cut will meet")]
    std::fs::write(&path, "sesame\n").unwrap();
    let place = format!("{{ file = {:?} }}", path.display().to_string());
    let config = checked(&format!("{ORDERS}key = {place}\nsecret = {place}\npassphrase = {place}")).unwrap();
    assert_eq!(config.streams[0].secrets.as_ref().unwrap().passphrase, "sesame");
    assert!(!format!("{config:?}").contains("sesame"), "{config:?}");
}

#[test]
fn blocks_of_one_venue_are_taken_together() {
    let config = checked(
        "[[streams]]\nvenue = 'binance'\nsymbols = ['BTC/USDT', 'ETH/USDT']\nchannels = ['trades']\n\
         [[streams]]\nvenue = 'binance'\nsymbols = ['BTC/USDT']\nchannels = ['book_delta']\n\
         snapshot_interval_s = 5\n\
         [venues.binance]\nendpoints = { stream = 'ws://127.0.0.1:1' }\nmax_inflight = 7",
    )
    .unwrap();
    let [binance] = &config.streams[..] else { panic!("{:?}", config.streams) };
    assert_eq!((binance.wanted.len(), binance.snapshot_interval.as_secs()), (3, 5));
    assert!(binance.keeps_books);
    assert_eq!((binance.endpoints.url("stream"), binance.speed.max_inflight), ("ws://127.0.0.1:1", 7));
    assert!(config.venues.is_empty(), "it is not polled");
}

#[test]
fn books_are_kept_unless_no_block_of_the_venue_wants_them() {
    let keeps = |blocks: &[bool]| {
        let block = |books: &bool| format!("[[streams]]\nvenue = 'okx'\nbooks = {books}\n");
        checked(&blocks.iter().map(block).collect::<String>()).unwrap().streams[0].keeps_books
    };
    assert!(!keeps(&[false]) && keeps(&[false, true]) && keeps(&[true, false]));
}

#[test]
fn a_socket_may_be_called_ws_and_an_unknown_endpoint_is_told_all_names() {
    let streams = "[[streams]]\nvenue = 'polymarket'\nsymbols = ['7']\nchannels = ['trades']\n";
    let named = |name: &str| {
        format!(
            "{streams}[venues.polymarket]\nendpoints = {{ clob = 'http://c', gamma = 'http://g', {name} = 'ws://s' }}"
        )
    };
    for name in ["ws", "stream"] {
        let config = checked(&named(name)).unwrap();
        assert_eq!(config.streams[0].endpoints.url("stream"), "ws://s", "{name}");
        assert_eq!(config.streams[0].endpoints.url("clob"), "http://c", "{name}");
        assert_eq!(config.venues[0].endpoints.url("gamma"), "http://g", "{name}");
    }
    let binance = checked("[[streams]]\n[venues.binance.endpoints]\nws = 'ws://s'").unwrap();
    assert_eq!(binance.streams[0].endpoints.url("stream"), "ws://s");
    refused(
        &named("moon"),
        "venues.polymarket.endpoints.moon does not exist; polymarket has clob, gamma, stream (ws is another name",
    );
}

#[test]
fn what_is_written_and_has_no_effect_is_told() {
    let notes = |text: &str| checked(text).unwrap().notes;
    assert_eq!(notes("[venues.polymarket]"), Vec::<String>::new());
    let told = notes("[venues.binance]");
    assert!(
        told[0].contains("[venues.binance] is not recorded") && told[0].contains("[[streams]]"),
        "{told:?}"
    );
    assert_eq!(notes("[venues.binance]\n[[streams]]\nvenue = 'binance'"), Vec::<String>::new());
    let mongo = "[persistence]\nmongo_uri = 'mongodb://elsewhere:27017'\n";
    let told = notes(mongo);
    assert!(told[0].contains("[[sinks]] kind = \"mongo\"") && !told[0].contains("elsewhere"), "{told:?}");
    assert_eq!(notes(&format!("{mongo}[[sinks]]\nkind = 'mongo'")), Vec::<String>::new());
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = checked("").unwrap();
    assert_eq!(config.data_dir, Path::new("data"));
    assert_eq!(config.spool.dir, Path::new("data/spool"));
    assert_eq!(config.spool.total_bytes_max, 1 << 30);
    assert!(config.spool_enabled && config.dedup.is_none());
    assert_eq!(config.sinks.len(), 1);
}
