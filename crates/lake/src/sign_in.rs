//! How we get into Azure: as its own libraries do, from the environment; or the emulator.
//!
//! Secrets come from the environment and nowhere else, so that they stand in no command line and no file of ours; nothing
//! here prints one.
//!
//! A key or a signature was put there on purpose and is used. Else the ways of `DefaultAzureCredential` are tried in its order,
//! when the first request wants a token: a service principal, a workload's identity, the machine's, the command line's. Which
//! of them is there cannot be told from outside (a machine may have an identity without saying so, and an `az` may be signed
//! out), so each is asked. The first that gives a token is kept to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::azure::{
    AzureAuthorizer, AzureConfigKey, AzureCredential, AzureCredentialProvider, MicrosoftAzure,
    MicrosoftAzureBuilder,
};
use object_store::client::{
    CredentialProvider, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector,
};
use object_store::{BackoffConfig, RetryConfig};
use tokio::sync::OnceCell;
use url::Url;

use crate::error::{chain, without_secrets};
use crate::place::{deadlines, retries};

/// The emulator's account and key, the same in every installation.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_URL: &str = "http://127.0.0.1:10000";

/// How to sign in to Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignIn {
    /// A key or a signature if the environment has one; else the first of the others that gives a token.
    #[default]
    Auto,
    /// A service principal: `AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET`.
    Environment,
    /// A federated token: `AZURE_FEDERATED_TOKEN_FILE` besides tenant and client.
    WorkloadIdentity,
    /// The machine's own identity; `AZURE_CLIENT_ID` names one of several.
    ManagedIdentity,
    /// Whoever has signed in with `az login`.
    Cli,
    /// A shared access signature: `AZURE_STORAGE_SAS_TOKEN`.
    Sas,
    /// The account's key: `AZURE_STORAGE_ACCOUNT_KEY`.
    Key,
}

/// How to get in.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// To Azure.
    pub sign_in: SignIn,
    /// The Azure emulator instead, at this address; an empty one is the usual.
    pub emulator: Option<String>,
}

pub(crate) struct Emulator {
    azure: MicrosoftAzure,
    container_url: String,
}

/// The storage at that address, and the emulator if it is one.
pub(crate) fn azure(
    place: &str,
    url: &Url,
    access: &Access,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(Arc<MicrosoftAzure>, Option<Emulator>), String> {
    let builder = MicrosoftAzureBuilder::new().with_retry(retries()).with_client_options(deadlines());
    let told = |error: object_store::Error| without_secrets(&error.to_string());
    if let Some(address) = &access.emulator {
        let address = Some(address.as_str()).filter(|address| !address.is_empty());
        let address = address.map(str::to_owned).or_else(|| env("AZURITE_BLOB_STORAGE_URL"));
        let address = address.unwrap_or_else(|| EMULATOR_URL.to_owned());
        let endpoint = format!("{}/{EMULATOR_ACCOUNT}", address.trim_end_matches('/'));
        // abfss://container@account…/, az://container/
        let container =
            if url.username().is_empty() { url.host_str().unwrap_or_default() } else { url.username() };
        let builder = builder
            .with_client_options(deadlines().with_allow_http(true))
            .with_account(EMULATOR_ACCOUNT)
            .with_access_key(EMULATOR_KEY)
            .with_container_name(container)
            .with_endpoint(endpoint.clone());
        let azure = builder.clone().build().map_err(told)?;
        let emulator = Emulator { azure, container_url: format!("{endpoint}/{container}") };
        return Ok((Arc::new(builder.build().map_err(told)?), Some(emulator)));
    }
    let mut builder = builder.with_url(place);
    let account = env("AZURE_STORAGE_ACCOUNT_NAME").or_else(|| env("AZURE_STORAGE_ACCOUNT"));
    if account.is_none() && url.username().is_empty() {
        return Err("its account is not known; set AZURE_STORAGE_ACCOUNT_NAME, or name it as in \
                    abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
            .to_owned());
    }
    if let Some(account) = account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = env("AZURE_STORAGE_ENDPOINT") {
        // Tokens go unencrypted to this machine only.
        let is_here =
            Url::parse(&endpoint).is_ok_and(|url| matches!(url.host_str(), Some("127.0.0.1" | "localhost")));
        builder = builder.with_client_options(deadlines().with_allow_http(is_here)).with_endpoint(endpoint);
    }
    let builder = match access.sign_in {
        SignIn::Auto => match [SignIn::Key, SignIn::Sas].into_iter().find(|way| missing(*way, env).is_none())
        {
            Some(way) => sign_in_by(builder, way, env)?,
            None => {
                let chain = Chain::new(&builder, env);
                builder.with_credentials(Arc::new(chain))
            }
        },
        way => sign_in_by(builder, way, env)?,
    };
    Ok((Arc::new(builder.build().map_err(told)?), None))
}

/// The builder with what that way needs, from the environment.
fn sign_in_by(
    mut builder: MicrosoftAzureBuilder,
    way: SignIn,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<MicrosoftAzureBuilder, String> {
    if let Some(name) = missing(way, env) {
        return Err(format!("signing in this way needs {name}"));
    }
    for (key, names, _) in keys_of(way) {
        if let Some(value) = names.iter().find_map(|name| env(name)) {
            builder = builder.with_config(*key, value);
        }
    }
    Ok(if way == SignIn::Cli { builder.with_use_azure_cli(true) } else { builder })
}

/// What that way needs and the environment does not have.
fn missing(way: SignIn, env: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let mut needed = keys_of(way).iter().filter(|(_, _, is_needed)| *is_needed);
    needed.find(|(_, names, _)| names.iter().all(|name| env(name).is_none())).map(|(_, names, _)| names[0])
}

/// The ways that give a token, in the order of `DefaultAzureCredential`.
const WAYS: [SignIn; 4] =
    [SignIn::Environment, SignIn::WorkloadIdentity, SignIn::ManagedIdentity, SignIn::Cli];

/// Several ways in. The first that gives a token is kept to for as long as the process lives: a table is not to be written by
/// somebody else because a token came late once.
#[derive(Debug)]
struct Chain {
    ways: Vec<(SignIn, Result<AzureCredentialProvider, String>)>,
    chosen: OnceCell<AzureCredentialProvider>,
}

impl Chain {
    fn new(builder: &MicrosoftAzureBuilder, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let open = |way| {
            let builder = sign_in_by(builder.clone().with_retry(few_retries()), way, env)?;
            let azure = builder.build().map_err(|error| without_secrets(&chain(&error)))?;
            Ok(Arc::clone(azure.credentials()))
        };
        Self { ways: WAYS.into_iter().map(|way| (way, open(way))).collect(), chosen: OnceCell::new() }
    }

    async fn choose(&self) -> object_store::Result<AzureCredentialProvider> {
        let mut tried = Vec::new();
        for (way, opened) in &self.ways {
            let why = match opened {
                Ok(provider) => match provider.get_credential().await {
                    Ok(_) => return Ok(Arc::clone(provider)),
                    Err(error) => without_secrets(chain(&error).trim()),
                },
                Err(why) => why.clone(),
            };
            tried.push(format!("{}: {why}", way.as_str()));
        }
        let source = format!("no way of signing in gave a token: {}", tried.join("; ")).into();
        Err(object_store::Error::Unauthenticated { path: "/".to_owned(), source })
    }
}

#[async_trait]
impl CredentialProvider for Chain {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        self.chosen.get_or_try_init(|| self.choose()).await?.get_credential().await
    }
}

/// A machine without an identity does not answer, and the next way is to have its turn soon.
fn few_retries() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: Duration::from_millis(100), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: 1, retry_timeout: Duration::from_secs(10) }
}

impl SignIn {
    /// As users write it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Environment => "environment",
            Self::WorkloadIdentity => "workload-identity",
            Self::ManagedIdentity => "managed-identity",
            Self::Cli => "cli",
            Self::Sas => "sas",
            Self::Key => "key",
        }
    }
}

/// A value for the storage, the names it may have in the environment, and whether it can do without.
type Key = (AzureConfigKey, &'static [&'static str], bool);

fn keys_of(sign_in: SignIn) -> &'static [Key] {
    use AzureConfigKey as K;
    match sign_in {
        SignIn::Auto | SignIn::Cli => &[],
        SignIn::Key => &[(
            K::AccessKey,
            &["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"],
            true,
        )],
        SignIn::Sas => &[(K::SasKey, &["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"], true)],
        SignIn::Environment => &[
            (K::AuthorityId, &["AZURE_TENANT_ID"], true),
            (K::ClientId, &["AZURE_CLIENT_ID"], true),
            (K::ClientSecret, &["AZURE_CLIENT_SECRET"], true),
            (K::AuthorityHost, &["AZURE_AUTHORITY_HOST"], false),
        ],
        SignIn::WorkloadIdentity => &[
            (K::AuthorityId, &["AZURE_TENANT_ID"], true),
            (K::ClientId, &["AZURE_CLIENT_ID"], true),
            (K::FederatedTokenFile, &["AZURE_FEDERATED_TOKEN_FILE"], true),
            (K::AuthorityHost, &["AZURE_AUTHORITY_HOST"], false),
        ],
        SignIn::ManagedIdentity => &[
            (K::MsiEndpoint, &["IDENTITY_ENDPOINT", "MSI_ENDPOINT"], false),
            // One of several identities; without it, the machine's own.
            (K::ClientId, &["AZURE_CLIENT_ID"], false),
        ],
    }
}

impl Emulator {
    /// `PUT /account/container?restype=container`, signed; one that is there already is fine.
    pub(crate) async fn make_container(&self) -> Result<(), String> {
        let client = ReqwestConnector::default().connect(&deadlines().with_allow_http(true));
        let client = client.map_err(|error| error.to_string())?;
        let uri = format!("{}?restype=container", self.container_url);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = "PUT".parse().expect("a method");
        *request.uri_mut() =
            uri.parse().map_err(|_| format!("{} is no address", without_secrets(&self.container_url)))?;
        request.headers_mut().insert("content-length", object_store::HeaderValue::from_static("0"));
        let credential =
            self.azure.credentials().get_credential().await.map_err(|error| error.to_string())?;
        AzureAuthorizer::new(&credential, EMULATOR_ACCOUNT).authorize(&mut request);
        let answer = client.execute(request).await;
        let answer = answer.map_err(|error| {
            format!(
                "the emulator does not answer at {} ({}); is azurite-blob running?",
                without_secrets(&self.container_url),
                without_secrets(&error.to_string())
            )
        })?;
        match answer.status().as_u16() {
            201 | 409 => Ok(()),
            status => Err(format!("the emulator answered {status} when its container was to be made")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(values: &[(&str, &str)]) -> String {
        let env =
            |name: &str| values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let place = "abfss://c@a.dfs.core.windows.net/x";
        let opened = azure(place, &Url::parse(place).unwrap(), &Access::default(), &env);
        format!("{:?}", opened.unwrap().0.credentials())
    }

    #[test]
    fn a_key_or_a_signature_is_used_and_else_the_ways_that_give_a_token_are_tried_in_order() {
        let principal = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "c"), ("AZURE_CLIENT_SECRET", "s")];
        let key = ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        assert!(
            opened(&[key, principal[0], principal[1], principal[2]]).starts_with("StaticCredentialProvider")
        );
        assert!(opened(&[("AZURE_STORAGE_SAS_TOKEN", "sig=x")]).starts_with("StaticCredentialProvider"));
        let ways = opened(&principal);
        let places = ["(Environment, Ok(", "(WorkloadIdentity, Err(", "(ManagedIdentity, Ok(", "(Cli, Ok("]
            .map(|way| ways.find(way));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
        let ways = opened(&[]);
        assert!(ways.contains("signing in this way needs AZURE_TENANT_ID"), "{ways}");
    }
}
