//! Asks the driver what an address is.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use std::ffi::{c_int, c_void};

use super::driver::{Handle, MEMORY_DEVICE, attribute, driver};
use super::may_hold;
use crate::error::{MpiError, MpiResult};

/// An allocation of device memory.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its context; 0 for memory of a pool.
    pub(super) context: Handle,
    /// The number of its device in this process.
    pub(super) device: i32,
    /// Unique for as long as the process lives.
    pub(super) id: u64,
    /// Its first address.
    pub(super) start: u64,
    /// In bytes.
    pub(super) size: u64,
    /// The driver moves it between host and devices.
    pub(super) is_managed: bool,
}

impl Found {
    /// Whether the processor can use it as well: the driver moves it between host and devices.
    pub fn is_managed(&self) -> bool {
        self.is_managed
    }
}

/// The allocation that holds an address; `None` for memory of the host. Fails if the driver can tell neither.
pub fn find(address: *const u8) -> MpiResult<Option<Found>> {
    if !may_hold(address) {
        return Ok(None);
    }
    let Some(driver) = driver() else { return Ok(None) };
    let mut kind = 0_u32;
    ask(driver, address, &mut [attribute::MEMORY_TYPE], &mut [(&raw mut kind).cast()]);
    if kind != MEMORY_DEVICE {
        return Ok(None);
    }
    let (mut context, mut device, mut id, mut start, mut size) = (0_usize, 0_i32, 0_u64, 0_u64, 0_u64);
    let mut managed = 0_u32;
    let mut attributes = [
        attribute::CONTEXT,
        attribute::DEVICE_ORDINAL,
        attribute::BUFFER_ID,
        attribute::RANGE_START,
        attribute::RANGE_SIZE,
        attribute::IS_MANAGED,
    ];
    let mut places: [*mut c_void; 6] = [
        (&raw mut context).cast(),
        (&raw mut device).cast(),
        (&raw mut id).cast(),
        (&raw mut start).cast(),
        (&raw mut size).cast(),
        (&raw mut managed).cast(),
    ];
    let code = ask(driver, address, &mut attributes, &mut places);
    if code != 0 {
        return Err(MpiError::buffer(format!("the device memory at {address:p}: {}", driver.explain(code))));
    }
    Ok(Some(Found { context, device, id, start, size, is_managed: managed & 0xff != 0 }))
}

fn ask(
    driver: &super::driver::Driver,
    address: *const u8,
    attributes: &mut [c_int],
    places: &mut [*mut c_void],
) -> c_int {
    // SAFETY: there is a place for each attribute, of its size. A driver that is not initialised says so.
    unsafe {
        (driver.attributes)(
            attributes.len() as u32,
            attributes.as_mut_ptr(),
            places.as_mut_ptr(),
            address.addr() as u64,
        )
    }
}
