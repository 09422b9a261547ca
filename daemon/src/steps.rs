//! The step processes of this daemon: started, watched, and cleaned up after when one dies.

use std::fs::File;
use std::io::Seek;
use std::path::Path;
use std::process::Stdio;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use rsd_core::JobId;
use rsd_core::rsd::Input;
use rsd_proto::v1::{Launch, LaunchBody};
use tracing::{info, warn};

use crate::reap;
use crate::shell::{Door, Event};
use crate::state_dir::{self, StateDir};

/// Starts the step of a job; its end is told to the shell. It lives on when the daemon does not.
pub(crate) fn start(state_dir: &StateDir, node: u32, launch: &Launch, door: Door) -> anyhow::Result<()> {
    let mut file = state_dir.new_step(launch)?;
    file.rewind().context("write the launch")?;
    let job = launch.job;
    // Our own program, also when its file has been replaced since: daemon and step are always of one version.
    let mut child = tokio::process::Command::new("/proc/self/exe")
        .arg0("rsd")
        .arg("step")
        .arg(state_dir.path())
        .arg(job.to_string())
        .arg(node.to_string())
        .stdin(Stdio::from(file))
        .stdout(Stdio::null())
        .spawn()
        .context("start `rsd step`")?;
    let namespace = namespace(launch);
    tokio::spawn(async move {
        let how = match child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        ended(&door, job, &namespace, &how);
    });
    Ok(())
}

/// Watches a step that an earlier daemon started: its lock is free when it ends.
pub(crate) fn watch(state_dir: &Path, launch: &Launch, door: Door) {
    let (path, job, namespace) = (state_dir::step(state_dir, launch.job), launch.job, namespace(launch));
    let watching = std::thread::Builder::new().name(format!("step-{job}")).stack_size(64 << 10).spawn(move || {
        let waited = File::open(path).and_then(|file| file.lock());
        let how = match waited {
            Ok(()) => "its process is gone".to_owned(),
            Err(error) => error.to_string(),
        };
        ended(&door, job, &namespace, &how);
    });
    if let Err(error) = watching {
        warn!(job, %error, "cannot watch a step");
    }
}

/// The step of a launch that was found after a restart and does not live any more.
pub(crate) fn mourn(launch: &Launch, door: &Door) {
    ended(door, launch.job, &namespace(launch), "it died while its daemon was away");
}

fn ended(door: &Door, job: JobId, namespace: &str, how: &str) {
    info!(job, how, "a step has ended");
    // In the normal case there is nothing left. If the step was killed its ranks are orphans, known by their environment.
    match reap::processes_with_environ("RSD_PMI_NAMESPACE", namespace) {
        Ok(orphans) => {
            for pid in orphans {
                warn!(job, %pid, "killing a process that a dead step left");
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
        Err(error) => warn!(job, %error, "cannot look for processes of a dead step"),
    }
    reap::remove_mpich_shm(namespace);
    door.send(Event::Input(Input::StepLost { job, why: format!("its step process ended unasked ({how})") }));
}

fn namespace(launch: &Launch) -> String {
    use prost::Message;
    LaunchBody::decode(launch.body.clone()).map(|body| body.namespace).unwrap_or_default()
}
