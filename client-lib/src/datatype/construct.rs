//! The constructors (MPI 5.0 §5.1.2 to §5.1.9): they build a datatype, and the arguments that `MPI_Type_get_contents`
//! returns.
//!
//! Displacements of the vector and indexed constructors are in extents of the old type, those of their `h` forms in bytes.

use super::body::{Body, Build};
use super::element::Element;
use super::object::{Contents, Datatype, TypeRef};
use crate::abi::constants as c;
use crate::error::{MpiError, MpiResult};

/// The form of the constructor that was called: it decides the types in which the arguments are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// With `int` counts.
    Int,
    /// With `MPI_Count`: the name ends in `_c`.
    Count,
}

/// The unit of displacements.
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

    /// Adds arguments that are `int` in one form.
    fn ints(mut self, values: &[i64]) -> Self {
        match self.form {
            // In the `Int` form these values were widened from `int`.
            Form::Int => self.contents.integers.extend(values.iter().map(|value| *value as i32)),
            Form::Count => self.contents.counts.extend(values),
        }
        self
    }

    /// Adds arguments that are `MPI_Aint` in one form.
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

    /// `MPI_Type_vector`; with a stride in bytes, `MPI_Type_create_hvector`.
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

    /// `MPI_Type_indexed`; with displacements in bytes, `MPI_Type_create_hindexed`: `lengths[i]` elements from
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

    /// `MPI_Type_create_indexed_block`; with displacements in bytes, `MPI_Type_create_hindexed_block`.
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

    /// `MPI_Type_create_subarray`: the part of `subsizes` that begins at `starts`, in an array of `sizes`.
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

        let mut body = old.body.clone();
        let mut stride = old.extent();
        for dimension in dimensions(sizes.len(), order)? {
            let (size, subsize, start) = (sizes[dimension], subsizes[dimension], starts[dimension]);
            if size < 1 || subsize < 1 || subsize > size || start < 0 || start > size - subsize {
                return Err(MpiError::arg(format!(
                    "dimension {dimension}: {subsize} elements from {start} on exceed its size {size}"
                )));
            }
            let mut build = Build::default();
            build.push(i128::from(start) * i128::from(stride), &body, subsize as usize, stride.into())?;
            body = build.finish();
            stride = stride.checked_mul(size).ok_or_else(|| MpiError::arg("the array has more than 2^63 bytes"))?;
        }
        Self::made(body.with_markers(0, stride)?, contents)
    }

    /// `MPI_Type_create_darray`: the part of a distributed array that one process holds.
    pub fn darray(form: Form, array: Distribution<'_>, old: &TypeRef) -> MpiResult<Self> {
        let Distribution { size, rank, sizes, kinds, arguments, processes, order } = array;
        let mut made_of = Arguments::of(form, c::MPI_COMBINER_DARRAY);
        made_of.contents.integers.extend([size, rank, sizes.len() as i32]);
        let mut made_of = made_of.ints(sizes);
        made_of.contents.integers.extend(kinds.iter().chain(arguments).chain(processes));
        made_of.contents.integers.push(order);
        let contents = made_of.of_type(old);

        let places = array.coordinates()?;
        let mut body = old.body.clone();
        let mut stride = old.extent();
        for dimension in dimensions(sizes.len(), order)? {
            let Blocks { len, start, cycle } = array.blocks(dimension, places[dimension])?;
            let size = sizes[dimension];
            let at = |element: i64| i128::from(element) * i128::from(stride);
            let whole = if size - start >= len { (size - start - len) / cycle + 1 } else { 0 };
            let mut one = Build::default();
            one.push(0, &body, len.min(size) as usize, stride.into())?;
            let mut build = Build::default();
            build.push(at(start), &one.finish(), whole as usize, at(cycle))?;
            let rest = i128::from(start) + i128::from(whole) * i128::from(cycle);
            if rest < i128::from(size) {
                let rest = rest as i64;
                build.push(at(rest), &body, (size - rest) as usize, stride.into())?;
            }
            body = build.finish();
            stride = stride.checked_mul(size).ok_or_else(|| MpiError::arg("the array has more than 2^63 bytes"))?;
        }
        Self::made(body.with_markers(0, stride)?, contents)
    }

    /// A Fortran type of a requested precision or range (MPI 5.0 §19.1.9): it is used as the predefined one that it is.
    pub fn f90(combiner: i32, requested: &[i32], element: Element) -> MpiResult<Self> {
        let mut contents = Contents::new(combiner);
        contents.integers.extend(requested);
        let same = Self::predefined(element);
        let mut made = Self::made(same.body.clone(), contents)?;
        made.element = Some(element);
        Ok(made)
    }
}

/// A distributed array (MPI 5.0 §5.1.4): one element per dimension in each list.
#[derive(Debug, Clone, Copy)]
pub struct Distribution<'a> {
    /// The number of processes.
    pub size: i32,
    /// This process's rank.
    pub rank: i32,
    /// The global sizes.
    pub sizes: &'a [i64],
    /// `MPI_DISTRIBUTE_…`.
    pub kinds: &'a [i32],
    /// The block lengths, or `MPI_DISTRIBUTE_DFLT_DARG`.
    pub arguments: &'a [i32],
    /// The sizes of the grid of processes, whose ranks are in row-major order.
    pub processes: &'a [i32],
    /// `MPI_ORDER_…`, of the array.
    pub order: i32,
}

/// The blocks of one dimension that a process holds: `len` elements each, the first at `start`, one `cycle` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocks {
    len: i64,
    start: i64,
    cycle: i64,
}

impl Distribution<'_> {
    fn blocks(&self, dimension: usize, place: i64) -> MpiResult<Blocks> {
        let (size, processes) = (self.sizes[dimension], i64::from(self.processes[dimension]));
        let argument = Some(i64::from(self.arguments[dimension]))
            .filter(|argument| *argument != i64::from(c::MPI_DISTRIBUTE_DFLT_DARG));
        let invalid = |what: String| MpiError::arg(format!("dimension {dimension}: {what}"));
        if size < 1 {
            return Err(invalid(format!("invalid size {size}")));
        }
        let len = match self.kinds[dimension] {
            c::MPI_DISTRIBUTE_NONE if processes == 1 => size,
            c::MPI_DISTRIBUTE_NONE => {
                return Err(invalid(format!("MPI_DISTRIBUTE_NONE needs 1 process, and there are {processes}")));
            }
            c::MPI_DISTRIBUTE_BLOCK => {
                let len = argument.unwrap_or((size - 1) / processes + 1);
                if len.checked_mul(processes).is_some_and(|room| room < size) {
                    return Err(invalid(format!("{processes} blocks of {len} elements do not hold {size}")));
                }
                len
            }
            c::MPI_DISTRIBUTE_CYCLIC => argument.unwrap_or(1),
            kind => return Err(invalid(format!("invalid distribution {kind}"))),
        };
        if len < 1 {
            return Err(invalid(format!("invalid block length {len}")));
        }
        Ok(Blocks { len, start: len.saturating_mul(place), cycle: len.saturating_mul(processes) })
    }

    /// This process's coordinates in the grid of processes.
    fn coordinates(&self) -> MpiResult<Vec<i64>> {
        let room = self
            .processes
            .iter()
            .try_fold(1_i64, |room, processes| room.checked_mul(i64::from(*processes)).filter(|_| *processes > 0));
        if room != Some(i64::from(self.size)) {
            return Err(MpiError::arg(format!("the grid of processes does not have {} processes", self.size)));
        }
        if self.rank < 0 || self.rank >= self.size {
            return Err(MpiError::arg(format!("invalid rank {} of {} processes", self.rank, self.size)));
        }
        let (mut rank, mut room) = (i64::from(self.rank), i64::from(self.size));
        let place = |processes: &i32| {
            room /= i64::from(*processes);
            let place = rank / room;
            rank %= room;
            place
        };
        Ok(self.processes.iter().map(place).collect())
    }
}

/// The dimensions of an array, those first whose elements are next to each other.
fn dimensions(count: usize, order: i32) -> MpiResult<Vec<usize>> {
    let dimensions: Vec<usize> = match order {
        c::MPI_ORDER_C => (0..count).rev().collect(),
        c::MPI_ORDER_FORTRAN => (0..count).collect(),
        _ => return Err(MpiError::arg(format!("invalid order {order}: expected MPI_ORDER_C or MPI_ORDER_FORTRAN"))),
    };
    if dimensions.is_empty() { Err(MpiError::arg("the array has no dimensions")) } else { Ok(dimensions) }
}

/// `length` contiguous elements.
fn block(old: &Datatype, length: usize) -> MpiResult<Body> {
    let mut build = Build::default();
    build.push(0, &old.body, length, old.extent().into())?;
    Ok(build.finish())
}

fn number(value: i64, name: &str) -> MpiResult<usize> {
    usize::try_from(value).map_err(|_| MpiError::count(format!("invalid {name} {value}")))
}

fn length_of_block(value: i64) -> MpiResult<usize> {
    usize::try_from(value).map_err(|_| MpiError::arg(format!("invalid block length {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::DatatypeHandle;
    use crate::datatype::Element;
    use std::sync::Arc;

    fn predefined(handle: usize) -> TypeRef {
        TypeRef::Predefined(Datatype::predefined(Element::of(DatatypeHandle(handle)).unwrap()))
    }

    fn made(datatype: MpiResult<Datatype>) -> TypeRef {
        TypeRef::Made(Arc::new(datatype.unwrap()))
    }

    #[test]
    fn the_arguments_are_returned_in_the_types_of_the_called_form() {
        type Given<'a> = (i32, &'a [i32], &'a [i64], &'a [i64], usize);
        let int = predefined(c::MPI_INT);
        let check = |make: &dyn Fn(Form) -> MpiResult<Datatype>, plain: Given<'_>, large: Given<'_>| {
            for (form, expected) in [(Form::Int, plain), (Form::Count, large)] {
                let made = make(form).unwrap();
                let contents = made.contents();
                let given = (
                    contents.combiner,
                    &contents.integers[..],
                    &contents.addresses[..],
                    &contents.counts[..],
                    contents.types.len(),
                );
                assert_eq!(given, expected, "{form:?}");
            }
        };
        let code = c::MPI_COMBINER_CONTIGUOUS;
        check(&|form| Datatype::contiguous(form, 3, &int), (code, &[3], &[], &[], 1), (code, &[], &[], &[3], 1));
        let code = c::MPI_COMBINER_VECTOR;
        check(
            &|form| Datatype::vector(form, Unit::Extents, 3, 2, -4, &int),
            (code, &[3, 2, -4], &[], &[], 1),
            (code, &[], &[], &[3, 2, -4], 1),
        );
        let code = c::MPI_COMBINER_HVECTOR;
        check(
            &|form| Datatype::vector(form, Unit::Bytes, 3, 2, -4, &int),
            (code, &[3, 2], &[-4], &[], 1),
            (code, &[], &[], &[3, 2, -4], 1),
        );
        let code = c::MPI_COMBINER_INDEXED;
        check(
            &|form| Datatype::indexed(form, Unit::Extents, &[1, 2], &[8, 9], &int),
            (code, &[2, 1, 2, 8, 9], &[], &[], 1),
            (code, &[], &[], &[2, 1, 2, 8, 9], 1),
        );
        let code = c::MPI_COMBINER_HINDEXED;
        check(
            &|form| Datatype::indexed(form, Unit::Bytes, &[1, 2], &[8, 9], &int),
            (code, &[2, 1, 2], &[8, 9], &[], 1),
            (code, &[], &[], &[2, 1, 2, 8, 9], 1),
        );
        let code = c::MPI_COMBINER_INDEXED_BLOCK;
        check(
            &|form| Datatype::indexed_block(form, Unit::Extents, 7, &[8, 9], &int),
            (code, &[2, 7, 8, 9], &[], &[], 1),
            (code, &[], &[], &[2, 7, 8, 9], 1),
        );
        let code = c::MPI_COMBINER_HINDEXED_BLOCK;
        check(
            &|form| Datatype::indexed_block(form, Unit::Bytes, 7, &[8, 9], &int),
            (code, &[2, 7], &[8, 9], &[], 1),
            (code, &[], &[], &[2, 7, 8, 9], 1),
        );
        let code = c::MPI_COMBINER_STRUCT;
        check(
            &|form| Datatype::structure(form, &[1, 2], &[0, 8], &[int.clone(), int.clone()]),
            (code, &[2, 1, 2], &[0, 8], &[], 2),
            (code, &[], &[], &[2, 1, 2, 0, 8], 2),
        );
        let code = c::MPI_COMBINER_RESIZED;
        check(
            &|form| Datatype::resized(form, -4, 12, &int),
            (code, &[], &[-4, 12], &[], 1),
            (code, &[], &[], &[-4, 12], 1),
        );
        let (code, order) = (c::MPI_COMBINER_SUBARRAY, c::MPI_ORDER_C);
        check(
            &|form| Datatype::subarray(form, &[4, 5], &[2, 3], &[1, 0], order, &int),
            (code, &[2, 4, 5, 2, 3, 1, 0, order], &[], &[], 1),
            (code, &[2, order], &[], &[4, 5, 2, 3, 1, 0], 1),
        );
        let array = Distribution {
            size: 4,
            rank: 1,
            sizes: &[4, 5],
            kinds: &[c::MPI_DISTRIBUTE_BLOCK, c::MPI_DISTRIBUTE_CYCLIC],
            arguments: &[c::MPI_DISTRIBUTE_DFLT_DARG, 2],
            processes: &[2, 2],
            order,
        };
        let (block, cyclic) = (c::MPI_DISTRIBUTE_BLOCK, c::MPI_DISTRIBUTE_CYCLIC);
        let default = c::MPI_DISTRIBUTE_DFLT_DARG;
        let code = c::MPI_COMBINER_DARRAY;
        check(
            &|form| Datatype::darray(form, array, &int),
            (code, &[4, 1, 2, 4, 5, block, cyclic, default, 2, 2, 2, order], &[], &[], 1),
            (code, &[4, 1, 2, block, cyclic, default, 2, 2, 2, order], &[], &[4, 5], 1),
        );
        let code = c::MPI_COMBINER_DUP;
        check(&|_| Datatype::dup(&int), (code, &[], &[], &[], 1), (code, &[], &[], &[], 1));
    }

    #[test]
    fn offsets_beyond_the_address_range_are_errors_and_never_wrap() {
        let int = predefined(c::MPI_INT);
        let many = i64::MAX;
        let class = |made: MpiResult<Datatype>| made.map(|_| ()).unwrap_err().class;
        assert_eq!(class(Datatype::contiguous(Form::Count, -1, &int)), c::MPI_ERR_COUNT);
        for made in [
            Datatype::contiguous(Form::Count, many, &int),
            Datatype::vector(Form::Count, Unit::Extents, many, 1, 1, &int),
            Datatype::vector(Form::Count, Unit::Extents, 2, 1, many, &int),
            Datatype::vector(Form::Count, Unit::Bytes, 3, 1, many, &int),
            Datatype::vector(Form::Count, Unit::Extents, 1, -1, 1, &int),
            Datatype::indexed(Form::Count, Unit::Extents, &[many, many], &[0, 0], &int),
            Datatype::indexed(Form::Count, Unit::Extents, &[1], &[i64::MIN], &int),
            Datatype::indexed_block(Form::Count, Unit::Bytes, 1, &[i64::MIN, many], &int),
            Datatype::structure(Form::Count, &[1], &[many], std::slice::from_ref(&int)),
            Datatype::resized(Form::Count, many, 1, &int),
            Datatype::subarray(Form::Count, &[many, many], &[1, 1], &[0, 0], c::MPI_ORDER_C, &int),
            Datatype::subarray(Form::Int, &[4], &[2], &[3], c::MPI_ORDER_C, &int),
            Datatype::subarray(Form::Int, &[4], &[2], &[0], 7, &int),
            Datatype::subarray(Form::Int, &[], &[], &[], c::MPI_ORDER_C, &int),
        ] {
            assert_eq!(class(made), c::MPI_ERR_ARG);
        }
        // All in one place: little memory, but more bytes than a count can hold.
        let still = made(Datatype::resized(Form::Count, 0, 0, &int));
        assert_eq!(class(Datatype::contiguous(Form::Count, many, &still)), c::MPI_ERR_ARG);
        let far = made(Datatype::resized(Form::Count, 0, many / 2, &int));
        assert_eq!(far.packed_len(usize::MAX).unwrap_err().class, c::MPI_ERR_COUNT);
        assert_eq!(far.packed_len(4).unwrap_err().class, c::MPI_ERR_COUNT);
        assert_eq!(far.span(4).unwrap_err().class, c::MPI_ERR_COUNT);
        assert_eq!(far.packed_len(2), Ok(8));
    }

    #[test]
    fn large_counts_cost_no_memory_or_time() {
        let int = predefined(c::MPI_INT);
        let huge = made(Datatype::vector(Form::Count, Unit::Extents, 1 << 40, 3, 5, &int));
        assert_eq!(huge.size(), 12 << 40);
        assert_eq!(huge.extent(), (20 << 40) - 8);
        let mut pieces = Vec::new();
        huge.layout().pieces(std::ptr::null_mut(), (12 << 39) + 8, 16, &mut |address, len| {
            pieces.push((address.addr(), len));
            true
        });
        assert_eq!(pieces, [((20 << 39) + 8, 4), ((20 << 39) + 20, 12)]);
        assert_eq!(huge.elements_of((12 << 39) + 8), Some((3 << 39) + 2));
        let whole = made(Datatype::contiguous(Form::Count, 1 << 50, &int));
        assert_eq!(whole.layout().contiguous_at(3), Some(0));
    }

    #[test]
    fn datatypes_nest_to_any_depth() {
        let int = predefined(c::MPI_INT);
        let mut deep = int.clone();
        for _ in 0..200_000 {
            deep = made(Datatype::dup(&deep));
        }
        assert_eq!((deep.size(), deep.elements()), (4, 1));
        let mut list = int.clone();
        for level in 1..400 {
            list = made(Datatype::structure(Form::Int, &[1, 1], &[0, 8 * level], &[list, int.clone()]));
        }
        assert_eq!((list.size(), list.elements()), (1600, 400));
        assert_eq!(list.extent(), 8 * 399 + 4);
        let mut loops = int.clone();
        for _ in 0..30 {
            loops = made(Datatype::vector(Form::Int, Unit::Bytes, 2, 1, loops.extent() + 4, &loops));
        }
        assert_eq!((loops.size(), loops.elements_of(4 << 29)), (4 << 30, Some(1 << 29)));
        let nothing = made(Datatype::contiguous(Form::Int, 0, &deep));
        assert_eq!(
            (nothing.size(), nothing.extent(), nothing.elements_of(0), nothing.count_of(0)),
            (0, 0, Some(0), Some(0))
        );
        assert_eq!((nothing.elements_of(4), nothing.count_of(4), nothing.bytes_of(1)), (None, None, None));
    }
}
