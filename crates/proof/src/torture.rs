// SPDX-License-Identifier: MIT OR Apache-2.0
//! A seed stands for one whole life of a cache: geometry, options, clients, mode switches, faulty
//! devices and power cuts, all at random. The oracle judges every answer.

mod change;
mod clients;
mod extra;
mod life;
mod moves;
mod pick;
mod plan;
mod trouble;
mod volumes;

use crate::panics;

pub use change::{Change, What};
pub use clients::ClientPlan;
pub use extra::Extra;
pub use life::{Lived, run};
pub use plan::{Plan, Trouble};

/// Lives a seed's life, with its plan changed so.
///
/// # Errors
/// The promise that was broken.
pub fn live(seed: u64, changes: &[Change]) -> Result<Lived, String> {
    let mut plan = Plan::from_seed(seed);
    changes.iter().for_each(|change| plan.change(*change));
    panics::caught(|| run(plan, seed))
}

/// Makes a failing life smaller: halves and drops what can be, as long as something still fails.
/// Returns the changes, and how the smallest life fails.
#[must_use]
pub fn shrink(seed: u64, mut changes: Vec<Change>, mut failure: String) -> (Vec<Change>, String) {
    loop {
        let mut plan = Plan::from_seed(seed);
        changes.iter().for_each(|change| plan.change(*change));
        let smaller = plan.smaller().into_iter().find_map(|change| {
            let mut tried: Vec<Change> = changes.iter().copied().filter(|it| it.what() != change.what()).collect();
            tried.push(change);
            live(seed, &tried).err().map(|failure| (tried, failure))
        });
        match smaller {
            Some(found) => (changes, failure) = found,
            None => return (changes, failure),
        }
    }
}
