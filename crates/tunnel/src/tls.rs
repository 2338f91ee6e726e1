//! Datagrams between a client and its relay over TLS, for links that let nothing else through than HTTPS.
//!
//! What goes through is what else would go by UDP: encrypted, and with who sent it proved, by the peers and by client and relay. TLS
//! is there to look like what firewalls let pass, and is asked for nothing else: the relay makes itself a certificate at each
//! start, and the client takes any. Who sits in between sees and may drop what anybody on a path by UDP does.
//!
//! Neither the relay nor the tunnel knows of it. At each end a thread carries datagrams between one TCP connection per path and a
//! UDP socket on the loopback interface, where the tunnel finds its relay (`daemon/tls.rs`) and the relay its clients
//! (`relay_daemon/tls.rs`).
//! [`frames`] is what goes over the wire. The last datagrams wait in that socket while TCP takes no more, and what does
//! not fit is dropped, as by any link: the path's controller sees the queue and the loss.

pub mod frames;
pub mod pump;

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, crypto::CryptoProvider,
};

/// Takes any certificate.
#[derive(Debug)]
struct Anybody(CryptoProvider);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Of all connections of a client.
///
/// # Errors
/// The library refuses.
pub fn client_config() -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?;
    let verifier = Arc::new(Anybody(default_provider()));
    Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Of all connections of a relay, with a key and a certificate that nobody else has.
///
/// # Errors
/// There is no randomness.
pub fn server_config() -> io::Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let config = builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    Ok(Arc::new(config.map_err(io::Error::other)?))
}
