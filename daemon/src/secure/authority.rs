//! The authority of a DVM: a key and a self-signed certificate, which only the head has. It signs the certificates of nodes and
//! users.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use rsd_proto::transport::tls::{name_of_epoch, names_of_node, names_of_user, new_key};
use rsd_proto::transport::token::Fingerprint;
use rsd_proto::v1::{self as wire, Credentials, HeadEpoch};

use crate::disk::state_dir::StateDir;

/// How long certificates are valid. A daemon renews its own in time (see [`renew`](super::renew)).
const NODE_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
const USER_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
/// Certificates are valid from this time before they are made, for peers whose clocks are late.
const SKEW: Duration = Duration::from_secs(600);

/// The authority of a DVM.
#[derive(Debug)]
pub(crate) struct Authority {
    dvm: String,
    key: Bytes,
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
}

/// A new certificate, in DER, and when it is valid, in milliseconds since the Unix epoch.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) certificate: Vec<u8>,
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
}

/// A public key on P-256, as the uncompressed point.
struct Point<'a>(&'a [u8]);

impl PublicKeyData for Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// Returns the authority of this DVM: the stored one, or a new one, which it stores.
    pub(crate) fn open(state_dir: &StateDir, dvm: &str, now_ms: u64) -> anyhow::Result<Authority> {
        if let Some(stored) = state_dir.authority()?.filter(|stored| stored.dvm == dvm) {
            return Authority::stored(&stored).context("read the authority of the DVM");
        }
        let made = Authority::make(dvm, now_ms).context("make the authority of the DVM")?;
        state_dir.write_authority(&made)?;
        Authority::stored(&made)
    }

    /// Returns the authority that was stored, here or by another head.
    pub(crate) fn stored(stored: &wire::Authority) -> anyhow::Result<Authority> {
        let key = KeyPair::try_from(stored.key.to_vec()).context("read its key")?;
        let (dvm, certificate) = (stored.dvm.clone(), stored.certificate.to_vec());
        Ok(Authority { issuer: Issuer::new(params(&dvm), key), key: stored.key.clone(), dvm, certificate })
    }

    fn make(dvm: &str, now_ms: u64) -> anyhow::Result<wire::Authority> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(dvm);
        set_validity(&mut params, before(now_ms, SKEW), now_ms + millis(AUTHORITY_LIFE));
        let certificate = params.self_signed(&key)?.der().to_vec().into();
        Ok(wire::Authority { dvm: dvm.to_owned(), key: key.serialize_der().into(), certificate })
    }

    /// Returns the fingerprint, by which joining daemons recognise the DVM.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Returns what is stored of it, with the key, for a standby.
    pub(crate) fn to_wire(&self) -> wire::Authority {
        let (dvm, key, certificate) = (self.dvm.clone(), self.key.clone(), self.certificate.clone().into());
        wire::Authority { dvm, key, certificate }
    }

    pub(crate) fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    pub(crate) fn dvm(&self) -> &str {
        &self.dvm
    }

    /// Returns new credentials of the head itself.
    pub(crate) fn for_head(&self, now_ms: u64) -> anyhow::Result<Credentials> {
        let (key, public_key) = new_key()?;
        let issued = self.for_node(0, &public_key, now_ms)?;
        Ok(Credentials {
            key: key.into(),
            certificate: issued.certificate.into(),
            authority: self.certificate.clone().into(),
            dvm: self.dvm.clone(),
            node: Some(0),
            from_ms: issued.from_ms,
            until_ms: issued.until_ms,
            ..Credentials::default()
        })
    }

    /// Signs a node's certificate.
    pub(crate) fn for_node(&self, node: u32, public_key: &[u8], now_ms: u64) -> anyhow::Result<Issued> {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(names_of_node(node, &self.dvm), usages, public_key, now_ms, NODE_LIFE)
    }

    /// Signs the certificate of a user on another machine, which no daemon accepts as a daemon's.
    pub(crate) fn for_user(&self, uid: u32, public_key: &[u8], now_ms: u64) -> anyhow::Result<Issued> {
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(names_of_user(uid, &self.dvm), usages, public_key, now_ms, USER_LIFE)
    }

    /// Signs the proof that there is a head with this epoch. Its key is nobody's.
    pub(crate) fn for_epoch(&self, number: u64, now_ms: u64) -> anyhow::Result<HeadEpoch> {
        let (_, public_key) = new_key()?;
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        // Machines whose clocks are wrong must believe it, too.
        let names = vec![name_of_epoch(number, &self.dvm)];
        let issued = self.sign_from(0, names, usages, &public_key, now_ms + millis(AUTHORITY_LIFE))?;
        Ok(HeadEpoch { number, proof: issued.certificate.into() })
    }

    /// Checks that a public key has the only accepted form.
    pub(crate) fn check_key(public_key: &[u8]) -> anyhow::Result<()> {
        ensure!(public_key.len() == 65 && public_key[0] == 4, "the public key is not an uncompressed point on P-256");
        Ok(())
    }

    fn sign(
        &self,
        names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
        public_key: &[u8],
        now_ms: u64,
        life: Duration,
    ) -> anyhow::Result<Issued> {
        self.sign_from(before(now_ms, SKEW), names, usages, public_key, now_ms + millis(life))
    }

    fn sign_from(
        &self,
        from_ms: u64,
        names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
        public_key: &[u8],
        until_ms: u64,
    ) -> anyhow::Result<Issued> {
        Authority::check_key(public_key)?;
        let mut params = CertificateParams::new(names.clone())?;
        params.distinguished_name = called(&names[0]);
        set_validity(&mut params, from_ms, until_ms);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let certificate = params.signed_by(&Point(public_key), &self.issuer)?.der().to_vec();
        Ok(Issued { certificate, from_ms, until_ms })
    }
}

/// What the authority's certificate says, and what it says about itself in the certificates that it signs.
fn params(dvm: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&format!("rsd authority of DVM {dvm}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn before(now_ms: u64, time: Duration) -> u64 {
    now_ms.saturating_sub(millis(time))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn set_validity(params: &mut CertificateParams, from_ms: u64, until_ms: u64) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_millis(from_ms);
    params.not_after = epoch + Duration::from_millis(until_ms);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rsd_proto::transport::Own;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn authority() -> Authority {
        Authority::stored(&Authority::make("00112233445566ff", NOW_MS).unwrap()).unwrap()
    }

    #[test]
    fn an_authority_that_is_read_back_signs_for_the_same_certificate() {
        let made = Authority::make("00112233445566ff", NOW_MS).unwrap();
        let (first, second) = (Authority::stored(&made).unwrap(), Authority::stored(&made).unwrap());
        assert_eq!(first.fingerprint(), second.fingerprint());
        for authority in [first, second] {
            Own::new(&authority.for_head(NOW_MS).unwrap()).expect("the certificate belongs to its key");
        }
    }

    #[test]
    fn certificates_are_valid_from_ten_minutes_ago_for_thirty_days_or_seven() {
        let authority = Arc::new(authority());
        let (_, public_key) = new_key().unwrap();
        let node = authority.for_node(7, &public_key, NOW_MS).unwrap();
        assert_eq!((node.from_ms, node.until_ms), (NOW_MS - 600_000, NOW_MS + 30 * 86_400_000));
        let user = authority.for_user(1000, &public_key, NOW_MS).unwrap();
        assert_eq!((user.from_ms, user.until_ms), (NOW_MS - 600_000, NOW_MS + 7 * 86_400_000));
    }

    #[test]
    fn an_epoch_is_proved_to_the_nodes_of_the_dvm() {
        let now_ms = crate::clock::unix_ms();
        let authority = authority();
        let own = Own::new(&authority.for_head(now_ms).unwrap()).unwrap();
        let other = Authority::stored(&Authority::make("00112233445566ff", now_ms).unwrap()).unwrap();
        assert!(!own.proves(&other.for_epoch(1, now_ms).unwrap()), "another authority");
        assert!(own.proves(&authority.for_epoch(1, now_ms).unwrap()));
    }

    #[test]
    fn a_public_key_of_another_form_is_refused() {
        for key in [&[][..], &[4; 64], &[2; 65], &[4; 66]] {
            assert!(authority().for_node(7, key, NOW_MS).is_err());
        }
    }
}
