// SPDX-License-Identifier: MIT OR Apache-2.0
//! A planted bug of the engine, or of the connections to its origins, holds in all worlds of this
//! process. A test of the tests plants one after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

pub use flashfront_engine::Canary;

/// Number of the planted one of the engine in [`Canary::ALL`], from 1; [`UNTOLD`] is the link's.
static PLANTED: AtomicUsize = AtomicUsize::new(0);
const UNTOLD: usize = usize::MAX;

/// What can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A bug of the engine.
    Engine(Canary),
    /// A bug of a network volume: nobody is told what was lost with its connection.
    LinkUntold,
}

/// All of them: what to plant, its name, what it does.
pub fn all() -> impl Iterator<Item = (Planted, &'static str, &'static str)> {
    let engine = Canary::ALL.iter().map(|(canary, name, summary)| (Planted::Engine(*canary), *name, *summary));
    engine.chain([(Planted::LinkUntold, "link-untold", "a lost connection fails no flush for what was unflushed")])
}

/// Plants a bug, or none.
pub fn plant(planted: Option<Planted>) {
    let number = match planted {
        None => 0,
        Some(Planted::LinkUntold) => UNTOLD,
        Some(Planted::Engine(canary)) => Canary::ALL.iter().position(|it| it.0 == canary).map_or(0, |nth| nth + 1),
    };
    PLANTED.store(number, Ordering::SeqCst);
}

/// The bug of the engine that is planted.
#[must_use]
pub fn planted() -> Option<Canary> {
    let number = PLANTED.load(Ordering::SeqCst).checked_sub(1)?;
    Canary::ALL.get(number).map(|it| it.0)
}

/// Whether the bug of the connections is planted.
#[must_use]
pub fn untold() -> bool {
    PLANTED.load(Ordering::SeqCst) == UNTOLD
}
