//! A bounded number of connections. When there are too many, the oldest must go: what a well-behaved caller does there takes
//! milliseconds, so only idle connections become old, and nobody can keep others out with them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// The connections.
#[derive(Debug, Clone)]
pub(super) struct Crowd {
    all: Arc<Mutex<All>>,
    max: usize,
}

#[derive(Debug, Default)]
struct All {
    next: u64,
    by_age: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Crowd {
    pub(super) fn new(max: usize) -> Crowd {
        Crowd { all: Arc::default(), max }
    }

    /// Adds a connection. If there are too many, the oldest place completes.
    pub(super) fn enter(&self) -> Place {
        let (evict, evicted) = oneshot::channel();
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        all.by_age.insert(number, evict);
        if all.by_age.len() > self.max {
            // Dropping the sender completes the receiver.
            drop(all.by_age.pop_first());
        }
        Place { crowd: self.clone(), number, evicted }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection. It completes when newer connections need it, and is free when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Crowd,
    number: u64,
    evicted: oneshot::Receiver<()>,
}

impl Future for Place {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.evicted).poll(cx).map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.crowd.all().by_age.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_connections_must_go() {
        let crowd = Crowd::new(3);
        let mut places: Vec<Place> = (0..5).map(|_| crowd.enter()).collect();
        let mut evicted =
            |at: usize| Pin::new(&mut places[at]).poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready();
        assert_eq!([0, 1, 2, 3, 4].map(&mut evicted), [true, true, false, false, false]);
        drop(places.remove(3));
        let _next = crowd.enter();
        let mut oldest = Pin::new(&mut places[2]);
        assert!(
            oldest.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending(),
            "a place was free"
        );
    }
}
