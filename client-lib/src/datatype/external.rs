//! `external32`, the representation of data for other machines and libraries: big endian, with special sizes for a few
//! types (MPI 5.0 §14.5.2).

#![expect(unsafe_code, reason = "copies from and to memory that the user has lent")]

use super::element::{Element, Repr};
use super::object::Datatype;
use crate::error::{MpiError, MpiResult};

/// Bytes converted at a time.
const CHUNK: usize = 4096;

impl Datatype {
    /// Bytes of `count` elements in `external32`.
    pub fn external_len(&self, count: usize) -> MpiResult<usize> {
        let len = self.body.signature.external_size().and_then(|size| size.checked_mul(count));
        len.filter(|len| *len <= isize::MAX as usize)
            .ok_or_else(|| MpiError::count(format!("{count} elements exceed the address space")))
    }

    /// Converts `count` elements; `into` has the length that they need.
    ///
    /// # Safety
    ///
    /// The elements' memory must be readable.
    pub unsafe fn pack_external(&self, base: *const u8, count: usize, into: &mut [u8]) {
        let mut left = into;
        self.visit_chunks(count, &mut |element, at, len| {
            let (mut native, external) = ([0; CHUNK], element.external_size());
            // SAFETY: the caller's promise; the bytes are those of the elements.
            unsafe { self.layout().pack(base.cast_mut(), at, native.as_mut_ptr(), len) };
            let (now, later) = std::mem::take(&mut left).split_at_mut(len / element.size() * external);
            left = later;
            for (from, to) in native[..len].chunks_exact(element.size()).zip(now.chunks_exact_mut(external)) {
                to_external(element, from, to);
            }
        });
    }

    /// Converts back; `from` has the length of `count` elements.
    ///
    /// # Safety
    ///
    /// The elements' memory must be writable.
    pub unsafe fn unpack_external(&self, from: &[u8], base: *mut u8, count: usize) {
        let mut left = from;
        self.visit_chunks(count, &mut |element, at, len| {
            let (mut native, external) = ([0; CHUNK], element.external_size());
            let (now, later) = left.split_at(len / element.size() * external);
            left = later;
            for (from, to) in now.chunks_exact(external).zip(native[..len].chunks_exact_mut(element.size())) {
                from_external(element, from, to);
            }
            // SAFETY: the caller's promise; the bytes are those of the elements.
            unsafe { self.layout().unpack(base, at, native.as_ptr(), len) };
        });
    }

    /// Lists basic elements in packed order: the element, its first packed byte, and the number of bytes, at most
    /// [`CHUNK`].
    fn visit_chunks(&self, count: usize, visit: &mut dyn FnMut(Element, usize, usize)) {
        let mut at = 0;
        let repeat = if self.size() == 0 { 0 } else { count };
        for _ in 0..repeat {
            self.body.signature.visit(&mut |element, count| {
                let mut left = element.size() * count;
                while left > 0 {
                    let len = left.min(CHUNK / element.size() * element.size());
                    visit(element, at, len);
                    at += len;
                    left -= len;
                }
                true
            });
        }
    }
}

fn to_external(element: Element, native: &[u8], external: &mut [u8]) {
    if cfg!(target_arch = "x86_64") && matches!(element.repr(), Repr::LongDouble | Repr::ComplexLongDouble) {
        for (from, to) in native.as_chunks::<16>().0.iter().zip(external.as_chunks_mut::<16>().0) {
            *to = quad_of_extended(u128::from_ne_bytes(*from)).to_be_bytes();
        }
        return;
    }
    // For an integer that is shorter in `external32`, the low bytes.
    let part = part(element).min(external.len());
    for (from, to) in native.chunks_exact(native.len() * part / external.len()).zip(external.chunks_exact_mut(part)) {
        let low = if cfg!(target_endian = "big") { &from[from.len() - part..] } else { &from[..part] };
        to.copy_from_slice(low);
        if cfg!(target_endian = "little") {
            to.reverse();
        }
    }
}

fn from_external(element: Element, external: &[u8], native: &mut [u8]) {
    if cfg!(target_arch = "x86_64") && matches!(element.repr(), Repr::LongDouble | Repr::ComplexLongDouble) {
        for (from, to) in external.as_chunks::<16>().0.iter().zip(native.as_chunks_mut::<16>().0) {
            *to = extended_of_quad(u128::from_be_bytes(*from)).to_ne_bytes();
        }
        return;
    }
    let part = part(element).min(external.len());
    let native_part = native.len() * part / external.len();
    let signed = matches!(element.repr(), Repr::Int64) && native_part > part;
    for (from, to) in external.chunks_exact(part).zip(native.chunks_exact_mut(native_part)) {
        to.fill(if signed && from[0] & 0x80 != 0 { 0xff } else { 0 });
        if cfg!(target_endian = "big") {
            to[native_part - part..].copy_from_slice(from);
        } else {
            to[..part].copy_from_slice(from);
            to[..part].reverse();
        }
    }
}

/// Bytes that are reversed together.
fn part(element: Element) -> usize {
    match element.repr() {
        Repr::Complex16 | Repr::Complex32 | Repr::Complex64 | Repr::ComplexLongDouble | Repr::Complex128 => {
            element.size() / 2
        }
        _ => element.size(),
    }
}

/// Converts the x87's 80 bits, the low ones, to IEEE 754 binary128: 49 more bits of fraction, and the leading 1 is
/// implied.
fn quad_of_extended(extended: u128) -> u128 {
    let (fraction, exponent) = (extended & ((1 << 63) - 1), (extended >> 64) & 0xffff);
    (exponent << 112) | (fraction << 49)
}

/// Converts back, rounding to the nearest.
fn extended_of_quad(quad: u128) -> u128 {
    let (sign, magnitude) = (quad >> 127, quad & !(1 << 127));
    let infinite = 0x7fff << 112;
    // Rounding may carry into the exponent, which is right; a NaN remains a NaN.
    let half = (1 << 48) - 1 + ((magnitude >> 49) & 1);
    let rounded = if magnitude >= infinite { magnitude } else { magnitude + half };
    let (exponent, mut fraction) = (rounded >> 112, (rounded >> 49) & ((1 << 63) - 1));
    if magnitude > infinite {
        fraction |= 1 << 62;
    }
    let leading = u128::from(exponent != 0);
    (sign << 79) | (exponent << 64) | (leading << 63) | fraction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::DatatypeHandle;
    use crate::abi::constants as c;

    fn there_and_back(handle: usize, native: &[u8]) -> Vec<u8> {
        let datatype = Datatype::predefined(Element::of(DatatypeHandle(handle)).unwrap());
        let count = native.len() / datatype.extent() as usize;
        let mut external = vec![0; datatype.external_len(count).unwrap()];
        let mut back = vec![0; native.len()];
        // SAFETY: the bytes hold `count` elements.
        unsafe {
            datatype.pack_external(native.as_ptr(), count, &mut external);
            datatype.unpack_external(&external, back.as_mut_ptr(), count);
        }
        assert_eq!(back, native);
        external
    }

    #[test]
    fn numbers_are_converted_to_big_endian_and_back() {
        let ints: Vec<u8> = [1i32, -2].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(there_and_back(c::MPI_INT, &ints), [0, 0, 0, 1, 255, 255, 255, 254]);
        let longs: Vec<u8> = [1i64, -2].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(there_and_back(c::MPI_LONG, &longs), [0, 0, 0, 1, 255, 255, 255, 254]);
        assert_eq!(there_and_back(c::MPI_INT64_T, &longs)[..8], 1i64.to_be_bytes());
        let complex: Vec<u8> = [1.0f64, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let expected: Vec<u8> = [1.0f64, -2.0].iter().flat_map(|value| value.to_be_bytes()).collect();
        assert_eq!(there_and_back(c::MPI_C_DOUBLE_COMPLEX, &complex), expected);
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&1.5f64.to_ne_bytes());
        pair[8..12].copy_from_slice(&7i32.to_ne_bytes());
        let expected: Vec<u8> = 1.5f64.to_be_bytes().into_iter().chain(7i32.to_be_bytes()).collect();
        assert_eq!(there_and_back(c::MPI_DOUBLE_INT, &pair), expected);
    }

    #[test]
    fn a_long_double_is_converted_to_a_quad_and_back() {
        // One and a half, negative; the smallest denormal; infinity; a fraction of all ones.
        for extended in
            [(0xbfffu128 << 64) | (3 << 62), 1, (0x7fff << 64) | (1 << 63), (0x4000 << 64) | u128::from(u64::MAX)]
        {
            assert_eq!(extended_of_quad(quad_of_extended(extended)), extended);
        }
        assert_eq!(quad_of_extended((0xbfff << 64) | (3 << 62)), (0xbfff << 112) | (1 << 111));
        // Halfway between two numbers: to the even one. Above the largest: infinity.
        assert_eq!(extended_of_quad((0x3fff << 112) | (1 << 48)), (0x3fff << 64) | (1 << 63));
        assert_eq!(extended_of_quad((0x3fff << 112) | (3 << 48)), (0x3fff << 64) | (1 << 63) | 2);
        assert_eq!(extended_of_quad((0x7ffe << 112) | ((1 << 112) - 1)), (0x7fff << 64) | (1 << 63));
    }
}
