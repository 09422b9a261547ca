//! `cargo xtask bench join`: the time from the last member's request to join a group until all members may call MPI_Init.
//!
//! The members are idle processes; this process requests their places, over one connection each, as the members would. All but
//! one wait in the lobby when the clock starts. Starting the MPI afterwards is not measured.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::machine;
use crate::programs;
use crate::setup;
use crate::shell::quiet;
use crate::stage::Stage;

const ROUNDS: usize = 21;
/// The deadline for an answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// `cargo xtask bench join`.
pub(super) fn bench() -> anyhow::Result<()> {
    setup::for_building()?;
    let stage = Stage::set("bench-join", programs::build()?)?;
    quiet(stage.command("rsd")?.args(["start", "--name", "join", "--slots", "1"]))?;
    let socket = stage.dir().join("join/join.sock");
    println!("\n{}; {ROUNDS} rounds after one to warm up\n", machine()?);
    println!(
        "| members of one node | last to join → all admitted, median (ms) | fastest (ms) | slowest (ms) |\n|---|---|---|---|"
    );
    for members in [2, 16, 64] {
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            times.push(epoch(&socket, members)?);
            if round == 0 {
                times.clear();
            }
        }
        times.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let [median, fastest, slowest] = [times[ROUNDS / 2], times[0], times[ROUNDS - 1]].map(ms);
        println!("| {members} | {median:.2} | {fastest:.2} | {slowest:.2} |");
    }
    quiet(stage.command("rsd")?.args(["stop", "--force", "--dvm", "join"])).map(drop)
}

/// The time of one group of `members`, from the last request to the last answer.
fn epoch(socket: &Path, members: usize) -> anyhow::Result<Duration> {
    let mut waiting = (1..members).map(|_| Member::join(socket, members)).collect::<anyhow::Result<Vec<_>>>()?;
    waiting.iter_mut().try_for_each(|member| member.wait_for("wait "))?;
    let idle = Idle::start()?;
    let since = Instant::now();
    waiting.push(Member::join_as(socket, members, idle)?);
    waiting.iter_mut().try_for_each(|member| member.wait_for("go "))?;
    Ok(since.elapsed())
}

/// An idle process, which exits when this value is dropped.
struct Idle(Child);

impl Idle {
    fn start() -> anyhow::Result<Idle> {
        let mut command = Command::new("cat");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("start a member")?;
        Ok(Idle(child))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its exit status is irrelevant.
        let _ = self.0.wait();
    }
}

struct Member {
    answers: BufReader<UnixStream>,
    _process: Idle,
}

impl Member {
    fn join(socket: &Path, size: usize) -> anyhow::Result<Member> {
        Member::join_as(socket, size, Idle::start()?)
    }

    fn join_as(socket: &Path, size: usize, process: Idle) -> anyhow::Result<Member> {
        let mut stream = UnixStream::connect(socket).with_context(|| format!("connect to {}", socket.display()))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(format!("join v=1 group=bench size={size} pid={}\n", process.0.id()).as_bytes())?;
        Ok(Member { answers: BufReader::new(stream), _process: process })
    }

    /// Reads until an answer of this kind. Progress events about other members may arrive before it.
    fn wait_for(&mut self, kind: &str) -> anyhow::Result<()> {
        loop {
            let mut line = String::new();
            self.answers.read_line(&mut line).context("wait for the daemon's answer")?;
            match line.split_once(' ').map(|(verb, _)| verb) {
                Some(_) if line.starts_with(kind) => return Ok(()),
                Some("wait") => {}
                Some(_) | None => bail!("unexpected answer of the daemon: {line:?}"),
            }
        }
    }
}
