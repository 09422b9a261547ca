//! Parses all policies but the mapping. Every mistake shows the text, the wrong word and what is accepted there.

use std::str::FromStr;

use super::super::topology::Kind;
use super::words::{
    BIND_ANSWERS, BIND_TO, COMPAT, COMPAT_ANSWERS, COMPATS, MEM_ANSWERS, MEM_BIND, MEMORIES, OBJECTS, RANK_BY,
    RANKINGS, find, names,
};
use super::wrong::{Word, meant};
use super::{BindTo, Compat, Directive, MemBind, Policy, PolicyError, RankBy};

impl Policy {
    /// Parses the texts that a job carries. An empty text is the default.
    pub fn from_texts(
        map_by: &str,
        rank_by: &str,
        bind_to: &str,
        mem_bind: &str,
        compat: &str,
        gpus_per_rank: u32,
    ) -> Result<Policy, PolicyError> {
        fn given<T: FromStr<Err = PolicyError>>(option: &str, text: &str) -> Result<Option<T>, PolicyError> {
            if text.is_empty() {
                Ok(None)
            } else {
                text.parse().map(Some).map_err(|error: PolicyError| error.of(option))
            }
        }
        let policy = Policy {
            map_by: given("--map-by", map_by)?.unwrap_or_default(),
            rank_by: given("--rank-by", rank_by)?,
            bind_to: given("--bind-to", bind_to)?,
            mem_bind: given("--mem-bind", mem_bind)?,
            compat: given("--compat", compat)?.unwrap_or_default(),
            gpus_per_rank,
        };
        policy.check().map(|()| policy)
    }

    /// Checks that its parts are compatible. Placement checks what depends on the nodes.
    pub fn check(&self) -> Result<(), PolicyError> {
        if let (Some(Directive::Rankfile), Some(rank_by)) = (&self.map_by.directive, self.rank_by) {
            let text = format!("--rank-by {rank_by}: a rankfile numbers the ranks itself; omit --rank-by");
            return Err(PolicyError::plain(text));
        }
        Ok(())
    }
}

impl FromStr for RankBy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<RankBy, PolicyError> {
        let word = Word { whole: text, at: 0, text };
        if let Some(rank_by) = find(&RANKINGS, &word) {
            return Ok(rank_by);
        }
        let lower = word.lower();
        let object = lower.split(':').next().is_some_and(|first| names(&OBJECTS).any(|name| name == first));
        if object {
            let what = format!("ranks cannot be numbered by `{text}`: write `span`, one per object in turn, or `fill`");
            return Err(word.wrong(what, RANK_BY));
        }
        let meant = meant(&lower, &[], names(&RANKINGS));
        Err(word.wrong(format!("unknown ranking `{text}`{meant}"), RANK_BY))
    }
}

impl FromStr for BindTo {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<BindTo, PolicyError> {
        let mut words = Word::split(text);
        let first = words.next().unwrap_or(Word { whole: text, at: 0, text });
        let kind = match find(&OBJECTS, &first) {
            Some(kind) => Some(kind),
            None if first.text.eq_ignore_ascii_case("none") => None,
            None => {
                let lower = first.lower();
                let meant = meant(&lower, &BIND_ANSWERS, names(&OBJECTS).chain(["none"]));
                return Err(first.wrong(format!("unknown binding `{}`{meant}", first.text), BIND_TO));
            }
        };
        let mut bind_to = BindTo { kind, overload_allowed: false, if_supported: false };
        let (mut overload, mut supported) = (None, None);
        for word in words {
            let twice = match word.lower().as_str() {
                "overload-allowed" => overload.replace(true).is_some(),
                "no-overload" => overload.replace(false).is_some(),
                "if-supported" => supported.replace(true).is_some(),
                lower => return Err(bind_modifier(kind, &word, lower)),
            };
            if twice {
                return Err(word.wrong(format!("`{}` repeats or contradicts an earlier modifier", word.text), BIND_TO));
            }
        }
        bind_to.overload_allowed = overload == Some(true);
        bind_to.if_supported = supported == Some(true);
        Ok(bind_to)
    }
}

/// The refusal of an unknown modifier of `--bind-to`.
fn bind_modifier(kind: Option<Kind>, word: &Word<'_>, lower: &str) -> PolicyError {
    const ANSWERS: [(&str, &str); 3] = [
        ("report", "omit it: `rsctl plan` shows where ranks are bound"),
        ("oversubscribe", "it belongs to --map-by; ranks share cpus with `overload-allowed`"),
        ("overload", "write `overload-allowed`"),
    ];
    if let (Some(count), Some(kind)) = (word.number(u32::MAX), kind) {
        let what = match kind {
            Kind::Core => format!("the mapping sets the cores per rank: use --map-by slot:pe={count}"),
            Kind::Thread => {
                format!("the mapping sets the threads per rank: use --map-by slot:pe={count}:hwtcpus")
            }
            Kind::Package | Kind::Numa | Kind::L3 | Kind::L2 | Kind::L1 => {
                format!("a rank is bound to one {}, not to `{count}`", kind.name())
            }
        };
        return word.wrong(what, BIND_TO);
    }
    let known = ["overload-allowed", "no-overload", "if-supported"].into_iter();
    word.wrong(format!("unknown modifier `{}`{}", word.text, meant(lower, &ANSWERS, known)), BIND_TO)
}

impl FromStr for MemBind {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<MemBind, PolicyError> {
        let word = Word { whole: text, at: 0, text };
        let lower = word.lower();
        find(&MEMORIES, &word).ok_or_else(|| {
            let meant = meant(&lower, &MEM_ANSWERS, names(&MEMORIES));
            word.wrong(format!("unknown memory binding `{text}`{meant}"), MEM_BIND)
        })
    }
}

impl FromStr for Compat {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Compat, PolicyError> {
        let word = Word { whole: text, at: 0, text };
        let lower = word.lower();
        find(&COMPATS, &word).ok_or_else(|| {
            let meant = meant(&lower, &COMPAT_ANSWERS, names(&COMPATS));
            word.wrong(format!("unknown launcher `{text}`{meant}"), COMPAT)
        })
    }
}
