//! Passwords: what a wrong one leads to, and that none is ever shown. And TLS.

use std::error::Error;

use catchment_pipeline::{Sink, SinkError};
use catchment_sinks::conformance::batch;
use catchment_sinks::mongo::{MongoConfig, MongoFault, MongoSink, MongoUri};
use mongodb::bson::doc;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::cellar::Cellar;

/// Everything an error has to say.
fn words(error: &dyn Error) -> String {
    let mut text = format!("{error:?} {error}");
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text} {inner:?} {inner}");
        source = inner.source();
    }
    text
}

#[tokio::test]
async fn a_wrong_password_is_said_and_no_password_is_shown() {
    let cellar = Cellar::with(&["--auth"], "directConnection=true");
    // Whoever comes first from this machine may make the first user, and nothing else.
    let first = cellar.client("directConnection=true").await.database("admin");
    first.run_command(doc! { "createUser": "root", "pwd": "root", "roles": ["root"] }).await.unwrap();
    let admin = cellar.client_as("root:root", "directConnection=true").await.database("admin");
    let roles = vec![doc! { "role": "readWrite", "db": "market_data" }];
    let user = doc! { "createUser": "recorder", "pwd": "open sesame", "roles": roles };
    admin.run_command(user).await.unwrap();
    let sink = |login: &str, database: &str| {
        let port = cellar.server.port();
        let text = format!("mongodb://{login}@127.0.0.1:{port}/?authSource=admin&directConnection=true");
        let uri = MongoUri::parse(&text).unwrap();
        MongoSink::new(MongoConfig { database: database.to_owned(), ..MongoConfig::new(uri) })
    };

    let right = sink("recorder:open%20sesame", "market_data");
    right.write(&batch(1, 10)).await.unwrap();
    right.ask().await.unwrap();

    let wrong = sink("recorder:hunter2", "market_data");
    let error = wrong.write(&batch(1, 10)).await.unwrap_err();
    assert!(matches!(error, SinkError::Unreachable { .. }), "{error:?}");
    let said = words(&error);
    assert!(said.contains("MongoDB refuses the user name or password in mongo_uri"), "{said}");
    let again = wrong.ask().await;
    assert!(matches!(again, Err(MongoFault::Login(_))), "{again:?}");

    let elsewhere = sink("recorder:open%20sesame", "other");
    let error = elsewhere.write(&batch(1, 10)).await.unwrap_err();
    let all = format!("{said} {} {right:?} {wrong:?} {elsewhere:?}", words(&error));
    assert!(words(&error).contains("needs the role readWrite"), "{all}");
    for secret in ["sesame", "hunter2", "recorder"] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
}

#[tokio::test]
async fn a_server_is_trusted_over_tls_if_its_authority_is() {
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).display().to_string();
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let (ours, stranger) = (authority(), authority());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ours).unwrap();
    put(&path("server.pem"), &(certificate.pem() + &key.serialize_pem()));
    put(&path("ours.pem"), &ours.pem());
    put(&path("stranger.pem"), &stranger.pem());
    let options = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", &path("server.pem")];
    let cellar = Cellar::with(&options, "directConnection=true");
    let ask = async |options: &str| {
        let text = format!("mongodb://127.0.0.1:{}/?directConnection=true&{options}", cellar.server.port());
        let uri = MongoUri::parse(&text).unwrap();
        MongoSink::new(MongoConfig { uri, ..cellar.config("records") }).ask().await
    };
    ask(&format!("tls=true&tlsCAFile={}", path("ours.pem"))).await.unwrap();
    let refused = ask(&format!("tls=true&tlsCAFile={}", path("stranger.pem"))).await.unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    ask("tls=true").await.unwrap_err();
    ask("tls=false").await.unwrap_err();
}

/// Writes a file that need not be durable.
#[allow(clippy::disallowed_methods, reason = "what a test prepares need not survive it")]
fn put(path: &str, text: &str) {
    std::fs::write(path, text).unwrap();
}
