//! The daemon's side: examines the program that is to take its place, and executes it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use rsd_proto::transport::exit;
use rsd_proto::{PROTOCOL, PROTOCOL_OLDEST};
use serde::Deserialize;

use super::{BACK, BETWEEN, FAILED};
use crate::failed::Failed;

/// How long the program may examine the state directory.
const CHECK_DEADLINE: Duration = Duration::from_secs(30);
/// The most bytes of what it says.
const SAID_BYTES: usize = 1024;

/// What takes a daemon's place.
#[derive(Debug, Clone)]
pub(crate) struct Successor {
    pub(crate) program: PathBuf,
    /// Without the program's name.
    pub(crate) arguments: Vec<OsString>,
}

/// What a program prints that can take a daemon's place (`rsd start --check`).
#[derive(Debug, Deserialize)]
struct Checked {
    version: String,
    protocol: u32,
    protocol_oldest: u32,
}

/// Returns the arguments with which a program takes this daemon's place: its own, but without a token, which has served, and with the port
/// on which it listens now. `listen`: where.
pub(crate) fn arguments(listen: Option<&str>) -> Vec<OsString> {
    rewritten(std::env::args_os().skip(1), listen)
}

fn rewritten(own: impl IntoIterator<Item = OsString>, listen: Option<&str>) -> Vec<OsString> {
    let mut own = own.into_iter();
    let mut words = Vec::new();
    while let Some(word) = own.next() {
        let text = word.as_bytes();
        let (option, value) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]).to_owned())),
            None => (text, None),
        };
        match option {
            b"--token" | b"--token-file" => {
                if value.is_none() {
                    own.next();
                }
            }
            b"--listen" => {
                let asked = value.or_else(|| own.next()).unwrap_or_default();
                // Port 0 would become another one, at which no node looks for this daemon.
                let at = listen.filter(|_| asked.as_bytes().ends_with(b":0")).map_or(asked, OsString::from);
                words.extend(["--listen".into(), at]);
            }
            _ => words.push(word),
        }
    }
    words
}

/// Asks a program whether it can take this daemon's place; returns its version.
///
/// # Errors
/// Why it cannot. Nothing has changed.
pub(crate) async fn check(program: &Path, arguments: &[OsString]) -> Result<String, Failed> {
    let cannot = |code, why: String| {
        let text = format!("{} cannot take this daemon's place, which goes on: {why}", program.display());
        Failed::new(code, text)
    };
    if !program.is_absolute() {
        return Err(cannot(exit::USAGE, "the path must be absolute".into()));
    }
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).arg("--check").env_remove(BACK).env_remove(FAILED);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = match tokio::time::timeout(CHECK_DEADLINE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(cannot(exit::SYSTEM, error.to_string())),
        Err(_) => {
            let text = format!("it has not examined the state directory within {CHECK_DEADLINE:?}");
            return Err(cannot(exit::SYSTEM, text));
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("rsd: ").trim_start_matches("error: ");
    if !output.status.success() {
        let said = said[..said.floor_char_boundary(SAID_BYTES)].lines().next().unwrap_or("");
        let why = if said.is_empty() { output.status.to_string() } else { said.to_owned() };
        return Err(cannot(exit::VERSION, why));
    }
    let Ok(checked) = serde_json::from_slice::<Checked>(&output.stdout) else {
        return Err(cannot(exit::USAGE, "it is not rsd".into()));
    };
    if checked.protocol_oldest > PROTOCOL || checked.protocol < PROTOCOL_OLDEST {
        let text = format!(
            "version {} speaks protocols {} to {}, and the steps of running jobs speak {PROTOCOL}: let the jobs end, stop the DVM, and start \
             it with that version",
            checked.version, checked.protocol_oldest, checked.protocol
        );
        return Err(cannot(exit::VERSION, text));
    }
    Ok(checked.version)
}

/// Executes the program in this process. If that fails, executes this program again, which then knows why. Returns if that fails too.
pub(crate) fn execute(successor: &Successor) -> anyhow::Error {
    let Successor { program, arguments } = successor;
    let command = |program: &Path| {
        let mut command = Command::new(program);
        command.arg0("rsd").args(arguments).env_remove(BACK).env_remove(FAILED);
        command
    };
    let own = Path::new("/proc/self/exe");
    // Open also in the other program: the file of this one may have been deleted.
    let kept = File::open(own).and_then(|file| {
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(file)
    });
    let failed = match &kept {
        Ok(file) => {
            let mut back = OsString::from(file.as_raw_fd().to_string());
            for word in arguments {
                back.push(BETWEEN);
                back.push(word);
            }
            command(program).env(BACK, back).exec()
        }
        Err(error) => std::io::Error::new(error.kind(), format!("cannot keep this program: {error}")),
    };
    let why = format!("cannot execute {}: {failed}", program.display());
    let error = command(own).env(FAILED, &why).exec();
    anyhow::anyhow!("{why}, nor this program again: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_gets_the_own_arguments_without_tokens_and_with_the_port() {
        let vectors = [
            ("start --foreground --slots 4", None, "start --foreground --slots 4"),
            ("start --join a:1 --token x --name n", None, "start --join a:1 --name n"),
            ("start --token=x --token-file=y --token-file - --join a:1", None, "start --join a:1"),
            ("start --listen 0.0.0.0:0 --name n", Some("0.0.0.0:4711"), "start --listen 0.0.0.0:4711 --name n"),
            ("start --listen=[::]:0", Some("[::]:4711"), "start --listen [::]:4711"),
            ("start --listen 0.0.0.0:7817", Some("0.0.0.0:7817"), "start --listen 0.0.0.0:7817"),
            ("start --name=a=b", None, "start --name=a=b"),
        ];
        for (own, listen, expected) in vectors {
            let words = rewritten(own.split(' ').map(OsString::from), listen);
            let text: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            assert_eq!(text.join(" "), expected);
        }
    }
}
