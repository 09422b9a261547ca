//! What a daemon says once it is ready: to rsctl, to the service manager, and on standard output.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::Context;
use rsd_proto::services::access_server::Access;
use rsd_proto::transport::Refusals;
use rsd_proto::v1::{Inventory, NewTokenRequest};
use tracing::warn;

use super::name_of;
use crate::disk::state_dir::{Identity, StateDir};
use crate::door::Door;
use crate::options::{DAEMONIZED, StartOptions, TERMINAL};
use crate::presence::{Presence, Sockets};
use crate::secure::membership::Membership;
use crate::serve::access::HeadAccess;
use crate::serve::callers::Callers;
use crate::upgrade;

/// A disk with less than so much free is called full.
const FULL_DISK_BYTES: u64 = 128 << 10;

/// Announces the daemon: to rsctl, to the service manager, and on standard output, with `more` lines.
pub(super) fn announce(
    options: &StartOptions,
    state_dir: &StateDir,
    sockets: Sockets,
    identity: &Identity,
    (listen, reachable): (&str, &str),
    inventory: Inventory,
    more: &str,
) -> anyhow::Result<Presence> {
    let serves_all = sockets.serves_all();
    let record = serde_json::json!({
        "name": name_of(options),
        "node_name": identity.name,
        "dvm": identity.dvm,
        "node": identity.node,
        "head": options.join.is_none(),
        "pid": std::process::id(),
        "state_dir": state_dir.path(),
        "serves_all": serves_all,
        "listen": listen,
        "version": rsd_proto::VERSION,
        "protocol": rsd_proto::PROTOCOL,
    });
    let (slots, reason) = (inventory.slots, inventory.slots_reason.clone());
    let presence = Presence::show(sockets, record, inventory)?;
    upgrade::arrived();
    notify("READY=1");
    let role = if options.join.is_none() { "head" } else { "node" };
    let for_all = if serves_all { ", for all users" } else { "" };
    let listening = if listen.is_empty() { String::new() } else { format!(", listening on {listen}") };
    let line = format!(
        "rsd: ready: {} ({role} {} of DVM {}{for_all}), {} slots ({}), pid {}{listening}{reachable}, state in {}\n{more}",
        identity.name,
        identity.node,
        identity.dvm,
        slots,
        reason,
        std::process::id(),
        state_dir.path().display(),
    );
    let mut stdout = std::io::stdout();
    if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        warn!("cannot write the ready line");
    }
    if std::env::var_os(DAEMONIZED).is_some() {
        let null = OpenOptions::new().write(true).open("/dev/null")?;
        nix::unistd::dup2_stdout(null.as_fd()).context("redirect standard output to /dev/null")?;
    }
    Ok(presence)
}

/// Notifies systemd, if it started this daemon.
pub(super) fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        warn!(%error, "cannot notify the service manager");
    }
}

/// Returns the line that says how other daemons join; None if none can. It has a token only for a terminal: any other output may be a
/// log, which others can read.
pub(super) async fn join_line(door: &Door, membership: &Membership, at: &str) -> Option<String> {
    let (authority, listen) = (membership.authority()?, at.to_owned());
    let daemonized = std::env::var_os(DAEMONIZED);
    let on_terminal = daemonized.map_or_else(|| std::io::stdout().is_terminal(), |from| from == TERMINAL);
    if !on_terminal {
        return Some(format!("rsd: join with: rsd start --join {listen} --token TOKEN (rsd token new prints one)\n"));
    }
    let (door, refusals) = (door.clone(), Refusals::default());
    // The request is the daemon's own, as if it served only its own user.
    let callers = Callers { serves_all: false };
    let access = HeadAccess { door, authority: Some(authority), listen, refusals, callers };
    let reply = access.new_token(tonic::Request::new(NewTokenRequest::default())).await.ok()?.into_inner();
    Some(format!("rsd: join with: rsd start --join {} --token {}\n", reply.listen, reply.token))
}

/// Returns the line that says that the disk of the state directory is full; None if it is not.
pub(super) fn full_disk(state_dir: &StateDir) -> Option<String> {
    let path = state_dir.path();
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    let free_bytes = stat.blocks_available().saturating_mul(stat.fragment_size());
    let text = || {
        let (path, kib) = (path.display(), free_bytes >> 10);
        format!(
            "rsd: the disk of {path} is full ({kib} KiB free): jobs may not start, and their output is not kept: make room\n"
        )
    };
    (free_bytes < FULL_DISK_BYTES).then(text)
}
