//! How we get into Azure: as its own libraries do, from the environment; or the emulator.
//!
//! Secrets come from the environment and nowhere else, so that they stand in no command line and no file of ours; nothing
//! here prints one.

use std::sync::Arc;

use object_store::azure::{AzureAuthorizer, AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::client::{HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use url::Url;

use crate::error::without_secrets;
use crate::place::{deadlines, retries};

/// The emulator's account and key, the same in every installation.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_URL: &str = "http://127.0.0.1:10000";

/// How to sign in to Azure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignIn {
    /// The first of the others that the environment has what is needed for.
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
    if let Some(account) = account {
        builder = builder.with_account(account);
    }
    let sign_in = match access.sign_in {
        SignIn::Auto => find_sign_in(env),
        chosen => chosen,
    };
    for (key, names, is_needed) in keys_of(sign_in) {
        match names.iter().find_map(|name| env(name)) {
            Some(value) => builder = builder.with_config(*key, value),
            None if *is_needed => return Err(format!("signing in this way needs {}", names[0])),
            None => {}
        }
    }
    if sign_in == SignIn::Cli {
        builder = builder.with_use_azure_cli(true);
    }
    Ok((Arc::new(builder.build().map_err(told)?), None))
}

/// What the environment has all of, in the order Azure's own libraries look: a key or a signature was put there on purpose;
/// then a service principal, a workload's identity, the machine's, and the command line's.
fn find_sign_in(env: &dyn Fn(&str) -> Option<String>) -> SignIn {
    let has_all = |sign_in: SignIn| {
        let mut needed = keys_of(sign_in).iter().filter(|(_, _, is_needed)| *is_needed);
        needed.all(|(_, names, _)| names.iter().any(|name| env(name).is_some()))
    };
    let by_values = [SignIn::Key, SignIn::Sas, SignIn::Environment, SignIn::WorkloadIdentity];
    if let Some(found) = by_values.into_iter().find(|sign_in| has_all(*sign_in)) {
        return found;
    }
    let is_hosted = env("IDENTITY_ENDPOINT").or_else(|| env("MSI_ENDPOINT")).is_some();
    let has_cli =
        env("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("az").exists()));
    if !is_hosted && has_cli { SignIn::Cli } else { SignIn::ManagedIdentity }
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
        *request.uri_mut() = uri.parse().map_err(|_| format!("{} is no address", self.container_url))?;
        request.headers_mut().insert("content-length", object_store::HeaderValue::from_static("0"));
        let credential =
            self.azure.credentials().get_credential().await.map_err(|error| error.to_string())?;
        AzureAuthorizer::new(&credential, EMULATOR_ACCOUNT).authorize(&mut request);
        let answer = client.execute(request).await;
        let answer = answer.map_err(|error| {
            format!(
                "the emulator does not answer at {} ({error}); is azurite-blob running?",
                self.container_url
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

    fn found(values: &[(&str, &str)]) -> SignIn {
        find_sign_in(&|name| {
            values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_way_in_is_the_first_that_has_all_it_needs() {
        let principal = [("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "c"), ("AZURE_CLIENT_SECRET", "s")];
        assert_eq!(found(&principal), SignIn::Environment);
        assert_eq!(found(&principal[..2]), SignIn::ManagedIdentity);
        let workload = [principal[0], principal[1], ("AZURE_FEDERATED_TOKEN_FILE", "/f")];
        assert_eq!(found(&workload), SignIn::WorkloadIdentity);
        assert_eq!(found(&[("AZURE_STORAGE_ACCOUNT_KEY", "k"), principal[0]]), SignIn::Key);
        assert_eq!(found(&[("AZURE_STORAGE_SAS_TOKEN", "sig=x")]), SignIn::Sas);
        let home = tempfile::tempdir().unwrap();
        std::fs::File::create(home.path().join("az")).unwrap();
        let path = home.path().to_str().unwrap();
        assert_eq!(found(&[("PATH", path)]), SignIn::Cli);
        assert_eq!(found(&[("PATH", path), ("IDENTITY_ENDPOINT", "http://x")]), SignIn::ManagedIdentity);
        assert_eq!(found(&[]), SignIn::ManagedIdentity);
    }
}
