//! `rsd plan`: where a job would go on described machines. Reads an encoded [`PlanRequest`] with a topology from standard input,
//! which rsctl writes, and writes the answer to standard output.
//!
//! hwloc reads a description only from its environment variables, so a child process does that: `rsd topology`.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::Context;
use prost::Message;
use rsd_core::place::topology::Topology;
use rsd_core::{place, plan};
use rsd_proto::transport::exit;
use rsd_proto::v1::{self as wire, PlanRequest};

use crate::failed::Failed;
use crate::inventory::{self, Machine};

/// The largest description: lstopo's XML of the largest machines has a few MiB.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Variables that would make hwloc read another source or report less.
const OTHER_SOURCES: [&str; 9] = [
    "HWLOC_SYNTHETIC",
    "HWLOC_XMLFILE",
    "HWLOC_THISSYSTEM",
    "HWLOC_FSROOT",
    "HWLOC_DUMPED_HWDATA_DIR",
    "HWLOC_CPUID_PATH",
    "HWLOC_COMPONENTS",
    "HWLOC_HIDE_ERRORS",
    "HWLOC_XML_USERDATA_NOT_DECODED",
];

pub(crate) fn plan() -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    std::io::stdin().take(REQUEST_BYTES_MAX).read_to_end(&mut bytes).context("read the request")?;
    let request = PlanRequest::decode(&*bytes)
        .ok()
        .filter(|request| !request.topology.is_empty() && request.spec.is_some())
        .context("standard input does not contain a plan request with a topology: use rsctl plan --topology")?;
    let spec = request.spec.unwrap_or_default();
    let nodes = plan::imagine(&spec, described(&request.topology)?).map_err(usage)?;
    let outcome = plan::request(&spec).and_then(|wanted| place::place(&nodes, &wanted, 0));
    let reply = plan::reply(&nodes, &outcome, |_| Vec::new());
    std::io::stdout().write_all(&reply.encode_to_vec()).context("write the plan")
}

/// Parses a description: lstopo's XML, or words as in `pack:2 core:4 pu:2`.
fn described(description: &str) -> anyhow::Result<Topology> {
    let is_xml = description.trim_start().starts_with('<');
    let mut command = Command::new("/proc/self/exe");
    command.arg("topology").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in OTHER_SOURCES {
        command.env_remove(name);
    }
    match is_xml {
        true => command.env("HWLOC_XMLFILE", "/dev/stdin").env("HWLOC_XML_VERBOSE", "1"),
        false if description.contains('\0') => return Err(usage("a topology must not contain zero bytes")),
        false => command.env("HWLOC_SYNTHETIC", description.trim()).env("HWLOC_SYNTHETIC_VERBOSE", "1"),
    };
    let mut child = command.spawn().context("start `rsd topology`")?;
    let mut stdin = child.stdin.take().context("internal error: standard input is not a pipe")?;
    let document = if is_xml { description.as_bytes().to_vec() } else { Vec::new() };
    // The child may print before it has read everything. If it does not read, its stderr says why.
    let writing = std::thread::spawn(move || drop(stdin.write_all(&document)));
    let output = child.wait_with_output().context("wait for `rsd topology`")?;
    writing.join().map_err(|_| anyhow::anyhow!("cannot write to `rsd topology`"))?;
    let known = wire::Topology::decode(&*output.stdout).ok().filter(|_| output.status.success());
    let topology = known.and_then(|known| Topology::try_from(&known).ok());
    topology.ok_or_else(|| usage(not_understood(description, is_xml, &String::from_utf8_lossy(&output.stderr))))
}

fn not_understood(description: &str, is_xml: bool, said: &str) -> String {
    let why = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    match is_xml {
        true => {
            format!("hwloc does not understand this XML as a topology{why}: write it with lstopo --of xml FILE.xml")
        }
        false => format!(
            "hwloc does not understand the topology {description:?}{why}: write for example \
             \"pack:2 numa:1 l3:1 core:8 pu:2\", from the outside in and ending with pu, or name an XML file of lstopo"
        ),
    }
}

fn usage(text: impl Into<String>) -> anyhow::Error {
    Failed { code: exit::USAGE, text: text.into() }.into()
}

/// `rsd topology`: writes the topology that hwloc reads from its environment variables. Fails silently if hwloc fell back to this
/// machine, which it does when it does not understand the description.
pub(crate) fn topology() -> anyhow::Result<()> {
    match inventory::machine() {
        Some(Machine { topology, is_this: false }) => {
            let bytes = wire::Topology::from(&topology).encode_to_vec();
            std::io::stdout().write_all(&bytes).context("write the topology")
        }
        Some(Machine { is_this: true, .. }) | None => std::process::exit(1),
    }
}
