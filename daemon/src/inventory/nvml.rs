//! Queries NVIDIA's driver about its GPUs, through the library that comes with it.
//!
//! The library is loaded for the query and unloaded after it: a node without the driver has no such library, and rsd builds
//! without it. Besides `spawn`, this is the only module of the daemon that may use `unsafe`, because the signatures of a loaded
//! library's functions are not checked. Names, signatures and structures: NVML API Reference, `nvml.h`. Drivers of the last ten
//! years have the `_v2` and `_v3` names that are used here.

#![expect(unsafe_code, reason = "the functions of a library that is loaded at run time")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::{Library, Symbol};

/// The name by which every driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE.
const TEXT_BYTES: usize = 96;
/// More GPUs than any machine has.
const DEVICES_MAX: c_uint = 1024;

/// A GPU as its driver reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    /// The driver's number.
    pub(super) index: u32,
    /// "GPU-…".
    pub(super) uuid: String,
    pub(super) name: String,
    /// "0000:3b:00.0", as the kernel writes it.
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

/// The GPUs that this process may use, in the driver's order.
pub(super) fn devices() -> Result<Vec<Device>, NvmlError> {
    // SAFETY: loading the library runs only its own initialisers.
    let library = unsafe { Library::new(LIBRARY) }?;
    let nvml = Nvml::open(&library)?;
    let devices = nvml.devices();
    nvml.close();
    devices
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
        // This process cannot use a device that does not answer (another user's, or off the bus).
        Ok((0..count.min(DEVICES_MAX)).filter_map(|index| self.device(index).ok()).collect())
    }

    fn device(&self, index: c_uint) -> Result<Device, NvmlError> {
        let (mut handle, mut pci, mut memory) = (std::ptr::null_mut(), PciInfo::default(), MemoryInfo::default());
        // SAFETY: the results are locals of the types that the functions fill, and the handle is what the first one made.
        unsafe {
            self.check("nvmlDeviceGetHandleByIndex_v2", (self.by_index)(index, &mut handle))?;
            self.check("nvmlDeviceGetPciInfo_v3", (self.pci)(handle, &mut pci))?;
            // A device without its own memory (it shares the processor's) reports an error.
            if (self.memory)(handle, &mut memory) != 0 {
                memory = MemoryInfo::default();
            }
        }
        let PciInfo { domain, bus, device, .. } = pci;
        Ok(Device {
            index,
            uuid: self.text(handle, "nvmlDeviceGetUUID", &self.uuid)?,
            name: self.text(handle, "nvmlDeviceGetName", &self.name)?,
            address: format!("{domain:04x}:{bus:02x}:{device:02x}.0"),
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

    /// The search path for libraries is fixed when a process starts, so the test runs itself again.
    const AGAIN: &str = "RSD_TEST_FAKE_NVML";

    #[test]
    fn only_devices_that_answer_are_listed() {
        if std::env::var_os(AGAIN).is_some() {
            let devices = devices().expect("the fake driver is installed");
            let shown: Vec<_> =
                devices.iter().map(|d| (d.index, &*d.uuid, &*d.name, &*d.address, d.memory_bytes)).collect();
            assert_eq!(
                shown,
                [
                    (0, "GPU-0000-0", "Fake 100", "0000:3b:00.0", 16 << 30),
                    (2, "GPU-0000-2", "Fake 102", "0002:3b:00.0", 0),
                ]
            );
            return;
        }
        let dir = std::env::temp_dir().join(format!("rsd-nvml-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(dir.join(LIBRARY)).arg(source).status();
        assert!(built.expect("a C compiler").success());
        let again = Command::new(std::env::current_exe().expect("this test program"))
            .args(["--exact", "inventory::nvml::tests::only_devices_that_answer_are_listed"])
            .env(AGAIN, "1")
            .env("LD_LIBRARY_PATH", &dir)
            .output()
            .expect("this test program");
        let _ = std::fs::remove_dir_all(&dir);
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
    }
}
