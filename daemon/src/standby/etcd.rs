//! What etcd has about the head of a DVM, below PREFIX/ID-OF-THE-DVM/.
//!
//! ```text
//! head         {"epoch":1,"name":"node3-head","listen":"10.0.0.3:7817"}   under the head's lease
//! epoch        {"epoch":1,"proof":"…"}                                   the highest epoch, with its proof
//! candidates   {"epoch":1,"nodes":[4,7]}                                 standbys that may take over from the head of this epoch
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use rsd_config::settings;
use rsd_core::NodeId;
use rsd_core::lease::Stored;
use rsd_proto::etcd::{Access, Etcd, EtcdError, Is, User};
use rsd_proto::v1::HeadEpoch;
use serde::{Deserialize, Serialize};

/// The shortest lease: with less, an ordinary delay would end it.
const LEASE_MIN: Duration = Duration::from_secs(3);
/// Into how many parts a lease is divided: it is renewed, and an answer must come, within one of them.
pub(super) const PARTS: u32 = 5;

/// The keys of a DVM in etcd.
#[derive(Debug)]
pub(crate) struct Store {
    access: Access,
    etcd: Option<Etcd>,
    head: Vec<u8>,
    epoch: Vec<u8>,
    candidates: Vec<u8>,
    /// Where they begin, and the first key behind them.
    begin: Vec<u8>,
    end: Vec<u8>,
    /// How long a lease lasts.
    pub(crate) lasts: Duration,
}

/// The keys as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct View {
    head: Option<(HeadKey, i64)>,
    epoch: Option<(EpochKey, i64)>,
    candidates: Option<(CandidatesKey, i64)>,
}

/// Who the head is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadKey {
    pub(crate) epoch: u64,
    pub(crate) name: String,
    pub(crate) listen: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EpochKey {
    epoch: u64,
    /// In hexadecimal.
    proof: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CandidatesKey {
    epoch: u64,
    nodes: BTreeSet<NodeId>,
}

impl View {
    pub(crate) fn stored(&self) -> Stored {
        Stored {
            head: self.head.as_ref().map(|(head, _)| head.epoch),
            epoch: self.epoch.as_ref().map(|(epoch, _)| epoch.epoch),
            candidates: self.candidates.as_ref().map(|(named, _)| (named.epoch, named.nodes.clone())),
        }
    }

    /// The highest epoch, with its proof.
    pub(crate) fn epoch(&self) -> HeadEpoch {
        let Some((EpochKey { epoch, proof }, _)) = &self.epoch else { return HeadEpoch::default() };
        HeadEpoch { number: *epoch, proof: from_hex(proof).unwrap_or_default().into() }
    }

    pub(crate) fn head(&self) -> Option<&HeadKey> {
        self.head.as_ref().map(|(head, _)| head)
    }
}

impl Store {
    /// Returns the keys of this DVM; None: the settings name no etcd.
    ///
    /// # Errors
    /// When the settings are wrong.
    pub(crate) fn of(settings: &settings::Head, dvm: &str) -> anyhow::Result<Option<Store>> {
        let settings::Head {
            etcd: servers,
            etcd_prefix,
            lease,
            etcd_user,
            etcd_password_file,
            etcd_authority,
            etcd_certificate,
            etcd_key,
        } = settings;
        if servers.is_empty() {
            return Ok(None);
        }
        ensure!(*lease >= LEASE_MIN, "head.lease is {lease:?}: at least {LEASE_MIN:?}");
        let user = match (etcd_user, etcd_password_file) {
            (None, None) => None,
            (Some(user), Some(file)) => {
                let read = fs::read_to_string(file).with_context(|| format!("head.etcd_password_file: read {file}"))?;
                Some(User { name: user.clone(), password: read.trim_end_matches(['\r', '\n']).to_owned() })
            }
            (Some(_), None) => anyhow::bail!("head.etcd_user needs head.etcd_password_file"),
            (None, Some(_)) => anyhow::bail!("head.etcd_password_file needs head.etcd_user"),
        };
        let own = match (etcd_certificate, etcd_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((Path::new(certificate), Path::new(key))),
            _ => anyhow::bail!("head.etcd_certificate and head.etcd_key belong together: set both, or neither"),
        };
        let access = Access::new(servers, user, etcd_authority.as_deref().map(Path::new), own, *lease / PARTS)?;
        let begin = format!("{}/{dvm}/", etcd_prefix.trim_end_matches('/'));
        let key = |name: &str| format!("{begin}{name}").into_bytes();
        // The slash is followed by '0'.
        let end = format!("{}0", begin.trim_end_matches('/')).into_bytes();
        let (head, epoch, candidates) = (key("head"), key("epoch"), key("candidates"));
        Ok(Some(Store { access, etcd: None, head, epoch, candidates, begin: begin.into_bytes(), end, lasts: *lease }))
    }

    /// Returns where the keys are.
    pub(crate) fn place(&self) -> String {
        String::from_utf8_lossy(&self.begin).into_owned()
    }

    async fn etcd(&mut self) -> Result<&mut Etcd, EtcdError> {
        if self.etcd.is_none() {
            self.etcd = Some(self.access.connect().await?);
        }
        self.etcd.as_mut().ok_or_else(|| EtcdError::Unreachable("it is not connected".into()))
    }

    /// Drops the connection after a failure: the next call may find another server.
    fn checked<T>(&mut self, done: Result<T, EtcdError>) -> Result<T, EtcdError> {
        if done.is_err() {
            self.etcd = None;
        }
        done
    }

    /// Returns the keys as they are now.
    pub(crate) async fn view(&mut self) -> Result<View, EtcdError> {
        let (begin, end) = (self.begin.clone(), self.end.clone());
        let found = self.etcd().await?.keys(&begin, &end).await;
        let mut view = View::default();
        for stored in self.checked(found)? {
            let unreadable = || {
                let key = String::from_utf8_lossy(&stored.key).into_owned();
                EtcdError::Setting(format!(
                    "etcd has a value under {key} that is not of rsd: use another head.etcd_prefix"
                ))
            };
            let revision = stored.revision;
            if stored.key == self.head {
                view.head = Some((serde_json::from_slice(&stored.value).map_err(|_| unreadable())?, revision));
            } else if stored.key == self.epoch {
                view.epoch = Some((serde_json::from_slice(&stored.value).map_err(|_| unreadable())?, revision));
            } else if stored.key == self.candidates {
                view.candidates = Some((serde_json::from_slice(&stored.value).map_err(|_| unreadable())?, revision));
            }
        }
        Ok(view)
    }

    /// Makes this the head under a new lease, if nothing has changed since `view`: with this epoch, and these candidates if they are to be
    /// others. Returns the lease; None: something has changed.
    pub(crate) async fn take(
        &mut self,
        view: &View,
        head: &HeadKey,
        epoch: &HeadEpoch,
        candidates: Option<&BTreeSet<NodeId>>,
    ) -> Result<Option<i64>, EtcdError> {
        let lasts = self.lasts;
        let granted = self.etcd().await?.grant(lasts).await;
        let lease = self.checked(granted)?;
        let revision = |of: Option<i64>| Is::Changed(of.unwrap_or(0));
        let keys = [self.head.clone(), self.epoch.clone(), self.candidates.clone()];
        let conditions = [
            (keys[0].as_slice(), revision(view.head.as_ref().map(|(_, revision)| *revision))),
            (keys[1].as_slice(), revision(view.epoch.as_ref().map(|(_, revision)| *revision))),
            (keys[2].as_slice(), revision(view.candidates.as_ref().map(|(_, revision)| *revision))),
        ];
        let number = EpochKey { epoch: epoch.number, proof: to_hex(&epoch.proof) };
        let mut puts = vec![(keys[0].as_slice(), json(head), lease), (keys[1].as_slice(), json(&number), 0)];
        if let Some(nodes) = candidates {
            let named = CandidatesKey { epoch: epoch.number, nodes: nodes.clone() };
            puts.push((keys[2].as_slice(), json(&named), 0));
        }
        let done = self.etcd().await?.commit(&conditions, &puts).await;
        let done = self.checked(done)?;
        if !done {
            self.revoke(lease).await;
        }
        Ok(done.then_some(lease))
    }

    /// Renews the lease. Returns whether the head's key is still under it.
    pub(crate) async fn renew(&mut self, lease: i64) -> Result<bool, EtcdError> {
        let renewed = self.etcd().await?.keep_alive(lease).await;
        Ok(self.checked(renewed)? && self.commit(lease, &[]).await?)
    }

    /// Names the standbys that may take over, if the head's key is under this lease. Returns whether it is.
    pub(crate) async fn name(&mut self, lease: i64, epoch: u64, nodes: &BTreeSet<NodeId>) -> Result<bool, EtcdError> {
        let named = CandidatesKey { epoch, nodes: nodes.clone() };
        let key = self.candidates.clone();
        self.commit(lease, &[(key.as_slice(), json(&named), 0)]).await
    }

    async fn commit(&mut self, lease: i64, puts: &[(&[u8], Vec<u8>, i64)]) -> Result<bool, EtcdError> {
        let head = self.head.clone();
        let done = self.etcd().await?.commit(&[(head.as_slice(), Is::Leased(lease))], puts).await;
        self.checked(done)
    }

    /// Ends a lease, as far as etcd can be reached.
    pub(crate) async fn revoke(&mut self, lease: i64) {
        if let Ok(etcd) = self.etcd().await {
            let _ = etcd.revoke(lease).await; // it ends by itself, too
        }
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings and numbers are JSON")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_hexadecimal() {
        assert_eq!(from_hex(&to_hex(&[0, 1, 0xab, 0xff])), Some(vec![0, 1, 0xab, 0xff]));
        assert_eq!((from_hex("0"), from_hex("0g")), (None, None));
    }
}
