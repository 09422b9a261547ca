//! The values of options: numbers, times, lists of hosts; and how they are recorded.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rsd_proto::called;
use rsd_proto::v1::Label;

use super::{Output, Universe};
use crate::options::launch;

/// Sets a value that may be given once, or again with the same value.
pub(super) fn set<T: PartialEq>(place: &mut Option<T>, value: T, typed: &str) -> Result<(), String> {
    match place {
        Some(before) if *before != value => Err(format!("{typed}: given twice, or contradicts an earlier option")),
        Some(_) => Ok(()),
        None => {
            *place = Some(value);
            Ok(())
        }
    }
}

/// Returns the list and number of ranks of MS-MPI's form.
pub(super) fn of_ms_mpi(values: &[&OsStr], typed: &str) -> Result<(String, u32), String> {
    let mut entries: Vec<(String, u32)> = Vec::new();
    for value in &values[1..] {
        let word = value.to_str().ok_or_else(|| format!("{typed} {}: not valid UTF-8", value.display()))?;
        match (word.parse::<u32>(), entries.last_mut()) {
            (Ok(0), _) => return Err(format!("{typed}: 0 ranks on a host: leave the host out")),
            (Ok(ranks), Some(last)) => last.1 = ranks,
            (Ok(_), None) | (Err(_), _) => entries.push((word.to_owned(), 1)),
        }
    }
    let ranks = entries.iter().fold(0_u32, |sum, (_, ranks)| sum.saturating_add(*ranks));
    Ok((entries.iter().map(|(host, ranks)| format!("{host}:{ranks}")).collect::<Vec<_>>().join(","), ranks))
}

/// In a list of several hosts, one without a number is one slot, as in Open MPI. Lists with ranges and other forms of rsd's stay.
pub(super) fn alone_is_one_slot(list: &str) -> String {
    if list.contains(',') { one_slot_each(list) } else { list.to_owned() }
}

/// As [`alone_is_one_slot`], also if it is one host: other options name more.
pub(super) fn one_slot_each(list: &str) -> String {
    if list.contains(['[', '+', '^']) {
        return list.to_owned();
    }
    let hosts: Vec<&str> = list.split(',').collect();
    let counted = |host: &&str| if host.contains(':') { (*host).to_owned() } else { format!("{host}:1") };
    hosts.iter().map(counted).collect::<Vec<_>>().join(",")
}

/// The most ranks of a job. A larger number is a typing error.
const RANKS_MAX: u32 = 1 << 24;

pub(super) fn ranks(text: &str, typed: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(n) if (1..=i64::from(RANKS_MAX)).contains(&n) => Ok(u32::try_from(n).unwrap_or(RANKS_MAX)),
        Ok(..=0) => Err(format!("{typed} {text}: a job has at least one rank")),
        Ok(_) => Err(format!("{typed} {text}: a job has at most {RANKS_MAX} ranks")),
        Err(_) => Err(format!("{typed} {text}: write a number of ranks")),
    }
}

pub(super) fn umask(text: &str, typed: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{typed} {text}: write up to three octal digits, such as 027"))
}

/// smpd's priority classes, from idle to high; what follows a colon is a level within the class.
pub(super) fn nice(text: &str, typed: &str) -> Result<i32, String> {
    match text.split(':').next().unwrap_or(text) {
        "0" => Ok(19),
        "1" => Ok(10),
        "2" => Ok(0),
        "3" => Ok(-5),
        "4" => Ok(-10),
        _ => Err(format!("{typed} {text}: write 0 (idle), 1 (below normal), 2 (normal), 3 (above normal) or 4 (high)")),
    }
}

pub(super) fn job_name(text: &str, typed: &str) -> Result<String, String> {
    called::check_name(text).map(|()| text.to_owned()).map_err(|why| format!("{typed}: {why}"))
}

pub(super) fn job_label(text: &str, typed: &str) -> Result<Label, String> {
    launch::job_label(text).map_err(|why| format!("{typed}: {why}"))
}

/// Seconds; 0 and -1 mean no limit. A unit may follow.
pub(in super::super) fn timeout(text: &str, typed: &str) -> Result<Duration, String> {
    match text.trim() {
        "0" | "-1" => Ok(Duration::ZERO),
        text => rsd_config::duration::parse(text)
            .map_err(|_| format!("{typed} {text}: write seconds, or a time such as 5m")),
    }
}

pub(in super::super) fn universe(text: &str, typed: &str) -> Result<Universe, String> {
    match text {
        _ if text.eq_ignore_ascii_case("system") => Ok(Universe::System),
        _ if text.eq_ignore_ascii_case("infinite") => Ok(Universe::Infinite),
        number => {
            let size = number.parse().ok().filter(|size| (1..=i32::MAX.cast_unsigned()).contains(size));
            size.map(Universe::Size).ok_or_else(|| format!("{typed} {text}: write a number, SYSTEM or INFINITE"))
        }
    }
}

/// Whether the argument after `-s` is its value.
pub(super) fn names_ranks(word: &OsStr) -> bool {
    word == "all" || word == "none" || word.as_bytes().first().is_some_and(u8::is_ascii_digit)
}

/// `F` or `F:nocopy`.
pub(super) fn not_copied(text: &str) -> (String, bool) {
    match text.rsplit_once(':') {
        Some((name, word)) if word.eq_ignore_ascii_case("nocopy") => (name.to_owned(), true),
        Some((name, word)) if word.eq_ignore_ascii_case("copy") => (name.to_owned(), false),
        Some(_) | None => (text.to_owned(), false),
    }
}

/// Open MPI 5's `--output tag,dir=D:nocopy`.
pub(super) fn output(text: &str, typed: &str, output: &mut Output) -> Result<(), String> {
    for word in text.split(',') {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match (&*name.to_ascii_lowercase(), value) {
            ("tag" | "tag-detailed" | "tag-fullname", None) => output.tag = true,
            ("rank", None) => output.label = true,
            ("timestamp", None) => output.time = true,
            ("merge" | "merge-stderr-to-stdout", None) => output.merged = true,
            ("dir" | "directory", Some(dir)) => set(&mut output.directory, not_copied(dir), typed)?,
            ("file", Some(file)) => set(&mut output.file, not_copied(file), typed)?,
            _ => {
                return Err(format!(
                    "{typed} {word}: write tag, rank, timestamp, merge-stderr-to-stdout, dir=DIR or file=FILE, with commas between them"
                ));
            }
        }
    }
    Ok(())
}
