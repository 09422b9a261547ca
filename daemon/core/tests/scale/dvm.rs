//! All daemons of a DVM, and the messages between them. Messages arrive in the order in which they were sent.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_core::rsd::{
    Answer, Approach, Call, Caller, Effect, Input, KnownStep, LinkId, Logged, Memory, ReqId, Start, jobs_of,
};
use rsd_core::{JobId, Now, Rsd, Tuning};
use rsd_proto::v1::{self as wire, Down, JobEvent, Up, down, up};

use crate::leaf::Leaf;
use crate::meter::{Cost, Held, Shared};

/// Who asks.
const OWNER: Caller = Caller { uid: 1000, is_admin: true };
/// The slots of each node, and its ranks.
pub(crate) const RANKS: u32 = 128;

/// One end of a link, at the upper daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Daemon(usize),
    Step(JobId),
}

#[derive(Debug)]
struct Daemon {
    core: Option<Rsd>,
    held: Held,
    links: HashMap<LinkId, Peer>,
    next_link: LinkId,
    /// The parent, and its number for the link.
    parent: Option<(usize, LinkId)>,
    children: usize,
}

/// What arrives at a daemon.
#[derive(Debug)]
enum Arrival {
    /// From a parent, over the parent's link.
    Down(usize, LinkId, Bytes),
    Up(LinkId, Bytes),
    Closed(usize, LinkId),
    /// The log has so many events.
    Written(JobId, u64),
    Load(u64),
}

pub(crate) struct Dvm {
    daemons: Vec<Daemon>,
    of_node: HashMap<u32, usize>,
    queue: VecDeque<(usize, u32, Arrival)>,
    now: Duration,
    round: u32,
    cost: Cost,
    next_req: ReqId,
    pub(crate) answers: HashMap<ReqId, Answer>,
    pub(crate) leaves: HashMap<(usize, JobId), Leaf>,
    memory: Memory,
    kept: Vec<wire::Kept>,
    logs: HashMap<JobId, Vec<JobEvent>>,
    /// The last result of a fence that was encoded, with its job and number.
    fence: Option<(JobId, u64, Bytes)>,
}

fn me(index: usize) -> wire::NodeInfo {
    let host = format!("10.{}.{}.{}", index >> 16, (index >> 8) & 255, index & 255);
    let addresses = vec![wire::NodeAddress { host: host.clone(), interface: "eth0".into() }];
    let inventory = wire::Inventory {
        slots: RANKS,
        hostname: format!("node{index:05}"),
        machine: format!("machine-{index:05}"),
        addresses,
        ..Default::default()
    };
    wire::NodeInfo {
        name: format!("node{index:05}"),
        listen: format!("{host}:7117"),
        may_listen: true,
        reached: Some(host),
        inventory: Some(inventory),
        ..Default::default()
    }
}

impl Dvm {
    /// A DVM of only the head, to which daemons can be added.
    pub(crate) fn new() -> Dvm {
        let mut dvm = Dvm {
            daemons: Vec::new(),
            of_node: HashMap::new(),
            queue: VecDeque::new(),
            now: Duration::from_secs(1),
            round: 0,
            cost: Cost::default(),
            next_req: 0,
            answers: HashMap::new(),
            leaves: HashMap::new(),
            memory: Memory::default(),
            kept: Vec::new(),
            logs: HashMap::new(),
            fence: None,
        };
        dvm.add(Start { me: me(0), dvm: "d0".into(), ..Start::default() });
        dvm
    }

    fn time(&self) -> Now {
        Now { mono: self.now, unix_ms: 1_700_000_000_000 + self.now.as_millis() as u64 }
    }

    fn add(&mut self, start: Start) -> usize {
        let now = self.time();
        let (held, links) = (Held::default(), HashMap::new());
        let mut daemon = Daemon { core: None, held, links, next_link: 1, parent: None, children: 0 };
        daemon.core = Some(daemon.held.measure(|| Rsd::new(now, start, Tuning::default()), |_| 0));
        self.daemons.push(daemon);
        self.daemons.len() - 1
    }

    /// Adds a daemon and has it join.
    pub(crate) fn join(&mut self) {
        let start = Start { me: me(self.daemons.len()), head_addr: Some("10.0.0.0:7117".into()), ..Start::default() };
        let index = self.add(start);
        self.dial(index, 0, false);
        self.run();
    }

    fn dial(&mut self, index: usize, parent: usize, redirected: bool) {
        let daemon = &mut self.daemons[index];
        let core = daemon.core.as_mut().expect("it runs");
        let hello = daemon.held.measure(
            || {
                let hello = core.hello(Approach { redirected, ..Approach::default() });
                Bytes::from(Up { body: Some(up::Body::Hello(hello)) }.encode_to_vec())
            },
            Bytes::len,
        );
        let upper = &mut self.daemons[parent];
        let link = upper.next_link;
        upper.next_link += 1;
        upper.links.insert(link, Peer::Daemon(index));
        self.daemons[index].parent = Some((parent, link));
        self.send(index, parent, hello.len());
        self.queue.push_back((parent, self.round + 1, Arrival::Up(link, hello)));
    }

    /// Connects a step to its daemon.
    pub(crate) fn attach(&mut self, index: usize, job: JobId, hello: wire::StepHello) -> LinkId {
        let daemon = &mut self.daemons[index];
        let link = daemon.next_link;
        daemon.next_link += 1;
        daemon.links.insert(link, Peer::Step(job));
        let hello = wire::Hello { version: String::new(), who: Some(wire::hello::Who::Step(hello)) };
        let hello = Up { body: Some(up::Body::Hello(hello)) }.encode_to_vec().into();
        self.queue.push_back((index, self.round, Arrival::Up(link, hello)));
        link
    }

    /// Sends a step's messages to its daemon.
    pub(crate) fn step_sends(&mut self, index: usize, link: LinkId, ups: Vec<up::Body>) {
        for body in ups {
            let up = Up { body: Some(body) }.encode_to_vec().into();
            self.queue.push_back((index, self.round, Arrival::Up(link, up)));
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: usize) {
        let bytes = bytes as u64;
        self.cost.messages += 1;
        self.cost.bytes += bytes;
        self.cost.largest = self.cost.largest.max(bytes);
        if from == 0 || to == 0 {
            self.cost.at_head += 1;
            self.cost.head_bytes += bytes;
        }
        self.cost.rounds = self.cost.rounds.max(self.round + 1);
    }

    /// Runs until nothing is under way.
    pub(crate) fn run(&mut self) {
        while let Some((index, round, arrival)) = self.queue.pop_front() {
            self.round = round;
            self.now += Duration::from_nanos(100);
            self.arrive(index, arrival);
        }
        self.round = 0;
    }

    fn arrive(&mut self, index: usize, arrival: Arrival) {
        match arrival {
            Arrival::Up(link, packet) => self.handle(index, |held| {
                let up = Up::decode(held.received(&packet)).expect("what was encoded decodes");
                match up.body {
                    Some(up::Body::Hello(hello)) => Input::Hello { link, hello, uid: OWNER.uid },
                    body => Input::Up { link, up: Up { body } },
                }
            }),
            Arrival::Down(from, link, packet) => {
                if self.daemons[index].parent != Some((from, link)) {
                    return;
                }
                let is_redirect = matches!(small(&packet), Some(Down { body: Some(down::Body::Redirect(_)) }));
                let mut to = None;
                self.handle(index, |held| {
                    let down = Down::decode(held.received(&packet)).expect("what was encoded decodes");
                    match down.body {
                        Some(down::Body::Welcome(welcome)) => Input::Welcome(welcome),
                        Some(down::Body::Redirect(redirect)) => {
                            to = Some((redirect.node, redirect.parent));
                            Input::Redirected(redirect)
                        }
                        body => Input::Down(Down { body }),
                    }
                });
                if let Some((node, parent)) = to.filter(|_| is_redirect) {
                    self.of_node.insert(node, index);
                    let parent = self.index_of(parent);
                    self.dial(index, parent, true);
                }
            }
            Arrival::Closed(from, link) => {
                if self.daemons[index].parent == Some((from, link)) {
                    self.handle(index, |_| Input::ParentLost);
                }
            }
            Arrival::Written(log, events) => self.handle(index, |_| Input::LogWritten { log, events, lost_bytes: 0 }),
            Arrival::Load(probe) => {
                self.handle(index, |_| Input::Load {
                    probe,
                    load: wire::NodeLoad { load1: 0.5, ..Default::default() },
                });
            }
        }
    }

    pub(crate) fn index_of(&self, node: u32) -> usize {
        if node == 0 { 0 } else { self.of_node[&node] }
    }

    pub(crate) fn node(&self, index: usize) -> u32 {
        self.daemons[index].core.as_ref().expect("it runs").node()
    }

    fn handle(&mut self, index: usize, input: impl FnOnce(&Shared) -> Input) {
        let now = self.time();
        let fence = &mut self.fence;
        let daemon = &mut self.daemons[index];
        let Some(core) = daemon.core.as_mut() else { return };
        let shared = daemon.held.shared();
        let known_fence = fence.as_ref().map(|(_, _, bytes)| bytes.as_ptr());
        let (effects, packets) = daemon.held.measure(
            || {
                let mut effects = Vec::new();
                core.handle(now, input(&shared), &mut effects);
                // The same message is encoded once for all links.
                let mut packets: Vec<(Option<LinkId>, Bytes)> = Vec::new();
                let mut last: Option<(Down, Bytes)> = None;
                let mut others = Vec::new();
                for effect in effects {
                    match effect {
                        Effect::Down { link, down } => {
                            let known = last.as_ref().filter(|(before, _)| is_same(before, &down));
                            let bytes = known.map_or_else(|| encoded(&down, fence), |(_, bytes)| bytes.clone());
                            packets.push((Some(link), bytes.clone()));
                            last = Some((down, bytes));
                        }
                        Effect::Up(up) => packets.push((None, up.encode_to_vec().into())),
                        other => others.push(other),
                    }
                }
                (others, packets)
            },
            |(effects, packets)| {
                // This one was not encoded here.
                let mut seen: Vec<*const u8> = known_fence.into_iter().collect();
                let mut bytes = effects.iter().map(size_of).sum::<usize>();
                bytes += effects.capacity() * std::mem::size_of::<Effect>();
                bytes += packets.capacity() * std::mem::size_of::<(Option<LinkId>, Bytes)>();
                for (_, packet) in packets {
                    if !seen.contains(&packet.as_ptr()) {
                        seen.push(packet.as_ptr());
                        bytes += packet.len();
                    }
                }
                bytes
            },
        );
        for (link, packet) in packets {
            self.post(index, link, packet);
        }
        for effect in effects {
            self.perform(index, effect);
        }
    }

    fn post(&mut self, index: usize, link: Option<LinkId>, packet: Bytes) {
        let Some(link) = link else {
            let (parent, link) = self.daemons[index].parent.expect("it has a parent");
            self.send(index, parent, packet.len());
            return self.queue.push_back((parent, self.round + 1, Arrival::Up(link, packet)));
        };
        match self.daemons[index].links.get(&link).copied() {
            Some(Peer::Daemon(child)) => {
                self.send(index, child, packet.len());
                if let Some(Down { body: Some(down::Body::Welcome(welcome)) }) = small(&packet) {
                    self.of_node.insert(welcome.node, child);
                    self.daemons[index].children += 1;
                }
                self.queue.push_back((child, self.round + 1, Arrival::Down(index, link, packet)));
            }
            Some(Peer::Step(job)) => {
                let Some(mut leaf) = self.leaves.remove(&(index, job)) else { return };
                let down = Down::decode(packet).expect("what was encoded decodes");
                let ups = leaf.on_down(down, self.time());
                if leaf.is_over() {
                    self.daemons[index].links.remove(&link);
                    self.handle(index, |_| Input::LinkClosed { link });
                } else {
                    self.leaves.insert((index, job), leaf);
                }
                self.step_sends(index, link, ups);
            }
            None => {}
        }
    }

    fn perform(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Close { link } => {
                if let Some(Peer::Daemon(child)) = self.daemons[index].links.remove(&link) {
                    self.queue.push_back((child, self.round, Arrival::Closed(index, link)));
                }
            }
            Effect::StartStep(launch) => {
                let (node, is_last) = (self.node(index), index + 1 == self.daemons.len());
                let (leaf, hello) = Leaf::new(node, &launch, is_last);
                let job = launch.job;
                let link = self.attach(index, job, hello);
                let leaf = leaf.attached(link);
                self.leaves.insert((index, job), leaf);
            }
            Effect::MeasureLoad { probe } => self.queue.push_back((index, self.round, Arrival::Load(probe))),
            Effect::Answer { req, answer } => drop(self.answers.insert(req, answer)),
            Effect::Log { job, event } => {
                self.cost.written += event.encoded_len() as u64;
                let log = self.logs.entry(job).or_default();
                log.push(*event);
                let events = log.len() as u64;
                // The thread that writes logs takes all that there is.
                match self.queue.back_mut() {
                    Some((_, _, Arrival::Written(of, written))) if *of == job => *written = events,
                    _ => self.queue.push_back((index, self.round, Arrival::Written(job, events))),
                }
            }
            Effect::DropLog(job) => drop(self.logs.remove(&job)),
            Effect::Remember(memory) => self.memory = memory,
            Effect::Keep(kept) => {
                self.cost.written += kept.iter().map(|kept| kept.encoded_len() as u64).sum::<u64>();
                self.kept.extend(kept);
            }
            Effect::KillStep { .. }
            | Effect::ForgetStep(_)
            | Effect::Member { .. }
            | Effect::ForgetKept
            | Effect::Ancestors(_)
            | Effect::Identity { .. }
            | Effect::OpenPort
            | Effect::StepDown(_)
            | Effect::Exit
            | Effect::Down { .. }
            | Effect::Up(_) => {}
        }
    }

    /// Asks the head, and runs until nothing is under way. Returns the request's number.
    pub(crate) fn call(&mut self, call: Call) -> ReqId {
        self.next_req += 1;
        let req = self.next_req;
        self.handle(0, |_| Input::Call { req, caller: OWNER, call });
        self.run();
        req
    }

    /// Time passes, and the head acts.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.handle(0, |_| Input::Tick);
        self.run();
    }

    /// A daemon that has no children, with its node: it and its link are gone.
    pub(crate) fn lose(&mut self, index: usize) {
        let (parent, link) = self.daemons[index].parent.take().expect("it has a parent");
        self.daemons[index].core = None;
        self.leaves.retain(|(of, _), _| *of != index);
        self.daemons[parent].links.remove(&link);
        self.handle(parent, |_| Input::LinkClosed { link });
        self.run();
    }

    /// The head is killed, and started again; its children reconnect.
    pub(crate) fn restart_head(&mut self) {
        let known = self.leaves.iter().filter(|((index, _), _)| *index == 0).map(|((_, job), leaf)| KnownStep {
            job: *job,
            map: leaf.map(),
            group: Bytes::new(),
            owner: None,
        });
        let known: Vec<KnownStep> = known.collect();
        let start = Start { me: me(0), dvm: "d0".into(), memory: self.memory, steps: known, ..Start::default() };
        let now = self.time();
        let children: Vec<usize> = (1..self.daemons.len())
            .filter(|index| self.daemons[*index].parent.is_some_and(|(of, _)| of == 0))
            .collect();
        let head = &mut self.daemons[0];
        (head.core, head.held) = (None, Held::default());
        head.links.clear();
        head.core = Some(head.held.measure(|| Rsd::new(now, start, Tuning::default()), |_| 0));
        let alive = jobs_of(&self.kept).alive;
        let logs = self.logs.iter().filter(|(job, _)| alive.contains(job));
        let logs: Vec<Logged> =
            logs.map(|(job, events)| Logged { job: *job, events: events.clone(), ..Logged::default() }).collect();
        self.logs.iter_mut().for_each(|(_, log)| log.clear());
        let records = std::mem::take(&mut self.kept);
        // As read from the disk: the head's own copies.
        self.handle(0, |_| Input::Kept { records: records.clone(), logs: logs.clone() });
        self.kept.splice(0..0, records);
        let own: Vec<JobId> = self.leaves.keys().filter(|(index, _)| *index == 0).map(|(_, job)| *job).collect();
        for job in own {
            let hello = self.leaves[&(0, job)].hello();
            let link = self.attach(0, job, hello);
            let leaf = self.leaves.remove(&(0, job)).expect("it is there");
            self.leaves.insert((0, job), leaf.attached(link));
        }
        for child in &children {
            self.handle(*child, |_| Input::ParentLost);
        }
        self.run();
        for child in children {
            self.dial(child, 0, true);
        }
        self.run();
    }

    /// Begins to measure.
    pub(crate) fn begin(&mut self) {
        self.cost = Cost::default();
        self.daemons.iter_mut().for_each(|daemon| daemon.held.begin());
    }

    /// Returns what was measured.
    pub(crate) fn end(&mut self) -> Cost {
        let mut cost = std::mem::take(&mut self.cost);
        let of_leaf = |daemon: &&Daemon| daemon.children == 0;
        let of_inner = |daemon: &&Daemon| daemon.children > 0;
        let most = |held: &mut dyn Iterator<Item = &Daemon>| {
            held.fold((0, Duration::ZERO), |(memory, time), it| (memory.max(it.held.most()), time.max(it.held.time())))
        };
        let others = || self.daemons.iter().skip(1);
        let kinds = [
            most(&mut self.daemons.iter().take(1)),
            most(&mut others().filter(of_inner)),
            most(&mut others().filter(of_leaf)),
        ];
        cost.memory = kinds.map(|(memory, _)| memory);
        cost.time = kinds.map(|(_, time)| time);
        cost
    }

    pub(crate) fn len(&self) -> usize {
        self.daemons.len()
    }

    /// Has every step of a job do something.
    pub(crate) fn steps(&mut self, job: JobId, mut act: impl FnMut(&mut Leaf) -> Vec<up::Body>) {
        for index in 0..self.daemons.len() {
            let Some(leaf) = self.leaves.get_mut(&(index, job)) else { continue };
            let (link, ups) = (leaf.link(), act(leaf));
            self.step_sends(index, link, ups);
        }
        self.run();
    }
}

/// Decodes a message unless it is large: those that are looked for are not.
fn small(packet: &Bytes) -> Option<Down> {
    (packet.len() < 1 << 16).then(|| Down::decode(packet.clone()).ok()).flatten()
}

/// Whether two messages that a daemon sends after one input are the same.
fn is_same(before: &Down, after: &Down) -> bool {
    match (&before.body, &after.body) {
        (Some(down::Body::FenceDown(before)), Some(down::Body::FenceDown(after))) => {
            (before.job, before.epoch) == (after.job, after.epoch)
        }
        (before, after) => before == after,
    }
}

/// Encodes a message. All daemons send the same result of a fence, which is encoded once for all of them: the copies would not fit.
fn encoded(down: &Down, fence: &mut Option<(JobId, u64, Bytes)>) -> Bytes {
    let Some(down::Body::FenceDown(wire::FenceDown { job, epoch, .. })) = &down.body else {
        return down.encode_to_vec().into();
    };
    match fence {
        Some((of, number, bytes)) if (*of, *number) == (*job, *epoch) => bytes.clone(),
        _ => {
            let bytes = Bytes::from(down.encode_to_vec());
            *fence = Some((*job, *epoch, bytes.clone()));
            bytes
        }
    }
}

/// The memory of an effect that leaves the daemon.
fn size_of(effect: &Effect) -> usize {
    match effect {
        // Little, or shared with what stays.
        Effect::Log { event, .. } => std::mem::size_of::<JobEvent>() + event.encoded_len(),
        Effect::Keep(kept) => kept.iter().map(|kept| std::mem::size_of::<wire::Kept>() + kept.encoded_len()).sum(),
        _ => 0,
    }
}
