//! `cargo xtask demo`: a virtual machine of four daemons on this machine, and a real MPI program on it.
//!
//! Everything happens in a directory of its own, so that the user's own daemons are neither seen nor touched. A guard
//! process stops the daemons when we leave, however we leave: it waits for the end of a pipe that only we hold.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use crate::places;
use crate::setup;
use crate::shell::{cargo, quiet, step};

/// `cargo xtask demo`.
pub(crate) fn demo(_args: &[OsString]) -> anyhow::Result<()> {
    setup::packages()?;
    step("build rsd and rsctl", || quiet(&mut cargo(["build", "--quiet", "--package=rsd", "--package=rsctl"])))?;
    let since = Instant::now();
    let stage = Stage::set()?;
    play(&stage)?;
    drop(stage);
    println!("\nThat was it, in {:.1} s. Your turn: README.md goes on from here.", since.elapsed().as_secs_f64());
    Ok(())
}

fn play(stage: &Stage) -> anyhow::Result<()> {
    stage.say("Four daemons on this machine, as if it were four. The first is the head; the others join it.");
    stage.run("rsd start --name node0 --listen 127.0.0.1:0 --slots 4")?;
    let head = stage.head()?;
    for node in 1..4 {
        stage.run(&format!("rsd start --name node{node} --join {head} --slots 4"))?;
    }
    stage.run("rsctl nodes")?;

    stage.say("An MPI program, compiled with the MPICH that Debian ships. It knows nothing of rsd.");
    stage.run("mpicc.mpich -O2 -o pi pi.c -lm")?;

    stage.say(
        "Submitted, it runs on its own; what is printed is the job's number. `attach` follows it from its beginning.",
    );
    stage.run("rsctl submit -n 16 ./pi")?;
    stage.run("rsctl attach last")?;
    stage.run("rsctl job show last")?;

    stage.say("`run` does both, and exits as the program does. One rank per node in turn; -l tells who says what.");
    stage.run("rsctl run -n 4 --map-by node -l sh -c 'echo \"hello from $RSD_NODE_NAME\"'")?;

    stage.say("When something goes wrong, it says what, where and why.");
    stage.fail("rsctl run -n 4 sh -c 'test $RSD_RANK != 2 || { echo \"out of luck\" >&2; exit 3; }'", 3)?;
    stage.fail("rsctl run -n 20 ./pi", 243)?;

    stage.say("A daemon can go while its ranks stay: here the one of node3 is killed, and started again.");
    stage.run("rsctl submit -n 16 sh -c 'sleep 2; echo \"rank $RSD_RANK on $RSD_NODE_NAME is done\"'")?;
    stage.run(&format!("kill -9 {}", stage.pid("node3")?))?;
    stage.run(&format!("rsd start --name node3 --join {head} --slots 4"))?;
    stage.run("rsctl wait last && rsctl logs last | grep node3")?;

    stage.say("All that has happened:");
    stage.run("rsctl ps -a")?;
    stage.run("rsd stop --dvm node0")
}

/// The demo's directory, in which all commands run.
struct Stage {
    dir: PathBuf,
    _guard: Guard,
}

impl Stage {
    fn set() -> anyhow::Result<Stage> {
        let dir = places::target()?.join("demo");
        // A guard of an earlier demo has stopped what ran there.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove the last demo in {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        fs::copy(places::root().join("tests/programs/pi.c"), dir.join("pi.c"))?;
        println!("\nThis plays in {}", dir.display());
        let guard = Guard::post(&dir)?;
        Ok(Stage { dir, _guard: guard })
    }

    fn say(&self, text: &str) {
        println!("\n# {text}");
    }

    /// Shows a command, then what it prints.
    fn run(&self, line: &str) -> anyhow::Result<()> {
        let code = self.shell(line)?;
        anyhow::ensure!(code == Some(0), "`{line}` ended with {code:?}");
        Ok(())
    }

    /// The same for one that is to fail.
    fn fail(&self, line: &str, expected: i32) -> anyhow::Result<()> {
        let code = self.shell(line)?;
        anyhow::ensure!(code == Some(expected), "`{line}` ended with {code:?} instead of {expected}");
        println!("$ echo $?\n{expected}");
        Ok(())
    }

    fn shell(&self, line: &str) -> anyhow::Result<Option<i32>> {
        println!("$ {line}");
        std::io::stdout().flush()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1; {line}")]).stdin(Stdio::null());
        Ok(private(&mut shell, &self.dir)?.status()?.code())
    }

    /// Where the head listens.
    fn head(&self) -> anyhow::Result<String> {
        let listen = self.record("node0")?["listen"].as_str().map(str::to_owned);
        listen.context("the head does not say where it listens")
    }

    fn pid(&self, node: &str) -> anyhow::Result<u64> {
        self.record(node)?["pid"].as_u64().with_context(|| format!("{node} does not say its process id"))
    }

    /// What a daemon has written about itself.
    fn record(&self, node: &str) -> anyhow::Result<serde_json::Value> {
        let path = self.dir.join(node).join("daemon.json");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Gives a command the demo's directory and programs, and no other daemon to find.
fn private<'a>(command: &'a mut Command, dir: &Path) -> anyhow::Result<&'a mut Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(places::binaries()?).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(all)?;
    let user = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RSD_"));
    for (name, _) in user {
        command.env_remove(name);
    }
    Ok(command.current_dir(dir).env("PATH", path).env("RSD_RUNTIME_DIR", dir))
}

/// Stops the daemons when the pipe to it is closed.
struct Guard {
    process: Child,
}

impl Guard {
    fn post(dir: &Path) -> anyhow::Result<Guard> {
        // Ctrl-C goes to all of us; the guard outlives it.
        const WATCH: &str = "trap '' INT TERM HUP QUIT; cat >/dev/null
            for node in node3 node2 node1 node0; do rsd stop --force --dvm $node >/dev/null 2>&1; done; exit 0";
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH]).stdin(Stdio::piped());
        let process = private(&mut shell, dir)?.spawn().context("start the guard")?;
        Ok(Guard { process })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends by itself now; there is nothing to learn from how.
        let _ = self.process.wait();
    }
}
