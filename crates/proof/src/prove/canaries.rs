// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plants each canary of the engine and of its connections, and demands that it is caught. The
//! sweep of the workload made for it looks first, if there is one. Then come torture of the first
//! seeds and the whole crash sweep. With `--all` both look for each canary, which shows what
//! catches what.

#[cfg(not(feature = "canary"))]
pub(crate) fn main(_: &[&str]) -> Result<bool, String> {
    Err(WITHOUT.to_owned())
}

#[cfg(not(feature = "canary"))]
pub(crate) fn plant(_: &str) -> Result<(), String> {
    Err(WITHOUT.to_owned())
}

#[cfg(not(feature = "canary"))]
const WITHOUT: &str = "built without the feature `canary`; run `cargo x torture --canaries`";

#[cfg(feature = "canary")]
pub(crate) use with::{main, plant_named as plant};

#[cfg(feature = "canary")]
mod with {
    use std::ops::{ControlFlow, Not};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Instant;

    use flashfront_proof::canary::{Canary, Planted, all as canaries, plant};
    use flashfront_proof::panics;
    use flashfront_proof::sweep::{Share, WORKLOADS, Workload, sweep};
    use flashfront_proof::torture::live;

    use super::super::{USAGE, on_all_cores, one_line};

    /// Seeds that torture may take: what it lives in two minutes, about; most need a few.
    const SEEDS_MAX: u64 = 400;

    /// The bugs that hardly any random life meets (one in some hundred), and the workload that is
    /// made to meet them.
    const MADE_FOR: [(Canary, &str); 18] = [
        (Canary::OriginAhead, "modes"),
        (Canary::MirrorUnrecorded, "mirror-lead"),
        (Canary::RemovedAcknowledges, "replace"),
        (Canary::StaleNeighbour, "neighbours"),
        (Canary::JoinedVoid, "neighbours"),
        (Canary::InheritedFlushed, "killed"),
        (Canary::EraUncut, "ordered"),
        (Canary::EraEarly, "ordered-notes"),
        (Canary::GroupNewer, "ordered-groups"),
        (Canary::GroupFlushed, "ordered-groups"),
        (Canary::GroupUnnoted, "ordered-groups-notes"),
        (Canary::IdReused, "volumes"),
        (Canary::GrownEarly, "grow"),
        (Canary::MinIgnored, "shares"),
        (Canary::MaxIgnored, "largest-part"),
        (Canary::WeightsIgnored, "weights"),
        (Canary::EndForgotten, "vacate"),
        (Canary::EndRefilled, "vacate"),
    ];

    pub(crate) fn main(args: &[&str]) -> Result<bool, String> {
        let all = match args {
            [] => false,
            ["--all"] => true,
            _ => return Err(USAGE.to_owned()),
        };
        panics::keep();
        let (mut caught, mut planted) = (0, 0);
        for (canary, name, summary) in canaries() {
            planted += 1;
            plant(Some(canary));
            let begun = Instant::now();
            let made_for = MADE_FOR.iter().find(|it| Planted::Engine(it.0) == canary);
            let mut by = made_for.and_then(|it| by_sweep(name, |workload| workload.name == it.1));
            if all || by.is_none() {
                by = [by, by_torture(canary, name)].into_iter().flatten().reduce(|a, b| format!("{a}; {b}"));
            }
            if all || by.is_none() {
                by = [by, by_sweep(name, |_| true)].into_iter().flatten().reduce(|a, b| format!("{a}; {b}"));
            }
            let seconds = begun.elapsed().as_secs_f64();
            match by {
                Some(by) => {
                    caught += 1;
                    println!("{name}: {summary}: caught in {seconds:.1} s, {by}");
                }
                None => println!("{name}: {summary}: NOT CAUGHT in {seconds:.1} s"),
            }
        }
        plant(None);
        println!("canaries: {caught} of {planted} caught");
        Ok(caught == planted)
    }

    pub(crate) fn plant_named(name: &str) -> Result<(), String> {
        let found = canaries().find(|it| it.1 == name);
        let names: Vec<&str> = canaries().map(|it| it.1).collect();
        plant(Some(found.ok_or_else(|| format!("`{name}` is no canary; they are: {}", names.join(", ")))?.0));
        Ok(())
    }

    fn by_torture(canary: Planted, name: &str) -> Option<String> {
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let caught = on_all_cores(
            |_, _| {
                while !stop.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= SEEDS_MAX {
                        break;
                    }
                    if let Err(failure) = live(seed, &[]) {
                        return stop.swap(true, Ordering::SeqCst).not().then_some((seed, failure));
                    }
                }
                None
            },
            |_| format!("{name}: {} seeds", next.load(Ordering::SeqCst)),
        );
        let (seed, failure) = caught.into_iter().flatten().next()?;
        // What fails without the canary too says nothing of it.
        plant(None);
        let innocent = live(seed, &[]).is_ok();
        plant(Some(canary));
        if !innocent {
            println!("FAILED: cargo x torture --seed {seed}, without any canary");
            return None;
        }
        let short: String = one_line(&failure).chars().take(120).collect();
        Some(format!("by torture, seed {seed}: {short}"))
    }

    fn by_sweep(name: &str, chosen: impl Fn(&Workload) -> bool + Sync) -> Option<String> {
        let (cut, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let caught = on_all_cores(
            |nth, of| {
                for workload in WORKLOADS.iter().filter(|it| chosen(it)) {
                    let mut found = None;
                    let outcome = panics::caught(|| {
                        sweep(workload, Share { of, nth }, &mut |outcome| {
                            cut.fetch_add(1, Ordering::Relaxed);
                            found = outcome.violations.first().cloned();
                            let over = found.is_some() || stop.load(Ordering::SeqCst);
                            if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        })
                    });
                    let found = match outcome {
                        // The workload itself went wrong, without any power cut.
                        Err(failure) => Some((workload.name.to_owned(), failure)),
                        Ok(_) => found.map(|(point, failure)| (point.to_string(), failure)),
                    };
                    if found.is_some() || stop.load(Ordering::SeqCst) {
                        stop.store(true, Ordering::SeqCst);
                        return found;
                    }
                }
                None
            },
            |_| format!("{name}: {} events cut", cut.load(Ordering::Relaxed)),
        );
        let (point, failure) = caught.into_iter().flatten().next()?;
        let short: String = one_line(&failure).chars().take(120).collect();
        Some(format!("by the sweep at {point}: {short}"))
    }
}
