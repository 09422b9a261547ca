//! The cost of an input does not grow with the number of idle jobs and nodes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rsd_core::rsd::{Call, Caller, Effect, Input, Start};
use rsd_core::{JobId, Now, Rsd, Tuning};
use rsd_proto::v1::{self as wire, hello::Who, up};

/// The user whose daemons these are.
const OWNER: Caller = Caller { uid: 1000, is_admin: true };

/// A head with this many jobs of one rank, each on its own node, and this many idle nodes.
struct Busy {
    core: Rsd,
    now: Duration,
    sent: u64,
}

impl Busy {
    fn new(jobs: u32, nodes: u32) -> Busy {
        let inventory = |slots| Some(wire::Inventory { slots, ..Default::default() });
        let me = wire::NodeInfo { name: "n0".into(), inventory: inventory(jobs), ..Default::default() };
        let start = Start { me, dvm: "d".into(), ..Default::default() };
        let now = Now { mono: Duration::ZERO, unix_ms: 0 };
        let core = Rsd::new(now, start, Tuning { arity: usize::MAX, ..Default::default() });
        let mut busy = Busy { core, now: Duration::ZERO, sent: 0 };
        for job in 1..=u64::from(jobs) {
            let apps = vec![wire::App { argv: vec!["sleep".into()], n: Some(1), ..Default::default() }];
            let spec = Box::new(wire::JobSpec { apps, timeout_ms: 1_000_000_000, ..Default::default() });
            let effects = busy.handle(Input::Call {
                req: job,
                caller: OWNER,
                call: Call::Submit { spec, random: Bytes::new(), user: String::new() },
            });
            let launch = effects.into_iter().find_map(|effect| match effect {
                Effect::StartStep(launch) => Some(launch),
                _ => None,
            });
            let map = launch.expect("every job has its slot").map;
            let step = wire::StepHello { job, map, namespace: format!("rsd-d-{job}"), ..Default::default() };
            let hello = wire::Hello { who: Some(Who::Step(step)), ..Default::default() };
            busy.handle(Input::Hello { link: job, hello, uid: 0 });
        }
        for link in u64::from(jobs) + 1..=u64::from(jobs) + u64::from(nodes) {
            let info = wire::NodeInfo { name: format!("m{link}"), inventory: inventory(0), ..Default::default() };
            let node = wire::NodeHello { nodes: vec![info], ..Default::default() };
            busy.handle(Input::Hello {
                link,
                uid: 0,
                hello: wire::Hello { who: Some(Who::Node(node)), ..Default::default() },
            });
        }
        busy
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.now += Duration::from_micros(1);
        let mut effects = Vec::new();
        self.core.handle(Now { mono: self.now, unix_ms: 0 }, input, &mut effects);
        assert!(self.core.next_deadline().is_none_or(|at| at > self.now), "nothing is due");
        effects
    }

    /// Handles one byte of output of the first job.
    fn output(&mut self) {
        const JOB: JobId = 1;
        let records = vec![wire::Record { data: Bytes::from_static(b"x"), ..Default::default() }];
        let output = wire::Output { job: JOB, offset: self.sent, records, ..Default::default() };
        self.sent += 1;
        let effects = self.handle(Input::Up { link: JOB, up: wire::Up { body: Some(up::Body::Output(output)) } });
        assert_eq!(effects.len(), 1, "the output is logged: {effects:?}");
        // After the events of its submission and placement.
        let effects = self.handle(Input::LogWritten { log: JOB, events: 2 + self.sent, lost_bytes: 0 });
        assert_eq!(effects.len(), 1, "the output is acknowledged: {effects:?}");
    }

    /// Returns the shortest of many times, which a busy machine disturbs least.
    fn shortest(&mut self) -> Duration {
        let time = |busy: &mut Busy| {
            let start = Instant::now();
            for _ in 0..10 {
                busy.output();
            }
            start.elapsed() / 10
        };
        (0..200).map(|_| time(self)).min().expect("there are 200")
    }
}

#[test]
fn an_input_costs_the_same_with_thousands_of_idle_jobs_and_nodes() {
    let few = Busy::new(10, 10).shortest();
    let many = Busy::new(3000, 3000).shortest();
    println!("one message of output: {few:?} with 10 jobs and nodes, {many:?} with 3000");
    assert!(many < few * 5, "{few:?} with 10 jobs and nodes, {many:?} with 3000");
}
