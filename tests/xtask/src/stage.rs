//! A separate directory for daemons, which hides the user's own daemons and protects them.
//!
//! A guard process stops the daemons when xtask exits, for any reason: it waits for the end of a pipe that only xtask holds.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::places;

/// The directory in which daemons are started and all commands run.
pub(crate) struct Stage {
    dir: PathBuf,
    binaries: PathBuf,
    guard: Option<Child>,
}

impl Stage {
    /// Creates an empty directory below cargo's target directory; its commands use `rsd` and `rsctl` from `binaries`.
    pub(crate) fn set(name: &str, binaries: PathBuf) -> anyhow::Result<Stage> {
        let dir = places::target()?.join(name);
        // The guard of an earlier run has stopped its daemons.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove the old {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        let mut stage = Stage { dir, binaries, guard: None };
        stage.guard = Some(stage.post_guard()?);
        Ok(stage)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a command in the directory, which finds only these daemons.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(self.binaries.clone()).chain(std::env::split_paths(&path)))?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RSD_")) {
            command.env_remove(name);
        }
        command.current_dir(&self.dir).env("PATH", path).stdin(Stdio::null());
        command.env("RSD_RUNTIME_DIR", &self.dir).env("RSD_STATE_DIR", self.dir.join("state"));
        Ok(command)
    }

    /// A daemon's record of itself, `daemon.json`.
    pub(crate) fn record(&self, daemon: &str) -> anyhow::Result<serde_json::Value> {
        let path = self.dir.join(daemon).join("daemon.json");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The address on which a daemon listens.
    pub(crate) fn listen(&self, daemon: &str) -> anyhow::Result<String> {
        let listen = self.record(daemon)?["listen"].as_str().map(str::to_owned);
        listen.with_context(|| format!("the record of {daemon} has no listen address"))
    }

    /// A daemon's process id.
    pub(crate) fn pid(&self, daemon: &str) -> anyhow::Result<u64> {
        self.record(daemon)?["pid"].as_u64().with_context(|| format!("the record of {daemon} has no process id"))
    }

    fn post_guard(&self) -> anyhow::Result<Child> {
        // Ctrl-C goes to the whole process group; the guard ignores it.
        const WATCH: &str = "trap '' INT TERM HUP QUIT; cat >/dev/null
            for daemon in */daemon.json; do rsd stop --force --dvm \"${daemon%/*}\" >/dev/null 2>&1; done; exit 0";
        self.command("sh")?.args(["-c", WATCH]).stdin(Stdio::piped()).spawn().context("start the guard")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            // The guard now exits by itself; its exit status is irrelevant.
            let _ = guard.wait();
        }
    }
}
