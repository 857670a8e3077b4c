//! Whom the courier trusts. Every server here is on loopback, with a certificate made for the test.

use std::net::SocketAddr;
use std::sync::Arc;

use catchment_collect::CourierSettings;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::support::{Desk, answer};

/// An authority, and the courier's settings that trust it.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    fn settings(&self) -> CourierSettings {
        CourierSettings { extra_roots: vec![self.issuer.pem().into_bytes()], ..CourierSettings::default() }
    }

    /// A server with a certificate for these names.
    async fn server(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
        version: &'static SupportedProtocolVersion,
    ) -> Server {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Server::start(config).await
    }
}

/// Answers `{}` to everybody it can shake hands with.
struct Server {
    addr: SocketAddr,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(config: ServerConfig) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.read(&mut [0; 4_096]).await;
                    let _ = stream.write_all(&answer(200, "connection: close\r\n", b"{}")).await;
                    let _ = stream.shutdown().await;
                }
            }
        });
        Self { addr, _serving: serving }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.addr)
    }
}

/// Fails for this reason, and the governor knows.
async fn fails(settings: CourierSettings, url: String, reason: &str) {
    let error = Desk::new(settings).fails(url, "tls", "failed").await;
    let text = error.with_sources();
    assert!(text.contains(reason), "expected {reason:?} in {text:?}");
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_was_added_is_trusted() {
    let authority = Authority::new();
    for version in [&version::TLS13, &version::TLS12] {
        let server = authority.server(&["127.0.0.1"], |_| {}, version).await;
        assert_eq!(Desk::new(authority.settings()).get(server.url()).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused() {
    let server = Authority::new().server(&["127.0.0.1"], |_| {}, &version::TLS13).await;
    fails(CourierSettings::default(), server.url(), "UnknownIssuer").await;
    fails(Authority::new().settings(), server.url(), "invalid peer certificate").await;
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new();
    let server = authority.server(&["127.0.0.2", "venue.example"], |_| {}, &version::TLS13).await;
    fails(authority.settings(), server.url(), "not valid for name").await;
}

#[tokio::test]
async fn a_certificate_whose_time_is_over_is_refused() {
    let authority = Authority::new();
    let over = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let server = authority.server(&["127.0.0.1"], over, &version::TLS13).await;
    fails(authority.settings(), server.url(), "expired").await;
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_gets_nothing_in_the_clear() {
    let plain_words = b"HTTP/1.1 400 X\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(first[0], 0x16, "a handshake, and not a request");
        stream.write_all(plain_words).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    fails(CourierSettings::default(), url, "corrupt message").await;
    serving.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_handshake_that_is_cut_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 4_096];
        // All of it, or the connection is reset and not ended.
        let _ = stream.read(&mut hello).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    fails(CourierSettings::default(), url, "eof").await;
}

#[tokio::test]
async fn a_server_that_speaks_only_what_is_too_old_is_refused() {
    // What a server says that knows nothing later than TLS 1.0: an alert, "protocol version".
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4_096]).await.unwrap();
        stream.write_all(&[0x15, 3, 1, 0, 2, 2, 70]).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    fails(CourierSettings::default(), url, "ProtocolVersion").await;
}
