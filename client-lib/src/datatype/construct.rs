//! The constructors (MPI 5.0 §5.1.2 to §5.1.9): from arguments to a datatype, and to what `MPI_Type_get_contents` says of it.
//!
//! Displacements of the vector and indexed constructors count extents of the old type, those of their `h` forms bytes.

use super::body::{Body, Build};
use super::object::{Contents, Datatype, TypeRef};
use crate::abi::constants as c;
use crate::error::{MpiError, MpiResult};

/// Which form of a constructor was called: it decides in what types its arguments are given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// With `int` counts.
    Int,
    /// With `MPI_Count`: the name ends in `_c`.
    Count,
}

/// In what displacements are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Extents of the old type, as `int`.
    Extents,
    /// Bytes, as `MPI_Aint`.
    Bytes,
}

impl Unit {
    fn combiner(self, extents: i32, bytes: i32) -> i32 {
        match self {
            Self::Extents => extents,
            Self::Bytes => bytes,
        }
    }

    fn in_bytes(self, displacement: i64, old: &Datatype) -> i128 {
        match self {
            Self::Extents => i128::from(displacement) * i128::from(old.extent()),
            Self::Bytes => displacement.into(),
        }
    }
}

/// Collects arguments in the types of the form.
struct Arguments {
    form: Form,
    contents: Contents,
}

impl Arguments {
    fn of(form: Form, combiner: i32) -> Self {
        Self { form, contents: Contents::new(combiner) }
    }

    /// Arguments that are `int` in one form.
    fn ints(mut self, values: &[i64]) -> Self {
        match self.form {
            // Those of the int form were widened from an int.
            Form::Int => self.contents.integers.extend(values.iter().map(|value| *value as i32)),
            Form::Count => self.contents.counts.extend(values),
        }
        self
    }

    /// Arguments that are `MPI_Aint` in one form.
    fn addresses(mut self, values: &[i64]) -> Self {
        match self.form {
            Form::Int => self.contents.addresses.extend(values),
            Form::Count => self.contents.counts.extend(values),
        }
        self
    }

    fn displacements(self, unit: Unit, values: &[i64]) -> Self {
        match unit {
            Unit::Extents => self.ints(values),
            Unit::Bytes => self.addresses(values),
        }
    }

    fn of_type(mut self, old: &TypeRef) -> Contents {
        self.contents.types.push(old.clone());
        self.contents
    }

    fn of_types(mut self, old: &[TypeRef]) -> Contents {
        self.contents.types.extend_from_slice(old);
        self.contents
    }
}

impl Datatype {
    /// `MPI_Type_contiguous`.
    pub fn contiguous(form: Form, count: i64, old: &TypeRef) -> MpiResult<Self> {
        let contents = Arguments::of(form, c::MPI_COMBINER_CONTIGUOUS).ints(&[count]).of_type(old);
        Self::made(block(old, number(count, "count")?)?, contents)
    }

    /// `MPI_Type_vector`, and with a stride in bytes `MPI_Type_create_hvector`.
    pub fn vector(form: Form, unit: Unit, count: i64, length: i64, stride: i64, old: &TypeRef) -> MpiResult<Self> {
        let contents = Arguments::of(form, unit.combiner(c::MPI_COMBINER_VECTOR, c::MPI_COMBINER_HVECTOR))
            .ints(&[count, length])
            .displacements(unit, &[stride])
            .of_type(old);
        let (count, length) = (number(count, "count")?, length_of_block(length)?);
        let mut build = Build::default();
        build.push(0, &block(old, length)?, count, unit.in_bytes(stride, old))?;
        Self::made(build.finish(), contents)
    }

    /// `MPI_Type_indexed`, and with displacements in bytes `MPI_Type_create_hindexed`: `lengths[i]` elements from
    /// `displacements[i]` on.
    pub fn indexed(form: Form, unit: Unit, lengths: &[i64], displacements: &[i64], old: &TypeRef) -> MpiResult<Self> {
        let contents = Arguments::of(form, unit.combiner(c::MPI_COMBINER_INDEXED, c::MPI_COMBINER_HINDEXED))
            .ints(&[lengths.len() as i64])
            .ints(lengths)
            .displacements(unit, displacements)
            .of_type(old);
        let mut build = Build::default();
        for (length, displacement) in lengths.iter().zip(displacements) {
            let length = length_of_block(*length)?;
            build.push(unit.in_bytes(*displacement, old), &old.body, length, old.extent().into())?;
        }
        Self::made(build.finish(), contents)
    }

    /// `MPI_Type_create_indexed_block`, and with displacements in bytes `MPI_Type_create_hindexed_block`.
    pub fn indexed_block(form: Form, unit: Unit, length: i64, displacements: &[i64], old: &TypeRef) -> MpiResult<Self> {
        let combiner = unit.combiner(c::MPI_COMBINER_INDEXED_BLOCK, c::MPI_COMBINER_HINDEXED_BLOCK);
        let contents = Arguments::of(form, combiner)
            .ints(&[displacements.len() as i64, length])
            .displacements(unit, displacements)
            .of_type(old);
        let body = block(old, length_of_block(length)?)?;
        let mut build = Build::default();
        for displacement in displacements {
            build.push(unit.in_bytes(*displacement, old), &body, 1, 0)?;
        }
        Self::made(build.finish(), contents)
    }

    /// `MPI_Type_create_struct`: `lengths[i]` elements of `types[i]` from byte `displacements[i]` on.
    pub fn structure(form: Form, lengths: &[i64], displacements: &[i64], types: &[TypeRef]) -> MpiResult<Self> {
        let contents = Arguments::of(form, c::MPI_COMBINER_STRUCT)
            .ints(&[lengths.len() as i64])
            .ints(lengths)
            .addresses(displacements)
            .of_types(types);
        let mut build = Build::default();
        for ((length, displacement), old) in lengths.iter().zip(displacements).zip(types) {
            let length = length_of_block(*length)?;
            build.push((*displacement).into(), &old.body, length, old.extent().into())?;
        }
        Self::made(build.finish(), contents)
    }

    /// `MPI_Type_create_resized`.
    pub fn resized(form: Form, lb: i64, extent: i64, old: &TypeRef) -> MpiResult<Self> {
        let contents = Arguments::of(form, c::MPI_COMBINER_RESIZED).addresses(&[lb, extent]).of_type(old);
        Self::made(old.body.with_markers(lb, extent)?, contents)
    }

    /// `MPI_Type_dup`.
    pub fn dup(old: &TypeRef) -> MpiResult<Self> {
        Self::made(old.body.clone(), Arguments::of(Form::Int, c::MPI_COMBINER_DUP).of_type(old))
    }

    /// `MPI_Type_create_subarray`: of an array of `sizes` the part of `subsizes` that begins at `starts`.
    pub fn subarray(
        form: Form,
        sizes: &[i64],
        subsizes: &[i64],
        starts: &[i64],
        order: i32,
        old: &TypeRef,
    ) -> MpiResult<Self> {
        let mut arguments = Arguments::of(form, c::MPI_COMBINER_SUBARRAY);
        arguments.contents.integers.push(sizes.len() as i32);
        let mut arguments = arguments.ints(sizes).ints(subsizes).ints(starts);
        arguments.contents.integers.push(order);
        let contents = arguments.of_type(old);

        let dimensions: Vec<usize> = match order {
            c::MPI_ORDER_C => (0..sizes.len()).rev().collect(),
            c::MPI_ORDER_FORTRAN => (0..sizes.len()).collect(),
            _ => {
                return Err(MpiError::arg(format!(
                    "the order is {order}: it must be MPI_ORDER_C or MPI_ORDER_FORTRAN"
                )));
            }
        };
        if dimensions.is_empty() {
            return Err(MpiError::arg("the array has no dimensions"));
        }
        let mut body = old.body.clone();
        let mut stride = old.extent();
        for dimension in dimensions {
            let (size, subsize, start) = (sizes[dimension], subsizes[dimension], starts[dimension]);
            if size < 1 || subsize < 1 || subsize > size || start < 0 || start > size - subsize {
                return Err(MpiError::arg(format!(
                    "dimension {dimension}: {subsize} elements from {start} on are not part of {size}"
                )));
            }
            let mut build = Build::default();
            build.push(i128::from(start) * i128::from(stride), &body, subsize as usize, stride.into())?;
            body = build.finish();
            stride = stride.checked_mul(size).ok_or_else(|| MpiError::arg("the array has more than 2^63 bytes"))?;
        }
        Self::made(body.with_markers(0, stride)?, contents)
    }
}

/// `length` elements side by side.
fn block(old: &Datatype, length: usize) -> MpiResult<Body> {
    let mut build = Build::default();
    build.push(0, &old.body, length, old.extent().into())?;
    Ok(build.finish())
}

fn number(value: i64, name: &str) -> MpiResult<usize> {
    usize::try_from(value).map_err(|_| MpiError::count(format!("the {name} is {value}")))
}

fn length_of_block(value: i64) -> MpiResult<usize> {
    usize::try_from(value).map_err(|_| MpiError::arg(format!("the length of a block is {value}")))
}
