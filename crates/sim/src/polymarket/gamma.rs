//! Gamma: events and markets in pages, by offset (bare arrays, deprecated) or by cursor (`…/keyset`).

use super::events::{self, Which};
use super::{Market, Polymarket, Roll};
use crate::book::plain;
use crate::dice::Dice;
use crate::text::{Json, Query, base64, cursor_number, iso, iso_us};
use crate::universe::EVENT_SIZE;
use crate::venue::{Answer, Ask};

pub(super) const DESCRIPTION: &str = "This market will resolve to \"Yes\" if the simulated event happens. Otherwise, this market will resolve to \"No\".\n\n\
     Nothing here is real: neither the event, nor the orders, nor the money.";
pub(super) const IMAGE: &str = "https://images.invalid/simulated.png";
const PAGE_DEFAULT: usize = 20;
/// Numbers begin here, so that ids look like those of a venue that has been about for a while.
const MARKET_ID: u64 = 540_000;
const EVENT_ID: u64 = 23_000;

pub(super) fn error(kind: &str, text: &str) -> String {
    Json::default().open('{').text("type", kind).text("error", text).close('}').done()
}

fn invalid(text: &str) -> Answer {
    Answer::json(422, error("validation error", text))
}

/// Which rows, and how they are handed over.
struct Page {
    keyset: bool,
    limit: usize,
    offset: usize,
    /// Only rows after this number (before it, when descending).
    after: Option<u64>,
    descending: bool,
}

impl Polymarket {
    pub(super) fn gamma_markets(&self, ask: &mut Ask<'_>) -> Answer {
        let page = match self.page(ask, "markets") {
            Ok(page) => page,
            Err(answer) => return answer,
        };
        let roll = self.universe.at(ask.now_ms);
        let filter = Filter::read(ask.query);
        let rows = roll.markets.iter().filter(|market| filter.takes(&roll, market));
        let rows: Vec<(u64, &Market)> = rows.map(|market| (market.number, &**market)).collect();
        let write = |market: &&Market, json: &mut Json| push_market(&roll, market, ask.now_ms, true, json);
        page.write("markets", rows, ask, write)
    }

    pub(super) fn gamma_events(&self, ask: &mut Ask<'_>) -> Answer {
        if ask.query.get("order").as_deref() == Some("competitive") {
            return Answer::json(500, error("internal error", "internal server error"));
        }
        let page = match self.page(ask, "events") {
            Ok(page) => page,
            Err(answer) => return answer,
        };
        if let Some(events) = &self.roll {
            return page.write_roll(events, self.rules.gamma_offset_max.is_none(), ask);
        }
        let roll = self.universe.at(ask.now_ms);
        let (closed, slug) = (ask.query.flag("closed").unwrap_or(false), ask.query.get("slug"));
        let id = ask.query.get("id").and_then(|id| id.parse::<u64>().ok());
        let whole = ask.query.flag("include_markets").unwrap_or(true);
        let events = roll.markets.chunks(EVENT_SIZE as usize).zip(0..);
        let rows = events.filter(|(markets, number)| {
            let over = markets.iter().all(|market| !roll.is_open(market.number));
            over == closed
                && slug.as_deref().is_none_or(|slug| slug == event_slug(*number))
                && id.is_none_or(|id| id == EVENT_ID + number)
        });
        let rows = rows.map(|(markets, number)| (number, (number, markets))).collect();
        let write = |(number, markets): &(u64, &[std::sync::Arc<Market>]), json: &mut Json| {
            json.open('{');
            push_event(&roll, *number, markets, ask.now_ms, json);
            if whole {
                json.key("markets").open('[');
                for market in *markets {
                    push_market(&roll, market, ask.now_ms, false, json);
                }
                json.close(']');
            }
            json.close('}');
        };
        page.write("events", rows, ask, write)
    }

    fn page(&self, ask: &Ask<'_>, what: &str) -> Result<Page, Answer> {
        let query = ask.query;
        let keyset = ask.path.ends_with("/keyset");
        let number = |name: &'static str| match query.number(name) {
            Some(Err(())) => Err(invalid(&format!("{name} must be a non-negative integer"))),
            Some(Ok(number)) => Ok(Some(number)),
            None => Ok(None),
        };
        let (limit, offset) = (number("limit")?, number("offset")?);
        if keyset && offset.is_some() {
            return Err(invalid("offset is not supported, use after_cursor"));
        }
        if self.rules.gamma_offset_max.is_some_and(|max| offset.unwrap_or(0) > max) {
            let text = format!("offset too large, use /{what}/keyset for deeper pagination");
            return Err(invalid(&text));
        }
        if query.get("order").is_some_and(|order| order.contains('_')) {
            return Err(invalid("order fields are not valid"));
        }
        let after = match query.get("after_cursor").filter(|cursor| keyset && !cursor.is_empty()) {
            Some(cursor) => Some(cursor_number(&cursor).ok_or_else(|| invalid("invalid cursor"))?),
            None => None,
        };
        Ok(Page {
            keyset,
            limit: limit.unwrap_or(PAGE_DEFAULT).min(self.rules.gamma_page_max),
            offset: offset.unwrap_or(0),
            after,
            descending: query.flag("ascending") == Some(false),
        })
    }
}

impl Page {
    /// Writes one page of the plain roll.
    fn write_roll(&self, events: &events::Roll, is_old: bool, ask: &Ask<'_>) -> Answer {
        let which = match ask.query.flag("closed") {
            Some(true) => Which::Closed,
            None if is_old && !self.keyset => Which::All,
            _ => Which::Open,
        };
        if which == Which::Closed && self.after.is_none() {
            events.turn();
        }
        let Ok(starting) = events::starting(ask.query) else {
            return invalid("start dates must be RFC 3339");
        };
        let (wanted, limit) = ((which, starting), self.limit as u64);
        let (here, is_more) = match ask.query.get("order").as_deref() {
            Some("startDate") if self.keyset => {
                events.page_by_start(wanted, self.descending, self.after, limit)
            }
            _ => events.page(wanted, self.after, self.offset as u64, limit),
        };
        let shown: &[u64] = if ask.twist.empty_page { &[] } else { &here };
        let mut json = Json::with_capacity(shown.len() * 1_000);
        if self.keyset {
            json.open('{').text("$schema", "https://schemas.invalid/events.json").key("events");
        }
        json.open('[');
        for number in shown {
            events.push(*number, &mut json);
        }
        json.close(']');
        if self.keyset {
            let last = here.last().copied().filter(|_| is_more);
            let next = if ask.twist.stuck_cursor { Some(self.after.unwrap_or(0)) } else { last };
            if let Some(next) = next {
                json.text("next_cursor", &base64(next.to_string().as_bytes()));
            }
            json.close('}');
        }
        Answer::json(200, json.done()).header("cache-control", "max-age=300")
    }

    /// Writes one page of `rows`, which come by ascending number.
    fn write<R>(
        &self,
        what: &str,
        mut rows: Vec<(u64, R)>,
        ask: &Ask<'_>,
        write: impl Fn(&R, &mut Json),
    ) -> Answer {
        if self.descending {
            rows.reverse();
        }
        if let Some(after) = self.after {
            rows.retain(|(number, _)| if self.descending { *number < after } else { *number > after });
        }
        let from = self.offset.min(rows.len());
        let to = from.saturating_add(self.limit).min(rows.len());
        let here = if ask.twist.empty_page { &[] } else { &rows[from..to] };
        let mut json = Json::with_capacity(here.len() * 6_000);
        if self.keyset {
            json.open('{').text("$schema", &format!("https://schemas.invalid/{what}.json")).key(what);
        }
        json.open('[');
        for (_, row) in here {
            write(row, &mut json);
        }
        json.close(']');
        if !self.keyset {
            let answer = Answer::json(200, json.done()).header("cache-control", "max-age=300");
            return answer.header("deprecation", "true").header("sunset", "Fri, 01 May 2026 00:00:00 GMT");
        }
        // Absent on the last page, however short the others were.
        let last = rows[from..to].last().filter(|_| to < rows.len()).map(|(number, _)| *number);
        let next = if ask.twist.stuck_cursor { Some(self.after.unwrap_or(0)) } else { last };
        if let Some(next) = next {
            json.text("next_cursor", &base64(next.to_string().as_bytes()));
        }
        Answer::json(200, json.close('}').done()).header("cache-control", "max-age=300")
    }
}

/// What the query wants to see of the markets.
struct Filter {
    closed: bool,
    archived: Option<bool>,
    active: bool,
    slugs: Vec<String>,
    ids: Vec<String>,
    conditions: Vec<String>,
    tokens: Vec<String>,
}

impl Filter {
    fn read(query: Query<'_>) -> Self {
        let list = |name| {
            query.all(name).flat_map(|v| v.split(',').map(str::to_owned).collect::<Vec<_>>()).collect()
        };
        Self {
            closed: query.flag("closed").unwrap_or(false),
            archived: query.flag("archived"),
            active: query.flag("active").unwrap_or(true),
            slugs: list("slug"),
            ids: list("id"),
            conditions: list("condition_ids"),
            tokens: list("clob_token_ids"),
        }
    }

    fn takes(&self, roll: &Roll, market: &Market) -> bool {
        let among = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
        self.active
            && self.closed != roll.is_open(market.number)
            && self.archived.is_none_or(|archived| archived == is_archived(roll, market))
            && among(&self.slugs, &market.names.slug)
            && (self.ids.is_empty() || among(&self.ids, &(MARKET_ID + market.number).to_string()))
            && among(&self.conditions, &market.names.condition)
            && (self.tokens.is_empty() || market.names.tokens.iter().any(|token| among(&self.tokens, token)))
    }
}

/// Every tenth of those that are over is put away for good.
pub(super) fn is_archived(roll: &Roll, market: &Market) -> bool {
    !roll.is_open(market.number) && market.number.is_multiple_of(10)
}

pub(super) fn question(number: u64) -> String {
    format!("Will the simulated event {number} happen?")
}

fn event_slug(number: u64) -> String {
    format!("simulated-event-{number}")
}

/// The id neg-risk markets of one event share; empty for others.
pub(super) fn neg_risk_id(market: &Market) -> String {
    if !market.neg_risk {
        return String::new();
    }
    Dice::at(&[market.number / EVENT_SIZE, 0x3e6]).hex(64)
}

fn push_event(roll: &Roll, number: u64, markets: &[std::sync::Arc<Market>], now_ms: i64, json: &mut Json) {
    let (first, last) = (&markets[0], &markets[markets.len() - 1]);
    let over = !roll.is_open(last.number);
    let volume: u64 = markets.iter().map(|market| market.figure(2, 1_000_000)).sum();
    let (born, slug) = (iso_us(first.born_ms), event_slug(number));
    json.text("id", &(EVENT_ID + number).to_string()).text("ticker", &slug).text("slug", &slug);
    json.text("title", &format!("Simulated event {number}")).text("description", DESCRIPTION);
    json.text("resolutionSource", "").text("startDate", &born).text("creationDate", &born);
    json.text("endDate", &iso(roll.end_ms(last))).text("image", IMAGE).text("icon", IMAGE);
    json.raw("active", true).raw("closed", over).flags(&["archived", "new", "featured"], false);
    json.raw("restricted", true)
        .raw("liquidity", volume / 10)
        .raw("volume", volume)
        .raw("openInterest", volume / 3);
    json.text("sortBy", "price")
        .text("createdAt", &born)
        .text("updatedAt", &iso_us(now_ms))
        .raw("competitive", 0.9);
    json.raw("volume24hr", volume / 90).raw("volume1wk", volume / 12).raw("volume1mo", volume / 3);
    json.raw("volume1yr", volume).raw("enableOrderBook", true).raw("liquidityClob", volume / 10);
    json.raw("negRisk", first.neg_risk);
    if first.neg_risk {
        json.text("negRiskMarketID", &neg_risk_id(first));
    }
    json.raw("commentCount", 0)
        .key("tags")
        .open('[')
        .open('{')
        .text("id", "101206")
        .text("label", "Simulated");
    json.text("slug", "simulated").raw("forceShow", false).text("createdAt", &born).text("updatedAt", &born);
    json.raw("requiresTranslation", false)
        .close('}')
        .close(']')
        .raw("cyom", false)
        .raw("showAllOutcomes", true);
    json.raw("showMarketImages", false).raw("enableNegRisk", first.neg_risk).raw("automaticallyActive", true);
    json.text("gmpChartMode", "default")
        .flags(&["negRiskAugmented", "estimateValue", "cumulativeMarkets"], false);
    json.flags(&["pendingDeployment", "deploying"], false).text("deployingTimestamp", &born);
    json.raw("requiresTranslation", false).text("version", "v1");
}

/// A market's row; in `/markets` it names its event, in `/events` it stands inside of it.
fn push_market(roll: &Roll, market: &Market, now_ms: i64, with_event: bool, json: &mut Json) {
    let (open, names, number) = (roll.is_open(market.number), &market.names, market.number);
    let volume = market.figure(2, 1_000_000);
    let (born, end_ms) = (iso_us(market.born_ms), roll.end_ms(market));
    let quote = Quote::of(market, now_ms, open);
    json.open('{').text("id", &(MARKET_ID + number).to_string()).text("question", &question(number));
    json.text("conditionId", &names.condition).text("slug", &names.slug).text("resolutionSource", "");
    json.text("endDate", &iso(end_ms))
        .text("liquidity", &format!("{}.25", volume / 10))
        .text("startDate", &born);
    json.text("image", IMAGE).text("icon", IMAGE).text("description", DESCRIPTION);
    json.text("outcomes", r#"["Yes", "No"]"#).text("outcomePrices", &quote.outcome_prices);
    json.text("volume", &format!("{volume}.5")).raw("active", true).raw("closed", !open);
    json.text("marketMakerAddress", "").text("createdAt", &born).text("updatedAt", &iso_us(now_ms));
    json.flags(&["new", "featured"], false)
        .text("submitted_by", "")
        .raw("archived", is_archived(roll, market));
    if !open {
        // The other spelling of a time.
        json.text("closedTime", &iso(end_ms).replace('T', " ").replace('Z', "+00"));
    }
    json.text("resolvedBy", "")
        .raw("restricted", true)
        .text("groupItemTitle", &format!("Outcome {}", number % EVENT_SIZE));
    json.text("groupItemThreshold", &(number % EVENT_SIZE).to_string())
        .text("questionID", &names.question_id);
    json.raw("enableOrderBook", true)
        .raw("orderPriceMinTickSize", plain(market.grid().unit))
        .raw("orderMinSize", 5);
    json.raw("volumeNum", format_args!("{volume}.5")).raw("liquidityNum", format_args!("{}.25", volume / 10));
    json.text("endDateIso", &iso(end_ms)[..10])
        .text("startDateIso", &born[..10])
        .raw("hasReviewedDates", true);
    json.raw("volume24hr", volume / 90).raw("volume1wk", volume / 12).raw("volume1mo", volume / 3);
    json.raw("volume1yr", volume)
        .text("clobTokenIds", &format!(r#"["{}", "{}"]"#, names.tokens[0], names.tokens[1]));
    json.text("comboStatus", "disabled").text("umaBond", "500").text("umaReward", "5");
    json.raw("volume24hrClob", volume / 90)
        .raw("volume1wkClob", volume / 12)
        .raw("volume1moClob", volume / 3);
    json.raw("volume1yrClob", volume).raw("volumeClob", volume).raw("liquidityClob", volume / 10);
    json.raw("makerBaseFee", 1_000)
        .raw("takerBaseFee", 1_000)
        .raw("customLiveness", 0)
        .raw("acceptingOrders", open);
    json.raw("negRisk", market.neg_risk);
    if market.neg_risk {
        json.text("negRiskMarketID", &neg_risk_id(market));
    }
    json.text("negRiskRequestID", "");
    if with_event {
        let event = number / EVENT_SIZE;
        let from = (event * EVENT_SIZE) as usize;
        let to = (from + EVENT_SIZE as usize).min(roll.markets.len());
        json.key("events").open('[').open('{');
        push_event(roll, event, &roll.markets[from..to], now_ms, json);
        json.close('}').close(']');
    }
    json.flags(&["ready", "funded"], false)
        .text("acceptingOrdersTimestamp", &iso(market.born_ms))
        .raw("cyom", false);
    json.raw("competitive", 0.9).raw("pagerDutyNotificationEnabled", false).raw("approved", true);
    json.raw("rewardsMinSize", 0).raw("rewardsMaxSpread", 0).raw("spread", &quote.spread);
    json.raw("oneDayPriceChange", 0.01).raw("oneWeekPriceChange", -0.01).raw("oneMonthPriceChange", -0.005);
    json.raw("oneYearPriceChange", 0.065).raw("lastTradePrice", &quote.last).raw("bestBid", &quote.bid);
    json.raw("bestAsk", &quote.ask).raw("automaticallyActive", true).raw("clearBookOnStart", true);
    json.text("seriesColor", "")
        .flags(&["showGmpSeries", "showGmpOutcome", "manualActivation", "negRiskOther"], false);
    json.text("umaResolutionStatuses", if open { "[]" } else { r#"["proposed", "resolved"]"# });
    json.flags(&["pendingDeployment", "deploying"], false).text("deployingTimestamp", &born);
    json.flags(&["rfqEnabled", "holdingRewardsEnabled"], false).raw("feesEnabled", true);
    json.raw("requiresTranslation", false).text("feeType", "general_fees");
    json.key("feeSchedule").value(r#"{"exponent":1,"rate":0.05,"takerOnly":true,"rebateRate":0.25}"#);
    json.text("version", "v1").close('}');
}

/// A market's prices as Gamma shows them.
struct Quote {
    bid: String,
    ask: String,
    spread: String,
    last: String,
    outcome_prices: String,
}

impl Quote {
    fn of(market: &Market, now_ms: i64, open: bool) -> Self {
        let (best, last) = market.book(now_ms, |book, _| (book.best(), book.last));
        let price = |ticks| market.grid().price(ticks);
        let bid = best.0.filter(|_| open).map_or(0, |level| price(level.price));
        let ask = best.1.filter(|_| open).map_or(10_000, |level| price(level.price));
        let yes = match open {
            true => (bid + ask) / 2,
            false => 10_000 * u32::from(market.figure(1, 2) == 0),
        };
        Self {
            bid: plain(bid),
            ask: plain(ask),
            spread: plain(ask - bid),
            last: plain(last.map_or(0, price)),
            outcome_prices: format!(r#"["{}", "{}"]"#, plain(yes), plain(10_000 - yes)),
        }
    }
}
