//! Values that processes exchange at the head: a waiting request gets its value, a refusal, or ends with the job.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call, Entry, KvCall, KvOp, ReqId};
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{KvScope, kv_scope::Of};

use crate::checks::spec;
use crate::ranks::Op;
use crate::world::World;

fn with_job() -> (World, JobId) {
    let mut world = World::new(1, 2, 4, Tuning::default());
    let program = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(30)), Op::Exit(0)]);
    let job = world.submit(spec(program, 3));
    world.run_for(Duration::from_secs(1));
    (world, job)
}

fn ask(world: &mut World, job: JobId, rank: Option<u32>, op: KvOp) -> ReqId {
    let scope = KvScope { of: Some(Of::Job(job)), rank };
    let req = world.call(0, Call::Kv(KvCall { scope, op }));
    world.run_for(Duration::from_millis(100));
    req
}

fn get(world: &mut World, job: JobId, key: &'static str, seconds: u64) -> ReqId {
    let timeout = Duration::from_secs(seconds);
    ask(world, job, None, KvOp::Get { key: key.into(), timeout })
}

fn put(world: &mut World, job: JobId, rank: u32, key: &'static str, value: Vec<u8>) -> ReqId {
    ask(world, job, Some(rank), KvOp::Put { key: key.into(), value: value.into() })
}

fn enter(world: &mut World, job: JobId, rank: u32, attempt: u64) -> ReqId {
    let entry =
        Entry { name: "f".into(), participants: 0, who: String::new(), attempt, timeout: Duration::from_secs(5) };
    ask(world, job, Some(rank), KvOp::Fence(entry))
}

/// Returns the refusal of the request.
fn refusal(world: &mut World, req: ReqId) -> (u8, String) {
    match world.answered(req) {
        Some(Answer::Refused(refused)) => (refused.exit_code, refused.text),
        other => panic!("{other:?}"),
    }
}

fn is_done(world: &mut World, req: ReqId) -> bool {
    matches!(world.answered(req), Some(Answer::Stopped))
}

#[test]
fn a_waiting_get_returns_the_first_value_put() {
    let (mut world, job) = with_job();
    let waiting = [get(&mut world, job, "k", 20), get(&mut world, job, "k", 20)];
    let done = put(&mut world, job, 1, "k", vec![0, 255, 10]);
    assert!(is_done(&mut world, done));
    for req in waiting {
        assert!(
            matches!(world.answered(req), Some(Answer::Value(value)) if value == Bytes::from_static(&[0, 255, 10]))
        );
    }
    put(&mut world, job, 2, "k", Vec::new());
    let again = get(&mut world, job, "k", 0);
    assert!(matches!(world.answered(again), Some(Answer::Value(value)) if value.is_empty()));
    let late = get(&mut world, job, "other", 3);
    world.run_for(Duration::from_secs(3));
    let (code, text) = refusal(&mut world, late);
    assert_eq!(
        (code, &*text),
        (124, &*format!("timed out after 3 s: job {job} has no value \"other\"; rank 0 has put nothing yet"))
    );
    let forever = get(&mut world, job, "other", 10_000_000);
    world.run();
    assert_eq!(refusal(&mut world, forever).0, 246, "its job has ended");
    let after = get(&mut world, job, "k", 5);
    assert_eq!(refusal(&mut world, after).0, 246);
    world.assert_at_rest();
}

#[test]
fn the_values_of_a_job_are_bounded() {
    let (mut world, job) = with_job();
    let req = put(&mut world, job, 0, "k", vec![0; (1 << 20) + 1]);
    assert_eq!(refusal(&mut world, req).0, 240);
    for key in ["a", "b"] {
        let req = put(&mut world, job, 0, key, vec![0; 1 << 20]);
        assert!(is_done(&mut world, req));
    }
    for number in 0..62 {
        let key = Bytes::from(format!("key {number}"));
        let req = ask(&mut world, job, None, KvOp::Put { key, value: vec![0; 1 << 20].into() });
        assert!(is_done(&mut world, req));
    }
    let full = put(&mut world, job, 0, "one more", vec![0]);
    assert!(refusal(&mut world, full).1.contains("delete some with rsctl kv del"));
    // A replaced value does not count, and a removed value makes room.
    let same = put(&mut world, job, 0, "a", vec![0; 1 << 20]);
    assert!(is_done(&mut world, same));
    let removed = ask(&mut world, job, None, KvOp::Delete { key: "a".into() });
    assert!(is_done(&mut world, removed));
    let fits = put(&mut world, job, 0, "one more", vec![0]);
    assert!(is_done(&mut world, fits));
    let long = ask(&mut world, job, None, KvOp::Put { key: vec![7; 256].into(), value: Bytes::new() });
    assert_eq!(refusal(&mut world, long).0, 240);
    world.run();
    world.assert_at_rest();
}

#[test]
fn a_fence_counts_a_repeated_request_once_and_answers_it() {
    let (mut world, job) = with_job();
    let lost = enter(&mut world, job, 0, 1);
    let again = enter(&mut world, job, 0, 1);
    assert_eq!(refusal(&mut world, lost).0, 243, "its client has disconnected");
    let other = enter(&mut world, job, 0, 2);
    assert!(refusal(&mut world, other).1.contains("rank 0 is already waiting in fence \"f\""));
    let second = enter(&mut world, job, 1, 7);
    let third = enter(&mut world, job, 2, 8);
    for req in [again, second, third] {
        assert!(is_done(&mut world, req));
    }
    let late = enter(&mut world, job, 1, 7);
    assert!(is_done(&mut world, late), "the answer was lost");
    let next = enter(&mut world, job, 1, 9);
    world.run_for(Duration::from_secs(5));
    let (code, text) = refusal(&mut world, next);
    assert_eq!(code, 124);
    assert!(text.contains("timed out after 5 s: 1 of 3 participants have entered; missing: ranks 0, 2"), "{text}");
    world.run();
    world.assert_at_rest();
}
