//! `long double` of x86-64: the 80-bit numbers of the x87, for which Rust has no type.

#![expect(unsafe_code, reason = "instructions of the x87")]

use std::arch::asm;
use std::cmp::Ordering;
use std::ops::Neg;

/// A number in the low 10 of 16 bytes; the other bytes are ignored.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Extended([u8; 16]);

/// The register stack of the x87 is empty at function boundaries (System V ABI), and must be left empty.
macro_rules! x87 {
    ($($line:literal),*; $($operand:tt)*) => {
        asm!(
            $($line),*, $($operand)*,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            options(nostack)
        )
    };
}

impl Extended {
    #[inline]
    pub(super) fn sum(self, other: Self) -> Self {
        let mut result = other;
        // SAFETY: reads and writes 10 bytes of values of 16, and leaves the stack of the x87 empty.
        unsafe {
            x87!("fld tbyte ptr [{one}]", "fld tbyte ptr [{other}]", "faddp st(1), st", "fstp tbyte ptr [{other}]";
                one = in(reg) &raw const self, other = in(reg) &raw mut result);
        }
        result
    }

    #[inline]
    pub(super) fn product(self, other: Self) -> Self {
        let mut result = other;
        // SAFETY: as in `sum`.
        unsafe {
            x87!("fld tbyte ptr [{one}]", "fld tbyte ptr [{other}]", "fmulp st(1), st", "fstp tbyte ptr [{other}]";
                one = in(reg) &raw const self, other = in(reg) &raw mut result);
        }
        result
    }

    #[inline]
    fn is_below(&self, other: &Self) -> bool {
        let above: u8;
        // SAFETY: reads 10 bytes of values of 16, and leaves the stack of the x87 empty.
        unsafe {
            x87!("fld tbyte ptr [{one}]", "fld tbyte ptr [{other}]", "fcomip st, st(1)", "fstp st(0)", "seta {above}";
                one = in(reg) self, other = in(reg) other, above = out(reg_byte) above);
        }
        above != 0
    }
}

impl Neg for Extended {
    type Output = Self;

    #[inline]
    fn neg(mut self) -> Self {
        self.0[9] ^= 0x80;
        self
    }
}

impl PartialEq for Extended {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Extended {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let is_nan = |number: &Self| {
            let exponent = u16::from_le_bytes([number.0[8], number.0[9] & 0x7f]);
            exponent == 0x7fff && number.0[..8] != [0, 0, 0, 0, 0, 0, 0, 0x80]
        };
        match (self.is_below(other), other.is_below(self)) {
            (true, _) => Some(Ordering::Less),
            (_, true) => Some(Ordering::Greater),
            _ if is_nan(self) || is_nan(other) => None,
            _ => Some(Ordering::Equal),
        }
    }

    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.is_below(other)
    }

    #[inline]
    fn gt(&self, other: &Self) -> bool {
        other.is_below(self)
    }
}

#[cfg(test)]
impl Extended {
    /// Converts a number that both types can represent.
    pub(super) fn of(number: f64) -> Self {
        let mut result = Self([0; 16]);
        // SAFETY: reads 8 bytes, writes 10, and leaves the stack of the x87 empty.
        unsafe {
            x87!("fld qword ptr [{from}]", "fstp tbyte ptr [{to}]";
                from = in(reg) &raw const number, to = in(reg) &raw mut result);
        }
        result
    }

    pub(super) fn to_f64(self) -> f64 {
        let mut result = 0.0;
        // SAFETY: reads 10 bytes, writes 8, and leaves the stack of the x87 empty.
        unsafe {
            x87!("fld tbyte ptr [{from}]", "fstp qword ptr [{to}]";
                from = in(reg) &raw const self, to = in(reg) &raw mut result);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_added_multiplied_and_compared() {
        let numbers = [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        for one in numbers {
            for other in numbers {
                let (long, longer) = (Extended::of(one), Extended::of(other));
                assert_eq!(long.partial_cmp(&longer), one.partial_cmp(&other), "{one} {other}");
                assert_eq!((long < longer, long > longer), (one < other, one > other));
                let (sum, product) = (long.sum(longer).to_f64(), long.product(longer).to_f64());
                assert!(sum == one + other || (sum.is_nan() && (one + other).is_nan()), "{one} + {other}");
                assert!(product == one * other || (product.is_nan() && (one * other).is_nan()), "{one} * {other}");
            }
            assert_eq!((-Extended::of(one)).to_f64().to_bits(), (-one).to_bits());
        }
        let nan = Extended::of(f64::NAN);
        assert_eq!(nan.partial_cmp(&nan), None);
        assert_eq!((nan < Extended::of(1.0), nan > Extended::of(1.0), nan == nan), (false, false, false));
    }
}
