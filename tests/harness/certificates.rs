//! Certificates for servers that tests start, and for their clients.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// The certificate of a new authority, and those of a server and of a client that it has signed, in PEM.
#[derive(Debug)]
pub struct Certificates {
    authority: String,
    server: (String, String),
    client: (String, String),
}

impl Certificates {
    /// Makes certificates for a server at these hosts.
    ///
    /// # Panics
    /// If a host is not a name or an address.
    #[track_caller]
    pub fn new(hosts: &[&str]) -> Certificates {
        let key = || KeyPair::generate().expect("keys can be made");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let signing = key();
        let authority = params.self_signed(&signing).expect("the parameters are those of an authority");
        let authority = pem("CERTIFICATE", authority.der());
        let issuer = Issuer::new(params, signing);
        let signed = |hosts: &[&str], usage: &[ExtendedKeyUsagePurpose]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
            let mut params = CertificateParams::new(hosts).expect("each host is a name or an address");
            params.extended_key_usages = usage.to_vec();
            let own = key();
            let certificate = params.signed_by(&own, &issuer).expect("the parameters are those of a peer");
            (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &own.serialize_der()))
        };
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        Certificates {
            authority,
            server: signed(hosts, &[ServerAuth, ClientAuth]), // etcd is a client of itself, too
            client: signed(&["client"], &[ClientAuth]),
        }
    }

    /// The files' names and contents.
    pub fn files(&self) -> [(&'static str, &str); 5] {
        let (server, client) = (&self.server, &self.client);
        [
            ("authority.pem", &self.authority),
            ("server.pem", &server.0),
            ("server-key.pem", &server.1),
            ("client.pem", &client.0),
            ("client-key.pem", &client.1),
        ]
    }

    /// Writes the files into a directory.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn write(&self, dir: &Path) {
        for (name, text) in self.files() {
            std::fs::write(dir.join(name), text).expect("the directory is writable");
        }
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}
