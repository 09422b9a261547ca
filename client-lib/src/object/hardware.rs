//! The parts of the machine to which this process is confined (MPI 5.0 §9.1.2): from its affinity mask and the kernel's description of
//! the cores, so that it is true under every launcher and after every rebinding. The names are hwloc's.

use std::fs;
use std::path::Path;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// A kind of part, and its one instance to which the process is confined, if it is: the lowest core in it.
pub type Resource = (&'static str, Option<u32>);

/// From large to small.
const KINDS: [&str; 8] = [
    "hwloc://Machine",
    "hwloc://Package",
    "hwloc://NUMANode",
    "hwloc://L3Cache",
    "hwloc://L2Cache",
    "hwloc://L1Cache",
    "hwloc://Core",
    "hwloc://PU",
];

/// The kinds of parts that this machine has.
pub fn resources() -> Vec<Resource> {
    let Ok(mask) = sched_getaffinity(Pid::from_raw(0)) else { return vec![(KINDS[0], Some(0))] };
    let cores: Vec<u32> =
        (0..CpuSet::count()).filter(|core| mask.is_set(*core) == Ok(true)).map(|it| it as u32).collect();
    of(Path::new("/sys/devices/system"), &cores)
}

/// The resources of a process on these cores, by the files under a folder.
fn of(system: &Path, cores: &[u32]) -> Vec<Resource> {
    let kinds = KINDS.into_iter().filter_map(|kind| {
        let parts: Option<Vec<u32>> = cores.iter().map(|core| part(system, kind, *core)).collect();
        let parts = parts?;
        let first = *parts.first()?;
        Some((kind, parts.iter().all(|part| *part == first).then_some(first)))
    });
    kinds.collect()
}

/// The part of a kind to which a core belongs, if the machine has such parts.
fn part(system: &Path, kind: &str, core: u32) -> Option<u32> {
    let folder = system.join(format!("cpu/cpu{core}"));
    let cache = |level: &str| {
        let caches = (0..8).map(|index| folder.join(format!("cache/index{index}")));
        let mut caches = caches.take_while(|cache| cache.exists());
        let is_it = |cache: &Path| {
            read(&cache.join("level")).as_deref() == Some(level)
                && read(&cache.join("type")).as_deref() != Some("Instruction")
        };
        lowest(&read(&caches.find(|cache| is_it(cache))?.join("shared_cpu_list"))?)
    };
    match kind {
        "hwloc://Machine" => Some(0),
        "hwloc://Package" => lowest(&read(&folder.join("topology/package_cpus_list"))?),
        "hwloc://NUMANode" => {
            let entries = fs::read_dir(&folder).ok()?.filter_map(Result::ok);
            let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.find_map(|name| name.strip_prefix("node")?.parse().ok())
        }
        "hwloc://L3Cache" => cache("3"),
        "hwloc://L2Cache" => cache("2"),
        "hwloc://L1Cache" => cache("1"),
        "hwloc://Core" => lowest(&read(&folder.join("topology/core_cpus_list"))?),
        _ => Some(core),
    }
}

fn read(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// The first number of a list such as `0-3,8`.
fn lowest(list: &str) -> Option<u32> {
    list.split([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_confined_to_what_all_of_its_cores_belong_to() {
        let system = std::env::temp_dir().join(format!("rsd-hardware-{}", std::process::id()));
        for core in 0..4_u32 {
            let folder = system.join(format!("cpu/cpu{core}"));
            let pair = core / 2 * 2;
            fs::create_dir_all(folder.join("topology")).unwrap();
            fs::create_dir_all(folder.join("cache/index0")).unwrap();
            fs::create_dir_all(folder.join(format!("node{}", core / 2))).unwrap();
            fs::write(folder.join("topology/package_cpus_list"), "0-3\n").unwrap();
            fs::write(folder.join("topology/core_cpus_list"), format!("{pair}-{}\n", pair + 1)).unwrap();
            fs::write(folder.join("cache/index0/level"), "1\n").unwrap();
            fs::write(folder.join("cache/index0/type"), "Data\n").unwrap();
            fs::write(folder.join("cache/index0/shared_cpu_list"), format!("{pair},{}\n", pair + 1)).unwrap();
        }
        let whole = of(&system, &[0, 1, 2, 3]);
        let (one, all) = (of(&system, &[3]), of(&system, &[2, 3]));
        fs::remove_dir_all(&system).unwrap();
        let names =
            |it: &[Resource]| it.iter().map(|(name, part)| format!("{}={part:?}", &name[8..])).collect::<Vec<_>>();
        assert_eq!(
            names(&whole),
            ["Machine=Some(0)", "Package=Some(0)", "NUMANode=None", "L1Cache=None", "Core=None", "PU=None"]
        );
        assert_eq!(
            names(&all),
            ["Machine=Some(0)", "Package=Some(0)", "NUMANode=Some(1)", "L1Cache=Some(2)", "Core=Some(2)", "PU=None"]
        );
        assert_eq!(names(&one)[5], "PU=Some(3)");
    }
}
