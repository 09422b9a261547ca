//! The ranks' output on the way to the head, and the client's standard input on the way to the ranks.

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Stream, up};

use super::{Effect, Local, StdinState, Step};
use crate::Now;

impl Step {
    pub(super) fn on_output(&mut self, local: Local, stream: Stream, bytes: &[u8], out: &mut Vec<Effect>) {
        self.ending.last_output.came();
        let to_file = !self.launch_spec().output_dir.is_empty();
        let rank = &mut self.ranks[local];
        if stream == Stream::Stderr {
            rank.verdict.saw_stderr(bytes);
        }
        if to_file {
            out.push(Effect::OutputFile(local, stream, Bytes::copy_from_slice(bytes)));
        } else if let Some(record) = rank.lines[stream as usize].feed(bytes) {
            self.fresh.push(wire::Record {
                rank: rank.rank,
                stream: stream.into(),
                data: record.data,
                more: record.more,
                ..wire::Record::default()
            });
        }
    }

    pub(super) fn on_output_closed(&mut self, now: Now, local: Local, stream: Stream, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        if let Some(data) = rank.lines[stream as usize].close() {
            self.fresh.push(wire::Record { rank: rank.rank, stream: stream.into(), data, ..wire::Record::default() });
        }
        self.report_exit_if_known(now, local, out);
    }

    pub(super) fn settle_output(&mut self, out: &mut Vec<Effect>) {
        if self.fresh.is_empty() {
            return;
        }
        let records = std::mem::take(&mut self.fresh);
        let bytes = records.iter().map(|record| record.data.len() as u64).sum();
        let offset = self.outbox.push(bytes, records.clone());
        self.send(up::Body::Output(wire::Output { job: self.job, node: self.node, offset, records }), out);
    }

    pub(super) fn on_stdin(&mut self, mut stdin: wire::Stdin, out: &mut Vec<Effect>) {
        // A client that has reconnected sends pieces of other lengths.
        let known = usize::try_from(self.stdin.received().saturating_sub(stdin.offset)).unwrap_or(usize::MAX);
        if known > 0 && known < stdin.data.len() + usize::from(stdin.eof) {
            stdin.data = stdin.data.split_off(known.min(stdin.data.len()));
            stdin.offset += known as u64;
        }
        if !self.stdin.accept(stdin.offset, stdin.data.len() as u64 + u64::from(stdin.eof)) {
            return;
        }
        for (local, rank) in self.ranks.iter().enumerate() {
            if let StdinState::Open { .. } = rank.stdin {
                if !stdin.data.is_empty() {
                    out.push(Effect::StdinWrite(local, stdin.data.clone()));
                }
                if stdin.eof {
                    out.push(Effect::StdinClose(local));
                }
            }
        }
        self.send_stdin_ack(false, out);
    }

    pub(super) fn on_stdin_written(&mut self, local: Local, bytes: u64, out: &mut Vec<Effect>) {
        if let StdinState::Open { written } = &mut self.ranks[local].stdin {
            *written += bytes;
        }
        self.send_stdin_ack(false, out);
    }

    pub(super) fn on_stdin_closed(&mut self, local: Local, out: &mut Vec<Effect>) {
        if let StdinState::Open { .. } = self.ranks[local].stdin {
            self.ranks[local].stdin = StdinState::Closed;
            self.send_stdin_ack(false, out);
        }
    }

    /// Acknowledges the input that the slowest reader has read; when no rank reads any more, all input.
    pub(super) fn send_stdin_ack(&mut self, resume: bool, out: &mut Vec<Effect>) {
        let mut open = self.ranks.iter().filter_map(|rank| match rank.stdin {
            StdinState::Open { written } => Some(written),
            StdinState::Null | StdinState::Closed => None,
        });
        let (offset, closed) = match open.next() {
            Some(first) => (open.fold(first, u64::min), false),
            None => (self.stdin.received(), true),
        };
        if self.ranks.iter().all(|rank| rank.stdin == StdinState::Null)
            || (offset == self.stdin_acked && !closed && !resume)
        {
            return;
        }
        self.stdin_acked = offset;
        let ack = wire::StdinAck { job: self.job, node: self.node, offset, closed, resume };
        self.send(up::Body::StdinAck(ack), out);
    }
}
