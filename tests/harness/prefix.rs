//! The MPI library and the PMI libraries as users install them: compilers, headers and libraries under one prefix. Shared with xtask.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    /// Its file name in cargo's target directory.
    pub(crate) built: &'static str,
    /// The name that programs load, which is also the target of the link.
    pub(crate) loaded: &'static str,
    /// The name that programs link with, a symbolic link.
    pub(crate) linked: &'static str,
}

impl Library {
    /// The file below the prefix.
    pub(crate) fn file(&self) -> PathBuf {
        Path::new("lib").join(self.loaded)
    }

    /// The symbolic link below the prefix.
    pub(crate) fn link(&self) -> PathBuf {
        Path::new("lib").join(self.linked)
    }
}

/// The MPI library.
pub(crate) const MPI: Library = Library { built: "librsd_mpi.so", loaded: "libmpi_abi.so.1", linked: "libmpi_abi.so" };
const PMI: Library = Library { built: "librsd_pmi.so", loaded: "libpmi.so.0", linked: "libpmi.so" };
const PMI2: Library = Library { built: "librsd_pmi2.so", loaded: "libpmi2.so.0", linked: "libpmi2.so" };
/// All libraries.
pub(crate) const LIBRARIES: [Library; 3] = [MPI, PMI, PMI2];

/// A file to install.
#[derive(Debug)]
pub(crate) struct File {
    /// Its path below the prefix.
    pub(crate) place: &'static str,
    /// Its permissions.
    pub(crate) mode: u32,
    /// Its contents.
    pub(crate) text: Vec<u8>,
}

/// All files except the libraries themselves.
pub(crate) fn files() -> io::Result<Vec<File>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("client-lib"));
    let sources = sources.into_iter().find(|folder| folder.exists()).unwrap_or_default();
    let files = [
        ("include/mpi.h", 0o644, "abi/mpi.h"),
        ("include/mpi-ext.h", 0o644, "include/mpi-ext.h"),
        ("include/pmi.h", 0o644, "include/pmi.h"),
        ("include/pmi2.h", 0o644, "include/pmi2.h"),
        ("include/rsd_attach.h", 0o644, "include/rsd_attach.h"),
        ("include/rsd_join.h", 0o644, "include/rsd_join.h"),
        ("share/rsd/python/rsd_join.py", 0o644, "python/rsd_join.py"),
        ("bin/mpicc", 0o755, "prefix/bin/mpicc"),
        ("bin/mpicxx", 0o755, "prefix/bin/mpicc"),
        ("lib/pkgconfig/rsd-mpi.pc", 0o644, "prefix/lib/pkgconfig/rsd-mpi.pc"),
        ("lib/pkgconfig/rsd-pmi.pc", 0o644, "prefix/lib/pkgconfig/rsd-pmi.pc"),
        ("lib/pkgconfig/rsd-pmi2.pc", 0o644, "prefix/lib/pkgconfig/rsd-pmi2.pc"),
    ];
    let read = |(place, mode, source): (&'static str, u32, &str)| {
        let text = fs::read_to_string(sources.join(source))?.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        Ok(File { place, mode, text: text.into_bytes() })
    };
    files.into_iter().map(read).collect()
}

/// Creates a prefix for the libraries in `built`, one of cargo's folders; returns it. The libraries in it are symbolic links,
/// so they are always the latest build. Several processes may do this at the same time.
pub(crate) fn stage(built: &Path) -> io::Result<PathBuf> {
    let prefix = built.join("mpi-prefix");
    for file in files()? {
        let place = prefix.join(file.place);
        if fs::read(&place).ok().as_ref() != Some(&file.text) {
            put(&file.text, &place, file.mode)?;
        }
    }
    let links = LIBRARIES.iter().flat_map(|it| [(it.file(), built.join(it.built)), (it.link(), it.loaded.into())]);
    for (place, target) in links {
        let place = prefix.join(place);
        if fs::read_link(&place).ok().as_ref() != Some(&target) {
            put_link(&target, &place)?;
        }
    }
    Ok(prefix)
}

/// Writes a temporary file and renames it, so that a running program keeps the file that it has.
pub(crate) fn put(bytes: &[u8], place: &Path, mode: u32) -> io::Result<()> {
    replace(place, |beside| {
        fs::write(beside, bytes)?;
        fs::set_permissions(beside, fs::Permissions::from_mode(mode))
    })
}

/// Like [`put`], for a symbolic link.
pub(crate) fn put_link(target: &Path, place: &Path) -> io::Result<()> {
    replace(place, |beside| symlink(target, beside))
}

fn replace(place: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = place.parent().unwrap_or(place);
    fs::create_dir_all(folder)?;
    let name = place.file_name().unwrap_or_default().display();
    let beside = folder.join(format!(".{name}.{}.{:?}", std::process::id(), std::thread::current().id()));
    // An earlier process with this process id may have left it.
    let _ = fs::remove_file(&beside);
    make(&beside)?;
    fs::rename(&beside, place)
}
