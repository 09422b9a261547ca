//! The GPUs of this node: the kernel lists them, and their driver describes them.
//!
//! The kernel lists devices with a PCI class of display or 3D controller, and the cpus that are nearest to each. If NVIDIA's
//! driver is installed, it reports its GPUs' names, memory and UUIDs ([`nvml`]), and decides which GPUs count: in a container it
//! reports only those that this process may use, and of a GPU in MIG mode, its instances. GPUs of AMD's driver have no UUID. A node
//! without either driver has no GPUs; finding that out costs a look at two directories.
//!
//! Files: the kernel's ABI/testing/sysfs-bus-pci and ABI/testing/sysfs-devices-system-cpu.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Topology};
use rsd_core::plan::ranges;
use rsd_proto::v1::Gpu;

use super::nvml::{self, Device};

/// A driver whose device hangs answers late or never; the daemon continues without it.
const ANSWER: Duration = Duration::from_secs(10);

/// Finds the GPUs below the file system's `root`; `topology` gives the threads that are near each.
pub(super) fn read(root: &Path, topology: Option<&Topology>) -> Vec<Gpu> {
    let found = on_pci(root);
    // A container may hide the bus, and WSL has neither the bus nor that device.
    let nvidia = found.iter().any(|gpu| gpu.driver == Driver::Nvidia)
        || ["dev/nvidiactl", nvml::OF_WSL].iter().any(|path| root.join(path).exists());
    let told = if nvidia { ask_nvidia() } else { None };
    merge(found, told, topology)
}

/// Asks NVIDIA's driver; None if it does not answer.
fn ask_nvidia() -> Option<Vec<Device>> {
    let (answer, answered) = mpsc::channel();
    let asking = std::thread::Builder::new().name("nvml".into()).spawn(move || {
        // A late answer is dropped.
        let _ = answer.send(nvml::devices());
    });
    let why = match (asking, answered.recv_timeout(ANSWER)) {
        (Ok(_), Ok(Ok(devices))) => return Some(devices),
        (Ok(_), Ok(Err(error))) => error.to_string(),
        (Ok(_), Err(_)) => format!("it did not answer within {} s", ANSWER.as_secs()),
        (Err(error), _) => error.to_string(),
    };
    tracing::warn!(why, "cannot query the NVIDIA driver: its GPUs are listed without names and UUIDs");
    None
}

/// A GPU as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    /// "0000:3b:00.0".
    address: String,
    driver: Driver,
    /// The cpus nearest to it, by the kernel's numbers; empty: unknown.
    near: Vec<u32>,
    /// The NUMA node that it is at, by the kernel's number.
    numa: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Nvidia,
    Amd,
}

/// Returns the devices, by address.
fn on_pci(root: &Path) -> Vec<Found> {
    let devices = fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    let mut found: Vec<Found> = devices.filter_map(|entry| gpu(root, &entry.path())).collect();
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

fn gpu(root: &Path, device: &Path) -> Option<Found> {
    let file = |name: &str| fs::read_to_string(device.join(name)).ok().map(|text| text.trim().to_owned());
    // 0x03ssii: display controllers; ss 00 with a screen, 02 without.
    let class = file("class")?;
    if !class.starts_with("0x0300") && !class.starts_with("0x0302") && !class.starts_with("0x0380") {
        return None;
    }
    let driver = match fs::read_link(device.join("driver")).ok()?.file_name()?.to_str()? {
        "nvidia" => Driver::Nvidia,
        // A display-only device has no compute driver.
        "amdgpu" if root.join("sys/class/kfd").exists() => Driver::Amd,
        _ => return None,
    };
    Some(Found {
        address: device.file_name()?.to_str()?.to_ascii_lowercase(),
        driver,
        near: file("local_cpulist").and_then(|text| super::cgroup::cpu_list(&text)).into_iter().flatten().collect(),
        numa: file("numa_node").and_then(|text| text.parse().ok()),
    })
}

/// Returns the GPUs that the driver reports, in its order, then those of other drivers. If it reports none, returns all devices.
fn merge(found: Vec<Found>, told: Option<Vec<Device>>, topology: Option<&Topology>) -> Vec<Gpu> {
    let near_of = |gpu: &Found| ranges(&near(gpu, topology));
    let known = |device: &Device| Gpu {
        index: device.index,
        uuid: device.uuid.clone(),
        name: device.name.clone(),
        pci: device.address.clone(),
        memory_bytes: device.memory_bytes,
        near: found.iter().find(|gpu| gpu.address == device.address).map(near_of).unwrap_or_default(),
    };
    let gpus: Vec<Gpu> = told.iter().flatten().map(known).collect();
    let silent = found.iter().filter(|gpu| told.is_none() || gpu.driver != Driver::Nvidia);
    let first = gpus.iter().map(|gpu| gpu.index + 1).max().unwrap_or(0);
    let silent = silent.zip(first..).map(|(gpu, index)| Gpu {
        index,
        pci: gpu.address.clone(),
        near: near_of(gpu),
        ..Gpu::default()
    });
    gpus.iter().cloned().chain(silent).collect()
}

/// Returns the hardware threads nearest to it, by logical index; empty if all are equally near.
fn near(gpu: &Found, topology: Option<&Topology>) -> CpuSet {
    let Some(topology) = topology else { return CpuSet::EMPTY };
    let threads = topology.objects(Kind::Thread).iter().zip(0..);
    let by_cpus: CpuSet = threads.filter(|(thread, _)| gpu.near.contains(&thread.os)).map(|(_, at)| at).collect();
    let numa = topology.objects(Kind::Numa).iter().find(|node| Some(node.os) == gpu.numa);
    let near = match (by_cpus.is_empty(), numa) {
        (true, Some(node)) => CpuSet::range(node.threads.clone()),
        _ => by_cpus,
    };
    if near == topology.all() { CpuSet::EMPTY } else { near }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A `/sys` for one test, removed when the test ends.
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let root = std::env::temp_dir().join(format!("rsd-gpus-{name}-{}", std::process::id()));
            fs::create_dir_all(root.join("sys/bus/pci/devices")).expect("a scratch directory");
            Root(root)
        }

        fn device(&self, address: &str, class: &str, driver: &str, files: &[(&str, &str)]) {
            let device = self.0.join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&device).expect("a scratch directory");
            fs::write(device.join("class"), class).expect("a scratch file");
            symlink(format!("../../../drivers/{driver}"), device.join("driver")).expect("a scratch link");
            for (name, text) in files {
                fs::write(device.join(name), text).expect("a scratch file");
            }
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn two_nodes() -> Topology {
        Topology::regular(&[(Kind::Numa, 2), (Kind::Core, 4)]).expect("eight cores")
    }

    fn threads(gpu: &Gpu) -> Vec<(u32, u32)> {
        gpu.near.iter().map(|range| (range.first, range.count)).collect()
    }

    type Shown<'a> = (u32, &'a str, &'a str, Vec<(u32, u32)>);

    fn shown(gpus: &[Gpu]) -> Vec<Shown<'_>> {
        gpus.iter().map(|gpu| (gpu.index, &*gpu.pci, &*gpu.uuid, threads(gpu))).collect()
    }

    #[test]
    fn the_kernel_lists_the_gpus_and_their_places() {
        let root = Root::new("sysfs");
        root.device("0000:c1:00.0", "0x030200\n", "amdgpu", &[("local_cpulist", "\n"), ("numa_node", "1\n")]);
        root.device("0000:3b:00.0", "0x030000\n", "amdgpu", &[("local_cpulist", "0-3\n"), ("numa_node", "-1\n")]);
        root.device("0000:01:00.0", "0x030000\n", "ast", &[("local_cpulist", "0-7\n")]);
        root.device("0000:02:00.0", "0x020000\n", "mlx5_core", &[("local_cpulist", "0-7\n")]);
        root.device("0000:d1:00.0", "0x038000\n", "amdgpu", &[("local_cpulist", "0-7\n")]);
        assert_eq!(read(&root.0, Some(&two_nodes())), [], "devices without a compute driver do not count");
        fs::create_dir_all(root.0.join("sys/class/kfd")).expect("a scratch directory");
        let gpus = read(&root.0, Some(&two_nodes()));
        assert_eq!(
            shown(&gpus),
            [
                (0, "0000:3b:00.0", "", vec![(0, 4)]),
                (1, "0000:c1:00.0", "", vec![(4, 4)]),
                (2, "0000:d1:00.0", "", vec![]), // equally near to all threads
            ]
        );
        assert_eq!(read(&root.0.join("nowhere"), None), []);
    }

    #[test]
    fn the_drivers_list_of_its_gpus_overrides_the_kernels() {
        let found = |address: &str, driver, near: &[u32]| Found {
            address: address.into(),
            driver,
            near: near.to_vec(),
            numa: None,
        };
        let told = |index, address: &str, uuid: &str| Device {
            index,
            uuid: uuid.into(),
            name: "T".into(),
            address: address.into(),
            memory_bytes: 16 << 30,
        };
        let found = vec![
            found("0000:3b:00.0", Driver::Nvidia, &[0, 1]),
            found("0000:5e:00.0", Driver::Nvidia, &[2]),
            found("0000:c1:00.0", Driver::Nvidia, &[4, 5]),
            found("0000:d1:00.0", Driver::Amd, &[7]),
        ];
        // The GPU at c1 is divided.
        let driver = vec![
            told(3, "0000:c1:00.0", "MIG-b0"),
            told(4, "0000:c1:00.0", "MIG-b1"),
            told(2, "0000:3b:00.0", "GPU-a"),
        ];
        let gpus = merge(found.clone(), Some(driver), Some(&two_nodes()));
        assert_eq!(
            shown(&gpus),
            [
                (3, "0000:c1:00.0", "MIG-b0", vec![(4, 2)]),
                (4, "0000:c1:00.0", "MIG-b1", vec![(4, 2)]),
                (2, "0000:3b:00.0", "GPU-a", vec![(0, 2)]),
                (5, "0000:d1:00.0", "", vec![(7, 1)]),
            ]
        );
        let silent = merge(found, None, Some(&two_nodes()));
        assert_eq!(silent.iter().map(|gpu| &*gpu.pci).collect::<Vec<_>>().len(), 4);
    }
}
