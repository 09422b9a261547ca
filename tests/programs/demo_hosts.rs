//! `cargo xtask demo --hosts N`: shows rsd on several hosts, which are namespaces of this machine.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rsd_tests::built;
use rsd_tests::hosts::{Network, Plan};

fn main() -> ExitCode {
    let hosts = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(4);
    let names: Vec<String> = (0..hosts).map(|at| format!("node{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let since = Instant::now();
    let Some(network) = Plan::of(&names).start() else { return ExitCode::FAILURE };
    let folder = built::target().join("demo-hosts");
    fs::create_dir_all(&folder).expect("the target directory is writable");
    let pi = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/pi.c");
    fs::copy(pi, folder.join("pi.c")).expect("the target directory is writable");
    Demo { network, folder }.play(&names);
    println!(
        "\nDone in {:.1} s. Nothing of the hosts is left. README.md continues from here.",
        since.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

struct Demo {
    network: Network,
    /// A directory that all hosts share, as on a cluster with a network file system.
    folder: PathBuf,
}

impl Demo {
    fn play(&self, names: &[&str]) {
        let (head, last) = (names[0], names[names.len() - 1]);
        let n = 2 * names.len();
        println!("\nThe directory {} is shared by all hosts.", self.folder.display());
        say(&format!(
            "{} hosts, each with its own network, processes, shared memory and /tmp. The first is the head.",
            names.len()
        ));
        let addresses: Vec<String> = self.network.hosts().iter().map(|host| host.address().to_string()).collect();
        println!(
            "{}",
            names.iter().zip(addresses).map(|(name, at)| format!("{name} {at}")).collect::<Vec<_>>().join(", ")
        );
        self.run(head, "rsd start --listen 0.0.0.0:7817 --slots 2");

        say("The others join with a token. From here on, certificates identify the daemons.");
        let token = self.run(head, "rsd token new --quiet");
        for name in &names[1..] {
            self.run(name, &format!("rsd start --join {head}:7817 --token {} --slots 2", token.trim()));
        }
        self.run(head, "rsctl nodes");

        say("An MPI program over all hosts. Its ranks talk over the network; nothing else connects the hosts.");
        self.run(head, "mpicc -O2 -o pi pi.c -lm");
        let before = self.network.host(last).received_bytes();
        self.run(head, &format!("rsctl run -n {n} --map-by node ./pi"));
        println!("# {last} has received {} KiB.", (self.network.host(last).received_bytes() - before) >> 10);

        say(&format!("The network of {last} fails for three seconds while a job runs there. Nothing is lost."));
        let lines = "for i in 1 2 3 4; do echo line $i of 4; sleep 1; done";
        self.run(head, &format!("rsctl submit -n 1 --host {last} sh -c '{lines}'"));
        sleep(Duration::from_secs(1));
        self.network.cut(last);
        sleep(Duration::from_secs(3));
        self.network.mend(last);
        self.run(head, "rsctl attach last");

        say("The head stops all daemons.");
        self.run(head, "rsd stop");
    }

    /// Shows a command and what it prints, and returns that.
    ///
    /// # Panics
    /// If it fails.
    fn run(&self, host: &str, line: &str) -> String {
        println!("{host}$ {line}");
        std::io::stdout().flush().expect("standard output is open");
        let mpicc = built::library().join("bin");
        let script = format!("exec 2>&1; PATH={}:$PATH; cd {}; {line}", mpicc.display(), self.folder.display());
        let said = self.network.host(host).sh(&script).end();
        print!("{}", said.out());
        said.ok()
    }
}

fn say(text: &str) {
    println!("\n# {text}");
}
