//! Requests to the process manager beyond the job's own exchange: names of ports, and spawning jobs.
//!
//! Names and ports are sent as one word each, whatever the user writes: bytes that not every process manager transfers
//! unchanged are encoded as `%` and two hexadecimal digits. Names without such bytes are sent as they are, so that programs
//! of other MPI libraries can read them.

use std::collections::BTreeMap;

use rsd_proto::pmi::spawning;
use rsd_proto::pmi::v1::{Reply, Request, Spawn, SpawnSegment};

use super::Pmi;
use super::client::wrong;
use super::error::BootstrapError;

/// The result of a spawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    /// The new job's name; empty if the process manager does not tell it.
    pub job: Vec<u8>,
    /// One code per requested process, 0 for each that runs.
    pub codes: Vec<i32>,
}

impl Pmi {
    /// Publishes a port under a name; false if the name is taken.
    pub fn publish(&mut self, name: &[u8], port: &[u8]) -> Result<bool, BootstrapError> {
        let publish = Request::PublishName { service: word(name), port: word(port) };
        let Reply::PublishResult { rc } = self.ask("publish_name", &publish)? else {
            return Err(wrong("publish_name"));
        };
        Ok(rc == 0)
    }

    /// The port that is published under a name, if any.
    pub fn lookup(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, BootstrapError> {
        let answer = self.ask("lookup_name", &Request::LookupName { service: word(name) })?;
        let Reply::LookupResult(port) = answer else { return Err(wrong("lookup_name")) };
        Ok(port.map(|port| of_word(&port)))
    }

    /// Withdraws a name; false if it was not published, or by another user.
    pub fn unpublish(&mut self, name: &[u8]) -> Result<bool, BootstrapError> {
        let answer = self.ask("unpublish_name", &Request::UnpublishName { service: word(name) })?;
        let Reply::UnpublishResult { rc } = answer else { return Err(wrong("unpublish_name")) };
        Ok(rc == 0)
    }

    /// Starts a job, whose processes find `port` as the one where this process waits for them. Returns when all of them
    /// run. If the process manager refuses, there is no job, and the inner error is its reason, if it gave one.
    pub fn spawn(
        &mut self,
        segments: Vec<SpawnSegment>,
        port: &str,
    ) -> Result<Result<Spawned, String>, BootstrapError> {
        let asked = segments.iter().map(|segment| segment.nprocs as usize).sum();
        let preput = BTreeMap::from([(spawning::PARENT_PORT_KEY.into(), word(port.as_bytes()))]);
        // No timeout: the answer comes when all have started, which may take long on some nodes.
        let answer = self.ask_within("spawn", &Request::Spawn(Spawn { segments, preput }), None)?;
        let Reply::SpawnResult { rc, jobid, errcodes: mut codes } = answer else { return Err(wrong("spawn")) };
        if rc != 0 {
            let why = self.get(spawning::ERROR_KEY)?.map(|why| String::from_utf8_lossy(&why).into_owned());
            return Ok(Err(why.unwrap_or_else(|| "the process manager refused it".to_owned())));
        }
        codes.resize(asked, 0);
        Ok(Ok(Spawned { job: jobid, codes }))
    }

    /// Starts a job as [`Pmi::spawn`] does, with any entries of its KVS. A refusal is an error.
    pub fn spawn_job(&mut self, spawn: Spawn) -> Result<Vec<i32>, BootstrapError> {
        let asked = spawn.segments.iter().map(|segment| segment.nprocs as usize).sum();
        let answer = self.ask_within("spawn", &Request::Spawn(spawn), None)?;
        let Reply::SpawnResult { rc, errcodes: mut codes, .. } = answer else { return Err(wrong("spawn")) };
        if rc != 0 {
            return Err(BootstrapError::Refused { command: "spawn", rc });
        }
        codes.resize(asked, 0);
        Ok(codes)
    }

    /// The port where the parent of this process's job waits for it, if the job was spawned.
    pub fn parent_port(&mut self) -> Result<Option<Vec<u8>>, BootstrapError> {
        Ok(self.get(spawning::PARENT_PORT_KEY)?.map(|port| of_word(&port)))
    }

    /// Why a spawned job will never connect, if that is known. Only rsd's process manager knows.
    pub fn lost(&mut self, job: &[u8]) -> Result<Option<String>, BootstrapError> {
        if job.is_empty() {
            return Ok(None);
        }
        let state = Request::Get { kvsname: job.to_vec(), key: spawning::STATE_KEY.into() };
        let Reply::GetResult(state) = self.ask("get", &state)? else { return Err(wrong("get")) };
        let state = state.map(|state| String::from_utf8_lossy(&state).into_owned());
        Ok(match state.as_deref() {
            Some("running") => None,
            Some("done") => Some("its processes have exited".to_owned()),
            Some(failed) => Some(failed.strip_prefix("failed: ").unwrap_or(failed).to_owned()),
            None => None,
        })
    }
}

/// Encodes text as one word of a line.
fn word(text: &[u8]) -> Vec<u8> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"%\\'\"".contains(&byte);
    text.iter().flat_map(|byte| if plain(*byte) { vec![*byte] } else { format!("%{byte:02x}").into_bytes() }).collect()
}

/// Decodes such a word.
fn of_word(word: &[u8]) -> Vec<u8> {
    let (mut text, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| byte == b'%').and_then(|digits| str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(meant) => {
                text.push(meant);
                rest = &after[2..];
            }
            None => {
                text.push(byte);
                rest = after;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_encoded_as_a_word_and_plain_names_are_unchanged() {
        assert_eq!(word(b"ocean-1:x"), b"ocean-1:x");
        assert_eq!(word(b"my ocean\n100%"), b"my%20ocean%0a100%25");
        for text in [&b"my ocean\n100%"[..], "größe".as_bytes(), b"%", b"%2", b"%zz", b"\\\"'"] {
            assert_eq!(of_word(&word(text)), text);
        }
        assert_eq!(of_word(b"50%zz%"), b"50%zz%", "as another library has written it");
    }
}
