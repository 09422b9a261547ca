//! The only request whose keys have an order: `ncmds`, the preset values, then for each program `subcmd` and what belongs to it. Arguments
//! exclude the program's name.

use std::collections::BTreeMap;

use super::WireError;
use super::pairs::{Body, BodyWriter, number};
use crate::pmi::v1::{Spawn, SpawnSegment};

/// One program whose values are still arriving.
#[derive(Debug, Default)]
struct Segment {
    execname: Vec<u8>,
    single: BTreeMap<&'static str, u32>,
    args: BTreeMap<u32, Vec<u8>>,
    info: Keyed,
}

/// Numbered keys, and their values.
#[derive(Debug, Default)]
struct Keyed {
    keys: BTreeMap<u32, Vec<u8>>,
    values: BTreeMap<u32, Vec<u8>>,
}

pub(super) fn parse(body: Body<'_>) -> Result<Spawn, WireError> {
    let (mut preput, mut preput_count, mut ncmds) = (Keyed::default(), 0, None);
    let mut segments: Vec<Segment> = Vec::new();
    for pair in body.rest {
        let (key, value) = pair?;
        if key == b"subcmd" {
            segments.push(Segment { execname: value.into_owned(), ..Segment::default() });
            continue;
        }
        match segments.last_mut() {
            Some(segment) => segment.take(key, &value)?,
            None if key == b"ncmds" => ncmds = Some(number(b"spawn", "ncmds", &value)?),
            None if key == b"preputcount" => preput_count = number(b"spawn", "preputcount", &value)?,
            None => preput.take("ppkey", "ppval", key, &value),
        }
    }
    let ncmds = ncmds.ok_or(WireError::Missing { command: "spawn".into(), field: "ncmds" })?;
    in_order("ncmds", ncmds, segments.len() as u32)?;
    let preput = preput.pairs("ppval", "preputcount", preput_count)?.into_iter().collect();
    Ok(Spawn { segments: segments.into_iter().map(Segment::finish).collect::<Result<_, _>>()?, preput })
}

fn in_order(what: &'static str, found: u32, expected: u32) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::SpawnOutOfOrder { what, found, expected }) }
}

impl Segment {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), WireError> {
        let known = ["maxprocs", "argc", "infokeycount"].into_iter().find(|known| known.as_bytes() == key);
        if let Some(known) = known {
            self.single.insert(known, number(b"spawn", known, value)?);
        } else if let Some(index) = index_after(key, "argv") {
            self.args.insert(index, value.to_vec());
        } else {
            self.info.take("infokey", "infoval", key, value);
        }
        Ok(())
    }

    fn finish(self) -> Result<SpawnSegment, WireError> {
        let count = |field| self.single.get(field).copied();
        let missing = |field| WireError::Missing { command: "spawn".into(), field };
        let nprocs = count("maxprocs").ok_or_else(|| missing("maxprocs"))?;
        in_order("argc", count("argc").unwrap_or(0), self.args.len() as u32)?;
        // MPICH 4.2 and later number arguments from 1.
        let first = self.args.keys().next().copied().unwrap_or(0).min(1);
        for (index, found) in self.args.keys().enumerate() {
            in_order("argument", *found, index as u32 + first)?;
        }
        let info_count = count("infokeycount").unwrap_or(0);
        let info = self.info.pairs("infoval", "infokeycount", info_count)?;
        Ok(SpawnSegment { nprocs, execname: self.execname, args: self.args.into_values().collect(), info })
    }
}

impl Keyed {
    fn take(&mut self, key_prefix: &str, value_prefix: &str, key: &[u8], value: &[u8]) {
        if let Some(index) = index_after(key, key_prefix) {
            self.keys.insert(index, value.to_vec());
        } else if let Some(index) = index_after(key, value_prefix) {
            self.values.insert(index, value.to_vec());
        }
    }

    fn pairs(self, field: &'static str, what: &'static str, count: u32) -> Result<Vec<(Vec<u8>, Vec<u8>)>, WireError> {
        if self.keys.keys().ne(self.values.keys()) {
            return Err(WireError::Missing { command: "spawn".into(), field });
        }
        in_order(what, count, self.keys.len() as u32)?;
        Ok(self.keys.into_values().zip(self.values.into_values()).collect())
    }
}

fn index_after(key: &[u8], prefix: &str) -> Option<u32> {
    let digits = str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

pub(super) fn write(spawn: &Spawn, body: BodyWriter) -> BodyWriter {
    let body = body.shown("ncmds", spawn.segments.len()).shown("preputcount", spawn.preput.len());
    let mut body = keyed(body, ("ppkey", "ppval"), spawn.preput.iter());
    for SpawnSegment { nprocs, execname, args, info } in &spawn.segments {
        body = body.value("subcmd", execname).shown("maxprocs", nprocs).shown("argc", args.len());
        for (index, arg) in args.iter().enumerate() {
            body = body.value(&format!("argv{index}"), arg);
        }
        if !info.is_empty() {
            body = body.shown("infokeycount", info.len());
            body = keyed(body, ("infokey", "infoval"), info.iter().map(|(key, value)| (key, value)));
        }
    }
    body
}

fn keyed<'a>(
    mut body: BodyWriter,
    (key_prefix, value_prefix): (&str, &str),
    pairs: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> BodyWriter {
    for (index, (key, value)) in pairs.enumerate() {
        body = body.value(&format!("{key_prefix}{index}"), key).value(&format!("{value_prefix}{index}"), value);
    }
    body
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::request::tests::{framed, text};
    use super::super::{Request, RequestDecoder};
    use super::*;

    const TWO: &str = "cmd=spawn;ncmds=2;preputcount=1;ppkey0=PARENT_ROOT_PORT_NAME;ppval0=tag#0;subcmd=./a;maxprocs=2;argc=2;\
        argv0=x y;argv1=k=v;infokeycount=1;infokey0=wdir;infoval0=/scratch;subcmd=./b;maxprocs=1;argc=0;";

    fn decode(body: &str) -> Result<Request, WireError> {
        let mut decoder = RequestDecoder::new();
        decoder.feed(&framed(body));
        decoder.next().unwrap().map(|asked| asked.request)
    }

    #[test]
    fn the_segments_of_a_spawn_keep_their_own_values() {
        let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        let first = SpawnSegment {
            nprocs: 2,
            execname: "./a".into(),
            args: vec!["x y".into(), "k=v".into()],
            info: vec![pair("wdir", "/scratch")],
        };
        let second = SpawnSegment { nprocs: 1, execname: "./b".into(), ..SpawnSegment::default() };
        let preput = [pair("PARENT_ROOT_PORT_NAME", "tag#0")].into();
        let expected = Request::Spawn(Spawn { segments: vec![first, second], preput });
        assert_eq!(decode(TWO), Ok(expected.clone()));
        assert_eq!(decode(&TWO.replace("argv1=", "argv2=").replace("argv0=", "argv1=")), Ok(expected));
    }

    #[test]
    fn each_kind_of_malformed_message_has_its_own_error() {
        for (body, error) in [
            (TWO.replace("ncmds=2", "ncmds=3"), "invalid spawn message: ncmds is 3, expected 2"),
            (TWO.replace("ncmds=2;", ""), "spawn: ncmds= is missing"),
            (TWO.replace("argc=2", "argc=3"), "invalid spawn message: argc is 3, expected 2"),
            (TWO.replace("argv1=", "argv7="), "invalid spawn message: argument is 7, expected 1"),
            (TWO.replace("maxprocs=1;", ""), "spawn: maxprocs= is missing"),
            (TWO.replace("maxprocs=2", "maxprocs=-2"), "spawn: invalid maxprocs=-2"),
            (TWO.replace("infoval0", "infoval1"), "spawn: infoval= is missing"),
            (TWO.replace("ppval0=tag#0;", ""), "spawn: ppval= is missing"),
            (TWO.replace("preputcount=1", "preputcount=2"), "invalid spawn message: preputcount is 2, expected 1"),
        ] {
            assert_eq!(decode(&body).unwrap_err().to_string(), error);
        }
    }

    pub(in crate::pmi::v2) fn any_spawn() -> impl Strategy<Value = Spawn> {
        let segment = (
            any::<u32>(),
            text(),
            prop::collection::vec(text(), 0..12),
            prop::collection::vec((text(), text()), 0..12),
        );
        let segment = segment.prop_map(|(nprocs, execname, args, info)| SpawnSegment { nprocs, execname, args, info });
        (prop::collection::vec(segment, 0..4), prop::collection::btree_map(text(), text(), 0..3))
            .prop_map(|(segments, preput)| Spawn { segments, preput })
    }
}
