//! The CPUs and the CPU time that this process's cgroup grants, from the files of cgroup v1 and v2.
//!
//! `/proc/self/cgroup` names the process's group in each hierarchy, and `/proc/self/mountinfo` where a hierarchy is mounted. In a
//! container the mount shows only a part of the hierarchy (its *root* field), so the group's path is taken relative
//! to that root; a group outside of it is looked up at the mount itself. Rules: cgroups(7), the kernel's
//! admin-guide/cgroup-v2 and cgroup-v1/cpusets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The limits of the cgroup; `None` means no limit.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// The CPUs that this process may run on.
    pub(super) cpuset: Option<BTreeSet<u32>>,
    /// CPU time per wall-clock time: the smallest value between the process's group and the root.
    pub(super) quota: Option<f64>,
}

/// Reads the limits through `read`, which returns the text of a file, if it exists.
pub(super) fn limits(read: &dyn Fn(&Path) -> Option<String>) -> Limits {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let place = |hierarchy| find(&groups, &mounts, hierarchy);
    let at = |dir: PathBuf, file: &str| read(&dir.join(file));
    let cpuset = |place: Place, files: &[&str]| {
        place.upwards().find_map(|dir| files.iter().find_map(|file| at(dir.clone(), file).and_then(|t| cpu_list(&t))))
    };
    let v2 = || place(Hierarchy::V2);
    Limits {
        cpuset: place(Hierarchy::V1("cpuset"))
            .and_then(|place| cpuset(place, &["cpuset.effective_cpus", "cpuset.cpus"]))
            .or_else(|| cpuset(v2()?, &["cpuset.cpus.effective"])),
        quota: [
            v2().and_then(|place| smallest(place.upwards().filter_map(|dir| cpu_max(&at(dir, "cpu.max")?)))),
            place(Hierarchy::V1("cpu")).and_then(|place| {
                smallest(place.upwards().filter_map(|dir| {
                    let quota = at(dir.clone(), "cpu.cfs_quota_us")?;
                    ratio(quota.trim(), at(dir, "cpu.cfs_period_us")?.trim())
                }))
            }),
        ]
        .into_iter()
        .flatten()
        .reduce(f64::min),
    }
}

#[derive(Clone, Copy)]
enum Hierarchy {
    V2,
    /// A controller's own hierarchy.
    V1(&'static str),
}

/// Where a hierarchy is mounted, and the process's group in it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    mount: PathBuf,
    dir: PathBuf,
}

impl Place {
    /// Returns the group's directory, then its parents up to the mount.
    fn upwards(&self) -> impl Iterator<Item = PathBuf> {
        self.dir.ancestors().take_while(|dir| dir.starts_with(&self.mount)).map(Path::to_path_buf)
    }
}

fn find(groups: &str, mounts: &str, hierarchy: Hierarchy) -> Option<Place> {
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = match hierarchy {
            Hierarchy::V2 => controllers.is_empty(),
            Hierarchy::V1(name) => controllers.split(',').any(|controller| controller == name),
        };
        ours.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        // 30 24 0:26 /root /mount/point rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' ').skip(3), after.split(' '));
        let (root, mount, kind, options) = (before.next()?, before.next()?, after.next()?, after.nth(1)?);
        let ours = match hierarchy {
            Hierarchy::V2 => kind == "cgroup2",
            Hierarchy::V1(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        let mount = PathBuf::from(mount);
        let dir = Path::new(group).strip_prefix(root).map_or_else(|_| mount.clone(), |rest| mount.join(rest));
        ours.then_some(Place { mount, dir })
    })
}

/// `0-3,8,10-11`; `None` if the text is empty or not a list.
pub(super) fn cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last.min(first.saturating_add(1 << 16)));
    }
    Some(cpus)
}

/// `150000 100000`: microseconds per period; `max 100000`: no limit.
fn cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// A quota that is not a positive number (`max`, `-1`) means no limit.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn smallest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn limits_of(files: &[(&str, &str)]) -> Limits {
        let files: HashMap<&Path, &str> = files.iter().map(|(path, text)| (Path::new(*path), *text)).collect();
        limits(&|path: &Path| files.get(path).map(|text| (*text).to_owned()))
    }

    const V2_MOUNT: &str = "31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn v2_takes_the_smallest_quota_on_the_way_up_and_the_nearest_cpuset() {
        let limits = limits_of(&[
            ("/proc/self/cgroup", "0::/user.slice/a.scope\n"),
            ("/proc/self/mountinfo", V2_MOUNT),
            ("/sys/fs/cgroup/user.slice/a.scope/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-1,4\n"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
        ]);
        assert_eq!(limits, Limits { cpuset: Some([0, 1, 4].into()), quota: Some(1.5) });
    }

    #[test]
    fn v1_has_a_hierarchy_per_controller() {
        let limits = limits_of(&[
            ("/proc/self/cgroup", "4:cpuset:/batch\n2:cpuacct,cpu:/batch/job1\n1:name=systemd:/x\n0::/x\n"),
            (
                "/proc/self/mountinfo",
                "30 24 0:26 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 31 24 0:27 / /cg/cpuset rw shared:9 master:1 - cgroup cgroup rw,cpuset\n\
                 32 24 0:28 / /cg/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("/cg/cpu,cpuacct/batch/job1/cpu.cfs_quota_us", "-1\n"),
            ("/cg/cpu,cpuacct/batch/job1/cpu.cfs_period_us", "100000\n"),
            ("/cg/cpu,cpuacct/batch/cpu.cfs_quota_us", "50000\n"),
            ("/cg/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n"),
            ("/cg/cpuset/batch/cpuset.cpus", "2-3\n"),
        ]);
        assert_eq!(limits, Limits { cpuset: Some([2, 3].into()), quota: Some(0.5) });
    }

    #[test]
    fn a_container_sees_a_part_of_the_hierarchy() {
        let mount = "31 23 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let inside = find("0::/docker/abc/inner\n", mount, Hierarchy::V2).expect("mounted");
        assert_eq!(inside.dir, Path::new("/sys/fs/cgroup/inner"));
        assert_eq!(inside.upwards().count(), 2);
        let outside = find("0::/../other\n", mount, Hierarchy::V2).expect("mounted");
        assert_eq!(outside.dir, Path::new("/sys/fs/cgroup"));
        let limits = limits_of(&[
            ("/proc/self/cgroup", "0::/docker/abc\n"),
            ("/proc/self/mountinfo", mount),
            ("/sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ]);
        assert_eq!(limits.quota, Some(4.0));
    }

    #[test]
    fn what_is_absent_or_garbled_limits_nothing() {
        assert_eq!(limits_of(&[]), Limits::default());
        let limits = limits_of(&[
            ("/proc/self/cgroup", "0::/\nrubbish\n"),
            ("/proc/self/mountinfo", &format!("short line\n{V2_MOUNT}")),
            ("/sys/fs/cgroup/cpu.max", "many 100000\n"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "\n"),
        ]);
        assert_eq!(limits, Limits::default());
        assert_eq!(cpu_max("100000 0"), None);
        assert_eq!(cpu_list("3,x"), None);
    }
}
