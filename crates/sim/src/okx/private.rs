//! The private door: a login, then the orders and the account of its only user.
//!
//! ```text
//! → {"op":"login","args":[{"apiKey":"mock-key","passphrase":"mock-passphrase","timestamp":"1790000000","sign":"…"}]}
//! ← {"event":"login","msg":"","code":"0","connId":"a4d3ae55"}
//! ```
//! The signature is HMAC-SHA256 of `1790000000GET/users/self/verify`, in base64. A login that is wrong is answered with
//! the venue's code, and the connection closed.

use serde::Deserialize;

use super::Okx;
use super::stream::{Command, price, problem, size};
use crate::mock::{KEY, PASSPHRASE, SECRET};
use crate::sign;
use crate::text::Json;
use crate::ws::exchange::{Market, number, put};
use crate::ws::hall::{Admit, Hall, Key};
use crate::ws::line::Item;
use crate::ws::pair::Pair;

pub(super) const ORDERS: &str = "orders";
pub(super) const ACCOUNT: &str = "account";
/// How far off a login's time may be.
const LOGIN_WITHIN_S: i64 = 30;

#[derive(Deserialize)]
struct LoginArg {
    #[serde(rename = "apiKey", default)]
    key: String,
    #[serde(default)]
    passphrase: String,
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    sign: String,
}

#[derive(Deserialize)]
struct ChannelArg {
    channel: String,
}

impl Okx {
    /// A command on the private socket.
    pub(super) fn hear_private(
        &mut self,
        market: &mut Market,
        hall: &mut Hall,
        conn: u64,
        command: &Command<'_>,
    ) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let id = command.id.as_deref();
        if command.op == "login" {
            let arg = command.args.first().and_then(|arg| serde_json::from_str::<LoginArg>(arg.get()).ok());
            let wrong = arg.map_or(Some(("60013", "Invalid args")), |arg| arg.problem(hall.now_ms()));
            return match wrong {
                None => {
                    session.logged_in = true;
                    let mut json = Json::default();
                    json.open('{').text("event", "login").text("msg", "").text("code", "0");
                    hall.tell(conn, json.text("connId", &session.id).close('}').done().as_bytes());
                }
                Some((code, msg)) => {
                    hall.tell(conn, &problem(code, msg, session, id));
                    hall.hang_up(conn, Item::Close(4001, "Login Failed"));
                }
            };
        }
        if !session.logged_in {
            return hall.tell(conn, &problem("60011", "Please log in", session, id));
        }
        let session = &*session;
        for arg in &command.args {
            let channel = serde_json::from_str::<ChannelArg>(arg.get()).map(|arg| arg.channel);
            let channel = match channel.as_deref() {
                Ok(ORDERS) => ORDERS,
                Ok(ACCOUNT) => ACCOUNT,
                _ => return hall.tell(conn, &problem("60018", "Wrong URL or channel", session, id)),
            };
            let key = Key { slot: 0, channel, variant: 0 };
            if command.op == "unsubscribe" {
                hall.known_feed(key).map(|feed| hall.leave(conn, feed));
            } else if market.subscribe(hall, conn, key).1 == Admit::Refuse {
                return hall.tell(conn, &problem("60029", "Subscription refused", session, id));
            }
            let mut json = Json::default();
            json.open('{').text("event", command.op).raw("arg", arg.get()).text("connId", &session.id);
            if let Some(id) = id {
                json.text("id", id);
            }
            hall.tell(conn, json.close('}').done().as_bytes());
        }
    }
}

impl LoginArg {
    /// What is wrong with it, in the venue's words.
    fn problem(&self, now_ms: i64) -> Option<(&'static str, &'static str)> {
        let signed = format!("{}GET/users/self/verify", self.timestamp);
        let time = self.timestamp.parse::<i64>().ok();
        match () {
            () if self.key != KEY => Some(("60005", "Invalid apiKey")),
            () if self.passphrase != PASSPHRASE => Some(("60024", "Wrong passphrase")),
            () if time.is_none_or(|time| (time - now_ms / 1_000).abs() > LOGIN_WITHIN_S) => {
                Some(("60006", "Timestamp request expired"))
            }
            () if self.sign != sign::hmac_base64(SECRET.as_bytes(), signed.as_bytes()) => {
                Some(("60007", "Invalid sign"))
            }
            () => None,
        }
    }
}

/// An order that was filled by the pair's last trade.
pub(super) fn write_order(pair: &Pair, out: &mut Vec<u8>) -> (u64, u64) {
    let trade = pair.last_trade();
    put!(
        out,
        "{\"arg\":{\"channel\":\"orders\",\"instType\":\"ANY\",\"uid\":\"1\"},\"data\":[{\"instId\":\""
    );
    put!(out, pair.base, "-", pair.quote, "\",\"ordId\":\"");
    number(out, trade.id);
    put!(out, "\",\"fillPx\":\"");
    price(out, pair, trade.price);
    put!(out, "\",\"fillSz\":\"");
    size(out, trade.size);
    put!(
        out,
        "\",\"side\":\"",
        if trade.buy { "buy" } else { "sell" },
        "\",\"state\":\"filled\",\"uTime\":\""
    );
    number(out, trade.at_us / 1_000);
    put!(out, "\"}]}");
    (trade.id, trade.id)
}

/// The account as it stands.
pub(super) fn write_account(pair: &Pair, count: u64, out: &mut Vec<u8>) -> (u64, u64) {
    put!(out, "{\"arg\":{\"channel\":\"account\",\"uid\":\"1\"},\"data\":[{\"uTime\":\"");
    number(out, pair.ticker_us / 1_000);
    put!(out, "\",\"totalEq\":\"");
    number(out, 10_000 + count % 100);
    put!(out, "\",\"details\":[]}]}");
    (count, count)
}
