//! The only request of several lines: one block from `mcmd=spawn` to `endcmd` for each program to start.
//!
//! Lines are matched by key, because clients differ in order: MPICH 5 writes `argcnt` before the arguments and the
//! preset values in the first block only; MPICH 4 and Intel MPI write `argcnt` last and the preset values in every block.

use std::collections::BTreeMap;

use super::error::{EncodeError, WireError, excerpt};
use super::words::{check_line, number};
use super::{LINE_MAX, SPAWN_MAX};

/// A job to start. Ranks are numbered through its segments in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawn {
    /// One segment per program.
    pub segments: Vec<SpawnSegment>,
    /// The keys and values that are preset in the new job's KVS.
    pub preput: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// One program of a new job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpawnSegment {
    /// The number of ranks that run it.
    pub nprocs: u32,
    /// The program.
    pub execname: Vec<u8>,
    /// Its arguments, without the program's name.
    pub args: Vec<Vec<u8>>,
    /// `MPI_Info` pairs in their order; the server decides which of them apply.
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A spawn message whose lines are still arriving, at most [`SPAWN_MAX`] bytes.
#[derive(Debug, Default)]
pub(super) struct SpawnAssembly {
    bytes: usize,
    total: Option<u32>,
    spawn: Spawn,
    block: Option<Block>,
}

/// The lines of one block, grouped by what they number.
#[derive(Debug, Default)]
struct Block {
    single: BTreeMap<&'static str, Vec<u8>>,
    args: BTreeMap<u32, Vec<u8>>,
    info: Pairs,
    preput: Pairs,
}

#[derive(Debug, Default)]
struct Pairs {
    keys: BTreeMap<u32, Vec<u8>>,
    values: BTreeMap<u32, Vec<u8>>,
}

impl SpawnAssembly {
    /// Takes a line; returns the message when the line was its last.
    pub(super) fn push(&mut self, line: &[u8]) -> Result<Option<Spawn>, WireError> {
        self.bytes += line.len() + 1;
        if self.bytes > SPAWN_MAX {
            return Err(WireError::SpawnTooLong);
        }
        match (&mut self.block, line) {
            (block @ None, b"mcmd=spawn") => *block = Some(Block::default()),
            (None, _) => return Err(WireError::MalformedSpawn { excerpt: excerpt(line) }),
            (Some(_), b"endcmd") => return self.end_block(),
            (Some(block), _) => block.push(line)?,
        }
        Ok(None)
    }

    fn end_block(&mut self) -> Result<Option<Spawn>, WireError> {
        let block = self.block.take().unwrap_or_default();
        let total = block.number("totspawns")?;
        let so_far = block.number("spawnssofar")?;
        in_order("totspawns", total, self.total.unwrap_or(total))?;
        in_order("spawnssofar", so_far, self.spawn.segments.len() as u32 + 1)?;
        if so_far > total {
            return in_order("spawnssofar", so_far, total).map(|()| None);
        }
        self.total = Some(total);
        let segment = block.into_segment(&mut self.spawn.preput)?;
        self.spawn.segments.push(segment);
        Ok((so_far == total).then(|| std::mem::take(&mut self.spawn)))
    }
}

fn in_order(what: &'static str, found: u32, expected: u32) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::SpawnOutOfOrder { what, found, expected }) }
}

impl Block {
    fn push(&mut self, line: &[u8]) -> Result<(), WireError> {
        let malformed = || WireError::MalformedSpawn { excerpt: excerpt(line) };
        let equals = line.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        let (key, value) = (str::from_utf8(&line[..equals]).map_err(|_| malformed())?, line[equals + 1..].to_vec());
        if let Some(known) =
            ["nprocs", "execname", "totspawns", "spawnssofar", "argcnt"].iter().find(|name| **name == key)
        {
            self.single.insert(known, value);
        } else if let Some(index) = index_after(key, "arg") {
            self.args.insert(index, value);
        } else if let Some(index) = index_after(key, "info_key_") {
            self.info.keys.insert(index, value);
        } else if let Some(index) = index_after(key, "info_val_") {
            self.info.values.insert(index, value);
        } else if let Some(index) = index_after(key, "preput_key_") {
            self.preput.keys.insert(index, value);
        } else if let Some(index) = index_after(key, "preput_val_") {
            self.preput.values.insert(index, value);
        }
        Ok(())
    }

    fn find(&self, field: &'static str) -> Result<&[u8], WireError> {
        let missing = || WireError::Missing { command: "spawn".into(), field };
        self.single.get(field).map(Vec::as_slice).ok_or_else(missing)
    }

    fn number(&self, field: &'static str) -> Result<u32, WireError> {
        number(b"spawn", field, self.find(field)?)
    }

    fn into_segment(self, preput: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<SpawnSegment, WireError> {
        let nprocs = self.number("nprocs")?;
        let execname = self.find("execname")?.to_vec();
        in_order("argcnt", self.number("argcnt")?, self.args.len() as u32)?;
        for (index, found) in self.args.keys().enumerate() {
            in_order("argument", *found, index as u32 + 1)?;
        }
        let info = self.info.zip("info_val_")?.collect();
        preput.extend(self.preput.zip("preput_val_")?);
        Ok(SpawnSegment { nprocs, execname, args: self.args.into_values().collect(), info })
    }
}

impl Pairs {
    fn zip(self, field: &'static str) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>, WireError> {
        if self.keys.keys().ne(self.values.keys()) {
            return Err(WireError::Missing { command: "spawn".into(), field });
        }
        Ok(self.keys.into_values().zip(self.values.into_values()))
    }
}

/// The number after a prefix, if nothing else follows: `argcnt` is not an argument.
fn index_after(key: &str, prefix: &str) -> Option<u32> {
    let digits = key.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

impl Spawn {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.segments.is_empty() {
            return Err(EncodeError::BadSpawn("has no segment"));
        }
        for (index, segment) in self.segments.iter().enumerate() {
            let SpawnSegment { nprocs, execname, args, info } = segment;
            let mut block = BlockWriter(out);
            block.0.extend_from_slice(b"mcmd=spawn\n");
            block.line("nprocs", &nprocs.to_string())?;
            block.line("execname", execname)?;
            block.line("totspawns", &self.segments.len().to_string())?;
            block.line("spawnssofar", &(index + 1).to_string())?;
            block.line("argcnt", &args.len().to_string())?;
            for (index, arg) in args.iter().enumerate() {
                block.line(&format!("arg{}", index + 1), arg)?;
            }
            if index == 0 && !self.preput.is_empty() {
                block.pairs("preput", self.preput.iter())?;
            }
            block.pairs("info", info.iter().map(|(key, value)| (key, value)))?;
            block.0.extend_from_slice(b"endcmd\n");
        }
        Ok(())
    }
}

struct BlockWriter<'a>(&'a mut Vec<u8>);

impl BlockWriter<'_> {
    fn pairs<'a>(
        &mut self,
        kind: &str,
        pairs: impl ExactSizeIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    ) -> Result<(), EncodeError> {
        self.line(&format!("{kind}_num"), &pairs.len().to_string())?;
        for (index, (key, value)) in pairs.enumerate() {
            self.line(&format!("{kind}_key_{index}"), key)?;
            self.line(&format!("{kind}_val_{index}"), value)?;
        }
        Ok(())
    }

    fn line(&mut self, key: &str, value: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), EncodeError> {
        let value = value.as_ref();
        check_line("a value of spawn", value)?;
        if key.len() + 1 + value.len() > LINE_MAX {
            return Err(EncodeError::TooLong { max: LINE_MAX });
        }
        for part in [key.as_bytes(), b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pmi::v1::{Request, RequestDecoder};

    fn decode(text: &str) -> Option<Result<Request, WireError>> {
        let mut decoder = RequestDecoder::new();
        decoder.feed(text.as_bytes());
        let first = decoder.next();
        assert_eq!(decoder.next(), None);
        first
    }

    fn pair(key: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
        (key.into(), value.into())
    }

    fn expected() -> Spawn {
        let args = ["child", "arg with space", "k=v"].map(|arg| arg.as_bytes().to_vec()).to_vec();
        let info = vec![pair("wdir", "/scratch"), pair("host", "localhost")];
        Spawn {
            segments: vec![
                SpawnSegment { nprocs: 2, execname: "./a".into(), args, info },
                SpawnSegment { nprocs: 1, execname: "./b".into(), args: vec!["second".into()], info: vec![] },
            ],
            preput: [pair("PARENT_ROOT_PORT_NAME", "tag#0$connentry#766D0002009511C0000202[8]$")].into(),
        }
    }

    const MPICH_5: &str = "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=2\nspawnssofar=1\nargcnt=3\narg1=child\n\
        arg2=arg with space\narg3=k=v\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\n\
        preput_val_0=tag#0$connentry#766D0002009511C0000202[8]$\ninfo_num=2\ninfo_key_0=wdir\ninfo_val_0=/scratch\n\
        info_key_1=host\ninfo_val_1=localhost\nendcmd\nmcmd=spawn\nnprocs=1\nexecname=./b\ntotspawns=2\nspawnssofar=2\n\
        argcnt=1\narg1=second\ninfo_num=0\nendcmd\n";

    #[test]
    fn the_message_of_mpich_5_is_decoded_and_encoded_unchanged() {
        assert_eq!(decode(MPICH_5), Some(Ok(Request::Spawn(expected()))));
        let mut out = Vec::new();
        Request::Spawn(expected()).encode(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), MPICH_5);
    }

    #[test]
    fn the_order_of_mpich_4_is_decoded_to_the_same_message() {
        let preput = "preput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\n\
            preput_val_0=tag#0$connentry#766D0002009511C0000202[8]$\n";
        let text = format!(
            "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=2\nspawnssofar=1\narg1=child\narg2=arg with space\narg3=k=v\n\
             argcnt=3\n{preput}info_num=2\ninfo_key_0=wdir\ninfo_val_0=/scratch\ninfo_key_1=host\ninfo_val_1=localhost\nendcmd\n\
             mcmd=spawn\nnprocs=1\nexecname=./b\ntotspawns=2\nspawnssofar=2\narg1=second\nargcnt=1\n{preput}info_num=0\nendcmd\n"
        );
        assert_eq!(decode(&text), Some(Ok(Request::Spawn(expected()))));
    }

    #[test]
    fn the_message_waits_for_its_last_segment() {
        let first = MPICH_5.find("endcmd\n").unwrap() + "endcmd\n".len();
        assert_eq!(decode(&MPICH_5[..first]), None);
    }

    #[test]
    fn each_kind_of_malformed_message_has_its_own_error() {
        let vectors = [
            (MPICH_5.replace("spawnssofar=2", "spawnssofar=3"), "invalid spawn message: spawnssofar is 3, expected 2"),
            (MPICH_5.replace("spawnssofar=1", "spawnssofar=0"), "invalid spawn message: spawnssofar is 0, expected 1"),
            (MPICH_5.replace("totspawns=2", "totspawns=0"), "invalid spawn message: spawnssofar is 1, expected 0"),
            (MPICH_5.replace("argcnt=3", "argcnt=4"), "invalid spawn message: argcnt is 4, expected 3"),
            (MPICH_5.replace("arg2=", "arg9="), "invalid spawn message: argument is 3, expected 2"),
            (MPICH_5.replace("execname=./b\n", ""), "spawn: execname= is missing"),
            (MPICH_5.replace("info_val_1=", "info_val_2="), "spawn: info_val_= is missing"),
            (MPICH_5.replace("nprocs=2", "nprocs=-2"), "spawn: invalid number nprocs=-2"),
            (MPICH_5.replace("nprocs=2", "nprocs"), "invalid spawn line, expected key=value: \"nprocs\""),
            (
                MPICH_5.replace("\nmcmd=spawn", "\ncmd=finalize"),
                "invalid spawn line, expected key=value: \"cmd=finalize\"",
            ),
        ];
        for (text, error) in vectors {
            assert_eq!(decode(&text).unwrap().unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut decoder = RequestDecoder::new();
        decoder.feed(b"mcmd=spawn\n");
        let line = [&b"info_key_0="[..], &[b'x'; 60_000], b"\n"].concat();
        let error = (0..SPAWN_MAX / line.len() + 1).find_map(|_| {
            decoder.feed(&line);
            decoder.next()
        });
        assert_eq!(error, Some(Err(WireError::SpawnTooLong)));
        assert_eq!(decoder.next(), None);
    }

    pub(in crate::pmi::v1) fn any_spawn() -> impl Strategy<Value = Spawn> {
        let text =
            || prop::collection::vec(any::<u8>().prop_filter("a line's byte", |byte| !b"\n\0".contains(byte)), 0..12);
        let segment = (
            any::<u32>(),
            text(),
            prop::collection::vec(text(), 0..12),
            prop::collection::vec((text(), text()), 0..12),
        );
        let segment = segment.prop_map(|(nprocs, execname, args, info)| SpawnSegment { nprocs, execname, args, info });
        (prop::collection::vec(segment, 1..4), prop::collection::btree_map(text(), text(), 0..3))
            .prop_map(|(segments, preput)| Spawn { segments, preput })
    }
}
