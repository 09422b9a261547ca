//! The uplink: connects a daemon to its parent, and reconnects when the connection is lost.
//!
//! The state machine decides which address to dial, how long an attempt may take, how long to wait before the next attempt, when
//! to ask the head for another parent, and when a daemon that has never been in the DVM gives up. It opens no connection itself:
//! the daemon's shell and the simulation perform its [`Action`]s and report the results.
//!
//! ```text
//!            Welcomed                     Lost
//! Dialing ───────────────▶ Attached ───────────────▶ Waiting ──(pause)──▶ Dialing
//!    │ Redirected: Dialing again, or Waiting if redirects follow each other
//!    │ Failed, or the deadline: Waiting, or Over
//! ```

use std::time::Duration;

use rsd_proto::v1::{Down, Redirect, Welcome};

use crate::{Now, rsd};

/// The first pause after a failure; each further failure doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// After this many failures in a row, the head is asked for another parent: the present one may never return.
const FAILURES_MAX: u32 = 6;
/// The head redirects once. After more redirects in a row the daemons disagree, and faster retries do not help.
const REDIRECTS_AT_ONCE: u32 = 3;

/// Pauses that double up to a limit.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Returns the pauses of a step that has lost its daemon: the daemon may be back within milliseconds, or in an hour.
    pub fn of_step() -> Backoff {
        Backoff::up_to(Duration::from_millis(500))
    }

    fn up_to(max: Duration) -> Backoff {
        Backoff { next: PAUSE_MIN.min(max), max }
    }

    /// Returns the pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// Resets to the shortest pause, after a successful attempt.
    pub fn reset(&mut self) {
        self.next = PAUSE_MIN.min(self.max);
    }
}

/// The configured limits.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long one attempt may take, from dialling to the parent's first message. A daemon that has not joined a DVM within this
    /// time after its start gives up at the next failure.
    pub dial_deadline: Duration,
    /// The longest pause between two attempts.
    pub retry_max: Duration,
}

/// An event of the uplink.
#[derive(Debug)]
pub enum Input {
    /// The attempt succeeded: the peer is now the parent.
    Welcomed(Welcome),
    /// The peer names another parent.
    Redirected(Redirect),
    /// The attempt failed. `hopeless`: another attempt would fail in the same way.
    #[expect(missing_docs, reason = "described above")]
    Failed { why: String, hopeless: bool },
    /// A message from the parent.
    Down(Down),
    /// The connection to the parent is lost.
    Lost,
    /// Time has passed.
    Tick,
}

/// An action that the uplink requests of the shell.
#[derive(Debug)]
pub enum Action {
    /// Dial this address; the hello says whether another daemon redirected this daemon there.
    #[expect(missing_docs, reason = "described above")]
    Dial { address: String, redirected: bool },
    /// Drop the attempt in progress.
    Abandon,
    /// Pass this to the daemon's state machine.
    Deliver(rsd::Input),
    /// Report that the daemon could not join its DVM, and why. No action follows.
    GiveUp(String),
}

/// The state machine of the connection to the parent.
#[derive(Debug)]
pub struct Uplink {
    /// The address given by the user: the head.
    join: String,
    limits: Limits,
    started: Duration,
    address: String,
    /// The peer expects this daemon: the head redirected it there, or the peer was its parent before.
    redirected: bool,
    /// Whether the daemon has had a parent since it was started.
    has_joined: bool,
    backoff: Backoff,
    failures: u32,
    redirects: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Dialing { deadline: Duration },
    Attached,
    Waiting { until: Duration },
    Over,
}

impl Uplink {
    /// Returns an uplink to the DVM at `join`; it dials with the first [`Input::Tick`].
    pub fn new(now: Now, join: String, limits: Limits) -> Uplink {
        Uplink {
            address: join.clone(),
            join,
            redirected: false,
            started: now.mono,
            has_joined: false,
            backoff: Backoff::up_to(limits.retry_max),
            limits,
            failures: 0,
            redirects: 0,
            state: State::Waiting { until: now.mono },
        }
    }

    /// Returns the address that the uplink dials or is attached to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Handles one input and appends the actions, in the order in which they must be performed.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        match (self.state, input) {
            (State::Dialing { .. }, Input::Welcomed(welcome)) => {
                self.state = State::Attached;
                self.has_joined = true;
                out.push(Action::Deliver(rsd::Input::Welcome(welcome)));
            }
            (State::Dialing { .. }, Input::Redirected(redirect)) => self.follow(now, redirect, out),
            (State::Dialing { .. }, Input::Failed { why, hopeless }) => self.failed(now, &why, hopeless, out),
            (State::Dialing { deadline }, Input::Tick) if deadline <= now.mono => {
                out.push(Action::Abandon);
                self.failed(now, &format!("no answer within {:?}", self.limits.dial_deadline), false, out);
            }
            (State::Attached, Input::Down(down)) => out.push(Action::Deliver(rsd::Input::Down(down))),
            (State::Attached, Input::Lost) => {
                out.push(Action::Deliver(rsd::Input::ParentLost));
                // The parent knows this daemon and accepts it again without asking the head.
                self.redirected = true;
                (self.failures, self.redirects) = (0, 0);
                self.backoff.reset();
                self.wait(now);
            }
            (State::Waiting { until }, Input::Tick) if until <= now.mono => self.dial(now, out),
            // Results of an abandoned attempt, and early ticks.
            (State::Dialing { .. } | State::Attached | State::Waiting { .. } | State::Over, _) => {}
        }
    }

    /// Returns when [`Input::Tick`] must be passed.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.state {
            State::Dialing { deadline } => Some(deadline),
            State::Waiting { until } => Some(until),
            State::Attached | State::Over => None,
        }
    }

    fn dial(&mut self, now: Now, out: &mut Vec<Action>) {
        self.state = State::Dialing { deadline: now.mono + self.limits.dial_deadline };
        out.push(Action::Dial { address: self.address.clone(), redirected: self.redirected });
    }

    fn wait(&mut self, now: Now) {
        self.state = State::Waiting { until: now.mono + self.backoff.pause() };
    }

    fn follow(&mut self, now: Now, redirect: Redirect, out: &mut Vec<Action>) {
        self.address.clone_from(&redirect.parent_addr);
        // Node 0 is the head, which decides again.
        self.redirected = redirect.node != 0;
        self.redirects += 1;
        out.push(Action::Deliver(rsd::Input::Redirected(redirect)));
        if self.redirects > REDIRECTS_AT_ONCE {
            self.wait(now);
        } else {
            self.dial(now, out);
        }
    }

    fn failed(&mut self, now: Now, why: &str, hopeless: bool, out: &mut Vec<Action>) {
        let is_late = now.mono.saturating_sub(self.started) >= self.limits.dial_deadline;
        if !self.has_joined && (hopeless || is_late) {
            self.state = State::Over;
            return out.push(Action::GiveUp(format!("cannot join the DVM at {}: {why}", self.address)));
        }
        self.failures += 1;
        self.redirects = 0;
        if self.failures >= FAILURES_MAX && self.address != self.join {
            (self.address, self.redirected, self.failures) = (self.join.clone(), false, 0);
        }
        self.wait(now);
    }
}

#[cfg(test)]
mod tests {
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
            let now = Duration::from_secs(100);
            let limits = Limits { dial_deadline: DEADLINE, retry_max: RETRY_MAX };
            Bench { uplink: Uplink::new(Now { mono: now, unix_ms: 0 }, "head".into(), limits), now }
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

        fn fail(&mut self) -> Vec<String> {
            self.handle(Input::Failed { why: "refused".into(), hopeless: false })
        }

        fn redirect(&mut self, node: u32, to: &str) -> Vec<String> {
            self.handle(Input::Redirected(Redirect { node, parent_addr: to.into(), ..Redirect::default() }))
        }

        /// An uplink that was welcomed by the parent to which the head sent it, and has lost it.
        fn cut_from_parent() -> Bench {
            let mut bench = Bench::new();
            bench.wait();
            bench.redirect(7, "parent");
            bench.handle(Input::Welcomed(Welcome::default()));
            assert_eq!(bench.uplink.next_deadline(), None);
            assert_eq!(bench.handle(Input::Lost), ["parent lost"]);
            bench
        }
    }

    fn text_of(action: &Action) -> String {
        match action {
            Action::Dial { address, redirected: false } => format!("dial {address}"),
            Action::Dial { address, redirected: true } => format!("dial {address}, redirected"),
            Action::Abandon => "abandon".into(),
            Action::Deliver(rsd::Input::Welcome(_)) => "welcome".into(),
            Action::Deliver(rsd::Input::Redirected(_)) => "redirect delivered".into(),
            Action::Deliver(rsd::Input::ParentLost) => "parent lost".into(),
            Action::Deliver(input) => format!("{input:?}"),
            Action::GiveUp(why) => why.clone(),
        }
    }

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_again_after_a_connection() {
        let mut bench = Bench::cut_from_parent();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(bench.wait().0.as_millis());
            bench.fail();
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 500, 500]);
        bench.wait();
        bench.handle(Input::Welcomed(Welcome::default()));
        bench.handle(Input::Lost);
        assert_eq!(bench.wait().0, Duration::from_millis(20));
    }

    #[test]
    fn after_a_cut_the_same_parent_is_dialled_first() {
        let mut bench = Bench::cut_from_parent();
        assert_eq!(bench.wait().1, ["dial parent, redirected"]);
    }

    #[test]
    fn after_six_failures_the_head_is_asked() {
        let mut bench = Bench::cut_from_parent();
        for attempt in 1..=6 {
            assert_eq!(bench.wait().1, ["dial parent, redirected"], "attempt {attempt}");
            assert_eq!(bench.fail(), [""; 0]);
        }
        assert_eq!(bench.wait().1, ["dial head"]);
    }

    #[test]
    fn daemons_that_redirect_in_a_circle_are_dialled_ever_more_slowly() {
        let mut bench = Bench::new();
        bench.wait();
        let (begin, mut dials) = (bench.now, 1);
        while bench.now < begin + Duration::from_secs(10) {
            let to = ["a", "b"][dials % 2];
            let done = bench.redirect(dials as u32, to);
            assert_eq!(done[0], "redirect delivered");
            if done.len() == 1 {
                assert_eq!(bench.wait().1, [format!("dial {to}, redirected")]);
            }
            dials += 1;
        }
        assert!(dials < 35, "{dials} attempts in 10 s");
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
        let failed = Input::Failed { why: "another DVM".into(), hopeless: true };
        assert_eq!(bench.handle(failed), ["cannot join the DVM at head: another DVM"]);
        assert_eq!(bench.uplink.next_deadline(), None);
    }

    #[test]
    fn a_daemon_that_was_in_the_dvm_never_gives_up() {
        let mut bench = Bench::cut_from_parent();
        for _ in 0..100 {
            bench.wait();
            assert_eq!(bench.handle(Input::Failed { why: "no".into(), hopeless: true }), [""; 0]);
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
        let mut bench = Bench::cut_from_parent();
        bench.wait();
        assert_eq!(bench.wait(), (DEADLINE, vec!["abandon".into()]));
        // A late answer belongs to no attempt and is ignored.
        assert_eq!(bench.handle(Input::Welcomed(Welcome::default())), [""; 0]);
        assert_eq!(bench.wait().1, ["dial parent, redirected"]);
    }
}
