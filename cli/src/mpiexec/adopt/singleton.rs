//! The process manager of a singleton that no daemon adopts. It answers every request, with the protocol's refusal if need be: without
//! an answer, MPICH waits without a deadline or ends the program.

use std::io::{self, Write};

use rsd_proto::pmi::v1::{Reply, Request, RequestDecoder};

use super::{Talk, UNMANAGED};

/// Answers until the process closes the connection.
pub(super) fn serve(mut process: Talk) -> io::Result<()> {
    use std::io::Read;
    let mut decoder = RequestDecoder::new();
    let mut bytes = [0; 4096];
    process.stream.set_read_timeout(None)?;
    loop {
        for request in decoder.by_ref() {
            let Some(reply) = request.ok().as_ref().and_then(answer) else { return Ok(()) };
            let mut line = Vec::new();
            reply.encode(&mut line);
            process.stream.write_all(&line)?;
        }
        match process.reader.read(&mut bytes)? {
            0 => return Ok(()),
            read => decoder.feed(&bytes[..read]),
        }
    }
}

/// Returns the answer, or None if the connection must be closed.
fn answer(request: &Request) -> Option<Reply> {
    Some(match request {
        Request::Init { version, subversion } => {
            Reply::ResponseToInit { version: *version, subversion: *subversion, rc: 0 }
        }
        Request::GetMaxes => Reply::maxes(),
        Request::GetAppnum => Reply::Appnum(None),
        Request::GetMyKvsname => Reply::MyKvsname(UNMANAGED.into()),
        // Unknown, in PMI's terms.
        Request::GetUniverseSize => Reply::UniverseSize(-1),
        Request::Put { .. } => Reply::PutResult { rc: 0 },
        Request::Get { .. } => Reply::GetResult(None),
        Request::BarrierIn { .. } => Reply::BarrierOut { rc: 0, tag: None },
        Request::PublishName { .. } => Reply::PublishResult { rc: 1 },
        Request::LookupName { .. } => Reply::LookupResult(None),
        Request::UnpublishName { .. } => Reply::UnpublishResult { rc: 1 },
        Request::Spawn(_) => Reply::SpawnResult { rc: 1, jobid: Vec::new(), errcodes: Vec::new() },
        Request::Finalize => Reply::FinalizeAck,
        Request::InitAck { .. }
        | Request::Abort { .. }
        | Request::CreateKvs
        | Request::DestroyKvs { .. }
        | Request::GetByIdx { .. }
        | Request::Unknown { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_singleton_gets_an_answer_to_every_request() {
        let size = answer(&Request::GetUniverseSize);
        assert_eq!(size, Some(Reply::UniverseSize(-1)));
        let spawn = answer(&Request::LookupName { service: b"ocean".to_vec() });
        assert_eq!(spawn, Some(Reply::LookupResult(None)));
        assert_eq!(answer(&Request::Finalize), Some(Reply::FinalizeAck));
        assert_eq!(answer(&Request::Abort { exit_code: 1, message: Vec::new() }), None);
    }
}
