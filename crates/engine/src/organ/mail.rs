// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mail: messages that are on their way, and a seed that chooses which comes next.
//!
//! A lane's messages, the coordinator's to one lane, and the ends of a lane's I/Os each keep their
//! order. Between them any order is possible, as where each lane has a thread. So a simulation of
//! one thread produces every order that threads can, and the same seed produces the same order.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::fact::canary::Canary;
use crate::fact::io::DeviceError;
use crate::organ::down::Down;
use crate::organ::seen::{Counts, LaneSeen};
use crate::organ::up::Up;

/// A message that comes.
pub(crate) enum Letter {
    /// A lane gets a message of the coordinator.
    Down(usize, Down),
    /// An I/O of a lane has ended.
    Ended(usize, usize, Result<(), DeviceError>),
    /// The coordinator gets a message of a lane.
    Up(Up),
    /// The coordinator has seen what a lane shows.
    Seen,
}

/// What comes from a lane, in its order.
enum Told {
    Up(Up),
    Seen(Box<LaneSeen>),
}

/// Messages that are on their way.
pub(crate) struct Mail {
    seed: u64,
    down: Vec<VecDeque<Down>>,
    ended: Vec<VecDeque<(usize, Result<(), DeviceError>)>>,
    /// What lanes tell and show, each in its own box.
    up: Vec<VecDeque<Told>>,
    /// What lanes have shown last, and what the coordinator has seen of it.
    shown: Vec<LaneSeen>,
    seen: Vec<LaneSeen>,
    /// What lanes count.
    counts: Vec<Counts>,
    /// Counts up with what comes to the coordinator and is more than an answer to its own search.
    news: u64,
    /// How many messages the coordinator has sent to each lane, and how many came of it.
    sent: Vec<u64>,
    come: Vec<u64>,
}

impl Mail {
    pub(crate) fn new(lanes: usize, seed: u64) -> Self {
        fn boxes<T>(count: usize) -> Vec<VecDeque<T>> {
            (0..count).map(|_| VecDeque::new()).collect()
        }
        Self {
            seed,
            down: boxes(lanes),
            ended: boxes(lanes),
            up: boxes(lanes),
            shown: alloc::vec![LaneSeen::default(); lanes],
            seen: alloc::vec![LaneSeen::default(); lanes],
            counts: alloc::vec![Counts::default(); lanes],
            news: 0,
            sent: alloc::vec![0; lanes],
            come: alloc::vec![0; lanes],
        }
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.boxes().next().is_none()
    }

    /// The coordinator sends a message. `None`, a planted bug: that message is lost.
    pub(crate) fn send(&mut self, lane: usize, down: Option<Down>) {
        self.sent[lane] += 1;
        self.down[lane].extend(down);
    }

    pub(crate) fn ended(&mut self, lane: usize, io: usize, result: Result<(), DeviceError>) {
        self.ended[lane].push_back((io, result));
    }

    /// Takes what a lane shows after a step, and then what it has told in that step. A planted bug
    /// loses what is shown, or puts it last.
    pub(crate) fn take_step(
        &mut self,
        lane: usize,
        mut seen: LaneSeen,
        told: impl ExactSizeIterator<Item = Up>,
        bug: Option<Canary>,
    ) {
        self.counts[lane].told += told.len() as u64;
        seen.counts = self.counts[lane];
        let mut news = None;
        if self.shown[lane] != seen {
            self.shown[lane].clone_from(&seen);
            news = (bug != Some(Canary::ShownLost)).then(|| Told::Seen(Box::new(seen)));
        }
        if bug != Some(Canary::ShownAfter) {
            self.up[lane].extend(news.take());
        }
        self.up[lane].extend(told.map(Told::Up));
        self.up[lane].extend(news);
    }

    /// Whether each lane has heard all that was sent, and the coordinator all that lanes told, as
    /// far as the coordinator has seen them.
    pub(crate) fn counts_agree(&self) -> bool {
        let coordinators = self.sent.iter().zip(&self.come);
        self.seen.iter().zip(coordinators).all(|(it, (sent, come))| it.counts.heard == *sent && it.counts.told == *come)
    }

    /// What was seen last of a lane.
    pub(crate) fn seen(&self, lane: usize) -> &LaneSeen {
        &self.seen[lane]
    }

    /// The coordinator's turn begins: time has passed, or something came.
    pub(crate) const fn begin_turn(&mut self) {
        self.news += 1;
    }

    /// A number that changes with all that is new to the coordinator.
    pub(crate) const fn news(&self) -> u64 {
        self.news
    }

    /// A number below `below`, which the seed chooses.
    pub(crate) const fn draw(&mut self, below: u64) -> u64 {
        // G. Steele, D. Lea and C. Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    }

    /// Takes out the message that comes next. `overtakes`, a planted bug, breaks the order of a
    /// sender.
    pub(crate) fn next(&mut self, overtakes: bool) -> Option<Letter> {
        let full = self.boxes().count() as u64;
        if full == 0 {
            return None;
        }
        let drawn = self.draw(full) as usize;
        let nth = self.boxes().nth(drawn)?;
        let lanes = self.down.len();
        if overtakes {
            self.mix(nth);
        }
        if nth < lanes {
            self.counts[nth].heard += 1;
            self.down[nth].pop_front().map(|down| Letter::Down(nth, down))
        } else if nth < 2 * lanes {
            let lane = nth - lanes;
            self.counts[lane].ended += 1;
            self.ended[lane].pop_front().map(|(io, result)| Letter::Ended(lane, io, result))
        } else {
            let lane = nth - 2 * lanes;
            self.up[lane].pop_front().map(|told| match told {
                Told::Up(up) => {
                    self.come[lane] += 1;
                    self.news += u64::from(!matches!(up, Up::GrantUsed(_)));
                    Letter::Up(up)
                }
                Told::Seen(seen) => {
                    self.news += u64::from(seen.is_news(&self.seen[lane]));
                    self.seen[lane] = *seen;
                    Letter::Seen
                }
            })
        }
    }

    /// Puts another message of a box first.
    fn mix(&mut self, nth: usize) {
        let lanes = self.down.len();
        if nth < lanes {
            let later = self.draw(self.down[nth].len() as u64) as usize;
            self.down[nth].swap(0, later);
        } else if nth >= 2 * lanes {
            let later = self.draw(self.up[nth - 2 * lanes].len() as u64) as usize;
            self.up[nth - 2 * lanes].swap(0, later);
        }
    }

    /// The numbers of the boxes that hold something.
    fn boxes(&self) -> impl Iterator<Item = usize> {
        let down = self.down.iter().map(VecDeque::is_empty);
        let ended = self.ended.iter().map(VecDeque::is_empty);
        let up = self.up.iter().map(VecDeque::is_empty);
        down.chain(ended).chain(up).enumerate().filter(|(_, empty)| !empty).map(|(nth, _)| nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which messages of two lanes come, and their numbers.
    fn order(seed: u64) -> Vec<(bool, usize)> {
        let mut mail = Mail::new(2, seed);
        for io in 0..8 {
            mail.ended(0, io, Ok(()));
            mail.take_step(1, LaneSeen::default(), core::iter::once(Up::RunDropped { origin: io }), None);
        }
        let come = core::iter::from_fn(|| mail.next(false));
        come.filter_map(|letter| match letter {
            Letter::Ended(_, io, _) => Some((false, io)),
            Letter::Up(Up::RunDropped { origin }) => Some((true, origin)),
            Letter::Seen => None,
            Letter::Up(_) | Letter::Down(..) => unreachable!("nothing else was sent"),
        })
        .collect()
    }

    #[test]
    fn a_seed_chooses_the_order_and_no_message_overtakes_another_of_its_sender() {
        assert_eq!(order(1), order(1), "a seed stands for one order");
        assert!((2..50).any(|seed| order(seed) != order(1)), "seeds give several orders");
        for seed in 0..100 {
            let all = order(seed);
            for of_lane in [false, true] {
                let numbers: Vec<usize> = all.iter().filter(|(up, _)| *up == of_lane).map(|(_, nth)| *nth).collect();
                assert_eq!(numbers, (0..8).collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }

    #[test]
    fn what_a_lane_shows_comes_before_what_it_tells_in_the_same_step() {
        for seed in 0..100 {
            let mut mail = Mail::new(1, seed);
            let step = |number| LaneSeen { filled: Some(number), ..LaneSeen::default() };
            for number in 0..8 {
                mail.take_step(0, step(number), core::iter::once(Up::RunDropped { origin: number as usize }), None);
                mail.ended(0, number as usize, Ok(()));
            }
            while let Some(letter) = mail.next(false) {
                if let Letter::Up(Up::RunDropped { origin }) = letter {
                    assert_eq!(mail.seen(0).filled, Some(origin as u64), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn counts_agree_when_nothing_is_on_its_way_and_not_before() {
        for seed in 0..100 {
            let mut mail = Mail::new(2, seed);
            mail.take_step(1, LaneSeen::default(), core::iter::empty(), None);
            mail.send(0, Some(Down::Close));
            assert!(!mail.counts_agree(), "seed {seed}: a message is sent");
            while let Some(letter) = mail.next(false) {
                if let Letter::Down(lane, _) = letter {
                    assert!(!mail.counts_agree(), "seed {seed}: nobody has seen that the lane heard");
                    mail.take_step(lane, LaneSeen::default(), core::iter::once(Up::Closed { lane }), None);
                }
                assert_eq!(mail.counts_agree(), mail.is_empty(), "seed {seed}");
            }
        }
    }
}
