//! Whom we trust: TLS 1.2 and later, by rustls with ring.
//!
//! The authorities are Mozilla's, built in, and not the machine's: they are the same on every machine, and there are some in
//! an empty container. Whoever has an authority of their own, of a proxy for example, adds it.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::send_error::SendError;

/// Makes ring the cryptography of whoever in this process asks for none by name. Where several are built in (the lake's
/// libraries bring another), such a one would panic. The first call counts.
pub fn prefer_ring() {
    // It is installed already: by us, or by somebody who knew better.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The client's side of TLS. `extra` are authorities to trust besides the built-in ones, in PEM.
pub(crate) fn client(extra: &[Vec<u8>]) -> Result<ClientConfig, SendError> {
    let wrong = |reason: String| SendError::Setup { reason };
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for pem in extra {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|error| wrong(format!("an authority is not PEM: {error}")))?;
            roots.add(certificate).map_err(|error| wrong(format!("an authority is unusable: {error}")))?;
        }
    }
    // Named here and not installed for the whole process, so that nobody else's choice matters.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| wrong(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
