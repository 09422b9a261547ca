//! TLS on TCP connections: certificates, the names in them, and the rules by which each side recognises the other.
//!
//! Every DVM has its own authority, whose key only the head has. A certificate names its owner:
//!
//! | owner | names |
//! |---|---|
//! | node 7 | `node-7.DVM.rsd.internal`, `node.DVM.rsd.internal` |
//! | uid 1000 on another machine | `user-1000.DVM.rsd.internal` |
//! | nobody: the proof that there is a head with this epoch | `epoch-2.DVM.rsd.internal` |
//!
//! A caller checks the certificate of the daemon that it dials during the handshake. A daemon checks the caller's certificate
//! after the handshake ([`Own::recognise`]), because a refusal can then be a sentence instead of a TLS alert. Until then, and
//! without a valid certificate, the caller is a guest, which may only enroll.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::token::Fingerprint;
use crate::v1::{Credentials, HeadEpoch};

/// The domain of all names in certificates. `internal` is reserved for private use.
const DOMAIN: &str = "rsd.internal";
/// The application protocol.
const ALPN: &[u8] = b"h2";

/// Returns the names in a node's certificate.
pub fn names_of_node(node: u32, dvm: &str) -> Vec<String> {
    vec![Owner::Node(node).name(dvm), any_node(dvm)]
}

/// Returns the names in the certificate of a user on another machine.
pub fn names_of_user(uid: u32, dvm: &str) -> Vec<String> {
    vec![Owner::User(uid).name(dvm)]
}

/// Returns the name in the certificate that proves that there is a head with this epoch.
pub fn name_of_epoch(number: u64, dvm: &str) -> String {
    format!("epoch-{number}.{dvm}.{DOMAIN}")
}

fn any_node(dvm: &str) -> String {
    format!("node.{dvm}.{DOMAIN}")
}

/// The owner of a valid certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A daemon of the DVM, by its node id.
    Node(u32),
    /// A user on another machine, by uid.
    User(u32),
}

impl Owner {
    fn name(self, dvm: &str) -> String {
        match self {
            Owner::Node(node) => format!("node-{node}.{dvm}.{DOMAIN}"),
            Owner::User(uid) => format!("user-{uid}.{dvm}.{DOMAIN}"),
        }
    }

    /// Returns the owner that a name in a certificate denotes.
    fn named(name: &str, dvm: &str) -> Option<Owner> {
        let word = name.strip_suffix(DOMAIN)?.strip_suffix('.')?.strip_suffix(dvm)?.strip_suffix('.')?;
        let peer = match word.split_once('-')? {
            ("node", id) => Owner::Node(id.parse().ok()?),
            ("user", uid) => Owner::User(uid.parse().ok()?),
            _ => return None,
        };
        // One spelling only: `node-07` is not node 7.
        (peer.name(dvm) == name).then_some(peer)
    }
}

/// Why a caller is only a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unrecognised {
    /// No certificate.
    #[error("it has no certificate of this DVM")]
    NoCertificate,
    /// A certificate of another authority.
    #[error("its certificate is of another DVM")]
    Foreign,
    /// A certificate that is no longer valid.
    #[error("its certificate has expired")]
    Expired,
    /// A certificate that is not valid yet.
    #[error("its certificate is not valid yet: compare the clocks of both machines")]
    NotYet,
    /// Any other certificate.
    #[error("its certificate is invalid")]
    Invalid,
}

/// The keys or certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// They do not parse, or do not belong together.
    #[error("invalid key or certificate: {0}")]
    Invalid(#[from] rustls::Error),
    /// The certificate of the authority does not parse.
    #[error("invalid certificate of the authority: {0}")]
    Authority(webpki::Error),
    /// The kernel gives no random bytes.
    #[error("cannot make a key")]
    Random,
}

/// Makes a key; returns it in PKCS #8, and the public key as an uncompressed point.
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn new_key() -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| TlsError::Random)?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).map_err(|_| TlsError::Random)?;
    Ok((document.as_ref().to_vec(), pair.public_key().as_ref().to_vec()))
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider::default_provider().signature_verification_algorithms
}

/// This process's own certificate, which may be renewed while connections use it.
#[derive(Clone)]
pub struct Own(Arc<RwLock<Arc<Configs>>>);

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own(certificate of DVM {})", self.dvm())
    }
}

struct Configs {
    dvm: String,
    anchor: TrustAnchor<'static>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Configs {
    fn of(credentials: &Credentials) -> Result<Configs, TlsError> {
        let authority = CertificateDer::from(credentials.authority.to_vec());
        let anchor = anchor_from_trusted_cert(&authority).map_err(TlsError::Authority)?.to_owned();
        // The authority's certificate is sent too: a joining daemon knows only its fingerprint.
        let chain = vec![CertificateDer::from(credentials.certificate.to_vec()), authority.clone()];
        let key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(credentials.key.to_vec()));
        let mut server = ServerConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(AnyCaller))
            .with_single_cert(chain.clone(), key())?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        // Connections last long, and a resumed one would not show its certificate again.
        server.send_tls13_tickets = 0;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let builder = ClientConfig::builder_with_provider(crypto()).with_protocol_versions(&[&TLS13])?;
        let mut client = builder.with_root_certificates(roots).with_client_auth_cert(chain, key())?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        Ok(Configs { dvm: credentials.dvm.clone(), anchor, client: Arc::new(client), server: Arc::new(server) })
    }
}

impl Own {
    /// Returns a holder of these credentials.
    ///
    /// # Errors
    /// When they do not parse or do not belong together.
    pub fn new(credentials: &Credentials) -> Result<Own, TlsError> {
        Ok(Own(Arc::new(RwLock::new(Arc::new(Configs::of(credentials)?)))))
    }

    /// Uses these credentials for all later connections.
    ///
    /// # Errors
    /// As [`Own::new`]; the previous credentials then stay in use.
    pub fn replace(&self, credentials: &Credentials) -> Result<(), TlsError> {
        let configs = Arc::new(Configs::of(credentials)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = configs;
        Ok(())
    }

    fn configs(&self) -> Arc<Configs> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the DVM of the certificate.
    pub fn dvm(&self) -> String {
        self.configs().dvm.clone()
    }

    /// Returns how to dial a daemon of the DVM: this node, or any node.
    pub fn dialer(&self, node: Option<u32>) -> Dialer {
        let configs = self.configs();
        let name = node.map_or_else(|| any_node(&configs.dvm), |node| Owner::Node(node).name(&configs.dvm));
        Dialer { config: Arc::clone(&configs.client), name: server_name(name) }
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.configs().server)
    }

    /// Returns the owner of the certificate that a caller has shown in a handshake.
    ///
    /// # Errors
    /// Why the caller is only a guest.
    pub(super) fn recognise(&self, shown: Option<&[CertificateDer<'_>]>) -> Result<Owner, Unrecognised> {
        self.recognise_at(shown, UnixTime::now())
    }

    /// Returns whether the authority says that there is a head with this epoch. Epoch 0 needs no proof.
    pub fn proves(&self, epoch: &HeadEpoch) -> bool {
        self.proves_at(epoch, UnixTime::now())
    }

    fn proves_at(&self, epoch: &HeadEpoch, now: UnixTime) -> bool {
        if epoch.number == 0 {
            return true;
        }
        let (configs, proof) = (self.configs(), CertificateDer::from(epoch.proof.to_vec()));
        let Ok(certificate) = EndEntityCert::try_from(&proof) else { return false };
        let (anchors, usage) = (std::slice::from_ref(&configs.anchor), KeyUsage::client_auth());
        let is_signed = certificate.verify_for_usage(algorithms().all, anchors, &[], now, usage, None, None).is_ok();
        let name = name_of_epoch(epoch.number, &configs.dvm);
        is_signed && certificate.valid_dns_names().any(|named| named == name)
    }

    fn recognise_at(&self, shown: Option<&[CertificateDer<'_>]>, now: UnixTime) -> Result<Owner, Unrecognised> {
        let first = shown.and_then(|chain| chain.first()).ok_or(Unrecognised::NoCertificate)?;
        let configs = self.configs();
        let certificate = EndEntityCert::try_from(first).map_err(|_| Unrecognised::Invalid)?;
        let anchors = std::slice::from_ref(&configs.anchor);
        let usage = KeyUsage::client_auth();
        certificate.verify_for_usage(algorithms().all, anchors, &[], now, usage, None, None).map_err(|error| {
            match error {
                webpki::Error::CertExpired { .. } => Unrecognised::Expired,
                webpki::Error::CertNotValidYet { .. } => Unrecognised::NotYet,
                webpki::Error::UnknownIssuer
                | webpki::Error::InvalidSignatureForPublicKey
                | webpki::Error::CaUsedAsEndEntity => Unrecognised::Foreign,
                _ => Unrecognised::Invalid,
            }
        })?;
        let mut peers = certificate.valid_dns_names().filter_map(|name| Owner::named(name, &configs.dvm));
        peers.next().ok_or(Unrecognised::Invalid)
    }
}

fn server_name(name: String) -> ServerName<'static> {
    ServerName::try_from(name).expect("letters, digits, dots and dashes are a valid name")
}

/// How to dial a daemon over TLS: what to show, and what to expect.
#[derive(Debug, Clone)]
pub struct Dialer {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Dialer {
    /// Returns a dialer without a certificate, which accepts the daemons of the authority with this fingerprint.
    ///
    /// # Errors
    /// When the TLS library refuses its settings.
    pub fn of_newcomer(authority: Fingerprint) -> Result<Dialer, TlsError> {
        let builder = ClientConfig::builder_with_provider(crypto()).with_protocol_versions(&[&TLS13])?;
        let verifier = Arc::new(Pinned { authority });
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        Ok(Dialer { config: Arc::new(config), name: server_name(DOMAIN.to_owned()) })
    }
}

/// The methods by which both kinds of verifier check that a peer has the key of its certificate.
macro_rules! tls13_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("TLS 1.3 only".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls13_signature(message, certificate, signature, &algorithms())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            algorithms().supported_schemes()
        }
    };
}

/// The check of a newcomer: the daemon's certificate is signed by the authority with this fingerprint, for a server. Only nodes get
/// such certificates.
#[derive(Debug)]
struct Pinned {
    authority: Fingerprint,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let invalid = |error: webpki::Error| match error {
            webpki::Error::CertExpired { .. } => CertificateError::Expired.into(),
            webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet.into(),
            error => rustls::Error::from(CertificateError::Other(OtherError(Arc::new(error)))),
        };
        let authority = intermediates.iter().find(|shown| Fingerprint::of(shown) == self.authority);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        let anchor = anchor_from_trusted_cert(authority).map_err(invalid)?;
        let certificate = EndEntityCert::try_from(end_entity).map_err(invalid)?;
        let usage = KeyUsage::server_auth();
        certificate.verify_for_usage(algorithms().all, &[anchor], &[], now, usage, None, None).map_err(invalid)?;
        Ok(ServerCertVerified::assertion())
    }

    tls13_signatures!();
}

/// The server's check during the handshake: the caller may show any certificate, and must have its key. [`Own::recognise`] decides
/// after the handshake whose certificate it is.
#[derive(Debug)]
struct AnyCaller;

impl ClientCertVerifier for AnyCaller {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    tls13_signatures!();
}

/// Why the program at a dialled address is not trusted. The text follows "cannot reach the daemon at X: ".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Its certificate is of another authority.
    #[error(
        "the daemon there does not belong to this DVM: its certificate is of another authority; to join its DVM, use a token \
         that its head has made: rsd token new"
    )]
    Foreign,
    /// It is another daemon of the DVM.
    #[error("the daemon there is another node of the DVM than the expected one")]
    OtherNode,
    /// Its certificate has expired or is not valid yet.
    #[error("the certificate of the daemon there is not valid now: compare the clocks of both machines")]
    NotNow,
    /// It has refused the handshake.
    #[error("the program there has refused the TLS connection: use programs of one release")]
    Refused,
    /// It does not speak TLS, or another kind.
    #[error("the program there does not speak TLS as rsd does: check the address, and use programs of one release")]
    NoTls,
}

impl Distrust {
    /// Returns why a handshake failed; None if the connection broke.
    pub(super) fn of(error: &std::io::Error) -> Option<Distrust> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Distrust::OtherNode,
            rustls::Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => Distrust::NotNow,
            rustls::Error::InvalidCertificate(_) => Distrust::Foreign,
            rustls::Error::AlertReceived(_) => Distrust::Refused,
            _ => Distrust::NoTls,
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
        PublicKeyData, SignatureAlgorithm, date_time_ymd,
    };

    use super::*;

    const DVM: &str = "00112233445566ff";
    const DAY: u64 = 86_400;

    /// Returns a time, in days from a fixed one.
    fn day(number: u64) -> UnixTime {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs((20_000 + number) * DAY))
    }

    struct Authority(CertifiedIssuer<'static, rcgen::KeyPair>);

    struct Point(Vec<u8>);

    impl PublicKeyData for Point {
        fn der_bytes(&self) -> &[u8] {
            &self.0
        }
        fn algorithm(&self) -> &'static SignatureAlgorithm {
            &rcgen::PKCS_ECDSA_P256_SHA256
        }
    }

    impl Authority {
        fn new() -> Authority {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            Authority(CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap())
        }

        /// Credentials that are valid from day 10 to day 40.
        fn sign(&self, names: Vec<String>, usages: &[ExtendedKeyUsagePurpose]) -> Credentials {
            let (key, public_key) = new_key().unwrap();
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages = usages.to_vec();
            let at = |number| date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(day(number).as_secs());
            (params.not_before, params.not_after) = (at(10), at(40));
            let certificate = params.signed_by(&Point(public_key), &self.0).unwrap();
            Credentials {
                key: key.into(),
                certificate: certificate.der().to_vec().into(),
                authority: self.0.der().to_vec().into(),
                dvm: DVM.into(),
                ..Credentials::default()
            }
        }

        fn node(&self, node: u32) -> Credentials {
            let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            self.sign(names_of_node(node, DVM), &both)
        }

        fn user(&self, uid: u32) -> Credentials {
            self.sign(names_of_user(uid, DVM), &[ExtendedKeyUsagePurpose::ClientAuth])
        }
    }

    fn shown(credentials: &Credentials) -> [CertificateDer<'static>; 1] {
        [CertificateDer::from(credentials.certificate.to_vec())]
    }

    #[test]
    fn a_caller_is_recognised_by_a_certificate_that_is_valid_now() {
        let authority = Authority::new();
        let own = Own::new(&authority.node(0)).unwrap();
        let node = shown(&authority.node(7));
        assert_eq!(own.recognise_at(Some(&node), day(20)), Ok(Owner::Node(7)));
        assert_eq!(own.recognise_at(Some(&shown(&authority.user(1000))), day(20)), Ok(Owner::User(1000)));
        assert_eq!(own.recognise_at(Some(&node), day(9)), Err(Unrecognised::NotYet));
        assert_eq!(own.recognise_at(Some(&node), day(41)), Err(Unrecognised::Expired));
        assert_eq!(own.recognise_at(None, day(20)), Err(Unrecognised::NoCertificate));
        assert_eq!(own.recognise_at(Some(&[]), day(20)), Err(Unrecognised::NoCertificate));
        assert_eq!(own.recognise_at(Some(&shown(&Authority::new().node(7))), day(20)), Err(Unrecognised::Foreign));
        let garbage = [CertificateDer::from(b"no certificate".to_vec())];
        assert_eq!(own.recognise_at(Some(&garbage), day(20)), Err(Unrecognised::Invalid));
    }

    #[test]
    fn a_certificate_without_a_known_name_or_for_servers_only_recognises_nobody() {
        let authority = Authority::new();
        let own = Own::new(&authority.node(0)).unwrap();
        let client = [ExtendedKeyUsagePurpose::ClientAuth];
        for name in ["node.00112233445566ff.rsd.internal", "node-7.ffffffffffffffff.rsd.internal", "node-7.example"] {
            let credentials = authority.sign(vec![name.into()], &client);
            assert_eq!(own.recognise_at(Some(&shown(&credentials)), day(20)), Err(Unrecognised::Invalid), "{name}");
        }
        let server = authority.sign(names_of_node(7, DVM), &[ExtendedKeyUsagePurpose::ServerAuth]);
        assert_eq!(own.recognise_at(Some(&shown(&server)), day(20)), Err(Unrecognised::Invalid));
    }

    #[test]
    fn an_epoch_is_proved_only_by_the_authority_and_only_that_one() {
        let authority = Authority::new();
        let own = Own::new(&authority.node(7)).unwrap();
        let client = [ExtendedKeyUsagePurpose::ClientAuth];
        let proof = |authority: &Authority, name: String| authority.sign(vec![name], &client).certificate;
        let of = |number, proof| HeadEpoch { number, proof };
        let two = proof(&authority, name_of_epoch(2, DVM));
        assert!(own.proves_at(&of(2, two.clone()), day(20)));
        assert!(own.proves_at(&HeadEpoch::default(), day(20)), "the first head");
        assert!(!own.proves_at(&of(3, two), day(20)), "another epoch");
        assert!(!own.proves_at(&of(2, proof(&Authority::new(), name_of_epoch(2, DVM))), day(20)), "another authority");
        assert!(
            !own.proves_at(&of(2, proof(&authority, name_of_epoch(2, "ffffffffffffffff"))), day(20)),
            "another DVM"
        );
        assert!(!own.proves_at(&of(2, authority.node(2).certificate), day(20)), "a node's certificate");
        assert!(!own.proves_at(&of(2, "garbage".into()), day(20)));
        let shown = [CertificateDer::from(proof(&authority, name_of_epoch(2, DVM)).to_vec())];
        assert_eq!(own.recognise_at(Some(&shown), day(20)), Err(Unrecognised::Invalid), "a proof opens nothing");
    }

    #[test]
    fn a_newcomer_accepts_only_daemons_of_the_authority_with_the_fingerprint() {
        let (authority, other) = (Authority::new(), Authority::new());
        let newcomer = Pinned { authority: Fingerprint::of(authority.0.der()) };
        let accepts = |leaf: &Credentials, sent: &Authority, now| {
            let name = server_name(DOMAIN.into());
            newcomer.verify_server_cert(&shown(leaf)[0], &[sent.0.der().clone()], &name, &[], now).is_ok()
        };
        assert!(accepts(&authority.node(0), &authority, day(20)));
        assert!(accepts(&authority.node(7), &authority, day(20)), "any node may forward");
        assert!(!accepts(&authority.user(1000), &authority, day(20)), "a user is not a daemon");
        assert!(!accepts(&authority.node(0), &authority, day(41)));
        assert!(!accepts(&other.node(0), &other, day(20)), "another fingerprint");
        assert!(!accepts(&other.node(0), &authority, day(20)), "an authority that did not sign");
    }

    #[test]
    fn credentials_that_do_not_belong_together_are_refused() {
        let authority = Authority::new();
        let (one, two) = (authority.node(1), authority.node(2));
        assert!(Own::new(&Credentials { key: two.key, ..one.clone() }).is_err());
        assert!(Own::new(&Credentials { authority: "no certificate".into(), ..one.clone() }).is_err());
        let own = Own::new(&one).unwrap();
        assert!(own.replace(&Credentials::default()).is_err());
        assert_eq!(own.dvm(), DVM, "the previous ones stay in use");
    }

    #[test]
    fn a_name_has_one_spelling() {
        assert_eq!(Owner::named("node-7.00112233445566ff.rsd.internal", DVM), Some(Owner::Node(7)));
        for name in ["node-07", "node-+7", "node-4294967296", "user-", "head-0", "node-7.x"] {
            assert_eq!(Owner::named(&format!("{name}.{DVM}.{DOMAIN}"), DVM), None, "{name}");
        }
    }
}
