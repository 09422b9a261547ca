//! The links between daemons, and between steps and their daemons: messages are delayed, and cuts are noticed late.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_core::rsd::{Input, LinkId};
use rsd_proto::v1::{self as wire, Down, Up, down, hello, up};

use super::{Event, MachineId, Pid, WireId, World};

/// How long a link is silent before its ends count it as cut.
const SILENCE: Duration = Duration::from_secs(10);

/// The direction of a message, or the end of a wire that receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lower {
    Daemon(Pid),
    Step(Pid),
}

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) lower: Lower,
    pub(super) upper: Pid,
    /// The upper daemon's number for it, after its hello.
    pub(super) link: Option<LinkId>,
    /// When the last message in each direction arrives.
    pub(super) last: [Duration; 2],
    /// When each direction was cut: later messages are lost.
    pub(super) cut: [Option<Duration>; 2],
    /// Whether an end has lost power: the other end notices only the silence.
    pub(super) is_silent: bool,
}

/// The ends of a wire.
#[derive(Debug)]
pub(crate) struct WireEnds {
    pub(crate) lower: Lower,
    pub(crate) upper: Pid,
}

impl World {
    pub(crate) fn connect(&mut self, lower: Lower, upper: Pid) -> WireId {
        let id = self.id();
        self.wires.insert(id, Wire { lower, upper, link: None, last: [self.now; 2], cut: [None; 2], is_silent: false });
        id
    }

    pub(crate) fn send(&mut self, id: WireId, way: Way, packet: Option<Bytes>) {
        let delay = self.delay();
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let at = (self.now + delay).max(wire.last[way as usize]);
        wire.last[way as usize] = at;
        self.at(at, Event::Deliver { wire: id, way, packet });
    }

    pub(crate) fn send_eof(&mut self, wire: WireId, way: Way) {
        self.send(wire, way, None);
    }

    pub(super) fn deliver(&mut self, id: WireId, way: Way, packet: Option<Bytes>) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if wire.cut[way as usize].is_some_and(|cut| cut < self.now) {
            return;
        }
        match (way, packet) {
            (Way::Up, Some(bytes)) => {
                let (pid, link) = (wire.upper, wire.link);
                let up = Up::decode(bytes).expect("what was encoded decodes");
                match (link, up.body) {
                    (None, Some(up::Body::Hello(hello))) => {
                        let Some(daemon) = self.daemons.get_mut(&pid) else { return };
                        let link = daemon.next_link;
                        daemon.next_link += 1;
                        daemon.links.insert(link, id);
                        wire.link = Some(link);
                        self.handle(pid, Input::Hello { link, hello, uid: 0 });
                    }
                    (Some(link), body) => self.handle(pid, Input::Up { link, up: Up { body } }),
                    (None, body) => panic!("the first message is not hello but {body:?}"),
                }
            }
            (Way::Down, Some(bytes)) => {
                let down = Down::decode(bytes).expect("what was encoded decodes");
                match wire.lower {
                    Lower::Daemon(pid) => self.on_from_above(pid, id, Some(down)),
                    Lower::Step(pid) => self.step_from_above(pid, id, Some(down)),
                }
            }
            (way, None) => self.notice(id, way),
        }
    }

    /// Reports the end of the stream to the end that `way` leads to.
    pub(super) fn notice(&mut self, id: WireId, way: Way) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        match way {
            Way::Up => {
                let (pid, Some(link)) = (wire.upper, wire.link) else { return };
                // Nothing is delivered after this.
                wire.cut[0] = Some(Duration::ZERO);
                wire.link = None;
                if let Some(daemon) = self.daemons.get_mut(&pid) {
                    daemon.links.remove(&link);
                    self.handle(pid, Input::LinkClosed { link });
                }
            }
            Way::Down => match wire.lower {
                Lower::Daemon(pid) => self.on_from_above(pid, id, None),
                Lower::Step(pid) => self.step_from_above(pid, id, None),
            },
        }
    }

    /// Cuts a wire: messages on the way may or may not arrive, and each end notices the cut independently.
    pub(super) fn cut(&mut self, id: WireId) {
        for way in [Way::Up, Way::Down] {
            let at = self.now + self.rng.within(Duration::from_micros(300));
            let noticed = at + Duration::from_micros(1) + self.rng.within(self.notice);
            let Some(wire) = self.wires.get_mut(&id) else { return };
            if wire.cut[way as usize].is_none() {
                wire.cut[way as usize] = Some(at);
                self.at(noticed, Event::Broken { wire: id, way });
            }
        }
    }

    /// Cuts a wire now; its ends notice that after ten seconds.
    pub(super) fn fall_silent(&mut self, id: WireId) {
        for way in [Way::Up, Way::Down] {
            let Some(wire) = self.wires.get_mut(&id) else { return };
            if wire.cut[way as usize].is_none() {
                (wire.cut[way as usize], wire.is_silent) = (Some(self.now), true);
                self.at(self.now + SILENCE, Event::Broken { wire: id, way });
            }
        }
    }

    pub(crate) fn break_wires_of(&mut self, of: impl Fn(&WireEnds) -> bool) {
        let ends = |wire: &Wire| WireEnds { lower: wire.lower, upper: wire.upper };
        let ids: Vec<WireId> = self.wires.iter().filter(|(_, wire)| of(&ends(wire))).map(|(id, _)| *id).collect();
        for id in ids {
            self.cut(id);
        }
    }

    pub(super) fn machine_of(&self, lower: Lower) -> Option<MachineId> {
        match lower {
            Lower::Daemon(pid) => self.daemons.get(&pid).map(|daemon| daemon.machine),
            Lower::Step(pid) => self.steps.get(&pid).map(|step| step.machine),
        }
    }

    pub(super) fn reaches(&self, from: MachineId, to: MachineId) -> bool {
        let (from_side, to_side) = (self.machines[from].side, self.machines[to].side);
        from == to || from_side == to_side && !(self.machines[from].isolated || self.machines[to].isolated)
    }

    pub(super) fn count_down(&mut self, id: WireId, from: MachineId, down: &Down) {
        let Some(Wire { lower: Lower::Daemon(pid), .. }) = self.wires.get(&id) else { return };
        if let Some(below) = self.daemons.get(pid) {
            self.traffic.push((kind_down(down), from, below.machine));
        }
    }
}

pub(super) fn kind_up(up: &Up) -> &'static str {
    match &up.body {
        Some(up::Body::Hello(wire::Hello { who: Some(hello::Who::Node(_) | hello::Who::Step(_)), .. })) => "hello",
        Some(up::Body::FenceUp(_)) => "fence up",
        Some(up::Body::Located(_)) => "located",
        Some(up::Body::Locate(_)) => "locate",
        Some(up::Body::Done(_)) => "done",
        Some(up::Body::Output(_)) => "output",
        Some(up::Body::RankFailed(_)) => "rank failed",
        Some(up::Body::Resume(_)) => "resume",
        Some(up::Body::NameCall(_)) => "name call",
        Some(up::Body::Fetched(_)) => "fetched",
        Some(up::Body::RanksEnded(_)) => "ranks ended",
        Some(up::Body::SpawnCall(_)) => "spawn call",
        Some(up::Body::Begun(_)) => "begun",
        Some(up::Body::Waits(_)) => "waits",
        Some(up::Body::Missed(_)) => "missed",
        Some(up::Body::Passed(_)) => "passed",
        Some(up::Body::GetHeld(_)) => "get held",
        Some(up::Body::NodesPut(_)) => "nodes put",
        Some(up::Body::GroupJoin(_)) => "group join",
        Some(up::Body::NodesUp(_) | up::Body::NodesAway(_) | up::Body::NodesGone(_)) => "nodes",
        Some(_) | None => "other up",
    }
}

pub(super) fn kind_down(down: &Down) -> &'static str {
    match &down.body {
        Some(down::Body::Launch(_)) => "launch",
        Some(down::Body::Check(_)) => "check",
        Some(down::Body::WantResult(_)) => "want result",
        Some(down::Body::Held(_)) => "held",
        Some(down::Body::Collect(_)) => "collect",
        Some(down::Body::FenceDown(_)) => "fence down",
        Some(down::Body::Locations(_)) => "locations",
        Some(down::Body::NameResult(_)) => "name result",
        Some(down::Body::Fetch(_)) => "fetch",
        Some(down::Body::WatchEnds(_)) => "watch ends",
        Some(down::Body::Notify(_)) => "notify",
        Some(down::Body::SpawnResult(_)) => "spawn result",
        Some(down::Body::Release(_)) => "release",
        Some(down::Body::OutputAck(_)) => "output ack",
        Some(down::Body::Kill(_)) => "kill",
        Some(down::Body::Resync(_)) => "resync",
        Some(down::Body::WaitProbe(_)) => "wait probe",
        Some(_) | None => "other down",
    }
}
