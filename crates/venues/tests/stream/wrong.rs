//! Descriptors that are wrong: each is refused with the line, the key and the reason.

use catchment_venues::stream::Descriptor;

/// Binance's descriptor with one passage written otherwise. The line that has a `§` is the one to be blamed.
fn check(from: &str, to: &str, key: &str, reason: &str) {
    check_in("binance.toml", from, to, key, reason);
}

fn check_in(file: &str, from: &str, to: &str, key: &str, reason: &str) {
    let (_, text) = Descriptor::shipped_files().iter().find(|(name, _)| *name == file).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    let marked = text.replacen(from, to, 1);
    let line = 1 + marked[..marked.find('§').expect("a line is marked")].matches('\n').count();
    match Descriptor::read(file, &marked.replace('§', "")) {
        Ok(_) => panic!("{to:?} was taken"),
        Err(error) => {
            let text = error.to_string();
            assert_eq!((error.line, error.key.as_str()), (line, key), "{text}");
            assert!(error.reason.contains(reason), "{text}\nshould have said {reason}");
            assert!(text.starts_with(&format!("{file}:{line}: ")), "{text}");
        }
    }
}

#[test]
fn toml_that_is_none() {
    check("format = 1", "§format = = 1", "", "");
    check("id = \"binance\"", "§id = \"binance", "", "");
    check("format = 1", "format = 1\n§format = 2", "", "duplicate key");
}

#[test]
fn keys_and_kinds() {
    check(
        "kind = \"ticker\"",
        "kind = \"ticker\"\n§colour = 1",
        "channels.ticker.colour",
        "unknown field `colour`",
    );
    check("kind = \"ticker\"", "§kind = \"tick\"", "channels.ticker.kind", "unknown variant `tick`");
    check(
        "subscriptions_max = 1024",
        "§subscriptions_max = \"many\"",
        "sockets.public.subscriptions_max",
        "invalid type",
    );
    check(
        "unit = \"ms\" }\nsequence = { rule = \"plus_one\", last = \"/data/t\" }",
        "unit = \"ms\" }\nsequence = { §rule = \"plus_two\", last = \"/data/t\" }",
        "channels.trades.sequence.rule",
        "unknown variant `plus_two`",
    );
    check(
        "[channels.trades]\nsocket = \"public\"\n",
        "§[channels.trades]\n",
        "channels.trades",
        "missing field `socket`",
    );
    check("is = \"ack\"", "§is = \"acknowledged\"", "sockets.public.control.0.is", "unknown variant");
    check(
        "present = [\"/id\", \"/result\"]",
        "§when = { \"/result\" = 1.5 }",
        "sockets.public.control.0.when./result",
        "invalid type",
    );
}

#[test]
fn versions_names_and_addresses() {
    check("format = 1", "§format = 2", "format", "this build reads 1");
    check("id = \"binance\"", "§id = \"Binance\"", "id", "may hold only");
    check("about = \"Trades", "§about = \"\" #", "about", "must not be empty");
    check(
        "stream = \"wss://data-stream.binance.vision\"",
        "§stream = \"data-stream.binance.vision\"",
        "endpoints.stream",
        "not a base address",
    );
    check(
        "endpoint = \"stream\"",
        "§endpoint = \"streams\"",
        "sockets.public.endpoint",
        "there is rest, stream",
    );
    check("endpoint = \"stream\"", "§endpoint = \"rest\"", "sockets.public.endpoint", "wss://");
    check("path = \"/stream\"", "§path = \"stream\"", "sockets.public.path", "begin with a slash");
    check(
        "[channels.ticker]\nsocket = \"public\"",
        "[channels.ticker]\n§socket = \"private\"",
        "channels.ticker.socket",
        "there is no socket \"private\"",
    );
}

#[test]
fn pointers() {
    check("id = \"/data/t\"", "§id = \"/data/32\"", "channels.trades.id", "up to 31");
    check("id = \"/data/t\"", "§id = \"data/t\"", "channels.trades.id", "must begin with a slash");
    check("id = \"/data/t\"", "§id = \"/data//t\"", "channels.trades.id", "empty step");
    check("id = \"/data/t\"", "§id = \"/data/~2\"", "channels.trades.id", "'~0' nor '~1'");
    check("id = \"/data/t\"", "§id = \"/data/*/t\"", "channels.trades.id", "names several values");
    check_in(
        "polymarket.toml",
        "symbol = [\"/asset_id\", \"/price_changes/*/asset_id\"]",
        "§symbol = [\"/asset_id\", \"/price_changes/*/-1\"]",
        "channels.book_delta.symbol",
        "both '*' and '-1'",
    );
    check("id = \"/data/t\"", "§id = \"/1/2/3/4/5/6/7/8/9\"", "channels.trades.id", "more than 8 steps");
    check(
        "request = \"/id\"",
        "§request = \"id\"",
        "sockets.public.control.0.request",
        "must begin with a slash",
    );
}

#[test]
fn templates_and_what_they_make() {
    check(
        "\"params\":[{args}]",
        "\"params\":[{arguments}]§",
        "sockets.public.subscribe.send",
        "there is no {arguments} here; there is {args}, {id}",
    );
    check(
        "send = '{\"method\":\"SUBSCRIBE\",\"params\":[{args}],\"id\":{id}}'",
        "§send = '{\"id\":{id}}'",
        "sockets.public.subscribe.send",
        "a place for the {args}",
    );
    check(
        "send = '{\"method\":\"SUBSCRIBE\",\"params\":[{args}],\"id\":{id}}'",
        "§send = '{\"params\":[{args}],\"id\":{id}'",
        "sockets.public.subscribe.send",
        "makes no JSON",
    );
    check("arg = '\"{topic}\"'", "§arg = '{topic}'", "sockets.public.subscribe.arg", "makes no JSON");
    check(
        "[{args}],\"id\":{id}}'",
        "[{args}],\"id\":{id},\"c\":\"{channel}\"}'§",
        "sockets.public.subscribe.send",
        "per = \"channel\"",
    );
    check(
        "topic = \"{symbol}@trade\"",
        "§topic = \"{symbols}@trade\"",
        "channels.trades.topic",
        "there is no {symbols}",
    );
    check(
        "topic = \"{symbol}@trade\"",
        "§topic = \"@trade\"",
        "channels.trades.topic",
        "must name the {symbol}",
    );
    check(
        "subscribe = \"{base}{quote}\"",
        "§subscribe = \"{base}\"",
        "symbols.subscribe",
        "both {base} and {quote}",
    );
    check("example = \"BTC/USDT\"", "§example = \"BTC/\"", "symbols.example", "expected");
    check(
        "request_bytes_max = 4096",
        "§request_bytes_max = 40",
        "sockets.public.request_bytes_max",
        "too small",
    );
}

#[test]
fn rules_that_contradict_each_other() {
    check(
        "[sockets.public.route]\ntopic = \"/stream\"",
        "§[sockets.public.route]",
        "sockets.public.route",
        "needs either `topic`",
    );
    check(
        "topic = \"{symbol}@trade\"\n",
        "topic = \"{symbol}@trade\"\n§symbol = \"/data/s\"\n",
        "channels.trades.symbol",
        "has no use here",
    );
    check(
        "sequence = { rule = \"range\", first = \"/data/U\", last",
        "§sequence = { rule = \"range\", last",
        "channels.book_delta.sequence",
        "needs `first`",
    );
    check("rule = \"range\"", "§rule = \"linked\"", "channels.book_delta.sequence", "needs `previous`");
    check(
        "dead_after_ms = 45_000",
        "§dead_after_ms = 15_000",
        "sockets.public.dead_after_ms",
        "longer than the time between two heartbeats",
    );
    check(
        "lifetime_s = 86_400",
        "§lifetime_s = 86_400_000",
        "sockets.public.lifetime_s",
        "is the unit right",
    );
    check("count = 4,", "§count = 0,", "sockets.public.commands.count", "at least 1");
    check(
        "heartbeat = { server_every_ms = 20_000 }",
        "§heartbeat = { ping = \"x\" }",
        "sockets.public.heartbeat",
        "belong together",
    );
    check(
        "[[sockets.public.control]]\nis = \"ack\"\n",
        "§[[sockets.public.control]]\nis = \"ack\"\ntext = \"no\"\n",
        "sockets.public.control.0",
        "needs either `text`",
    );
    check(
        "[[sockets.public.control]]\nis = \"ack\"\n",
        "§[[sockets.public.control]]\nis = \"refused\"\n",
        "sockets.public.control.0",
        "a refusal needs `reason`",
    );
    check_in(
        "coinbase.toml",
        "frames = [\"match\", \"last_match\"]",
        "§frames = [\"match\", \"snapshot\"]",
        "channels.trades.frames",
        "already a frame of book_delta",
    );
    check_in(
        "polymarket.toml",
        "feeds_book = \"book_delta\"",
        "§feeds_book = \"books\"",
        "channels.trades.feeds_book",
        "there is no channel \"books\"",
    );
}

#[test]
fn books_requests_and_logins() {
    check(
        "[channels.book_delta.book]\nsequence = \"range\"",
        "[channels.book_delta.book]\n§sequence = \"rang\"",
        "channels.book_delta.book.sequence",
        "unknown variant",
    );
    check(
        "[channels.ticker]\nsocket",
        "[channels.ticker]\n§book = { messages = [] }\nsocket",
        "channels.ticker.book",
        "has no use here",
    );
    check(
        "get = \"{rest}/api/v3/time\"",
        "§get = \"/api/v3/time\"",
        "rest.time.get",
        "begin with an endpoint in braces",
    );
    check(
        "get = \"{rest}/api/v3/time\"",
        "§get = \"{rst}/api/v3/time\"",
        "rest.time.get",
        "there is no endpoint \"rst\"",
    );
    check(
        "symbol={symbol}&limit=1000",
        "symbol=BTCUSDT&limit=1000§",
        "channels.book_delta.snapshot.get",
        "must name the {symbol}",
    );
    check("cost = 50", "§cost = 7000", "channels.book_delta.snapshot.cost", "the family's budget");
    check(
        "[rest.time]\nget = \"{rest}/api/v3/time\"\nfamily = \"weight\"",
        "[rest.time]\nget = \"{rest}/api/v3/time\"\n§family = \"w\"",
        "rest.time.family",
        "there is weight",
    );
    check_in(
        "okx.toml",
        "signature = \"base64\"",
        "§signature = \"text\"",
        "sockets.private.login.signature",
        "\"hex\" or \"base64\"",
    );
    check_in(
        "okx.toml",
        "algorithm = \"hmac-sha256\"",
        "§algorithm = \"md5\"",
        "sockets.private.login.algorithm",
        "unknown variant",
    );
    check_in(
        "okx.toml",
        "\"sign\":\"{signature}\"",
        "\"sign\":\"{secret}\"§",
        "sockets.private.login.send",
        "there is no {secret}",
    );
    check_in(
        "polymarket.toml",
        "parent = \"clob\"",
        "§parent = \"lob\"",
        "limits.2.parent",
        "no family \"lob\"",
    );
}

#[test]
fn own_files_take_the_place_of_shipped_ones() {
    let (_, kraken) = Descriptor::shipped_files().iter().find(|(name, _)| *name == "kraken.toml").unwrap();
    let lantern = kraken.replace("id = \"kraken\"", "id = \"lantern\"");
    let mine = kraken.replace("name = \"Kraken\"", "name = \"Kraken, mine\"");
    let all = Descriptor::with_files([("a.toml", lantern.as_str()), ("b.toml", mine.as_str())]).unwrap();
    let names: Vec<&str> = all.iter().map(Descriptor::name).collect();
    let want =
        ["Binance spot", "Bybit spot", "Coinbase Exchange", "Kraken, mine", "Kraken", "OKX", "Polymarket"];
    assert_eq!(names, want);
    let error = Descriptor::with_files([("a.toml", mine.as_str()), ("b.toml", *kraken)]).unwrap_err();
    assert_eq!(error.to_string(), "b.toml:4: id: kraken is already described in a.toml");
}
