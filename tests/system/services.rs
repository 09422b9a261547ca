//! The units of `deploy/systemd`: systemd accepts them, and a service manager that does what they say disturbs no job.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Call, Dvm, Options, Running, built};

const PATIENCE: Duration = Duration::from_secs(60);

/// The text of a unit.
fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a unit sets.
fn unit(name: &str) -> BTreeMap<String, String> {
    let set = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    text(name).lines().filter(|line| !line.starts_with('#')).filter_map(set).collect()
}

#[test]
fn systemd_accepts_the_units() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    for (name, instance, manager) in [
        ("rsd.service", "rsd.service", "--system"),
        ("rsd@.service", "rsd@root.service", "--system"),
        ("rsd.user.service", "rsd.service", "--user"),
    ] {
        let dir = dvm.scratch().join(format!("units{manager}"));
        fs::create_dir_all(&dir).expect("the DVM's directory is writable");
        // The programs must exist.
        let program = built::rsd().display().to_string();
        let checked = text(name).replace("/usr/local/bin/rsd", &program).replace("%h/.local/bin/rsd", &program);
        fs::write(dir.join(instance), checked).expect("the DVM's directory is writable");
        let verify = Call::new("systemd-analyze").env("XDG_RUNTIME_DIR", dvm.scratch()).dir(dir);
        let ended = verify.args(["verify", manager, "--man=no", &format!("./{instance}")]).deadline(PATIENCE).end();
        assert!(ended.status.success() && !ended.err().contains(instance), "{name}: {ended}");
    }
}

/// Starts daemons as systemd does.
struct Manager<'a> {
    dvm: &'a Dvm,
    unit: BTreeMap<String, String>,
    told: UnixDatagram,
    variables: Vec<(&'static str, String)>,
}

impl Manager<'_> {
    fn command(&self, key: &str) -> Call {
        let line = self.unit[key].replace("/usr/local/bin/rsd", &built::rsd().display().to_string());
        let words = line.split_whitespace().flat_map(|word| {
            let named =
                self.variables.iter().find(|(name, _)| word == format!("${name}") || word == format!("${{{name}}}"));
            match named {
                Some((_, value)) if word.starts_with("${") => vec![value.clone()],
                Some((_, value)) => value.split_whitespace().map(str::to_owned).collect(),
                None => vec![word.to_owned()],
            }
        });
        let words: Vec<String> = words.collect();
        let call = self.dvm.call(&words[0]).args(&words[1..]);
        self.variables.iter().fold(call, |call, (name, value)| call.env(name, value)).deadline(3 * PATIENCE)
    }

    fn start(&self) -> Running {
        let daemon = self.command("ExecStart").start();
        self.until_told("READY=1");
        daemon
    }

    fn until_told(&self, wanted: &str) {
        let mut bytes = [0; 256];
        loop {
            let length = self.told.recv(&mut bytes).unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            if bytes[..length] == *wanted.as_bytes() {
                return;
            }
        }
    }
}

#[test]
fn a_job_does_not_notice_that_its_service_is_restarted_and_reloaded() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let at = dvm.scratch().join("notify");
    let told = UnixDatagram::bind(&at).expect("the DVM's directory is writable");
    told.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    let variables = vec![
        ("NOTIFY_SOCKET", at.display().to_string()),
        ("STATE_DIRECTORY", dvm.scratch().join("state").display().to_string()),
        ("RSD_ARGS", "--name service --slots 2 --single-user".to_owned()),
    ];
    let manager = Manager { dvm: &dvm, unit: unit("rsd@.service"), told, variables };
    assert_eq!((&*manager.unit["KillMode"], &*manager.unit["Type"]), ("process", "notify"));

    let mut daemon = manager.start();
    let gate = dvm.scratch().join("gate");
    let script =
        format!("echo up; read line; echo $line; until [ -e {} ]; do sleep 0.05; done; echo done", gate.display());
    let mut job = dvm.rsctl(["run", "-n", "1", "sh", "-c", &script]).stdin_open().deadline(2 * PATIENCE).start();
    job.until_stdout(|out| out.contains("up").then_some(()));
    for _ in 0..2 {
        // systemctl restart: with KillMode=process, only the main process gets the signal.
        daemon.signal(Signal::SIGTERM);
        manager.until_told("STOPPING=1");
        daemon.end().ok();
        daemon = manager.start();
    }
    // systemctl reload.
    manager.command("ExecReload").ok();
    manager.until_told("RELOADING=1");
    manager.until_told("READY=1");
    assert!(daemon.runs(), "the process is the same");
    job.write(b"line\n");
    job.until_stdout(|out| out.contains("line").then_some(()));
    dvm.file("gate", "");
    assert_eq!(job.end().ok(), "up\nline\ndone\n");
    // A second daemon in the same place ends with a code after which the unit does not start it again.
    let refused = manager.command("ExecStart").fails(249);
    assert!(refused.contains("already"), "{refused}");
    assert_eq!(manager.unit["RestartPreventExitStatus"], "249");
    dvm.call(built::rsd()).args(["stop"]).deadline(PATIENCE).ok();
    daemon.end().ok();
}
