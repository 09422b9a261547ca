//! How the user is admitted at a host: with the agent's keys, then with those in files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{MethodKind, MethodSet};
use tokio::time::timeout;

use crate::config::{Here, Settings};
use crate::error::SshError;
use crate::keys::{self, KeyFile, Keys};
use crate::session::Watcher;

/// How long the agent may take to sign: the user may have to confirm the use of the key, or to touch a token.
const AGENT: Duration = Duration::from_secs(120);

/// One attempt to be admitted.
pub(crate) struct Login<'a> {
    settings: &'a Settings,
    here: &'a Here,
    keys: &'a Keys,
    /// The deadline for each step.
    deadline: Duration,
    handle: &'a mut Handle<Watcher>,
    /// What was offered or could not be, for the error.
    tried: Vec<String>,
    /// Whether the user has typed a passphrase.
    asked: bool,
}

/// Reports that the server would accept a key, by refusing to sign with it.
struct WouldAccept;

/// The refusal of [`WouldAccept`], or a lost connection.
enum Probed {
    Accepted,
    Lost,
}

impl From<russh::SendError> for Probed {
    fn from(_: russh::SendError) -> Probed {
        Probed::Lost
    }
}

impl russh::Signer for WouldAccept {
    type Error = Probed;

    async fn auth_sign(&mut self, _: &AgentIdentity, _: Option<HashAlg>, _: Vec<u8>) -> Result<Vec<u8>, Probed> {
        Err(Probed::Accepted)
    }
}

impl<'a> Login<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        here: &'a Here,
        keys: &'a Keys,
        deadline: Duration,
        handle: &'a mut Handle<Watcher>,
    ) -> Login<'a> {
        Login { settings, here, keys, deadline, handle, tried: Vec::new(), asked: false }
    }

    /// Whether the user has typed a passphrase.
    pub(crate) fn asked(&self) -> bool {
        self.asked
    }

    /// Offers keys until one is accepted.
    pub(crate) async fn run(&mut self) -> Result<(), SshError> {
        let user = self.settings.user.clone();
        let first = in_time(self.deadline, self.handle.authenticate_none(user)).await?;
        let methods = match first {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure { remaining_methods, .. } => remaining_methods,
        };
        if !methods.contains(&MethodKind::PublicKey) {
            let why = format!("the server accepts only {}, and rsctl uses only keys", shown(&methods));
            return Err(self.not_admitted(why));
        }
        if self.with_agent().await? || self.with_files().await? {
            return Ok(());
        }
        let why = match self.tried.is_empty() {
            true => format!(
                "there is no key to offer: no agent, and none of {} exists",
                list(self.settings.identity_files.iter().map(|file| file.display()))
            ),
            false => format!("tried {}", self.tried.join("; ")),
        };
        Err(self.not_admitted(why))
    }

    /// Offers the agent's keys. Returns whether one was accepted.
    async fn with_agent(&mut self) -> Result<bool, SshError> {
        let Some(mut agent) = keys::agent(self.settings, self.here).await else { return Ok(false) };
        let named: Vec<PublicKey> =
            self.settings.identity_files.iter().filter_map(|file| self.public_of(file)).collect();
        let listed = keys::identities(&mut agent, &named, self.settings.identities_only);
        let identities = timeout(self.deadline, listed).await.unwrap_or_default();
        for identity in identities {
            let (user, key) = (self.settings.user.clone(), identity.public_key().into_owned());
            let Some(hash) = self.hash_for(&key).await? else { continue };
            let name = format!("the agent's {} ({})", keys::shown(&key), identity.comment());
            let offer = async {
                match &identity {
                    AgentIdentity::PublicKey { .. } => {
                        self.handle.authenticate_publickey_with(user, key, hash, &mut agent).await
                    }
                    AgentIdentity::Certificate { certificate, .. } => {
                        self.handle.authenticate_certificate_with(user, certificate.clone(), hash, &mut agent).await
                    }
                }
            };
            // The connection waits for a signature that may still come, so no other key can be offered on it.
            let slow = |_| SshError::TimedOut { doing: format!("authentication with {name}"), after: AGENT };
            match timeout(AGENT, offer).await.map_err(slow)? {
                Ok(result) => {
                    if self.counts(result, &name)? {
                        return Ok(true);
                    }
                }
                Err(error) => self.tried.push(format!("{name}: the agent: {error}")),
            }
            self.check_open()?;
        }
        Ok(false)
    }

    /// Offers the keys in files. Returns whether one was accepted.
    async fn with_files(&mut self) -> Result<bool, SshError> {
        for path in self.settings.identity_files.clone() {
            let key = match keys::read(&path, self.here) {
                Ok(None) => continue,
                Ok(Some(KeyFile::Open(key))) => key,
                Ok(Some(KeyFile::Locked(public))) => match self.unlocked(&path, public).await? {
                    Some(key) => key,
                    None => continue,
                },
                Err(why) => {
                    self.tried.push(why);
                    continue;
                }
            };
            let Some(hash) = self.hash_for(key.public_key()).await? else { continue };
            let (user, name) =
                (self.settings.user.clone(), format!("{} ({})", path.display(), keys::type_of(key.public_key())));
            let key = PrivateKeyWithHashAlg::new(key, hash);
            let result = in_time(self.deadline, self.handle.authenticate_publickey(user, key)).await?;
            if self.counts(result, &name)? {
                return Ok(true);
            }
            self.check_open()?;
        }
        Ok(false)
    }

    /// Asks for the passphrase of a key, if the server would accept the key.
    async fn unlocked(&mut self, path: &Path, public: Option<PublicKey>) -> Result<Option<Arc<PrivateKey>>, SshError> {
        if let Some(public) = public {
            let Some(hash) = self.hash_for(&public).await? else { return Ok(None) };
            let user = self.settings.user.clone();
            let mut signer = WouldAccept;
            let probe = self.handle.authenticate_publickey_with(user, public, hash, &mut signer);
            match timeout(self.deadline, probe).await {
                Ok(Err(Probed::Accepted)) => {}
                Ok(Err(Probed::Lost)) => return Err(self.closed()),
                Ok(Ok(result)) => {
                    let name = format!("{} (locked)", path.display());
                    self.counts(result, &name)?;
                    self.check_open()?;
                    return Ok(None);
                }
                Err(_) => return Err(self.slow()),
            }
        }
        match self.keys.unlock(path, self.settings.batch).await {
            Ok(key) => {
                self.asked = true;
                Ok(Some(key))
            }
            Err(why) => {
                self.tried.push(why);
                Ok(None)
            }
        }
    }

    /// Takes an answer to an offered key. Returns whether the user is admitted.
    fn counts(&mut self, result: AuthResult, name: &str) -> Result<bool, SshError> {
        match result {
            AuthResult::Success => Ok(true),
            AuthResult::Failure { partial_success: true, remaining_methods } => {
                let why = format!("{name} is accepted, but the server also wants {}", shown(&remaining_methods));
                Err(self.not_admitted(why))
            }
            AuthResult::Failure { .. } => {
                self.tried.push(name.to_owned());
                Ok(false)
            }
        }
    }

    /// Returns the hash with which a key signs; None: the server accepts the key only with SHA-1.
    async fn hash_for(&mut self, key: &PublicKey) -> Result<Option<Option<HashAlg>>, SshError> {
        if !matches!(key.algorithm(), Algorithm::Rsa { .. }) {
            return Ok(Some(None));
        }
        let best = in_time(self.deadline, self.handle.best_supported_rsa_hash()).await?;
        // A server that does not say what it supports is old, but all that are left know SHA-2.
        Ok(match best {
            None => Some(Some(HashAlg::Sha256)),
            Some(Some(hash)) => Some(Some(hash)),
            Some(None) => {
                self.tried.push("an RSA key, which the server accepts only with SHA-1".into());
                None
            }
        })
    }

    /// Returns the public part of a key file, without a passphrase.
    fn public_of(&self, path: &Path) -> Option<PublicKey> {
        match keys::read(path, self.here) {
            Ok(Some(KeyFile::Open(key))) => Some(key.public_key().clone()),
            Ok(Some(KeyFile::Locked(Some(public)))) => Some(public),
            Ok(Some(KeyFile::Locked(None)) | None) | Err(_) => keys::public_beside(path),
        }
    }

    /// Fails if the server has closed the connection, as it does after too many keys.
    fn check_open(&self) -> Result<(), SshError> {
        if !self.handle.is_closed() {
            return Ok(());
        }
        match self.tried.len() {
            0 | 1 => Err(self.closed()),
            _ => Err(self.not_admitted(format!(
                "the server closed the connection after these keys: {}; name the right one in ~/.ssh/config: IdentityFile and \
                 IdentitiesOnly yes",
                self.tried.join("; ")
            ))),
        }
    }

    fn closed(&self) -> SshError {
        SshError::Closed { doing: "authentication".into() }
    }

    fn slow(&self) -> SshError {
        SshError::TimedOut { doing: "authentication".into(), after: self.deadline }
    }

    fn not_admitted(&self, why: String) -> SshError {
        SshError::NotAdmitted { user: self.settings.user.clone(), why }
    }
}

fn shown(methods: &MethodSet) -> String {
    list(methods.iter().map(<&'static str>::from))
}

fn list(items: impl Iterator<Item = impl std::fmt::Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Performs a step of the protocol within its deadline.
async fn in_time<T>(after: Duration, step: impl Future<Output = Result<T, russh::Error>>) -> Result<T, SshError> {
    let done = timeout(after, step).await;
    let done = done.map_err(|_| SshError::TimedOut { doing: "authentication".into(), after })?;
    done.map_err(|error| SshError::of_protocol("authentication", error))
}
