//! One copy, from process to process: the kernel reads another process's memory (process_vm_readv(2), "cross memory
//! attach").
//!
//! Whether the kernel permits it is tested with a real word at first contact: namespaces, Yama, seccomp and capabilities
//! decide together, differently on each kernel. XPMEM and KNEM do the same through devices, where these exist.

use std::io::{IoSlice, IoSliceMut, Read};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
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
#[expect(unsafe_code, reason = "there is no safe wrapper")]
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
#[expect(unsafe_code, reason = "the kernel writes into memory that the user has lent")]
pub(crate) fn read(pid: i32, address: u64, into: &Buffer, at: usize, len: usize) -> Result<(), PullRefused> {
    let mut done = 0;
    let mut pieces = Vec::new();
    while done < len {
        let part = (len - done).min(BYTES);
        let mut named = 0;
        pieces.clear();
        into.pieces(at + done, part, |base, len| {
            // SAFETY: the buffer's memory, lent for receiving; only the kernel gets the slice.
            pieces.push(IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(base, len) }));
            named += len;
            pieces.len() < PIECES
        });
        let base = address.checked_add(done as u64).ok_or(PullRefused)? as usize;
        match process_vm_readv(Pid::from_raw(pid), &mut pieces, &[RemoteIoVec { base, len: named }]) {
            Ok(0) | Err(_) => return Err(PullRefused),
            Ok(read) => done += read,
        }
    }
    Ok(())
}

/// Writes `len` bytes of a contiguous buffer, starting at its packed byte `at`, to an address of a process.
pub(crate) fn write(pid: i32, address: u64, from: &Buffer, at: usize, len: usize) -> Result<(), PullRefused> {
    let bytes = from.as_bytes().and_then(|bytes| bytes.get(at..at + len)).ok_or(PullRefused)?;
    let mut done = 0;
    while done < len {
        let base = address.checked_add(done as u64).ok_or(PullRefused)? as usize;
        let remote = RemoteIoVec { base, len: len - done };
        match process_vm_writev(Pid::from_raw(pid), &[IoSlice::new(&bytes[done..])], &[remote]) {
            Ok(0) | Err(_) => return Err(PullRefused),
            Ok(written) => done += written,
        }
    }
    Ok(())
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
    #[expect(unsafe_code, reason = "lends vectors")]
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
}
