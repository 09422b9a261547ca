//! Requests a plan: from the DVM or, for a machine that does not exist, from `rsd plan`, which has hwloc and needs no daemon.

use std::io;
use std::path::Path;
use std::process::Stdio;

use prost::Message;
use rsd_proto::transport::exit;
use rsd_proto::v1::{JobSpec, PlanReply, PlanRequest};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::dvm::{self, Client, DEADLINE};
use crate::exit::Failure;
use crate::private;

/// Requests a plan from the DVM.
pub(crate) async fn dvm(client: &mut Client, spec: JobSpec, idle: bool) -> Result<PlanReply, Failure> {
    let request = PlanRequest { spec: Some(spec), idle, topology: String::new() };
    dvm::answer("planning", client.plan(request)).await
}

/// Returns the topology that `--topology` describes: the text of the file that it names, else the option's own text.
pub(crate) fn topology(option: &str) -> Result<String, Failure> {
    let path = Path::new(option);
    let is_path = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("xml")) || option.contains('/');
    match is_path || path.is_file() {
        true => std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!(
                "cannot read {option}: {error}; give an XML file of lstopo, or a description such as 'pack:2 core:8 pu:2'"
            ))
        }),
        false => Ok(option.to_owned()),
    }
}

/// Requests a plan from `rsd plan`.
pub(crate) async fn elsewhere(spec: JobSpec, topology: String) -> Result<PlanReply, Failure> {
    let request = PlanRequest { spec: Some(spec), idle: true, topology };
    let program = private::program();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(exit::NO_DAEMON, "no rsd beside rsctl or in PATH, which --topology needs")
        }
        _ => Failure::new(exit::INTERNAL, format!("cannot run {} plan: {error}", program.display())),
    };
    let mut child = Command::new(&program)
        .arg("plan")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
    let encoded = request.encode_to_vec();
    let answering = async {
        // A failed write does not matter: the exit status and stderr of the program say why it stopped reading.
        let (_, output) = tokio::join!(async move { stdin.write_all(&encoded).await }, child.wait_with_output());
        output
    };
    let output = match tokio::time::timeout(DEADLINE, answering).await {
        Ok(output) => output.map_err(failed)?,
        Err(_) => {
            let text = format!("{} plan did not answer within {} s", program.display(), DEADLINE.as_secs());
            return Err(Failure::unreachable(text));
        }
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let text = match said.trim() {
            "" => format!("{} plan failed: {}", program.display(), output.status),
            said => said.strip_prefix("rsd: ").unwrap_or(said).to_owned(),
        };
        let code = output.status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code >= exit::USAGE);
        return Err(Failure::new(code.unwrap_or(exit::INTERNAL), text));
    }
    let garbled = |_| {
        Failure::new(
            exit::VERSION,
            format!("cannot read the answer of {} plan: its version differs", program.display()),
        )
    };
    PlanReply::decode(&*output.stdout).map_err(garbled)
}
