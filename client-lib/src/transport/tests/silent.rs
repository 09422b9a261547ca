//! Data on a connection that was silent for a while, when others were not.

use std::time::{Duration, Instant};

use super::{Over, Station, routes_of};
use crate::engine::frame::{Envelope, Frame};
use crate::engine::{Landing, Peer, PullRefused, Sink, Transport};
use crate::memory::{Arrived, Buffer, Payload};
use crate::transport::Routes;

/// The senders of the frames that have arrived.
#[derive(Default)]
struct Senders(Vec<Peer>);

impl Sink for Senders {
    fn on_frame(&mut self, from: Peer, _: Frame, _: Arrived<'_>) {
        self.0.push(from);
    }

    fn landing(&mut self, _: Peer, _: &Frame, _: usize) -> Option<Landing> {
        None
    }

    fn on_landed(&mut self, _: Peer, _: Frame, _: usize) {}

    fn on_pulled(&mut self, _: Peer, _: u32, _: Result<(), PullRefused>) {}

    fn on_lost(&mut self, peer: Peer, reason: &str) {
        panic!("{peer:?} is lost: {reason}");
    }
}

#[expect(unsafe_code, reason = "lends memory as a user does")]
fn sends(from: &mut Routes) -> bool {
    // SAFETY: the buffer has no bytes, so nothing is read or written through the pointer.
    let nothing = unsafe { Buffer::contiguous(std::ptr::null_mut(), 0) };
    let frame = Frame::Eager { envelope: Envelope { context: 0, rank: 0, tag: 0 } };
    from.try_send(Peer(0), &frame, Payload::new(&nothing, 0, 0)).is_ok()
}

#[test]
fn data_on_a_silent_connection_is_seen_soon_beside_a_busy_one() {
    let mut world = routes_of(3, Over::Tcp);
    let addresses: Vec<_> = world.iter().map(Routes::address).collect();
    let mut senders = Senders::default();
    let since = Instant::now();
    for rank in [1, 2] {
        let (mut is_sent, before) = (false, senders.0.len());
        while senders.0.len() == before {
            assert!(since.elapsed() < Duration::from_secs(30), "timed out");
            is_sent = is_sent || sends(&mut world[rank]);
            for process in &mut world {
                process.connect(&addresses);
                process.poll(&mut senders);
            }
        }
    }
    let mut polls_until = |world: &mut [Routes], from: Peer| {
        // On a busy machine, the kernel may not have delivered it yet.
        std::thread::sleep(Duration::from_millis(5));
        senders.0.clear();
        let polls = (1..1_000).find(|_| {
            world[0].poll(&mut senders);
            !senders.0.is_empty()
        });
        assert_eq!(senders.0, [from]);
        polls.expect("it is on this machine")
    };
    for _ in 0..10_000 {
        // Both connections become silent.
        world[0].poll(&mut Senders::default());
    }
    assert!(sends(&mut world[1]));
    polls_until(&mut world, Peer(1));
    assert!(sends(&mut world[2]));
    let polls = polls_until(&mut world, Peer(2));
    assert!(polls <= 4, "{polls} polls");
}
