//! Queries NVIDIA's driver about its GPUs, through the library that comes with it.
//!
//! The library is loaded for the query and unloaded after it: a node without the driver has no such library, and rsd builds
//! without it. Besides `spawn`, this is the only module of the daemon that may use `unsafe`, because the signatures of a loaded
//! library's functions are not checked. Names, signatures and structures: NVML API Reference, `nvml.h`. Drivers of the last ten
//! years have the `_v2` and `_v3` names that are used here. Those before 450 do not have the functions for MIG.
//!
//! A GPU in MIG mode is divided: processes use its instances, not the GPU, and each process only one. Instances have UUIDs that
//! `CUDA_VISIBLE_DEVICES` takes, so they are listed in the place of their GPU. Nothing here changes a setting of a GPU.

#![expect(unsafe_code, reason = "the functions of a library that is loaded at run time")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::{Library, Symbol};

/// The name by which every driver installs it, for the directories that the dynamic linker searches.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Below the root: where Windows puts it in its Linux machines (WSL).
pub(super) const OF_WSL: &str = "usr/lib/wsl/lib/libnvidia-ml.so.1";
/// Where else it may be: containers of Kubernetes' device plug-in, WSL, NixOS.
const ELSEWHERE: [&str; 3] = [
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
];
/// NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE.
const TEXT_BYTES: usize = 96;
/// More GPUs than any machine has.
const DEVICES_MAX: c_uint = 1024;
/// More instances than any GPU has.
const INSTANCES_MAX: c_uint = 64;
/// NVML_DEVICE_MIG_ENABLE.
const MIG_ENABLED: c_uint = 1;

/// A GPU or a MIG instance, as the driver reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    /// The driver's number; those of instances follow the numbers of all GPUs.
    pub(super) index: u32,
    /// "GPU-…", "MIG-…".
    pub(super) uuid: String,
    pub(super) name: String,
    /// "0000:3b:00.0", as the kernel writes it; of an instance: that of its GPU.
    pub(super) address: String,
    pub(super) memory_bytes: u64,
}

/// Why the driver does not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NvmlError {
    /// It is not installed, or older than the functions used here.
    #[error("load {LIBRARY}: {0}")]
    Load(#[from] libloading::Error),
    /// A call failed.
    #[error("{what}: {text} ({code})")]
    Refused {
        /// The function.
        what: &'static str,
        /// NVML's number for it.
        code: c_int,
        /// NVML's words for it.
        text: String,
    },
}

type Handle = *mut c_void;
type Plain = unsafe extern "C" fn() -> c_int;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type Text = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type Pci = unsafe extern "C" fn(Handle, *mut PciInfo) -> c_int;
type Memory = unsafe extern "C" fn(Handle, *mut MemoryInfo) -> c_int;
type MigMode = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int;
type MigCount = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
type MigByIndex = unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Debug, Default)]
struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [u8; 32],
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug, Default)]
struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// The GPUs that this process may use, in the driver's order; those in MIG mode are replaced by their instances.
pub(super) fn devices() -> Result<Vec<Device>, NvmlError> {
    // SAFETY: loading the library runs only its own initialisers.
    let library = first_found(|path| unsafe { Library::new(path) })?;
    let nvml = Nvml::open(&library)?;
    let devices = nvml.devices();
    nvml.close();
    devices
}

/// Loads the library from the first place that has it: the linker's directories, then [`ELSEWHERE`]. The error is that of the linker's
/// directories.
fn first_found<L, E>(mut load: impl FnMut(&str) -> Result<L, E>) -> Result<L, E> {
    load(LIBRARY).or_else(|error| ELSEWHERE.iter().find_map(|path| load(path).ok()).ok_or(error))
}

/// The functions that are used, after a successful init.
struct Nvml<'a> {
    shutdown: Symbol<'a, Plain>,
    error_text: Symbol<'a, ErrorText>,
    count: Symbol<'a, Count>,
    by_index: Symbol<'a, ByIndex>,
    uuid: Symbol<'a, Text>,
    name: Symbol<'a, Text>,
    pci: Symbol<'a, Pci>,
    memory: Symbol<'a, Memory>,
    mig: Option<Mig<'a>>,
}

/// The functions for MIG, which old drivers do not have.
struct Mig<'a> {
    mode: Symbol<'a, MigMode>,
    count: Symbol<'a, MigCount>,
    by_index: Symbol<'a, MigByIndex>,
}

impl<'a> Mig<'a> {
    fn find(library: &'a Library) -> Option<Mig<'a>> {
        // SAFETY: the names and signatures are those of nvml.h, and the symbols do not outlive the library.
        unsafe {
            Some(Mig {
                mode: library.get(b"nvmlDeviceGetMigMode\0").ok()?,
                count: library.get(b"nvmlDeviceGetMaxMigDeviceCount\0").ok()?,
                by_index: library.get(b"nvmlDeviceGetMigDeviceHandleByIndex\0").ok()?,
            })
        }
    }

    fn is_on(&self, gpu: Handle) -> bool {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the handle is a GPU's, and the results are locals. GPUs that cannot be divided report an error.
        let code = unsafe { (self.mode)(gpu, &mut current, &mut pending) };
        code == 0 && current == MIG_ENABLED
    }

    /// The instances of a GPU that this process may use. Their places may have gaps.
    fn instances(&self, gpu: Handle) -> Vec<Handle> {
        let mut count = 0;
        // SAFETY: the handle is a GPU's, and the result is a local.
        if unsafe { (self.count)(gpu, &mut count) } != 0 {
            return Vec::new();
        }
        let at = |place| {
            let mut instance = std::ptr::null_mut();
            // SAFETY: the same.
            let code = unsafe { (self.by_index)(gpu, place, &mut instance) };
            (code == 0).then_some(instance)
        };
        (0..count.min(INSTANCES_MAX)).filter_map(at).collect()
    }
}

impl<'a> Nvml<'a> {
    fn open(library: &'a Library) -> Result<Nvml<'a>, NvmlError> {
        // SAFETY: the names and signatures are those of nvml.h, and the symbols do not outlive the library.
        let (init, nvml): (Symbol<'_, Plain>, _) = unsafe {
            let nvml = Nvml {
                shutdown: library.get(b"nvmlShutdown\0")?,
                error_text: library.get(b"nvmlErrorString\0")?,
                count: library.get(b"nvmlDeviceGetCount_v2\0")?,
                by_index: library.get(b"nvmlDeviceGetHandleByIndex_v2\0")?,
                uuid: library.get(b"nvmlDeviceGetUUID\0")?,
                name: library.get(b"nvmlDeviceGetName\0")?,
                pci: library.get(b"nvmlDeviceGetPciInfo_v3\0")?,
                memory: library.get(b"nvmlDeviceGetMemoryInfo\0")?,
                mig: Mig::find(library),
            };
            (library.get(b"nvmlInit_v2\0")?, nvml)
        };
        // SAFETY: it takes nothing; everything else may be called once it has succeeded.
        nvml.check("nvmlInit_v2", unsafe { init() })?;
        Ok(nvml)
    }

    fn close(self) {
        // SAFETY: it was initialised, and nothing of it is used after this.
        let _ = unsafe { (self.shutdown)() };
    }

    fn devices(&self) -> Result<Vec<Device>, NvmlError> {
        let mut count = 0;
        // SAFETY: the result is a local.
        self.check("nvmlDeviceGetCount_v2", unsafe { (self.count)(&mut count) })?;
        let count = count.min(DEVICES_MAX);
        let mut devices = Vec::new();
        let mut free_index = count..;
        for index in 0..count {
            // This process cannot use a device that does not answer (another user's, or off the bus).
            let Ok((handle, address)) = self.gpu(index) else { continue };
            match self.mig.as_ref().filter(|mig| mig.is_on(handle)) {
                None => devices.extend(self.device(handle, index, &address)),
                Some(mig) => {
                    let instances = mig.instances(handle);
                    let instances = instances.into_iter().zip(&mut free_index);
                    devices.extend(instances.filter_map(|(handle, index)| self.device(handle, index, &address).ok()));
                }
            }
        }
        Ok(devices)
    }

    /// Returns a GPU's handle and its address.
    fn gpu(&self, index: c_uint) -> Result<(Handle, String), NvmlError> {
        let (mut handle, mut pci) = (std::ptr::null_mut(), PciInfo::default());
        // SAFETY: the results are locals of the types that the functions fill, and the handle is what the first one made.
        unsafe {
            self.check("nvmlDeviceGetHandleByIndex_v2", (self.by_index)(index, &mut handle))?;
            self.check("nvmlDeviceGetPciInfo_v3", (self.pci)(handle, &mut pci))?;
        }
        let PciInfo { domain, bus, device, .. } = pci;
        Ok((handle, format!("{domain:04x}:{bus:02x}:{device:02x}.0")))
    }

    /// Describes a GPU or an instance.
    fn device(&self, handle: Handle, index: u32, address: &str) -> Result<Device, NvmlError> {
        let mut memory = MemoryInfo::default();
        // SAFETY: the handle is a device's, and the result is a local. A device without its own memory (it shares the processor's) reports
        // an error.
        if unsafe { (self.memory)(handle, &mut memory) } != 0 {
            memory = MemoryInfo::default();
        }
        Ok(Device {
            index,
            uuid: self.text(handle, "nvmlDeviceGetUUID", &self.uuid)?,
            name: self.text(handle, "nvmlDeviceGetName", &self.name)?,
            address: address.to_owned(),
            memory_bytes: memory.total,
        })
    }

    fn text(&self, handle: Handle, what: &'static str, ask: &Text) -> Result<String, NvmlError> {
        let mut bytes = [0u8; TEXT_BYTES];
        // SAFETY: the handle is a device's, and the buffer has the size that is passed.
        self.check(what, unsafe { ask(handle, bytes.as_mut_ptr().cast(), TEXT_BYTES as c_uint) })?;
        let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
        Ok(text.into_owned())
    }

    fn check(&self, what: &'static str, code: c_int) -> Result<(), NvmlError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it takes any number and returns a static text, or null.
        let text = unsafe { (self.error_text)(code) };
        let text = match text.is_null() {
            true => "error".to_owned(),
            // SAFETY: just found not to be null.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        };
        Err(NvmlError::Refused { what, code, text })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// The search path for libraries is fixed when a process starts, so the tests run themselves again.
    const AGAIN: &str = "RSD_TEST_FAKE_NVML";

    type Shown = (u32, String, String, String, u64);

    fn shown() -> Vec<Shown> {
        let devices = devices().expect("the fake driver is installed");
        devices.into_iter().map(|d| (d.index, d.uuid, d.name, d.address, d.memory_bytes)).collect()
    }

    fn gpu(index: u32, uuid: &str, name: &str, address: &str, memory_bytes: u64) -> Shown {
        (index, uuid.into(), name.into(), address.into(), memory_bytes)
    }

    /// Runs the test `name` again with a fake driver that is built with `flags`; returns false in that second run.
    fn with_fake_driver(name: &str, flags: &[&str]) -> bool {
        if std::env::var_os(AGAIN).is_some() {
            return false;
        }
        let dir = std::env::temp_dir().join(format!("rsd-nvml-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml.c");
        let built = Command::new("cc")
            .args(["-Wall", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(dir.join(LIBRARY))
            .arg(source)
            .args(flags)
            .status();
        assert!(built.expect("a C compiler").success());
        let again = Command::new(std::env::current_exe().expect("this test program"))
            .args(["--exact", &format!("inventory::nvml::tests::{name}")])
            .env(AGAIN, "1")
            .env("LD_LIBRARY_PATH", &dir)
            .output()
            .expect("this test program");
        let _ = std::fs::remove_dir_all(&dir);
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
        true
    }

    #[test]
    fn only_devices_that_answer_are_listed() {
        if with_fake_driver("only_devices_that_answer_are_listed", &[]) {
            return;
        }
        assert_eq!(
            shown(),
            [
                gpu(0, "GPU-0000-0", "Fake 100", "0000:3b:00.0", 16 << 30),
                gpu(2, "GPU-0000-2", "Fake 102", "0002:3b:00.0", 0),
            ]
        );
    }

    #[test]
    fn instances_are_listed_in_the_place_of_a_gpu_in_mig_mode() {
        if with_fake_driver("instances_are_listed_in_the_place_of_a_gpu_in_mig_mode", &["-DWITH_MIG"]) {
            return;
        }
        assert_eq!(
            shown(),
            [
                gpu(0, "GPU-0000-0", "Fake 100", "0000:3b:00.0", 16 << 30), // cannot be divided
                gpu(5, "MIG-0000-20", "Fake 102 MIG 1g.4gb", "0002:3b:00.0", 4 << 30),
                gpu(6, "MIG-0000-22", "Fake 102 MIG 1g.4gb", "0002:3b:00.0", 4 << 30),
                gpu(3, "GPU-0000-3", "Fake 103", "0003:3b:00.0", 16 << 30), // MIG takes effect with the next reset
            ],
            "and a GPU in MIG mode without instances is not listed"
        );
    }

    #[test]
    fn the_linkers_directories_are_searched_before_others() {
        let tried_if = |at: Option<usize>| {
            let mut tried = Vec::new();
            let found = first_found(|path| {
                tried.push(path.to_owned());
                if at == Some(tried.len()) { Ok(path.to_owned()) } else { Err(tried.len()) }
            });
            (tried, found)
        };
        let all = [
            "libnvidia-ml.so.1",
            "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
            "/usr/lib/wsl/lib/libnvidia-ml.so.1",
            "/run/opengl-driver/lib/libnvidia-ml.so.1",
        ]
        .map(str::to_owned);
        for at in 1..=all.len() {
            assert_eq!(tried_if(Some(at)), (all[..at].to_vec(), Ok(all[at - 1].clone())));
        }
        assert_eq!(tried_if(None), (all.to_vec(), Err(1)), "the error is that of the linker's directories");
        assert_eq!(ELSEWHERE[1], format!("/{OF_WSL}"));
    }
}
