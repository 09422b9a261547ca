//! A DVM that serves all users: what one user has does not exist for another.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call, Caller, Effect, Entry, GroupCall, Input, KvCall, KvOp, LinkId, PmiOp, Start};
use rsd_core::{JobId, Now, Rsd, Tuning};
use rsd_proto::v1::{self as wire, down, hello::Who, kv_scope, name_call, up};

const ROOT: Caller = Caller { uid: 0, is_admin: true };
const ANN: Caller = Caller { uid: 1001, is_admin: false };
const BOB: Caller = Caller { uid: 1002, is_admin: false };
/// The most jobs of a user.
const JOBS: usize = 3;
/// The most bytes of their specifications.
const SUBMISSIONS: u64 = 1 << 20;

/// A head that serves all users, alone in its DVM.
struct Head {
    core: Rsd,
    now: Duration,
    next: u64,
}

impl Head {
    fn new() -> Head {
        let inventory = Some(wire::Inventory { slots: 64, ..Default::default() });
        let me = wire::NodeInfo { name: "n0".into(), inventory, ..Default::default() };
        let start = Start { me, dvm: "d".into(), serves_all: true, ..Default::default() };
        let tuning = Tuning { user_jobs: JOBS, user_submissions: SUBMISSIONS, ..Tuning::default() };
        Head { core: Rsd::new(Now { mono: Duration::ZERO, unix_ms: 0 }, start, tuning), now: Duration::ZERO, next: 1 }
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.now += Duration::from_micros(1);
        let mut effects = Vec::new();
        self.core.handle(Now { mono: self.now, unix_ms: 0 }, input, &mut effects);
        effects
    }

    /// Makes a request; returns its answer and the other effects.
    fn ask(&mut self, caller: Caller, call: Call) -> (Answer, Vec<Effect>) {
        let req = self.next;
        self.next += 1;
        let (mut answer, mut others) = (None, Vec::new());
        for effect in self.handle(Input::Call { req, caller, call }) {
            match effect {
                Effect::Answer { req: of, answer: given } if of == req => answer = Some(given),
                other => others.push(other),
            }
        }
        (answer.expect("the request is answered at once"), others)
    }

    fn submit(&mut self, caller: Caller) -> Result<JobId, String> {
        self.submit_program(caller, vec!["sleep".into()])
    }

    fn submit_program(&mut self, caller: Caller, argv: Vec<Bytes>) -> Result<JobId, String> {
        let apps = vec![wire::App { argv, n: Some(1), ..Default::default() }];
        let spec = Box::new(wire::JobSpec { apps, ..Default::default() });
        let user = format!("user{}", caller.uid);
        let (answer, effects) = self.ask(caller, Call::Submit { spec, random: Bytes::new(), user: user.clone() });
        match answer {
            Answer::Submitted(job) => {
                let launched = effects.into_iter().find_map(|effect| match effect {
                    Effect::StartStep(launch) => Some(launch),
                    _ => None,
                });
                let owner = wire::User { uid: caller.uid, name: user };
                assert_eq!(launched.expect("a slot is free").owner, Some(owner), "it runs as its user");
                Ok(job)
            }
            Answer::Refused(refused) => Err(refused.text),
            other => panic!("{other:?}"),
        }
    }

    /// Attaches a process of this user as the step of a job; returns whether it is accepted, and its link.
    fn attach(&mut self, uid: u32, job: JobId) -> (bool, LinkId) {
        let link = self.next;
        self.next += 1;
        let map =
            wire::TaskMap { nodes: vec![0], blocks: vec![wire::Block { first_node: 0, nodes: 1, ranks_per_node: 1 }] };
        let step = wire::StepHello { job, map: Some(map), namespace: format!("rsd-d-{job}"), ..Default::default() };
        let hello = wire::Hello { who: Some(Who::Step(step)), ..Default::default() };
        let effects = self.handle(Input::Hello { link, hello, uid });
        let released = downs(&effects).any(|(_, body)| matches!(body, down::Body::Release(_)));
        (!released, link)
    }

    fn name_call(&mut self, link: LinkId, job: JobId, op: name_call::Op) -> bool {
        let (result, _) = self.request(link, job, op);
        result.expect("a step is answered").ok
    }

    /// Makes a request of a step; returns the answer if there is one, and the effects.
    fn request(&mut self, link: LinkId, job: JobId, op: name_call::Op) -> (Option<wire::NameResult>, Vec<Effect>) {
        let call = wire::NameCall { job, call: self.next, op: Some(op), ..Default::default() };
        self.next += 1;
        let effects = self.handle(Input::Up { link, up: wire::Up { body: Some(up::Body::NameCall(call)) } });
        let result = downs(&effects).find_map(|(_, body)| match body {
            down::Body::NameResult(result) => Some(result.clone()),
            _ => None,
        });
        (result, effects)
    }
}

fn downs(effects: &[Effect]) -> impl Iterator<Item = (LinkId, &down::Body)> {
    effects.iter().filter_map(|effect| match effect {
        Effect::Down { link, down } => Some((*link, down.body.as_ref()?)),
        _ => None,
    })
}

fn listing(all: bool) -> Call {
    Call::ListJobs(Box::new(wire::ListJobsRequest { all, ..Default::default() }))
}

fn jobs_of(answer: Answer) -> Vec<JobId> {
    match answer {
        Answer::Jobs(jobs) => jobs.iter().map(|job| job.job).collect(),
        other => panic!("{other:?}"),
    }
}

/// Every request that names a job.
fn calls(job: JobId) -> Vec<Call> {
    let kv = |op| {
        let scope = wire::KvScope { of: Some(kv_scope::Of::Job(job)), rank: None };
        Call::Kv(KvCall { scope, op })
    };
    let key = || Bytes::from_static(b"key");
    let entry =
        Entry { name: "fence".into(), participants: 1, who: "me".into(), attempt: 1, timeout: Duration::from_secs(1) };
    vec![
        Call::GetJob(job),
        Call::ListWaits(Some(job)),
        Call::Signal { job, rank: None, signal: 15 },
        Call::Cancel { job, grace_ms: Some(0) },
        Call::ClientGone(job),
        Call::Stdin { job, at: None, data: key(), eof: true },
        kv(KvOp::Put { key: key(), value: key() }),
        kv(KvOp::Get { key: key(), timeout: Duration::ZERO }),
        kv(KvOp::List),
        kv(KvOp::Delete { key: key() }),
        kv(KvOp::Fence(entry)),
        Call::Pmi { job, rank: 0, namespace: format!("rsd-d-{job}"), op: PmiOp::Info },
    ]
}

#[test]
fn events_and_metrics_show_each_user_what_is_its_own() {
    let mut head = Head::new();
    head.submit(ANN).unwrap();
    head.submit(BOB).unwrap();
    let jobs = |head: &mut Head, caller| -> Vec<JobId> {
        let (answer, _) = head.ask(caller, Call::Events { since: None });
        let Answer::Events(reply) = answer else { panic!("{answer:?}") };
        let mut jobs: Vec<JobId> = reply
            .events
            .iter()
            .filter_map(|event| match &event.what {
                Some(wire::dvm_event::What::Job(change)) => Some(change.job),
                _ => None,
            })
            .collect();
        jobs.dedup();
        jobs
    };
    assert_eq!([ANN, BOB, ROOT].map(|caller| jobs(&mut head, caller)), [vec![1], vec![2], vec![1, 2]]);
    let names = |head: &mut Head, caller| -> bool {
        let (answer, _) = head.ask(caller, Call::Metrics);
        let Answer::Metrics(families) = answer else { panic!("{answer:?}") };
        let text = rsd_core::metrics::text(&families);
        assert!(text.contains("rsd_jobs{state=\"running\"} 2\n"), "{text}");
        text.contains("user1001")
    };
    assert_eq!([ANN, BOB, ROOT].map(|caller| names(&mut head, caller)), [false, false, true]);
}

#[test]
fn what_another_users_jobs_wait_for_is_not_listed() {
    let mut head = Head::new();
    head.submit(ANN).unwrap();
    let launches = |head: &mut Head, caller| {
        let req = head.next;
        head.next += 1;
        let effects = head.handle(Input::Call { req, caller, call: Call::ListWaits(None) });
        let waits = effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { answer: Answer::Waits(waits), .. } => Some(waits),
            _ => None,
        });
        waits.expect("the step has not attached, so the answer is known").len()
    };
    assert_eq!([ANN, BOB, ROOT].map(|caller| launches(&mut head, caller)), [1, 0, 1]);
}

#[test]
fn a_job_of_another_user_is_answered_like_one_that_does_not_exist() {
    let mut head = Head::new();
    let job = head.submit(ANN).unwrap();
    head.attach(ANN.uid, job);
    let (theirs, none) = (calls(job), calls(777));
    for (theirs, none) in theirs.into_iter().zip(none) {
        let shown = format!("{theirs:?}");
        let (answer, effects) = head.ask(BOB, theirs);
        let (expected, _) = head.ask(BOB, none);
        let (answer, expected) = (format!("{answer:?}"), format!("{expected:?}").replace("777", &job.to_string()));
        assert_eq!(answer, expected, "{shown}");
        assert!(answer.contains("Refused"), "{shown}: {answer}");
        assert!(effects.is_empty(), "{shown}: {effects:?}");
    }
    assert!(matches!(head.ask(BOB, Call::GetJob(0)).0, Answer::Refused(_)), "the last job is the caller's last");
    assert!(matches!(head.ask(ANN, Call::GetJob(0)).0, Answer::Job(_)));
}

#[test]
fn users_list_their_own_jobs_and_root_lists_all() {
    let mut head = Head::new();
    let (ann, bob, root) = (head.submit(ANN).unwrap(), head.submit(BOB).unwrap(), head.submit(ROOT).unwrap());
    for all in [false, true] {
        let mut list = |caller| jobs_of(head.ask(caller, listing(all)).0);
        assert_eq!((list(ANN), list(BOB), list(ROOT)), (vec![ann], vec![bob], vec![ann, bob, root]));
    }
    let Answer::Job(info) = head.ask(ROOT, Call::GetJob(ann)).0 else { panic!("root sees every job") };
    assert_eq!(info.owner, Some(wire::User { uid: ANN.uid, name: "user1001".into() }));
    let Answer::Status(status) = head.ask(BOB, Call::Status).0 else { panic!("everybody may ask for the status") };
    assert_eq!((status.jobs, status.slots_in_use), (3, 3), "others' jobs are counted");
    assert!(matches!(head.ask(ROOT, Call::Cancel { job: bob, grace_ms: None }).0, Answer::Job(_)));
}

#[test]
fn a_user_has_at_most_as_many_jobs_as_the_setting_says_and_root_any_number() {
    let mut head = Head::new();
    for _ in 0..JOBS {
        head.submit(ANN).unwrap();
    }
    let refused = head.submit(ANN).unwrap_err();
    assert!(refused.starts_with("you have 3 jobs queued or running") && refused.contains("users.jobs"), "{refused}");
    head.submit(BOB).expect("another user's jobs do not count");
    for _ in 0..=JOBS {
        head.submit(ROOT).unwrap();
    }
}

#[test]
fn the_submissions_of_a_users_jobs_are_limited_together_until_the_jobs_have_ended() {
    let mut head = Head::new();
    let large = || vec![Bytes::from("program"), vec![b'x'; 700 << 10].into()];
    let job = head.submit_program(ANN, large()).unwrap();
    let refused = head.submit_program(ANN, large()).unwrap_err();
    assert!(refused.contains("users.submissions") && refused.contains("1048576"), "{refused}");
    head.submit(ANN).expect("a small one fits");
    head.submit_program(BOB, large()).expect("another user's jobs do not count");
    head.submit_program(ROOT, large()).unwrap();
    head.submit_program(ROOT, large()).expect("root has no limit");
    let Answer::Job(info) = head.ask(ANN, Call::GetJob(job)).0 else { panic!("it is Ann's") };
    assert!(info.command.len() < 17_000 && info.command.starts_with("program xxx"), "{}", info.command.len());

    let (_, link) = head.attach(ANN.uid, job);
    let done = wire::Done { job, nodes: vec![0], exits: Vec::new(), fences: vec![0], usage: Vec::new() };
    head.handle(Input::Up { link, up: wire::Up { body: Some(up::Body::Done(done)) } });
    head.submit_program(ANN, large()).expect("the first one has ended");
}

#[test]
fn output_is_acknowledged_when_it_is_in_the_file_of_its_log() {
    let mut head = Head::new();
    let (job, other) = (head.submit(ANN).unwrap(), head.submit(ANN).unwrap());
    let ((_, link), (_, other_link)) = (head.attach(ANN.uid, job), head.attach(ANN.uid, other));
    let acked = |effects: &[Effect]| {
        let ack = |effect: &Effect| match effect {
            Effect::Down { down: wire::Down { body: Some(down::Body::OutputAck(ack)) }, .. } => Some(ack.offset),
            _ => None,
        };
        effects.iter().filter_map(ack).collect::<Vec<_>>()
    };
    let write = |head: &mut Head, (job, link), offset, bytes| {
        let records = vec![wire::Record { data: vec![b'x'; bytes].into(), ..Default::default() }];
        let output = wire::Output { job, node: 0, offset, records };
        let effects = head.handle(Input::Up { link, up: wire::Up { body: Some(up::Body::Output(output)) } });
        let is_logged = effects.iter().any(|effect| matches!(effect, Effect::Log { .. }));
        (is_logged, acked(&effects))
    };
    // The log's first two events are those of its submission and placement.
    let in_file = |head: &mut Head, log, events| acked(&head.handle(Input::LogWritten { log, events, lost_bytes: 0 }));
    assert_eq!(write(&mut head, (job, link), 0, 5), (true, vec![]));
    assert_eq!(in_file(&mut head, job, 2), [0; 0]);
    assert_eq!(write(&mut head, (job, link), 5, 5), (true, vec![]));
    assert_eq!(write(&mut head, (other, other_link), 0, 7), (true, vec![]));
    assert_eq!(in_file(&mut head, other, 3), [7], "another job's log keeps up");
    assert_eq!(in_file(&mut head, job, 3), [5]);
    assert_eq!(write(&mut head, (job, link), 0, 5), (false, vec![5]), "a repeat");
    assert_eq!(write(&mut head, (job, link), 10, 5), (true, vec![]));
    assert_eq!(in_file(&mut head, job, 5), [15]);

    // A program in the step's place that does not wait for acknowledgements is heard only for a while.
    let mut taken = 0;
    while write(&mut head, (job, link), 15 + taken, 100 << 20).0 {
        taken += 100 << 20;
    }
    assert_eq!(taken, 300 << 20);
}

#[test]
fn numbers_that_no_step_has_do_not_end_the_daemon() {
    let mut head = Head::new();
    let job = head.submit(ANN).unwrap();
    let (_, link) = head.attach(ANN.uid, job);
    for epoch in [u64::MAX, u64::MAX, u64::MAX - 1] {
        let fence = wire::FenceUp { job, epoch, nodes: vec![0], ..wire::FenceUp::default() };
        head.handle(Input::Up { link, up: wire::Up { body: Some(up::Body::FenceUp(fence)) } });
    }
    for steps in [1, 2] {
        let req = head.next;
        head.next += 1;
        let asked = head.handle(Input::Call { req, caller: ANN, call: Call::ListWaits(None) });
        let probe = asked.iter().find_map(|effect| match effect {
            Effect::Down { down: wire::Down { body: Some(down::Body::WaitProbe(probe)) }, .. } => Some(probe.probe),
            _ => None,
        });
        let most = u32::MAX;
        let ranks = wire::RanksWaiting { job, inside: most, starting: most, alive: most, ..Default::default() };
        let report = wire::WaitReport {
            probe: probe.expect("the step is asked"),
            steps: vec![ranks; steps],
            ..wire::WaitReport::default()
        };
        let effects = head.handle(Input::Up { link, up: wire::Up { body: Some(up::Body::Waits(report)) } });
        let is_answered = effects.iter().any(|effect| matches!(effect, Effect::Answer { .. }));
        assert_eq!(is_answered, steps == 1, "a step has one report: {effects:?}");
    }
}

#[test]
fn only_a_process_of_the_owner_attaches_as_a_step() {
    let mut head = Head::new();
    let job = head.submit(ANN).unwrap();
    assert!(!head.attach(BOB.uid, job).0);
    assert!(!head.attach(ROOT.uid, job).0, "steps run as their users");
    assert!(head.attach(ANN.uid, job).0);
}

#[test]
fn a_step_cannot_report_the_end_of_another_job() {
    let mut head = Head::new();
    let (ann, bob) = (head.submit(ANN).unwrap(), head.submit(BOB).unwrap());
    let (_, link) = head.attach(BOB.uid, bob);
    let done = wire::Done { job: ann, nodes: vec![0], exits: Vec::new(), fences: vec![0], usage: Vec::new() };
    let effects = head.handle(Input::Up { link, up: wire::Up { body: Some(up::Body::Done(done)) } });
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(jobs_of(head.ask(ANN, listing(false)).0), [ann]);
}

#[test]
fn names_are_published_for_the_own_user() {
    let mut head = Head::new();
    let (ann, bob) = (head.submit(ANN).unwrap(), head.submit(BOB).unwrap());
    let ((_, ann_step), (_, bob_step)) = (head.attach(ANN.uid, ann), head.attach(BOB.uid, bob));
    let publish = || name_call::Op::Publish(wire::Kv { key: "ocean".into(), value: "port".into() });
    assert!(head.name_call(ann_step, ann, publish()));
    assert!(!head.name_call(bob_step, bob, name_call::Op::Lookup("ocean".into())));
    assert!(!head.name_call(bob_step, bob, name_call::Op::Unpublish("ocean".into())));
    assert!(!head.name_call(bob_step, bob, name_call::Op::State(format!("rsd-d-{ann}"))));
    assert!(head.name_call(ann_step, ann, name_call::Op::Lookup("ocean".into())));
    assert!(head.name_call(bob_step, bob, publish()), "the same name");
    let mut count = |caller| match head.ask(caller, Call::ListNames).0 {
        Answer::Names(names) => names.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((count(ANN), count(BOB), count(ROOT)), (1, 1, 2));
}

#[test]
fn processes_meet_fetch_publish_and_notify_only_among_jobs_of_their_user() {
    use name_call::Op;
    let mut head = Head::new();
    let (ann, bob) = (head.submit(ANN).unwrap(), head.submit(BOB).unwrap());
    let ((_, ann_step), (_, bob_step)) = (head.attach(ANN.uid, ann), head.attach(BOB.uid, bob));
    let namespace = |job: JobId| format!("rsd-d-{job}");
    let all = |jobs: &[JobId]| {
        jobs.iter().map(|job| wire::Participants { namespace: namespace(*job), ranks: vec![] }).collect::<Vec<_>>()
    };
    let meet = |jobs: &[JobId]| {
        let arrived = vec![wire::RankRun { first: 0, last: 0 }];
        Op::Meet(wire::Meet { key: "1".into(), members: all(jobs), arrived, ..Default::default() })
    };
    let fetch = |job| Op::FetchData(wire::FetchData { namespace: namespace(job), ..Default::default() });
    let event = |to| Op::Event(wire::Event { to, ..Default::default() });
    let control =
        |job, what| Op::Control(wire::Control { namespace: namespace(job), what: Some(what), ..Default::default() });
    let signal = |job| control(job, wire::control::What::Signal(10));
    let end = |job| control(job, wire::control::What::End(true));
    // What Ann's job is answers like what does not exist.
    let none = 777;
    for (theirs, unknown) in [
        (meet(&[bob, ann]), meet(&[bob, none])),
        (fetch(ann), fetch(none)),
        (Op::Describe(namespace(ann)), Op::Describe(namespace(none))),
        (event(all(&[ann])), event(all(&[none]))),
        (signal(ann), signal(none)),
        (end(ann), end(none)),
    ] {
        let answers = [theirs, unknown].map(|op| {
            let (result, effects) = head.request(bob_step, bob, op);
            assert!(downs(&effects).all(|(link, _)| link == bob_step), "{effects:?}");
            let result = result.expect("it is refused at once");
            (result.ok, result.status, result.why.replace(&ann.to_string(), &none.to_string()))
        });
        assert_eq!(answers[0], answers[1]);
        assert_eq!((answers[0].0, answers[0].1), (false, -46));
    }
    assert!(head.name_call(ann_step, ann, Op::Describe(namespace(ann))));
    assert!(head.name_call(ann_step, ann, meet(&[ann])), "it meets itself");

    let publish = || {
        let entries = vec![wire::Kv { key: "key".into(), value: "value".into() }];
        Op::PublishData(wire::PublishData { entries, ..Default::default() })
    };
    let look = || Op::LookupData(wire::LookupData { keys: vec!["key".into()], ..Default::default() });
    assert!(head.name_call(ann_step, ann, publish()));
    assert!(!head.name_call(bob_step, bob, look()));
    let all_keys = Op::UnpublishData(wire::UnpublishData { keys: vec!["key".into()], ..Default::default() });
    assert!(head.name_call(bob_step, bob, all_keys), "there is nothing of Bob's to remove");
    assert!(head.name_call(ann_step, ann, look()));
    assert!(head.name_call(bob_step, bob, publish()), "the same key");

    let (_, effects) = head.request(bob_step, bob, event(Vec::new()));
    let told: Vec<LinkId> =
        downs(&effects).filter_map(|(link, body)| matches!(body, down::Body::Notify(_)).then_some(link)).collect();
    assert_eq!(told, [bob_step], "an event for all is for all of the user");

    let (listed, _) = head.request(bob_step, bob, Op::Namespaces(wire::Namespaces { rank: 0 }));
    assert_eq!(listed.expect("an answer").data, namespace(bob));
    let (signalled, effects) = head.request(ann_step, ann, signal(ann));
    assert!(signalled.expect("an answer").ok);
    let signals = |effects: &[Effect]| downs(effects).filter(|(_, body)| matches!(body, down::Body::Signal(_))).count();
    assert_eq!(signals(&effects), 1);
    let run = |first, last| vec![wire::RankRun { first, last }];
    let to = |ranks| {
        let what = Some(wire::control::What::Signal(10));
        Op::Control(wire::Control { namespace: namespace(ann), what, ranks, ..Default::default() })
    };
    let (beyond, effects) = head.request(ann_step, ann, to(run(0, 99)));
    assert_eq!((beyond.expect("an answer").status, signals(&effects)), (-27, 0));

    // A step cannot answer for another's process, nor end its ranks.
    let (waits, effects) = head.request(ann_step, ann, fetch(ann));
    assert_eq!(waits, None);
    let number = downs(&effects).find_map(|(_, body)| match body {
        down::Body::Fetch(fetch) => Some(fetch.number),
        _ => None,
    });
    let fetched = |job| wire::Fetched { job, number: number.expect("the step is asked"), ..Default::default() };
    for (link, job, answers) in [(bob_step, ann, 0), (bob_step, bob, 0), (ann_step, ann, 1)] {
        let up = wire::Up { body: Some(up::Body::Fetched(fetched(job))) };
        assert_eq!(downs(&head.handle(Input::Up { link, up })).count(), answers, "job {job}");
    }
}

#[test]
fn groups_are_each_users_own() {
    let mut head = Head::new();
    let rules = |mode| wire::GroupRules { name: "actors".into(), min: 2, max: 2, mode, ..Default::default() };
    assert!(matches!(head.ask(ANN, Call::Group(GroupCall::Create(rules(None)))).0, Answer::Group(_)));
    let kick = || GroupCall::Kick { name: "actors".into(), pid: 1, node: String::new() };
    for call in [GroupCall::Get("actors".into()), GroupCall::Close("actors".into()), kick()] {
        let Answer::Refused(refused) = head.ask(BOB, Call::Group(call)).0 else { panic!("it is Ann's") };
        assert_eq!(refused.text, "no group actors (rsctl group ls lists all groups)");
    }
    let Answer::Refused(refused) = head.ask(BOB, Call::Group(GroupCall::Create(rules(Some(0o666))))).0 else {
        panic!("nothing is open to other users")
    };
    assert!(refused.text.contains("groups are private"), "{}", refused.text);

    // Members of both users join a group of the same name.
    let join = |head: &mut Head, member, uid: u32| {
        let (group, token) = ("actors".to_owned(), format!("{member}"));
        let join = wire::GroupJoin { group, token, uid, pid: member as u32, user: "u".into(), ..Default::default() };
        head.handle(Input::Join { member, join: Box::new(join) })
    };
    assert!(matches!(head.ask(BOB, Call::Group(GroupCall::Create(rules(None)))).0, Answer::Group(_)));
    let launches = |effects: &[Effect]| effects.iter().filter(|it| matches!(it, Effect::StartStep(_))).count();
    for (member, uid, complete) in [(1, ANN.uid, 0), (2, BOB.uid, 0), (3, BOB.uid, 1), (4, ANN.uid, 1)] {
        let effects = join(&mut head, member, uid);
        assert_eq!(launches(&effects), complete, "member {member}");
    }
    let mut list = |caller| match head.ask(caller, Call::Group(GroupCall::List)).0 {
        Answer::Groups(groups) => groups.iter().map(|group| group.owner_uid).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!((list(ANN), list(BOB), list(ROOT)), (vec![1001], vec![1002], vec![1001, 1002]));
    let mut jobs = |caller| jobs_of(head.ask(caller, listing(false)).0).len();
    assert_eq!((jobs(ANN), jobs(BOB)), (1, 1), "an epoch is its members' job");
}

#[test]
fn only_root_stops_the_dvm() {
    let mut head = Head::new();
    let Answer::Refused(refused) = head.ask(ANN, Call::Shutdown { force: true }).0 else { panic!("it is root's") };
    assert_eq!((refused.exit_code, refused.text.contains("only root")), (245, true), "{}", refused.text);
}
