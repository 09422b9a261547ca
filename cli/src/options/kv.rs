//! The command line of `rsctl kv`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::words::{duration, group_name};
use crate::selectors::{Selector, whole_job};

/// `kv …`.
#[derive(Debug, Subcommand)]
pub(crate) enum KvCommand {
    /// Store a value: the bytes of standard input, of a file, or of the command line
    #[command(after_help = PUT_HELP)]
    Put {
        /// The value's name
        #[arg(value_name = "KEY", value_parser = text)]
        key: String,
        #[command(flatten)]
        value: Given,
        #[command(flatten)]
        of: Of,
    },
    /// Wait for a value and print its bytes
    #[command(after_help = GET_HELP)]
    Get {
        /// The value's name
        #[arg(value_name = "KEY", value_parser = text)]
        key: String,
        /// How long to wait for it; 0: do not wait
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
        timeout: Duration,
        /// How long to look for a daemon that is lost, and go on when it is back; 0: not at all
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
        reconnect: Duration,
        /// Print hexadecimal digits and a newline
        #[arg(long)]
        hex: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Wait until all ranks of the job, or with -n N participants, have called this
    #[command(after_help = FENCE_HELP)]
    Fence {
        /// The fence's name
        #[arg(value_name = "NAME", default_value = "fence", value_parser = text)]
        name: String,
        /// Number of participants [default: the job's ranks]
        #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        n: Option<u32>,
        /// Name of this participant; required if it is not a rank
        #[arg(long = "as", value_name = "NAME", value_parser = text)]
        who: Option<String>,
        /// How long to wait for the other participants
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
        timeout: Duration,
        /// How long to look for a daemon that is lost, and go on when it is back; 0: not at all
        #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
        reconnect: Duration,
        #[command(flatten)]
        of: Of,
    },
    /// List values: names, sizes, and the rank that put each
    Ls {
        #[command(flatten)]
        of: Of,
    },
    /// Remove a value
    Del {
        /// The value's name
        #[arg(value_name = "KEY", value_parser = text)]
        key: String,
        #[command(flatten)]
        of: Of,
    },
}

pub(crate) const HELP: &str = "\
The head keeps a job's values until the job ends. Inside a rank or a member of a group, these commands use its \
own job; elsewhere, use --job 7 or --group actors.

Examples, in a program whose rank 0 creates an id that all ranks need:
  rsctl kv put nccl-id < id.bin                        rank 0: any bytes, here 128
  rsctl kv get nccl-id --timeout 2m > id.bin           the others: returns once the value exists
  rsctl kv fence loaded                                all ranks: returns when all have called it
From outside the job:
  rsctl kv ls --group actors
  rsctl kv get --job 7 nccl-id --hex";

const PUT_HELP: &str = "\
Examples:
  rsctl kv put id < id.bin
  rsctl kv put id --file id.bin
  rsctl kv put state --value ready
  rsctl kv put id --hex 00ff10
At most 1 MiB. An earlier value of this name is replaced.";

const GET_HELP: &str = "\
Examples:
  rsctl kv get id > id.bin
  rsctl kv get id --hex
If no process puts the value in time, get exits with 124 and lists the ranks that have put nothing.";

const FENCE_HELP: &str = "\
Examples:
  rsctl kv fence                                 all ranks of the job
  rsctl kv fence ready -n 3 --as loader          three participants that need not be ranks
If participants are still missing after the timeout, fence exits with 124 and lists them. The name can be used \
repeatedly.";

/// The job or group that the values belong to.
#[derive(Debug, Args)]
pub(crate) struct Of {
    /// `last`, or a job number [default: the job of this process]
    #[arg(long, value_name = "JOB", value_parser = whole_job, conflicts_with = "group")]
    pub(crate) job: Option<Selector>,
    /// The newest epoch of this group
    #[arg(long, value_name = "GROUP", value_parser = group_name)]
    pub(crate) group: Option<String>,
}

/// A value, given in one of four ways.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct Given {
    /// The contents of this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// This text
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<OsString>,
    /// The bytes of these hexadecimal digits
    #[arg(long, value_name = "DIGITS", value_parser = bytes)]
    pub(crate) hex: Option<Bytes>,
}

/// Bytes given as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

fn bytes(digits: &str) -> Result<Bytes, String> {
    let pair = |pair: &[u8]| {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?).ok()
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    bytes.map(Bytes).ok_or_else(|| "expected two hexadecimal digits per byte: 00ff10".to_owned())
}

fn text(text: &str) -> Result<String, String> {
    match text.len() {
        1..=255 => Ok(text.to_owned()),
        length => Err(format!("a name has 1 to 255 bytes, not {length}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_accepted_only_in_pairs() {
        assert_eq!(bytes("00fF10"), Ok(Bytes(vec![0, 255, 16])));
        assert_eq!(bytes(""), Ok(Bytes(Vec::new())));
        for wrong in ["0", "0g", "0x00", "00 1", "é"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
