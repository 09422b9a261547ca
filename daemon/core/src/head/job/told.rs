//! What clients are told of a job.

use rsd_proto::v1::{self as wire, JobInfo, JobSpec};

use super::super::life::Life;
use super::{EXITS_SHOWN, Job, SHOWN_BYTES};
use crate::{Now, sentences};

impl Job {
    pub(in crate::head) fn info(&self) -> JobInfo {
        if let Some(past) = &self.past {
            return JobInfo { bindings: Vec::new(), binding_runs: Vec::new(), ..JobInfo::clone(past) };
        }
        let (queued_reason, held) = match &self.life {
            Life::Queued(pending) => (pending.reason.clone(), pending.spec.hold),
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } | Life::Ended(_) => {
                (String::new(), false)
            }
        };
        let array = self.array.as_ref();
        JobInfo {
            job: self.number(),
            state: self.state().into(),
            command: self.command.clone(),
            ranks: self.map.size(),
            map: Some((&self.map).into()),
            node_names: self.node_names.clone(),
            submitted_ms: self.submitted_ms,
            started_ms: array.map_or(self.started_ms, |array| array.started_ms),
            ended_ms: self.ended_ms,
            exit_code: self.exit_code,
            cause: self.cause().cloned(),
            exits: self.ends.all().take(EXITS_SHOWN).cloned().collect(),
            queued_reason,
            namespace: self.namespace.clone(),
            parent: self.spawned.as_ref().map_or(0, |spawned| crate::attempts::number(spawned.parent)),
            joined: self.joined,
            owner: self.owner.clone(),
            token: self.token.clone(),
            lost_bytes: self.lost_bytes,
            name: self.called.name.clone(),
            labels: self.called.labels.clone(),
            submitter: self.called.submitter.clone(),
            usage: self.used.in_total(&self.map),
            output_bytes: self.output_bytes(),
            priority: self.priority,
            array: array.map(|array| array.info(held)),
            element: self.element,
            after: self.needs.clone(),
            held,
            timeout_ms: self.timeout_ms,
            attempt: crate::attempts::attempt(self.id),
            retries: self.retries,
            attempts: self.attempts.clone(),
            memory_per_rank: self.memory_per_rank,
            resources: self.resources.clone(),
            ..Default::default()
        }
    }

    /// Returns the layout of a job that has been launched.
    pub(in crate::head) fn description(&self) -> wire::JobDescription {
        wire::JobDescription {
            map: Some((&self.map).into()),
            node_names: self.node_names.clone(),
            app_sizes: self.app_sizes.clone(),
            universe_size: self.universe_size,
        }
    }

    /// Returns how long the job has been in the queue or, once it is started, how long ago that was.
    pub(in crate::head) fn waiting_ms(&self, now: Now) -> u64 {
        now.unix_ms.saturating_sub(self.started_ms.max(self.submitted_ms))
    }

    /// Returns all information, including what is too large for lists and logs.
    pub(in crate::head) fn info_in_full(&self) -> JobInfo {
        match &self.past {
            Some(past) => JobInfo::clone(past),
            None => JobInfo {
                bindings: self.bindings.clone(),
                binding_runs: self.binding_runs.clone(),
                usage: self.used.in_full(&self.map),
                ..self.info()
            },
        }
    }
}

/// Returns the programs and arguments as one types them, cut if they are long.
pub(super) fn command_line(spec: &JobSpec) -> String {
    let quoted = |word: &[u8]| {
        // A word may have many megabytes.
        let word = String::from_utf8_lossy(&word[..word.len().min(SHOWN_BYTES)]);
        let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b));
        if plain { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    let mut line = String::new();
    for (at, app) in spec.apps.iter().enumerate() {
        let between = if at > 0 { " : " } else { "" };
        for (nth, word) in app.argv.iter().enumerate() {
            line.push_str(if nth > 0 { " " } else { between });
            line.push_str(&quoted(word));
            if line.len() > SHOWN_BYTES {
                sentences::cut(&mut line, SHOWN_BYTES);
                return line;
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_and_cut() {
        let app = |words: &[&str]| wire::App {
            argv: words.iter().map(|word| word.as_bytes().to_vec().into()).collect(),
            ..Default::default()
        };
        let line = |apps: Vec<wire::App>| command_line(&JobSpec { apps, ..Default::default() });
        assert_eq!(line(vec![app(&["echo", "it's", ""]), app(&["true"])]), r"echo 'it'\''s' '' : true");
        let long = "ä".repeat(SHOWN_BYTES);
        for words in [vec!["echo", &long], vec!["x"; 1 << 16]] {
            let cut = line(vec![app(&words)]);
            assert!(cut.len() <= SHOWN_BYTES + 3 && cut.ends_with('…'), "{}", cut.len());
        }
    }
}
