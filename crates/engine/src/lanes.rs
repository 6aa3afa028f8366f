// SPDX-License-Identifier: MIT OR Apache-2.0
//! All lanes, as the coordinator has them. What it wants to know of a lane is a [`Look`]. What it
//! asks of one is a message ([`Down`]), and so is what a lane tells ([`Up`]).
//!
//! A message is done at once, unless a seed chooses the order of messages ([`Mail`]).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::cx::Cx;
use crate::fact::canary::Canary;
use crate::fact::io::DeviceError;
use crate::lane::Lane;
use crate::look::Look;
use crate::organ::down::Down;
use crate::organ::mail::{Letter, Mail};
use crate::organ::piece::Piece;
use crate::organ::up::Up;

/// All lanes, to hand them over one by one.
pub(crate) type OwnLanes = Vec<Box<Lane>>;

/// All lanes.
pub(crate) struct Lanes {
    lanes: OwnLanes,
    /// Messages that are on their way, if a seed chooses their order.
    mail: Option<Box<Mail>>,
}

impl Lanes {
    pub(crate) const fn new(lanes: OwnLanes) -> Self {
        Self { lanes, mail: None }
    }

    /// How many lanes there are.
    pub(crate) const fn count(&self) -> usize {
        self.lanes.len()
    }

    /// A look at each lane.
    pub(crate) fn looks(&self) -> impl Iterator<Item = Look<'_>> {
        (0..self.lanes.len()).map(|lane| self.look(lane))
    }

    /// A look at one lane.
    pub(crate) fn look(&self, lane: usize) -> Look<'_> {
        let it = &self.lanes[lane];
        self.mail.as_ref().map_or(Look::Now(it), |mail| Look::Seen(mail.seen(lane), it))
    }

    /// A lane itself, for what a client asks of its blocks.
    pub(crate) fn asked(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    /// The lanes themselves, for what drives them, and for what people and tests see of them.
    pub(crate) fn driven(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|lane| &**lane)
    }

    /// From now on this seed chooses which message comes next.
    pub(crate) fn choose_order(&mut self, seed: u64) {
        self.mail = Some(Box::new(Mail::new(self.lanes.len(), seed)));
    }

    /// Sends a message to a lane.
    pub(crate) fn send(&mut self, lane: usize, down: Down, cx: &mut Cx<'_>) {
        match &mut self.mail {
            None => self.lanes[lane].receive(down, cx),
            Some(mail) => {
                let lost = cx.facts.planted(Canary::MessageLost) && mail.draw(100) == 0;
                mail.send(lane, (!lost).then_some(down));
            }
        }
    }

    /// Sends a message whose answer is the last that the lane tells. The answer is returned, unless
    /// messages are on their way for a while. Then it comes like all that lanes tell.
    pub(crate) fn ask(&mut self, lane: usize, down: Down, cx: &mut Cx<'_>) -> Option<Up> {
        self.send(lane, down, cx);
        if self.by_mail() { None } else { cx.delta.take_last_told() }
    }

    /// Sends a message to each lane.
    pub(crate) fn send_all(&mut self, down: impl Fn() -> Down, cx: &mut Cx<'_>) {
        (0..self.lanes.len()).for_each(|lane| self.send(lane, down(), cx));
    }

    /// Sends a lane its part of a request: [`Down::Piece`].
    // Always: each request comes by here, and a call costs more than what is done.
    #[inline(always)]
    pub(crate) fn send_piece(&mut self, lane: usize, piece: Piece, cx: &Cx<'_>) {
        match &mut self.mail {
            None => self.lanes[lane].take(piece, cx),
            Some(mail) => mail.send(lane, Some(Down::Piece(piece))),
        }
    }

    /// Tells a lane that an I/O of its own has ended.
    #[inline]
    pub(crate) fn ended(&mut self, lane: usize, io: usize, result: Result<(), DeviceError>, cx: &mut Cx<'_>) {
        match &mut self.mail {
            None => self.lanes[lane].take_ended(io, result, cx),
            Some(mail) => mail.ended(lane, io, result),
        }
    }

    /// Lets each lane take a step of its own.
    #[inline]
    pub(crate) fn each(&mut self, cx: &mut Cx<'_>, step: impl Fn(&mut Lane, &mut Cx<'_>)) {
        if self.mail.is_some() {
            return self.each_by_mail(cx, step);
        }
        self.lanes.iter_mut().for_each(|lane| step(lane, cx));
    }

    /// Lets each lane begin, which none of them may skip.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>, step: impl Fn(&mut Lane, &mut Cx<'_>)) {
        for lane in 0..self.lanes.len() {
            step(&mut self.lanes[lane], cx);
            self.collect(lane, cx);
        }
    }

    /// Lets each lane take a step of its own, or not yet. While messages are on their way a lane's
    /// thread may be slower than others.
    #[cold]
    fn each_by_mail(&mut self, cx: &mut Cx<'_>, step: impl Fn(&mut Lane, &mut Cx<'_>)) {
        for lane in 0..self.lanes.len() {
            let waits = self.mail.as_mut().is_some_and(|mail| !mail.is_empty() && mail.draw(4) == 0);
            if !waits {
                step(&mut self.lanes[lane], cx);
                self.collect(lane, cx);
            }
        }
    }

    /// Puts into the mail what a lane shows, and then what it has told.
    fn collect(&mut self, lane: usize, cx: &mut Cx<'_>) {
        let Some(mail) = &mut self.mail else { return };
        let seen = Look::Now(&self.lanes[lane]).show(cx);
        let lost = cx.facts.planted(Canary::ShownLost) && mail.draw(100) == 0;
        let bug = if lost {
            Some(Canary::ShownLost)
        } else {
            cx.facts.planted(Canary::ShownAfter).then_some(Canary::ShownAfter)
        };
        let mut told = cx.delta.take_told();
        if cx.facts.planted(Canary::MessageDoubled) && !told.is_empty() && mail.draw(100) == 0 {
            let again = told.first().and_then(again);
            told.extend(again);
        }
        mail.take_step(lane, seen, told.drain(..), bug);
        cx.delta.give_back_room(told);
    }

    /// A turn of the coordinator begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        if let Some(mail) = &mut self.mail {
            mail.begin_turn();
        }
    }

    /// A number that changes with all that is new to the coordinator, while messages are on their
    /// way.
    pub(crate) fn news(&self) -> Option<u64> {
        self.mail.as_ref().map(|mail| mail.news())
    }

    /// Whether a seed chooses the order of messages.
    pub(crate) const fn by_mail(&self) -> bool {
        self.mail.is_some()
    }

    /// Whether messages are on their way.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.as_ref().is_some_and(|mail| !mail.is_empty())
    }

    /// Whether each lane knows all that it was told, and the coordinator all that lanes have told.
    pub(crate) fn know_all(&self, cx: &Cx<'_>) -> bool {
        self.mail.as_ref().is_none_or(|mail| mail.counts_agree() || cx.facts.planted(Canary::RestEarly))
    }

    /// Whether messages are on their way, and the seed says that all of them are late.
    pub(crate) fn leaves_mail(&mut self) -> bool {
        self.mail.as_mut().is_some_and(|mail| !mail.is_empty() && mail.draw(4) == 0)
    }

    /// Takes out the message that comes next.
    pub(crate) fn next_letter(&mut self, cx: &mut Cx<'_>) -> Option<Letter> {
        debug_assert!(cx.delta.is_silent(), "a lane was changed without a message");
        self.mail.as_mut()?.next(cx.facts.planted(Canary::MessageOvertakes))
    }

    /// Delivers a message to its lane. A message for the coordinator is returned.
    pub(crate) fn deliver(&mut self, letter: Letter, cx: &mut Cx<'_>) -> Option<Up> {
        let lane = match letter {
            Letter::Down(lane, down) => {
                self.lanes[lane].receive(down, cx);
                lane
            }
            Letter::Ended(lane, io, result) => {
                self.lanes[lane].take_ended(io, result, cx);
                lane
            }
            Letter::Up(up) => return Some(up),
            Letter::Seen => return None,
        };
        self.collect(lane, cx);
        None
    }

    /// The lanes themselves, for a time in which they work apart.
    pub(crate) const fn own(&mut self) -> &mut OwnLanes {
        &mut self.lanes
    }
}

/// Makes the message once more, for a planted bug.
const fn again(up: &Up) -> Option<Up> {
    match *up {
        Up::PieceDone { request, error, from_origin } => Some(Up::PieceDone { request, error, from_origin }),
        Up::GrantUsed(used) => Some(Up::GrantUsed(used)),
        Up::RunWritten { lane, run, origin, blocks } => Some(Up::RunWritten { lane, run, origin, blocks }),
        _ => None,
    }
}
