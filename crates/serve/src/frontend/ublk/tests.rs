// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device without a driver: what becomes of answers when the kernel refuses them.

use flashfront_engine::{Buf, Memory, OriginId, Request};

use super::queue::tests::{accept, ended, refused};
use super::*;

/// A pump that has nothing to do.
struct Nobody(Vec<Export>);

impl Core for Nobody {
    fn exports(&self) -> &[Export] {
        &self.0
    }

    fn memory(&mut self) -> &mut dyn Memory {
        unreachable!("no request")
    }

    fn alloc(&mut self, _bytes: u32, _origin: OriginId) -> Option<Buf> {
        unreachable!("no request")
    }

    fn free(&mut self, _buf: Buf) {
        unreachable!("no request")
    }

    fn submit(&mut self, _request: Request) {
        unreachable!("no request")
    }
}

#[test]
fn answers_that_the_kernel_refuses_are_sent_without_new_ones() {
    let Some(queue) = refused(8) else { return };
    let driver = Driver::new(tempfile::tempfile().unwrap(), 0).unwrap();
    let mut ublk = Ublk {
        options: UblkOptions { number: 0, origin: OriginId(0), mark: 0, recoverable: false },
        driver,
        depth: 8,
        queue: Some(queue),
        table: Table::default(),
        waiting: VecDeque::new(),
        results: Rc::default(),
        again_at: None,
        phase: Phase::Live,
        recovering: false,
        stop_asked: false,
        on_hold: false,
        failed: None,
    };
    let (poll, mut core) = (mio::Poll::new().unwrap(), Nobody(Vec::new()));
    let mut turn = |ublk: &mut Ublk, now| ublk.turn_end(Time(now), poll.registry(), &mut core);
    ublk.results.borrow_mut().extend((0..7).map(|tag| (tag, 0)));
    turn(&mut ublk, 0);
    assert_eq!(ublk.next_timer(), Some(Time(AGAIN_NS)), "the pump comes back by itself");
    // One more that is answered meanwhile goes with them.
    ublk.results.borrow_mut().push((7, 0));
    turn(&mut ublk, AGAIN_NS);
    assert_eq!(ublk.next_timer(), Some(Time(2 * AGAIN_NS)));
    assert_eq!(ended(ublk.queue.as_mut().unwrap()), 0);
    accept(ublk.queue.as_ref().unwrap());
    turn(&mut ublk, 2 * AGAIN_NS);
    assert_eq!(ended(ublk.queue.as_mut().unwrap()), 8, "each once");
    assert_eq!(ublk.next_timer(), None);
    turn(&mut ublk, 3 * AGAIN_NS);
    assert_eq!(ended(ublk.queue.as_mut().unwrap()), 0);
}
