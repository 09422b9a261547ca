//! Whether a node has a fabric: a network that Open MPI reaches through libfabric (InfiniBand, RoCE, Omni-Path, Slingshot, EFA).
//!
//! Without one, Open MPI 5 loads all of libfabric's providers to ask them twice, which reads the kernel's whole table of symbols, and
//! then sleeps for a second when it closes the module. Modules that find no network take no part, so to leave them out changes the
//! time and nothing else. It is left to Open MPI as soon as its user or administrator has said anything about these modules.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The kinds of modules of which one is for libfabric, as parameters and as variables.
const KINDS: [(&str, &str); 2] = [("btl", "OMPI_MCA_btl"), ("mtl", "OMPI_MCA_mtl")];
/// The module for libfabric.
const MODULE: &str = "ofi";
/// The other parameters that choose modules.
const CHOICES: [&str; 2] = ["pml", "mca_base_param_files"];
const PREFIX: &str = "OMPI_MCA_";
/// The classes of devices below /sys/class, of which any device is a fabric.
const CLASSES: [&str; 5] = ["infiniband", "infiniband_verbs", "cxi", "cxi_user", "hfi1"];
/// How the names of devices in /dev begin that are fabrics.
const DEVICES: [&str; 5] = ["infiniband", "hfi", "ipath", "cxi", "kgni"];
/// The names of Open MPI's files of parameters, in its user's home and in the directory for configuration of an installation.
const USERS_FILE: &str = ".openmpi/mca-params.conf";
const SYSTEM_FILE: &str = "openmpi-mca-params.conf";
/// The longest file of parameters that is read; a longer one is taken to choose modules.
const FILE_MAX: u64 = 64 << 10;

/// What was found in /dev before it is needed: reading the directory takes 0.1 ms.
#[derive(Debug, Clone, Copy, Default)]
pub struct Devices {
    /// When the directory had last changed, and whether a fabric was there. None: it must be read again.
    seen: Option<(SystemTime, bool)>,
}

/// Within this time, a second change of a directory may leave it with the same time.
const TICK: Duration = Duration::from_secs(1);

impl Devices {
    /// Reads the directory. `now` tells whether a change could go unnoticed.
    pub fn look(root: &Path, now: SystemTime) -> Devices {
        let seen = changed(root).filter(|changed| now.duration_since(*changed).is_ok_and(|age| age > TICK));
        Devices { seen: seen.map(|changed| (changed, has_device(root))) }
    }

    fn have_fabric(self, root: &Path) -> bool {
        match self.seen {
            Some((then, found)) if changed(root) == Some(then) => found,
            Some(_) | None => has_device(root),
        }
    }
}

/// Returns the variables that leave Open MPI's modules for libfabric out. None if it has to find out by itself whether there is a
/// fabric: this node has one, or a file of parameters chooses modules. A variable replaces what is in such files, so modules that they
/// leave out are left out here too. `variable` returns a variable of the process that will read the files; `root` is `/` outside of tests.
pub fn absent(root: &Path, devices: Devices, variable: &dyn Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    let mut modules = KINDS.map(|_| vec![MODULE.to_owned()]);
    let exists = has_class(root) || devices.have_fabric(root);
    if exists || !files(root, variable).all(|file| leaves_out(&file, &mut modules)) {
        return Vec::new();
    }
    KINDS.iter().zip(modules).map(|((_, name), modules)| (*name, format!("^{}", modules.join(",")))).collect()
}

/// Returns whether a variable has one of the names that [`absent`] returns.
pub fn is_of_absence(name: &str) -> bool {
    KINDS.iter().any(|(_, known)| *known == name)
}

/// Returns whether a variable of this name chooses among Open MPI's modules or libfabric's providers.
pub fn is_chosen_by(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let is_choice = |parameter: &str| is_choice(parameter) || KINDS.iter().any(|(kind, _)| *kind == parameter);
    name.starts_with("FI_") || name.strip_prefix(PREFIX).is_some_and(is_choice)
}

fn is_choice(parameter: &str) -> bool {
    CHOICES.contains(&parameter) || parameter.contains(MODULE)
}

fn has_class(root: &Path) -> bool {
    CLASSES.iter().any(|class| names(root.join("sys/class").join(class)).next().is_some())
}

fn has_device(root: &Path) -> bool {
    let is_device = |name: &str| DEVICES.iter().any(|device| name.starts_with(device));
    names(root.join("dev")).any(|name| name.to_str().is_some_and(is_device))
}

fn changed(root: &Path) -> Option<SystemTime> {
    fs::metadata(root.join("dev")).and_then(|found| found.modified()).ok()
}

fn names(dir: PathBuf) -> impl Iterator<Item = OsString> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

/// The files of parameters that are known without knowing which Open MPI a program loads: those of its user, of the distribution, and
/// of each installation that is on a path.
fn files(root: &Path, variable: &dyn Fn(&str) -> Option<String>) -> impl Iterator<Item = PathBuf> {
    let users = variable("HOME").map(|home| Path::new(&home).join(USERS_FILE));
    let paths = ["PATH", "LD_LIBRARY_PATH"].into_iter().filter_map(variable);
    let dirs: Vec<PathBuf> = paths.flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).collect();
    let prefixes = dirs.into_iter().filter_map(|dir| dir.parent().map(Path::to_owned));
    let prefixes = prefixes.chain(variable("OPAL_PREFIX").map(PathBuf::from)).filter(|prefix| prefix.is_absolute());
    let mut systems: Vec<PathBuf> = prefixes.map(|prefix| prefix.join("etc")).collect();
    systems.push(root.join("etc/openmpi"));
    systems.sort();
    systems.dedup();
    users.into_iter().chain(systems.into_iter().map(|dir| dir.join(SYSTEM_FILE)))
}

/// Adds the modules that a file of parameters leaves out; false if it chooses some. A file that cannot be read, Open MPI cannot read
/// either.
fn leaves_out(file: &Path, modules: &mut [Vec<String>; KINDS.len()]) -> bool {
    let Ok(found) = fs::metadata(file) else { return true };
    if !found.is_file() {
        return true;
    }
    let text = if found.len() > FILE_MAX { return false } else { fs::read(file).unwrap_or_default() };
    String::from_utf8_lossy(&text).lines().all(|line| {
        let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
            return true;
        };
        let left_out = value.strip_prefix('^');
        let Some(kind) = KINDS.iter().position(|(kind, _)| *kind == name) else {
            return !is_choice(name) || (name == "pml" && left_out.is_some());
        };
        let Some(left_out) = left_out else { return false };
        for module in left_out.split(',').map(str::trim) {
            if !module.is_empty() && !modules[kind].iter().any(|known| known == module) {
                modules[kind].push(module.to_owned());
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_comes_after_the_look_is_seen() {
        let dir = std::env::temp_dir().join(format!("rsd-devices-{}", std::process::id()));
        let dev = dir.join("dev");
        fs::create_dir_all(dev.join("null")).expect("created");
        let changed_at = |time| fs::File::open(&dev).and_then(|dev| dev.set_modified(time)).expect("set");
        let now = SystemTime::now();
        changed_at(now - Duration::from_secs(60));
        let old = Devices::look(&dir, now);
        let soon = Devices::look(&dir, now - Duration::from_secs(60));
        assert!(old.seen.is_some() && soon.seen.is_none(), "a directory that has just changed may change again");
        assert!(!old.have_fabric(&dir) && !soon.have_fabric(&dir));
        fs::create_dir_all(dev.join("hfi1_0")).expect("created");
        assert!(old.have_fabric(&dir) && soon.have_fabric(&dir));
        // What was found counts as long as the directory does not change.
        changed_at(now - Duration::from_secs(60));
        assert!(!old.have_fabric(&dir));
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_device_or_a_choice_leaves_the_question_to_open_mpi() {
        let dir = std::env::temp_dir().join(format!("rsd-fabric-{}", std::process::id()));
        let home = dir.join("home").display().to_string();
        let path = format!("bin:{}", dir.join("opt/mpi/bin").display());
        let values = || {
            let variables = absent(&dir, Devices::default(), &|name| match name {
                "HOME" => Some(home.clone()),
                "PATH" => Some(path.clone()),
                _ => None,
            });
            variables.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(" ")
        };
        let write = |path: &str, text: &str| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("created");
            fs::write(path, text).expect("written");
        };
        assert_eq!(values(), "^ofi ^ofi", "nothing is there");
        write("dev/null", "");
        fs::create_dir_all(dir.join("sys/class/infiniband")).expect("created");
        write(
            "etc/openmpi/openmpi-mca-params.conf",
            "# btl = self\nbtl_tcp_if_include = eth0\nbtl = ^uct,openib,ofi\npml=^ucx\n",
        );
        assert_eq!(values(), "^ofi,uct,openib ^ofi", "a class without devices, and modules that are left out");

        for (file, text) in [
            ("sys/class/cxi/cxi0", ""),
            ("dev/hfi1_0", ""),
            ("home/.openmpi/mca-params.conf", "\n  btl = self,tcp\n"),
            ("home/.openmpi/mca-params.conf", "mtl_ofi_provider_include = tcp\n"),
            ("opt/mpi/etc/openmpi-mca-params.conf", "pml=cm\n"),
            ("home/.openmpi/mca-params.conf", &"# long\n".repeat(10_000)),
        ] {
            write(file, text);
            assert_eq!(values(), "", "{file}");
            fs::remove_file(dir.join(file)).expect("removed");
            assert_eq!(values(), "^ofi,uct,openib ^ofi", "without {file}");
        }
        fs::remove_dir_all(&dir).expect("removed");
    }
}
