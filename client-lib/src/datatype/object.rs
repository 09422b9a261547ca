//! Datatypes as objects: the object behind a handle, and how it was made.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use super::body::{Body, Bounds};
use super::element::{Element, NUMBERS};
use super::layout::Layout;
use crate::abi::constants::MPI_COMBINER_NAMED;
use crate::error::{MpiError, MpiResult};

/// A datatype. What the program can change (name, attributes, whether it is committed) belongs to the handle.
#[derive(Debug)]
pub struct Datatype {
    pub(super) body: Body,
    layout: Arc<Layout>,
    bounds: Bounds,
    pub(super) element: Option<Element>,
    pub(super) contents: Contents,
}

/// How a datatype was made: the arguments of its constructor as `MPI_Type_get_contents` gives them (MPI 5.0 §5.1.13).
#[derive(Debug, Clone)]
pub struct Contents {
    /// `MPI_COMBINER_…`.
    pub combiner: i32,
    /// Arguments of type `int`.
    pub integers: Vec<i32>,
    /// Arguments of type `MPI_Aint`.
    pub addresses: Vec<i64>,
    /// Arguments of type `MPI_Count`, of constructors ending in `_c`.
    pub counts: Vec<i64>,
    /// The datatypes that it was made of.
    pub types: Vec<TypeRef>,
}

impl Contents {
    /// No arguments yet.
    pub(super) fn new(combiner: i32) -> Self {
        Self { combiner, integers: Vec::new(), addresses: Vec::new(), counts: Vec::new(), types: Vec::new() }
    }
}

/// A reference to a datatype, which keeps it alive.
#[derive(Debug, Clone)]
pub enum TypeRef {
    /// A predefined datatype.
    Predefined(&'static Datatype),
    /// A datatype that the program has made.
    Made(Arc<Datatype>),
}

impl Deref for TypeRef {
    type Target = Datatype;

    #[inline]
    fn deref(&self) -> &Datatype {
        match self {
            Self::Predefined(datatype) => datatype,
            Self::Made(datatype) => datatype,
        }
    }
}

static PREDEFINED: LazyLock<Box<[Option<Datatype>]>> = LazyLock::new(|| {
    let mut all: Vec<Option<Datatype>> = (0..NUMBERS).map(|_| None).collect();
    for element in Element::all() {
        let body = Body::of(element);
        let bounds = Bounds { lower: 0, upper: element.repr().extent() as i64 };
        let layout = Arc::new(Layout::of(body.shape.clone(), bounds.len() as isize, body.signature.clone()));
        let contents = Contents::new(MPI_COMBINER_NAMED);
        all[element.number()] = Some(Datatype { body, layout, bounds, element: Some(element), contents });
    }
    all.into()
});

impl Datatype {
    /// A predefined datatype.
    pub fn predefined(element: Element) -> &'static Self {
        PREDEFINED[element.number()].as_ref().expect("an `Element` is a number with a datatype")
    }

    /// A datatype of a type map.
    pub(super) fn made(body: Body, contents: Contents) -> MpiResult<Self> {
        let bounds = body.bounds()?;
        let layout = Arc::new(Layout::of(body.shape.clone(), bounds.len() as isize, body.signature.clone()));
        Ok(Self { body, layout, bounds, element: None, contents })
    }

    /// The places of the bytes.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The predefined datatype that this is, if it is one.
    #[inline]
    pub fn element(&self) -> Option<Element> {
        self.element
    }

    /// The predefined datatype that all of it consists of, if there is only one (a pair has two).
    pub fn uniform(&self) -> Option<Element> {
        self.body.signature.uniform()
    }

    /// The constructor's arguments.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Packed bytes of one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The lower bound.
    pub fn lb(&self) -> i64 {
        self.bounds.lower
    }

    /// The distance from one element to the next.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.bounds.len()
    }

    /// The offset of the first byte.
    pub fn true_lb(&self) -> i64 {
        self.body.true_bounds().lower
    }

    /// The bytes from the first to the last.
    pub fn true_extent(&self) -> i64 {
        self.body.true_bounds().len()
    }

    /// Packed bytes of `count` elements; fails with class `MPI_ERR_COUNT` if their number or their places exceed the
    /// address space.
    #[inline]
    pub fn packed_len(&self, count: usize) -> MpiResult<usize> {
        match self.size().checked_mul(count) {
            Some(len) if len <= isize::MAX as usize && (count <= 1 || self.reach(count).is_some()) => Ok(len),
            _ => Err(too_many(count, self.size())),
        }
    }

    /// The memory of `count` elements: the offset of its first byte from the elements' address, and its length. For
    /// memory of the library that holds the elements of a user's buffer.
    pub fn span(&self, count: usize) -> MpiResult<(isize, usize)> {
        let Bounds { lower, upper } = self.body.true_bounds();
        if count == 0 || self.size() == 0 {
            return Ok((0, 0));
        }
        let span = self.reach(count).and_then(|reach| {
            let lower = lower.checked_add(reach.min(0))?;
            let len = upper.checked_add(reach.max(0))?.checked_sub(lower)?;
            Some((isize::try_from(lower).ok()?, usize::try_from(len).ok()?))
        });
        span.ok_or_else(|| too_many(count, self.size()))
    }

    /// The distance from the first to the last of `count` elements.
    fn reach(&self, count: usize) -> Option<i64> {
        i64::try_from(count - 1).ok()?.checked_mul(self.extent())
    }

    /// The number of whole elements in this many packed bytes; `None` if it is not a whole number.
    pub fn count_of(&self, bytes: u64) -> Option<i64> {
        let size = self.size() as u64;
        match bytes {
            0 => Some(0),
            _ if size == 0 || !bytes.is_multiple_of(size) => None,
            _ => i64::try_from(bytes / size).ok(),
        }
    }

    /// The number of basic elements in this many packed bytes; `None` if they end within one.
    pub fn elements_of(&self, bytes: u64) -> Option<i64> {
        let elements = self.body.signature.elements_in(usize::try_from(bytes).ok()?)?;
        i64::try_from(elements).ok()
    }

    /// The packed bytes of this many basic elements; `None` if the datatype has no elements.
    pub fn bytes_of(&self, elements: u64) -> Option<u64> {
        Some(self.body.signature.bytes_of(usize::try_from(elements).ok()?)? as u64)
    }

    /// The number of basic elements of one element.
    pub fn elements(&self) -> usize {
        self.body.signature.elements()
    }
}

impl Drop for Datatype {
    /// Not recursive: a program can make arbitrarily long chains of datatypes.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.contents.types);
        while let Some(one) = left.pop() {
            if let TypeRef::Made(one) = one
                && let Some(mut last) = Arc::into_inner(one)
            {
                left.append(&mut last.contents.types);
            }
        }
    }
}

#[cold]
fn too_many(count: usize, size: usize) -> MpiError {
    MpiError::count(format!("{count} elements of {size} bytes exceed the address space"))
}
