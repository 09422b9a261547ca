//! What a process that checks its program asks of the engine (`RSD_MPI_CHECK`).

use super::calls::Probed;
use super::frame::Envelope;
use super::operations::Engine;
use super::state::Kind;
use super::transport::Transport;

impl<T: Transport> Engine<T> {
    /// From now on, the user's messages are signed. Call it before contexts are opened.
    pub fn set_checked(&mut self) {
        self.core.checks = true;
    }

    /// The messages of the user's communicators that no receive has matched: for each source and tag of a context the first one, and
    /// how many there are.
    pub fn unreceived(&self) -> Vec<(Probed, usize)> {
        let mut all: Vec<(Envelope, Probed, usize)> = Vec::new();
        let users = |context| self.core.contexts.get(context).is_some_and(|open| open.kind == Kind::User);
        for (_, message) in self.core.messages.iter().filter(|(_, message)| users(message.envelope.context)) {
            let Envelope { rank, tag, .. } = message.envelope;
            match all.iter_mut().find(|(envelope, ..)| *envelope == message.envelope) {
                Some((_, _, count)) => *count += 1,
                None => all.push((message.envelope, Probed { source: rank, tag, bytes: message.content.len() }, 1)),
            }
        }
        all.into_iter().map(|(_, first, count)| (first, count)).collect()
    }
}
