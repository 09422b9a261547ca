use std::time::Duration;

use super::*;

const NOW: Now = Now { mono: Duration::ZERO, unix_ms: 7000 };

fn started(name: &str) -> Feed {
    let me = wire::NodeInfo { name: name.into(), version: "1.2.3".into(), ..Default::default() };
    Feed::new(NOW, &me, 5)
}

fn feed() -> Feed {
    let mut feed = started("n0");
    feed.settle(NOW);
    feed
}

/// The feed of the head that restores these records.
fn restored(name: &str, kept: Vec<KeptEvent>, epoch: u64) -> Feed {
    let mut feed = started(name);
    feed.restore(kept, epoch);
    feed.restoring(true);
    feed.settle(NOW);
    feed
}

fn log(feed: &mut Feed, job: JobId, body: job_event::Body) {
    let event = Box::new(JobEvent { at_ms: 1, body: Some(body), ..JobEvent::default() });
    feed.observe(&Effect::Log { job, event }, |_| None, |node| format!("n{node}"));
    feed.settle(NOW);
}

fn submitted(job: JobId, uid: u32) -> job_event::Body {
    let owner = Some(User { uid, name: format!("u{uid}") });
    job_event::Body::Submitted(job_event::Submitted { job, command: "./a".into(), owner })
}

fn seen(feed: &Feed, since: Option<u64>, uid: u32) -> (Vec<DvmEvent>, u64) {
    let caller = Caller { uid, is_admin: uid == 0 };
    let reply = feed.after(since, |audience| audience.has(caller, true)).unwrap();
    (reply.events, reply.missed)
}

#[test]
fn a_user_sees_what_is_its_own_and_what_is_everybodys() {
    let mut feed = feed();
    log(&mut feed, 1, submitted(1, 1001));
    log(&mut feed, 2, submitted(2, 1002));
    feed.node_is_up(6, "n6");
    let info = wire::TokenInfo { id: 9, uid: 1002, ..Default::default() };
    feed.token(&info, wire::token_change::Change::Made(1));
    feed.settle(NOW);
    assert_eq!([0, 1001, 1002].map(|uid| seen(&feed, None, uid).0.len()), [5, 3, 4]);
    let jobs: Vec<JobId> = seen(&feed, None, 1001)
        .0
        .iter()
        .filter_map(|event| match &event.what {
            Some(What::Job(change)) => Some(change.job),
            _ => None,
        })
        .collect();
    assert_eq!(jobs, [1]);
}

#[test]
fn a_client_goes_on_after_its_last_event_and_learns_what_it_has_missed() {
    let mut feed = feed();
    let first = feed.last();
    for node in 0..EVENTS_MAX as u32 + 9 {
        feed.node(node, "n", NodeEvent::Drained, String::new());
    }
    feed.settle(NOW);
    let reply = feed.after(Some(first), |_| true).unwrap();
    assert_eq!((reply.missed, reply.events.len(), reply.head_restarted), (9, ANSWER_MAX, false));
    let (mut cursor, mut count) = (reply.cursor, reply.events.len());
    while cursor < feed.last() {
        let reply = feed.after(Some(cursor), |_| true).unwrap();
        assert_eq!((reply.missed, reply.events[0].number), (0, cursor + 1));
        (cursor, count) = (reply.cursor, count + reply.events.len());
    }
    assert_eq!(count, EVENTS_MAX);
    // The cursor of an earlier head is smaller than the numbers of this one.
    let reply = feed.after(Some(3), |_| true).unwrap();
    assert!(reply.head_restarted && reply.missed == 10, "{reply:?}");
    assert!(feed.after(Some(feed.last() + 1), |_| true).unwrap_err().text.contains("has not happened yet"));
}

#[test]
fn large_events_are_kept_up_to_a_number_of_bytes_and_texts_are_cut() {
    let mut feed = feed();
    for job in 1..=9000 {
        let command = "é".repeat(3000);
        let body = job_event::Body::Submitted(job_event::Submitted { job, command, owner: None });
        log(&mut feed, job, body);
    }
    assert!(feed.bytes <= BYTES_MAX && feed.events.len() > 1000, "{} {}", feed.bytes, feed.events.len());
    assert!(feed.events.iter().all(|entry| entry.bytes < TEXT_BYTES + 300));
}

#[test]
fn the_failures_of_a_job_are_bounded_and_its_end_counts_them() {
    let mut feed = feed();
    log(&mut feed, 1, submitted(1, 1001));
    let exits: Vec<wire::RankExit> = (0..100).map(|rank| wire::RankExit { rank, ..Default::default() }).collect();
    for exit in &exits {
        log(&mut feed, 1, job_event::Body::RankExit(exit.clone()));
    }
    let owner = Some(User { uid: 1001, name: "u".into() });
    log(&mut feed, 1, job_event::Body::Ended(JobInfo { exits, owner, ..Default::default() }));
    let (events, _) = seen(&feed, None, 1001);
    assert_eq!(events.len(), 3 + FAILURES_MAX as usize);
    let Some(What::Job(JobChange { change: Some(Change::Ended(end)), .. })) = &events[events.len() - 1].what else {
        panic!("{events:?}")
    };
    assert_eq!((end.failed_ranks, feed.leftovers().count()), (100, 0));
}

#[test]
fn jobs_of_an_earlier_head_are_not_submitted_again() {
    let mut feed = feed();
    feed.restoring(true);
    log(&mut feed, 1, submitted(1, 1001));
    feed.restoring(false);
    let owner = Some(User { uid: 1001, name: "u".into() });
    log(&mut feed, 1, job_event::Body::Ended(JobInfo { owner: owner.clone(), ..Default::default() }));
    // Of this one, not even the submission was logged again.
    let event = Box::new(JobEvent {
        at_ms: 1,
        body: Some(job_event::Body::Killing(Default::default())),
        ..JobEvent::default()
    });
    feed.observe(&Effect::Log { job: 2, event }, |_| Some(owner.clone()), |_| String::new());
    log(&mut feed, 2, job_event::Body::Ended(JobInfo { owner: owner.clone(), ..Default::default() }));
    assert_eq!([1001, 1002].map(|uid| seen(&feed, None, uid).0.len()), [4, 1]);
    assert_eq!(feed.leftovers().count(), 0);
}

#[test]
fn a_node_joins_goes_away_comes_back_and_is_lost() {
    let mut feed = feed();
    let start = feed.last();
    feed.node_is_away(7, "n7"); // its place is reserved, and it has not attached
    feed.node_is_up(7, "n7");
    feed.node_is_up(7, "n7");
    feed.node_is_away(7, "n7");
    feed.node_is_away(7, "n7");
    feed.node_is_up(7, "n7");
    feed.node_is_gone(7, "n7", NodeEvent::Lost, "gone".into());
    feed.node_is_gone(7, "n7", NodeEvent::Lost, "gone".into());
    feed.node_is_up(3, "n3"); // the earlier head had it
    feed.node_is_gone(4, "n4", NodeEvent::Lost, "gone".into()); // and this one, which does not come back
    feed.node_is_gone(9, "n9", NodeEvent::Lost, "gone".into()); // its place was reserved
    feed.settle(NOW);
    let changes: Vec<NodeEvent> = seen(&feed, Some(start), 1001)
        .0
        .iter()
        .filter_map(|event| match &event.what {
            Some(What::Node(change)) => Some(change.change()),
            _ => None,
        })
        .collect();
    use NodeEvent::{Away, Back, Joined, Lost};
    assert_eq!(changes, [Joined, Away, Back, Lost, Back, Lost]);
}

#[test]
fn the_next_head_has_the_events_of_the_one_before_and_tells_nothing_twice() {
    let mut first = feed();
    let killing =
        || job_event::Body::Killing(wire::job_event::Killing { reason: "asked".into(), ..Default::default() });
    let exit = |rank| job_event::Body::RankExit(wire::RankExit { rank, ..Default::default() });
    let owner = Some(User { uid: 1001, name: "u1001".into() });
    let ended = || job_event::Body::Ended(JobInfo { owner: owner.clone(), ..Default::default() });
    for body in [submitted(1, 1001), exit(3), killing(), ended()] {
        log(&mut first, 1, body);
    }
    for body in [submitted(2, 1001), exit(5)] {
        log(&mut first, 2, body);
    }
    let kept: Vec<KeptEvent> = first.take_unsaved().collect();
    assert_eq!((kept.len(), first.take_unsaved().count(), first.kept().count()), (7, 0, 7));
    let (all, _) = seen(&first, None, 0);

    let mut next = restored("n0", kept, 0);
    // The log of job 1 lacked its end, and that of job 2 the failure.
    log(&mut next, 1, ended());
    next.restoring(false);
    for body in [exit(5), exit(6), killing(), ended()] {
        let event = Box::new(JobEvent { at_ms: 1, body: Some(body), ..JobEvent::default() });
        next.observe(&Effect::Log { job: 2, event }, |_| Some(owner.clone()), |node| format!("n{node}"));
    }
    next.settle(NOW);
    let (events, missed) = seen(&next, None, 0);
    assert_eq!((&events[..7], missed), (&all[..], 0));
    let kinds: Vec<String> = events[7..].iter().map(|event| format!("{:?}", event.what)).collect();
    assert_eq!(kinds.len(), 4, "{kinds:#?}");
    assert!(kinds[0].contains("HeadStarted") && kinds[1].contains("rank: 6"), "{kinds:#?}");
    assert!(kinds[2].contains("Killing") && kinds[3].contains("Ended"), "{kinds:#?}");
    assert_eq!((next.take_unsaved().count(), next.leftovers().count()), (4, 0));
    assert!(next.told_before.is_empty(), "{:?}", next.told_before);
    // Numbers rise, also if the clock does not.
    assert!(events.is_sorted_by(|one, other| one.number < other.number));
    // A client that has followed the first head goes on with this one.
    let reply = next.after(Some(all[4].number), |_| true).unwrap();
    assert_eq!((reply.events.len(), reply.missed, reply.head_restarted), (6, 0, false));
}

#[test]
fn a_head_on_another_machine_says_whose_place_it_has_taken() {
    let mut first = feed();
    let mut next = restored("n3-head", first.take_unsaved().collect(), 1);
    let again = restored("n3-head", first.kept().chain(next.take_unsaved()).collect(), 1);
    let started = |feed: &Feed| match seen(feed, None, 0).0.pop().and_then(|event| event.what) {
        Some(What::HeadStarted(started)) => (started.node, started.epoch, started.successor_of),
        other => panic!("{other:?}"),
    };
    assert_eq!(started(&next), ("n3-head".to_owned(), 1, "n0".to_owned()));
    assert_eq!(started(&again), ("n3-head".to_owned(), 1, String::new()));
}

#[test]
fn events_of_several_heads_are_forgotten_in_order_and_counted_since_the_last_jump() {
    let mut first = feed();
    let began = first.last() - 1;
    for node in 0..9 {
        first.node(node, "n", NodeEvent::Drained, String::new());
    }
    first.settle(NOW);
    let mut next = started("n0");
    next.began += 1 << 30;
    next.last = next.began; // it was started later
    next.restore(first.kept().collect(), 0);
    for node in 0..EVENTS_MAX as u32 - 1 {
        next.node(node, "n", NodeEvent::Drained, String::new());
    }
    next.settle(NOW);
    let reply = next.after(Some(began + 4), |_| true).unwrap();
    assert_eq!((reply.missed, reply.head_restarted), (6, false), "the other six of the first head");
    next.node(0, "n", NodeEvent::Drained, String::new());
    next.settle(NOW);
    let reply = next.after(Some(began + 4), |_| true).unwrap();
    assert_eq!((reply.missed, reply.head_restarted), (1, true), "one of this head, and some of the earlier one");
}

#[test]
fn the_shortest_journal_has_the_latest_events() {
    let mut feed = feed();
    for job in 1..=3000 {
        let command = "x".repeat(1000);
        log(&mut feed, job, job_event::Body::Submitted(job_event::Submitted { job, command, owner: None }));
    }
    let kept: Vec<KeptEvent> = feed.kept().collect();
    assert!((500..1000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.last().and_then(|kept| Some(kept.event.as_ref()?.number)), Some(feed.last()));
}
