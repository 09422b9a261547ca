//! Names that ranks publish for each other (MPI 5.0, 11.4.4), on the head; their scope is the DVM.
//!
//! A name lives until it is unpublished or its job ends. Publishing one that is taken fails, whoever has taken it; only a
//! process of the same user may unpublish it.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Down, down, kept, name_call};

use crate::JobId;
use crate::head::family;
use crate::head::questions::Question;
use crate::rsd::{Effect, Rsd};

/// Names that a DVM's jobs may have published at once, and their bytes with those of their ports.
const NAMES_MAX: usize = 65_536;
const BYTES_MAX: usize = 16 << 20;

/// All that is published.
#[derive(Debug, Default)]
pub(crate) struct Names {
    published: BTreeMap<Bytes, Published>,
    bytes: usize,
}

#[derive(Debug)]
struct Published {
    port: Bytes,
    job: JobId,
    /// None: the DVM's own user's.
    uid: Option<u32>,
}

impl Names {
    /// False if it is taken, or if there are too many.
    pub(crate) fn publish(&mut self, name: Bytes, port: Bytes, job: JobId, uid: Option<u32>) -> bool {
        let bytes = self.bytes + name.len() + port.len();
        if self.published.len() >= NAMES_MAX || bytes > BYTES_MAX || self.published.contains_key(&name) {
            return false;
        }
        self.bytes = bytes;
        self.published.insert(name, Published { port, job, uid });
        true
    }

    fn lookup(&self, name: &[u8]) -> Option<Bytes> {
        self.published.get(name).map(|published| published.port.clone())
    }

    /// False if there is none, or another user's.
    fn unpublish(&mut self, name: &[u8], uid: Option<u32>) -> bool {
        if self.published.get(name).is_none_or(|published| published.uid != uid) {
            return false;
        }
        self.bytes -= self.published.remove(name).map_or(0, |published| name.len() + published.port.len());
        true
    }

    /// The job is over, and its names with it.
    pub(crate) fn forget(&mut self, job: JobId) {
        let Names { published, bytes } = self;
        published.retain(|name, published| {
            let stays = published.job != job;
            *bytes -= if stays { 0 } else { name.len() + published.port.len() };
            stays
        });
    }

    pub(crate) fn list(&self) -> Vec<wire::PublishedName> {
        let told = |(name, published): (&Bytes, &Published)| wire::PublishedName {
            name: name.clone(),
            port: published.port.clone(),
            job: published.job,
            uid: published.uid,
        };
        self.published.iter().map(told).collect()
    }

    /// See [`Rsd::leftovers`].
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = String> {
        self.published.values().map(|published| format!("a name of job {}", published.job))
    }
}

impl Rsd {
    pub(crate) fn on_name_call(&mut self, call: wire::NameCall, out: &mut Vec<Effect>) {
        let Some(head) = self.head.as_mut().filter(|head| head.is_alive(call.job)) else { return };
        let wire::NameCall { job, node, call: number, op, uid, open_from } = call;
        let answer = match head.questions.ask(job, node, number, open_from) {
            Question::Settled => return,
            Question::Answered(answer) => answer,
            Question::New => {
                let is_to_be_done_once = matches!(op, Some(name_call::Op::Publish(_) | name_call::Op::Unpublish(_)));
                let (ok, port) = match op {
                    Some(name_call::Op::Publish(wire::Kv { key: name, value: port })) => {
                        let ok = head.names.publish(name.clone(), port.clone(), job, uid);
                        if ok && head.outlives_us(job) {
                            head.keep(kept::What::Name(wire::PublishedName { name, port, job, uid }));
                        }
                        (ok, Bytes::new())
                    }
                    Some(name_call::Op::Lookup(name)) => match head.names.lookup(&name) {
                        Some(port) => (true, port),
                        None => (false, Bytes::new()),
                    },
                    Some(name_call::Op::Unpublish(name)) => {
                        let ok = head.names.unpublish(&name, uid);
                        if ok {
                            head.keep(kept::What::NameGone(name));
                        }
                        (ok, Bytes::new())
                    }
                    Some(name_call::Op::State(namespace)) => match family::state(&head.jobs, &namespace) {
                        Some(state) => (true, state.into()),
                        None => (false, Bytes::new()),
                    },
                    None => (false, Bytes::new()),
                };
                let result = wire::NameResult { job, node, call: number, ok, port };
                if is_to_be_done_once && head.outlives_us(job) {
                    head.keep(kept::What::Answer(result.clone()));
                }
                let answer = down::Body::NameResult(result);
                head.questions.answer(job, node, number, answer.clone());
                answer
            }
        };
        self.to_node(job, node, Down { body: Some(answer) }, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(names: &mut Names, name: &'static str, job: JobId, uid: Option<u32>) -> bool {
        names.publish(name.into(), "port".into(), job, uid)
    }

    #[test]
    fn a_name_is_taken_until_its_owner_gives_it_back() {
        let mut names = Names::default();
        assert!(publish(&mut names, "ocean", 1, None));
        assert!(!publish(&mut names, "ocean", 1, None), "it has it already");
        assert!(!publish(&mut names, "ocean", 2, Some(7)), "another has it");
        assert_eq!(names.lookup(b"ocean"), Some("port".into()));
        assert!(!names.unpublish(b"ocean", Some(7)), "it is another user's");
        assert!(names.unpublish(b"ocean", None), "any process of the user may");
        assert!(!names.unpublish(b"ocean", None));
        assert_eq!(names.lookup(b"ocean"), None);
        assert!(publish(&mut names, "ocean", 2, Some(7)));
        assert!(names.unpublish(b"ocean", Some(7)));
        assert_eq!(names.bytes, 0);
    }

    #[test]
    fn a_job_takes_its_names_with_it() {
        let mut names = Names::default();
        assert!(publish(&mut names, "a", 1, None) && publish(&mut names, "b", 2, None));
        names.forget(1);
        assert_eq!(names.list().iter().map(|name| name.job).collect::<Vec<_>>(), [2]);
        assert_eq!(names.bytes, 5);
    }

    #[test]
    fn names_are_bounded_in_number_and_in_size() {
        let mut names = Names::default();
        let all = (0..NAMES_MAX).filter(|n| names.publish(n.to_string().into(), Bytes::new(), 1, None)).count();
        assert_eq!(all, NAMES_MAX);
        assert!(!publish(&mut names, "one more", 1, None));
        names.forget(1);
        let long = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
        assert!(names.publish("a".into(), long.clone(), 1, None));
        assert!(!names.publish("b".into(), long, 1, None));
    }
}
