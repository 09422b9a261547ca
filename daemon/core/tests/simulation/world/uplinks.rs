//! Uplinks: how daemons dial each other, and at which addresses.

use std::collections::VecDeque;

use super::*;

impl World {
    pub(super) fn feed_uplink(&mut self, pid: Pid, input: uplink::Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now();
            let Some(daemon) = self.daemons.get_mut(&pid) else { return };
            let mut actions = Vec::new();
            daemon.uplink.handle(now, input, &mut actions);
            for action in actions {
                inputs.extend(self.perform_uplink(pid, action));
            }
        }
        if let Some(due) = self.daemons.get(&pid).and_then(|daemon| daemon.uplink.next_deadline()) {
            self.at(due, Event::UplinkTick(pid));
        }
    }

    pub(super) fn perform_uplink(&mut self, pid: Pid, action: uplink::Action) -> Option<uplink::Input> {
        match action {
            uplink::Action::Dial(dial) => self.dial(pid, dial),
            uplink::Action::Abandon => {
                let wire = self.daemons.get_mut(&pid).and_then(|daemon| daemon.dialing.take());
                if let Some(wire) = wire {
                    self.send_eof(wire, Way::Up);
                }
                None
            }
            uplink::Action::Leave => {
                let daemon = self.daemons.get_mut(&pid);
                let wires = daemon.map(|daemon| [daemon.dialing.take(), daemon.parent.take()]);
                for wire in wires.into_iter().flatten().flatten() {
                    self.send_eof(wire, Way::Up);
                }
                None
            }
            uplink::Action::Deliver(input) => {
                self.handle(pid, input);
                None
            }
            uplink::Action::GiveUp(why) => {
                self.given_up.push(why);
                let machine = self.daemons.get(&pid).map(|daemon| daemon.machine);
                self.end_daemon(pid);
                if let Some(machine) = machine {
                    self.after(RESTART_PAUSE, Event::Restart(machine));
                }
                None
            }
        }
    }

    pub(super) fn dial(&mut self, pid: Pid, dial: uplink::Dial) -> Option<uplink::Input> {
        self.dials += 1;
        let failed = |kind| Some(uplink::Input::Failed { why: format!("{kind:?}"), kind });
        let daemon = self.daemons.get_mut(&pid)?;
        let (machine, parent) = (daemon.machine, daemon.parent.take());
        if let Some(parent) = parent {
            self.send_eof(parent, Way::Up);
        }
        let there = (0..self.machines.len()).find(|id| dial.addresses.contains(&self.address(*id)));
        let Some(there) = there.filter(|id| self.machines[*id].listens) else {
            return failed(uplink::Failure::Passing);
        };
        if !self.reaches(machine, there) {
            // The attempt ends at its deadline.
            return None;
        }
        let Some(upper) = self.machines[there].daemon else { return failed(uplink::Failure::Passing) };
        if dial.node.is_some_and(|node| node != self.machines[there].identity.0) {
            return failed(uplink::Failure::Hopeless);
        }
        let wire = self.connect(Lower::Daemon(pid), upper);
        let daemon = self.daemons.get_mut(&pid)?;
        daemon.dialing = Some(wire);
        let mut hello = daemon.core.hello(dial.approach);
        if let Some(wire::hello::Who::Node(wire::NodeHello { connect_back: 1.., nodes, .. })) = &mut hello.who {
            let reached = nodes[0].inventory.as_ref().map(|inventory| inventory.addresses[0].host.clone());
            nodes[0].reached = reached;
        }
        let hello = Up { body: Some(up::Body::Hello(hello)) };
        self.send(wire, Way::Up, Some(hello.encode_to_vec().into()));
        None
    }

    /// Handles a message from the parent, or the end of its stream.
    pub(super) fn on_from_above(&mut self, pid: Pid, wire: WireId, down: Option<Down>) {
        let Some(daemon) = self.daemons.get_mut(&pid) else { return };
        let input = if daemon.dialing == Some(wire) {
            daemon.dialing = None;
            match down.and_then(|down| down.body) {
                Some(down::Body::Welcome(welcome)) => {
                    daemon.parent = Some(wire);
                    uplink::Input::Welcomed(welcome)
                }
                Some(down::Body::Redirect(redirect)) => {
                    self.send_eof(wire, Way::Up);
                    uplink::Input::Redirected(redirect)
                }
                Some(down::Body::Refused(refused)) => {
                    self.send_eof(wire, Way::Up);
                    uplink::Input::Failed { why: refused.why, kind: uplink::Failure::Hopeless }
                }
                Some(_) | None => {
                    self.send_eof(wire, Way::Up);
                    uplink::Input::Failed { why: "no welcome".into(), kind: uplink::Failure::Passing }
                }
            }
        } else if daemon.parent == Some(wire) {
            match down {
                Some(down) => uplink::Input::Down(down),
                None => {
                    daemon.parent = None;
                    self.send_eof(wire, Way::Up);
                    let silent = self.wires.get(&wire).is_some_and(|wire| wire.is_silent);
                    uplink::Input::Lost { silent }
                }
            }
        } else {
            return;
        };
        self.feed_uplink(pid, input);
    }

    pub(super) fn address(&self, machine: MachineId) -> String {
        format!("{}:{}", self.host(machine), self.port(machine))
    }

    /// Whether a daemon ever listens for children.
    pub(crate) fn may_be_parent(&self, machine: MachineId) -> bool {
        self.machines[machine].opens != Some(Opens::Never)
    }

    pub(super) fn host(&self, machine: MachineId) -> String {
        self.machines[machine].inventory.addresses[0].host.clone()
    }

    pub(super) fn port(&self, machine: MachineId) -> u64 {
        let Machine { port_moves, incarnation, is_promoted, .. } = &self.machines[machine];
        if *is_promoted {
            return 7100;
        }
        if *port_moves { 7000 + incarnation } else { 7000 }
    }

    pub(super) fn listen(&self, machine: MachineId) -> String {
        format!("0.0.0.0:{}", self.port(machine))
    }
}
