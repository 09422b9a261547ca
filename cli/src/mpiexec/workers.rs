//! Daemons on the other nodes of a Slurm allocation, for one job: one `srun` starts them all, and they join the private daemon of
//! `mpiexec`.
//!
//! `srun` passes its standard input on to all of them: the join token, then nothing until its end, at which they stop. So none
//! of them outlives this program, however it ends. Slurm ends what is left with the allocation.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rsd_proto::transport::{self, Target, exit};
use rsd_proto::v1::{ListNodesRequest, NewTokenRequest, NodeInfo, NodeState};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use super::allocation::Node;
use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::private::{self, Private};

/// Deadline for all daemons to join: Slurm starts them one after the other on its nodes.
const JOIN: Duration = Duration::from_secs(60);
/// Deadline for all daemons to stop.
const STOP: Duration = Duration::from_secs(10);
/// The pause between two looks at who has joined.
const PAUSE: Duration = Duration::from_millis(50);
/// How many of the last lines that srun and the daemons wrote are shown.
const LINES_SHOWN: usize = 5;

/// What runs on each node. $0: the path of rsd; then the addresses of the head, each behind `@`, and `NODE=SLOTS` for nodes whose number
/// of slots is known. The token is the first line of the standard input.
const SCRIPT: &str = r#"
umask 077
dir=$(mktemp -d "${TMPDIR:-/tmp}/rsd-slurm-XXXXXXXX") || exit 1
# Slurm sends TERM to all processes of an allocation that ends, also to rm.
trap 'trap "" TERM; rm -rf "$dir"' EXIT
trap 'exit 143' TERM
IFS= read -r token || exit 1
printf '%s\n' "$token" > "$dir/token" || exit 1
slots=
for word in "$@"; do
    case $word in "$SLURMD_NODENAME"=*) slots=--slots=${word#*=} ;; esac
done
for word in "$@"; do
    case $word in @*) ;; *) continue ;; esac
    "$0" start --foreground --private --name "$SLURMD_NODENAME" $slots --state-dir "$dir/state" \
        --join "${word#@}" --token-file "$dir/token" && exit 0
done
exit 1
"#;

/// The daemons.
pub(super) struct Workers {
    srun: Child,
    /// Closing it stops them.
    stdin: ChildStdin,
}

impl Workers {
    /// Starts a daemon on each of these nodes, and waits until all have joined the private daemon.
    pub(super) async fn start(nodes: &[Node], head: &Private, client: &mut Client) -> Result<Workers, Failure> {
        let log = head.file("srun");
        let (token, addresses) = invitation(nodes.len(), head, client).await?;
        let io = |what: &str, error: std::io::Error| {
            let hint = "without Slurm's srun, start a daemon on each node yourself (rsctl help from-slurm)";
            Failure::new(exit::SYSTEM, format!("cannot start daemons on the allocation's nodes: {what}: {error}"))
                .hint(hint)
        };
        let stderr = File::create(&log).map_err(|error| io(&log.display().to_string(), error))?;
        let mut command = srun(nodes, &addresses);
        let mut srun =
            command.stdin(Stdio::piped()).stderr(stderr).kill_on_drop(true).spawn().map_err(|e| io("srun", e))?;
        let Some(mut stdin) = srun.stdin.take() else {
            return Err(io("its standard input", std::io::ErrorKind::BrokenPipe.into()));
        };
        // If srun has ended, the next look says so.
        let _ = stdin.write_all(format!("{token}\n").as_bytes()).await;
        let mut workers = Workers { srun, stdin };
        match workers.joined(nodes, client, &log).await {
            Ok(()) => Ok(workers),
            Err(failure) => {
                workers.stop().await;
                Err(failure)
            }
        }
    }

    /// Waits until these nodes are up.
    async fn joined(&mut self, nodes: &[Node], client: &mut Client, log: &Path) -> Result<(), Failure> {
        let end = Instant::now() + JOIN;
        loop {
            let known = self::nodes(client).await?;
            let is_up = |name: &str| known.iter().any(|node| node.name == name && node.state() == NodeState::Up);
            let missing: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).filter(|name| !is_up(name)).collect();
            let why = match self.srun.try_wait() {
                _ if missing.is_empty() => return Ok(()),
                Ok(Some(status)) => format!("srun ended ({status})"),
                Ok(None) if Instant::now() < end => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Ok(None) => format!("they did not join within {} s", JOIN.as_secs()),
                Err(error) => format!("srun: {error}"),
            };
            let text = format!("cannot start daemons on {}: {why}{}", missing.join(", "), last_lines(log));
            let hint = "srun must be able to start a program on these nodes, and rsd must have the same path there";
            return Err(Failure::unreachable(text).hint(hint));
        }
    }

    /// Stops the daemons, and waits until they have ended.
    pub(super) async fn stop(self) {
        let Workers { mut srun, stdin } = self;
        drop(stdin);
        if tokio::time::timeout(STOP, srun.wait()).await.is_err() {
            // Slurm then ends the tasks of the step.
            let _ = srun.kill().await;
        }
    }
}

/// Returns a token for this number of daemons, and the addresses at which they may reach the head, the best first.
async fn invitation(count: usize, head: &Private, client: &mut Client) -> Result<(String, Vec<String>), Failure> {
    let target = Target::Unix(head.socket());
    let channel = transport::dial(&target, dvm::DEADLINE).await;
    let channel = channel.map_err(|error| Failure::of_dial(&target.to_string(), &error))?;
    let ttl_ms = u64::try_from(JOIN.as_millis()).unwrap_or(u64::MAX);
    let uses = u32::try_from(count).unwrap_or(u32::MAX);
    let request = NewTokenRequest { ttl_ms, uses, login_uid: None };
    let mut access = transport::access_client(channel);
    let reply = dvm::answer("making a join token", access.new_token(request)).await?;
    let port = reply.listen.rsplit(':').next().unwrap_or_default().to_owned();
    let own = nodes(client).await?.into_iter().find(|node| node.node == 0).and_then(|node| node.inventory);
    let hosts = own.into_iter().flat_map(|inventory| inventory.addresses).map(|address| address.host);
    let with_port =
        |host: String| if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut addresses: Vec<String> = hosts.map(with_port).collect();
    addresses.push(reply.listen);
    Ok((reply.token, addresses))
}

async fn nodes(client: &mut Client) -> Result<Vec<NodeInfo>, Failure> {
    let reply = dvm::answer("asking for the nodes", client.list_nodes(ListNodesRequest { load: false })).await?;
    Ok(reply.nodes)
}

/// One task on each node, beside whatever else runs in the allocation, on all its processors.
fn srun(nodes: &[Node], addresses: &[String]) -> Command {
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let count = nodes.len();
    let mut command = Command::new("srun");
    command.args([format!("--nodes={count}"), format!("--ntasks={count}"), "--ntasks-per-node=1".into()]);
    command.arg(format!("--nodelist={}", names.join(",")));
    command.args(["--overlap", "--mpi=none", "--cpu-bind=none", "--input=all", "--quiet", "sh", "-c", SCRIPT]);
    command.arg(absolute(private::program()));
    command.args(addresses.iter().map(|address| format!("@{address}")));
    command.args(nodes.iter().filter_map(|Node { name, slots }| Some(format!("{name}={}", (*slots)?))));
    // In a process group of its own, so that Ctrl-C reaches only this program, which then cancels the job.
    command.stdout(Stdio::null()).process_group(0);
    command
}

fn absolute(program: PathBuf) -> PathBuf {
    fs::canonicalize(&program).unwrap_or(program)
}

/// Returns the last lines of a log, each on a line of its own.
fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().map(|line| format!("\n  {line}")).collect()
}
