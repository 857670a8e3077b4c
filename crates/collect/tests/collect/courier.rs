//! What the courier brings back, what it refuses, and what the governor learns of it.

use std::sync::Arc;
use std::time::Duration;

use catchment_collect::{Courier, CourierSettings, Phase, SendError};
use catchment_governor::{Ask, HoldCause, Lane};
use catchment_model::{Clock, SimClock, SystemClock, UnixNs};
use catchment_sim::{Faults, RetryAfter, Sim, SimConfig};
use catchment_venues::{Reading, Request};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

use crate::support::{Act, Desk, FAMILY, Raw, answer, governor, quick, sim, venue};

const SOON: Duration = Duration::from_millis(150);

fn hasty() -> CourierSettings {
    CourierSettings { deadline: SOON, ..CourierSettings::default() }
}

fn desk() -> Desk {
    Desk::new(CourierSettings::default())
}

/// Limitless, simulated, with this fault, and a page of its listing.
async fn faulty(faults: Faults) -> (Sim, String) {
    let sim = sim(SimConfig::default()).await;
    sim.set_faults("limitless", faults).unwrap();
    let url = format!("{}/markets/active?page=1&limit=25", sim.base("limitless"));
    (sim, url)
}

#[tokio::test]
async fn an_answer_comes_whole_with_its_times_and_what_it_means() {
    let (_sim, url) = faulty(Faults::default()).await;
    let desk = desk();
    let before = SystemClock::new().wall();
    let reply = desk.get(url).await.unwrap();
    assert_eq!((reply.status, &reply.reading), (200, &Reading::Ok));
    assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).is_ok());
    assert!(reply.received_at >= before && reply.received_at <= SystemClock::new().wall());
    assert!(reply.latency > Duration::ZERO);
    assert_eq!(desk.counted(), "granted=1 answered=1");
    let counts = desk.courier.counts();
    assert_eq!((counts.answered, counts.body_bytes), (1, reply.body.len() as u64));
}

#[tokio::test]
async fn what_comes_packed_is_unpacked() {
    let sim = sim(SimConfig { gzip: true, ..SimConfig::default() }).await;
    let reply =
        desk().get(format!("{}/markets/active?page=1&limit=25", sim.base("limitless"))).await.unwrap();
    assert_eq!(reply.body.first(), Some(&b'{'));
}

#[tokio::test]
async fn a_request_says_who_we_are_and_carries_what_it_was_given() {
    let raw =
        Raw::start(|_| Act::Answer(answer(200, "date: Thu, 01 Jan 2026 00:00:01 GMT\r\n", b"{}"))).await;
    let desk = desk();
    let request = Request { headers: vec![("x-key", "value".to_owned())], ..Request::get(raw.url(), FAMILY) };
    let reply = desk.courier.send(desk.permit().await, &request).await.unwrap();
    assert_eq!(reply.date.unwrap().to_string(), "2026-01-01T00:00:01.000Z");
    let head = raw.seen().heads.remove(0);
    for line in [
        "GET /path HTTP/1.1",
        "user-agent: catchment/",
        "(+market data recorder)",
        "x-key: value",
        "accept-encoding: gzip,deflate",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let raw = Raw::start(|_| Act::Answer(answer(200, "", b"{}"))).await;
    let desk = desk();
    for _ in 0..20 {
        desk.get(raw.url()).await.unwrap();
    }
    assert_eq!((raw.seen().connections, raw.seen().heads.len()), (1, 20));
}

#[tokio::test]
async fn what_has_left_is_never_sent_a_second_time() {
    // The first answer leaves a connection to be used again; the second request is read and the connection closed.
    let raw = Raw::start(|n| match n {
        0 => Act::Answer(answer(200, "", b"{}")),
        _ => Act::AnswerAndClose(Vec::new()),
    })
    .await;
    let desk = desk();
    desk.get(raw.url()).await.unwrap();
    assert_eq!(desk.get(raw.url()).await.unwrap_err().kind(), "reset");
    assert_eq!(raw.seen().heads.len(), 2);
    assert_eq!(desk.counted(), "granted=2 answered=1 failed=1");
}

#[tokio::test]
async fn an_old_permit_sends_nothing() {
    let raw = Raw::start(|_| Act::Answer(answer(200, "", b"{}"))).await;
    let clock = Arc::new(SimClock::at(UnixNs::from_ms(1_800_000_000_000).unwrap()));
    let governor = governor("limitless", quick(), clock.clone());
    let courier = Courier::new(venue("limitless"), CourierSettings::default(), clock.clone()).unwrap();
    let permit = governor.try_acquire(Ask::new(governor.family(FAMILY).unwrap(), Lane::Live)).unwrap();
    clock.advance(Duration::from_secs(60));
    let error = courier.send(permit, &Request::get(raw.url(), FAMILY)).await.unwrap_err();
    assert!(matches!(error, SendError::Expired) && !error.has_left());
    assert_eq!(raw.seen().connections, 0);
    assert_eq!(governor.snapshot().inflight, 0);
}

#[tokio::test]
async fn what_is_no_request_gives_its_permit_back() {
    for url in ["", "markets", "ftp://127.0.0.1/", "file:///etc/passwd", "http://"] {
        assert!(!desk().fails(url, "bad_request", "unsent").await.has_left());
    }
    let desk = desk();
    let headers = vec![("x-key", "two\r\nlines".to_owned())];
    let request = Request { headers, ..Request::get("http://127.0.0.1:1/".to_owned(), FAMILY) };
    let error = desk.courier.send(desk.permit().await, &request).await.unwrap_err();
    assert_eq!(error.kind(), "bad_request");
    assert_eq!(desk.counted(), "granted=1 unsent=1");
}

#[tokio::test]
async fn silence_ends_at_the_deadline_and_frees_the_slot() {
    let raw = Raw::start(|_| Act::AnswerAndHang(Vec::new())).await;
    let error = Desk::new(hasty()).fails(raw.url(), "timeout", "timed_out").await;
    assert!(matches!(error, SendError::TimedOut { phase: Phase::Answer, after: SOON }), "{error}");
}

#[tokio::test]
async fn a_body_that_drips_ends_at_the_deadline_and_frees_the_slot() {
    let (_sim, url) = faulty(Faults { slow: 1.0, ..Faults::default() }).await;
    let error = Desk::new(hasty()).fails(url, "timeout", "timed_out").await;
    assert!(matches!(error, SendError::TimedOut { phase: Phase::Body, after: SOON }), "{error}");
}

#[tokio::test]
async fn a_connection_that_has_hung_is_not_used_again() {
    let raw = Raw::start(|n| match n {
        0 => Act::AnswerAndHang(b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{".to_vec()),
        _ => Act::Answer(answer(200, "", b"{}")),
    })
    .await;
    let desk = Desk::new(hasty());
    desk.fails(raw.url(), "timeout", "timed_out").await;
    desk.get(raw.url()).await.unwrap();
    assert_eq!(raw.seen().connections, 2);
}

#[tokio::test]
async fn a_request_that_is_dropped_counts_as_abandoned() {
    let raw = Raw::start(|_| Act::AnswerAndHang(Vec::new())).await;
    let desk = desk();
    let sending = desk.get(raw.url());
    assert!(tokio::time::timeout(SOON, sending).await.is_err());
    assert_eq!(desk.counted(), "granted=1 abandoned=1");
}

#[tokio::test]
async fn nobody_at_the_door_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = desk().fails(url, "connect", "failed").await;
    assert!(error.with_sources().contains("refused"), "{}", error.with_sources());
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_from_one_that_never_was() {
    for faults in [Faults { reset: 1.0, ..Faults::default() }, Faults { cut: 1.0, ..Faults::default() }] {
        let (_sim, url) = faulty(faults).await;
        desk().fails(url, "reset", "failed").await;
    }
    // Cut in the middle of a packed body.
    let raw = Raw::start(|_| {
        let mut bytes = answer(200, "content-encoding: gzip\r\n", &packed(&vec![b'x'; 100_000]));
        bytes.truncate(bytes.len() - 20);
        Act::AnswerAndClose(bytes)
    })
    .await;
    desk().fails(raw.url(), "reset", "failed").await;
}

#[tokio::test]
async fn what_cannot_be_unpacked_is_refused() {
    let check = async |headers: &'static str, body: Vec<u8>| {
        let raw = Raw::start(move |_| Act::Answer(answer(200, headers, &body))).await;
        desk().fails(raw.url(), "garbled", "failed").await;
    };
    check("content-encoding: zstd\r\n", b"whatever".to_vec()).await;
    check("content-encoding: gzip, gzip\r\n", packed(&packed(b"{}"))).await;
    check("content-encoding: gzip\r\n", b"this is not gzip, not at all".to_vec()).await;
    let mut damaged = packed(&vec![b'x'; 100_000]);
    let middle = damaged.len() / 2;
    damaged[middle..].fill(0xff);
    check("content-encoding: gzip\r\n", damaged).await;
    // Whole as far as the connection is concerned.
    let mut short = packed(&vec![b'x'; 100_000]);
    short.truncate(short.len() - 20);
    check("content-encoding: gzip\r\n", short).await;
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_not_read() {
    let settings = CourierSettings { body_bytes_max: 1_000, ..CourierSettings::default() };
    let check = async |act: Act| {
        let raw = Raw::start(move |_| act.clone()).await;
        Desk::new(settings.clone()).get(raw.url()).await
    };
    let reply = check(Act::Answer(answer(200, "", &[b'1'; 1_000]))).await.unwrap();
    assert_eq!(reply.body.len(), 1_000);
    let mut error = check(Act::Answer(answer(200, "", &[b'1'; 1_001]))).await.unwrap_err();
    assert!(matches!(error, SendError::TooLarge { limit: 1_000 }));
    // It claims more than it ever sends.
    error =
        check(Act::AnswerAndHang(b"HTTP/1.1 200 X\r\ncontent-length: 18446744073709551613\r\n\r\n".into()))
            .await
            .unwrap_err();
    assert_eq!(error.kind(), "too_large", "{}", error.with_sources());
    // It claims nothing.
    let mut endless = b"HTTP/1.1 200 X\r\n\r\n".to_vec();
    endless.extend([b'1'; 1_001]);
    error = check(Act::AnswerAndHang(endless)).await.unwrap_err();
    assert_eq!(error.kind(), "too_large");
    // It is short only as long as it is packed.
    error = check(Act::Answer(answer(200, "content-encoding: gzip\r\n", &packed(&[b'1'; 1_001]))))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), "too_large");
}

#[tokio::test]
async fn a_bomb_is_given_up_at_the_limit_and_takes_no_more_memory_than_that() {
    const MIB: usize = 1 << 20;
    let (_sim, url) = faulty(Faults { gzip_bomb: 1.0, gzip_bomb_mib: 10_240, ..Faults::default() }).await;
    let settings = CourierSettings {
        body_bytes_max: 8 * MIB,
        deadline: Duration::from_secs(60),
        ..CourierSettings::default()
    };
    let before = peak_kib();
    Desk::new(settings).fails(url, "too_large", "failed").await;
    let grown = peak_kib() - before;
    assert!(grown < 32 * 1024, "{grown} KiB more than before");
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_place_is_named() {
    let (_sim, url) = faulty(Faults { redirect: 1.0, ..Faults::default() }).await;
    let error = desk().fails(url, "redirect", "failed").await;
    assert!(
        matches!(&error, SendError::Redirected { to, .. } if to.starts_with("http://elsewhere.invalid")),
        "{error}"
    );

    let raw = Raw::start(|_| Act::Answer(answer(307, "location: /other?token=secret\r\n", b""))).await;
    let error = desk().fails(raw.url(), "redirect", "failed").await;
    let expected = format!("status 307 leads to http://{}/other, which is not followed", raw.addr);
    assert_eq!(error.to_string(), expected);
    assert_eq!(raw.seen().heads.len(), 1);
}

#[tokio::test]
async fn a_page_for_people_with_a_good_status_is_trouble() {
    let (_sim, url) = faulty(Faults { html_200: 1.0, ..Faults::default() }).await;
    let desk = desk();
    let reply = desk.get(url).await.unwrap();
    assert!(matches!((reply.status, reply.reading), (200, Reading::Trouble(_))));
    assert_eq!(desk.counted(), "granted=1 failed=1");
    assert_eq!(desk.hold(), None);
}

#[tokio::test]
async fn a_firewalls_page_bans() {
    let (_sim, url) = faulty(Faults { forbidden: 1.0, ..Faults::default() }).await;
    let desk = desk();
    let reply = desk.get(url).await.unwrap();
    assert_eq!((reply.status, reply.reading), (403, Reading::Banned));
    assert_eq!(desk.counted(), "granted=1 banned=1");
    assert!(matches!(desk.hold(), Some((_, HoldCause::Ban))), "{:?}", desk.hold());
}

#[tokio::test]
async fn a_ban_holds_for_as_long_as_it_says() {
    let retry_after = RetryAfter::Text("777".to_owned());
    let (_sim, url) = faulty(Faults { banned: 1.0, retry_after, ..Faults::default() }).await;
    let desk = desk();
    assert_eq!(desk.get(url).await.unwrap().reading, Reading::Banned);
    let (length, cause) = desk.hold().unwrap();
    assert_eq!(cause, HoldCause::Ban);
    assert!(length > Duration::from_secs(770), "{length:?}");
}

#[tokio::test]
async fn a_refusal_holds_for_as_long_as_it_says() {
    let retry_after = RetryAfter::Text("77".to_owned());
    let (_sim, url) = faulty(Faults { refused: 1.0, retry_after, ..Faults::default() }).await;
    let desk = desk();
    assert_eq!(desk.get(url).await.unwrap().reading, Reading::Refused);
    assert_eq!(desk.counted(), "granted=1 refused=1");
    let (length, cause) = desk.hold().unwrap();
    assert_eq!(cause, HoldCause::RetryAfter);
    assert!(length > Duration::from_secs(70) && length < Duration::from_secs(100), "{length:?}");
}

#[tokio::test]
async fn a_refusal_whose_body_never_ends_holds_all_the_same() {
    let raw = Raw::start(|_| {
        Act::AnswerAndHang(b"HTTP/1.1 429 X\r\nretry-after: 77\r\ncontent-length: 99\r\n\r\n{".to_vec())
    })
    .await;
    let desk = Desk::new(hasty());
    desk.fails(raw.url(), "timeout", "refused").await;
    assert!(matches!(desk.hold(), Some((_, HoldCause::RetryAfter))));
}

#[tokio::test]
async fn a_refusal_with_a_good_status_is_one() {
    let (_sim, url) = faulty(Faults { error_200: 1.0, ..Faults::default() }).await;
    let desk = desk();
    assert_eq!(desk.get(url).await.unwrap().reading, Reading::Refused);
    assert_eq!(desk.counted(), "granted=1 refused=1");
    assert!(desk.hold().is_some());
}

#[tokio::test]
async fn a_venue_in_trouble_is_told_as_such() {
    let (_sim, url) = faulty(Faults { server_error: 1.0, ..Faults::default() }).await;
    let desk = desk();
    let reply = desk.get(url).await.unwrap();
    assert!(matches!((reply.status, reply.reading), (503, Reading::Trouble(_))));
    assert_eq!(desk.counted(), "granted=1 failed=1");
}

#[test]
fn settings_that_cannot_be_are_refused_and_a_password_is_not_shown() {
    let check = |settings: CourierSettings| {
        let made = Courier::new(venue("kalshi"), settings, Arc::new(SystemClock::new()));
        made.expect_err("a setting is wrong").kind()
    };
    assert_eq!(check(CourierSettings { user_agent: "a\nb".to_owned(), ..Default::default() }), "setup");
    assert_eq!(
        check(CourierSettings {
            extra_roots: vec![b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_vec()],
            ..Default::default()
        }),
        "setup"
    );
    assert_eq!(check(CourierSettings { proxy: Some("::".to_owned()), ..Default::default() }), "setup");
    let settings =
        CourierSettings { proxy: Some("http://me:hunter2@proxy".to_owned()), ..Default::default() };
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_proxy_is_used_if_it_is_set() {
    let raw = Raw::start(|_| Act::Answer(answer(200, "", b"{}"))).await;
    let proxy = Some(format!("http://{}", raw.addr));
    Desk::new(CourierSettings { proxy, ..CourierSettings::default() })
        .get("http://venue.invalid/x")
        .await
        .unwrap();
    assert!(raw.seen().heads[0].starts_with("GET http://venue.invalid/x "), "{}", raw.seen().heads[0]);
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The most memory this process has had so far.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}
