//! The content of a type map: the places of its bytes, its bounds, its basic elements; and how it is built from others.
//!
//! The bounds are those of MPI 5.0 §5.1.6 and §5.1.7: a type map without markers spans its bytes, rounded up to the strictest
//! alignment in it; markers, which `MPI_Type_create_resized` sets, override that and are inherited. As in MPICH and Open MPI, the padding of
//! the types in a type map counts too; that makes a difference only where displacements violate the alignment.

use super::element::Element;
use super::shape::{Sequence, Shape};
use super::signature::{Parts, Signature};
use crate::error::{MpiError, MpiResult};

/// A type map.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) shape: Shape,
    pub(super) signature: Signature,
    /// The first byte and the end of the last one; `None` if there are no bytes.
    bytes: Option<Bounds>,
    /// As `bytes`, with the padding of what it was built from.
    padded: Option<Bounds>,
    /// The positions of the markers, if there are any.
    markers: Option<Bounds>,
    /// The strictest alignment of its basic elements.
    align: i64,
}

/// From one offset to another, which may be smaller if set by a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lower: i64,
    pub(super) upper: i64,
}

impl Bounds {
    const NONE: Self = Self { lower: 0, upper: 0 };

    pub(super) fn len(self) -> i64 {
        // `Body` never creates others.
        self.upper.wrapping_sub(self.lower)
    }
}

impl Body {
    /// A predefined datatype.
    pub(super) fn of(element: Element) -> Self {
        let mut signature = Parts::default();
        let shape = match element.halves() {
            None => {
                signature.push_basic(element);
                Shape::bytes(element.size())
            }
            Some((value, index, at)) => {
                signature.push_basic(value);
                signature.push_basic(index);
                let mut shape = Sequence::default();
                shape.push(Shape::bytes(value.size()));
                shape.push(Shape::bytes(index.size()).moved(at as isize));
                shape.finish()
            }
        };
        let end = element.halves().map_or(element.size(), |(_, index, at)| at + index.size());
        let bytes = Some(Bounds { lower: 0, upper: end as i64 });
        Self {
            shape,
            signature: signature.finish(),
            bytes,
            padded: bytes,
            markers: None,
            align: element.repr().align() as i64,
        }
    }

    /// The same bytes with other bounds.
    pub(super) fn with_markers(&self, lower: i64, extent: i64) -> MpiResult<Self> {
        let upper = lower.checked_add(extent).ok_or_else(too_far)?;
        Ok(Self { markers: Some(Bounds { lower, upper }), ..self.clone() })
    }

    /// The lower and the upper bound.
    pub(super) fn bounds(&self) -> MpiResult<Bounds> {
        match (self.markers, self.rounded()?) {
            (Some(bounds), _) | (None, Some(bounds)) => Ok(bounds),
            (None, None) => Ok(Bounds::NONE),
        }
    }

    /// The bounds without markers, rounded up to the alignment.
    fn rounded(&self) -> MpiResult<Option<Bounds>> {
        let Some(Bounds { lower, upper }) = self.padded else { return Ok(None) };
        let extent = i128::from(upper) - i128::from(lower);
        let align = i128::from(self.align);
        let extent = (extent + align - 1) / align * align;
        between(lower.into(), i128::from(lower) + extent).map(Some)
    }

    /// From the first byte to the last.
    pub(super) fn true_bounds(&self) -> Bounds {
        self.bytes.unwrap_or(Bounds::NONE)
    }
}

/// Concatenates type maps.
#[derive(Debug, Default)]
pub(super) struct Build {
    shape: Sequence,
    signature: Parts,
    size: usize,
    bytes: Option<Bounds>,
    padded: Option<Bounds>,
    markers: Option<Bounds>,
    align: i64,
}

impl Build {
    /// Adds `count` copies, the first at `at`, `stride` bytes apart. Adds nothing if it fails.
    pub(super) fn push(&mut self, at: i128, body: &Body, count: usize, stride: i128) -> MpiResult {
        if count == 0 {
            return Ok(());
        }
        let reach = stride.checked_mul((count - 1) as i128).ok_or_else(too_far)?;
        let (first, last) = (at.saturating_add(reach.min(0)), at.saturating_add(reach.max(0)));
        let spread = |old: Option<Bounds>, new: Option<Bounds>| -> MpiResult<Option<Bounds>> {
            let Some(new) = new else { return Ok(old) };
            let new = between(first.saturating_add(new.lower.into()), last.saturating_add(new.upper.into()))?;
            let old = old.unwrap_or(new);
            let (lower, upper) = (old.lower.min(new.lower), old.upper.max(new.upper));
            between(lower.into(), upper.into()).map(Some)
        };
        let (bytes, markers) = (spread(self.bytes, body.bytes)?, spread(self.markers, body.markers)?);
        let padded = spread(self.padded, body.rounded()?)?;
        let added = body.shape.size.checked_mul(count).and_then(|len| len.checked_add(self.size));
        self.size = added.filter(|size| *size <= isize::MAX as usize).ok_or_else(too_big)?;
        (self.bytes, self.padded, self.markers) = (bytes, padded, markers);
        self.align = self.align.max(body.align);
        // The offsets of bytes were checked to fit; without bytes they do not matter.
        self.shape.push(body.shape.repeat(count, stride as isize).moved(at as isize));
        self.signature.push(&body.signature, count);
        Ok(())
    }

    pub(super) fn finish(self) -> Body {
        Body {
            shape: self.shape.finish(),
            signature: self.signature.finish(),
            bytes: self.bytes,
            padded: self.padded,
            markers: self.markers,
            align: self.align.max(1),
        }
    }
}

fn between(lower: i128, upper: i128) -> MpiResult<Bounds> {
    let bounds = (i64::try_from(lower), i64::try_from(upper), i64::try_from(upper - lower));
    let (Ok(lower), Ok(upper), Ok(_)) = bounds else { return Err(too_far()) };
    Ok(Bounds { lower, upper })
}

#[cold]
fn too_far() -> MpiError {
    MpiError::arg("the datatype would exceed the range of 64-bit addresses")
}

#[cold]
fn too_big() -> MpiError {
    MpiError::arg("an element of the datatype would have more than 2^63 bytes")
}
