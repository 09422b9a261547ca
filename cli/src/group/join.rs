//! Requests a place in a group. The join uses no async runtime, because the process is about to become another program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use rsd_config::find::Daemon;
use rsd_proto::frameworks::EXPORTED;
use rsd_proto::join::client::{NotJoined, ask};
use rsd_proto::join::{Go, Join, SOCKET, Wait};
use rsd_proto::pmix::environment::{Program, Server};
use rsd_proto::pmix::fabric;
use rsd_proto::transport::{DialError, exit};
use rsd_proto::v1::{GroupInfo, GroupSelector};

use crate::dvm::{self, Dvm};
use crate::exit::Failure;
use crate::print::say;

/// A member that has waited this long prints how many members have joined.
const PATIENCE: Duration = Duration::from_secs(5);
/// A member on a terminal prints after this time how many members are missing.
const MOMENT: Duration = Duration::from_secs(2);

/// Waits for a place in the group. Returns when the daemon answers, at the latest after the requested time, or when the connection to
/// it is lost.
pub(crate) fn join(daemon: &Daemon, join: Join) -> Result<Go, Failure> {
    let socket = &daemon.dir().join(SOCKET);
    let own_uid = geteuid().as_raw();
    let owner_uid = std::fs::metadata(socket).map_or(own_uid, |meta| meta.uid());
    if owner_uid != own_uid && owner_uid != 0 {
        return Err(Failure::of_dial(&socket.display().to_string(), &DialError::NotPermitted { owner_uid, own_uid }));
    }
    let began = Instant::now();
    let group = join.group.clone().unwrap_or_default();
    let told = |wait: &Wait| {
        if began.elapsed() > PATIENCE {
            let (have, want, waited) = (wait.have, wait.want, began.elapsed().as_secs());
            say(&format!("group {group}: {have} of {want} members have joined after {waited} s"));
        }
    };
    ask(socket, join, told).map_err(|error| match error {
        NotJoined::Refused { code, text } => Failure::new(code, text),
        NotJoined::NotUnderstood(error) => {
            Failure::new(exit::VERSION, format!("cannot read the daemon's answer: {error}"))
        }
        NotJoined::Lost(error) => Failure::unreachable(format!("lost the daemon at {}: {error}", socket.display())),
    })
}

/// Starts a thread that prints how many members are missing and where the others are, after a moment and only on a terminal. The
/// thread ends when the process becomes its program.
pub(super) fn tell_missing(dvm: &Dvm, group: &str) {
    let Ok(daemon) = dvm.find() else { return };
    if !std::io::stderr().is_terminal() {
        return;
    }
    let (socket, name) = (daemon.socket(), group.to_owned());
    std::thread::spawn(move || {
        std::thread::sleep(MOMENT);
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        // The join itself reports a failure.
        let told = runtime.block_on(async {
            let mut client = dvm::connect(socket).await.ok()?;
            client.get_group(GroupSelector { name }).await.ok()
        });
        if let Some(text) = told.and_then(|info| missing(&info.into_inner())) {
            say(&text);
        }
    });
}

/// Returns `waiting for 3 of 16 members of actors: node0 has 8, node1 has 5`; None if no member is missing.
fn missing(info: &GroupInfo) -> Option<String> {
    let rules = info.rules.as_ref()?;
    let here = u32::try_from(info.waiting.len()).unwrap_or(u32::MAX);
    let missing = rules.min.checked_sub(here).filter(|missing| *missing > 0)?;
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    info.waiting.iter().for_each(|member| *nodes.entry(&member.node_name).or_default() += 1);
    let has: Vec<String> = nodes.iter().map(|(node, count)| format!("{node} has {count}")).collect();
    Some(format!("waiting for {missing} of {} members of {}: {}", rules.min, rules.name, has.join(", ")))
}

/// Returns the variables for PMIx clients, whose server listens on the same port. `exported` names those that are not the user's own.
fn of_pmix(go: &Go, exported: &[&[u8]]) -> Vec<(&'static str, String)> {
    let Some(port) = go.pmi_port.rsplit_once(':').and_then(|(_, port)| port.parse().ok()) else { return Vec::new() };
    let no_fabric = fabric::absent(Path::new("/"), fabric::Devices::default(), &|name| std::env::var(name).ok());
    // Members share no directories, and how many of them share cores is for their libraries to find out.
    let server = Server { port, directory: String::new(), shared: String::new(), cores: u32::MAX, no_fabric };
    let program = Program { sizes: vec![go.size], ..Program::default() };
    let mut variables = server.variables(&go.place(), &program);
    // What describes a program is not known here.
    variables.retain(|(_, value)| !value.is_empty());
    let given: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    let names: Vec<&[u8]> = given.iter().map(|name| name.as_bytes()).filter(|name| !exported.contains(name)).collect();
    let unless_set = server.unless_set(go.local_size, &names).into_iter();
    variables.extend(unless_set.map(|(name, value)| (name, value.to_owned())));
    variables
}

/// Returns the environment of a member: that of a rank, and the address of its PMI server.
pub(crate) fn variables<'a>(group: &str, go: &'a Go, daemon: &Daemon) -> Vec<(&'a str, String)> {
    let mut variables = vec![("PMI_PORT", go.pmi_port.clone()), ("PMI_ID", go.pmi_id.to_string())];
    variables.extend(go.place().variables());
    let before = std::env::var(EXPORTED).unwrap_or_default();
    variables.extend(of_pmix(go, &before.split(',').map(str::as_bytes).collect::<Vec<_>>()));
    // Variables that an earlier membership set are not the user's.
    let is_set = |name: &str| std::env::var_os(name).is_some() && !before.split(',').any(|known| known == name);
    let ours = go.env.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| !is_set(name));
    let ours: Vec<(&str, String)> = ours.map(|(name, value)| (name, value.to_owned())).collect();
    let told = variables.iter().filter(|(name, _)| fabric::is_of_absence(name));
    let names: Vec<&str> = told.chain(&ours).map(|(name, _)| *name).collect();
    if !names.is_empty() {
        variables.push((EXPORTED, names.join(",")));
    }
    variables.extend(ours);
    variables.push(("RSD_GROUP", group.to_owned()));
    variables.push(("RSD_EPOCH", go.epoch.to_string()));
    if let (Some(state_dir), Some(socket)) = (daemon.state_dir().to_str(), daemon.socket().to_str()) {
        variables.push(("RSD_DVM", state_dir.to_owned()));
        variables.push(("RSD_SOCKET", socket.to_owned()));
    }
    variables
}
