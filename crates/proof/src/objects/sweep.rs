// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crash sweep of volumes in an object store kills the writer after every event of a
//! [`Workload`], in every way that makes a difference. An event is a request that the store carries
//! out, or an answer that reaches the writer. The ways are which of the requests under way still
//! reach the store, and when: see [`Rest`].
//!
//! After each death the oracle looks at the bucket alone. Then another writer takes over, writes,
//! makes a checkpoint, collects, deletes and closes. At each event of that the bucket alone is
//! looked at once more. In the end all snapshots must be what they were.

mod rest;
mod stage;
mod workloads;

use std::fmt;
use std::str::FromStr;

use self::rest::{Rest, rests};
use self::stage::Stage;
use self::workloads::Act;
use super::judge;
use crate::panics;
use crate::sweep::Share;

pub use self::stage::VARIANTS;
pub use self::workloads::{WORKLOADS, Workload};

/// A death of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The workload's name.
    pub workload: String,
    /// Number of the variant.
    pub variant: usize,
    /// The number of events before it.
    pub event: u64,
    /// Number of the way of dying, of those that there are after this event.
    pub rest: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.workload, self.variant, self.event, self.rest)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no point of a volume in a store; one is as in collect:0:17:2");
        let mut parts = text.split(':');
        let workload = parts.next().filter(|name| named(name).is_some()).ok_or_else(wrong)?.to_owned();
        let numbers: Result<Vec<u64>, _> = parts.map(str::parse).collect();
        match numbers.as_deref() {
            Ok([variant, event, rest]) if (*variant as usize) < VARIANTS => {
                Ok(Self { workload, variant: *variant as usize, event: *event, rest: *rest as usize })
            }
            _ => Err(wrong()),
        }
    }
}

/// What a sweep has covered.
#[derive(Clone, Debug, Default)]
pub struct Swept {
    /// Moments at which a writer died.
    pub points: u64,
    /// Ways of dying that were judged.
    pub deaths: u64,
    /// Looks at the bucket alone while another writer took over.
    pub looks: u64,
    /// The violations that were found, with the point of each.
    pub violations: Vec<(Point, String)>,
}

impl Swept {
    /// Adds what another part of the sweep has covered.
    pub fn add(&mut self, other: Self) {
        self.points += other.points;
        self.deaths += other.deaths;
        self.looks += other.looks;
        self.violations.extend(other.violations);
    }
}

/// The workload of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|it| it.name == name)
}

/// Judges one death.
///
/// # Errors
/// The promise that was broken, or that there is no such point.
pub fn reproduce(point: &Point) -> Result<(), String> {
    let workload = named(&point.workload).ok_or("there is no such workload")?;
    let mut judged = Err("the workload has no such event, or no such way of dying".to_owned());
    let mut event = 0;
    play(workload, point.variant, &mut |stage| {
        if event == point.event
            && let Some(rest) = rests(stage.changes_under_way()).get(point.rest)
        {
            judged = panics::caught(|| die(stage, rest)).and_then(|it| it.map(drop));
        }
        event += 1;
    })?;
    judged
}

/// Sweeps a part of a variant of a workload. Before each event's deaths `goes_on` is told how many
/// violations were found.
pub fn sweep(workload: &Workload, variant: usize, share: Share, goes_on: &dyn Fn(usize) -> bool) -> Swept {
    let mut swept = Swept::default();
    let (mut event, mut violations) = (0, Vec::new());
    let played = panics::caught(|| {
        play(workload, variant, &mut |stage| {
            if event % share.of == share.nth && goes_on(violations.len()) {
                swept.points += 1;
                for (number, rest) in rests(stage.changes_under_way()).iter().enumerate() {
                    swept.deaths += 1;
                    match panics::caught(|| die(stage, rest)).and_then(|it| it) {
                        Ok(looks) => swept.looks += looks,
                        Err(what) => {
                            let workload = workload.name.to_owned();
                            violations.push((Point { workload, variant, event, rest: number }, what));
                        }
                    }
                }
            }
            event += 1;
        })
    });
    if let Err(what) = played.and_then(|it| it) {
        let workload = workload.name.to_owned();
        violations.push((Point { workload, variant, event, rest: 0 }, format!("before any death: {what}")));
    }
    swept.violations = violations;
    swept
}

/// Plays a workload to its end. `each` sees the stage after each event.
fn play(workload: &Workload, variant: usize, each: &mut dyn FnMut(&Stage)) -> Result<(), String> {
    let mut stage = Stage::new(variant);
    let each = &mut |stage: &Stage| {
        each(stage);
        Ok(())
    };
    stage.act(Act::Open, each)?;
    stage.act(Act::Settle, each)?;
    workload.acts.iter().try_for_each(|act| stage.act(*act, each))?;
    stage.act(Act::Settle, each)?;
    stage.judge_all()
}

/// What a writer does that has taken over.
const AFTERWARDS: [Act; 14] = [
    Act::Write(0, 1),
    Act::Flush,
    Act::Checkpoint,
    Act::Publish,
    Act::Settle,
    Act::Collect(90),
    Act::Settle,
    Act::Collect(90),
    Act::Publish,
    Act::Settle,
    Act::Publish,
    Act::Settle,
    Act::Close,
    Act::Settle,
];

/// All writers die. Another one takes over and goes on. Returns how often the bucket alone was
/// looked at.
fn die(stage: &Stage, rest: &Rest) -> Result<u64, String> {
    let (mut next, late) = stage.after_death(rest);
    judge::look(&mut next.store, &next.writers)?;
    next.judge_snapshots()?;
    let mut looks = 1;
    let each = &mut |stage: &Stage| {
        looks += 1;
        judge::look(&mut stage.store.clone(), &stage.writers)
    };
    next.act(Act::Open, each)?;
    next.act(Act::Settle, each)?;
    if *rest == Rest::LateAtOpening {
        next.carry_out(&late);
    }
    AFTERWARDS.iter().try_for_each(|act| next.act(*act, each))?;
    next.carry_out(&late);
    next.judge_all()?;
    let last = next.writers.last_mut().expect("a writer has taken over");
    judge::compare_books(last.open(), &mut next.store)?;
    Ok(looks)
}
