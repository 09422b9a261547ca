//! Windows: memory that other processes read and write (MPI 5.0 §12).
//!
//! Every operation is a message ([`wire`]) to the process that owns the memory, which performs it when it is in a call of the library
//! ([`target`]): the calls of one origin in order, each only once the one before is complete. So a call that only waits for its turn
//! tells the origin that everything before is done ([`Kind::Flush`]), a lock holds back the calls after it until it is granted, and
//! accumulates of one origin keep their order. All accumulates on a process's memory are performed by that process, one at a time,
//! so they are atomic. Long data is not in the message itself: it goes straight from and to the user's memory ([`origin`]).
//!
//! Cost on the wire: a put one message (two if it is long), a get two, a flush two, a lock one, an unlock two; a fence one flush per
//! process that was written to or read from since the last one, and a barrier.

#![expect(unsafe_code, reason = "the window's memory is the user's")]

mod epoch;
mod memory;
mod origin;
mod target;
mod wire;

use std::sync::Arc;

pub use epoch::{Access, Exposure};
pub use memory::{Kept, Mapping};
pub use origin::Remote;
pub use wire::{Kind, Places};

use super::agree::Lent;
use super::attr::Attributes;
use super::errhandler::Errhandler;
use super::group::Group;
use super::info::Info;
use super::table::Table;
use crate::abi::constants::{MPI_ERR_WIN, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_NULL, MPI_WIN_UNIFIED};
use crate::abi::handle::Handle;
use crate::abi::{CommHandle, WinHandle};
use crate::engine::{Engine, Transport};
use crate::error::{MpiError, MpiResult};
use origin::Pending;
use target::{Locks, Origin};

/// One window.
#[derive(Debug)]
pub struct Window {
    /// A communicator of its own, which the user never sees.
    pub comm: CommHandle,
    /// The context of its messages.
    pub context: u32,
    /// Its members.
    pub group: Arc<Group>,
    /// This process's rank.
    pub rank: u32,
    /// Its error handler.
    pub errhandler: Errhandler,
    /// The name, as set by `MPI_Win_set_name`.
    pub name: Vec<u8>,
    /// The user's attributes.
    pub attributes: Attributes,
    /// The user's hints.
    pub hints: Info,
    /// The memory of each member.
    pub parts: Box<[Part]>,
    /// What predefined attributes point to.
    pub values: Box<Values>,
    /// What this process may do to the others' memory.
    pub access: Access,
    /// Which processes may use this one's memory (`MPI_Win_post`).
    pub exposure: Option<Exposure>,
    /// The address of this process's memory.
    base: usize,
    /// Memory that the window has made.
    kept: Kept,
    /// Of a dynamic window: the attached memory, as addresses and lengths.
    attached: Vec<(usize, usize)>,
    /// Operations of this process that are not complete here.
    pending: Vec<Pending>,
    /// Which members got operations since the last flush.
    touched: Vec<bool>,
    /// Errors of operations, by target.
    errors: Vec<(u32, MpiError)>,
    /// The other side: what members have called here.
    origins: Box<[Origin]>,
    /// The members with calls that wait.
    active: Vec<u32>,
    /// The locks on this process's memory.
    locks: Locks,
    /// Answers that are being sent.
    answers: Vec<Lent>,
    /// Answers straight from the window's memory.
    direct: Vec<crate::engine::RequestId>,
    /// A member was lost.
    broken: Option<MpiError>,
}

/// One member's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Bytes.
    pub size: usize,
    /// Bytes per unit of displacement.
    pub disp_unit: i64,
    /// The address here, of memory that the members share.
    pub address: usize,
}

/// The values behind predefined attributes: the user gets their addresses.
#[derive(Debug)]
#[repr(C)]
pub struct Values {
    /// `MPI_WIN_SIZE`.
    pub size: i64,
    /// `MPI_WIN_DISP_UNIT`.
    pub disp_unit: i32,
    /// `MPI_WIN_CREATE_FLAVOR`.
    pub flavor: i32,
    /// `MPI_WIN_MODEL`.
    pub model: i32,
}

/// What a new window consists of.
#[derive(Debug)]
pub struct Made {
    /// See [`Window::comm`].
    pub comm: CommHandle,
    /// See [`Window::context`].
    pub context: u32,
    /// See [`Window::group`].
    pub group: Arc<Group>,
    /// See [`Window::rank`].
    pub rank: u32,
    /// `MPI_WIN_FLAVOR_…`.
    pub flavor: i32,
    /// See [`Window::parts`].
    pub parts: Box<[Part]>,
    /// The address of this process's memory.
    pub base: usize,
    /// Memory that lives as long as the window.
    pub kept: Kept,
    /// The user's hints.
    pub hints: Info,
}

impl Window {
    /// A new window, in no epoch.
    pub fn new(made: Made) -> Self {
        let Made { comm, context, group, rank, flavor, parts, base, kept, hints } = made;
        let part = parts[rank as usize];
        let values = Values {
            size: part.size as i64,
            disp_unit: i32::try_from(part.disp_unit).unwrap_or(i32::MAX),
            flavor,
            model: MPI_WIN_UNIFIED,
        };
        let size = parts.len();
        Self {
            comm,
            context,
            group,
            rank,
            errhandler: Errhandler::Fatal,
            name: Vec::new(),
            attributes: Attributes::default(),
            hints,
            parts,
            values: Box::new(values),
            access: Access::None,
            exposure: None,
            base,
            kept,
            attached: Vec::new(),
            pending: Vec::new(),
            touched: vec![false; size],
            errors: Vec::new(),
            origins: (0..size).map(|_| Origin::default()).collect(),
            active: Vec::new(),
            locks: Locks::default(),
            answers: Vec::new(),
            direct: Vec::new(),
            broken: None,
        }
    }

    /// The number of members.
    pub fn size(&self) -> u32 {
        self.parts.len() as u32
    }

    /// The address of this process's memory.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Whether memory is attached to it later.
    pub fn is_dynamic(&self) -> bool {
        self.values.flavor == MPI_WIN_FLAVOR_DYNAMIC
    }

    /// Drops what is in flight with members that may be gone, so that the memory can be freed.
    pub fn abandon<T: Transport>(&mut self, engine: &mut Engine<T>) {
        self.abandon_calls(engine);
        self.abandon_operations(engine);
        if !self.kept.is_none() && self.broken.is_some() {
            // Something may still write to it.
            std::mem::take(&mut self.kept).leak();
        }
    }
}

/// All windows of the process.
#[derive(Debug, Default)]
pub struct Windows(Table<WinHandle, Window>);

impl Windows {
    /// The window of a handle; fails with class `MPI_ERR_WIN` if there is none.
    pub fn get(&self, handle: WinHandle) -> MpiResult<&Window> {
        self.0.get(handle).ok_or_else(|| unknown(handle))
    }

    /// As [`Windows::get`].
    pub fn get_mut(&mut self, handle: WinHandle) -> MpiResult<&mut Window> {
        self.0.get_mut(handle).ok_or_else(|| unknown(handle))
    }

    /// Returns a handle for a window.
    pub fn add(&mut self, window: Window) -> MpiResult<WinHandle> {
        self.0.add(window).ok_or_else(|| MpiError::no_mem("too many windows (two million)"))
    }

    /// Removes a window.
    pub fn take(&mut self, handle: WinHandle) -> MpiResult<Window> {
        self.0.take(handle).ok_or_else(|| unknown(handle))
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Performs what members have called; returns whether there was anything.
    pub fn progress<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        self.0.values_mut().fold(false, |moved, window| window.serve(engine) | moved)
    }
}

#[cold]
fn unknown(handle: WinHandle) -> MpiError {
    let text = if handle.bits() == MPI_WIN_NULL { "the window is MPI_WIN_NULL" } else { "invalid or freed window" };
    MpiError::new(MPI_ERR_WIN, text)
}
