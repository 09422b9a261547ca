//! Parses `--map-by`.

use std::str::FromStr;

use super::super::ASKED_MAX;
use super::super::cpuset::CpuSet;
use super::super::topology::THREADS_MAX;
use super::words::{DIRECTIVES, MAP_ANSWERS, MAP_BY, MODIFIER_ANSWERS, MODIFIERS, OBJECTS, PE_LIST, PPR, find, names};
use super::wrong::{Word, meant};
use super::{Directive, MapBy, PolicyError};

/// The value of the option `--map-by`: a mapping, and possibly a file, which only the client can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapByOption {
    /// The mapping.
    pub map_by: MapBy,
    /// `file=NAME`, with `seq` (a host file) and `rankfile`. The name ends at the next colon.
    pub file: Option<String>,
}

impl FromStr for MapByOption {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<MapByOption, PolicyError> {
        let mut words = Word::split(text);
        let first = words.next().unwrap_or(Word { whole: text, at: 0, text });
        let directive = directive(first, &mut words)?;
        let mut read = Reading { map_by: MapBy { directive, ..MapBy::default() }, file: None, seen: Vec::new() };
        for word in words {
            read.modifier(word)?;
        }
        let Reading { map_by, file, .. } = read;
        Ok(MapByOption { map_by, file })
    }
}

impl FromStr for MapBy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<MapBy, PolicyError> {
        let MapByOption { map_by, file } = text.parse()?;
        match file {
            None => Ok(map_by),
            Some(_) => Err(PolicyError::plain(format!(
                "--map-by {text}: only rsctl reads files; a daemon does not accept file="
            ))),
        }
    }
}

/// Parses the first word and the words that belong to it.
fn directive<'a>(
    first: Word<'a>,
    words: &mut impl Iterator<Item = Word<'a>>,
) -> Result<Option<Directive>, PolicyError> {
    if first.text.is_empty() {
        return Ok(None);
    }
    if let Some(directive) = find(&DIRECTIVES, &first).or_else(|| find(&OBJECTS, &first).map(Directive::Object)) {
        return Ok(Some(directive));
    }
    if let Some(list) = first.value_of("pe-list=") {
        return Ok(Some(Directive::PeList { cpus: cpu_list(list)?, ordered: false }));
    }
    let lower = first.lower();
    if lower != "ppr" {
        let known = names(&DIRECTIVES).chain(names(&OBJECTS)).chain(["ppr"]);
        return Err(match MODIFIERS.contains(&lower.as_str()) || lower.starts_with("pe=") {
            true => first.wrong(format!("`{0}` is a modifier: write `:{0}`", first.text), MAP_BY),
            false => {
                let meant = meant(&lower, &MAP_ANSWERS, known);
                first.wrong(format!("unknown mapping `{}`{meant}", first.text), MAP_BY)
            }
        });
    }
    let end = Word { whole: first.whole, at: first.whole.len(), text: "" };
    let number = words.next().unwrap_or(end);
    let Some(count) = number.number(ASKED_MAX) else {
        let what = format!("ppr needs the number of ranks per object, from 1 up, not `{}`", number.text);
        return Err(number.wrong(what, PPR));
    };
    let object = words.next().unwrap_or(end);
    let per = match find(&OBJECTS, &object) {
        Some(kind) => Some(kind),
        None if object.text.eq_ignore_ascii_case("node") => None,
        None if object.text.is_empty() => return Err(object.wrong("ppr needs an object after its number", PPR)),
        None => {
            let lower = object.lower();
            let meant = meant(&lower, &[("slot", "write `node`")], names(&OBJECTS).chain(["node"]));
            return Err(object.wrong(format!("unknown object `{}`{meant}", object.text), PPR));
        }
    };
    Ok(Some(Directive::Ppr { count, per }))
}

/// `0,2,4-7`.
fn cpu_list(list: Word<'_>) -> Result<Vec<u32>, PolicyError> {
    let (mut cpus, mut at) = (Vec::new(), list.at);
    let mut listed = CpuSet::EMPTY;
    for text in list.text.split(',') {
        let item = Word { whole: list.whole, at, text };
        at += text.len() + 1;
        let cpu = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|cpu| digits && (*cpu as usize) < THREADS_MAX)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (Some(first), Some(last)) = (cpu(first), cpu(last)) else {
            return Err(item.wrong(format!("`{text}` is not a cpu or a range of cpus"), PE_LIST));
        };
        if last < first {
            return Err(item.wrong(format!("the range {first}-{last} is reversed: write {last}-{first}"), PE_LIST));
        }
        for cpu in first..=last {
            if listed.contains(cpu) {
                return Err(item.wrong(format!("cpu {cpu} is listed twice"), PE_LIST));
            }
            listed.insert(cpu);
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// A mapping while it is parsed.
struct Reading {
    map_by: MapBy,
    file: Option<String>,
    /// The modifiers so far. A repeated modifier or its opposite is a mistake.
    seen: Vec<&'static str>,
}

impl Reading {
    fn modifier(&mut self, word: Word<'_>) -> Result<(), PolicyError> {
        let lower = word.lower();
        if let Some(value) = word.value_of("pe=") {
            self.once("pe", &word)?;
            let Some(pe) = value.number(THREADS_MAX as u32) else {
                let what = format!("pe needs the number of cpus per rank, 1 to {THREADS_MAX}, not `{}`", value.text);
                return Err(value.wrong(what, MAP_BY));
            };
            self.map_by.pe = Some(pe);
            return self.fits(&word, !matches!(self.map_by.directive, Some(Directive::Rankfile)));
        }
        if let Some(value) = word.value_of("file=") {
            self.once("file", &word)?;
            if value.text.is_empty() {
                return Err(value.wrong("file needs a name", MAP_BY));
            }
            self.file = Some(value.text.to_owned());
            return self.fits(&word, matches!(self.map_by.directive, Some(Directive::Seq | Directive::Rankfile)));
        }
        let listed = matches!(self.map_by.directive, Some(Directive::Seq | Directive::Rankfile));
        match lower.as_str() {
            "span" => {
                self.once("span", &word)?;
                self.map_by.span = true;
                self.fits(&word, !listed)
            }
            "nolocal" => {
                self.once("nolocal", &word)?;
                self.map_by.nolocal = true;
                self.fits(&word, !listed)
            }
            "hwtcpus" | "corecpus" => {
                self.once("the kind of cpus", &word)?;
                self.map_by.hwtcpus = lower == "hwtcpus";
                Ok(())
            }
            "oversubscribe" | "nooversubscribe" => {
                self.once("oversubscribe", &word)?;
                self.map_by.oversubscribe = Some(lower == "oversubscribe");
                Ok(())
            }
            "ordered" if let Some(Directive::PeList { ordered, .. }) = &mut self.map_by.directive => {
                *ordered = true;
                self.once("ordered", &word)
            }
            "" => Err(word.wrong("missing modifier after the colon", MAP_BY)),
            _ => {
                let known = MODIFIERS.into_iter().chain(["ordered"]);
                let meant = meant(&lower, &MODIFIER_ANSWERS, known);
                Err(word.wrong(format!("unknown modifier `{}`{meant}", word.text), MAP_BY))
            }
        }
    }

    fn once(&mut self, what: &'static str, word: &Word<'_>) -> Result<(), PolicyError> {
        if self.seen.contains(&what) {
            return Err(word.wrong(format!("{what} is given twice"), MAP_BY));
        }
        self.seen.push(what);
        Ok(())
    }

    fn fits(&self, word: &Word<'_>, fits: bool) -> Result<(), PolicyError> {
        let directive = word.whole.split(':').next().unwrap_or_default();
        let directive = if directive.is_empty() { "slot" } else { directive };
        match fits {
            true => Ok(()),
            false => Err(word.wrong(format!("`{}` cannot be used with `{directive}`", word.text), MAP_BY)),
        }
    }
}
