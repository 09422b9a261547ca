//! Prefetch hints: a line comes from another core, or from memory, while this one has other work.

#![cfg_attr(all(target_arch = "x86_64", not(loom)), expect(unsafe_code, reason = "instructions without a safe form"))]

/// Prefetches the line of a value that will be written.
#[inline(always)]
pub(crate) fn writing<T: ?Sized>(value: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a hint, which never faults; processors that do not support it ignore it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) value.cast::<u8>(), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = value;
}

/// Prefetches the line of a value that will be read.
#[inline(always)]
pub(crate) fn reading<T: ?Sized>(value: *const T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a hint, which never faults; processors that do not support it ignore it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(value.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = value;
}
