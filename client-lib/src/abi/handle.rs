//! Handles: numbers that name an object of one class.
//!
//! The ABI makes them pointers to incomplete types and gives the predefined ones values below 0x400. Those that the library makes are
//! never addresses, but have this form:
//!
//! ```text
//! bit 63      40 39     32 31 30 29       21 20        0
//!    ┌──────────┬─────────┬──┬──┬───────────┬───────────┐
//!    │    0     │  class  │ 0│ 1│generation │   slot    │
//!    └──────────┴─────────┴──┴──┴───────────┴───────────┘
//! ```
//!
//! The lower half alone is a positive `int` unlike any predefined handle (the result of `MPI_Comm_toint`). Garbage and handles
//! whose object has been freed are recognized.

/// The most slots of a table: two million objects of a class at a time.
pub const SLOTS: u32 = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 21;
const GENERATION_BITS: u32 = 9;
const MADE: u32 = 1 << 30;

/// The slot of an object in its table, and the generation of the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The index in the table.
    pub slot: u32,
    /// The number of objects that had the slot before, modulo 512.
    pub generation: u32,
}

impl Place {
    /// The next generation of the same slot.
    #[inline]
    pub fn next_generation(self) -> u32 {
        (self.generation + 1) & ((1 << GENERATION_BITS) - 1)
    }

    #[inline]
    fn to_low(self) -> u32 {
        MADE | (self.generation << SLOT_BITS) | self.slot
    }

    #[inline]
    fn from_low(low: u32) -> Option<Self> {
        let place = Self { slot: low & (SLOTS - 1), generation: (low & !MADE) >> SLOT_BITS };
        (low & MADE != 0 && low >> 31 == 0).then_some(place)
    }
}

/// A class of handles.
pub trait Handle: Copy + Eq + std::fmt::Debug {
    /// Distinguishes the classes; in bits 32 to 39.
    const CLASS: u8;

    /// Converts from the value that C passes.
    fn from_bits(bits: usize) -> Self;

    /// Converts to the value that C gets.
    fn bits(self) -> usize;

    /// The handle of the object in a slot of this class's table.
    #[inline]
    fn made(place: Place) -> Self {
        Self::from_bits((usize::from(Self::CLASS) << 32) | place.to_low() as usize)
    }

    /// The slot of its object; `None` for a predefined handle, one of another class, or garbage.
    #[inline]
    fn place(self) -> Option<Place> {
        if self.bits() >> 32 == usize::from(Self::CLASS) { Place::from_low(self.bits() as u32) } else { None }
    }

    /// The result of `MPI_X_toint`: for a predefined handle its own value.
    #[inline]
    fn to_int(self) -> i32 {
        self.bits() as u32 as i32
    }

    /// The result of `MPI_X_fromint`.
    #[inline]
    fn from_int(int: i32) -> Self {
        match Place::from_low(int as u32) {
            Some(place) => Self::made(place),
            None => Self::from_bits(int as u32 as usize),
        }
    }
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident = $class:literal, null $null:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl $name {
            /// The predefined null handle.
            pub const NULL: Self = Self($null);
        }

        impl Handle for $name {
            const CLASS: u8 = $class;

            #[inline]
            fn from_bits(bits: usize) -> Self {
                Self(bits)
            }

            #[inline]
            fn bits(self) -> usize {
                self.0
            }
        }
    )*};
}

handles! {
    /// `MPI_Comm`.
    CommHandle = 1, null 0x100;
    /// `MPI_Group`.
    GroupHandle = 2, null 0x108;
    /// `MPI_Win`.
    WinHandle = 3, null 0x110;
    /// `MPI_File`.
    FileHandle = 4, null 0x118;
    /// `MPI_Session`.
    SessionHandle = 5, null 0x120;
    /// `MPI_Message`.
    MessageHandle = 6, null 0x128;
    /// `MPI_Info`.
    InfoHandle = 7, null 0x130;
    /// `MPI_Errhandler`.
    ErrhandlerHandle = 8, null 0x140;
    /// `MPI_Request`.
    RequestHandle = 9, null 0x180;
    /// `MPI_Datatype`.
    DatatypeHandle = 10, null 0x200;
    /// `MPI_Op`.
    OpHandle = 11, null 0x20;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_handle_leads_back_to_its_place_and_no_other_value_does() {
        for slot in [0, 1, 77, SLOTS - 1] {
            for generation in [0, 1, 511] {
                let place = Place { slot, generation };
                let handle = CommHandle::made(place);
                assert_eq!(handle.place(), Some(place));
                assert_eq!(CommHandle::from_int(handle.to_int()), handle);
                assert!(handle.to_int() > 0x3ff);
                assert_eq!(GroupHandle::from_bits(handle.bits()).place(), None, "another class");
            }
        }
        for bits in [0, 1, 0x101, 0x3ff, 0x1000, usize::MAX, 0x7fff_1234_5678] {
            assert_eq!(CommHandle(bits).place(), None);
        }
        assert_eq!(CommHandle::from_int(0x101), CommHandle(0x101));
    }
}
