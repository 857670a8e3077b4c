//! What a venue may do to whoever asks it for events: lead in a circle, be away, want to be left alone.

#![allow(clippy::unwrap_used)] // a test that cannot go on should not

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use catchment_governor::{Family, Limits, MemoryBudget};
use catchment_lake::{Failure, Fetcher, Pass, Task, VENUE};
use catchment_model::SystemClock;
use catchment_venues::polymarket::events::Span;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A venue that answers as it is told, and who asks it.
struct Site {
    fetcher: Arc<Fetcher>,
    asked: Arc<AtomicUsize>,
}

/// The status line with any headers, and the body, for the target of a request.
type Answers = fn(&str) -> (&'static str, String);

impl Site {
    async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, answers, Arc::clone(&noted)));
            }
        });
        let endpoints = catchment_venues::find(VENUE).unwrap().endpoints([("gamma", url.as_str())]).unwrap();
        let families = [Family::top("backfill").limit(100, Duration::from_secs(1))];
        let limits = Limits::new(families, 1.0).unwrap();
        let budget = Arc::new(MemoryBudget::new(limits.clone()));
        let fetcher = Fetcher::open(&endpoints, limits, budget, Arc::new(SystemClock::new()), 1).unwrap();
        Self { fetcher: Arc::new(fetcher), asked }
    }

    async fn fetch(&self, task: &Task, been: &[&str]) -> Result<String, Failure> {
        let been: HashSet<String> = been.iter().map(|cursor| (*cursor).to_owned()).collect();
        let harvest = self.fetcher.fetch(task, been).await?;
        Ok(String::from_utf8(harvest.lines.to_vec()).unwrap())
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// One answer after the other on a connection; an empty status hangs up instead.
async fn serve(mut client: TcpStream, answers: Answers, asked: Arc<AtomicUsize>) {
    let mut head = Vec::new();
    while client.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&head);
        if !text.contains("\r\n\r\n") {
            continue;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        let (status, body) = answers(text.split(' ').nth(1).unwrap());
        if status.is_empty() {
            return;
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        client.write_all(answer.as_bytes()).await.unwrap();
        head.clear();
    }
}

fn walk(span: Span, limit: i32) -> Task {
    Task::first(Pass::Open, span, limit)
}

/// From the beginning to A, from there to B, from there to A.
fn a_circle(target: &str) -> (&'static str, String) {
    let next = if target.ends_with("after_cursor=A") { "B" } else { "A" };
    let event = r#"{"id":"1","startDate":"2019-05-05T00:00:00Z"}"#;
    ("200 OK", format!(r#"{{"events":[{event}],"next_cursor":"{next}"}}"#))
}

#[tokio::test]
async fn a_walk_that_comes_by_again_is_an_error_though_it_takes_nothing() {
    let site = Site::start(a_circle).await;
    let from = Some("2024-01-01".parse().unwrap());
    let failure = site.fetch(&walk(Span::Dates { from, to: None }, 500), &[]).await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.is_final), ("CURSOR_CIRCLE", false));
    assert_eq!(site.asked(), 3, "to A, to B, and to A again");
}

#[tokio::test]
async fn a_cursor_of_an_earlier_job_is_an_error_before_anything_is_kept() {
    let site = Site::start(a_circle).await;
    assert_eq!(site.fetch(&walk(Span::All, 1), &["B"]).await.unwrap().lines().count(), 1);
    let failure = site.fetch(&walk(Span::All, 1), &["A"]).await.unwrap_err();
    assert_eq!(failure.code, "CURSOR_CIRCLE");
}

#[tokio::test]
async fn of_many_that_fail_few_are_asked_again_and_all_are_told() {
    let site = Arc::new(Site::start(|_| ("", String::new())).await);
    let mut jobs = tokio::task::JoinSet::new();
    for offset in 0..20 {
        let site = Arc::clone(&site);
        jobs.spawn(async move { site.fetch(&Task::Offset { offset, limit: 1 }, &[]).await });
    }
    for ended in jobs.join_all().await {
        assert_eq!(ended.unwrap_err().code, "CONNECTION");
    }
    assert!((20..30).contains(&site.asked()), "{} requests for 20 jobs", site.asked());
}

#[tokio::test]
async fn a_venue_that_wants_to_be_left_alone_is_and_the_job_rests() {
    let site = Site::start(|_| ("429 Too Many Requests\r\nretry-after: 600", "{}".to_owned())).await;
    let failure = site.fetch(&Task::Offset { offset: 0, limit: 1 }, &[]).await.unwrap_err();
    assert_eq!((failure.code.as_str(), site.asked()), ("HTTP_429", 1));
    let rest = failure.retry_after.unwrap();
    assert!(rest > Duration::from_secs(590), "{rest:?}");
}
