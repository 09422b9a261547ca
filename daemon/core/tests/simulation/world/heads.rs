//! Standbys, heads that they become, and partitions.

use rsd_core::rsd::{Caller, StandbyCall};
use rsd_proto::v1::{HeadEpoch, Kept};

use super::*;

/// What a standby has of the head.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    standby: MachineId,
    kept: Vec<Kept>,
    logs: BTreeMap<JobId, Vec<JobEvent>>,
    memory: Memory,
}

impl World {
    /// Lets a machine stand by for the head, and waits until all nodes know it.
    pub(crate) fn stand_by(&mut self, machine: MachineId) {
        let node = self.node(machine);
        let listen = "0.0.0.0:7100".to_owned();
        for call in [
            StandbyCall::Allow { node: format!("+id{node}"), forbid: false },
            StandbyCall::StandsBy { node, listen, daemon_listen: String::new() },
        ] {
            let req = self.call(self.head, Call::Standby(call));
            assert!(matches!(self.answered(req), Some(Answer::Standbys(_))));
        }
        self.run_for(Duration::from_millis(100));
    }

    /// Returns what a standby that is in step has now.
    pub(crate) fn copy(&self, standby: MachineId) -> Copy {
        let head = &self.machines[self.head];
        Copy { standby, kept: head.kept.clone(), logs: self.logs.clone(), memory: head.memory }
    }

    /// Makes a standby the head. What the head before has decided since the copy is not in it.
    pub(crate) fn promote(&mut self, copy: Copy) -> MachineId {
        let Copy { standby, mut kept, logs, memory } = copy;
        let number = 1 + self.machines[self.head].epoch.number;
        kept.push(Kept { what: Some(wire::kept::What::HeadEpoch(HeadEpoch { number, ..HeadEpoch::default() })) });
        kept.push(Kept { what: Some(wire::kept::What::StandbyGone(self.node(standby))) });
        let mut inventory = self.machines[standby].inventory.clone();
        (inventory.slots, inventory.machine) = (0, format!("of standby {standby}"));
        let memory = Memory { next_job: memory.next_job + 1000, next_node: memory.next_node + 100 };
        let head = Machine {
            name: format!("head{number}"),
            inventory,
            is_promoted: true,
            side: self.machines[standby].side,
            identity: (0, "d0".into(), format!("head{number}")),
            epoch: HeadEpoch { number, ..HeadEpoch::default() },
            memory,
            kept,
            ..Machine::default()
        };
        self.machines.push(head);
        self.logs = logs;
        self.head = self.machines.len() - 1;
        self.after(Duration::ZERO, Event::Restart(self.head));
        self.head
    }

    /// Separates these machines from the others, which notice it at different times.
    pub(crate) fn separate(&mut self, machines: &[MachineId]) {
        for machine in machines {
            self.machines[*machine].side = 1;
        }
        let across: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, wire)| match wire.lower {
                Lower::Daemon(lower) => {
                    let side = |pid: Pid| self.daemons.get(&pid).map(|daemon| self.machines[daemon.machine].side);
                    side(lower) != side(wire.upper)
                }
                Lower::Step(_) => false,
            })
            .map(|(id, _)| *id)
            .collect();
        across.into_iter().for_each(|id| self.cut(id));
    }

    /// All machines reach each other again.
    pub(crate) fn join_again(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.side = 0);
    }

    /// The epoch of the head that a machine's daemon obeys.
    pub(crate) fn epoch(&self, machine: MachineId) -> u64 {
        self.machines[machine].epoch.number
    }

    /// A request of the DVM's administrator to a daemon, if it runs; returns whether it has answered.
    pub(crate) fn is_served(&mut self, machine: MachineId) -> bool {
        let Some(pid) = self.machines[machine].daemon else { return false };
        let req = self.id();
        let caller = Caller { uid: 0, is_admin: true };
        self.handle(pid, Input::Call { req, caller, call: Call::Standby(StandbyCall::List) });
        matches!(self.answered(req), Some(Answer::Standbys(_)))
    }
}
