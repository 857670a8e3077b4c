//! Kalshi: listings with a cursor, books as two ladders of bids.
//!
//! As of October 2026. Prices are strings with four decimals, counts with two. A YES ask is a NO bid turned round:
//!
//! ```text
//! {"orderbook_fp":{"yes_dollars":[["0.0100","1209.98"],…],"no_dollars":[["0.0100","501.00"],…]}}
//! ```
//! Both ladders ascend: the best bid is last. Without `mve_filter=exclude` the listing begins with combos.

use std::sync::Arc;

use catchment_model::Clock;
use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::book::{Book, four};
use crate::config::SimConfig;
use crate::dice::Dice;
use crate::limit::{LimitModel, LimitRule};
use crate::text::{Json, base64, from_base64, iso, iso_us, pair};
use crate::universe::{EVENT_SIZE, Names, Universe, Usual};
use crate::venue::{Answer, Ask, Opened, Venue, VenueSpec};

pub(crate) static SPEC: VenueSpec =
    VenueSpec { id: "kalshi", apis: &["kalshi"], sockets: &[], size_key: "universe.markets", open };

const SERIES: [&str; 4] = ["KXSIMHIGH", "KXSIMRAIN", "KXSIMRATE", "KXSIMGAME"];
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1_000;
const DEPTH_MAX: usize = 100;
const ORDERBOOKS_MAX: usize = 100;
/// A cursor that leads to the first page: only given by one that is stuck there.
const BEGINNING: &[u8] = b"beginning";
/// A market settles so long after it has closed.
const SETTLES_AFTER_MS: i64 = 60_000;

/// What only Kalshi has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KalshiRules {
    /// Combo markets at the head of the listing.
    pub combos: u32,
}

impl Default for KalshiRules {
    fn default() -> Self {
        Self { combos: 2_000 }
    }
}

fn open(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let start_ms = clock.wall().ms().get();
    let here = &config.kalshi;
    let usual = Usual { levels: 20, ticks: &[100, 100, 10], texts: 1 };
    let seed = Dice::at(&[config.seed, 0x4a15]).next();
    let universe = Universe::new(&here.universe, seed, start_ms, &usual);
    Opened {
        venue: Box::new(Kalshi { universe, combos: u64::from(here.rules.combos), start_ms }),
        limits: here.limits.clone().unwrap_or_else(basic_tier),
        faults: here.faults.clone(),
        floor: None,
    }
}

/// The Basic tier's reads: 200 tokens a second, ten a request.
fn basic_tier() -> Vec<LimitRule> {
    vec![LimitRule::new(&[], 20, 1_000, LimitModel::Bucket)]
}

#[derive(Debug)]
struct KalshiNames {
    ticker: String,
    event: String,
}

impl Names for KalshiNames {
    fn make(_seed: u64, number: u64) -> Self {
        let event_number = number / EVENT_SIZE;
        let series = SERIES[event_number as usize % SERIES.len()];
        let event = format!("{series}-26SIM{event_number:05}");
        Self { ticker: format!("{event}-T{}", strike(number)), event }
    }

    fn keys(&self) -> Vec<&str> {
        vec![&self.ticker]
    }
}

fn strike(number: u64) -> u64 {
    70 + 5 * (number % EVENT_SIZE)
}

type Market = crate::universe::Market<KalshiNames>;
type Roll = crate::universe::Roll<KalshiNames>;

struct Kalshi {
    universe: Universe<KalshiNames>,
    combos: u64,
    start_ms: i64,
}

impl Venue for Kalshi {
    fn endpoint(&self, method: &Method, path: &str) -> &'static str {
        let parts: Vec<&str> = below(path).split('/').collect();
        match (method.as_str(), &parts[..]) {
            ("GET", ["markets"]) => "markets",
            ("GET", ["markets", "orderbooks"]) => "markets/orderbooks",
            ("GET", ["markets", _]) => "markets/ticker",
            ("GET", ["markets", _, "orderbook"]) => "markets/ticker/orderbook",
            ("GET", ["exchange", "status"]) => "exchange/status",
            _ => "other",
        }
    }

    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        match self.endpoint(ask.method, ask.path) {
            "markets" => self.markets(ask),
            "markets/orderbooks" => self.orderbooks(ask),
            "markets/ticker" => self.market(ask),
            "markets/ticker/orderbook" => self.orderbook(ask),
            "exchange/status" => Answer::json(
                200,
                r#"{"exchange_active":true,"exchange_estimated_resume_time":null,"trading_active":true}"#,
            ),
            _ => failure(404, "not_found", "page not found"),
        }
    }

    fn refusal(&self) -> Answer {
        Answer::json(429, pair("error", "too many requests"))
    }

    fn turn_away(&self, _user_agent: &str) -> Option<Answer> {
        None
    }

    fn set_rates(&self, now_ms: i64, births_per_min: Option<f64>, deaths_per_min: Option<f64>) {
        self.universe.set_rates(now_ms, births_per_min, deaths_per_min);
    }
}

/// The base address may carry the API's own path or not.
fn below(path: &str) -> &str {
    path.strip_prefix("trade-api/v2/").unwrap_or(path)
}

fn failure(status: u16, code: &str, message: &str) -> Answer {
    let mut json = Json::default();
    json.open('{').text("code", code).text("message", message).text("details", "").text("service", "market");
    Answer::json(status, json.close('}').done())
}

/// A row of the listing: combos come first, then the markets by number.
#[derive(Clone, Copy)]
enum Row<'a> {
    Combo(u64),
    Market(&'a Arc<Market>),
}

impl Kalshi {
    fn markets(&self, ask: &mut Ask<'_>) -> Answer {
        let query = ask.query;
        let limit = match query.number("limit") {
            None => PAGE_DEFAULT,
            Some(Ok(limit)) if (1..=PAGE_MAX).contains(&limit) => limit,
            Some(_) => return failure(400, "bad_request", "invalid limit: must be between 1 and 1000"),
        };
        let cursor = query.get("cursor").unwrap_or_default();
        let Some(after) = read_cursor(&cursor) else {
            return failure(400, "bad_request", "invalid cursor");
        };
        let status = query.get("status");
        let known = ["unopened", "open", "paused", "closed", "settled"];
        if status.as_deref().is_some_and(|status| !known.contains(&status)) {
            return failure(400, "bad_request", "invalid status filter");
        }
        let (combos, others) = match query.get("mve_filter").as_deref() {
            Some("exclude") => (false, true),
            Some("only") => (true, false),
            Some(_) => return failure(400, "bad_request", "invalid mve_filter"),
            None => (true, true),
        };
        let tickers: Vec<String> =
            query.all("tickers").flat_map(|v| v.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
        let event = query.get("event_ticker");
        let roll = self.universe.at(ask.now_ms);
        let open_only = status.as_deref().is_none_or(|status| status == "open");
        let named = tickers.is_empty() && event.is_none();
        let combos = (0..self.combos).filter(|_| combos && open_only && named).map(Row::Combo);
        let wanted = |market: &&Arc<Market>| {
            others
                && status.as_deref().is_none_or(|status| status == filter_word(&roll, market, ask.now_ms))
                && (tickers.is_empty() || tickers.contains(&market.names.ticker))
                && event.as_deref().is_none_or(|event| event == market.names.event)
        };
        let markets = roll.markets.iter().filter(wanted).map(Row::Market);
        let mut rest = combos.chain(markets).filter(|row| after.is_none_or(|after| place(row) > after));
        let rows: Vec<Row<'_>> = rest.by_ref().take(limit).collect();
        let next = match (rows.last(), rest.next().is_some()) {
            // An empty one would be the end.
            _ if ask.twist.stuck_cursor && cursor.is_empty() => base64(BEGINNING),
            _ if ask.twist.stuck_cursor => cursor.into_owned(),
            (Some(last), true) => write_cursor(place(last)),
            _ => String::new(),
        };
        let rows = if ask.twist.empty_page { &[] } else { &rows[..] };
        let mut json = Json::with_capacity(rows.len() * 2_500);
        json.open('{').text("cursor", &next).key("markets").open('[');
        for row in rows {
            match row {
                Row::Combo(number) => self.push_combo(*number, &mut json),
                Row::Market(market) => push_market(&roll, market, ask.now_ms, &mut json),
            }
        }
        Answer::json(200, json.close(']').close('}').done())
    }

    fn market(&self, ask: &mut Ask<'_>) -> Answer {
        let ticker = below(ask.path).trim_start_matches("markets/");
        let roll = self.universe.at(ask.now_ms);
        let Some((market, _)) = roll.find(ticker) else {
            return failure(404, "not_found", "market not found");
        };
        let mut json = Json::with_capacity(2_500);
        json.open('{').key("market");
        push_market(&roll, market, ask.now_ms, &mut json);
        Answer::json(200, json.close('}').done())
    }

    fn orderbook(&self, ask: &mut Ask<'_>) -> Answer {
        let ticker = below(ask.path).trim_start_matches("markets/").trim_end_matches("/orderbook");
        let Some(depth) = ask.query.number("depth").unwrap_or(Ok(0)).ok().filter(|depth| *depth <= DEPTH_MAX)
        else {
            return failure(400, "bad_request", "invalid depth: must be between 0 and 100");
        };
        let roll = self.universe.at(ask.now_ms);
        let Some((market, _)) = roll.find(ticker) else {
            return failure(404, "not_found", "market not found");
        };
        let mut body = b"{\"orderbook_fp\":".to_vec();
        push_book(&roll, market, ask.now_ms, depth, &mut body);
        body.push(b'}');
        Answer::json(200, body).books(1)
    }

    fn orderbooks(&self, ask: &mut Ask<'_>) -> Answer {
        let tickers: Vec<_> = ask.query.all("tickers").collect();
        if tickers.is_empty() || tickers.len() > ORDERBOOKS_MAX {
            return failure(400, "bad_request", "invalid tickers: between 1 and 100 are required");
        }
        let roll = self.universe.at(ask.now_ms);
        let mut body = b"{\"orderbooks\":[".to_vec();
        let mut books = 0;
        for ticker in tickers {
            let left_out = ask.twist.missing > 0.0 && ask.twist.dice.hit(ask.twist.missing);
            let Some((market, _)) = roll.find(&ticker).filter(|_| !left_out) else { continue };
            if books > 0 {
                body.push(b',');
            }
            books += 1;
            body.extend_from_slice(
                format!("{{\"ticker\":\"{}\",\"orderbook_fp\":", market.names.ticker).as_bytes(),
            );
            push_book(&roll, market, ask.now_ms, 0, &mut body);
            body.push(b'}');
        }
        body.extend_from_slice(b"]}");
        Answer::json(200, body).books(books)
    }

    fn push_combo(&self, number: u64, json: &mut Json) {
        let event = format!("KXMVESIMULTIGAME-S2026{number:08X}");
        let legs: Vec<KalshiNames> =
            (0..3).map(|leg| KalshiNames::make(0, number.wrapping_mul(7) % 997 * EVENT_SIZE + leg)).collect();
        let joined = |part: fn(&KalshiNames) -> &str| legs.iter().map(part).collect::<Vec<_>>().join(",");
        let title = legs.iter().map(|leg| format!("yes {}", leg.ticker)).collect::<Vec<_>>().join(",");
        let (born, end) = (self.start_ms - number as i64, iso(self.start_ms + 15 * 86_400_000));
        json.open('{')
            .raw("can_close_early", true)
            .text("close_time", &end)
            .text("created_time", &iso_us(born));
        json.key("custom_strike").open('{').text("Associated Events", &joined(|leg| &leg.event));
        json.text("Associated Market Sides", "yes,yes,yes")
            .text("Associated Markets", &joined(|leg| &leg.ticker));
        json.text("Multivariate Event Ticker", &event).close('}').text("event_ticker", &event);
        json.raw("exchange_index", 0).text("expected_expiration_time", &end).text("expiration_time", &end);
        json.text("expiration_value", "").raw("is_provisional", true).text("last_price_dollars", "0.0000");
        json.text("latest_expiration_time", &end)
            .text("liquidity_dollars", "0.0000")
            .text("market_type", "binary");
        json.text("mve_collection_ticker", "KXMVESIMULTIGAME-R").key("mve_selected_legs").open('[');
        for leg in &legs {
            json.open('{').text("event_ticker", &leg.event).text("market_ticker", &leg.ticker);
            json.text("side", "yes").close('}');
        }
        json.close(']')
            .text("no_ask_dollars", "1.0000")
            .text("no_bid_dollars", "1.0000")
            .text("no_sub_title", &title);
        json.text("notional_value_dollars", "1.0000")
            .text("open_interest_fp", "0.00")
            .text("open_time", &iso(born));
        json.text("previous_price_dollars", "0.0000").text("previous_yes_ask_dollars", "0.0000");
        json.text("previous_yes_bid_dollars", "0.0000").text("price_level_structure", "deci_cent");
        json.key("price_ranges").value(r#"[{"end":"1.0000","start":"0.0000","step":"0.0010"}]"#);
        json.text("result", "").text("rules_primary", "").text("rules_secondary", "Nothing here is real.");
        json.raw("settlement_timer_seconds", 5).text("status", "active").text("strike_type", "custom");
        json.text("ticker", &format!("{event}-{number:011X}")).text("title", &title);
        json.text("updated_time", &iso_us(born)).text("volume_24h_fp", "0.00").text("volume_fp", "0.00");
        json.text("yes_ask_dollars", "0.0000")
            .text("yes_ask_size_fp", "0.00")
            .text("yes_bid_dollars", "0.0000");
        json.text("yes_bid_size_fp", "0.00").text("yes_sub_title", &title).close('}');
    }
}

/// Where a row stands in the listing: (0, combo) or (1, market).
fn place(row: &Row<'_>) -> (u8, u64) {
    match row {
        Row::Combo(number) => (0, *number),
        Row::Market(market) => (1, market.number),
    }
}

fn write_cursor((part, number): (u8, u64)) -> String {
    base64(format!("{part}:{number}").as_bytes()).trim_end_matches('=').to_owned()
}

/// `None` for one we never gave; `Some(None)` for the beginning.
fn read_cursor(text: &str) -> Option<Option<(u8, u64)>> {
    if text.is_empty() {
        return Some(None);
    }
    let plain = String::from_utf8(from_base64(text)?).ok()?;
    if plain.as_bytes() == BEGINNING {
        return Some(None);
    }
    let (part, number) = plain.split_once(':')?;
    Some(Some((part.parse().ok()?, number.parse().ok()?)))
}

/// What `status=` calls it; the row itself says `active` for open and `finalized` for settled.
fn filter_word(roll: &Roll, market: &Market, now_ms: i64) -> &'static str {
    match (roll.is_open(market.number), roll.end_ms(market) + SETTLES_AFTER_MS <= now_ms) {
        (true, _) => "open",
        (false, false) => "closed",
        (false, true) => "settled",
    }
}

fn push_market(roll: &Roll, market: &Market, now_ms: i64, json: &mut Json) {
    let (names, number) = (&market.names, market.number);
    let state = filter_word(roll, market, now_ms);
    let end_ms = roll.end_ms(market);
    let (end, settled) = (iso(end_ms), state == "settled");
    let quote = Quote::of(market, now_ms, state == "open");
    let volume = market.figure(2, 10_000_000);
    let count = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    let subtitle = format!("{}° or below", strike(number) - 1);
    json.open('{').raw("can_close_early", true).raw("cap_strike", strike(number)).text("close_time", &end);
    json.text("created_time", &iso_us(market.born_ms))
        .text("early_close_condition", "None: nothing here is real.");
    json.text("event_ticker", &names.event)
        .text("expected_expiration_time", &end)
        .text("expiration_time", &end);
    json.text("expiration_value", if settled { "71.00" } else { "" }).text("last_price_dollars", &quote.last);
    json.text("latest_expiration_time", &end)
        .text("liquidity_dollars", "0.0000")
        .text("market_type", "binary");
    json.text("no_ask_dollars", &four(10_000 - quote.bid)).text("no_bid_dollars", &four(10_000 - quote.ask));
    json.text("no_sub_title", &subtitle)
        .text("notional_value_dollars", "1.0000")
        .text("occurrence_datetime", &end);
    json.text("open_interest_fp", &count(volume / 3)).text("open_time", &iso(market.born_ms));
    json.text("previous_price_dollars", "0.0000").text("previous_yes_ask_dollars", "0.0000");
    json.text("previous_yes_bid_dollars", "0.0000");
    json.text("price_level_structure", if market.grid().unit == 100 { "linear_cent" } else { "deci_cent" });
    let step = four(market.grid().unit);
    json.key("price_ranges")
        .open('[')
        .open('{')
        .text("end", "1.0000")
        .text("start", "0.0000")
        .text("step", &step);
    json.close('}').close(']');
    let winner = ["yes", "no"][market.figure(1, 2) as usize];
    json.text("result", if settled { winner } else { "" });
    json.text("rules_primary", &format!("If the simulated value is below {}, then Yes.", strike(number)));
    json.text("rules_secondary", "Nothing here is real.").raw("settlement_timer_seconds", 3_600);
    if settled {
        json.text("settlement_ts", &iso_us(end_ms + SETTLES_AFTER_MS));
        json.text("settlement_value_dollars", if winner == "yes" { "1.0000" } else { "0.0000" });
    }
    let status = match state {
        "open" => "active",
        "settled" => "finalized",
        other => other,
    };
    json.text("status", status).text("strike_type", "less").text("subtitle", &subtitle);
    json.text("ticker", &names.ticker)
        .text("title", &format!("Will the simulated value be <{}°?", strike(number)));
    json.text("updated_time", &iso_us(market.born_ms)).text("volume_24h_fp", &count(volume / 30));
    json.text("volume_fp", &count(volume)).text("yes_ask_dollars", &four(quote.ask));
    json.text("yes_ask_size_fp", &count(quote.ask_size)).text("yes_bid_dollars", &four(quote.bid));
    json.text("yes_bid_size_fp", &count(quote.bid_size)).text("yes_sub_title", &subtitle).close('}');
}

/// The best of both sides; without one: 0 and 1 dollars, of size 0.
struct Quote {
    bid: u32,
    bid_size: u64,
    ask: u32,
    ask_size: u64,
    last: String,
}

impl Quote {
    fn of(market: &Market, now_ms: i64, open: bool) -> Self {
        let ((bid, ask), last) = market.book(now_ms, |book, _| (book.best(), book.last));
        let (bid, ask) = (bid.filter(|_| open), ask.filter(|_| open));
        Self {
            bid: bid.map_or(0, |level| market.grid().price(level.price)),
            bid_size: bid.map_or(0, |level| u64::from(level.size)),
            ask: ask.map_or(10_000, |level| market.grid().price(level.price)),
            ask_size: ask.map_or(0, |level| u64::from(level.size)),
            last: four(last.map_or(0, |ticks| market.grid().price(ticks))),
        }
    }
}

/// The two ladders; all of them from what was kept, the best few written anew.
fn push_book(roll: &Roll, market: &Market, now_ms: i64, depth: usize, body: &mut Vec<u8>) {
    if !roll.is_open(market.number) {
        body.extend_from_slice(br#"{"no_dollars":[],"yes_dollars":[]}"#);
        return;
    }
    if depth == 0 {
        let write = |book: &Book, _, out: &mut Vec<u8>| write_book(market, book, usize::MAX, out);
        return market.text(now_ms, 0, write, |bytes| body.extend_from_slice(bytes));
    }
    market.book(now_ms, |book, _| write_book(market, book, depth, body));
}

fn write_book(market: &Market, book: &Book, depth: usize, out: &mut Vec<u8>) {
    let ladders = [("{\"no_dollars\":[", &book.asks, true), ("],\"yes_dollars\":[", &book.bids, false)];
    for (open, levels, mirrored) in ladders {
        out.extend_from_slice(open.as_bytes());
        let best = &levels[levels.len().saturating_sub(depth)..];
        for (at, level) in best.iter().enumerate() {
            let price = market.grid().price(level.price);
            let price = four(if mirrored { 10_000 - price } else { price });
            let comma = if at == 0 { "" } else { "," };
            let (whole, part) = (level.size / 100, level.size % 100);
            out.extend_from_slice(format!("{comma}[\"{price}\",\"{whole}.{part:02}\"]").as_bytes());
        }
    }
    out.extend_from_slice(b"]}");
}
