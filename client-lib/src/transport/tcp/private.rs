//! Sockets that forked children must not keep: peers learn of the death of a process from the end of its connections, and a child would
//! keep them open. Closing them on exec is not enough, since many children execute nothing.

#![expect(unsafe_code, reason = "closes descriptors in a forked child")]

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each private descriptor. Higher ones are not known here: children keep them.
static PRIVATE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// A socket that is closed in children.
pub(super) struct Private<S: AsFd>(S);

impl<S: AsFd> Private<S> {
    pub(super) fn new(socket: S) -> Self {
        if let Some((word, bit)) = place(socket.as_fd().as_raw_fd()) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(socket)
    }
}

impl<S: AsFd> Drop for Private<S> {
    fn drop(&mut self) {
        // Before it is closed: afterwards the number may be another file's.
        if let Some((word, bit)) = place(self.0.as_fd().as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl<S: AsFd> Deref for Private<S> {
    type Target = S;

    #[inline(always)]
    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S: AsFd> AsFd for Private<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<S: AsFd + fmt::Debug> fmt::Debug for Private<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Closes all private sockets of a child that has just been forked, and will never use them. It calls nothing but `close`, as the child of
/// a process with threads must.
pub fn close_in_child() {
    for (at, word) in PRIVATE.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let descriptor = at as RawFd * 64 + bits.trailing_zeros() as RawFd;
            bits &= bits - 1;
            // SAFETY: the child's copy of a socket; nothing in the child uses it, since the library is over there.
            unsafe { libc::close(descriptor) };
        }
    }
}

fn place(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((PRIVATE.get(number / 64)?, 1 << (number % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn is_marked(descriptor: RawFd) -> bool {
        place(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    #[test]
    fn a_socket_is_private_until_it_is_closed() {
        let socket = Private::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let descriptor = socket.as_raw_fd();
        assert!(is_marked(descriptor));
        // While this one lives, no other test's socket has the number.
        let copy = socket.try_clone().unwrap();
        let other = Private::new(copy);
        assert!(is_marked(other.as_raw_fd()) && other.as_raw_fd() != descriptor);
        assert!(place(RawFd::MAX).is_none() && place(-1).is_none());
    }
}
