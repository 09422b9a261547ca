//! `rsd status` and `rsd stop`: commands to one daemon.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rsd_config::find::{Daemon, Wish, find_for, system_base};
use rsd_proto::transport::{DialError, Target, dial, dvm_client, exit, exit_code};
use rsd_proto::v1::{ShutdownRequest, StatusReply, StatusRequest};
use tonic::transport::Channel;

use crate::clock::unix_ms;
use crate::failed::{Failed, out};
use crate::options::{StatusOptions, StopOptions};
use crate::settings::runtime_dir;

const DEADLINE: Duration = Duration::from_secs(10);
/// How long a daemon may take to end after its answer.
const GONE_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn which(dvm: Option<&str>) -> anyhow::Result<Daemon> {
    let wish = dvm.filter(|dvm| !dvm.is_empty()).map(|dvm| Wish::Option(Path::new(dvm)));
    let system = system_base(|name| std::env::var_os(name));
    Ok(find_for(&runtime_dir()?, system, wish).map_err(Failed::from)?)
}

/// Sends one request to a daemon, with a deadline.
pub(crate) fn ask<T>(
    daemon: &Daemon,
    question: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
) -> anyhow::Result<T> {
    ask_within(daemon, DEADLINE, question)
}

/// Sends one request to a daemon, with this deadline for the answer.
pub(crate) fn ask_within<T>(
    daemon: &Daemon,
    deadline: Duration,
    question: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
) -> anyhow::Result<T> {
    let failed = |code, text| anyhow::Error::from(Failed { code, text });
    let place = daemon.state_dir().display();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let channel = dial(&Target::Unix(daemon.socket()), DEADLINE).await.map_err(|error| {
            let code = match error {
                DialError::NotPermitted { .. } | DialError::Untrusted(_) => exit::NOT_PERMITTED,
                DialError::NotRunning(_) | DialError::TimedOut(_) | DialError::Io(_) => exit::UNREACHABLE,
            };
            failed(code, format!("cannot reach the daemon in {place}: {error}"))
        })?;
        match tokio::time::timeout(deadline, question(channel)).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => {
                Err(failed(exit_code(&status).unwrap_or(exit::UNREACHABLE), status.message().to_owned()))
            }
            Err(_) => {
                Err(failed(exit::UNREACHABLE, format!("the daemon in {place} did not answer within {deadline:?}")))
            }
        }
    })
}

pub(crate) fn status(options: StatusOptions) -> anyhow::Result<()> {
    let daemon = which(options.dvm.as_deref())?;
    let status = ask(&daemon, async |channel| dvm_client(channel).get_status(StatusRequest {}).await)?;
    if options.json { out(format_args!("{}\n", to_json(&status))) } else { out(to_text(&status, unix_ms())) }
}

fn to_json(status: &StatusReply) -> serde_json::Value {
    let inventory = status.inventory.clone().unwrap_or_default();
    serde_json::json!({
        "schema_version": 1,
        "name": status.name,
        "dvm": status.dvm,
        "node": status.node,
        "head": status.head,
        "version": status.version,
        "pid": status.pid,
        "started_ms": status.started_ms,
        "state_dir": status.state_dir,
        "listen": status.listen,
        "parent": status.parent,
        "connected": status.connected,
        "nodes": status.nodes,
        "slots": status.slots,
        "slots_in_use": status.slots_in_use,
        "jobs": status.jobs,
        "inventory": {
            "slots": inventory.slots,
            "slots_reason": inventory.slots_reason,
            "cores": inventory.cores,
            "hwthreads": inventory.hwthreads,
            "memory_bytes": inventory.memory_bytes,
            "hostname": inventory.hostname,
            "imagined": inventory.imagined,
            "gpus": inventory.gpus.iter().map(|gpu| serde_json::json!({
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "pci": gpu.pci,
                "memory_bytes": gpu.memory_bytes,
            })).collect::<Vec<_>>(),
        },
    })
}

fn to_text(status: &StatusReply, now_ms: u64) -> String {
    let inventory = status.inventory.clone().unwrap_or_default();
    let up = Duration::from_millis(now_ms.saturating_sub(status.started_ms));
    let role = match (status.head, status.connected) {
        (true, _) => format!("head of DVM {}", status.dvm),
        (false, true) => format!("node {} of DVM {}, connected to {}", status.node, status.dvm, status.parent),
        (false, false) => format!("node {} of DVM {}, not connected to {}", status.node, status.dvm, status.parent),
    };
    let mut rows = vec![
        ("daemon", format!("{} (rsd {}, pid {}, up {} s)", status.name, status.version, status.pid, up.as_secs())),
        ("role", role),
        ("this node", format!("{} ({})", count(inventory.slots, "slot"), inventory.slots_reason)),
    ];
    for gpu in &inventory.gpus {
        let name = if gpu.name.is_empty() { "unnamed" } else { &gpu.name };
        rows.push((
            "GPU",
            format!("{} {name}, {} ({})", gpu.index, gpu.pci, if gpu.uuid.is_empty() { "no UUID" } else { &gpu.uuid }),
        ));
    }
    match status.head {
        true => {
            rows.push((
                "DVM",
                format!(
                    "{}, {} of {} in use",
                    count(status.nodes, "node"),
                    status.slots_in_use,
                    count(status.slots, "slot")
                ),
            ));
            rows.push(("jobs", format!("{} running or queued", status.jobs)));
        }
        false => rows.push(("jobs", format!("{} with ranks on this node", status.jobs))),
    }
    if !status.listen.is_empty() {
        rows.push(("listens", status.listen.clone()));
    }
    rows.push(("state", status.state_dir.clone()));
    rows.iter().map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

pub(crate) fn count(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

pub(crate) fn stop(options: StopOptions) -> anyhow::Result<()> {
    let daemon = which(options.dvm.as_deref())?;
    // The daemon removes the directory of its sockets before it ends: the lock is opened first.
    let lock = match std::fs::File::open(daemon.dir().join("rsd.lock")) {
        // Root's daemon, which says so itself.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        lock => Some(lock.context("open the daemon's lock")?),
    };
    let StopOptions { force, keep_jobs, .. } = options;
    let request = ShutdownRequest { force, keep_jobs };
    let reply = ask(&daemon, async |channel| dvm_client(channel).shutdown(request).await)?;
    if let [first, rest @ ..] = &reply.unreached[..] {
        let (more, they, their) = match rest.len() {
            0 => (String::new(), "it does", "its machine"),
            more => (format!(" and {more} more"), "they do", "their machines"),
        };
        eprintln!("rsd: cannot reach {first}{more}: {they} not know of the stop; run `rsd stop` on {their}");
    }
    let deadline = std::time::Instant::now() + GONE_DEADLINE;
    while lock.as_ref().is_some_and(|lock| lock.try_lock_shared().is_err()) {
        if std::time::Instant::now() > deadline {
            let text =
                format!("the daemon in {} confirmed the stop but is still running", daemon.state_dir().display());
            return Err(Failed { code: exit::UNREACHABLE, text }.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let rest = if keep_jobs { "; its jobs wait for its next start" } else { "" };
    out(format_args!("rsd: stopped: {}{rest}\n", daemon.state_dir().display()))
}
