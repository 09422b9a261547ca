//! Steps of one job and the clients of their ranks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use rsd_core::step::{Client, Effect, Input, RankStart};
use rsd_core::taskmap::TaskMapBuilder;
use rsd_core::{NodeId, Now, Step, Tuning};
use rsd_proto::pmix::environment::Server;
use rsd_proto::pmix::{Codec, Event, Hello, Message, MessageDecoder, Proc, Reply, Request, Role};
use rsd_proto::v1::{self as wire, App, Down, JobSpec, LaunchBody, down, up};

pub(crate) const JOB: &str = "rsd-dvm.0123456789";

/// A step with what it has sent.
pub(crate) struct Node {
    pub(crate) step: Step,
    pub(crate) now: Duration,
    last_client: Client,
    clients: BTreeMap<Client, (Codec, MessageDecoder)>,
    /// The answers and events for each client, in order.
    sent: BTreeMap<Client, VecDeque<Message>>,
    pub(crate) closed: Vec<Client>,
    pub(crate) up: VecDeque<up::Body>,
    pub(crate) started: Vec<RankStart>,
    /// All other effects, as text.
    pub(crate) others: Vec<String>,
}

/// Starts a job of one program with these ranks on each node; the nodes have ids from 1.
pub(crate) fn job(ranks: &[u32]) -> Vec<Node> {
    job_with(ranks, |_| {})
}

pub(crate) fn job_with(ranks: &[u32], change: impl Fn(&mut LaunchBody)) -> Vec<Node> {
    let mut map = TaskMapBuilder::default();
    for (node, count) in (1..).zip(ranks) {
        map.push(node, *count);
    }
    let map = map.build().expect("a few ranks");
    let app = App { argv: vec!["./program".into(), "-x".into()], wdir: "/work".into(), ..App::default() };
    let mut body = LaunchBody {
        namespace: JOB.into(),
        spec: Some(JobSpec { apps: vec![app], ..JobSpec::default() }),
        app_sizes: vec![map.size()],
        node_names: (1..=ranks.len()).map(|node| format!("node{node}")).collect(),
        universe_size: 8,
        ..LaunchBody::default()
    };
    change(&mut body);
    let node = |id: NodeId| {
        let step = Step::new(7, id, map.clone(), body.clone(), &wire::Inventory::default(), Tuning::default())
            .expect("the launch is consistent");
        let step = step.serve_pmix(Server {
            port: 4711,
            directory: "/tmp/job".into(),
            shared: String::new(),
            cores: 2,
            no_fabric: Vec::new(),
        });
        let mut node = Node {
            step,
            now: Duration::from_secs(1),
            last_client: 0,
            clients: BTreeMap::new(),
            sent: BTreeMap::new(),
            closed: Vec::new(),
            up: VecDeque::new(),
            started: Vec::new(),
            others: Vec::new(),
        };
        node.input(Input::LinkUp);
        node.input(Input::Start);
        for local in 0..map.count_on(id) as usize {
            node.input(Input::Started(local, 100 + local as u32));
        }
        node
    };
    (1..=ranks.len() as NodeId).map(node).collect()
}

impl Node {
    pub(crate) fn input(&mut self, input: Input) {
        let mut effects = Vec::new();
        let now = Now { mono: self.now, unix_ms: 0 };
        self.step.handle(now, input, &mut effects);
        self.step.settle(now, &mut effects);
        for effect in effects {
            match effect {
                Effect::PmixSend(client, bytes) => self.on_sent(client, &bytes),
                Effect::PmixClose(client) => self.closed.push(client),
                Effect::Up(up) => self.up.extend(up.body),
                Effect::Spawn(start) => self.started.push(start),
                other => self.others.push(format!("{other:?}")),
            }
        }
    }

    /// Passes time in steps of the core's own deadlines.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.step.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    fn on_sent(&mut self, client: Client, bytes: &[u8]) {
        let (_, decoder) = self.clients.get_mut(&client).expect("a client of the test");
        // The first answer has another form.
        let bytes = match self.sent.contains_key(&client) {
            true => bytes,
            false => {
                self.sent.insert(client, VecDeque::new());
                bytes.get(8..).unwrap_or_default()
            }
        };
        decoder.feed(bytes);
        let sent = self.sent.get_mut(&client).expect("just made");
        sent.extend(decoder.by_ref().map(|message| message.expect("the server sends messages")));
    }

    pub(crate) fn connect(&mut self, rank: u32, codec: Codec) -> Client {
        self.connect_as(Hello { role: Role::Client, proc: Proc::new(JOB, rank), version: "5.0".into(), codec })
    }

    pub(crate) fn connect_as(&mut self, hello: Hello) -> Client {
        self.last_client += 1;
        self.clients.insert(self.last_client, (hello.codec, MessageDecoder::default()));
        self.input(Input::PmixHello(self.last_client, hello, 1000));
        self.last_client
    }

    /// Sends a request; the tag identifies its answer.
    pub(crate) fn ask(&mut self, client: Client, tag: u32, request: &Request) {
        let codec = self.clients[&client].0;
        let message = Message { tag, payload: request.encode(codec).into() };
        self.input(Input::Pmix(client, message.encode().into()));
    }

    /// Returns the answer to a request, if it has come.
    pub(crate) fn answer(&mut self, client: Client, tag: u32, request: &Request) -> Option<Reply> {
        let codec = self.clients[&client].0;
        let sent = self.sent.get_mut(&client)?;
        let at = sent.iter().position(|message| message.tag == tag)?;
        let message = sent.remove(at)?;
        Some(Reply::decode(codec, request, &message.payload).expect("the answer decodes"))
    }

    /// Returns the size of the answer to a request, if it has come.
    pub(crate) fn answer_bytes(&mut self, client: Client, tag: u32) -> Option<usize> {
        let sent = self.sent.get_mut(&client)?;
        let at = sent.iter().position(|message| message.tag == tag)?;
        Some(sent.remove(at)?.payload.len())
    }

    /// Sends a request and returns its answer, which must come at once.
    #[track_caller]
    pub(crate) fn call(&mut self, client: Client, request: &Request) -> Reply {
        self.ask(client, 77, request);
        self.answer(client, 77, request).expect("an answer at once")
    }

    pub(crate) fn events(&mut self, client: Client) -> Vec<Event> {
        let codec = self.clients[&client].0;
        let sent = self.sent.entry(client).or_default();
        let (events, others): (Vec<_>, _) = sent.drain(..).partition(|message| message.tag == 0);
        *sent = others.into();
        events.iter().map(|message| Event::decode(codec, &message.payload).expect("an event")).collect()
    }

    /// Returns the next request to the head.
    #[track_caller]
    pub(crate) fn name_call(&mut self) -> wire::NameCall {
        while let Some(body) = self.up.pop_front() {
            if let up::Body::NameCall(call) = body {
                return call;
            }
        }
        panic!("nothing was asked of the head")
    }

    pub(crate) fn answer_call(&mut self, call: &wire::NameCall, result: wire::NameResult) {
        let result = wire::NameResult { job: call.job, node: call.node, call: call.call, ..result };
        self.down(down::Body::NameResult(result));
    }

    pub(crate) fn down(&mut self, body: down::Body) {
        self.input(Input::Down(Down { body: Some(body) }));
    }
}

/// Completes the fence that all nodes have sent up.
#[track_caller]
pub(crate) fn complete_fence(nodes: &mut [Node]) {
    let mut batches = Vec::new();
    let mut epoch = 0;
    for node in nodes.iter_mut() {
        let sent = node.up.iter().rev().find_map(|body| match body {
            up::Body::FenceUp(fence) => Some(fence.clone()),
            _ => None,
        });
        let fence = sent.expect("the node has entered the fence");
        (epoch, _) = (fence.epoch, batches.extend(fence.batches));
        node.up.clear();
    }
    for node in nodes {
        node.down(down::Body::FenceDown(wire::FenceDown { job: 7, epoch, batches: batches.clone(), is_held: false }));
    }
}

/// An encoded answer to a rendezvous.
pub(crate) fn met(contributions: Vec<wire::Contribution>) -> Bytes {
    wire::Met { contributions }.encode_to_vec().into()
}
