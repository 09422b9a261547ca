//! Datatypes as objects: what a handle stands for, and how it was made.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use super::body::{Body, Bounds};
use super::element::{Element, NUMBERS};
use super::layout::Layout;
use crate::abi::constants::MPI_COMBINER_NAMED;
use crate::error::{MpiError, MpiResult};

/// A datatype. What the program can change of one (its name, attributes, whether it is committed) belongs to the handle.
#[derive(Debug)]
pub struct Datatype {
    pub(super) body: Body,
    layout: Arc<Layout>,
    bounds: Bounds,
    element: Option<Element>,
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
    /// Datatypes that it was made of.
    pub types: Vec<TypeRef>,
}

impl Contents {
    /// No arguments yet.
    pub(super) fn new(combiner: i32) -> Self {
        Self { combiner, integers: Vec::new(), addresses: Vec::new(), counts: Vec::new(), types: Vec::new() }
    }
}

/// A datatype, kept alive.
#[derive(Debug, Clone)]
pub enum TypeRef {
    /// A predefined one.
    Predefined(&'static Datatype),
    /// One that the program has made.
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
        let layout = Arc::new(Layout::of(body.shape.clone(), bounds.len() as isize));
        let contents = Contents::new(MPI_COMBINER_NAMED);
        all[element.number()] = Some(Datatype { body, layout, bounds, element: Some(element), contents });
    }
    all.into()
});

impl Datatype {
    /// A predefined one.
    pub fn predefined(element: Element) -> &'static Self {
        PREDEFINED[element.number()].as_ref().expect("an `Element` is a number with a datatype")
    }

    /// Of a type map.
    pub(super) fn made(body: Body, contents: Contents) -> MpiResult<Self> {
        let bounds = body.bounds()?;
        let layout = Arc::new(Layout::of(body.shape.clone(), bounds.len() as isize));
        Ok(Self { body, layout, bounds, element: None, contents })
    }

    /// Where the bytes lie.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Which predefined datatype this is.
    #[inline]
    pub fn element(&self) -> Option<Element> {
        self.element
    }

    /// The predefined datatype of which all of it is made, if that is one (pairs are two).
    pub fn uniform(&self) -> Option<Element> {
        self.body.signature.uniform()
    }

    /// How it was made.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Packed bytes of one element.
    #[inline]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Lower bound.
    pub fn lb(&self) -> i64 {
        self.bounds.lower
    }

    /// Distance from one element to the next.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.bounds.len()
    }

    /// Offset of the first byte.
    pub fn true_lb(&self) -> i64 {
        self.body.true_bounds().lower
    }

    /// Bytes from the first to the last.
    pub fn true_extent(&self) -> i64 {
        self.body.true_bounds().len()
    }

    /// Packed bytes of `count` elements; an error of class `MPI_ERR_COUNT` if these, or their places, are too many.
    #[inline]
    pub fn packed_len(&self, count: usize) -> MpiResult<usize> {
        match self.size().checked_mul(count) {
            Some(len) if len <= isize::MAX as usize && (count <= 1 || self.reach(count).is_some()) => Ok(len),
            _ => Err(too_many(count, self.size())),
        }
    }

    /// The memory that `count` elements lie in: offset of its first byte from the elements' address, and its length. For
    /// memory of the library's own that takes the elements of a user's buffer.
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

    /// From the first to the last of `count` elements.
    fn reach(&self, count: usize) -> Option<i64> {
        i64::try_from(count - 1).ok()?.checked_mul(self.extent())
    }

    /// How many whole elements so many packed bytes are; none if they are no whole number.
    pub fn count_of(&self, bytes: u64) -> Option<i64> {
        let size = self.size() as u64;
        match bytes {
            0 => Some(0),
            _ if size == 0 || !bytes.is_multiple_of(size) => None,
            _ => i64::try_from(bytes / size).ok(),
        }
    }

    /// How many basic elements so many packed bytes are; none if they end within one.
    pub fn elements_of(&self, bytes: u64) -> Option<i64> {
        let elements = self.body.signature.elements_in(usize::try_from(bytes).ok()?)?;
        i64::try_from(elements).ok()
    }

    /// Packed bytes of so many basic elements; none if it has no elements.
    pub fn bytes_of(&self, elements: u64) -> Option<u64> {
        Some(self.body.signature.bytes_of(usize::try_from(elements).ok()?)? as u64)
    }

    /// Basic elements of one element.
    pub fn elements(&self) -> usize {
        self.body.signature.elements()
    }
}

impl Drop for Datatype {
    /// Not by recursion: chains of datatypes made of each other can be as long as the program likes.
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
    MpiError::count(format!("{count} elements of {size} bytes reach further than memory can"))
}
