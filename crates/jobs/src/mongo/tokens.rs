//! Tokens, in one `findAndModify` with a pipeline: the server's clock, the logs, the decision and the charge are one
//! atomic act. What was decided is left in the document (`rate_limit_last`) and comes back with it.
//!
//! The pipeline says what [`WindowLog`] says, in MongoDB's language:
//!
//! ```text
//! 1  t.now      the server's clock, not earlier than last time unless by more than 10 s
//! 2  t.log<i>   what still counts of each window's log
//! 3  t.room<i>  how many more requests fit
//! 4  t.n        how many are granted: the least room, not more than asked for
//! 5             the logs, S2's window fields, the saturation, the answer
//! ```
//!
//! The system's limit is a document of its own and is charged first; what the exchange then refuses is given back.

use std::time::Duration;

use catchment_model::Venue;
use mongodb::bson::{Bson, Document, doc};

use super::documents::whole;
use super::{MongoStore, fault};
use crate::connector::RateLimit;
use crate::error::StoreError;
use crate::job::Status;
use crate::time::{between, from_ms};
use crate::token::{Grant, Mark, Slot, TokenAsk, Tokens};
use crate::window_log::WindowLog;

/// Where the parts of a window stand in its document.
struct Place {
    slot: Slot,
    limit: String,
    period: String,
    log: String,
}

fn place(slot: Slot) -> Place {
    match slot {
        Slot::Named(at) => Place {
            slot,
            limit: format!("windows.w{at}.limit"),
            period: format!("windows.w{at}.period_ms"),
            log: format!("windows.w{at}.log"),
        },
        Slot::Main | Slot::System => Place {
            slot,
            limit: "rate_limit".to_owned(),
            period: "rate_limit_period_ms".to_owned(),
            log: "rate_limit_log".to_owned(),
        },
    }
}

/// What one document answered.
enum Answer {
    Granted(Grant),
    Wait(Duration),
    /// No such document, or it is not active.
    Nobody,
}

pub(super) async fn take(store: &MongoStore, ask: &TokenAsk<'_>) -> Result<Tokens, StoreError> {
    let mut ask = *ask;
    let mut system = None;
    if store.has_system_limit().await? {
        let of_system = TokenAsk { windows: &[], ..ask };
        match take_from(store, &of_system, true).await? {
            Answer::Granted(grant) => {
                ask.requests = grant.requests;
                system = Some(grant);
            }
            Answer::Wait(retry_after) => {
                let more = doc! { "$inc": { "rate_limit_saturated": 1_i64 } };
                let filter = doc! { "exchange_id": ask.exchange.as_str() };
                store.connectors.update_one(filter, more).await.map_err(fault::error)?;
                return Ok(Tokens::Wait { retry_after });
            }
            Answer::Nobody => {}
        }
    }
    let answer = take_from(store, &ask, false).await;
    let granted = match &answer {
        Ok(Answer::Granted(grant)) => grant.requests,
        _ => 0,
    };
    if let Some(of_system) = &system
        && granted < of_system.requests
    {
        give_back_to(store, of_system, of_system.requests - granted, true).await?;
    }
    match answer? {
        Answer::Granted(mut grant) => {
            grant.marks.extend(system.map(|of_system| of_system.marks[0]));
            Ok(Tokens::Granted(grant))
        }
        Answer::Wait(retry_after) => Ok(Tokens::Wait { retry_after }),
        Answer::Nobody => {
            let found = store.find_connector(ask.exchange).await?;
            let found = found.ok_or_else(|| StoreError::no_connector(ask.exchange))?;
            if found.status != Status::Active {
                return Ok(Tokens::Paused);
            }
            // It is there and active: what it lacks is a window that was asked for.
            Err(StoreError::invalid("windows", format!("{:?} were not all declared", ask.windows)))
        }
    }
}

async fn take_from(store: &MongoStore, ask: &TokenAsk<'_>, system: bool) -> Result<Answer, StoreError> {
    let own = if system { Slot::System } else { Slot::Main };
    let places: Vec<Place> =
        std::iter::once(own).chain(ask.windows.iter().copied().map(Slot::Named)).map(place).collect();
    let collection = if system { &store.settings } else { &store.connectors };
    let mut filter = match system {
        true => doc! { "_id": SYSTEM },
        false => doc! { "exchange_id": ask.exchange.as_str(), "status": "active" },
    };
    for place in &places[1..] {
        filter.insert(place.limit.clone(), doc! { "$exists": true });
    }
    let update = collection.find_one_and_update(filter, pipeline(ask, &places));
    let update = update
        .return_document(mongodb::options::ReturnDocument::After)
        .projection(doc! { "_id": 0, "rate_limit_last": 1 });
    let Some(found) = update.await.map_err(fault::error)? else { return Ok(Answer::Nobody) };
    let last = found.get_document("rate_limit_last").map_err(|error| odd(&error.to_string()))?;
    read(ask, &places, last)
}

/// The document that stands for all exchanges.
pub(super) const SYSTEM: &str = "system_limit";

fn read(ask: &TokenAsk<'_>, places: &[Place], last: &Document) -> Result<Answer, StoreError> {
    let number = |key: &str| whole(last, key).ok_or_else(|| odd(key));
    let now = from_ms(number("at")?);
    let requests = u32::try_from(number("n")?).map_err(|error| odd(&error.to_string()))?;
    let valid_for = Duration::from_millis(number("valid_ms")?.unsigned_abs());
    let mut marks = Vec::with_capacity(places.len());
    let mut fits_at = now;
    for (at, place) in places.iter().enumerate() {
        let limit = u32::try_from(number(&format!("limit{at}"))?).map_err(|error| odd(&error.to_string()))?;
        let rate = RateLimit { limit, period_ms: number(&format!("period{at}"))?.unsigned_abs() };
        let cost = ask.cost.min(limit);
        if requests > 0 {
            marks.push(Mark { slot: place.slot, until: number(&format!("until{at}"))?, cost });
        } else {
            let mut log = WindowLog::default();
            for entry in last.get_array(format!("log{at}")).map_err(|error| odd(&error.to_string()))? {
                let entry = entry.as_document().ok_or_else(|| odd("a log's entry"))?;
                let (until, tokens) =
                    whole(entry, "u").zip(whole(entry, "n")).ok_or_else(|| odd("a log's entry"))?;
                log.add(until, u32::try_from(tokens).unwrap_or(0));
            }
            fits_at = fits_at.max(log.fits_at(rate, cost, now));
        }
    }
    if requests == 0 {
        return Ok(Answer::Wait(between(now, fits_at)));
    }
    let (exchange, cost) = (ask.exchange, ask.cost);
    Ok(Answer::Granted(Grant { exchange, requests, cost, granted_at: now, valid_for, marks }))
}

fn odd(what: &str) -> StoreError {
    StoreError::Damaged { store: "mongo", what: format!("rate_limit_last: {what}") }
}

/// See the module's head.
fn pipeline(ask: &TokenAsk<'_>, places: &[Place]) -> Vec<Document> {
    let field = |path: &str| Bson::String(format!("${path}"));
    let t = |name: &str, at: usize| Bson::String(format!("$t.{name}{at}"));
    let clock = doc! { "$toLong": "$$NOW" };
    let last_at = doc! { "$ifNull": ["$rate_limit_last.at", 0_i64] };
    let behind = doc! { "$subtract": [last_at.clone(), clock.clone()] };
    let is_small_step =
        doc! { "$and": [{ "$gt": [behind.clone(), 0_i64] }, { "$lt": [behind, 10_000_i64] }] };
    let now = doc! { "t.now": { "$cond": [is_small_step, last_at, clock] } };

    let (mut logs, mut rooms, mut decide, mut charge) =
        (Document::new(), Document::new(), Document::new(), Document::new());
    let mut last = doc! { "at": "$t.now", "n": "$t.n", "valid_ms": "$t.valid_ms" };
    let mut all_rooms = vec![Bson::Int64(i64::from(ask.requests))];
    let mut validities = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let (limit, period) = (field(&place.limit), field(&place.period));
        let width =
            doc! { "$max": [1_i64, { "$toLong": { "$floor": { "$divide": [period.clone(), 100_i64] } } }] };
        let longest = TokenAsk::VALID_FOR_MAX.as_millis() as i64;
        // Two stages back: what the entries need of the window.
        logs.insert(format!("t.width{at}"), width.clone());
        logs.insert(
            format!("t.log{at}"),
            doc! { "$map": {
                "input": { "$filter": {
                    "input": { "$ifNull": [field(&place.log), []] },
                    "cond": { "$and": [{ "$gt": ["$$this.u", "$t.now"] }, { "$gt": ["$$this.n", 0_i64] }] },
                } },
                "in": {
                    "u": { "$min": ["$$this.u", { "$add": ["$t.now", period.clone(), longest, width.clone()] }] },
                    "n": "$$this.n",
                },
            } },
        );
        let cost = doc! { "$min": [i64::from(ask.cost), limit.clone()] };
        rooms.insert(format!("t.cost{at}"), cost.clone());
        rooms.insert(
            format!("t.room{at}"),
            doc! { "$toLong": { "$floor": { "$divide": [
                { "$subtract": [limit.clone(), { "$sum": Bson::String(format!("$t.log{at}.n")) }] },
                { "$max": [1_i64, cost] },
            ] } } },
        );
        all_rooms.push(t("room", at));
        let validity = doc! { "$toLong": { "$floor": { "$divide": [{ "$multiply": [period.clone(), 3_i64] }, 100_i64] } } };
        validities.push(Bson::from(doc! { "$min": [1_000_i64, { "$max": [20_i64, validity] }] }));
        let ends = doc! { "$add": ["$t.now", period.clone(), "$t.valid_ms"] };
        decide.insert(
            format!("t.until{at}"),
            doc! { "$add": [{ "$subtract": [ends.clone(), { "$mod": [ends, t("width", at)] }] }, t("width", at)] },
        );
        let tokens = doc! { "$multiply": ["$t.n", t("cost", at)] };
        let more = doc! { "$map": { "input": t("log", at), "in": { "$cond": [
            { "$eq": ["$$this.u", t("until", at)] },
            { "u": "$$this.u", "n": { "$add": ["$$this.n", tokens.clone()] } },
            "$$this",
        ] } } };
        let one_more =
            doc! { "$concatArrays": [t("log", at), [{ "u": t("until", at), "n": tokens.clone() }]] };
        let is_there = doc! { "$in": [t("until", at), Bson::String(format!("$t.log{at}.u"))] };
        let charged = doc! { "$cond": [is_there, more, one_more] };
        charge
            .insert(place.log.clone(), doc! { "$cond": [{ "$gt": ["$t.n", 0_i64] }, charged, t("log", at)] });
        last.insert(format!("limit{at}"), limit);
        last.insert(format!("period{at}"), period);
        last.insert(format!("until{at}"), t("until", at));
        last.insert(
            format!("log{at}"),
            doc! { "$cond": [{ "$gt": ["$t.n", 0_i64] }, Bson::Null, t("log", at)] },
        );
    }
    rooms.insert(
        "t.valid_ms",
        match ask.valid_for {
            Some(length) => Bson::Int64(crate::time::whole_ms(length)),
            None => Bson::from(doc! { "$min": validities }),
        },
    );
    let least = doc! { "t.n": { "$max": [0_i64, { "$min": all_rooms }] } };

    // S2's two attempts: a window that is over begins anew with these, one that is not has these more.
    let is_granted = doc! { "$gt": ["$t.n", 0_i64] };
    let is_over = doc! { "$lte": [{ "$ifNull": ["$rate_limit_reset_at", 0_i64] }, "$t.now"] };
    let begins = doc! { "$and": [is_granted.clone(), is_over] };
    let tokens = doc! { "$multiply": ["$t.n", "$t.cost0"] };
    let usage = doc! { "$toInt": { "$cond": [begins.clone(), tokens.clone(), { "$add": ["$rate_limit_usage", tokens] }] } };
    charge.insert("rate_limit_usage", usage);
    let start = doc! { "$cond": [begins.clone(), "$t.now", "$rate_limit_window_start"] };
    charge.insert("rate_limit_window_start", start);
    let reset =
        doc! { "$cond": [begins, { "$add": ["$t.now", "$rate_limit_period_ms"] }, "$rate_limit_reset_at"] };
    charge.insert("rate_limit_reset_at", reset);
    let missed = doc! { "$cond": [is_granted, 0_i64, 1_i64] };
    charge.insert("rate_limit_saturated", doc! { "$add": ["$rate_limit_saturated", missed] });
    charge.insert("updated_at", "$$NOW");
    charge.insert("rate_limit_last", last);
    vec![
        doc! { "$set": now },
        doc! { "$set": logs },
        doc! { "$set": rooms },
        doc! { "$set": least },
        doc! { "$set": decide },
        doc! { "$set": charge },
        doc! { "$unset": "t" },
    ]
}

pub(super) async fn give_back(store: &MongoStore, grant: &Grant, requests: u32) -> Result<(), StoreError> {
    give_back_to(store, grant, requests, false).await?;
    if grant.marks.iter().any(|mark| mark.slot == Slot::System) {
        give_back_to(store, grant, requests, true).await?;
    }
    Ok(())
}

async fn give_back_to(
    store: &MongoStore,
    grant: &Grant,
    requests: u32,
    system: bool,
) -> Result<(), StoreError> {
    let requests = requests.min(grant.requests);
    let collection = if system { &store.settings } else { &store.connectors };
    let filter = match system {
        true => doc! { "_id": SYSTEM },
        false => doc! { "exchange_id": grant.exchange.as_str() },
    };
    let mut set = Document::new();
    for mark in grant.marks.iter().filter(|mark| (mark.slot == Slot::System) == system) {
        let log = place(mark.slot).log;
        let tokens = i64::from(requests) * i64::from(mark.cost);
        let fewer = doc! { "u": "$$this.u", "n": { "$max": [0_i64, { "$subtract": ["$$this.n", tokens] }] } };
        let is_it = doc! { "$eq": ["$$this.u", mark.until] };
        let input = doc! { "$ifNull": [format!("${log}"), []] };
        set.insert(log, doc! { "$map": { "input": input, "in": { "$cond": [is_it, fewer, "$$this"] } } });
        if mark.slot == Slot::Main {
            // Only of the window it was counted in.
            let is_same = doc! { "$lte": ["$rate_limit_window_start", grant.granted_at.get()] };
            let fewer = doc! { "$max": [0_i64, { "$subtract": ["$rate_limit_usage", tokens] }] };
            let usage = doc! { "$toInt": { "$cond": [is_same, fewer, "$rate_limit_usage"] } };
            set.insert("rate_limit_usage", usage);
        }
    }
    if !set.is_empty() {
        collection.update_one(filter, vec![doc! { "$set": set }]).await.map_err(fault::error)?;
    }
    Ok(())
}

/// The log a window begins with.
pub(super) fn own_window(rate: RateLimit) -> Document {
    let limit = i64::from(rate.limit);
    doc! { "rate_limit": limit, "rate_limit_period_ms": rate.period_ms as i64 }
}

/// Whose tokens.
pub(super) fn of(exchange: Venue) -> Document {
    doc! { "exchange_id": exchange.as_str() }
}
