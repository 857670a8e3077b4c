//! Everything a fleet needs, as processes: a Redis, a simulated venue, fetch nodes on addresses of their own, coordinators.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use catchment_model::{Clock, SystemClock};
use catchment_sinks::redis::server::RedisServer;
use catchment_sinks::redis::{RedisAddress, RedisLink};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::BINARY;

/// How large, and how strictly it is looked at.
#[derive(Clone, Copy)]
pub struct Scale {
    pub tokens: usize,
    pub horizon_secs: f64,
    /// What the arrival of requests may be held up by without counting as ours.
    pub slack_ms: u64,
}

/// A process that does not outlive its owner.
pub struct Process {
    pub child: Child,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        Self { child: command.stdin(Stdio::null()).spawn().unwrap() }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct House {
    pub redis: RedisServer,
    pub link: RedisLink,
    pub tokens: Vec<String>,
    pub scale: Scale,
    clock: SystemClock,
    sim_addr: String,
    _sim: Process,
    dir: tempfile::TempDir,
}

impl House {
    pub async fn new(scale: Scale) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // What is acknowledged is in the log when the process is killed.
        let redis =
            RedisServer::with(&["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]).unwrap();
        let mut sim = Command::new(&*BINARY);
        sim.args(["sim", "--listen", "127.0.0.1:0", "--no-limits", "--set", "request_log=2000000"]);
        sim.args(["--set", &format!("polymarket.universe.markets={}", scale.tokens.div_ceil(2))]);
        sim.args(["--set", "polymarket.universe.levels=3", "--set", "polymarket.universe.moves_per_s=4"]);
        sim.args(["--set", "limitless.universe.markets=1", "--set", "kalshi.universe.markets=1"]);
        let mut sim = Process::start(sim.stdout(Stdio::piped()).stderr(Stdio::null()));
        let first = BufReader::new(sim.child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let base = first.split_whitespace().last().unwrap().strip_prefix("http://").unwrap();
        let sim_addr = base.split_once('/').unwrap().0.to_owned();
        let tokens = tokens_of(&sim_addr);
        assert_eq!(tokens.len(), scale.tokens);
        let link = RedisLink::new(&RedisAddress::new(redis.url())).unwrap();
        put(&dir.path().join("tokens.txt"), &tokens.join("\n"));
        Self { redis, link, tokens, scale, clock: SystemClock::new(), sim_addr, _sim: sim, dir }
    }

    /// A fetch node on an address of its own: its requests are told apart at the venue.
    pub fn fetcher(&self, number: usize) -> Process {
        let own = format!("127.0.0.{}", 10 + number);
        let config = format!(
            "redis_url = \"{}\"\nbase_url = \"http://{}/polymarket/clob\"\nnode_id = \"fetch-{number:03}\"\n\
             capacity_rps = 20\nbind_addr = \"{own}:0\"\nsource_addr = \"{own}\"\nslack_ms = {}\nkey_file = \"{}\"\n",
            self.redis.url(),
            self.sim_addr,
            self.scale.slack_ms,
            self.key_file().display(),
        );
        self.run("fetcher", &format!("fetch-{number}.toml"), &config)
    }

    pub fn coordinator(&self, name: &str) -> Process {
        let config = format!(
            "redis_url = \"{}\"\ntokens_file = \"{}\"\nfetch_nodes = []\nplan_horizon_secs = {:?}\n\
             coordinator_id = \"{name}\"\nkey_file = \"{}\"\n",
            self.redis.url(),
            self.dir.path().join("tokens.txt").display(),
            self.scale.horizon_secs,
            self.key_file().display(),
        );
        self.run("coordinator", &format!("{name}.toml"), &config)
    }

    fn run(&self, what: &str, file: &str, config: &str) -> Process {
        let path = self.dir.path().join(file);
        put(&path, config);
        let mut command = Command::new(&*BINARY);
        command.args(["fleet", what, "-c"]).arg(&path);
        if std::env::var_os("FLEET_TALK").is_none() {
            command.stderr(Stdio::null());
        }
        Process::start(command.stdout(Stdio::null()))
    }

    /// `catchment fleet …` in a folder that has S4's files.
    pub fn run_in(&self, folder: &std::path::Path, words: &[&str]) -> Process {
        let mut command = Command::new(&*BINARY);
        command.arg("fleet").args(words).current_dir(folder).env_remove("CATCHMENT_FLEET_KEY");
        Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))
    }

    /// One of S4's example files with this fleet's addresses in the place of its own.
    pub fn example(&self, name: &str, changes: &[(&str, &str)]) -> String {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet").join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let venue = format!("http://{}/polymarket/clob", self.sim_addr);
        let ours = [("redis://127.0.0.1:6379", self.redis.url()), ("https://clob.polymarket.com", venue)];
        let ours = ours.iter().map(|(theirs, ours)| (*theirs, ours.as_str()));
        ours.chain(changes.iter().copied()).fold(text, |text, (theirs, ours)| {
            assert!(text.contains(theirs), "{name} has {theirs}");
            text.replace(theirs, ours)
        })
    }

    fn key_file(&self) -> PathBuf {
        let path = self.dir.path().join("fleet.key");
        if !path.exists() {
            put(&path, "the key of the fleet under test");
        }
        path
    }

    /// Where a node says that it is, once it has said so.
    pub async fn node_addr(&self, node: &str) -> String {
        for _ in 0..600 {
            let key = format!("{{fleet}}:node:{node}");
            let said: Option<String> = self.link.ask(redis::cmd("GET").arg(key)).await.unwrap();
            if let Some(said) = said {
                let beat: Value = serde_json::from_str(&said).unwrap();
                return beat["addr"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{node} has not registered itself");
    }

    /// `catchment fleet status --json`: the exit code and the figures.
    pub fn status(&self) -> (i32, Value) {
        let mut command = Command::new(&*BINARY);
        let out =
            command.args(["fleet", "status", "--json", "--redis-url", &self.redis.url()]).output().unwrap();
        (out.status.code().unwrap(), serde_json::from_slice(&out.stdout).unwrap_or(Value::Null))
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.wall().ms().get()
    }

    pub fn seconds(&self) -> f64 {
        self.clock.monotonic().0.as_secs_f64()
    }

    /// When requests for books came, by client, in seconds of the simulator's clock.
    pub fn arrivals(&self) -> BTreeMap<String, Vec<f64>> {
        let mut by_client: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for line in get(&self.sim_addr, "/_sim/requests").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if words[2].starts_with("clob/book") {
                by_client
                    .entry(words[1].to_owned())
                    .or_default()
                    .push(words[0].parse::<f64>().unwrap() / 1e6);
            }
        }
        by_client
    }

    /// Every `step`-th token's time at the venue and of its fetch, as Redis has them.
    pub async fn look(&self, step: usize) -> Option<Vec<Option<(u64, i64)>>> {
        let mut pipe = redis::pipe();
        for token in self.tokens.iter().step_by(step) {
            pipe.cmd("HMGET").arg(format!("ob:{token}")).arg("timestamp").arg("updated_at");
        }
        let (mut connection, generation) = self.link.connection().await.ok()?;
        let found: Result<Vec<(Option<u64>, Option<i64>)>, _> = pipe.query_async(&mut connection).await;
        if found.is_err() {
            self.link.give_up(generation);
        }
        Some(found.ok()?.into_iter().map(|(time, at)| Some((time?, at?))).collect())
    }
}

/// Memory of a process that is in RAM.
pub fn resident_kib(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The most requests in any interval of a second, over all clients.
pub fn most_in_a_second(arrivals: &BTreeMap<String, Vec<f64>>) -> usize {
    let most = |times: &Vec<f64>| {
        let within =
            |(at, time): (usize, &f64)| times[at..].iter().take_while(|other| **other < time + 1.0).count();
        times.iter().enumerate().map(within).max().unwrap_or(0)
    };
    arrivals.values().map(most).max().unwrap_or(0)
}

/// Half and 99 of 100 of these are not larger.
pub fn percentiles(mut ages: Vec<f64>) -> (f64, f64) {
    ages.sort_by(f64::total_cmp);
    let at = |share: f64| ages[((ages.len() - 1) as f64 * share) as usize];
    (at(0.5), at(0.99))
}

fn tokens_of(sim: &str) -> Vec<String> {
    let (mut tokens, mut cursor) = (Vec::new(), String::new());
    while cursor != "LTE=" {
        let path = format!("/polymarket/clob/markets?next_cursor={}", cursor.replace('=', "%3D"));
        let page: Value = serde_json::from_str(&get(sim, &path)).unwrap();
        for market in page["data"].as_array().unwrap().iter().filter(|market| market["closed"] == false) {
            for token in market["tokens"].as_array().unwrap() {
                tokens.push(token["token_id"].as_str().unwrap().to_owned());
            }
        }
        cursor = page["next_cursor"].as_str().unwrap().to_owned();
    }
    tokens
}

fn get(addr: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nuser-agent: fleet-test\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    body.to_owned()
}

pub fn put(path: &std::path::Path, text: &str) {
    std::fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}
