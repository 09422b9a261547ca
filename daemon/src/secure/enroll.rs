//! How a daemon that joins gets its certificate: the stored one, or a new one for a join token.
//!
//! The token is the user's, or comes from a daemon of the same user on this machine that listens at the address to join. So joining
//! a DVM of one's own machine needs no token: a user who may use that daemon's unix socket may make tokens anyway.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use anyhow::bail;
use rsd_config::find;
use rsd_core::uplink::Backoff;
use rsd_proto::transport::tls::{Distrust, new_key};
use rsd_proto::transport::token::{Fingerprint, Token};
use rsd_proto::transport::{DialError, Dialer, Target, access_client, dial, exit, exit_code};
use rsd_proto::v1::{Credentials, EnrollRequest, Enrolled, NewTokenRequest};
use tracing::info;

use crate::clock::unix_ms;
use crate::disk::state_dir::StateDir;
use crate::failed::Failed;
use crate::settings::runtime_dir;

/// The life of a token that a daemon requests for itself.
const OWN_TOKEN_TTL: Duration = Duration::from_secs(60);
/// How long a daemon that accepts connections may take to write its record.
const RECORD_DEADLINE: Duration = Duration::from_millis(500);

/// Why an attempt failed, and whether another one may succeed.
enum Failure {
    Final(Failed),
    Passing(String),
}

/// Returns the credentials with which this daemon connects to the DVM at `join`. Retries until the deadline while the head does not
/// answer.
pub(crate) async fn credentials(
    join: &str,
    token: Option<&Token>,
    state_dir: &StateDir,
    deadline: Duration,
) -> anyhow::Result<Credentials> {
    let stored = state_dir.credentials().filter(|stored| stored.node.is_some());
    let expired = stored.as_ref().is_some_and(|stored| stored.until_ms <= unix_ms());
    let stored = stored.filter(|_| !expired);
    let (mut backoff, end) = (Backoff::of_step(), Instant::now() + deadline);
    // One key for all attempts: if the answer to one is lost, the next gets the same node id, and uses the token once.
    let key = new_key().map_err(|error| cannot(exit::INTERNAL, join, &error.to_string()))?;
    loop {
        let why = match attempt(join, token, stored.as_ref(), &key, deadline).await {
            Ok(Some(credentials)) => {
                state_dir.write_credentials(&credentials)?;
                info!(node = credentials.node, dvm = credentials.dvm, "this daemon has a certificate of its DVM");
                return Ok(credentials);
            }
            Ok(None) => return Ok(stored.expect("an attempt without a result means the stored ones")),
            Err(Failure::Final(mut failed)) => {
                if expired {
                    failed.text.push_str("; the stored certificate of this daemon has expired");
                }
                bail!(failed)
            }
            Err(Failure::Passing(why)) => why,
        };
        if Instant::now() > end {
            bail!(cannot(exit::UNREACHABLE, join, &why));
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

fn cannot(code: u8, join: &str, why: &str) -> Failed {
    Failed::new(code, format!("cannot join the DVM at {join}: {why}"))
}

/// Returns new credentials; None: the stored ones are to be used.
async fn attempt(
    join: &str,
    token: Option<&Token>,
    stored: Option<&Credentials>,
    key: &(Vec<u8>, Vec<u8>),
    deadline: Duration,
) -> Result<Option<Credentials>, Failure> {
    let local;
    let token = match (token, stored) {
        // The token may have expired long ago: it stands in a service's options.
        (Some(token), Some(stored)) if Fingerprint::of(&stored.authority) == token.authority => return Ok(None),
        (Some(token), _) => token,
        (None, _) => match listening_here(join) {
            Some(daemon) if stored.is_some_and(|stored| stored.dvm == daemon.dvm()) => return Ok(None),
            Some(daemon) => {
                local = token_of(&daemon, deadline).await?;
                &local
            }
            None if stored.is_some() => return Ok(None),
            None => return Err(without_token(join, deadline).await),
        },
    };
    enroll(join, token, key, deadline).await.map(Some)
}

/// Returns the running daemon of this user that listens at this address of this machine.
pub(crate) fn listening_here(join: &str) -> Option<find::Daemon> {
    let addresses: Vec<_> = join.to_socket_addrs().ok()?.collect();
    find::listening(&runtime_dir().ok()?, &addresses)
}

/// Requests a token for one use through a daemon's unix socket.
async fn token_of(daemon: &find::Daemon, deadline: Duration) -> Result<Token, Failure> {
    let target = Target::Unix(daemon.socket());
    let channel = dial(&target, deadline).await.map_err(|error| Failure::Passing(error.to_string()))?;
    let ttl_ms = u64::try_from(OWN_TOKEN_TTL.as_millis()).unwrap_or_default();
    let request = NewTokenRequest { ttl_ms, uses: 1, login_uid: None };
    let reply = match tokio::time::timeout(deadline, access_client(channel).new_token(request)).await {
        Ok(reply) => reply,
        Err(_) => {
            return Err(Failure::Passing(format!("the daemon on this machine did not answer within {deadline:?}")));
        }
    };
    let reply = reply.map_err(|status| of_status(&daemon.state_dir().display().to_string(), &status))?.into_inner();
    reply.token.parse().map_err(|_| Failure::Passing("the daemon on this machine has answered without a token".into()))
}

/// Returns why a daemon without token and certificate cannot join. The head may not run yet, or may not have written its record.
async fn without_token(join: &str, deadline: Duration) -> Failure {
    let connected = tokio::time::timeout(deadline, tokio::net::TcpStream::connect(join)).await;
    match connected {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Failure::Passing(format!("no daemon is listening there ({error})")),
        Err(_) => return Failure::Passing(format!("no answer within {deadline:?}")),
    }
    let end = Instant::now() + RECORD_DEADLINE;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if listening_here(join).is_some() {
            return Failure::Passing("the daemon there has just started".into());
        }
    }
    let why = format!(
        "no token, and no DVM of yours on this machine listens there: get a token on the head's machine (rsd token new), \
         then: rsd start --join {join} --token TOKEN"
    );
    Failure::Final(cannot(exit::NOT_PERMITTED, join, &why))
}

/// Exchanges a token for credentials with this key, private and public.
async fn enroll(
    join: &str,
    token: &Token,
    (key, public_key): &(Vec<u8>, Vec<u8>),
    deadline: Duration,
) -> Result<Credentials, Failure> {
    let internal =
        |error: rsd_proto::transport::tls::TlsError| Failure::Final(cannot(exit::INTERNAL, join, &error.to_string()));
    let dialer = Dialer::of_newcomer(token.authority).map_err(internal)?;
    let channel = dial(&Target::Tcp(join.to_owned(), dialer), deadline).await.map_err(|error| match error {
        DialError::Untrusted(Distrust::Foreign) => {
            let why =
                "the token is of another DVM than the daemon there: make one on the head's machine: rsd token new";
            Failure::Final(cannot(exit::NOT_PERMITTED, join, why))
        }
        DialError::Untrusted(_)
        | DialError::NotRunning(_)
        | DialError::NotPermitted { .. }
        | DialError::TimedOut(_)
        | DialError::Io(_) => Failure::Passing(error.to_string()),
    })?;
    let secret = token.secret.to_vec().into();
    let daemon_uid = Some(nix::unistd::geteuid().as_raw());
    let request = EnrollRequest {
        token: token.id,
        secret,
        public_key: public_key.clone().into(),
        from: String::new(),
        daemon_uid,
    };
    match tokio::time::timeout(deadline, access_client(channel).join(request)).await {
        Ok(Ok(reply)) => {
            let credentials = credentials_of(key.clone(), reply.into_inner());
            match Fingerprint::of(&credentials.authority) == token.authority {
                true => Ok(credentials),
                false => Err(Failure::Passing("the daemon has answered with another DVM's authority".into())),
            }
        }
        Ok(Err(status)) => Err(of_status(join, &status)),
        Err(_) => Err(Failure::Passing(format!("no answer within {deadline:?}"))),
    }
}

/// Checks that the head's users are those that this daemon may serve. In a DVM that serves all users, its daemons are root's. A head of
/// one user runs that user's programs here as the user who runs this daemon, so root joins it only on purpose.
///
/// # Errors
/// Why this daemon may not join.
pub(crate) fn check_head(join: &str, credentials: &Credentials, trusted: Option<u32>) -> anyhow::Result<()> {
    let own = nix::unistd::geteuid();
    let refused = |why: String| Err(cannot(exit::NOT_PERMITTED, join, &why).into());
    match credentials.head_uid {
        _ if credentials.serves_all && !own.is_root() => {
            refused("the DVM there serves all users of its machines, so only root runs its daemons".to_owned())
        }
        Some(uid) if own.is_root() && uid != 0 && trusted != Some(uid) => refused(format!(
            "the head belongs to uid {uid} on its machine, whose programs would run as root here: join as a user, or, if you trust \
             that user with this machine: --trust-user {uid}"
        )),
        None if own.is_root() => refused("it is unknown whose head it is: join with a new token".to_owned()),
        Some(_) | None => Ok(()),
    }
}

/// A refusal by a daemon is final; any other status is a broken connection.
fn of_status(join: &str, status: &tonic::Status) -> Failure {
    match exit_code(status) {
        Some(code) => Failure::Final(cannot(code, join, status.message())),
        None => Failure::Passing(status.message().to_owned()),
    }
}

/// Returns the credentials of a key and the certificate that was issued for it.
fn credentials_of(key: Vec<u8>, enrolled: Enrolled) -> Credentials {
    let Enrolled { certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all } = enrolled;
    Credentials { key: key.into(), certificate, authority, dvm, node, from_ms, until_ms, head_uid, serves_all }
}
