//! A place in some storage: a folder, Azure (`abfss://`, `az://`) or S3 (`s3://`).

use std::fmt;
use std::path::{Component, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::error::{LakeError, without_secrets};
use crate::sign_in::{Access, Emulator, azure};

/// For one answer of the storage.
const DEADLINE: Duration = Duration::from_secs(60);
/// What an address begins with.
const SCHEMES: &[&str] = &["abfss", "abfs", "az", "azure", "adl", "s3", "s3a", "file"];
/// For its taking of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A folder, or what is one elsewhere.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn ObjectStore>,
    base: Path,
    url: Url,
    shown: String,
    folder: Option<PathBuf>,
    emulator: Option<Arc<Emulator>>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.shown).finish()
    }
}

impl Place {
    /// The place of that address. Connects to nobody yet.
    pub fn open(address: &str, access: &Access) -> Result<Self, LakeError> {
        Self::open_with(address, access, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn open_with(
        address: &str,
        access: &Access,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, LakeError> {
        let wrong = |reason: String| LakeError::Place { place: without_secrets(address), reason };
        let Some((scheme, _)) = address.split_once("://") else {
            if let Some((scheme, _)) = address.split_once(':').filter(|(scheme, _)| SCHEMES.contains(scheme))
            {
                let reason = format!("an address has two slashes after {scheme}:");
                return Err(LakeError::Place { place: format!("{scheme}:…"), reason });
            }
            return Self::on_folder(std::path::Path::new(address)).map_err(wrong);
        };
        let mut url = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        if scheme == "file" {
            let folder =
                url.to_file_path().map_err(|()| wrong("it is no folder of this machine".to_owned()))?;
            return Self::on_folder(&folder).map_err(wrong);
        }
        // What stands before the `@` of abfss:// is the container.
        let has_user = !url.username().is_empty() && !matches!(scheme, "abfss" | "abfs");
        if url.query().is_some() || url.password().is_some() || has_user {
            return Err(wrong(
                "a place has no query, no user and no password; secrets come from the environment".to_owned(),
            ));
        }
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let base = Path::from_url_path(url.path()).map_err(|error| wrong(error.to_string()))?;
        let shown = address.trim_end_matches('/').to_owned();
        let told = |error: object_store::Error| wrong(without_secrets(&error.to_string()));
        match scheme {
            "abfss" | "abfs" | "az" | "azure" | "adl" => {
                let (store, emulator) = azure(address, &url, access, env).map_err(wrong)?;
                let store: Arc<dyn ObjectStore> = store;
                Ok(Self { store, base, url, shown, folder: None, emulator: emulator.map(Arc::new) })
            }
            "s3" | "s3a" => {
                // One by one, so that what the environment says of the client (AWS_ALLOW_HTTP) stays.
                let length = |length: Duration| format!("{}s", length.as_secs());
                let builder = AmazonS3Builder::from_env()
                    .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), length(DEADLINE))
                    .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::ConnectTimeout), length(CONNECT));
                let builder = builder.with_url(address).with_retry(retries());
                let store: Arc<dyn ObjectStore> = Arc::new(builder.build().map_err(told)?);
                Ok(Self { store, base, url, shown, folder: None, emulator: None })
            }
            _ => Err(wrong("it is neither a folder nor abfss://, az:// or s3://".to_owned())),
        }
    }

    fn on_folder(folder: &std::path::Path) -> Result<Self, String> {
        let folder = plain(folder).map_err(|error| error.to_string())?;
        // Of those who read the table, not all take it for what it is.
        if folder.as_os_str().as_encoded_bytes().contains(&b'%') {
            return Err("a folder of a lake has no % in its path".to_owned());
        }
        let url = Url::from_directory_path(&folder).map_err(|()| "it is no folder's path".to_owned())?;
        let base = Path::from_url_path(url.path()).map_err(|error| error.to_string())?;
        let shown = folder.display().to_string();
        let store = Arc::new(LocalFileSystem::new());
        Ok(Self { store, base, url, shown, folder: Some(folder), emulator: None })
    }

    /// Makes what must be there before anything is written: the folder, or the emulator's container.
    pub async fn prepare(&self) -> Result<(), LakeError> {
        let wrong = |reason: String| LakeError::Place { place: self.shown.clone(), reason };
        if let Some(folder) = &self.folder {
            std::fs::create_dir_all(folder).map_err(|error| wrong(error.to_string()))?;
        }
        match &self.emulator {
            Some(emulator) => emulator.make_container().await.map_err(wrong),
            None => Ok(()),
        }
    }

    /// Whether it is a folder of this machine.
    pub(crate) fn is_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// An error if it is a folder that has gone since it was made: writing would make it anew, and hide what was in it.
    pub(crate) fn is_still_there(&self) -> Result<(), LakeError> {
        match &self.folder {
            Some(folder) if !folder.is_dir() => Err(LakeError::gone(format!("writing to {}", self.shown))),
            _ => Ok(()),
        }
    }

    /// Sees to it that what was just written survives a power cut. Azure and S3 answer when it does; on a folder the file
    /// and the folders on the way to it are synced.
    pub(crate) async fn settle(&self, inner: &str) -> Result<(), object_store::Error> {
        let Some(folder) = self.folder.clone() else { return Ok(()) };
        let file = folder.join(inner);
        let synced = tokio::task::spawn_blocking(move || {
            let way = file.ancestors().take_while(|dir| dir.starts_with(&folder));
            way.map(std::fs::File::open).try_for_each(|opened| opened.and_then(|file| file.sync_all()))
        });
        let told = |source: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic {
            store: "folder",
            source,
        };
        synced.await.map_err(|error| told(error.into()))?.map_err(|error| told(error.into()))
    }

    /// The storage; its root is the container's, the bucket's or the machine's.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Where something of this place is in the storage.
    pub fn path(&self, inner: &str) -> Path {
        self.base.parts().chain(Path::from(inner).parts()).collect()
    }

    /// The same for people, and for `payload_path`.
    pub fn show(&self, inner: &str) -> String {
        format!("{}/{inner}", self.shown)
    }

    /// The place itself, for people.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Its address; ends with a slash.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}

/// The path from the root on, without `.` and `..`. What is before a `..` may be a link, and is looked up where it is there.
fn plain(folder: &std::path::Path) -> std::io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in std::path::absolute(folder)?.components() {
        if part == Component::ParentDir {
            plain = plain.canonicalize().unwrap_or(plain);
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    Ok(plain)
}

/// What the storage gets to answer.
pub(crate) fn deadlines() -> ClientOptions {
    ClientOptions::new().with_timeout(DEADLINE).with_connect_timeout(CONNECT)
}

/// How often the storage is asked again by itself, before the error is ours. An answer that never comes takes a whole
/// deadline, and must not be the last try.
pub(crate) fn retries() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(50),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: 8, retry_timeout: 3 * DEADLINE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign_in::SignIn;

    #[test]
    fn a_place_that_is_none_is_named_and_tells_no_secret() {
        let told = |address: &str, sign_in| {
            let access = Access { sign_in, emulator: None };
            Place::open_with(address, &access, &|_| None).unwrap_err().to_string()
        };
        assert!(told("ftp://x/y", SignIn::Auto).contains("neither a folder nor"));
        let signed = told("az://c/x?sig=SECRET", SignIn::Auto);
        assert!(
            signed.contains("secrets come from the environment") && !signed.contains("SECRET"),
            "{signed}"
        );
        for address in [
            "s3://KEY:SECRET@bucket/x",
            "s3://SECRET@bucket/x",
            "s3://KEY:SE/CRET@bucket/x",
            "abfss://c:SECRET@a.dfs.core.windows.net/x",
            "https://KEY:SECRET@host/x",
        ] {
            let told = told(address, SignIn::Auto);
            assert!(!told.contains("CRET") && !told.contains("KEY"), "{told}");
        }
        let cut = told("az:/c/x?sig=SECRET", SignIn::Auto);
        assert!(cut.contains("two slashes after az:") && !cut.contains("SECRET"), "{cut}");
        assert!(told("az://c/x", SignIn::Auto).contains("set AZURE_STORAGE_ACCOUNT_NAME"));
        assert!(told("/data/100%/lake", SignIn::Auto).contains("has no % in its path"));
        assert!(told("file://elsewhere/lake", SignIn::Auto).contains("no folder of this machine"));
        let address = "abfss://c@a.dfs.core.windows.net/bronze";
        assert!(told(address, SignIn::Key).contains("needs AZURE_STORAGE_ACCOUNT_KEY"));
        assert!(told(address, SignIn::Environment).contains("needs AZURE_TENANT_ID"));
    }

    #[test]
    fn a_folder_may_be_named_in_any_way() {
        let shown = |address: &str| Place::open(address, &Access::default()).unwrap().shown().to_owned();
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(real.join("a/b")).unwrap();
        std::os::unix::fs::symlink(real.join("a/b"), real.join("link")).unwrap();
        let (root, here) = (real.display(), std::env::current_dir().unwrap());
        assert_eq!(shown(&format!("{root}/a/../new/./lake")), format!("{root}/new/lake"));
        assert_eq!(shown(&format!("{root}/link/../lake")), format!("{root}/a/lake"), "where the link leads");
        assert_eq!(shown(&format!("{root}/new/../lake")), format!("{root}/lake"));
        assert_eq!(shown("../lake"), here.parent().unwrap().join("lake").display().to_string());
        assert_eq!(shown("file:///data/my%20lake"), "/data/my lake");
        assert_eq!(shown("file://localhost/data/lake"), "/data/lake");
        assert_eq!(shown("what:ever"), here.join("what:ever").display().to_string());
    }

    #[test]
    fn each_kind_of_place_knows_where_its_things_are() {
        let env = |name: &str| (name == "AZURE_STORAGE_ACCOUNT_KEY").then(|| "a2V5".to_owned());
        let check = |address: &str, path: &str, url: &str| {
            let place = Place::open_with(address, &Access::default(), &env).unwrap();
            assert_eq!(place.path("t/x").to_string(), path);
            assert_eq!(place.url().as_str(), url);
            assert_eq!(place.show("x"), format!("{address}/x"));
        };
        check("/data/lake", "data/lake/t/x", "file:///data/lake/");
        let azure = "abfss://c@a.dfs.core.windows.net/bronze";
        check(azure, "bronze/t/x", &format!("{azure}/"));
        check("s3://bucket", "t/x", "s3://bucket/");
    }
}
