// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle blames the guilty and nobody else.

use super::Oracle;
use crate::stamp::{Content, SECTOR, stamp};

fn bytes(write: u32) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    stamp(0, 3, write, &mut bytes);
    bytes
}

fn read(oracle: &mut Oracle, write: u32) -> bool {
    let start = oracle.begin_read();
    oracle.end_read(0, 3, start, &bytes(write)).is_ok()
}

#[test]
fn a_read_returns_the_newest_write_or_one_that_overlaps() {
    let mut oracle = Oracle::new(&[8]);
    assert!(read(&mut oracle, 0));
    let a = oracle.begin_write(0, 3, 1, None);
    assert!(read(&mut oracle, 0), "still in flight");
    oracle.end_write(a, true, false);
    assert!(!read(&mut oracle, 0), "stale");
    assert!(read(&mut oracle, a));
    let b = oracle.begin_write(0, 3, 1, None);
    assert!(read(&mut oracle, b), "seen early");
    assert!(!read(&mut oracle, a), "once seen there is no way back");
    let start = oracle.begin_read();
    assert!(oracle.end_read(0, 3, start, &[7; SECTOR]).is_err(), "garbage");
}

#[test]
fn after_a_crash_what_was_flushed_is_there_and_the_first_read_decides() {
    let mut oracle = Oracle::new(&[8]);
    let a = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(a, true, false);
    let flush = oracle.begin_read();
    oracle.end_flush(0, flush, true);
    let b = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(b, true, false);
    oracle.crash();
    let mut other = oracle.clone();
    assert!(!read(&mut oracle, 0), "the flush was acknowledged");
    assert!(read(&mut oracle, a), "b was not flushed");
    assert!(!read(&mut oracle, b), "and can't come back");
    assert!(read(&mut other, b), "but may have survived");
    assert!(!read(&mut other, a));
}

#[test]
fn fua_is_durable_alone_and_a_flush_of_another_origin_is_none() {
    let mut oracle = Oracle::new(&[8, 8]);
    let a = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(a, true, true);
    let b = oracle.begin_write(0, 4, 1, None);
    oracle.end_write(b, true, false);
    let flush = oracle.begin_read();
    oracle.end_flush(1, flush, true);
    oracle.crash();
    assert_eq!(oracle.allowed(0, 3), [Content::Write(a)]);
    assert_eq!(oracle.allowed(0, 4), [Content::Write(0), Content::Write(b)]);
}

#[test]
fn a_discarded_sector_may_hold_anything_until_it_is_written() {
    let mut oracle = Oracle::new(&[8]);
    let discard = oracle.begin_write(0, 3, 1, Some(Content::Any));
    oracle.end_write(discard, true, false);
    assert!(read(&mut oracle, 0) && read(&mut oracle, 99));
    let a = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(a, true, true);
    assert!(read(&mut oracle, a) && !read(&mut oracle, 0));
}

#[test]
fn a_failed_write_may_have_happened_or_not() {
    let mut oracle = Oracle::new(&[8]);
    let a = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(a, false, false);
    let mut other = oracle.clone();
    assert!(read(&mut oracle, 0));
    assert!(read(&mut other, a) && !read(&mut other, 0));
}

#[test]
fn what_a_killed_daemon_left_is_certain_after_a_flush_alone() {
    for flushed in [false, true] {
        let mut oracle = Oracle::new(&[8]);
        let a = oracle.begin_write(0, 3, 1, None);
        oracle.end_write(a, true, false);
        let before = oracle.begin_read();
        oracle.kill();
        assert!(read(&mut oracle, a), "the device has it");
        assert!(!read(&mut oracle, 0), "the first read decides");
        let flush = if flushed { oracle.begin_read() } else { before };
        oracle.reads.push(before);
        oracle.end_flush(0, flush, true);
        oracle.crash();
        assert_eq!(read(&mut oracle, 0), !flushed, "a power cut takes what no flush since has covered");
    }
}

/// After a lost connection an unflushed write may be there or not, now one and now the other, until
/// a later write has ended. What was flushed must be there.
#[test]
fn what_a_server_forgot_may_be_missing_until_it_is_written_again() {
    let mut oracle = Oracle::new(&[8]);
    let a = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(a, true, true);
    let b = oracle.begin_write(0, 3, 1, None);
    oracle.end_write(b, true, false);
    oracle.lose(0);
    assert!(!read(&mut oracle, 0), "the first was durable");
    assert!(read(&mut oracle, b) && read(&mut oracle, a) && read(&mut oracle, b));
    let flush = oracle.begin_read();
    oracle.end_flush(0, flush, true);
    assert!(read(&mut oracle, a), "a later flush makes nothing of before durable");
    let c = oracle.begin_write(0, 3, 1, None);
    assert!(read(&mut oracle, a));
    oracle.end_write(c, true, false);
    assert!(!read(&mut oracle, a) && !read(&mut oracle, b) && read(&mut oracle, c));
}

#[test]
fn a_write_in_flight_at_the_loss_may_end_and_be_forgotten() {
    let mut oracle = Oracle::new(&[8]);
    let a = oracle.begin_write(0, 3, 1, None);
    oracle.lose(0);
    oracle.end_write(a, true, false);
    assert!(read(&mut oracle, a) && read(&mut oracle, 0));
}
