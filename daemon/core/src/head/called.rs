//! What users call a job: its name and labels, and who has submitted it.

use rsd_proto::called;
use rsd_proto::v1::{JobSpec, Label, Submitter};

use crate::calls::{Refused, exit};

/// The most bytes of what a client says about itself, of each part.
const SUBMITTER_BYTES_MAX: usize = 4096;

/// What a user calls a job, and who submitted it.
#[derive(Debug, Default)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) labels: Vec<Label>,
    pub(super) submitter: Option<Submitter>,
}

impl Called {
    /// Returns what a specification says; nothing if it is invalid: a rank may spawn a job of any specification.
    pub(super) fn of(spec: &JobSpec) -> Called {
        match check(spec) {
            Ok(()) => {
                let (name, labels, submitter) = (spec.name.clone(), spec.labels.clone(), spec.submitter.clone());
                Called { name, labels, submitter }
            }
            Err(_) => Called::default(),
        }
    }

    pub(super) fn has_label(&self, key: &str, value: Option<&str>) -> bool {
        self.labels.iter().any(|label| label.key == key && value.is_none_or(|value| value == label.value))
    }
}

/// Refuses an invalid name, invalid labels and too many of them.
pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    let usage = |text: String| Refused::new(exit::USAGE, text);
    if !spec.name.is_empty() {
        called::check_name(&spec.name).map_err(usage)?;
    }
    for (at, Label { key, value }) in spec.labels.iter().enumerate() {
        called::check_label(key, value).map_err(usage)?;
        if spec.labels[..at].iter().any(|other| other.key == *key) {
            return Err(usage(format!("two labels with the key {key}: a job has at most one of each key")));
        }
        if at >= called::LABELS_MAX {
            return Err(usage(format!("{} labels: a job has at most {}", spec.labels.len(), called::LABELS_MAX)));
        }
    }
    let parts = spec.submitter.iter().flat_map(|it| [it.user.len(), it.host.len(), it.dir.len()]);
    match parts.max().is_some_and(|bytes| bytes > SUBMITTER_BYTES_MAX) {
        true => Err(usage(format!("the name or directory of the submitter has more than {SUBMITTER_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, labels: &[(&str, &str)]) -> JobSpec {
        let label = |(key, value): &(&str, &str)| Label { key: (*key).into(), value: (*value).into() };
        JobSpec { name: name.into(), labels: labels.iter().map(label).collect(), ..Default::default() }
    }

    #[test]
    fn names_and_labels_are_checked_and_bounded() {
        assert!(check(&spec("", &[])).is_ok() && check(&spec("train", &[("a", "1"), ("b", "1")])).is_ok());
        let why = |spec: &JobSpec| check(spec).unwrap_err().text;
        assert!(why(&spec("7", &[])).starts_with("invalid job name `7`: "));
        assert!(why(&spec("x", &[("a", "")])).starts_with("invalid label a=: "));
        assert!(why(&spec("x", &[("a", "1"), ("a", "2")])).starts_with("two labels with the key a"));
        let keys: Vec<String> = (0..17).map(|at| format!("k{at}")).collect();
        let many: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        assert!(why(&spec("x", &many)).contains("at most 16"));
        let far = Submitter { dir: vec![b'/'; 5000].into(), ..Default::default() };
        assert!(check(&JobSpec { submitter: Some(far), ..Default::default() }).is_err());
        assert_eq!(Called::of(&spec("7", &[])).name, "", "a spawned job cannot have a name that no user could give");
    }
}
