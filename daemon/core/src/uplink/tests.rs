use super::*;

const DEADLINE: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// An uplink to `head`, and a virtual clock.
struct Bench {
    uplink: Uplink,
    now: Duration,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(1, &[])
    }

    fn with(seed: u64, above: &[(NodeId, &str)]) -> Bench {
        let now = Duration::from_secs(100);
        let limits = Limits { dial_deadline: DEADLINE, retry_max: RETRY_MAX };
        let uplink = Uplink::new(
            Now { mono: now, unix_ms: 0 },
            "head".into(),
            Known { above: ancestors(above), ..Known::default() },
            limits,
            seed,
        );
        Bench { uplink, now }
    }

    fn handle(&mut self, input: Input) -> Vec<String> {
        let mut out = Vec::new();
        self.uplink.handle(Now { mono: self.now, unix_ms: 0 }, input, &mut out);
        out.iter().map(text_of).collect()
    }

    /// Advances the clock to the next deadline; returns the time until then and the actions.
    fn wait(&mut self) -> (Duration, Vec<String>) {
        let due = self.uplink.next_deadline().expect("a deadline is set");
        let waited = due - self.now;
        self.now = due;
        (waited, self.handle(Input::Tick))
    }

    fn fail_with(&mut self, kind: Failure) -> Vec<String> {
        self.handle(Input::Failed { why: "refused".into(), kind })
    }

    fn fail(&mut self) -> Vec<String> {
        self.fail_with(Failure::Passing)
    }

    fn redirect(&mut self, parent: NodeId, to: &str) -> Vec<String> {
        self.handle(Input::Redirected(redirect(parent, to)))
    }

    fn welcome(&mut self, parent: NodeId) -> Vec<String> {
        self.handle(Input::Welcomed(Welcome { parent, ..Welcome::default() }))
    }

    fn lose(&mut self) -> Vec<String> {
        self.handle(Input::Lost { silent: false })
    }

    /// An uplink that is attached to node 7 at `parent`, below node 3 at `above` and the head.
    fn attached() -> Bench {
        let mut bench = Bench::new();
        bench.wait();
        bench.redirect(7, "parent");
        bench.welcome(7);
        let above = ancestors(&[(7, "parent"), (3, "above"), (0, "head")]);
        let told = down::Body::Ancestors(rsd_proto::v1::Ancestors { above, ..Default::default() });
        bench.handle(Input::Down(Down { body: Some(told) }));
        assert_eq!(bench.uplink.next_deadline(), None);
        bench.now += STABLE;
        bench
    }

    fn cut_from_parent() -> Bench {
        let mut bench = Bench::attached();
        assert_eq!(bench.lose(), ["parent lost"]);
        bench
    }
}

fn ancestors(above: &[(NodeId, &str)]) -> Vec<Ancestor> {
    above
        .iter()
        .map(|(node, at)| Ancestor { node: *node, addresses: vec![(*at).to_owned()], ..Ancestor::default() })
        .collect()
}

fn redirect(parent: NodeId, to: &str) -> Redirect {
    Redirect { node: 9, parent, parent_addrs: vec![to.into()], ..Redirect::default() }
}

fn text_of(action: &Action) -> String {
    match action {
        Action::Dial(Dial { addresses, approach, .. }) => {
            let Approach { redirected, orphan, unreachable } = approach;
            let mut text = format!("dial {}", addresses.join(" "));
            text.push_str(if *redirected { ", redirected" } else { "" });
            text.push_str(if *orphan { ", orphan" } else { "" });
            if !unreachable.is_empty() {
                text.push_str(&format!(", without {unreachable:?}"));
            }
            text
        }
        Action::Abandon => "abandon".into(),
        Action::Leave => "leave".into(),
        Action::Deliver(rsd::Input::Welcome(_)) => "welcome".into(),
        Action::Deliver(rsd::Input::Redirected(_)) => "redirect delivered".into(),
        Action::Deliver(rsd::Input::ParentLost) => "parent lost".into(),
        Action::Deliver(input) => format!("{input:?}"),
        Action::GiveUp(why) => why.clone(),
    }
}

/// Asserts that a pause is the limit, less up to half of it.
#[track_caller]
fn assert_pause(waited: Duration, limit_ms: u64) {
    let limit = Duration::from_millis(limit_ms);
    assert!((limit / 2..=limit).contains(&waited), "{waited:?}");
}

#[test]
fn pauses_double_up_to_the_limit_and_begin_again_after_a_stable_connection() {
    let mut bench = Bench::new();
    bench.wait();
    for limit in [20, 40, 80, 160, 320, 500, 500] {
        assert_eq!(bench.fail(), [""; 0]);
        assert_pause(bench.wait().0, limit);
    }
    bench.welcome(0);
    bench.now += STABLE;
    bench.lose();
    assert_pause(bench.wait().0, 20);
}

#[test]
fn a_connection_that_is_lost_at_once_does_not_shorten_the_pauses() {
    let mut bench = Bench::new();
    bench.wait();
    for limit in [20, 40, 80, 160, 320] {
        bench.welcome(0);
        bench.lose();
        assert_pause(bench.wait().0, limit);
    }
}

#[test]
fn two_seeds_give_different_pauses() {
    let pause = |seed| {
        let mut bench = Bench::with(seed, &[]);
        bench.wait();
        bench.fail();
        bench.wait().0
    };
    assert_ne!(pause(5), pause(77));
}

#[test]
fn after_a_cut_the_same_parent_is_dialled_first() {
    let mut bench = Bench::cut_from_parent();
    assert_eq!(bench.wait().1, ["dial parent, redirected"]);
}

#[test]
fn a_parent_that_refuses_is_dialled_six_times_and_then_every_daemon_above_it() {
    let mut bench = Bench::cut_from_parent();
    assert_eq!(bench.wait().1, ["dial parent, redirected"]);
    for _ in 1..6 {
        assert_eq!(bench.fail(), [""; 0]);
        assert_eq!(bench.wait().1, ["dial parent, redirected, without [7]"]);
    }
    assert_eq!(bench.fail(), ["dial above, orphan, without [7]"]);
    assert_eq!(bench.fail(), ["dial head, without [3, 7]"]);
    assert_eq!(bench.fail(), [""; 0], "a pause before the next round");
    assert_eq!(bench.wait().1, ["dial parent, redirected, without [3, 7]"], "it may be back");
}

#[test]
fn a_parent_without_power_is_not_dialled_before_the_daemons_above_it() {
    let mut bench = Bench::attached();
    let lost = bench.handle(Input::Lost { silent: true });
    assert_eq!(lost, ["parent lost", "dial above, orphan, without [7]"]);
    // An attempt without an answer is short in the first round, as others remain.
    assert_eq!(bench.wait(), (FIRST_ROUND, vec!["abandon".into(), "dial head, without [3, 7]".into()]));
}

#[test]
fn the_head_is_asked_again_if_the_parent_that_it_names_does_not_answer() {
    let mut bench = Bench::attached();
    bench.handle(Input::Lost { silent: true });
    bench.fail();
    assert_eq!(bench.redirect(8, "new"), ["redirect delivered", "dial new, redirected, without [3, 7]"]);
    assert_eq!(bench.fail(), ["dial head, without [3, 7, 8]"]);
}

#[test]
fn a_daemon_whose_parent_names_another_before_it_stops_goes_there() {
    let mut bench = Bench::attached();
    let leaving = Input::Down(Down { body: Some(down::Body::Redirect(redirect(3, "above"))) });
    let expected = ["parent lost", "redirect delivered", "dial above, orphan, without [7]"];
    assert_eq!(bench.handle(leaving), expected);
    assert_eq!(bench.fail(), ["dial parent, orphan, without [3, 7]"], "and then to all others");
}

#[test]
fn the_head_that_a_redirect_has_named_is_not_forgotten() {
    let mut bench = Bench::new();
    bench.wait();
    bench.redirect(0, "the real head");
    bench.redirect(7, "parent");
    bench.welcome(7);
    bench.handle(Input::Lost { silent: true });
    assert_eq!(bench.uplink.address(), "the real head");
    assert_eq!(bench.fail(), ["dial head, without [7]"], "and then the daemon that the user has named");
}

#[test]
fn a_restarted_daemon_knows_the_daemons_above_it() {
    let mut bench = Bench::with(1, &[(7, "parent"), (0, "the real head")]);
    assert_eq!(bench.wait().1, ["dial head"], "what the user says comes first");
    assert_eq!(bench.fail(), ["dial parent, orphan"]);
    assert_eq!(bench.fail(), ["dial the real head, without [7]"]);
    assert_eq!(bench.fail(), [""; 0]);
}

#[test]
fn daemons_that_redirect_in_a_circle_are_dialled_ever_more_slowly() {
    let mut bench = Bench::new();
    bench.wait();
    let (begin, mut dials) = (bench.now, 1);
    while bench.now < begin + DEADLINE / 2 {
        let done = bench.redirect(1 + dials % 2, ["a", "b"][dials as usize % 2]);
        assert_eq!(done[0], "redirect delivered");
        if done.len() == 1 {
            bench.wait();
        }
        dials += 1;
    }
    assert!(dials < 25, "{dials} attempts in 2.5 s");
}

#[test]
fn a_daemon_that_is_redirected_in_a_circle_gives_up_with_the_circle() {
    let mut bench = Bench::new();
    bench.wait();
    bench.now += DEADLINE;
    let mut last = Vec::new();
    for hop in 0..=REDIRECTS_MAX {
        last = bench.redirect(1 + hop as u32 % 2, ["a", "b"][hop % 2]);
        if last.len() == 1 {
            bench.wait();
        }
    }
    let expected = "cannot join the DVM at head: redirected 9 times in a row: a, b, a, b, a, b, a, b, a";
    assert_eq!(last[1], expected);
}

#[test]
fn a_redirect_to_the_head_lets_the_head_decide() {
    let mut bench = Bench::new();
    assert_eq!(bench.wait(), (Duration::ZERO, vec!["dial head".into()]));
    assert_eq!(bench.redirect(7, "parent"), ["redirect delivered", "dial parent, redirected"]);
    assert_eq!(bench.redirect(0, "head"), ["redirect delivered", "dial head"]);
}

#[test]
fn a_hopeless_first_failure_ends_the_uplink_at_once() {
    let mut bench = Bench::new();
    bench.wait();
    assert_eq!(bench.fail_with(Failure::Hopeless), ["cannot join the DVM at head: refused"]);
    assert_eq!(bench.uplink.next_deadline(), None);

    let mut bench = Bench::new();
    bench.wait();
    bench.redirect(0, "this one");
    let said = bench.fail_with(Failure::Hopeless);
    assert_eq!(said, ["cannot join the DVM at head: redirected to this one: refused"]);
}

#[test]
fn a_daemon_that_was_in_the_dvm_never_gives_up() {
    let mut bench = Bench::cut_from_parent();
    for _ in 0..100 {
        bench.wait();
        assert!(bench.fail_with(Failure::Hopeless).iter().all(|action| action.starts_with("dial")));
    }
    assert!(bench.now > Duration::from_secs(100) + 2 * DEADLINE);
}

#[test]
fn a_daemon_that_was_never_in_the_dvm_gives_up_at_the_deadline() {
    let mut bench = Bench::new();
    bench.wait();
    let begin = bench.now;
    let why = loop {
        match bench.fail().pop() {
            Some(why) => break why,
            None => drop(bench.wait()),
        }
    };
    assert_eq!(why, "cannot join the DVM at head: refused");
    assert!((DEADLINE..DEADLINE + RETRY_MAX).contains(&(bench.now - begin)));
}

#[test]
fn an_attempt_without_an_answer_is_abandoned_at_the_deadline() {
    let mut bench = Bench::new();
    bench.wait();
    assert_eq!(bench.wait().0, DEADLINE);
    let mut bench = Bench::cut_from_parent();
    bench.wait();
    let (waited, done) = bench.wait();
    assert_eq!((waited, done[0].as_str()), (FIRST_ROUND, "abandon"));
    assert_eq!(done[1], "dial above, orphan, without [7]");
}

fn told(bench: &mut Bench, epoch: u64, standbys: &[(NodeId, &str)]) -> Vec<String> {
    let above = ancestors(&[(0, "head")]);
    let epoch = Some(rsd_proto::v1::HeadEpoch { number: epoch, ..Default::default() });
    let standbys = ancestors(standbys);
    let told = rsd_proto::v1::Ancestors { above, epoch, standbys, ..Default::default() };
    bench.handle(Input::Down(Down { body: Some(down::Body::Ancestors(told)) }))
}

#[test]
fn when_the_head_is_lost_the_standbys_are_tried() {
    let mut bench = Bench::new();
    bench.wait();
    bench.welcome(0);
    told(&mut bench, 0, &[(4, "standby")]);
    bench.now += STABLE;
    let mut dialled = bench.handle(Input::Lost { silent: true });
    dialled.extend((0..3).flat_map(|_| bench.fail_with(Failure::Silent)));
    assert!(dialled.contains(&"dial standby".to_owned()), "{dialled:?}");
}

#[test]
fn a_parent_with_an_earlier_head_is_refused_and_left() {
    let mut bench = Bench::new();
    bench.wait();
    bench.welcome(0);
    assert_eq!(told(&mut bench, 2, &[]).len(), 1, "it is passed on");
    // A daemon below has heard of a later head.
    bench.now += STABLE;
    let left = bench.handle(Input::Epoch(3));
    assert_eq!(left[..2], ["parent lost", "leave"]);
    assert!(matches!(bench.uplink.state, State::Dialing { .. } | State::Waiting { .. }));
    if matches!(bench.uplink.state, State::Waiting { .. }) {
        bench.wait();
    }
    let refused = bench.handle(Input::Welcomed(Welcome { epoch: 2, ..Welcome::default() }));
    assert_eq!(refused[..2], ["parent lost", "leave"], "the epoch of the head before");
    while !matches!(bench.uplink.state, State::Dialing { .. }) {
        bench.wait();
    }
    assert_eq!(bench.handle(Input::Welcomed(Welcome { epoch: 3, ..Welcome::default() })), ["welcome"]);
    assert_eq!(told(&mut bench, 2, &[])[..2], ["parent lost", "leave"], "no word of an earlier head is passed on");
}
