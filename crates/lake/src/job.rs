//! A job, as its row in the table has it.
//!
//! The columns are S3's, with its names and types, and no other. What else a safe lease needs is put where there is room:
//!
//! * The **fence** stands behind the worker's name in `leased_by`: `w1@57`. It is the version of the table that gave the
//!   lease, so it grows with every lease of a job, and the table's log says when it was given and to whom.
//! * The **cursor** of a page by keyset stands in `job_id`, which names a job by what it asks for in both ways of asking.

use std::fmt;

use catchment_model::{UnixMs, UnixNs, UtcDate};
use catchment_venues::polymarket::events::Span;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It waits, perhaps for its time.
    Pending,
    /// A worker has it, until the lease is over.
    Leased,
    /// It is done, and its file is there.
    Done,
    /// It has failed for good.
    Failed,
}

impl State {
    /// All of them, in the order of a job's life.
    pub const ALL: [State; 4] = [Self::Pending, Self::Leased, Self::Done, Self::Failed];

    /// As it stands in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// The state of that name.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What it asks for; there is one job for each.
    pub job_id: String,
    /// Its first event, counted from the pass's beginning.
    pub offset: i64,
    /// So many events.
    pub limit: i32,
    /// Where it stands.
    pub state: State,
    /// The worker and the fence of its lease.
    pub leased_by: Option<String>,
    /// When the lease is over.
    pub lease_expires_at: Option<UnixMs>,
    /// Times it has failed.
    pub attempts: i32,
    /// Not before then.
    pub next_attempt_at: Option<UnixMs>,
    /// What it failed of last: `HTTP_503`, `TIMEOUT`.
    pub last_error_code: Option<String>,
    /// The same in words.
    pub last_error_message: Option<String>,
    /// When.
    pub last_error_at: Option<UnixMs>,
    /// When it was done.
    pub done_at: Option<UnixMs>,
    /// When its row was last written.
    pub updated_at: UnixMs,
    /// When it was made.
    pub created_at: UnixMs,
    /// The file it wrote.
    pub payload_path: Option<String>,
    /// Events in that file.
    pub records_written: Option<i32>,
}

impl Job {
    /// A job that is due at once.
    pub fn new(task: &Task, now: UnixMs) -> Self {
        Self {
            job_id: task.to_string(),
            offset: task.offset(),
            limit: task.limit(),
            state: State::Pending,
            leased_by: None,
            lease_expires_at: None,
            attempts: 0,
            next_attempt_at: Some(now),
            last_error_code: None,
            last_error_message: None,
            last_error_at: None,
            done_at: None,
            updated_at: now,
            created_at: now,
            payload_path: None,
            records_written: None,
        }
    }
}

/// The two ways of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By cursor, page after page: what the venue allows today.
    Keyset,
    /// By offset, in any order: S3's plan, for servers that allow it.
    Offset,
}

impl Mode {
    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keyset => "keyset",
            Self::Offset => "offset",
        }
    }
}

/// By keyset the whole is two passes: those that are open, then those that are closed. An event that closes meanwhile is in
/// the second at least, because the second begins when the first has ended; where the walk is cut into spans, in each span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Events that are open.
    Open,
    /// Events that are closed.
    Closed,
}

impl Pass {
    /// As it stands in file names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// `offset=12500&limit=500`
    Offset {
        /// The first event.
        offset: i64,
        /// So many.
        limit: i32,
    },
    /// `closed=false&offset=12500&limit=500&after_cursor=…`, and of one span of several
    /// `closed=false&start_date_min=2026-01-05&start_date_max=2026-01-12&offset=…`
    Keyset {
        /// Of these.
        pass: Pass,
        /// Of these among them.
        span: Span,
        /// How many events of the span come before, in this pass.
        offset: i64,
        /// So many.
        limit: i32,
        /// Where the page before said to go on; none at the beginning.
        after: Option<String>,
    },
}

impl Task {
    /// The first of a walk by keyset.
    pub fn first(pass: Pass, span: Span, limit: i32) -> Self {
        Self::Keyset { pass, span, offset: 0, limit, after: None }
    }

    /// Reads a `job_id`.
    pub fn read(job_id: &str) -> Option<Self> {
        let pair = |text: &str| -> Option<(i64, i32)> {
            let (offset, limit) = text.strip_prefix("offset=")?.split_once("&limit=")?;
            let (offset, limit) = (offset.parse().ok()?, limit.parse().ok()?);
            (offset >= 0 && limit > 0).then_some((offset, limit))
        };
        let (pass, rest) = match job_id.split_once('&')? {
            ("closed=false", rest) => (Pass::Open, rest),
            ("closed=true", rest) => (Pass::Closed, rest),
            _ => return pair(job_id).map(|(offset, limit)| Self::Offset { offset, limit }),
        };
        let (span, rest) = read_span(rest)?;
        let (range, after) = match rest.split_once("&after_cursor=") {
            Some((range, cursor)) => (range, Some(cursor.to_owned())),
            None => (rest, None),
        };
        let (offset, limit) = pair(range)?;
        Some(Self::Keyset { pass, span, offset, limit, after })
    }

    /// Its way of asking.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Offset { .. } => Mode::Offset,
            Self::Keyset { .. } => Mode::Keyset,
        }
    }

    /// The first event.
    pub fn offset(&self) -> i64 {
        match self {
            Self::Offset { offset, .. } | Self::Keyset { offset, .. } => *offset,
        }
    }

    /// How many events.
    pub fn limit(&self) -> i32 {
        match self {
            Self::Offset { limit, .. } | Self::Keyset { limit, .. } => *limit,
        }
    }

    /// What its file is called.
    pub fn file_name(&self) -> String {
        match self {
            Self::Offset { offset, limit } => format!("offset={offset:010}_limit={limit}.jsonl"),
            Self::Keyset { pass, span, offset, limit, .. } => {
                let span = match span {
                    Span::All => String::new(),
                    Span::Undated { ascending } => {
                        format!("_undated={}", if *ascending { "first" } else { "last" })
                    }
                    Span::Dates { from: Some(from), .. } => format!("_from={from}"),
                    Span::Dates { from: None, .. } => "_from=0000-00-00".to_owned(),
                };
                format!("{}{span}_offset={offset:010}_limit={limit}.jsonl", pass.as_str())
            }
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offset { offset, limit } => write!(f, "offset={offset}&limit={limit}"),
            Self::Keyset { pass, span, offset, limit, after } => {
                write!(f, "closed={}&", *pass == Pass::Closed)?;
                match span {
                    Span::All => {}
                    Span::Undated { ascending } => write!(f, "start_date=none&ascending={ascending}&")?,
                    Span::Dates { from, to } => {
                        from.iter().try_for_each(|day| write!(f, "start_date_min={day}&"))?;
                        to.iter().try_for_each(|day| write!(f, "start_date_max={day}&"))?;
                    }
                }
                write!(f, "offset={offset}&limit={limit}")?;
                after.iter().try_for_each(|cursor| write!(f, "&after_cursor={cursor}"))
            }
        }
    }
}

/// The span at the beginning of what follows `closed=…&` in a `job_id`, and the rest.
fn read_span(text: &str) -> Option<(Span, &str)> {
    for ascending in [true, false] {
        if let Some(rest) = text.strip_prefix(&format!("start_date=none&ascending={ascending}&")) {
            return Some((Span::Undated { ascending }, rest));
        }
    }
    let day = |text: &'_ str, key: &str| -> Option<(Option<UtcDate>, usize)> {
        let Some(rest) = text.strip_prefix(key) else { return Some((None, 0)) };
        let (day, _) = rest.split_once('&')?;
        Some((Some(day.parse().ok()?), key.len() + day.len() + 1))
    };
    let (from, length) = day(text, "start_date_min=")?;
    let text = &text[length..];
    let (to, length) = day(text, "start_date_max=")?;
    let span = if from.is_none() && to.is_none() { Span::All } else { Span::Dates { from, to } };
    Some((span, &text[length..]))
}

/// The right to work on a job. Whoever writes shows it; a stale one is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// On this job.
    pub job_id: String,
    /// This worker's.
    pub worker: String,
    /// The version of the table that gave it.
    pub fence: u64,
}

impl Lease {
    /// As it stands in `leased_by`.
    pub fn holder(&self) -> String {
        format!("{}@{}", self.worker, self.fence)
    }
}

/// The worker's name and the fence in a `leased_by`. A name without a fence is somebody else's doing.
pub fn read_holder(leased_by: &str) -> (&str, Option<u64>) {
    match leased_by.rsplit_once('@') {
        Some((worker, fence)) if fence.parse::<u64>().is_ok() => (worker, fence.parse().ok()),
        _ => (leased_by, None),
    }
}

/// S3's plan: a job every `limit` events, from 0 up to and with `max_offset`.
pub fn plan(mode: Mode, max_offset: i64, limit: i32) -> Vec<Task> {
    match mode {
        Mode::Keyset => vec![Task::first(Pass::Open, Span::All, limit)],
        Mode::Offset => (0..=max_offset)
            .step_by(usize::try_from(limit).unwrap_or(1).max(1))
            .map(|offset| Task::Offset { offset, limit })
            .collect(),
    }
}

/// The venue's first events are of this day or soon after.
const FIRST_DAY: &str = "2020-09-07";

/// A walk by keyset, cut into spans of so many days of start dates that can be walked side by side. Before the first and after
/// the last there is no end, and events that say no date are a span of their own.
pub fn plan_spans(days: u16, today: UtcDate, limit: i32) -> Vec<Task> {
    let first: UtcDate = FIRST_DAY.parse().expect("a day");
    let edge = |nth: i64| {
        let ms = first.start().get() + nth * i64::from(days.max(1)) * 86_400_000;
        UnixNs::from_ms(ms).map(UnixNs::date).ok().filter(|day| *day <= today)
    };
    let edges: Vec<Option<UtcDate>> = (0..).map(edge).take_while(Option::is_some).collect();
    let from = [None].into_iter().chain(edges.iter().copied());
    let to = edges.iter().copied().chain([None]);
    let dated = from.zip(to).map(|(from, to)| Span::Dates { from, to });
    let spans = [Span::Undated { ascending: false }].into_iter().chain(dated);
    spans.map(|span| Task::first(Pass::Open, span, limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spans_of_a_plan_leave_no_day_out_and_have_none_twice() {
        let today = "2026-11-17".parse().unwrap();
        for days in [1, 7, 28, 400, 3_000] {
            let plan = plan_spans(days, today, 500);
            let spans: Vec<Span> = plan
                .iter()
                .map(|task| match task {
                    Task::Keyset { span, pass: Pass::Open, offset: 0, after: None, .. } => *span,
                    other => panic!("{other}"),
                })
                .collect();
            assert_eq!(spans[0], Span::Undated { ascending: false });
            let mut before = None;
            for (nth, span) in spans[1..].iter().enumerate() {
                let Span::Dates { from, to } = span else { panic!("{span:?}") };
                assert_eq!(*from, before, "{span:?}");
                assert_eq!(to.is_none(), nth == spans.len() - 2, "{span:?}");
                before = *to;
            }
            for task in &plan {
                assert_eq!(Task::read(&task.to_string()).as_ref(), Some(task), "{task}");
            }
            let mut names: Vec<String> = plan.iter().map(Task::file_name).collect();
            names.dedup();
            assert_eq!(names.len(), plan.len());
        }
        assert_eq!(
            plan_spans(7, today, 500)[2].to_string(),
            "closed=false&start_date_min=2020-09-07&start_date_max=2020-09-14&offset=0&limit=500"
        );
    }

    #[test]
    fn the_plan_is_the_seeds() {
        let plan = plan(Mode::Offset, 188_000, 500);
        assert_eq!(plan.len(), 377);
        assert_eq!(plan[25].to_string(), "offset=12500&limit=500");
        assert_eq!(plan[376].file_name(), "offset=0000188000_limit=500.jsonl");
    }

    #[test]
    fn a_job_is_named_by_what_it_asks_for() {
        for name in [
            "offset=12500&limit=500",
            "closed=false&offset=0&limit=500",
            "closed=true&offset=1500&limit=500&after_cursor=a&after_cursor=b=",
            "closed=true&start_date=none&ascending=true&offset=0&limit=500&after_cursor=x",
            "closed=false&start_date_max=2020-09-07&offset=0&limit=500",
        ] {
            assert_eq!(Task::read(name).unwrap().to_string(), name);
        }
        for wrong in [
            "",
            "offset=1",
            "offset=-1&limit=5",
            "offset=1&limit=0",
            "closed=maybe&offset=1&limit=1",
            "closed=true&start_date_min=soon&offset=1&limit=1",
        ] {
            assert_eq!(Task::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_fence_stands_behind_the_name() {
        let lease = Lease { job_id: String::new(), worker: "me@home".to_owned(), fence: 57 };
        assert_eq!(read_holder(&lease.holder()), ("me@home", Some(57)));
        assert_eq!(read_holder("spark@cluster"), ("spark@cluster", None));
    }
}
