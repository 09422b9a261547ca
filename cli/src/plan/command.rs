//! The command that requests the same placement as a plan, with every default written out.

use std::borrow::Cow;
use std::ffi::OsString;

use rsd_core::place::policy::{Directive, MapBy};
use rsd_proto::v1::{JobSpec, Plan, Resource};

use crate::options::placing::Listing;
use crate::options::{Launch, Segment};

/// Returns `rsctl run …`, quoted for a shell, which places ranks as the plan does.
pub(crate) fn full(launch: &Launch, spec: &JobSpec, plan: &Plan) -> String {
    let mut words: Vec<OsString> = vec!["rsctl".into(), "run".into()];
    let mut policy = |option: &str, value: &str| {
        if !value.is_empty() {
            words.extend([option.into(), value.into()]);
        }
    };
    policy("--map-by", &plan.map_by);
    // A list of hosts or a rank file numbers the ranks itself.
    let listed = plan.map_by.parse::<MapBy>().is_ok_and(|map_by| match map_by.directive {
        Some(Directive::Seq | Directive::Rankfile) => true,
        Some(
            Directive::Slot | Directive::Node | Directive::Object(_) | Directive::Ppr { .. } | Directive::PeList { .. },
        )
        | None => false,
    });
    if !listed {
        policy("--rank-by", &plan.rank_by);
    }
    match launch.placing.policy().map_or(Listing::None, |(_, listing)| listing) {
        Listing::Rankfile(file) => policy("--rankfile", &file.to_string_lossy()),
        Listing::Seq(Some(file)) => policy("--hostfile", file),
        Listing::Seq(None) | Listing::None => {}
    }
    // A default binding cannot be written as an option: a rank's share of the cores depends on the other ranks.
    policy("--bind-to", &spec.bind_to);
    policy("--mem-bind", &spec.mem_bind);
    policy("--compat", &spec.compat);
    if spec.gpus_per_rank > 0 {
        policy("--gpus-per-rank", &spec.gpus_per_rank.to_string());
    }
    if let Some(name) = &launch.job_name {
        policy("--name", name);
    }
    if spec.memory_per_rank > 0 {
        policy("--mem-per-rank", &spec.memory_per_rank.to_string());
    }
    let resource = |resource: &Resource| format!("{}:{}", resource.name, resource.amount);
    policy("--resource", &spec.resources.iter().map(resource).collect::<Vec<_>>().join(","));
    let oversubscribes = plan.map_by.contains("oversubscribe");
    let flags = [("--oversubscribe", spec.oversubscribe && !oversubscribes), ("--gpus-visible", spec.gpus_visible)];
    words.extend(flags.into_iter().filter(|(_, set)| *set).map(|(flag, _)| flag.into()));
    for (at, segment) in std::iter::once(&launch.first).chain(&launch.others).enumerate() {
        if at > 0 {
            words.push(":".into());
        }
        words.extend(segment_words(segment, plan.app_sizes.get(at).copied().or(segment.n)));
    }
    words.iter().map(|word| quoted(&word.to_string_lossy()).into_owned()).collect::<Vec<_>>().join(" ")
}

fn segment_words(segment: &Segment, n: Option<u32>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    n.iter().for_each(|n| words.extend(["-n".into(), n.to_string().into()]));
    segment.host.iter().for_each(|host| words.extend(["--host".into(), host.into()]));
    segment.hostfile.iter().for_each(|file| words.extend(["--hostfile".into(), file.into()]));
    match &segment.program[..] {
        [] => words.push("PROGRAM".into()),
        program => words.extend(program.iter().cloned()),
    }
    words
}

/// Quotes a word for a shell if necessary.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%^".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{self, Command};

    #[test]
    fn files_that_list_ranks_become_options() {
        let vectors = [
            ("--rankfile r", "rankfile", "rsctl run --map-by rankfile --rankfile r -n 2 ./a"),
            ("--map-by rankfile:file=r", "rankfile", "rsctl run --map-by rankfile --rankfile r -n 2 ./a"),
            ("--map-by seq:file=h", "seq", "rsctl run --map-by seq --hostfile h -n 2 ./a"),
            ("--map-by seq --hostfile h", "seq", "rsctl run --map-by seq -n 2 --hostfile h ./a"),
        ];
        for (typed, map_by, expected) in vectors {
            let args: Vec<_> = format!("plan {typed} ./a").split(' ').map(OsString::from).collect();
            let Command::Plan(options) = options::read(&args).unwrap().command else { panic!("it is a plan") };
            let (map_by, rank_by) = (map_by.into(), "slot".into());
            let plan = Plan { app_sizes: vec![2], map_by, rank_by, ..Plan::default() };
            let command = full(&options.run.launch, &JobSpec::default(), &plan);
            assert_eq!(command, expected);
            let again: Vec<_> = command.split(' ').skip(1).map(OsString::from).collect();
            let Command::Run(again) = options::read(&again).unwrap().command else { panic!("it is a run") };
            assert!(again.launch.placing.policy().is_ok(), "{command}");
        }
    }

    #[test]
    fn defaults_are_written_out() {
        let args: Vec<_> = "plan --host a:2,b:2 ./a x=$y : --host b ./b".split(' ').map(OsString::from).collect();
        let Command::Plan(options) = options::read(&args).unwrap().command else { panic!("it is a plan") };
        let plan = Plan {
            app_sizes: vec![4, 2],
            map_by: "slot".into(),
            rank_by: "slot".into(),
            bind_to: "core:if-supported".into(),
            ..Plan::default()
        };
        let spec = JobSpec { bind_to: "core".into(), oversubscribe: true, gpus_per_rank: 1, ..JobSpec::default() };
        assert_eq!(
            full(&options.run.launch, &spec, &plan),
            "rsctl run --map-by slot --rank-by slot --bind-to core --gpus-per-rank 1 --oversubscribe \
             -n 4 --host a:2,b:2 ./a 'x=$y' : -n 2 --host b ./b"
        );
    }

    #[test]
    fn words_with_special_characters_are_quoted() {
        let vectors = [("a:2,b", "a:2,b"), ("gpu[0-3]", "'gpu[0-3]'"), ("it's", "'it'\\''s'"), ("", "''")];
        for (word, typed) in vectors {
            assert_eq!(quoted(word), typed);
        }
    }
}
