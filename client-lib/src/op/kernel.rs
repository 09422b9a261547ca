//! The loops: `inout[i] = input[i] op inout[i]`, one for each operation and representation.
//!
//! They read and write whole elements at any address, in order, without branches where the operation has none, so that the
//! compiler can use vector instructions. Integers wrap. If two numbers are unordered (one is a NaN), the one in `inout` stays.

#![expect(unsafe_code, reason = "loops over memory that the user has lent")]

use std::ops::{Add, Mul, Neg};

use super::builtin::Builtin;
#[cfg(target_arch = "x86_64")]
use super::extended::Extended;
use crate::datatype::Repr;

/// A loop over a number of elements of `input` and `inout`.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    function: Function,
    /// The number of the loop's elements per element of the datatype.
    scale: usize,
}

type Function = unsafe fn(*const u8, *mut u8, usize);

impl Kernel {
    /// Sets `inout[i] = input[i] op inout[i]` for `count` elements of the datatype.
    ///
    /// # Safety
    ///
    /// There must be `count` elements in `input`, to be read, and in `inout`, to be written.
    #[inline]
    pub unsafe fn run(self, input: *const u8, inout: *mut u8, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { (self.function)(input, inout, count * self.scale) };
    }
}

/// The loop for an operation that accepts the type; `None` if there is no arithmetic for the representation.
pub(super) fn kernel(op: Builtin, repr: Repr) -> Option<Kernel> {
    // For bitwise operations the size of an element does not matter.
    let bitwise = |function: Function| Some(Kernel { function, scale: repr.size() });
    let function = match op {
        Builtin::Sum => sum(repr)?,
        Builtin::Prod => product(repr)?,
        Builtin::Min => ordered::<Least>(repr)?,
        Builtin::Max => ordered::<Greatest>(repr)?,
        Builtin::LogicalAnd => logical::<And>(repr),
        Builtin::LogicalOr => logical::<Or>(repr),
        Builtin::LogicalXor => logical::<Xor>(repr),
        Builtin::BitAnd => return bitwise(each::<u8, And>),
        Builtin::BitOr => return bitwise(each::<u8, Or>),
        Builtin::BitXor => return bitwise(each::<u8, Xor>),
        Builtin::MinLoc => located::<Least>(repr)?,
        Builtin::MaxLoc => located::<Greatest>(repr)?,
        Builtin::Replace | Builtin::NoOp => return None,
    };
    Some(Kernel { function, scale: 1 })
}

/// Combines two elements.
trait Combine<T> {
    fn combine(input: T, inout: T) -> T;
}

/// With the widest vectors that the processor has, if there are elements enough.
///
/// # Safety
///
/// As for [`Kernel::run`].
unsafe fn each<T: Copy, C: Combine<T>>(input: *const u8, inout: *mut u8, count: usize) {
    #[cfg(target_arch = "x86_64")]
    if count >= MANY && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promise; the processor has the instructions.
        return unsafe { each_wide::<T, C>(input, inout, count) };
    }
    // SAFETY: the caller's promise.
    unsafe { each_of::<T, C>(input, inout, count) }
}

/// Fewer elements are not worth the look at the processor.
#[cfg(target_arch = "x86_64")]
const MANY: usize = 32;

/// # Safety
///
/// As for [`Kernel::run`]; the processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn each_wide<T: Copy, C: Combine<T>>(input: *const u8, inout: *mut u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { each_of::<T, C>(input, inout, count) }
}

/// # Safety
///
/// As for [`Kernel::run`].
#[inline(always)]
unsafe fn each_of<T: Copy, C: Combine<T>>(input: *const u8, inout: *mut u8, count: usize) {
    let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
    for index in 0..count {
        // SAFETY: the caller has promised `count` elements in both.
        unsafe {
            let result = C::combine(input.add(index).read_unaligned(), inout.add(index).read_unaligned());
            inout.add(index).write_unaligned(result);
        }
    }
}

/// A number that can be added and multiplied.
trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! numbers {
    ($($t:ty: $plus:ident $times:ident;)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.$plus(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.$times(other)
            }
        }
    )*};
}

numbers! {
    i8: wrapping_add wrapping_mul;
    i16: wrapping_add wrapping_mul;
    i32: wrapping_add wrapping_mul;
    i64: wrapping_add wrapping_mul;
    i128: wrapping_add wrapping_mul;
    f32: add mul;
    f64: add mul;
}

#[cfg(target_arch = "x86_64")]
impl Number for Extended {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.sum(other)
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.product(other)
    }
}

/// A real and an imaginary part.
#[derive(Clone, Copy)]
#[repr(C)]
struct Complex<T>(T, T);

impl<T: Number + Neg<Output = T>> Number for Complex<T> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self(self.0.plus(other.0), self.1.plus(other.1))
    }

    #[inline(always)]
    fn times(self, other: Self) -> Self {
        let real = self.0.times(other.0).plus(-self.1.times(other.1));
        Self(real, self.0.times(other.1).plus(self.1.times(other.0)))
    }
}

struct Sum;
struct Product;

impl<T: Number> Combine<T> for Sum {
    #[inline(always)]
    fn combine(input: T, inout: T) -> T {
        input.plus(inout)
    }
}

impl<T: Number> Combine<T> for Product {
    #[inline(always)]
    fn combine(input: T, inout: T) -> T {
        input.times(inout)
    }
}

macro_rules! by_number {
    ($name:ident, $combine:ident) => {
        fn $name(repr: Repr) -> Option<Function> {
            Some(match repr {
                Repr::Int8 | Repr::Uint8 => each::<i8, $combine>,
                Repr::Int16 | Repr::Uint16 => each::<i16, $combine>,
                Repr::Int32 | Repr::Uint32 => each::<i32, $combine>,
                Repr::Int64 | Repr::Uint64 => each::<i64, $combine>,
                Repr::Int128 | Repr::Uint128 => each::<i128, $combine>,
                Repr::Float32 => each::<f32, $combine>,
                Repr::Float64 => each::<f64, $combine>,
                Repr::Complex32 => each::<Complex<f32>, $combine>,
                Repr::Complex64 => each::<Complex<f64>, $combine>,
                #[cfg(target_arch = "x86_64")]
                Repr::LongDouble => each::<Extended, $combine>,
                #[cfg(target_arch = "x86_64")]
                Repr::ComplexLongDouble => each::<Complex<Extended>, $combine>,
                _ => return None,
            })
        }
    };
}

// Sums and products of unsigned numbers have the same bits as those of signed ones.
by_number!(sum, Sum);
by_number!(product, Product);

/// Decides which of two numbers is the result.
trait Order {
    fn before<T: PartialOrd>(one: &T, other: &T) -> bool;
}

struct Least;
struct Greatest;

impl Order for Least {
    #[inline(always)]
    fn before<T: PartialOrd>(one: &T, other: &T) -> bool {
        one < other
    }
}

impl Order for Greatest {
    #[inline(always)]
    fn before<T: PartialOrd>(one: &T, other: &T) -> bool {
        one > other
    }
}

struct First<O>(O);

impl<T: PartialOrd, O: Order> Combine<T> for First<O> {
    #[inline(always)]
    fn combine(input: T, inout: T) -> T {
        if O::before(&input, &inout) { input } else { inout }
    }
}

fn ordered<O: Order>(repr: Repr) -> Option<Function> {
    Some(match repr {
        Repr::Int8 => each::<i8, First<O>>,
        Repr::Int16 => each::<i16, First<O>>,
        Repr::Int32 => each::<i32, First<O>>,
        Repr::Int64 => each::<i64, First<O>>,
        Repr::Int128 => each::<i128, First<O>>,
        Repr::Uint8 => each::<u8, First<O>>,
        Repr::Uint16 => each::<u16, First<O>>,
        Repr::Uint32 => each::<u32, First<O>>,
        Repr::Uint64 => each::<u64, First<O>>,
        Repr::Float32 => each::<f32, First<O>>,
        Repr::Float64 => each::<f64, First<O>>,
        #[cfg(target_arch = "x86_64")]
        Repr::LongDouble => each::<Extended, First<O>>,
        _ => return None,
    })
}

struct And;
struct Or;
struct Xor;

impl Combine<u8> for And {
    #[inline(always)]
    fn combine(input: u8, inout: u8) -> u8 {
        input & inout
    }
}

impl Combine<u8> for Or {
    #[inline(always)]
    fn combine(input: u8, inout: u8) -> u8 {
        input | inout
    }
}

impl Combine<u8> for Xor {
    #[inline(always)]
    fn combine(input: u8, inout: u8) -> u8 {
        input ^ inout
    }
}

/// Truth values 0 and 1; any other value also counts as true.
struct Truth<C>(C);

macro_rules! truths {
    ($($t:ty)*) => {$(
        impl<C: Combine<u8>> Combine<$t> for Truth<C> {
            #[inline(always)]
            fn combine(input: $t, inout: $t) -> $t {
                C::combine(u8::from(input != 0), u8::from(inout != 0)).into()
            }
        }
    )*};
}

truths!(u8 u16 u32 u64 u128);

fn logical<C: Combine<u8>>(repr: Repr) -> Function {
    match repr.size() {
        1 => each::<u8, Truth<C>>,
        2 => each::<u16, Truth<C>>,
        4 => each::<u32, Truth<C>>,
        8 => each::<u64, Truth<C>>,
        _ => each::<u128, Truth<C>>,
    }
}

/// A value and its index, as C lays them out.
#[repr(C)]
struct Located<V, I> {
    value: V,
    index: I,
}

/// The extreme value; of equal ones, the one with the smaller index. Padding between the elements is unchanged.
///
/// # Safety
///
/// As for [`Kernel::run`].
unsafe fn each_located<V: Copy + PartialOrd, I: Copy + PartialOrd, O: Order>(
    input: *const u8,
    inout: *mut u8,
    count: usize,
) {
    let (input, inout) = (input.cast::<Located<V, I>>(), inout.cast::<Located<V, I>>());
    for at in 0..count {
        // SAFETY: the caller has promised `count` elements in both.
        unsafe {
            let (input, inout) = (input.add(at), inout.add(at));
            let (value, index) =
                ((&raw const (*input).value).read_unaligned(), (&raw const (*input).index).read_unaligned());
            let (there, there_index) =
                ((&raw const (*inout).value).read_unaligned(), (&raw const (*inout).index).read_unaligned());
            if O::before(&value, &there) || (value == there && index < there_index) {
                (&raw mut (*inout).value).write_unaligned(value);
                (&raw mut (*inout).index).write_unaligned(index);
            }
        }
    }
}

fn located<O: Order>(repr: Repr) -> Option<Function> {
    Some(match repr {
        Repr::Float32Int32 => each_located::<f32, i32, O>,
        Repr::Float64Int32 => each_located::<f64, i32, O>,
        Repr::Int64Int32 => each_located::<i64, i32, O>,
        Repr::Int32Int32 => each_located::<i32, i32, O>,
        Repr::Int16Int32 => each_located::<i16, i32, O>,
        Repr::Float32Float32 => each_located::<f32, f32, O>,
        Repr::Float64Float64 => each_located::<f64, f64, O>,
        #[cfg(target_arch = "x86_64")]
        Repr::LongDoubleInt32 => each_located::<Extended, i32, O>,
        _ => return None,
    })
}
