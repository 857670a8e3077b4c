//! A mongod of one's own, for tests and benches: found, started on a free port of loopback, killed, started again.
//!
//! Deliberately absent: anything for production. The sink itself never starts a server.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::MongoUri;

/// Why there is no mongod.
#[derive(Debug, thiserror::Error)]
pub enum MongodError {
    /// It is not installed.
    #[error(
        "there is no mongod at {0}; `bash scripts/prepare` puts one there (or name one in CATCHMENT_MONGOD)"
    )]
    Missing(PathBuf),
    /// It is installed and does not run.
    #[error("mongod does not start: {0}")]
    Start(String),
}

/// A server with its own folder and port. It is killed when this is dropped.
#[derive(Debug)]
pub struct Mongod {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl Mongod {
    /// Starts one that keeps its data in this folder, with further options of the command line.
    pub fn start(dir: &Path, options: &[&str]) -> Result<Self, MongodError> {
        let program = find()?;
        let port = free_port().ok_or_else(|| MongodError::Start("no port is free".to_owned()))?;
        let options = options.iter().map(ToString::to_string).collect();
        let mut server = Self { program, dir: dir.to_owned(), port, options, child: None };
        server.start_again()?;
        Ok(server)
    }

    /// Starts it on the same port and folder, and waits until it takes connections.
    pub fn start_again(&mut self) -> Result<(), MongodError> {
        let failed = |error: std::io::Error| MongodError::Start(error.to_string());
        self.kill();
        let mut child = Command::new(&self.program)
            .arg("--dbpath")
            .arg(&self.dir)
            .args(["--port", &self.port.to_string(), "--bind_ip", "127.0.0.1", "--nounixsocket"])
            .args(["--wiredTigerCacheSizeGB", "0.25"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut said = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let mut last = String::new();
        self.child = Some(child);
        for line in said.by_ref() {
            last = line.map_err(failed)?;
            if last.contains("\"Waiting for connections\"") {
                // Or it would stop when the pipe is full.
                std::thread::spawn(move || for _ in said {});
                return Ok(());
            }
        }
        self.kill();
        Err(MongodError::Start(last))
    }

    /// Kills it, as a crash would: no signal it could answer.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Gone already is gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to connect, with options such as `directConnection=true`.
    pub fn uri(&self, options: &str) -> MongoUri {
        let text = format!("mongodb://127.0.0.1:{}/?{options}", self.port);
        MongoUri::parse(&text).expect("an address of our own making")
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `CATCHMENT_MONGOD`, else where `scripts/prepare` puts it.
fn find() -> Result<PathBuf, MongodError> {
    let path = match std::env::var_os("CATCHMENT_MONGOD") {
        Some(named) => PathBuf::from(named),
        None => cache().join("tools").join("mongod-6.0.5"),
    };
    if path.is_file() { Ok(path) } else { Err(MongodError::Missing(path)) }
}

fn cache() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    named("CATCHMENT_CACHE").unwrap_or_else(|| {
        let home = || named("HOME").unwrap_or_default().join(".cache");
        named("XDG_CACHE_HOME").unwrap_or_else(home).join("catchment")
    })
}

/// A port that is free now and that no outgoing connection takes meanwhile: those have higher numbers.
fn free_port() -> Option<u16> {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7);
    (0..COUNT).find_map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + start.wrapping_add(step) % COUNT) as u16;
        TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port)
    })
}
