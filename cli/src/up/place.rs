//! Runs shell scripts on a host, or here.
//!
//! A script and its input travel on the standard input of a constant command, because command lines can be seen by all users of the
//! host. Any login shell understands that command. The script first writes a mark to both its outputs: what shells' start-up files
//! have written before it is ignored.

use std::process::Stdio;
use std::time::Duration;

use rsd_ssh::{Connection, Output, SshError};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Reads one line and executes it; the rest of the input is the line's.
const COMMAND: &str = "sh -c 'IFS= read -r line; eval \"$line\"'";
/// The mark. Start-up files do not write it.
const MARK: &str = "rsctl-up-begins-here";
/// How many of the last lines of standard error are shown.
const LINES_SHOWN: usize = 3;

/// Where a script runs.
pub(crate) enum Place {
    Here,
    There(Box<Connection>),
}

/// What a script has written, without what start-up files wrote.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) status: Option<u32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Why a step failed, in words for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) text: String,
    /// The last lines of the host's standard error.
    pub(crate) lines: Vec<String>,
}

impl Why {
    pub(crate) fn new(text: impl Into<String>) -> Why {
        Why { text: text.into(), lines: Vec::new() }
    }
}

impl From<SshError> for Why {
    fn from(error: SshError) -> Why {
        Why::new(error.to_string())
    }
}

impl Place {
    /// Runs a script of one line. `doing` says what it is for, in errors.
    pub(crate) async fn run(
        &self,
        script: &str,
        input: &[&[u8]],
        deadline: Duration,
        doing: &str,
    ) -> Result<Told, Why> {
        if script.contains('\n') {
            return Err(Why::new(format!("{doing}: a path contains a line break")));
        }
        let line = format!("echo {MARK}; echo {MARK} >&2; {script}\n");
        let input: Vec<&[u8]> = [line.as_bytes()].into_iter().chain(input.iter().copied()).collect();
        let output = match self {
            Place::There(connection) => connection.run(COMMAND, &input, deadline, doing).await?,
            Place::Here => here(&input, deadline, doing).await?,
        };
        told(&output, doing)
    }
}

async fn here(input: &[&[u8]], deadline: Duration, doing: &str) -> Result<Output, Why> {
    let failed = |error: std::io::Error| Why::new(format!("{doing}: {error}"));
    let mut child = Command::new("/bin/sh")
        .args(["-c", COMMAND])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take();
    let run = async {
        if let Some(stdin) = &mut stdin {
            for part in input {
                // A script may end before it has read all its input.
                let _ = stdin.write_all(part).await;
            }
        }
        drop(stdin);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(deadline, run).await;
    let slow = || Why::new(format!("no answer within {} s: {doing}", deadline.as_secs()));
    let output = output.map_err(|_| slow())?.map_err(failed)?;
    let status = output.status.code().and_then(|code| u32::try_from(code).ok());
    Ok(Output { status, signal: None, stdout: output.stdout, stderr: output.stderr })
}

fn told(output: &Output, doing: &str) -> Result<Told, Why> {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let after = |text: &str| {
        let mut lines = text.split_inclusive('\n');
        // Start-up files may write a text without a line break before the mark.
        let found = lines.find(|line| line.trim_end().ends_with(MARK));
        found.map(|_| lines.collect::<String>())
    };
    match after(&stdout) {
        Some(own) => {
            let stderr = after(&stderr).unwrap_or_else(|| stderr.into_owned());
            Ok(Told { status: output.status, stdout: own, stderr })
        }
        None => {
            let text = format!("the account's shell ended before it ran anything ({doing}): {}", ending(output));
            Err(Why { text, lines: last_lines(&format!("{stdout}{stderr}")) })
        }
    }
}

fn ending(output: &Output) -> String {
    match (&output.status, &output.signal) {
        (Some(status), _) => format!("exit code {status}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "the connection was closed".to_owned(),
    }
}

impl Told {
    /// Returns the standard output of a script that succeeded. Err: `doing` failed, with the last lines of standard error.
    pub(crate) fn ok(self, doing: &str) -> Result<String, Why> {
        match self.status {
            Some(0) => Ok(self.stdout),
            status => {
                let code = status.map_or("a signal".to_owned(), |status| format!("exit code {status}"));
                let lines = last_lines(&self.stderr);
                let text = match lines.is_empty() {
                    true => format!("{doing}: {code}, and no message"),
                    false => format!("{doing} ({code})"),
                };
                Err(Why { text, lines })
            }
        }
    }
}

fn last_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().map(|line| (*line).to_owned()).collect()
}

/// Quotes a word for a POSIX shell.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Quotes a path, in which a leading `~/` is the account's home.
pub(crate) fn quoted_path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None if path == "~" => "\"$HOME\"".to_owned(),
        None => quoted(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_start_up_files_write_is_ignored() {
        let output = |stdout: &str, stderr: &str| Output {
            status: Some(3),
            stdout: stdout.into(),
            stderr: stderr.into(),
            ..Output::default()
        };
        let noisy = output(&format!("welcome\nno newline{MARK}\nreal\n"), &format!("warning\n{MARK}\na\nb\n\nc\nd\n"));
        let told = told(&noisy, "x").unwrap();
        assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("real\n", "a\nb\n\nc\nd\n"));
        let why = told.ok("starting").unwrap_err();
        assert_eq!(why, Why { text: "starting (exit code 3)".into(), lines: vec!["b".into(), "c".into(), "d".into()] });
        let why = super::told(&output("This account is not available.\n", ""), "looking").unwrap_err();
        assert_eq!(why.lines, ["This account is not available."]);
        assert!(why.text.contains("exit code 3"), "{why:?}");
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("a b'c$d"), "'a b'\\''c$d'");
        assert_eq!(quoted_path("~/my bin"), "\"$HOME\"/'my bin'");
        assert_eq!(quoted_path("/a~/b"), "'/a~/b'");
    }
}
