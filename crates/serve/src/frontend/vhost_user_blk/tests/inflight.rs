// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory for requests in flight, by itself: what the next daemon finds, wherever the last one
//! was killed.

use std::fs::File;

use vhost::vhost_user::message::VhostUserInflight;

use super::super::inflight::Inflight;

fn asked() -> VhostUserInflight {
    VhostUserInflight { num_queues: 2, queue_size: 8, ..VhostUserInflight::default() }
}

fn open(given: &VhostUserInflight, file: &File) -> Inflight {
    Inflight::open(given, file.try_clone().unwrap()).unwrap()
}

#[test]
fn what_was_taken_and_not_given_back_is_found_in_its_order() {
    let (given, file) = Inflight::create(&asked()).unwrap();
    let mut queue = open(&given, &file).queue(1, 8).unwrap();
    assert!(queue.recover(100).is_empty(), "new memory has nothing");
    for head in [5, 2, 7, 0] {
        queue.take(head);
    }
    queue.before_used(2);
    queue.after_used(2, 101);
    let mut next = open(&given, &file).queue(1, 8).unwrap();
    assert_eq!(next.recover(101), [5, 7, 0]);
    assert!(open(&given, &file).queue(0, 8).unwrap().recover(0).is_empty(), "queues don't mix");
    // Once more: requests that are taken up come before new ones.
    next.take(2);
    assert_eq!(open(&given, &file).queue(1, 8).unwrap().recover(101), [5, 7, 0, 2]);
}

#[test]
fn a_kill_between_the_ring_and_the_note_answers_nothing_twice() {
    let (given, file) = Inflight::create(&asked()).unwrap();
    let mut queue = open(&given, &file).queue(0, 8).unwrap();
    queue.recover(0);
    queue.take(3);
    queue.take(4);
    // Before the used ring was written: not answered.
    queue.before_used(3);
    assert_eq!(open(&given, &file).queue(0, 8).unwrap().recover(0), [3, 4]);
    // After it, before the note: answered.
    queue.before_used(3);
    assert_eq!(open(&given, &file).queue(0, 8).unwrap().recover(1), [4]);
}

#[test]
fn memory_that_is_too_small_or_for_too_much_is_refused() {
    let (given, file) = Inflight::create(&asked()).unwrap();
    let again = || file.try_clone().unwrap();
    Inflight::open(&VhostUserInflight { queue_size: 64, ..given }, again()).unwrap_err();
    Inflight::open(&VhostUserInflight { mmap_offset: u64::MAX, ..given }, again()).unwrap_err();
    Inflight::open(&VhostUserInflight { mmap_size: 1 << 30, ..given }, again()).unwrap_err();
    assert!(Inflight::create(&VhostUserInflight { num_queues: 5000, ..asked() }).is_err());
    assert!(Inflight::create(&VhostUserInflight { queue_size: 32768, ..asked() }).is_err());
    assert!(open(&given, &file).queue(2, 8).is_none());
    assert!(open(&given, &file).queue(0, 16).is_none());
}
