// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario has devices, a cache, phases of jobs, and bounds on what must come of it.
//!
//! Flashfront runs all phases one after the other; what is beside it runs those that are to be
//! compared, each in the same order.

mod measure;

use flashfront_device::sim::ModelSpec;
use flashfront_engine::{Mode, Options, Time};

pub use measure::{Bound, Measure, Target, Verdict};

use crate::load::{Job, PhaseResult, idle, run, work_bytes};
use crate::rival::{Geometry, Spec};
use crate::system::{Bare, Flashfront, FlashfrontSpec, System};

/// A part of a scenario.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The name.
    pub name: String,
    /// The jobs of the phase.
    pub jobs: Vec<Job>,
    /// Nothing is asked for so long before it.
    pub idle_ns: u64,
    /// From its beginning on Flashfront uses so many percent of the cache device, and empties the
    /// rest.
    pub keep_percent: Option<u32>,
    /// At its beginning Flashfront begins to move its cache to another device.
    pub replace: bool,
    /// What is beside Flashfront runs it too.
    pub beside: bool,
    /// What a bare origin does in its stead: the bound that it is compared with.
    pub bound: Option<Vec<Job>>,
}

/// A system beside Flashfront. The devices alone have the name that results shall have.
#[derive(Clone, Copy, Debug)]
pub enum Beside {
    /// The origin alone.
    Origin(&'static str),
    /// The cache device alone.
    Cache(&'static str),
    /// A model of another cache.
    Rival(&'static Spec),
}

impl Beside {
    /// Whether it runs a phase: other caches run all, as what they hold comes from there.
    const fn runs(&self, phase: &Phase) -> bool {
        phase.beside || matches!(self, Self::Rival(_))
    }
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name.
    pub name: String,
    /// A line on what the scenario is about.
    pub summary: String,
    /// The origin.
    pub origin: ModelSpec,
    /// Its size.
    pub origin_bytes: u64,
    /// The cache device.
    pub cache: ModelSpec,
    /// Its size.
    pub cache_bytes: u64,
    /// The write mode.
    pub mode: Mode,
    /// The engine's options.
    pub options: Options,
    /// Length of an interval of the series.
    pub interval_ns: u64,
    /// The systems beside Flashfront.
    pub beside: Vec<Beside>,
    /// The phases.
    pub phases: Vec<Phase>,
    /// The targets that the figures have to keep.
    pub targets: Vec<Target>,
}

/// What came of a scenario on one system; phases that it didn't run are `None`.
#[derive(Clone, Debug)]
pub struct Ran {
    /// `flashfront`, the name of what is beside it, or `bound`.
    pub system: &'static str,
    /// In the scenario's order.
    pub phases: Vec<Option<PhaseResult>>,
}

/// The result of a scenario.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The systems, Flashfront first.
    pub systems: Vec<Ran>,
    /// In the scenario's order.
    pub verdicts: Vec<Verdict>,
}

impl Judged {
    /// A phase of a system.
    #[must_use]
    pub fn phase(&self, system: &str, phase: usize) -> Option<&PhaseResult> {
        self.systems.iter().find(|ran| ran.system == system)?.phases[phase].as_ref()
    }
}

impl Scenario {
    /// What all its runs have to do, for a progress bar.
    #[must_use]
    pub fn work_bytes(&self) -> u64 {
        let phase = |phase: &Phase| {
            let runs = 1 + self.beside.iter().filter(|beside| beside.runs(phase)).count() as u64;
            runs * work_bytes(&phase.jobs) + phase.bound.as_ref().map_or(0, |jobs| work_bytes(jobs))
        };
        self.phases.iter().map(phase).sum()
    }

    /// Runs the scenario. `watch` hears of work done, and stops the run with false.
    pub fn run(&self, watch: &mut dyn FnMut(u64) -> bool) -> Option<Judged> {
        let spec = FlashfrontSpec {
            origin: self.origin,
            origin_bytes: self.origin_bytes,
            cache: self.cache,
            cache_bytes: self.cache_bytes,
            mode: self.mode,
            options: self.options.clone(),
        };
        let mut systems = vec![Ran {
            system: "flashfront",
            phases: self.run_on(&mut Flashfront::new(&spec), |phase| Some(&phase.jobs), watch)?,
        }];
        let geometry = Geometry {
            origin: self.origin,
            origin_bytes: self.origin_bytes,
            cache: self.cache,
            cache_bytes: self.cache_bytes,
        };
        for beside in &self.beside {
            let bare = |model, bytes| -> Box<dyn System> { Box::new(Bare::new(model, bytes)) };
            let (system, mut device) = match *beside {
                Beside::Origin(name) => (name, bare(self.origin, self.origin_bytes)),
                Beside::Cache(name) => (name, bare(self.cache, self.cache_bytes)),
                Beside::Rival(spec) => (spec.name, (spec.build)(&geometry)),
            };
            let phases = self.run_on(&mut *device, |phase| beside.runs(phase).then_some(&phase.jobs), watch)?;
            systems.push(Ran { system, phases });
        }
        if self.phases.iter().any(|phase| phase.bound.is_some()) {
            let mut bare = Bare::new(self.origin, self.origin_bytes);
            systems.push(Ran { system: "bound", phases: self.run_on(&mut bare, |phase| phase.bound.as_ref(), watch)? });
        }
        let mut outcome = Judged { systems, verdicts: Vec::new() };
        outcome.verdicts = self.targets.iter().map(|target| target.judge(self, &outcome)).collect();
        Some(outcome)
    }

    fn run_on<'a>(
        &'a self,
        system: &mut dyn System,
        jobs: impl Fn(&'a Phase) -> Option<&'a Vec<Job>>,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Vec<Option<PhaseResult>>> {
        let (mut now, mut number) = (Time(0), 0);
        let mut results = Vec::new();
        for phase in &self.phases {
            let Some(jobs) = jobs(phase) else {
                results.push(None);
                continue;
            };
            idle(system, &mut now, phase.idle_ns, watch)?;
            if let Some(percent) = phase.keep_percent {
                system.keep(now, percent);
            }
            if phase.replace {
                system.replace(now);
            }
            results.push(Some(run(system, &mut now, &mut number, jobs, self.interval_ns, watch)?));
        }
        Some(results)
    }
}
