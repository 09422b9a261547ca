//! Explores all interleavings of two ends that copy one message.

#![expect(unsafe_code, reason = "pieces are written through pointers, as a peer's memory is")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

const PIECES: u32 = 2;

struct Copying {
    ticket: Ticket,
    pieces: [UnsafeCell<u32>; PIECES as usize],
}

impl Copying {
    fn copy(&self, piece: u32) {
        // SAFETY: the process that has claimed a piece is its only user, as the model proves.
        self.pieces[piece as usize].with_mut(|value| unsafe { *value += 1 });
    }
}

#[test]
fn loom_every_piece_is_copied_once_and_before_the_receiver_reports_the_end() {
    loom::model(|| {
        let ticket = Ticket { turn: AtomicU64::new(0), done: AtomicU32::new(9), failed: AtomicU32::new(9) };
        let copying = Arc::new(Copying { ticket, pieces: Default::default() });
        copying.ticket.open(7);
        let sender = thread::spawn({
            let copying = Arc::clone(&copying);
            move || {
                assert_eq!(copying.ticket.claim(6, PIECES), None, "another copy");
                while let Some(piece) = copying.ticket.claim(7, PIECES) {
                    copying.copy(piece);
                    copying.ticket.finish(true);
                }
            }
        });
        let mut ours = 0;
        while let Some(piece) = copying.ticket.claim(7, PIECES) {
            copying.copy(piece);
            ours += 1;
        }
        let theirs = copying.ticket.close(7, PIECES) - ours;
        let whole = |copying: &Copying| {
            // SAFETY: no process writes any more, as the model proves.
            copying.pieces.iter().all(|piece| piece.with(|value| unsafe { *value == 1 }))
        };
        match copying.ticket.outcome(theirs) {
            Some(all) => assert!(all && whole(&copying)),
            None => {
                sender.join().unwrap();
                assert_eq!(copying.ticket.outcome(theirs), Some(true));
                assert!(whole(&copying));
            }
        }
    });
}
