//! `cargo xtask bench incast`: many ranks on many hosts send to one rank at the same time (`tests/bench/mpi/incast.c`), with rsd's library
//! and with Open MPI, both started by rsd.
//!
//! The hosts are network namespaces of this machine, which only root can make. A switch, in a namespace of its own, connects them; its port
//! to the receiver's host holds [`BUFFER`] bytes and loses what comes above that.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::machine;
use crate::places;
use crate::prefix;
use crate::programs;
use crate::setup;
use crate::shell::{quiet, step};
use crate::stage::Stage;

/// The hosts of the senders, and the ranks on each.
const SENDERS: usize = 16;
const SLOTS: usize = 4;
/// The speed of every port.
const MBIT_PER_S: usize = 1000;
/// The speed of the senders' ports at last: ten of them fill the receiver's.
const SLOW_MBIT_PER_S: usize = 100;
const BUFFER: usize = 256_000;

/// The congestion controls that systems commonly have.
const CONTROLS: [&str; 2] = ["cubic", "bbr"];
const LIBRARIES: [(&str, &str); 2] = [("rsd", "rsd"), ("openmpi", "Open MPI")];

/// The median and the 99th percentile of a message length, in microseconds.
type Figures = BTreeMap<usize, [f64; 2]>;

/// `cargo xtask bench incast`.
pub(super) fn bench() -> anyhow::Result<()> {
    setup::setup(&[])?;
    let stage = Stage::set("bench-incast", programs::build()?)?;
    step("compile the bench", || compile(&stage))?;
    let hosts = Hosts::make().context("make hosts, which only root can do")?;
    hosts.start_daemons(&stage)?;
    let ranks = SENDERS * SLOTS;
    println!(
        "\n{}; {ranks} ranks on {SENDERS} hosts to one, port of {MBIT_PER_S} Mbit/s with {BUFFER} bytes",
        machine()?
    );
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    for control in CONTROLS {
        if !available.split_whitespace().any(|name| name == control) {
            println!("\nThis kernel does not have {control}.");
            continue;
        }
        hosts.use_control(control)?;
        measure(&hosts, &stage, control, MBIT_PER_S)?;
    }
    hosts.use_control(CONTROLS[0])?;
    hosts.slow_senders()?;
    let title = format!("{}, senders of {SLOW_MBIT_PER_S} Mbit/s", CONTROLS[0]);
    measure(&hosts, &stage, &title, SLOW_MBIT_PER_S)?;
    quiet(hosts.within(0, stage.command("rsd")?).args(["stop", "--force", "--dvm", &daemon(0)])).map(drop)
}

/// Prints a table; the senders' ports have this speed.
fn measure(hosts: &Hosts, stage: &Stage, title: &str, senders_mbit_per_s: usize) -> anyhow::Result<()> {
    let figures = LIBRARIES.map(|(library, _)| run(hosts, stage, library, SENDERS * SLOTS));
    print(title, senders_mbit_per_s, &figures.into_iter().collect::<anyhow::Result<Vec<_>>>()?);
    Ok(())
}

fn compile(stage: &Stage) -> anyhow::Result<()> {
    let source = places::root().join("tests/bench/mpi/incast.c");
    let ours = prefix::stage(&places::target()?.join("release"))?;
    for (library, place) in [("rsd", ours), ("openmpi", places::peer("openmpi")?)] {
        let program = stage.dir().join(program(library));
        quiet(Command::new(place.join("bin/mpicc")).args(["-O2", "-o"]).arg(program).arg(&source))?;
    }
    Ok(())
}

fn program(library: &str) -> String {
    format!("incast-{library}")
}

fn run(hosts: &Hosts, stage: &Stage, library: &str, ranks: usize) -> anyhow::Result<Figures> {
    let mut command = hosts.within(0, stage.command("rsctl")?);
    command.args(["run", "--dvm", &daemon(0), "--timeout", "10m", "-n", &(ranks + 1).to_string()]);
    let told = quiet(command.arg(Path::new(".").join(program(library))))?.stdout;
    let told = String::from_utf8_lossy(&told).into_owned();
    let figures = told.lines().map(|line| {
        let mut words = line.split(' ');
        let mut number = || words.next().and_then(|word| word.parse::<f64>().ok());
        let (bytes, median, most) = (number(), number(), number());
        Some((bytes? as usize, [median?, most?]))
    });
    figures.collect::<Option<Figures>>().with_context(|| format!("{library} printed {told:?}"))
}

fn print(title: &str, senders_mbit_per_s: usize, figures: &[Figures]) {
    let ranks = SENDERS * SLOTS;
    let columns = LIBRARIES.map(|(_, name)| format!(" {name}: median (ms) | 99 % within (ms) | MB/s |"));
    println!("\n| {title}, bytes | line rate (ms) |{}", columns.concat());
    println!("|---|---|{}", "---|".repeat(3 * columns.len()));
    for bytes in figures.first().into_iter().flat_map(|figures| figures.keys()) {
        let bits_per_ms = (MBIT_PER_S * 1000).min(senders_mbit_per_s * 1000 * SENDERS);
        let line_ms = (bytes * ranks * 8) as f64 / bits_per_ms as f64;
        let cells = figures.iter().map(|figures| match figures.get(bytes) {
            Some([median, most]) => {
                let rate = (bytes * ranks) as f64 / median;
                format!(" {:.1} | {:.1} | {rate:.0} |", median / 1e3, most / 1e3)
            }
            None => " – | – | – |".to_owned(),
        });
        println!("| {bytes} | {line_ms:.1} |{}", cells.collect::<String>());
    }
}

fn daemon(host: usize) -> String {
    format!("incast{host}")
}

/// The namespaces: `0` is the receiver's host.
struct Hosts {
    /// Removes them when this process ends, for any reason: it waits for the end of a pipe.
    guard: Child,
}

impl Hosts {
    fn make() -> anyhow::Result<Self> {
        const GUARD: &str =
            "trap '' INT TERM HUP QUIT; cat >/dev/null; for name; do ip netns del $name; done 2>/dev/null";
        let names = (0..=SENDERS).map(namespace).chain([SWITCH.to_owned()]);
        let guard = Command::new("sh").args(["-c", GUARD, "sh"]).args(names.clone()).stdin(Stdio::piped()).spawn()?;
        let hosts = Self { guard };
        for name in names {
            quiet(Command::new("ip").args(["netns", "add", &name]))?;
            ip(&name, "link set lo up")?;
        }
        ip(SWITCH, "link add bridge type bridge")?;
        ip(SWITCH, "link set bridge up")?;
        for host in 0..=SENDERS {
            let (name, port, rate) =
                (namespace(host), format!("port{host}"), format!("{MBIT_PER_S}mbit burst 64kb limit"));
            ip(SWITCH, &format!("link add {port} type veth peer name eth0 netns {name}"))?;
            ip(SWITCH, &format!("link set {port} master bridge up"))?;
            ip(&name, &format!("addr add {}/24 dev eth0", address(host)))?;
            ip(&name, "link set eth0 up")?;
            tc(SWITCH, &format!("qdisc add dev {port} root tbf rate {rate} {BUFFER}"))?;
            // A host's own queue makes its processes wait, and loses nothing.
            tc(&name, &format!("qdisc add dev eth0 root tbf rate {rate} 2mb"))?;
        }
        Ok(hosts)
    }

    fn start_daemons(&self, stage: &Stage) -> anyhow::Result<()> {
        let start = |host: usize, args: &[&str]| {
            let mut command = self.within(host, stage.command("rsd")?);
            quiet(command.args(["start", "--name", &daemon(host)]).args(args)).map(drop)
        };
        start(0, &["--slots", "1", "--single-user", "--listen", &format!("{}:0", address(0))])?;
        let head = stage.listen(&daemon(0))?;
        let mut token = self.within(0, stage.command("rsd")?);
        let token = token.args(["token", "new", "--quiet", "--dvm", &daemon(0), "--uses", &SENDERS.to_string()]);
        let token = String::from_utf8(quiet(token)?.stdout)?;
        let join = ["--slots", &SLOTS.to_string(), "--join", &head, "--token", token.trim()];
        (1..=SENDERS).try_for_each(|host| start(host, &join))
    }

    /// Connections made from now on use this congestion control. Its name is in the routes, because a namespace cannot have every one as
    /// its default.
    fn use_control(&self, control: &str) -> anyhow::Result<()> {
        (0..=SENDERS).try_for_each(|host| {
            let route = format!("10.77.0.0/24 dev eth0 proto kernel scope link src {}", address(host));
            ip(&namespace(host), &format!("route replace {route} congctl {control}"))
        })
    }

    /// The senders' own queues become slow.
    fn slow_senders(&self) -> anyhow::Result<()> {
        let slow = format!("qdisc change dev eth0 root tbf rate {SLOW_MBIT_PER_S}mbit burst 64kb limit 2mb");
        (1..=SENDERS).try_for_each(|host| tc(&namespace(host), &slow))
    }

    /// The command on a host.
    fn within(&self, host: usize, command: Command) -> Command {
        let mut within = Command::new("ip");
        within.args(["netns", "exec", &namespace(host)]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            within.current_dir(dir);
        }
        within.stdin(Stdio::null());
        within
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It now exits by itself; its exit status is irrelevant.
        let _ = self.guard.wait();
    }
}

const SWITCH: &str = "rsd-incast-switch";

fn namespace(host: usize) -> String {
    format!("rsd-incast-{host}")
}

fn address(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

fn ip(namespace: &str, words: &str) -> anyhow::Result<()> {
    quiet(Command::new("ip").args(["-n", namespace]).args(words.split(' '))).map(drop)
}

fn tc(namespace: &str, words: &str) -> anyhow::Result<()> {
    quiet(Command::new("tc").args(["-n", namespace]).args(words.split(' '))).map(drop)
}
