//! The private door: a login, then the orders and executions of its only user.
//!
//! ```text
//! → {"req_id":"1","op":"auth","args":["mock-key",1790000010000,"…"]}
//! ← {"success":true,"ret_msg":"","conn_id":"…","req_id":"1","op":"auth"}
//! ```
//! The signature is HMAC-SHA256 of `GET/realtime1790000010000`, in hexadecimal. The time is the moment until which the login
//! holds.

use serde::Deserialize;

use super::Bybit;
use crate::mock::{KEY, SECRET};
use crate::sign;
use crate::ws::exchange::{Market, number, put, trimmed};
use crate::ws::hall::{Admit, Hall, Key};
use crate::ws::line::Item;
use crate::ws::pair::{Pair, SIZE_SCALE};

pub(super) const ORDERS: &str = "order";
pub(super) const EXECUTIONS: &str = "execution";

#[derive(Deserialize)]
struct Auth {
    args: (String, i64, String),
}

#[derive(Deserialize)]
struct Command {
    op: String,
    #[serde(default)]
    req_id: Option<String>,
}

#[derive(Deserialize)]
struct Topics {
    #[serde(default)]
    args: Vec<String>,
}

impl Bybit {
    /// A command on the private socket.
    pub(super) fn hear_private(&mut self, market: &mut Market, hall: &mut Hall, conn: u64, text: &str) {
        let Ok(Command { op, req_id }) = serde_json::from_str::<Command>(text) else {
            let out = self.respond(conn, false, "Invalid request", None, "");
            return hall.tell(conn, &out);
        };
        let req_id = req_id.as_deref();
        let wrong = match op.as_str() {
            "ping" => {
                let out = self.respond(conn, true, "pong", req_id, "pong");
                return hall.tell_alive(conn, &out);
            }
            "auth" => {
                let problem = problem(text, hall.now_ms());
                let out = self.respond(conn, problem.is_none(), problem.unwrap_or(""), req_id, "auth");
                hall.tell(conn, &out);
                match problem {
                    None => drop(self.private.insert(conn, true)),
                    Some(_) => hall.hang_up(conn, Item::Close(1008, "auth failed")),
                }
                return;
            }
            "subscribe" | "unsubscribe" if self.private.get(&conn) != Some(&true) => {
                Some("Request not authorized")
            }
            "subscribe" | "unsubscribe" => {
                let topics =
                    serde_json::from_str::<Topics>(text).map(|topics| topics.args).unwrap_or_default();
                topics.iter().find_map(|topic| on_list(market, hall, conn, op == "subscribe", topic))
            }
            _ => Some("Invalid op"),
        };
        let out = self.respond(conn, wrong.is_none(), wrong.unwrap_or(""), req_id, &op);
        hall.tell(conn, &out);
    }
}

/// Puts a topic on a connection or takes it off; what is wrong with it.
fn on_list(
    market: &mut Market,
    hall: &mut Hall,
    conn: u64,
    subscribes: bool,
    topic: &str,
) -> Option<&'static str> {
    let channel = match topic {
        "order" => ORDERS,
        "execution" => EXECUTIONS,
        _ => return Some("Invalid topic"),
    };
    let key = Key { slot: 0, channel, variant: 0 };
    if !subscribes {
        hall.known_feed(key).map(|feed| hall.leave(conn, feed));
        return None;
    }
    (market.subscribe(hall, conn, key).1 == Admit::Refuse).then_some("refused")
}

/// What is wrong with a login, in the venue's words.
fn problem(text: &str, now_ms: i64) -> Option<&'static str> {
    let Ok(Auth { args: (key, until_ms, signature) }) = serde_json::from_str::<Auth>(text) else {
        return Some("Params Error");
    };
    let signed = format!("GET/realtime{until_ms}");
    match () {
        () if key != KEY => Some("Invalid apikey"),
        () if until_ms <= now_ms => Some("Request expired"),
        () if signature != sign::hmac_hex(SECRET.as_bytes(), signed.as_bytes()) => Some("Error sign"),
        () => None,
    }
}

/// An order, or what of it was executed, by the pair's last trade.
pub(super) fn write(pair: &Pair, topic: &str, out: &mut Vec<u8>) -> (u64, u64) {
    let trade = pair.last_trade();
    put!(out, "{\"id\":\"");
    number(out, trade.id);
    put!(out, "\",\"topic\":\"", topic, "\",\"creationTime\":");
    number(out, trade.at_us / 1_000);
    put!(out, ",\"data\":[{\"category\":\"spot\",\"symbol\":\"", pair.base, pair.quote, "\",\"orderId\":\"");
    number(out, trade.id);
    put!(out, "\",\"price\":\"");
    trimmed(out, trade.price as u64, pair.price_scale);
    put!(out, "\",\"qty\":\"");
    trimmed(out, trade.size, SIZE_SCALE);
    put!(out, "\",\"side\":\"", if trade.buy { "Buy" } else { "Sell" }, "\"}]}");
    (trade.id, trade.id)
}
