//! Runs the engine's test bodies ([`bodies`]) over real transports: shared memory, TCP on the loopback with one connection for each pair
//! and with three, shared memory and TCP, and a small transport that exists only here ([`datagrams`]).
//!
//! Each process of such a world is an engine with its own transports, which a thread polls and then sleeps on, as the library
//! does; the test starts its operations meanwhile.

mod datagrams;
mod silent;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use datagrams::Datagrams;

use super::name::ProcessName;
use super::{Bell, Neighbourhood, Routes};
use crate::engine::frame::Envelope;
use crate::engine::tests::bodies::{self, Memory, World};
use crate::engine::{Engine, Mode, Outcome, Peer, Source, Started, TagMatch, Transport};
use crate::settings::Settings;

/// The deadline for everything that a test waits for, on a machine that may be busy.
const DEADLINE: Duration = Duration::from_secs(30);
/// Polls without result before a process sleeps: few, so that it sometimes does.
const TURNS: u32 = 20;
/// The longest sleep; a process that has something to send rings the bell.
const SLEEP: Duration = Duration::from_secs(5);

/// A transport whose process can sleep.
trait Station: Transport + Send + Sized + 'static {
    /// Ends the sleep of its process's thread.
    type Bell: std::fmt::Debug + Send;

    /// Called before a sleep of at most this time; `None` if something has arrived.
    fn prepare_sleep(&mut self, limit: Duration) -> Option<Nap<Self::Bell>>;

    fn ring(bell: &Self::Bell);

    /// Called after the sleep.
    fn wake(&mut self) {}

    /// Continues what needs the addresses of other processes, `addresses[rank]`.
    fn connect(&mut self, _addresses: &[Option<String>]) {}
}

/// A sleep that is about to begin, without the state.
struct Nap<B> {
    bell: B,
    sleep: Box<dyn FnOnce()>,
}

impl Station for Routes {
    type Bell = Bell;

    fn prepare_sleep(&mut self, limit: Duration) -> Option<Nap<Bell>> {
        let sleep = Routes::prepare_sleep(self, limit)?;
        Some(Nap { bell: sleep.bell(), sleep: Box::new(move || sleep.sleep()) })
    }

    fn ring(bell: &Bell) {
        bell.ring();
    }

    fn wake(&mut self) {
        Routes::wake(self);
    }

    fn connect(&mut self, addresses: &[Option<String>]) {
        while let Some(peer) = self.next_wanted() {
            let address = addresses[peer.0 as usize].as_deref();
            self.locate(peer, address.ok_or_else(|| "it has none".into()));
        }
    }
}

/// The transport of a world.
#[derive(Debug, Clone, Copy)]
enum Over {
    /// All are on one node.
    SharedMemory,
    /// Each is on a node of its own.
    Tcp,
    /// The same, with three connections for each pair.
    Rails,
    /// They alternate between two nodes.
    Both,
}

/// The state that the test and the process's thread share.
#[derive(Debug)]
struct Process<T: Station> {
    engine: Engine<T>,
    /// Wakes the thread while it sleeps.
    asleep: Option<T::Bell>,
    leaves: bool,
}

#[derive(Debug)]
struct Real<T: Station> {
    processes: Arc<[Mutex<Process<T>>]>,
    threads: Vec<JoinHandle<()>>,
    long: usize,
    since: Instant,
}

/// A number that no other world of this process has.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The transports of so many processes of a new job.
fn routes_of(size: usize, over: Over) -> Vec<Routes> {
    let job = format!("worlds {} {}", std::process::id(), next_number());
    let node = |rank| match over {
        Over::SharedMemory => 0,
        Over::Tcp | Over::Rails => rank,
        Over::Both => rank % 2,
    };
    let interface = match over {
        Over::SharedMemory | Over::Tcp | Over::Both => "127.0.0.1",
        Over::Rails => "127.0.0.1,127.0.0.2,127.0.0.3",
    };
    let settings = Settings { interface: Some(interface.into()), ..Settings::default() };
    let nodes: Vec<u32> = (0..size as u32).map(node).collect();
    let routes = |rank| {
        let name = ProcessName::new(job.as_bytes(), rank);
        Routes::new(Neighbourhood {
            name,
            nodes: &nodes,
            settings: &settings,
            advertised: None,
            dial_out: Vec::new(),
            prepared: None,
        })
        .expect("there is room for one more")
    };
    (0..size as u32).map(routes).collect()
}

impl Real<Routes> {
    fn over_routes(size: usize, over: Over) -> Self {
        let routes = routes_of(size, over);
        let addresses: Arc<[Option<String>]> = routes.iter().map(Routes::address).collect();
        // Longer than one frame of any transport in use, and than several of shared memory's.
        let long = if addresses[0].is_some() { 3 << 20 } else { 200 << 10 };
        Self::new(routes, addresses, long)
    }
}

impl Real<Datagrams> {
    fn over_datagrams(size: usize) -> Self {
        let (number, ranks) = (next_number(), size as u32);
        let ends = (0..ranks).map(|rank| Datagrams::new(number, rank, ranks)).collect();
        Self::new(ends, vec![None; size].into(), 5 * datagrams::LIMITS.part)
    }
}

impl<T: Station> Real<T> {
    fn new(ends: Vec<T>, addresses: Arc<[Option<String>]>, long: usize) -> Self {
        let size = ends.len();
        let process = |(rank, end)| {
            let engine = Engine::new(Peer(rank as u32), end);
            Mutex::new(Process { engine, asleep: None, leaves: false })
        };
        let processes: Arc<[Mutex<Process<T>>]> = ends.into_iter().enumerate().map(process).collect();
        let live = |rank| {
            let (processes, addresses) = (Arc::clone(&processes), Arc::clone(&addresses));
            thread::spawn(move || live::<T>(&processes[rank], &addresses))
        };
        Self { threads: (0..size).map(live).collect(), processes, long, since: Instant::now() }
    }
}

/// The main loop of a process.
fn live<T: Station>(process: &Mutex<Process<T>>, addresses: &[Option<String>]) {
    let mut idle = 0;
    loop {
        let mut held = hold(process);
        if held.leaves {
            return;
        }
        let moved = held.engine.progress();
        let end = held.engine.transport_mut();
        end.connect(addresses);
        idle = if moved { 0 } else { idle + 1 };
        if idle < TURNS {
            drop(held);
            thread::yield_now();
            continue;
        }
        let Some(nap) = Station::prepare_sleep(end, SLEEP) else { continue };
        held.asleep = Some(nap.bell);
        drop(held);
        (nap.sleep)();
        let mut held = hold(process);
        held.asleep = None;
        Station::wake(held.engine.transport_mut());
    }
}

fn hold<T: Station>(process: &Mutex<Process<T>>) -> MutexGuard<'_, Process<T>> {
    process.lock().expect("no thread has panicked with the engine locked")
}

/// A process's engine, locked by the test; the process's thread is woken when the lock is released.
struct Held<'a, T: Station>(MutexGuard<'a, Process<T>>);

impl<T: Station> Deref for Held<'_, T> {
    type Target = Engine<T>;

    fn deref(&self) -> &Engine<T> {
        &self.0.engine
    }
}

impl<T: Station> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut Engine<T> {
        &mut self.0.engine
    }
}

impl<T: Station> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if let Some(bell) = &self.0.asleep {
            T::ring(bell);
        }
    }
}

impl<T: Station> World for Real<T> {
    type Carrier = T;
    type Held<'a> = Held<'a, T>;

    fn size(&self) -> usize {
        self.processes.len()
    }

    fn long(&self) -> usize {
        self.long
    }

    fn engine(&mut self, rank: usize) -> Held<'_, T> {
        Held(hold(&self.processes[rank]))
    }

    /// Lets the other processes run.
    fn step(&mut self) {
        thread::yield_now();
    }

    fn has_patience(&self, _: usize) -> bool {
        self.since.elapsed() < DEADLINE
    }
}

impl<T: Station> Drop for Real<T> {
    fn drop(&mut self) {
        for process in &*self.processes {
            // A thread that panicked with the lock held has already reported it.
            let Ok(process) = process.lock() else { continue };
            Held(process).0.leaves = true;
        }
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        assert!(thread::panicking() || ended.iter().all(Result::is_ok), "a process has failed");
    }
}

/// Makes a test that runs this body in worlds of several sizes, over each transport, and over two at once.
macro_rules! in_worlds {
    ($name:ident, $body:expr) => {
        #[test]
        fn $name() {
            for size in [2, 3, 5] {
                for over in [Over::SharedMemory, Over::Tcp, Over::Rails, Over::Both] {
                    named(&format!("{size} processes over {over:?}"), || $body(&mut Real::over_routes(size, over)));
                }
                named(&format!("{size} processes over datagrams"), || $body(&mut Real::over_datagrams(size)));
            }
        }
    };
}

/// Says where a body has failed.
fn named(place: &str, body: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        eprintln!("{place}");
        std::panic::resume_unwind(panic);
    }
}

fn everybody_at_once(world: &mut impl World) {
    let seed = world.size() as u64;
    bodies::everybody_at_once(world, seed, 40);
}

in_worlds!(a_message_travels_round_the_ring, bodies::ring);
in_worlds!(each_process_receives_from_all_others_in_order, everybody_at_once);
in_worlds!(a_message_that_does_not_fit_is_reported, bodies::truncated);
in_worlds!(a_probed_message_is_the_one_received, bodies::probed);
in_worlds!(a_cancelled_receive_takes_no_message, bodies::cancelled);
in_worlds!(a_send_that_cannot_be_cancelled_becomes_independent_of_its_memory, bodies::detached);
in_worlds!(a_synchronous_send_waits_for_its_receive, bodies::synchronous);
in_worlds!(messages_wait_for_their_communicator, bodies::opened_late);

#[test]
fn a_process_whose_socket_is_closed_is_lost_after_its_last_message() {
    let number = next_number();
    let [mut here, mut there] = [0, 1].map(|rank| Engine::new(Peer(rank), Datagrams::new(number, rank, 2)));
    let members: Arc<[Peer]> = [Peer(0), Peer(1)].into();
    here.open(1, Arc::clone(&members));
    there.open(1, members);
    let last = Memory::of(vec![7; 4]);
    let envelope = |rank| Envelope { context: 1, rank, tag: 3 };
    let sent = there.send(envelope(1), Peer(0), Mode::Standard, last.buffer());
    assert!(matches!(sent, Started::Over(Outcome { error: None, .. })), "{sent:?}");
    drop(there);
    let Started::Pending(id) = here.send(envelope(0), Peer(1), Mode::Synchronous, last.buffer()) else {
        panic!("the synchronous send ended without a receive")
    };
    let mut outcome = None;
    let since = Instant::now();
    while outcome.is_none() && since.elapsed() < DEADLINE {
        here.progress();
        outcome = here.take(id);
    }
    let error = outcome.and_then(|outcome| outcome.error).expect("the receiver is lost");
    assert_eq!(error.text, "process 1 is lost: its socket is closed");
    let memory = Memory::room(4);
    let received = here.recv(1, Source::Rank(1), TagMatch::Value(3), memory.buffer());
    assert!(matches!(received, Started::Over(Outcome { error: None, bytes: 4, .. })), "{received:?}");
    assert_eq!(memory.bytes(), [7; 4]);
}
