//! One host, and how programs run on it.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::built;
use crate::call::{Call, Running};

/// A running host.
#[derive(Debug)]
pub struct Host {
    name: String,
    number: u8,
    addresses: Vec<IpAddr>,
    namespaces: Namespaces,
}

/// The home directories of root and of the other users, which each host has for itself.
const HOMES: &str = "/var/lib/home";
/// Programs under test, which every user may run.
const TOOLS: &str = "/run/bin";

impl Host {
    pub(super) fn new(name: &str, (number, addresses): (u8, Vec<IpAddr>), namespaces: Namespaces) -> Host {
        Host { name: name.to_owned(), number, addresses, namespaces }
    }

    /// Its name, which is its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// A process in its network namespace, by the number that this machine knows.
    pub(super) fn pid(&self) -> Pid {
        self.namespaces.holder.pid()
    }

    /// Its first address: the one of IPv4, if it has one.
    pub fn address(&self) -> IpAddr {
        self.addresses[0]
    }

    /// All addresses of its first interface.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Its first address with a port, as text.
    pub fn at(&self, port: u16) -> String {
        SocketAddr::new(self.address(), port).to_string()
    }

    /// A program that runs on the host as root, in root's home directory.
    pub fn call(&self, program: impl AsRef<OsStr>) -> Call {
        self.call_in(&self.home("root"), &[], program)
    }

    /// A shell script that runs on the host as root.
    pub fn sh(&self, script: &str) -> Call {
        self.call("sh").args(["-c", script])
    }

    /// A program that runs on the host as another user: `alice` or `bob`.
    pub fn call_as(&self, user: &str, program: impl AsRef<OsStr>) -> Call {
        let uid = uid(user);
        let become_user = ["--setuid".to_owned(), uid.to_string(), "--setgid".to_owned(), uid.to_string()];
        self.call_in(&self.home(user), &become_user, program)
    }

    fn call_in(&self, home: &str, become_user: &[String], program: impl AsRef<OsStr>) -> Call {
        // `nsenter` starts in the root directory.
        let call = Call::new("nsenter").args(self.namespaces.options()).args(become_user);
        let call = call.args(["--", "env", "--chdir", home]).args([program]);
        let path = std::env::var("PATH").unwrap_or_default();
        let call = call.env("PATH", format!("{TOOLS}:{path}")).env("HOME", home).env("OPENBLAS_NUM_THREADS", "1");
        ["RSD_DVM", "RSD_LOG", "RSD_CONFIG", "RSD_RUNTIME_DIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"]
            .iter()
            .fold(call, |call, name| call.env_remove(name))
    }

    /// The home directory of `root`, `alice` or `bob`, as the host sees it.
    pub fn home(&self, user: &str) -> String {
        format!("{HOMES}/{user}")
    }

    /// A file of the host, as this process sees it.
    pub fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        let below = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.pid().to_string()).join("root").join(below)
    }

    /// Adds rules to the host's packet filter, in the language of `nft`.
    #[track_caller]
    pub fn nft(&self, rules: &str) {
        self.call("nft").args(["-f", "-"]).stdin(rules).ok();
    }

    /// Drops all packets to the host silently, but those that answer it, those of loopback and those to these TCP ports.
    #[track_caller]
    pub fn firewall(&self, open: &[u16]) {
        let open: String = open.iter().map(|port| format!("tcp dport {port} accept\n")).collect();
        self.nft(&format!(
            "table inet firewall {{
                chain in {{
                    type filter hook input priority filter; policy drop;
                    iifname lo accept
                    ct state established,related accept
                    meta l4proto ipv6-icmp accept
                    {open}
                }}
            }}"
        ));
    }

    /// Starts an ssh server on port 22. It knows the keys in the users' home directories, and runs commands with the PATH of
    /// [`Host::call`]. Returns the server's public key, as in a file of known hosts.
    #[track_caller]
    pub fn sshd(&self) -> String {
        const SCRIPT: &str = r#"set -eu
            mkdir -p /run/sshd
            cd /run/etc
            ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key
            cat >sshd_config <<END
HostKey /run/etc/ssh_host_ed25519_key
PidFile /run/etc/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100
SetEnv PATH=$PATH
END
            /usr/sbin/sshd -f /run/etc/sshd_config -E /run/sshd.log
            cut -d ' ' -f 1,2 ssh_host_ed25519_key.pub"#;
        self.sh(SCRIPT).ok().trim().to_owned()
    }

    /// The bytes that its first interface has received.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes_on("eth0")
    }

    /// The bytes that an interface has received.
    ///
    /// # Panics
    /// If there is no such interface.
    #[track_caller]
    pub fn received_bytes_on(&self, interface: &str) -> u64 {
        let text = fs::read_to_string(self.file(format!("/sys/class/net/{interface}/statistics/rx_bytes")));
        let bytes = text.ok().and_then(|text| text.trim().parse().ok());
        bytes.unwrap_or_else(|| panic!("{} has no interface {interface}", self.name))
    }

    /// Sends a signal to the program of a running [`Host::call`].
    pub fn signal(call: &Running, signal: Signal) {
        let started = call.pid();
        // `nsenter` has one child, the program.
        let children = fs::read_to_string(format!("/proc/{started}/task/{started}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            // The program may have exited in the meantime.
            let _ = kill(Pid::from_raw(child), signal);
        }
    }

    /// The command lines of all processes on the host, except the one that keeps it and its ssh server.
    pub fn processes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.file("/proc")).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let lines = ids.filter(|&pid| pid != 1).filter_map(|pid| {
            let line = fs::read(self.file(format!("/proc/{pid}/cmdline"))).ok()?;
            // A zombie has no command line.
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (!line.is_empty() && !line.starts_with("sshd: ")).then_some(line)
        });
        lines.collect()
    }
}

/// The uid of a user of the hosts.
///
/// # Panics
/// If there is none.
#[track_caller]
fn uid(user: &str) -> u32 {
    match user {
        "alice" => 4001,
        "bob" => 4002,
        other => panic!("hosts have no user {other}"),
    }
}

/// The namespaces of a host, which live as long as this.
#[derive(Debug)]
pub(super) struct Namespaces {
    holder: Running,
}

impl Namespaces {
    /// Begins to make the namespaces of a host.
    #[track_caller]
    pub(super) fn start(name: &str, hosts: &str) -> Namespaces {
        const NEW: [&str; 6] = ["--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"];
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).expect("the package is in the checkout");
        let keep = format!("{} {}", sources.display(), built::target().display());
        let tools = format!("{} {}", built::rsd().display(), built::rsctl().display());
        let call = Call::new("unshare").args(NEW).args(["--", "sh", "-c", include_str!("host.sh")]);
        let call = call.env("NAME", name).env("HOSTS", hosts).env("KEEP", keep).env("TOOLS", tools);
        Namespaces { holder: call.stdin_open().start() }
    }

    /// Waits until the host is complete.
    #[track_caller]
    pub(super) fn ready(self) -> Namespaces {
        self.holder.until_stdout(|out| out.contains("ready").then_some(()));
        self
    }

    /// The options with which `nsenter` enters them.
    fn options(&self) -> [String; 5] {
        let pid = self.holder.pid();
        let files = [("net", "net"), ("uts", "uts"), ("ipc", "ipc"), ("mount", "mnt"), ("pid", "pid_for_children")];
        files.map(|(option, file)| format!("--{option}=/proc/{pid}/ns/{file}"))
    }
}
