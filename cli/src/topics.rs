//! The topics of the manual: one Markdown source each in `cli/topics`, shown by `rsctl help TOPIC` and installed as man pages
//! of section 7.
//!
//! [`mod@markdown`] source → blocks · [`terminal`] blocks → text · [`man`] blocks → roff.

pub(crate) mod man;
mod markdown;
pub(crate) mod terminal;

/// One topic.
#[derive(Debug)]
pub(crate) struct Topic {
    /// The word that `rsctl help` takes.
    pub(crate) name: &'static str,
    /// What it is about, in one line.
    pub(crate) about: &'static str,
    /// Its Markdown, with the title.
    pub(crate) source: &'static str,
}

macro_rules! topics {
    ($($name:literal: $about:literal,)*) => {
        /// Every topic, in reading order.
        pub(crate) const TOPICS: &[Topic] = &[$(
            Topic { name: $name, about: $about, source: include_str!(concat!("../topics/", $name, ".md")) },
        )*];
    };
}

topics! {
    "getting-started": "run a first job, keep a daemon, follow jobs",
    "several-machines": "daemons on several machines, tokens, logins, services",
    "standbys": "another machine becomes the head",
    "ssh": "start daemons on other machines with rsctl up",
    "several-users": "one DVM for all users of a cluster",
    "placement": "which node and cpus each rank gets, and why",
    "queue": "when jobs start: order, priorities, dependencies, arrays, backfill, resources",
    "groups": "processes that already run become one MPI_COMM_WORLD",
    "mpi": "MPI libraries, compilers, and which library a program loads",
    "values": "exchange small values between the processes of a job",
    "exit-codes": "the exit codes of rsctl and rsd",
    "settings": "rsd.toml, environment variables, and the values in effect",
    "json": "what --json prints",
    "watching": "events, metrics, a live screen and logs",
    "troubleshooting": "what to check when something fails",
    "from-mpirun": "for users of Open MPI's mpirun and Hydra's mpiexec",
    "from-slurm": "for users of srun and sbatch",
    "from-torchrun": "for users of torchrun",
}

/// Finds the topic of this name.
pub(crate) fn find(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

/// Returns a line per topic: `  placement          which node …`.
pub(crate) fn list() -> String {
    let width = TOPICS.iter().map(|topic| topic.name.len()).max().unwrap_or(0);
    TOPICS.iter().map(|topic| format!("  {:width$}  {}\n", topic.name, topic.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;

    #[test]
    fn every_topic_fits_its_width_and_has_no_markup_left() {
        for topic in TOPICS {
            let text = terminal::text(topic, &Look { width: 80, rich: false });
            for line in text.lines() {
                assert!(line.chars().count() <= 80 || line.starts_with("    "), "{}: {line}", topic.name);
                assert!(
                    !line.contains("](") && !line.contains("**") && !line.contains("```"),
                    "{}: {line}",
                    topic.name
                );
            }
        }
    }

    #[test]
    fn every_topic_begins_with_its_title_and_is_a_man_page() {
        for topic in TOPICS {
            assert!(topic.source.starts_with(&format!("# {}: {}\n", topic.name, topic.about)), "{}", topic.name);
            let page = man::page(topic);
            assert!(page.contains(&format!("rsd\\-{}", topic.name.replace('-', "\\-"))), "{page}");
        }
    }
}
