//! The ways into a storage: Azure's, tried one after the other, and S3's.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Site, end};

/// A cloud on loopback: `/imds` is the machine's identity, `/t/oauth2/v2.0/token` the directory's door, all else the storage,
/// which is empty. It notes who asked for what with which token.
struct Cloud {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A path, and the token that was shown there.
type Asked = (String, Option<String>);

impl Cloud {
    /// `has_identity`: whether the machine has one.
    async fn start(has_identity: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let noted = Arc::clone(&noted);
                tokio::spawn(async move { answer(client, has_identity, &noted).await });
            }
        });
        Self { address, asked }
    }

    /// The tokens that the storage was shown, and how often the machine's identity was asked.
    fn seen(&self) -> (Vec<String>, usize) {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tokens: Vec<String> = asked.iter().filter_map(|(_, token)| token.clone()).collect();
        tokens.dedup();
        (tokens, asked.iter().filter(|(path, _)| path.starts_with("/imds")).count())
    }
}

async fn answer(mut client: TcpStream, has_identity: bool, noted: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    // None of these requests' bodies matters.
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let n = client.read(&mut chunk).await?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..n]);
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let token = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
    });
    let (status, body) = match path.as_str() {
        path if path.starts_with("/imds") && has_identity => {
            (200, r#"{"access_token":"the-machine","expires_on":"4070908800"}"#)
        }
        path if path.starts_with("/imds") => {
            (400, r#"{"error":"invalid_request","error_description":"Identity not found"}"#)
        }
        path if path.starts_with("/t/oauth2") => (401, r#"{"error":"invalid_client"}"#),
        path if path.contains("comp=list") => {
            (200, r#"<?xml version="1.0"?><EnumerationResults><Blobs/><NextMarker/></EnumerationResults>"#)
        }
        _ => (404, ""),
    };
    noted.lock().unwrap_or_else(PoisonError::into_inner).push((path, token));
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}

/// What `status` says of an Azure storage in that cloud, where `az` does this.
async fn ask(cloud: &Cloud, az: &str, more: &[(&'static str, &str)]) -> String {
    let mut site = Site::start(100, false, 0).await;
    let bin = site.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let mut script = std::fs::File::create(bin.join("az")).unwrap();
    write!(script, "#!/bin/sh\n{az}\n").unwrap();
    drop(script);
    std::fs::set_permissions(bin.join("az"), std::fs::Permissions::from_mode(0o755)).unwrap();
    site.place = "abfss://lake@account.dfs.core.windows.net/bronze".to_owned();
    site.env = vec![
        ("PATH", bin.to_str().unwrap().to_owned()),
        ("IDENTITY_ENDPOINT", format!("{}/imds", cloud.address)),
        ("AZURE_STORAGE_ENDPOINT", cloud.address.clone()),
        ("AZURE_AUTHORITY_HOST", cloud.address.clone()),
    ];
    site.env.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let output = site.run(&["status"]).await;
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

const SIGNED_OUT: &str = "echo \"ERROR: Please run 'az login' to setup account.\" >&2; exit 1";
const SIGNED_IN: &str =
    r#"echo '{"accessToken":"whoever","expiresOn":"2096-01-01 00:00:00.000000","tokenType":"Bearer"}'"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_with_an_identity_and_an_az_that_is_signed_out_gets_in() {
    let cloud = Cloud::start(true).await;
    let told = ask(&cloud, SIGNED_OUT, &[]).await;
    assert!(told.contains("there is no table of jobs"), "{told}");
    let (tokens, asked) = cloud.seen();
    assert_eq!(tokens, ["Bearer the-machine"]);
    assert!(asked <= 2, "table and files each ask for it once: {asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_an_identity_gets_in_as_whoever_has_signed_in() {
    let cloud = Cloud::start(false).await;
    let told = ask(&cloud, SIGNED_IN, &[]).await;
    assert!(told.contains("there is no table of jobs"), "{told}");
    assert_eq!(cloud.seen().0, ["Bearer whoever"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_no_way_gives_a_token_each_is_told_with_its_reason_and_no_secret() {
    let cloud = Cloud::start(false).await;
    let principal = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "c"), ("AZURE_CLIENT_SECRET", "SECRET")];
    let told = ask(&cloud, SIGNED_OUT, &principal).await;
    let reasons = [
        "no way of signing in gave a token: environment: ",
        "401",
        "workload-identity: signing in this way needs AZURE_FEDERATED_TOKEN_FILE",
        "managed-identity: ",
        "Identity not found",
        "cli: ",
        "az login",
    ];
    let places = reasons.map(|reason| told.find(reason));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {told}");
    assert!(!told.contains("SECRET"), "{told}");
    assert_eq!(cloud.seen().0, [""; 0], "the storage is not asked without a token");
}

/// A server that speaks S3, out of the Python index: one request at a time, so that its conditional writes are what S3's are.
struct S3 {
    child: Child,
    address: String,
}

impl S3 {
    const SERVE: &'static str = "
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server('127.0.0.1', 0, DomainDispatcherApplication(create_backend_app), threaded=False)
print(server.server_port, flush=True)
server.serve_forever()
";

    fn start() -> Self {
        let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let python = named("CATCHMENT_S3").unwrap_or_else(|| {
            let home = || named("HOME").unwrap_or_default().join(".cache");
            let cache = || named("XDG_CACHE_HOME").unwrap_or_else(home).join("catchment");
            named("CATCHMENT_CACHE").unwrap_or_else(cache).join("tools/s3-1/bin/python")
        });
        let told = "`bash scripts/prepare` puts a python with moto there, or name one in CATCHMENT_S3";
        let mut child = Command::new(&python)
            .args(["-c", Self::SERVE])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; {told}", python.display()));
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        assert!(port.trim().parse::<u16>().is_ok(), "{} has no moto; {told}", python.display());
        Self { child, address: format!("127.0.0.1:{}", port.trim()) }
    }

    async fn make_bucket(&self, name: &str) {
        let mut socket = TcpStream::connect(&self.address).await.unwrap();
        let request = format!(
            "PUT /{name} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            self.address
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.lines().next().is_some_and(|line| line.contains(" 200 ")), "{answer}");
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        // Gone already is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_s3_two_workers_bring_every_event_once() {
    let s3 = S3::start();
    s3.make_bucket("lake").await;
    let mut site = Site::start(5_900, true, 0).await;
    site.place = "s3://lake/bronze".to_owned();
    site.env = vec![
        ("AWS_ACCESS_KEY_ID", "KEY".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "SECRET".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT", format!("http://{}", s3.address)),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
    ];
    let made = site.json(&["setup", "--json", "--mode", "offset", "--max-offset", "5500"]).await;
    assert_eq!(made["added"], 12);
    let workers = ["one", "two"].map(|name| site.worker(name, &["--leases", "1"]));
    let mut lost = 0;
    for worker in workers {
        let report = end(worker).await;
        eprintln!("{report}");
        lost += report["commits"]["lost"].as_u64().unwrap_or(0);
    }
    site.check(5_900).await;
    eprintln!("{lost} commits were lost to the other");
}
