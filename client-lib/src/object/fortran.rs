//! What the program has said about its Fortran compiler (MPI 5.0 §20.4).

use super::info::Info;
use crate::abi::constants::MPI_ERR_ABI;
use crate::error::{MpiError, MpiResult};

/// The Fortran of this process.
#[derive(Debug, Default)]
pub struct Fortran {
    info: Option<Info>,
    /// The sizes in bytes of the LOGICAL types whose values have been set.
    logicals: Vec<i32>,
}

/// Bytes of the default types: those with which this library was built.
const SIZES: [(&[u8], &[u8]); 4] = [
    (b"mpi_logical_size", b"4"),
    (b"mpi_integer_size", b"4"),
    (b"mpi_real_size", b"4"),
    (b"mpi_double_precision_size", b"8"),
];

impl Fortran {
    /// What was set, once it was.
    pub fn info(&self) -> Option<&Info> {
        self.info.as_ref()
    }

    /// Fails with class `MPI_ERR_ABI` if it was set before, or if the sizes are not those of this library.
    pub fn set_info(&mut self, info: &Info) -> MpiResult {
        if self.info.is_some() {
            return Err(MpiError::new(MPI_ERR_ABI, "the Fortran info has already been set"));
        }
        for (key, has) in SIZES {
            if let Some(wants) = info.get(key).filter(|wants| *wants != has) {
                let [key, has, wants] = [key, has, wants].map(String::from_utf8_lossy);
                let text = format!("{key} is {wants}, and this library's Fortran types have {has}");
                return Err(MpiError::new(MPI_ERR_ABI, text));
            }
        }
        self.info = Some(info.clone());
        Ok(())
    }

    /// Whether the values of a LOGICAL of this many bytes have been set: then they are 1 and 0.
    pub fn knows_logical(&self, size: i32) -> bool {
        self.logicals.contains(&size)
    }

    /// Sets the values of `.TRUE.` and `.FALSE.`. Fails with class `MPI_ERR_ABI` if they were set before, or if they are not 1 and 0,
    /// which is what the reductions of this library write.
    pub fn set_logical(&mut self, size: i32, truth: &[u8], falsehood: &[u8]) -> MpiResult {
        if self.knows_logical(size) {
            let text = format!("the values of a LOGICAL of {size} bytes have already been set");
            return Err(MpiError::new(MPI_ERR_ABI, text));
        }
        let number = |bytes: &[u8]| {
            let mut wide = [0; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(wide)
        };
        if (number(truth), number(falsehood)) != (1, 0) {
            let text =
                "this library supports only 1 as .TRUE. and 0 as .FALSE.: compile with an option that selects them";
            return Err(MpiError::new(MPI_ERR_ABI, text));
        }
        self.logicals.push(size);
        Ok(())
    }
}
