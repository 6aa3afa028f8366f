// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crash sweep cuts the power after every event of a [`Workload`], in every way that makes a
//! difference. An event is an I/O that begins or ends, a timer or an order. The oracle judges what
//! replay brings back.
//!
//! The sweep takes all points and no samples. The world is cloned at each event. So a sweep costs
//! one run of the workload, and one replay for each way of dying.
//!
//! The ways of dying are each [`Fate`] of the cache device times each fate of the origins. A device
//! without unflushed writes has only one fate. Workloads marked `again` are cut a second time, at
//! every event of each replay.

mod members;
mod modes;
mod ordered;
mod stage;
mod volumes;
mod workload;
mod workloads;

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use flashfront_device::sim::Fate;

use crate::client::Client;
use crate::panics;

pub use stage::Stage;
pub use workload::Workload;
pub use workloads::WORKLOADS;

/// All fates, with their names.
pub const FATES: [(&str, Fate); 4] =
    [("kept", Fate::Kept), ("lost", Fate::Lost), ("torn", Fate::Torn), ("mixed", Fate::Mixed)];

/// A power cut: the event after which the power failed, and the fates of unflushed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of events before the cut.
    pub event: u64,
    /// Numbers in [`FATES`], of the cache device and of the origins.
    pub fates: (usize, usize),
}

/// A way of dying, with all that is needed to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The workload's name.
    pub workload: String,
    /// The power cut.
    pub cut: Cut,
    /// A second cut, during the replay after the first.
    pub again: Option<Cut>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cache, origins) = self.fates;
        write!(f, "{}:{}/{}", self.event, FATES[cache].0, FATES[origins].0)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.workload, self.cut)?;
        self.again.iter().try_for_each(|cut| write!(f, ":{cut}"))
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no point; one is as in writeback:17:torn/lost, or with :3:kept/kept after it");
        let fate = |name: &str| FATES.iter().position(|(it, _)| *it == name);
        let cut = |event: &str, fates: &str| {
            let (cache, origins) = fates.split_once('/')?;
            Some(Cut { event: event.parse().ok()?, fates: (fate(cache)?, fate(origins)?) })
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (workload, first, second) = match parts[..] {
            [workload, a, b] => (workload, cut(a, b), None),
            [workload, a, b, c, d] => (workload, cut(a, b), Some(cut(c, d).ok_or_else(wrong)?)),
            _ => return Err(wrong()),
        };
        Ok(Self { workload: workload.to_owned(), cut: first.ok_or_else(wrong)?, again: second })
    }
}

/// The points that a sweep has covered, and the violations that it found.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// Moments at which the power was cut; second cuts count too.
    pub points: u64,
    /// Ways of dying that were replayed and judged.
    pub fates: u64,
    /// The violations that were found, with the point of each.
    pub violations: Vec<(Point, String)>,
}

/// The part of a sweep that is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The number of parts.
    pub of: u64,
    /// The part that is done, counted from 0.
    pub nth: u64,
}

/// The events of a workload.
///
/// # Panics
/// When the workload itself goes wrong.
#[must_use]
pub fn events(workload: &Workload) -> u64 {
    let mut events = 0;
    workload::play(workload, &mut |_, event| {
        events = event + 1;
        ControlFlow::Continue(())
    });
    events
}

/// Hashes all effects of a workload that no power cut ends.
///
/// # Panics
/// When the workload itself goes wrong.
#[must_use]
pub fn effects_hash(workload: &Workload) -> u64 {
    let mut hash = 0;
    workload::play(workload, &mut |client, _| {
        hash = client.world.effects_hash();
        ControlFlow::Continue(())
    });
    hash
}

/// Sweeps a workload. `ended` is shown what was found so far after each event's cuts;
/// [`ControlFlow::Break`] ends the sweep.
pub fn sweep(workload: &Workload, share: Share, ended: &mut dyn FnMut(&Swept) -> ControlFlow<()>) -> Swept {
    let mut outcome = Swept::default();
    workload::play(workload, &mut |client, event| {
        if event % share.of != share.nth {
            return ControlFlow::Continue(());
        }
        outcome.points += 1;
        for fates in fates_of(client) {
            let point = Point { workload: workload.name.to_owned(), cut: Cut { event, fates }, again: None };
            outcome.judge(&point, || die(client, point.cut));
            if workload.again {
                sweep_replay(&point, client, &mut outcome);
            }
        }
        ended(&outcome)
    });
    outcome
}

/// Judges one point alone.
///
/// # Errors
/// What is wrong.
pub fn reproduce(point: &Point) -> Result<(), String> {
    let workload = WORKLOADS.iter().find(|it| it.name == point.workload);
    let workload = workload.ok_or_else(|| format!("no workload is called `{}`", point.workload))?;
    let mut outcome = None;
    workload::play(workload, &mut |client, event| {
        if event < point.cut.event {
            return ControlFlow::Continue(());
        }
        let mut one = Swept::default();
        match point.again {
            None => one.judge(point, || die(client, point.cut)),
            Some(again) => {
                let mut replay = die(client, point.cut);
                replay.world.begin_open();
                (0..again.event).for_each(|_| _ = replay.world.step());
                one.judge(point, || die(&replay, again));
            }
        }
        outcome = Some(one);
        ControlFlow::Break(())
    });
    match outcome {
        None => Err(format!("{} has only {} events", workload.name, events(workload))),
        Some(outcome) => outcome.violations.into_iter().next().map_or(Ok(()), |(_, text)| Err(text)),
    }
}

/// The fates that make a difference now.
fn fates_of(client: &Client) -> impl Iterator<Item = (usize, usize)> + use<> {
    let all = |at_risk: bool| if at_risk { FATES.len() } else { 1 };
    let world = &client.world;
    let cache = all([&world.cache].into_iter().chain(&world.mirror).any(|disk| disk.inner().at_risk()));
    let origins = all(client.world.origins.iter().any(|origin| origin.inner().at_risk()));
    (0..cache).flat_map(move |cache| (0..origins).map(move |origin| (cache, origin)))
}

fn die(client: &Client, cut: Cut) -> Client {
    let (cache, origins) = cut.fates;
    client.crashed(cut.event * 16 + (cache * 4 + origins) as u64, FATES[cache].1, FATES[origins].1)
}

/// Cuts the power at every event of a replay.
fn sweep_replay(point: &Point, client: &Client, outcome: &mut Swept) {
    let mut replay = die(client, point.cut);
    replay.world.begin_open();
    for event in 0.. {
        outcome.points += 1;
        for fates in fates_of(&replay) {
            let point = Point { again: Some(Cut { event, fates }), ..point.clone() };
            outcome.judge(&point, || die(&replay, Cut { event, fates }));
        }
        if !replay.world.step() {
            return;
        }
    }
}

impl Swept {
    /// Opens the cache after a power cut, reads everything, drains, stops, and reads the bare
    /// origins.
    fn judge(&mut self, point: &Point, left: impl Fn() -> Client) {
        self.fates += 1;
        let found = panics::caught(|| {
            // If both members are complete, each of them must also open without the other. Else
            // one of them isn't needed.
            let world = left().world;
            let whole = world.is_whole();
            let gone = match world.needless() {
                _ if whole => vec![None, Some(0), Some(1)],
                needless => [None].into_iter().chain(needless.map(Some)).collect(),
            };
            for gone in gone {
                let mut client = left();
                client.world.heal();
                if let Some(member) = gone {
                    client.world.take_away(member);
                    client.world.alone = whole;
                }
                client.open();
                client.read_all();
                assert_eq!(client.take_failed(), [], "without member {gone:?}");
                client.leave();
            }
        });
        if let Err(violation) = found {
            self.violations.push((point.clone(), violation));
        }
    }

    /// Adds what another part of the sweep has covered.
    pub fn add(&mut self, other: Self) {
        self.points += other.points;
        self.fates += other.fates;
        self.violations.extend(other.violations);
    }
}
