//! Runs the engine's test bodies ([`bodies`]) over real transports: shared memory, TCP on the loopback, and both.
//!
//! Each process of such a world is an engine with its own transports, which a thread polls and then sleeps on, as the library
//! does; the test starts its operations meanwhile.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::name::ProcessName;
use super::{Bell, Neighbourhood, Routes};
use crate::engine::tests::bodies::{self, World};
use crate::engine::{Engine, Peer};
use crate::settings::Settings;

/// The deadline for everything that a test waits for, on a machine that may be busy.
const DEADLINE: Duration = Duration::from_secs(30);
/// Polls without result before a process sleeps: few, so that it sometimes does.
const TURNS: u32 = 20;
/// The longest sleep; a process that has something to send rings the bell.
const SLEEP: Duration = Duration::from_secs(5);

/// The nodes of the processes of a world.
#[derive(Debug, Clone, Copy)]
enum Nodes {
    /// All on one node: they share memory.
    One,
    /// Each on a node of its own: they communicate over TCP.
    Each,
    /// Alternating between two nodes.
    Two,
}

/// The state that the test and the process's thread share.
#[derive(Debug)]
struct Process {
    engine: Engine<Routes>,
    /// Wakes the thread while it sleeps.
    asleep: Option<Bell>,
    leaves: bool,
}

#[derive(Debug)]
struct Real {
    processes: Arc<[Mutex<Process>]>,
    threads: Vec<JoinHandle<()>>,
    long: usize,
    since: Instant,
}

impl Real {
    fn new(size: usize, nodes: Nodes) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let job = format!("worlds {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let node = |rank| match nodes {
            Nodes::One => 0,
            Nodes::Each => rank,
            Nodes::Two => rank % 2,
        };
        let settings = Settings { interface: Some("127.0.0.1".into()), ..Settings::default() };
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
        let routes: Vec<Routes> = (0..size as u32).map(routes).collect();
        let addresses: Arc<[Option<String>]> = routes.iter().map(Routes::address).collect();
        let process = |(rank, routes)| {
            let engine = Engine::new(Peer(rank as u32), routes);
            Mutex::new(Process { engine, asleep: None, leaves: false })
        };
        let processes: Arc<[Mutex<Process>]> = routes.into_iter().enumerate().map(process).collect();
        let live = |rank| {
            let (processes, addresses) = (Arc::clone(&processes), Arc::clone(&addresses));
            thread::spawn(move || live(&processes[rank], &addresses))
        };
        // Longer than one frame of any transport in use, and than several of shared memory's.
        let long = if addresses[0].is_some() { 3 << 20 } else { 200 << 10 };
        Self { threads: (0..size).map(live).collect(), processes, long, since: Instant::now() }
    }
}

/// The main loop of a process.
fn live(process: &Mutex<Process>, addresses: &[Option<String>]) {
    let mut idle = 0;
    loop {
        let mut held = hold(process);
        if held.leaves {
            return;
        }
        let moved = held.engine.progress();
        let routes = held.engine.transport_mut();
        while let Some(peer) = routes.next_wanted() {
            let address = addresses[peer.0 as usize].as_deref();
            routes.locate(peer, address.ok_or_else(|| "it has none".into()));
        }
        idle = if moved { 0 } else { idle + 1 };
        if idle < TURNS {
            drop(held);
            thread::yield_now();
            continue;
        }
        let Some(sleep) = routes.prepare_sleep(SLEEP) else { continue };
        held.asleep = Some(sleep.bell());
        drop(held);
        sleep.sleep();
        let mut held = hold(process);
        held.asleep = None;
        held.engine.transport_mut().wake();
    }
}

fn hold(process: &Mutex<Process>) -> MutexGuard<'_, Process> {
    process.lock().expect("no thread has panicked with the engine locked")
}

/// A process's engine, locked by the test; the process's thread is woken when the lock is released.
struct Held<'a>(MutexGuard<'a, Process>);

impl Deref for Held<'_> {
    type Target = Engine<Routes>;

    fn deref(&self) -> &Engine<Routes> {
        &self.0.engine
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Engine<Routes> {
        &mut self.0.engine
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(bell) = &self.0.asleep {
            bell.ring();
        }
    }
}

impl World for Real {
    type Carrier = Routes;
    type Held<'a> = Held<'a>;

    fn size(&self) -> usize {
        self.processes.len()
    }

    fn long(&self) -> usize {
        self.long
    }

    fn engine(&mut self, rank: usize) -> Held<'_> {
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

impl Drop for Real {
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

/// Runs in worlds of several sizes, over each transport and over both.
fn in_worlds(body: impl Fn(&mut Real)) {
    for nodes in [Nodes::One, Nodes::Each, Nodes::Two] {
        for size in [2, 3, 5] {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut Real::new(size, nodes))));
            if let Err(panic) = outcome {
                eprintln!("{size} processes, on nodes: {nodes:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn a_message_travels_round_the_ring() {
    in_worlds(bodies::ring);
}

#[test]
fn each_process_receives_from_all_others_in_order() {
    in_worlds(|world| {
        let seed = world.size() as u64;
        bodies::everybody_at_once(world, seed, 40);
    });
}

#[test]
fn a_message_that_does_not_fit_is_reported() {
    in_worlds(bodies::truncated);
}

#[test]
fn a_probed_message_is_the_one_received() {
    in_worlds(bodies::probed);
}

#[test]
fn a_cancelled_receive_takes_no_message() {
    in_worlds(bodies::cancelled);
}

#[test]
fn a_send_that_cannot_be_cancelled_becomes_independent_of_its_memory() {
    in_worlds(bodies::detached);
}

#[test]
fn a_synchronous_send_waits_for_its_receive() {
    in_worlds(bodies::synchronous);
}

#[test]
fn messages_wait_for_their_communicator() {
    in_worlds(bodies::opened_late);
}
