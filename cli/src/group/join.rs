//! Requests a place in a group, without a runtime or threads: the process is about to become another program.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use rsd_proto::frameworks::EXPORTED;
use rsd_proto::join::client::{NotJoined, ask};
use rsd_proto::join::{Go, Join, SOCKET, Wait};
use rsd_proto::transport::{DialError, exit};

use crate::dvm::Dvm;
use crate::exit::Failure;
use crate::print::say;

/// Who waits longer than this is told who else is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// The join socket of the selected daemon.
pub(crate) fn socket(dvm: &Dvm) -> Result<PathBuf, Failure> {
    Ok(dvm.find()?.state_dir.join(SOCKET))
}

/// Waits for a place in the group. Returns when the daemon answers, which it does within the requested time, or is gone.
pub(crate) fn join(socket: &Path, join: Join) -> Result<Go, Failure> {
    let own_uid = geteuid().as_raw();
    let owner_uid = std::fs::metadata(socket).map_or(own_uid, |meta| meta.uid());
    if owner_uid != own_uid {
        return Err(Failure::of_dial(&socket.display().to_string(), &DialError::NotPermitted { owner_uid, own_uid }));
    }
    let began = Instant::now();
    let group = join.group.clone().unwrap_or_default();
    let told = |wait: &Wait| {
        if began.elapsed() > PATIENCE {
            let (have, want, waited) = (wait.have, wait.want, began.elapsed().as_secs());
            say(&format!("group {group}: {have} of {want} are here after {waited} s"));
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

/// The environment of a member: that of a rank, and the address of its PMI server.
pub(crate) fn variables<'a>(group: &str, go: &'a Go, socket: &Path) -> Vec<(&'a str, String)> {
    let mut variables = vec![("PMI_PORT", go.pmi_port.clone()), ("PMI_ID", go.pmi_id.to_string())];
    variables.extend(go.place().variables());
    let before = std::env::var(EXPORTED).unwrap_or_default();
    // Variables set by an earlier place are not the user's.
    let is_set = |name: &str| std::env::var_os(name).is_some() && !before.split(',').any(|known| known == name);
    let ours = go.env.lines().filter_map(|line| line.split_once('=')).filter(|(name, _)| !is_set(name));
    let ours: Vec<(&str, String)> = ours.map(|(name, value)| (name, value.to_owned())).collect();
    if !ours.is_empty() {
        variables.push((EXPORTED, ours.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",")));
    }
    variables.extend(ours);
    variables.push(("RSD_GROUP", group.to_owned()));
    variables.push(("RSD_EPOCH", go.epoch.to_string()));
    if let Some(state_dir) = socket.parent().and_then(Path::to_str) {
        variables.push(("RSD_DVM", state_dir.to_owned()));
        variables.push(("RSD_SOCKET", format!("{state_dir}/rsd.sock")));
    }
    variables
}
