//! A connection to a host: commands on it, connections through it, and ports that it forwards.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::client::{self, Handle, Handler, Msg};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelMsg, ChannelStream, Disconnect};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{FirstUse, Settings};
use crate::error::{HostKeyError, SshError};
use crate::keys;
use crate::known_hosts::{self, Known, Standing};

/// The most standard output of a command that is kept; what comes later is dropped.
const STDOUT_MAX: usize = 1 << 20;
/// The end of a command's standard error that is kept.
const STDERR_MAX: usize = 16 << 10;
/// Size of the pieces in which input is sent.
const PIECE_BYTES: usize = 32 << 10;

/// An authenticated connection to a host.
pub struct Connection {
    pub(crate) handle: Handle<Watcher>,
    pub(crate) settings: Settings,
    pub(crate) target: Target,
    /// What carries the connection; dropped after it.
    pub(crate) carrier: Carrier,
}

/// What carries a connection.
pub(crate) enum Carrier {
    /// The network.
    Tcp,
    /// Another connection.
    Jump(#[expect(dead_code, reason = "it is held, not used")] Arc<Connection>),
    /// The user's ProxyCommand, which is killed when this is dropped.
    Command(#[expect(dead_code, reason = "it is held, not used")] tokio::process::Child),
}

/// The address to which forwarded connections go, once a port is forwarded.
pub(crate) type Target = Arc<Mutex<Option<String>>>;

/// A port of the host that is forwarded to an address here, as long as the connection is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// The port, on the host's loopback.
    pub port: u16,
}

/// How a command ended, and what it wrote.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit status; None: a signal, or the server did not say.
    pub status: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// The beginning of its standard output.
    pub stdout: Vec<u8>,
    /// The end of its standard error.
    pub stderr: Vec<u8>,
}

impl Connection {
    /// The host's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether nothing is between this machine and the host but the network.
    pub fn is_direct(&self) -> bool {
        matches!(self.carrier, Carrier::Tcp)
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Runs a command in the account's shell and waits until it has ended. `input` is its whole standard input. `doing` says what it
    /// is for, in errors.
    pub async fn run(
        &self,
        command: &str,
        input: &[&[u8]],
        deadline: Duration,
        doing: &str,
    ) -> Result<Output, SshError> {
        let run = async {
            let failed = |error| SshError::of_protocol(doing, error);
            let channel = self.handle.channel_open_session().await.map_err(failed)?;
            channel.exec(true, command).await.map_err(failed)?;
            self.communicate(channel, input).await.map_err(failed)
        };
        let timed_out = || SshError::TimedOut { doing: doing.to_owned(), after: deadline };
        timeout(deadline, run).await.map_err(|_| timed_out())?
    }

    async fn communicate(&self, channel: Channel<Msg>, input: &[&[u8]]) -> Result<Output, russh::Error> {
        let (mut reading, writing) = channel.split();
        let send = async {
            for piece in input.iter().flat_map(|part| part.chunks(PIECE_BYTES)) {
                writing.data(piece).await?;
            }
            writing.eof().await
        };
        let receive = async {
            let mut output = Output::default();
            let (mut ended, mut stderr) = (false, VecDeque::new());
            while let Some(message) = reading.wait().await {
                match message {
                    ChannelMsg::Data { data } => {
                        let room = STDOUT_MAX - output.stdout.len();
                        output.stdout.extend_from_slice(&data[..room.min(data.len())]);
                    }
                    ChannelMsg::ExtendedData { data, .. } => {
                        stderr.extend(data.iter());
                        stderr.drain(..stderr.len().saturating_sub(STDERR_MAX));
                    }
                    ChannelMsg::ExitStatus { exit_status } => output.status = Some(exit_status),
                    ChannelMsg::ExitSignal { signal_name, .. } => output.signal = Some(format!("{signal_name:?}")),
                    ChannelMsg::Failure => return Err(russh::Error::RequestDenied),
                    ChannelMsg::Eof => ended = true,
                    ChannelMsg::Close => break,
                    _ => {}
                }
                if ended && (output.status.is_some() || output.signal.is_some()) {
                    break;
                }
            }
            output.stderr = stderr.into();
            Ok(output)
        };
        // A command may end before it has read all its input, so only the end of the command counts.
        tokio::pin!(send, receive);
        tokio::select! {
            biased;
            received = &mut receive => received,
            // A failed write means that the command has ended or the connection has; the other half says which.
            _ = &mut send => receive.await,
        }
    }

    /// Connects to an address as the host sees it.
    pub(crate) async fn open(&self, host: &str, port: u16) -> Result<ChannelStream<Msg>, russh::Error> {
        let channel = self.handle.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 0).await?;
        Ok(channel.into_stream())
    }

    /// Forwards a port of the host's loopback to an address here, `HOST:PORT`. With port 0, the host chooses one.
    pub async fn forward(&self, port: u16, to: &str, deadline: Duration) -> Result<Forwarded, SshError> {
        let doing = "forwarding a port of its loopback to this machine";
        *self.target.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(to.to_owned());
        let asked = self.handle.tcpip_forward("127.0.0.1", port.into());
        let timed_out = |_| SshError::TimedOut { doing: doing.to_owned(), after: deadline };
        let answer = timeout(deadline, asked).await.map_err(timed_out)?;
        let given = answer.map_err(|error| SshError::of_protocol(doing, error))?;
        let given = u16::try_from(given).ok().filter(|given| *given > 0).unwrap_or(port);
        Ok(Forwarded { port: given })
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        // The library reports the end only to the next call.
        while !self.handle.is_closed() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends the connection.
    pub async fn close(&self) {
        let _ = timeout(Duration::from_secs(1), self.handle.disconnect(Disconnect::ByApplication, "", "")).await;
    }
}

/// Checks the host's key, and accepts the connections of a forwarded port.
pub(crate) struct Watcher {
    pub(crate) settings: Settings,
    pub(crate) known: Known,
    pub(crate) accept_new: bool,
    pub(crate) target: Target,
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum WatchError {
    Library(russh::Error),
    HostKey(HostKeyError),
}

impl From<russh::Error> for WatchError {
    fn from(error: russh::Error) -> WatchError {
        WatchError::Library(error)
    }
}

impl Watcher {
    fn check(&self, shown: &PublicKeyOrCertificate) -> Result<(), HostKeyError> {
        let key = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => key,
            // None was requested.
            PublicKeyOrCertificate::Certificate(_) => {
                return Err(HostKeyError::File("the host has sent a certificate, which was not requested".into()));
            }
        };
        let fingerprint = key.fingerprint(russh::keys::HashAlg::Sha256).to_string();
        let (key_type, name) = (keys::type_of(key).to_owned(), known_hosts::name_of(&self.settings));
        match self.known.standing(key) {
            Standing::Trusted => Ok(()),
            Standing::Unknown { .. } if self.accept_new || self.settings.first_use == FirstUse::Accepted => {
                known_hosts::learn(&self.settings, key).map_err(|error| HostKeyError::File(error.to_string()))
            }
            Standing::Unknown { authority } => Err(HostKeyError::Unknown { key: key_type, fingerprint, authority }),
            Standing::Changed { line, same_type } => {
                Err(HostKeyError::Changed { key: key_type, fingerprint, line, same_type, name })
            }
            Standing::Revoked { line } => Err(HostKeyError::Revoked { key: key_type, fingerprint, line }),
        }
    }
}

impl Handler for Watcher {
    type Error = WatchError;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, WatchError> {
        self.check(shown).map(|()| true).map_err(WatchError::HostKey)
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        channel: Channel<Msg>,
        _connected_address: &str,
        _connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        let target = self.target.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        // Dropping the reply refuses the connection.
        let Some(target) = target else { return Ok(()) };
        tokio::spawn(async move {
            let Ok(mut here) = TcpStream::connect(&target).await else { return };
            let _ = here.set_nodelay(true);
            reply.accept().await;
            let mut there = channel.into_stream();
            // Either end may close the connection at any time.
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        });
        Ok(())
    }

    // The server may open no other channels: the defaults of the library would accept them.

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        _reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        _reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host_to_connect: &str,
        _port_to_connect: u32,
        _originator_address: &str,
        _originator_port: u32,
        _reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        _reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        _reply: client::ChannelOpenHandle,
        _session: &mut client::Session,
    ) -> Result<(), WatchError> {
        Ok(())
    }
}
