//! Installs what building and testing need besides Rust and gcc: Debian packages, and wheels in private environments.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
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
const PACKAGES: [Package; 19] = [
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
    Package { name: "openssh-server", there: || runs("test", &["-x", "/usr/sbin/sshd"]) },
    Package { name: "libpmi2-0", there: || runs("sh", &["-c", "/sbin/ldconfig -p | grep -q libpmi2.so.0"]) },
    Package { name: "libpmi2-0-dev", there: || runs("test", &["-e", "/usr/include/slurm/pmi2.h"]) },
    Package { name: "libpmi0-dev", there: || runs("test", &["-e", "/usr/include/slurm/pmi.h"]) },
];

const TO_BUILD: usize = 3;
const FOR_THE_DEMO: usize = 5;
const FOR_THE_DEMO_ON_HOSTS: usize = 8;

/// Pinned wheels in an environment of their own, so that tests and benches always compare with the same versions.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) wheels: &'static [&'static str],
}

/// The MPICH that tests and benches use besides Debian's.
pub(crate) const MPICH: Peer = Peer { name: "mpich", wheels: &["mpich==5.0.2", "mpi4py==4.1.2", "numpy>=2,<3"] };

/// Intel MPI, which also uses PMI-1.
const INTEL: Peer = Peer { name: "impi", wheels: &["impi-rt==2021.18.1", "mpi4py==4.1.2"] };

/// `cargo xtask setup`.
pub(crate) fn setup(_args: &[OsString]) -> anyhow::Result<()> {
    install(&PACKAGES)?;
    wheels(&MPICH)?;
    wheels(&INTEL)
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

fn install(packages: &[Package]) -> anyhow::Result<()> {
    let absent = || packages.iter().filter(|package| !(package.there)()).map(|package| package.name);
    let missing: Vec<&str> = absent().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut apt = administrator().with_context(|| {
        let list = missing.join(" ");
        format!("missing packages: {list}\nrun:  sudo apt-get update && sudo apt-get install -y {list}")
    })?;
    step(&format!("install {}", missing.join(" ")), || {
        let lists = apt.iter().map(String::as_str).chain(["update", "-q"]);
        quiet(&mut command(lists))?;
        apt.extend(["install", "-q", "-y", "--no-install-recommends"].map(str::to_owned));
        quiet(&mut command(apt.iter().map(String::as_str).chain(missing.iter().copied())))?;
        Ok(())
    })?;
    let still: Vec<&str> = absent().collect();
    anyhow::ensure!(still.is_empty(), "installed, but not found: {}", still.join(" "));
    Ok(())
}

/// The command line of `apt-get` that this user may run without a password.
fn administrator() -> anyhow::Result<Vec<String>> {
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    anyhow::ensure!(runs("apt-get", &["--version"]), "apt-get not found: setup needs Debian or a derivative");
    let prefix: &[&str] = if root() {
        &[]
    } else if runs("sudo", &["-n", "true"]) {
        &["sudo", "-n"]
    } else {
        anyhow::bail!("only root may install packages");
    };
    Ok(prefix.iter().chain(&apt).map(|&word| word.to_owned()).collect())
}

/// Whether this user is root.
pub(crate) fn root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// Creates a peer's environment, unless it exists with the same wheels.
pub(crate) fn wheels(peer: &Peer) -> anyhow::Result<()> {
    let home = places::peer(peer.name)?;
    let stamp = home.join("wheels");
    let wanted = peer.wheels.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    step(&format!("install the wheels {}", peer.wheels.join(" ")), || {
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("remove the old {}", home.display()))?;
        }
        quiet(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        quiet(Command::new(home.join("bin/pip")).args(["install", "--quiet"]).args(peer.wheels))?;
        write(&stamp, &wanted)
    })
}

/// Builds mpi4py for the standard ABI from source against rsd's MPI library under `prefix`, unless it exists and the
/// header is unchanged. Its own tests are in `source/test`.
pub(crate) fn mpi4py(prefix: &Path) -> anyhow::Result<()> {
    const RELEASE: &str = "mpi4py==4.1.2";
    let home = places::peer("mpi4py")?;
    let stamp = home.join("wheels");
    let header = fs::read_to_string(prefix.join("include/mpi.h")).context("read mpi.h")?;
    let wanted = format!("{RELEASE}\n{header}");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    step(&format!("build {RELEASE} for the standard ABI"), || {
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("remove the old {}", home.display()))?;
        }
        quiet(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        let pip = || Command::new(home.join("bin/pip"));
        let source = home.join("source");
        let fetch = ["download", "--quiet", "--no-deps", "--no-binary", "mpi4py", RELEASE, "--dest"];
        quiet(pip().args(fetch).arg(&source))?;
        let archive = source.join("mpi4py-4.1.2.tar.gz");
        quiet(Command::new("tar").args(["xzf"]).arg(archive).args(["--strip-components=1", "-C"]).arg(&source))?;
        // The tests check correctness, not speed.
        let built = [("MPI4PY_BUILD_MPIABI", "1"), ("CFLAGS", "-O0")];
        let mpicc = prefix.join("bin/mpicc");
        quiet(pip().args(["install", "--quiet", "numpy>=2,<3"]).arg(&source).envs(built).env("MPICC", mpicc))?;
        write(&stamp, &wanted)
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn command<'a>(words: impl Iterator<Item = &'a str>) -> Command {
    let mut words = words;
    let mut command = Command::new(words.next().expect("every command has a first word"));
    command.args(words);
    command
}

fn runs(program: &str, args: &[&str]) -> bool {
    succeeds(Command::new(program).args(args))
}
