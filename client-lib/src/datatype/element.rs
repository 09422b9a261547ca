//! The predefined datatypes, as a table: the name, representation and operation class of each.
//!
//! C types are those of 64-bit Linux; Fortran's are those of compilers with 4-byte `INTEGER`, `REAL` and `LOGICAL`. The
//! classes are those of MPI 5.0 §6.9.2 and §6.9.4.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::abi::DatatypeHandle;
use crate::abi::constants as c;

/// A predefined datatype: its handle less [`FIRST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Element(u8);

/// The representation of a value in memory, in the machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repr {
    /// A signed integer of 1 byte.
    Int8,
    /// A signed integer of 2 bytes.
    Int16,
    /// A signed integer of 4 bytes.
    Int32,
    /// A signed integer of 8 bytes.
    Int64,
    /// A signed integer of 16 bytes.
    Int128,
    /// An unsigned integer of 1 byte.
    Uint8,
    /// An unsigned integer of 2 bytes.
    Uint16,
    /// An unsigned integer of 4 bytes.
    Uint32,
    /// An unsigned integer of 8 bytes.
    Uint64,
    /// A Fortran logical of 16 bytes.
    Uint128,
    /// IEEE 754 binary16.
    Float16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// `long double` of C, in 16 bytes: on x86-64 the x87's 10 bytes, elsewhere IEEE 754 binary128.
    LongDouble,
    /// IEEE 754 binary128.
    Float128,
    /// Two [`Repr::Float16`].
    Complex16,
    /// Two [`Repr::Float32`].
    Complex32,
    /// Two [`Repr::Float64`].
    Complex64,
    /// Two [`Repr::LongDouble`].
    ComplexLongDouble,
    /// Two [`Repr::Float128`].
    Complex128,
    /// `struct { float; int }`.
    Float32Int32,
    /// `struct { double; int }`.
    Float64Int32,
    /// `struct { long; int }`.
    Int64Int32,
    /// `struct { int; int }`.
    Int32Int32,
    /// `struct { short; int }`.
    Int16Int32,
    /// `struct { long double; int }`.
    LongDoubleInt32,
    /// Two [`Repr::Float32`]; the second one is an index.
    Float32Float32,
    /// Two [`Repr::Float64`]; the second one is an index.
    Float64Float64,
}

/// The operations that a type is meant for (MPI 5.0 §6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// "C integer".
    CInteger,
    /// "Fortran integer".
    FortranInteger,
    /// "Floating point".
    Floating,
    /// "Logical".
    Logical,
    /// "Complex".
    Complex,
    /// "Byte".
    Byte,
    /// "Multi-language types".
    MultiLanguage,
    /// A value and its index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair,
    /// Wide and Fortran characters, and packed data: no operations.
    Other,
}

/// The first datatype handle, `MPI_DATATYPE_NULL`.
pub const FIRST: usize = c::MPI_DATATYPE_NULL;

/// The number of datatype handles.
pub(super) const NUMBERS: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    repr: Repr,
    class: Class,
}

const NONE: Row = Row { name: "", repr: Repr::Uint8, class: Class::Other };

macro_rules! predefined {
    ($($name:ident $repr:ident $class:ident;)*) => {
        static ROWS: [Row; NUMBERS] = {
            let mut rows = [NONE; NUMBERS];
            $(rows[c::$name - FIRST] = Row { name: stringify!($name), repr: Repr::$repr, class: Class::$class };)*
            rows
        };
    };
}

predefined! {
    MPI_AINT Int64 MultiLanguage;
    MPI_COUNT Int64 MultiLanguage;
    MPI_OFFSET Int64 MultiLanguage;
    MPI_PACKED Uint8 Other;
    MPI_SHORT Int16 CInteger;
    MPI_INT Int32 CInteger;
    MPI_LONG Int64 CInteger;
    MPI_LONG_LONG_INT Int64 CInteger;
    MPI_UNSIGNED_SHORT Uint16 CInteger;
    MPI_UNSIGNED Uint32 CInteger;
    MPI_UNSIGNED_LONG Uint64 CInteger;
    MPI_UNSIGNED_LONG_LONG Uint64 CInteger;
    MPI_FLOAT Float32 Floating;
    MPI_C_COMPLEX Complex32 Complex;
    MPI_CXX_FLOAT_COMPLEX Complex32 Complex;
    MPI_DOUBLE Float64 Floating;
    MPI_C_DOUBLE_COMPLEX Complex64 Complex;
    MPI_CXX_DOUBLE_COMPLEX Complex64 Complex;
    MPI_LOGICAL Uint32 Logical;
    MPI_INTEGER Int32 FortranInteger;
    MPI_REAL Float32 Floating;
    MPI_COMPLEX Complex32 Complex;
    MPI_DOUBLE_PRECISION Float64 Floating;
    MPI_DOUBLE_COMPLEX Complex64 Complex;
    MPI_CHARACTER Uint8 Other;
    MPI_LONG_DOUBLE LongDouble Floating;
    MPI_C_LONG_DOUBLE_COMPLEX ComplexLongDouble Complex;
    MPI_CXX_LONG_DOUBLE_COMPLEX ComplexLongDouble Complex;
    MPI_FLOAT_INT Float32Int32 Pair;
    MPI_DOUBLE_INT Float64Int32 Pair;
    MPI_LONG_INT Int64Int32 Pair;
    MPI_2INT Int32Int32 Pair;
    MPI_SHORT_INT Int16Int32 Pair;
    MPI_LONG_DOUBLE_INT LongDoubleInt32 Pair;
    MPI_2REAL Float32Float32 Pair;
    MPI_2DOUBLE_PRECISION Float64Float64 Pair;
    MPI_2INTEGER Int32Int32 Pair;
    MPI_C_BOOL Uint8 Logical;
    MPI_CXX_BOOL Uint8 Logical;
    MPI_WCHAR Int32 Other;
    MPI_INT8_T Int8 CInteger;
    MPI_UINT8_T Uint8 CInteger;
    MPI_CHAR Int8 CInteger; // beyond the standard, as in other libraries: programs rely on it
    MPI_SIGNED_CHAR Int8 CInteger;
    MPI_UNSIGNED_CHAR Uint8 CInteger;
    MPI_BYTE Uint8 Byte;
    MPI_INT16_T Int16 CInteger;
    MPI_UINT16_T Uint16 CInteger;
    MPI_INT32_T Int32 CInteger;
    MPI_UINT32_T Uint32 CInteger;
    MPI_INT64_T Int64 CInteger;
    MPI_UINT64_T Uint64 CInteger;
    MPI_LOGICAL1 Uint8 Logical;
    MPI_INTEGER1 Int8 FortranInteger;
    MPI_LOGICAL2 Uint16 Logical;
    MPI_INTEGER2 Int16 FortranInteger;
    MPI_REAL2 Float16 Floating;
    MPI_LOGICAL4 Uint32 Logical;
    MPI_INTEGER4 Int32 FortranInteger;
    MPI_REAL4 Float32 Floating;
    MPI_COMPLEX4 Complex16 Complex;
    MPI_LOGICAL8 Uint64 Logical;
    MPI_INTEGER8 Int64 FortranInteger;
    MPI_REAL8 Float64 Floating;
    MPI_COMPLEX8 Complex32 Complex;
    MPI_LOGICAL16 Uint128 Logical;
    MPI_INTEGER16 Int128 FortranInteger;
    MPI_REAL16 Float128 Floating;
    MPI_COMPLEX16 Complex64 Complex;
    MPI_COMPLEX32 Complex128 Complex;
}

/// `SIZES[h - FIRST]`: bytes of an element of a predefined datatype without holes, or 0.
static SIZES: [u8; NUMBERS] = {
    let mut sizes = [0; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        let row = &ROWS[number];
        if !row.name.is_empty() && row.repr.extent() == row.repr.size() {
            sizes[number] = row.repr.size() as u8;
        }
        number += 1;
    }
    sizes
};

/// As `SIZES`, unless datatypes are tracked: then all 0.
static FORGETTABLE: [AtomicU8; NUMBERS] = {
    let mut sizes = [const { AtomicU8::new(0) }; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        sizes[number] = AtomicU8::new(SIZES[number]);
        number += 1;
    }
    sizes
};

static TRACKED: AtomicBool = AtomicBool::new(false);

/// From now on, the memory of a message does not forget its datatype, even if a length is all that is needed to copy it.
pub fn track() {
    TRACKED.store(true, Ordering::Relaxed);
    FORGETTABLE.iter().for_each(|size| size.store(0, Ordering::Relaxed));
}

/// Whether [`track`] has been called.
#[inline]
pub fn is_tracked() -> bool {
    TRACKED.load(Ordering::Relaxed)
}

/// Bytes of an element, if the datatype is a predefined one without holes, as in most messages, and may be forgotten ([`track`]).
#[inline]
pub fn forgettable_size(datatype: DatatypeHandle) -> Option<usize> {
    match FORGETTABLE.get(datatype.0.wrapping_sub(FIRST)).map(|size| size.load(Ordering::Relaxed)) {
        None | Some(0) => None,
        Some(size) => Some(usize::from(size)),
    }
}

/// Bytes of an element, if the datatype is a predefined one without holes.
pub fn basic_size(datatype: DatatypeHandle) -> Option<usize> {
    match SIZES.get(datatype.0.wrapping_sub(FIRST)) {
        None | Some(0) => None,
        Some(size) => Some(usize::from(*size)),
    }
}

impl Element {
    /// The predefined datatype with this handle.
    #[inline]
    pub fn of(handle: DatatypeHandle) -> Option<Self> {
        let number = handle.0.wrapping_sub(FIRST);
        let row = ROWS.get(number)?;
        (!row.name.is_empty()).then_some(Self(number as u8))
    }

    /// All predefined datatypes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..NUMBERS).filter_map(|number| Self::of(DatatypeHandle(FIRST + number)))
    }

    /// The handle.
    pub fn handle(self) -> DatatypeHandle {
        DatatypeHandle(FIRST + usize::from(self.0))
    }

    pub(super) fn number(self) -> usize {
        usize::from(self.0)
    }

    /// `MPI_…`.
    pub fn name(self) -> &'static str {
        ROWS[usize::from(self.0)].name
    }

    /// The representation in memory.
    #[inline]
    pub fn repr(self) -> Repr {
        ROWS[usize::from(self.0)].repr
    }

    /// The operations that it is meant for.
    #[inline]
    pub fn class(self) -> Class {
        ROWS[usize::from(self.0)].class
    }

    /// Bytes of data.
    #[inline]
    pub fn size(self) -> usize {
        self.repr().size()
    }

    /// For a pair: the value, the index, and the index's offset; `None` for a single value.
    pub(super) fn halves(self) -> Option<(Self, Self, usize)> {
        let (value, index) = match self.0 as usize + FIRST {
            c::MPI_FLOAT_INT => (c::MPI_FLOAT, c::MPI_INT),
            c::MPI_DOUBLE_INT => (c::MPI_DOUBLE, c::MPI_INT),
            c::MPI_LONG_INT => (c::MPI_LONG, c::MPI_INT),
            c::MPI_2INT => (c::MPI_INT, c::MPI_INT),
            c::MPI_SHORT_INT => (c::MPI_SHORT, c::MPI_INT),
            c::MPI_LONG_DOUBLE_INT => (c::MPI_LONG_DOUBLE, c::MPI_INT),
            c::MPI_2REAL => (c::MPI_REAL, c::MPI_REAL),
            c::MPI_2DOUBLE_PRECISION => (c::MPI_DOUBLE_PRECISION, c::MPI_DOUBLE_PRECISION),
            c::MPI_2INTEGER => (c::MPI_INTEGER, c::MPI_INTEGER),
            _ => return None,
        };
        let [value, index] = [value, index].map(|handle| Self((handle - FIRST) as u8));
        Some((value, index, value.size().next_multiple_of(index.repr().align())))
    }

    /// The pair of a value and an index of these types, if there is one.
    pub fn pair_of(value: Self, index: Self) -> Option<Self> {
        Self::all().find(|pair| pair.halves().is_some_and(|halves| (halves.0, halves.1) == (value, index)))
    }

    /// Bytes in `external32` (MPI 5.0 §14.5.2).
    pub(super) fn external_size(self) -> usize {
        match self.0 as usize + FIRST {
            c::MPI_LONG | c::MPI_UNSIGNED_LONG => 4,
            c::MPI_WCHAR => 2,
            _ => self.size(),
        }
    }
}

impl Repr {
    /// Bytes of data.
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 | Self::Complex16 => 4,
            Self::Int16Int32 => 6,
            Self::Int64
            | Self::Uint64
            | Self::Float64
            | Self::Complex32
            | Self::Float32Int32
            | Self::Int32Int32
            | Self::Float32Float32 => 8,
            Self::Float64Int32 | Self::Int64Int32 => 12,
            Self::Int128
            | Self::Uint128
            | Self::LongDouble
            | Self::Float128
            | Self::Complex64
            | Self::Float64Float64 => 16,
            Self::LongDoubleInt32 => 20,
            Self::ComplexLongDouble | Self::Complex128 => 32,
        }
    }

    /// The alignment required by C and Fortran.
    pub const fn align(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Complex16 => 2,
            Self::Int32
            | Self::Uint32
            | Self::Float32
            | Self::Complex32
            | Self::Float32Int32
            | Self::Int32Int32
            | Self::Int16Int32
            | Self::Float32Float32 => 4,
            Self::Int64
            | Self::Uint64
            | Self::Float64
            | Self::Complex64
            | Self::Float64Int32
            | Self::Int64Int32
            | Self::Float64Float64 => 8,
            Self::Int128
            | Self::Uint128
            | Self::LongDouble
            | Self::Float128
            | Self::ComplexLongDouble
            | Self::Complex128
            | Self::LongDoubleInt32 => 16,
        }
    }

    /// The distance between elements: the size, with the padding of the `struct`.
    pub const fn extent(self) -> usize {
        match self {
            Self::Int16Int32 => 8,
            _ => self.size().next_multiple_of(self.align()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_datatypes_have_the_sizes_of_the_abi() {
        for element in Element::all() {
            let handle = element.handle().0;
            if handle >= 0x240 {
                assert_eq!(element.size(), 1 << ((handle >> 3) & 7), "{}", element.name());
            }
            let whole = element.repr().extent() == element.size();
            assert_eq!(basic_size(element.handle()), whole.then_some(element.size()), "{}", element.name());
        }
        let shape = |handle| {
            let element = Element::of(DatatypeHandle(handle)).unwrap();
            (element.size(), element.repr().extent())
        };
        assert_eq!(shape(c::MPI_DOUBLE_INT), (12, 16));
        assert_eq!(shape(c::MPI_SHORT_INT), (6, 8));
        assert_eq!(shape(c::MPI_LONG_DOUBLE_INT), (20, 32));
        assert_eq!(shape(c::MPI_WCHAR), (size_of::<libc::wchar_t>(), 4));
        assert_eq!(shape(c::MPI_2REAL), (8, 8));
        assert_eq!(Element::all().count(), 70);
    }

    #[test]
    fn no_other_handle_is_a_predefined_datatype() {
        for bits in [0, 1, FIRST - 1, FIRST, FIRST + 4, 0x2ff, 0x300, usize::MAX, 0x7fff_1234_5678] {
            assert_eq!(Element::of(DatatypeHandle(bits)), None, "{bits:#x}");
            assert_eq!(basic_size(DatatypeHandle(bits)), None, "{bits:#x}");
        }
    }

    #[test]
    fn a_pair_consists_of_its_halves() {
        for element in Element::all().filter(|element| element.class() == Class::Pair) {
            let (value, index, at) = element.halves().unwrap();
            assert_eq!(value.size() + index.size(), element.size(), "{}", element.name());
            assert!(at + index.size() <= element.repr().extent());
        }
    }
}
