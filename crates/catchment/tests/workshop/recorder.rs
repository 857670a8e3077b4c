//! A recorder that runs as a child process: fed from one thread, its acknowledgements read in another.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A record's id as numbers: the spool's, and the record's own.
pub type Id = (u64, u64);

/// Reads `<12 hex digits>-<16 hex digits>`.
pub fn parse_id(text: &str) -> Id {
    let parts = text.split_once('-').filter(|(spool, seq)| spool.len() == 12 && seq.len() == 16);
    let (spool, seq) = parts.unwrap_or_else(|| panic!("{text:?} is no id"));
    let hex = |digits| u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text:?} is no id"));
    (hex(spool), hex(seq))
}

/// Which envelopes were acknowledged, and under which ids.
#[derive(Debug, Default)]
pub struct Acknowledged(HashMap<Id, u64>);

impl Acknowledged {
    /// Notes that the `n`-th envelope has this id.
    pub fn add(&mut self, id: Id, n: u64) {
        let before = self.0.insert(id, n);
        assert_eq!(before, None, "the id {id:x?} was given to two records");
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids, each with its envelope's number.
    pub fn iter(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        self.0.iter().map(|(id, n)| (*id, *n))
    }

    /// Takes over what another life acknowledged.
    pub fn extend(&mut self, other: Self) {
        for (id, n) in other.iter() {
            self.add(id, n);
        }
    }
}

/// A running recorder.
pub struct Recorder {
    child: Child,
    stdin: Option<ChildStdin>,
    acks: Arc<Heard<Vec<Id>>>,
    talk: Arc<Heard<String>>,
    listeners: Vec<JoinHandle<()>>,
}

/// How a recorder ended, and what it said.
pub struct Ended {
    /// Its exit.
    pub status: ExitStatus,
    /// Its standard error.
    pub talk: String,
    /// Every id it printed.
    pub ids: Vec<Id>,
}

impl Ended {
    /// Its ids, given to these envelopes in their order.
    pub fn acknowledged(&self, numbers: Range<u64>) -> Acknowledged {
        assert!(self.ids.len() as u64 <= numbers.end - numbers.start, "more ids than lines");
        let mut acknowledged = Acknowledged::default();
        for (id, n) in self.ids.iter().zip(numbers) {
            acknowledged.add(*id, n);
        }
        acknowledged
    }
}

impl Recorder {
    /// Starts the command with pipes at all three ends.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (acks, talk) = (Arc::default(), Arc::default());
        let listeners = vec![
            listen(child.stdout.take().unwrap(), &acks, |ids: &mut Vec<Id>, line| {
                // A last line without its newline was cut short by the end of the process: nobody was told.
                ids.extend(line.strip_suffix('\n').map(parse_id));
            }),
            listen(child.stderr.take().unwrap(), &talk, |text: &mut String, line| text.push_str(line)),
        ];
        Self { stdin: child.stdin.take(), child, acks, talk, listeners }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes lines from a thread, as fast as they are read, until all are written or nobody reads any more; then closes
    /// the pipe.
    pub fn feed(&mut self, numbers: Range<u64>, line: fn(u64) -> String) -> JoinHandle<()> {
        let mut stdin = self.stdin.take().unwrap();
        std::thread::spawn(move || write_lines(&mut stdin, numbers, line))
    }

    /// Writes to its standard input and leaves it open.
    pub fn say(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Its standard input, for whoever feeds it in their own way.
    pub fn input(&mut self) -> ChildStdin {
        self.stdin.take().unwrap()
    }

    /// Waits until it has printed so many ids. `false`: it has ended, or the time is over.
    pub fn wait_for_acks(&self, count: usize, within: Duration) -> bool {
        self.acks.wait_for(within, |ids| ids.len() >= count)
    }

    /// How many ids it has printed so far.
    pub fn acks(&self) -> usize {
        self.acks.lock().0.len()
    }

    /// Waits until it has said this on standard error.
    pub fn wait_for_talk(&self, text: &str, within: Duration) {
        let heard = self.talk.wait_for(within, |talk| talk.contains(text));
        assert!(heard, "waited {within:?} for {text:?}, and heard only:\n{}", self.talk.lock().0);
    }

    /// Closes its input.
    pub fn close_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Waits until it has closed its standard output, which it does by ending. `false`: it still runs.
    pub fn wait_for_end(&self, within: Duration) -> bool {
        self.acks.wait_for(within, |_| false);
        self.acks.lock().1
    }

    /// The process that strace watches, if strace was started and has not ended.
    pub fn watched(&self) -> Option<Pid> {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Pid::from_raw(children.trim().parse().ok()?)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes its input and waits for the end.
    pub fn end(mut self) -> Ended {
        drop(self.stdin.take());
        for listener in self.listeners.drain(..) {
            listener.join().unwrap();
        }
        let status = self.child.wait().unwrap();
        let ids = std::mem::take(&mut self.acks.lock().0);
        let talk = std::mem::take(&mut self.talk.lock().0);
        Ended { status, talk, ids }
    }

    /// Feeds the numbers and waits until it ends of itself.
    pub fn run(mut self, numbers: Range<u64>, line: fn(u64) -> String) -> (Acknowledged, Ended) {
        let feeder = self.feed(numbers.clone(), line);
        let ended = self.end();
        feeder.join().unwrap();
        (ended.acknowledged(numbers), ended)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // After an assertion has failed nobody waits for it any more.
        if let Ok(None) = self.child.try_wait() {
            // What strace watches would outlive it.
            if let Some(watched) = self.watched() {
                let _ = kill_process(watched, Signal::KILL);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a thread has heard so far, and whether that was all.
#[derive(Default)]
struct Heard<T> {
    so_far: Mutex<(T, bool)>,
    more: Condvar,
}

impl<T> Heard<T> {
    fn lock(&self) -> MutexGuard<'_, (T, bool)> {
        self.so_far.lock().unwrap()
    }

    fn wait_for(&self, within: Duration, enough: impl Fn(&T) -> bool) -> bool {
        let waits = |state: &mut (T, bool)| !enough(&state.0) && !state.1;
        let (state, _) = self.more.wait_timeout_while(self.lock(), within, waits).unwrap();
        enough(&state.0)
    }
}

/// Reads lines in a thread until the other end is closed.
fn listen<T: Send + 'static>(
    source: impl Read + Send + 'static,
    heard: &Arc<Heard<T>>,
    mut note: impl FnMut(&mut T, &str) + Send + 'static,
) -> JoinHandle<()> {
    let heard = Arc::clone(heard);
    std::thread::spawn(move || {
        let mut source = BufReader::with_capacity(1 << 16, source);
        let mut line = Vec::new();
        while source.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            note(&mut heard.lock().0, &String::from_utf8_lossy(&line));
            heard.more.notify_all();
            line.clear();
        }
        heard.lock().1 = true;
        heard.more.notify_all();
    })
}

/// Writes the lines until all are written or nobody reads any more.
fn write_lines(stdin: &mut ChildStdin, numbers: Range<u64>, line: fn(u64) -> String) {
    let mut text = Vec::with_capacity(80 << 10);
    for n in numbers {
        text.extend_from_slice(line(n).as_bytes());
        if text.len() >= 16 << 10 {
            if stdin.write_all(&text).is_err() {
                return;
            }
            text.clear();
        }
    }
    let _ = stdin.write_all(&text);
}
