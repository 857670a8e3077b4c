//! Private streams: nothing is asked for before the login is taken, a refused one is not repeated in haste, and every new
//! connection logs in anew.

use std::sync::Arc;
use std::time::Duration;

use catchment_model::SystemClock;
use catchment_sim::mock::{DESCRIPTOR, KEY, PASSPHRASE, SECRET};
use catchment_sim::{Sim, SimConfig, StreamFault, StreamFaultKind};
use catchment_venues::stream::{Descriptor, Secrets};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::rig::{Rig, Start};
use crate::stage::{Session, Stage};

fn secrets(secret: &str) -> Option<Secrets> {
    Some(Secrets { key: KEY.to_owned(), secret: secret.to_owned(), passphrase: PASSPHRASE.to_owned() })
}

/// A venue's private door, with this secret.
async fn door(venue: &str, streams: &[(&str, &str)], secret: &str) -> (Sim, Rig) {
    let sim = Sim::start(SimConfig::default(), Arc::new(SystemClock::new())).await.unwrap();
    let descriptor = match venue {
        "mock" => Descriptor::read("mock.toml", DESCRIPTOR).unwrap(),
        other => Descriptor::find(other).unwrap(),
    };
    let mut start = Start::described(descriptor, streams);
    start.secrets = secrets(secret);
    let rest = sim.base(&format!("{venue}/rest"));
    let socket = match venue {
        "mock" => sim.socket("mock/ws"),
        other => sim.socket(other),
    };
    let rig = start.at(&[("rest", rest), ("stream", socket)]);
    (sim, rig)
}

/// Recorded after a login, and again after another once the connection was cut.
async fn is_recorded(venue: &str, channel: &str, symbol: &str) {
    let (sim, mut rig) = door(venue, &[(channel, symbol)], SECRET).await;
    rig.wait_for(channel, 2).await;
    sim.inject(venue, &StreamFault::new(StreamFaultKind::Cut)).unwrap();
    rig.wait_status("a second login", |status| status.counts.logins == 2).await;
    let so_far = rig.records(channel).len();
    let records = rig.wait_for(channel, so_far + 2).await;
    assert_eq!((&records[0]["exchange"], &records[0]["channel"]), (&venue.into(), &channel.into()));
    let (_, status) = rig.finish().await;
    let counts = status.counts;
    assert_eq!((counts.logins, counts.logins_failed, counts.disconnects), (2, 0, 1), "{counts:#?}");
    assert_eq!((counts.unknown, counts.garbled, counts.subscriptions_failed), (0, 0, 0), "{counts:#?}");
}

/// Told, and tried again later and later.
async fn is_refused(venue: &str, channel: &str, symbol: &str, says: &str) {
    let began = Instant::now();
    let (sim, mut rig) = door(venue, &[(channel, symbol)], "not the secret").await;
    rig.wait_status("refusals", |status| status.counts.logins_failed >= 3).await;
    // Waits of 200 and 400 ms lie between three refusals; that of a lost connection would be 2 ms.
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    assert!(rig.status.borrow().connections[0].counts.connects <= 5, "{:#?}", rig.status.borrow());
    let error = rig.status.borrow().connections[0].last_error.clone().unwrap();
    assert!(error.contains("the venue refused the login") && error.contains(says), "{error}");
    let streams: usize = sim.connections(venue).unwrap().iter().map(|one| one.streams.len()).sum();
    assert_eq!(streams, 0, "nothing is subscribed to");
    let (records, status) = rig.finish().await;
    assert_eq!((status.counts.logins, status.counts.messages), (0, 0));
    // The streams that are not recorded are told as missing, and who we are is nowhere.
    assert!(records.iter().any(|line| line["payload"]["cause"] == "failure"), "{records:#?}");
    for text in [format!("{records:?}"), format!("{status:?}")] {
        assert!(
            !text.contains("not the secret") && !text.contains(PASSPHRASE) && !text.contains(KEY),
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_mocks_fills_are_recorded_after_a_login() {
    is_recorded("mock", "fills", "BTC/USDT").await;
}

#[tokio::test]
async fn okx_orders_are_recorded_after_a_login() {
    is_recorded("okx", "orders", "*").await;
}

#[tokio::test]
async fn bybit_executions_are_recorded_after_a_login() {
    is_recorded("bybit", "executions", "*").await;
}

#[tokio::test]
async fn a_wrong_signature_is_refused_at_the_mock() {
    is_refused("mock", "fills", "BTC/USDT", "the signature is wrong").await;
}

#[tokio::test]
async fn a_wrong_signature_is_refused_at_okx() {
    is_refused("okx", "orders", "*", "60007").await;
}

#[tokio::test]
async fn a_wrong_signature_is_refused_at_bybit() {
    is_refused("bybit", "orders", "*", "Error sign").await;
}

/// The next thing a client says, read.
async fn said(session: &mut Session) -> Value {
    serde_json::from_str(&session.heard().await).unwrap()
}

#[tokio::test]
async fn nothing_is_asked_for_before_the_login_is_taken() {
    let mut stage = Stage::silent().await;
    let mut start = Start::venue("okx", &[("orders", "*"), ("account", "*")]);
    start.secrets = secrets(SECRET);
    let rig = start.on(&stage);
    let mut session = stage.session().await;
    assert_eq!(said(&mut session).await["op"], "login");
    let early = timeout(Duration::from_millis(150), session.heard()).await;
    assert!(early.is_err(), "said before the login was taken: {early:?}");
    session.say(r#"{"event":"login","code":"0","msg":"","connId":"1"}"#).await;
    let command = said(&mut session).await;
    assert_eq!((&command["op"], command["args"].as_array().unwrap().len()), (&json!("subscribe"), 2));
    let (_, status) = rig.finish().await;
    assert_eq!((status.counts.logins, status.counts.logins_failed), (1, 0));
}

#[tokio::test]
async fn a_login_that_is_not_answered_is_given_up() {
    let mut stage = Stage::silent().await;
    let mut start = Start::venue("okx", &[("orders", "*")]);
    start.secrets = secrets(SECRET);
    start.settings.acks.ack_within = Duration::from_millis(50);
    let mut rig = start.on(&stage);
    let mut session = stage.session().await;
    assert_eq!(said(&mut session).await["op"], "login");
    assert!(session.is_left().await);
    let mut again = stage.session().await;
    assert_eq!(said(&mut again).await["op"], "login");
    rig.wait_status("the failure", |status| status.counts.logins_failed >= 1).await;
    let error = rig.status.borrow().connections[0].last_error.clone();
    assert_eq!(error.as_deref(), Some("the venue did not answer the login"));
    rig.finish().await;
}
