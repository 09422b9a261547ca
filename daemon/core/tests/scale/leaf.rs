//! The steps of a job: a real one on one node, which serves 128 ranks, and models of it on the others, because the launch of a job on ten
//! thousand nodes takes a megabyte in each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_core::step::{self, Status, Step, Stream};
use rsd_core::taskmap::TaskMap;
use rsd_core::{JobId, Now, Tuning};
use rsd_proto::v1::{self as wire, Down, Kv, KvBatch, NodePut, RankExit, Usage, down, rank_exit, up};

use crate::dvm::RANKS;

const SIGTERM: i32 = 15;

#[derive(Debug)]
pub(crate) struct Leaf {
    job: JobId,
    node: u32,
    first: u32,
    wire_map: wire::TaskMap,
    namespace: String,
    link: u64,
    fence: u64,
    fences_passed: u64,
    sent: Vec<up::Body>,
    fetching: Fetching,
    exits: Vec<RankExit>,
    done: Option<up::Body>,
    attached_before: bool,
    is_over: bool,
    real: Option<Box<Real>>,
}

/// What a model has put before a fence whose result is held, and what it fetches from it.
#[derive(Debug, Default)]
struct Fetching {
    held: u64,
    put: Vec<NodePut>,
    /// Keys, and the nodes that have put them.
    line: VecDeque<(u32, Bytes)>,
    asked: BTreeSet<Bytes>,
    known: BTreeSet<u32>,
    bytes: usize,
}

/// A real step.
#[derive(Debug)]
struct Real {
    core: Step,
    now: Now,
    ups: Vec<up::Body>,
    begun: bool,
    /// The keys that each rank has not got, the first of which it has requested.
    gets: BTreeMap<usize, VecDeque<Bytes>>,
}

impl Leaf {
    /// Returns the step for a launch and its first message.
    pub(crate) fn new(node: u32, launch: &wire::Launch, is_real: bool) -> (Leaf, wire::StepHello) {
        let wire_map = launch.map.clone().expect("a launch has a map");
        let at = wire_map.nodes.iter().position(|of| *of == node).expect("the node is in the map") as u32;
        let namespace = format!("rsd-d0-{}", launch.job);
        let mut leaf = Leaf {
            job: launch.job,
            node,
            first: at * RANKS,
            wire_map,
            namespace,
            link: 0,
            fence: 0,
            fences_passed: 0,
            sent: Vec::new(),
            fetching: Fetching::default(),
            exits: Vec::new(),
            done: None,
            attached_before: false,
            is_over: false,
            real: None,
        };
        if is_real {
            let body = wire::LaunchBody::decode(launch.body.clone()).expect("what was encoded decodes");
            leaf.namespace.clone_from(&body.namespace);
            let (map, tuning) = (leaf.map(), Tuning::default());
            let core = Step::new(launch.job, node, map, body, &wire::Inventory::default(), tuning);
            let now = Now { mono: Duration::from_secs(1), unix_ms: 0 };
            let core = core.expect("the launch is consistent");
            leaf.real = Some(Box::new(Real { core, now, ups: Vec::new(), begun: false, gets: BTreeMap::new() }));
        }
        let hello = leaf.hello();
        (leaf, hello)
    }

    pub(crate) fn hello(&self) -> wire::StepHello {
        let (map, namespace) = (Some(self.wire_map.clone()), self.namespace.clone());
        wire::StepHello { job: self.job, pid: 1000, map, pmi_port: 0, namespace }
    }

    pub(crate) fn map(&self) -> TaskMap {
        self.wire_map.clone().try_into().expect("the map is valid")
    }

    pub(crate) fn attached(mut self, link: u64) -> Leaf {
        self.link = link;
        self
    }

    pub(crate) fn link(&self) -> u64 {
        self.link
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The number of fences that its ranks have passed.
    pub(crate) fn fences_passed(&self) -> u64 {
        self.fences_passed
    }

    /// All ranks put a value of so many bytes, unless it is 0, and enter a fence.
    pub(crate) fn fence(&mut self, bytes: usize) -> Vec<up::Body> {
        self.fence += 1;
        let fence = self.fence;
        if let Some(real) = &mut self.real {
            let put = |rank: u32| (bytes > 0).then(|| (key(fence, rank), value(bytes)));
            return real.fence(self.first, put);
        }
        let entries = (self.first..self.first + RANKS).map(|rank| Kv { key: key(fence, rank), value: value(bytes) });
        let batch = KvBatch { entries: entries.filter(|_| bytes > 0).collect() };
        let batches = if bytes > 0 { vec![batch.encode_to_vec().into()] } else { Vec::new() };
        let (nodes, batch_nodes) = (vec![self.node], vec![self.node; batches.len()]);
        let up = wire::FenceUp {
            job: self.job,
            epoch: fence,
            nodes,
            batches,
            can_fetch: true,
            batch_nodes,
            held: self.fetching.held,
            ..Default::default()
        };
        self.sent.push(up::Body::FenceUp(up));
        if self.sent.len() > 2 {
            self.sent.remove(0);
        }
        self.sent.last().cloned().into_iter().collect()
    }

    /// All ranks of this node get what others have put before a fence.
    pub(crate) fn get(&mut self, fence: u64, others: &dyn Fn(u32) -> Vec<u32>) -> Vec<up::Body> {
        let (first, nodes) = (self.first, &self.wire_map.nodes);
        if let Some(real) = &mut self.real {
            return real.get(fence, first, others);
        }
        let fetching = &mut self.fetching;
        let mut seen = BTreeSet::from([self.node]);
        for other in (first..first + RANKS).flat_map(others).filter(|_| fetching.held > 0) {
            let node = nodes[(other / RANKS) as usize];
            if !fetching.known.contains(&node) && seen.insert(node) {
                fetching.line.push_back((node, key(fence, other)));
            }
        }
        self.ask()
    }

    /// Returns how many gets wait for their answers.
    pub(crate) fn gets_left(&self) -> usize {
        self.fetching.line.len()
            + self.fetching.asked.len()
            + self.real.as_ref().map_or(0, |real| real.gets.values().map(VecDeque::len).sum())
    }

    /// As a real step, which has two requests under way at first, and reads ahead as much as a quarter of what it has fetched.
    fn ask(&mut self) -> Vec<up::Body> {
        let mut ups = Vec::new();
        let fetching = &mut self.fetching;
        while fetching.asked.len() < 2
            && let Some((node, key)) = fetching.line.pop_front()
        {
            if fetching.known.contains(&node) {
                continue;
            }
            fetching.asked.insert(key.clone());
            let welcome_bytes = (fetching.bytes / 4).clamp(16 << 10, 4 << 20) as u32;
            ups.push(up::Body::GetHeld(wire::GetHeld {
                job: self.job,
                held: fetching.held,
                key,
                from: 0,
                welcome_bytes,
                known: Vec::new(),
            }));
        }
        ups
    }

    fn on_held(&mut self, held: wire::Held) -> Vec<up::Body> {
        assert!(!held.puts.is_empty(), "the key was put");
        self.fetching.bytes += held.puts.iter().map(|put| put.batch.len()).sum::<usize>();
        self.fetching.known.extend(held.puts.iter().map(|put| put.node));
        self.fetching.asked.remove(&held.key);
        self.ask()
    }

    /// All ranks exit with 0.
    pub(crate) fn exit(&mut self) -> Vec<up::Body> {
        match &mut self.real {
            Some(real) => real.exit(),
            None => self.end(),
        }
    }

    fn end(&mut self) -> Vec<up::Body> {
        let usage = Usage { ranks: RANKS, user_us: 1_000_000, peak_bytes: 10 << 20, known: true, ..Usage::default() };
        let done = wire::Done {
            job: self.job,
            nodes: vec![self.node],
            exits: std::mem::take(&mut self.exits),
            fences: vec![self.fence],
            usage: vec![usage],
        };
        self.done = Some(up::Body::Done(done));
        self.done.clone().into_iter().collect()
    }

    pub(crate) fn on_down(&mut self, down: Down, now: Now) -> Vec<up::Body> {
        let Some(body) = down.body else { return Vec::new() };
        match &body {
            down::Body::FenceDown(fence) => {
                self.fences_passed = fence.epoch.max(self.fences_passed);
                if fence.is_held && self.real.is_none() {
                    self.passed_held(fence.epoch);
                }
            }
            down::Body::Release(_) => self.is_over = true,
            _ => {}
        }
        if let Some(real) = &mut self.real {
            real.now = now;
            return match body {
                down::Body::Welcome(_) => real.link_up(),
                body => real.feed(step::Input::Down(Down { body: Some(body) })),
            };
        }
        match body {
            down::Body::Welcome(_) => self.resync(),
            down::Body::Resync(_) => self.resync(),
            down::Body::Kill(_) => self.kill(),
            down::Body::Held(held) => self.on_held(held),
            down::Body::Collect(collect) => {
                let (job, held, nodes) = (self.job, collect.held, vec![self.node]);
                vec![up::Body::NodesPut(wire::NodesPut { job, held, nodes, puts: self.fetching.put.clone() })]
            }
            _ => Vec::new(),
        }
    }

    fn passed_held(&mut self, epoch: u64) {
        self.fetching.held = epoch;
        for sent in &mut self.sent {
            if let up::Body::FenceUp(fence) = sent
                && fence.epoch == epoch
            {
                fence.is_held = true;
                let batches = std::mem::take(&mut fence.batches).into_iter();
                self.fetching.put.extend(batches.map(|batch| NodePut { node: self.node, epoch, batch }));
                fence.batch_nodes.clear();
            }
        }
    }

    fn resync(&mut self) -> Vec<up::Body> {
        let mut ups = Vec::new();
        if self.attached_before {
            let map = Some(self.wire_map.clone());
            ups.push(up::Body::Resume(wire::Resume {
                job: self.job,
                map,
                node: Some(self.node),
                ..Default::default()
            }));
        }
        self.attached_before = true;
        let ports = wire::NodePorts {
            node: self.node,
            address: "10.0.0.1".into(),
            ports: (0..RANKS).map(|rank| 30_000 + rank).collect(),
        };
        let ports = vec![ports.encode_to_vec().into()];
        ups.push(up::Body::Located(wire::Located { job: self.job, nodes: vec![self.node], ports }));
        let passed = self.fences_passed;
        ups.extend(self.sent.iter().cloned().map(|sent| match sent {
            up::Body::FenceUp(fence) => up::Body::FenceUp(wire::FenceUp { has_result: fence.epoch <= passed, ..fence }),
            other => other,
        }));
        ups.extend(self.done.clone());
        ups
    }

    fn kill(&mut self) -> Vec<up::Body> {
        if self.done.is_some() {
            return Vec::new();
        }
        let exit = |rank| RankExit {
            rank,
            node: self.node,
            how: Some(rank_exit::How::Signaled(SIGTERM)),
            secondary: true,
            code: 128 + SIGTERM as u32,
            ..RankExit::default()
        };
        self.exits = (self.first..self.first + RANKS).map(exit).collect();
        self.end()
    }
}

/// The key of a rank's value before a fence.
pub(crate) fn key(fence: u64, rank: u32) -> Bytes {
    format!("P{fence}-businesscard-{rank:07}").into()
}

fn value(bytes: usize) -> Bytes {
    vec![b'v'; bytes].into()
}

impl Real {
    fn link_up(&mut self) -> Vec<up::Body> {
        let mut ups = self.feed(step::Input::LinkUp);
        if !std::mem::replace(&mut self.begun, true) {
            ups.extend(self.feed(step::Input::Start));
        }
        ups
    }

    fn fence(&mut self, first: u32, put: impl Fn(u32) -> Option<(Bytes, Bytes)>) -> Vec<up::Body> {
        let mut ups = Vec::new();
        for local in 0..RANKS {
            let mut lines = b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec();
            if let Some((key, value)) = put(first + local) {
                for part in [&b"cmd=put kvsname=x key="[..], &key, b" value=", &value, b"\n"] {
                    lines.extend_from_slice(part);
                }
            }
            lines.extend_from_slice(b"cmd=barrier_in\n");
            ups.extend(self.feed(step::Input::Pmi(local as usize, lines.into())));
        }
        ups
    }

    fn get(&mut self, fence: u64, first: u32, others: &dyn Fn(u32) -> Vec<u32>) -> Vec<up::Body> {
        let mut ups = Vec::new();
        for local in 0..RANKS {
            let keys = others(first + local).into_iter().map(|other| key(fence, other)).collect();
            self.gets.insert(local as usize, keys);
            ups.extend(
                self.next_get(local as usize).into_iter().flat_map(|input| self.feed(input)).collect::<Vec<_>>(),
            );
        }
        ups
    }

    fn next_get(&self, local: usize) -> Option<step::Input> {
        let key = self.gets.get(&local)?.front()?;
        Some(step::Input::Pmi(local, [&b"cmd=get kvsname=x key="[..], key, b"\n"].concat().into()))
    }

    fn exit(&mut self) -> Vec<up::Body> {
        let mut ups = Vec::new();
        for local in 0..RANKS as usize {
            ups.extend(self.feed(step::Input::Pmi(local, Bytes::from_static(b"cmd=finalize\n"))));
            ups.extend(self.ended(local, Status::Exited(0)));
        }
        ups
    }

    fn ended(&mut self, local: usize, status: Status) -> Vec<up::Body> {
        let mut ups = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            ups.extend(self.feed(step::Input::OutputClosed(local, stream)));
        }
        ups.extend(self.feed(step::Input::Exited(local, status)));
        ups
    }

    /// Handles an input and everything that follows from it. Returns the messages to the daemon.
    fn feed(&mut self, input: step::Input) -> Vec<up::Body> {
        let mut inputs = std::collections::VecDeque::from([input]);
        let mut signals = BTreeMap::new();
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            self.core.handle(self.now, input, &mut effects);
            if inputs.is_empty() {
                self.core.settle(self.now, &mut effects);
            }
            for effect in effects {
                match effect {
                    step::Effect::FindLibraries => inputs.push_back(step::Input::Linked(Vec::new())),
                    step::Effect::FindPort => inputs.push_back(step::Input::Port(Ok(23_456))),
                    step::Effect::Spawn(start) => {
                        if start.listen.is_some() {
                            inputs.push_back(step::Input::Listening(start.local, 30_000 + start.local as u16));
                        }
                        inputs.push_back(step::Input::Started(start.local, 2000));
                    }
                    step::Effect::Look(_) => inputs.push_back(step::Input::Mapped(step::Mapped::default())),
                    step::Effect::FindLinks(app) => {
                        inputs.push_back(step::Input::Links(app, step::Links::default()));
                    }
                    step::Effect::Sweep => inputs.push_back(step::Input::Swept),
                    step::Effect::Signal(local, signal) => drop(signals.insert(local, signal)),
                    step::Effect::Up(up) => self.ups.extend(up.body),
                    step::Effect::PmiSend(local, line) if line.starts_with(b"cmd=get_result rc=0") => {
                        self.gets.get_mut(&local).and_then(VecDeque::pop_front);
                        inputs.extend(self.next_get(local));
                    }
                    _ => {}
                }
            }
        }
        let mut ups = std::mem::take(&mut self.ups);
        for (local, signal) in signals {
            ups.extend(self.ended(local, Status::Signaled(signal)));
        }
        ups
    }
}
