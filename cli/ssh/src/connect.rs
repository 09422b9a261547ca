//! Connects to hosts: directly, through jump hosts or through a command, and authenticates.
//!
//! Jump hosts are connected to once and shared, because a server limits connections that are not authenticated yet.

use std::borrow::Cow;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::{Algorithm, HashAlg};
use russh::{Preferred, client};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use crate::config::{Config, Family, Here, Hop, Settings, Wish};
use crate::error::{HostKeyError, SshError};
use crate::keys::Keys;
use crate::known_hosts::Known;
use crate::login::Login;
use crate::session::{Carrier, Connection, Target, WatchError, Watcher};

/// How often and after which time a host that closes the connection at once is tried again: servers drop connections at random while
/// many are not authenticated yet (MaxStartups).
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1200)];
/// A connection on which nothing arrives for this time is tested; after three tests without an answer it is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The deadlines for one host.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For the TCP connection, and again for the ssh handshake. The configuration's ConnectTimeout has precedence.
    pub connect: Duration,
    /// For each step of the authentication, without the time in which the user types a passphrase.
    pub authenticate: Duration,
}

/// What all connections share.
pub struct Network {
    config: Config,
    here: Here,
    /// Whether unknown host keys are accepted and written down.
    accept_new: bool,
    deadlines: Deadlines,
    keys: Keys,
    jumps: Mutex<HashMap<Vec<Place>, Shared>>,
    notices: Mutex<Vec<String>>,
}

/// A jump host that several connections share.
type Shared = Arc<OnceCell<Result<Arc<Connection>, Arc<SshError>>>>;

/// User, host and port.
type Place = (String, String, u16);

/// A connection that ssh can run on.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Network {
    /// Prepares connections with this configuration.
    pub fn new(config: Config, here: Here, accept_new: bool, deadlines: Deadlines) -> Network {
        Network {
            config,
            here,
            accept_new,
            deadlines,
            keys: Keys::default(),
            jumps: Mutex::default(),
            notices: Mutex::default(),
        }
    }

    /// Whether the user is being asked for a passphrase.
    pub fn asking(&self) -> bool {
        self.keys.asking()
    }

    /// Returns notices about the configuration since the last call.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Returns the settings of a host.
    pub fn settings(&self, wish: &Wish) -> Result<Settings, SshError> {
        let (settings, notices) = self.config.settings(wish, &self.here)?;
        self.notices.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(notices);
        Ok(settings)
    }

    /// Connects to a host and authenticates.
    pub async fn connect(&self, wish: &Wish) -> Result<Connection, SshError> {
        let settings = self.settings(wish)?;
        let route = self.route(&settings)?;
        self.connect_by(settings, &route).await
    }

    /// Returns the jump hosts to a host, in order: those of its settings, and before the first those of the first's own settings.
    fn route(&self, settings: &Settings) -> Result<Vec<Settings>, SshError> {
        let mut route: Vec<Settings> = Vec::new();
        let mut next = settings.clone();
        loop {
            let hops = next.jumps.iter().map(|Hop { host, user, port }| {
                self.settings(&Wish { host: host.clone(), user: user.clone(), port: *port })
            });
            let hops = hops.collect::<Result<Vec<_>, _>>()?;
            // A pattern such as `Host *` makes a jump host its own jump host.
            let known = |hop: &Settings| hop.same_place(settings) || route.iter().any(|other| hop.same_place(other));
            let Some(first) = hops.first().filter(|hop| !known(hop)).cloned() else { return Ok(route) };
            route.splice(0..0, hops);
            next = first;
        }
    }

    async fn connect_by(&self, settings: Settings, route: &[Settings]) -> Result<Connection, SshError> {
        let mut retries = Retries::default();
        loop {
            let mut asked = false;
            let error = match Box::pin(self.attempt(&settings, route, &mut asked)).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            match error {
                SshError::Closed { .. } => match retries.next(asked) {
                    Some(pause) => sleep(pause).await,
                    None => return Err(error),
                },
                error => return Err(error),
            }
        }
    }

    async fn attempt(&self, settings: &Settings, route: &[Settings], asked: &mut bool) -> Result<Connection, SshError> {
        let connect = settings.connect_timeout.unwrap_or(self.deadlines.connect);
        let (stream, carrier) = self.stream(settings, route, connect).await?;
        let known = Known::read(settings).map_err(|error| HostKeyError::File(error.to_string()))?;
        let config = Arc::new(client::Config {
            preferred: Preferred { key: Cow::Owned(preferred(&known)), ..Preferred::DEFAULT },
            keepalive_interval: Some(KEEP_ALIVE),
            ..client::Config::default()
        });
        let target = Target::default();
        let watcher =
            Watcher { settings: settings.clone(), known, accept_new: self.accept_new, target: Arc::clone(&target) };
        let doing = "the ssh handshake";
        let shaken = timeout(connect, client::connect_stream(config, stream, watcher)).await;
        let shaken = shaken.map_err(|_| SshError::TimedOut { doing: doing.to_owned(), after: connect })?;
        let mut handle = shaken.map_err(|error| match error {
            WatchError::HostKey(error) => SshError::HostKey(error),
            WatchError::Library(error) => SshError::of_protocol(doing, error),
        })?;
        let mut login = Login::new(settings, &self.here, &self.keys, self.deadlines.authenticate, &mut handle);
        let admitted = login.run().await;
        *asked = login.asked();
        admitted?;
        Ok(Connection { handle, settings: settings.clone(), target, carrier })
    }

    async fn stream(
        &self,
        settings: &Settings,
        route: &[Settings],
        deadline: Duration,
    ) -> Result<(Box<dyn Stream>, Carrier), SshError> {
        let (host, port) = (settings.host_name.as_str(), settings.port);
        if let Some((last, before)) = route.split_last() {
            let jump = self.jump(last, before).await?;
            let place = format!("{host}:{port}");
            let opened = timeout(deadline, jump.open(host, port)).await;
            let opened = opened.map_err(|_| SshError::TimedOut {
                doing: format!("jump host {} connects to {place}", last.alias),
                after: deadline,
            })?;
            let stream = opened.map_err(|error| match error {
                russh::Error::ChannelOpenFailure(why) => {
                    SshError::Jump { jump: last.alias.clone(), place, why: format!("{why:?}") }
                }
                error => SshError::of_protocol(&format!("connecting through {}", last.alias), error),
            })?;
            return Ok((Box::new(stream), Carrier::Jump(jump)));
        }
        if let Some(command) = &settings.proxy_command {
            return by_command(command);
        }
        Ok((Box::new(dial(settings, deadline).await?), Carrier::Tcp))
    }

    /// Returns the connection to a jump host, which is made by the first caller.
    async fn jump(&self, settings: &Settings, route: &[Settings]) -> Result<Arc<Connection>, SshError> {
        let place = |of: &Settings| (of.user.clone(), of.host_name.clone(), of.port);
        let key: Vec<Place> = route.iter().chain([settings]).map(place).collect();
        let shared = {
            let mut jumps = self.jumps.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            // One that has ended is made again.
            let ended = |shared: &Shared| {
                shared.get().is_some_and(|made| made.as_ref().is_ok_and(|connection| connection.is_closed()))
            };
            if jumps.get(&key).is_some_and(ended) {
                jumps.remove(&key);
            }
            Arc::clone(jumps.entry(key.clone()).or_default())
        };
        let make = || async {
            let made = Box::pin(self.connect_by(settings.clone(), route)).await;
            made.map(Arc::new).map_err(Arc::new)
        };
        let made = shared.get_or_init(make).await.clone();
        if made.is_err() {
            // The callers that waited share the error; a later caller tries again.
            self.jumps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&key);
        }
        made.map_err(|error| SshError::ThroughJump { jump: settings.alias.clone(), error })
    }
}

/// The attempts that are left for a host that closes the connection.
struct Retries {
    pauses: std::array::IntoIter<Duration, { PAUSES.len() }>,
    /// Whether the user has not been waited for yet.
    is_free: bool,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { pauses: PAUSES.into_iter(), is_free: true }
    }
}

impl Retries {
    /// Returns the pause before the next attempt; None: there is none. `asked`: a key has been unlocked, which the server may not
    /// have waited for. The next attempt has the key at once, so this counts only the first time.
    fn next(&mut self, asked: bool) -> Option<Duration> {
        match asked && std::mem::take(&mut self.is_free) {
            true => Some(Duration::ZERO),
            false => self.pauses.next(),
        }
    }
}

impl Settings {
    fn same_place(&self, other: &Settings) -> bool {
        (&self.host_name, self.port, &self.user) == (&other.host_name, other.port, &other.user)
    }
}

/// Returns the host key algorithms to request: those of known keys first. RSA only with SHA-2.
fn preferred(known: &Known) -> Vec<Algorithm> {
    let rsa = [HashAlg::Sha512, HashAlg::Sha256].map(|hash| Algorithm::Rsa { hash: Some(hash) });
    let mut wanted: Vec<Algorithm> = Vec::new();
    for algorithm in known.algorithms() {
        match algorithm {
            Algorithm::Rsa { .. } => wanted.extend(rsa.clone()),
            other => wanted.push(other),
        }
    }
    let usual = Preferred::DEFAULT.key.iter().filter(|it| !matches!(it, Algorithm::Rsa { hash: None })).cloned();
    let mut out: Vec<Algorithm> = Vec::new();
    for algorithm in wanted.into_iter().filter(|it| Preferred::DEFAULT.key.contains(it)).chain(usual) {
        if !out.contains(&algorithm) {
            out.push(algorithm);
        }
    }
    out
}

/// Connects to the first address of the host that answers.
async fn dial(settings: &Settings, deadline: Duration) -> Result<TcpStream, SshError> {
    let (host, port) = (settings.host_name.as_str(), settings.port);
    let slow = |doing: String| SshError::TimedOut { doing, after: deadline };
    let resolve = |why: String| SshError::Resolve { host: host.to_owned(), why };
    let found = timeout(deadline, tokio::net::lookup_host((host, port))).await;
    let found = found.map_err(|_| slow(format!("resolving {host}")))?;
    let found =
        found.map_err(|error| resolve(error.to_string().replace("failed to lookup address information: ", "")))?;
    let fits = |address: &std::net::SocketAddr| match settings.family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let mut last = resolve("it has no address of this family".into());
    for address in found.filter(fits) {
        last = match timeout(deadline, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => SshError::Connect { place: address.to_string(), why: error.kind().to_string() },
            Err(_) => slow(format!("connecting to {address}")),
        };
    }
    Err(last)
}

fn by_command(command: &str) -> Result<(Box<dyn Stream>, Carrier), SshError> {
    let failed = |why: String| SshError::ProxyCommand { command: command.to_owned(), why };
    let mut child = proxy(command).spawn().map_err(|error| failed(error.to_string()))?;
    match (child.stdout.take(), child.stdin.take()) {
        (Some(stdout), Some(stdin)) => Ok((Box::new(tokio::io::join(stdout, stdin)), Carrier::Command(child))),
        _ => Err(failed("it has no pipes".into())),
    }
}

/// Ctrl-C reaches only this program, which needs the connection to stop what it has started.
fn proxy(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("exec {command}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    shell.process_group(0).kill_on_drop(true);
    shell
}

#[cfg(test)]
mod tests {
    use nix::unistd::{Pid, getpgid};

    use super::*;

    #[test]
    fn a_host_that_always_closes_the_connection_is_given_up() {
        for asked in [false, true] {
            let mut retries = Retries::default();
            let pauses: Vec<Duration> = std::iter::from_fn(|| retries.next(asked)).take(10).collect();
            let free = asked.then_some(Duration::ZERO);
            assert_eq!(pauses, free.into_iter().chain(PAUSES).collect::<Vec<_>>(), "asked: {asked}");
        }
    }

    #[tokio::test]
    async fn a_proxy_command_is_in_a_process_group_of_its_own() {
        let child = proxy("cat").spawn().unwrap();
        let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap());
        assert_eq!(getpgid(Some(pid)), Ok(pid));
    }
}
