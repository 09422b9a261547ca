//! The user's keys: those of the agent, then those in files. A passphrase is asked for at most once, for all connections.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PublicKey, decode_secret_key, load_public_key};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::config::{Agent, Here, Settings};
use crate::terminal;

/// How often a passphrase may be wrong.
const ATTEMPTS: usize = 3;

/// The keys in files that have been unlocked, for all connections.
#[derive(Debug, Default)]
pub struct Keys {
    unlocked: Mutex<HashMap<PathBuf, Result<Arc<PrivateKey>, String>>>,
    asking: AtomicBool,
}

/// A private key in a file.
#[derive(Debug)]
pub(crate) enum KeyFile {
    /// It can be used.
    Open(Arc<PrivateKey>),
    /// It needs a passphrase. The public key is known if the file, or the one with `.pub` beside it, has it in the clear.
    Locked(Option<PublicKey>),
}

impl Keys {
    /// Whether the user is being asked for a passphrase, so that nothing else may be written to the terminal.
    pub fn asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed)
    }

    /// Returns the key of a locked file. Asks for its passphrase, unless this has been done before. Err: why there is none.
    pub(crate) async fn unlock(&self, path: &Path, batch: bool) -> Result<Arc<PrivateKey>, String> {
        // Held while the user types: other connections wait for the answer.
        let mut unlocked = self.unlocked.lock().await;
        if let Some(known) = unlocked.get(path) {
            return known.clone();
        }
        if batch || !terminal::is_there() {
            let shown = path.display();
            return Err(format!(
                "{shown} needs a passphrase, which cannot be asked for here: add it to your agent: ssh-add {shown}"
            ));
        }
        self.asking.store(true, Ordering::Relaxed);
        let file = path.to_owned();
        let asked = tokio::task::spawn_blocking(move || ask(&file)).await;
        self.asking.store(false, Ordering::Relaxed);
        let key = asked.unwrap_or_else(|error| Err(error.to_string()));
        unlocked.insert(path.to_owned(), key.clone());
        key
    }
}

fn ask(path: &Path) -> Result<Arc<PrivateKey>, String> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    for attempt in 0..ATTEMPTS {
        let again = if attempt == 0 { "" } else { "wrong passphrase; " };
        let answer = terminal::ask(&format!("{again}passphrase for {shown}: "));
        let Some(passphrase) = answer.map_err(|error| format!("cannot ask for the passphrase of {shown}: {error}"))?
        else {
            return Err(format!("no passphrase given for {shown}"));
        };
        if let Ok(key) = decode_secret_key(&text, Some(&passphrase)) {
            return Ok(Arc::new(key));
        }
    }
    Err(format!("wrong passphrase for {shown}"))
}

/// Reads a key file. None: it does not exist. Err: why it cannot be used.
pub(crate) fn read(path: &Path, here: &Here) -> Result<Option<KeyFile>, String> {
    let shown = path.display();
    let failed = |error: io::Error| format!("{shown}: {error}");
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if meta.uid() == here.uid && meta.mode() & 0o077 != 0 {
        return Err(format!("{shown}: other users can read it, so it is not used: chmod 600 {shown}"));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    if text.lines().any(|line| line.contains("ENCRYPTED")) {
        return Ok(Some(KeyFile::Locked(public_beside(path))));
    }
    if let Ok(key) = PrivateKey::from_openssh(text.trim_start())
        && key.is_encrypted()
    {
        return Ok(Some(KeyFile::Locked(Some(key.public_key().clone()))));
    }
    let key = decode_secret_key(&text, None).map_err(|error| format!("{shown}: not a private key: {error}"))?;
    match key.algorithm() {
        Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256 => {
            Err(format!("{shown}: keys on security tokens work only through the agent: ssh-add {shown}"))
        }
        _ => Ok(Some(KeyFile::Open(Arc::new(key)))),
    }
}

/// Returns the public key in the file with `.pub` beside a private key, or in the file itself if that is a public key.
pub(crate) fn public_beside(path: &Path) -> Option<PublicKey> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    load_public_key(beside).ok().or_else(|| load_public_key(path).ok())
}

/// A connection to the agent.
pub(crate) type Client = AgentClient<UnixStream>;

/// Connects to the user's agent. None: there is none.
pub(crate) async fn agent(settings: &Settings, here: &Here) -> Option<Client> {
    let socket = match &settings.agent {
        Agent::None => return None,
        Agent::At(path) => path.clone(),
        Agent::Variable => (here.variable)("SSH_AUTH_SOCK")?.into(),
    };
    AgentClient::connect_uds(socket).await.ok()
}

/// Returns the agent's keys in the order in which they are offered: first those that the configuration names, then all others unless
/// only the named ones may be offered.
pub(crate) async fn identities(client: &mut Client, named: &[PublicKey], only: bool) -> Vec<AgentIdentity> {
    let mut identities = client.request_identities().await.unwrap_or_default();
    let place =
        |identity: &AgentIdentity| named.iter().position(|key| key.key_data() == identity.public_key().key_data());
    if only {
        identities.retain(|identity| place(identity).is_some());
    }
    identities.sort_by_key(|identity| place(identity).unwrap_or(usize::MAX));
    identities
}

/// Describes a key: `ED25519 SHA256:…`.
pub(crate) fn shown(key: &PublicKey) -> String {
    format!("{} {}", type_of(key), key.fingerprint(HashAlg::Sha256))
}

/// Returns a key's type as ssh shows it: `ED25519`.
pub(crate) fn type_of(key: &PublicKey) -> &'static str {
    match key.algorithm() {
        Algorithm::Dsa => "DSA",
        Algorithm::Ecdsa { .. } => "ECDSA",
        Algorithm::Ed25519 => "ED25519",
        Algorithm::Rsa { .. } => "RSA",
        Algorithm::SkEcdsaSha2NistP256 => "ECDSA-SK",
        Algorithm::SkEd25519 => "ED25519-SK",
        _ => "other",
    }
}
