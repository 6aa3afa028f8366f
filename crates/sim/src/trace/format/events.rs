// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block layer has several events for each request. blktrace and blkparse write all of them.

use crate::trace::action::Action;
use crate::trace::record::Op;

/// An event that isn't the one that counts: its number in blktrace, its letters in blkparse, what
/// it is skipped as.
struct Event {
    number: u16,
    letters: &'static [u8],
    kind: &'static str,
}

const fn event(number: u16, letters: &'static [u8], kind: &'static str) -> Event {
    Event { number, letters, kind }
}

/// linux/blktrace_api.h, and the letters of blkparse(1).
const EVENTS: [Event; 18] = [
    event(1, b"Q", "events Q (queued)"),
    event(2, b"M", "events M (merged behind)"),
    event(3, b"F", "events F (merged before)"),
    event(4, b"G", "events G (got a request)"),
    event(5, b"S", "events S (waited for a request)"),
    event(6, b"R", "events R (requeued)"),
    event(7, b"D", "events D (issued)"),
    event(8, b"C", "events C (completed)"),
    event(9, b"P", "events P (plugged)"),
    event(10, b"U", "events U (unplugged)"),
    event(11, b"UT", "events UT (unplugged by timer)"),
    event(12, b"I", "events I (inserted)"),
    event(13, b"X", "events X (split)"),
    event(14, b"B", "events B (bounced)"),
    event(15, b"A", "events A (remapped)"),
    event(16, b"a", "events of aborts"),
    event(17, b"d", "events of drivers"),
    // blkparse has a letter for these, blktrace a bit.
    event(0, b"m", MESSAGE),
];

pub(super) const MESSAGE: &str = "messages and process names";
pub(super) const PASSTHROUGH: &str = "commands past the block layer";
pub(super) const DATALESS: &str = "events without data";

/// The number of the events that count.
pub(super) fn number_of(action: Action) -> u16 {
    match action {
        Action::Queue => 1,
        Action::Issue => 7,
        Action::Complete => 8,
    }
}

/// The letters of the events that count.
pub(super) fn letters_of(action: Action) -> &'static [u8] {
    match action {
        Action::Queue => b"Q",
        Action::Issue => b"D",
        Action::Complete => b"C",
    }
}

/// What these events are skipped as, where others count.
fn kind_of(action: Action) -> Option<&'static str> {
    kind_of_number(number_of(action))
}

/// Whether this word says that what was skipped are events, some of which may be the requests.
pub(crate) fn is_event(kind: &str) -> bool {
    Action::ALL.iter().any(|it| kind_of(*it) == Some(kind))
}

/// What events of that number are skipped as.
pub(super) fn kind_of_number(number: u16) -> Option<&'static str> {
    EVENTS.iter().find(|it| it.number == number && number > 0).map(|it| it.kind)
}

/// What events of these letters are skipped as.
pub(super) fn kind_of_letters(letters: &[u8]) -> Option<&'static str> {
    EVENTS.iter().find(|it| it.letters == letters).map(|it| it.kind)
}

/// What flags like `RA`, `WFS` or `FWS` say: one letter is the operation, an F before it a flush,
/// those behind it hints.
pub(super) fn operation(flags: &[u8]) -> Option<Op> {
    flags.iter().find_map(|letter| match letter {
        b'R' => Some(Op::Read),
        b'W' => Some(Op::Write),
        b'D' => Some(Op::Discard),
        _ => None,
    })
}
