//! The exported functions, `MPI_` and `PMPI_`: lists per chapter, generated from `abi/*.tsv` by `cargo xtask abi`, and here the
//! macros that expand their lines.
//!
//! A shim widens integers and calls one function of [`crate::api`] through [`call`] (or `call_always`, or directly if it
//! cannot fail: `plain`); both forms of a function, with `int` and with large counts, call the same one. A function that is not
//! implemented returns an error that says so. `PMPI_` functions have bodies of their own, so that a tool may define its own `MPI_` ones.

#![expect(unsafe_code, reason = "the functions that C calls")]

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{
    CommHandle, DatatypeHandle, ErrhandlerHandle, FileHandle, GroupHandle, InfoHandle, MessageHandle, OpHandle,
    RequestHandle, SessionHandle, Status, WinHandle,
};
use crate::api::ints::*;
use crate::error::MpiResult;
use crate::runtime::{Runtime, Scope, call, call_always};

/// The functions of one chapter: names, parameters of C, and after the arrow the kind of call (see `shim`), the function and its arguments.
macro_rules! exports {
    ($(
        fn $name:ident $profiling:ident($($parameter:ident: $type:ty),*) -> $result:ty
            => $way:ident($($scope:expr)?) $($($path:ident)::+($($argument:expr),*))?;
    )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
            shim!($way $name($($parameter)*) ($($scope)?) $($($path)::+($($argument),*))?)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiling($($parameter: $type),*) -> $result {
            shim!($way $name($($parameter)*) ($($scope)?) $($($path)::+($($argument),*))?)
        }
    )*};
}

/// The body of an exported function.
macro_rules! shim {
    (unsupported $name:ident($($parameter:ident)*) ($scope:expr)) => {{
        let _ = ($($parameter,)*);
        unsupported(stringify!($name), $scope)
    }};
    (plain $name:ident $parameters:tt () $($path:ident)::+($($argument:expr),*)) => {
        crate::api::$($path)::+($($argument),*)
    };
    ($call:ident $name:ident $parameters:tt ($scope:expr) $($path:ident)::+($($argument:expr),*)) => {{
        let function: unsafe fn(&'static Runtime $(, any!($argument))*) -> MpiResult = crate::api::$($path)::+;
        let checked: unsafe fn(&'static Runtime $(, any!($argument))*) -> MpiResult = crate::api::checked::$($path)::+;
        $call(
            stringify!($name),
            $scope,
            // SAFETY: the caller of an MPI function guarantees what the standard requires of its arguments.
            move |runtime| unsafe { function(runtime $(, $argument)*) },
            // SAFETY: as above.
            move |runtime| unsafe { checked(runtime $(, $argument)*) },
        )
    }};
}

/// A type that the compiler infers.
macro_rules! any {
    ($argument:expr) => {
        _
    };
}

#[cold]
#[inline(never)]
fn unsupported(name: &'static str, scope: Scope) -> c_int {
    call(name, scope, |_| crate::runtime::unsupported(name), |_| crate::runtime::unsupported(name))
}

mod attr;
mod coll;
mod comm;
mod datatype;
mod dynamic;
mod env;
mod errhan;
mod fortran;
mod ft;
mod group;
mod info;
mod io;
mod neighbor;
mod op;
mod p2p;
mod partitioned;
mod request;
mod rma;
mod session;
mod tools;
mod topo;
