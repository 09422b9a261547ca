//! Which MPI library a program would load, according to the dynamic loader that the program names.
//!
//! `LOADER --list PROGRAM` is what `ldd` runs: the loader maps the libraries that it would load (by RPATH, RUNPATH,
//! `LD_LIBRARY_PATH`, preloads and its cache), prints their paths, and exits before any code of the program or of its libraries
//! runs. Whatever is not certain counts as unknown: scripts, statically linked programs, set-uid programs, unknown loaders, and
//! libraries that a program opens while it runs.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{BufRead, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rsd_core::step::{Linked, Links, matters};

/// How long the loader may take, which may have to read from a slow file system.
const WITHIN: Duration = Duration::from_secs(2);
/// The most of the loader's output to read; a program with 500 libraries has 50 KiB.
const LIST_MAX: usize = 1 << 20;
/// The largest file that is searched for rsd's mark.
const LIBRARY_MAX: u64 = 256 << 20;
/// How much of a program is searched for the name of an MPI library.
const PROGRAM_MAX: u64 = 64 << 20;
/// The most program headers of a binary to read, and the longest name of a loader.
const HEADERS_MAX: u16 = 256;
const LOADER_MAX: u64 = 4096;

/// Returns the MPI library that `program` would load with this environment and working directory; None: unknown or none.
pub(super) fn look(program: &Path, env: &[CString], wdir: &Path) -> Option<Linked> {
    let list = libraries(program, env, wdir)?;
    let mut found =
        mpi_libraries(&list).map(|file| Some(Linked { ours: is_ours(file)?, file: file.display().to_string() }));
    let first = found.next()??;
    // A program that loads both kinds is not compared.
    found.all(|other| other.is_some_and(|other| other.ours == first.ours)).then_some(first)
}

/// Returns what `program` would load of MPI libraries and of what belongs to them. Cost: programs without MPI are read once, others
/// are listed by their loader.
pub(super) fn links(program: &Path, env: &[CString], wdir: &Path) -> Links {
    let mut links = Links::default();
    let mut bytes = Vec::new();
    let Ok(file) = File::open(program) else { return links };
    if file.take(PROGRAM_MAX).read_to_end(&mut bytes).is_err() || !bytes.starts_with(b"\x7fELF") {
        return links;
    }
    let is_linked = find(&bytes, b"libmpi").is_some() || find(&bytes, b"librsd_mpi").is_some();
    if let Some(list) = is_linked.then(|| libraries(program, env, wdir)).flatten() {
        let files = paths(&list).filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(matters));
        // The file's own name contains its version.
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
        links.files = files.map(real).collect();
    }
    let is_open_mpi = links.files.is_empty() && find(&bytes, b"OMPI_MCA_").is_some();
    if let Some(at) = find(&bytes, OPEN_MPI_VERSION).filter(|_| is_open_mpi) {
        let digits = bytes[at + OPEN_MPI_VERSION.len()..].iter().take_while(|byte| byte.is_ascii_digit()).take(3);
        let major = digits.fold(0, |major, digit| major * 10 + u32::from(digit - b'0'));
        links.within = Some((program.display().to_string(), major));
    }
    links
}

/// What the version of an Open MPI begins with that is linked into a program.
const OPEN_MPI_VERSION: &[u8] = b"Open MPI v";

/// Returns where a word begins.
fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    let first = *word.first()?;
    let mut from = 0;
    while let Some(at) = bytes.get(from..)?.iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(word) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Returns what the loader of a program prints about it.
fn libraries(program: &Path, env: &[CString], wdir: &Path) -> Option<Vec<u8>> {
    // The loader ignores variables for a set-uid program, but not when it lists it.
    if fs::metadata(program).ok()?.permissions().mode() & 0o6000 != 0 {
        return None;
    }
    let loader = loader(&File::open(program).ok()?)?;
    let name = loader.file_name()?.to_str()?;
    if !["ld-linux", "ld-musl-", "ld64.so", "ld.so"].iter().any(|known| name.starts_with(known)) {
        return None;
    }
    list(&loader, program, env, wdir)
}

/// Returns the loader that a 64-bit binary of this machine's byte order names.
fn loader(program: &File) -> Option<PathBuf> {
    const CLASS_64: u8 = 2;
    const BYTE_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
    const PT_INTERP: u32 = 3;
    let mut header = [0; 64];
    program.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(&[0x7f, b'E', b'L', b'F', CLASS_64, BYTE_ORDER]) {
        return None;
    }
    let half = |at: usize| Some(u16::from_ne_bytes(header.get(at..at + 2)?.try_into().ok()?));
    let (headers, size, count) = (long(&header, 32)?, half(54)?, half(56)?.min(HEADERS_MAX));
    (0..u64::from(count)).find_map(|index| {
        let mut header = [0; 56];
        let at = headers.checked_add(index.checked_mul(u64::from(size))?)?;
        program.read_exact_at(&mut header, at).ok()?;
        let kind = u32::from_ne_bytes(header[..4].try_into().ok()?);
        let (at, length) = (long(&header, 8)?, long(&header, 32)?);
        if kind != PT_INTERP || length > LOADER_MAX {
            return None;
        }
        let mut name = vec![0; usize::try_from(length).ok()?];
        program.read_exact_at(&mut name, at).ok()?;
        let name = name.split(|byte| *byte == 0).next()?;
        name.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(name)))
    })
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Returns what the loader prints about the program, even if some libraries are missing.
fn list(loader: &Path, program: &Path, env: &[CString], wdir: &Path) -> Option<Vec<u8>> {
    let env = env.iter().filter_map(|var| {
        let var = var.as_bytes();
        let equals = var.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&var[..equals]), OsStr::from_bytes(&var[equals + 1..])))
    });
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).env_clear().envs(env).current_dir(wdir);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.ok()?;
    let read = child.stdout.take().and_then(|mut pipe| {
        let (until, mut list) = (Instant::now() + WITHIN, Vec::new());
        loop {
            let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).ok()?;
            // The end of a rank interrupts the wait.
            match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], left) {
                Ok(0) => return None,
                Ok(_) if list.len() <= LIST_MAX => {}
                Err(Errno::EINTR) => continue,
                Ok(_) | Err(_) => return None,
            }
            let mut buffer = [0; 4096];
            match pipe.read(&mut buffer) {
                Ok(0) => return Some(list),
                Ok(read) => list.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    });
    // It has ended already, unless it is stuck.
    let _ = child.kill();
    let _ = child.wait();
    read
}

/// Returns the paths of the MPI libraries in a loader's list.
fn mpi_libraries(list: &[u8]) -> impl Iterator<Item = &Path> {
    paths(list).filter(|path| path.file_name().is_some_and(|name| is_mpi(name.as_bytes())))
}

/// Returns the paths in a loader's list: `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)` in each line.
fn paths(list: &[u8]) -> impl Iterator<Item = &Path> {
    list.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.trim_ascii();
        let end = line.windows(4).rposition(|bytes| bytes == b" (0x")?;
        let start = line[..end].windows(4).position(|bytes| bytes == b" => ").map_or(0, |at| at + 4);
        Some(Path::new(OsStr::from_bytes(&line[start..end])))
    })
}

/// Returns whether this is the name of an MPI library itself, not of its bindings for a language or of a wrapper around any MPI.
fn is_mpi(file: &[u8]) -> bool {
    let stem = file.windows(3).position(|bytes| bytes == b".so").map(|at| &file[..at]);
    stem.is_some_and(|stem| matches!(stem, b"libmpi" | b"libmpich" | b"libmpi_abi" | b"libmpi_cray" | b"librsd_mpi"))
}

/// Returns whether a library is rsd's: it contains the name of a variable that only rsd's reads. Its file name does not show it,
/// because the standard ABI prescribes that name.
fn is_ours(library: &Path) -> Option<bool> {
    let file = File::open(library).ok()?;
    if file.metadata().ok()?.len() > LIBRARY_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LIBRARY_MAX).read_to_end(&mut bytes).ok()?;
    let mut rest = &bytes[..];
    while rest.skip_until(b'R').ok()? > 0 {
        if rest.starts_with(b"SD_MPI_SINGLETON") {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_mpi_and_a_script_have_none() {
        let here = Path::new("/");
        let this = std::env::current_exe().expect("the test's own program");
        let list = list(&loader(&File::open(&this).expect("it is readable")).expect("it names one"), &this, &[], here);
        let list = String::from_utf8(list.expect("the loader answers")).expect("paths");
        assert!(list.contains("libc.so"), "{list}");
        assert_eq!(look(&this, &[], here), None);
        assert_eq!(look(Path::new("/proc/self/status"), &[], here), None);
        assert_eq!(look(Path::new("/no/such/program"), &[], here), None);
        // This test's own text names MPI libraries, so its loader is asked.
        for program in [&this, Path::new("/proc/self/status"), Path::new("/no/such/program")] {
            assert_eq!(links(program, &[], here).files, Vec::<String>::new());
        }
    }

    #[test]
    fn a_word_is_found_where_it_begins() {
        for (bytes, at) in [(&b"libmpi"[..], Some(0)), (b"lib libmpi.so", Some(4)), (b"llibmp", None), (b"", None)] {
            assert_eq!(find(bytes, b"libmpi"), at, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_loaders_list_is_understood() {
        let list = b"\tlinux-vdso.so.1 (0x00007ffd)\n\tlibmpich.so.12 => /opt/my libs/libmpich.so.12 (0x00007f00)\n\
                     \tlibmpi.so.12 => not found\n\tlibmpicxx.so.12 => /opt/libmpicxx.so.12 (0x00007f01)\n\
                     \t/opt/libmpi_abi.so.1 (0x00007f02)\n\tlibmpitrampoline.so => /opt/libmpitrampoline.so (0x7f)\n";
        let found: Vec<&Path> = mpi_libraries(list).collect();
        assert_eq!(found, [Path::new("/opt/my libs/libmpich.so.12"), Path::new("/opt/libmpi_abi.so.1")]);
        assert_eq!(mpi_libraries(b"\tstatically linked\n").count(), 0);
    }

    #[test]
    fn a_damaged_binary_names_no_loader_or_another_one() {
        let good = fs::read(std::env::current_exe().expect("the test's own program")).expect("it is readable");
        let good = &good[..good.len().min(1 << 16)];
        let path = std::env::temp_dir().join(format!("rsd-linked-{}", std::process::id()));
        let mut seed = 1_u64;
        for round in 0..200 {
            let mut bytes = good.to_vec();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // The headers, where every byte matters.
                bytes[(seed >> 33) as usize % 1024] = (seed >> 25) as u8;
            }
            bytes.truncate(if round % 2 == 0 { bytes.len() } else { (seed >> 40) as usize % 1024 });
            fs::write(&path, &bytes).expect("the directory is writable");
            let found = loader(&File::open(&path).expect("just written"));
            assert!(found.is_none_or(|loader| loader.is_absolute()));
        }
        fs::remove_file(&path).expect("just written");
    }
}
