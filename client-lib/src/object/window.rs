//! Windows: memory that other processes read and write (MPI 5.0 §12).
//!
//! Operations on the memory of a member of the same node are copies and atomic operations, which the calling process does by itself
//! ([`near`], [`combine`]); its locks and fences go over memory that the members of the node share ([`board`]).
//!
//! Every other operation is a message ([`wire`]) to the process that owns the memory, which performs it when it is in a call of the library
//! ([`target`]): the calls of one origin in order, each only once the one before is complete. So a call that only waits for its turn
//! tells the origin that everything before is done ([`Kind::Flush`]), a lock holds back the calls after it until it is granted, and
//! accumulates of one origin keep their order. The owner combines and locks in the same way as the members on its node, so all
//! accumulates are atomic towards each other. Long data is not in the message itself: it goes straight from and to the user's memory
//! ([`origin`]). Dynamic windows use messages alone.
//!
//! Cost on the wire: a put one message (two if it is long), a get two, a flush two, a lock one, an unlock two; a fence one flush per
//! process that was written to or read from since the last one, and a barrier. On a node: none, but for `MPI_Win_post` and
//! `MPI_Win_complete`, one to each member of the group.

#![expect(unsafe_code, reason = "the window's memory is the user's")]

mod epoch;
mod wire;

mod board;
mod combine;
mod lock;
mod near;

mod origin;
mod target;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

pub use board::{Board, Shape};
pub use combine::{Accumulate, Combination, Place};
pub use epoch::{Access, Exposure, Locked};
pub use near::{Bell, Memory, Near, Reach};
pub use origin::Remote;
pub use wire::{Kind, Places};

use super::agree::Lent;
use super::attr::Attributes;
use super::errhandler::Errhandler;
use super::group::Group;
use super::info::Info;
use super::table::{Objects, Table};
use crate::abi::constants::{MPI_ERR_WIN, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_NULL, MPI_WIN_UNIFIED};
use crate::abi::handle::Handle;
use crate::abi::{CommHandle, DatatypeHandle, OpHandle, WinHandle};
use crate::datatype::basic_size;
use crate::engine::{Engine, Transport};
use crate::error::{MpiError, MpiResult};
use origin::Pending;
use target::{Origin, Waiting};

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
    /// The members on this node, and memory that the window has made.
    pub near: Near,
    /// The address of this process's memory.
    base: usize,
    /// `spots[rank]`: the memory that is mapped here.
    spots: Box<[Option<Spot>]>,
    /// The operation, the datatype and the combination of the last accumulate on this node.
    last: Option<(OpHandle, DatatypeHandle, Combination)>,
    /// Of a dynamic window: the attached memory, as addresses and lengths.
    attached: Vec<(usize, usize)>,
    /// Operations of this process that are not complete here.
    pending: Vec<Pending>,
    /// Which members got operations since the last flush.
    touched: Vec<bool>,
    /// How many operations these got.
    sent: u64,
    /// Counts synchronizations.
    turns: AtomicU32,
    /// Errors of operations, by target.
    errors: Vec<(u32, MpiError)>,
    /// The other side: what members have called here.
    origins: Box<[Origin]>,
    /// The members with calls that wait.
    active: Vec<u32>,
    /// Members that wait for the lock on this process's memory.
    waiting: Waiting,
    /// Answers that are being sent.
    answers: Vec<Lent>,
    /// Answers straight from the window's memory.
    direct: Vec<(u32, crate::engine::RequestId)>,
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

/// A member's memory that is mapped here.
#[derive(Debug, Clone, Copy)]
pub struct Spot {
    /// Its first byte.
    pub start: *mut u8,
    /// Bytes.
    pub size: usize,
    /// Bytes per unit of displacement.
    pub disp_unit: usize,
}

// SAFETY: an address of memory that the window may use until it is freed.
unsafe impl Send for Spot {}

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
    /// See [`Window::near`].
    pub near: Near,
    /// The user's hints.
    pub hints: Info,
}

impl Window {
    /// A new window, in no epoch.
    pub fn new(made: Made) -> Self {
        let Made { comm, context, group, rank, flavor, parts, base, near, hints } = made;
        let part = parts[rank as usize];
        let values = Values {
            size: part.size as i64,
            disp_unit: i32::try_from(part.disp_unit).unwrap_or(i32::MAX),
            flavor,
            model: MPI_WIN_UNIFIED,
        };
        let size = parts.len();
        let spot = |(part, target): (&Part, u32)| {
            let memory = near.memory(target).filter(|memory| memory.place == Place::Here)?;
            let start = std::ptr::with_exposed_provenance_mut(memory.address);
            Some(Spot { start, size: part.size, disp_unit: usize::try_from(part.disp_unit).ok()? })
        };
        let spots = parts.iter().zip(0..).map(spot).collect();
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
            near,
            base,
            spots,
            last: None,
            attached: Vec::new(),
            pending: Vec::new(),
            touched: vec![false; size],
            sent: 0,
            turns: AtomicU32::new(0),
            errors: Vec::new(),
            origins: (0..size).map(|_| Origin::default()).collect(),
            active: Vec::new(),
            waiting: Waiting::default(),
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

    /// A member's memory, if it is mapped here.
    #[inline]
    pub fn spot(&self, target: u32) -> Option<&Spot> {
        self.spots.get(target as usize)?.as_ref()
    }

    /// The combination of an operation and a datatype, if it is that of the last accumulate.
    #[inline]
    pub fn known(&self, op: OpHandle, datatype: DatatypeHandle) -> Option<&Combination> {
        self.last.as_ref().filter(|last| last.0 == op && last.1 == datatype).map(|last| &last.2)
    }

    /// See [`Window::known`]; only predefined datatypes keep their meaning.
    pub fn remember(&mut self, op: OpHandle, datatype: DatatypeHandle, combination: Combination) {
        if basic_size(datatype).is_some() {
            self.last = Some((op, datatype, combination));
        }
    }

    /// Whether memory is attached to it later.
    pub fn is_dynamic(&self) -> bool {
        self.values.flavor == MPI_WIN_FLAVOR_DYNAMIC
    }

    /// Ends the window: drops what is in flight with members that may be gone.
    pub fn abandon<T: Transport>(mut self, engine: &mut Engine<T>) {
        self.abandon_calls(engine);
        self.abandon_operations(engine);
        if self.broken.is_some() {
            // Something may still write to the window's memory.
            std::mem::forget(self.near);
        }
    }

    /// What is wrong if a member is lost.
    pub fn loss(&self) -> MpiResult {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn break_down(&mut self, error: MpiError) {
        if self.broken.is_none() {
            self.near.declare_broken();
            self.broken = Some(error);
        }
    }
}

/// All windows of the process.
#[derive(Debug, Default)]
pub struct Windows(Table<WinHandle, Window>);

impl Windows {
    /// The handles that the program has got.
    pub fn made(&self) -> &dyn Objects {
        &self.0
    }

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

    /// Whether the communicator is a window's own.
    pub fn own(&self, comm: CommHandle) -> bool {
        self.0.iter().any(|(_, window)| window.comm == comm)
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
