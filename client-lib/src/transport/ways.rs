//! Which way leads to which peer, and how a process sleeps while nothing comes over any of them.

use std::io;
use std::time::Duration;

use super::name::ProcessName;
use crate::engine::{Frame, FrameLimits, Peer, PullRefused, Refusal, Region, Sink, Transport};
use crate::memory::{Buffer, Payload};
use crate::runtime::settings::Settings;

/// Who is where, as far as start-up knows.
#[derive(Debug)]
pub struct Neighbourhood<'a> {
    /// This process.
    pub name: ProcessName,
    /// `nodes[rank]`: the node of each rank.
    pub nodes: &'a [u32],
    /// What the user has set.
    pub settings: &'a Settings,
}

/// The ways of one process. Without any, it is alone.
#[derive(Debug, Default)]
pub struct Ways {}

impl Ways {
    /// Ways to all ranks of a world; none is connected yet.
    pub fn new(_: Neighbourhood<'_>) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Where processes on other nodes reach this one; none if there are no other nodes.
    pub fn address(&self) -> Option<String> {
        None
    }

    /// What proves to processes of other nodes that they belong to one job.
    pub fn set_secret(&mut self, _: [u8; 32]) {}

    /// The peers that were talked to.
    pub fn connected(&self) -> Vec<Peer> {
        Vec::new()
    }

    /// Whether everything that was taken has left this process.
    pub fn is_flushed(&mut self) -> bool {
        true
    }

    /// One line for each peer that was talked to: which way, and why.
    pub fn describe(&self, _: &[u32]) -> Vec<String> {
        Vec::new()
    }

    /// Announces to all peers that this process is about to sleep, for at most `limit`; none if something has come meanwhile.
    pub fn prepare_sleep(&mut self, limit: Duration) -> Option<Sleep> {
        Some(Sleep { limit })
    }

    /// Takes back the announcement.
    pub fn wake(&mut self, _: Woken) {}
}

/// A sleep that is about to begin, without the state.
#[derive(Debug)]
pub struct Sleep {
    limit: Duration,
}

/// What ended a sleep.
#[derive(Debug)]
pub struct Woken {}

impl Sleep {
    /// Sleeps until something may have come, or the time is over.
    pub fn sleep(self) -> Woken {
        std::thread::sleep(self.limit);
        Woken {}
    }
}

impl Transport for Ways {
    fn limits(&self, _: Peer) -> FrameLimits {
        FrameLimits { eager: 0, part: 0 }
    }

    fn try_send(&mut self, _: Peer, _: &Frame, _: Payload<'_>) -> Result<(), Refusal> {
        Err(Refusal::Lost)
    }

    fn poll<S: Sink>(&mut self, _: &mut S) -> bool {
        false
    }

    fn offer(&mut self, _: Peer, _: &Buffer) -> Option<Region> {
        None
    }

    fn withdraw(&mut self, _: Peer, _: Region) {}

    fn cut(&mut self, _: Peer) {}

    fn pull(&mut self, _: Peer, _: Region, _: &Buffer, _: usize) -> Result<(), PullRefused> {
        Err(PullRefused)
    }

    fn park(&mut self, _: Duration) {}
}
