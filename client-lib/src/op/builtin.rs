//! The predefined operations, and the types that the standard permits for them (MPI 5.0 §6.9.2 and §6.9.4).

use crate::abi::OpHandle;
use crate::abi::constants as c;
use crate::datatype::{Class, Element, Repr};
use crate::error::{MpiError, MpiResult};

/// A predefined operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `MPI_SUM`.
    Sum,
    /// `MPI_PROD`.
    Prod,
    /// `MPI_MIN`.
    Min,
    /// `MPI_MAX`.
    Max,
    /// `MPI_LAND`.
    LogicalAnd,
    /// `MPI_LOR`.
    LogicalOr,
    /// `MPI_LXOR`.
    LogicalXor,
    /// `MPI_BAND`.
    BitAnd,
    /// `MPI_BOR`.
    BitOr,
    /// `MPI_BXOR`.
    BitXor,
    /// `MPI_MINLOC`.
    MinLoc,
    /// `MPI_MAXLOC`.
    MaxLoc,
    /// `MPI_REPLACE`, for one-sided communication only.
    Replace,
    /// `MPI_NO_OP`, for one-sided communication only.
    NoOp,
}

const ALL: [(usize, Builtin, &str); 14] = [
    (c::MPI_SUM, Builtin::Sum, "MPI_SUM"),
    (c::MPI_PROD, Builtin::Prod, "MPI_PROD"),
    (c::MPI_MIN, Builtin::Min, "MPI_MIN"),
    (c::MPI_MAX, Builtin::Max, "MPI_MAX"),
    (c::MPI_LAND, Builtin::LogicalAnd, "MPI_LAND"),
    (c::MPI_LOR, Builtin::LogicalOr, "MPI_LOR"),
    (c::MPI_LXOR, Builtin::LogicalXor, "MPI_LXOR"),
    (c::MPI_BAND, Builtin::BitAnd, "MPI_BAND"),
    (c::MPI_BOR, Builtin::BitOr, "MPI_BOR"),
    (c::MPI_BXOR, Builtin::BitXor, "MPI_BXOR"),
    (c::MPI_MINLOC, Builtin::MinLoc, "MPI_MINLOC"),
    (c::MPI_MAXLOC, Builtin::MaxLoc, "MPI_MAXLOC"),
    (c::MPI_REPLACE, Builtin::Replace, "MPI_REPLACE"),
    (c::MPI_NO_OP, Builtin::NoOp, "MPI_NO_OP"),
];

impl Builtin {
    /// The operation with this handle.
    #[inline]
    pub fn of(handle: OpHandle) -> Option<Self> {
        ALL.iter().find(|(value, ..)| *value == handle.0).map(|(_, op, _)| *op)
    }

    /// All predefined operations.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|(_, op, _)| *op)
    }

    /// `MPI_…`.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(_, op, _)| *op == self).map_or("", |(.., name)| name)
    }

    /// Whether reductions may use it with elements of this class. The standard excludes the multi-language types from
    /// the logical operations; other libraries accept them, and programs rely on it.
    pub fn accepts(self, class: Class) -> bool {
        use Class::{Byte, CInteger, Complex, Floating, FortranInteger, Logical, MultiLanguage, Pair};
        match self {
            Self::Min | Self::Max => matches!(class, CInteger | FortranInteger | Floating | MultiLanguage),
            Self::Sum | Self::Prod => matches!(class, CInteger | FortranInteger | Floating | Complex | MultiLanguage),
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => {
                matches!(class, CInteger | Logical | MultiLanguage)
            }
            Self::BitAnd | Self::BitOr | Self::BitXor => {
                matches!(class, CInteger | FortranInteger | Byte | MultiLanguage)
            }
            Self::MinLoc | Self::MaxLoc => class == Pair,
            Self::Replace | Self::NoOp => false,
        }
    }

    /// Returns an error of class `MPI_ERR_OP` if reductions may not use it with these elements.
    pub(super) fn check(self, element: Element) -> MpiResult {
        if self.accepts(element.class()) {
            return Ok(());
        }
        Err(match self {
            Self::Replace | Self::NoOp => MpiError::op(format!("{} is for one-sided communication only", self.name())),
            _ => MpiError::op(format!("{} is not defined for {}", self.name(), element.name())),
        })
    }

    /// The error for arithmetic that this library does not support: Rust has no type for these numbers.
    pub(super) fn unsupported(self, element: Element) -> MpiError {
        let what = match element.repr() {
            Repr::Float16 | Repr::Complex16 => "16-bit floating-point numbers",
            _ => "128-bit numbers",
        };
        MpiError::unsupported(format!("{} of {}: this library does not support {what}", self.name(), element.name()))
    }
}
