//! The table of datatype handles, and the names and attributes that a program attaches to them.

use std::collections::HashMap;
use std::sync::Arc;

use super::attr::Attributes;
use super::table::{Objects, Table};
use crate::abi::DatatypeHandle;
use crate::abi::handle::Handle;
use crate::datatype::{Datatype, Element, TypeRef};
use crate::error::{MpiError, MpiResult};

/// Datatypes by handle.
#[derive(Debug, Default)]
pub struct Types {
    made: Table<DatatypeHandle, Entry>,
    /// Names and attributes of predefined datatypes.
    predefined: HashMap<Element, Attached>,
    /// Fortran types of a requested precision or range, by the combiner and the request: equal requests get one handle (MPI 5.0 §19.1.9).
    f90: HashMap<(i32, Vec<i32>), DatatypeHandle>,
    /// Freed handles that user-defined operations still use.
    freed: Vec<DatatypeHandle>,
}

#[derive(Debug)]
struct Entry {
    datatype: Arc<Datatype>,
    committed: bool,
    /// The program cannot free it.
    permanent: bool,
    /// The program has freed it.
    freed: bool,
    /// User-defined operations in progress share it: their functions get the handle.
    hold: Arc<()>,
    attached: Attached,
}

/// The name and attributes of a datatype's handle.
#[derive(Debug, Default)]
pub struct Attached {
    /// From `MPI_Type_set_name`.
    pub name: Option<Vec<u8>>,
    /// From `MPI_Type_set_attr`.
    pub attributes: Attributes,
}

impl Types {
    /// The handles that the program has got.
    pub fn made(&self) -> &dyn Objects {
        &self.made
    }

    /// The datatype of a handle, committed or not. Fails with class `MPI_ERR_TYPE` for an invalid handle.
    #[inline]
    pub fn resolve(&self, handle: DatatypeHandle) -> MpiResult<&Datatype> {
        match Element::of(handle) {
            Some(element) => Ok(Datatype::predefined(element)),
            None => Ok(&self.entry(handle)?.datatype),
        }
    }

    /// As [`Types::resolve`], for communication: it must be committed.
    #[inline]
    pub fn resolve_committed(&self, handle: DatatypeHandle) -> MpiResult<&Datatype> {
        if let Some(element) = Element::of(handle) {
            return Ok(Datatype::predefined(element));
        }
        let entry = self.entry(handle)?;
        if entry.committed { Ok(&entry.datatype) } else { Err(uncommitted()) }
    }

    /// As [`Types::resolve`], kept alive.
    pub fn get(&self, handle: DatatypeHandle) -> MpiResult<TypeRef> {
        match Element::of(handle) {
            Some(element) => Ok(TypeRef::Predefined(Datatype::predefined(element))),
            None => Ok(TypeRef::Made(Arc::clone(&self.entry(handle)?.datatype))),
        }
    }

    /// As [`Types::resolve_committed`], kept alive.
    pub fn get_committed(&self, handle: DatatypeHandle) -> MpiResult<TypeRef> {
        self.resolve_committed(handle)?;
        self.get(handle)
    }

    /// Returns a handle for a datatype: its own if it is predefined or of [`Types::f90`], otherwise a new one, not committed.
    pub fn add(&mut self, datatype: TypeRef) -> MpiResult<DatatypeHandle> {
        match datatype {
            TypeRef::Predefined(datatype) => Ok(datatype.element().map_or(DatatypeHandle::NULL, Element::handle)),
            TypeRef::Made(datatype) => {
                let contents = datatype.contents();
                if let Some(known) = self.f90_of(contents.combiner, &contents.integers) {
                    return Ok(known);
                }
                self.sweep();
                let attached = Attached::default();
                let entry = Entry {
                    datatype,
                    committed: false,
                    permanent: false,
                    freed: false,
                    hold: Arc::default(),
                    attached,
                };
                self.made.add(entry).ok_or_else(|| MpiError::no_mem("too many datatypes (two million)"))
            }
        }
    }

    /// Returns a handle for a datatype that a constructor has made.
    pub fn add_made(&mut self, datatype: Datatype) -> MpiResult<DatatypeHandle> {
        self.add(TypeRef::Made(Arc::new(datatype)))
    }

    /// The handle of a Fortran type of a requested precision or range: like predefined datatypes, it is committed and cannot be freed.
    pub fn f90(&mut self, combiner: i32, requested: &[i32], element: Element) -> MpiResult<DatatypeHandle> {
        if let Some(known) = self.f90_of(combiner, requested) {
            return Ok(known);
        }
        let made = self.add_made(Datatype::f90(combiner, requested, element)?)?;
        let entry = self.entry_mut(made)?;
        (entry.committed, entry.permanent) = (true, true);
        self.f90.insert((combiner, requested.to_vec()), made);
        Ok(made)
    }

    fn f90_of(&self, combiner: i32, requested: &[i32]) -> Option<DatatypeHandle> {
        let has_any = !self.f90.is_empty();
        has_any.then(|| self.f90.get(&(combiner, requested.to_vec())).copied()).flatten()
    }

    /// Duplicates a datatype, including whether it is committed (MPI 5.0 §5.1.10); the caller copies the attributes.
    pub fn dup(&mut self, handle: DatatypeHandle) -> MpiResult<DatatypeHandle> {
        let copy = self.add_made(Datatype::dup(&self.get(handle)?)?)?;
        if self.resolve_committed(handle).is_ok() {
            self.commit(copy)?;
        }
        Ok(copy)
    }

    /// Commits a datatype, so that it can be used for communication.
    pub fn commit(&mut self, handle: DatatypeHandle) -> MpiResult {
        if Element::of(handle).is_none() {
            self.entry_mut(handle)?.committed = true;
        }
        Ok(())
    }

    /// Keeps the handle valid, even if the program frees it, as long as the returned value lives; `None` for a predefined datatype.
    pub fn hold(&self, handle: DatatypeHandle) -> Option<Arc<()>> {
        self.made.get(handle).map(|entry| Arc::clone(&entry.hold))
    }

    /// Removes freed datatypes that no operation uses any more.
    fn sweep(&mut self) {
        let made = &mut self.made;
        self.freed.retain(|handle| {
            let is_held = made.get(*handle).is_some_and(|entry| Arc::strong_count(&entry.hold) > 1);
            if !is_held {
                made.discard(*handle);
            }
            is_held
        });
    }

    /// Frees a handle; datatypes made from this one, and operations in progress with it, keep it alive. Predefined
    /// datatypes cannot be freed.
    pub fn free(&mut self, handle: DatatypeHandle) -> MpiResult<Attached> {
        self.check_made(handle)?;
        self.sweep();
        let entry = self.entry_mut(handle)?;
        if Arc::strong_count(&entry.hold) > 1 {
            entry.freed = true;
            let attached = std::mem::take(&mut entry.attached);
            self.freed.push(handle);
            return Ok(attached);
        }
        match self.made.take(handle) {
            Some(entry) => Ok(entry.attached),
            None => Err(invalid(handle)),
        }
    }

    /// Fails with class `MPI_ERR_TYPE` if the handle cannot be freed.
    pub fn check_made(&self, handle: DatatypeHandle) -> MpiResult {
        match Element::of(handle) {
            Some(element) => Err(MpiError::datatype(format!("{} cannot be freed", element.name()))),
            None if self.entry(handle)?.permanent => {
                Err(MpiError::datatype("the types of MPI_Type_create_f90_… cannot be freed"))
            }
            None if self.entry(handle)?.freed => Err(invalid(handle)),
            None => Ok(()),
        }
    }

    /// Whether the program still has to free the datatype with these bits of its handle.
    pub fn is_held(&self, handle: usize) -> bool {
        self.made.get(DatatypeHandle(handle)).is_some_and(|entry| !entry.permanent && !entry.freed)
    }

    /// The name and attributes of a datatype; `None` if none were ever set.
    pub fn attached(&self, handle: DatatypeHandle) -> MpiResult<Option<&Attached>> {
        match Element::of(handle) {
            Some(element) => Ok(self.predefined.get(&element)),
            None => Ok(Some(&self.entry(handle)?.attached)),
        }
    }

    /// As [`Types::attached`], mutable.
    pub fn attached_mut(&mut self, handle: DatatypeHandle) -> MpiResult<&mut Attached> {
        match Element::of(handle) {
            Some(element) => Ok(self.predefined.entry(element).or_default()),
            None => Ok(&mut self.entry_mut(handle)?.attached),
        }
    }

    /// The name: as set, otherwise a predefined datatype's own, otherwise empty.
    pub fn name(&self, handle: DatatypeHandle) -> MpiResult<&[u8]> {
        let set = self.attached(handle)?.and_then(|attached| attached.name.as_deref());
        Ok(set.unwrap_or_else(|| Element::of(handle).map_or(b"", |element| element.name().as_bytes())))
    }

    #[inline]
    fn entry(&self, handle: DatatypeHandle) -> MpiResult<&Entry> {
        match self.made.get(handle) {
            Some(entry) => Ok(entry),
            None => Err(invalid(handle)),
        }
    }

    fn entry_mut(&mut self, handle: DatatypeHandle) -> MpiResult<&mut Entry> {
        self.made.get_mut(handle).ok_or_else(|| invalid(handle))
    }
}

#[cold]
fn invalid(handle: DatatypeHandle) -> MpiError {
    if handle == DatatypeHandle::NULL {
        MpiError::datatype("the datatype is MPI_DATATYPE_NULL")
    } else if handle.place().is_some() {
        MpiError::datatype("the datatype has been freed")
    } else {
        MpiError::datatype(format!("{:#x} is not a datatype", handle.0))
    }
}

#[cold]
fn uncommitted() -> MpiError {
    MpiError::datatype("the datatype is not committed: call MPI_Type_commit first")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants as c;
    use crate::datatype::{Form, Unit};

    const INT: DatatypeHandle = DatatypeHandle(c::MPI_INT);

    #[test]
    fn an_invalid_handle_is_described() {
        let mut types = Types::default();
        let text = |types: &Types, handle| types.resolve_committed(handle).unwrap_err().text.into_owned();
        assert_eq!(text(&types, DatatypeHandle::NULL), "the datatype is MPI_DATATYPE_NULL");
        assert_eq!(text(&types, DatatypeHandle(0)), "0x0 is not a datatype");
        assert_eq!(text(&types, DatatypeHandle(0x2ff)), "0x2ff is not a datatype");
        let int = types.get(INT).unwrap();
        let two = types.add_made(Datatype::contiguous(Form::Int, 2, &int).unwrap()).unwrap();
        assert_eq!(text(&types, two), "the datatype is not committed: call MPI_Type_commit first");
        assert_eq!(types.resolve(two).unwrap().size(), 8);
        types.commit(two).unwrap();
        assert_eq!(types.resolve_committed(two).unwrap().size(), 8);
        types.free(two).unwrap();
        assert_eq!(text(&types, two), "the datatype has been freed");
        assert_eq!(types.free(two).unwrap_err().class, c::MPI_ERR_TYPE);
        assert_eq!(types.free(INT).unwrap_err().text, "MPI_INT cannot be freed");
        assert_eq!(types.commit(INT), Ok(()));
    }

    #[test]
    fn a_copy_of_a_committed_datatype_is_committed_and_outlives_it() {
        let mut types = Types::default();
        let int = types.get(INT).unwrap();
        let old = types.add_made(Datatype::vector(Form::Int, Unit::Extents, 2, 1, 3, &int).unwrap()).unwrap();
        let raw = types.dup(old).unwrap();
        assert!(types.resolve_committed(raw).is_err());
        types.commit(old).unwrap();
        let copy = types.dup(old).unwrap();
        types.free(old).unwrap();
        let copy = types.resolve_committed(copy).unwrap();
        assert_eq!((copy.size(), copy.extent(), copy.contents().combiner), (8, 16, c::MPI_COMBINER_DUP));
        assert_eq!(copy.contents().types[0].contents().combiner, c::MPI_COMBINER_VECTOR);
        let copy = types.dup(INT).unwrap();
        assert_eq!(types.resolve_committed(copy).unwrap().uniform(), Element::of(INT));
    }

    #[test]
    fn names_can_be_set_even_of_predefined_datatypes() {
        let mut types = Types::default();
        assert_eq!(types.name(INT), Ok(&b"MPI_INT"[..]));
        types.attached_mut(INT).unwrap().name = Some(b"number".to_vec());
        assert_eq!(types.name(INT), Ok(&b"number"[..]));
        let copy = types.dup(INT).unwrap();
        assert_eq!(types.name(copy), Ok(&b""[..]));
        assert!(types.name(DatatypeHandle::NULL).is_err());
    }
}
