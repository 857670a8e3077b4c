//! Limitless: pages of at most 25, a book at a time, the best level first.
//!
//! As of October 2026. Pages mix order-book, AMM and group rows; only the first have a book. One book a market, that of
//! the YES token:
//!
//! ```text
//! {"bids":[{"price":0.07,"size":9428028001,"side":"BUY"}],"asks":[{"price":0.075,"size":100000000,"side":"SELL"}],
//!  "tokenId":"5615…","adjustedMidpoint":0.0725,"midpoint":0.0725,"maxSpread":"0.035","minSize":"100000000","lastTradePrice":0.07}
//! ```
//! Sizes are millionths. A group has two markets inside, whose books mirror each other.

use std::sync::Arc;

use catchment_model::Clock;
use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::book::{Book, Grid, Level, plain};
use crate::config::SimConfig;
use crate::dice::Dice;
use crate::limit::{LimitModel, LimitRule, RetryAfter};
use crate::text::{Json, day, iso_ms, pair};
use crate::universe::{Names, Universe, Usual};
use crate::venue::{Answer, Ask, Opened, Venue, VenueSpec, is_default_user_agent};

pub(crate) static SPEC: VenueSpec =
    VenueSpec { id: "limitless", apis: &["limitless"], sockets: &[], size_key: "universe.markets", open };

/// Rows of a page when nobody says how many.
const PAGE_DEFAULT: usize = 10;
/// A market resolves so long after its deadline.
const RESOLVES_AFTER_MS: i64 = 60_000;
const ASSETS: [&str; 6] = ["btc", "eth", "sol", "xrp", "doge", "bnb"];
const LOGO: &str = "https://images.invalid/simulated.svg";

/// What only Limitless has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitlessRules {
    /// The largest `limit` taken.
    pub page_max: usize,
    /// What a larger one gets.
    pub over_cap: OverCap,
    /// Share of rows that are traded against a pool and have no book.
    pub amm: f64,
    /// Share of rows that are groups.
    pub group: f64,
    /// Turn away clients without a name of their own.
    pub user_agent_check: bool,
}

impl Default for LimitlessRules {
    fn default() -> Self {
        Self { page_max: 25, over_cap: OverCap::Refuse, amm: 0.1, group: 0.05, user_agent_check: true }
    }
}

/// What a `limit` beyond the largest gets; both have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverCap {
    /// 400.
    Refuse,
    /// 200 without rows.
    Empty,
}

fn open(config: &SimConfig, clock: &Arc<dyn Clock>) -> Opened {
    let start_ms = clock.wall().ms().get();
    let here = &config.limitless;
    let usual = Usual { levels: 10, ticks: &[10], texts: 3 };
    let seed = Dice::at(&[config.seed, 0x11417]).next();
    let universe = Universe::new(&here.universe, seed, start_ms, &usual);
    Opened {
        venue: Box::new(Limitless { universe, rules: here.rules.clone(), seed }),
        limits: here.limits.clone().unwrap_or_else(usual_limits),
        faults: here.faults.clone(),
        floor: None,
    }
}

/// None are published. This is the bucket the venue's own course recommends to clients: 20, refilled with 10 a second.
fn usual_limits() -> Vec<LimitRule> {
    let bucket = LimitRule::new(&[], 20, 2_000, LimitModel::Bucket);
    vec![LimitRule { retry_after: RetryAfter::Auto, ..bucket }]
}

/// A market's slug, and those of the two inside if it is a group.
#[derive(Debug)]
struct LimitlessNames {
    slugs: Vec<String>,
    tokens: [String; 2],
    condition: String,
}

impl Names for LimitlessNames {
    fn make(seed: u64, number: u64) -> Self {
        let mut dice = Dice::at(&[seed, number, 0x1d5]);
        let epoch = 1_790_000_000 + number / ASSETS.len() as u64 * 300;
        let slug = format!("{}-up-or-down-5-min-{epoch}", asset(number));
        Self {
            slugs: vec![format!("{slug}-a"), format!("{slug}-b"), slug],
            tokens: [dice.digits(77), dice.digits(77)],
            condition: dice.hex(64),
        }
    }

    fn keys(&self) -> Vec<&str> {
        self.slugs.iter().map(String::as_str).collect()
    }
}

fn asset(number: u64) -> &'static str {
    ASSETS[number as usize % ASSETS.len()]
}

type Market = crate::universe::Market<LimitlessNames>;
type Roll = crate::universe::Roll<LimitlessNames>;

/// The slot of the market itself; 0 and 1 are the two inside of a group.
const WHOLE: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Clob,
    Amm,
    Group,
}

struct Limitless {
    universe: Universe<LimitlessNames>,
    rules: LimitlessRules,
    seed: u64,
}

impl Venue for Limitless {
    fn endpoint(&self, method: &Method, path: &str) -> &'static str {
        let parts: Vec<&str> = path.split('/').collect();
        match (method.as_str(), &parts[..]) {
            ("GET", ["markets", "active"]) => "markets/active",
            ("GET", ["markets", "active", "slugs"]) => "markets/active/slugs",
            ("GET", ["markets", _]) => "markets/slug",
            ("GET", ["markets", _, "orderbook"]) => "markets/slug/orderbook",
            _ => "other",
        }
    }

    fn answer(&self, ask: &mut Ask<'_>) -> Answer {
        match self.endpoint(ask.method, ask.path) {
            "markets/active" => self.active(ask),
            "markets/active/slugs" => self.slugs(ask),
            "markets/slug" => self.single(ask),
            "markets/slug/orderbook" => self.orderbook(ask),
            _ => failure(404, "Not Found", &format!("Cannot {} /{}", ask.method, ask.path)),
        }
    }

    fn refusal(&self) -> Answer {
        failure(429, "Too Many Requests", "ThrottlerException: Too Many Requests")
    }

    fn turn_away(&self, user_agent: &str) -> Option<Answer> {
        let away = self.rules.user_agent_check && is_default_user_agent(user_agent);
        away.then(|| Answer::html(403, "Attention Required! | Cloudflare"))
    }

    fn set_rates(&self, now_ms: i64, births_per_min: Option<f64>, deaths_per_min: Option<f64>) {
        self.universe.set_rates(now_ms, births_per_min, deaths_per_min);
    }
}

/// An error as NestJS writes it.
fn failure(status: u16, error: &str, message: &str) -> Answer {
    let mut json = Json::default();
    json.open('{').text("message", message).text("error", error).raw("statusCode", status).close('}');
    Answer::json(status, json.done())
}

fn not_found(slug: &str) -> Answer {
    Answer::json(404, pair("message", &format!("Market not found for slug: {slug}")))
}

impl Limitless {
    fn active(&self, ask: &mut Ask<'_>) -> Answer {
        let number = |name, default| ask.query.number(name).unwrap_or(Ok(default)).ok().filter(|n| *n > 0);
        let (Some(page), Some(limit)) = (number("page", 1), number("limit", PAGE_DEFAULT)) else {
            return failure(400, "Bad Request", "page and limit must be positive numbers");
        };
        let over = limit > self.rules.page_max;
        if over && self.rules.over_cap == OverCap::Refuse {
            let text = format!("limit must not be greater than {}", self.rules.page_max);
            return failure(400, "Bad Request", &text);
        }
        let roll = self.universe.at(ask.now_ms);
        let trade_type = ask.query.get("tradeType");
        let wanted = |market: &&Arc<Market>| {
            trade_type.as_deref().is_none_or(|wanted| wanted == word(self.kind(market)))
        };
        // The newest first: what was just listed is on the first page.
        let all: Vec<&Arc<Market>> = roll.open().iter().rev().filter(wanted).collect();
        let from = (page - 1).saturating_mul(limit).min(all.len());
        let rows = &all[from..from.saturating_add(limit).min(all.len())];
        let rows = if over || ask.twist.empty_page { &[] } else { rows };
        let total = if rows.is_empty() { 0 } else { all.len() };
        let mut json = Json::with_capacity(rows.len() * 3_000);
        json.open('{').key("data").open('[');
        for market in rows {
            self.push_market(&roll, market, ask.now_ms, true, &mut json);
        }
        json.close(']').raw("totalMarketsCount", total).close('}');
        Answer::json(200, json.done())
    }

    fn slugs(&self, ask: &mut Ask<'_>) -> Answer {
        let roll = self.universe.at(ask.now_ms);
        let rows = if ask.twist.empty_page { &[] } else { roll.open() };
        let mut json = Json::with_capacity(rows.len() * 160);
        let push = |json: &mut Json, market: &Market, slug: &str| {
            json.open('{').text("slug", slug).text("strikePrice", &strike(market));
            json.text("ticker", &asset(market.number).to_uppercase());
            json.text("deadline", &iso_ms(roll.end_ms(market)));
        };
        json.open('[');
        for market in rows.iter().rev() {
            push(&mut json, market, &market.names.slugs[WHOLE]);
            if self.kind(market) == Kind::Group {
                json.key("markets").open('[');
                for slug in &market.names.slugs[..WHOLE] {
                    push(&mut json, market, slug);
                    json.close('}');
                }
                json.close(']');
            }
            json.close('}');
        }
        Answer::json(200, json.close(']').done())
    }

    fn single(&self, ask: &mut Ask<'_>) -> Answer {
        let slug = ask.path.trim_start_matches("markets/");
        let roll = self.universe.at(ask.now_ms);
        let Some((market, slot)) = self.find(&roll, slug) else { return not_found(slug) };
        let mut json = Json::with_capacity(3_000);
        match slot {
            WHOLE => self.push_market(&roll, market, ask.now_ms, false, &mut json),
            inside => self.push_row(&roll, market, ask.now_ms, false, inside, &mut json),
        }
        Answer::json(200, json.done())
    }

    fn orderbook(&self, ask: &mut Ask<'_>) -> Answer {
        let slug = ask.path.trim_start_matches("markets/").trim_end_matches("/orderbook");
        let roll = self.universe.at(ask.now_ms);
        let Some((market, slot)) = self.find(&roll, slug) else { return not_found(slug) };
        if slot == WHOLE && self.kind(market) != Kind::Clob {
            return failure(400, "Bad Request", "Orderbook is only available for CLOB markets");
        }
        let open = roll.is_open(market.number);
        let write = |book: &Book, _, out: &mut Vec<u8>| write_book(market, slot, book, out);
        let body = match open {
            true => market.text(ask.now_ms, slot, write, <[u8]>::to_vec),
            false => empty_book(market, slot),
        };
        Answer::json(200, body).books(1)
    }

    /// Slugs inside of a market that is no group stand for nothing.
    fn find<'a>(&self, roll: &'a Roll, slug: &str) -> Option<(&'a Arc<Market>, usize)> {
        roll.find(slug).filter(|(market, slot)| *slot == WHOLE || self.kind(market) == Kind::Group)
    }

    fn kind(&self, market: &Market) -> Kind {
        let draw = Dice::at(&[self.seed, market.number, 0x41d]).unit();
        match draw {
            _ if draw < self.rules.amm => Kind::Amm,
            _ if draw < self.rules.amm + self.rules.group => Kind::Group,
            _ => Kind::Clob,
        }
    }

    fn push_market(&self, roll: &Roll, market: &Market, now_ms: i64, listed: bool, json: &mut Json) {
        self.push_row(roll, market, now_ms, listed, WHOLE, json);
    }

    /// A market, or one inside of a group. Lists leave `payoutNumerators` out.
    fn push_row(
        &self,
        roll: &Roll,
        market: &Market,
        now_ms: i64,
        listed: bool,
        slot: usize,
        json: &mut Json,
    ) {
        let kind = if slot == WHOLE { self.kind(market) } else { Kind::Clob };
        let end_ms = roll.end_ms(market);
        let over = !roll.is_open(market.number);
        let resolved = over && end_ms + RESOLVES_AFTER_MS <= now_ms;
        let title = format!("{} Up or Down - 5 Min", asset(market.number).to_uppercase());
        let volume = market.figure(2, 5_000_000_000);
        json.open('{')
            .raw("id", 300_000 + market.number * 3 + (WHOLE - slot) as u64)
            .text("automationType", "lumy");
        match kind {
            Kind::Clob => json.text("conditionId", &market.names.condition),
            _ => json.raw("conditionId", "null"),
        };
        json.raw("negRiskRequestId", "null")
            .text("description", "<p>A simulated market. Nothing here is real.</p>");
        json.raw("groupId", "null").key("collateralToken");
        json.value(
            r#"{"address":"0x0000000000000000000000000000000000000000","decimals":6,"symbol":"USDC"}"#,
        );
        json.text("title", &title).raw("proxyTitle", "null").text("expirationDate", &day(end_ms));
        json.raw("expirationTimestamp", end_ms).text("createdAt", &iso_ms(market.born_ms));
        json.text("startAt", &iso_ms(market.born_ms)).text("updatedAt", &iso_ms(market.born_ms));
        json.key("categories").value(r#"["Minutely","5 min"]"#);
        json.text("status", if resolved { "RESOLVED" } else { "FUNDED" })
            .raw("expired", over)
            .raw("hidden", false);
        json.key("creator").open('{').text("name", "Simulated").text("username", "Simulated");
        json.text("imageURI", LOGO).text("link", "https://simulated.invalid").text("address", "").close('}');
        json.key("tags")
            .value(r#"["Lumy","Recurring","Minutely","Minutes 5"]"#)
            .text("volume", &volume.to_string());
        json.text("volumeFormatted", &format!("{}.{:06}", volume / 1_000_000, volume % 1_000_000));
        if kind == Kind::Clob {
            push_prices(market, slot, now_ms, json);
        }
        json.raw("isOther", false).raw("isRewardable", true).text("slug", &market.names.slugs[slot]);
        json.text("stableSlug", &format!("{}-5min-price", asset(market.number)))
            .text("tradeType", word(kind));
        json.key("venue")
            .value(r#"{"exchange":"0x0000000000000000000000000000000000000001","adapter":null}"#);
        json.text("marketType", if kind == Kind::Group { "group" } else { "single" })
            .raw("priorityIndex", 10);
        match resolved {
            true => json.raw("winningOutcomeIndex", market.figure(1, 2)),
            false => json.raw("winningOutcomeIndex", "null"),
        };
        if !listed {
            json.raw("payoutNumerators", if resolved { "[1,0]" } else { "null" });
        }
        push_details(market, json);
        if kind == Kind::Group {
            json.key("markets").open('[');
            for inside in 0..WHOLE {
                self.push_row(roll, market, now_ms, listed, inside, json);
            }
            json.close(']');
        }
        json.close('}');
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Clob => "clob",
        Kind::Amm => "amm",
        Kind::Group => "group",
    }
}

fn strike(market: &Market) -> String {
    format!("{}.{:02}", 100 + market.figure(3, 90_000), market.figure(4, 100))
}

/// The Yes token; inside of a group the second market's is the other one.
fn tokens(market: &Market, slot: usize) -> [&str; 2] {
    let [yes, no] = &market.names.tokens;
    if slot == 1 { [no, yes] } else { [yes, no] }
}

fn push_prices(market: &Market, slot: usize, now_ms: i64, json: &mut Json) {
    let (bid, ask) = market.book(now_ms, |book, _| quote(book, slot, &market.grid()));
    let mid = (bid + ask) / 2;
    let [yes, no] = tokens(market, slot);
    json.key("tokens").open('{').text("yes", yes).text("no", no).close('}');
    json.raw("prices", format_args!("[{},{}]", plain(mid), plain(10_000 - mid)));
    let (asks, bids) = (both(ask, 10_000 - bid), both(bid, 10_000 - ask));
    json.key("tradePrices")
        .open('{')
        .key("buy")
        .open('{')
        .raw("market", &asks)
        .raw("limit", &bids)
        .close('}');
    json.key("sell").open('{').raw("market", bids).raw("limit", asks).close('}').close('}');
}

fn both(yes: u32, no: u32) -> String {
    format!("[{},{}]", plain(yes), plain(no))
}

/// What rows carry beside that nobody collects, as it is sent.
fn push_details(market: &Market, json: &mut Json) {
    let ticker = asset(market.number).to_uppercase();
    json.key("metadata")
        .open('{')
        .raw("c", 3)
        .raw("fee", true)
        .raw("hidden", false)
        .raw("minSize", 50_000_000);
    json.raw("maxSpread", 0.065)
        .raw("isBannered", false)
        .raw("pythLazerId", "null")
        .raw("rewardsEpoch", 0.007);
    json.raw("takerDelayMs", 0)
        .text("marketVariant", "clob")
        .raw("oracleVersion", 2)
        .raw("isPolyArbitrage", false);
    json.raw("makerRebateMult", 0.3).raw("minutesDeadline", 5).raw("rewardsSchedule", "null");
    json.text("frequencySubType", "minutes_5").raw("pythLazerChannel", "null").raw("shouldMarketMake", true);
    json.key("chainlinkDataStream")
        .open('{')
        .text("pair", &format!("{ticker}/USD"))
        .raw("enabled", true)
        .close('}');
    json.text("openPriceCapturedAt", &iso_ms(market.born_ms)).raw("pythProHistorySymbol", "null");
    json.raw("pythToleranceSeconds", "null").raw("pythToleranceDirection", "null");
    json.text("openPrice", &strike(market)).close('}');
    json.key("settings")
        .open('{')
        .text("minSize", "50000000")
        .raw("maxSpread", 0.065)
        .text("dailyReward", "10");
    json.text("effectiveDailyReward", "10").raw("currentRewardsMultiplier", 1).text("rewardsEpoch", "0.007");
    json.text("c", "3").text("rebateRate", "0.3").raw("takerDelayMs", 0).raw("creatorFeePct", 0).close('}');
    json.text("imageUrl", LOGO)
        .text("logo", LOGO)
        .key("priceOracleMetadata")
        .open('{')
        .text("ticker", &ticker);
    json.text("assetType", "CRYPTO").text("pythAddress", "0x00").text("chartSource", "chainlink");
    json.text("chainlinkFeedId", "0x00").raw("chainlinkFeedAddress", "null");
    json.text("chainlinkPair", &format!("{ticker}/USD")).raw("chainlinkStreamUrl", "null");
    json.text("symbol", &format!("Crypto.{ticker}/USD")).text("name", &ticker).text("logo", LOGO).close('}');
}

/// The best bid and ask in ten-thousandths; 0 and 1 where there is none.
fn quote(book: &Book, slot: usize, grid: &Grid) -> (u32, u32) {
    let (bid, ask) = book.best();
    let bid = bid.map_or(0, |level| grid.price(level.price));
    let ask = ask.map_or(10_000, |level| grid.price(level.price));
    if slot == 1 { (10_000 - ask, 10_000 - bid) } else { (bid, ask) }
}

fn write_book(market: &Market, slot: usize, book: &Book, out: &mut Vec<u8>) {
    let grid = &*market.grid();
    let (bids, asks) = if slot == 1 { (&book.asks, &book.bids) } else { (&book.bids, &book.asks) };
    let price = |level: &Level| match slot {
        1 => 10_000 - grid.price(level.price),
        _ => grid.price(level.price),
    };
    let (bid, ask) = quote(book, slot, grid);
    let last = book.last.map_or(0, |ticks| grid.price(if slot == 1 { grid.steps - ticks } else { ticks }));
    let mut json = Json::with_capacity(60 * (bids.len() + asks.len()) + 300);
    json.open('{');
    for (key, side, levels) in [("bids", "BUY", bids), ("asks", "SELL", asks)] {
        json.key(key).open('[');
        // Best first, unlike our own order; hundredths of a share are ten thousand millionths.
        for level in levels.iter().rev() {
            json.open('{').raw("price", plain(price(level))).raw("size", u64::from(level.size) * 10_000);
            json.text("side", side).close('}');
        }
        json.close(']');
    }
    push_rest(market, slot, (bid + ask) / 2, last, &mut json);
    out.extend_from_slice(json.done().as_bytes());
}

fn empty_book(market: &Market, slot: usize) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{').key("bids").value("[]").key("asks").value("[]");
    push_rest(market, slot, 5_000, 0, &mut json);
    json.done().into_bytes()
}

fn push_rest(market: &Market, slot: usize, mid: u32, last: u32, json: &mut Json) {
    json.text("tokenId", tokens(market, slot)[0])
        .raw("adjustedMidpoint", plain(mid))
        .raw("midpoint", plain(mid));
    json.text("maxSpread", "0.065").text("minSize", "50000000").raw("lastTradePrice", plain(last)).close('}');
}
