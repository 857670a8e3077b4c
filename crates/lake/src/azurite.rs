//! An Azure emulator of one's own, for tests: found, started on a free port of loopback, killed.
//!
//! Deliberately absent: anything for production.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum AzuriteError {
    /// It is not installed.
    #[error(
        "there is no Azurite at {0}; `bash scripts/prepare` puts one there (or name an azurite-blob in CATCHMENT_AZURITE)"
    )]
    Missing(PathBuf),
    /// It is installed and does not run.
    #[error("Azurite does not start: {0}")]
    Start(String),
}

/// A server with its own folder and port. It is killed when this is dropped.
#[derive(Debug)]
pub struct Azurite {
    child: Child,
    address: String,
}

impl Azurite {
    /// Starts one that keeps its data in this folder, and waits until it takes connections.
    pub fn start(dir: &Path) -> Result<Self, AzuriteError> {
        let failed = |error: std::io::Error| AzuriteError::Start(error.to_string());
        let mut child = Command::new(find()?)
            .args(["--blobHost", "127.0.0.1", "--blobPort", "0", "--silent", "--skipApiVersionCheck"])
            .arg("--location")
            .arg(dir)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut said = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let mut server = Self { child, address: String::new() };
        let mut last = String::new();
        for line in said.by_ref() {
            last = line.map_err(failed)?;
            let address = last.split_whitespace().find(|word| word.starts_with("http://"));
            if let Some(address) = address.filter(|_| last.contains("successfully listen")) {
                server.address = address.trim_end_matches('/').to_owned();
                // Or it would stop when the pipe is full.
                std::thread::spawn(move || for _ in said {});
                return Ok(server);
            }
        }
        Err(AzuriteError::Start(last))
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// `http://127.0.0.1:<port>`
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // Gone already is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `CATCHMENT_AZURITE`, else where `scripts/prepare` puts it.
fn find() -> Result<PathBuf, AzuriteError> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let path = named("CATCHMENT_AZURITE").unwrap_or_else(|| {
        let home = || named("HOME").unwrap_or_default().join(".cache");
        let cache = || named("XDG_CACHE_HOME").unwrap_or_else(home).join("catchment");
        let cache = named("CATCHMENT_CACHE").unwrap_or_else(cache);
        cache.join("tools/azurite-3.37/node_modules/.bin/azurite-blob")
    });
    if path.is_file() { Ok(path) } else { Err(AzuriteError::Missing(path)) }
}
