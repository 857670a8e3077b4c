//! Real servers for tests and benches: `redis-server` as a child process on a free port of loopback, gone with its owner.
//!
//! Deliberately absent: any way to carry on without one. Whoever needs a server and has none is told how to get it.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How to get one.
pub const HOW_TO_GET: &str = "redis-server is needed and not there; as root: apt-get install redis-server";

/// A server of one's own.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    port: u16,
    dir: PathBuf,
    extra: Vec<String>,
    _own: tempfile::TempDir,
}

impl RedisServer {
    /// One that keeps everything in memory only. Returns when it takes connections.
    pub fn start() -> io::Result<Self> {
        Self::with(&["--save", "", "--appendonly", "no"])
    }

    /// One that has all it acknowledged after a restart.
    pub fn durable() -> io::Result<Self> {
        Self::with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    /// One with further words on its command line.
    pub fn with(extra: &[&str]) -> io::Result<Self> {
        let own = tempfile::tempdir()?;
        let dir = own.path().to_owned();
        let extra: Vec<String> = extra.iter().map(|&word| word.to_owned()).collect();
        // Somebody else may take the port before the server does.
        let mut tries = 0;
        loop {
            let port = free_port()?;
            match launch(port, &dir, &extra) {
                Ok(child) => return Ok(Self { child, port, dir, extra, _own: own }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 20 => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of its process, for signals.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One command by `redis-cli`; what the server says.
    pub fn say(&self, words: &[&str]) -> io::Result<String> {
        let mut command = Command::new("redis-cli");
        let said = command.args(["-p", &self.port.to_string()]).args(words).output()?;
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Starts it again on the same port, with what it had kept.
    pub fn start_again(&mut self) -> io::Result<()> {
        self.child = launch(self.port, &self.dir, &self.extra)?;
        Ok(())
    }

    /// Kills it and starts it again.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.start_again()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three servers that are a cluster.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

impl RedisCluster {
    /// Returns when every slot is served.
    pub fn start() -> io::Result<Self> {
        Self::of(3, 0)
    }

    /// The same, each of the three with one that copies it.
    pub fn with_replicas() -> io::Result<Self> {
        Self::of(6, 1)
    }

    fn of(count: usize, replicas: usize) -> io::Result<Self> {
        let words = ["--save", "", "--appendonly", "no", "--cluster-enabled", "yes"];
        let servers = (0..count).map(|_| RedisServer::with(&words)).collect::<io::Result<Vec<_>>>()?;
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
        create.args(["--cluster-replicas", &replicas.to_string()]);
        let made = create.args(["--cluster-yes"]).output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stdout).into_owned()));
        }
        Ok(Self { servers })
    }

    /// Returns when the first leader's copy has all that it has.
    pub fn until_copied(&self) -> io::Result<()> {
        let figure = |server: &RedisServer, name: &str| -> io::Result<Option<u64>> {
            let info = server.say(&["INFO", "replication"])?;
            Ok(info.lines().find_map(|line| line.trim().strip_prefix(name)?.parse().ok()))
        };
        let wanted = figure(&self.servers[0], "master_repl_offset:")?;
        let heir = &self.servers[self.heir()?];
        while figure(heir, "slave_repl_offset:")? < wanted {}
        Ok(())
    }

    /// Kills the first leader and lets its copy lead.
    pub fn fail_over(&mut self) -> io::Result<()> {
        let heir = self.heir()?;
        self.servers[0].kill()?;
        match self.servers[heir].say(&["CLUSTER", "FAILOVER", "TAKEOVER"])?.trim() {
            "OK" => Ok(()),
            said => Err(io::Error::other(format!("it does not take over: {said}"))),
        }
    }

    /// Who copies the first leader.
    fn heir(&self) -> io::Result<usize> {
        let id = self.servers[0].say(&["CLUSTER", "MYID"])?;
        for (at, server) in self.servers.iter().enumerate().skip(3) {
            let known = server.say(&["CLUSTER", "NODES"])?;
            if known.lines().any(|line| line.contains("myself,slave") && line.contains(id.trim())) {
                return Ok(at);
            }
        }
        Err(io::Error::other("nobody copies the first leader"))
    }

    /// The addresses of its nodes.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }
}

/// A port nobody listens on at this moment. A cluster's node takes the one 10,000 above, too.
fn free_port() -> io::Result<u16> {
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        if port < 55_000 {
            return Ok(port);
        }
    }
}

/// Reads what the server says until it takes connections.
fn launch(port: u16, dir: &Path, extra: &[String]) -> io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--loglevel", "notice", "--dir"]);
    command.arg(dir).args(extra).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::NotFound, HOW_TO_GET),
        _ => error,
    })?;
    let mut talk = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    let mut said = String::new();
    for line in &mut talk {
        let line = line?;
        if line.contains("Ready to accept connections") {
            // Whoever talks and is not listened to stands still at last.
            std::thread::spawn(move || talk.for_each(drop));
            return Ok(child);
        }
        said.push_str(&line);
        said.push('\n');
    }
    let _ = child.wait();
    let kind = if said.contains("in use") { io::ErrorKind::AddrInUse } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, said))
}
