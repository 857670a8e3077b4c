//! A recorder of venues that runs until it is asked to end, looked at through its page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{BINARY, PATIENCE, Stopwatch};

/// A recorder and its page.
pub struct Run {
    child: Child,
    page: String,
}

impl Run {
    /// `run` with this configuration and these words.
    pub fn start(config: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(&*BINARY);
        command.arg("run").arg("-c").arg(config).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
        let page =
            talk.find_map(|line| Some(line.unwrap().strip_prefix("live figures: http://")?.to_owned()));
        // Whoever talks and is not listened to stands still at last.
        std::thread::spawn(move || talk.for_each(drop));
        Self { child, page: page.unwrap().trim_end_matches('/').to_owned() }
    }

    /// What it answers, as JSON where it is some.
    pub fn ask(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.page).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    pub fn status(&self) -> Value {
        self.ask("/api/v1/status").1
    }

    pub fn wait_for(&self, is_so: impl Fn(&Value) -> bool) {
        self.wait_at("/api/v1/status", |_, status| is_so(status));
    }

    /// Waits for an answer that is so, and gives it back.
    #[allow(clippy::disallowed_methods)] // between two looks; nothing depends on how long it is
    pub fn wait_at(&self, path: &str, is_so: impl Fn(u16, &Value) -> bool) -> Value {
        let watch = Stopwatch::start();
        loop {
            let (code, answer) = self.ask(path);
            if is_so(code, &answer) {
                return answer;
            }
            assert!(watch.elapsed() < PATIENCE, "it never came: {code} {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; gives back its exit code and what it printed.
    pub fn stop(mut self) -> (i32, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap().code().unwrap(), printed)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
