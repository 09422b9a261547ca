//! Assertions about a DVM at rest.

use std::collections::BTreeMap;
use std::ops::Range;

use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{App, Host, JobInfo, JobSpec, JobState, StdinTarget, job_event, stdin_target};

use crate::world::World;

/// Prints the seed of a run that fails.
#[derive(Debug)]
pub(crate) struct Seed(pub(crate) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// Returns this number of seeds, or the seeds that `SIMULATION_SEEDS` names: `37`, or `100..5000`.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    let Ok(named) = std::env::var("SIMULATION_SEEDS") else { return 0..count };
    let number = |text: &str| text.parse::<u64>().expect("SIMULATION_SEEDS is a number or a range of them");
    match named.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&named)..number(&named) + 1,
    }
}

/// Returns the largest result of a fence that goes to all nodes: none in every other run.
pub(crate) fn replicated_max(seed: u64) -> u64 {
    if seed.is_multiple_of(2) { Tuning::default().replicated_max } else { 0 }
}

/// Returns a job of `n` ranks of one program.
pub(crate) fn spec(program: usize, n: u32) -> JobSpec {
    let argv = vec!["program".into(), program.to_string().into()];
    JobSpec { apps: vec![App { argv, n: Some(n), ..App::default() }], kill_grace_ms: Some(2000), ..JobSpec::default() }
}

pub(crate) fn on(hosts: &[String], spec: JobSpec) -> JobSpec {
    let hosts: Vec<Host> = hosts.iter().map(|name| Host { name: name.clone(), ..Host::default() }).collect();
    let apps = spec.apps.into_iter().map(|app| App { hosts: hosts.clone(), ..app }).collect();
    JobSpec { apps, ..spec }
}

pub(crate) fn with_stdin(rank: u32, spec: JobSpec) -> JobSpec {
    JobSpec { stdin: Some(StdinTarget { target: Some(stdin_target::Target::Rank(rank)) }), ..spec }
}

impl World {
    /// Asserts that nothing is left of any job and that no deadline is set.
    pub(crate) fn assert_at_rest(&mut self) {
        for (id, machine) in self.machines.iter().enumerate() {
            assert!(machine.steps.is_empty(), "n{id} still has the steps {:?}", machine.steps);
            let Some(core) = self.core(id) else { continue };
            assert_eq!(core.leftovers(), Vec::<String>::new(), "on n{id}");
            assert_eq!(core.next_deadline(), None, "n{id} still has a deadline");
            assert!(machine.launches.is_empty(), "n{id} still has the launches {:?}", machine.launches.keys());
        }
        assert!(self.steps.is_empty(), "steps are still running: {:?}", self.steps.keys());
        assert_eq!(self.unanswered(), 0, "a caller still waits for an answer");
        for node in self.nodes() {
            assert_eq!(node.slots_in_use, 0, "slots of {} are in use", node.name);
        }
        for (job, log) in &self.logs {
            let ends = log.iter().filter(|event| matches!(event.body, Some(job_event::Body::Ended(_)))).count();
            assert_eq!(ends, 1, "job {job} must end exactly once: {log:?}");
            assert!(matches!(log[0].body, Some(job_event::Body::Submitted(_))), "job {job} begins with its submission");
            let last = log.last().and_then(|event| event.body.as_ref());
            assert!(matches!(last, Some(job_event::Body::Ended(_))), "job {job} has the event {last:?} after its end");
        }
    }

    /// Asserts how a job has ended.
    pub(crate) fn assert_ended(&mut self, job: JobId, state: JobState, code: u32) -> JobInfo {
        let info = self.job(job);
        assert_eq!((info.state(), info.exit_code), (state, code), "job {job}: {info:?}");
        info
    }

    /// Asserts that all ranks of a job have finished their scripts.
    pub(crate) fn assert_done(&mut self, job: JobId) {
        let info = self.assert_ended(job, JobState::Done, 0);
        assert_eq!(info.exits, []);
        for rank in 0..info.ranks {
            assert!(self.records[&(job, rank)].finished, "rank {rank} of job {job} has not finished");
        }
        self.assert_output_whole(job);
    }

    /// Asserts that every byte that a rank wrote is in the job's log once, in order.
    pub(crate) fn assert_output_whole(&mut self, job: JobId) {
        let logged = self.logged(job);
        for ((_, rank), record) in self.records.range((job, 0)..(job + 1, 0)) {
            for stream in [0, 1] {
                let found = logged.get(&(*rank, stream)).map_or(&[][..], Vec::as_slice);
                let (found, written) =
                    (String::from_utf8_lossy(found), String::from_utf8_lossy(&record.written[stream]));
                assert_eq!(found, written, "rank {rank} of job {job}, stream {stream}");
            }
        }
    }

    /// Asserts that the logged output of every rank is a prefix of what it wrote.
    pub(crate) fn assert_output_true(&mut self, job: JobId) {
        for ((rank, stream), found) in self.logged(job) {
            let written = &self.records[&(job, rank)].written[stream];
            assert!(written.starts_with(&found), "rank {rank} of job {job} did not write all that is in its log");
        }
    }

    fn logged(&self, job: JobId) -> BTreeMap<(u32, usize), Vec<u8>> {
        let mut logged: BTreeMap<(u32, usize), Vec<u8>> = BTreeMap::new();
        // The streams whose last line has no end.
        let mut ended = Vec::new();
        for event in self.logs.get(&job).into_iter().flatten() {
            let Some(job_event::Body::Output(output)) = &event.body else { continue };
            for record in output.records.iter().filter(|record| record.job == 0) {
                let stream = (record.rank, record.stream as usize);
                assert!(
                    !ended.contains(&stream),
                    "rank {} of job {job} has a line that was cut: {output:?}",
                    record.rank
                );
                if !record.more && record.data.last() != Some(&b'\n') {
                    ended.push(stream);
                }
                logged.entry(stream).or_default().extend_from_slice(&record.data);
            }
        }
        logged
    }
}
