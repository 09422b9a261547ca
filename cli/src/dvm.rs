//! The daemon to talk to, and calls to it, each with a deadline.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use rsd_config::find::{self, FindError, Wish};
use rsd_proto::services::dvm_client::DvmClient;
use rsd_proto::services::heads_client::HeadsClient;
use rsd_proto::services::observe_client::ObserveClient;
use rsd_proto::transport::{self, DialError, Stamped, Target};
use rsd_proto::v1::{JobInfo, JobSelector};
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::exit::Failure;
use crate::logins;
use crate::print::say;
use crate::private::{self, Private};
use crate::selectors::{Selector, Which};

/// A client connected to a daemon.
pub(crate) type Client = DvmClient<Stamped>;

/// The same, to watch a DVM.
pub(crate) type Observer = ObserveClient<Stamped>;

/// The same, for the head and its standbys.
pub(crate) type Heads = HeadsClient<Stamped>;

/// How long a daemon may seem to run after it was killed.
const DYING: Duration = Duration::from_millis(500);

/// Deadline for a daemon to accept, to answer, or to begin a stream.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// The same for each of several addresses: the machine of one that was the head may be lost.
pub(crate) const DEADLINE_OF_EACH: Duration = Duration::from_secs(3);

/// The DVM that the user selected: the one named, else the only one that is running.
pub(crate) struct Dvm {
    /// The directory with an entry per daemon.
    base: PathBuf,
    /// The same of daemons that serve all users.
    system: Option<&'static Path>,
    /// `--dvm`.
    option: Option<OsString>,
    /// `RSD_DVM`.
    variable: Option<OsString>,
    /// Suppresses notices: with `--json`, standard error has only errors.
    quiet: bool,
    /// The first daemon of this machine that has answered: its entry, and the id of its DVM.
    met: OnceLock<(PathBuf, String)>,
}

impl Dvm {
    pub(crate) fn new(option: Option<OsString>, quiet: bool) -> Result<Dvm, Failure> {
        let base = rsd_config::runtime_dir(|name| std::env::var_os(name))?;
        let system = find::system_base(|name| std::env::var_os(name));
        let variable = std::env::var_os("RSD_DVM").filter(|value| !value.is_empty());
        Ok(Dvm { base, system, option, variable, quiet, met: OnceLock::new() })
    }

    /// Returns the word with which the user has named a DVM.
    pub(crate) fn word(&self) -> Option<&OsStr> {
        self.option.as_deref().or(self.variable.as_deref())
    }

    fn wish(&self) -> Option<Wish<'_>> {
        match (&self.option, &self.variable) {
            (Some(word), _) => Some(Wish::Option(Path::new(word))),
            (None, Some(word)) => Some(Wish::Variable(Path::new(word))),
            (None, None) => None,
        }
    }

    pub(crate) fn find(&self) -> Result<find::Daemon, FindError> {
        find::find_for(&self.base, self.system, self.wish())
    }

    /// As [`Dvm::find`], without root's daemons that serve all users.
    pub(crate) fn find_own(&self) -> Result<find::Daemon, FindError> {
        find::find(&self.base, self.wish())
    }

    /// Whether `--dvm NAME` means a daemon of root that serves all users: this user has none of this name.
    pub(crate) fn is_of_root(&self, name: &str) -> bool {
        let wish = || Some(Wish::Option(Path::new(name)));
        let system = self.system.filter(|system| *system != self.base);
        find::find(&self.base, wish()).is_err() && system.is_some_and(|system| find::find(system, wish()).is_ok())
    }

    /// The DVMs below these directories.
    #[cfg(test)]
    pub(crate) fn below(base: PathBuf, system: &'static Path) -> Dvm {
        Dvm { base, system: Some(system), option: None, variable: None, quiet: true, met: OnceLock::new() }
    }

    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        self.channel().await.map(transport::dvm_client)
    }

    /// Returns a client that watches the DVM.
    pub(crate) async fn observer(&self) -> Result<Observer, Failure> {
        self.channel().await.map(transport::observe_client)
    }

    /// Returns a client for the head and its standbys.
    pub(crate) async fn heads(&self) -> Result<Heads, Failure> {
        self.channel().await.map(transport::heads_client)
    }

    async fn channel(&self) -> Result<Channel, Failure> {
        match self.addresses() {
            Some(addresses) => self.connect_to_any(&addresses).await,
            None => self.connect_to_found().await.map_err(|(failure, _)| failure),
        }
    }

    /// Connects again after the connection was lost, only to a daemon of the same DVM: the one that has answered before or, if that does
    /// not run, another one of this machine. (At an address, certificates keep another DVM away.)
    pub(crate) async fn channel_again(&self) -> Result<Channel, Failure> {
        let Some((entry, dvm)) = self.met.get() else { return self.channel().await };
        let daemon = match find::find_for(&self.base, self.system, Some(Wish::Option(entry))) {
            Ok(daemon) if daemon.dvm() != dvm => {
                let text = format!(
                    "DVM {dvm} is gone, and with it its jobs: {} is a daemon of DVM {}",
                    daemon.name(),
                    daemon.dvm()
                );
                return Err(Failure::new(transport::exit::NO_SUCH_JOB, text));
            }
            Ok(daemon) => daemon,
            Err(error) => match self.find() {
                Ok(daemon) if daemon.dvm() == dvm => daemon,
                Ok(_) | Err(_) => return Err(error.into()),
            },
        };
        connect_channel(daemon.socket()).await
    }

    /// As [`Dvm::channel_again`].
    pub(crate) async fn client_again(&self) -> Result<Client, Failure> {
        self.channel_again().await.map(transport::dvm_client)
    }

    /// Whether notices are suppressed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Connects to the selected daemon of this machine. A daemon that was just killed seems to run for a moment: its lock and its socket
    /// are freed after its process, and a step process that it has just started may have them until it executes its program. So the
    /// search is repeated for a short time. The error says whether no daemon was found.
    async fn connect_to_found(&self) -> Result<Channel, (Failure, bool)> {
        let end = Instant::now() + DYING;
        loop {
            let daemon = self.find().map_err(|error| {
                let none_runs = matches!(error, FindError::NoneRuns { .. });
                (error.into(), none_runs)
            })?;
            match connect_channel(daemon.socket()).await {
                Ok(channel) => {
                    self.met.get_or_init(|| (daemon.dir().to_owned(), daemon.dvm().to_owned()));
                    return Ok(channel);
                }
                Err(failure) if failure.is_unreachable() && Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(failure) => return Err((failure, false)),
            }
        }
    }

    /// Returns the selected addresses, `HOST:PORT[,HOST:PORT]…`; None if the user has named no address.
    fn addresses(&self) -> Option<Vec<&str>> {
        logins::addresses(self.word()?.to_str()?)
    }

    /// Connects to the first daemon that answers at one of these addresses.
    async fn connect_to_any(&self, addresses: &[&str]) -> Result<Channel, Failure> {
        let deadline = if addresses.len() > 1 { DEADLINE_OF_EACH } else { DEADLINE };
        let mut failures = Vec::new();
        for address in addresses {
            match self.connect_to(address, deadline).await {
                Ok(channel) => return Ok(channel),
                Err(failure) => failures.push(failure),
            }
        }
        Err(Failure::of_all(failures))
    }

    /// Connects to the daemon at an address: through its unix socket if it is this user's on this machine, else with the user's login.
    async fn connect_to(&self, address: &str, deadline: Duration) -> Result<Channel, Failure> {
        let addresses: Vec<_> = address.to_socket_addrs().into_iter().flatten().collect();
        if let Some(daemon) = find::listening(&self.base, &addresses) {
            return connect_channel(daemon.socket()).await;
        }
        let channel = transport::dial(&logins::target(address).await?, deadline).await;
        channel.map_err(|error| Failure::of_dial(address, &error))
    }

    /// Returns a client; starts a private daemon for it if no daemon is running.
    pub(crate) async fn client_or_private(&self, wish: &private::Wish) -> Result<(Client, Option<Private>), Failure> {
        if self.addresses().is_some() {
            return Ok((self.client().await?, None));
        }
        match self.connect_to_found().await {
            Ok(channel) => Ok((transport::dvm_client(channel), None)),
            Err((_, true)) => {
                if !self.quiet {
                    say(
                        "no daemon is running here; starting a private one for this job (to keep one running: rsd start)",
                    );
                }
                let private = Private::start(&self.base, wish).await?;
                match connect(private.socket()).await {
                    Ok(client) => Ok((client, Some(private))),
                    Err(failure) => {
                        private.stop().await;
                        Err(failure)
                    }
                }
            }
            Err((failure, false)) => Err(failure),
        }
    }
}

/// Connects to the daemon behind `socket`, which must belong to this user or to root: it receives this user's environment and programs. A
/// daemon accepts root, but root must not trust it.
pub(crate) async fn connect(socket: PathBuf) -> Result<Client, Failure> {
    connect_channel(socket).await.map(transport::dvm_client)
}

async fn connect_channel(socket: PathBuf) -> Result<Channel, Failure> {
    let own_uid = geteuid().as_raw();
    let owner_uid = fs::metadata(&socket).map_or(own_uid, |meta| meta.uid());
    let target = Target::Unix(socket);
    let channel = match owner_uid == own_uid || owner_uid == 0 {
        true => transport::dial(&target, DEADLINE).await,
        false => Err(DialError::NotPermitted { owner_uid, own_uid }),
    };
    channel.map_err(|error| Failure::of_dial(&target.to_string(), &error))
}

/// Returns the daemon's answer. `doing` completes "while …" in errors.
pub(crate) async fn answer<T>(
    doing: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    in_time(doing, call).await.map(Response::into_inner)
}

/// Returns the first message of a stream.
pub(crate) async fn first<T>(doing: &str, stream: &mut Streaming<T>) -> Result<T, Failure> {
    let ended = || Failure::unreachable(format!("lost the daemon while {doing}: no answer"));
    in_time(doing, stream.message()).await?.ok_or_else(ended)
}

async fn in_time<T>(doing: &str, call: impl Future<Output = Result<T, Status>>) -> Result<T, Failure> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|status| Failure::of_status(doing, &status)),
        Err(_) => Err(Failure::unreachable(format!(
            "the daemon did not answer within {} s while {doing}",
            DEADLINE.as_secs()
        ))),
    }
}

/// Returns the current state of the job that `selector` names. Fails if the job has no such rank.
pub(crate) async fn job(client: &mut Client, selector: Selector) -> Result<JobInfo, Failure> {
    let doing = format!("asking for job {selector}");
    let index = selector.index().map_err(Failure::usage)?;
    let wanted = match &selector.job {
        Which::Last => JobSelector { index, ..JobSelector::default() },
        Which::Number(job) => JobSelector { job: *job, index, ..JobSelector::default() },
        Which::Named(name) => JobSelector { job: 0, name: name.clone(), index },
    };
    let info = answer(&doing, client.get_job(wanted)).await?;
    if let Which::Named(name) = &selector.job
        && info.name != *name
    {
        let text = format!("the head does not know jobs by name ({name}); use the job's number: rsctl ps -a");
        return Err(Failure::new(transport::exit::VERSION, text));
    }
    if let Some(index) = index
        && info.element.is_none_or(|element| element.index != index)
    {
        let text = format!("the head does not know arrays; job {} has no element {index}", info.job);
        return Err(Failure::new(transport::exit::VERSION, text));
    }
    match selector.rank {
        Some(rank) if info.ranks > 0 && rank >= info.ranks => Err(Failure::new(
            transport::exit::NO_SUCH_JOB,
            format!("job {} has no rank {rank}: its ranks are 0 to {}", info.job, info.ranks - 1),
        )),
        Some(_) | None => Ok(info),
    }
}
