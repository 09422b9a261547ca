//! A bounded number of connections. When there are too many, the oldest of the source with the most must go: what a well-behaved
//! caller does there takes milliseconds, so only idle connections become old, and no source can keep others out with them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
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
    by_age: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    by_source: HashMap<IpAddr, BTreeSet<u64>>,
}

impl All {
    fn remove(&mut self, number: u64) {
        // Dropping the sender completes the receiver.
        let Some((source, _)) = self.by_age.remove(&number) else { return };
        if let Some(numbers) = self.by_source.get_mut(&source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }

    /// Returns the oldest connection of the source that has the most. Cost: looks at every source.
    fn most_dispensable(&self) -> Option<u64> {
        self.by_source.values().max_by_key(|numbers| numbers.len()).and_then(|numbers| numbers.first().copied())
    }
}

impl Crowd {
    pub(super) fn new(max: usize) -> Crowd {
        Crowd { all: Arc::default(), max }
    }

    /// Adds a connection from an address. If there are too many, the place of another one completes.
    pub(super) fn enter(&self, source: IpAddr) -> Place {
        let (evict, evicted) = oneshot::channel();
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        if all.by_age.len() >= self.max
            && let Some(other) = all.most_dispensable()
        {
            all.remove(other);
        }
        all.by_age.insert(number, (source, evict));
        all.by_source.entry(source).or_default().insert(number);
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
        self.crowd.all().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    fn is_evicted(place: &mut Place) -> bool {
        Pin::new(place).poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_of_too_many_connections_must_go() {
        let crowd = Crowd::new(3);
        let mut places: Vec<Place> = (0..5).map(|_| crowd.enter(HERE)).collect();
        let evicted: Vec<bool> = places.iter_mut().map(is_evicted).collect();
        assert_eq!(evicted, [true, true, false, false, false]);
        drop(places.remove(3));
        let _next = crowd.enter(HERE);
        assert!(!is_evicted(&mut places[2]), "a place was free");
    }

    #[test]
    fn a_source_with_many_connections_evicts_its_own() {
        let crowd = Crowd::new(8);
        let mut other = crowd.enter(THERE);
        let mut many: Vec<Place> = (0..100).map(|_| crowd.enter(HERE)).collect();
        assert!(!is_evicted(&mut other));
        let mut others: Vec<Place> = (0..3).map(|_| crowd.enter(THERE)).collect();
        assert!(!others.iter_mut().any(is_evicted));
        assert_eq!(many.iter_mut().filter_map(|place| (!is_evicted(place)).then_some(())).count(), 4);
    }
}
