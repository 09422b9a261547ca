//! The functions of the CUDA driver, taken from the library that the program has loaded.
//!
//! A program that uses CUDA loads `libcuda.so.1` itself, often after `MPI_Init`; one that does not is spared loading it. So this library
//! never loads it: it looks whether the program has done so, whenever the number of loaded libraries has changed.

#![expect(unsafe_code, reason = "functions of another library, found by name")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// `CUresult`; 0 is success.
pub(super) type Code = c_int;
/// `CUcontext`, `CUstream` and `CUevent`: addresses that only the driver uses.
pub(super) type Handle = usize;
/// `CUdeviceptr`.
pub(super) type Address = u64;

/// `CUDA_ERROR_DEINITIALIZED`: the process is ending.
pub(super) const DEINITIALIZED: Code = 4;

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IpcHandle(pub(super) [u8; 64]);

/// `CUmemorytype`.
pub(super) const MEMORY_HOST: c_uint = 1;
pub(super) const MEMORY_DEVICE: c_uint = 2;

/// `CUpointer_attribute`.
pub(super) mod attribute {
    use std::ffi::c_int;

    pub(in crate::device) const CONTEXT: c_int = 1;
    pub(in crate::device) const MEMORY_TYPE: c_int = 2;
    pub(in crate::device) const SYNC_MEMOPS: c_int = 6;
    pub(in crate::device) const BUFFER_ID: c_int = 7;
    pub(in crate::device) const IS_MANAGED: c_int = 8;
    pub(in crate::device) const DEVICE_ORDINAL: c_int = 9;
    pub(in crate::device) const RANGE_START: c_int = 11;
    pub(in crate::device) const RANGE_SIZE: c_int = 12;
}

/// `CUDA_MEMCPY2D`: `height` rows of `width` bytes, whose first bytes are one pitch apart.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copy2d {
    pub(super) from: Rows,
    pub(super) to: Rows,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// One side of a [`Copy2d`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rows {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) kind: c_uint,
    pub(super) host: usize,
    pub(super) device: Address,
    pub(super) array: usize,
    pub(super) pitch: usize,
}

macro_rules! driver {
    ($($name:ident $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's functions.
        #[derive(Debug)]
        pub(super) struct Driver {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
            /// `cuCtxGetId`, which drivers before CUDA 12 do not have.
            pub(super) context_id: Option<unsafe extern "C" fn(Handle, *mut u64) -> Code>,
        }

        impl Driver {
            /// `Err` names the missing function.
            fn of(library: *mut c_void) -> Result<Self, &'static CStr> {
                Ok(Self {
                    $(
                        // SAFETY: the driver's documentation gives this function these arguments.
                        $name: unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Code>(symbol(library, $symbol)?)
                        },
                    )*
                    // SAFETY: as above.
                    context_id: symbol(library, c"cuCtxGetId").ok().map(|found| unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle, *mut u64) -> Code>(found)
                    }),
                })
            }
        }
    };
}

driver! {
    attributes c"cuPointerGetAttributes" (c_uint, *mut c_int, *mut *mut c_void, Address);
    set_attribute c"cuPointerSetAttribute" (*const c_void, c_int, Address);
    current c"cuCtxGetCurrent" (*mut Handle);
    push c"cuCtxPushCurrent_v2" (Handle);
    pop c"cuCtxPopCurrent_v2" (*mut Handle);
    retain_primary c"cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    release_primary c"cuDevicePrimaryCtxRelease_v2" (c_int);
    new_stream c"cuStreamCreate" (*mut Handle, c_uint);
    await_stream c"cuStreamSynchronize" (Handle);
    new_event c"cuEventCreate" (*mut Handle, c_uint);
    record c"cuEventRecord" (Handle, Handle);
    await_event c"cuEventSynchronize" (Handle);
    to_host c"cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    to_device c"cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    within c"cuMemcpyDtoDAsync_v2" (Address, Address, usize, Handle);
    rows c"cuMemcpy2DAsync_v2" (*const Copy2d, Handle);
    register c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    unregister c"cuMemHostUnregister" (*mut c_void);
    export c"cuIpcGetMemHandle" (*mut IpcHandle, Address);
    import c"cuIpcOpenMemHandle_v2" (*mut Address, IpcHandle, c_uint);
    end_import c"cuIpcCloseMemHandle" (Address);
    error_name c"cuGetErrorName" (Code, *mut *const c_char);
    error_text c"cuGetErrorString" (Code, *mut *const c_char);
}

fn symbol(library: *mut c_void, name: &'static CStr) -> Result<*mut c_void, &'static CStr> {
    // SAFETY: the library is loaded, and the name ends with a byte of 0.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(name) } else { Ok(found) }
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
/// How many libraries this process had loaded when it last looked, and 1.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// Held while it looks.
static LOOKING: Mutex<()> = Mutex::new(());

/// The driver, if the program has loaded it by now.
pub(super) fn driver() -> Option<&'static Driver> {
    match DRIVER.get() {
        Some(found) => found.as_ref(),
        None => look(),
    }
}

#[cold]
fn look() -> Option<&'static Driver> {
    let loads = loads() + 1;
    if LOOKED.load(Ordering::Acquire) == loads {
        return None;
    }
    let _one = LOOKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: takes a name; a library that is not loaded stays unloaded.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        LOOKED.store(loads, Ordering::Release);
        return None;
    }
    let found = DRIVER.get_or_init(|| match Driver::of(library) {
        Ok(driver) => Some(driver),
        Err(name) => {
            eprintln!(
                "rsd: the CUDA driver is too old for MPI on device memory: libcuda.so.1 has no {}",
                name.to_string_lossy()
            );
            None
        }
    });
    found.as_ref()
}

/// How many libraries this process has loaded since it started.
fn loads() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: the C library passes valid information, and this function's caller its own number.
        unsafe { count.cast::<u64>().write((*info).dlpi_adds) };
        1
    }
    let mut count = 0_u64;
    // SAFETY: the function writes to the number only.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

impl Driver {
    /// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered".
    pub(super) fn explain(&self, code: Code) -> String {
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: the driver stores the address of a text of its own, or none.
            let found = unsafe { function(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: the driver's text ends with a byte of 0 and is never freed.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.error_name).unwrap_or_else(|| format!("CUDA error {code}"));
        text(self.error_text).map_or_else(|| name.clone(), |text| format!("{name}: {text}"))
    }
}
