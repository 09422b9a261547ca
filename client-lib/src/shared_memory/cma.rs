//! One copy, from process to process: the kernel reads another process's memory (process_vm_readv(2), "cross memory
//! attach").
//!
//! Whether the kernel permits it is tested with a real word at first contact: namespaces, Yama, seccomp and capabilities
//! decide together, differently on each kernel. XPMEM and KNEM do the same through devices, where these exist.

#![expect(unsafe_code, reason = "the kernel copies from and to memory that users have lent, given by address")]

use std::io::{IoSliceMut, Read};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::engine::PullRefused;
use crate::memory::Buffer;

/// How many pieces one call takes (`IOV_MAX`).
const PIECES: usize = 1024;
/// Bytes per call: a call ends within about a millisecond, however long the message is.
const BYTES: usize = 4 << 20;

/// Whether a peer's memory can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes, with this pid.
    Yes(i32),
    /// No, and the reason.
    No(String),
}

/// Tries to read the peer's nonce from its memory.
pub(crate) fn probe(pid: i32, address: u64, nonce: u64, namespaces: [[u64; 2]; 2]) -> Verdict {
    let [[our_pids, our_users], [their_pids, their_users]] = namespaces;
    let mut reason = String::new();
    if our_pids != their_pids {
        reason.push_str(", different pid namespace");
    }
    if our_users != their_users {
        reason.push_str(", different user namespace");
    }
    if pid <= 0 {
        return Verdict::No(format!("its pid is unknown here{reason}"));
    }
    let mut word = [0; 8];
    let remote = RemoteIoVec { base: address as usize, len: word.len() };
    match process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(&mut word)], &[remote]) {
        Ok(8) if u64::from_ne_bytes(word) == nonce => Verdict::Yes(pid),
        Ok(_) | Err(Errno::EFAULT | Errno::ESRCH) => {
            Verdict::No(format!("pid {pid} belongs to a different process{reason}"))
        }
        Err(errno) => {
            if errno == Errno::EPERM && yama_scope().is_some_and(|scope| scope > 0) {
                reason.push_str(", Yama's ptrace_scope");
            }
            Verdict::No(format!("{}{reason}", errno.desc()))
        }
    }
}

/// Lets peers read this process's memory where Yama would allow that only to its ancestors.
pub(crate) fn allow() {
    if yama_scope() == Some(1) {
        // SAFETY: takes numbers and touches no memory.
        unsafe { nix::libc::prctl(nix::libc::PR_SET_PTRACER, nix::libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    }
}

fn yama_scope() -> Option<u8> {
    let mut text = [0; 1];
    std::fs::File::open("/proc/sys/kernel/yama/ptrace_scope").ok()?.read_exact(&mut text).ok()?;
    text[0].checked_sub(b'0')
}

/// This process's pid and user namespaces, as inode numbers.
pub(crate) fn namespaces() -> [u64; 2] {
    ["/proc/self/ns/pid", "/proc/self/ns/user"].map(|path| nix::sys::stat::stat(path).map_or(0, |stat| stat.st_ino))
}

/// The devices of other one-copy mechanisms, and whether this library uses them.
pub(crate) fn devices() -> String {
    let device = |name: &str, path: &str| match std::path::Path::new(path).exists() {
        true => format!("{name}: not used; cma does the same"),
        false => format!("{name}: no {path}"),
    };
    format!("{}; {}", device("xpmem", "/dev/xpmem"), device("knem", "/dev/knem"))
}

/// Reads `len` bytes at `address` of a process into a buffer, starting at its packed byte `at`.
pub(crate) fn read(pid: i32, address: u64, into: &Buffer, at: usize, len: usize) -> Result<(), PullRefused> {
    copy(pid, Way::Read, (into, at), (&contiguous(address, len)?, 0), len)
}

/// Writes `len` bytes of a buffer, starting at its packed byte `at`, to an address of a process.
pub(crate) fn write(pid: i32, address: u64, from: &Buffer, at: usize, len: usize) -> Result<(), PullRefused> {
    copy(pid, Way::Write, (from, at), (&contiguous(address, len)?, 0), len)
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the other process's memory.
    Read,
    /// To the other process's memory.
    Write,
}

/// Memory of another process.
fn contiguous(address: u64, len: usize) -> Result<Buffer, PullRefused> {
    let address = usize::try_from(address).ok().filter(|at| at.checked_add(len).is_some()).ok_or(PullRefused)?;
    // SAFETY: its address is only passed to the kernel.
    Ok(unsafe { Buffer::contiguous(std::ptr::without_provenance_mut(address), len) })
}

/// Copies `len` packed bytes between a buffer of this process and one whose addresses are those of another process, each from its packed
/// byte on. The bytes may change meanwhile: only the kernel touches them, through addresses.
pub(crate) fn copy(
    pid: i32,
    way: Way,
    (here, here_at): (&Buffer, usize),
    (there, there_at): (&Buffer, usize),
    len: usize,
) -> Result<(), PullRefused> {
    if let Some(part) = here.device() {
        let copied = |done, bytes: *mut u8, len| {
            // SAFETY: this many bytes of a chunk.
            let bytes = unsafe { Buffer::contiguous(bytes, len) };
            copy(pid, way, (&bytes, 0), (there, there_at + done), len).is_ok()
        };
        let all = match way {
            Way::Read => part.write_with(here_at, len, &mut |bytes, done, len| copied(done, bytes, len)),
            Way::Write => part.read_with(here_at, len, &mut |bytes, done, len| copied(done, bytes.cast_mut(), len)),
        };
        return if all { Ok(()) } else { Err(PullRefused) };
    }
    let call = match way {
        Way::Read => libc::process_vm_readv,
        Way::Write => libc::process_vm_writev,
    };
    let (mut local, mut remote) = (List::default(), List::default());
    let mut done = 0;
    while done < len {
        let part = (len - done).min(BYTES);
        let (local, local_count) = local.fill(here, here_at + done, part);
        let (remote, remote_count) = remote.fill(there, there_at + done, part);
        // SAFETY: the pieces here are memory that the buffer's creator has lent for this; the kernel checks those of the other process.
        let copied = unsafe { call(pid, local, local_count, remote, remote_count, 0) };
        match usize::try_from(copied) {
            Ok(0) | Err(_) => return Err(PullRefused),
            Ok(copied) => done += copied,
        }
    }
    Ok(())
}

/// The pieces for one call.
struct List {
    only: libc::iovec,
    several: Vec<libc::iovec>,
}

impl Default for List {
    fn default() -> Self {
        Self { only: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }, several: Vec::new() }
    }
}

impl List {
    /// At most `PIECES` of the pieces that hold these packed bytes.
    fn fill(&mut self, buffer: &Buffer, at: usize, len: usize) -> (*const libc::iovec, libc::c_ulong) {
        let entry = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
        if let Some(base) = buffer.as_contiguous() {
            self.only = entry(base.wrapping_add(at), len);
            return (&raw const self.only, 1);
        }
        self.several.clear();
        buffer.pieces(at, len, |base, len| {
            self.several.push(entry(base, len));
            self.several.len() < PIECES
        });
        (self.several.as_ptr(), self.several.len() as libc::c_ulong)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::datatype::Layout;

    #[test]
    fn a_matching_word_permits_reads_and_any_other_gives_the_reason() {
        let (word, pid, here) = (Box::new(77u64), std::process::id() as i32, namespaces());
        let address = &raw const *word as u64;
        assert_eq!(probe(pid, address, 77, [here, here]), Verdict::Yes(pid));
        let text = |verdict| match verdict {
            Verdict::No(reason) => reason,
            Verdict::Yes(_) => String::new(),
        };
        assert_eq!(text(probe(pid, address, 78, [here, here])), format!("pid {pid} belongs to a different process"));
        assert_eq!(text(probe(pid, 8, 77, [here, here])), format!("pid {pid} belongs to a different process"));
        assert_eq!(
            text(probe(0, address, 77, [here, [1, here[1]]])),
            "its pid is unknown here, different pid namespace"
        );
        assert!(devices().starts_with("xpmem: "));
    }

    #[test]
    fn scattered_memory_is_filled_piece_by_piece() {
        let source: Vec<u8> = (0..20_000u32).map(|byte| (byte % 251) as u8).collect();
        let mut target = vec![0u8; 40_000];
        let layout = Arc::new(Layout::new(&[(0, 2)], 4));
        // SAFETY: 10,000 elements with an extent of 4 are the vector's 40,000 bytes.
        let buffer = unsafe { Buffer::new(target.as_mut_ptr(), 10_000, &layout) };
        assert_eq!(read(std::process::id() as i32, source.as_ptr() as u64, &buffer, 0, 20_000), Ok(()));
        for (index, pair) in target.chunks(4).enumerate() {
            assert_eq!(pair, [source[2 * index], source[2 * index + 1], 0, 0]);
        }
        assert_eq!(read(std::process::id() as i32, 8, &buffer, 0, 20_000), Err(PullRefused));
    }

    #[test]
    fn both_sides_may_be_scattered_with_more_pieces_than_a_call_takes() {
        const COUNT: usize = 5000;
        let mut source: Vec<u8> = (0..6 * COUNT).map(|byte| (byte % 251) as u8).collect();
        let mut target = vec![0u8; 4 * COUNT];
        let (three, two) = (Arc::new(Layout::new(&[(0, 2)], 6)), Arc::new(Layout::new(&[(1, 1), (3, 1)], 4)));
        // SAFETY: each vector has an extent for each element.
        let (from, into) =
            unsafe { (Buffer::new(source.as_mut_ptr(), COUNT, &three), Buffer::new(target.as_mut_ptr(), COUNT, &two)) };
        let pid = std::process::id() as i32;
        let expected = |index: usize| [0, source[6 * index], 0, source[6 * index + 1]];
        assert_eq!(copy(pid, Way::Read, (&into, 0), (&from, 0), 2 * COUNT), Ok(()));
        assert!(target.chunks(4).enumerate().all(|(index, four)| four == expected(index)));
        target.fill(0);
        // All but the first element.
        assert_eq!(copy(pid, Way::Write, (&from, 2), (&into, 2), 2 * COUNT - 2), Ok(()));
        assert!(
            target[..4] == [0; 4] && target.chunks(4).enumerate().skip(1).all(|(index, four)| four == expected(index))
        );
    }
}
